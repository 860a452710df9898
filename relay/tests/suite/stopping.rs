//! A graceful stop: not ready any more, and forwarding all the same until nobody needs the relay or time is up.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use firsthop_shared::address::SessionId;
use firsthop_shared::trunk::{RecordHeader, RecordKind};

use crate::testbed::owner::{Owner, record};
use crate::testbed::process::RelayProcess;
use crate::testbed::{Client, Testbed, rtp, rtp_number, until};

fn draining(testbed: &Testbed, seconds: u64) -> RelayProcess {
    testbed.relay(&[("--drain", seconds.to_string())])
}

/// Makes a call of a client, and returns its flow as the owner sees it, with where the owner reaches it.
fn call(
    testbed: &Testbed,
    owner: &Owner,
    client: &Client,
    session: u32,
) -> (SocketAddr, RecordHeader) {
    let check = testbed.check(owner.address(), 0, session);
    client.send(testbed.public(0), &check);
    let (hop, header, _) = owner.receive_one();
    (hop, header)
}

/// Asks a relay to stop that is seen to have so many flows.
fn terminate(relay: &RelayProcess, flows: u64) {
    relay.wait_metric("flows", flows);
    relay.signal("TERM");
}

fn wait_stopping(relay: &RelayProcess) {
    until("the relay says that it stops", || {
        let (status, body) = relay.page("/readyz");
        (status.contains(" 503 ") && body == "stopping\n").then_some(())
    });
}

#[test]
fn a_relay_that_stops_says_so_and_forwards_until_the_second_signal() {
    for second in ["TERM", "INT"] {
        let testbed = Testbed::new();
        let relay = draining(&testbed, 600);
        let state = |sample: &str| {
            relay
                .page("/metrics")
                .1
                .contains(&format!("\nfirsthop_relay_{sample}\n"))
        };
        assert!(state("draining 0") && state("cores 1") && state("cores_receiving 1"));
        let mut owner = Owner::bind(testbed.owner_address(0));
        let client = testbed.client(0);
        let (hop, _) = call(&testbed, &owner, &client, 1);
        assert!(relay.metric("flows_capacity", Some(("core", "0"))) > 1);
        terminate(&relay, 1);
        wait_stopping(&relay);
        assert!(state("draining 1") && state("cores_receiving 1"));

        // Both ways, and a client that comes only now too: its balancer has not noticed yet.
        client.send(testbed.public(0), &rtp(1));
        assert_eq!(rtp_number(&owner.receive_one().2), 1);
        let packet = rtp(2);
        owner.send(hop, &[(record(client.address(), 0, 1), &packet)]);
        assert_eq!(rtp_number(&client.receive().1), 2);
        let late = testbed.client(1);
        assert_eq!(call(&testbed, &owner, &late, 2).1.session, SessionId(2));

        relay.signal(second);
        relay.ended_well();
    }
}

#[test]
fn it_ends_with_the_last_flow() {
    let testbed = Testbed::new();
    let relay = draining(&testbed, 600);
    let mut owner = Owner::bind(testbed.owner_address(0));
    let clients = [testbed.client(0), testbed.client(1)];
    let flows: Vec<(SocketAddr, RecordHeader)> = (1..)
        .zip(&clients)
        .map(|(session, client)| call(&testbed, &owner, client, session))
        .collect();
    terminate(&relay, 2);
    wait_stopping(&relay);
    for (hop, header) in flows {
        let close = RecordHeader {
            kind: RecordKind::Close,
            payload_len: 0,
            ..header
        };
        owner.send(hop, &[(close, &[])]);
    }
    let log = relay.ended_well();
    assert!(log.contains("flows_left=false"), "{log}");
}

#[test]
fn it_ends_at_the_deadline_whatever_flows_there_are() {
    let testbed = Testbed::new();
    let relay = draining(&testbed, 1);
    let owner = Owner::bind(testbed.owner_address(0));
    let client = testbed.client(0);
    call(&testbed, &owner, &client, 1);
    let asked = Instant::now();
    terminate(&relay, 1);
    let log = relay.ended_well();
    assert!(
        asked.elapsed() >= Duration::from_secs(1),
        "{:?}",
        asked.elapsed()
    );
    assert!(
        log.contains("draining") && log.contains("flows_left=true"),
        "{log}"
    );
}

#[test]
fn an_interrupt_ends_it_at_once_whatever_flows_there_are() {
    let testbed = Testbed::new();
    let relay = draining(&testbed, 600);
    let owner = Owner::bind(testbed.owner_address(0));
    let client = testbed.client(0);
    call(&testbed, &owner, &client, 1);
    relay.signal("INT");
    let log = relay.ended_well();
    assert!(!log.contains("draining"), "{log}");
}
