//! What a packet costs a program that is saturated, whatever the generator can do.
//!
//! The program is halted while a backlog gathers in its sockets, and then works it off on its own processor, while this
//! thread takes what comes out on another. So it never waits for packets, its batches are full, and the sender's half of
//! loopback, on which the receiver's network stack runs, is not in its figures. A round's cost is what the kernel charged
//! between two halts; the median over the rounds is reported, because the machine may have other work.

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::counters::{Counter, Event};
use crate::process::{Process, udp_queue};
use crate::rig::{Arrived, Direction, Rig};
use crate::sinks::Sinks;

/// How to load a program.
#[derive(Clone, Copy, Debug)]
pub struct BurstPlan {
    /// What the program does with packets.
    pub work: Work,
    /// Packets of one backlog, each way.
    pub packets: u32,
    /// Rounds that count.
    pub rounds: u32,
    /// Whether [receivers sleep](crate::sinks) until something comes; else they look without a pause.
    pub asleep: bool,
}

/// What a program does with packets, and so what its backlog is, and when it is worked off.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Work {
    /// It forwards them: done when everything has arrived at the other end, or nothing more does.
    Forward(Direction),
    /// It throws them away: done when its receive queue at this address is empty.
    Receive(SocketAddr),
    /// It makes them when told to at this address: done when they have arrived at clients.
    Send(SocketAddr),
}

impl Work {
    /// Whether clients send.
    fn up(self) -> bool {
        match self {
            Self::Forward(direction) => direction.up(),
            Self::Receive(_) => true,
            Self::Send(_) => false,
        }
    }

    /// Whether owners send.
    fn down(self) -> bool {
        matches!(self, Self::Forward(direction) if direction.down())
    }
}

/// Rounds before those that count.
const WARM_UP: u32 = 3;

/// When nothing has arrived for so long, what is missing is lost...
const LOST_AFTER: Duration = Duration::from_millis(50);

/// ...if this thread has looked so often meanwhile: it may not have had its processor.
const LOST_LOOKS: u32 = 500;

/// How long a backlog may take altogether.
const ROUND_MAX: Duration = Duration::from_secs(3);

/// What it cost.
#[derive(Clone, Default, Debug, Serialize)]
pub struct Cost {
    /// Processor time of the program per packet that came through, in nanoseconds: median over the rounds.
    pub nanos: f64,
    /// The cheapest round.
    pub nanos_min: f64,
    /// Packets that were sent.
    pub packets: u64,
    /// Share of them that did not come through.
    pub lost: f64,
    /// Records per datagram on the way up; nothing when none went there.
    pub packing: Option<f64>,
    /// Processor cycles per packet, where the machine counts them.
    pub cycles: Option<f64>,
    /// Instructions per packet, where the machine counts them.
    pub instructions: Option<f64>,
    /// What the program says it dropped, and what the kernel dropped before it, by reason; of those that say.
    pub drops: BTreeMap<String, u64>,
}

/// Works off backlogs, and says what each packet cost. The flows must be [set up](Rig::set_up).
///
/// # Errors
/// The program ended, or sockets fail.
pub fn run(rig: &mut Rig, process: &mut Process, plan: &BurstPlan) -> io::Result<Cost> {
    let each_way = u64::from(plan.packets);
    let expected = match plan.work {
        Work::Forward(Direction::Both) => 2 * each_way,
        _ => each_way,
    };
    let commander = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    let mut position = 0;
    let mut costs = Vec::new();
    let (mut through, mut sent) = (0, 0);
    let sinks = plan
        .asleep
        .then(|| Sinks::start(rig, rig.wire))
        .transpose()?;
    let packed = |rig: &Rig| match &sinks {
        Some(sinks) => (sinks.received().records, sinks.received().datagrams),
        None => (rig.owners.counts().records, rig.owners.counts().datagrams),
    };
    let mut before = packed(rig);
    process.halt()?;
    let mut counters =
        [Event::Cycles, Event::Instructions].map(|event| Counter::open(process.id(), event).ok());
    let mut counted = [None; 2];
    for round in 0..WARM_UP + plan.rounds {
        if round == WARM_UP {
            before = packed(rig);
            counted = read_all(&mut counters);
        }
        let earlier = sinks.as_ref().map(Sinks::received).unwrap_or_default();
        for _ in 0..plan.packets {
            let flow = rig.order[position as usize % rig.order.len()];
            let size = rig.sizes.of(position);
            if plan.work.up() {
                rig.crowd.media(flow, position, 0, size)?;
            }
            if plan.work.down() {
                rig.owners.media(flow, position, 0, size)?;
            }
            position += 1;
        }
        rig.crowd.flush()?;
        rig.owners.flush()?;
        if let Work::Send(address) = plan.work {
            commander.send_to(&plan.packets.to_be_bytes(), address)?;
        }
        let start = process.usage()?.cpu_nanos;
        process.go_on()?;
        let arrived = if let Work::Receive(address) = plan.work {
            wait_empty(address)?;
            expected
        } else if let Some(sinks) = &sinks {
            let earlier = earlier.up + earlier.down;
            let now = sinks.wait(earlier + expected, LOST_AFTER, ROUND_MAX);
            now.up + now.down - earlier
        } else {
            let arrived = take_all(rig, expected)?;
            arrived.up + arrived.down
        };
        process.halt()?;
        let nanos = process.usage()?.cpu_nanos - start;
        if round >= WARM_UP {
            costs.push(nanos as f64 / arrived.max(1) as f64);
            through += arrived;
            sent += expected;
        }
    }
    let counted_after = read_all(&mut counters);
    process.go_on()?;
    let [cycles, instructions] = [0, 1].map(|i| {
        let count = counted_after[i]? - counted[i]?;
        Some(count as f64 / through.max(1) as f64)
    });
    let after = packed(rig);
    let (records, datagrams) = (after.0 - before.0, after.1 - before.1);
    costs.sort_by(f64::total_cmp);
    Ok(Cost {
        nanos: costs[costs.len() / 2],
        nanos_min: costs[0],
        packets: sent,
        lost: 1.0 - through as f64 / sent as f64,
        packing: (datagrams > 0).then(|| records as f64 / datagrams as f64),
        cycles,
        instructions,
        drops: BTreeMap::new(),
    })
}

fn read_all(counters: &mut [Option<Counter>; 2]) -> [Option<u64>; 2] {
    counters
        .each_mut()
        .map(|counter| counter.as_mut()?.read().ok())
}

/// Takes what comes until all has, or nothing more does, without a pause.
fn take_all(rig: &mut Rig, expected: u64) -> io::Result<Arrived> {
    let begin = Instant::now();
    let mut last = begin;
    let mut looks = 0;
    let mut total = Arrived::default();
    while total.up + total.down < expected
        && (looks < LOST_LOOKS || last.elapsed() < LOST_AFTER)
        && begin.elapsed() < ROUND_MAX
    {
        looks += 1;
        let arrived = rig.poll(|_| {}, |_| {})?;
        total.up += arrived.up;
        total.down += arrived.down;
        if arrived.datagrams > 0 {
            last = Instant::now();
            looks = 0;
        }
    }
    Ok(total)
}

/// Waits until a receive queue is empty.
pub(crate) fn wait_empty(address: SocketAddr) -> io::Result<()> {
    let begin = Instant::now();
    while udp_queue(address)?.is_some_and(|queue| queue > 0) {
        if begin.elapsed() > ROUND_MAX {
            return Err(io::Error::other(format!(
                "{address}: the queue is never empty"
            )));
        }
    }
    Ok(())
}
