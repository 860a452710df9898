//! Draining, in the real binary: a signal refuses new sessions and lets running ones finish, until a deadline.

use std::time::Instant;

use firsthop_shared::control::{ControlCode, ControlError, Status};

use crate::loopback::{Process, Relay, Signaling, assert_quiet, request};
use crate::peer::Client;

/// How the sessions of a log ended, in order.
fn reasons(log: &[String]) -> Vec<&str> {
    log.iter()
        .filter(|line| line.contains("session ended"))
        .filter_map(|line| line.split("reason=\"").nth(1)?.split('"').next())
        .collect()
}

fn codes(relay: &Relay) -> Vec<String> {
    relay
        .client
        .heard
        .events
        .iter()
        .filter_map(|(_, text)| {
            let event: serde_json::Value = serde_json::from_str(text).expect("JSON");
            Some(event["error"]["code"].as_str()?.to_owned())
        })
        .collect()
}

#[test]
fn a_drain_takes_no_new_sessions_lets_running_ones_finish_and_ends_with_the_last() {
    let mut process = Process::start("drain", &["--drain", "600"]);
    let signaling = Signaling::new();
    let mut calls: Vec<Relay> = (0..2)
        .map(|shard| Relay::call(&process, &signaling, 30 + u32::from(shard), shard))
        .collect();
    Relay::connect_all(&mut calls);
    process.signal("-TERM");
    process.wait_for("draining");

    let (ready, _) = signaling.send(signaling.http.get(process.url("/readyz")));
    assert_eq!(ready, 503);
    let (_, body) = signaling.get(&process, "/v1/status");
    let status: Status = serde_json::from_str(&body).expect("a status");
    assert!(status.draining);
    let (offer, _) = Client::new(Instant::now()).offer(true);
    let (refused, body) = signaling.create(&process, &request(&process, 40, 0, &offer));
    let error: ControlError = serde_json::from_str(&body).expect("an error");
    assert_eq!((refused, error.code), (503, ControlCode::Draining));

    // Both calls are heard and answered as before, also when one of them has gone.
    for relay in &mut calls {
        relay.client.speaking = true;
        relay.client.next_frame = Some(Instant::now());
    }
    Relay::until_all(&mut calls, "echo", |relay| relay.client.heard.loud() > 10);
    assert_eq!(signaling.hang_up(&process, 30), 200);
    let heard = calls[1].client.heard.packets;
    calls[1].until("more echo", |relay| relay.client.heard.packets > heard + 10);
    assert_eq!(signaling.hang_up(&process, 31), 200);
    let (status, log) = process.ended();
    assert!(status.success(), "{status}: {log:#?}");
    assert_quiet(&log);
    assert_eq!(reasons(&log), ["hung_up", "hung_up"]);
}

#[test]
fn at_the_end_of_a_drain_sessions_are_told_and_ended() {
    let process = Process::start("deadline", &["--drain", "2"]);
    let signaling = Signaling::new();
    let mut relay = Relay::call(&process, &signaling, 50, 1);
    relay.connect();
    process.signal("-TERM");
    relay.until("the end", |relay| relay.closed);
    assert_eq!(codes(&relay), ["session_expires_soon", "session_expired"]);
    let (status, log) = process.ended();
    assert!(status.success(), "{status}: {log:#?}");
    assert_quiet(&log);
    assert_eq!(reasons(&log), ["drained"]);
}

#[test]
fn a_second_signal_of_either_kind_stops_a_drain_at_once() {
    for second in ["-TERM", "-INT"] {
        let mut process = Process::start(&format!("twice{second}"), &["--drain", "600"]);
        let signaling = Signaling::new();
        let mut relay = Relay::call(&process, &signaling, 60, 0);
        relay.connect();
        process.signal("-TERM");
        process.wait_for("draining");
        process.signal(second);
        let (status, log) = process.ended();
        assert!(status.success(), "{status}: {log:#?}");
        assert_quiet(&log);
        assert_eq!(reasons(&log), ["stopped"]);
    }
}

#[test]
fn a_drain_without_sessions_ends_at_once() {
    let process = Process::start("empty", &["--drain", "600"]);
    let (status, log) = process.stop();
    assert!(status.success(), "{status}: {log:#?}");
    assert!(log.iter().any(|line| line.contains("draining")), "{log:#?}");
}
