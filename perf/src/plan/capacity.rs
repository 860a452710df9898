//! What a plan takes out of `capacity.json`.

use std::cmp::Ordering;

use serde::Deserialize;

use super::costs::{Fitted, WORKS, words};
use crate::findings::cost::{Cost, Sample};
use crate::page::figures::grouped;

#[derive(Default, Deserialize)]
pub(super) struct Capacity {
    #[serde(default)]
    carried: Vec<Carried>,
    #[serde(default)]
    costs: Vec<Cost>,
}

#[derive(Deserialize)]
struct Carried {
    service: String,
    work: String,
    per_core: f64,
    gives_first: Option<String>,
    /// Processor time of each, in microseconds.
    micros: Option<f64>,
}

impl Capacity {
    pub(super) fn cost(&self, program: &str, kind: &str) -> Option<&Cost> {
        self.costs
            .iter()
            .find(|cost| cost.program == program && cost.kind == kind)
    }

    pub(super) fn each(&self, program: &str, kind: &str) -> Option<f64> {
        Some(self.cost(program, kind)?.processor.each)
    }

    /// What a call takes of a relay in microseconds a second, where most calls were measured, and how many those were. That is the search of what a
    /// relay forwards alone, or else one of the lines: a relay does the same for calls of either work.
    pub(super) fn relay_call(&self) -> Option<(String, f64)> {
        let searched = self.carried.iter().filter_map(|one| {
            let of =
                (one.service == "relay" && one.work == "forwarding").then_some(one.per_core)?;
            let micros = one.micros?;
            // The fuller a core, the more packets share what a turn of it costs.
            let busy = 100.0 * of * micros / 1e6;
            let at = format!("{} forwarded at once, {busy:.0} % busy", grouped(of));
            Some((of, at, micros))
        });
        let fitted = WORKS.into_iter().filter_map(|work| {
            let cost = self.cost("relay", work)?;
            let most = cost.samples.iter().map(|sample| sample.load);
            let most = most.fold(0.0, f64::max);
            let of = format!("by a line up to {} {}", grouped(most), words(work));
            Some((most, of, cost.processor.each))
        });
        searched
            .chain(fitted)
            .filter(|(_, _, micros)| micros.is_finite() && *micros > 0.0)
            .max_by(|a, b| {
                (a.0, a.2)
                    .partial_cmp(&(b.0, b.2))
                    .unwrap_or(Ordering::Equal)
            })
            .map(|(_, of, micros)| (of, micros))
    }

    /// How many calls a core of a transceiver carries: as many as keep to the limits. Nothing where none did, where the search ended before a limit was
    /// met, or where the generator met one first.
    pub(super) fn kept(&self, work: &str) -> Option<f64> {
        let carried = self.search(work)?;
        let first = carried.gives_first.as_deref()?;
        (first != "the generator" && carried.per_core > 0.0).then_some(carried.per_core)
    }

    /// Whether there was a search for the most calls of a transceiver.
    pub(super) fn has_searched(&self, work: &str) -> bool {
        self.search(work).is_some()
    }

    /// What a search for the most calls of a transceiver found, if there was one.
    fn search(&self, work: &str) -> Option<&Carried> {
        let named = |one: &&Carried| one.service == "transceiver" && one.work == work;
        self.carried.iter().find(named)
    }

    /// How many a core has the time for, by the fitted line: for those at least that were up in the same run and kept to the limits.
    pub(super) fn by_time(&self, work: &str) -> Option<f64> {
        let each = self.each("transceiver", work)?;
        (each > 0.0).then(|| (1e6 / each).max(self.kept(work).unwrap_or(0.0)))
    }

    pub(super) fn fitted(&self) -> Vec<Fitted> {
        let point = |cost: &Cost, sample: &Sample| {
            let line = cost.processor.fixed + cost.processor.each * sample.load;
            (sample.load, sample.micros_per_second, line)
        };
        let fitted = |cost: &Cost| Fitted {
            program: cost.program.clone(),
            kind: cost.kind.clone(),
            fixed: cost.processor.fixed,
            each: cost.processor.each,
            explained: cost.processor.explained,
            points: cost
                .samples
                .iter()
                .map(|sample| point(cost, sample))
                .collect(),
        };
        self.costs.iter().map(fitted).collect()
    }
}
