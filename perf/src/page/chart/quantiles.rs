//! Quantiles of delays: lines over the share of what is sooner.

use maud::{Markup, html};
use serde::Deserialize;

use super::super::figures::millis;
use super::{Axis, Drawn, Figure, Legend, Scale, Series, Table, lines};

/// What stands above the columns of [`Quantiles::cells`].
pub(in super::super) const COLUMNS: [&str; 4] = ["p50", "p99", "p99.9", "max"];

/// Of many delays: the median, the 99th and the 99.9th percentile, and the longest. In milliseconds where they are shown.
#[derive(Clone, Copy, Default, Deserialize)]
pub(in super::super) struct Quantiles {
    pub(in super::super) p50: f64,
    pub(in super::super) p99: f64,
    pub(in super::super) p999: f64,
    pub(in super::super) max: f64,
}

impl Quantiles {
    fn each(self) -> [f64; 4] {
        [self.p50, self.p99, self.p999, self.max]
    }

    /// In milliseconds what is in microseconds.
    pub(in super::super) fn of_micros(self) -> Self {
        let [p50, p99, p999, max] = self.each().map(|micros| micros / 1e3);
        Self {
            p50,
            p99,
            p999,
            max,
        }
    }

    /// The longer of two, at each quantile.
    pub(in super::super) fn longer(self, other: Self) -> Self {
        Self {
            p50: self.p50.max(other.p50),
            p99: self.p99.max(other.p99),
            p999: self.p999.max(other.p999),
            max: self.max.max(other.max),
        }
    }

    /// As a table has them, under [`COLUMNS`].
    pub(in super::super) fn cells(self) -> [String; 4] {
        self.each().map(millis)
    }
}

/// A figure of such lines.
pub(in super::super) struct Delays<'a> {
    /// What it shows.
    pub(in super::super) title: &'a str,
    /// What to see in it, in a sentence or two.
    pub(in super::super) says: &'a str,
    /// What was delayed, in the plural.
    pub(in super::super) of: &'a str,
    /// A line for each name.
    pub(in super::super) lines: Vec<(String, Quantiles)>,
    /// The figures, and others that have no line.
    pub(in super::super) table: Table,
}

impl Delays<'_> {
    /// Nothing when there are no lines.
    pub(in super::super) fn markup(self) -> Markup {
        if self.lines.is_empty() {
            return html! {};
        }
        let series: Vec<Series> = self
            .lines
            .iter()
            .enumerate()
            .map(|(look, (_, quantiles))| Series {
                points: (0..).map(f64::from).zip(quantiles.each()).collect(),
                look,
                drawn: Drawn::Joined,
            })
            .collect();
        let across = format!("share of {} that are sooner", self.of);
        Figure {
            title: self.title,
            says: self.says,
            legend: Legend::Marks(self.lines.into_iter().map(|(name, _)| name).collect()),
            drawing: lines(
                &series,
                &Axis::named(&across, ["50 %", "99 %", "99.9 %", "all"]),
                &Axis::new("ms", Scale::Logarithmic),
                None,
            ),
            table: self.table,
        }
        .markup()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOME: Quantiles = Quantiles {
        p50: 1_000.0,
        p99: 4_000.0,
        p999: 4_000.0,
        max: 10_000.0,
    };

    #[test]
    fn of_two_the_longer_counts_at_each_quantile() {
        let other = Quantiles {
            p50: 3_000.0,
            max: 9_000.0,
            ..SOME
        };
        let longer = SOME.longer(other).of_micros();
        assert_eq!(longer.each(), [3.0, 4.0, 4.0, 10.0]);
        assert_eq!(Quantiles::default().longer(SOME).each(), SOME.each());
    }

    #[test]
    fn each_name_has_a_line_with_a_point_at_each_quantile_and_without_names_there_is_no_figure() {
        let delays = |names: &[&str]| {
            let lines = names.iter().map(|name| ((*name).to_owned(), SOME));
            Delays {
                title: "Delays",
                says: "How late.",
                of: "letters",
                lines: lines.collect(),
                table: Table::new(["Letter", "p50", "p99", "p99.9", "max"]),
            }
            .markup()
            .into_string()
        };
        assert_eq!(delays(&[]), "");
        let drawn = delays(&["first", "second"]);
        for part in ["share of letters that are sooner", "first", "second"] {
            assert!(drawn.contains(part), "{part}: {drawn}");
        }
        // Four points of each, and one more in the legend: the first is drawn as circles, the second as squares.
        let marks = |mark: &str| drawn.matches(mark).count();
        assert_eq!((marks("<circle"), marks("<rect")), (5, 5), "{drawn}");
    }
}
