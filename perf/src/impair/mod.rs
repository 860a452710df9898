//! A link between two Ethernet interfaces that is as long, uneven, lossy or cut as it is told to be: what `tc netem` is, where the kernel has none.
//!
//! Pure: [`fate`]. System calls: [`link`]. One thread moves the frames; it sleeps until a frame comes or is due.

use std::io;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

pub mod fate;
pub mod link;

use crate::clock::wall_nanos;
use crate::orders::{Giver, Gone, Taker, way};
use crate::readable;
use fate::{Dropped, Fate, Line};
use link::{Frames, Link, VIRTIO};

/// Frames that one turn sends at most, each way, before others are received.
const SENDS_PER_TURN: usize = 256;

/// The longest sleep.
const LONGEST_WAIT: Duration = Duration::from_millis(100);

/// A frame that the kernel stamped longer ago than this came now: somebody has set the clock.
const OLDEST: Duration = Duration::from_secs(1);

/// A frame of one direction, with the header of virtio.
type Frame = Box<[u8]>;

/// What one direction has done.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize)]
pub struct Way {
    /// Frames that went out.
    pub forwarded: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Frames that wait until they are due.
    pub underway: usize,
    /// Frames that were dropped on purpose.
    pub dropped: Dropped,
    /// Frames that the outgoing interface did not take.
    pub refused: u64,
    /// Frames that the incoming interface had no room for: this program was too slow.
    pub overrun: u64,
}

/// How much later than due frames went out, in microseconds.
#[derive(Clone, Copy, PartialEq, Default, Debug, Serialize, Deserialize)]
pub struct Late {
    /// Half of them less.
    pub p50: f64,
    /// One in a hundred more.
    pub p99: f64,
    /// The worst.
    pub max: f64,
    /// How many frames.
    pub frames: u64,
}

/// What a link has done since it began; how late it was since the last report.
#[derive(Clone, Copy, PartialEq, Default, Debug, Serialize)]
pub struct Report {
    /// From the first interface to the second.
    pub a_to_b: Way,
    /// And back.
    pub b_to_a: Way,
    /// How exact it was.
    pub late_us: Late,
}

enum Order {
    Set(Line, mpsc::Sender<()>),
    Measure(mpsc::Sender<Report>),
}

/// A link that runs until it is dropped.
pub struct Impaired {
    orders: Option<Giver<Order>>,
    thread: Option<std::thread::JoinHandle<io::Result<()>>>,
}

impl Impaired {
    /// Joins two interfaces.
    ///
    /// # Errors
    /// The system gives no thread.
    pub fn start(links: [Link; 2], line: Line, seed: u64) -> io::Result<Self> {
        let (orders, taker) = way()?;
        let forwarder = Forwarder {
            links,
            // The two directions lose different frames.
            fates: [Fate::new(line, seed), Fate::new(line, !seed)],
            ways: [Way::default(); 2],
            late: lateness(),
            begin: Instant::now(),
            inbox: Frames::default(),
            orders: taker,
        };
        let thread = std::thread::Builder::new()
            .name("link".to_owned())
            .spawn(move || forwarder.run())?;
        Ok(Self {
            orders: Some(orders),
            thread: Some(thread),
        })
    }

    /// Changes what the link does, both ways. Frames that come from now on are treated so, and none that came before.
    ///
    /// # Errors
    /// Why the link has ended.
    pub fn set(&mut self, line: Line) -> io::Result<()> {
        let done = self
            .orders
            .as_ref()
            .map(|orders| orders.ask(|tell| Order::Set(line, tell)));
        self.unless_ended(done)
    }

    /// What the link has done.
    ///
    /// # Errors
    /// Why the link has ended.
    pub fn measure(&mut self) -> io::Result<Report> {
        let told = self.orders.as_ref().map(|o| o.ask(Order::Measure));
        self.unless_ended(told)
    }

    fn unless_ended<A>(&mut self, answer: Option<Result<A, Gone>>) -> io::Result<A> {
        match (answer, self.thread.take()) {
            (Some(Ok(answer)), thread) => {
                self.thread = thread;
                Ok(answer)
            }
            (_, Some(thread)) => match thread.join() {
                Ok(Err(error)) => Err(error),
                _ => Err(io::Error::other(Gone)),
            },
            (_, None) => Err(io::Error::other(Gone)),
        }
    }
}

impl Drop for Impaired {
    fn drop(&mut self) {
        self.orders = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Forwarder {
    links: [Link; 2],
    fates: [Fate<Frame>; 2],
    ways: [Way; 2],
    late: Histogram<u64>,
    begin: Instant,
    inbox: Frames,
    orders: Taker<Order>,
}

fn lateness() -> Histogram<u64> {
    // In nanoseconds, up to a minute.
    Histogram::new_with_bounds(1, 60_000_000_000, 2)
        .unwrap_or_else(|_| unreachable!("the bounds are valid"))
}

impl Forwarder {
    fn run(mut self) -> io::Result<()> {
        let mut descriptors: Vec<_> = self.links.iter().map(Link::descriptor).collect();
        descriptors.push(self.orders.descriptor());
        loop {
            // 1. Orders.
            loop {
                match self.orders.take() {
                    Ok(Some(Order::Set(line, tell))) => {
                        for at in 0..2 {
                            self.receive_all(at)?;
                        }
                        self.fates.iter_mut().for_each(|fate| fate.set(line));
                        // Whoever asked may have gone.
                        let _ = tell.send(());
                    }
                    Ok(Some(Order::Measure(tell))) => {
                        let report = self.report()?;
                        let _ = tell.send(report);
                    }
                    Ok(None) => break,
                    Err(Gone) => return Ok(()),
                }
            }
            // 2. What has come.
            let mut more = false;
            for at in 0..2 {
                more |= self.receive(at)?;
            }
            // 3. What is due.
            for at in 0..2 {
                more |= self.send(at)?;
            }
            // 4. Until there is more.
            if !more {
                let next = self.fates.iter().filter_map(Fate::next).min();
                let wait = next.map_or(LONGEST_WAIT, |due| {
                    Duration::from_nanos(due.saturating_sub(self.now()))
                });
                readable::wait(&descriptors, wait.min(LONGEST_WAIT))?;
            }
        }
    }

    /// Nanoseconds since it began.
    fn now(&self) -> u64 {
        self.begin.elapsed().as_nanos() as u64
    }

    fn receive(&mut self, at: usize) -> io::Result<bool> {
        let count = self.inbox.receive(&self.links[at])?;
        if count == 0 {
            return Ok(false);
        }
        let now = self.now();
        let wall = wall_nanos();
        for (frame, stamped) in self.inbox.frames() {
            // The kernel stamps by a clock that may be set; what is due goes by one that may not.
            let age = stamped.map_or(0, |stamped| wall.saturating_sub(stamped));
            let age = if age > OLDEST.as_nanos() as u64 {
                0
            } else {
                age
            };
            self.fates[at].take(frame.into(), frame.len(), now.saturating_sub(age));
        }
        Ok(count == link::BATCH)
    }

    /// Takes all that has come, so far as it can be told from what comes meanwhile.
    fn receive_all(&mut self, at: usize) -> io::Result<()> {
        for _ in 0..fate::FRAMES_MAX / link::BATCH {
            if !self.receive(at)? {
                break;
            }
        }
        Ok(())
    }

    /// Sends what came from interface number `at` and is due; returns whether more is.
    fn send(&mut self, at: usize) -> io::Result<bool> {
        let out = &self.links[1 - at];
        let (fate, way) = (&mut self.fates[at], &mut self.ways[at]);
        for _ in 0..SENDS_PER_TURN {
            let now = self.begin.elapsed().as_nanos() as u64;
            let Some((frame, due)) = fate.due(now) else {
                return Ok(false);
            };
            if out.send(&frame)? {
                way.forwarded += 1;
                way.bytes += frame.len().saturating_sub(VIRTIO) as u64;
                self.late.saturating_record((now - due).max(1));
            } else {
                way.refused += 1;
            }
        }
        Ok(true)
    }

    fn report(&mut self) -> io::Result<Report> {
        for (at, way) in self.ways.iter_mut().enumerate() {
            way.underway = self.fates[at].len();
            way.dropped = self.fates[at].dropped();
            way.overrun = self.links[at].overrun()?;
        }
        let late = std::mem::replace(&mut self.late, lateness());
        let micros = |nanos: u64| nanos as f64 / 1_000.0;
        Ok(Report {
            a_to_b: self.ways[0],
            b_to_a: self.ways[1],
            late_us: Late {
                p50: micros(late.value_at_quantile(0.5)),
                p99: micros(late.value_at_quantile(0.99)),
                max: micros(late.max()),
                frames: late.len(),
            },
        })
    }
}
