//! A relay that dies and comes back, sessions that end, keys that change: what heals, and by what.

use crate::testbed::owner::{Owner, record};
use crate::testbed::{
    Client, Testbed, keyring, need_two_processors, receive_from, rtp, rtp_number, until,
};
use firsthop_shared::address::SessionId;
use firsthop_shared::trunk::{RecordHeader, RecordKind};

fn cores(count: usize) -> Vec<(&'static str, String)> {
    vec![("--cores", count.to_string())]
}

fn restart_heals(before: usize, after: usize) {
    let testbed = Testbed::new();
    let relay = testbed.relay(&cores(before));
    let owner = Owner::bind(testbed.owner_address(0));
    let clients: Vec<Client> = (0..8).map(|n| testbed.client(n)).collect();
    let check = |session: usize| testbed.check(owner.address(), 0, session as u32);
    for (session, client) in clients.iter().enumerate() {
        client.send(testbed.public(0), &check(session));
        owner.receive_one();
    }
    relay.kill();

    let relay = testbed.relay(&cores(after));
    for client in &clients {
        client.send(testbed.public(0), &rtp(1));
    }
    // No flow is left: these are lost, and nothing else happens.
    relay.wait_drops("no_flow_rtp", clients.len() as u64);
    for (session, client) in clients.iter().enumerate() {
        client.send(testbed.public(0), &check(session));
        assert_eq!(owner.receive_one().1.session, SessionId(session as u32));
        client.send(testbed.public(0), &rtp(2));
        let (_, header, payload) = owner.receive_one();
        assert_eq!(
            (header.session, rtp_number(&payload)),
            (SessionId(session as u32), 2)
        );
    }
    relay.stop();
}

#[test]
fn the_next_check_revives_a_call_after_the_relay_was_killed() {
    restart_heals(1, 1);
}

#[test]
fn the_next_check_revives_a_call_on_another_number_of_cores() {
    need_two_processors();
    restart_heals(1, 2);
    restart_heals(2, 1);
}

#[test]
fn a_downlink_record_restores_the_flow_it_names_whichever_core_it_comes_to() {
    let testbed = Testbed::new();
    need_two_processors();
    let relay = testbed.relay(&cores(2));
    let mut owner = Owner::bind(testbed.owner_address(0));
    let clients: Vec<Client> = (0..8).map(|n| testbed.client(n)).collect();
    // Everything goes to the first core, as an owner would send that knows nothing of the new number of cores.
    let records: Vec<(RecordHeader, Vec<u8>)> = clients
        .iter()
        .enumerate()
        .map(|(session, client)| {
            (
                record(client.address(), 0, session as u32),
                rtp(session as u32),
            )
        })
        .collect();
    let slices: Vec<(RecordHeader, &[u8])> = records
        .iter()
        .map(|(header, packet)| (*header, &packet[..]))
        .collect();
    owner.send(testbed.relay_internal(0), &slices);
    for (session, client) in clients.iter().enumerate() {
        assert_eq!(rtp_number(&client.receive().1), session as u32);
    }
    // Another core hears of its clients over a channel: soon, and not before the packet is out.
    relay.wait_metric("flows", clients.len() as u64);
    for (session, client) in clients.iter().enumerate() {
        client.send(testbed.public(0), &rtp(7));
        assert_eq!(owner.receive_one().1.session, SessionId(session as u32));
    }
    relay.stop();
}

#[test]
fn a_close_record_forgets_the_session_at_that_address_and_no_other() {
    let testbed = Testbed::new();
    let relay = testbed.relay(&[]);
    let mut owner = Owner::bind(testbed.owner_address(0));
    let (client, other) = (testbed.client(0), testbed.client(1));
    let mut hop = None;
    let mut headers = Vec::new();
    for (session, client) in [&client, &other].into_iter().enumerate() {
        client.send(
            testbed.public(0),
            &testbed.check(owner.address(), 0, session as u32),
        );
        let (from, header, _) = owner.receive_one();
        hop = Some(from);
        headers.push(header);
    }
    let hop = hop.expect("two checks came");
    let close = |header: &RecordHeader| RecordHeader {
        kind: RecordKind::Close,
        payload_len: 0,
        ..*header
    };
    // A late record of a session that has no claim there ends nothing.
    let late = RecordHeader {
        session: SessionId(77),
        ..close(&headers[0])
    };
    owner.send(hop, &[(late, &[])]);
    client.send(testbed.public(0), &rtp(1));
    assert_eq!(owner.receive_one().1.session, SessionId(0));

    owner.send(hop, &[(close(&headers[0]), &[])]);
    relay.wait_metric("claims_closed_total", 1);
    client.send(testbed.public(0), &rtp(2));
    relay.wait_drops("no_flow_rtp", 1);
    other.send(testbed.public(0), &rtp(3));
    assert_eq!(owner.receive_one().1.session, SessionId(1));

    let unknown = RecordHeader {
        kind: RecordKind::UnknownSession,
        payload_len: 0,
        ..headers[1]
    };
    owner.send(hop, &[(unknown, &[])]);
    relay.wait_metric("claims_closed_total", 2);
    relay.wait_metric("flows", 0);
    relay.stop();
}

#[test]
fn two_sessions_that_claim_one_address_both_get_its_packets_until_one_is_proven() {
    let testbed = Testbed::new();
    let relay = testbed.relay(&[]);
    let mut owner = Owner::bind(testbed.owner_address(0));
    let client = testbed.client(0);
    let mut claims = Vec::new();
    for session in [1, 2] {
        client.send(
            testbed.public(0),
            &testbed.check(owner.address(), 0, session),
        );
        let (hop, header, _) = owner.receive_one();
        claims.push((hop, header));
    }
    client.send(testbed.public(0), &rtp(5));
    let mut sessions = Vec::new();
    while sessions.len() < 2 {
        for (header, payload) in owner.receive().records {
            assert_eq!(payload, rtp(5), "the second copy is the same packet");
            sessions.push(header.session.0);
        }
    }
    sessions.sort_unstable();
    assert_eq!(sessions, [1, 2]);

    let (hop, header) = claims[1];
    let proof = RecordHeader {
        proven: true,
        ..header
    };
    owner.send(hop, &[(proof, &rtp(6))]);
    assert_eq!(client.receive().1, rtp(6));
    client.send(testbed.public(0), &rtp(7));
    assert_eq!(owner.receive_one().1.session, SessionId(2));
    relay.stop();
}

#[test]
fn a_changed_keyring_is_taken_without_a_restart() {
    let testbed = Testbed::new();
    let relay = testbed.relay(&[]);
    let mut owner = Owner::bind(testbed.owner_address(0));
    let client = testbed.client(0);
    client.send(testbed.public(0), &testbed.check(owner.address(), 0, 1));
    owner.receive_one();

    testbed.write_keyring(9);
    until("the relay has the new keyring", || {
        relay
            .log()
            .contains("file reloaded setting=\"keyring\"")
            .then_some(())
    });
    owner.set_keyring(keyring(9));
    // The flow stayed; its trunk uses the new key now. The core takes the keyring in the turn that its waker starts.
    until("a datagram under the new key", || {
        client.send(testbed.public(0), &rtp(1));
        let mut buffer = [0; 2048];
        let (len, _) = receive_from(&owner.socket, &mut buffer).expect("a datagram");
        firsthop_shared::trunk::open(&keyring(9), &buffer[..len])
            .is_ok()
            .then_some(())
    });
    client.send(testbed.public(0), &testbed.check(owner.address(), 0, 1));
    relay.wait_drops("ufrag_forged", 1);
    relay.stop();
}

#[test]
fn the_admin_pages_tell_health_and_readiness() {
    let testbed = Testbed::new();
    let relay = testbed.relay(&[]);
    assert_eq!(relay.page("/healthz").0, "HTTP/1.1 200 OK");
    assert_eq!(
        relay.page("/readyz"),
        (
            "HTTP/1.1 200 OK".to_owned(),
            "1 of 1 cores receive\n".to_owned()
        )
    );
    assert_eq!(relay.page("/nothing").0, "HTTP/1.1 404 Not Found");
    let (_, metrics) = relay.page("/metrics");
    for name in [
        "uplink_packets_total",
        "drops_total",
        "flows",
        "socket_receive_drops_total",
        "socket_buffer_bytes",
    ] {
        assert!(
            metrics.contains(&format!("\nfirsthop_relay_{name}{{")),
            "{name} is missing:\n{metrics}"
        );
    }
    assert!(metrics.contains("\nfirsthop_relay_group_rebuilds_total 0\n"));
    assert!(metrics.ends_with("# EOF\n"));
    relay.stop();
}

/// An idle core wakes a hundred times a second; then its timers and its other tasks have their turn, too.
#[test]
fn timers_of_an_idle_core_fire_and_their_lateness_is_published() {
    const FIRED: u64 = 300;
    let testbed = Testbed::new();
    let relay = testbed.relay(&[]);
    let up_to = |bound| relay.metric("timer_lateness_seconds_bucket", Some(("le", bound)));
    // Buckets are cumulative.
    until("the timers have fired in time", || {
        (up_to("1.0") >= FIRED).then_some(())
    });
    assert!(up_to("0.0001") <= up_to("0.015"));
    // A timer that fires only when luck will have it is late by more than that now and then; one that a machine without time
    // for this test makes late is rare. More fire between two looks.
    let all = up_to("+Inf");
    let in_time = up_to("1.0");
    assert!(
        all.saturating_sub(in_time) < FIRED / 10,
        "{in_time} of {all}"
    );
    assert!(relay.metric("timer_lateness_seconds_count", None) >= all);
    relay.stop();
}
