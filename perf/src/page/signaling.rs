//! How many calls signaling makes, and how long each takes.

use maud::{Markup, html};
use serde::Deserialize;

use super::chart::{COLUMNS, Delays, Quantiles, Table};
use super::figures::{grouped, number, percent};
use super::metric::{Better, Metric, Unit};
use crate::findings::{FindingsError, Source, or_none};

/// Of a file of signaling's results, what the page shows.
#[derive(Deserialize)]
struct Signaling {
    calls_per_core: f64,
    calls_per_core_must: Option<f64>,
    #[serde(default)]
    loads: Vec<Load>,
}

#[derive(Deserialize)]
struct Load {
    clients: f64,
    due: Option<f64>,
    connects: bool,
    per_second: f64,
    #[serde(deserialize_with = "or_none")]
    micros: f64,
    #[serde(deserialize_with = "or_none")]
    busy: f64,
    /// In microseconds.
    latency: Quantiles,
}

/// From this share of its time on a core counts as full.
const FULL: f64 = 0.95;

impl Load {
    /// How many calls there really were, and whether there was time for more.
    fn measured(&self) -> String {
        let full = if self.busy >= FULL {
            ""
        } else {
            ", so not full"
        };
        format!(
            "({} measured, with the core {} busy{full})",
            grouped(self.per_second),
            percent(self.busy)
        )
    }

    fn name(&self) -> String {
        match self.due {
            Some(due) => format!("{} calls a second, whatever becomes of them", grouped(due)),
            None if self.connects => format!(
                "{} clients, with a connection for each call",
                grouped(self.clients)
            ),
            None => format!("{} clients that always ask", grouped(self.clients)),
        }
    }
}

/// Its figures.
pub(super) fn metrics(source: &Source) -> Result<Vec<Metric>, FindingsError> {
    let signaling: Signaling = source.read()?;
    // Not that of a search, which ends where calls get late: see the capacity of signaling.
    let what = "Calls a second of signaling, for each core that is busy with them";
    let mut calls = Metric::new(
        "calls_per_core",
        what,
        signaling.calls_per_core,
        Unit::Count,
        Better::Higher,
    );
    if let Some(must) = signaling.calls_per_core_must {
        calls = calls.target(must, None);
    }
    let always = |load: &&Load| load.due.is_none() && !load.connects;
    if let Some(load) = signaling.loads.iter().find(always) {
        calls = calls.besides(load.measured());
    }
    let mut metrics = vec![calls.headline()];
    for load in &signaling.loads {
        let name = match load.due {
            Some(_) => "open_loop",
            None if load.connects => "connecting",
            None => "always_asking",
        };
        let what = format!("Time of a call, p99: {}", load.name());
        let value = load.latency.p99 / 1e3;
        metrics.push(Metric::new(
            &format!("{name}_p99"),
            &what,
            value,
            Unit::Millis,
            Better::Lower,
        ));
    }
    Ok(metrics)
}

/// Its charts and tables.
pub(super) fn body(source: &Source) -> Result<Markup, FindingsError> {
    let signaling: Signaling = source.read()?;
    let [p50, p99, p999, max] = COLUMNS;
    let columns = [
        "Load",
        "calls a second",
        "µs of CPU each",
        "busy",
        p50,
        p99,
        p999,
        max,
    ];
    let mut table = Table::new(columns);
    let mut lines = Vec::new();
    for load in &signaling.loads {
        let quantiles = load.latency.of_micros();
        let [p50, p99, p999, max] = quantiles.cells();
        table.row([
            load.name(),
            grouped(load.per_second),
            number(load.micros),
            percent(load.busy),
            p50,
            p99,
            p999,
            max,
        ]);
        lines.push((load.name(), quantiles));
    }
    let delays = Delays {
        title: "How long an answer takes",
        says: "From the request to the answer. Clients that always ask let requests wait for each other, and how busy that keeps the core is in the table; at a set rate each is timed from when it was due.",
        of: "calls",
        lines,
        table,
    };
    Ok(html! {
        p {
            "Signaling alone on one processor, before transceivers that answer at once: an offer is read, checked and placed, and its answer written. "
            "TLS is not part of it. Calls for each busy core are those a second by the share of the core that they took."
        }
        @if !signaling.loads.is_empty() { div.figures { (delays.markup()) } }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::findings::Kind;

    #[test]
    fn what_was_measured_stands_beside_the_rate_for_a_busy_core_with_whether_there_was_time_for_more()
     {
        let besides = |busy: f64| {
            let text = format!(
                r#"{{"machine": "m", "commit": "c", "date": "d", "calls_per_core": 17852, "loads": [{{"clients": 32, "due": null, "connects": false,
                "per_second": 12976, "micros": 56, "busy": {busy}, "latency": {{"p50": 1, "p90": 1, "p99": 1, "p999": 1, "max": 1}}}}]}}"#
            );
            let source = Source::parse("s.json".to_owned(), Kind::Signaling, &text).expect("good");
            metrics(&source).expect("readable").remove(0).besides
        };
        let said = |words: &str| Some(format!("(12,976 measured, with the core {words})"));
        assert_eq!(besides(0.727), said("72.7\u{a0}% busy, so not full"));
        assert_eq!(besides(0.993), said("99.3\u{a0}% busy"));
    }
}
