//! What a relay takes from others, and what it does not: from real sockets, with the right key.

use std::net::{SocketAddr, UdpSocket};

use firsthop_shared::address::{BootId, FlowHandle, OwnerAddr, ShardId};
use firsthop_shared::limits::TRUNK_DATAGRAM_MAX;
use firsthop_shared::trunk::{self, DatagramBuilder, RecordHeader, RecordKind};

use super::{FIRST, SOCKET, World, proven};
use crate::testbed::owner::record;
use crate::testbed::{PATIENCE, receive_from, rtp, rtp_number};

/// A relay of the first cluster that is only a socket: it sends what a relay would, and what none would.
struct Impostor<'a> {
    socket: UdpSocket,
    world: &'a World,
    /// The core that it speaks to.
    to: SocketAddr,
    sequence: u32,
}

impl<'a> Impostor<'a> {
    fn at(world: &'a World, address: SocketAddr, to: SocketAddr) -> Self {
        let socket = UdpSocket::bind(address).expect("an address of the internal network");
        socket.set_read_timeout(Some(PATIENCE)).expect("a time-out");
        Self {
            socket,
            world,
            to,
            sequence: 0,
        }
    }

    fn send(&mut self, records: &[(RecordHeader, &[u8])]) {
        let mut builder = DatagramBuilder::new(TRUNK_DATAGRAM_MAX);
        for (header, payload) in records {
            assert!(builder.push(header, payload));
        }
        self.sequence += 1;
        let boot = BootId::of_relay(u32::from(
            self.socket.local_addr().expect("its address").port(),
        ));
        let key = self.world.testbed.keyring().active();
        let bytes = builder.finish(key, ShardId(0), boot, self.sequence);
        self.socket.send_to(bytes, self.to).expect("sent");
    }

    /// The next datagram: whether it goes down, and its records.
    fn receive(&self) -> (bool, Vec<(RecordHeader, Vec<u8>)>) {
        let mut buffer = [0; TRUNK_DATAGRAM_MAX];
        let (len, from) = receive_from(&self.socket, &mut buffer).expect("a datagram");
        assert_eq!(from, self.to);
        let datagram =
            trunk::open(self.world.testbed.keyring(), &buffer[..len]).expect("it verifies");
        let records = datagram.records();
        let records = records.map(|record| (record.header, record.payload.to_vec()));
        (datagram.header.boot.is_owner(), records.collect())
    }
}

#[test]
fn a_cluster_relay_answers_and_serves_the_relays_of_its_fleet_and_nobody_else() {
    let world = World::new();
    let relay = world.cluster_relay(FIRST, &[]);
    let mut owner = world.owner();
    let client: SocketAddr = SocketAddr::new(world.testbed.ip(140), 40_000);
    let packet = RecordHeader {
        handle: FlowHandle(0x0102_0304),
        owner: Some(OwnerAddr::new(owner.address())),
        ..record(client, 0, 7)
    };
    let keepalive = RecordHeader {
        kind: RecordKind::Keepalive,
        owner: None,
        ..packet
    };

    // From an address that is inside and in no list.
    let mut stranger = Impostor::at(
        &world,
        SocketAddr::new(world.testbed.ip(7), 4000),
        world.internal(FIRST, 0),
    );
    stranger.send(&[(keepalive, b"are you there?")]);
    stranger.send(&[(packet, &rtp(1))]);
    relay.wait_drops("peer_unknown", 2);

    let mut peer = Impostor::at(&world, world.internal(SOCKET, 0), world.internal(FIRST, 0));
    peer.send(&[(keepalive, b"are you there?")]);
    let (down, records) = peer.receive();
    assert!(down, "an answer is no question");
    assert_eq!(records.len(), 1);
    assert_eq!(records[0].0.kind, RecordKind::Keepalive);
    assert_eq!(records[0].1, b"are you there?");
    // One answer to a datagram, however often it asks.
    peer.send(&[(keepalive, b"a"), (keepalive, b"b"), (keepalive, b"c")]);
    assert_eq!(peer.receive().1[0].1, b"a");
    relay.wait_drops("record_keepalive", 2);

    let owned_by = |address: SocketAddr| RecordHeader {
        owner: Some(OwnerAddr::new(address)),
        ..packet
    };
    for (header, reason) in [
        // Outside of the internal networks; relays of either cluster; none at all.
        (
            owned_by(SocketAddr::new(world.testbed.ip(150), 5000)),
            "record_owner_outside",
        ),
        (owned_by(world.internal(1, 0)), "record_loop"),
        (owned_by(world.internal(FIRST, 0)), "record_loop"),
        (
            RecordHeader {
                owner: None,
                ..packet
            },
            "record_no_owner",
        ),
    ] {
        let before = relay.drops(reason);
        peer.send(&[(header, &rtp(1))]);
        relay.wait_drops(reason, before + 1);
    }
    assert!(owner.is_empty());

    // What it may send arrives, and comes back with its own handle and the owner's address.
    peer.send(&[(packet, &rtp(2))]);
    let (hop, header, payload) = owner.receive_one();
    assert_eq!(rtp_number(&payload), 2);
    assert!(header.owner.is_none() && header.handle != packet.handle);
    owner.send(hop, &[(proven(&header), &rtp(3))]);
    let (down, records) = peer.receive();
    assert!(down);
    let expected = RecordHeader {
        proven: true,
        payload_len: 92,
        ..packet
    };
    assert_eq!(records, vec![(expected, rtp(3))]);
    relay.stop();
}

#[test]
fn a_relay_for_clients_alone_takes_nothing_from_others_and_serves_its_own() {
    let world = World::new();
    let ingress = world.testbed.relay(&[("--role", "ingress".to_owned())]);
    let mut owner = world.owner();
    let client = world.testbed.client(0);
    // A socket where the fleet has the other cluster's relay.
    let mut peer = Impostor::at(&world, world.internal(FIRST, 0), world.internal(1, 0));
    let packet = RecordHeader {
        owner: Some(OwnerAddr::new(owner.address())),
        ..record(client.address(), 0, 7)
    };
    let keepalive = RecordHeader {
        kind: RecordKind::Keepalive,
        owner: None,
        ..packet
    };
    peer.send(&[(keepalive, b"are you there?")]);
    peer.send(&[(packet, &rtp(1))]);
    ingress.wait_drops("peer_role", 2);
    assert!(owner.is_empty());

    let public = world.testbed.public(0);
    client.send(public, &world.testbed.check(owner.address(), 0, 8));
    let (hop, header, _) = owner.receive_one();
    assert_eq!(hop, world.internal(1, 0));
    owner.send(hop, &[(proven(&header), &rtp(2))]);
    assert_eq!(client.receive(), (public, rtp(2)));

    // And what is for the other cluster goes there, behind questions that it asks; an answer was not among them.
    client.send(public, &world.check(&owner, 9));
    loop {
        let (down, records) = peer.receive();
        assert!(!down);
        if records[0].0.kind == RecordKind::Packet {
            let named = records[0].0.owner;
            assert_eq!(named, Some(OwnerAddr::new(owner.address())));
            break;
        }
    }
    ingress.stop();
}

#[test]
fn a_relay_that_the_fleet_lists_with_other_cores_says_so() {
    let world = World::new();
    world.write_fleet(3, &[FIRST]);
    let relay = world.cluster_relay(FIRST, &[]);
    let log = relay.log();
    assert!(
        log.contains("WARN") && log.contains("number of cores"),
        "{log}"
    );
    relay.kill();
    // A relay of another cluster that is out of reach.
    let others = "[[cluster]]\nid = 2\nname = \"there\"\nrelays = [{ address = \"192.0.2.1\", cores = 1 }]\n";
    world.testbed.write_fleet("", others);
    let ingress = world.ingress();
    let log = ingress.log();
    assert!(log.contains("WARN") && log.contains("192.0.2.1"), "{log}");
    ingress.kill();
    // One that is in no list, so that others would refuse what it sends.
    let others = format!(
        "[[cluster]]\nid = 2\nname = \"there\"\nrelays = [{{ address = \"{}\", cores = 1 }}]\n",
        world.testbed.ip(FIRST)
    );
    world.testbed.write_fleet("", &others);
    let ingress = world.ingress();
    let log = ingress.log();
    assert!(
        log.contains("WARN") && log.contains("does not list"),
        "{log}"
    );
    ingress.kill();
}
