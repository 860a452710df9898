//! What the tests around the router need of a world: keyrings, calls, their packets, and a pump without sockets.
//!
//! The pump here goes the whole way: it writes headers in place, assembles each datagram from its pieces, and opens it as the
//! owner would. It fails when a datagram does not verify, is a replay, or when a receive buffer is lost or returned twice.
#![allow(
    dead_code,
    unused_imports,
    reason = "each test program uses a part of it"
)]

mod call;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use firsthop_relay_core::{
    BufferId, DownVerdict, Forward, IngressPath, Inherited, Micros, Reason, Router, RouterConfig,
    Seeds, Span, Transport, Verdict,
};
use firsthop_shared::address::{
    BootId, ClientAddr, ClusterId, FlowHandle, Hop, IngressId, KeyId, Networks, OwnerAddr, Restart,
    SessionId, ShardId,
};
use firsthop_shared::keyring::{DataKeyring, Masters};
use firsthop_shared::limits::TRUNK_DATAGRAM_MAX;
use firsthop_shared::replay::ReplayFilter;
use firsthop_shared::stun_write::{Role, binding_request, binding_success};
use firsthop_shared::token::{self, Route};
use firsthop_shared::trunk::{self, DatagramBuilder, RECORD_HEADER_MAX, RecordHeader, RecordKind};

pub(crate) use call::{Call, Requests, dtls, rtp, stun_indication, stun_response, turn_allocate};

pub(crate) const CLUSTER: ClusterId = ClusterId(1);

pub(crate) fn socket(text: &str) -> SocketAddr {
    text.parse().expect("a socket address")
}

pub(crate) fn client(text: &str) -> ClientAddr {
    ClientAddr::new(socket(text))
}

pub(crate) fn internal_networks() -> Networks {
    Networks::parse("10.0.0.0/8,fd00::/8").expect("networks")
}

/// A keyring with these of the keys 1 and 2, the last one active.
pub(crate) fn keyring(ids: &[u16]) -> Arc<DataKeyring> {
    let mut masters = Masters::new([1; 32]);
    masters.add([2; 32]).expect("room for a second key");
    let active = ids.last().expect("at least one key");
    masters.activate(*active).expect("a known key");
    for id in [1, 2] {
        if !ids.contains(&id) {
            masters.remove(id).expect("a key that is not active");
        }
    }
    Arc::new(DataKeyring::parse(&masters.data_toml()).expect("a keyring"))
}

/// A session at an owner's worker, as signaling would mint it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub(crate) struct Who {
    pub(crate) session: SessionId,
    pub(crate) owner: OwnerAddr,
    pub(crate) shard: ShardId,
}

pub(crate) fn who(session: u32, owner: &str, shard: u8) -> Who {
    Who {
        session: SessionId(session),
        owner: OwnerAddr::new(socket(owner)),
        shard: ShardId(shard),
    }
}

/// Two UDP ingresses (the second for IPv4 alone) and a TCP one.
pub(crate) fn config() -> RouterConfig {
    let seeds = Seeds {
        hash: [11, 12],
        generation: 4_090,
        boot: 13,
    };
    let mut config = RouterConfig::new(CLUSTER, internal_networks(), seeds);
    config.paths = [
        (0, Transport::Udp, false),
        (0, Transport::Udp, true),
        (1, Transport::Udp, false),
        (2, Transport::Tcp, false),
    ]
    .map(|(id, transport, ipv6)| IngressPath {
        ingress: IngressId(id),
        transport,
        ipv6,
    })
    .to_vec();
    config.flows = 64;
    config.trunks = 16;
    config.pending = 64;
    config
}

/// A record of the owner's.
pub(crate) fn record(
    kind: RecordKind,
    who: Who,
    ingress: u8,
    client: ClientAddr,
    proven: bool,
    handle: FlowHandle,
) -> RecordHeader {
    RecordHeader {
        kind,
        client,
        tcp: false,
        proven,
        ingress: IngressId(ingress),
        session: who.session,
        handle,
        owner: None,
        payload_len: 0,
    }
}

/// One record that reached an owner's worker.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Received {
    pub(crate) owner: OwnerAddr,
    pub(crate) shard: ShardId,
    pub(crate) header: RecordHeader,
    pub(crate) payload: Vec<u8>,
    /// Whether its datagram was lost on the way: it left, and nobody read it.
    pub(crate) lost: bool,
}

impl Received {
    pub(crate) fn who(&self) -> Who {
        Who {
            session: self.header.session,
            owner: self.owner,
            shard: self.shard,
        }
    }
}

const HEADROOM: usize = 64;

/// A router with a pump around it.
pub(crate) struct Relay {
    pub(crate) router: Router,
    pub(crate) now: Micros,
    frames: Vec<Vec<u8>>,
    references: Vec<u8>,
    pub(crate) free: Vec<u32>,
    /// What owners accept tags with: every key there is.
    owner_keys: Arc<DataKeyring>,
    /// What owners tag with.
    pub(crate) sender_keys: Arc<DataKeyring>,
    windows: HashMap<(OwnerAddr, ShardId), ReplayFilter>,
    builder: DatagramBuilder,
    sequence: u32,
}

impl Relay {
    pub(crate) fn new(config: &RouterConfig, keys: Arc<DataKeyring>, now: Micros) -> Self {
        Self {
            router: Router::new(config, keys, now).expect("a valid configuration"),
            now,
            frames: Vec::new(),
            references: Vec::new(),
            free: Vec::new(),
            owner_keys: keyring(&[1, 2]),
            sender_keys: keyring(&[2, 1]),
            windows: HashMap::new(),
            builder: DatagramBuilder::new(TRUNK_DATAGRAM_MAX),
            sequence: 0,
        }
    }

    /// A relay with the usual configuration and both keys.
    pub(crate) fn plain() -> Self {
        Self::new(&config(), keyring(&[2, 1]), Micros(0))
    }

    /// Another process with these settings takes over what the router leaves; the sockets, and so all the rest, stay.
    pub(crate) fn hand_over(&mut self, config: &RouterConfig, keys: Arc<DataKeyring>) -> Inherited {
        let mut file = Vec::new();
        self.router.export(self.now, &mut file).expect("written");
        let mut successor = Router::new(config, keys, self.now).expect("a valid configuration");
        let inherited = successor.import(self.now, &mut &file[..]).expect("read");
        self.router = successor;
        inherited
    }

    /// Receives a client's packet and packs it. Returns the verdict, and how many records it became.
    pub(crate) fn receive(
        &mut self,
        ingress: u8,
        transport: Transport,
        client: ClientAddr,
        packet: &[u8],
    ) -> (Verdict, u8) {
        let source = self.router.source(IngressId(ingress), transport, client);
        let verdict = self.router.uplink(self.now, &source, packet);
        let Verdict::Forward(forward) = &verdict else {
            return (verdict, 0);
        };
        let records = self.pack(forward, packet);
        (verdict, records)
    }

    /// Packs an accepted packet. Returns how many records it became.
    pub(crate) fn pack(&mut self, forward: &Forward, packet: &[u8]) -> u8 {
        let id = self.take_frame(packet);
        self.pack_frame(forward, id, packet.len())
    }

    /// Puts a packet into a frame of its own, as the kernel does.
    pub(crate) fn take_frame(&mut self, packet: &[u8]) -> u32 {
        let id = self.free.pop().unwrap_or_else(|| {
            self.frames.push(Vec::new());
            self.references.push(0);
            (self.frames.len() - 1) as u32
        });
        let frame = &mut self.frames[id as usize];
        frame.clear();
        frame.resize(HEADROOM + packet.len() + RECORD_HEADER_MAX, 0xee);
        frame[HEADROOM..HEADROOM + packet.len()].copy_from_slice(packet);
        id
    }

    /// Packs an accepted packet that lies in a frame.
    pub(crate) fn pack_frame(&mut self, forward: &Forward, id: u32, len: usize) -> u8 {
        let frame = &mut self.frames[id as usize];
        let payload = HEADROOM..HEADROOM + len;
        let records = self
            .router
            .pack(self.now, forward, BufferId(id), frame, payload);
        self.references[id as usize] = records;
        if records == 0 {
            self.free.push(id);
        }
        records
    }

    /// Sends the datagrams that are ready, and returns what their owners' workers read in them, in order.
    pub(crate) fn send_ready(&mut self) -> Vec<Received> {
        self.send_ready_over(|| false)
    }

    /// The same over a network that loses a datagram whenever `lose` says so.
    pub(crate) fn send_ready_over(&mut self, mut lose: impl FnMut() -> bool) -> Vec<Received> {
        let mut received = Vec::new();
        while let Some(datagram) = self.router.take_ready() {
            let mut bytes = datagram.header.to_vec();
            for piece in self.router.pieces(&datagram) {
                let frame = &self.frames[piece.buffer.0 as usize];
                bytes.extend_from_slice(span(frame, piece.side));
                bytes.extend_from_slice(span(frame, piece.body));
                let references = &mut self.references[piece.buffer.0 as usize];
                *references = references.checked_sub(1).expect("a buffer is in use");
                if *references == 0 {
                    self.free.push(piece.buffer.0);
                }
            }
            assert_eq!(bytes.len(), usize::from(datagram.len));
            let opened = trunk::open(&self.owner_keys, &bytes).expect("the owner opens it");
            assert_eq!(opened.records().count(), usize::from(datagram.records));
            let shard = opened.header.shard;
            let window = self
                .windows
                .entry((datagram.destination, shard))
                .or_default();
            let lost = lose();
            assert!(lost || window.accept(opened.header.boot, opened.header.sequence, 0));
            received.extend(opened.records().map(|record| Received {
                owner: datagram.destination,
                shard,
                header: record.header,
                payload: record.payload.to_vec(),
                lost,
            }));
            self.router.release(datagram);
        }
        received
    }

    /// Flushes as an idle core does, and sends.
    pub(crate) fn flush(&mut self) -> Vec<Received> {
        self.flush_over(|| false)
    }

    /// The same over a network that loses a datagram whenever `lose` says so.
    pub(crate) fn flush_over(&mut self, lose: impl FnMut() -> bool) -> Vec<Received> {
        self.router.flush(self.now, true);
        let received = self.send_ready_over(lose);
        assert_eq!(self.free.len(), self.frames.len(), "every buffer is back");
        received
    }

    /// A client's UDP packet, and which sessions' owners got it at once.
    pub(crate) fn deliver(&mut self, ingress: u8, client: ClientAddr, packet: &[u8]) -> Vec<Who> {
        self.receive(ingress, Transport::Udp, client, packet);
        let received = self.flush();
        assert!(received.iter().all(|r| r.payload == packet));
        let mut sessions: Vec<_> = received.iter().map(Received::who).collect();
        sessions.sort();
        sessions
    }

    /// The same for a packet that must be dropped.
    pub(crate) fn refuse(&mut self, ingress: u8, client: ClientAddr, packet: &[u8]) -> Reason {
        let (verdict, _) = self.receive(ingress, Transport::Udp, client, packet);
        match verdict {
            Verdict::Drop(reason) => reason,
            other => panic!("not dropped: {other:?}"),
        }
    }

    /// An owner's datagram with one record, in a fresh sequence, as it comes over the wire.
    pub(crate) fn datagram(
        &mut self,
        shard: ShardId,
        record: &RecordHeader,
        payload: &[u8],
        keys: &DataKeyring,
    ) -> Vec<u8> {
        self.builder.clear();
        assert!(self.builder.push(record, payload));
        self.sequence += 1;
        self.builder
            .finish(keys.active(), shard, BootId::of_owner(77), self.sequence)
            .to_vec()
    }

    /// Gives the relay an owner's record, through datagram, tag and replay filter.
    pub(crate) fn down(&mut self, from: Who, record: &RecordHeader) -> DownVerdict {
        let payload: &[u8] = match record.kind {
            RecordKind::Packet => b"downlink",
            _ => b"",
        };
        let keys = Arc::clone(&self.sender_keys);
        let bytes = self.datagram(from.shard, record, payload, &keys);
        self.down_bytes(from.owner, &bytes).expect("accepted")
    }

    /// Gives the relay the bytes of a datagram with one record.
    pub(crate) fn down_bytes(
        &mut self,
        from: OwnerAddr,
        bytes: &[u8],
    ) -> Result<DownVerdict, Reason> {
        let source = Hop::new(from.get());
        let datagram = self.router.open(self.now, source, bytes)?;
        let record = datagram.records().next().expect("one record");
        Ok(self
            .router
            .downlink(self.now, source, datagram.header.shard, &record.header))
    }

    /// The claims at a UDP client's address, sorted, and which of them is proven.
    pub(crate) fn claims(&self, ingress: u8, client: ClientAddr) -> Vec<(Who, bool)> {
        self.claims_at(ingress, Transport::Udp, client)
    }

    pub(crate) fn claims_at(
        &self,
        ingress: u8,
        transport: Transport,
        client: ClientAddr,
    ) -> Vec<(Who, bool)> {
        let mut claims = self.claims_in_order(ingress, transport, client);
        claims.sort();
        claims
    }

    /// The claims at an address in the order in which its packets are packed.
    pub(crate) fn claims_in_order(
        &self,
        ingress: u8,
        transport: Transport,
        client: ClientAddr,
    ) -> Vec<(Who, bool)> {
        self.router
            .claims(IngressId(ingress), transport, client)
            .map(|(session, owner, shard, proven)| {
                (
                    Who {
                        session,
                        owner,
                        shard,
                    },
                    proven,
                )
            })
            .collect()
    }
}

fn span(frame: &[u8], span: Span) -> &[u8] {
    &frame[usize::from(span.start)..usize::from(span.start + span.len)]
}
