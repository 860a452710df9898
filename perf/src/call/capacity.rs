//! How many calls one transceiver worker carries on one processor, and where its time goes.
//!
//! A search: few calls tell what one costs, that tells how many could fit, and from there on the number is halved in between what was good
//! and what was not. Each step has a transceiver of its own. Clients send past the relay, so that the generator, which has a processor
//! of its own, is not the slower side; where it is all the same, the result says so.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use super::load::{self, Ending, LoadError, LoadPlan, Progress};
use super::manner::Manner;
use super::model::{Format, ModelServer};
use super::profile::{self, Profile};
use super::recording::Codec;
use super::report::CallReport;
use super::stack::{Backend, Stack, StackPlan, model_address};

/// Packets may come so much later than the earliest, in milliseconds: a frame. The 99th percentile.
pub const LATENESS_MS: f64 = 20.0;

/// So many may be lost.
pub const LOST: f64 = 0.001;

/// From this share of its processor on, the generator is what limits.
pub const GENERATOR_BUSY: f64 = 0.95;

/// How many calls are placed per second.
const RAMP: f64 = 60.0;

/// What a transceiver has to do for each call.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Work {
    /// G.711 through to a model server that takes it, and back, over a WebSocket.
    Passthrough,
    /// Opus decoded for a model server that takes PCM, and its answer encoded.
    Transcoding,
    /// Opus decoded, heard through by the voice detector, and encoded again.
    Echo,
}

impl Work {
    fn codec(self) -> Codec {
        match self {
            Self::Passthrough => Codec::Pcmu,
            Self::Transcoding | Self::Echo => Codec::Opus,
        }
    }

    /// What the model server speaks, if there is one.
    fn format(self) -> Option<Format> {
        match self {
            Self::Passthrough => Some(Format::Pcmu),
            Self::Transcoding => Some(Format::Pcm),
            Self::Echo => None,
        }
    }

    /// What the first step has.
    fn few(self) -> u32 {
        match self {
            Self::Passthrough => 60,
            Self::Transcoding | Self::Echo => 20,
        }
    }
}

/// How to search.
#[derive(Clone, Debug)]
pub struct CapacityPlan {
    /// The folder with the programs.
    pub programs: PathBuf,
    /// Where files and logs go.
    pub directory: PathBuf,
    /// The processor that the transceiver runs on.
    pub processor: usize,
    /// For how long each step counts.
    pub counted: Duration,
    /// How many steps after the first.
    pub steps: u32,
    /// Whether `perf record` looks at the first step.
    pub profile: bool,
}

/// One number of calls, and how it went.
#[derive(Clone, Debug, Serialize)]
pub struct Step {
    /// How many calls.
    pub calls: u32,
    /// Lateness of packets, the 99th percentile, in milliseconds.
    pub lateness_p99_ms: f64,
    /// The share of packets that were lost.
    pub lost: f64,
    /// Calls that failed.
    pub failed: u64,
    /// Share of its processor that the transceiver used.
    pub busy: f64,
    /// The same of the generator.
    pub generator_busy: f64,
    /// The transceiver's processor time per call and second, in microseconds.
    pub micros_per_call_second: f64,
    /// What the transceiver's memory grew by per call, in bytes.
    pub bytes_per_call: f64,
    /// What was beyond its limit, if anything.
    pub beyond: Option<&'static str>,
}

/// What was found.
#[derive(Clone, Debug, Serialize)]
pub struct Capacity {
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

/// Searches.
///
/// # Errors
/// Programs do not start, or see [`LoadError`].
pub fn search(
    plan: &CapacityPlan,
    work: Work,
    mut said: impl FnMut(&Step),
) -> Result<Capacity, LoadError> {
    let (first, profile) = step(plan, work, work.few(), plan.profile)?;
    said(&first);
    let micros = first.micros_per_call_second;
    let mut between = Between::new(work.few(), micros, first.beyond);
    let mut steps = vec![first];
    for _ in 0..plan.steps {
        let Some(calls) = between.next() else { break };
        let (tried, _) = step(plan, work, calls, false)?;
        said(&tried);
        between.found(calls, tried.beyond);
        steps.push(tried);
    }
    Ok(Capacity {
        work,
        calls: between.good,
        limit: between.limit,
        micros_per_call_second: micros,
        steps,
        profile,
    })
}

/// The search itself.
struct Between {
    /// The most that went well.
    good: u32,
    /// The fewest that did not, or a guess.
    bad: u32,
    limit: Option<&'static str>,
}

impl Between {
    fn new(calls: u32, micros: f64, beyond: Option<&'static str>) -> Self {
        // As many as a processor has time for, and some: costs per call fall when there are more.
        let fits = (1.4e6 / micros.max(1.0)).clamp(1.0, 20_000.0) as u32;
        Self {
            good: if beyond.is_none() { calls } else { 0 },
            bad: if beyond.is_none() {
                fits.max(calls + 2)
            } else {
                calls
            },
            limit: beyond,
        }
    }

    /// How many to try next; nothing when the two ends are within a thirtieth of each other.
    fn next(&self) -> Option<u32> {
        let gap = self.bad - self.good;
        (gap > (self.bad / 30).max(1)).then(|| self.good + gap.div_ceil(2))
    }

    fn found(&mut self, calls: u32, beyond: Option<&'static str>) {
        match beyond {
            None => self.good = calls,
            Some(_) => (self.bad, self.limit) = (calls, beyond),
        }
    }
}

fn step(
    plan: &CapacityPlan,
    work: Work,
    calls: u32,
    profiled: bool,
) -> Result<(Step, Option<Profile>), LoadError> {
    const NUMBER: u8 = 20;
    let model = match work.format() {
        None => None,
        Some(format) => {
            let address: SocketAddr = model_address(NUMBER);
            Some((ModelServer::start(address, format)?, format))
        }
    };
    let stack = Stack::start(StackPlan {
        programs: plan.programs.clone(),
        directory: plan.directory.clone(),
        number: NUMBER,
        processor: plan.processor,
        backend: match &model {
            None => Backend::Echo,
            Some((model, format)) => Backend::Realtime {
                url: model.url().to_owned(),
                format: *format,
            },
        },
        whole: false,
    })?;
    let ramp_time = Duration::from_secs_f64(f64::from(calls) / RAMP);
    let settle = Duration::from_secs(2);
    let load = LoadPlan {
        desk: stack.control_desk(),
        way: stack.direct(),
        calls,
        ramp: RAMP,
        hold: ramp_time + settle + plan.counted,
        settle,
        codec: work.codec(),
        silent: false,
        ending: Ending::Close,
        threads: 1,
        watch: vec![stack.transceiver.id()],
        manner: Manner::default(),
    };
    let data = plan.directory.join("perf.data");
    let mut profile = None;
    let report = load::run_beside(&load, &Arc::new(Progress::default()), || {
        if profiled {
            let pid = stack.transceiver.id();
            profile = Some(profile::record(pid, plan.counted.mul_f64(0.8), &data));
        }
    })?;
    let profile = profile.transpose()?;
    Ok((judged(calls, &report)?, profile))
}

/// Holds a load against the limits.
fn judged(calls: u32, report: &CallReport) -> io::Result<Step> {
    let watched = report
        .watched
        .first()
        .ok_or_else(|| io::Error::other("the transceiver was not watched"))?;
    let lateness = report.lateness.map_or(f64::INFINITY, |late| late.p99);
    let failed = report.failed();
    // One call in a hundred may be late for the party; more means that the transceiver does not keep up.
    let beyond = if failed * 100 > u64::from(calls) {
        Some("calls failed")
    } else if report.generator_lost > 0 || report.generator_busy > GENERATOR_BUSY {
        Some("the generator")
    } else if report.lost > LOST {
        Some("loss")
    } else if lateness > LATENESS_MS {
        Some("lateness")
    } else {
        None
    };
    Ok(Step {
        calls,
        lateness_p99_ms: lateness,
        lost: report.lost,
        failed,
        busy: watched.busy,
        generator_busy: report.generator_busy,
        micros_per_call_second: watched.micros_per_call_second,
        bytes_per_call: (watched.during.resident as f64 - watched.before.resident as f64)
            / f64::from(calls),
        beyond,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Searches a machine that carries so many, each at a cost.
    fn found(capacity: u32, micros: f64) -> (u32, usize) {
        let beyond = |calls| (calls > capacity).then_some("lateness");
        let mut between = Between::new(20, micros, beyond(20));
        let mut steps = 0;
        while let Some(calls) = between.next() {
            between.found(calls, beyond(calls));
            steps += 1;
            assert!(steps < 20, "the search ends");
        }
        (between.good, steps)
    }

    #[test]
    fn the_search_comes_within_a_thirtieth() {
        for (capacity, micros) in [
            (70, 14_000.0),
            (1_000, 900.0),
            (37, 20_000.0),
            (25, 30_000.0),
        ] {
            let (calls, steps) = found(capacity, micros);
            assert!(
                calls <= capacity && calls * 15 >= capacity * 14,
                "{calls} of {capacity}"
            );
            assert!(steps <= 8, "{steps} steps for {capacity}");
        }
        // It carries less than the first step has.
        assert!((9..=10).contains(&found(10, 90_000.0).0));
    }
}
