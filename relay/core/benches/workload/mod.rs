//! A fixed amount of routing, the same in every run: what the micro-benchmarks time, and what callgrind counts.
#![allow(dead_code, reason = "each bench program uses a part of it")]

#[path = "../../tests/world/mod.rs"]
pub(crate) mod world;

use std::hint::black_box;
use std::sync::Arc;

use firsthop_relay_core::{BufferId, Micros, Router, Source, Transport, Verdict};
use firsthop_shared::address::{BootId, ClientAddr, FlowHandle, Hop, IngressId, ShardId};
use firsthop_shared::keyring::DataKeyring;
use firsthop_shared::trunk::{DatagramBuilder, RecordKind};
use rand::rngs::StdRng;
use rand::seq::SliceRandom as _;
use rand::{RngExt as _, SeedableRng as _};

use world::{CLUSTER, Call, config, keyring, who};

/// Packets of one turn of the pump.
pub(crate) const TURN: usize = 64;

/// Where a packet lies in its receive buffer.
const PAYLOAD: std::ops::Range<usize> = 80..252;

/// A router with flows, and packets for it.
pub(crate) struct Workload {
    pub(crate) router: Router,
    clients: Vec<ClientAddr>,
    /// Valid checks, with wrong integrity, with a forged ufrag.
    pub(crate) checks: [Vec<Vec<u8>>; 3],
    random: Vec<Vec<u8>>,
    frame: Vec<u8>,
    position: usize,
    now: Micros,
}

fn address(i: u32) -> ClientAddr {
    let octets = [198, 18, (i >> 14) as u8, (i >> 6) as u8];
    ClientAddr::new((octets, 1_024 + (i & 63) as u16).into())
}

impl Workload {
    /// With so many flows, proven, spread over so many owners. Everything follows from fixed seeds.
    pub(crate) fn new(flows: u32, owners: u32) -> Self {
        let mut rng = StdRng::seed_from_u64(1);
        let mut config = config();
        config.flows = (flows * 4 / 3 + 4).min(1 << 20);
        config.trunks = 1_024;
        config.pending = 4_096;
        let mut router = Router::new(&config, keyring(&[2, 1]), Micros(0)).expect("valid");
        let mut clients = Vec::new();
        for i in 0..flows {
            let owner = who(i, &format!("10.0.{}.1:5000", i % owners), 0);
            let mut record = world::record(
                RecordKind::Packet,
                owner,
                0,
                address(i),
                true,
                FlowHandle(0),
            );
            record.payload_len = 1;
            let source = Hop::new(owner.owner.get());
            router.downlink(Micros(0), source, owner.shard, &record);
            clients.push(address(i));
        }
        // Long runs of one flow flatter every look-up.
        clients.shuffle(&mut rng);
        let calls: Vec<_> = (0..TURN as u32)
            .map(|i| Call::new(who(i, "10.0.0.1:5000", 0), CLUSTER, 1, 0))
            .collect();
        let all = |pick: fn(&Call) -> &Vec<u8>| calls.iter().map(pick).cloned().collect();
        let random = (0..TURN)
            .map(|_| {
                let mut bytes = vec![0; 100];
                rng.fill(&mut bytes[..]);
                bytes
            })
            .collect();
        let mut frame = vec![0; 2_048];
        frame[PAYLOAD.start] = 0x80;
        Self {
            router,
            clients,
            checks: [
                all(|c| &c.requests.good),
                all(|c| &c.requests.wrong_integrity),
                all(|c| &c.requests.forged),
            ],
            random,
            frame,
            position: 0,
            now: Micros(0),
        }
    }

    fn source(&self, client: ClientAddr) -> Source {
        self.router.source(IngressId(0), Transport::Udp, client)
    }

    fn next_client(&mut self) -> ClientAddr {
        let client = self.clients[self.position % self.clients.len()];
        self.position += 1;
        client
    }

    /// One turn of media from clients: look ahead, decide, pack, close datagrams, and list their pieces.
    pub(crate) fn media_turn(&mut self) {
        let sources: [Source; TURN] = std::array::from_fn(|_| {
            let client = self.next_client();
            self.source(client)
        });
        self.router.look_ahead(sources.iter());
        for source in &sources {
            let packet = &self.frame[PAYLOAD];
            let verdict = self.router.uplink(Micros(0), source, packet);
            let Verdict::Forward(forward) = verdict else {
                panic!("every client has a flow: {verdict:?}");
            };
            self.router
                .pack(Micros(0), &forward, BufferId(0), &mut self.frame, PAYLOAD);
        }
        self.flush();
    }

    fn flush(&mut self) {
        self.router.flush(self.now, true);
        while let Some(datagram) = self.router.take_ready() {
            self.router.pieces(&datagram).for_each(|piece| {
                black_box(piece);
            });
            self.router.release(datagram);
        }
    }

    /// One look-up of a client's flow, and nothing else.
    pub(crate) fn look_up(&mut self) -> Verdict {
        let from = self.next_client();
        let source = self.source(from);
        let packet = &self.frame[PAYLOAD];
        self.router.uplink(Micros(0), &source, packet)
    }

    /// One turn of checks of one kind, each from an address of its own.
    pub(crate) fn check_turn(&mut self, kind: usize) {
        // As much time as the budget of verifications needs to be whole again.
        self.now = self.now.after(Micros(1_000 * TURN as u64));
        self.flush();
        for i in 0..TURN {
            let source = self.source(address(1 << 22 | i as u32));
            let packet = &self.checks[kind][i];
            black_box(self.router.uplink(self.now, &source, packet));
        }
        self.flush();
    }

    /// One turn of random bytes.
    pub(crate) fn random_turn(&mut self) {
        for i in 0..TURN {
            let source = self.source(address(1 << 22 | i as u32));
            black_box(self.router.uplink(Micros(0), &source, &self.random[i]));
        }
    }

    /// An owner that sends to these clients.
    pub(crate) fn writer(&self) -> Writer {
        Writer {
            keys: keyring(&[2, 1]),
            builder: DatagramBuilder::new(8_960),
            clients: self.clients.clone(),
            position: 0,
            sequence: 0,
        }
    }

    /// Opens a datagram, and decides each record.
    pub(crate) fn downlink(&mut self, bytes: &[u8]) {
        let source = Hop::new("10.0.0.1:5000".parse().expect("an address"));
        let datagram = self
            .router
            .open(Micros(0), source, bytes)
            .expect("a valid datagram");
        for record in datagram.records() {
            black_box(
                self.router
                    .downlink(Micros(0), source, ShardId(0), &record.header),
            );
        }
    }
}

/// An owner's side of the trunk.
pub(crate) struct Writer {
    keys: Arc<DataKeyring>,
    builder: DatagramBuilder,
    clients: Vec<ClientAddr>,
    position: usize,
    sequence: u32,
}

impl Writer {
    /// A datagram of so many records, with the next sequence number.
    pub(crate) fn datagram(&mut self, records: usize) -> &[u8] {
        let owner = who(0, "10.0.0.1:5000", 0);
        let handle = FlowHandle(0);
        self.builder.clear();
        for _ in 0..records {
            let client = self.clients[self.position % self.clients.len()];
            self.position += 1;
            let header = world::record(RecordKind::Packet, owner, 0, client, false, handle);
            assert!(self.builder.push(&header, &[0x80; 172]), "the records fit");
        }
        self.sequence += 1;
        self.builder.finish(
            self.keys.active(),
            ShardId(0),
            BootId::of_owner(9),
            self.sequence,
        )
    }
}
