//! A successor that cannot take over: one line says why and what to do, and the serving relay has noticed nothing.

use std::fs::{self, File};
use std::process::Output;
use std::thread;

use firsthop_relay::config::{Config, Settings};
use firsthop_relay::handover::channel::Listener;
use firsthop_relay::handover::message::{Description, ToGiver};

use super::fake::{FakeRelay, Until};
use super::{Calls, path, with_handover};
use crate::testbed::{Testbed, process};
use clap::Parser as _;

/// The settings of a successor on one core, with some replaced.
pub(super) fn successor(
    testbed: &Testbed,
    other: &[(&'static str, String)],
) -> Vec<(&'static str, String)> {
    let mut settings = testbed.settings();
    settings.extend([
        ("--handover", path(testbed)),
        ("--takeover", "true".to_owned()),
    ]);
    for (name, value) in other {
        settings.retain(|(known, _)| known != name);
        settings.push((name, value.clone()));
    }
    settings
}

/// The last line of what a relay printed that has ended with this status.
pub(super) fn last_line(output: &Output, status: i32) -> String {
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(status), "{error}");
    let said: Vec<&str> = error
        .lines()
        .filter(|line| line.starts_with("relay: "))
        .collect();
    assert_eq!(said.len(), 1, "one line says it:\n{error}");
    said[0].to_owned()
}

#[test]
fn a_successor_that_does_not_fit_names_the_setting_and_the_serving_relay_goes_on() {
    let testbed = Testbed::new();
    let relay = with_handover(&testbed, false, 1);
    let mut calls = Calls::new(&testbed, &relay, 4);
    let second = format!("{},{}", testbed.public(0), testbed.public(1));
    let mut other = vec![
        ("--listen", second),
        ("--listen", testbed.public(1).to_string()),
        ("--internal", testbed.ip(2).to_string()),
        ("--internal-port", "4100".to_owned()),
        ("--steering-seed", "5".to_owned()),
        ("--flows-per-core", "1000".to_owned()),
    ];
    if firsthop_relay::system::processors().len() > 1 {
        other.push(("--cores", "2".to_owned()));
    }
    for (name, value) in other {
        let settings = successor(&testbed, &[(name, value)]);
        let line = last_line(&process::run(&settings), 2);
        assert!(line.starts_with(&format!("relay: {name}: ")), "{line}");
        for part in ["serving relay", "this one", "start without --takeover"] {
            assert!(line.contains(part), "{part}: {line}");
        }
        calls.pass(&testbed);
    }
    assert_eq!(relay.page("/readyz").0, "HTTP/1.1 200 OK");
    // It was refused before any core stood still: nothing to warn of.
    relay.stop();
}

#[test]
fn a_takeover_needs_the_path() {
    let testbed = Testbed::new();
    let mut settings = testbed.settings();
    settings.push(("--takeover", "true".to_owned()));
    let line = last_line(&process::run(&settings), 2);
    assert!(
        line.contains("--takeover: ") && line.contains("--handover"),
        "{line}"
    );
}

#[test]
fn a_path_that_something_else_has_is_refused_and_left_alone() {
    let testbed = Testbed::new();
    let mut settings = testbed.settings();
    settings.push(("--handover", path(&testbed)));
    let file = testbed.file("handover");

    let other = Listener::bind(&file).expect("free");
    let line = last_line(&process::run(&settings), 2);
    assert!(
        line.contains("--handover: ") && line.contains("is in use"),
        "{line}"
    );
    other.remove();

    // Nobody serves at what is no socket: to take over would not help.
    let takeover = successor(&testbed, &[]);
    fs::write(&file, "precious").expect("written");
    for settings in [&settings, &takeover] {
        let line = last_line(&process::run(settings), 2);
        for part in ["--handover: ", "is no socket", "remove it"] {
            assert!(line.contains(part), "{part}: {line}");
        }
        assert!(!line.contains("--takeover"), "{line}");
    }
    assert_eq!(fs::read_to_string(&file).expect("there"), "precious");
    fs::remove_file(&file).expect("there");
    std::os::unix::fs::symlink("nowhere", &file).expect("made");
    let line = last_line(&process::run(&settings), 2);
    assert!(line.contains("is no socket"), "{line}");

    let long = ("--handover", format!("/tmp/{}", "x".repeat(120)));
    for takeover in [false, true] {
        let takeover = ("--takeover", takeover.to_string());
        let settings = successor(&testbed, &[long.clone(), takeover]);
        let line = last_line(&process::run(&settings), 2);
        assert!(line.contains("at most 107 bytes"), "{line}");
    }
}

/// What a successor of this testbed would serve.
fn description(testbed: &Testbed) -> Description {
    let arguments = successor(testbed, &[])
        .into_iter()
        .map(|(name, value)| format!("{name}={value}"));
    let settings = ["relay".to_owned()].into_iter().chain(arguments);
    let settings = Settings::try_parse_from(settings).expect("settings");
    Description::of(&Config::check(&settings).expect("valid settings").0)
}

/// Runs a successor against a serving relay that goes so far. Returns its line, and its last word.
fn against(
    relay: &Description,
    testbed: &Testbed,
    end: Until,
    status: i32,
) -> (String, Option<ToGiver>) {
    let flows = testbed.file("flows");
    if let Until::Flows(bytes) = end {
        fs::write(&flows, bytes).expect("written");
    } else {
        fs::write(&flows, empty_table()).expect("written");
    }
    let serving = FakeRelay::new(&testbed.file("handover"), relay);
    let settings = successor(testbed, &[]);
    let output = thread::spawn(move || process::run(&settings));
    let said = serving.serve(relay, end, File::open(flows).expect("there"));
    let output = output.join().expect("no panic");
    drop(serving);
    fs::remove_file(testbed.file("handover")).expect("there");
    (last_line(&output, status), said)
}

/// The flows of a relay that has none.
fn empty_table() -> Vec<u8> {
    use firsthop_relay_core::{Micros, Router, RouterConfig, Seeds};
    use firsthop_shared::address::{ClusterId, Networks};
    let seeds = Seeds {
        hash: [1, 2],
        generation: 3,
        boot: 4,
    };
    let config = RouterConfig::new(ClusterId(1), Networks::default(), seeds);
    let keyring = std::sync::Arc::new(crate::testbed::keyring(7));
    let router = Router::new(&config, keyring, Micros(0)).expect("a router");
    let mut file = Vec::new();
    router.export(Micros(0), &mut file).expect("written");
    file
}

#[test]
fn whatever_a_serving_relay_says_wrong_the_successor_refuses_in_one_line() {
    let testbed = Testbed::new();
    let own = description(&testbed);
    for (end, status, part) in [
        (Until::Says(b"SSH-2.0"), 2, "does not speak as a relay does"),
        (
            Until::Says(b"{\"firsthop_handover\":9}"),
            2,
            "version 9 of the hand-over",
        ),
        (Until::Offer, 1, "was gone when its sockets were due"),
        (Until::WrongSockets, 1, "not the socket that it should be"),
        // It may notice at once, or when it asks for the flows.
        (Until::Sockets, 1, "was gone while "),
        (Until::Flows(b""), 1, "core 0: the flows end too early"),
        (
            Until::Flows(&[b'x'; 64]),
            1,
            "core 0: the header of the flows is damaged",
        ),
        (
            Until::Imported,
            1,
            "was gone while a core was to be given up",
        ),
        (Until::Serving, 1, "gave up: that was too late"),
        (
            Until::Ended,
            1,
            "gave up: that was too late; nobody serves then",
        ),
    ] {
        let (line, said) = against(&own, &testbed, end, status);
        assert!(line.contains(part), "{end:?}: {line}");
        let goes_on = line.matches("goes on").count();
        assert_eq!(
            goes_on,
            usize::from(status == 1 && end != Until::Ended),
            "{line}"
        );
        match end {
            Until::Flows(_) => assert!(matches!(said, Some(ToGiver::Refuse { .. })), "{said:?}"),
            Until::Imported => assert_eq!(said, Some(ToGiver::Imported { core: 0 })),
            Until::Serving | Until::Ended => assert_eq!(said, Some(ToGiver::Serving)),
            _ => {}
        }
    }
}

#[test]
fn flows_of_another_format_are_refused_before_anything_is_taken() {
    let testbed = Testbed::new();
    let mut newer = description(&testbed);
    newer.flow_format += 1;
    let (line, said) = against(&newer, &testbed, Until::Imported, 2);
    assert!(
        line.contains("format") && line.contains("start without --takeover"),
        "{line}"
    );
    assert!(matches!(said, Some(ToGiver::Refuse { .. })), "{said:?}");
}
