//! The ladder as tables for people.

use std::fmt::Write as _;

use super::fit::Fit;
use super::results::{Phase, Rung, SetupResults};

/// The phases that a table has, and what it calls them.
const COLUMNS: [(Phase, &str); 5] = [
    (Phase::Answer, "answer"),
    (Phase::Ice, "ICE"),
    (Phase::Dtls, "DTLS"),
    (Phase::Channel, "channel"),
    (Phase::Audio, "audio"),
];

/// The head of a table of [`line()`]s.
#[must_use]
pub fn head() -> String {
    let mut head = format!(
        "{:<30}{:>7}{:>6}{:>7}{:>8}",
        "ms from POST, p50 / p99", "RTT", "loss", "calls", "failed"
    );
    for (_, name) in COLUMNS {
        // Writing to a string cannot fail.
        let _ = write!(head, "{name:>14}");
    }
    head
}

/// A rung in a line.
#[must_use]
pub fn line(rung: &Rung) -> String {
    let mut line = format!(
        "{:<30}{:>7.0}{:>5.0}%{:>7}{:>8}",
        rung.case.name(),
        rung.rtt_ms,
        100.0 * rung.loss,
        rung.calls,
        rung.failed.values().sum::<u32>()
    );
    for (phase, _) in COLUMNS {
        let figures = rung.phases.get(&phase).map_or_else(
            || "-".to_owned(),
            |times| format!("{:.0} / {:.0}", times.p50, times.p99),
        );
        let _ = write!(line, "{figures:>14}");
    }
    line
}

impl SetupResults {
    /// The results as tables.
    #[must_use]
    pub fn table(&self) -> String {
        let mut out = String::new();
        // Writing to a string cannot fail.
        let _ = self.write(&mut out);
        out
    }

    fn write(&self, out: &mut String) -> std::fmt::Result {
        writeln!(out, "{}", self.measured)?;
        if !self.rungs.is_empty() {
            writeln!(out, "\n{}", head())?;
        }
        for rung in &self.rungs {
            writeln!(out, "{}", line(rung))?;
            for (why, times) in &rung.failed {
                writeln!(out, "    {times} failed: {why}")?;
            }
        }
        self.write_round_trips(out)?;
        if !self.echoes.is_empty() {
            write!(
                out,
                "\nwhat echoes hold, and what of it is not in \"audio\":"
            )?;
            for echo in &self.echoes {
                write!(
                    out,
                    "  {} {:.0}, {:.0} ms",
                    echo.subject.name(),
                    echo.ms,
                    echo.subtracted_ms
                )?;
            }
            writeln!(out)?;
        }
        if let Some(beside) = &self.beside {
            let (rtt, calls) = (beside.rtt_ms, beside.calls);
            let why = &beside.why;
            writeln!(
                out,
                "\non a line of {rtt:.0} ms, with {calls} calls of G.711 up ({why}), warm, no channel"
            )?;
            for pass in beside.passes.iter().flatten() {
                writeln!(out, "{pass}")?;
                for (why, times) in &pass.failed {
                    writeln!(out, "    {times} failed: {why}")?;
                }
            }
        }
        writeln!(out)?;
        for target in &self.targets {
            writeln!(
                out,
                "{:<94}{:>8.3}  at most {:<6}{}",
                target.name,
                target.found,
                target.must,
                if target.met { "met" } else { "missed" }
            )?;
            if !target.how.is_empty() {
                writeln!(out, "    {}", target.how)?;
            }
        }
        for missing in &self.missing {
            writeln!(out, "not measured: {missing}")?;
        }
        Ok(())
    }

    fn write_round_trips(&self, out: &mut String) -> std::fmt::Result {
        let mut cases: Vec<_> = self.round_trips.iter().map(|found| found.case).collect();
        cases.dedup();
        if cases.is_empty() {
            return Ok(());
        }
        // A slope is told where there is a line.
        write!(out, "\n{:<30}", "slope over RTT (intercept, ms)")?;
        for (_, name) in COLUMNS {
            write!(out, "{name:>14}")?;
        }
        writeln!(out)?;
        for case in cases {
            write!(out, "{:<30}", case.name())?;
            for (phase, _) in COLUMNS {
                let fit = self.fit(case, phase).filter(Fit::is_straight);
                let figures = fit.map_or_else(
                    || "-".to_owned(),
                    |fit| format!("{:.2} ({:+.0})", fit.round_trips, fit.fixed_ms),
                );
                write!(out, "{figures:>14}")?;
            }
            writeln!(out)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::beside_results::tests::beside;
    use super::super::results::{Channel, Subject, tests::ladder};
    use super::*;
    use crate::measured::Measured;

    #[test]
    fn a_table_has_every_rung_the_round_trips_and_what_was_missed() {
        let mut climbed = ladder(Subject::Relay, Channel::Without, 3.0, 4.5);
        climbed[3].failures.insert("no audio".to_owned(), 2);
        let missing = vec!["Janus: not installed".to_owned()];
        let table = SetupResults::of(Measured::default(), true, &climbed, missing).table();
        let rung = table
            .lines()
            .find(|line| line.contains(" 200 ") && line.starts_with("relay, warm"))
            .expect("a rung");
        assert!(rung.contains("605 / 605"), "{table}");
        assert!(rung.contains("909 / 909"), "{table}");
        assert!(table.contains("2 failed: no audio"), "{table}");
        assert!(table.contains("4.50 (+9)"), "{table}");
        assert!(
            table.contains("slope 4.50, intercept 9.0 ms, to within 0.0 ms"),
            "{table}"
        );
        assert!(table.contains("relay 64, 60 ms"), "{table}");
        assert!(table.contains("missed"), "{table}");
        assert!(table.contains("not measured: Janus"), "{table}");
    }

    #[test]
    fn a_table_has_what_set_ups_took_while_calls_were_up() {
        let climbed = ladder(Subject::Relay, Channel::Without, 3.0, 4.0);
        let results = SetupResults::of(Measured::default(), true, &climbed, Vec::new());
        let table = results.clone().with(beside(&[(63.6, 60.0, 0)])).table();
        for part in [
            "on a line of 20 ms, with 290 calls of G.711 up (half of 580)",
            "180 set-ups, until DTLS 63.6 / 83.6 ms (p50 / p99), 0 failed",
            "beside calls that are up, median",
            "1.060  at most 1.05  missed",
        ] {
            assert!(table.contains(part), "{table}");
        }
        let table = results.with(beside(&[(63.6, 60.0, 1)])).table();
        assert!(table.contains("not measured: set-up beside"), "{table}");
    }
}
