//! Many short calls through all programs: nothing may grow. Memory, descriptors, threads, sessions and flows are looked at before and after.

use std::io;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::air::Way;
use super::load::{self, Ending, LoadError, LoadPlan, Progress};
use super::manner::Manner;
use super::recording::Codec;
use super::report::CallReport;
use super::stack::Stack;
use super::watch::{self, Held};

/// How long the programs may take to forget the last calls: a client that vanished is given up after its grace, its flow after 30 s.
const FORGET: Duration = Duration::from_secs(120);

/// Connections that programs keep open for the next request, and so may have more of now and then.
pub const SPARE: u64 = 32;

/// How to call.
#[derive(Clone, Debug)]
pub struct ChurnPlan {
    /// Calls that make the programs take what they keep: buffers, connections, threads.
    pub warm: u32,
    /// Calls after that.
    pub calls: u32,
    /// Per second.
    pub ramp: f64,
    /// How long each lasts.
    pub hold: Duration,
    /// Clients say nothing.
    pub silent: bool,
    /// How they end.
    pub ending: Ending,
}

/// A program before and after.
#[derive(Clone, Debug, Serialize)]
pub struct Grown {
    /// Its name.
    pub name: String,
    /// After the warm calls.
    pub before: Held,
    /// After all calls.
    pub after: Held,
    /// Memory that it grew by per call, in bytes.
    pub bytes_per_call: f64,
}

/// What was found.
#[derive(Clone, Debug, Serialize)]
pub struct Churn {
    /// How the calls fared.
    pub report: CallReport,
    /// The programs.
    pub programs: Vec<Grown>,
    /// Sessions and flows that were left.
    pub left: (u64, u64),
    /// How long the last of them took to go, in seconds.
    pub forgotten_after: f64,
    /// Flows that the relay forgot because they had been idle for long, and not because their session had ended, after the warm calls.
    pub flows_expired: u64,
}

/// Carries the calls out through a whole stack.
///
/// # Errors
/// Programs do not answer, or see [`LoadError`].
pub fn run(stack: &Stack, plan: &ChurnPlan) -> Result<Churn, LoadError> {
    let load = |calls| LoadPlan {
        desk: stack.signaling_desk(),
        way: Way::Relay,
        calls,
        ramp: plan.ramp,
        hold: plan.hold,
        settle: Duration::ZERO,
        codec: Codec::Pcmu,
        silent: plan.silent,
        ending: plan.ending,
        threads: 1,
        watch: stack.processes(),
        manner: Manner::default(),
    };
    let progress = Arc::new(Progress::default());
    load::run(&load(plan.warm), &progress)?;
    forgotten(stack)?;
    let (before, _) = settled(stack, &[])?;
    let expired_before = stack.relay_metrics()?.sum("flows_expired_total");
    let report = load::run(&load(plan.calls), &progress)?;
    let over = Instant::now();
    let left = forgotten(stack)?;
    let forgotten_after = over.elapsed().as_secs_f64();
    let expired = stack.relay_metrics()?.sum("flows_expired_total");
    let (after, names) = settled(stack, &before)?;
    let programs = names
        .into_iter()
        .zip(before.iter().zip(&after))
        .map(|(name, (before, after))| Grown {
            name,
            before: *before,
            after: *after,
            bytes_per_call: (after.resident as f64 - before.resident as f64)
                / f64::from(plan.calls),
        })
        .collect();
    Ok(Churn {
        report,
        programs,
        left,
        forgotten_after,
        flows_expired: expired.saturating_sub(expired_before),
    })
}

/// Waits until there is no session and no flow; returns how many are left when that takes too long.
fn forgotten(stack: &Stack) -> io::Result<(u64, u64)> {
    let end = Instant::now() + FORGET;
    loop {
        let left = (
            stack.transceiver_metrics()?.sum("sessions"),
            stack.relay_metrics()?.sum("flows"),
        );
        if left == (0, 0) || Instant::now() > end {
            return Ok(left);
        }
        thread::sleep(Duration::from_millis(100));
    }
}

/// What the programs hold once connections that nobody uses have been closed: no more descriptors and threads than `before`, but
/// for the [`SPARE`], or all that are there after some seconds.
fn settled(stack: &Stack, before: &[Held]) -> io::Result<(Vec<Held>, Vec<String>)> {
    let pids = stack.processes();
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        let held: Vec<Held> = pids
            .iter()
            .map(|pid| watch::look(*pid))
            .collect::<io::Result<_>>()?;
        let more = held.iter().zip(before).any(|(now, before)| {
            now.descriptors > before.descriptors + SPARE || now.threads > before.threads
        });
        if !more || Instant::now() > end {
            return Ok((held, pids.iter().map(|pid| watch::name(*pid)).collect()));
        }
        thread::sleep(Duration::from_millis(100));
    }
}
