//! What a comparison found: ratios and targets, a file for machines, a table for people.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;

use serde::Serialize;

use crate::bench::FlowCost;
use crate::burst::Cost;
use crate::flood::FloodReport;
use crate::load::LoadReport;

/// Everything that one comparison measured.
#[derive(Clone, Default, Debug, Serialize)]
pub struct Report {
    /// Where.
    pub machine: Machine,
    /// Of what: the commit that was built, with `-dirty` when the tree had changes.
    pub commit: String,
    /// When, as the caller wrote it.
    pub date: String,
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
    /// Costs of a packet, by number of flows.
    pub flows: Vec<FlowCost>,
    /// Latency and loss in an open loop.
    pub latency: Vec<NamedLoad>,
    /// What floods did.
    pub floods: Vec<FloodReport>,
    /// What could not be measured, and why.
    pub missing: Vec<String>,
}

/// The machine that measured.
#[derive(Clone, Default, Debug, Serialize)]
pub struct Machine {
    /// Processor model.
    pub processor: String,
    /// Processors that this program may use.
    pub processors: usize,
    /// Whether it is a virtual machine.
    pub virtual_machine: bool,
    /// Kernel release.
    pub kernel: String,
    /// The largest receive buffer that the kernel grants, in bytes.
    pub rmem_max: u64,
    /// Load average over a minute, when the measurement began: other work on the machine.
    pub load_at_start: f64,
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

impl Machine {
    /// Asks the kernel.
    #[must_use]
    pub fn this() -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let cpuinfo = read("/proc/cpuinfo");
        let field = |name: &str| {
            cpuinfo
                .lines()
                .find_map(|line| line.strip_prefix(name)?.split_once(':'))
                .map(|(_, value)| value.trim().to_owned())
        };
        let first = |text: String| {
            text.split_whitespace()
                .next()
                .unwrap_or_default()
                .to_owned()
        };
        Self {
            processor: field("model name").unwrap_or_default(),
            processors: std::thread::available_parallelism().map_or(0, usize::from),
            virtual_machine: field("flags")
                .is_some_and(|flags| flags.split(' ').any(|flag| flag == "hypervisor")),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            rmem_max: first(read("/proc/sys/net/core/rmem_max"))
                .parse()
                .unwrap_or(0),
            load_at_start: first(read("/proc/loadavg")).parse().unwrap_or(0.0),
        }
    }
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
            let within = |pass: &Pass| {
                let cost = |id| pass.get(id).map(|(_, cost)| cost.nanos);
                cost(above).zip(cost(below)).map(|(a, b)| a / b)
            };
            if let Some(ratio) = median(passes.iter().filter_map(within).collect()) {
                self.ratios.insert(name, ratio);
            }
        }
        // No relay can be below: one receive up and one send down are what the kernel charges at least.
        for (name, peer) in [
            ("floors_vs_go", "go_both"),
            ("floors_vs_nginx", "nginx_both"),
        ] {
            let within = |pass: &Pass| {
                let cost = |id| pass.get(id).map(|(_, cost)| cost.nanos);
                let floor = f64::midpoint(cost("floor_up")?, cost("floor_down")?);
                Some(floor / cost(peer)?)
            };
            if let Some(ratio) = median(passes.iter().filter_map(within).collect()) {
                self.ratios.insert(name, ratio);
            }
        }
    }

    /// Works out the other ratios, and the table of targets. Call it last.
    pub fn finish(&mut self) {
        let of = |flows: u32| self.flows.iter().find(|cost| cost.flows == flows);
        if let Some((thousand, many)) = of(1_000).zip(self.flows.last()) {
            // How many the most were, `flows` says.
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
        let at_load = |program: &str| loaded(program, HALF_OF_SINGLE);
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
        let p99 = |program: &str| {
            let load = at_load(program)?;
            let ways = [load.up?.latency.p99, load.down?.latency.p99];
            Some(f64::midpoint(ways[0], ways[1]))
        };
        if let Some((relay, single)) = p99("relay").zip(p99("one packet per call")) {
            self.ratios.insert("latency_p99_vs_single", relay / single);
        }
        let worst =
            |figure: fn(&FloodReport) -> f64| self.floods.iter().map(figure).max_by(f64::total_cmp);
        if let Some(lost) = worst(|flood| flood.lost_up.max(flood.lost_down)) {
            self.ratios.insert("flood_live_loss", lost);
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
            target("flood_live_loss", 0.001, 0.0),
        ];
    }

    /// The report as a table for people.
    #[must_use]
    pub fn table(&self) -> String {
        let mut out = String::new();
        // Writing to a string cannot fail.
        let _ = self.write_table(&mut out);
        out
    }

    fn write_table(&self, out: &mut String) -> std::fmt::Result {
        let machine = &self.machine;
        writeln!(
            out,
            "{}, {} processors{}, Linux {}, load {:.1}; commit {}",
            machine.processor,
            machine.processors,
            if machine.virtual_machine {
                " (virtual)"
            } else {
                ""
            },
            machine.kernel,
            machine.load_at_start,
            self.commit
        )?;
        writeln!(out, "{}\n", self.counters)?;
        writeln!(
            out,
            "{:<24}{:<22}{:>12}{:>9}{:>10}",
            "case", "program", "ns/packet", "lost %", "rec/dgram"
        )?;
        for (id, case) in &self.costs {
            let lost = median(case.passes.iter().map(|cost| cost.lost).collect());
            let packing = median(case.passes.iter().filter_map(|cost| cost.packing).collect());
            writeln!(
                out,
                "{id:<24}{:<22}{:>12.0}{:>9.2}{:>10}",
                case.program,
                case.nanos,
                100.0 * lost.unwrap_or(0.0),
                packing.map_or_else(String::new, |p| format!("{p:.1}"))
            )?;
        }
        if !self.flows.is_empty() {
            writeln!(
                out,
                "\n{:>10}{:>12}{:>16}",
                "flows", "ns/packet", "resident MiB"
            )?;
        }
        for flow in &self.flows {
            let mebibytes = flow.resident as f64 / f64::from(1 << 20);
            writeln!(
                out,
                "{:>10}{:>12.0}{mebibytes:>16.1}",
                flow.flows, flow.cost.nanos
            )?;
        }
        self.write_loads(out)?;
        if !self.floods.is_empty() {
            writeln!(
                out,
                "\n{:<18}{:>12}{:>14}{:>12}{:>14}{:>14}",
                "flood", "packets/s", "ns/packet", "lost up %", "lost down %", "memory KiB"
            )?;
        }
        for flood in &self.floods {
            writeln!(
                out,
                "{:<18}{:>12.0}{:>14.0}{:>12.3}{:>14.3}{:>14}",
                flood.junk.name(),
                flood.rate,
                flood.nanos,
                100.0 * flood.lost_up,
                100.0 * flood.lost_down,
                flood.memory_growth / 1_024
            )?;
        }
        writeln!(
            out,
            "\n{:<30}{:>10}{:>8}{:>8}",
            "ratio", "found", "must", "aim"
        )?;
        for target in &self.targets {
            let found = target
                .found
                .map_or_else(|| "-".to_owned(), |found| format!("{found:.3}"));
            let missed = target.found.is_some_and(|found| found > target.must);
            writeln!(
                out,
                "{:<30}{found:>10}{:>8}{:>8}{}",
                target.name,
                target.must,
                target.aim,
                if missed { "  missed" } else { "" }
            )?;
        }
        for (name, ratio) in &self.ratios {
            if !self.targets.iter().any(|target| target.name == *name) {
                writeln!(out, "{name:<30}{ratio:>10.3}")?;
            }
        }
        for missing in &self.missing {
            writeln!(out, "not measured: {missing}")?;
        }
        Ok(())
    }

    fn write_loads(&self, out: &mut String) -> std::fmt::Result {
        if !self.latency.is_empty() {
            writeln!(
                out,
                "\n{:<22}{:>12}{:>6}{:>10}{:>10}{:>10}{:>10}{:>9}{:>11}{:>8}",
                "open loop, microseconds",
                "packets/s",
                "way",
                "p50",
                "p99",
                "p99.9",
                "max",
                "lost %",
                "ns/packet",
                "busy %"
            )?;
        }
        for named in &self.latency {
            let load = named.load;
            for (name, way) in [("up", load.up), ("down", load.down)] {
                let Some(way) = way else { continue };
                let latency = way.latency;
                writeln!(
                    out,
                    "{:<22}{:>12.0}{name:>6}{:>10.0}{:>10.0}{:>10.0}{:>10.0}{:>9.3}{:>11.0}{:>8.1}",
                    named.program,
                    load.rate,
                    latency.p50,
                    latency.p99,
                    latency.p999,
                    latency.max,
                    100.0 * way.lost(),
                    load.nanos.unwrap_or(f64::NAN),
                    100.0 * load.busy.unwrap_or(f64::NAN)
                )?;
            }
        }
        Ok(())
    }
}

/// A load as of two hundred calls, of 50 packets a second each way.
pub const FEW_CALLS: &str = "200 calls";

/// The rate of [`FEW_CALLS`], in packets a second each way.
pub const FEW_CALLS_RATE: f64 = 10_000.0;

/// A packet a second: what a relay takes that has nothing to do.
pub const IDLE: &str = "idle";

/// The rate at which latencies are compared.
pub const HALF_OF_SINGLE: &str = "half of what one packet per call can do";

#[cfg(test)]
mod tests {
    use super::*;

    fn cost(nanos: f64) -> Cost {
        Cost {
            nanos,
            nanos_min: nanos,
            ..Cost::default()
        }
    }

    #[test]
    fn ratios_are_taken_within_a_pass() {
        let pass = |floor: f64, relay: f64| {
            Pass::from([
                ("floor_up", ("floor", cost(floor))),
                ("relay_up_1500", ("relay", cost(relay))),
            ])
        };
        let mut report = Report::default();
        // The machine was slower in the second pass; the ratio was the same.
        report.set_passes(&[pass(100.0, 150.0), pass(300.0, 450.0), pass(100.0, 160.0)]);
        report.finish();
        assert_eq!(report.ratios["uplink_vs_floor_1500"], 1.5);
        assert_eq!(report.costs["relay_up_1500"].nanos, 160.0);
        assert!(report.targets[0].found.is_some_and(|found| found < 2.0));
        assert!(report.table().contains("uplink_vs_floor_1500"));
    }

    #[test]
    fn the_median_of_an_even_number_lies_between() {
        assert_eq!(median(vec![1.0, 4.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median(vec![]), None);
    }
}
