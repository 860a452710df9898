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

impl Load {
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
    let what = "Calls a second that one core of signaling makes";
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
        says: "From the request to the answer. Who always asks keeps the core full, so that requests wait for each other; at a set rate each is timed from when it was due.",
        of: "calls",
        lines,
        table,
    };
    Ok(html! {
        p {
            "Signaling alone on one processor, before transceivers that answer at once: an offer is read, checked and placed, and its answer written. "
            "TLS is not part of it."
        }
        @if !signaling.loads.is_empty() { div.figures { (delays.markup()) } }
    })
}
