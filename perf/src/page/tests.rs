//! The page as a whole: well-formed, alone, with every section, and with nothing in it that a file of results has put there as markup.

use super::{markdown, page};
use crate::findings::{Findings, Kind, Source};

/// What a hostile file puts wherever text goes.
const HOSTILE: &str =
    "</style><script>alert(1)</script><img src=\\\"https://evil.example/x\\\" onerror='x'>&";

const HEAD: &str = r#""machine": {"processor": "P", "processors": 2, "kernel": "6"}, "commit": "c0ffee", "date": "2026-11-30T10:00:00Z", "quick": true"#;

/// A small file of a kind that has all that is shown; `text` stands wherever a file has free text.
fn sample(kind: Kind, text: &str) -> Source {
    let quantiles = r#"{"p50": 1.5, "p90": 2, "p99": 20, "p999": 70, "max": 90}"#;
    let line = r#"{"fixed": 900.0, "each": 25.0, "residuals": [0.0], "explained": 0.99}"#;
    let body = match kind {
        Kind::Relay => format!(
            r#""counters": "{text}", "ratios": {{"vs_go": 0.47, "{text}": 1.0}}, "targets": [{{"name": "vs_go", "found": 0.47, "must": 0.25, "aim": 0.15}}],
            "costs": {{"relay_both_1500": {{"program": "{text}", "nanos": 1900.5}}, "floor_up": {{"program": "f", "nanos": 500}}, "floor_down": {{"program": "f", "nanos": 1500}}}},
            "spent": {{"relay_both_1500": {{"samples": 9, "send": 0.5, "receive": 0.2, "kernel": 0.2, "program": 0.1}}}},
            "flows": [{{"flows": 10, "cost": {{"nanos": 800}}, "resident": 1000000}}],
            "latency": [{{"program": "{text}", "at": "half of what one packet per call can do", "load": {{"rate": 90000.0, "up": {{"latency": {quantiles}}}, "down": null}}}}],
            "floods": [{{"junk": "{text}", "rate": 1.0, "nanos": 1.0, "lost_up": 0.0, "lost_down": 0.0}}], "missing": ["{text}"]"#
        ),
        Kind::Calls => format!(
            r#""capacity": [{{"work": "{text}", "calls": 60, "limit": "{text}", "steps": [{{"calls": 90, "lateness_p99_ms": null, "micros_per_call_second": null, "busy": 0.9}}, {{"calls": 60, "lateness_p99_ms": 6.0, "micros_per_call_second": 2400.0, "busy": 0.5}}],
            "profile": {{"samples": 1, "shares": {{"kernel": 0.5, "{text}": 0.5}}, "rest": []}}}}],
            "memory": {{"sessions": 10, "bytes_per_session": 146000, "engine_bytes": 65000}},
            "churn": {{"report": {{"calls": 10, "connected": 10, "ramp": 100.0, "set_up": {{"answer": {quantiles}}}}}, "left": [0, 0],
            "programs": [{{"name": "{text}", "before": {{"descriptors": 1, "threads": 1}}, "after": {{"descriptors": 2, "threads": 1}}, "bytes_per_call": 1.0}}]}}"#
        ),
        Kind::Signaling => format!(
            r#""calls_per_core": 12707.3, "calls_per_core_must": 2000.0, "loads": [{{"clients": 32, "due": null, "connects": false, "per_second": 12677.7, "micros": 78.7,
            "busy": 0.99, "latency": {quantiles}}}]"#
        ),
        Kind::Setup => format!(
            r#""rungs": [{{"subject": "{text}", "connection": "warm", "channel": "handshake", "rtt_ms": 20, "loss": 0.0, "calls": 5, "failed": {{"{text}": 1}},
            "phases": {{"audio": {quantiles}}}}}, {{"subject": "relay", "connection": "warm", "channel": "handshake", "rtt_ms": 20, "loss": 0.02, "calls": 5, "phases": {{"audio": {quantiles}}}}}],
            "round_trips": [{{"subject": "relay", "connection": "warm", "channel": "handshake", "phase": "audio", "round_trips": 4.9, "fixed_ms": 9.0, "worst_ms": 1.0, "points": 4}}],
            "echoes": [{{"subject": "{text}", "ms": 60.0}}], "targets": [{{"name": "round trips {text}", "found": 4.9, "must": 5.0, "met": true, "how": "{text}"}}], "missing": ["{text}"]"#
        ),
        Kind::Capacity => format!(
            r#""carried": [{{"service": "{text}", "work": "passthrough", "per_core": 300, "gives_first": "{text}", "micros": 2400, "bytes_per_call": 240000}},
            {{"service": "all", "work": "set_up", "per_core": 90, "gives_first": null, "micros": 9000, "bytes_per_call": null}}],
            "costs": [{{"program": "{text}", "kind": "passthrough", "samples": [{{"load": 10, "micros_per_second": 1150, "resident_bytes": 1}}, {{"load": 100, "micros_per_second": 3400, "resident_bytes": 1}}],
            "processor": {line}, "memory": {line}}}], "targets": [{{"name": "{text}", "found": 0.4, "must": 0.5, "met": true, "how": "{text}", "passes": [],
            "handled": [{{"program": "{text}", "micros": 310.0, "counts": [["{text}", 50.0]]}}]}}], "notes": ["{text}"]"#
        ),
        Kind::Testnet => String::new(),
    };
    let whole = match kind {
        Kind::Testnet => format!(
            r#"[{{"machine": "{text}", "commit": "{text}", "date": "{text}", "scenario": "{text}", "what": "{text}", "calls": 100, "packets_lost": 4, "worst_gap_ms": 109.0,
            "down": {{"worst_gap_ms": 0.0}}, "up": null, "handshakes": 1, "target": "{text}", "verdict": "fail", "why": ["{text}"]}}]"#
        ),
        _ => format!("{{{HEAD}, {body}}}"),
    };
    Source::parse(format!("{}-{text}.json", kind.stem()), kind, &whole).expect("a sample is good")
}

fn all(text: &str) -> Findings {
    Findings::of(
        Kind::ALL
            .into_iter()
            .map(|kind| sample(kind, text))
            .collect(),
    )
}

#[test]
fn every_section_is_filled_and_none_says_that_it_was_not_measured() {
    let page = page(&all("word")).expect("a page");
    for heading in [
        "Both ways",
        "A thousand flows or a million",
        "Delay at the same rate",
        "Where the time goes",
        "Floods beside 1,000 live calls",
        "Calls on one core",
        "Memory of a silent session",
        "What short calls leave behind",
        "How long an answer takes",
        "Until audio is back, with a data channel",
        "What round-trip time adds until audio is back",
        "With losses, on a line of 20 ms",
        "Cost against how many: G.711 passed through",
        "The fitted lines",
        "Against their targets",
        "The worst silence of any call",
        "Machine and method",
    ] {
        assert!(page.contains(&format!(">{heading}<")), "{heading}");
    }
    assert!(!page.contains("Not measured yet"));
    assert!(page.contains("5 of 8 targets are met"), "see the summary");
    assert!(page.contains("2 x P, Linux 6") && page.contains("c0ffee"));
}

#[test]
fn what_results_rest_on_is_said_limits_changes_in_no_commit_and_what_was_taken_off() {
    let read = |kind: Kind, commit: &str, body: &str| {
        let head = HEAD.replace("c0ffee", commit);
        Source::parse(kind.stem().to_owned(), kind, &format!("{{{head}, {body}}}")).expect("good")
    };
    let tolerance = crate::call::tolerance::Tolerance {
        lateness_p99_ms: 35.0,
        ..Default::default()
    };
    let tolerance = serde_json::to_string(&tolerance).expect("JSON");
    let step =
        r#"{"calls": 60, "lateness_p99_ms": 6.0, "micros_per_call_second": 2400.0, "busy": 0.5}"#;
    let capacity = format!(
        r#""capacity": [{{"work": "echo", "calls": 60, "limit": "gaps", "steps": [{step}]}}], "memory": null, "churn": null"#
    );
    let echo = |echo: &str| read(Kind::Setup, "c0ffee", &format!(r#""echoes": [{echo}]"#));
    let of = |sources: Vec<Source>| page(&Findings::of(sources)).expect("a page");

    let said = of(vec![
        read(
            Kind::Calls,
            "c0ffee-dirty",
            &format!(r#""tolerance": {tolerance}, {capacity}"#),
        ),
        echo(r#"{"subject": "relay", "ms": 84.0, "subtracted_ms": 80.0}"#),
    ]);
    assert!(said.contains("lateness of 35"), "{said}");
    assert!(said.contains("the limit: 35"), "{said}");
    assert!(said.contains("Some of these results are of no commit"));
    assert!(said.contains("of 84"), "what was measured of the echo");

    let older = of(vec![
        read(Kind::Calls, "c0ffee", &capacity),
        echo(r#"{"subject": "relay", "ms": 84.0}"#),
    ]);
    assert!(older.contains("this file is older, and does not say"));
    assert!(older.contains("a frame: 20"), "{older}");
    assert!(!older.contains("are of no commit") && !older.contains("that were measured"));
}

#[test]
fn set_ups_beside_calls_are_among_the_first_figures_and_say_how_they_were_measured() {
    let name = "set-up through the relay / direct, 20 ms, beside calls that are up, median";
    let target = |how: &str| {
        let body = format!(
            r#""targets": [{{"name": "{name}", "found": 1.03, "must": 1.05, "met": true{how}}}]"#
        );
        let text = format!("{{{HEAD}, {body}}}");
        Source::parse("setup".to_owned(), Kind::Setup, &text).expect("good")
    };
    let findings = Findings::of(vec![target(r#", "how": "with 290 calls of G.711 up""#)]);
    let said = page(&findings).expect("a page");
    assert!(said.contains("with 290 calls of G.711 up"), "{said}");
    let row = "| Set-up through the relay / direct, median, at half load, on a line of 20 ms | 1.03 × | at most 1.05 | met |";
    let table = markdown::table(&findings).expect("a table");
    assert!(table.contains(row), "{table}");
    assert!(page(&Findings::of(vec![target("")])).is_ok());
}

#[test]
fn the_relays_share_in_set_up_is_in_a_row_with_a_line_and_in_one_without_and_missing_is_said() {
    let read = |kind: Kind, body: &str| {
        let text = format!("{{{HEAD}, {body}}}");
        Source::parse(kind.stem().to_owned(), kind, &text).expect("good")
    };
    let capacity = || {
        let target = r#""name": "set_up_median_relay_vs_direct", "found": 1.37, "must": 1.05, "how": "as it is""#;
        read(Kind::Capacity, &format!(r#""targets": [{{{target}}}]"#))
    };
    let rows = |setup: &str| {
        let findings = Findings::of(vec![read(Kind::Setup, setup), capacity()]);
        let table = markdown::table(&findings).expect("a table");
        let rows = table.lines().filter(|row| row.contains("at half load"));
        rows.map(str::to_owned).collect::<Vec<_>>()
    };
    let loopback = "| Set-up through the relay / direct, median, at half load, on loopback | 1.37 × | at most 1.05 | missed |";
    let line = "| Set-up through the relay / direct, median, at half load, on a line of 20 ms |";
    let beside = |which: &str, found: f64| {
        format!(
            r#"{{"name": "set-up through the relay / direct, 20 ms, beside calls that are up, {which}", "found": {found}, "must": 1.05}}"#
        )
    };
    let both = [beside("median", 1.01), beside("p99", 1.2)].join(",");
    assert_eq!(
        rows(&format!(r#""targets": [{both}]"#)),
        [
            format!("{line} 1.01 × | at most 1.05 | met |"),
            loopback.to_owned()
        ]
    );
    assert_eq!(
        rows(r#""targets": []"#),
        [
            format!("{line} not measured | at most 1.05 |  |"),
            loopback.to_owned()
        ]
    );
}

#[test]
fn the_time_on_a_short_line_has_a_verdict_and_the_slope_stands_beside_it_where_there_is_one() {
    let fit = |channel: &str, more: &str| {
        format!(
            r#"{{"subject": "relay", "connection": "warm", "channel": "{channel}", "phase": "audio", {more}}}"#
        )
    };
    let fits = [
        fit(
            "without",
            r#""round_trips": 3.997, "fixed_ms": 4.27, "worst_ms": 2.08, "points": 4"#,
        ),
        fit(
            "handshake",
            r#""round_trips": 4.72, "fixed_ms": -10.02, "worst_ms": 21.8, "points": 4"#,
        ),
        fit(
            "snap",
            r#""round_trips": 4.0, "fixed_ms": 4.1, "worst_ms": 0.0, "points": 2"#,
        ),
    ]
    .join(",");
    let now = |channel: &str, found: f64, must: f64| {
        format!(
            r#"{{"name": "any", "key": {{"of": "audio", "rtt_ms": 20.0, "channel": "{channel}"}}, "found": {found}, "must": {must}}}"#
        )
    };
    let now = [
        now("without", 4.202, 4.0),
        now("handshake", 4.2, 5.0),
        now("snap", 4.22, 5.0),
    ];
    // Files from before targets had keys, which held slopes against what is asked.
    let older = [
        r#"{"name": "round trips from POST to first audio back, no channel", "found": 3.997, "must": 4.0}"#,
        r#"{"name": "the same on a line of 20 ms, in all, no channel", "found": 4.202, "must": 4.0}"#,
        r#"{"name": "round trips from POST to first audio back, channel", "found": 4.72, "must": 5.0}"#,
        r#"{"name": "the same on a line of 20 ms, in all, channel", "found": 4.2, "must": 5.0}"#,
        r#"{"name": "the same on a line of 20 ms, in all, channel, SNAP", "found": 4.22, "must": 5.0}"#,
    ];
    for targets in [now.join(","), older.join(",")] {
        let body = format!(r#""round_trips": [{fits}], "targets": [{targets}]"#);
        let text = format!("{{{HEAD}, {body}}}");
        let source = Source::parse("setup.json".to_owned(), Kind::Setup, &text);
        let findings = Findings::of(vec![source.expect("good")]);
        let table = markdown::table(&findings).expect("a table");
        let what =
            "| Time from POST to first audio back, to the round-trip time of a line of 20 ms,";
        for row in [
            "no channel | 4.20 (slope 4.00, intercept 4.3 ms, to within 2.1 ms) | at most 4 | missed |",
            "channel | 4.20 | at most 5 | met |",
            "channel, SNAP | 4.22 | at most 5 | met |",
        ] {
            assert!(table.contains(&format!("{what} {row}")), "{row}: {table}");
        }
        assert_eq!(table.matches("POST").count(), 3, "{table}");
        let said = page(&findings).expect("a page");
        assert!(said.contains("to within 2.1 ms"), "{said}");
        // What is no line is not drawn as one.
        assert!(!said.contains("4.72"), "{said}");
    }
}

#[test]
fn a_search_that_nothing_stopped_found_a_lower_bound_and_a_busy_machine_is_said() {
    let read = |kind: Kind, head: &str, body: &str| {
        Source::parse(kind.stem().to_owned(), kind, &format!("{{{head}, {body}}}")).expect("good")
    };
    let calls = |head: &str, limit: &str| {
        let capacity = format!(
            r#""capacity": [{{"work": "passthrough", "calls": 60, "limit": {limit}, "steps": []}}]"#
        );
        read(Kind::Calls, head, &capacity)
    };
    let carried = |first: &str| {
        let row = r#""service": "relay", "work": "forwarding", "per_core": 70, "micros": 1"#;
        let body =
            format!(r#""carried": [{{{row}, "gives_first": {first}, "bytes_per_call": null}}]"#);
        read(Kind::Capacity, HEAD, &body)
    };
    let of = |sources: Vec<Source>| page(&Findings::of(sources)).expect("a page");

    let open = of(vec![calls(HEAD, "null"), carried(r#""the generator""#)]);
    assert!(
        open.contains("at least 60 calls") && open.contains("at least 70"),
        "{open}"
    );
    let found = of(vec![calls(HEAD, r#""gaps""#), carried(r#""loss""#)]);
    assert!(!found.contains("at least 60") && !found.contains("at least 70"));

    assert!(!found.contains("had other work"));
    let busy = HEAD.replace(
        r#""processors": 2"#,
        r#""processors": 2, "load_at_start": 18.0"#,
    );
    let said = of(vec![calls(&busy, "null"), carried("null")]);
    assert!(
        said.contains("had other work when some of these were measured (calls)"),
        "{said}"
    );
}

#[test]
fn a_kind_without_a_file_says_which_command_makes_one() {
    let page = page(&Findings::of(vec![sample(Kind::Relay, "word")])).expect("a page");
    for command in [
        "scripts/bench calls",
        "scripts/bench setup",
        "scripts/testnet",
    ] {
        assert!(
            page.contains(&format!("Not measured yet: <code>{command}</code>")),
            "{command}"
        );
    }
    assert!(!page.contains("<code>scripts/bench relay</code> does"));
}

#[test]
fn what_files_say_is_text_and_the_page_refers_to_nothing_outside() {
    let page = page(&all(HOSTILE)).expect("a page");
    assert!(page.contains("&lt;script&gt;alert(1)"));
    for markup in [
        "<script", "<img", "<link", "<iframe", "<object", "url(", "@import",
    ] {
        assert!(!page.contains(markup), "{markup}");
    }
    for tag in page.split('<').skip(1) {
        let (tag, _) = tag.split_once('>').expect("a tag ends");
        // Whatever stands in an attribute's value has its quotes escaped: outside of values there is none of these.
        let names = tag.split('"').step_by(2).collect::<String>();
        for attribute in [" src=", " onerror=", " srcset=", " style="] {
            assert!(!names.contains(attribute), "{tag}");
        }
    }
    let targets = page.split(" href=\"").skip(1);
    assert!(targets.clone().count() >= Kind::ALL.len());
    for target in targets {
        assert!(target.starts_with('#'), "{}", &target[..20]);
    }
    assert!(page.contains("default-src 'none'"));
}

#[test]
fn every_tag_is_closed_where_it_was_opened() {
    let page = page(&all("a < b & c")).expect("a page");
    let mut open: Vec<&str> = Vec::new();
    for piece in page.split('<').skip(1) {
        let (tag, _) = piece.split_once('>').expect("a tag ends");
        let name = tag.split([' ', '\n']).next().unwrap_or_default();
        match name.strip_prefix('/') {
            Some(name) => assert_eq!(open.pop(), Some(name), "</{name}>"),
            None if ["!DOCTYPE", "meta", "br"].contains(&name) => {}
            None => open.push(name),
        }
    }
    assert!(open.is_empty(), "{open:?}");
}

#[test]
fn a_field_of_another_shape_is_named_with_its_file() {
    let broken = format!(r#"{{{HEAD}, "flows": [{{"flows": "many"}}]}}"#);
    let source =
        Source::parse("relay.json".to_owned(), Kind::Relay, &broken).expect("it has a head");
    let error = page(&Findings::of(vec![source]))
        .expect_err("no number")
        .to_string();
    assert!(
        error.starts_with("relay.json: flows[0].flows: invalid type"),
        "{error}"
    );
}

#[test]
fn a_target_that_could_not_be_measured_keeps_its_card_and_says_why() {
    let body = r#""targets": [{"name": "server_time_vs_janus", "found": null, "must": 0.5, "how": "as it is", "missing": "no pass counts: janus: 1 of 42 calls failed"},
        {"name": "gaps_at_70_percent_passthrough", "found": 0, "must": 0, "how": "as it is"}]"#;
    let source = Source::parse(
        "capacity.json".to_owned(),
        Kind::Capacity,
        &format!("{{{HEAD}, {body}}}"),
    );
    let findings = Findings::of(vec![source.expect("good")]);
    let page = page(&findings).expect("a page");
    for words in [
        "1 of 1 targets are met. Not measured: Time of a call at relay and transceiver",
        "janus: 1 of 42 calls failed",
        "not measured<",
    ] {
        let text = page.replace("<strong>", "").replace("</strong>", "");
        assert!(text.contains(words), "{words}: {text}");
    }
    let table = super::markdown::table(&findings).expect("a table");
    assert!(
        table.contains("| not measured | at most 0.50 |  |"),
        "{table}"
    );
}
