//! A seeded simulation: millions of random steps of one relay core against a naive model of the same rules.
//!
//! Clients reuse ports, several sessions claim one address, valid requests come from borrowed addresses, trunk datagrams and
//! whole relays are lost or hand over to a successor, verdicts outlive their trunks, records of old sessions arrive late and under stale handles, keys rotate, flows expire, and the tables
//! are so small that they are full most of the time. After each step the fate of the packet and the claims at its address
//! must be the model's; now and then everything is compared. Besides, as rules that the model must obey itself,
//!
//! - a packet without a ufrag reaches only sessions that a verified request or an authenticated record put at its address;
//! - a session that is proven at an address gets every packet from there, until its owner ends it, another session is
//!   proven there, the flow was idle too long, or the relay restarts;
//! - each accepted packet leaves exactly once per receiver that there was room for, unaltered, in order, and within the
//!   linger, whatever becomes of the datagrams before it.
//!
//! `FIRSTHOP_SEED` and `FIRSTHOP_STEPS` set the seed and the number of steps. A failure prints the seed and the step.

mod downlink;
mod model;
mod population;
mod requests;
#[path = "../world/mod.rs"]
mod world;

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;

use firsthop_relay_core::limits::{FLOW_IDLE_TICKS, WHEEL_TICK_BITS};
use firsthop_relay_core::{
    IngressPath, Micros, Placement, Reason, RouterConfig, Steering, Transport, Verdict,
};
use firsthop_shared::address::{ClientAddr, FlowHandle, IngressId, OwnerAddr, ShardId};
use firsthop_shared::trunk::{RecordHeader, RecordKind};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

use model::{Key, Model};
use population::{Population, Totals};
use world::{CLUSTER, Call, Received, Relay, Who};

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
        config.pending = [1, 2, 4, 128][rng.random_range(0..4)];
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
            0..390 => self.packet_without_ufrag(step),
            390..400 => self.stale_verdict(),
            400..590 => self.good_request(),
            590..650 => self.bad_request(),
            650..870 => self.downlink_packet(),
            870..910 => self.downlink_end(),
            910..950 => self.late_record(),
            950..975 => self.bad_datagram(),
            975..990 => self.rubbish(),
            990..998 => self.rotate(),
            998 if self.rng.random_bool(0.2) => self.restart(),
            999 if self.rng.random_bool(0.5) => self.hand_over(),
            _ => {
                let key = self.key();
                self.compare(&key);
            }
        }
        if self.rng.random_bool(0.5) || self.relay.router.counters().uplink_records % 50 > 40 {
            let rng = &mut self.rng;
            let received = self.relay.flush_over(|| rng.random_bool(0.05));
            self.arrived(received);
            assert!(self.expected.is_empty(), "an idle core keeps nothing");
        } else {
            self.relay.router.flush(self.relay.now, false);
            let rng = &mut self.rng;
            let received = self.relay.send_ready_over(|| rng.random_bool(0.05));
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
        let routes = self.routes(&key);
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
        assert_eq!(routes.len(), receivers.len());
        self.totals.doubled += u64::from(records == 2);
        let packed = self.packed(key, &routes, &packet);
        assert_eq!(records, packed);
    }

    /// A verdict that is packed after all the claims that it relied on have ended: it reaches nobody by a wrong trunk.
    fn stale_verdict(&mut self) {
        let key = self.key();
        let packet = world::rtp(1);
        let routes = self.routes(&key);
        let ingress = IngressId(key.ingress);
        let now = self.relay.now;
        let router = &mut self.relay.router;
        let source = router.source(ingress, key.transport, key.client);
        let verdict = router.uplink(now, &source, &packet);
        self.model.packet(self.ticks(), &key);
        let Verdict::Forward(forward) = verdict else {
            assert!(routes.is_empty());
            self.expect_drop(verdict, Reason::NoFlowRtp);
            return;
        };
        for who in &routes {
            self.end(key, *who, RecordKind::Close);
        }
        let trunks = self.model.trunks();
        let (there, gone): (Vec<Who>, Vec<Who>) = routes
            .into_iter()
            .partition(|who| trunks.contains(&(who.owner, who.shard)));
        *self.dropped.entry(Reason::TrunkGone).or_default() += gone.len() as u64;
        let packed = self.packed(key, &there, &packet);
        assert_eq!(self.relay.pack(&forward, &packet), packed);
    }

    /// The sessions at an address, in the order in which its packets are packed.
    fn routes(&self, key: &Key) -> Vec<Who> {
        let claims = self
            .relay
            .claims_in_order(key.ingress, key.transport, key.client);
        claims.into_iter().map(|(who, _)| who).collect()
    }

    /// Expects a packet at as many of its receivers as there is room for. Returns how many these are.
    fn packed(&mut self, key: Key, routes: &[Who], packet: &[u8]) -> u8 {
        let waiting: usize = self.expected.values().map(VecDeque::len).sum();
        let room = self.config.pending as usize - waiting;
        let packed = routes.len().min(room);
        for who in &routes[..packed] {
            self.expect(key, *who, packet.to_vec());
        }
        *self.dropped.entry(Reason::TrunkFull).or_default() += (routes.len() - packed) as u64;
        packed as u8
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

    /// The relay leaves all that it knows to a successor with another set of random values: the model goes on as if nothing had been.
    fn hand_over(&mut self) {
        self.settle();
        self.config.seeds.generation = self.rng.random();
        self.config.seeds.hash = self.rng.random();
        self.config.seeds.boot = self.rng.random();
        let ring = Arc::clone(&self.population.rings[self.ring].1);
        let before = self.relay.router.flow_counts();
        let inherited = self.relay.hand_over(&self.config, ring);
        assert_eq!((inherited.flows, inherited.left_out), (before.flows, 0));
        assert_eq!(self.relay.router.flow_counts(), before);
        self.model.hand_over(self.ticks());
        self.compare_everything();
        self.totals.handed_over += u64::from(before.flows);
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
            if got.lost {
                self.totals.lost += 1;
            } else {
                self.handles.insert(expected.key, got.header.handle);
            }
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
