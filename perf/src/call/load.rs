//! Places calls at a rate, keeps each for its time, and says what became of them.
//!
//! Calls are placed at moments that do not depend on how those before fare (an open loop), and each ends at a moment of its own. What
//! clients hear counts while all calls are up, after they have settled; when they are never all up at once, it counts all the time.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use super::air::Way;
use super::caller::{Caller, Shared};
use super::identity::{Identity, IdentityError};
use super::placing::Desk;
use super::recording::{Codec, Recording, RecordingError};
use super::report::{CallReport, Part};
use super::watch::{self, Held, Watched};

/// How a call ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Ending {
    /// The client closes its connection, as a page does that goes.
    Close,
    /// Somebody hangs up over HTTP, and the client is told.
    HangUp,
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
            Self::Mixed if n.is_multiple_of(2) => Self::Close,
            Self::Mixed => Self::HangUp,
            other => other,
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
    /// How long each lasts, set-up included.
    pub hold: Duration,
    /// How long calls take to settle after the last one was placed.
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

/// How far a load is, for whoever shows it.
#[derive(Debug, Default)]
pub struct Progress {
    /// Calls placed.
    pub placed: AtomicU64,
    /// Calls connected, those that have ended too.
    pub connected: AtomicU64,
    /// Calls that have ended.
    pub ended: AtomicU64,
}

impl LoadPlan {
    /// When the last call is placed, from the beginning.
    #[must_use]
    pub fn ramp_time(&self) -> Duration {
        Duration::from_secs_f64(f64::from(self.calls.saturating_sub(1)) / self.ramp)
    }

    /// From when to when what is heard counts.
    #[must_use]
    pub fn window(&self) -> (Duration, Duration) {
        let from = self.ramp_time() + self.settle;
        if from < self.hold {
            (from, self.hold)
        } else {
            (Duration::ZERO, self.ramp_time() + self.hold)
        }
    }

    /// How many calls are up on average while it counts.
    #[must_use]
    pub fn calls_at_once(&self) -> f64 {
        let (from, to) = self.window();
        if from.is_zero() {
            f64::from(self.calls) * self.hold.as_secs_f64() / (to - from).as_secs_f64()
        } else {
            f64::from(self.calls)
        }
    }
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
    let identity = Identity::new()?;
    let recording = if plan.silent {
        None
    } else {
        Some(Recording::new(plan.codec)?)
    };
    let look =
        || -> io::Result<Vec<Held>> { plan.watch.iter().map(|pid| watch::look(*pid)).collect() };
    let before = look()?;
    let names: Vec<String> = plan.watch.iter().map(|pid| watch::name(*pid)).collect();
    let mut threads = Vec::new();
    let start = Instant::now() + Duration::from_millis(50);
    let shared = Shared {
        plan: plan.clone(),
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
    let (from, to) = plan.window();
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
                micros_per_call_second: 1e6 * busy / plan.calls_at_once(),
            }
        })
        .collect();
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(calls: u32, ramp: f64, hold: u64) -> LoadPlan {
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
        }
    }

    #[test]
    fn calls_count_while_all_are_up_or_else_all_the_time() {
        let seconds = Duration::from_secs;
        let together = plan(101, 20.0, 30);
        assert_eq!(together.window(), (seconds(7), seconds(30)));
        assert_eq!(together.calls_at_once(), 101.0);
        let churn = plan(1_001, 100.0, 2);
        assert_eq!(churn.window(), (seconds(0), seconds(12)));
        assert!((churn.calls_at_once() - 166.8).abs() < 0.1);
    }

    #[test]
    fn calls_end_in_every_way_there_is() {
        let ways: Vec<Ending> = (0..40).map(|n| Ending::Mixed.of(n)).collect();
        let count = |ending| ways.iter().filter(|way| **way == ending).count();
        assert_eq!(count(Ending::Close), 20);
        assert_eq!(count(Ending::HangUp), 18);
        assert_eq!(count(Ending::Vanish), 2);
        assert_eq!(Ending::Close.of(19), Ending::Close);
    }
}
