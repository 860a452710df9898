//! Places calls at a rate, keeps each for its time, and says what became of them.
//!
//! Calls are placed at moments that do not depend on how those before fare (an open loop), and each ends at a moment of its own: the [`Schedule`] has them.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use super::air::Way;
use super::caller::{Caller, Shared};
use super::identity::{Identity, IdentityError};
use super::manner::{Manner, Sharing};
use super::placing::Desk;
use super::recording::{Codec, Recording, RecordingError};
use super::report::{CallReport, Part};
use super::schedule::{Planned, Schedule};
use super::watch::{self, Held, Watched};

/// How a call ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Ending {
    /// The client closes its connection, as a page does that goes.
    Close,
    /// Somebody hangs up over HTTP, and the client is told.
    HangUp,
    /// The first two in turn: the other side is told each time.
    Told,
    /// The client falls silent without a word.
    Vanish,
    /// Each of these in turn, but one in twenty vanishes.
    Mixed,
}

impl Ending {
    /// How call number `n` ends.
    #[must_use]
    pub fn of(self, n: u32) -> Self {
        match self {
            Self::Mixed if n % 20 == 19 => Self::Vanish,
            Self::Mixed | Self::Told if n.is_multiple_of(2) => Self::Close,
            Self::Mixed | Self::Told => Self::HangUp,
            other => other,
        }
    }
}

impl LoadPlan {
    /// How call number `n` of a thread ends, of which this was planned.
    pub(super) fn ending_of(&self, n: u32, planned: Planned) -> Ending {
        match planned.vanishes {
            true => Ending::Vanish,
            false => self.ending.of(n),
        }
    }
}

/// A load.
#[derive(Clone, Debug)]
pub struct LoadPlan {
    /// Where calls are placed.
    pub desk: Desk,
    /// Which way their packets go.
    pub way: Way,
    /// How many.
    pub calls: u32,
    /// How many a second.
    pub ramp: f64,
    /// How long each lasts, set-up included; or how long they last on average, see [`Lengths`](super::schedule::Lengths).
    pub hold: Duration,
    /// How long calls take to settle after the last one was placed. What clients say before their channel is open an echo holds back, and lags behind until their first
    /// pause: where marks count, five seconds, or [`Manner::after_channel`].
    pub settle: Duration,
    /// What clients offer.
    pub codec: Codec,
    /// Clients say nothing.
    pub silent: bool,
    /// How calls end.
    pub ending: Ending,
    /// Threads that play clients, each with a processor's worth of them.
    pub threads: u32,
    /// Processes to be looked at.
    pub watch: Vec<u32>,
    /// In what manner.
    pub manner: Manner,
}

/// A load that could not be carried out.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// See [`IdentityError`].
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// See [`RecordingError`].
    #[error(transparent)]
    Recording(#[from] RecordingError),
    /// Sockets, threads, or a process that was to be watched.
    #[error(transparent)]
    System(#[from] io::Error),
}

/// Looks at a process that is to be watched.
fn watched(pid: u32) -> io::Result<Held> {
    watch::look(pid).map_err(|error| {
        let said = format!("process {pid}, which is to be watched, cannot be looked at: {error}");
        io::Error::new(error.kind(), said)
    })
}

/// How far a load is, for whoever shows it.
#[derive(Debug, Default)]
pub struct Progress {
    /// How long the load takes, in milliseconds.
    pub millis: AtomicU64,
    /// Calls that are planned.
    pub calls: AtomicU64,
    /// Calls placed.
    pub placed: AtomicU64,
    /// Calls connected, those that have ended too.
    pub connected: AtomicU64,
    /// Calls that have ended.
    pub ended: AtomicU64,
}

/// Carries a load out.
///
/// # Errors
/// See [`LoadError`]. What goes wrong with single calls is in the report.
pub fn run(plan: &LoadPlan, progress: &Arc<Progress>) -> Result<CallReport, LoadError> {
    run_beside(plan, progress, || ())
}

/// Like [`run`], and does something else on this thread when what is heard begins to count.
///
/// # Errors
/// As [`run`].
pub fn run_beside(
    plan: &LoadPlan,
    progress: &Arc<Progress>,
    beside: impl FnOnce(),
) -> Result<CallReport, LoadError> {
    if plan.manner.sockets != Sharing::Shared {
        // The soft limit is for programs that use select(2). Where the hard one is too low, sockets say so.
        let _ = rlimit::increase_nofile_limit(u64::MAX);
    }
    let identity = Identity::new()?;
    let recording = if plan.silent {
        None
    } else {
        Some(match &plan.manner.speech {
            Some(speech) => Recording::of(plan.codec, speech)?,
            None => Recording::new(plan.codec)?,
        })
    };
    let schedule = Arc::new(Schedule::new(plan));
    let millis = schedule.ends().as_millis() as u64;
    progress.millis.store(millis, Relaxed);
    progress.calls.store(schedule.calls().len() as u64, Relaxed);
    let look = || -> io::Result<Vec<Held>> { plan.watch.iter().map(|pid| watched(*pid)).collect() };
    let before = look()?;
    let names: Vec<String> = plan.watch.iter().map(|pid| watch::name(*pid)).collect();
    let mut threads = Vec::new();
    let start = Instant::now() + Duration::from_millis(50);
    let shared = Shared {
        plan: plan.clone(),
        schedule: Arc::clone(&schedule),
        identity,
        recording,
        progress: Arc::clone(progress),
        start,
    };
    for thread in 0..plan.threads {
        let caller = Caller::new(&shared, thread)?;
        let named = std::thread::Builder::new().name(format!("calls-{thread}"));
        threads.push(named.spawn(move || caller.run())?);
    }
    let (from, to) = schedule.window();
    let sleep_until = |at: Duration| {
        std::thread::sleep((start + at).saturating_duration_since(Instant::now()));
    };
    sleep_until(from);
    let first = look()?;
    let looked = Instant::now();
    beside();
    // The last moment is left out: calls are ending then.
    sleep_until(to.saturating_sub(Duration::from_millis(50)));
    let during = look()?;
    let counted = looked.elapsed();
    let mut part = Part::default();
    for thread in threads {
        let told = thread
            .join()
            .map_err(|_| io::Error::other("a thread of the generator panicked"))??;
        part.add(&told);
    }
    let after = look()?;
    let mut report = CallReport::new(&part, plan.codec, plan.ramp, plan.hold, to - from);
    let echo = plan.manner.echo.filter(|_| !plan.silent);
    report.echo_delay_ms = echo.map(|echo| 1e3 * echo.as_secs_f64());
    report.watched = plan
        .watch
        .iter()
        .enumerate()
        .map(|(at, pid)| {
            let used = during[at].cpu_nanos.saturating_sub(first[at].cpu_nanos) as f64;
            let busy = used / counted.as_nanos() as f64;
            Watched {
                pid: *pid,
                name: names[at].clone(),
                before: before[at],
                during: during[at],
                after: after[at],
                busy,
                micros_per_call_second: 1e6 * busy / schedule.calls_at_once(),
            }
        })
        .collect();
    Ok(report)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Calls that nobody places.
    pub(in super::super) fn plan(calls: u32, ramp: f64, hold: u64) -> LoadPlan {
        LoadPlan {
            desk: Desk::Signaling {
                url: String::new(),
                key: String::new(),
            },
            way: Way::Relay,
            calls,
            ramp,
            hold: Duration::from_secs(hold),
            settle: Duration::from_secs(2),
            codec: Codec::Opus,
            silent: false,
            ending: Ending::Mixed,
            threads: 1,
            watch: Vec::new(),
            manner: Manner::default(),
        }
    }

    #[test]
    fn calls_end_in_every_way_there_is() {
        let ways: Vec<Ending> = (0..40).map(|n| Ending::Mixed.of(n)).collect();
        let count = |ending| ways.iter().filter(|way| **way == ending).count();
        assert_eq!(count(Ending::Close), 20);
        assert_eq!(count(Ending::HangUp), 18);
        assert_eq!(count(Ending::Vanish), 2);
        assert_eq!(Ending::Close.of(19), Ending::Close);
        let told: Vec<Ending> = (18..20).map(|n| Ending::Told.of(n)).collect();
        assert_eq!(told, [Ending::Close, Ending::HangUp]);
    }
}
