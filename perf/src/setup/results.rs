//! What the ladder found: the file for machines is this, serialised; [`SetupResults::table`] is for people.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::beside_results::Beside;
use super::fit::Fit;
use super::kept::Ladder;
use super::targets::{Target, targets};
use crate::call::embedded_echo::BETWEEN_PACKETS;
use crate::measured::Measured;

/// Who is called, and which way.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Subject {
    /// Firsthop, through the relay.
    Relay,
    /// Firsthop, packets going past the relay to the transceiver.
    Direct,
    /// The echo test of Janus.
    Janus,
    /// An answerer written with aiortc.
    Aiortc,
}

impl Subject {
    /// As tables have it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Relay => "relay",
            Self::Direct => "direct",
            Self::Janus => "Janus",
            Self::Aiortc => "aiortc",
        }
    }
}

/// The HTTP connection that the POST goes by.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Connection {
    /// It was used before.
    Warm,
    /// It is made for the call: TCP, without TLS.
    Cold,
}

/// The data channel of an offer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Channel {
    /// There is none.
    Without,
    /// SCTP shakes hands after DTLS has.
    Handshake,
    /// SCTP's handshake is in offer and answer (`a=sctp-init`, draft-hancke-tsvwg-snap).
    Snap,
}

impl Channel {
    /// As tables and targets have it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Without => "no channel",
            Self::Handshake => "channel",
            Self::Snap => "channel, SNAP",
        }
    }
}

/// What a kind of call is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Case {
    /// Who is called.
    pub subject: Subject,
    /// By which connection.
    pub connection: Connection,
    /// With which channel.
    pub channel: Channel,
}

impl Case {
    /// As tables have it.
    #[must_use]
    pub fn name(self) -> String {
        let connection = match self.connection {
            Connection::Warm => "warm",
            Connection::Cold => "cold",
        };
        let channel = self.channel.name();
        format!("{}, {connection}, {channel}", self.subject.name())
    }
}

/// What a call comes to, in this order; each is counted from the POST.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// The answer is there.
    Answer,
    /// A check was answered, and its pair is used.
    Ice,
    /// DTLS is up.
    Dtls,
    /// The channel is open.
    Channel,
    /// The first audio is back, as it came.
    FirstAudio,
    /// The same without the echo's own delay ([`EchoDelay::subtracted_ms`]).
    Audio,
}

impl Phase {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Answer,
        Self::Ice,
        Self::Dtls,
        Self::Channel,
        Self::FirstAudio,
        Self::Audio,
    ];
}

/// How long something took, over many calls, in milliseconds.
#[derive(Clone, Copy, PartialEq, Default, Debug, Serialize, Deserialize)]
pub struct Quantiles {
    /// Half took less.
    pub p50: f64,
    /// One in ten took more.
    pub p90: f64,
    /// One in a hundred took more.
    pub p99: f64,
    /// The longest.
    pub max: f64,
    /// Calls that came so far.
    pub count: usize,
}

impl Quantiles {
    /// Those of these times; nothing when there are none.
    #[must_use]
    pub fn of(mut times: Vec<f64>) -> Option<Self> {
        times.sort_by(f64::total_cmp);
        let at = |share: f64| {
            let place = (share * times.len() as f64).ceil() as usize;
            times.get(place.max(1) - 1).copied()
        };
        Some(Self {
            p50: at(0.5)?,
            p90: at(0.9)?,
            p99: at(0.99)?,
            max: at(1.0)?,
            count: times.len(),
        })
    }
}

/// One call: when it came to what, in milliseconds after its POST.
#[derive(Clone, Default, Debug)]
pub struct Sample {
    /// Every phase but [`Phase::Audio`] that it came to.
    pub phases: BTreeMap<Phase, f64>,
    /// When its first audio left.
    pub spoke: Option<f64>,
}

impl Sample {
    /// How long after its first audio left it came back.
    #[must_use]
    pub fn echoed(&self) -> Option<f64> {
        Some(self.phases.get(&Phase::FirstAudio)? - self.spoke?)
    }
}

/// Calls of one kind on one line.
#[derive(Clone, Debug)]
pub struct Climbed {
    /// What kind.
    pub case: Case,
    /// Round-trip time of the line in milliseconds.
    pub rtt_ms: f64,
    /// The share of frames that it loses, each way.
    pub loss: f64,
    /// The calls that came about.
    pub samples: Vec<Sample>,
    /// Why others did not.
    pub failures: BTreeMap<String, u32>,
}

/// Calls of one kind on one line, summed up.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Rung {
    /// What kind.
    #[serde(flatten)]
    pub case: Case,
    /// Round-trip time of the line in milliseconds.
    pub rtt_ms: f64,
    /// The share of frames that it loses, each way.
    pub loss: f64,
    /// Calls placed.
    pub calls: usize,
    /// Of these, calls that never came to audio, by what happened.
    pub failed: BTreeMap<String, u32>,
    /// How long each phase took from the POST, in milliseconds.
    pub phases: BTreeMap<Phase, Quantiles>,
}

/// The round trips of one phase, from medians on lines without loss.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct RoundTrips {
    /// Of what kind of call.
    #[serde(flatten)]
    pub case: Case,
    /// Of which phase, counted from the POST.
    pub phase: Phase,
    /// The line through the medians.
    #[serde(flatten)]
    pub fit: Fit,
}

/// How long a subject's echo holds what it hears.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct EchoDelay {
    /// Whose echo.
    pub subject: Subject,
    /// The median from a call's first packet to the first one back on a line of no length, in milliseconds. What both ends take to decode, to queue
    /// and to be scheduled is in it.
    pub ms: f64,
    /// What of that is taken off [`Phase::Audio`], in milliseconds: what Firsthop's echo waits on purpose ([`BETWEEN_PACKETS`]), so that what its
    /// programs take stays in. Of a peer, whose echo says nothing of itself, all.
    pub subtracted_ms: f64,
}

/// What begins the line that says why there is nothing of set-ups beside calls that are up.
pub const BESIDE_MISSING: &str = "set-up beside calls that are up";

/// Everything that was measured.
#[derive(Clone, Default, Debug, Serialize, Deserialize)]
pub struct SetupResults {
    /// Where, of what and when.
    #[serde(flatten)]
    pub measured: Measured,
    /// Whether it was the short form.
    pub quick: bool,
    /// What was climbed, if anything was. Older files do not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ladder: Option<Ladder>,
    /// Every kind of call on every line.
    pub rungs: Vec<Rung>,
    /// Round trips by phase.
    pub round_trips: Vec<RoundTrips>,
    /// What the echoes hold.
    pub echoes: Vec<EchoDelay>,
    /// Set-ups while other calls are up, if that was measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub beside: Option<Beside>,
    /// What is asked of Firsthop.
    pub targets: Vec<Target>,
    /// What was not measured, and why.
    pub missing: Vec<String>,
}

impl SetupResults {
    /// Sums up what was climbed.
    #[must_use]
    pub fn of(measured: Measured, quick: bool, climbed: &[Climbed], missing: Vec<String>) -> Self {
        let echoes = echoes(climbed);
        let rungs: Vec<Rung> = climbed.iter().map(|c| rung(c, &echoes)).collect();
        let round_trips = round_trips(&rungs);
        let targets = targets(&rungs, &round_trips);
        Self {
            measured,
            quick,
            ladder: None,
            rungs,
            round_trips,
            echoes,
            beside: None,
            targets,
            missing,
        }
    }

    /// Says what was climbed.
    #[must_use]
    pub fn on(self, ladder: Option<Ladder>) -> Self {
        Self { ladder, ..self }
    }

    /// Adds what was found while other calls were up.
    #[must_use]
    pub fn with(mut self, beside: Beside) -> Self {
        let targets = beside.targets();
        if targets.is_empty() {
            let why = beside.uncounted().join("; ");
            let missing = format!("{BESIDE_MISSING}: no pass counts: {why}");
            self.missing.push(missing);
        }
        self.targets.extend(targets);
        self.beside = Some(beside);
        self
    }

    /// The line through the medians of a phase of a kind of call, if there is one.
    #[must_use]
    pub fn fit(&self, case: Case, phase: Phase) -> Option<Fit> {
        self.round_trips
            .iter()
            .find(|found| (found.case, found.phase) == (case, phase))
            .map(|found| found.fit)
    }
}

/// What each echo holds: on the line of no length, of calls without a channel if there were any. (A channel may open only when the echo has
/// begun, which holds it longer.)
fn echoes(climbed: &[Climbed]) -> Vec<EchoDelay> {
    let mut found: BTreeMap<Subject, (Channel, Vec<f64>)> = BTreeMap::new();
    for rung in climbed.iter().filter(|c| c.rtt_ms == 0.0 && c.loss == 0.0) {
        let times: Vec<f64> = rung.samples.iter().filter_map(Sample::echoed).collect();
        let (channel, all) = found
            .entry(rung.case.subject)
            .or_insert_with(|| (rung.case.channel, Vec::new()));
        if rung.case.channel < *channel {
            *channel = rung.case.channel;
            all.clear();
        }
        if rung.case.channel == *channel {
            all.extend(times);
        }
    }
    found
        .into_iter()
        .filter_map(|(subject, (_, times))| {
            let ms = Quantiles::of(times)?.p50;
            let subtracted_ms = match subject {
                Subject::Relay | Subject::Direct => 1e3 * BETWEEN_PACKETS.as_secs_f64(),
                Subject::Janus | Subject::Aiortc => ms,
            };
            Some(EchoDelay {
                subject,
                ms,
                subtracted_ms,
            })
        })
        .collect()
}

fn rung(climbed: &Climbed, echoes: &[EchoDelay]) -> Rung {
    let of = |phase| -> Vec<f64> {
        let samples = climbed.samples.iter();
        samples
            .filter_map(|sample| sample.phases.get(&phase).copied())
            .collect()
    };
    let echo = echoes
        .iter()
        .find(|echo| echo.subject == climbed.case.subject);
    let phases = Phase::ALL
        .into_iter()
        .filter_map(|phase| {
            let times = match (phase, echo) {
                (Phase::Audio, Some(echo)) => {
                    let heard = of(Phase::FirstAudio);
                    heard
                        .iter()
                        .map(|heard| heard - echo.subtracted_ms)
                        .collect()
                }
                (Phase::Audio, None) => Vec::new(),
                _ => of(phase),
            };
            Some((phase, Quantiles::of(times)?))
        })
        .collect();
    let failed: u32 = climbed.failures.values().sum();
    Rung {
        case: climbed.case,
        rtt_ms: climbed.rtt_ms,
        loss: climbed.loss,
        calls: climbed.samples.len() + failed as usize,
        failed: climbed.failures.clone(),
        phases,
    }
}

pub(super) fn round_trips(rungs: &[Rung]) -> Vec<RoundTrips> {
    let mut medians: BTreeMap<(Case, Phase), Vec<(f64, f64)>> = BTreeMap::new();
    for rung in rungs.iter().filter(|rung| rung.loss == 0.0) {
        for (phase, times) in &rung.phases {
            let points = medians.entry((rung.case, *phase)).or_default();
            points.push((rung.rtt_ms, times.p50));
        }
    }
    medians
        .into_iter()
        .filter_map(|((case, phase), points)| {
            let fit = Fit::through(&points)?;
            Some(RoundTrips { case, phase, fit })
        })
        .collect()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A ladder of calls that take so many round trips to each phase, and 5 ms; the echo holds 60 on purpose, and audio takes 4 more.
    pub(in crate::setup) fn ladder(
        subject: Subject,
        channel: Channel,
        dtls: f64,
        audio: f64,
    ) -> Vec<Climbed> {
        let case = Case {
            subject,
            connection: Connection::Warm,
            channel,
        };
        [0.0, 20.0, 80.0, 200.0]
            .into_iter()
            .map(|rtt_ms| {
                let sample = Sample {
                    phases: BTreeMap::from([
                        (Phase::Answer, rtt_ms + 2.0),
                        (Phase::Dtls, dtls * rtt_ms + 5.0),
                        (Phase::FirstAudio, audio * rtt_ms + 69.0),
                    ]),
                    spoke: Some(dtls * rtt_ms + 5.0),
                };
                Climbed {
                    case,
                    rtt_ms,
                    loss: 0.0,
                    samples: vec![sample; 5],
                    failures: BTreeMap::new(),
                }
            })
            .collect()
    }

    #[test]
    fn the_slope_is_what_the_line_added_and_the_echo_is_left_out() {
        let mut climbed = ladder(Subject::Relay, Channel::Without, 3.0, 3.9);
        climbed.extend(ladder(Subject::Janus, Channel::Without, 3.0, 3.9));
        let results = SetupResults::of(Measured::default(), true, &climbed, Vec::new());
        // A peer's echo does not say what it waits on purpose: all of it is taken off.
        for (echo, subtracted) in results.echoes.iter().zip([60.0, 64.0]) {
            assert!((echo.ms - 64.0).abs() < 1e-9, "{echo:?}");
            assert!((echo.subtracted_ms - subtracted).abs() < 1e-9, "{echo:?}");
        }
        assert_eq!(results.echoes.len(), 2);
        let case = climbed[0].case;
        for (phase, round_trips, fixed) in [
            (Phase::Answer, 1.0, 2.0),
            (Phase::Dtls, 3.0, 5.0),
            (Phase::FirstAudio, 3.9, 69.0),
            (Phase::Audio, 3.9, 9.0),
        ] {
            let fit = results.fit(case, phase).expect("a fit");
            assert!((fit.round_trips - round_trips).abs() < 1e-9, "{fit:?}");
            assert!((fit.fixed_ms - fixed).abs() < 1e-9, "{fit:?}");
        }
        assert!(results.fit(case, Phase::Channel).is_none());
    }

    #[test]
    fn calls_that_fail_are_counted_and_do_not_make_a_phase() {
        let mut climbed = ladder(Subject::Relay, Channel::Without, 3.0, 4.0);
        climbed[1].samples.clear();
        climbed[1].failures.insert("no audio".to_owned(), 5);
        let results = SetupResults::of(Measured::default(), false, &climbed, Vec::new());
        assert_eq!(results.rungs[1].calls, 5);
        assert!(results.rungs[1].phases.is_empty());
        assert!(results.fit(climbed[0].case, Phase::Dtls).is_some());
        let text = serde_json::to_string(&results).expect("JSON");
        assert!(text.contains(r#""subject":"relay""#), "{text}");
        assert!(text.contains(r#""first_audio":{"p50":"#), "{text}");
    }

    #[test]
    fn quantiles_are_times_that_were_measured() {
        let times: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        let found = Quantiles::of(times).expect("some");
        assert_eq!(
            (found.p50, found.p90, found.p99, found.max),
            (50.0, 90.0, 99.0, 100.0)
        );
        assert_eq!(Quantiles::of(vec![3.0]).expect("one").p50, 3.0);
        assert_eq!(Quantiles::of(Vec::new()), None);
    }
}
