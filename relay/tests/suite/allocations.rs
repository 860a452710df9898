//! No allocation on the packet path: a core's pump runs in this process under load, and its allocations are counted.
//!
//! The pump is one future. Each of its polls is some turns, with all the packets that they handle, and ends with one timer
//! of the executor, which allocates (see [`firsthop_relay::shard`] on why the pump yields by a timer). So a poll without
//! packets tells what a poll may allocate, and a poll with packets may not allocate more.

#![allow(unsafe_code)] // A global allocator is unsafe to write: this one counts, and hands everything on.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::net::{SocketAddr, UdpSocket};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use firsthop_relay::cache::{CacheSettings, FlowCache};
use firsthop_relay::control::CoreControl;
use firsthop_relay::counters::Published;
use firsthop_relay::limits;
use firsthop_relay::ring::{Ring, RingSize};
use firsthop_relay::shard::{PublicPath, Shard, ShardParts};
use firsthop_relay::sockets;
use firsthop_relay::wake::Wake;
use firsthop_relay_core::{
    CacheConfig, IngressPath, Micros, PeerList, Router, RouterConfig, Seeds, Steering, Transport,
};
use firsthop_service::paths::PathSizes;
use firsthop_shared::address::{BootId, ClusterId, IngressId, Networks, OwnerAddr};
use firsthop_shared::fleet::Fleet;
use firsthop_shared::trunk::{RecordHeader, RecordKind};
use glommio::{Latency, LocalExecutorBuilder, Placement, Shares};

use crate::testbed::owner::{Arrived, Owner, record};
use crate::testbed::redis::Redis;
use crate::testbed::{Client, Testbed, check_with, keyring, rtp, until};

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

fn count() {
    ALLOCATIONS.set(ALLOCATIONS.get() + 1);
}

// SAFETY: every call goes to the system's allocator unchanged, and counting neither allocates nor unwinds.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promise.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: the caller's promise.
        unsafe { System.realloc(block, layout, size) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const CLIENTS: u8 = 100;
const ROUNDS: u32 = 50;

/// Clients with a call in another cluster, and as many clients there with a call here.
const NEIGHBOURS: u8 = 20;

/// Rounds in which clients send checks too.
const CHECKED_ROUNDS: u32 = 8;

const IDLE: usize = 1;
const LOADED: usize = 2;
const ENDING: usize = 3;

/// What the pump's polls allocated, by phase.
#[derive(Default)]
struct Polls {
    phase: AtomicUsize,
    polls: [AtomicU64; 4],
    allocations: [AtomicU64; 4],
    most: [AtomicU64; 4],
}

/// Polls of one phase, their allocations, and the most in one of them.
#[derive(Debug)]
struct Counted {
    polls: u64,
    allocations: u64,
    most: u64,
}

impl Polls {
    fn of(&self, phase: usize) -> Counted {
        let of = |counts: &[AtomicU64; 4]| counts[phase].load(Ordering::Acquire);
        Counted {
            polls: of(&self.polls),
            allocations: of(&self.allocations),
            most: of(&self.most),
        }
    }

    fn record(&self, phase: usize, allocations: u64) {
        self.polls[phase].fetch_add(1, Ordering::Relaxed);
        self.allocations[phase].fetch_add(allocations, Ordering::Relaxed);
        self.most[phase].fetch_max(allocations, Ordering::Relaxed);
    }

    fn enter(&self, phase: usize) {
        self.phase.store(phase, Ordering::Release);
        until("the pump is polled in the phase", || {
            (self.polls[phase].load(Ordering::Relaxed) > 0).then_some(())
        });
    }
}

/// One core on the testbed's first public address: its pump runs in a thread until it is told to stop.
struct Core {
    thread: std::thread::JoinHandle<()>,
    control: Arc<CoreControl>,
    polls: Arc<Polls>,
}

impl Core {
    fn start(testbed: &Testbed, cache: Option<&FlowCache>) -> Self {
        let steering = Steering::new(0, 1);
        let internal = testbed.relay_internal(0);
        let (mut sockets, _) = sockets::open(
            &[testbed.public(0)],
            internal.ip(),
            internal.port(),
            &steering,
        )
        .expect("sockets");
        let sockets = sockets.remove(0);
        let (wake, wake_fd) = Wake::new().expect("an eventfd");
        let keys = Arc::new(keyring(7));
        let (control, mailbox) = CoreControl::new(Arc::clone(&keys), wake);
        let networks = Networks::parse(&testbed.internal_networks()).expect("networks");
        let seeds = Seeds {
            hash: [7; 2],
            generation: 7,
            boot: 7,
        };
        let mut config = RouterConfig::new(ClusterId(1), networks, seeds);
        let path = PublicPath {
            ingress: IngressId(0),
            ipv6: false,
        };
        config.paths = vec![IngressPath {
            ingress: path.ingress,
            transport: Transport::Udp,
            ipv6: path.ipv6,
        }];
        config.pending = limits::PENDING_RECORDS;
        config.peers = Neighbour::list(testbed, &config.internal);
        config.cache = cache.map(|_| CacheConfig { questions: 10_000 });
        let cache = cache.map(|cache| cache.enter(std::slice::from_ref(&control)).remove(0));
        let polls = Arc::new(Polls::default());
        let (armed_in, armed) = channel();
        let thread = {
            let (polls, cores) = (Arc::clone(&polls), vec![Arc::clone(&control)]);
            std::thread::spawn(move || {
                let start = Instant::now();
                let router = Router::new(&config, keys, Micros(0)).expect("a router");
                let parts = move || {
                    let size = RingSize::default();
                    ShardParts {
                        router,
                        ring: Ring::new(sockets.public, sockets.internal, wake_fd, size)
                            .expect("a ring"),
                        mailbox,
                        cores,
                        cache,
                        published: Arc::new(Published::new()),
                        public: vec![path],
                        path_sizes: PathSizes::new(config.trunks, None),
                        spin: true,
                        start,
                    }
                };
                pump(parts, polls, move || armed_in.send(()).expect("waited for"));
            })
        };
        armed.recv().expect("the core receives");
        Self {
            thread,
            control,
            polls,
        }
    }

    fn stop(self) {
        self.control.stop();
        self.thread.join().expect("it stopped in good order");
    }
}

/// Pumps in the calling thread as a relay does, and counts what each poll allocates.
fn pump(
    parts: impl FnOnce() -> ShardParts + 'static,
    polls: Arc<Polls>,
    armed: impl FnOnce() + 'static,
) {
    let counted = async move {
        let mut turns = pin!(Shard::new(parts()).run(armed));
        std::future::poll_fn(|context| {
            let phase = polls.phase.load(Ordering::Acquire);
            let before = ALLOCATIONS.get();
            let result = turns.as_mut().poll(context);
            let made = ALLOCATIONS.get() - before;
            // A poll between two phases belongs to neither.
            if phase == polls.phase.load(Ordering::Acquire) {
                polls.record(phase, made);
            }
            result
        })
        .await
        .expect("the ring works");
    };
    LocalExecutorBuilder::new(Placement::Unbound)
        .preempt_timer(limits::PREEMPT)
        .io_memory(limits::EXECUTOR_IO_MEMORY)
        .make()
        .expect("an executor")
        .run(async {
            let executor = glommio::executor();
            let queue =
                executor.create_task_queue(Shares::default(), Latency::NotImportant, "pump");
            glommio::spawn_local_into(counted, queue)
                .expect("a task")
                .await;
        });
}

/// Calls whose packets go up to an owner, and come back down.
struct Calls {
    relay: SocketAddr,
    owner: Owner,
    /// Whether the owner proves each client's address by what it sends.
    proven: bool,
    /// With the check of each one's session.
    clients: Vec<(Client, Vec<u8>)>,
    neighbour: Neighbour,
}

/// A relay of another cluster, as the core sees it: it leads to an owner there, and has clients whose owner is here.
struct Neighbour {
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
    fn list(testbed: &Testbed, internal: &Networks) -> Arc<PeerList> {
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
    fn new(testbed: &Testbed, number: u8, proven: bool) -> Self {
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
    fn close(&mut self) {
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
    fn all_kinds(&mut self, round: u32) {
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
struct Strangers {
    relay: SocketAddr,
    owner: Owner,
    /// Those that the cache knows; one more each round.
    known: Vec<Client>,
    next: usize,
}

impl Strangers {
    fn new(testbed: &Testbed, redis: &Redis) -> Self {
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
    fn come(&mut self) {
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

#[test]
fn a_pump_allocates_nothing_for_packets() {
    allocates_nothing(&Testbed::new(), None);
}

/// Proofs and ends are told to it, and strangers are asked about.
#[test]
fn a_pump_with_a_flow_cache_allocates_nothing_either() {
    let testbed = Testbed::new();
    let redis = Redis::start(&testbed, &[]);
    let settings = CacheSettings {
        url: Some(redis.url().parse().expect("a URL")),
        password_file: None,
        ca_file: None,
        questions: 10_000,
    };
    let target = settings.check(1).expect("valid").expect("set");
    let cache = FlowCache::start(target).expect("a thread");
    until("the cache is up", || {
        (redis.calls("ping") > 1).then_some(())
    });
    allocates_nothing(&testbed, Some((&cache, &redis)));
    assert!(redis.calls("set") >= u64::from(CLIENTS), "proofs");
    assert!(redis.calls("eval") >= u64::from(CLIENTS), "ends");
    assert!(redis.calls("getrange") >= u64::from(ROUNDS), "questions");
}

fn allocates_nothing(testbed: &Testbed, cached: Option<(&FlowCache, &Redis)>) {
    let core = Core::start(testbed, cached.map(|(cache, _)| cache));
    let mut strangers = cached.map(|(_, redis)| Strangers::new(testbed, redis));
    // The executor's own tables grow to their size.
    Calls::new(testbed, 0, cached.is_some()).all_kinds(0);

    core.polls.enter(IDLE);
    until("the pump was polled without packets", || {
        (core.polls.of(IDLE).polls >= 100).then_some(())
    });
    core.polls.enter(LOADED);
    // Other clients and another owner: also their first packets cost nothing.
    let mut calls = Calls::new(testbed, 1, cached.is_some());
    for round in 0..ROUNDS {
        calls.all_kinds(round);
        if let Some(strangers) = &mut strangers {
            strangers.come();
            // The next round of checks makes their flows anew.
            if round + 1 < CHECKED_ROUNDS {
                calls.close();
            }
        }
    }
    core.polls.enter(ENDING);

    let (idle, loaded) = (core.polls.of(IDLE), core.polls.of(LOADED));
    println!("{idle:?} idle, {loaded:?} loaded");
    assert!(
        idle.allocations >= idle.polls,
        "the counter sees the timer of every poll: {idle:?}"
    );
    let per_poll = |counted: &Counted| counted.allocations as f64 / counted.polls as f64;
    // However many polls a slow machine needs for the packets: what the polls themselves do not explain is next to nothing.
    let packets = f64::from(ROUNDS * 2 * 2 * u32::from(CLIENTS + 2 * NEIGHBOURS));
    let for_packets = loaded.allocations as f64 - loaded.polls as f64 * per_poll(&idle);
    assert!(
        for_packets < packets / 20.0,
        "{for_packets} for {packets} packets: {idle:?} idle, {loaded:?} loaded"
    );
    // A timer that is due before it is first polled is made once more (see the pump's pause): that is luck, and rare.
    assert!(
        loaded.most <= idle.most + 1,
        "{idle:?} idle, {loaded:?} loaded"
    );
    assert!(
        per_poll(&loaded) < 1.25 * per_poll(&idle),
        "{idle:?} idle, {loaded:?} loaded"
    );
    core.stop();
}
