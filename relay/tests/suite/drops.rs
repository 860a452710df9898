//! What the relay refuses: dropped, counted by reason, never answered.

use crate::testbed::owner::{Owner, record};
use crate::testbed::{Client, Testbed, check_with, dtls, keyring, rtp, stun_response};
use firsthop_shared::address::{ClusterId, OwnerAddr, Restart, SessionId, ShardId};
use firsthop_shared::stun_write::{Role, binding_request};
use firsthop_shared::token::{self, Route};
use firsthop_shared::trunk::{RecordHeader, RecordKind};

/// A check whose token was minted by this fleet, with anything in it.
fn check_for(testbed: &Testbed, cluster: u16, owner: &str) -> Vec<u8> {
    let ufrag = token::mint(
        testbed.keyring().active(),
        &Route {
            cluster: ClusterId(cluster),
            owner: OwnerAddr::new(owner.parse().expect("an address")),
            shard: ShardId(0),
            restart: Restart(0),
            session: SessionId(1),
        },
    );
    let password = token::ice_password(testbed.keyring(), ufrag.as_bytes()).expect("a password");
    check_with(ufrag.as_str(), password.as_bytes())
}

#[test]
fn whatever_is_not_a_verified_check_is_dropped_counted_and_never_answered() {
    let testbed = Testbed::new();
    let relay = testbed.relay(&[]);
    let owner = Owner::bind(testbed.owner_address(0));
    let client = testbed.client(0);
    let valid = testbed.check(owner.address(), 0, 1);
    let ufrag = testbed.ufrag(owner.address(), 0, 1);
    let password = token::ice_password(testbed.keyring(), ufrag.as_bytes()).expect("a password");
    let forged_ufrag = {
        let mut text = ufrag.as_str().to_owned();
        let last = text.pop().expect("42 characters");
        text.push(if last == 'A' { 'B' } else { 'A' });
        text
    };
    let other_fleet = {
        let keys = keyring(8);
        let route = token::open(testbed.keyring(), ufrag.as_bytes()).expect("our token");
        let ufrag = token::mint(keys.active(), &route);
        let password = token::ice_password(&keys, ufrag.as_bytes()).expect("a password");
        check_with(ufrag.as_str(), password.as_bytes())
    };
    let mut corrupt = valid.clone();
    corrupt[30] ^= 1;
    let mut no_username = Vec::new();
    binding_request(
        &mut no_username,
        *b"transaction!",
        "",
        password.as_bytes(),
        1,
        Role::Controlled(1),
    );
    let mut allocate = valid.clone();
    allocate[1] = 3;

    let cases: Vec<(Vec<u8>, &str)> = vec![
        (vec![], "empty"),
        (vec![7, 1, 2, 3], "unknown_class"),
        (vec![0x47; 300], "unknown_class"),
        (vec![0; 3], "stun_malformed"),
        (vec![1; 1_000], "stun_malformed"),
        (allocate, "stun_method"),
        (no_username, "stun_no_ufrag"),
        (check_with("short", password.as_bytes()), "ufrag_length"),
        (
            check_with(&forged_ufrag, password.as_bytes()),
            "ufrag_forged",
        ),
        (other_fleet, "ufrag_forged"),
        (
            check_with(ufrag.as_str(), b"another password"),
            "stun_integrity",
        ),
        (corrupt, "stun_fingerprint"),
        (
            check_for(&testbed, 2, &owner.address().to_string()),
            "foreign_cluster",
        ),
        (check_for(&testbed, 1, "192.0.2.1:5000"), "owner_outside"),
        (dtls(), "no_flow_dtls"),
        (rtp(1), "no_flow_rtp"),
        (stun_response(), "no_flow_stun"),
        (vec![0x80; 5_000], "oversize"),
    ];
    let mut expected = std::collections::BTreeMap::new();
    for (packet, reason) in &cases {
        client.send(testbed.public(0), packet);
        let count = expected.entry(*reason).or_insert(0);
        *count += 1;
        relay.wait_drops(reason, *count);
    }
    assert_eq!(
        relay.metric("drops_total", None),
        cases.len() as u64,
        "each counted once"
    );
    assert_eq!(relay.metric("flows", None), 0, "no state without proof");
    assert!(client.is_empty(), "nothing was answered");
    assert!(owner.is_empty(), "nothing went to the owner");

    // And after all that it still serves.
    client.send(testbed.public(0), &valid);
    assert_eq!(owner.receive_one().2, valid);
    relay.stop();
}

#[test]
fn many_empty_datagrams_do_not_end_the_receive() {
    let testbed = Testbed::new();
    let relay = testbed.relay(&[]);
    let owner = Owner::bind(testbed.owner_address(0));
    let client = testbed.client(0);
    // An empty datagram ends a multishot receive, here again and again in the middle of others.
    for _ in 0..200 {
        client.send(testbed.public(0), &[]);
        client.send(testbed.public(0), &rtp(0));
    }
    relay.wait_drops("empty", 200);
    relay.wait_drops("no_flow_rtp", 200);
    client.send(testbed.public(0), &testbed.check(owner.address(), 0, 1));
    owner.receive_one();
    relay.stop();
}

#[test]
fn clients_inside_the_internal_networks_are_not_served() {
    let testbed = Testbed::new();
    let relay = testbed.relay(&[]);
    let mut owner = Owner::bind(testbed.owner_address(0));
    let inside = Client::new(std::net::SocketAddr::new(testbed.ip(100), 0));
    inside.send(testbed.public(0), &testbed.check(owner.address(), 0, 1));
    relay.wait_drops("client_inside", 1);
    owner.send(
        testbed.relay_internal(0),
        &[(record(inside.address(), 0, 1), &rtp(1))],
    );
    relay.wait_drops("record_client_inside", 1);
    assert!(inside.is_empty());
    relay.stop();
}

#[test]
fn internal_datagrams_that_do_not_verify_are_dropped() {
    let testbed = Testbed::new();
    let relay = testbed.relay(&[]);
    let mut owner = Owner::bind(testbed.owner_address(0));
    let client = testbed.client(0);
    let to = testbed.relay_internal(0);
    let one = |owner: &mut Owner| owner.datagram(&[(record(client.address(), 0, 1), &rtp(1))]);
    let send = |datagram: &[u8]| owner_socket_send(&testbed, datagram);

    let mut bad_tag = one(&mut owner);
    bad_tag[20] ^= 1;
    send(&bad_tag);
    relay.wait_drops("trunk_tag", 1);

    let mut altered = one(&mut owner);
    altered[24 + 7] ^= 1;
    send(&altered);
    relay.wait_drops("trunk_tag", 2);

    send(&[]);
    send(&[0; 30]);
    relay.wait_drops("trunk_length", 2);
    send(&[0; 60]);
    relay.wait_drops("trunk_magic", 1);

    let mut cut = one(&mut owner);
    cut.pop();
    send(&cut);
    relay.wait_drops("record_malformed", 1);

    let foreign = {
        let mut other = Owner::bind(testbed.owner_address(1));
        other.set_keyring(keyring(8));
        one(&mut other)
    };
    send(&foreign);
    relay.wait_drops("trunk_tag", 3);

    // Not a byte of all that reached the client; a good one does, once.
    assert!(client.is_empty());
    let good = one(&mut owner);
    owner.socket.send_to(&good, to).expect("sent");
    assert_eq!(client.receive().1, rtp(1));
    owner.socket.send_to(&good, to).expect("sent");
    relay.wait_drops("trunk_replay", 1);
    assert!(client.is_empty(), "a replay is not passed on");
    relay.stop();
}

/// Sends a datagram to the relay's internal socket from an internal address.
fn owner_socket_send(testbed: &Testbed, datagram: &[u8]) {
    let socket = std::net::UdpSocket::bind((testbed.ip(50), 0)).expect("a socket");
    socket
        .send_to(datagram, testbed.relay_internal(0))
        .expect("sent");
}

#[test]
fn internal_datagrams_from_outside_of_the_internal_networks_are_dropped() {
    let testbed = Testbed::new();
    let relay = testbed.relay(&[]);
    let client = testbed.client(0);
    let outside = std::net::UdpSocket::bind((testbed.ip(220), 0)).expect("a socket");
    let mut owner = Owner::with_socket(outside, 0);
    owner.send(
        testbed.relay_internal(0),
        &[(record(client.address(), 0, 1), &rtp(1))],
    );
    relay.wait_drops("trunk_source", 1);
    assert!(client.is_empty());
    relay.stop();
}

#[test]
fn records_that_name_what_the_relay_does_not_serve_are_dropped() {
    let testbed = Testbed::new();
    let relay = testbed.relay(&[]);
    let mut owner = Owner::bind(testbed.owner_address(0));
    let client = testbed.client(0);
    let to = testbed.relay_internal(0);
    let good = record(client.address(), 0, 1);
    let packet = rtp(1);
    let cases: [(RecordHeader, &str); 4] = [
        (record(client.address(), 3, 1), "record_ingress"),
        (RecordHeader { tcp: true, ..good }, "record_ingress"),
        (
            RecordHeader {
                owner: Some(OwnerAddr::new(owner.address())),
                ..good
            },
            "record_relayed",
        ),
        (
            RecordHeader {
                kind: RecordKind::Keepalive,
                ..good
            },
            "record_keepalive",
        ),
    ];
    for (header, _) in &cases {
        owner.send(to, &[(*header, &packet), (good, &packet)]);
        assert_eq!(
            client.receive().1,
            packet,
            "the good record beside it goes on"
        );
    }
    relay.wait_drops("record_ingress", 2);
    relay.wait_drops("record_relayed", 1);
    relay.wait_drops("record_keepalive", 1);
    assert!(client.is_empty());
    relay.stop();
}

#[test]
fn a_client_that_is_gone_harms_nobody() {
    let testbed = Testbed::new();
    let relay = testbed.relay(&[]);
    let mut owner = Owner::bind(testbed.owner_address(0));
    let client = testbed.client(0);
    let gone = testbed.client(1).address();
    // The kernel answers each of these with an ICMP "port unreachable" to the relay's public socket.
    for number in 0..50 {
        owner.send(
            testbed.relay_internal(0),
            &[
                (record(gone, 0, 2), &rtp(number)[..]),
                (record(client.address(), 0, 1), &rtp(number)[..]),
            ],
        );
        assert_eq!(client.receive().1, rtp(number));
    }
    client.send(testbed.public(0), &testbed.check(owner.address(), 0, 1));
    owner.receive_one();
    // Nor does an owner that is gone: its port answers the same way.
    let lost = testbed.check(testbed.owner_address(3), 0, 9);
    let other = testbed.client(2);
    for _ in 0..50 {
        other.send(testbed.public(0), &lost);
        client.send(testbed.public(0), &rtp(1));
        owner.receive_one();
    }
    relay.stop();
}
