//! Relays, owners and clients on a network without sockets: datagrams are bytes that travel by address.
//!
//! Each relay core goes the whole way, with headers written in place and datagrams assembled from their pieces. The network
//! counts what every relay got and sent: none may send more records than it was given.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use firsthop_relay_core::{
    BufferId, DownVerdict, Inbound, IngressPath, Keepalive, Micros, Onward, PeerList, Reason,
    Router, RouterConfig, Seeds, Transport, Verdict,
};
use firsthop_shared::address::{BootId, ClientAddr, ClusterId, Hop, IngressId, OwnerAddr, ShardId};
use firsthop_shared::fleet::Fleet;
use firsthop_shared::keyring::DataKeyring;
use firsthop_shared::limits::{TRUNK_DATAGRAM_MAX, TRUNK_RECORDS_MAX};
use firsthop_shared::trunk::{self, DatagramBuilder, RECORD_HEADER_MAX, RecordHeader, RecordKind};

use crate::world::{internal_networks, keyring};

const HEADROOM: usize = 80;

/// Two clusters. The first has two relays of two cores and one core; the second has two of two and three cores, with seeds.
pub(crate) const FLEET: &str = "
[[cluster]]
id = 1
name = \"here\"
relays = [{ address = \"10.1.0.1\", cores = 2 }, { address = \"10.1.0.2\", cores = 1 }]
[[cluster]]
id = 2
name = \"there\"
relays = [{ address = \"10.2.0.1\", cores = 2 }, { address = \"10.2.0.2\", port = 4100, cores = 3, seed = 9 }]
[[ingress]]
id = 0
ipv4 = \"198.51.100.1:3478\"
ipv6 = \"[2001:db8::1]:3478\"
[[ingress]]
id = 1
ipv4 = \"198.51.100.2:3478\"
";

pub(crate) fn hop(text: &str) -> Hop {
    Hop::new(text.parse().expect("an address"))
}

pub(crate) fn fleet(text: &str) -> Fleet {
    Fleet::parse(text).expect("a fleet")
}

/// One core of a relay.
pub(crate) struct Node {
    pub(crate) router: Router,
    frames: Vec<Vec<u8>>,
    references: Vec<u8>,
    free: Vec<u32>,
    /// Records and client packets that it was given, and records that it sent on or packets that it sent to clients.
    pub(crate) given: u64,
    pub(crate) sent: u64,
}

/// What an owner's worker got.
#[derive(Clone, Debug)]
pub(crate) struct AtOwner {
    pub(crate) owner: OwnerAddr,
    pub(crate) shard: ShardId,
    pub(crate) from: Hop,
    pub(crate) header: RecordHeader,
    pub(crate) payload: Vec<u8>,
}

/// What a client got.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct AtClient {
    pub(crate) relay: Hop,
    pub(crate) ingress: u8,
    pub(crate) client: ClientAddr,
    pub(crate) payload: Vec<u8>,
}

/// All of them, and what is on its way.
pub(crate) struct Net {
    pub(crate) now: Micros,
    pub(crate) nodes: BTreeMap<Hop, Node>,
    /// Relays whose datagrams are lost, either way.
    pub(crate) dead: BTreeSet<Hop>,
    keys: Arc<DataKeyring>,
    wire: VecDeque<(Hop, Hop, Vec<u8>)>,
    builder: DatagramBuilder,
    sequence: u32,
    boots: u64,
}

impl Node {
    fn frame(&mut self, bytes: &[u8], behind: usize) -> u32 {
        let id = self.free.pop().unwrap_or_else(|| {
            self.frames.push(Vec::new());
            self.references.push(0);
            (self.frames.len() - 1) as u32
        });
        let frame = &mut self.frames[id as usize];
        frame.clear();
        frame.resize(HEADROOM, 0xee);
        frame.extend_from_slice(bytes);
        frame.resize(HEADROOM + bytes.len() + behind, 0xee);
        id
    }

    fn hold(&mut self, id: u32, references: u8) {
        self.references[id as usize] = references;
        if references == 0 {
            self.free.push(id);
        }
    }

    fn datagrams(&mut self, now: Micros) -> Vec<(Hop, Vec<u8>)> {
        self.router.flush(now, true);
        let mut out = Vec::new();
        while let Some(datagram) = self.router.take_ready() {
            let mut bytes = datagram.header.to_vec();
            for piece in self.router.pieces(&datagram) {
                let frame = &self.frames[piece.buffer.0 as usize];
                bytes.extend_from_slice(&frame[piece.side.range()]);
                bytes.extend_from_slice(&frame[piece.body.range()]);
                let references = &mut self.references[piece.buffer.0 as usize];
                *references -= 1;
                if *references == 0 {
                    self.free.push(piece.buffer.0);
                }
            }
            assert_eq!(bytes.len(), usize::from(datagram.len));
            self.sent += u64::from(datagram.records);
            out.push((Hop::new(datagram.destination.get()), bytes));
            self.router.release(datagram);
        }
        assert_eq!(self.free.len(), self.frames.len(), "every buffer is back");
        out
    }
}

impl Net {
    pub(crate) fn new() -> Self {
        Self {
            now: Micros(1_000_000),
            nodes: BTreeMap::new(),
            dead: BTreeSet::new(),
            keys: keyring(&[2, 1]),
            wire: VecDeque::new(),
            builder: DatagramBuilder::new(TRUNK_DATAGRAM_MAX),
            sequence: 0,
            boots: 0,
        }
    }

    /// Both clusters' relays by [`FLEET`]. The first relay of the first cluster serves ingress 0, the second one 0 and 1; the
    /// second cluster serves none.
    pub(crate) fn world() -> Self {
        let mut net = Self::new();
        for at in ["10.1.0.1:4000", "10.1.0.1:4001"] {
            net.start(at, 1, &[0], FLEET);
        }
        net.start("10.1.0.2:4000", 1, &[0, 1], FLEET);
        for at in [
            "10.2.0.1:4000",
            "10.2.0.1:4001",
            "10.2.0.2:4100",
            "10.2.0.2:4101",
            "10.2.0.2:4102",
        ] {
            net.start(at, 2, &[], FLEET);
        }
        net
    }

    /// Starts a core, or starts it anew: it has forgotten everything.
    pub(crate) fn start(&mut self, at: &str, cluster: u16, ingresses: &[u8], fleet_text: &str) {
        self.start_with(at, cluster, ingresses, fleet_text, |_| {});
    }

    pub(crate) fn start_with(
        &mut self,
        at: &str,
        cluster: u16,
        ingresses: &[u8],
        fleet_text: &str,
        change: impl FnOnce(&mut RouterConfig),
    ) {
        self.boots += 1;
        let seeds = Seeds {
            hash: [self.boots, 12],
            generation: (self.boots * 77) as u16,
            boot: self.boots,
        };
        let mut config = RouterConfig::new(ClusterId(cluster), internal_networks(), seeds);
        for id in ingresses {
            for ipv6 in [false, true] {
                config.paths.push(IngressPath {
                    ingress: IngressId(*id),
                    transport: Transport::Udp,
                    ipv6,
                });
            }
        }
        config.flows = 64;
        config.trunks = 64;
        config.pending = 256;
        config.peers = peers(fleet_text, cluster);
        change(&mut config);
        let router = Router::new(&config, Arc::clone(&self.keys), self.now).expect("valid");
        let node = Node {
            router,
            frames: Vec::new(),
            references: Vec::new(),
            free: Vec::new(),
            given: 0,
            sent: 0,
        };
        self.nodes.insert(hop(at), node);
    }

    /// A core hands its flows over to a successor, which takes its place.
    pub(crate) fn hand_over(&mut self, at: &str, cluster: u16, ingresses: &[u8]) {
        let (now, mut file) = (self.now, Vec::new());
        self.node(at)
            .router
            .export(now, &mut file)
            .expect("written");
        self.start(at, cluster, ingresses, FLEET);
        let successor = &mut self.node(at).router;
        let inherited = successor.import(now, &mut &file[..]).expect("read");
        assert_eq!(inherited.left_out, 0);
    }

    pub(crate) fn node(&mut self, at: &str) -> &mut Node {
        self.nodes.get_mut(&hop(at)).expect("a relay core")
    }

    pub(crate) fn drops(&self, at: &str, reason: Reason) -> u64 {
        self.nodes[&hop(at)].router.counters().drops(reason)
    }

    /// A client's packet to a relay core. Returns why it was dropped, if it was.
    pub(crate) fn client(
        &mut self,
        at: &str,
        ingress: u8,
        client: ClientAddr,
        packet: &[u8],
    ) -> Option<Reason> {
        let now = self.now;
        let node = self.node(at);
        node.given += 2;
        let source = node
            .router
            .source(IngressId(ingress), Transport::Udp, client);
        match node.router.uplink(now, &source, packet) {
            Verdict::Forward(forward) => {
                let id = node.frame(packet, RECORD_HEADER_MAX);
                let payload = HEADROOM..HEADROOM + packet.len();
                let frame = &mut node.frames[id as usize];
                let records = node
                    .router
                    .pack(now, &forward, BufferId(id), frame, payload);
                node.hold(id, records);
                None
            }
            Verdict::Drop(reason) => Some(reason),
            Verdict::Unknown(_) => panic!("no relay here has a flow cache"),
        }
    }

    /// A datagram that somebody puts on the network.
    pub(crate) fn inject(&mut self, from: Hop, to: Hop, bytes: Vec<u8>) {
        self.wire.push_back((from, to, bytes));
    }

    /// Makes a datagram with records under a boot id.
    pub(crate) fn datagram(
        &mut self,
        boot: BootId,
        shard: ShardId,
        records: &[(RecordHeader, &[u8])],
    ) -> Vec<u8> {
        self.builder.clear();
        for (header, payload) in records {
            assert!(self.builder.push(header, payload));
        }
        self.sequence += 1;
        self.builder
            .finish(self.keys.active(), shard, boot, self.sequence)
            .to_vec()
    }

    /// An owner answers what it got, down the hop by which that came.
    pub(crate) fn reply(&mut self, to: &AtOwner, kind: RecordKind, proven: bool, payload: &[u8]) {
        let header = RecordHeader {
            kind,
            proven,
            ..to.header
        };
        let boot = BootId::of_owner(u32::from(to.owner.port()) + 7 * u32::from(to.shard.0));
        let bytes = self.datagram(boot, to.shard, &[(header, payload)]);
        self.inject(Hop::new(to.owner.get()), to.from, bytes);
    }

    /// Delivers everything that is on its way, and what comes of that, until nothing moves any more.
    pub(crate) fn run(&mut self) -> (Vec<AtOwner>, Vec<AtClient>) {
        let (mut owners, mut clients) = (Vec::new(), Vec::new());
        for round in 0.. {
            assert!(round < 16, "something goes round in circles");
            let mut sent = Vec::new();
            for (at, node) in &mut self.nodes {
                for (to, bytes) in node.datagrams(self.now) {
                    sent.push((*at, to, bytes));
                }
            }
            self.wire.extend(sent);
            if self.wire.is_empty() {
                break;
            }
            for (from, to, bytes) in std::mem::take(&mut self.wire) {
                if self.dead.contains(&from) || self.dead.contains(&to) {
                    continue;
                }
                if self.nodes.contains_key(&to) {
                    clients.extend(self.arrive(from, to, &bytes));
                } else {
                    owners.extend(self.at_owner(from, to, &bytes));
                }
            }
        }
        for (at, node) in &self.nodes {
            assert!(node.sent <= node.given, "{at} sent more than it got");
        }
        (owners, clients)
    }

    /// The one datagram that a core has to send, which is taken off the network.
    pub(crate) fn take_sent(&mut self, at: &str, now: Micros) -> Vec<u8> {
        let mut sent = self.node(at).datagrams(now);
        assert_eq!(sent.len(), 1);
        sent.remove(0).1
    }

    /// Delivers what is on its way to one core, and nothing further.
    pub(crate) fn deliver_to(&mut self, at: &str) {
        for (from, to, bytes) in std::mem::take(&mut self.wire) {
            assert_eq!(to, hop(at));
            assert!(self.arrive(from, to, &bytes).is_empty());
        }
    }

    /// Lets time pass in turns of ten milliseconds, in which relays ask each other.
    pub(crate) fn pass(&mut self, millis: u64) {
        for _ in 0..millis.div_ceil(10) {
            self.now = self.now.after(Micros(10_000));
            let mut asked = Vec::new();
            for (at, node) in &mut self.nodes {
                node.router.watch_peers(self.now);
                while let Some(question) = node.router.next_question(self.now) {
                    asked.push((*at, question));
                }
                while node.router.expire(self.now, 1_000) {}
            }
            for (at, question) in asked {
                self.inject(at, question.to, question.bytes().to_vec());
            }
            let (owners, clients) = self.run();
            assert!(owners.is_empty() && clients.is_empty());
        }
    }

    /// Nothing is left at any relay: no flow, no trunk.
    pub(crate) fn assert_clean(&self) {
        for (at, node) in &self.nodes {
            assert_eq!(node.router.flow_counts().flows, 0, "{at}");
            assert_eq!(node.router.trunk_count(), 0, "{at}");
        }
    }

    /// All fall silent for longer than a flow lasts, and nothing is left.
    pub(crate) fn end(&mut self) {
        self.pass(40_000);
        self.assert_clean();
    }

    fn at_owner(&self, from: Hop, to: Hop, bytes: &[u8]) -> Vec<AtOwner> {
        let datagram = trunk::open(&self.keys, bytes).expect("the owner opens it");
        assert!(!datagram.header.boot.is_owner(), "a relay wrote it");
        datagram
            .records()
            .map(|record| AtOwner {
                owner: OwnerAddr::new(to.get()),
                shard: datagram.header.shard,
                from,
                header: record.header,
                payload: record.payload.to_vec(),
            })
            .collect()
    }

    /// A datagram reaches a relay's core, as the pump handles it.
    fn arrive(&mut self, from: Hop, to: Hop, bytes: &[u8]) -> Vec<AtClient> {
        let now = self.now;
        let node = self.nodes.get_mut(&to).expect("a relay core");
        let Ok(datagram) = node.router.open(now, from, bytes) else {
            return Vec::new();
        };
        let shard = datagram.header.shard;
        let mut passing: Vec<(Onward, std::ops::Range<usize>)> = Vec::new();
        let mut clients = Vec::new();
        let mut answer: Option<Keepalive> = None;
        for record in datagram.records() {
            node.given += 1;
            let start = HEADROOM + record.offset;
            let payload = start..start + record.payload.len();
            if !datagram.header.boot.is_owner() {
                match node.router.inbound(now, from, shard, &record.header) {
                    Inbound::Pass(way) => passing.push((way.onward(from, &record.header), payload)),
                    Inbound::Answer => answer = node.router.answer_keepalive(from, record.payload),
                    Inbound::Drop(_) => {}
                }
                continue;
            }
            if record.header.kind == RecordKind::Keepalive {
                node.router.heard(now, from, record.payload);
                continue;
            }
            match node.router.downlink(now, from, shard, &record.header) {
                DownVerdict::Pass(way) => passing.push((way.onward(from, &record.header), payload)),
                DownVerdict::Send | DownVerdict::SendAndNote(_) => {
                    node.sent += 1;
                    clients.push(AtClient {
                        relay: to,
                        ingress: record.header.ingress.0,
                        client: record.header.client,
                        payload: record.payload.to_vec(),
                    });
                }
                DownVerdict::Done | DownVerdict::Note(_) | DownVerdict::Drop(_) => {}
            }
        }
        let id = node.frame(bytes, TRUNK_RECORDS_MAX * RECORD_HEADER_MAX);
        let (mut side, mut records) = (HEADROOM + bytes.len(), 0);
        for (onward, payload) in passing {
            let frame = &mut node.frames[id as usize];
            records += u8::from(node.router.pack_onward(
                now,
                &onward,
                BufferId(id),
                frame,
                payload,
                &mut side,
            ));
        }
        node.hold(id, records);
        if let Some(answer) = answer {
            node.sent += 1;
            self.wire
                .push_back((to, answer.to, answer.bytes().to_vec()));
        }
        clients
    }
}

/// The other clusters' relays by a fleet's text.
pub(crate) fn peers(fleet_text: &str, cluster: u16) -> Arc<PeerList> {
    let (list, outside) =
        PeerList::new(&fleet(fleet_text), ClusterId(cluster), &internal_networks());
    assert!(outside.is_empty());
    Arc::new(list)
}
