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
