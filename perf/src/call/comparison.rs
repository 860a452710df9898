//! Comparisons that the project asks of itself: through the relay against past it, and gaps below capacity.
//!
//! What is compared alternates, pass by pass, so that what else the machine does falls on both.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use super::air::Way;
use super::capacity_results::Target;
use super::load::{self, LoadError, LoadPlan, Progress};
use super::report::{CallReport, Spread};
use super::tolerance::is_generator_limit;
use super::trial::{self, Answerer, Bench, Served, Service, Work};
use crate::report::median;

/// The number of the stacks here.
pub(super) const NUMBER: u8 = 24;

/// Set-up through the relay, as a multiple of set-up past it.
const SET_UP: f64 = 1.05;

/// What the relay may add to mouth-to-ear delay, in milliseconds.
const ADDED_MS: f64 = 1.0;

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
    let mut failed = Vec::new();
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
        let mut went_wrong = Vec::new();
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
                went_wrong.extend(uncounted(&format!("{name}, placed meanwhile"), probed));
            }
            went_wrong.extend(uncounted(name, &report));
            // Something for every pass: those of both ways are pairs.
            seen[at].push(probed.and_then(|probed| saw(&report, &probed)));
        }
        if seen.iter().any(|way| matches!(way.last(), Some(None))) {
            failed.push(words(&went_wrong));
        }
    }
    Ok(compared(calls, &seen, &failed))
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

/// What a pass showed; nothing when calls failed or heard nothing, which leaves more of the machine to the others, or when the generator was the limit.
fn saw(report: &CallReport, probed: &CallReport) -> Option<Seen> {
    if [report, probed]
        .iter()
        .any(|report| uncounted("", report).is_some())
    {
        return None;
    }
    let set_up = |quantile: fn(&Spread) -> f64| trial::set_up(probed, quantile);
    Some(Seen {
        set_up: (set_up(|spread| spread.p50)?, set_up(|spread| spread.p99)?),
        mouth_to_ear: report.mouth_to_ear?.p99,
    })
}

/// Why the delays that a report shows do not count, if they do not: the generator was the limit, or calls failed, or heard nothing.
fn uncounted(name: &str, report: &CallReport) -> Option<String> {
    let (busy, refused) = (report.generator_busy, report.generator_lost);
    if is_generator_limit(busy, refused) {
        return Some(format!("{name}: {}", generator_limit(busy, refused)));
    }
    lost(name, report)
}

/// How many calls failed, or heard nothing, if any did.
pub(super) fn lost(name: &str, report: &CallReport) -> Option<String> {
    let (calls, failed, lost) = (report.calls, report.failed(), report.lost_calls());
    (lost > 0).then(|| {
        let silent = match lost - failed {
            0 => String::new(),
            silent => format!(", {silent} heard nothing"),
        };
        format!("{name}: {failed} of {calls} calls failed{silent}")
    })
}

/// Says that the generator was the limit.
pub(crate) fn generator_limit(busy: f64, lost: u64) -> String {
    format!(
        "the generator was the limit, {:.0} % busy, {lost} packets lost by its own sockets",
        100.0 * busy
    )
}

/// Why a pass does not count.
pub(super) fn words(failed: &[String]) -> String {
    match failed {
        [] => "too little was heard to tell".to_owned(),
        failed => failed.join(", "),
    }
}

/// What the passes of both ways come to; and why each other does not count.
fn compared(calls: u32, seen: &[Vec<Option<Seen>>; 2], why: &[String]) -> Vec<Target> {
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
    let how = |what: &str| {
        format!(
            "{what}, with {calls} calls up (half of what all programs on one processor carry): G.711 to a model server that gives one caller in \
             four its own audio back; placed with signaling both times, and packets by the relay, or past it over the trunk"
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
    [
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
    .map(|target| target.left_out(why))
    .into()
}

/// Which passes do not count, by why each does not.
pub(crate) fn left_out(why: &[String]) -> String {
    let which = match why.len() {
        0 => return String::new(),
        1 => "1 pass is".to_owned(),
        more => format!("{more} passes are"),
    };
    format!("; {which} left out ({})", why.join("; "))
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
    let mut reports = Vec::new();
    let name = match work {
        Work::Passthrough => "gaps_at_70_percent_passthrough",
        _ => "gaps_at_70_percent_transcoding",
    };
    for _ in 0..plan.passes {
        let served = Served::start(&plan.bench, NUMBER, Service::All, work, Answerer::Speaks)?;
        let report = load::run(&served.calls(calls, plan.counted), &Default::default())?;
        said(name, &report);
        reports.push(report);
    }
    let how = format!(
        "pauses above 60 ms between packets that follow each other, and calls that failed or heard nothing, of {calls} calls (seven tenths of what all \
         programs on one processor carry) in {:.0} s, all passes together",
        plan.counted.as_secs_f64()
    );
    Ok(all_gaps(name, &reports, how))
}

/// The gaps of all passes together, but for those that the generator limited.
fn all_gaps(name: &str, reports: &[CallReport], how: String) -> Target {
    let (mut passes, mut left_out) = (Vec::new(), Vec::new());
    for report in reports {
        let (busy, refused) = (report.generator_busy, report.generator_lost);
        if is_generator_limit(busy, refused) {
            left_out.push(generator_limit(busy, refused));
            continue;
        }
        // A call that fell silent altogether, or never spoke, has no gap, but one is heard.
        passes.push((report.gaps + report.lost_calls()) as f64);
    }
    let all = (!passes.is_empty()).then(|| passes.iter().sum());
    Target::of(name, all, 0.0, passes, how).left_out(&left_out)
}

#[cfg(test)]
mod tests {
    use super::super::recording::Codec;
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
        let failed = ["past the relay: 1 of 9 calls failed".to_owned()];
        let targets = compared(50, &[relay, direct], &failed);
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
                    .ends_with("is left out (past the relay: 1 of 9 calls failed)"),
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
                audible: connected,
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
        // The same as of a number of calls that was tried, and of set-ups on a line.
        for (busy, lost, counts) in [(0.95, 0, true), (0.96, 0, false), (0.4, 1, false)] {
            let limited = CallReport {
                generator_busy: busy,
                generator_lost: lost,
                ..report(9, 9)
            };
            assert_eq!(saw(&limited, &report(3, 3)).is_some(), counts);
            assert_eq!(saw(&report(9, 9), &limited).is_some(), counts);
        }
    }

    #[test]
    fn a_call_that_heard_nothing_is_a_gap_and_a_pass_of_a_busy_generator_is_left_out() {
        let second = Duration::from_secs(1);
        let report = |audible, gaps, generator_busy| CallReport {
            gaps,
            generator_busy,
            calls: 9,
            connected: 9,
            audible,
            ..CallReport::new(&Part::default(), Codec::Pcmu, 1.0, second, second)
        };
        let found = all_gaps(
            "gaps",
            &[report(9, 1, 0.5), report(7, 0, 0.5)],
            String::new(),
        );
        assert_eq!(found.passes, [1.0, 2.0]);
        assert_eq!((found.found, found.met), (Some(3.0), Some(false)));
        let limited = report(9, 80, 0.97);
        let found = all_gaps("gaps", &[report(9, 0, 0.5), limited.clone()], String::new());
        assert_eq!((found.found, found.met), (Some(0.0), Some(true)));
        assert!(
            found.how.contains("1 pass is left out (the generator was"),
            "{}",
            found.how
        );
        let none = all_gaps("gaps", &[limited], String::new());
        assert_eq!((none.found, none.met), (None, None));
        assert!(none.missing.is_some());
    }

    #[test]
    fn calls_that_failed_are_told_from_those_that_heard_nothing() {
        let second = Duration::from_secs(1);
        let said = |connected, audible| {
            let part = Part {
                placed: 9,
                connected,
                audible,
                ..Part::default()
            };
            lost(
                "janus",
                &CallReport::new(&part, Codec::Pcmu, 1.0, second, second),
            )
        };
        assert_eq!(said(9, 9), None);
        assert_eq!(
            said(9, 7).as_deref(),
            Some("janus: 0 of 9 calls failed, 2 heard nothing")
        );
        assert_eq!(said(8, 8).as_deref(), Some("janus: 1 of 9 calls failed"));
    }

    #[test]
    fn nothing_is_found_where_nothing_was_seen() {
        for target in compared(50, &[vec![None], vec![]], &[]) {
            assert_eq!((target.found, target.met), (None, None));
        }
    }
}
