//! What a packet costs the relay.

use std::collections::BTreeMap;

use maud::{Markup, html};
use serde::Deserialize;

use super::chart::{
    Axis, Bar, Baseline, COLUMNS, Delays, Drawn, Figure, Legend, Part, Quantiles, Scale, Series,
    Table, bars, lines, stacks,
};
use super::figures::{grouped, number, percent};
use super::metric::{Better, Metric, Unit};
use super::ratios::NAMES;
use crate::findings::{FindingsError, Source, or_none};
use crate::report::HALF_OF_SINGLE;

/// Of a file of the relay's results, what the page shows.
#[derive(Deserialize)]
struct Relay {
    #[serde(default)]
    ratios: BTreeMap<String, f64>,
    #[serde(default)]
    targets: Vec<Asked>,
    #[serde(default)]
    costs: BTreeMap<String, CaseCost>,
    #[serde(default)]
    spent: BTreeMap<String, Spent>,
    #[serde(default)]
    flows: Vec<Flows>,
    #[serde(default)]
    latency: Vec<Load>,
    #[serde(default)]
    floods: Vec<Flood>,
    #[serde(default)]
    missing: Vec<String>,
    #[serde(default)]
    counters: String,
}

#[derive(Deserialize)]
struct Asked {
    name: String,
    must: f64,
    aim: f64,
}

#[derive(Deserialize)]
struct CaseCost {
    program: String,
    #[serde(deserialize_with = "or_none")]
    nanos: f64,
}

#[derive(Deserialize)]
struct Spent {
    send: f64,
    receive: f64,
    kernel: f64,
    program: f64,
}

#[derive(Deserialize)]
struct Flows {
    flows: f64,
    cost: Nanos,
    resident: f64,
}

#[derive(Deserialize)]
struct Nanos {
    #[serde(deserialize_with = "or_none")]
    nanos: f64,
}

#[derive(Deserialize)]
struct Load {
    program: String,
    at: String,
    load: Ways,
}

#[derive(Deserialize)]
struct Ways {
    rate: f64,
    up: Option<Way>,
    down: Option<Way>,
}

#[derive(Deserialize)]
struct Way {
    /// In microseconds.
    latency: Quantiles,
}

#[derive(Deserialize)]
struct Flood {
    junk: String,
    rate: f64,
    #[serde(deserialize_with = "or_none")]
    nanos: f64,
    /// Of a forwarded packet; results had none once.
    forwarding: Option<f64>,
    lost_up: f64,
    lost_down: f64,
}

/// Its figures.
pub(super) fn metrics(source: &Source) -> Result<Vec<Metric>, FindingsError> {
    let relay: Relay = source.read()?;
    let mut metrics = Vec::new();
    let known = NAMES
        .iter()
        .map(|(name, what, first)| (*name, *what, *first));
    let unknown = relay.ratios.keys().map(String::as_str);
    let unknown = unknown.filter(|name| NAMES.iter().all(|(known, ..)| known != name));
    for (name, what, first) in known.chain(unknown.map(|name| (name, name, false))) {
        let Some(value) = relay.ratios.get(name) else {
            continue;
        };
        let unit = match name {
            "bytes_per_flow" => Unit::Bytes,
            "timer_lateness_p999_ms" | "latency_p99_saturated_ms" => Unit::Millis,
            "flood_live_loss" => Unit::Share,
            _ => Unit::Ratio,
        };
        let mut metric = Metric::new(name, what, *value, unit, Better::Lower);
        if name == "million_flows_vs_thousand"
            && let Some(besides) = beside_the_case(&relay)
        {
            metric = metric.besides(besides);
        }
        if let Some(asked) = relay.targets.iter().find(|asked| asked.name == name) {
            metric = metric.target(asked.must, Some(asked.aim));
        }
        metrics.push(if first { metric.headline() } else { metric });
    }
    Ok(metrics)
}

/// What a packet up costs with a million flows, to the case of the costs with a thousand: measured over all passes, where the row of a thousand flows
/// is measured once. Where the two differ, one of them fell into a slower phase of the machine.
fn beside_the_case(relay: &Relay) -> Option<String> {
    let many = relay.flows.iter().find(|one| one.flows == 1e6)?;
    let ratio = many.cost.nanos / relay.costs.get("relay_up_1500")?.nanos;
    ratio.is_finite().then(|| {
        format!(
            "(to the median of all passes with a thousand: {})",
            number(ratio)
        )
    })
}

/// Its charts and tables.
pub(super) fn body(source: &Source) -> Result<Markup, FindingsError> {
    let relay: Relay = source.read()?;
    Ok(html! {
        p {
            "Processor time for each packet of 172 bytes, in one run with the kernel's floors and with other programs that forward. Costs of one machine or hour are not "
            "those of another: ratios within the run compare, and are the median of those of its passes. " (relay.counters)
        }
        div.figures {
            (costs(&relay, "Both ways", BOTH, &["floor_up", "floor_down"]))
            (costs(&relay, "Up: client to owner", UP, &["floor_up"]))
            (costs(&relay, "Down: owner to client", DOWN, &["floor_down"]))
            (flows(&relay.flows))
            (delays(&relay.latency))
            (spent(&relay))
        }
        (floods(&relay.floods))
        @for missing in &relay.missing { p.absent { "Not measured: " (missing) } }
    })
}

const BOTH: &[&str] = &[
    "relay_both_1500",
    "single_both",
    "batched_both",
    "go_both",
    "nginx_both",
    "coturn_both",
];

const UP: &[&str] = &[
    "relay_up_1500",
    "relay_up_9000",
    "relay_up_1500_64dest",
    "relay_up_1500_voice",
    "single_up",
    "batched_up",
    "go_up",
    "nginx_up",
    "coturn_up",
];

const DOWN: &[&str] = &[
    "relay_down_1500",
    "relay_down_9000",
    "relay_down_1500_64dest",
    "single_down",
    "batched_down",
    "go_down",
    "nginx_down",
    "coturn_down",
];

/// A case as people read it.
fn case_name(id: &str, program: &str) -> String {
    let what = match id {
        "relay_up_1500" | "relay_down_1500" | "relay_both_1500" => ", MTU 1,500",
        "relay_up_9000" | "relay_down_9000" => ", MTU 9,000",
        "relay_up_1500_64dest" | "relay_down_1500_64dest" => ", MTU 1,500, 64 owners",
        "relay_up_1500_voice" => ", MTU 1,500, sizes of a voice call",
        _ => "",
    };
    format!("{program}{what}")
}

fn costs(relay: &Relay, title: &str, ids: &[&str], floors: &[&str]) -> Markup {
    let mut rows = Vec::new();
    let mut table = Table::new(["Program", "ns per packet", "to the floor"]);
    let floor = floors.iter().map(|id| Some(relay.costs.get(*id)?.nanos));
    let floor: Option<f64> = floor
        .sum::<Option<f64>>()
        .map(|sum| sum / floors.len() as f64);
    for id in ids {
        let Some(cost) = relay.costs.get(*id) else {
            continue;
        };
        let name = case_name(id, &cost.program);
        let to_floor = floor.map_or_else(String::new, |floor| number(cost.nanos / floor));
        table.row([name.clone(), grouped(cost.nanos), to_floor]);
        rows.push(Bar {
            name,
            value: cost.nanos,
            figure: format!("{} ns", grouped(cost.nanos)),
            ours: id.starts_with("relay"),
        });
    }
    if rows.is_empty() {
        return html! {};
    }
    let baseline = floor.map(|value| Baseline {
        name: format!("the kernel alone: {} ns", grouped(value)),
        value,
    });
    let says = match floors {
        ["floor_up"] => {
            "A packet from a client to the session's owner. The line is one receive: less is not possible."
        }
        ["floor_down"] => {
            "A packet from the owner to a client. The line is one send: less is not possible."
        }
        _ => {
            "Every second packet up, the others down. The line is the mean of one receive and one send: less is not possible."
        }
    };
    Figure {
        title,
        says,
        legend: Legend::None,
        drawing: bars(&rows, baseline.as_ref()),
        table,
    }
    .markup()
}

fn flows(flows: &[Flows]) -> Markup {
    if flows.is_empty() {
        return html! {};
    }
    let mut table = Table::new(["Flows", "ns per packet up", "memory of the relay"]);
    for one in flows {
        let mebibytes = format!("{} MiB", number(one.resident / f64::from(1 << 20)));
        table.row([grouped(one.flows), grouped(one.cost.nanos), mebibytes]);
    }
    let series = Series {
        points: flows
            .iter()
            .map(|one| (one.flows, one.cost.nanos))
            .collect(),
        look: 0,
        drawn: Drawn::Joined,
    };
    Figure {
        title: "A thousand flows or a million",
        says: "What a packet up costs against how many flows there are. A flat line is good.",
        legend: Legend::None,
        drawing: lines(
            &[series],
            &Axis::new("flows", Scale::Logarithmic),
            &Axis::new("ns per packet", Scale::Linear),
            None,
        ),
        table,
    }
    .markup()
}

fn delays(loads: &[Load]) -> Markup {
    let loads: Vec<&Load> = loads
        .iter()
        .filter(|load| load.at == HALF_OF_SINGLE)
        .collect();
    let Some(first) = loads.first() else {
        return html! {};
    };
    let [p50, p99, p999, max] = COLUMNS;
    let mut table = Table::new(["Program", p50, p99, p999, max]);
    let mut lines = Vec::new();
    for load in &loads {
        let ways = [&load.load.up, &load.load.down].into_iter().flatten();
        let worse = ways.fold(Quantiles::default(), |worst, way| worst.longer(way.latency));
        let quantiles = worse.of_micros();
        let [p50, p99, p999, max] = quantiles.cells();
        table.row([load.program.clone(), p50, p99, p999, max]);
        lines.push((load.program.clone(), quantiles));
    }
    let rate = grouped(first.load.rate);
    Delays {
        title: "Delay at the same rate",
        says: &format!(
            "{rate} packets a second each way, half of what one packet per call bears: how much later packets are, each from when it was due. The worse of the two ways."
        ),
        of: "packets",
        lines,
        table,
    }
    .markup()
}

fn spent(relay: &Relay) -> Markup {
    if relay.spent.is_empty() {
        return html! {};
    }
    let parts = [
        "sending, in the kernel",
        "receiving, in the kernel",
        "the rest of the kernel",
        "the program itself",
    ];
    let mut table = Table::new(["Program", parts[0], parts[1], parts[2], parts[3]]);
    let mut rows = Vec::new();
    for (id, spent) in &relay.spent {
        let program = relay
            .costs
            .get(id)
            .map_or(id.as_str(), |case| &case.program);
        let way = if id.contains("_up") {
            "up"
        } else {
            "both ways"
        };
        let name = format!("{program}, {way}");
        let shares = [spent.send, spent.receive, spent.kernel, spent.program];
        let [send, receive, kernel, own] = shares.map(percent);
        table.row([name.clone(), send, receive, kernel, own.clone()]);
        let shares = shares.into_iter().enumerate();
        let stacked = shares
            .map(|(series, value)| Part { series, value })
            .collect();
        rows.push((name, format!("{own} own"), stacked));
    }
    Figure {
        title: "Where the time goes",
        says: "Of each program's time, what the kernel takes to send and to receive for it, and what is its own.",
        legend: Legend::Colours(parts.map(str::to_owned).to_vec()),
        drawing: stacks(&rows),
        table,
    }
    .markup()
}

fn floods(floods: &[Flood]) -> Markup {
    if floods.is_empty() {
        return html! {};
    }
    let mut table = Table::new([
        "Junk",
        "packets a second",
        "ns each",
        "to forwarding",
        "live packets lost up",
        "down",
    ]);
    for flood in floods {
        table.row([
            flood.junk.replace('_', " "),
            grouped(flood.rate),
            grouped(flood.nanos),
            flood
                .forwarding
                .map_or_else(String::new, |forwarding| number(flood.nanos / forwarding)),
            percent(flood.lost_up),
            percent(flood.lost_down),
        ]);
    }
    html! {
        h3 { "Floods beside 1,000 live calls" }
        (table.markup("Floods beside live calls"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::findings::Kind;

    #[test]
    fn a_million_flows_are_told_beside_the_case_of_all_passes_too() {
        let text = r#"{"machine": "m", "commit": "c", "date": "d", "ratios": {"million_flows_vs_thousand": 0.8},
            "costs": {"relay_up_1500": {"program": "relay", "nanos": 1200}},
            "flows": [{"flows": 1000, "cost": {"nanos": 1575}, "resident": 1}, {"flows": 1000000, "cost": {"nanos": 1260}, "resident": 1}]}"#;
        let source = Source::parse("r.json".to_owned(), Kind::Relay, text).expect("good");
        let metric = metrics(&source).expect("readable").remove(0);
        assert_eq!(metric.figure(), "0.80");
        let besides = "(to the median of all passes with a thousand: 1.05)";
        assert_eq!(metric.besides.as_deref(), Some(besides));
    }
}
