//! What signaling does alone: a file for machines, and a table for people.

use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;

use crate::asking::{self, CallLoad, CallPlan, Pace};
use crate::front_door::FrontDoor;
use crate::measured::Measured;
use crate::stubs::Stubs;

/// What the project asks of signaling: calls per second and core, against stub transceivers.
pub const CALLS_PER_CORE: f64 = 2_000.0;

/// How long a load takes that is no look.
pub const WHOLE: Duration = Duration::from_secs(10);

/// Transceivers that signaling has to choose from.
const TRANSCEIVERS: u16 = 4;

/// What to measure.
#[derive(Clone, Debug)]
pub struct CallBench {
    /// The signaling program.
    pub signaling: PathBuf,
    /// The processor that it runs on.
    pub processor: usize,
    /// How many clients.
    pub clients: u32,
    /// Calls per second that the open loop makes.
    pub rate: f64,
    /// How long each load takes.
    pub duration: Duration,
}

/// Everything that one run measured.
#[derive(Clone, Debug, Serialize)]
pub struct CallReport {
    /// Where, of what and when.
    #[serde(flatten)]
    pub measured: Measured,
    /// Transceivers, all of them stubs.
    pub transceivers: u16,
    /// Whether it is of the short form: loads were shorter than [`WHOLE`].
    pub quick: bool,
    /// Calls per second for each core that is busy with them: by the processor time of the load whose clients always ask.
    pub calls_per_core: f64,
    /// What it must be at the least.
    pub calls_per_core_must: f64,
    /// The loads.
    pub loads: Vec<CallLoad>,
}

impl CallReport {
    /// Measures: clients that always ask, an open loop, and clients that connect for each call.
    ///
    /// # Errors
    /// Signaling does not start, or a call was not answered.
    pub fn measure(measured: Measured, bench: &CallBench, directory: &Path) -> io::Result<Self> {
        let stubs = Stubs::start(TRANSCEIVERS)?;
        let mut door = FrontDoor::start(
            bench.processor,
            &bench.signaling,
            directory.to_owned(),
            &stubs,
        )?;
        let plan = CallPlan {
            clients: bench.clients,
            pace: Pace::AlwaysAsking,
            connects: false,
            duration: bench.duration,
        };
        let loads = [
            plan,
            CallPlan {
                pace: Pace::OpenLoop(bench.rate),
                ..plan
            },
            CallPlan {
                connects: true,
                ..plan
            },
        ];
        let loads = loads
            .iter()
            .map(|plan| asking::run(&mut door, plan))
            .collect::<io::Result<Vec<_>>>()?;
        Ok(Self {
            measured,
            transceivers: TRANSCEIVERS,
            quick: bench.duration < WHOLE,
            calls_per_core: loads[0].per_core(),
            calls_per_core_must: CALLS_PER_CORE,
            loads,
        })
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
        writeln!(out, "{}", self.measured)?;
        writeln!(
            out,
            "signaling alone on one processor, {} stub transceivers\n",
            self.transceivers
        )?;
        writeln!(
            out,
            "{:<44}{:>9}{:>10}{:>9}{:>8}{:>9}{:>9}{:>9}{:>9}{:>10}",
            "calls, latency in microseconds",
            "calls/s",
            "per core",
            "us/call",
            "busy %",
            "p50",
            "p99",
            "p99.9",
            "max",
            "late p99"
        )?;
        for load in &self.loads {
            let what = match (load.due, load.connects) {
                (Some(due), _) => format!("{due:.0} a second, open loop"),
                (None, false) => format!("{} clients, always asking", load.clients),
                (None, true) => format!("{} clients, connecting for each call", load.clients),
            };
            let latency = load.latency;
            let late = load.generator.map(|late| format!("{:.0}", late.p99));
            writeln!(
                out,
                "{what:<44}{:>9.0}{:>10.0}{:>9.1}{:>8.0}{:>9.0}{:>9.0}{:>9.0}{:>9.0}{:>10}",
                load.per_second,
                load.per_core(),
                load.micros,
                100.0 * load.busy,
                latency.p50,
                latency.p99,
                latency.p999,
                latency.max,
                late.as_deref().unwrap_or("-")
            )?;
        }
        writeln!(
            out,
            "late p99: how late this side asked, part of every latency of the open loop\n"
        )?;
        let missed = self.calls_per_core < self.calls_per_core_must;
        writeln!(
            out,
            "calls per second, for each core that is busy with them: {:.0}, must be {:.0}{}",
            self.calls_per_core,
            self.calls_per_core_must,
            if missed { "  missed" } else { "" }
        )
    }
}
