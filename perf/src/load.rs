//! An open loop: every packet has a moment at which it is due, whatever became of those before, and latency counts from
//! that moment. So a stall of the program under test cannot hide the packets it delayed (coordinated omission).

use std::io;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::process::Process;
use crate::rig::{Direction, Rig};

/// How to load a program.
#[derive(Clone, Copy, Debug)]
pub struct LoadPlan {
    /// Which way.
    pub direction: Direction,
    /// Packets per second, each way, over all flows. Infinite: as many as this thread can send, each due when it is sent.
    pub rate: f64,
    /// How long to send.
    pub duration: Duration,
    /// How long to wait for stragglers while none comes: see [`STRAGGLERS`].
    pub stragglers: Duration,
}

impl LoadPlan {
    /// Packets that are due, each way; as many as there can be where the rate is infinite.
    fn total(&self) -> u64 {
        (self.duration.as_secs_f64() * self.rate) as u64
    }

    /// Whether it lasts. With a single packet it ends when that has come through, and what a program takes meanwhile is that of a moment; with none
    /// nothing was measured at all.
    #[must_use]
    pub fn lasts(&self) -> bool {
        self.total() >= 2
    }
}

/// Latency percentiles in microseconds, counted from the moment each packet was due.
#[derive(Clone, Copy, Default, Debug, Serialize)]
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
    pub(crate) fn of(histogram: &Histogram<u64>) -> Self {
        let micros = |quantile| histogram.value_at_quantile(quantile) as f64 / 1e3;
        Self {
            p50: micros(0.5),
            p99: micros(0.99),
            p999: micros(0.999),
            max: histogram.max() as f64 / 1e3,
        }
    }
}

/// What one way of a load showed.
#[derive(Clone, Copy, Default, Debug, Serialize)]
pub struct Way {
    /// Packets that were due, and sent.
    pub sent: u64,
    /// Packets that came through.
    pub received: u64,
    /// How long they took from the moment they were due.
    pub latency: Latency,
}

impl Way {
    /// The share of packets that did not come through.
    #[must_use]
    pub fn lost(&self) -> f64 {
        self.sent.saturating_sub(self.received) as f64 / self.sent.max(1) as f64
    }
}

/// What a load showed.
#[derive(Clone, Copy, Default, Debug, Serialize)]
pub struct LoadReport {
    /// Packets per second that were due, each way: what was asked for, or what this thread could send.
    pub rate: f64,
    /// From clients to owners.
    pub up: Option<Way>,
    /// From owners to clients.
    pub down: Option<Way>,
    /// Records per datagram on the way up.
    pub packing: f64,
    /// How late the generator itself sent: part of every latency above, and its share in them.
    pub generator: Latency,
    /// Processor time of the program per packet that came through, in nanoseconds.
    pub nanos: Option<f64>,
    /// Share of its processor that the program used.
    pub busy: Option<f64>,
}

/// Packets that are sent at most before arrivals are looked at.
const SEND_BUDGET: u32 = 64;

/// How long stragglers are waited for in a measurement: longer than anything takes on a machine that is quiet.
pub const STRAGGLERS: Duration = Duration::from_millis(300);

/// From 1 ns to 60 s with three digits.
pub(crate) fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 60_000_000_000, 3)
        .unwrap_or_else(|_| unreachable!("the bounds are valid"))
}

/// Sends at a fixed rate, and says what came of it. The flows must be [set up](Rig::set_up).
///
/// # Errors
/// It does not [last](LoadPlan::lasts), the program ended, or sockets fail.
pub fn run(
    rig: &mut Rig,
    process: Option<&mut Process>,
    plan: &LoadPlan,
) -> io::Result<LoadReport> {
    run_beside(rig, process, plan, || Ok(()))
}

/// Like [`run`], and does something else in every turn of the loop.
///
/// # Errors
/// As [`run`], and what the other thing says.
pub fn run_beside(
    rig: &mut Rig,
    mut process: Option<&mut Process>,
    plan: &LoadPlan,
    mut beside: impl FnMut() -> io::Result<()>,
) -> io::Result<LoadReport> {
    let mut total = plan.total();
    if !plan.lasts() {
        return Err(io::Error::other(format!(
            "{} packets a second for {:?} are too few to measure anything by",
            plan.rate, plan.duration
        )));
    }
    let (mut up, mut down, mut generator) = (histogram(), histogram(), histogram());
    let before = rig.owners.counts();
    let used_before = halted_usage(process.as_deref_mut())?;
    let flat_out = plan.rate.is_infinite();
    let gap = 1e9 / plan.rate;
    rig.start = Instant::now();
    let start = rig.start;
    let mut sent = 0u64;
    let mut last_arrival = start;
    loop {
        let now = start.elapsed().as_nanos() as u64;
        if flat_out && start.elapsed() >= plan.duration {
            total = total.min(sent);
        }
        let due = ((now as f64 / gap) as u64).saturating_add(1).min(total);
        for _ in 0..SEND_BUDGET {
            if sent >= due {
                break;
            }
            let due_nanos = if flat_out {
                now
            } else {
                (sent as f64 * gap) as u64
            };
            let flow = rig.order[(sent % rig.order.len() as u64) as usize];
            let size = rig.sizes.of(sent as u32);
            if plan.direction.up() {
                rig.crowd.media(flow, sent as u32, due_nanos, size)?;
            }
            if plan.direction.down() {
                rig.owners.media(flow, sent as u32, due_nanos, size)?;
            }
            generator.saturating_record(now.saturating_sub(due_nanos).max(1));
            sent += 1;
        }
        rig.crowd.flush()?;
        rig.owners.flush()?;
        if sent < total {
            beside()?;
        }
        let late = |due: u64| {
            (start.elapsed().as_nanos() as u64)
                .saturating_sub(due)
                .max(1)
        };
        let arrived = rig.poll(
            |stamp| up.saturating_record(late(stamp.due_nanos)),
            |stamp| down.saturating_record(late(stamp.due_nanos)),
        )?;
        if arrived.datagrams > 0 || sent < total {
            last_arrival = Instant::now();
        } else if last_arrival.elapsed() > plan.stragglers {
            break;
        }
        let complete = |on: bool, histogram: &Histogram<u64>| !on || histogram.len() >= total;
        if sent == total
            && complete(plan.direction.up(), &up)
            && complete(plan.direction.down(), &down)
        {
            break;
        }
    }
    let took = start.elapsed();
    let used = halted_usage(process)?.zip(used_before);
    let used = used.map(|(after, before)| (after - before) as f64);
    let counts = rig.owners.counts();
    let datagrams = counts.datagrams - before.datagrams;
    let way = |on: bool, histogram: &Histogram<u64>| {
        on.then(|| Way {
            sent: total,
            received: histogram.len(),
            latency: Latency::of(histogram),
        })
    };
    Ok(LoadReport {
        rate: if flat_out {
            total as f64 / plan.duration.as_secs_f64()
        } else {
            plan.rate
        },
        up: way(plan.direction.up(), &up),
        down: way(plan.direction.down(), &down),
        packing: (counts.records - before.records) as f64 / datagrams.max(1) as f64,
        generator: Latency::of(&generator),
        nanos: used.map(|nanos| nanos / (up.len() + down.len()).max(1) as f64),
        busy: used.map(|nanos| nanos / took.as_nanos() as f64),
    })
}

/// What a program has used; it stands still for a moment, so that the figure is exact.
pub(crate) fn halted_usage(process: Option<&mut Process>) -> io::Result<Option<u64>> {
    let Some(process) = process else {
        return Ok(None);
    };
    process.halt()?;
    let usage = process.usage()?.cpu_nanos;
    process.go_on()?;
    Ok(Some(usage))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_of_one_packet_or_none_does_not_last() {
        let lasts = |rate, millis| {
            LoadPlan {
                direction: Direction::Both,
                rate,
                duration: Duration::from_millis(millis),
                stragglers: STRAGGLERS,
            }
            .lasts()
        };
        assert!(!lasts(1.0, 500));
        assert!(!lasts(1.0, 1_500));
        assert!(lasts(1.0, 10_000));
        assert!(lasts(f64::INFINITY, 500));
    }
}
