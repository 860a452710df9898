//! Figures that say how good something is: headlines, and what history follows.

use serde::Deserialize;

use super::figures::finely;

/// What a figure counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Unit {
    /// A ratio of two figures of one run.
    Ratio,
    /// Round trips: by how much more a longer line makes something take.
    RoundTrips,
    /// A share of something.
    Share,
    /// Milliseconds.
    Millis,
    /// Bytes.
    Bytes,
    /// Calls, scenarios: things that are whole.
    Count,
}

impl Unit {
    /// What stands behind a figure that is so many times something.
    pub(super) fn sign(self) -> &'static str {
        if self == Self::Ratio { " ×" } else { "" }
    }

    /// Whether figures of different machines compare.
    pub(super) fn compares(self) -> bool {
        matches!(self, Self::Ratio | Self::RoundTrips)
    }

    pub(super) fn write(self, value: f64) -> String {
        self.write_finely(value, 0)
    }

    /// The same, with so many digits more than are worth reading.
    fn write_finely(self, value: f64, more: usize) -> String {
        match self {
            Self::Ratio | Self::RoundTrips => finely::number(value, more),
            Self::Share => finely::percent(value, more),
            Self::Millis => finely::millis(value, more),
            Self::Bytes if value >= 10_240.0 => {
                format!("{}\u{a0}KiB", finely::number(value / 1_024.0, more))
            }
            Self::Bytes => format!("{}\u{a0}bytes", finely::grouped(value, more)),
            Self::Count => finely::grouped(value, more),
        }
    }
}

/// So many digits more are tried where a figure looks like the bound that it misses.
const DIGITS_MORE: usize = 6;

/// Which way is better.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Better {
    /// Less is.
    Lower,
    /// More is.
    Higher,
}

/// What the project asks of a figure.
#[derive(Clone, Copy, PartialEq, Debug, Deserialize)]
pub(super) struct Target {
    /// At most, or at least: [`Better`] says which.
    pub(super) must: f64,
    /// Better still.
    pub(super) aim: Option<f64>,
}

/// How a figure stands to its target.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    /// Better than what was aimed for.
    Aimed,
    /// As it must be.
    Met,
    /// Not as it must be.
    Missed,
}

impl Verdict {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Aimed => "met, as aimed for",
            Self::Met => "met",
            Self::Missed => "missed",
        }
    }

    pub(super) fn class(self) -> &'static str {
        match self {
            Self::Aimed | Self::Met => "met",
            Self::Missed => "missed",
        }
    }
}

/// A figure.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Metric {
    /// What tells it from others of its kind of results, the same in every file.
    pub(super) name: String,
    /// What it is, for people.
    pub(super) what: String,
    /// How much; no number when it should have been measured, and could not be.
    pub(super) value: f64,
    /// Of what.
    pub(super) unit: Unit,
    /// Which way is better.
    pub(super) better: Better,
    /// What was found with it, and is not held against its target.
    pub(super) besides: Option<String>,
    /// What the project asks.
    pub(super) target: Option<Target>,
    /// Whether there may be more: the search ended before anything kept more from it.
    pub(super) open: bool,
    /// Whether it is the difference of two figures, and so may be nothing or less.
    pub(super) difference: bool,
    /// Whether it is among the first that a reader sees.
    pub(super) headline: bool,
}

impl Metric {
    pub(super) fn new(name: &str, what: &str, value: f64, unit: Unit, better: Better) -> Self {
        Self {
            name: name.to_owned(),
            what: what.to_owned(),
            value,
            unit,
            better,
            besides: None,
            target: None,
            open: false,
            difference: false,
            headline: false,
        }
    }

    pub(super) fn target(self, must: f64, aim: Option<f64>) -> Self {
        Self {
            target: Some(Target { must, aim }),
            ..self
        }
    }

    /// There may be more: see [`Metric::open`].
    pub(super) fn open(self, open: bool) -> Self {
        Self { open, ..self }
    }

    /// It is a difference: see [`Metric::difference`].
    pub(super) fn difference(self, difference: bool) -> Self {
        Self { difference, ..self }
    }

    /// Says what was found with it: see [`Metric::besides`].
    pub(super) fn besides(self, besides: String) -> Self {
        Self {
            besides: Some(besides),
            ..self
        }
    }

    pub(super) fn headline(self) -> Self {
        Self {
            headline: true,
            ..self
        }
    }

    /// What stands behind it.
    pub(super) fn sign(&self) -> &'static str {
        if self.value.is_finite() {
            self.unit.sign()
        } else {
            ""
        }
    }

    /// As people read it.
    pub(super) fn figure(&self) -> String {
        if !self.value.is_finite() {
            return "not measured".to_owned();
        }
        let mut figure = self.unit.write(self.value);
        // What is missed by less than is told would look met.
        if let Some(target) = self.target
            && self.verdict() == Some(Verdict::Missed)
        {
            let bound = self.unit.write(target.must);
            let mut more = (1..=DIGITS_MORE).map(|more| self.unit.write_finely(self.value, more));
            if figure == bound
                && let Some(finer) = more.find(|finer| digits(finer) != digits(&bound))
            {
                figure = finer;
            }
        }
        // One that happens to be whole was measured as finely as the others.
        if self.unit.compares() && self.value < 9.995 && !figure.contains('.') {
            figure.push_str(".00");
        }
        counted(&figure, self.open)
    }

    /// How it stands to its target, if there is one, and if it was measured.
    pub(super) fn verdict(&self) -> Option<Verdict> {
        let target = self.target.filter(|_| self.value.is_finite())?;
        let as_good = |bound: f64| match self.better {
            Better::Lower => self.value <= bound,
            Better::Higher => self.value >= bound,
        };
        Some(if target.aim.is_some_and(as_good) {
            Verdict::Aimed
        } else if as_good(target.must) {
            Verdict::Met
        } else {
            Verdict::Missed
        })
    }

    /// What its target asks, for people.
    pub(super) fn asks(&self) -> Option<String> {
        let target = self.target?;
        let bound = match self.better {
            Better::Lower => "at most",
            Better::Higher => "at least",
        };
        Some(format!("{bound} {}", self.unit.write(target.must)))
    }
}

/// The digits of a figure that make a difference.
fn digits(figure: &str) -> String {
    let number = figure.split('\u{a0}').next().unwrap_or(figure);
    match number.split_once('.') {
        Some((whole, rest)) => format!("{whole}.{}", rest.trim_end_matches('0')),
        None => format!("{number}."),
    }
}

/// A figure that was found by search: where the search ended before anything kept more from it, it is a lower bound.
pub(super) fn counted(figure: &str, open: bool) -> String {
    if open {
        format!("at least {figure}")
    } else {
        figure.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_that_is_whole_has_its_decimals() {
        let figure = |value, unit| Metric::new("a", "A", value, unit, Better::Lower).figure();
        assert_eq!(figure(1.0, Unit::Ratio), "1.00");
        assert_eq!(figure(1.04, Unit::Ratio), "1.04");
        assert_eq!(figure(3.997, Unit::RoundTrips), "4.00");
        assert_eq!(figure(3.0, Unit::Count), "3");
    }

    #[test]
    fn what_is_missed_by_little_has_the_digits_that_show_it() {
        let figure = |value, unit, better, must| {
            let metric = Metric::new("a", "A", value, unit, better).target(must, None);
            (metric.figure(), metric.verdict())
        };
        let missed = Some(Verdict::Missed);
        for (value, unit, better, must, told) in [
            (1.0516, Unit::Ratio, Better::Lower, 1.05, "1.052"),
            (1.000_4, Unit::Ratio, Better::Lower, 1.0, "1.0004"),
            (1.2, Unit::Ratio, Better::Lower, 1.05, "1.20"),
            (1_999.6, Unit::Count, Better::Higher, 2_000.0, "1,999.6"),
            (
                0.001_004,
                Unit::Share,
                Better::Lower,
                0.001,
                "0.1004\u{a0}%",
            ),
            (1.003, Unit::Millis, Better::Lower, 1.0, "1.003\u{a0}ms"),
        ] {
            let (figure, verdict) = figure(value, unit, better, must);
            assert_eq!((figure.as_str(), verdict), (told, missed));
        }
        let (met, _) = figure(1.0496, Unit::Ratio, Better::Lower, 1.05);
        assert_eq!(met, "1.05");
    }

    #[test]
    fn a_verdict_knows_which_way_is_better() {
        let verdict = |value, better| {
            Metric::new("a", "A", value, Unit::Ratio, better)
                .target(2.0, Some(1.0))
                .verdict()
        };
        assert_eq!(verdict(1.0, Better::Lower), Some(Verdict::Aimed));
        assert_eq!(verdict(2.0, Better::Lower), Some(Verdict::Met));
        assert_eq!(verdict(2.1, Better::Lower), Some(Verdict::Missed));
        assert_eq!(verdict(f64::NAN, Better::Lower), None);
        let unknown = Metric::new("a", "A", f64::NAN, Unit::Ratio, Better::Lower);
        assert_eq!((unknown.figure() + unknown.sign()).as_str(), "not measured");
        let calls = |value| Metric::new("a", "A", value, Unit::Count, Better::Higher);
        assert_eq!(calls(1.0).verdict(), None);
        let calls = |value| calls(value).target(2_000.0, None);
        assert_eq!(calls(1_999.0).verdict(), Some(Verdict::Missed));
        assert_eq!(calls(12_707.0).verdict(), Some(Verdict::Met));
        assert_eq!(calls(1.0).asks().as_deref(), Some("at least 2,000"));
    }
}
