//! Plans by hand: small numbers whose machines can be counted on paper.

use super::assumptions::tests::assume;
use super::*;
use crate::findings::{Findings, Kind, Source};

fn source(kind: Kind, body: &str) -> Source {
    let head = r#""machine": {"processor": "P", "processors": 2, "kernel": "6"}, "commit": "c0ffee", "date": "2026-11-30""#;
    Source::parse(
        format!("{}.json", kind.stem()),
        kind,
        &format!("{{{head}, {body}}}"),
    )
    .expect("good")
}

fn relay() -> Source {
    source(
        Kind::Relay,
        r#""costs": {"relay_up_1500_64dest": {"nanos": 1000, "passes": [{"packing": 4}, {"packing": 6}, {"packing": 5}]}, "relay_down_1500_64dest": {"nanos": 2000}},
        "ratios": {"million_flows_vs_thousand": 2.0, "bytes_per_flow": 100}"#,
    )
}

fn signaling() -> Source {
    source(
        Kind::Signaling,
        r#""calls_per_core": 10000, "loads": [{"connects": false, "micros": 100}, {"connects": true, "micros": 200}]"#,
    )
}

fn calls() -> Source {
    source(
        Kind::Calls,
        r#""capacity": [{"work": "passthrough", "calls": 400, "limit": "gaps", "steps": [{"calls": 400, "bytes_per_call": 200000}]},
        {"work": "transcoding", "calls": 50, "limit": "lateness", "steps": [{"calls": 50, "bytes_per_call": 600000}]}]"#,
    )
}

fn cost(program: &str, kind: &str, each: f64) -> String {
    let line = |each: f64| format!(r#"{{"fixed": 1000, "each": {each}, "explained": 0.98}}"#);
    format!(
        r#"{{"program": "{program}", "kind": "{kind}", "samples": [{{"load": 10, "micros_per_second": 1500}}, {{"load": 5, "micros_per_second": 1400}}, {{"load": 1, "micros_per_second": 1400}}], "processor": {}, "memory": {}}}"#,
        line(each),
        line(300_000.0)
    )
}

fn capacity(first: &str) -> Source {
    let costs = [
        cost("relay", "passthrough", 300.0),
        cost("relay", "transcoding", 100.0),
        cost("relay", "set_ups", 500.0),
        cost("transceiver", "passthrough", 2_000.0),
        cost("transceiver", "transcoding", 20_000.0),
        cost("transceiver", "set_ups", 4_000.0),
        cost("signaling", "set_ups", 400.0),
    ];
    source(
        Kind::Capacity,
        &format!(
            r#""carried": [{{"service": "transceiver", "work": "passthrough", "per_core": 300, "gives_first": "{first}"}},
            {{"service": "transceiver", "work": "transcoding", "per_core": 40, "gives_first": "{first}"}}], "costs": [{}]"#,
            costs.join(",")
        ),
    )
}

fn costs(sources: Vec<Source>) -> Costs {
    Costs::of(&Findings::of(sources)).expect("all that is needed")
}

#[test]
fn machines_are_as_many_as_their_cores_need_and_those_that_may_fail() {
    let costs = costs(vec![relay(), signaling(), calls(), capacity("gaps")]);
    let assumptions = assume(
        "--users 100000 --concurrent 10% --transcoding 0% --headroom 50% --failures 2 --call-length 100s --set-up-peak 2 --tls-handshake 0 --relay-cores 2 \
         --transceiver-cores 10 --signaling-cores 1",
    )
    .expect("good");
    let plan = Plan::of(&assumptions, &costs);
    let all = &plan.total;
    assert_eq!((all.calls, all.set_ups), (10_000.0, 200.0));
    // 300 calls on a core keep to the limits; 200 set-ups of 4 ms are 0.8 of one.
    assert!((all.transceivers.busy_cores - (10_000.0 / 300.0 + 0.8)).abs() < 1e-9);
    assert_eq!(all.transceivers.machines, 7.0 + 2.0);
    // 300 µs by whole calls; 50 × (1,000 × 2 + 2,000) ns = 200 µs by packets: the larger. And 0.1 for set-ups.
    assert!((all.relays.busy_cores - 3.1).abs() < 1e-9);
    assert_eq!(
        (all.relays.machines, all.relays.needed_for),
        (4.0 + 2.0, "cores")
    );
    // 400 µs in whole calls, 200 alone: the larger. 0.08 cores.
    assert_eq!(all.signaling.machines, 1.0 + 2.0);
    assert_eq!(all.relays.bytes_each, Some(10_000.0 / 4.0 * 100.0));
    assert_eq!(
        all.transceivers.bytes_each,
        Some(10_000.0 / 7.0 * 300_000.0)
    );
    assert!(plan.cautions.is_empty(), "{:?}", plan.cautions);
}

#[test]
fn a_relay_costs_what_it_did_with_most_calls_whatever_their_codec_and_its_packets_at_least() {
    let with = |carried: &str, costs: [String; 2]| {
        let body = format!(r#""carried": [{carried}], "costs": [{}]"#, costs.join(","));
        source(Kind::Capacity, &body)
    };
    let found = |capacity: Source| costs(vec![relay(), signaling(), calls(), capacity]);
    let few = || cost("relay", "transcoding", 800.0);
    let more = || cost("relay", "passthrough", 300.0).replace(r#""load": 10"#, r#""load": 600"#);
    let searched = |micros: f64| {
        format!(
            r#"{{"service": "relay", "work": "forwarding", "per_core": 3391, "gives_first": "loss", "micros": {micros}}}"#
        )
    };

    let by_line = found(with("", [few(), more()]));
    assert_eq!(by_line.relay_call.value, 300.0);
    assert!(by_line.relay_call.what.contains("up to 600 passed through"));
    let by_search = found(with(&searched(250.0), [few(), more()]));
    assert_eq!(by_search.relay_call.value, 250.0);
    assert!(
        by_search
            .relay_call
            .what
            .contains("3,391 forwarded at once, 85 % busy")
    );
    // 50 × (1,000 × 2 + 2,000) ns = 200 µs by packets.
    let by_packets = found(with(&searched(150.0), [few(), more()]));
    assert_eq!(by_packets.relay_call.value, 200.0);
    assert_eq!(by_packets.relay_call.file, "relay.json");

    let at = |line: &str| Plan::of(&assume(line).expect("good"), &by_packets).micros_per_call[0];
    assert!((at("--users 1") - 200.0).abs() < 1e-9);
    assert!((at("--users 1 --transcoding 0%") - 200.0).abs() < 1e-9);
    assert!((at("--users 1 --packet-rate 25") - 100.0).abs() < 1e-9);
}

#[test]
fn calls_that_a_search_had_up_are_not_made_fewer_by_a_line_of_the_same_run() {
    // By the line, 299.6 calls.
    let line = cost("transceiver", "passthrough", 1e6 / 299.6);
    let carried = r#"{"service": "transceiver", "work": "passthrough", "per_core": 300, "gives_first": "gaps"}"#;
    let body = format!(r#""carried": [{carried}], "costs": [{line}]"#);
    let costs = costs(vec![
        relay(),
        signaling(),
        calls(),
        source(Kind::Capacity, &body),
    ]);
    assert_eq!(
        (
            costs.transceiver_calls[0].value,
            costs.transceiver_by_time[0]
        ),
        (300.0, false)
    );
}

#[test]
fn a_line_that_falls_is_told_as_no_cost_and_one_of_two_points_explains_nothing() {
    let third = r#", {"load": 1, "micros_per_second": 1400}"#;
    let falling = cost("relay", "silent", -0.3).replace(third, "");
    let body = format!(r#""carried": [], "costs": [{falling}]"#);
    let costs = costs(vec![
        relay(),
        signaling(),
        calls(),
        source(Kind::Capacity, &body),
    ]);
    let text = Plan::of(&assume("--users 1").expect("good"), &costs).text();
    assert!(text.contains(" 0.0 µs each, by two points alone"), "{text}");
    assert!(!text.contains("-0"), "{text}");
}

#[test]
fn bandwidth_is_what_packets_and_their_headers_take() {
    let costs = costs(vec![relay(), signaling(), calls()]);
    let line = "--users 1000 --concurrent 100% --transcoding 0% --media-header 28 --packet-header 42 --model-rate-g711 20k --redis-renewals 3";
    let all = Plan::of(&assume(line).expect("good"), &costs).total;
    // 50 × (160 + 28 + 42) bytes.
    assert!((all.bandwidth.public - 1_000.0 * 50.0 * 230.0 * 8.0).abs() < 1.0);
    // A record's header of 18, and a fifth of the datagram's 24 and 42.
    let record = 160.0 + 28.0 + 18.0 + 66.0 / 5.0;
    assert!((all.bandwidth.internal - 1_000.0 * 50.0 * record * 8.0).abs() < 1.0);
    assert!((all.bandwidth.models - 1_000.0 * 20e3 * 8.0).abs() < 1.0);
    assert!((all.redis.writes - (all.set_ups + 50.0)).abs() < 1e-9);
    assert_eq!(all.redis.bytes, 200_000.0);
}

#[test]
fn a_thin_link_asks_for_more_relays_than_cores_do() {
    let costs = costs(vec![relay(), signaling(), calls()]);
    let line = "--users 10000 --concurrent 100% --relay-link 1G --headroom 0% --failures 0";
    let plan = Plan::of(&assume(line).expect("good"), &costs);
    assert_eq!(plan.total.relays.needed_for, "link");
    let bits = plan.total.bandwidth.public + plan.total.bandwidth.internal;
    assert_eq!(plan.total.relays.machines, (bits / 1e9).ceil());
    assert!(plan.text().contains("as many as their links need"));
}

#[test]
fn calls_from_afar_pass_two_relays() {
    let costs = costs(vec![relay(), signaling(), calls()]);
    let at = |far: &str| {
        Plan::of(
            &assume(&format!("--users 1e6 --far {far}")).expect("good"),
            &costs,
        )
        .total
    };
    let (none, half) = (at("0%"), at("50%"));
    assert!((half.relays.busy_cores / none.relays.busy_cores - 1.5).abs() < 1e-9);
    assert_eq!(half.bandwidth.public, none.bandwidth.public);
    assert_eq!(half.transceivers, none.transceivers);
}

#[test]
fn regions_have_their_share_and_their_own_spare_machines() {
    let costs = costs(vec![relay(), signaling(), calls()]);
    let line = "--users 1e6 --regions eu=75%,us=25%";
    let plan = Plan::of(&assume(line).expect("good"), &costs);
    assert_eq!(plan.regions.len(), 2);
    assert!((plan.regions[0].calls - 3.0 * plan.regions[1].calls).abs() < 1e-6);
    let machines: f64 = plan
        .regions
        .iter()
        .map(|region| region.signaling.machines)
        .sum();
    assert_eq!((plan.total.signaling.machines, machines), (4.0, 4.0));
}

#[test]
fn a_limit_of_the_generator_is_no_limit_of_the_transceiver() {
    let of = |first: &str| {
        costs(vec![relay(), signaling(), calls(), capacity(first)]).transceiver_calls[0].value
    };
    assert_eq!(of("gaps"), 300.0);
    // By the fitted line alone: 2 ms of a second each.
    assert_eq!(of("the generator"), 500.0);
    let by_time = costs(vec![
        relay(),
        signaling(),
        calls(),
        capacity("the generator"),
    ]);
    assert!(
        by_time.transceiver_calls[0]
            .what
            .ends_with("by its time alone")
    );
    let plan = Plan::of(&assume("--users 1").expect("good"), &by_time);
    assert_eq!(plan.cautions.len(), 2, "{:?}", plan.cautions);
    assert!(plan.cautions[0].contains("passed through: the plan fills its cores by the time"));
    assert!(plan.cautions[1].contains("decoded and encoded"));
}

#[test]
fn where_capacity_has_no_search_that_of_calls_counts_before_what_time_allows() {
    let found = |costs: &Costs| {
        let figure = &costs.transceiver_calls[0];
        (
            figure.value,
            figure.file.clone(),
            costs.transceiver_by_time[0],
        )
    };
    let fitted = |each: f64| {
        let body = [
            cost("transceiver", "passthrough", each),
            cost("transceiver", "transcoding", 20_000.0),
        ];
        source(
            Kind::Capacity,
            &format!(r#""carried": [], "costs": [{}]"#, body.join(",")),
        )
    };
    // 500 by their time, 400 that kept to the limits.
    let sources = vec![relay(), signaling(), calls(), fitted(2_000.0)];
    assert_eq!(
        found(&costs(sources)),
        (400.0, "calls.json".to_owned(), false)
    );
    // 250 by their time: no core has more.
    let sources = vec![relay(), signaling(), calls(), fitted(4_000.0)];
    assert_eq!(
        found(&costs(sources)),
        (250.0, "capacity.json".to_owned(), false)
    );
    // That a limit was found is not denied because time allows less.
    let plan = Plan::of(
        &assume("--users 1").expect("good"),
        &costs(vec![relay(), signaling(), calls(), fitted(4_000.0)]),
    );
    let denied = plan.cautions.iter().any(|caution| {
        caution.contains("no limit of a transceiver was found with calls passed through")
    });
    assert!(!denied, "{:?}", plan.cautions);
    // That search met no limit, or does not say.
    for limit in [r#""limit": null, "#, ""] {
        let open = source(
            Kind::Calls,
            &format!(
                r#""capacity": [{{"work": "passthrough", "calls": 400, {limit}"steps": []}}]"#
            ),
        );
        let sources = vec![relay(), signaling(), open, fitted(2_000.0)];
        assert_eq!(
            found(&costs(sources)),
            (500.0, "capacity.json".to_owned(), true)
        );
    }
    let text = Plan::of(
        &assume("--users 1").expect("good"),
        &costs(vec![relay(), signaling(), calls(), fitted(2_000.0)]),
    )
    .text();
    assert!(
        text.lines().any(
            |line| line.contains("calls on a core of a transceiver, passed through")
                && line.contains("calls.json")
        ),
        "{text}"
    );
}

#[test]
fn without_fitted_costs_those_of_a_transceiver_alone_do_and_the_plan_says_what_it_lacks() {
    let costs = costs(vec![relay(), signaling(), calls()]);
    assert_eq!(costs.transceiver_calls[1].value, 50.0);
    assert_eq!(costs.transceiver_calls[1].file, "calls.json");
    let plan = Plan::of(&assume("--users 1e6").expect("good"), &costs);
    assert_eq!(plan.cautions.len(), 2);
    assert!(
        plan.cautions[1].contains("transceiver")
            && plan.cautions[1].contains("scripts/bench calls")
    );
}

#[test]
fn what_no_file_says_is_named_with_the_command_that_measures_it() {
    for (sources, command) in [
        (vec![signaling(), calls()], "scripts/bench relay"),
        (vec![relay(), calls()], "scripts/bench signaling"),
        (vec![relay(), signaling()], "scripts/bench calls"),
    ] {
        let error = Costs::of(&Findings::of(sources))
            .expect_err(command)
            .to_string();
        assert!(
            error.contains(command) && error.contains("--results"),
            "{error}"
        );
    }
    let broken = source(
        Kind::Relay,
        r#""costs": {"relay_up_1500_64dest": {}}, "ratios": {}"#,
    );
    let error = Costs::of(&Findings::of(vec![broken]))
        .expect_err("no nanos")
        .to_string();
    assert!(
        error.contains("relay.json: costs.relay_up_1500_64dest: missing field `nanos`"),
        "{error}"
    );
}

#[test]
fn the_text_has_every_region_figure_fit_and_assumption() {
    let costs = costs(vec![relay(), signaling(), calls(), capacity("gaps")]);
    let plan = Plan::of(
        &assume("--users 900e6 --regions eu=50%,us=50%").expect("good"),
        &costs,
    );
    let text = plan.text();
    assert!(
        text.starts_with("1,800,000 calls at once, 30,000 set-ups a second"),
        "{text}"
    );
    for said in [
        "eu ",
        "us ",
        "all ",
        "capacity.json, commit c0ffee",
        "2 x P, Linux 6",
        "98.0 % explained",
        "* --users",
    ] {
        assert!(text.contains(said), "{said}: {text}");
    }
    for one in plan.assumed.iter() {
        assert!(
            text.contains(&one.flag) && text.contains(&one.meaning),
            "{}",
            one.flag
        );
    }
    let json = serde_json::to_value(&plan).expect("JSON");
    assert_eq!(json["total"]["calls"], 1_800_000.0);
    assert_eq!(json["measured"][0]["file"], "capacity.json");
}
