//! How many calls Firsthop carries on one processor, and where its time goes.
//!
//! A [search](super::between): each step has programs of its own, and is held against a [`Tolerance`]. A step that went badly is tried once more, since a
//! machine that has other work now and then must not decide. Of a transceiver alone, clients send past the relay. The generator has a
//! processor of its own, so that it is not the slower side; where it is all the same, the result says so.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use super::between::Between;
use super::load::{self, LoadError, Progress};
use super::profile::{self, Profile};
use super::report::CallReport;
use super::tolerance::{Shown, Tolerance};
use super::trial::{self, Answerer, Bench, Served, Service, Work};

/// How to search.
#[derive(Clone, Debug)]
pub struct CapacityPlan {
    /// Where programs are, and where they run.
    pub bench: Bench,
    /// What calls must keep to.
    pub tolerance: Tolerance,
    /// For how long each step counts.
    pub counted: Duration,
    /// How many numbers are tried after the first.
    pub steps: u32,
    /// Whether a number that went badly is tried once more.
    pub again: bool,
    /// Whether `perf record` looks at the first step.
    pub profile: bool,
}

/// What one program used in a step.
#[derive(Clone, Debug, Serialize)]
pub struct Used {
    /// Its name.
    pub name: String,
    /// Share of the processor.
    pub busy: f64,
    /// Processor time per call and second, in microseconds.
    pub micros_per_call_second: f64,
    /// What its memory grew by per call, in bytes.
    pub bytes_per_call: f64,
}

/// One number of calls, and how it went.
#[derive(Clone, Debug, Serialize)]
pub struct Step {
    /// How many calls.
    pub calls: u32,
    /// Mouth-to-ear delay without the answerer's own, the 99th percentile, in milliseconds; nothing where no caller hears itself.
    pub mouth_to_ear_p99_ms: Option<f64>,
    /// From the request until DTLS was up, the 99th percentile, in milliseconds.
    pub set_up_p99_ms: Option<f64>,
    /// Gaps above 60 ms.
    pub gaps: u64,
    /// Lateness of packets, the 99th percentile, in milliseconds.
    pub lateness_p99_ms: f64,
    /// The share of packets that were lost.
    pub lost: f64,
    /// Calls that failed.
    pub failed: u64,
    /// Share of the processor that the programs used, all together.
    pub busy: f64,
    /// The same of the generator.
    pub generator_busy: f64,
    /// The programs' processor time per call and second, in microseconds.
    pub micros_per_call_second: f64,
    /// What the programs' memory grew by per call, in bytes.
    pub bytes_per_call: f64,
    /// The same, program by program.
    pub programs: Vec<Used>,
    /// What was beyond its limit, if anything.
    pub beyond: Option<&'static str>,
}

/// What was found.
#[derive(Clone, Debug, Serialize)]
pub struct Capacity {
    /// Which programs.
    pub service: Service,
    /// The work.
    pub work: Work,
    /// The most calls that went well.
    pub calls: u32,
    /// What kept more from going well; nothing when the search ended before something did.
    pub limit: Option<&'static str>,
    /// Processor time per call and second, in microseconds, in the first step.
    pub micros_per_call_second: f64,
    /// Every step, in order.
    pub steps: Vec<Step>,
    /// Where the time went.
    pub profile: Option<Profile>,
}

impl Capacity {
    /// The step with the most calls that went well, if there is one.
    #[must_use]
    pub fn best(&self) -> Option<&Step> {
        self.steps
            .iter()
            .find(|step| step.calls == self.calls && step.beyond.is_none())
    }
}

/// Searches.
///
/// # Errors
/// Programs do not start, or see [`LoadError`].
pub fn search(
    plan: &CapacityPlan,
    service: Service,
    work: Work,
    mut said: impl FnMut(&Step),
) -> Result<Capacity, LoadError> {
    let (first, profile) = step(plan, service, work, work.few(), plan.profile)?;
    said(&first);
    let micros = first.micros_per_call_second;
    let mut beyond = first.beyond;
    let mut steps = vec![first];
    let mut attempt = |calls, steps: &mut Vec<Step>| -> Result<Option<&'static str>, LoadError> {
        let (tried, _) = step(plan, service, work, calls, false)?;
        said(&tried);
        let beyond = tried.beyond;
        steps.push(tried);
        Ok(beyond)
    };
    if beyond.is_some() && plan.again {
        beyond = attempt(work.few(), &mut steps)?;
    }
    let mut between = Between::new(work.few(), micros, beyond);
    for _ in 0..plan.steps {
        let Some(calls) = between.next() else { break };
        beyond = attempt(calls, &mut steps)?;
        if beyond.is_some() && plan.again {
            beyond = attempt(calls, &mut steps)?;
        }
        between.found(calls, beyond);
    }
    Ok(Capacity {
        service,
        work,
        calls: between.good,
        limit: between.limit,
        micros_per_call_second: micros,
        steps,
        profile,
    })
}

fn step(
    plan: &CapacityPlan,
    service: Service,
    work: Work,
    calls: u32,
    profiled: bool,
) -> Result<(Step, Option<Profile>), LoadError> {
    const NUMBER: u8 = 20;
    let answerer = Answerer::Echoes(work.one_echo_in());
    let served = Served::start(&plan.bench, NUMBER, service, work, answerer)?;
    let load = served.calls(calls, plan.counted);
    let data = plan.bench.directory.join("perf.data");
    let mut profile = None;
    let report = load::run_beside(&load, &Arc::new(Progress::default()), || {
        if profiled {
            let pid = served.stack.transceiver.id();
            profile = Some(profile::record(pid, plan.counted.mul_f64(0.8), &data));
        }
    })?;
    Ok((
        judged(&plan.tolerance, calls, load.manner.echo.is_some(), &report),
        profile.transpose()?,
    ))
}

/// Holds a load against the limits. Where some callers should hear themselves and none does, it has taken too long.
fn judged(tolerance: &Tolerance, calls: u32, hears: bool, report: &CallReport) -> Step {
    let lateness = report.lateness.map_or(f64::INFINITY, |late| late.p99);
    let set_up = trial::set_up(report, |spread| spread.p99);
    let mouth_to_ear = report.mouth_to_ear.map(|delay| delay.p99);
    let beyond = tolerance.beyond(&Shown {
        calls,
        failed: report.failed(),
        lost: report.lost,
        gaps: report.gaps,
        mouth_to_ear_p99_ms: mouth_to_ear.or(hears.then_some(f64::INFINITY)),
        lateness_p99_ms: lateness,
        set_up_p99_ms: set_up.unwrap_or(f64::INFINITY),
        generator_busy: report.generator_busy,
        generator_lost: report.generator_lost,
    });
    let programs: Vec<Used> = report
        .watched
        .iter()
        .map(|watched| Used {
            name: watched.name.clone(),
            busy: watched.busy,
            micros_per_call_second: watched.micros_per_call_second,
            bytes_per_call: (watched.during.resident as f64 - watched.before.resident as f64)
                / f64::from(calls),
        })
        .collect();
    let sum = |of: fn(&Used) -> f64| programs.iter().map(of).sum();
    Step {
        calls,
        mouth_to_ear_p99_ms: mouth_to_ear,
        set_up_p99_ms: set_up,
        gaps: report.gaps,
        lateness_p99_ms: lateness,
        lost: report.lost,
        failed: report.failed(),
        busy: sum(|used| used.busy),
        generator_busy: report.generator_busy,
        micros_per_call_second: sum(|used| used.micros_per_call_second),
        bytes_per_call: sum(|used| used.bytes_per_call),
        programs,
        beyond,
    }
}
