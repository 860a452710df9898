//! A straight line through points, by least squares.

use serde::Serialize;

/// What a phase takes: so many round trips, and a time that no line changes.
#[derive(Clone, Copy, PartialEq, Default, Debug, Serialize)]
pub struct Fit {
    /// The slope: milliseconds per millisecond of round-trip time.
    pub round_trips: f64,
    /// The time on a line of no length, in milliseconds.
    pub fixed_ms: f64,
    /// How far the worst point lies from the line, in milliseconds.
    pub worst_ms: f64,
}

impl Fit {
    /// The line through points of (round-trip time, time), both in milliseconds; nothing when all have one round-trip time.
    #[must_use]
    pub fn through(points: &[(f64, f64)]) -> Option<Self> {
        let count = points.len() as f64;
        let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
        let (x, y) = (mean(|point| point.0), mean(|point| point.1));
        let spread: f64 = points.iter().map(|point| (point.0 - x).powi(2)).sum();
        if points.len() < 2 || spread == 0.0 {
            return None;
        }
        let together: f64 = points
            .iter()
            .map(|point| (point.0 - x) * (point.1 - y))
            .sum();
        let round_trips = together / spread;
        let fixed_ms = y - round_trips * x;
        let off = points
            .iter()
            .map(|point| (point.1 - fixed_ms - round_trips * point.0).abs());
        Some(Self {
            round_trips,
            fixed_ms,
            worst_ms: off.fold(0.0, f64::max),
        })
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
        assert!(fit.worst_ms < 1e-9, "{fit:?}");
    }

    #[test]
    fn a_point_off_the_line_is_told() {
        let points = [(0.0, 0.0), (1.0, 1.0), (2.0, 2.0), (3.0, 7.0)];
        let fit = Fit::through(&points).expect("a line");
        assert!((fit.round_trips - 2.2).abs() < 1e-9, "{fit:?}");
        assert!((fit.worst_ms - 1.6).abs() < 1e-9, "{fit:?}");
    }

    #[test]
    fn one_length_of_line_makes_no_slope() {
        assert_eq!(Fit::through(&[]), None);
        assert_eq!(Fit::through(&[(5.0, 1.0)]), None);
        assert_eq!(Fit::through(&[(5.0, 1.0), (5.0, 3.0)]), None);
    }
}
