//! What the pump is loaded with: calls of its own cluster and of another one, strangers, and those who mean no good.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use firsthop_relay_core::PeerList;
use firsthop_shared::address::{BootId, ClusterId, Networks, OwnerAddr};
use firsthop_shared::fleet::Fleet;
use firsthop_shared::trunk::{RecordHeader, RecordKind};

use crate::testbed::owner::{Arrived, Owner, record};
use crate::testbed::redis::Redis;
use crate::testbed::{Client, Testbed, check_with, rtp, until};

pub(super) const CLIENTS: u8 = 100;
pub(super) const ROUNDS: u32 = 50;

/// Clients with a call in another cluster, and as many clients there with a call here.
pub(super) const NEIGHBOURS: u8 = 20;

/// Rounds in which clients send checks too.
pub(super) const CHECKED_ROUNDS: u32 = 8;

/// Calls whose packets go up to an owner, and come back down.
pub(super) struct Calls {
    relay: SocketAddr,
    owner: Owner,
    /// Whether the owner proves each client's address by what it sends.
    proven: bool,
    /// With the check of each one's session.
    clients: Vec<(Client, Vec<u8>)>,
    neighbour: Neighbour,
}

/// A relay of another cluster, as the core sees it: it leads to an owner there, and has clients whose owner is here.
pub(super) struct Neighbour {
    core: SocketAddr,
    /// What it sends down, for the owner in its cluster, and what it receives.
    down: Owner,
    /// What it sends up, for its clients.
    up: Owner,
    /// Clients of the core with a call in that cluster, and each one's check.
    away: Vec<(Client, Vec<u8>)>,
    /// Records of its own clients, for an owner here.
    clients: Vec<RecordHeader>,
}

impl Neighbour {
    fn address(testbed: &Testbed) -> SocketAddr {
        SocketAddr::new(testbed.ip(2), 4000)
    }

    /// The list that the core has of other clusters' relays.
    pub(super) fn list(testbed: &Testbed, internal: &Networks) -> Arc<PeerList> {
        let text = format!(
            "[[cluster]]\nid = 1\nname = \"here\"\n[[cluster]]\nid = 2\nname = \"there\"
             relays = [{{ address = \"{}\", cores = 1 }}]\n[[ingress]]\nid = 0\nipv4 = \"{}\"\n",
            Self::address(testbed).ip(),
            testbed.public(0)
        );
        let fleet = Fleet::parse(&text).expect("a fleet");
        Arc::new(PeerList::new(&fleet, ClusterId(1), internal).0)
    }

    /// Its clients' owner is `here`, of this shard.
    fn new(testbed: &Testbed, here: SocketAddr, shard: u8) -> Self {
        let socket = UdpSocket::bind(Self::address(testbed)).expect("its address");
        let second = socket.try_clone().expect("a second handle");
        let boot = 0x0bad_0000 + u32::from(shard);
        let there = testbed.owner_address(9);
        let away = (0..NEIGHBOURS).map(|session| {
            let check = testbed.check_in(2, there, shard, 1_000 + u32::from(session));
            (testbed.client(session), check)
        });
        let clients = (0..NEIGHBOURS).map(|session| RecordHeader {
            owner: Some(OwnerAddr::new(here)),
            ..record(
                SocketAddr::new(testbed.ip(250), 20_000 + u16::from(session)),
                1,
                2_000 + u32::from(session),
            )
        });
        Self {
            core: testbed.relay_internal(0),
            away: away.collect(),
            clients: clients.collect(),
            down: Owner::with_socket(socket, shard).with_boot(BootId::of_owner(boot)),
            up: Owner::with_socket(second, shard).with_boot(BootId::of_relay(boot)),
        }
    }

    /// Receives as many packets. Answers what it receives, when it shall, and questions in any case.
    fn receive(&mut self, packets: usize, answered: bool) {
        let mut missing = packets;
        while missing > 0 {
            let arrived = self.down.receive();
            let question = arrived.records[0].0.kind == RecordKind::Keepalive;
            if !question {
                missing -= arrived.records.len();
            }
            if question || answered {
                answer(&mut self.down, &arrived, false);
            }
        }
    }

    /// Each client of the core sends a packet to the other cluster, and receives it again; then each client there to here.
    fn exchange(
        &mut self,
        relay: SocketAddr,
        owner: &mut Owner,
        packet: impl Fn(&[u8]) -> Vec<u8>,
    ) {
        for (client, check) in &self.away {
            client.send(relay, &packet(check));
        }
        self.receive(self.away.len(), true);
        for (client, _) in &self.away {
            client.receive();
        }
        let packet = rtp(3);
        let records: Vec<_> = self
            .clients
            .iter()
            .map(|header| (*header, &packet[..]))
            .collect();
        self.up.send(self.core, &records);
        answer_all(owner, records.len(), false);
        self.receive(records.len(), false);
    }
}

/// Sends what arrived back to where it came from, which is a proof when it says so.
fn answer(owner: &mut Owner, arrived: &Arrived, proven: bool) {
    let records: Vec<_> = arrived
        .records
        .iter()
        .map(|(header, payload)| (RecordHeader { proven, ..*header }, &payload[..]))
        .collect();
    owner.send(arrived.from, &records);
}

/// Receives so many records at an owner, and sends them back.
fn answer_all(owner: &mut Owner, records: usize, proven: bool) {
    let mut missing = records;
    while missing > 0 {
        let arrived = owner.receive();
        missing -= arrived.records.len();
        answer(owner, &arrived, proven);
    }
}

impl Calls {
    pub(super) fn new(testbed: &Testbed, number: u8, proven: bool) -> Self {
        let address = testbed.owner_address(number);
        let socket = UdpSocket::bind(address).expect("the owner's address");
        let client = |session: u8| {
            let check = testbed.check(address, number, u32::from(session));
            (testbed.client(session), check)
        };
        Self {
            relay: testbed.public(0),
            owner: Owner::with_socket(socket, number),
            proven,
            neighbour: Neighbour::new(testbed, address, number),
            clients: (0..CLIENTS).map(client).collect(),
        }
    }

    /// Each client sends a packet, and receives it again.
    fn exchange(&mut self, packet: impl Fn(&[u8]) -> Vec<u8>) {
        let proven = self.proven;
        for (client, check) in &self.clients {
            client.send(self.relay, &packet(check));
        }
        answer_all(&mut self.owner, self.clients.len(), proven);
        for (client, _) in &self.clients {
            client.receive();
        }
        self.neighbour.exchange(self.relay, &mut self.owner, packet);
    }

    /// The owner ends the sessions of all clients.
    pub(super) fn close(&mut self) {
        let mut hop = None;
        let mut records = Vec::new();
        for (client, _) in &self.clients {
            client.send(self.relay, &rtp(3));
            let mut arrived = self.owner.receive();
            hop = Some(arrived.from);
            let (header, _) = arrived.records.remove(0);
            records.push(RecordHeader {
                kind: RecordKind::Close,
                payload_len: 0,
                ..header
            });
        }
        let hop = hop.expect("packets came");
        let records: Vec<(RecordHeader, &[u8])> =
            records.iter().map(|header| (*header, &[][..])).collect();
        self.owner.send(hop, &records);
    }

    /// What a relay sees of calls, and of those who mean no good.
    pub(super) fn all_kinds(&mut self, round: u32) {
        // More checks at once than the budget of verifications has would be dropped.
        if round < CHECKED_ROUNDS {
            self.exchange(<[u8]>::to_vec);
        } else {
            self.exchange(|_| rtp(2));
        }
        self.exchange(|_| rtp(1));
        let (stranger, _) = &self.clients[0];
        let forged = check_with(&"A".repeat(42), b"no password");
        for junk in [&forged[..], &[0xff; 100], &[], &[3; 2_000]] {
            stranger.send(self.relay, junk);
        }
    }
}

/// Clients of whom the relay knows nothing, but of whom its cache may.
pub(super) struct Strangers {
    relay: SocketAddr,
    owner: Owner,
    /// Those that the cache knows; one more each round.
    known: Vec<Client>,
    next: usize,
}

impl Strangers {
    pub(super) fn new(testbed: &Testbed, redis: &Redis) -> Self {
        let owner = Owner::bind(testbed.owner_address(9));
        let soon = Some(Duration::from_millis(300));
        owner.socket.set_read_timeout(soon).expect("a time-out");
        let known = (0..ROUNDS).map(|_| testbed.client(120)).collect();
        let strangers = Self {
            relay: testbed.public(0),
            owner,
            known,
            next: 0,
        };
        for client in &strangers.known {
            let key = format!("firsthop:flow:0:udp:{}", client.address());
            redis.set(&key, &format!("1 1 {} 0 7 0", strangers.owner.address()));
        }
        strangers
    }

    /// The first packets of two clients: one's find their way, the other's wait in vain.
    pub(super) fn come(&mut self) {
        let known = &self.known[self.next];
        self.next += 1;
        let unknown = Client::new(SocketAddr::new(known.address().ip(), 0));
        for number in 0..4 {
            unknown.send(self.relay, &rtp(number));
        }
        // The cache may be late on a machine without time for it. Then the next packet comes through.
        until("a known client's packet arrives", || {
            known.send(self.relay, &rtp(1));
            self.owner.try_receive().ok()
        });
    }
}
