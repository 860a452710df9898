//! What the flow cache has counted, as the admin pages show it.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use firsthop_relay_core::RecallCounters;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use super::FlowCache;

/// One core's counters, as others see them: each a row of [`ROWS`].
#[derive(Debug, Default)]
pub(super) struct Cells([AtomicU64; ROWS.len()]);

/// The counters of a core, and what its queues did not take.
struct Counted<'a> {
    recall: &'a RecallCounters,
    questions_lost: u64,
    changes_lost: u64,
}

/// A counter: its metric, and its label there when it has one.
struct Row {
    metric: &'static str,
    label: Option<(&'static str, &'static str)>,
    read: fn(&Counted<'_>) -> u64,
}

const fn row(
    metric: &'static str,
    label: Option<(&'static str, &'static str)>,
    read: fn(&Counted<'_>) -> u64,
) -> Row {
    Row {
        metric,
        label,
        read,
    }
}

const ROWS: [Row; 9] = [
    row("redis_questions", None, |c| c.recall.questions),
    row("redis_questions_withheld", Some(("cause", "rate")), |c| {
        c.recall.withheld
    }),
    row("redis_questions_withheld", Some(("cause", "queue")), |c| {
        c.questions_lost
    }),
    row("redis_answers", Some(("answer", "hit")), |c| c.recall.hits),
    row("redis_answers", Some(("answer", "miss")), |c| {
        c.recall.misses
    }),
    row("redis_answers", Some(("answer", "refused")), |c| {
        c.recall.refused
    }),
    row("redis_answers", Some(("answer", "late")), |c| c.recall.late),
    row("redis_packets_waited", None, |c| c.recall.waited),
    row("redis_write_drops", Some(("cause", "queue")), |c| {
        c.changes_lost + c.recall.changes_lost
    }),
];

/// What each metric says.
const HELP: [(&str, &str); 5] = [
    (
        "redis_questions",
        "Clients that the flow cache was asked about",
    ),
    (
        "redis_questions_withheld",
        "Clients that it was not asked about because of the rate that is set, or because the queue to it was full",
    ),
    (
        "redis_answers",
        "What became of questions: the client is known by it, there was no entry, the entry could not be used, no answer in time",
    ),
    (
        "redis_packets_waited",
        "Packets of unknown clients that waited for an answer",
    ),
    (
        "redis_write_drops",
        "Changes that Redis did not get, by cause",
    ),
];

impl Cells {
    /// Stores what a core has counted.
    pub(super) fn publish(&self, recall: &RecallCounters, questions_lost: u64, changes_lost: u64) {
        let counted = Counted {
            recall,
            questions_lost,
            changes_lost,
        };
        for (cell, row) in self.0.iter().zip(&ROWS) {
            cell.store((row.read)(&counted), Ordering::Relaxed);
        }
    }
}

/// Writes the metrics of a cache.
pub(crate) fn encode(encoder: &mut DescriptorEncoder<'_>, cache: &FlowCache) -> fmt::Result {
    let shared = &cache.shared;
    let up = ConstGauge::new(u64::from(shared.up.load(Ordering::Relaxed)));
    let help = "Whether Redis answers: 1, or 0";
    up.encode(encoder.encode_descriptor("redis_up", help, None, up.metric_type())?)?;

    let kind = ConstCounter::new(0u64).metric_type();
    let load = |cell: &AtomicU64| ConstCounter::new(cell.load(Ordering::Relaxed));
    let totals = &shared.totals;
    let help = "Changes of flows that Redis took";
    load(&totals.writes).encode(encoder.encode_descriptor("redis_writes", help, None, kind)?)?;
    let help = "Answers that a core had no room for";
    load(&totals.answers_lost).encode(encoder.encode_descriptor(
        "redis_answers_lost",
        help,
        None,
        kind,
    )?)?;

    let cores = shared.cores();
    for (metric, help) in HELP {
        let mut family = encoder.encode_descriptor(metric, help, None, kind)?;
        for (number, core) in cores.iter().enumerate() {
            for (cell, row) in core.cells.0.iter().zip(&ROWS) {
                if row.metric != metric {
                    continue;
                }
                let number = number.to_string();
                let value = load(cell);
                match row.label {
                    Some(label) => {
                        value.encode(family.encode_family(&[("core", number.as_str()), label])?)?
                    }
                    None => value.encode(family.encode_family(&[("core", number.as_str())])?)?,
                }
            }
        }
        // What the thread drops is no core's.
        if metric == "redis_write_drops" {
            for (cause, cell) in [
                ("unreachable", &totals.unreachable),
                ("refused", &totals.refused),
            ] {
                load(cell).encode(family.encode_family(&[("core", "all"), ("cause", cause)])?)?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_belongs_to_a_metric_that_says_what_it_is() {
        for row in &ROWS {
            assert!(HELP.iter().any(|(metric, _)| *metric == row.metric));
        }
        for (metric, _) in HELP {
            let rows = ROWS.iter().filter(|row| row.metric == metric);
            let labels: Vec<_> = rows.map(|row| row.label).collect();
            assert!(!labels.is_empty(), "{metric}");
            for (i, label) in labels.iter().enumerate() {
                assert!(!labels[i + 1..].contains(label), "{metric} {label:?}");
            }
        }
    }
}
