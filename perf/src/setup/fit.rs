//! The straight line through what a phase takes on lines of several lengths.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::call::cost::Line;

/// Medians that a line is told from at least: two have one always.
const POINTS: usize = 3;

/// How far a median may be from the line, in milliseconds, if the line is to be told.
const STRAIGHT_MS: f64 = 3.0;

/// What a phase takes by the length of the line. It describes; nothing is held against it: timers run on lines of some lengths and not on others, and
/// bend what is no line then.
#[derive(Clone, Copy, PartialEq, Default, Debug, Serialize, Deserialize)]
pub struct Fit {
    /// The slope: milliseconds per millisecond of round-trip time.
    pub round_trips: f64,
    /// The intercept, in milliseconds.
    pub fixed_ms: f64,
    /// How far the worst point lies from the line, in milliseconds.
    pub worst_ms: f64,
    /// How many points there are. Older files do not say.
    #[serde(default)]
    pub points: usize,
}

impl Fit {
    /// The line through points of (round-trip time, time), both in milliseconds; nothing when all have one round-trip time.
    #[must_use]
    pub fn through(points: &[(f64, f64)]) -> Option<Self> {
        let line = Line::through(points)?;
        let off = line.residuals.iter().map(|residual| residual.abs());
        Some(Self {
            round_trips: line.each,
            fixed_ms: line.fixed,
            worst_ms: off.fold(0.0, f64::max),
            points: points.len(),
        })
    }

    /// Whether the points are a line: three or more, and none far from it.
    #[must_use]
    pub fn is_straight(&self) -> bool {
        self.points >= POINTS && self.worst_ms <= STRAIGHT_MS
    }
}

impl fmt::Display for Fit {
    /// Slope and intercept, with how far the line is from what was measured.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "slope {:.2}, intercept {:.1} ms, to within {:.1} ms",
            self.round_trips, self.fixed_ms, self.worst_ms
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_on_a_line_give_it_back() {
        let points: Vec<(f64, f64)> = [0.0, 20.0, 80.0, 200.0]
            .iter()
            .map(|rtt| (*rtt, 7.0 + 4.0 * rtt))
            .collect();
        let fit = Fit::through(&points).expect("a line");
        assert!((fit.round_trips - 4.0).abs() < 1e-9, "{fit:?}");
        assert!((fit.fixed_ms - 7.0).abs() < 1e-9, "{fit:?}");
        assert!(fit.worst_ms < 1e-9 && fit.is_straight(), "{fit:?}");
        // Any two points have a line.
        let two = Fit::through(&points[..2]).expect("a line");
        assert!(!two.is_straight(), "{two:?}");
        let bent = [(0.0, 0.0), (20.0, 80.0), (80.0, 360.0), (200.0, 940.0)];
        let bent = Fit::through(&bent).expect("a line");
        assert!(!bent.is_straight(), "{bent:?}");
    }

    #[test]
    fn a_point_off_the_line_is_told() {
        let points = [(0.0, 0.0), (1.0, 1.0), (2.0, 2.0), (3.0, 7.0)];
        let fit = Fit::through(&points).expect("a line");
        assert!((fit.round_trips - 2.2).abs() < 1e-9, "{fit:?}");
        assert!((fit.worst_ms - 1.6).abs() < 1e-9, "{fit:?}");
        assert_eq!(
            fit.to_string(),
            "slope 2.20, intercept -0.8 ms, to within 1.6 ms"
        );
    }

    #[test]
    fn one_length_of_line_makes_no_slope() {
        assert_eq!(Fit::through(&[]), None);
        assert_eq!(Fit::through(&[(5.0, 1.0)]), None);
        assert_eq!(Fit::through(&[(5.0, 1.0), (5.0, 3.0)]), None);
    }
}
