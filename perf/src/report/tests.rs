//! Ratios and targets of made-up measurements.

use super::*;
use crate::load::Way;
use crate::metrics::Metrics;

fn cost(nanos: f64) -> Cost {
    Cost {
        nanos,
        nanos_min: nanos,
        ..Cost::default()
    }
}

#[test]
fn ratios_are_taken_within_a_pass() {
    let pass = |floor: f64, relay: f64| {
        Pass::from([
            ("floor_up", ("floor", cost(floor))),
            ("relay_up_1500", ("relay", cost(relay))),
        ])
    };
    let mut report = Report::default();
    // The machine was slower in the second pass; the ratio was the same.
    report.set_passes(&[pass(100.0, 150.0), pass(300.0, 450.0), pass(100.0, 160.0)]);
    report.finish();
    assert_eq!(report.ratios["uplink_vs_floor_1500"], 1.5);
    assert_eq!(report.costs["relay_up_1500"].nanos, 160.0);
    assert!(report.targets[0].found.is_some_and(|found| found < 2.0));
    assert!(report.table().contains("uplink_vs_floor_1500"));
}

#[test]
fn a_hundred_thousand_flows_are_not_taken_for_a_million() {
    let flows = |flows: u32, nanos: f64| FlowCost {
        flows,
        there: u64::from(flows),
        cost: cost(nanos),
        resident: 1_000_000 + 100 * u64::from(flows),
    };
    let mut report = Report {
        flows: vec![flows(FLOWS, 100.0), flows(100_000, 120.0)],
        missing: vec!["1000000 flows: the relay has 700000 of them".to_owned()],
        ..Report::default()
    };
    report.finish();
    assert!(!report.ratios.contains_key("million_flows_vs_thousand"));
    assert!(!report.ratios.contains_key("bytes_per_flow"));
    let table = report.table();
    let asked = table
        .lines()
        .find(|line| line.starts_with("million_flows_vs_thousand"));
    assert!(asked.is_some_and(|line| line.contains(" - ")), "{table}");
    assert!(table.contains("not measured: 1000000 flows"), "{table}");

    report.flows.push(flows(FLOWS_MANY, 130.0));
    report.finish();
    assert_eq!(report.ratios["million_flows_vs_thousand"], 1.3);
    assert_eq!(report.ratios["bytes_per_flow"], 100.0);
}

#[test]
fn junk_of_each_kind_is_held_to_the_cost_of_forwarding() {
    let flood = |junk, nanos| FloodReport {
        junk,
        rate: 1.0,
        nanos,
        forwarding: 1_000.0,
        lost_up: 0.0,
        lost_down: 0.0,
        lost: 0,
        own_drops: 0,
        memory_growth: 0,
        drops: BTreeMap::new(),
    };
    let mut report = Report {
        floods: vec![
            flood(Junk::Random, 700.0),
            flood(Junk::Empty, 1_080.0),
            flood(Junk::WrongIntegrity, 3_000.0),
        ],
        ..Report::default()
    };
    report.finish();
    assert_eq!(report.ratios["junk_empty_vs_forwarding"], 1.08);
    let table = report.table();
    let line = |junk: Junk| {
        let mut lines = table.lines();
        let line = lines.find(|line| line.starts_with(junk.ratio()));
        line.expect("a line")
    };
    assert!(line(Junk::Empty).ends_with("missed"), "{table}");
    assert!(!line(Junk::Random).contains("missed"), "{table}");
    // It is told, and bounded by a budget.
    assert!(!line(Junk::WrongIntegrity).contains("missed"), "{table}");
    assert!(line(Junk::Replayed).contains(" - "), "{table}");
}

#[test]
fn the_median_of_an_even_number_lies_between() {
    assert_eq!(median(vec![1.0, 4.0, 2.0, 3.0]), Some(2.5));
    assert_eq!(median(vec![]), None);
}

#[test]
fn delays_are_compared_where_programs_are_saturated_and_while_flows_are_forgotten() {
    let named = |program, at, p50: f64, p99: f64| {
        let latency = Latency {
            p50,
            p99,
            ..Latency::default()
        };
        let way = |more: f64| {
            Some(Way {
                latency: Latency {
                    p50: latency.p50 + more,
                    p99: latency.p99 + more,
                    ..latency
                },
                ..Way::default()
            })
        };
        let load = LoadReport {
            up: way(2.0),
            down: way(-2.0),
            ..LoadReport::default()
        };
        NamedLoad::new(program, at, load, None)
    };
    let mut report = Report {
        latency: vec![
            named("relay", ALL_OF_SINGLE, 50.0, 900.0),
            named("one packet per call", ALL_OF_SINGLE, 1_000.0, 2_000.0),
            named("relay without polling", FLAT_OUT, 500.0, 12_000.0),
            named("relay", BESIDE_MANY, 20.0, 100.0),
            named("relay", BESIDE_EXPIRY, 20.0, 160.0),
        ],
        expiry: Some(Expiry {
            flows: 1_000_000,
            live: 1_000,
            expired: 400_000,
        }),
        ..Report::default()
    };
    report.finish();
    assert_eq!(report.ratios["latency_p50_saturated_vs_single"], 0.05);
    assert_eq!(report.ratios["latency_p99_saturated_ms"], 12.0);
    assert_eq!(report.ratios["latency_p99_expiring_vs_not"], 1.6);
    let table = report.table();
    let missed: Vec<&str> = table
        .lines()
        .filter(|line| line.ends_with("missed"))
        .collect();
    assert_eq!(missed.len(), 1, "{missed:?}");
    assert!(missed[0].starts_with("latency_p99_expiring_vs_not"));
    assert!(
        table.contains("forgotten: 400000 of 1000000 flows"),
        "{table}"
    );
}

#[test]
fn lateness_counts_under_full_load_alone_and_is_a_target() {
    let read = |early: u64, all: u64| {
        let text = format!(
            "firsthop_relay_timer_lateness_seconds_bucket{{le=\"0.015\",core=\"0\"}} {early}\n\
             firsthop_relay_timer_lateness_seconds_bucket{{le=\"+Inf\",core=\"0\"}} {all}\n"
        );
        Metrics::parse(&text).lateness_since(&Metrics::default())
    };
    let load = LoadReport::default();
    let mut report = Report {
        latency: vec![
            NamedLoad::new("relay", HALF_OF_RELAY, load, Some(read(0, 5_000))),
            NamedLoad::new("relay", ALL_OF_RELAY, load, Some(read(5_000, 5_000))),
            NamedLoad::new("relay", FLAT_OUT, load, Some(read(5_000, 5_000))),
            NamedLoad::new("Go relay", FLAT_OUT, load, None),
        ],
        ..Report::default()
    };
    report.finish();
    assert_eq!(report.ratios["timer_lateness_p999_ms"], 15.0);
    let target = |report: &Report| {
        let found = report
            .targets
            .iter()
            .find(|t| t.name == "timer_lateness_p999_ms");
        found.copied().expect("a target")
    };
    assert_eq!(target(&report).found, Some(15.0));
    assert!(!report.table().contains("missed"));

    report.latency[1] = NamedLoad::new("relay", ALL_OF_RELAY, load, Some(read(4_000, 5_000)));
    report.finish();
    assert!(target(&report).found.is_some_and(|found| found > 15.0));
    assert!(report.table().contains("missed"));
}
