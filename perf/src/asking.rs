//! Calls made on signaling: how many a second, and how long each takes.
//!
//! Two kinds of load. Clients that *always ask* show what a processor gives at the most, and latency at saturation. In an *open loop* every
//! call has a moment at which it is due, whatever became of those before, and latency counts from that moment.

use std::cell::RefCell;
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use serde::Serialize;
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::{JoinSet, LocalSet};

use crate::front_door::FrontDoor;
use crate::http::Messages;
use crate::load::{Latency, halted_usage, histogram};
use crate::place;

/// Calls that each client makes before it counts, so that everything is open and warm.
const WARM_UP: u32 = 20;

/// How often a client asks.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Pace {
    /// As soon as it has the answer.
    AlwaysAsking,
    /// All clients together, in calls per second.
    OpenLoop(f64),
}

/// How to load signaling.
#[derive(Clone, Copy, Debug)]
pub struct CallPlan {
    /// How many clients, each with an address of its own.
    pub clients: u32,
    /// How often they ask.
    pub pace: Pace,
    /// Whether each call has a connection of its own, as a caller in a browser has; else each client has one.
    pub connects: bool,
    /// How long.
    pub duration: Duration,
}

/// What a load showed.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct CallLoad {
    /// How many clients asked.
    pub clients: u32,
    /// Calls per second that were due; nothing when the clients always asked.
    pub due: Option<f64>,
    /// Whether each call had a connection of its own.
    pub connects: bool,
    /// Calls made: each was answered with 201.
    pub calls: u64,
    /// Calls made per second.
    pub per_second: f64,
    /// Processor time of signaling per call, in microseconds.
    pub micros: f64,
    /// Share of its processor that signaling used.
    pub busy: f64,
    /// How long calls took, from the moment they were asked for, or were due.
    pub latency: Latency,
    /// How late this side asked, in an open loop: part of every latency above.
    pub generator: Option<Latency>,
}

impl CallLoad {
    /// Calls per second of signaling's processor time: what a core gives when it has one to itself.
    #[must_use]
    pub fn per_core(&self) -> f64 {
        1e6 / self.micros
    }
}

/// A call was answered, but not made. It is what an [`io::Error`] of [`run`] is of then.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("signaling answers {0}")]
pub struct Refused(
    /// The answer's first line.
    String,
);

impl Refused {
    /// Whether this is what an error is of.
    #[must_use]
    pub fn is_in(error: &io::Error) -> bool {
        error.get_ref().is_some_and(|inner| inner.is::<Self>())
    }
}

/// Loads signaling, and says what came of it.
///
/// # Errors
/// A call was answered, but not with 201 ([`Refused`]), or signaling ended, or sockets fail.
pub fn run(door: &mut FrontDoor, plan: &CallPlan) -> io::Result<CallLoad> {
    let request = request(door, plan.connects);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let tasks = LocalSet::new();
    let clients = (0..plan.clients).map(|n| Client {
        from: place::client(n),
        to: door.api,
        request: Arc::clone(&request),
        connects: plan.connects,
        connection: None,
    });
    let warm = tasks.block_on(&runtime, async {
        let mut warming = JoinSet::new();
        for mut client in clients {
            warming.spawn_local(async move {
                for _ in 0..WARM_UP {
                    client.call().await?;
                }
                Ok::<_, io::Error>(client)
            });
        }
        all(warming).await
    })?;

    let before = halted_usage(Some(&mut door.process))?;
    let start = Instant::now();
    let latency = Rc::new(RefCell::new(histogram()));
    let schedule = match plan.pace {
        Pace::AlwaysAsking => None,
        Pace::OpenLoop(rate) => Some(Schedule::begin(start, rate, plan.duration)?),
    };
    tasks.block_on(&runtime, async {
        let mut asking = JoinSet::new();
        for client in warm {
            let latency = Rc::clone(&latency);
            match &schedule {
                None => asking.spawn_local(always(client, start + plan.duration, latency)),
                Some(schedule) => {
                    asking.spawn_local(when_due(client, schedule.turns.clone(), latency))
                }
            };
        }
        all(asking).await
    })?;
    let took = start.elapsed();
    let used = halted_usage(Some(&mut door.process))?.zip(before);
    let used = used.map_or(0, |(after, before)| after - before) as f64;
    let latency = latency.borrow();
    let calls = latency.len();
    Ok(CallLoad {
        clients: plan.clients,
        due: match plan.pace {
            Pace::AlwaysAsking => None,
            Pace::OpenLoop(rate) => Some(rate),
        },
        connects: plan.connects,
        calls,
        per_second: calls as f64 / took.as_secs_f64(),
        micros: used / 1e3 / calls.max(1) as f64,
        busy: used / took.as_nanos() as f64,
        latency: Latency::of(&latency),
        generator: schedule.map(Schedule::lateness).transpose()?,
    })
}

/// Waits for all of them, and gives up with the first that fails.
async fn all<T: 'static>(mut tasks: JoinSet<io::Result<T>>) -> io::Result<Vec<T>> {
    let mut done = Vec::new();
    while let Some(one) = tasks.join_next().await {
        done.push(one.map_err(io::Error::other)??);
    }
    Ok(done)
}

async fn always(
    mut client: Client,
    end: Instant,
    latency: Rc<RefCell<Histogram<u64>>>,
) -> io::Result<()> {
    loop {
        let asked = Instant::now();
        if asked >= end {
            return Ok(());
        }
        client.call().await?;
        record(&latency, asked);
    }
}

async fn when_due(
    mut client: Client,
    turns: Turns,
    latency: Rc<RefCell<Histogram<u64>>>,
) -> io::Result<()> {
    while let Some(due) = turns.next().await {
        client.call().await?;
        record(&latency, due);
    }
    Ok(())
}

fn record(latency: &RefCell<Histogram<u64>>, since: Instant) {
    let nanos = u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX);
    latency.borrow_mut().saturating_record(nanos.max(1));
}

/// Calls that become due one after another; whichever client is free takes the next.
struct Schedule {
    turns: Turns,
    pacer: std::thread::JoinHandle<Histogram<u64>>,
}

#[derive(Clone)]
struct Turns {
    /// A permit for each call that is due and not taken.
    due: Arc<Semaphore>,
    taken: Rc<RefCell<u64>>,
    start: Instant,
    gap: f64,
    total: u64,
}

impl Schedule {
    /// Calls at this rate from now on. A thread of its own keeps the time: the runtime's timers know whole milliseconds alone.
    fn begin(start: Instant, rate: f64, duration: Duration) -> io::Result<Self> {
        let turns = Turns {
            due: Arc::new(Semaphore::new(0)),
            taken: Rc::default(),
            start,
            gap: 1.0 / rate,
            total: (rate * duration.as_secs_f64()) as u64,
        };
        let (due, gap, total) = (Arc::clone(&turns.due), turns.gap, turns.total);
        let pacer = std::thread::Builder::new()
            .name("pacer".into())
            .spawn(move || {
                let mut late = histogram();
                for n in 0..total {
                    // Nobody waits any more: a call failed.
                    if Arc::strong_count(&due) == 1 {
                        break;
                    }
                    let at = start + Duration::from_secs_f64(n as f64 * gap);
                    std::thread::sleep(at.saturating_duration_since(Instant::now()));
                    let nanos = u64::try_from(at.elapsed().as_nanos()).unwrap_or(u64::MAX);
                    late.saturating_record(nanos.max(1));
                    due.add_permits(1);
                }
                late
            })?;
        Ok(Self { turns, pacer })
    }

    /// How late calls became due, once all have.
    fn lateness(self) -> io::Result<Latency> {
        let late = self.pacer.join();
        let late = late.map_err(|_| io::Error::other("the pacer failed"))?;
        Ok(Latency::of(&late))
    }
}

impl Turns {
    /// Waits for the next call that is due, and returns when it was; nothing after the last.
    async fn next(&self) -> Option<Instant> {
        let turn = {
            let mut taken = self.taken.borrow_mut();
            *taken += 1;
            *taken - 1
        };
        if turn >= self.total {
            return None;
        }
        self.due.acquire().await.ok()?.forget();
        Some(self.start + Duration::from_secs_f64(turn as f64 * self.gap))
    }
}

fn request(door: &FrontDoor, connects: bool) -> Arc<[u8]> {
    let offer = include_str!("offer.sdp");
    let connection = if connects { "close" } else { "keep-alive" };
    let request = format!(
        "POST /v1/realtime/calls HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\nconnection: {connection}\r\n\
         content-type: application/sdp\r\ncontent-length: {}\r\n\r\n{offer}",
        door.api,
        door.key,
        offer.len()
    );
    request.into_bytes().into()
}

/// One that makes calls.
struct Client {
    from: Ipv4Addr,
    to: SocketAddrV4,
    request: Arc<[u8]>,
    connects: bool,
    connection: Option<Messages<TcpStream>>,
}

impl Client {
    /// Makes a call.
    async fn call(&mut self) -> io::Result<()> {
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => self.connect().await?,
        };
        connection.stream().write_all(&self.request).await?;
        let answer = connection.next().await?;
        let Some(first) = answer.and_then(|head| head.lines().next()) else {
            return Err(io::Error::other("signaling answers nothing"));
        };
        if !first.starts_with("HTTP/1.1 201") {
            return Err(io::Error::other(Refused(first.to_owned())));
        }
        if !self.connects {
            self.connection = Some(connection);
        }
        Ok(())
    }

    async fn connect(&self) -> io::Result<Messages<TcpStream>> {
        let socket = TcpSocket::new_v4()?;
        socket.bind(SocketAddrV4::new(self.from, 0).into())?;
        let stream = socket.connect(self.to.into()).await?;
        stream.set_nodelay(true)?;
        Ok(Messages::of(stream))
    }
}
