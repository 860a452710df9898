//! Measures what calls and set-ups [cost](super::cost) each of Firsthop's programs: relay, transceiver and signaling on one processor, loads of several
//! sizes, and a line through what each program used.

use std::time::Duration;

use super::cost::{Cost, Kind, Program, Sample};
use super::load::{self, Ending, LoadError, LoadPlan};
use super::report::CallReport;
use super::schedule::Schedule;
use super::trial::{Answerer, Bench, Served, Service, Work};

/// Firsthop's programs.
const PROGRAMS: [Program; 3] = [Program::Relay, Program::Transceiver, Program::Signaling];

/// How long each call of a set-up load lasts: until it is connected, its channel is open, and some more.
const SHORT: Duration = Duration::from_millis(1_500);

/// What to measure.
#[derive(Clone, Debug)]
pub struct CostPlan {
    /// Where programs are, and where they run.
    pub bench: Bench,
    /// For how long each size counts.
    pub counted: Duration,
    /// Numbers of calls, by work; see [`sizes`].
    pub calls: Vec<(Work, Vec<u32>)>,
    /// Set-ups a second.
    pub rates: Vec<u32>,
}

/// 10, 100 and 1,000 calls, and as many as fit: nine tenths of the most that went well, and what of the others is less than that.
#[must_use]
pub fn sizes(most: u32) -> Vec<u32> {
    let fit = (most - most / 10).max(2);
    let mut sizes: Vec<u32> = [10, 100, 1_000]
        .into_iter()
        .filter(|size| *size < fit)
        .collect();
    if sizes.is_empty() {
        sizes.push(fit / 2);
    }
    // A line of three points says whether it is one.
    if let [only] = sizes[..] {
        sizes.push(u32::midpoint(only, fit));
    }
    sizes.push(fit);
    sizes.dedup();
    sizes
}

/// What the costs of some calls are called.
fn kind(work: Work) -> Option<Kind> {
    match work {
        Work::Silent => Some(Kind::Silent),
        Work::Passthrough => Some(Kind::Passthrough),
        Work::Transcoding => Some(Kind::Transcoding),
        // It is for demonstrations: nobody plans with it.
        Work::Echo => None,
    }
}

/// What costs are, and what to know of them.
#[derive(Clone, Default, Debug)]
pub struct Measured {
    /// By program and kind of load.
    pub costs: Vec<Cost>,
    /// Loads of which calls failed: their size is what came about.
    pub notes: Vec<String>,
}

/// Measures, and tells of each load that was carried. The size of a load is the calls that connected, not those that were placed.
///
/// # Errors
/// Programs do not start, or see [`LoadError`].
pub fn measure(
    plan: &CostPlan,
    mut said: impl FnMut(Kind, f64, &CallReport),
) -> Result<Measured, LoadError> {
    let mut costs = Vec::new();
    let mut notes = Vec::new();
    for (work, sizes) in &plan.calls {
        let Some(kind) = kind(*work) else { continue };
        let mut samples: [Vec<Sample>; PROGRAMS.len()] = Default::default();
        for size in sizes {
            let served = start(plan, *work)?;
            let report = load::run(&served.calls(*size, plan.counted), &Default::default())?;
            said(kind, f64::from(*size), &report);
            notes.extend(note(kind, &report));
            for (samples, program) in samples.iter_mut().zip(PROGRAMS) {
                samples.extend(sample(&report, program, report.connected as f64));
            }
        }
        costs.extend(fitted(kind, samples));
    }
    let silent = |program| {
        let mut costs = costs.iter();
        let cost = costs.find(|cost: &&Cost| cost.program == program && cost.kind == Kind::Silent);
        cost.map_or(0.0, |cost| cost.processor.each)
    };
    let mut samples: [Vec<Sample>; PROGRAMS.len()] = Default::default();
    for rate in &plan.rates {
        let served = start(plan, Work::Silent)?;
        let load = set_ups(&served, *rate, plan.counted);
        let report = load::run(&load, &Default::default())?;
        let schedule = Schedule::new(&load);
        let (from, to) = schedule.window();
        let per_second = report.connected as f64 / (to - from).as_secs_f64();
        said(Kind::SetUps, per_second, &report);
        notes.extend(note(Kind::SetUps, &report));
        let up = schedule.calls_at_once() * connected(&report);
        for (samples, program) in samples.iter_mut().zip(PROGRAMS) {
            let Some(mut sample) = sample(&report, program, per_second) else {
                continue;
            };
            sample.micros_per_second -= silent(program) * up;
            samples.push(sample);
        }
    }
    costs.extend(fitted(Kind::SetUps, samples));
    Ok(Measured { costs, notes })
}

/// The share of calls that came about.
fn connected(report: &CallReport) -> f64 {
    report.connected as f64 / report.calls.max(1) as f64
}

/// What to say of a load of which calls failed.
fn note(kind: Kind, report: &CallReport) -> Option<String> {
    let failed = report.failed();
    let (calls, connected) = (report.calls, report.connected);
    (failed > 0).then(|| {
        format!(
            "{failed} of {calls} calls failed while costs of {kind:?} were measured: the load counts as the {connected} that connected."
        )
    })
}

fn start(plan: &CostPlan, work: Work) -> std::io::Result<Served> {
    const NUMBER: u8 = 23;
    Served::start(&plan.bench, NUMBER, Service::All, work, Answerer::Speaks)
}

/// So many short calls a second, that say nothing and are hung up.
fn set_ups(served: &Served, rate: u32, counted: Duration) -> LoadPlan {
    let calls = how_many(rate, counted);
    LoadPlan {
        ramp: f64::from(rate),
        hold: SHORT,
        settle: Duration::ZERO,
        ending: Ending::HangUp,
        ..served.calls(calls, counted)
    }
}

/// As many as are placed while it counts; but for longer than each lasts, so that they are never all up at once, and all that they take from the first to the
/// last counts.
fn how_many(rate: u32, counted: Duration) -> u32 {
    let placing = counted.max(2 * SHORT).as_secs_f64();
    (f64::from(rate) * placing).ceil() as u32 + 1
}

/// What a program used under a load; nothing when it was not watched.
fn sample(report: &CallReport, program: Program, load: f64) -> Option<Sample> {
    let mut watched = report.watched.iter();
    let watched = watched.find(|watched| watched.name == program.name())?;
    Some(Sample {
        load,
        micros_per_second: 1e6 * watched.busy,
        resident_bytes: watched.during.resident as f64,
    })
}

fn fitted(kind: Kind, samples: [Vec<Sample>; PROGRAMS.len()]) -> impl Iterator<Item = Cost> {
    PROGRAMS
        .into_iter()
        .zip(samples)
        .filter_map(move |(program, samples)| Cost::of(program, kind, samples))
}

#[cfg(test)]
mod tests {
    use super::super::load::tests::plan;
    use super::*;

    #[test]
    fn all_that_short_calls_take_counts_from_the_first_to_the_last() {
        for rate in [1, 5, 15, 200] {
            for counted in [0.0, 1.5, 3.0, 20.0] {
                let calls = how_many(rate, Duration::from_secs_f64(counted));
                let schedule = Schedule::new(&LoadPlan {
                    hold: SHORT,
                    settle: Duration::ZERO,
                    ..plan(calls, rate.into(), 1)
                });
                let (from, to) = schedule.window();
                assert_eq!(
                    (from, to),
                    (Duration::ZERO, schedule.ends()),
                    "{rate} {counted}"
                );
                let all = f64::from(calls) * SHORT.as_secs_f64() / to.as_secs_f64();
                assert!((schedule.calls_at_once() - all).abs() < 1e-6);
            }
        }
    }

    #[test]
    fn sizes_are_those_that_fit_and_the_most_that_does() {
        assert_eq!(sizes(5_000), [10, 100, 1_000, 4_500]);
        assert_eq!(sizes(347), [10, 100, 313]);
        assert_eq!(sizes(44), [10, 25, 40]);
        assert_eq!(sizes(9), [4, 6, 9]);
        for most in 0..2_000 {
            let sizes = sizes(most);
            assert!(sizes.len() >= 2, "{most}: {sizes:?}");
            assert!(sizes.is_sorted() && sizes[0] > 0, "{most}: {sizes:?}");
        }
    }
}
