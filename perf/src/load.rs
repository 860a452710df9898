//! An open-loop load on a running relay: flows are proven first, then each sends at a fixed rate whatever comes back.

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use firsthop_shared::address::{ClusterId, OwnerAddr, SessionId, ShardId};
use firsthop_shared::keyring::DataKeyring;
use firsthop_shared::limits::CLIENT_PACKET_MAX;
use hdrhistogram::Histogram;
use mio::{Events, Interest, Poll, Token};
use rand::seq::SliceRandom as _;
use serde::Serialize;

use crate::flow::Flow;
use crate::owner::{Owner, OwnerCounts};

/// How often an unanswered check is sent again.
const CHECK_INTERVAL: Duration = Duration::from_millis(200);

/// How many sockets are read between two looks at the clock.
const EVENTS: usize = 1_024;

/// What to load.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The relay's address as clients use it.
    pub relay: SocketAddr,
    /// The cluster that tokens name.
    pub cluster: ClusterId,
    /// Where the stand-in owners listen; their ports follow each other, or are chosen by the system when it is 0.
    pub owner: SocketAddr,
    /// How many owners.
    pub owners: u16,
    /// How many flows, spread over the owners in turn.
    pub flows: u32,
    /// Packets per second and flow.
    pub rate: f64,
    /// How long to send.
    pub duration: Duration,
    /// Bytes of each packet.
    pub size: usize,
    /// Whether the owners send every packet back.
    pub both_ways: bool,
    /// How long to wait for all flows to be proven.
    pub set_up: Duration,
    /// The largest trunk datagram that the owners write.
    pub datagram_len: usize,
}

/// Why a load did not run.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// A socket failed.
    #[error("socket: {0}")]
    Io(#[from] io::Error),
    /// Not every flow was proven in time.
    #[error(
        "only {proven} of {flows} flows were proven: is the relay at that address, with this keyring and cluster?"
    )]
    SetUp {
        /// How many were.
        proven: usize,
        /// How many there are.
        flows: u32,
    },
    /// A setting that makes no load.
    #[error("{0}")]
    Setting(&'static str),
}

/// Latency percentiles in microseconds, counted from the moment each packet was due.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Latency {
    /// Median.
    pub p50: f64,
    /// 99th percentile.
    pub p99: f64,
    /// 99.9th percentile.
    pub p999: f64,
    /// The longest.
    pub max: f64,
}

impl Latency {
    fn of(histogram: &Histogram<u64>) -> Self {
        let micros = |quantile| histogram.value_at_quantile(quantile) as f64 / 1e3;
        Self {
            p50: micros(0.5),
            p99: micros(0.99),
            p999: micros(0.999),
            max: histogram.max() as f64 / 1e3,
        }
    }
}

/// What a load showed.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// How many flows there were.
    pub flows: u32,
    /// Time from the first check until every flow was proven, in milliseconds.
    pub set_up_ms: f64,
    /// Packets that clients sent.
    pub sent: u64,
    /// Packets that owners received.
    pub received_up: u64,
    /// Packets that came back to their clients.
    pub received_down: u64,
    /// Trunk records per datagram on the way up.
    pub packing: f64,
    /// Datagrams and records that owners refused.
    pub refused: u64,
    /// Client to owner.
    pub up: Latency,
    /// Client to owner and back, when packets are sent back.
    pub round_trip: Option<Latency>,
}

/// Runs a load against a relay that is already up.
///
/// # Errors
/// When sockets fail, or the flows cannot be set up.
pub fn run(plan: &Plan, keyring: &DataKeyring) -> Result<Report, LoadError> {
    if plan.flows == 0 || plan.owners == 0 {
        return Err(LoadError::Setting("--flows and --owners are at least 1"));
    }
    if plan.rate.is_nan() || plan.rate <= 0.0 {
        return Err(LoadError::Setting(
            "--rate is a positive number of packets per second",
        ));
    }
    if plan.size > CLIENT_PACKET_MAX {
        return Err(LoadError::Setting(
            "--size is larger than any packet of a client",
        ));
    }
    let mut load = Load::open(plan, keyring)?;
    let set_up = load.prove()?;
    load.send(set_up)
}

struct Load<'a> {
    plan: &'a Plan,
    keyring: &'a DataKeyring,
    poll: Poll,
    flows: Vec<Flow>,
    owners: Vec<Owner>,
    start: Instant,
    buffer: Vec<u8>,
    scratch: Vec<u8>,
    up: Histogram<u64>,
    down: Histogram<u64>,
}

impl<'a> Load<'a> {
    fn open(plan: &'a Plan, keyring: &'a DataKeyring) -> Result<Self, LoadError> {
        let poll = Poll::new()?;
        let mut owners = Vec::with_capacity(usize::from(plan.owners));
        for index in 0..plan.owners {
            let mut address = plan.owner;
            if address.port() != 0 {
                address.set_port(address.port() + index);
            }
            let mut owner = Owner::open(address, ShardId(0), plan.both_ways, plan.datagram_len)?;
            let token = Token(plan.flows as usize + usize::from(index));
            poll.registry()
                .register(owner.socket(), token, Interest::READABLE)?;
            owners.push(owner);
        }
        let mut flows = Vec::with_capacity(plan.flows as usize);
        for index in 0..plan.flows {
            let owner = &mut owners[index as usize % usize::from(plan.owners)];
            let session = SessionId(index + 1);
            owner.create(session);
            let address = OwnerAddr::new(owner.address()?);
            let mut flow = Flow::open(
                keyring,
                plan.cluster,
                address,
                ShardId(0),
                session,
                plan.relay,
            )?;
            poll.registry()
                .register(flow.socket(), Token(index as usize), Interest::READABLE)?;
            flows.push(flow);
        }
        Ok(Self {
            plan,
            keyring,
            poll,
            flows,
            owners,
            start: Instant::now(),
            buffer: vec![0; 2_048],
            scratch: Vec::new(),
            up: histogram(),
            down: histogram(),
        })
    }

    /// Sends checks until every owner has proven all of its flows.
    fn prove(&mut self) -> Result<Duration, LoadError> {
        let begin = Instant::now();
        let mut next_check = begin;
        loop {
            let proven: usize = self.owners.iter().map(Owner::proven).sum();
            if proven == self.flows.len() {
                return Ok(begin.elapsed());
            }
            let now = Instant::now();
            if now >= begin + self.plan.set_up {
                return Err(LoadError::SetUp {
                    proven,
                    flows: self.plan.flows,
                });
            }
            if now >= next_check {
                next_check = now + CHECK_INTERVAL;
                // In small groups, so that the burst of checks fits the sockets' buffers.
                for group in 0..self.flows.len().div_ceil(64) {
                    for flow in self.flows.iter().skip(group * 64).take(64) {
                        ignore_full(flow.send_check(&mut self.scratch))?;
                    }
                    self.turn(Duration::ZERO)?;
                }
            }
            self.turn(next_check.saturating_duration_since(Instant::now()))?;
        }
    }

    /// Sends every packet when it is due, in an order of flows that is shuffled once, then waits for the stragglers.
    fn send(&mut self, set_up: Duration) -> Result<Report, LoadError> {
        let before: u64 = self.owners.iter().map(|o| o.counts().records).sum();
        let datagrams_before: u64 = self.owners.iter().map(|o| o.counts().datagrams).sum();
        let mut order: Vec<u32> = (0..self.plan.flows).collect();
        order.shuffle(&mut rand::rng());
        let gap = 1.0 / (self.plan.rate * f64::from(self.plan.flows));
        let total = (self.plan.duration.as_secs_f64() / gap) as u64;
        let mut packet = vec![0; CLIENT_PACKET_MAX];
        self.start = Instant::now();
        let mut sent = 0;
        while sent < total {
            let due = Duration::from_secs_f64(sent as f64 * gap);
            let wait = due.saturating_sub(self.start.elapsed());
            if wait.is_zero() {
                let flow = order[(sent % order.len() as u64) as usize];
                let nanos = due.as_nanos() as u64;
                let result =
                    self.flows[flow as usize].send_media(flow, nanos, &mut packet, self.plan.size);
                ignore_full(result)?;
                sent += 1;
                if !sent.is_multiple_of(32) {
                    continue;
                }
            }
            self.turn(wait)?;
        }
        let expected_down = if self.plan.both_ways { total } else { 0 };
        let last = Instant::now() + Duration::from_secs(1);
        while (self.up.len() < total || self.down.len() < expected_down) && Instant::now() < last {
            self.turn(last.saturating_duration_since(Instant::now()))?;
        }
        let counts: Vec<OwnerCounts> = self.owners.iter().map(Owner::counts).collect();
        let records = counts.iter().map(|c| c.records).sum::<u64>() - before;
        let datagrams = counts.iter().map(|c| c.datagrams).sum::<u64>() - datagrams_before;
        Ok(Report {
            flows: self.plan.flows,
            set_up_ms: set_up.as_secs_f64() * 1e3,
            sent: total,
            received_up: self.up.len(),
            received_down: self.down.len(),
            packing: records as f64 / datagrams.max(1) as f64,
            refused: counts.iter().map(|c| c.refused).sum(),
            up: Latency::of(&self.up),
            round_trip: self.plan.both_ways.then(|| Latency::of(&self.down)),
        })
    }

    /// Waits for packets, at most `wait`, and handles those that came.
    fn turn(&mut self, wait: Duration) -> io::Result<()> {
        let mut events = Events::with_capacity(EVENTS);
        match self.poll.poll(&mut events, Some(wait)) {
            Err(e) if e.kind() != io::ErrorKind::Interrupted => return Err(e),
            _ => {}
        }
        for event in &events {
            let index = event.token().0;
            let start = self.start;
            let late = |due: u64| {
                (start.elapsed().as_nanos() as u64)
                    .saturating_sub(due)
                    .max(1)
            };
            if let Some(flow) = self.flows.get(index) {
                loop {
                    match flow.receive(&mut self.buffer, &mut self.scratch) {
                        Ok(Some(stamp)) => self.down.saturating_record(late(stamp.due_nanos)),
                        Ok(None) => {}
                        Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                        Err(e) => return Err(e),
                    }
                }
            } else {
                let up = &mut self.up;
                self.owners[index - self.flows.len()].receive(self.keyring, |stamp| {
                    up.saturating_record(late(stamp.due_nanos));
                })?;
            }
        }
        Ok(())
    }
}

/// From 1 ns to 60 s with three digits.
fn histogram() -> Histogram<u64> {
    match Histogram::new_with_bounds(1, 60_000_000_000, 3) {
        Ok(histogram) => histogram,
        Err(_) => unreachable!("the bounds are valid"),
    }
}

/// A full socket buffer is a loss that the report shows, not a failure of the run.
fn ignore_full(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(()),
        other => other,
    }
}
