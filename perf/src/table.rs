//! A report as a table for people.

use std::fmt::Write as _;

use crate::report::{Report, median};

impl Report {
    /// The report as a table for people.
    #[must_use]
    pub fn table(&self) -> String {
        let mut out = String::new();
        // Writing to a string cannot fail.
        let _ = self.write_table(&mut out);
        out
    }

    fn write_table(&self, out: &mut String) -> std::fmt::Result {
        writeln!(out, "{}", self.measured)?;
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
        self.write_spent(out)?;
        if !self.flows.is_empty() {
            writeln!(
                out,
                "\n{:>10}{:>12}{:>12}{:>16}",
                "flows", "there", "ns/packet", "resident MiB"
            )?;
        }
        for flow in &self.flows {
            let mebibytes = flow.resident as f64 / f64::from(1 << 20);
            writeln!(
                out,
                "{:>10}{:>12}{:>12.0}{mebibytes:>16.1}",
                flow.flows, flow.there, flow.cost.nanos
            )?;
        }
        self.write_loads(out)?;
        if !self.floods.is_empty() {
            writeln!(
                out,
                "\n{:<18}{:>12}{:>14}{:>15}{:>12}{:>14}{:>14}",
                "flood",
                "packets/s",
                "ns/packet",
                "to forwarding",
                "lost up %",
                "lost down %",
                "memory KiB"
            )?;
        }
        for flood in &self.floods {
            writeln!(
                out,
                "{:<18}{:>12.0}{:>14.0}{:>15.3}{:>12.3}{:>14.3}{:>14}",
                flood.junk.name(),
                flood.rate,
                flood.nanos,
                flood.nanos / flood.forwarding,
                100.0 * flood.lost_up,
                100.0 * flood.lost_down,
                flood.memory_growth / 1_024
            )?;
        }
        if !self.floods.is_empty() {
            writeln!(
                out,
                "wrong integrity: such a check must be verified; a budget bounds how many are in a millisecond, and the rest is dropped (verify_budget)"
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

    fn write_spent(&self, out: &mut String) -> std::fmt::Result {
        if self.spent.is_empty() {
            return Ok(());
        }
        writeln!(
            out,
            "\n{:<24}{:>12}{:>12}{:>14}{:>12}{:>10}",
            "time, % of it", "send", "receive", "kernel else", "program", "samples"
        )?;
        for (id, spent) in &self.spent {
            writeln!(
                out,
                "{id:<24}{:>12.1}{:>12.1}{:>14.1}{:>12.1}{:>10}",
                100.0 * spent.send,
                100.0 * spent.receive,
                100.0 * spent.kernel,
                100.0 * spent.program,
                spent.samples
            )?;
        }
        Ok(())
    }

    fn write_loads(&self, out: &mut String) -> std::fmt::Result {
        if self.latency.is_empty() {
            return Ok(());
        }
        // A generator that cannot send as much as it should is late itself, and what it sends is late with it.
        writeln!(
            out,
            "\n{:<24}{:<40}{:>10}{:>6}{:>9}{:>9}{:>9}{:>9}{:>9}{:>11}{:>8}{:>10}{:>11}",
            "open loop, microseconds",
            "load",
            "packets/s",
            "way",
            "p50",
            "p99",
            "p99.9",
            "max",
            "lost %",
            "ns/packet",
            "busy %",
            "late p99",
            "timers ms"
        )?;
        for named in &self.latency {
            let load = named.load;
            let optional = |figure: Option<f64>| {
                figure.map_or_else(|| "-".to_owned(), |figure| format!("{figure:.0}"))
            };
            for (name, way) in [("up", load.up), ("down", load.down)] {
                let Some(way) = way else { continue };
                let latency = way.latency;
                writeln!(
                    out,
                    "{:<24}{:<40}{:>10.0}{name:>6}{:>9.0}{:>9.0}{:>9.0}{:>9.0}{:>9.3}{:>11}{:>8}{:>10.0}{:>11}",
                    named.program,
                    named.at,
                    load.rate,
                    latency.p50,
                    latency.p99,
                    latency.p999,
                    latency.max,
                    100.0 * way.lost(),
                    optional(load.nanos),
                    optional(load.busy.map(|share| 100.0 * share)),
                    load.generator.p99,
                    named
                        .timer_lateness_p999_ms
                        .map_or_else(|| "-".to_owned(), |late| late.to_string())
                )?;
            }
        }
        writeln!(
            out,
            "late p99: how late the generator itself was, part of every latency; timers ms: 99.9th percentile of how late the program's timers were"
        )?;
        if let Some(expiry) = self.expiry {
            writeln!(
                out,
                "forgotten: {} of {} flows, beside the calls of {}",
                expiry.expired, expiry.flows, expiry.live
            )?;
        }
        Ok(())
    }
}
