//! What a comparison found: costs, ratios and targets. The file for machines is this, serialised; [`table`](crate::table)
//! writes it for people.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::bench::{FLOWS, FLOWS_MANY, FlowCost};
use crate::burst::Cost;
use crate::expiry::Expiry;
use crate::flood::{FloodReport, Junk};
use crate::load::{Latency, LoadReport};
use crate::measured::Measured;
use crate::metrics::Lateness;
use crate::spent::Spent;

/// Everything that one comparison measured.
#[derive(Clone, Default, Debug, Serialize)]
pub struct Report {
    /// Where, of what and when.
    #[serde(flatten)]
    pub measured: Measured,
    /// Whether it was the short form.
    pub quick: bool,
    /// What else than time could be counted.
    pub counters: String,
    /// Ratios of costs, by name.
    pub ratios: BTreeMap<&'static str, f64>,
    /// What the project asks of itself, beside what was found.
    pub targets: Vec<Target>,
    /// Costs of a packet, by case.
    pub costs: BTreeMap<&'static str, CaseCost>,
    /// Where the time of some cases' programs goes.
    pub spent: BTreeMap<&'static str, Spent>,
    /// Costs of a packet, by number of flows.
    pub flows: Vec<FlowCost>,
    /// Latency and loss in an open loop.
    pub latency: Vec<NamedLoad>,
    /// What was forgotten during one of these loads.
    pub expiry: Option<Expiry>,
    /// What floods did.
    pub floods: Vec<FloodReport>,
    /// What could not be measured, and why.
    pub missing: Vec<String>,
}

/// A case's costs: one per pass, and their median.
#[derive(Clone, Debug, Serialize)]
pub struct CaseCost {
    /// The program.
    pub program: &'static str,
    /// Median over the passes, in nanoseconds per packet.
    pub nanos: f64,
    /// The passes.
    pub passes: Vec<Cost>,
}

/// A load, and what it went through.
#[derive(Clone, Debug, Serialize)]
pub struct NamedLoad {
    /// The program.
    pub program: &'static str,
    /// At which share of whose capacity.
    pub at: &'static str,
    /// What it showed.
    pub load: LoadReport,
    /// How late timers were on the program's executor, of a program that says so: the 99.9th percentile, in milliseconds.
    pub timer_lateness_p999_ms: Option<f64>,
    /// The same, whole.
    #[serde(skip)]
    pub lateness: Option<Lateness>,
}

impl NamedLoad {
    /// Puts a result under its name.
    #[must_use]
    pub fn new(
        program: &'static str,
        at: &'static str,
        load: LoadReport,
        lateness: Option<Lateness>,
    ) -> Self {
        Self {
            program,
            at,
            load,
            timer_lateness_p999_ms: lateness.as_ref().and_then(|late| late.quantile(0.999)),
            lateness,
        }
    }
}

/// What the project asks of itself.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Target {
    /// What is compared.
    pub name: &'static str,
    /// What was found; nothing when it could not be measured.
    pub found: Option<f64>,
    /// At most.
    pub must: f64,
    /// Better still.
    pub aim: f64,
}

/// The median of some figures.
#[must_use]
pub fn median(mut figures: Vec<f64>) -> Option<f64> {
    figures.retain(|figure| figure.is_finite());
    figures.sort_by(f64::total_cmp);
    let middle = figures.len() / 2;
    match figures.len() {
        0 => None,
        odd if odd % 2 == 1 => Some(figures[middle]),
        _ => Some(f64::midpoint(figures[middle - 1], figures[middle])),
    }
}

/// The costs of one pass, by case.
pub type Pass = BTreeMap<&'static str, (&'static str, Cost)>;

impl Report {
    /// Takes the passes in: costs by case, and ratios within each pass.
    pub fn set_passes(&mut self, passes: &[Pass]) {
        for pass in passes {
            for (id, (program, cost)) in pass {
                self.costs
                    .entry(id)
                    .or_insert_with(|| CaseCost {
                        program,
                        nanos: f64::NAN,
                        passes: Vec::new(),
                    })
                    .passes
                    .push(cost.clone());
            }
        }
        for case in self.costs.values_mut() {
            let nanos = case.passes.iter().map(|cost| cost.nanos).collect();
            case.nanos = median(nanos).unwrap_or(f64::NAN);
        }
        for (name, above, below) in [
            ("uplink_vs_floor_1500", "relay_up_1500", "floor_up"),
            ("uplink_vs_floor_9000", "relay_up_9000", "floor_up"),
            ("uplink_vs_floor_8dest", "relay_up_1500_8dest", "floor_up"),
            ("uplink_vs_floor_64dest", "relay_up_1500_64dest", "floor_up"),
            (
                "uplink_vs_floor_512dest",
                "relay_up_1500_512dest",
                "floor_up",
            ),
            (
                "uplink_vs_floor_64dest_9000",
                "relay_up_9000_64dest",
                "floor_up",
            ),
            ("downlink_vs_floor", "relay_down_1500", "floor_down"),
            ("downlink_vs_floor_9000", "relay_down_9000", "floor_down"),
            (
                "downlink_vs_floor_64dest",
                "relay_down_1500_64dest",
                "floor_down",
            ),
            ("vs_single", "relay_both_1500", "single_both"),
            ("vs_batched", "relay_both_1500", "batched_both"),
            ("vs_go", "relay_both_1500", "go_both"),
            ("vs_nginx", "relay_both_1500", "nginx_both"),
            ("vs_coturn", "relay_both_1500", "coturn_both"),
            (
                "uplink_vs_floor_1500_asleep",
                "relay_up_1500_asleep",
                "floor_up",
            ),
            (
                "downlink_vs_floor_asleep",
                "relay_down_1500_asleep",
                "floor_down_asleep",
            ),
            (
                "vs_single_asleep",
                "relay_both_1500_asleep",
                "single_both_asleep",
            ),
            ("vs_go_asleep", "relay_both_1500_asleep", "go_both_asleep"),
            (
                "vs_nginx_asleep",
                "relay_both_1500_asleep",
                "nginx_both_asleep",
            ),
        ] {
            self.set_ratio(name, passes, |cost| Some(cost(above)? / cost(below)?));
        }
        // No relay can be below: one receive up and one send down are what the kernel charges at least.
        for (name, peer) in [
            ("floors_vs_go", "go_both"),
            ("floors_vs_nginx", "nginx_both"),
        ] {
            self.set_ratio(name, passes, |cost| {
                let floor = f64::midpoint(cost("floor_up")?, cost("floor_down")?);
                Some(floor / cost(peer)?)
            });
        }
    }

    /// Takes a ratio within each pass, from the costs of its cases by id, and keeps the median; none when no pass has it.
    fn set_ratio(
        &mut self,
        name: &'static str,
        passes: &[Pass],
        ratio: impl Fn(&dyn Fn(&str) -> Option<f64>) -> Option<f64>,
    ) {
        let within = |pass: &Pass| ratio(&|id| pass.get(id).map(|(_, cost)| cost.nanos));
        if let Some(ratio) = median(passes.iter().filter_map(within).collect()) {
            self.ratios.insert(name, ratio);
        }
    }

    /// Works out the other ratios, and the table of targets. Call it last.
    pub fn finish(&mut self) {
        let of = |flows: u32| self.flows.iter().find(|cost| cost.flows == flows);
        // Fewer than a million are not a million: then there is no such ratio.
        if let Some((thousand, many)) = of(FLOWS).zip(of(FLOWS_MANY)) {
            let ratio = many.cost.nanos / thousand.cost.nanos;
            self.ratios.insert("million_flows_vs_thousand", ratio);
            let grown = many.resident.saturating_sub(thousand.resident) as f64;
            let bytes = grown / f64::from(many.flows - thousand.flows);
            self.ratios.insert("bytes_per_flow", bytes);
        }
        let loaded = |program: &str, at: &str| {
            let named = |load: &&NamedLoad| load.program == program && load.at == at;
            self.latency.iter().find(named).map(|named| named.load)
        };
        for (name, peer, at) in [
            ("vs_single_at_load", "one packet per call", HALF_OF_SINGLE),
            ("vs_go_at_load", "Go relay", HALF_OF_SINGLE),
            ("vs_nginx_at_load", "nginx stream", HALF_OF_SINGLE),
            ("vs_go_200_calls", "Go relay", FEW_CALLS),
            ("vs_nginx_200_calls", "nginx stream", FEW_CALLS),
        ] {
            let nanos = |program| loaded(program, at).and_then(|load| load.nanos);
            if let Some((relay, peer)) = nanos("relay without polling").zip(nanos(peer)) {
                self.ratios.insert(name, relay / peer);
            }
        }
        let delay = |program: &str, at: &str, quantile: fn(&Latency) -> f64| {
            let load = loaded(program, at)?;
            let ways = [load.up?, load.down?].map(|way| quantile(&way.latency));
            Some(f64::midpoint(ways[0], ways[1]))
        };
        let single = "one packet per call";
        for (name, [(program, at), (other, other_at)], quantile) in [
            (
                "latency_p99_vs_single",
                [("relay", HALF_OF_SINGLE), (single, HALF_OF_SINGLE)],
                p99 as fn(&Latency) -> f64,
            ),
            (
                "latency_p50_saturated_vs_single",
                [("relay", ALL_OF_SINGLE), (single, ALL_OF_SINGLE)],
                |latency| latency.p50,
            ),
            (
                "latency_p99_expiring_vs_not",
                [("relay", BESIDE_EXPIRY), ("relay", BESIDE_MANY)],
                p99,
            ),
        ] {
            let found = delay(program, at, quantile).zip(delay(other, other_at, quantile));
            if let Some((above, below)) = found {
                self.ratios.insert(name, above / below);
            }
        }
        if let Some(micros) = delay("relay without polling", FLAT_OUT, p99) {
            self.ratios.insert("latency_p99_saturated_ms", micros / 1e3);
        }
        // Timers starve when the pump never rests, if ever: only full load counts.
        let mut lateness = Lateness::default();
        let full = |load: &&NamedLoad| [ALL_OF_RELAY, FLAT_OUT].contains(&load.at);
        let late = self.latency.iter().filter(full);
        late.filter_map(|load| load.lateness.as_ref())
            .for_each(|late| lateness.add(late));
        if let Some(p999) = lateness.quantile(0.999) {
            self.ratios.insert("timer_lateness_p999_ms", p999);
        }
        let worst =
            |figure: fn(&FloodReport) -> f64| self.floods.iter().map(figure).max_by(f64::total_cmp);
        if let Some(lost) = worst(|flood| flood.lost_up.max(flood.lost_down)) {
            self.ratios.insert("flood_live_loss", lost);
        }
        for flood in &self.floods {
            let ratio = flood.nanos / flood.forwarding;
            self.ratios.insert(flood.junk.ratio(), ratio);
        }
        let target = |name, must, aim| Target {
            name,
            found: self.ratios.get(name).copied(),
            must,
            aim,
        };
        self.targets = vec![
            target("uplink_vs_floor_1500", 2.0, 1.6),
            target("uplink_vs_floor_9000", 1.6, 1.35),
            target("uplink_vs_floor_64dest", 2.6, 2.0),
            target("downlink_vs_floor", 1.25, 1.15),
            target("vs_go", 0.25, 0.15),
            target("vs_nginx", 0.12, 0.08),
            target("million_flows_vs_thousand", 1.3, 1.15),
            target("bytes_per_flow", 200.0, 128.0),
            target("latency_p99_vs_single", 1.0, 0.7),
            target("latency_p50_saturated_vs_single", 1.0, 0.5),
            target("latency_p99_saturated_ms", 100.0, 20.0),
            target("latency_p99_expiring_vs_not", 1.5, 1.1),
            target("timer_lateness_p999_ms", 15.0, 2.0),
            target("flood_live_loss", 0.001, 0.0),
        ];
        let judged = Junk::ALL.into_iter().filter(|junk| junk.is_judged());
        let junk = judged.map(|junk| target(junk.ratio(), 1.0, 0.8));
        self.targets.extend(junk);
    }
}

fn p99(latency: &Latency) -> f64 {
    latency.p99
}

/// A load as of two hundred calls, of 50 packets a second each way.
pub const FEW_CALLS: &str = "200 calls";

/// The rate of [`FEW_CALLS`], in packets a second each way.
pub const FEW_CALLS_RATE: f64 = 10_000.0;

/// A packet a second: what a relay takes that has nothing to do.
pub const IDLE: &str = "idle";

/// The rate at which latencies are compared.
pub const HALF_OF_SINGLE: &str = "half of what one packet per call can do";

/// Half of the relay's own capacity, as its cost per packet tells it.
pub const HALF_OF_RELAY: &str = "half of what the relay can do";

/// The relay's own capacity: latency at saturation.
pub const ALL_OF_RELAY: &str = "all of what the relay can do";

/// The capacity of the simplest forwarder: its latency at saturation, to compare with.
pub const ALL_OF_SINGLE: &str = "all of what one packet per call can do";

/// A thousand calls in a table of a million flows.
pub const BESIDE_MANY: &str = "1,000 calls beside a million flows";

/// The same calls while those flows are forgotten.
pub const BESIDE_EXPIRY: &str = "1,000 calls while flows are forgotten";

/// Every packet is due when it is sent: the generator is never late.
pub const FLAT_OUT: &str = "as much as the generator can send";

#[cfg(test)]
mod tests;
