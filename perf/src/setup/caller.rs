//! Places calls one after another, each by a POST and a socket of its own, and says how each began.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd as _;
use std::time::{Duration, Instant};

use super::opening::Opening;
use super::results::{Channel, Connection, Sample};
use super::subject::Callee;
use super::world::World;
use crate::call::air::Air;
use crate::call::identity::Identity;
use crate::call::manner::Sharing;
use crate::call::placing::{Answered, Desk, Placer};
use crate::call::recording::Recording;
use crate::readable;

/// How long a call may take to begin.
const PATIENCE: Duration = Duration::from_secs(20);

/// What a caller does.
#[derive(Clone)]
pub struct CallerPlan {
    /// Whom it calls.
    pub callee: Callee,
    /// By which connection.
    pub connection: Connection,
    /// With which channel.
    pub channel: Channel,
    /// What it shows in DTLS.
    pub identity: Identity,
    /// What it says.
    pub recording: Recording,
}

/// Someone who calls.
pub struct Caller {
    plan: CallerPlan,
    placer: Placer,
    air: Air,
    /// Calls so far: each is a client of its own.
    calls: u32,
}

impl Caller {
    /// Gets what a caller needs, in the network namespace of this thread.
    ///
    /// # Errors
    /// The system has no socket or no thread.
    pub fn new(plan: CallerPlan) -> io::Result<Self> {
        let here = World::client_address();
        let sockets = Sharing::Own {
            from: here,
            bind: here,
        };
        Ok(Self {
            placer: Placer::start(plan.callee.desk.clone())?,
            air: Air::open(&plan.callee.way, sockets)?,
            plan,
            calls: 0,
        })
    }

    /// Places a call, and leaves it as soon as it has begun.
    ///
    /// # Errors
    /// Why it has not, in words.
    pub fn call(&mut self) -> Result<Sample, String> {
        self.calls += 1;
        if self.plan.connection == Connection::Cold {
            self.placer = Placer::start(self.plan.callee.desk.clone()).map_err(words)?;
            self.placer.wait_until_ready();
        }
        let (mut opening, offer) = Opening::offer(
            &self.plan.identity,
            self.plan.channel,
            self.plan.recording.clone(),
            self.air.seat(self.calls).map_err(words)?,
            Instant::now(),
        )?;
        let begin = Instant::now();
        let answered = self.ask(offer, begin + PATIENCE)?;
        let begun = self
            .air
            .join(self.calls, &answered.sdp)
            .and_then(|()| self.open(&mut opening, &answered.sdp, begin + PATIENCE));
        let mut out = Vec::new();
        opening.leave(Instant::now(), &mut |to, packet| {
            out.push((to, packet.to_vec()));
        });
        self.send(&mut out)?;
        self.air.leave(self.calls);
        // Elsewhere the end of DTLS is the end of a call, and the next POST finds the connection as it was. A call that did not come so far has no such end, and
        // the server would hold it beside those that follow.
        if begun.is_err() || matches!(self.plan.callee.desk, Desk::Janus { .. }) {
            self.placer.hang_up(answered.name);
        }
        begun.map(|()| opening.sample(begin))
    }

    /// Has the offer answered.
    fn ask(&mut self, offer: String, until: Instant) -> Result<Answered, String> {
        self.placer.place(self.calls, offer);
        loop {
            while let Some(placed) = self.placer.take() {
                if placed.client == self.calls {
                    return placed.result.map_err(|error| error.to_string());
                }
                // A call that was given up may still be answered.
                if let Ok(late) = placed.result {
                    self.placer.hang_up(late.name);
                }
            }
            let wait = until.saturating_duration_since(Instant::now());
            if wait.is_zero() {
                return Err("no answer came".to_owned());
            }
            readable::wait(&[self.placer.socket().as_raw_fd()], wait).map_err(words)?;
        }
    }

    /// Leads a call from its answer to its first audio.
    fn open(&mut self, opening: &mut Opening, answer: &str, until: Instant) -> Result<(), String> {
        let number = self.calls;
        let mut out: Vec<(SocketAddr, Vec<u8>)> = Vec::new();
        opening.accept(answer, Instant::now(), &mut |to, packet| {
            out.push((to, packet.to_vec()));
        })?;
        while !opening.is_open() {
            let now = Instant::now();
            if now >= until {
                let last = opening.last().map(|last| format!("{last:?}"));
                return Err(format!("nothing came after {}", last.unwrap_or_default()));
            }
            if opening.deadline() <= now {
                opening.poll(now, &mut |to, packet| out.push((to, packet.to_vec())))?;
            }
            self.send(&mut out)?;
            let wait = opening.deadline().min(until);
            let wait = wait.saturating_duration_since(Instant::now());
            readable::wait(&self.air.descriptors(), wait).map_err(words)?;
            let mut failed = None;
            let mut take = |from, packet: &[u8]| {
                let mut send = |to: SocketAddr, packet: &[u8]| out.push((to, packet.to_vec()));
                if let Err(error) = opening.receive(from, packet, Instant::now(), &mut send) {
                    failed.get_or_insert(error);
                }
            };
            while self
                .air
                .receive(&mut |arrived| {
                    if arrived.client == number {
                        take(arrived.from, arrived.packet);
                    }
                })
                .map_err(words)?
            {}
            if let Some(error) = failed {
                return Err(error);
            }
        }
        Ok(())
    }

    fn send(&mut self, out: &mut Vec<(SocketAddr, Vec<u8>)>) -> Result<(), String> {
        for (to, packet) in out.drain(..) {
            self.air.send(self.calls, to, &packet).map_err(words)?;
        }
        self.air.flush().map_err(words)
    }
}

fn words(error: io::Error) -> String {
    error.to_string()
}
