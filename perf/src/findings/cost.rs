//! What calls cost each program, as the page and the plan read it from results: what `call::cost` writes, with figures that are no numbers.

use serde::Deserialize;

use super::or_none;

#[derive(Deserialize)]
pub(crate) struct Cost {
    pub(crate) program: String,
    pub(crate) kind: String,
    pub(crate) samples: Vec<Sample>,
    pub(crate) processor: Line,
    pub(crate) memory: Line,
}

#[derive(Deserialize)]
pub(crate) struct Sample {
    pub(crate) load: f64,
    #[serde(deserialize_with = "or_none")]
    pub(crate) micros_per_second: f64,
}

#[derive(Deserialize)]
pub(crate) struct Line {
    #[serde(deserialize_with = "or_none")]
    pub(crate) fixed: f64,
    #[serde(deserialize_with = "or_none")]
    pub(crate) each: f64,
    #[serde(deserialize_with = "or_none")]
    pub(crate) explained: f64,
}

impl Cost {
    /// How much of what varies one of its lines explains, as `write` writes a share. A line goes through two points whatever they are.
    pub(crate) fn explained(&self, line: &Line, write: impl Fn(f64) -> String) -> String {
        told_by(self.samples.len(), line.explained, write)
    }
}

/// See [`Cost::explained`].
pub(crate) fn told_by(points: usize, explained: f64, write: impl Fn(f64) -> String) -> String {
    match points {
        0..=2 => "by two points alone".to_owned(),
        _ => write(explained),
    }
}

/// The least that a line has to explain of what varies: with less, chance made the most of it.
const TELLING: f64 = 0.5;

impl Line {
    /// Whether it says something: that what was measured grows with the load.
    pub(crate) fn tells(&self) -> bool {
        self.each > 0.0 && self.explained >= TELLING
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_through_two_points_explains_nothing() {
        let told = |points| told_by(points, 1.0, |share| format!("{share}"));
        assert_eq!(told(2), "by two points alone");
        assert_eq!(told(3), "1");
    }

    #[test]
    fn a_line_that_falls_or_explains_little_tells_nothing() {
        let tells = |each, explained| {
            Line {
                fixed: 1.0,
                each,
                explained,
            }
            .tells()
        };
        assert!(tells(16.0, 0.67));
        assert!(!tells(240.3, 0.24));
        assert!(!tells(-503.0, 0.9));
        assert!(!tells(f64::NAN, f64::NAN));
    }
}
