//! What a program's processor time and memory come to for a load: samples at a few sizes, and the straight line through them. Pure.
//!
//! ```text
//! processor time per second = fixed + each × load        load: calls that are up, or set-ups a second
//! ```
//!
//! The line is that of least squares. How far each sample lies from it is kept beside it, so that whoever plans with the line sees how
//! straight the costs are.

use serde::{Deserialize, Serialize};

/// A program that costs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Program {
    /// Firsthop's relay.
    Relay,
    /// Firsthop's transceiver.
    Transceiver,
    /// Firsthop's signaling.
    Signaling,
    /// The Janus gateway, with its echo test.
    Janus,
}

impl Program {
    /// What its process is called.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Relay => "relay",
            Self::Transceiver => "transceiver",
            Self::Signaling => "signaling",
            Self::Janus => "janus",
        }
    }
}

/// What the size of a load counts, and what is in it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Calls that are up while nobody speaks, neither caller nor answerer.
    Silent,
    /// Calls that are up, G.711 at 50 packets a second each way, to a model server that takes and gives G.711.
    Passthrough,
    /// Calls that are up, Opus at 50 packets a second each way, decoded and encoded for a model server that takes and gives PCM.
    Transcoding,
    /// Set-ups a second: offer and answer, ICE, DTLS, the channel and the end. What the calls cost while they are up is taken off.
    SetUps,
}

/// A program under a load of one size.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Sample {
    /// The size: calls that are up, or set-ups a second.
    pub load: f64,
    /// Processor time in a second, in microseconds: a million is a whole processor.
    pub micros_per_second: f64,
    /// Memory in use while it lasted, in bytes.
    pub resident_bytes: f64,
}

/// A straight line of least squares through some points.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Line {
    /// What is there without any load.
    pub fixed: f64,
    /// What each call, or each set-up a second, adds.
    pub each: f64,
    /// By how much each sample lies above the line, in the order of the samples.
    pub residuals: Vec<f64>,
    /// The share of the samples' spread that the line explains (the coefficient of determination): 1 when all lie on it.
    pub explained: f64,
}

impl Line {
    /// Fits a line through points (x, y); nothing where no line is defined: fewer than two different x, or a number that is none.
    #[must_use]
    pub fn through(points: &[(f64, f64)]) -> Option<Self> {
        let count = points.len() as f64;
        let mean_x = points.iter().map(|(x, _)| x).sum::<f64>() / count;
        let mean_y = points.iter().map(|(_, y)| y).sum::<f64>() / count;
        let spread_x: f64 = points.iter().map(|(x, _)| (x - mean_x).powi(2)).sum();
        let spread_y: f64 = points.iter().map(|(_, y)| (y - mean_y).powi(2)).sum();
        let both: f64 = points
            .iter()
            .map(|(x, y)| (x - mean_x) * (y - mean_y))
            .sum();
        let each = both / spread_x;
        if points.len() < 2 || !each.is_finite() {
            return None;
        }
        let fixed = mean_y - each * mean_x;
        let residuals: Vec<f64> = points.iter().map(|(x, y)| y - fixed - each * x).collect();
        let left: f64 = residuals.iter().map(|residual| residual.powi(2)).sum();
        // Points of one height lie on their line, and there is nothing to explain.
        let explained = if spread_y > 0.0 {
            1.0 - left / spread_y
        } else {
            1.0
        };
        Some(Self {
            fixed,
            each,
            residuals,
            explained,
        })
    }

    /// The line's height at `x`.
    #[must_use]
    pub fn at(&self, x: f64) -> f64 {
        self.fixed + self.each * x
    }
}

/// What one program costs under one kind of load.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Cost {
    /// The program.
    pub program: Program,
    /// The load.
    pub kind: Kind,
    /// What was measured, the smallest load first.
    pub samples: Vec<Sample>,
    /// Processor time: microseconds in a second.
    pub processor: Line,
    /// Memory: bytes.
    pub memory: Line,
}

impl Cost {
    /// Fits lines through samples; nothing where there are fewer than two sizes.
    #[must_use]
    pub fn of(program: Program, kind: Kind, mut samples: Vec<Sample>) -> Option<Self> {
        samples.sort_by(|a, b| a.load.total_cmp(&b.load));
        let line = |height: fn(&Sample) -> f64| {
            let points: Vec<(f64, f64)> = samples
                .iter()
                .map(|sample| (sample.load, height(sample)))
                .collect();
            Line::through(&points)
        };
        Some(Self {
            program,
            kind,
            processor: line(|sample| sample.micros_per_second)?,
            memory: line(|sample| sample.resident_bytes)?,
            samples,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_on_a_line_give_that_line_and_nothing_is_left() {
        let points = [10.0, 100.0, 1_000.0].map(|x| (x, 500.0 + 2.5 * x));
        let line = Line::through(&points).expect("a line");
        assert!((line.fixed - 500.0).abs() < 1e-6 && (line.each - 2.5).abs() < 1e-9);
        assert!(line.residuals.iter().all(|residual| residual.abs() < 1e-6));
        assert!((line.explained - 1.0).abs() < 1e-9);
        assert!((line.at(2_000.0) - 5_500.0).abs() < 1e-6);
    }

    #[test]
    fn what_a_line_leaves_over_adds_up_to_nothing_and_says_how_crooked_the_points_are() {
        let line = Line::through(&[(0.0, 0.0), (1.0, 3.0), (2.0, 0.0)]).expect("a line");
        assert!((line.fixed - 1.0).abs() < 1e-9 && line.each.abs() < 1e-9);
        let expected = [-1.0, 2.0, -1.0];
        for (found, expected) in line.residuals.iter().zip(expected) {
            assert!((found - expected).abs() < 1e-9);
        }
        assert!(line.explained.abs() < 1e-9);
    }

    #[test]
    fn there_is_no_line_through_one_size_or_through_nothing() {
        assert_eq!(Line::through(&[]), None);
        assert_eq!(Line::through(&[(1.0, 1.0)]), None);
        assert_eq!(Line::through(&[(1.0, 1.0), (1.0, 2.0)]), None);
        assert_eq!(Line::through(&[(1.0, f64::NAN), (2.0, 2.0)]), None);
        let flat = Line::through(&[(1.0, 4.0), (2.0, 4.0)]).expect("a line");
        assert_eq!((flat.fixed, flat.each, flat.explained), (4.0, 0.0, 1.0));
    }

    #[test]
    fn a_cost_is_read_back_as_it_was_written() {
        let sample = |load: f64| Sample {
            load,
            micros_per_second: 1_000.0 + 20.0 * load,
            resident_bytes: 1e6 + 1e5 * load,
        };
        let samples = vec![sample(100.0), sample(10.0), sample(1_000.0)];
        let cost = Cost::of(Program::Relay, Kind::SetUps, samples).expect("a cost");
        assert_eq!(cost.samples[0].load, 10.0);
        assert!((cost.processor.each - 20.0).abs() < 1e-9);
        assert!((cost.memory.each - 1e5).abs() < 1e-3);
        let text = serde_json::to_string(&cost).expect("JSON");
        assert!(
            text.contains(r#""program":"relay","kind":"set_ups""#),
            "{text}"
        );
        assert_eq!(serde_json::from_str::<Cost>(&text).expect("read"), cost);
    }
}
