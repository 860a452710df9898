//! Relays that stay when they have handed over (`--handed-over stay`): they hold nothing, and go when they are told to.

use std::fs;

use super::{Calls, path};
use crate::testbed::process::RelayProcess;
use crate::testbed::{Testbed, until};

fn staying(testbed: &Testbed) -> RelayProcess {
    testbed.relay(&stay_settings(testbed))
}

fn stay_settings(testbed: &Testbed) -> Vec<(&'static str, String)> {
    vec![
        ("--handover", path(testbed)),
        ("--takeover", "true".to_owned()),
        ("--handed-over", "stay".to_owned()),
        ("--spin", "off".to_owned()),
    ]
}

/// Two pods of one node, and a supervisor that starts again whatever ends by itself.
#[test]
fn a_relay_that_stays_holds_nothing_until_it_is_told_to_go() {
    let testbed = Testbed::new();
    let old = staying(&testbed);
    let mut calls = Calls::new(&testbed, &old, 4);
    let new = staying(&testbed);
    until("the old one stands by", || {
        old.log().contains("standing by").then_some(())
    });
    // It has no socket of the relay's any more: neither of packets nor of pages nor of hand-overs.
    let files = fs::read_dir(format!("/proc/{}/fd", old.id())).expect("it runs");
    let held: Vec<String> = files
        .flatten()
        .filter_map(|file| fs::read_link(file.path()).ok())
        .map(|link| link.to_string_lossy().into_owned())
        .filter(|link| link.starts_with("socket:") && is_bound(link))
        .collect();
    assert_eq!(held, Vec::<String>::new());
    calls.pass(&testbed);
    old.signal("TERM");
    let log = old.ended_well();
    assert!(log.contains("handed over"), "{log}");
    // The old pod's end is nothing to the new one.
    calls.pass(&testbed);
    assert_eq!(new.page("/readyz").0, "HTTP/1.1 200 OK");
    new.stop();
}

/// Whether a socket that a process has open (`socket:[12345]`) is listed as one of UDP, TCP, or with a path.
fn is_bound(link: &str) -> bool {
    let number = link.trim_start_matches("socket:[").trim_end_matches(']');
    ["udp", "udp6", "tcp", "tcp6"].iter().any(|protocol| {
        let list = fs::read_to_string(format!("/proc/net/{protocol}")).expect("a list");
        list.lines()
            .any(|line| line.split_whitespace().nth(9) == Some(number))
    }) || fs::read_to_string("/proc/net/unix")
        .expect("a list")
        .lines()
        .any(|line| {
            let mut fields = line.split_whitespace().skip(6);
            fields.next() == Some(number) && fields.next().is_some()
        })
}

/// Else the pod that stands by would be taken for one that serves.
#[test]
fn a_relay_that_stands_by_ends_when_its_successor_does_and_serves_when_it_is_started_again() {
    let testbed = Testbed::new();
    let old = staying(&testbed);
    let new = staying(&testbed);
    until("the old one stands by", || {
        old.log().contains("standing by").then_some(())
    });
    new.kill();
    assert_eq!(old.ended().code(), Some(1));
    let again = staying(&testbed);
    assert!(again.log().contains("starting anew"), "{}", again.log());
    Calls::new(&testbed, &again, 2).pass(&testbed);
    again.stop();
}

/// A node that goes: both of its pods are to end, and the one that drains hands over meanwhile. Its supervisor waits for it.
#[test]
fn a_relay_that_was_told_to_go_before_it_hands_over_goes() {
    let testbed = Testbed::new();
    let mut settings = stay_settings(&testbed);
    settings.push(("--drain", "600".to_owned()));
    let old = testbed.relay(&settings);
    // As long as there is a call, it does not end by itself.
    let mut calls = Calls::new(&testbed, &old, 2);
    old.signal("TERM");
    until("it drains", || {
        (old.whole("draining") == Some(1)).then_some(())
    });
    let new = staying(&testbed);
    let log = old.ended_well();
    assert!(log.contains("handed over"), "{log}");
    assert!(!log.contains("standing by"), "{log}");
    calls.pass(&testbed);
    assert_eq!(new.page("/readyz").0, "HTTP/1.1 200 OK");
    new.stop();
}
