//! How much the relay and signaling carry alone, on one processor, with everything else played by the generator: calls that a whole client would
//! be too slow for.

use std::io;
use std::time::Duration;

use super::between::Between;
use super::capacity_results::{Carried, Tried};
use super::tolerance::{GENERATOR_BUSY, Tolerance};
use super::trial::Bench;
use crate::asking::{self, CallPlan, Pace, Refused};
use crate::bench::{self, Case};
use crate::front_door::FrontDoor;
use crate::load::{self, LoadPlan, STRAGGLERS};
use crate::packet::Sizes;
use crate::rig::{Direction, RigError};
use crate::stubs::Stubs;
use crate::subject::{Lab, Program, RelayOptions};

/// Packets of a call, each way and second.
const PACKETS: f64 = 50.0;

/// Flows that the search begins with.
const FEW_FLOWS: u32 = 400;

/// Set-ups a second that the search begins with.
const FEW_SET_UPS: u32 = 1_000;

/// Clients that ask signaling.
const CLIENTS: u32 = 64;

/// How to search.
#[derive(Clone, Debug)]
pub struct AlonePlan {
    /// Where programs are, and where they run.
    pub bench: Bench,
    /// What calls must keep to.
    pub tolerance: Tolerance,
    /// For how long each step counts.
    pub counted: Duration,
    /// How many numbers are tried after the first.
    pub steps: u32,
}

/// Calls that one core of a relay forwards: clients and owners are played by one thread, that encrypts nothing.
///
/// # Errors
/// The relay does not start, or flows do not come through.
pub fn relay(plan: &AlonePlan, mut said: impl FnMut(&Tried)) -> Result<Carried, RigError> {
    search(plan, "relay", "forwarding", FEW_FLOWS, |flows| {
        let tried = forward(plan, flows)?;
        said(&tried.0);
        Ok::<_, RigError>(tried)
    })
}

/// Set-ups a second that signaling carries, before stub transceivers that answer at once.
///
/// # Errors
/// Signaling does not start.
pub fn signaling(plan: &AlonePlan, mut said: impl FnMut(&Tried)) -> io::Result<Carried> {
    search(plan, "signaling", "set_up", FEW_SET_UPS, |rate| {
        let tried = ask(plan, rate)?;
        said(&tried.0);
        Ok::<_, io::Error>(tried)
    })
}

/// What was tried, what each cost in microseconds of a processor's second (no number where that was not measured), and what was beyond its limit.
type Attempt = (Tried, f64, Option<&'static str>);

fn search<E>(
    plan: &AlonePlan,
    service: &str,
    work: &str,
    few: u32,
    mut attempt: impl FnMut(u32) -> Result<Attempt, E>,
) -> Result<Carried, E> {
    let (first, micros, beyond) = attempt(few)?;
    let mut between = Between::new(few, micros, beyond);
    let mut at_best = micros;
    let mut tried = vec![first];
    for _ in 0..plan.steps {
        let Some(load) = between.next() else { break };
        let (one, micros, beyond) = attempt(load)?;
        between.found(load, beyond);
        if beyond.is_none() {
            at_best = micros;
        }
        tried.push(one);
    }
    Ok(Carried {
        service: service.to_owned(),
        work: work.to_owned(),
        per_core: between.good.into(),
        gives_first: between.limit.map(str::to_owned),
        micros: at_best,
        bytes_per_call: None,
        tried,
    })
}

fn forward(plan: &AlonePlan, flows: u32) -> Result<Attempt, RigError> {
    let bench = &plan.bench;
    let lab = Lab::new(
        bench.processor,
        bench.directory.join("relay"),
        bench.programs.join("relay"),
        None,
    )?;
    let case = Case {
        id: "capacity",
        program: Program::Relay(RelayOptions {
            // Polling would be counted as work.
            spin: false,
            ..RelayOptions::default()
        }),
        direction: Direction::Both,
        flows,
        owners: 1,
        datagram_len: firsthop_shared::limits::TRUNK_DATAGRAM_ETHERNET,
        sizes: Sizes::Voice,
        asleep: false,
    };
    let mut ready = bench::prepare(&lab, &case)?;
    let load = LoadPlan {
        direction: Direction::Both,
        rate: PACKETS * f64::from(flows),
        duration: plan.counted,
        stragglers: STRAGGLERS,
    };
    let report = load::run(&mut ready.rig, Some(&mut ready.subject.process), &load)?;
    let ways = [report.up, report.down].map(Option::unwrap_or_default);
    let lost = ways.iter().map(crate::load::Way::lost).fold(0.0, f64::max);
    let latency = ways.iter().map(|way| way.latency.p99).fold(0.0, f64::max) / 1e3;
    let generator = report.generator.p99 / 1e3;
    let tolerance = &plan.tolerance;
    let beyond = if generator > tolerance.lateness_p99_ms / 2.0 {
        Some("the generator")
    } else if lost > tolerance.lost {
        Some("loss")
    } else if latency > tolerance.lateness_p99_ms {
        Some("latency")
    } else {
        None
    };
    // No number where it was not measured: the search then guesses by what was tried.
    let busy = report.busy.unwrap_or(f64::NAN);
    let tried = Tried::of(
        flows,
        beyond,
        [
            ("latency_p99_ms", latency),
            ("generator_late_p99_ms", generator),
            ("lost", lost),
            ("busy", busy),
            ("nanos_per_packet", report.nanos.unwrap_or(f64::NAN)),
        ],
    );
    Ok((tried, 1e6 * busy / f64::from(flows), beyond))
}

fn ask(plan: &AlonePlan, rate: u32) -> io::Result<Attempt> {
    let bench = &plan.bench;
    let stubs = Stubs::start(4)?;
    let mut door = FrontDoor::start(
        bench.processor,
        &bench.programs.join("signaling"),
        bench.directory.join("signaling"),
        &stubs,
    )?;
    let asked = asking::run(
        &mut door,
        &CallPlan {
            clients: CLIENTS,
            pace: Pace::OpenLoop(rate.into()),
            connects: false,
            duration: plan.counted,
        },
    );
    let load = match asked {
        Ok(load) => load,
        // Too many is what it may well say.
        Err(error) if Refused::is_in(&error) => return Ok(refused(rate)),
        Err(error) => return Err(error),
    };
    let latency = load.latency.p99 / 1e3;
    let late = load.generator.map_or(0.0, |late| late.p99) / 1e3;
    let most = plan.tolerance.answer_p99_ms;
    let beyond = if latency <= most {
        None
    } else if late > most / 2.0 || load.busy < GENERATOR_BUSY - 0.1 {
        // Signaling had time left.
        Some("the generator")
    } else {
        Some("latency")
    };
    let tried = Tried::of(
        rate,
        beyond,
        [
            ("latency_p99_ms", latency),
            ("generator_late_p99_ms", late),
            ("per_second", load.per_second),
            ("busy", load.busy),
        ],
    );
    Ok((tried, load.micros, beyond))
}

/// An attempt at which signaling turned calls away: nothing else is known of it.
fn refused(rate: u32) -> Attempt {
    let beyond = Some("refused");
    (Tried::of(rate, beyond, []), f64::NAN, beyond)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(steps: u32) -> AlonePlan {
        AlonePlan {
            bench: Bench {
                programs: "/nowhere".into(),
                directory: "/nowhere".into(),
                processor: 0,
                settle: Duration::ZERO,
            },
            tolerance: Tolerance::default(),
            counted: Duration::ZERO,
            steps,
        }
    }

    #[test]
    fn a_rate_at_which_calls_are_refused_is_a_limit_and_ends_no_search() {
        let good = |rate| (Tried::of(rate, None, []), 100.0, None);
        let carried = search(&plan(12), "signaling", "set_up", 1_000, |rate| {
            let found = if rate > 600 {
                refused(rate)
            } else {
                good(rate)
            };
            Ok::<_, io::Error>(found)
        })
        .expect("found");
        assert!((560.0..=600.0).contains(&carried.per_core), "{carried:?}");
        assert_eq!(carried.gives_first.as_deref(), Some("refused"));
        assert_eq!(carried.micros, 100.0);
    }

    #[test]
    fn what_costs_nothing_that_was_measured_is_searched_from_what_was_tried() {
        let mut most = 0;
        let carried = search(&plan(3), "relay", "forwarding", 400, |load| {
            most = most.max(load);
            Ok::<_, io::Error>((Tried::of(load, None, []), f64::NAN, None))
        })
        .expect("found");
        assert!(most <= 400 << 4, "{most}");
        assert_eq!(carried.gives_first, None);
        // As JSON has it, that is null: it can be read back.
        let text = serde_json::to_string(&carried).expect("JSON");
        let read: Carried = serde_json::from_str(&text).expect("read");
        assert!(read.micros.is_nan());
    }

    #[test]
    fn a_search_keeps_what_was_tried_and_the_cost_at_the_best() {
        let carried = search(&plan(12), "relay", "forwarding", 400, |load| {
            let beyond = (load > 3_000).then_some("loss");
            let tried = Tried::of(load, beyond, [("busy", f64::from(load) / 3_000.0)]);
            Ok::<_, io::Error>((tried, 400.0 - f64::from(load) / 100.0, beyond))
        })
        .expect("found");
        assert!(
            (2_800.0..=3_000.0).contains(&carried.per_core),
            "{carried:?}"
        );
        assert_eq!(carried.gives_first.as_deref(), Some("loss"));
        assert_eq!(carried.micros, 400.0 - carried.per_core / 100.0);
        assert_eq!(carried.tried[0].load, 400.0);
        assert!(carried.tried.len() > 3);
        let best = carried
            .tried
            .iter()
            .find(|one| one.load == carried.per_core);
        assert_eq!(best.map(|best| best.beyond.is_none()), Some(true));
    }
}
