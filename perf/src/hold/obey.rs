//! What a thread of clients is told, and how it obeys.

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use super::flood::Flood;
use super::keeper::Keeper;
use super::report::Heard;
use super::seat::{self, Captured, Phase, Restart, Seat};
use crate::call::placing::Answered;
use crate::clock::wall_nanos;

/// How long clients that were hung up wait for word of it.
const CLOSE_PATIENCE: Duration = Duration::from_secs(5);

/// How often a client asks for a restart of its ICE, when it is not answered well.
const RESTARTS: u32 = 10;

/// How something that needs requests came out.
#[derive(Clone, Default, Debug)]
pub(super) struct Outcome {
    /// Clients of which it is done.
    pub(super) done: u32,
    /// Why it is not, of how many.
    pub(super) failed: BTreeMap<String, u32>,
}

impl Outcome {
    pub(super) fn fail(&mut self, why: impl Into<String>) {
        *self.failed.entry(why.into()).or_default() += 1;
    }
}

/// What a thread is told. Answers go where the order says.
pub(super) enum Order {
    Mark(mpsc::Sender<()>),
    /// Each client, and the thread's own worst stall in nanoseconds.
    Measure(mpsc::Sender<(Vec<Heard>, u64)>),
    Rebind(Option<Ipv4Addr>, mpsc::Sender<Outcome>),
    Move(Ipv4Addr, mpsc::Sender<Outcome>),
    Via(SocketAddr, mpsc::Sender<Outcome>),
    /// The last checks of all clients.
    Capture(mpsc::Sender<Vec<Captured>>),
    Flood(Flood),
    HangUp(mpsc::Sender<Outcome>),
}

/// A move that waits for answers to the offers with these tickets.
pub(super) struct Moving {
    pub(super) tickets: Vec<u32>,
    pub(super) outcome: Outcome,
    pub(super) tell: mpsc::Sender<Outcome>,
}

pub(super) struct HangingUp {
    pub(super) begun: u32,
    pub(super) until: Instant,
    pub(super) tell: mpsc::Sender<Outcome>,
}

impl Keeper {
    pub(super) fn obey(&mut self, order: Order) -> io::Result<()> {
        // Whoever asked may have gone: nobody hears the answer then.
        match order {
            Order::Mark(tell) => {
                // What has come already was before.
                for at in 0..self.seats.len() {
                    self.receive(at);
                }
                let now = wall_nanos();
                self.seats.iter_mut().for_each(|seat| seat.mark(now));
                self.stalled = 0;
                let _ = tell.send(());
            }
            Order::Measure(tell) => {
                // What has come already is no pause.
                for at in 0..self.seats.len() {
                    self.receive(at);
                }
                let (now, wall) = (Instant::now(), wall_nanos());
                let heard: io::Result<Vec<Heard>> = self
                    .seats
                    .iter()
                    .map(|seat| seat.heard(now, wall))
                    .collect();
                let _ = tell.send((heard?, self.stalled));
            }
            Order::Rebind(ip, tell) => {
                let outcome = self.rebind(ip);
                let _ = tell.send(outcome);
            }
            Order::Move(ip, tell) => self.begin_move(ip, tell),
            Order::Via(address, tell) => {
                let outcome = self.choose_server(address);
                let _ = tell.send(outcome);
            }
            Order::Capture(tell) => {
                let checks = self.seats.iter().filter_map(|seat| seat.check.clone());
                let _ = tell.send(checks.collect());
            }
            Order::Flood(flood) => self.flooding = Some(flood),
            Order::HangUp(tell) => {
                let mut begun = 0;
                for seat in &mut self.seats {
                    if let Some(talk) = seat.talk() {
                        self.placer.hang_up(talk.name.clone());
                        begun += 1;
                    } else {
                        seat.phase = Phase::Over;
                    }
                }
                self.hanging_up = Some(HangingUp {
                    begun,
                    until: Instant::now() + CLOSE_PATIENCE,
                    tell,
                });
            }
        }
        Ok(())
    }

    /// Gives every client that talks another socket; its engine does not know.
    fn rebind(&mut self, ip: Option<Ipv4Addr>) -> Outcome {
        let mut outcome = Outcome::default();
        for seat in &mut self.seats {
            if seat.talk().is_none() {
                continue;
            }
            match another(seat, ip) {
                Ok(()) => outcome.done += 1,
                Err(error) => outcome.fail(error.to_string()),
            }
        }
        outcome
    }

    fn begin_move(&mut self, ip: Ipv4Addr, tell: mpsc::Sender<Outcome>) {
        let mut moving = Moving {
            tickets: Vec::new(),
            outcome: Outcome::default(),
            tell,
        };
        for at in 0..self.seats.len() {
            match self.restart(at, ip) {
                Ok(Some(ticket)) => moving.tickets.push(ticket),
                Ok(None) => {}
                Err(error) => moving.outcome.fail(error),
            }
        }
        self.moving = Some(moving);
    }

    /// Offers to restart the ICE of a client that talks, from another address; returns the offer's ticket.
    fn restart(&mut self, at: usize, ip: Ipv4Addr) -> Result<Option<u32>, String> {
        let seat = &mut self.seats[at];
        let Some(talk) = seat.talk() else {
            return Ok(None);
        };
        let etag = talk.etag.clone().ok_or("the call has no entity tag")?;
        another(seat, Some(ip)).map_err(|error| format!("{ip}: {error}"))?;
        let local = seat.local().map_err(|error| error.to_string())?;
        let Some(talk) = seat.talk() else {
            return Ok(None);
        };
        let offer = talk.client.restart(local).map_err(|e| e.to_string())?;
        Ok(self.ask_restart(at, &etag, offer, 0))
    }

    /// An offer to restart ICE was answered; nothing is returned when it is made again.
    pub(super) fn restarted(
        &mut self,
        at: usize,
        restart: Restart,
        result: Result<Answered, String>,
    ) -> Option<Result<(), String>> {
        match result {
            Ok(answered) => {
                if let Some(talk) = self.seats[at].talk() {
                    talk.etag = answered.etag;
                }
                Some(self.accept(at, &answered.sdp))
            }
            Err(error) if restart.tries + 1 < RESTARTS => {
                // Whether the owner has taken the one before is not known, and so its entity tag is not.
                let tries = restart.tries + 1;
                let Some(again) = self.ask_restart(at, "*", restart.offer, tries) else {
                    return Some(Err(error));
                };
                if let Some(moving) = &mut self.moving {
                    for ticket in &mut moving.tickets {
                        if *ticket == restart.ticket {
                            *ticket = again;
                        }
                    }
                }
                None
            }
            Err(error) => Some(Err(error)),
        }
    }

    /// Asks for a restart of a client's ICE; returns the ticket.
    fn ask_restart(&mut self, at: usize, etag: &str, offer: String, tries: u32) -> Option<u32> {
        let talk = self.seats[at].talk()?;
        self.ticket += 1;
        let (name, asked) = (talk.name.clone(), offer.clone());
        talk.restart = Some(Restart {
            ticket: self.ticket,
            offer,
            tries,
        });
        self.tickets.insert(self.ticket, at);
        self.placer
            .restart(self.ticket, name, etag.to_owned(), asked);
        Some(self.ticket)
    }

    fn choose_server(&mut self, address: SocketAddr) -> Outcome {
        let mut outcome = Outcome::default();
        for at in 0..self.seats.len() {
            // One that cannot goes on where it is.
            match self.act(at, |client, _, send| {
                client.choose_server(Some(address), Instant::now(), send)
            }) {
                Some(Ok(())) => outcome.done += 1,
                Some(Err(error)) => outcome.fail(error.to_string()),
                None => {}
            }
        }
        if outcome.failed.is_empty() {
            // Calls to come do the same.
            self.via = Some(address);
        }
        outcome
    }

    /// Tells of moves and hang-ups that have come to their end.
    pub(super) fn finish(&mut self) {
        if let Some(moving) = self.moving.take_if(|moving| moving.tickets.is_empty()) {
            let _ = moving.tell.send(moving.outcome);
        }
        let now = Instant::now();
        let left = self.seats.iter_mut().filter_map(Seat::talk).count() as u32;
        if let Some(hanging_up) = self
            .hanging_up
            .take_if(|hanging_up| left == 0 || hanging_up.until <= now)
        {
            let mut outcome = Outcome {
                done: hanging_up.begun.saturating_sub(left),
                ..Outcome::default()
            };
            if left > 0 {
                let why = "was not told that its call has ended";
                outcome.failed.insert(why.to_owned(), left);
            }
            for at in 0..self.seats.len() {
                self.give_up(at);
            }
            let _ = hanging_up.tell.send(outcome);
        }
    }
}

/// Gives a client another socket, at this address or at the one that it has.
pub(super) fn another(seat: &mut Seat, ip: Option<Ipv4Addr>) -> io::Result<()> {
    let ip = match (ip, seat.local()?) {
        (Some(ip), _) => ip,
        (None, SocketAddr::V4(local)) => *local.ip(),
        (None, SocketAddr::V6(_)) => return Err(io::Error::other("an IPv6 address")),
    };
    seat.socket = seat::open(ip)?;
    Ok(())
}
