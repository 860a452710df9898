//! Calls that are held up while something is done to what carries them: how long their clients hear nothing, and what it costs them to come back.
//!
//! ```text
//! Holder ──orders──► keeper (a thread): seats, each a client with a socket of its own and a call of the moment
//! ```
//!
//! Clients speak and listen without a pause. Frames of G.711 are marked (see [`stamp`](crate::call::stamp)), so that a model server can say what arrived
//! of them. Pure: [`command`], [`report`]. Acting: the keeper with its seats, the flood and [`spoof`].

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::{Value, json};

pub mod command;
mod flood;
mod keeper;
mod obey;
pub mod report;
mod seat;
pub mod spoof;

use crate::call::identity::{Identity, IdentityError};
use crate::call::placing::Desk;
use crate::call::recording::{Codec, Recording, RecordingError};
use crate::clock::wall_nanos;
use crate::orders::{Giver, Gone, way};
use command::{Attack, Command};
use flood::Flood;
use keeper::Keeper;
use obey::{Order, Outcome};
use report::{Heard, Measure};

/// How long the client that floods may take to set its call up.
const STORM_SET_UP: Duration = Duration::from_secs(30);

/// Calls to hold.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Where they are placed: with signaling.
    pub desk: Desk,
    /// How many.
    pub calls: u32,
    /// How many are placed a second.
    pub ramp: f64,
    /// The clients' address.
    pub from: Ipv4Addr,
    /// The only one of the server's candidates that is used, if any.
    pub via: Option<SocketAddr>,
    /// What clients offer.
    pub codec: Codec,
    /// A client whose call has ended, or is silent, places another.
    pub reconnect: bool,
    /// Threads that play clients.
    pub threads: u32,
}

/// Calls that cannot be held.
#[derive(Debug, thiserror::Error)]
pub enum HoldError {
    /// See [`IdentityError`].
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// See [`RecordingError`].
    #[error(transparent)]
    Recording(#[from] RecordingError),
    /// A client has no socket: its address is not one of this machine's, or there are too many.
    #[error("no socket at {0}: {1}")]
    Socket(Ipv4Addr, io::Error),
    /// The system gives no thread.
    #[error(transparent)]
    System(#[from] io::Error),
}

/// What the threads have in common.
#[derive(Clone)]
struct Shared {
    plan: Plan,
    identity: Identity,
    recording: Recording,
    /// What tells this program's clients from another's, where frames are marked.
    run: Option<u32>,
}

/// What a thread tells unasked.
enum News {
    /// One more client hears something, for the first time.
    Audible,
    /// A client will never: its call has not come about.
    Failed(String),
}

/// How the set-up of all calls came out.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize)]
pub struct SetUp {
    /// Clients that hear something.
    pub up: u32,
    /// Clients.
    pub calls: u32,
    /// DTLS handshakes of all of them.
    pub handshakes: u32,
    /// Why clients have no call, and how many.
    pub failed: BTreeMap<String, u32>,
}

struct Thread {
    orders: Giver<Order>,
    thread: std::thread::JoinHandle<io::Result<()>>,
}

/// Calls that are held until this is dropped.
pub struct Holder {
    shared: Shared,
    threads: Vec<Thread>,
    news: mpsc::Receiver<News>,
}

impl Holder {
    /// Begins to place the calls.
    ///
    /// # Errors
    /// See [`HoldError`].
    pub fn start(plan: Plan) -> Result<Self, HoldError> {
        let shared = Shared {
            identity: Identity::new()?,
            recording: Recording::new(plan.codec)?,
            run: (plan.codec == Codec::Pcmu).then(rand::random),
            plan,
        };
        Self::with(shared, 0)
    }

    /// The same for clients whose numbers begin at `first`.
    fn with(shared: Shared, first: u32) -> Result<Self, HoldError> {
        let (tell, news) = mpsc::channel();
        let plan = &shared.plan;
        let begin = Instant::now();
        let mut threads = Vec::new();
        for thread in 0..plan.threads {
            let numbers = (thread..plan.calls).step_by(plan.threads as usize);
            let clients = numbers.map(|number| {
                let due = begin + Duration::from_secs_f64(f64::from(number) / plan.ramp);
                (first + number, due)
            });
            let (orders, taker) = way()?;
            let keeper = Keeper::new(&shared, clients, taker, tell.clone())
                .map_err(|error| HoldError::Socket(plan.from, error))?;
            let thread = std::thread::Builder::new()
                .name(format!("hold-{thread}"))
                .spawn(move || keeper.run())?;
            threads.push(Thread { orders, thread });
        }
        Ok(Self {
            shared,
            threads,
            news,
        })
    }

    /// Waits until every client hears something, or will not, but not for ever; then the first window begins.
    ///
    /// # Errors
    /// A thread has ended.
    pub fn set_up(&self, patience: Duration) -> io::Result<SetUp> {
        let mut set_up = SetUp {
            calls: self.shared.plan.calls,
            ..SetUp::default()
        };
        let until = Instant::now() + patience;
        let mut left = set_up.calls;
        while left > 0 {
            let wait = until.saturating_duration_since(Instant::now());
            match self.news.recv_timeout(wait) {
                Ok(News::Audible) => set_up.up += 1,
                Ok(News::Failed(why)) => *set_up.failed.entry(why).or_default() += 1,
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    let why = format!("heard nothing within {} s", patience.as_secs());
                    *set_up.failed.entry(why).or_default() += left;
                    break;
                }
                Err(mpsc::RecvTimeoutError::Disconnected) => return Err(io::Error::other(Gone)),
            }
            left -= 1;
        }
        self.mark()?;
        let (heard, _) = self.heard()?;
        set_up.handshakes = heard.iter().map(|heard| heard.handshakes).sum();
        Ok(set_up)
    }

    /// Does what a command says, and says what came of it.
    ///
    /// # Errors
    /// Why it could not be done, in words.
    pub fn obey(&self, command: Command) -> Result<Value, String> {
        self.try_obey(command).map_err(|error| error.to_string())
    }

    fn try_obey(&self, command: Command) -> io::Result<Value> {
        match command {
            Command::Mark => {
                self.mark()?;
                Ok(json!({ "marked": self.shared.plan.calls }))
            }
            Command::Measure => {
                let measure = self.measure()?;
                Ok(serde_json::to_value(measure)?)
            }
            Command::Calls => {
                let (heard, _) = self.heard()?;
                Ok(json!({ "calls": report::calls(&heard) }))
            }
            Command::Rebind(ip) => self.change("rebound", |tell| Order::Rebind(ip, tell)),
            Command::Move(ip) => self.change("moved", |tell| Order::Move(ip, tell)),
            Command::Via(address) => self.change("chosen", |tell| Order::Via(address.into(), tell)),
            Command::HangUp => self.change("hung_up", Order::HangUp),
            Command::Storm(attack) => self.storm(attack),
            Command::Spoof(attack, mut ips) => {
                if ips.is_empty() {
                    ips.push(self.shared.plan.from);
                }
                let spoofed = spoof::run(attack, &ips, || Ok(self.ask(Order::Capture)?.concat()))?;
                Ok(json!({ "spoofed": spoofed }))
            }
        }
    }

    /// Begins a window.
    ///
    /// # Errors
    /// A thread has ended.
    pub fn mark(&self) -> io::Result<()> {
        self.ask(Order::Mark).map(|_| ())
    }

    /// What was heard since the mark.
    ///
    /// # Errors
    /// A thread has ended.
    pub fn measure(&self) -> io::Result<Measure> {
        let (heard, stalled) = self.heard()?;
        Ok(Measure::of(&heard, stalled, wall_nanos()))
    }

    fn heard(&self) -> io::Result<(Vec<Heard>, u64)> {
        let (heard, stalled): (Vec<_>, Vec<_>) = self.ask(Order::Measure)?.into_iter().unzip();
        Ok((heard.concat(), stalled.into_iter().max().unwrap_or(0)))
    }

    /// Has something done to every client.
    fn change(
        &self,
        done: &str,
        order: impl Fn(mpsc::Sender<Outcome>) -> Order,
    ) -> io::Result<Value> {
        let begin = Instant::now();
        let mut whole = Outcome::default();
        for outcome in self.ask(order)? {
            whole.done += outcome.done;
            for (why, count) in outcome.failed {
                *whole.failed.entry(why).or_default() += count;
            }
        }
        let took = begin.elapsed().as_secs_f64() * 1e3;
        Ok(json!({ done: whole.done, "failed": whole.failed, "took_ms": took }))
    }

    /// One further client floods the relay that its call goes by.
    fn storm(&self, attack: Attack) -> io::Result<Value> {
        let mut shared = self.shared.clone();
        let first = shared.plan.calls;
        shared.plan.calls = 1;
        shared.plan.threads = 1;
        shared.plan.reconnect = false;
        let stormer = Self::with(shared, first).map_err(io::Error::other)?;
        let set_up = stormer.set_up(STORM_SET_UP)?;
        if set_up.up == 0 {
            let why: Vec<&String> = set_up.failed.keys().collect();
            let error = format!("the client that should flood has no call: {why:?}");
            return Err(io::Error::other(error));
        }
        let (tell, told) = mpsc::channel();
        for thread in &stormer.threads {
            let flood = Flood::new(attack, Instant::now(), tell.clone());
            let given = thread.orders.give(Order::Flood(flood));
            given.map_err(io::Error::other)?;
        }
        drop(tell);
        let sent = told.recv().map_err(|_| io::Error::other(Gone))?;
        Ok(json!({ "storm": { "sent": sent } }))
    }

    /// Asks all threads at once, and waits for all answers.
    fn ask<A>(&self, order: impl Fn(mpsc::Sender<A>) -> Order) -> io::Result<Vec<A>> {
        let mut answers = Vec::new();
        for thread in &self.threads {
            let (tell, told) = mpsc::channel();
            thread.orders.give(order(tell)).map_err(io::Error::other)?;
            answers.push(told);
        }
        let answers = answers.iter().map(|told| told.recv());
        let answers: Result<Vec<A>, _> = answers.collect();
        answers.map_err(|_| io::Error::other(Gone))
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        // All are told before one is waited for.
        let (orders, threads): (Vec<_>, Vec<_>) = self
            .threads
            .drain(..)
            .map(|thread| (thread.orders, thread.thread))
            .unzip();
        drop(orders);
        for thread in threads {
            let _ = thread.join();
        }
    }
}
