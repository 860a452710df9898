//! Comparisons that the project asks of itself: through the relay against past it, gaps below capacity, and the servers' time beside Janus's.
//!
//! What is compared alternates, pass by pass, so that what else the machine does falls on both.

use std::io;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use super::air::Way;
use super::capacity_results::Target;
use super::handled::{self, Handled, Reading};
use super::janus::{self, Janus, JanusPlan};
use super::load::{self, Ending, LoadError, LoadPlan, Progress};
use super::manner::{Manner, Sharing};
use super::recording::Codec;
use super::report::{CallReport, Spread};
use super::trial::{self, Answerer, Bench, Served, Service, Work};
use crate::report::median;

/// The number of the stacks here.
const NUMBER: u8 = 24;

/// Set-up through the relay, as a multiple of set-up past it.
const SET_UP: f64 = 1.05;

/// What the relay may add to mouth-to-ear delay, in milliseconds.
const ADDED_MS: f64 = 1.0;

/// The servers' time per call, as a share of Janus's.
const OF_JANUS: f64 = 0.5;

/// Calls a second that are placed beside those that are up, for as long as it counts, to see how long set-up takes then.
const PROBES: f64 = 10.0;

/// How long each of them stays.
const PROBE_HOLD: Duration = Duration::from_secs(2);

/// How to compare.
#[derive(Clone, Debug)]
pub struct ComparisonPlan {
    /// Where programs are, and where they run.
    pub bench: Bench,
    /// For how long each load counts.
    pub counted: Duration,
    /// How often everything is measured.
    pub passes: u32,
}

/// What one way showed in one pass.
#[derive(Clone, Copy, Debug)]
struct Seen {
    set_up: (f64, f64),
    mouth_to_ear: f64,
}

/// Through the relay against past it, while so many calls are up.
///
/// # Errors
/// Programs do not start, or see [`LoadError`].
pub fn relay_against_direct(
    plan: &ComparisonPlan,
    calls: u32,
    mut said: impl FnMut(&str, &CallReport),
) -> Result<Vec<Target>, LoadError> {
    let mut seen: [Vec<Option<Seen>>; 2] = Default::default();
    for pass in 0..plan.passes {
        let answerer = Answerer::Echoes(NonZeroU32::MIN.saturating_add(3));
        let served = Served::start(
            &plan.bench,
            NUMBER,
            Service::All,
            Work::Passthrough,
            answerer,
        )?;
        let mut order = [(0, Way::Relay), (1, served.stack.direct())];
        if pass % 2 == 1 {
            order.reverse();
        }
        for (at, way) in order {
            let name = ["through the relay", "past the relay"][at];
            let (load, probe) = beside(&served, calls, plan.counted, &way);
            let progress = Arc::new(Progress::default());
            let mut probed = None;
            let report = load::run_beside(&load, &progress, || {
                probed = Some(load::run(&probe, &progress));
            })?;
            said(name, &report);
            let probed = probed.transpose()?;
            if let Some(probed) = &probed {
                said("calls placed meanwhile", probed);
            }
            // Something for every pass: those of both ways are pairs.
            seen[at].push(probed.and_then(|probed| saw(&report, &probed)));
        }
    }
    Ok(compared(calls, &seen))
}

/// Calls that are up, and calls that are placed beside them.
fn beside(served: &Served, calls: u32, counted: Duration, way: &Way) -> (LoadPlan, LoadPlan) {
    let load = LoadPlan {
        way: way.clone(),
        ..served.calls(calls, counted + PROBE_HOLD)
    };
    let probe = LoadPlan {
        calls: (PROBES * counted.as_secs_f64()).ceil() as u32,
        ramp: PROBES,
        hold: PROBE_HOLD,
        settle: Duration::ZERO,
        watch: Vec::new(),
        ..load.clone()
    };
    (load, probe)
}

/// What a pass showed; nothing when calls failed, which leaves more of the machine to the others.
fn saw(report: &CallReport, probed: &CallReport) -> Option<Seen> {
    if report.failed() + probed.failed() > 0 {
        return None;
    }
    let set_up = |quantile: fn(&Spread) -> f64| trial::set_up(probed, quantile);
    Some(Seen {
        set_up: (set_up(|spread| spread.p50)?, set_up(|spread| spread.p99)?),
        mouth_to_ear: report.mouth_to_ear?.p99,
    })
}

/// What the passes of both ways come to.
fn compared(calls: u32, seen: &[Vec<Option<Seen>>; 2]) -> Vec<Target> {
    let pairs: Vec<(Seen, Seen)> = seen[0]
        .iter()
        .zip(&seen[1])
        .filter_map(|(relay, direct)| Some(((*relay)?, (*direct)?)))
        .collect();
    let each = |of: fn(&(Seen, Seen)) -> f64| -> Vec<f64> { pairs.iter().map(of).collect() };
    let medians = |of: fn(&Seen) -> f64| {
        let side =
            |at: fn(&(Seen, Seen)) -> &Seen| median(pairs.iter().map(|p| of(at(p))).collect());
        Some((side(|pair| &pair.0)?, side(|pair| &pair.1)?))
    };
    let left_out = left_out(seen[0].len().max(seen[1].len()) - pairs.len());
    let how = |what: &str| {
        format!(
            "{what}, with {calls} calls up (half of what all programs on one processor carry): G.711 to a model server that gives one caller in \
             four its own audio back; placed with signaling both times, and packets by the relay, or past it over the trunk{left_out}"
        )
    };
    let set_up = "from the request until DTLS is up, of calls that are placed beside, by the relay as a multiple of past it";
    let ratio = |name, of: fn(&Seen) -> f64, passes, what: &str| {
        let found = medians(of).map(|(relay, direct)| relay / direct);
        Target::of(
            name,
            found,
            SET_UP,
            passes,
            how(&format!("{what} {set_up}")),
        )
    };
    vec![
        ratio(
            "set_up_median_relay_vs_direct",
            |seen| seen.set_up.0,
            each(|(relay, direct)| relay.set_up.0 / direct.set_up.0),
            "median time",
        ),
        ratio(
            "set_up_p99_relay_vs_direct",
            |seen| seen.set_up.1,
            each(|(relay, direct)| relay.set_up.1 / direct.set_up.1),
            "the 99th percentile of the time",
        ),
        Target::of(
            "mouth_to_ear_p99_added_by_relay_ms",
            medians(|seen| seen.mouth_to_ear).map(|(relay, direct)| relay - direct),
            ADDED_MS,
            each(|(relay, direct)| relay.mouth_to_ear - direct.mouth_to_ear),
            how("median of the passes' 99th percentiles, by the relay less past it"),
        ),
    ]
}

/// How many passes do not count, if any.
pub(crate) fn left_out(passes: usize) -> String {
    match passes {
        0 => String::new(),
        1 => "; 1 pass, in which calls failed, is left out".to_owned(),
        more => format!("; {more} passes, in which calls failed, are left out"),
    }
}

/// Gaps above 60 ms that callers hear while so many calls are up, all passes together.
///
/// # Errors
/// Programs do not start, or see [`LoadError`].
pub fn gaps(
    plan: &ComparisonPlan,
    work: Work,
    calls: u32,
    mut said: impl FnMut(&str, &CallReport),
) -> Result<Target, LoadError> {
    let mut passes = Vec::new();
    let name = match work {
        Work::Passthrough => "gaps_at_70_percent_passthrough",
        _ => "gaps_at_70_percent_transcoding",
    };
    for _ in 0..plan.passes {
        let served = Served::start(&plan.bench, NUMBER, Service::All, work, Answerer::Speaks)?;
        let report = load::run(&served.calls(calls, plan.counted), &Default::default())?;
        said(name, &report);
        // A call that fell silent altogether has no gap, but one is heard.
        passes.push((report.gaps + report.failed()) as f64);
    }
    let how = format!(
        "pauses above 60 ms between packets that follow each other, and calls that failed, of {calls} calls (seven tenths of what all programs on \
         one processor carry) in {:.0} s, all passes together",
        plan.counted.as_secs_f64()
    );
    let all = passes.iter().sum();
    Ok(Target::of(name, Some(all), 0.0, passes, how))
}

/// Servers that are compared by their time.
const SERVERS: [&str; 4] = [
    "firsthop",
    "firsthop, every caller's own audio back",
    "janus, one event loop",
    "janus, a thread for each call",
];

/// The servers' processor time per call and second beside Janus's, with the same clients and so many calls of G.711.
///
/// # Errors
/// Programs do not start, Janus is not installed, or see [`LoadError`].
pub fn against_janus(
    plan: &ComparisonPlan,
    calls: u32,
    mut said: impl FnMut(&str, &CallReport),
) -> Result<Vec<Target>, LoadError> {
    let mut times: Vec<[f64; SERVERS.len()]> = Vec::new();
    let mut handled: [Vec<Vec<Handled>>; 2] = Default::default();
    for pass in 0..plan.passes {
        let mut pass_times = [f64::NAN; SERVERS.len()];
        let mut order: Vec<usize> = (0..SERVERS.len()).collect();
        if pass % 2 == 1 {
            order.reverse();
        }
        for at in order {
            let (report, did) = match at {
                0 => firsthop(plan, calls, Answerer::Speaks)?,
                1 => firsthop(plan, calls, Answerer::Echoes(NonZeroU32::MIN))?,
                2 => (janus(plan, calls, Some(1))?, Vec::new()),
                _ => (janus(plan, calls, None)?, Vec::new()),
            };
            said(SERVERS[at], &report);
            pass_times[at] = server_micros(&report, calls);
            if let Some(handled) = handled.get_mut(at).filter(|_| pass_times[at].is_finite()) {
                handled.push(did);
            }
        }
        times.push(pass_times);
    }
    let handled = handled.each_ref().map(|passes| handled::medians(passes));
    Ok(beside_janus(calls, &times, handled))
}

fn firsthop(
    plan: &ComparisonPlan,
    calls: u32,
    answerer: Answerer,
) -> Result<(CallReport, Vec<Handled>), LoadError> {
    let served = Served::start(
        &plan.bench,
        NUMBER,
        Service::All,
        Work::Passthrough,
        answerer,
    )?;
    let load = own_sockets(served.calls(calls, plan.counted))?;
    let mut readings = None;
    let report = load::run_beside(&load, &Default::default(), || {
        // Both while all calls are up.
        let most = plan.counted.mul_f64(0.9);
        readings = Some(Reading::of(&served.stack).and_then(|first| {
            std::thread::sleep(most);
            Ok((first, Reading::of(&served.stack)?))
        }));
    })?;
    let readings = readings.transpose()?;
    let handled = readings.map(|(first, last)| first.until(&last, calls, &report.watched));
    Ok((report, handled.unwrap_or_default()))
}

fn janus(
    plan: &ComparisonPlan,
    calls: u32,
    event_loops: Option<u32>,
) -> Result<CallReport, LoadError> {
    let bench = &plan.bench;
    let janus = Janus::start(JanusPlan {
        event_loops,
        ..JanusPlan::here(bench.directory.join("janus"), bench.processor)?
    })?;
    let load = LoadPlan {
        // A session would wait for its next connection.
        ending: Ending::HangUp,
        watch: vec![janus.process.id()],
        ..trial::held(
            janus.desk(),
            Way::Relay,
            Codec::Pcmu,
            calls,
            bench.settle,
            plan.counted,
        )
    };
    load::run(&own_sockets(load)?, &Default::default())
}

/// Clients with a socket each at this machine's own address: Janus serves no others here, and what many clients send by one system call would come
/// in trains, which spares servers work.
fn own_sockets(load: LoadPlan) -> io::Result<LoadPlan> {
    let from = janus::own_address()?;
    Ok(LoadPlan {
        manner: Manner {
            sockets: Sharing::Own { from, bind: from },
            ..load.manner
        },
        ..load
    })
}

/// What the servers of media used per call and second, in microseconds; no number when not every call came about.
fn server_micros(report: &CallReport, calls: u32) -> f64 {
    if report.audible < u64::from(calls) || report.failed() > 0 {
        return f64::NAN;
    }
    let media = report.watched.iter().filter(|one| one.name != "signaling");
    media.map(|one| one.micros_per_call_second).sum()
}

fn beside_janus(
    calls: u32,
    times: &[[f64; SERVERS.len()]],
    handled: [Vec<Handled>; 2],
) -> Vec<Target> {
    let [speaks, echoes] = handled;
    let target = |name, at: usize, what: &str, handled| {
        // Janus has the setting that is better for it.
        let passes: Vec<f64> = times
            .iter()
            .map(|pass| pass[at] / pass[2].min(pass[3]))
            .collect();
        let left_out = left_out(passes.iter().filter(|pass| !pass.is_finite()).count());
        let figures: Vec<String> = SERVERS
            .iter()
            .enumerate()
            .filter_map(|(at, server)| {
                let micros = median(times.iter().map(|pass| pass[at]).collect())?;
                Some(format!("{server} {micros:.0}"))
            })
            .collect();
        let how = format!(
            "{what}, as a share of Janus's echo test, which decrypts a packet and encrypts it again for the same caller, at its cheaper setting; \
             {calls} calls of G.711, 50 packets a second each way, with the same clients; medians of microseconds per call and second: {}{left_out}",
            figures.join(", ")
        );
        Target::of(name, median(passes.clone()), OF_JANUS, passes, how).with(handled)
    };
    vec![
        target(
            "server_time_vs_janus",
            0,
            "processor time of relay and transceiver, which decrypt G.711, send it to a model server over a WebSocket as base64 in JSON, and encrypt and \
             send the speech of that server, a second to a message",
            speaks,
        ),
        target(
            "server_time_vs_janus_own_audio",
            1,
            "the same, where the model server gives every caller its own audio back, 20 ms to a message",
            echoes,
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::report::Part;
    use super::*;

    #[test]
    fn ways_are_compared_by_the_medians_of_their_passes() {
        let seen = |set_up: f64, mouth_to_ear: f64| {
            Some(Seen {
                set_up: (set_up, 2.0 * set_up),
                mouth_to_ear,
            })
        };
        // The third pass of one way failed, and counts for neither.
        let relay = vec![seen(10.4, 80.2), seen(10.6, 95.0), None, seen(10.5, 80.6)];
        let direct = vec![
            seen(10.0, 79.9),
            seen(10.0, 80.1),
            seen(99.0, 9.0),
            seen(10.0, 80.0),
        ];
        let targets = compared(50, &[relay, direct]);
        let [median, p99, added] = &targets[..] else {
            panic!("{targets:?}");
        };
        for ratio in [median, p99] {
            assert!(
                (ratio.found.expect("found") - 1.05).abs() < 1e-9,
                "{ratio:?}"
            );
            assert_eq!(ratio.passes.len(), 3);
            assert!(
                ratio
                    .how
                    .ends_with("; 1 pass, in which calls failed, is left out"),
                "{ratio:?}"
            );
        }
        assert!(
            (added.found.expect("found") - 0.6).abs() < 1e-9,
            "{added:?}"
        );
        assert_eq!(added.met, Some(true));
        assert!((added.passes[1] - 14.9).abs() < 1e-9);
    }

    #[test]
    fn a_pass_counts_only_when_no_call_of_either_kind_failed() {
        let report = |calls: u64, connected: u64| {
            let second = Duration::from_secs(1);
            let none = Part::default();
            CallReport {
                calls,
                connected,
                set_up: ["answer", "connected"]
                    .map(|phase| (phase, Spread::default()))
                    .into(),
                mouth_to_ear: Some(Spread::default()),
                ..CallReport::new(&none, Codec::Pcmu, 1.0, second, second)
            }
        };
        assert!(saw(&report(9, 9), &report(3, 3)).is_some());
        assert!(saw(&report(9, 8), &report(3, 3)).is_none());
        assert!(saw(&report(9, 9), &report(3, 2)).is_none());
    }

    #[test]
    fn nothing_is_found_where_nothing_was_seen() {
        for target in compared(50, &[vec![None], vec![]]) {
            assert_eq!((target.found, target.met), (None, None));
        }
    }

    #[test]
    fn janus_is_taken_at_its_cheaper_setting_and_a_pass_with_failed_calls_is_left_out() {
        let targets = beside_janus(
            100,
            &[
                [500.0, 800.0, 2_000.0, 1_000.0],
                [600.0, 800.0, 1_000.0, 1_500.0],
                [f64::NAN, 800.0, 1_000.0, 1_000.0],
            ],
            [[200.0, 350.0], [300.0, 500.0]].map(|micros| {
                let programs = ["relay", "transceiver"].into_iter().zip(micros);
                let handled = programs.map(|(program, micros)| Handled {
                    program: program.to_owned(),
                    micros,
                    counts: Vec::new(),
                });
                handled.collect()
            }),
        );
        assert_eq!(targets[0].handled[1].micros, 350.0);
        assert_eq!(targets[1].handled[0].micros, 300.0);
        assert!((targets[0].found.expect("found") - 0.55).abs() < 1e-9);
        assert_eq!(targets[0].met, Some(false));
        assert_eq!(targets[1].found, Some(0.8));
        for part in ["firsthop 550", "; 1 pass, in which calls failed"] {
            assert!(targets[0].how.contains(part), "{}", targets[0].how);
        }
        assert!(!targets[1].how.contains("failed"), "{}", targets[1].how);
    }
}
