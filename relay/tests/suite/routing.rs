//! Packets on their way: from a client to the owner that its token names, and back.

use crate::testbed;
use crate::testbed::owner::{Owner, record};
use crate::testbed::{Testbed, dtls, rtp, rtp_number};
use firsthop_shared::address::{ClientAddr, IngressId, SessionId, ShardId};
use firsthop_shared::trunk::{RecordHeader, RecordKind};

#[test]
fn the_first_packet_goes_to_the_owner_that_its_token_names() {
    let testbed = Testbed::new();
    let relay = testbed.relay(&[]);
    let owners = [
        Owner::bind(testbed.owner_address(0)),
        Owner::bind(testbed.owner_address(1)),
    ];
    let client = testbed.client(0);
    let check = testbed.check(owners[1].address(), 3, 77);
    client.send(testbed.public(0), &check);
    let mut arrived = owners[1].receive();
    assert_eq!(arrived.from, testbed.relay_internal(0));
    assert_eq!(arrived.shard, ShardId(3));
    let (header, payload) = arrived.records.remove(0);
    assert_eq!(payload, check);
    assert_eq!(
        header,
        RecordHeader {
            kind: RecordKind::Packet,
            client: ClientAddr::new(client.address()),
            tcp: false,
            proven: false,
            ingress: IngressId(0),
            session: SessionId(77),
            handle: header.handle,
            owner: None,
            payload_len: check.len() as u16,
        }
    );
    assert!(owners[0].is_empty());
    relay.stop();
}

#[test]
fn packets_without_a_token_follow_the_check() {
    let testbed = Testbed::new();
    let relay = testbed.relay(&[]);
    let owner = Owner::bind(testbed.owner_address(0));
    let client = testbed.client(0);
    client.send(testbed.public(0), &testbed.check(owner.address(), 0, 5));
    let (_, first, _) = owner.receive_one();
    for packet in [dtls(), rtp(1), testbed::stun_response()] {
        client.send(testbed.public(0), &packet);
        let (_, header, payload) = owner.receive_one();
        assert_eq!(payload, packet);
        assert_eq!(
            (header.session, header.handle),
            (first.session, first.handle)
        );
    }
    relay.stop();
}

#[test]
fn records_go_to_the_clients_they_name_several_from_one_datagram() {
    let testbed = Testbed::new();
    let relay = testbed.relay(&[]);
    let mut owner = Owner::bind(testbed.owner_address(0));
    let clients: Vec<_> = (0..5).map(|n| testbed.client(n)).collect();
    let packets: Vec<Vec<u8>> = (0..40).map(rtp).collect();
    let records: Vec<_> = packets
        .iter()
        .enumerate()
        .map(|(i, packet)| {
            (
                record(clients[i % 5].address(), 0, i as u32 % 5),
                &packet[..],
            )
        })
        .collect();
    owner.send(testbed.relay_internal(0), &records);
    for (number, client) in clients.iter().enumerate() {
        for round in 0..8 {
            let (from, packet) = client.receive();
            assert_eq!(from, testbed.public(0));
            assert_eq!(rtp_number(&packet), round * 5 + number as u32);
        }
    }
    relay.wait_metric("downlink_datagrams_total", 1);
    relay.wait_metric("client_packets_sent_total", 40);
    relay.stop();
}

#[test]
fn a_burst_is_packed_several_records_to_a_datagram() {
    let testbed = Testbed::new();
    let relay = testbed.relay(&[]);
    let owner = Owner::bind(testbed.owner_address(0));
    let clients: Vec<_> = (0..4).map(|n| testbed.client(n)).collect();
    for (session, client) in clients.iter().enumerate() {
        client.send(
            testbed.public(0),
            &testbed.check(owner.address(), 0, session as u32),
        );
        owner.receive_one();
    }
    // While the relay is stopped, the burst gathers in its socket: no timing decides how much one turn finds.
    relay.signal("STOP");
    for number in 0..64 {
        clients[number as usize % 4].send(testbed.public(0), &rtp(number));
    }
    relay.signal("CONT");
    let mut seen = Vec::new();
    let mut largest = 0;
    while seen.len() < 64 {
        let arrived = owner.receive();
        largest = largest.max(arrived.records.len());
        for (header, payload) in arrived.records {
            let number = rtp_number(&payload);
            assert_eq!(header.session, SessionId(number % 4));
            seen.push(number);
        }
    }
    assert_eq!(
        seen,
        (0..64).collect::<Vec<_>>(),
        "nothing lost, nothing out of order"
    );
    assert!(largest >= 8, "the largest datagram had {largest} records");
    relay.stop();
}

#[test]
fn equal_packets_in_a_row_to_one_client_arrive_one_by_one_and_in_order() {
    let testbed = Testbed::new();
    let relay = testbed.relay(&[]);
    let mut owner = Owner::bind(testbed.owner_address(0));
    let clients = [testbed.client(0), testbed.client(1)];
    let mut headers = Vec::new();
    for (session, client) in clients.iter().enumerate() {
        let check = testbed.check(owner.address(), 0, session as u32);
        client.send(testbed.public(0), &check);
        headers.push(owner.receive_one());
    }
    let hop = headers[0].0;
    let (first, other) = (headers[0].1, headers[1].1);
    // A train with a shorter end, one that a longer packet breaks off, and one for somebody else between them.
    let lengths = [92, 92, 92, 40, 92, 92, 120, 120, 1, 1];
    let packets: Vec<Vec<u8>> = (0u8..)
        .zip(lengths)
        .map(|(number, length)| vec![0x80 | number; length])
        .collect();
    let mut records: Vec<_> = packets.iter().map(|packet| (first, &packet[..])).collect();
    let elsewhere = rtp(7);
    records.insert(5, (other, &elsewhere));
    owner.send(hop, &records);
    for packet in &packets {
        assert_eq!(clients[0].receive(), (testbed.public(0), packet.clone()));
    }
    assert_eq!(clients[1].receive(), (testbed.public(0), elsewhere));
    relay.wait_metric("client_packets_sent_total", 11);
    assert_eq!(relay.metric("client_trains_sent_total", None), 2);
    relay.stop();
}

#[test]
fn a_packet_of_the_largest_size_passes_unchanged() {
    let testbed = Testbed::new();
    let relay = testbed.relay(&[]);
    let mut owner = Owner::bind(testbed.owner_address(0));
    let client = testbed.client(0);
    client.send(testbed.public(0), &testbed.check(owner.address(), 0, 5));
    let (hop, header, _) = owner.receive_one();
    let packet: Vec<u8> = (0..1_900)
        .map(|i| if i == 0 { 0x80 } else { i as u8 })
        .collect();
    client.send(testbed.public(0), &packet);
    assert_eq!(owner.receive_one().2, packet);
    owner.send(hop, &[(header, &packet)]);
    assert_eq!(client.receive().1, packet);
    client.send(testbed.public(0), &vec![0x80; 1_901]);
    client.send(testbed.public(0), &vec![0x80; 5_000]);
    relay.wait_drops("oversize", 2);
    relay.stop();
}

/// Fault 4: a reply that comes from another address than the one that was hit.
#[test]
fn one_client_socket_uses_two_public_addresses_and_is_answered_from_the_one_it_hit() {
    let testbed = Testbed::new();
    let listen = format!("{},{}", testbed.public(0), testbed.public(1));
    let relay = testbed.relay(&[("--listen", listen)]);
    let mut owner = Owner::bind(testbed.owner_address(0));
    let client = testbed.client(0);
    let mut handles = Vec::new();
    for ingress in [0, 1] {
        client.send(
            testbed.public(ingress),
            &testbed.check(owner.address(), 0, 5),
        );
        let (hop, header, _) = owner.receive_one();
        assert_eq!(header.ingress, IngressId(ingress));
        handles.push((hop, header));
    }
    assert_ne!(handles[0].1.handle, handles[1].1.handle, "two flows");
    for (ingress, (hop, header)) in handles.iter().enumerate().rev() {
        owner.send(*hop, &[(*header, &rtp(9))]);
        let (from, packet) = client.receive();
        assert_eq!(from, testbed.public(ingress as u8));
        assert_eq!(rtp_number(&packet), 9);
        client.send(from, &rtp(10));
        assert_eq!(owner.receive_one().1.ingress, IngressId(ingress as u8));
    }
    relay.wait_metric("flows", 2);
    relay.stop();
}

#[test]
fn an_address_that_is_advertised_under_another_gives_its_ingress() {
    let testbed = Testbed::new();
    let own = std::net::SocketAddr::new(testbed.ip(200), 7_000);
    let relay = testbed.relay(&[("--listen", format!("{own}={}", testbed.public(2)))]);
    let mut owner = Owner::bind(testbed.owner_address(0));
    let client = testbed.client(0);
    client.send(own, &testbed.check(owner.address(), 0, 5));
    let (hop, header, _) = owner.receive_one();
    assert_eq!(header.ingress, IngressId(2));
    owner.send(hop, &[(header, &rtp(1))]);
    assert_eq!(client.receive().0, own);
    relay.stop();
}

#[test]
fn ipv6_clients_are_served_from_their_own_socket() {
    let testbed = Testbed::new();
    // Only one address of IPv6 loopback exists; a port of its own keeps it apart from other runs.
    let probe = std::net::UdpSocket::bind("[::1]:0").expect("IPv6 loopback");
    let own = probe.local_addr().expect("its address");
    drop(probe);
    let listen = format!("{},{own}=[::1]:3478", testbed.public(0));
    let relay = testbed.relay(&[("--listen", listen)]);
    let mut owner = Owner::bind(testbed.owner_address(0));
    let client = testbed::Client::new("[::1]:0".parse().expect("an address"));
    client.send(own, &testbed.check(owner.address(), 0, 5));
    let (hop, header, _) = owner.receive_one();
    assert_eq!(header.client, ClientAddr::new(client.address()));
    assert_eq!(header.ingress, IngressId(9));
    owner.send(hop, &[(header, &rtp(1))]);
    let (from, packet) = client.receive();
    assert_eq!((from, rtp_number(&packet)), (own, 1));
    relay.stop();
}
