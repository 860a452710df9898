//! What calls cost, as files of results have it: every figure with the file that it is from.
//!
//! The costs of whole calls come from `capacity.json`, by the lines that were fitted there. Where it has none, what is in `calls.json` of a
//! transceiver takes its place: a number of calls that kept to the limits before one that time alone would allow. What a packet costs a relay is in `relay.json` as well: the larger of both counts, since packets had no
//! calls around them there.

use serde::{Deserialize, Serialize};

use super::capacity::Capacity;
use crate::findings::{Findings, FindingsError, Kind, Source, or_none};

/// A measured figure.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Figure {
    /// What it is.
    pub what: String,
    /// How much, in `unit`.
    pub value: f64,
    /// What it counts.
    pub unit: &'static str,
    /// The file that it is from.
    pub file: String,
    /// The commit that was measured.
    pub commit: String,
    /// Where.
    pub machine: String,
    /// Whether the file is of the short form.
    pub quick: bool,
}

/// A fitted line, beside what was measured.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Fitted {
    /// The program.
    pub program: String,
    /// The load: `silent`, `passthrough`, `transcoding` or `set_ups`.
    pub kind: String,
    /// Microseconds of processor time in a second without any load.
    pub fixed: f64,
    /// What each call, or each set-up a second, adds.
    pub each: f64,
    /// The share of the spread that the line explains.
    pub explained: f64,
    /// Load, what was measured with it, and what the line says: microseconds in a second.
    pub points: Vec<(f64, f64, f64)>,
}

/// All that a plan is made of.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Costs {
    /// Processor time of a relay for a call, in microseconds a second. It never looks at a codec, so that of the measurement with most calls counts.
    pub relay_call: Figure,
    /// Processor time of a relay for a set-up, in microseconds.
    pub relay_set_up: Option<Figure>,
    /// Processor time of a relay for a packet up and one down, in nanoseconds.
    pub relay_packets: [Figure; 2],
    /// Times what a packet up costs with a million flows.
    pub relay_many_flows: Option<Figure>,
    /// Records in a trunk datagram.
    pub packing: Figure,
    /// Bytes that a relay holds for a flow.
    pub relay_flow: Figure,
    /// Calls that a core of a transceiver carries: through, and decoded.
    pub transceiver_calls: [Figure; 2],
    /// Whether these are of the time that a call takes alone because no limit was found: no number of calls kept to the limits, or the search for the most
    /// met none of its own.
    pub transceiver_by_time: [bool; 2],
    /// Processor time of a transceiver for a set-up, in microseconds.
    pub transceiver_set_up: Option<Figure>,
    /// Bytes that a transceiver holds for a call: through, and decoded.
    pub transceiver_bytes: [Figure; 2],
    /// Processor time of signaling for a set-up, in microseconds, when each comes by a connection of its own.
    pub signaling_set_up: Figure,
    /// The lines that were fitted.
    pub fitted: Vec<Fitted>,
}

/// Why there are no costs.
#[derive(Debug, thiserror::Error)]
pub enum CostsError {
    /// A file cannot be read.
    #[error(transparent)]
    Findings(#[from] FindingsError),
    /// No file has it.
    #[error("no file of results says {what}: `{}` measures it, and --results names the folder", kind.command())]
    Missing {
        /// What is missing.
        what: String,
        /// Which kind of file has it.
        kind: Kind,
    },
}

/// What a transceiver has to do for a call, in the order of the arrays above.
pub(super) const WORKS: [&str; 2] = ["passthrough", "transcoding"];

#[derive(Deserialize)]
struct Calls {
    #[serde(default)]
    capacity: Vec<Worked>,
}

#[derive(Deserialize)]
struct Worked {
    /// Older files have a transceiver alone, and do not say so.
    service: Option<String>,
    work: String,
    calls: f64,
    /// Nothing when the search ended before a limit was met. Older files do not say, and nothing is known of one then.
    limit: Option<String>,
    #[serde(default)]
    steps: Vec<Step>,
}

#[derive(Deserialize)]
struct Step {
    calls: f64,
    #[serde(deserialize_with = "or_none")]
    bytes_per_call: f64,
}

#[derive(Deserialize)]
struct Relay {
    costs: std::collections::BTreeMap<String, Case>,
    ratios: std::collections::BTreeMap<String, f64>,
}

#[derive(Deserialize)]
struct Case {
    #[serde(deserialize_with = "or_none")]
    nanos: f64,
    #[serde(default)]
    passes: Vec<Pass>,
}

#[derive(Deserialize)]
struct Pass {
    packing: Option<f64>,
}

#[derive(Deserialize)]
struct Signaling {
    calls_per_core: f64,
    #[serde(default)]
    loads: Vec<Load>,
}

#[derive(Deserialize)]
struct Load {
    connects: bool,
    micros: f64,
}

/// The newest file of a kind, and what is in it.
struct Read<'a, T> {
    source: Option<&'a Source>,
    body: Option<T>,
}

impl<'a, T: serde::de::DeserializeOwned> Read<'a, T> {
    fn of(findings: &'a Findings, kind: Kind) -> Result<Self, FindingsError> {
        let source = findings.latest(kind);
        let body = source.map(Source::read).transpose()?;
        Ok(Self { source, body })
    }

    /// A figure out of it, where it has one.
    fn figure(
        &self,
        what: &str,
        unit: &'static str,
        of: impl Fn(&T) -> Option<f64>,
    ) -> Option<Figure> {
        let source = self.source?;
        Some(Figure {
            what: what.to_owned(),
            value: of(self.body.as_ref()?).filter(|value| value.is_finite() && *value > 0.0)?,
            unit,
            file: source.file.clone(),
            commit: source.origin.commit.clone(),
            machine: source.origin.machine.clone(),
            quick: source.quick,
        })
    }
}

fn needed(figure: Option<Figure>, what: &str, kind: Kind) -> Result<Figure, CostsError> {
    figure.ok_or_else(|| CostsError::Missing {
        what: what.to_owned(),
        kind,
    })
}

/// The same for each work.
fn for_works(
    figure: impl Fn(&str) -> Result<Figure, CostsError>,
) -> Result<[Figure; 2], CostsError> {
    Ok([figure(WORKS[0])?, figure(WORKS[1])?])
}

/// How many calls of the work a core of a transceiver carries, and whether that is by their time because no limit was found. `calls.json` has a search, too: what kept to the
/// limits there counts where `capacity.json` has none of that work, but never more than calls have the time for.
fn carried(
    capacity: &Read<'_, Capacity>,
    calls: &Read<'_, Calls>,
    work: &str,
) -> Result<(Figure, bool), CostsError> {
    let what = format!("calls on a core of a transceiver, {}", words(work));
    let kept = capacity.figure(&what, "calls", |capacity| capacity.kept(work));
    let searched = capacity
        .body
        .as_ref()
        .is_some_and(|body| body.has_searched(work));
    let elsewhere = || {
        let kept = calls.figure(&what, "calls", |calls| calls.of(work)?.kept());
        kept.filter(|_| !searched)
    };
    let by_time = {
        let what = format!("{what}, by its time alone");
        capacity.figure(&what, "calls", |capacity| capacity.by_time(work))
    };
    if let Some(kept) = kept.or_else(elsewhere) {
        let less = by_time.filter(|by_time| by_time.value < kept.value);
        return Ok((less.unwrap_or(kept), false));
    }
    // The last is a search that ended before a limit was met.
    let open = || calls.figure(&what, "calls", |calls| Some(calls.of(work)?.calls));
    let is_by_time = by_time.is_some();
    let figure = needed(by_time.or_else(open), &what, Kind::Capacity)?;
    Ok((figure, is_by_time))
}

impl Costs {
    /// Takes them out of the newest files.
    ///
    /// # Errors
    /// A file is not what it should be, or one is missing that nothing takes the place of.
    pub fn of(findings: &Findings) -> Result<Self, CostsError> {
        let capacity = Read::<Capacity>::of(findings, Kind::Capacity)?;
        let calls = Read::<Calls>::of(findings, Kind::Calls)?;
        let relay = Read::<Relay>::of(findings, Kind::Relay)?;
        let signaling = Read::<Signaling>::of(findings, Kind::Signaling)?;

        let nanos = |what: &str, id: &'static str| {
            let figure = relay.figure(what, "ns", |relay| Some(relay.costs.get(id)?.nanos));
            needed(figure, what, Kind::Relay)
        };
        let relay_packets = [
            nanos(
                "what a packet up costs a relay, 64 owners",
                "relay_up_1500_64dest",
            )?,
            nanos(
                "what a packet down costs a relay, 64 owners",
                "relay_down_1500_64dest",
            )?,
        ];
        let relay_many_flows = relay.figure(
            "a packet up with a million flows, to one with a thousand",
            "×",
            |relay| relay.ratios.get("million_flows_vs_thousand").copied(),
        );
        let each = |program: &str, kind: &str, capacity: &Capacity| capacity.each(program, kind);
        let packets = |rate: f64| {
            let [up, down] = &relay_packets;
            let many = relay_many_flows
                .as_ref()
                .map_or(1.0, |many| many.value.max(1.0));
            rate * (up.value * many + down.value) / 1e3
        };
        let relay_call = {
            let what = "a relay's time for a call";
            let most = capacity.body.as_ref().and_then(Capacity::relay_call);
            let whole = most.and_then(|(of, micros)| {
                capacity.figure(&format!("{what}, {of}"), "µs a second", |_| Some(micros))
            });
            // At 50 packets a second each way, as calls were measured; a plan scales it.
            let by_packets =
                relay.figure(&format!("{what}, by its packets"), "µs a second", |_| {
                    Some(packets(MEASURED_RATE))
                });
            let larger = [whole, by_packets]
                .into_iter()
                .flatten()
                .max_by(|a, b| a.value.total_cmp(&b.value));
            needed(larger, what, Kind::Capacity)?
        };
        let [through, decoded] = WORKS.map(|work| carried(&capacity, &calls, work));
        let (through, decoded) = (through?, decoded?);
        let transceiver_by_time = [through.1, decoded.1];
        let transceiver_calls = [through.0, decoded.0];
        let transceiver_bytes = for_works(|work| {
            let what = format!("memory of a transceiver for a call, {}", words(work));
            let fitted = capacity.figure(&what, "bytes", |capacity| {
                Some(capacity.cost("transceiver", work)?.memory.each)
            });
            let alone = || calls.figure(&what, "bytes", |calls| calls.of(work)?.bytes());
            needed(fitted.or_else(alone), &what, Kind::Capacity)
        })?;
        let set_up = |program: &str| {
            let what = format!("{program}'s time for a set-up");
            capacity.figure(&what, "µs", |capacity| each(program, "set_ups", capacity))
        };
        let asked = |signaling: &Signaling| {
            let connecting = signaling.loads.iter().find(|load| load.connects);
            Some(connecting.map_or(1e6 / signaling.calls_per_core, |load| load.micros))
        };
        let what = "signaling's time for a set-up";
        let alone = signaling.figure(&format!("{what}, with a connection for each"), "µs", asked);
        let larger = [set_up("signaling"), alone].into_iter().flatten();
        let signaling_set_up = larger.max_by(|a, b| a.value.total_cmp(&b.value));
        Ok(Self {
            relay_set_up: set_up("relay"),
            transceiver_set_up: set_up("transceiver"),
            packing: needed(
                relay.figure(
                    "records in a trunk datagram, 64 owners",
                    "records",
                    |relay| relay.packing("relay_up_1500_64dest"),
                ),
                "how many records a trunk datagram has",
                Kind::Relay,
            )?,
            relay_flow: needed(
                relay.figure("memory of a relay for a flow", "bytes", |relay| {
                    relay.ratios.get("bytes_per_flow").copied()
                }),
                "how many bytes a relay holds for a flow",
                Kind::Relay,
            )?,
            signaling_set_up: needed(signaling_set_up, what, Kind::Signaling)?,
            fitted: capacity
                .body
                .as_ref()
                .map(Capacity::fitted)
                .unwrap_or_default(),
            relay_call,
            relay_packets,
            relay_many_flows,
            transceiver_calls,
            transceiver_by_time,
            transceiver_bytes,
        })
    }

    /// All figures that a plan uses, in the order that they are printed.
    #[must_use]
    pub fn figures(&self) -> Vec<&Figure> {
        let mut figures: Vec<&Figure> = Vec::new();
        figures.push(&self.relay_call);
        figures.extend(&self.relay_packets);
        figures.extend(
            [&self.relay_many_flows, &self.relay_set_up]
                .into_iter()
                .flatten(),
        );
        figures.extend([&self.packing, &self.relay_flow]);
        figures.extend(&self.transceiver_calls);
        figures.extend(&self.transceiver_bytes);
        figures.extend(&self.transceiver_set_up);
        figures.push(&self.signaling_set_up);
        figures
    }
}

/// Packets a second, each way, of the calls that were measured.
pub(super) const MEASURED_RATE: f64 = 50.0;

pub(super) fn words(work: &str) -> &str {
    match work {
        "passthrough" => "passed through",
        "transcoding" => "decoded and encoded",
        other => other,
    }
}

impl Calls {
    fn of(&self, work: &str) -> Option<&Worked> {
        let alone = |one: &&Worked| {
            one.service
                .as_deref()
                .is_none_or(|service| service == "transceiver")
        };
        self.capacity
            .iter()
            .filter(alone)
            .find(|one| one.work == work)
    }
}

impl Worked {
    /// The most calls that kept to the limits; nothing where no number did, or the generator or the number of steps ended the search.
    fn kept(&self) -> Option<f64> {
        let limit = self.limit.as_deref()?;
        (limit != "the generator" && self.calls > 0.0).then_some(self.calls)
    }

    /// What the transceiver's memory grew by for each call, when it carried as many as it could.
    fn bytes(&self) -> Option<f64> {
        let full = self.steps.iter().find(|step| step.calls == self.calls);
        full.map(|step| step.bytes_per_call)
    }
}

impl Relay {
    /// The median over the passes.
    fn packing(&self, id: &str) -> Option<f64> {
        let passes = &self.costs.get(id)?.passes;
        crate::report::median(passes.iter().filter_map(|pass| pass.packing).collect())
    }
}
