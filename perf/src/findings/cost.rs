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
