//! A seeded simulation: millions of random steps of one relay core against a naive model of the same rules.
//!
//! Clients reuse ports, several sessions claim one address, valid requests come from borrowed addresses, packets and whole
//! relays are lost, records of old sessions arrive late and under stale handles, keys rotate, flows expire, and the tables
//! are so small that they are full most of the time. After each step the fate of the packet and the claims at its address
//! must be the model's; now and then everything is compared. Besides, as rules that the model must obey itself,
//!
//! - a packet without a ufrag reaches only sessions that a verified request or an authenticated record put at its address;
//! - a session that is proven at an address gets every packet from there, until its owner ends it, another session is
//!   proven there, the flow was idle too long, or the relay restarts;
//! - each accepted packet arrives exactly once per receiver, unaltered, in order, and within the linger.
//!
//! `FIRSTHOP_SEED` and `FIRSTHOP_STEPS` set the seed and the number of steps. A failure prints the seed and the step.

mod model;
mod population;
mod world;

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;

use firsthop_relay_core::limits::{FLOW_IDLE_TICKS, WHEEL_TICK_BITS};
use firsthop_relay_core::{
    DownVerdict, IngressPath, Micros, Placement, Reason, RouterConfig, Steering, Transport, Verdict,
};
use firsthop_shared::address::{ClientAddr, FlowHandle, Hop, IngressId, OwnerAddr, ShardId};
use firsthop_shared::trunk::{RecordHeader, RecordKind};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

use model::{Key, Model};
use population::{Population, Totals};
use world::{CLUSTER, Call, Received, Relay, Who, record};

const STEPS: u64 = 5_000_000;
/// Steps until the relay gets other sizes.
const EPOCH: u64 = 25_000;

#[test]
fn the_router_does_what_the_naive_model_does() {
    let seed = setting("FIRSTHOP_SEED").unwrap_or_else(rand::random);
    let steps = setting("FIRSTHOP_STEPS").unwrap_or(STEPS);
    println!("FIRSTHOP_SEED={seed} FIRSTHOP_STEPS={steps}");
    let mut rng = StdRng::seed_from_u64(seed);
    let population = Population::new();
    let mut done = 0;
    let mut totals = Totals::default();
    while done < steps {
        let mut simulation = Simulation::new(&population, &mut totals, &mut rng);
        let end = (done + EPOCH).min(steps);
        while done < end {
            let step = done;
            let _context = Context { seed, step };
            simulation.step(step);
            done += 1;
        }
        simulation.settle();
    }
    println!("{totals:?}");
    if steps >= STEPS / 10 {
        totals.check();
    }
}

fn setting(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{name}={text} is no number")),
    )
}

/// Says where a run failed, when a check panics.
struct Context {
    seed: u64,
    step: u64,
}

impl Drop for Context {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let Self { seed, step } = self;
            eprintln!(
                "failed at step {step}: run again with FIRSTHOP_SEED={seed} FIRSTHOP_STEPS={}",
                *step + 1
            );
        }
    }
}

/// A packet that was accepted and has not been read by its owner yet.
struct Expected {
    /// Its number among the accepted packets.
    packet: u64,
    since: Micros,
    key: Key,
    who: Who,
    payload: Vec<u8>,
}

struct Simulation<'a> {
    population: &'a Population,
    rng: StdRng,
    config: RouterConfig,
    ring: usize,
    relay: Relay,
    model: Model,
    expected: BTreeMap<(OwnerAddr, ShardId), VecDeque<Expected>>,
    handles: HashMap<Key, FlowHandle>,
    /// Records of the past, to come again when nobody waits for them any more.
    history: Vec<(Who, RecordHeader)>,
    last_datagram: Option<(OwnerAddr, Vec<u8>)>,
    /// Sessions that proof put at an address since the relay started.
    ever: HashMap<Key, HashSet<Who>>,
    /// The proven session of an address, and the tick of the last packet.
    live: HashMap<Key, (Who, u32)>,
    /// What the relay must have dropped since it started.
    dropped: HashMap<Reason, u64>,
    totals: &'a mut Totals,
}

impl<'a> Simulation<'a> {
    fn new(population: &'a Population, totals: &'a mut Totals, rng: &mut StdRng) -> Self {
        let mut rng = StdRng::seed_from_u64(rng.random());
        let mut config = world::config();
        config.flows = [4, 8, 12, 24, 256][rng.random_range(0..5)];
        config.trunks = [2, 5, 9, 64][rng.random_range(0..4)];
        config.pending = 128;
        // The same ingress over TCP too: the same address over both is two flows.
        config.paths.push(IngressPath {
            ingress: IngressId(0),
            transport: Transport::Tcp,
            ipv6: false,
        });
        config.seeds.generation = rng.random();
        config.seeds.hash = rng.random();
        if rng.random_bool(0.3) {
            config.placement = Some(Placement {
                steering: Steering::new(rng.random(), 3),
                core: 1,
            });
        }
        let now = Micros(rng.random_range(0..1 << 40));
        Self {
            population,
            relay: Relay::new(&config, Arc::clone(&population.rings[1].1), now),
            model: Model::new(config.flows, config.trunks),
            ring: 1,
            rng,
            config,
            expected: BTreeMap::new(),
            handles: HashMap::new(),
            history: Vec::new(),
            last_datagram: None,
            ever: HashMap::new(),
            live: HashMap::new(),
            dropped: HashMap::new(),
            totals,
        }
    }

    fn step(&mut self, step: u64) {
        self.advance();
        match self.rng.random_range(0..1_000) {
            0..400 => self.packet_without_ufrag(step),
            400..590 => self.good_request(),
            590..650 => self.bad_request(),
            650..870 => self.downlink_packet(),
            870..910 => self.downlink_end(),
            910..950 => self.late_record(),
            950..975 => self.bad_datagram(),
            975..990 => self.rubbish(),
            990..998 => self.rotate(),
            998 if self.rng.random_bool(0.2) => self.restart(),
            _ => {
                let key = self.key();
                self.compare(&key);
            }
        }
        if self.rng.random_bool(0.5) || self.relay.router.counters().uplink_records % 50 > 40 {
            let received = self.relay.flush();
            self.arrived(received);
            assert!(self.expected.is_empty(), "an idle core keeps nothing");
        } else {
            self.relay.router.flush(self.relay.now, false);
            let received = self.relay.send_ready();
            self.arrived(received);
            let oldest = self.expected.values().flatten().map(|e| e.since).min();
            let due = oldest.map(|since| since.after(self.config.linger));
            assert_eq!(self.relay.router.next_linger(), due);
            assert!(due.is_none_or(|due| due > self.relay.now));
        }
        self.model.waiting = self.expected.keys().copied().collect();
        let counts = self.relay.router.flow_counts();
        assert_eq!(counts.flows as usize, self.model.flows());
        assert_eq!(counts.proven as usize, self.model.proven());
        assert_eq!(counts.provisional as usize, self.model.provisional());
        assert!(counts.flows <= self.config.flows);
        if step.is_multiple_of(512) {
            self.compare_everything();
        }
    }

    /// Lets time pass, and flows expire: all that are due, in budgets of any size.
    fn advance(&mut self) {
        let ahead = match self.rng.random_range(0..2_000) {
            0 => self.rng.random_range(1_000_000..40_000_000),
            1..100 => self.rng.random_range(0..400_000),
            _ => self.rng.random_range(0..150),
        };
        self.relay.now = self.relay.now.after(Micros(ahead));
        let budget = self.rng.random_range(1..20);
        while self.relay.router.expire(self.relay.now, budget) {}
        self.model.expire(self.ticks());
    }

    fn ticks(&self) -> u32 {
        self.relay.now.ticks()
    }

    fn key(&mut self) -> Key {
        self.population.keys[self.rng.random_range(0..self.population.keys.len())]
    }

    fn call(&mut self) -> &'a Call {
        &self.population.calls[self.rng.random_range(0..self.population.calls.len())]
    }

    fn is_inside(client: &ClientAddr) -> bool {
        client.ip().to_string().starts_with("10.")
    }

    /// Media, DTLS, answers and indications.
    fn packet_without_ufrag(&mut self, step: u64) {
        let key = self.key();
        let (mut packet, unknown) = match self.rng.random_range(0..10) {
            0 => (world::stun_response(), Reason::NoFlowStun),
            1 => (world::stun_indication(), Reason::NoFlowStun),
            2 => (world::dtls(1), Reason::NoFlowDtls),
            _ => (world::rtp(1), Reason::NoFlowRtp),
        };
        if unknown != Reason::NoFlowStun {
            let len = match self.rng.random_range(0..20) {
                0 => self.rng.random_range(1_000..=1_900),
                _ => self.rng.random_range(20..200),
            };
            packet.resize(len, 0);
            packet[4..12].copy_from_slice(&step.to_be_bytes());
        }
        let (verdict, records) =
            self.relay
                .receive(key.ingress, key.transport, key.client, &packet);
        let receivers = self.model.packet(self.ticks(), &key);
        if let Some((who, last_seen)) = self.live.get_mut(&key) {
            let now = self.relay.now.ticks();
            if (*last_seen + FLOW_IDLE_TICKS) >> WHEEL_TICK_BITS >= now >> WHEEL_TICK_BITS {
                assert!(receivers.contains(who), "a live call lost a packet");
                *last_seen = now;
                self.totals.live_checks += 1;
            } else {
                self.live.remove(&key);
            }
        }
        for who in &receivers {
            assert!(self.ever[&key].contains(who), "state without proof");
        }
        if receivers.is_empty() {
            self.expect_drop(verdict, unknown);
            return;
        }
        assert!(matches!(verdict, Verdict::Forward(_)), "{verdict:?}");
        assert_eq!(usize::from(records), receivers.len());
        self.totals.doubled += u64::from(receivers.len() == 2);
        for who in receivers {
            self.expect(key, who, packet.clone());
        }
    }

    fn good_request(&mut self) {
        let (key, call) = (self.key(), self.call());
        let packet = &call.requests.good;
        let (verdict, records) = self
            .relay
            .receive(key.ingress, key.transport, key.client, packet);
        let refused = self.refusal(call, &key.client).or_else(|| {
            let bound = self.model.request(self.ticks(), key, call.who);
            (!bound).then_some(Reason::TrunkTableFull)
        });
        match refused {
            Some(reason) => self.expect_drop(verdict, reason),
            None => {
                assert!(matches!(verdict, Verdict::Forward(_)), "{verdict:?}");
                assert_eq!(records, 1, "a request goes where its ufrag says, only");
                self.ever.entry(key).or_default().insert(call.who);
                self.touch_live(&key, call.who);
                self.expect(key, call.who, packet.clone());
            }
        }
        self.compare(&key);
    }

    /// Why a request with this call's ufrag is refused before its integrity is looked at.
    fn refusal(&self, call: &Call, client: &ClientAddr) -> Option<Reason> {
        if !self.population.rings[self.ring].0.contains(&call.key.get()) {
            Some(Reason::UfragUnknownKey)
        } else if call.cluster != CLUSTER {
            Some(Reason::ForeignCluster)
        } else if call.who.owner.ip().to_string().starts_with("192.") {
            Some(Reason::OwnerOutside)
        } else if Self::is_inside(client) {
            Some(Reason::ClientInside)
        } else {
            None
        }
    }

    fn bad_request(&mut self) {
        let (key, call) = (self.key(), self.call());
        let requests = &call.requests;
        let known = self.population.rings[self.ring].0.contains(&call.key.get());
        let (packet, reason) = match self.rng.random_range(0..7) {
            0 => (
                &requests.wrong_integrity,
                self.refusal(call, &key.client)
                    .unwrap_or(Reason::StunIntegrity),
            ),
            1 if known => (&requests.forged, Reason::UfragForged),
            1 => (&requests.forged, Reason::UfragUnknownKey),
            2 => (&requests.no_integrity, Reason::StunNoIntegrity),
            3 => (&requests.wrong_fingerprint, Reason::StunFingerprint),
            4 => (&requests.wrong_length, Reason::UfragLength),
            5 => (&requests.wrong_format, Reason::UfragFormat),
            _ => (&requests.no_colon, Reason::StunNoUfrag),
        };
        self.refused(key, packet, reason);
    }

    fn rubbish(&mut self) {
        let key = self.key();
        let (packet, reason) = match self.rng.random_range(0..5) {
            0 => (Vec::new(), Reason::Empty),
            1 => (vec![0x47; 9], Reason::UnknownClass),
            2 => (vec![0; 30], Reason::StunMalformed),
            3 => (vec![0x80; 1_901], Reason::Oversize),
            _ => (world::turn_allocate(), Reason::StunMethod),
        };
        self.refused(key, &packet, reason);
    }

    fn refused(&mut self, key: Key, packet: &[u8], reason: Reason) {
        let (verdict, _) = self
            .relay
            .receive(key.ingress, key.transport, key.client, packet);
        self.expect_drop(verdict, reason);
        self.compare(&key);
    }

    /// A claim that exists, mostly, or any session at any address.
    fn session_somewhere(&mut self) -> (Key, Who) {
        let key = self.key();
        let claims = self.model.claims(&key);
        if !claims.is_empty() && self.rng.random_bool(0.8) {
            return (key, claims[self.rng.random_range(0..claims.len())].0);
        }
        (key, self.call().who)
    }

    fn handle(&mut self, key: &Key) -> FlowHandle {
        match self.handles.get(key) {
            Some(handle) if self.rng.random_bool(0.7) => *handle,
            _ => {
                // One that another flow had, or any number.
                let other = self.key();
                let known = self.handles.get(&other).copied();
                known.unwrap_or_else(|| FlowHandle(self.rng.random()))
            }
        }
    }

    fn downlink_packet(&mut self) {
        let (key, who) = self.session_somewhere();
        let proven = self.rng.random_bool(0.3);
        let handle = self.handle(&key);
        let mut header = record(
            RecordKind::Packet,
            who,
            key.ingress,
            key.client,
            proven,
            handle,
        );
        header.tcp = key.transport == Transport::Tcp;
        self.down(who, header);
    }

    fn downlink_end(&mut self) {
        let (key, who) = self.session_somewhere();
        let kind = [RecordKind::Close, RecordKind::UnknownSession][self.rng.random_range(0..2)];
        let handle = self.handle(&key);
        let mut header = record(kind, who, key.ingress, key.client, false, handle);
        header.tcp = key.transport == Transport::Tcp;
        self.down(who, header);
    }

    /// A record that an owner sent long ago, when the address was perhaps somebody else's.
    fn late_record(&mut self) {
        if !self.history.is_empty() {
            let at = self.rng.random_range(0..self.history.len());
            let (who, header) = self.history.swap_remove(at);
            self.down(who, header);
        }
    }

    fn down(&mut self, from: Who, header: RecordHeader) {
        if from.owner.ip().to_string().starts_with("192.") {
            return;
        }
        if self.history.len() < 64 && self.rng.random_bool(0.3) {
            self.history.push((from, header));
        }
        let key = Key {
            ingress: header.ingress.0,
            transport: if header.tcp {
                Transport::Tcp
            } else {
                Transport::Udp
            },
            client: header.client,
        };
        let packet = header.kind == RecordKind::Packet;
        let elsewhere = self.elsewhere(&key);
        let expected = if packet && Self::is_inside(&key.client) {
            *self.dropped.entry(Reason::RecordClientInside).or_default() += 1;
            DownVerdict::Drop(Reason::RecordClientInside)
        } else {
            match elsewhere {
                Some(core) if packet => DownVerdict::SendAndNote(core),
                Some(core) => DownVerdict::Note(core),
                None if packet => DownVerdict::Send,
                None => DownVerdict::Done,
            }
        };
        if self.rng.random_bool(0.1) {
            // The same from another core of this relay, which has nothing to send any more.
            let source = Hop::new(from.owner.get());
            let mut header = header;
            header.payload_len = if packet { 8 } else { 0 };
            self.relay
                .router
                .note(self.relay.now, source, from.shard, &header);
            if let DownVerdict::Drop(reason) = expected {
                *self.dropped.entry(reason).or_default() -= 1;
            }
        } else {
            assert_eq!(self.relay.down(from, &header), expected);
        }
        if !matches!(expected, DownVerdict::Drop(_)) {
            match elsewhere {
                Some(_) => self.totals.noted += 1,
                None if packet => self.learned(key, from, header.proven),
                None => {
                    self.model.close(key, from);
                    if self.live.get(&key).is_some_and(|(who, _)| *who == from) {
                        self.live.remove(&key);
                    }
                }
            }
        }
        self.compare(&key);
    }

    fn learned(&mut self, key: Key, from: Who, proven: bool) {
        let empty = !self.model.has_flow(&key);
        let learned = self.model.record(self.ticks(), key, from, proven);
        let claims = self.relay.claims_at(key.ingress, key.transport, key.client);
        if learned && empty {
            self.ever.entry(key).or_default().insert(from);
        }
        self.touch_live(&key, from);
        if proven && claims == vec![(from, true)] {
            self.live.insert(key, (from, self.ticks()));
        }
    }

    /// A packet of either direction keeps a flow, whichever of its sessions it is for.
    fn touch_live(&mut self, key: &Key, from: Who) {
        let now = self.ticks();
        let here = self.model.claims(key).iter().any(|(who, _)| *who == from);
        if let Some((_, last_seen)) = self.live.get_mut(key).filter(|_| here) {
            if (*last_seen + FLOW_IDLE_TICKS) >> WHEEL_TICK_BITS >= now >> WHEEL_TICK_BITS {
                *last_seen = now;
            } else {
                self.live.remove(key);
            }
        }
    }

    fn elsewhere(&self, key: &Key) -> Option<u16> {
        let placement = self.config.placement?;
        let core = placement.steering.core_for(&key.client);
        (!self.model.has_flow(key) && core != placement.core).then_some(core)
    }

    /// Datagrams that no owner of the fleet would send now.
    fn bad_datagram(&mut self) {
        let (key, who) = self.session_somewhere();
        let mut header = record(
            RecordKind::Packet,
            who,
            key.ingress,
            key.client,
            true,
            FlowHandle(0),
        );
        header.tcp = key.transport == Transport::Tcp;
        let (ids, ring) = &self.population.rings[self.rng.random_range(0..4)];
        let known = self.population.rings[self.ring]
            .0
            .contains(ids.last().expect("an active key"));
        let unknown_or = |reason| {
            if known {
                reason
            } else {
                Reason::TrunkUnknownKey
            }
        };
        let inside = OwnerAddr::new(world::socket("10.0.0.1:5000"));
        let mut from = inside;
        let kind = self.rng.random_range(0..9);
        match kind {
            0 => header.ingress = IngressId(9),
            1 => header.owner = Some(inside),
            2 => header.kind = RecordKind::Keepalive,
            _ => {}
        }
        let mut bytes = self.relay.datagram(who.shard, &header, b"bad", ring);
        let reason = match kind {
            0 => unknown_or(Reason::RecordIngress),
            1 => unknown_or(Reason::RecordRelayed),
            2 => unknown_or(Reason::RecordKeepalive),
            3 => {
                from = OwnerAddr::new(world::socket("192.0.2.1:5000"));
                Reason::TrunkSource
            }
            4 => {
                bytes[30] ^= 1 << self.rng.random_range(0..8);
                unknown_or(Reason::TrunkTag)
            }
            5 => {
                bytes[2] = 2;
                Reason::TrunkMagic
            }
            6 => {
                bytes.pop();
                unknown_or(Reason::RecordMalformed)
            }
            7 => {
                bytes.truncate(30);
                Reason::TrunkLength
            }
            _ => match self.last_datagram.clone() {
                Some((owner, again)) => {
                    from = owner;
                    bytes = again;
                    Reason::TrunkReplay
                }
                None => return,
            },
        };
        match self.relay.down_bytes(from, &bytes) {
            Err(found) | Ok(DownVerdict::Drop(found)) => {
                // The replayed datagram's key may have gone in the meantime.
                if !(kind == 8 && found == Reason::TrunkUnknownKey) {
                    assert_eq!(found, reason);
                }
                *self.dropped.entry(found).or_default() += 1;
            }
            Ok(verdict) => panic!("accepted: {verdict:?}"),
        }
        if kind < 3 && known {
            self.last_datagram = Some((from, bytes));
        }
        self.compare(&key);
    }

    fn rotate(&mut self) {
        self.ring = self.rng.random_range(0..self.population.rings.len());
        let ring = Arc::clone(&self.population.rings[self.ring].1);
        self.relay.sender_keys = Arc::clone(&ring);
        self.relay.router.set_keyring(ring);
    }

    /// The relay dies with all that it knew, and comes back with another set of random values.
    fn restart(&mut self) {
        self.settle();
        self.config.seeds.generation = self.rng.random();
        self.config.seeds.hash = self.rng.random();
        self.config.seeds.boot = self.rng.random();
        let ring = Arc::clone(&self.population.rings[self.ring].1);
        self.relay = Relay::new(&self.config, Arc::clone(&ring), self.relay.now);
        self.relay.sender_keys = ring;
        self.model.forget();
        self.ever.clear();
        self.live.clear();
        self.last_datagram = None;
        self.totals.restarts += 1;
    }

    /// Ends the life of a relay: what waits is sent, and everything is compared and added up.
    fn settle(&mut self) {
        let received = self.relay.flush();
        self.arrived(received);
        self.model.waiting.clear();
        self.compare_everything();
        let counters = self.relay.router.counters();
        self.totals.add(&self.dropped, counters);
        self.dropped.clear();
    }

    fn expect(&mut self, key: Key, who: Who, payload: Vec<u8>) {
        self.totals.forwarded += 1;
        let expected = Expected {
            packet: self.relay.router.counters().uplink_packets,
            since: self.relay.now,
            key,
            who,
            payload,
        };
        self.expected
            .entry((who.owner, who.shard))
            .or_default()
            .push_back(expected);
    }

    fn expect_drop(&mut self, verdict: Verdict, reason: Reason) {
        assert_eq!(verdict, Verdict::Drop(reason));
        *self.dropped.entry(reason).or_default() += 1;
    }

    fn arrived(&mut self, received: Vec<Received>) {
        for got in received {
            let trunk = (got.owner, got.shard);
            let waiting = self
                .expected
                .get_mut(&trunk)
                .expect("a packet for this worker");
            // Both receivers of one packet may sit at one worker, in either order.
            let later = usize::from(waiting[0].who != got.who());
            assert!(later == 0 || waiting[1].packet == waiting[0].packet);
            let expected = waiting.remove(later).expect("a packet for this worker");
            if waiting.is_empty() {
                self.expected.remove(&trunk);
            }
            assert_eq!(got.who(), expected.who);
            assert_eq!(got.payload, expected.payload);
            assert_eq!(got.header.kind, RecordKind::Packet);
            assert_eq!(got.header.client, expected.key.client);
            assert_eq!(got.header.ingress.0, expected.key.ingress);
            assert_eq!(got.header.tcp, expected.key.transport == Transport::Tcp);
            assert!(!got.header.proven && got.header.owner.is_none());
            self.handles.insert(expected.key, got.header.handle);
        }
    }

    fn compare(&self, key: &Key) {
        let found = self.relay.claims_at(key.ingress, key.transport, key.client);
        assert_eq!(found, self.model.claims(key), "at {key:?}");
        assert!(found.len() <= 2 && found.iter().filter(|(_, proven)| *proven).count() <= 1);
    }

    fn compare_everything(&self) {
        for key in &self.population.keys {
            self.compare(key);
        }
        let trunks = self.relay.router.trunk_count();
        assert_eq!(trunks as usize, self.model.trunks().len());
        assert!(trunks <= u32::from(self.config.trunks));
        let counters = self.relay.router.counters();
        for reason in Reason::ALL {
            let expected = self.dropped.get(reason).copied().unwrap_or(0);
            assert_eq!(counters.drops(*reason), expected, "{}", reason.name());
        }
    }
}
