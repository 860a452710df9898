//! Holds what a load of calls showed against limits, such as `setup_p99>500ms`: a guard of deployments.
//!
//! A limit says what is too much. What was not measured is no pass: a load without a single call must not be taken for a good one.

use std::fmt::Write as _;
use std::str::FromStr;

use super::report::{CallReport, Spread};

/// What a measure is counted in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// Milliseconds.
    Time,
    /// From 0 to 1.
    Share,
    /// A number.
    Count,
}

type OfSpread = fn(&CallReport) -> Option<Spread>;
type OfNumber = fn(&CallReport) -> Option<f64>;

/// Times, of which there are quantiles.
const SPREADS: [(&str, &str, OfSpread); 12] = [
    ("setup", "first audio, from when the call was due", |r| {
        phase(r, "total")
    }),
    ("http", "the answer, from when the call was due", |r| {
        phase(r, "answer")
    }),
    ("ice", "a way by ICE, from the answer", |r| phase(r, "ice")),
    ("dtls", "DTLS, from ICE", |r| phase(r, "dtls")),
    ("connected", "DTLS, from the answer", |r| {
        phase(r, "connected")
    }),
    ("channel", "the channel, from the answer", |r| {
        phase(r, "channel")
    }),
    ("first_audio", "first audio, from DTLS", |r| {
        phase(r, "first_audio")
    }),
    (
        "mouth_to_ear",
        "what a client said comes back, the echo's own delay subtracted",
        |r| r.mouth_to_ear,
    ),
    ("lateness", "packets, later than the earliest", |r| {
        r.lateness
    }),
    ("jitter", "jitter of a call at its end", |r| r.jitter),
    (
        "longest_gap",
        "the longest pause of each call, the silence before its end too",
        |r| r.longest_gap,
    ),
    (
        "barge_in",
        "the server's last sound, from when the client began to speak over it",
        |r| r.barge_in,
    ),
];

const QUANTILES: [&str; 4] = ["p50", "p99", "p999", "max"];

const NUMBERS: [(&str, Kind, &str, OfNumber); 13] = [
    (
        "lost",
        Kind::Share,
        "packets that did not come, also after the last one that did",
        |r| (r.received > 0 || r.lost > 0.0).then_some(r.lost),
    ),
    (
        "failed",
        Kind::Count,
        "calls that did not connect, broke, were cut, or did not hear of their end; one that goes on and is silent is none",
        |r| of_calls(r, r.failed()),
    ),
    ("failed_share", Kind::Share, "the same, of all calls", |r| {
        share(r.failed(), r.calls)
    }),
    ("cut", Kind::Count, "calls that the server ended", |r| {
        of_calls(r, r.cut)
    }),
    (
        "broken",
        Kind::Count,
        "calls whose engine failed after DTLS was up",
        |r| of_calls(r, r.broken),
    ),
    (
        "inaudible",
        Kind::Count,
        "calls that did not hear any audio",
        |r| of_calls(r, r.calls - r.audible),
    ),
    (
        "gaps",
        Kind::Count,
        "gaps of more than 60 ms, the silence before a call's end too",
        |r| of_packets(r, r.gaps),
    ),
    (
        "calls_with_gaps",
        Kind::Count,
        "calls that had such a gap",
        |r| of_packets(r, r.calls_with_gaps),
    ),
    (
        "marks_missed",
        Kind::Share,
        "marks in the audio that did not come back",
        |r| share(r.marks_missed, r.marks_missed + r.marks_heard),
    ),
    (
        "marks_early",
        Kind::Count,
        "marks that came back sooner than the echo is said to wait",
        |r| (r.marks_missed + r.marks_heard > 0).then_some(r.marks_early as f64),
    ),
    (
        "restarts_failed",
        Kind::Count,
        "ICE restarts that were refused",
        |r| of_calls(r, r.restarts_failed),
    ),
    (
        "generator_busy",
        Kind::Share,
        "the generator's own busiest thread, of its processor",
        |r| Some(r.generator_busy),
    ),
    (
        "generator_lost",
        Kind::Count,
        "packets that the generator's own sockets lost",
        |r| Some(r.generator_lost as f64),
    ),
];

fn phase(report: &CallReport, name: &str) -> Option<Spread> {
    report.set_up.get(name).copied()
}

/// A share; nothing of nothing.
fn share(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

/// A number of calls, if there were any.
fn of_calls(report: &CallReport, count: u64) -> Option<f64> {
    (report.calls > 0).then_some(count as f64)
}

/// What packets show, if any came or should have.
fn of_packets(report: &CallReport, count: u64) -> Option<f64> {
    (report.received + count > 0).then_some(count as f64)
}

#[derive(Clone, Copy, Debug)]
enum Measure {
    Quantile(OfSpread, usize),
    Number(Kind, OfNumber),
}

impl Measure {
    fn named(name: &str) -> Option<Self> {
        if let Some((_, kind, _, of)) = NUMBERS.iter().find(|(known, ..)| *known == name) {
            return Some(Self::Number(*kind, *of));
        }
        let (spread, quantile) = name.rsplit_once('_')?;
        let quantile = QUANTILES.iter().position(|known| *known == quantile)?;
        let (_, _, of) = SPREADS.iter().find(|(known, ..)| *known == spread)?;
        Some(Self::Quantile(*of, quantile))
    }

    fn kind(self) -> Kind {
        match self {
            Self::Quantile(..) => Kind::Time,
            Self::Number(kind, _) => kind,
        }
    }

    fn of(self, report: &CallReport) -> Option<f64> {
        match self {
            Self::Quantile(of, quantile) => {
                let spread = of(report)?;
                Some([spread.p50, spread.p99, spread.p999, spread.max][quantile])
            }
            Self::Number(_, of) => of(report),
        }
    }
}

/// A measure, and what of it is too much.
#[derive(Clone, Debug)]
pub struct Limit {
    name: String,
    measure: Measure,
    comparison: &'static str,
    value: f64,
}

/// The longer first: `>=` begins with `>`.
const COMPARISONS: [&str; 4] = [">=", "<=", ">", "<"];

impl FromStr for Limit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let split = |comparison: &&'static str| Some((*comparison, text.split_once(*comparison)?));
        let (comparison, (name, value)) = COMPARISONS.iter().find_map(split).ok_or_else(|| {
            format!("{text:?} compares nothing; give a limit as 'setup_p99>500ms'")
        })?;
        let (name, value) = (name.trim(), value.trim());
        let measure = Measure::named(name)
            .ok_or_else(|| format!("{name:?} is not measured; there are:\n{}", measures()))?;
        Ok(Self {
            name: name.to_owned(),
            measure,
            comparison,
            value: number(value, measure.kind())?,
        })
    }
}

/// A value with its unit, as the measure counts it.
fn number(text: &str, kind: Kind) -> Result<f64, String> {
    let unit = text.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
    let scale = match (kind, unit.trim()) {
        (Kind::Time, "ms") => 1.0,
        (Kind::Time, "s") => 1_000.0,
        (Kind::Time, "us" | "µs") => 0.001,
        (Kind::Share, "%") => 0.01,
        (Kind::Share | Kind::Count, "") => 1.0,
        (Kind::Time, _) => return Err(format!("{text:?} is no time; give one as 500ms or 1.5s")),
        (Kind::Share, _) => return Err(format!("{text:?} is no share; give one as 0.5% or 0.005")),
        (Kind::Count, _) => return Err(format!("{text:?} is no number; give one without a unit")),
    };
    let number = text[..text.len() - unit.len()].parse::<f64>();
    let number = number.map_err(|_| format!("{text:?} is not a number with a unit"))? * scale;
    if kind == Kind::Share && number > 1.0 {
        return Err(format!(
            "{text:?} is more than all; give a share as 0.5% or 0.005"
        ));
    }
    Ok(number)
}

/// A value of a measure, as people read it.
fn words(value: f64, kind: Kind) -> String {
    match kind {
        Kind::Time => format!("{value:.1} ms"),
        Kind::Share => format!("{:.3} %", 100.0 * value),
        Kind::Count => format!("{value}"),
    }
}

impl Limit {
    /// Why what was measured is beyond it, if it is.
    #[must_use]
    pub fn broken(&self, report: &CallReport) -> Option<String> {
        let (name, kind) = (&self.name, self.measure.kind());
        let Some(found) = self.measure.of(report) else {
            return Some(format!("{name} was not measured in any call"));
        };
        let beyond = match self.comparison {
            ">" => found > self.value,
            ">=" => found >= self.value,
            "<" => found < self.value,
            _ => found <= self.value,
        };
        beyond.then(|| {
            let (found, value) = (words(found, kind), words(self.value, kind));
            format!(
                "{name} is {found}, and fails at {} {value}",
                self.comparison
            )
        })
    }
}

/// All measures, a line each.
#[must_use]
pub fn measures() -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = writeln!(out, "times (ms, s), each with _p50, _p99, _p999 or _max:");
    for (name, what, _) in SPREADS {
        let _ = writeln!(out, "  {name:<16} {what}");
    }
    let _ = writeln!(out, "shares (%, or from 0 to 1) and numbers:");
    for (name, kind, what, _) in NUMBERS {
        let kind = if kind == Kind::Share { " (share)" } else { "" };
        let _ = writeln!(out, "  {name:<16} {what}{kind}");
    }
    out
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::recording::Codec;
    use super::super::report::Part;
    use super::*;

    fn report() -> CallReport {
        let second = Duration::from_secs(1);
        let mut report = CallReport::new(&Part::default(), Codec::Opus, 1.0, second, second);
        report.calls = 10;
        report.connected = 9;
        report.lost = 0.015;
        report.received = 1_000;
        report.mouth_to_ear = Some(Spread {
            p50: 40.0,
            p99: 100.0,
            p999: 110.0,
            max: 120.0,
        });
        report
    }

    fn broken(limit: &str) -> Option<String> {
        limit.parse::<Limit>().expect("a limit").broken(&report())
    }

    #[test]
    fn what_is_beyond_a_limit_is_said_with_both_values() {
        for limit in [
            "mouth_to_ear_p99>99.9ms",
            "mouth_to_ear_p99 >= 100ms",
            "mouth_to_ear_max>0.1s",
            "mouth_to_ear_p50<50ms",
            "mouth_to_ear_p999 <= 110000us",
            "lost>1%",
            "lost>0.01",
            "failed>0",
            "failed_share>=10%",
        ] {
            assert!(broken(limit).is_some(), "{limit}");
        }
        for limit in [
            "mouth_to_ear_p99>100ms",
            "mouth_to_ear_p99>1s",
            "lost>1.5%",
            "lost>2%",
            "failed>1",
            "gaps>0",
            "generator_lost>0",
            "broken>0",
        ] {
            assert_eq!(broken(limit), None, "{limit}");
        }
        assert_eq!(
            broken("mouth_to_ear_p99>50ms").as_deref(),
            Some("mouth_to_ear_p99 is 100.0 ms, and fails at > 50.0 ms")
        );
    }

    #[test]
    fn what_was_not_measured_is_no_pass() {
        let words = broken("setup_p99>500ms").expect("broken");
        assert_eq!(words, "setup_p99 was not measured in any call");
        // No marks were counted, and no packets.
        assert!(broken("marks_missed>0").is_some());
        let mut report = report();
        report.received = 0;
        for limit in ["lost>1%", "gaps>0", "calls_with_gaps>0"] {
            let limit = limit.parse::<Limit>().expect("a limit");
            assert!(limit.broken(&report).is_some());
        }
        (report.calls, report.connected) = (0, 0);
        let limit = "failed>0".parse::<Limit>().expect("a limit");
        assert!(limit.broken(&report).is_some());
    }

    #[test]
    fn a_limit_that_is_none_is_refused_and_measures_are_listed() {
        for (limit, expected) in [
            ("setup_p99", "as 'setup_p99>500ms'"),
            ("set_up_p99>1ms", "there are:\ntimes"),
            ("setup_p95>1ms", "  setup "),
            ("setup>1ms", "mouth_to_ear"),
            ("setup_p99>500", "no time"),
            ("setup_p99>1%", "no time"),
            ("lost>5ms", "no share"),
            ("lost>101%", "more than all"),
            ("lost>5", "more than all"),
            ("gaps>5%", "no number"),
            ("gaps>", "not a number"),
            ("gaps>1.2.3", "not a number"),
            ("gaps>-1", "no number"),
        ] {
            let refused = limit.parse::<Limit>().expect_err("refused");
            assert!(refused.contains(expected), "{limit}: {refused}");
        }
    }

    #[test]
    fn every_measure_has_a_name_of_its_own_and_is_found_by_it() {
        for (name, ..) in SPREADS {
            for quantile in QUANTILES {
                assert!(Measure::named(&format!("{name}_{quantile}")).is_some());
            }
        }
        for (name, ..) in NUMBERS {
            assert!(Measure::named(name).is_some());
        }
        let all = measures();
        assert_eq!(all.lines().count(), SPREADS.len() + NUMBERS.len() + 2);
    }
}
