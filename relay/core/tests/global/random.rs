//! Random steps over two clusters: clients that move between relays, relays that die, restart and come back, links that are cut,
//! sessions that end. Whatever happens,
//!
//! - a packet reaches only owners of sessions that its client has proved to know, each at most once;
//! - what an owner sends reaches the client that it names, at most once;
//! - no relay sends more records than it got, and nothing goes round in circles;
//! - when everything is up again, each client's next check works, both ways, by the relay that it is at;
//! - and when all is silent, nothing is left: no flow, no trunk, no buffer.

use std::collections::{HashMap, HashSet};

use firsthop_relay_core::Reason;
use firsthop_shared::address::{ClientAddr, ClusterId, Hop};
use firsthop_shared::trunk::RecordKind;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

use crate::net::{AtClient, AtOwner, FLEET, Net, hop, peers};
use crate::world::{Call, Who, client, rtp, who};

const STEPS: u64 = 30_000;
/// Steps until everything is brought in order, and looked at.
const EPOCH: u64 = 500;

const INGRESSES: [&str; 3] = ["10.1.0.1:4000", "10.1.0.1:4001", "10.1.0.2:4000"];
const CLUSTER: [&[&str]; 2] = [
    &["10.2.0.1:4000", "10.2.0.1:4001"],
    &["10.2.0.2:4100", "10.2.0.2:4101", "10.2.0.2:4102"],
];

#[derive(Default)]
struct Counts {
    up: u64,
    down: u64,
    doubled: u64,
    fail_overs: u64,
    restored: u64,
    displaced: u64,
    evicted: u64,
    lost: u64,
}

struct Simulation<'a> {
    rng: StdRng,
    net: Net,
    calls: &'a [Call],
    clients: &'a [ClientAddr],
    /// By client: the relay core that its packets reach.
    at: Vec<usize>,
    /// The sessions that a client has proved to know.
    ever: HashMap<ClientAddr, HashSet<Who>>,
    /// The newest packet of each client that each session's owner got.
    newest: HashMap<(Who, ClientAddr), AtOwner>,
    /// Packets under way: by number, from or to which client.
    numbers: HashMap<u64, ClientAddr>,
    next: u64,
    totals: Counts,
}

fn numbered(number: u64) -> Vec<u8> {
    let mut packet = rtp(0);
    packet[4..12].copy_from_slice(&number.to_be_bytes());
    packet
}

fn number_of(packet: &[u8]) -> Option<u64> {
    (packet[0] == 0x80).then(|| u64::from_be_bytes(packet[4..12].try_into().expect("ours")))
}

impl<'a> Simulation<'a> {
    fn new(seed: u64, calls: &'a [Call], clients: &'a [ClientAddr]) -> Self {
        let mut simulation = Self {
            rng: StdRng::seed_from_u64(seed),
            net: Net::new(),
            calls,
            clients,
            at: vec![0; clients.len()],
            ever: HashMap::new(),
            newest: HashMap::new(),
            numbers: HashMap::new(),
            next: 1,
            totals: Counts::default(),
        };
        for at in INGRESSES.into_iter().chain(CLUSTER.concat()) {
            simulation.start(at);
        }
        simulation
    }

    fn start(&mut self, at: &str) {
        let ours = INGRESSES.contains(&at);
        let flows = [8, 16, 64][self.rng.random_range(0..3)];
        let (cluster, ingresses): (u16, &[u8]) = if ours { (1, &[0]) } else { (2, &[]) };
        self.net
            .start_with(at, cluster, ingresses, FLEET, |config| config.flows = flows);
    }

    fn client(&mut self) -> usize {
        self.rng.random_range(0..self.clients.len())
    }

    fn step(&mut self) {
        match self.rng.random_range(0..1_000) {
            0..300 => {
                let (client, call) = (self.client(), self.rng.random_range(0..self.calls.len()));
                self.check(client, call);
            }
            300..620 => {
                let client = self.client();
                let number = self.number(self.clients[client]);
                self.packet(client, &numbered(number));
            }
            620..900 => self.reply(),
            900..920 => {
                let client = self.client();
                self.at[client] = self.rng.random_range(0..INGRESSES.len());
            }
            920..970 => {
                let millis = self.rng.random_range(10..400);
                self.net.pass(millis);
            }
            970..980 => {
                let relay = self.rng.random_range(0..CLUSTER.len());
                let cores: Vec<Hop> = CLUSTER[relay].iter().map(|at| hop(at)).collect();
                if self.net.dead.contains(&cores[0]) {
                    self.net.dead.retain(|core| !cores.contains(core));
                } else {
                    self.net.dead.extend(cores);
                }
            }
            980..988 => {
                let relay = self.rng.random_range(0..CLUSTER.len());
                for at in CLUSTER[relay] {
                    self.restart(at);
                }
            }
            988..994 => {
                let at = INGRESSES[self.rng.random_range(0..INGRESSES.len())];
                self.restart(at);
            }
            994..997 => {
                let at = INGRESSES[self.rng.random_range(0..INGRESSES.len())];
                let now = self.net.now;
                self.net.node(at).router.set_peers(now, peers(FLEET, 1));
            }
            _ => self.net.pass(4_000),
        }
        self.arrived();
    }

    fn number(&mut self, client: ClientAddr) -> u64 {
        self.next += 1;
        self.numbers.insert(self.next, client);
        self.next
    }

    fn packet(&mut self, client: usize, packet: &[u8]) -> Option<Reason> {
        let at = INGRESSES[self.at[client]];
        self.net.client(at, 0, self.clients[client], packet)
    }

    fn check(&mut self, client: usize, call: usize) {
        let call = &self.calls[call];
        let refused = self.packet(client, &call.requests.good);
        assert_eq!(refused, None);
        let known = self.ever.entry(self.clients[client]).or_default();
        known.insert(call.who);
    }

    fn reply(&mut self) {
        let mut all: Vec<_> = self.newest.keys().copied().collect();
        if all.is_empty() {
            return;
        }
        all.sort();
        let key = all[self.rng.random_range(0..all.len())];
        let got = self.newest[&key].clone();
        match self.rng.random_range(0..20) {
            0 => self.net.reply(&got, RecordKind::Close, false, b""),
            1 => self.net.reply(&got, RecordKind::UnknownSession, false, b""),
            _ => {
                let number = self.number(key.1);
                let proven = self.rng.random_bool(0.4);
                self.net
                    .reply(&got, RecordKind::Packet, proven, &numbered(number));
            }
        }
    }

    /// Delivers everything, and checks each thing that arrives.
    fn arrived(&mut self) -> (Vec<AtOwner>, Vec<AtClient>) {
        let (owners, clients) = self.net.run();
        let mut seen = HashSet::new();
        for got in &owners {
            let who = Who {
                session: got.header.session,
                owner: got.owner,
                shard: got.shard,
            };
            let from = got.header.client;
            assert!(self.ever[&from].contains(&who), "state without proof");
            if let Some(number) = number_of(&got.payload) {
                assert_eq!(self.numbers.get(&number), Some(&from));
                assert!(seen.insert((number, Some(who))), "twice at one session");
                self.totals.up += 1;
            }
            self.newest.insert((who, from), got.clone());
        }
        for got in &clients {
            let number = number_of(&got.payload).expect("only numbered packets come down");
            assert_eq!(self.numbers.get(&number), Some(&got.client));
            assert!(seen.insert((number, None)), "twice at its client");
            self.totals.down += 1;
        }
        let numbers: Vec<u64> = owners
            .iter()
            .filter_map(|got| number_of(&got.payload))
            .collect();
        let distinct: HashSet<&u64> = numbers.iter().collect();
        self.totals.doubled += (numbers.len() - distinct.len()) as u64;
        self.totals.lost += (self.numbers.len() as u64)
            .saturating_sub(distinct.len() as u64 + clients.len() as u64);
        self.numbers.clear();
        (owners, clients)
    }

    /// Everything is up: each client's next check works.
    fn settle(&mut self) {
        self.net.dead.clear();
        self.net.pass(8_000);
        for client in 0..self.clients.len() {
            let call = self.rng.random_range(0..self.calls.len());
            self.check(client, call);
            let (owners, _) = self.arrived();
            assert_eq!(owners.len(), 1, "a request goes where its ufrag says, only");
            let who = self.calls[call].who;
            let got = self.newest[&(who, self.clients[client])].clone();
            let number = self.number(self.clients[client]);
            self.net
                .reply(&got, RecordKind::Packet, true, &numbered(number));
            let (_, clients) = self.arrived();
            assert_eq!(clients.len(), 1, "what the owner answers comes down");
            assert_eq!(clients[0].relay, hop(INGRESSES[self.at[client]]));
            let number = self.number(self.clients[client]);
            self.packet(client, &numbered(number));
            let (owners, _) = self.arrived();
            assert_eq!(owners.len(), 1, "a proof makes the claim the only one");
            assert_eq!(
                (owners[0].owner, owners[0].header.session),
                (who.owner, who.session)
            );
        }
        self.count();
        self.net.pass(45_000);
        self.net.assert_clean();
    }

    /// A core dies and comes back without its flows; what it counted is kept here.
    fn restart(&mut self, at: &str) {
        self.count_one(at);
        self.start(at);
    }

    fn count(&mut self) {
        for at in INGRESSES.into_iter().chain(CLUSTER.concat()) {
            self.count_one(at);
        }
    }

    fn count_one(&mut self, at: &str) {
        let counters = self.net.node(at).router.counters().clone();
        self.totals.fail_overs += counters.fail_overs;
        self.totals.restored += counters.claims_restored;
        self.totals.displaced += counters.claims_displaced;
        self.totals.evicted += counters.claims_evicted;
    }
}

#[test]
fn whatever_dies_or_moves_packets_reach_whom_they_are_for_and_nobody_else() {
    let read = |name: &str| std::env::var(name).ok()?.parse::<u64>().ok();
    let seed = read("FIRSTHOP_SEED").unwrap_or_else(rand::random);
    let steps = read("FIRSTHOP_STEPS").unwrap_or(STEPS);
    println!("FIRSTHOP_SEED={seed} FIRSTHOP_STEPS={steps}");
    let mut calls = Vec::new();
    for session in 0..8 {
        let owner = ["10.2.9.1:5000", "10.2.9.1:5001", "[fd00::9]:5000"][session as usize % 3];
        let who = who(session, owner, (session % 2) as u8);
        calls.push(Call::new(who, ClusterId(2), 1, 0));
    }
    for session in 0..2 {
        calls.push(Call::new(
            who(session, "10.1.9.1:5000", 0),
            ClusterId(1),
            1,
            0,
        ));
    }
    let clients: Vec<ClientAddr> = [
        "203.0.113.1:1000",
        "203.0.113.1:1001",
        "203.0.113.2:1000",
        "198.51.100.7:40000",
        "[2001:db8::1:1]:1000",
        "[2001:db8::1:2]:1000",
    ]
    .map(client)
    .to_vec();
    let mut totals = Counts::default();
    for epoch in 0..steps.div_ceil(EPOCH) {
        let seed = seed.wrapping_add(epoch);
        println!("epoch seed {seed}");
        let mut simulation = Simulation::new(seed, &calls, &clients);
        for _ in 0..EPOCH {
            simulation.step();
        }
        simulation.settle();
        let one = simulation.totals;
        totals.up += one.up;
        totals.down += one.down;
        totals.doubled += one.doubled;
        totals.fail_overs += one.fail_overs;
        totals.restored += one.restored;
        totals.displaced += one.displaced;
        totals.evicted += one.evicted;
        totals.lost += one.lost;
    }
    if steps >= STEPS {
        let seen = [
            totals.up,
            totals.down,
            totals.doubled,
            totals.fail_overs,
            totals.restored,
            totals.displaced,
            totals.evicted,
            totals.lost,
        ];
        assert!(
            seen.iter().all(|count| *count > 20),
            "a rare path was missed: {seen:?}"
        );
    }
}
