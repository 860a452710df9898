//! What the measurements of whole calls found: the file for machines is this, serialised; [`CallResults::table`] is for people.

use std::fmt::Write as _;

use serde::Serialize;

use super::capacity::{Capacity, Step};
use super::churn::Churn;
use super::memory::Memory;
use super::profile::Part;
use super::tolerance::Tolerance;
use super::trial::{Service, Work};
use crate::measured::Measured;

/// Of a transceiver's time at least so much should be in SRTP, Opus and the kernel; and better so much.
pub const WANTED_SHARE: (f64, f64) = (0.70, 0.85);

/// A session that is live and silent should hold at most so many bytes beyond the engine's own; and better so many.
pub const BEYOND_ENGINE: (f64, f64) = (100.0 * 1_024.0, 40.0 * 1_024.0);

/// Everything that was measured.
#[derive(Clone, Default, Debug, Serialize)]
pub struct CallResults {
    /// Where, of what and when.
    #[serde(flatten)]
    pub measured: Measured,
    /// Whether it was the short form.
    pub quick: bool,
    /// What calls had to keep to.
    pub tolerance: Tolerance,
    /// How many calls one worker carries, by kind of work.
    pub capacity: Vec<Capacity>,
    /// What a session holds.
    pub memory: Option<Memory>,
    /// What many short calls left behind.
    pub churn: Option<Churn>,
}

/// One step of a search, in a line.
#[must_use]
pub fn line(step: &Step) -> String {
    format!(
        "{:>7}{:>12.0}{:>13}{:>14}{:>13.1}{:>6}{:>9.3}{:>9}{:>9.0}{:>13.0}{:>11.1}  {}",
        step.calls,
        step.micros_per_call_second,
        figure(step.set_up_p99_ms),
        figure(step.mouth_to_ear_p99_ms),
        step.lateness_p99_ms,
        step.gaps,
        100.0 * step.lost,
        step.failed,
        100.0 * step.busy,
        100.0 * step.generator_busy,
        step.bytes_per_call / 1_024.0,
        step.beyond.unwrap_or("")
    )
}

fn figure(found: Option<f64>) -> String {
    found.map_or_else(|| "-".to_owned(), |found| format!("{found:.1}"))
}

/// The head of a table of [`line()`]s.
#[must_use]
pub fn head() -> String {
    format!(
        "{:>7}{:>12}{:>13}{:>14}{:>13}{:>6}{:>9}{:>9}{:>9}{:>13}{:>11}  beyond",
        "calls",
        "µs/call/s",
        "set up p99",
        "to ear p99 ms",
        "late p99 ms",
        "gaps",
        "lost %",
        "failed",
        "busy %",
        "generator %",
        "KiB/call"
    )
}

impl CallResults {
    /// The results as a table.
    #[must_use]
    pub fn table(&self) -> String {
        let mut out = String::new();
        // Writing to a string cannot fail.
        let _ = self.write(&mut out);
        out
    }

    fn write(&self, out: &mut String) -> std::fmt::Result {
        writeln!(out, "{}", self.measured)?;
        for found in &self.capacity {
            let limit = found.limit.unwrap_or("the number of steps");
            writeln!(
                out,
                "\n{}, {}: {} calls on one processor, limited by {limit}; {:.0} µs per call and second\n{}",
                match found.work {
                    Work::Silent => "Silent calls",
                    Work::Passthrough => "G.711 passed through",
                    Work::Transcoding => "Opus decoded and encoded",
                    Work::Echo => "Echo",
                },
                match found.service {
                    Service::Transceiver => "a transceiver alone",
                    Service::All => "relay, transceiver and signaling",
                },
                found.calls,
                found.micros_per_call_second,
                head()
            )?;
            for step in &found.steps {
                writeln!(out, "{}", line(step))?;
            }
            if let Some(profile) = &found.profile {
                writeln!(
                    out,
                    "time in SRTP, Opus and the kernel: {:.1} % ({}) of {} samples",
                    100.0 * profile.wanted(),
                    verdict(
                        profile.wanted() >= WANTED_SHARE.0,
                        profile.wanted() >= WANTED_SHARE.1
                    ),
                    profile.samples
                )?;
                for (part, share) in &profile.shares {
                    let part = match part {
                        Part::Kernel => "kernel",
                        Part::Srtp => "SRTP",
                        Part::Opus => "Opus",
                        Part::Detector => "voice detector",
                        Part::Engine => "WebRTC engine",
                        Part::Memory => "memory",
                        Part::Runtime => "runtime",
                        Part::Firsthop => "Firsthop",
                        Part::Other => "the rest",
                    };
                    writeln!(out, "  {part:<16}{:>6.1} %", 100.0 * share)?;
                }
                for (symbol, share) in profile.rest.iter().take(12) {
                    let symbol: String = symbol.chars().take(100).collect();
                    writeln!(out, "    {:>5.2} %  {symbol}", 100.0 * share)?;
                }
            }
        }
        if let Some(memory) = &self.memory {
            let beyond = memory.beyond_engine();
            writeln!(
                out,
                "\nmemory of a silent session: {:.1} KiB, of which the engine {:.1} and the rest {:.1} ({}); {} sessions",
                memory.bytes_per_session / 1_024.0,
                memory.engine_bytes / 1_024.0,
                beyond / 1_024.0,
                verdict(beyond <= BEYOND_ENGINE.0, beyond <= BEYOND_ENGINE.1),
                memory.sessions
            )?;
        }
        if let Some(churn) = &self.churn {
            writeln!(
                out,
                "\n{} short calls, {} connected; {} sessions and {} flows left after {:.1} s, {} flows forgotten for being idle",
                churn.report.calls,
                churn.report.connected,
                churn.left.0,
                churn.left.1,
                churn.forgotten_after,
                churn.flows_expired
            )?;
            for program in &churn.programs {
                writeln!(
                    out,
                    "  {:<14}{:>8.1} MiB{:>+9.0} bytes per call{:>5} descriptors ({:+}){:>4} threads ({:+})",
                    program.name,
                    program.after.resident as f64 / f64::from(1 << 20),
                    program.bytes_per_call,
                    program.after.descriptors,
                    program.after.descriptors as i64 - program.before.descriptors as i64,
                    program.after.threads,
                    program.after.threads as i64 - program.before.threads as i64
                )?;
            }
        }
        Ok(())
    }
}

fn verdict(must: bool, aim: bool) -> &'static str {
    match (must, aim) {
        (_, true) => "as aimed for",
        (true, false) => "met",
        (false, false) => "missed",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::profile::Profile;
    use crate::call::trial::Work;

    #[test]
    fn a_table_says_what_was_found_and_whether_that_is_enough() {
        let step = Step {
            calls: 60,
            mouth_to_ear_p99_ms: Some(81.2),
            set_up_p99_ms: None,
            gaps: 0,
            lateness_p99_ms: 3.0,
            lost: 0.0,
            failed: 0,
            busy: 0.5,
            generator_busy: 0.2,
            micros_per_call_second: 8_000.0,
            bytes_per_call: 200_000.0,
            programs: Vec::new(),
            beyond: Some("lateness"),
        };
        let results = CallResults {
            capacity: vec![Capacity {
                service: Service::Transceiver,
                work: Work::Transcoding,
                calls: 50,
                limit: Some("lateness"),
                micros_per_call_second: 8_000.0,
                steps: vec![step],
                profile: Some(Profile::of(
                    "silk_x (a)\nudp ([kernel.kallsyms])\ny::y (a)\nz::z (a)\n",
                )),
            }],
            memory: Some(Memory {
                sessions: 100,
                bytes_per_session: 150_000.0,
                engine_bytes: 100_000.0,
            }),
            ..CallResults::default()
        };
        let table = results.table();
        assert!(
            table.contains("50 calls on one processor, limited by lateness"),
            "{table}"
        );
        assert!(table.contains("50.0 % (missed)"), "{table}");
        assert!(table.contains("48.8 (met)"), "{table}");
        assert!(serde_json::to_string(&results).is_ok());
    }
}
