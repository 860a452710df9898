//! A core's pump in this process, whose polls are counted with what they allocate.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::time::Instant;

use firsthop_relay::cache::FlowCache;
use firsthop_relay::control::CoreControl;
use firsthop_relay::counters::Published;
use firsthop_relay::limits;
use firsthop_relay::ring::{Ring, RingSize};
use firsthop_relay::shard::{PublicPath, Shard, ShardParts};
use firsthop_relay::sockets;
use firsthop_relay::wake::Wake;
use firsthop_relay_core::{
    CacheConfig, IngressPath, Micros, Router, RouterConfig, Seeds, Steering, Transport,
};
use firsthop_service::paths::PathSizes;
use firsthop_shared::address::{ClusterId, IngressId, Networks};
use glommio::{Latency, LocalExecutorBuilder, Placement, Shares};

use super::ALLOCATIONS;
use super::calls::Neighbour;
use crate::testbed::{Testbed, keyring, until};

pub(super) const IDLE: usize = 1;
pub(super) const LOADED: usize = 2;
pub(super) const ENDING: usize = 3;

/// What the pump's polls allocated, by phase.
#[derive(Default)]
pub(super) struct Polls {
    phase: AtomicUsize,
    polls: [AtomicU64; 4],
    allocations: [AtomicU64; 4],
    most: [AtomicU64; 4],
}

/// Polls of one phase, their allocations, and the most in one of them.
#[derive(Debug)]
pub(super) struct Counted {
    pub(super) polls: u64,
    pub(super) allocations: u64,
    pub(super) most: u64,
}

impl Polls {
    pub(super) fn of(&self, phase: usize) -> Counted {
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

    pub(super) fn enter(&self, phase: usize) {
        self.phase.store(phase, Ordering::Release);
        until("the pump is polled in the phase", || {
            (self.polls[phase].load(Ordering::Relaxed) > 0).then_some(())
        });
    }
}

/// One core on the testbed's first public address: its pump runs in a thread until it is told to stop.
pub(super) struct Core {
    thread: std::thread::JoinHandle<()>,
    control: Arc<CoreControl>,
    pub(super) polls: Arc<Polls>,
}

impl Core {
    pub(super) fn start(testbed: &Testbed, cache: Option<&FlowCache>) -> Self {
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

    pub(super) fn stop(self) {
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
