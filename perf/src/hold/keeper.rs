//! One thread's clients: places their calls, moves their packets, and obeys.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd as _, RawFd};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use firsthop_shared::limits::CLIENT_PACKET_MAX;

use super::flood::Flood;
use super::obey::{HangingUp, Moving, Order, another};
use super::seat::{Phase, Seat, Talk, note};
use super::{News, Shared};
use crate::call::client::{Client, ClientError, Hear, Send};
use crate::call::hearing::Packet;
use crate::call::placing::{Answered, Placed, Placer};
use crate::call::stamp::Stamp;
use crate::clock::wall_nanos;
use crate::mmsg::{BATCH, Inbox};
use crate::orders::{Gone, Taker};
use crate::readable;

/// Calls that one turn begins at most: making an offer takes a moment, and media waits meanwhile.
const STARTS_PER_TURN: usize = 4;

/// Timers that one turn serves at most, before packets are looked at again.
const TIMERS_PER_TURN: usize = 256;

/// Packets of one client that one turn takes at most.
const BATCHES_PER_TURN: usize = 4;

/// The longest sleep.
const LONGEST_WAIT: Duration = Duration::from_millis(100);

/// When a client asks again that was refused.
const RETRY: Duration = Duration::from_millis(500);

/// See the module.
pub(super) struct Keeper {
    pub(super) shared: Shared,
    pub(super) seats: Vec<Seat>,
    pub(super) via: Option<SocketAddr>,
    pub(super) orders: Taker<Order>,
    pub(super) placer: Placer,
    pub(super) tickets: HashMap<u32, usize>,
    pub(super) ticket: u32,
    pub(super) timers: BinaryHeap<Reverse<(Instant, usize)>>,
    /// Away only while packets are taken out of it.
    pub(super) inbox: Option<Inbox>,
    pub(super) moving: Option<Moving>,
    pub(super) hanging_up: Option<HangingUp>,
    pub(super) flooding: Option<Flood>,
    /// How much later than due a timer was served at worst, since the mark.
    pub(super) stalled: u64,
    pub(super) news: mpsc::Sender<News>,
}

impl Keeper {
    /// Opens the sockets of the clients with these numbers; each is placed at its time.
    pub(super) fn new(
        shared: &Shared,
        clients: impl Iterator<Item = (u32, Instant)>,
        orders: Taker<Order>,
        news: mpsc::Sender<News>,
    ) -> io::Result<Self> {
        let seats: io::Result<Vec<Seat>> = clients
            .map(|(number, due)| Seat::new(number, shared.plan.from, due))
            .collect();
        let mut keeper = Self {
            seats: seats?,
            via: shared.plan.via,
            placer: Placer::start(shared.plan.desk.clone())?,
            shared: shared.clone(),
            orders,
            tickets: HashMap::new(),
            ticket: 0,
            timers: BinaryHeap::new(),
            inbox: Some(Inbox::with_details(CLIENT_PACKET_MAX)),
            moving: None,
            hanging_up: None,
            flooding: None,
            stalled: 0,
            news,
        };
        for at in 0..keeper.seats.len() {
            keeper.arm(at);
        }
        Ok(keeper)
    }

    /// Runs until nobody gives orders any more; then all clients leave.
    pub(super) fn run(mut self) -> io::Result<()> {
        let mut ready = Vec::new();
        loop {
            // 1. Orders.
            loop {
                match self.orders.take() {
                    Ok(Some(order)) => self.obey(order)?,
                    Ok(None) => break,
                    Err(Gone) => {
                        self.leave();
                        return Ok(());
                    }
                }
            }
            // 2. Answers to offers.
            while let Some(placed) = self.placer.take() {
                self.answered(placed);
            }
            // 3. Packets: the first two descriptors are of other things.
            let mut more = false;
            for at in ready.drain(..).filter_map(|at: usize| at.checked_sub(2)) {
                more |= self.receive(at);
            }
            // 4. Frames, the engines' timers, and calls that are due.
            more |= self.serve_timers();
            // 5. What was ordered and goes on.
            self.finish();
            let flooding = self.flood(Instant::now());
            // 6. Until there is more.
            let now = Instant::now();
            let timer = self.timers.peek().map(|Reverse((at, _))| *at);
            let next = [timer, flooding].into_iter().flatten().min();
            let wait = match next {
                _ if more => Duration::ZERO,
                Some(at) => at.saturating_duration_since(now),
                None => LONGEST_WAIT,
            };
            let descriptors = self.descriptors();
            readable::ready(&descriptors, wait.min(LONGEST_WAIT), &mut ready)?;
        }
    }

    fn descriptors(&self) -> Vec<RawFd> {
        let others = [self.orders.descriptor(), self.placer.socket().as_raw_fd()];
        let sockets = self.seats.iter().map(|seat| seat.socket.as_raw_fd());
        others.into_iter().chain(sockets).collect()
    }

    /// Sends what is due of a flood; returns when more is.
    fn flood(&mut self, now: Instant) -> Option<Instant> {
        let (flood, seat) = (self.flooding.as_mut()?, self.seats.first()?);
        let next = flood.turn(now, &seat.socket, seat.media.as_ref(), seat.check.as_ref());
        if next.is_none() {
            self.flooding = None;
        }
        next
    }

    fn answered(&mut self, placed: Placed) {
        let ticket = placed.client;
        let Some(at) = self.tickets.remove(&ticket) else {
            return;
        };
        let result = placed.result.map_err(|error| error.to_string());
        let restart = match &mut self.seats[at].phase {
            Phase::Asking { ticket: asked, .. } if *asked == ticket => {
                return self.begin(at, result);
            }
            Phase::Talking(talk) => talk.restart.take_if(|restart| restart.ticket == ticket),
            _ => None,
        };
        let restarted = match restart {
            Some(restart) => match self.restarted(at, restart, result) {
                Some(restarted) => restarted,
                None => return,
            },
            // Its client has given up meanwhile.
            None => result.and_then(|answered| {
                self.placer.hang_up(answered.name);
                Err("the call has ended".to_owned())
            }),
        };
        // A call that was placed and given up is of no move.
        if let Some(moving) = &mut self.moving
            && let Some(at) = moving.tickets.iter().position(|t| *t == ticket)
        {
            moving.tickets.swap_remove(at);
            match restarted {
                Ok(()) => moving.outcome.done += 1,
                Err(error) => moving.outcome.fail(error),
            }
        }
    }

    /// An offer for a call was answered.
    fn begin(&mut self, at: usize, result: Result<Answered, String>) {
        let Answered { sdp, name, etag } = match result {
            Ok(answered) => answered,
            Err(error) => return self.over(at, &error),
        };
        let seat = &mut self.seats[at];
        match std::mem::replace(&mut seat.phase, Phase::Over) {
            Phase::Asking { client, .. } => {
                seat.phase = Phase::Talking(Box::new(Talk {
                    client: *client,
                    name,
                    etag,
                    restart: None,
                    since: Instant::now(),
                    heard: None,
                    connected: false,
                }));
                // What is wrong with the answer has ended the call.
                let _ = self.accept(at, &sdp);
            }
            other => seat.phase = other,
        }
    }

    pub(super) fn accept(&mut self, at: usize, answer: &str) -> Result<(), String> {
        let accepted = self.act(at, |client, _, send| {
            client.accept(answer, Instant::now(), send)
        });
        match accepted {
            Some(Err(error)) => {
                let error = error.to_string();
                self.over(at, &error);
                Err(error)
            }
            _ => Ok(()),
        }
    }

    /// Takes what has come for a client; returns whether there may be more.
    pub(super) fn receive(&mut self, at: usize) -> bool {
        let Some(mut inbox) = self.inbox.take() else {
            return false;
        };
        let mut count = BATCH;
        for _ in 0..BATCHES_PER_TURN {
            // A socket's error says that something which was sent did not arrive.
            count = inbox.receive(&self.seats[at].socket, false).unwrap_or(0);
            let now = Instant::now();
            for ((packet, from), details) in inbox.packets().zip(inbox.details()) {
                let at_nanos = details.map_or_else(wall_nanos, |details| details.at_nanos);
                let received = self.act(at, |client, hear, send| {
                    client.receive(SocketAddr::V4(from), packet, at_nanos, now, hear, send)
                });
                if let Some(Err(error)) = received {
                    self.over(at, &error.to_string());
                }
            }
            if count < BATCH {
                break;
            }
        }
        self.inbox = Some(inbox);
        count == BATCH
    }

    /// Serves what is due; returns whether more is.
    fn serve_timers(&mut self) -> bool {
        let mut starts = 0;
        for _ in 0..TIMERS_PER_TURN {
            let now = Instant::now();
            let at = match self.timers.peek() {
                Some(Reverse((due, at))) if *due <= now => {
                    let stall = now.duration_since(*due).as_nanos() as u64;
                    let (due, at) = (*due, *at);
                    self.timers.pop();
                    let seat = &mut self.seats[at];
                    // A client's timer that was set anew is not late.
                    if seat.armed != Some(due) {
                        continue;
                    }
                    seat.armed = None;
                    self.stalled = self.stalled.max(stall);
                    at
                }
                _ => return false,
            };
            match &mut self.seats[at].phase {
                Phase::Waiting(_) if starts == STARTS_PER_TURN => {
                    self.arm(at);
                    return true;
                }
                Phase::Waiting(_) => {
                    starts += 1;
                    self.start(at);
                }
                Phase::Talking(talk) if self.shared.plan.reconnect && talk.patience() <= now => {
                    let _ = self.act(at, |client, _, send| {
                        client.leave(now, send);
                        Ok(())
                    });
                }
                Phase::Talking(_) => {
                    let polled = self.act(at, |client, _, send| client.poll(now, send));
                    if let Some(Err(error)) = polled {
                        self.over(at, &error.to_string());
                    }
                }
                Phase::Asking { .. } | Phase::Over => {}
            }
        }
        true
    }

    /// Offers a client's next call.
    fn start(&mut self, at: usize) {
        let now = Instant::now();
        let shared = &self.shared;
        let seat = &mut self.seats[at];
        let offered = seat
            .local()
            .map_err(|error| error.to_string())
            .and_then(|local| {
                let recording = Some(shared.recording.clone());
                Client::offer(&shared.identity, shared.plan.codec, recording, local, now)
                    .map_err(|error| error.to_string())
            });
        let (mut client, offer) = match offered {
            Ok(offered) => offered,
            Err(error) => return self.over(at, &error),
        };
        if let Some(run) = shared.run {
            client.stamp(Stamp {
                run,
                call: seat.number,
                count: seat.said as u32,
            });
        }
        // Nothing is sent before there is an answer.
        let _ = client.choose_server(self.via, now, &mut |_, _| {});
        self.ticket += 1;
        let (client, ticket) = (Box::new(client), self.ticket);
        seat.phase = Phase::Asking { client, ticket };
        self.tickets.insert(ticket, at);
        self.placer.place(ticket, offer);
    }

    /// Does something with a client, if it has a call, and looks what it has come to. An error ends nothing here.
    pub(super) fn act(
        &mut self,
        at: usize,
        act: impl FnOnce(&mut Client, Hear<'_>, Send<'_>) -> Result<(), ClientError>,
    ) -> Option<Result<(), ClientError>> {
        let Seat {
            phase: Phase::Talking(talk),
            socket,
            pauses,
            check,
            media,
            handshakes,
            ..
        } = &mut self.seats[at]
        else {
            return None;
        };
        let mut heard = false;
        let mut hear = |packet: Packet| {
            heard = true;
            pauses.packet(packet.sequence, packet.at_nanos);
        };
        let mut send = |to: SocketAddr, packet: &[u8]| {
            note(check, media, to, packet);
            // What the network does not take is lost, as on any network.
            let _ = socket.send_to(packet, to);
        };
        let result = act(&mut talk.client, &mut hear, &mut send);
        if !talk.connected && talk.client.times().connected.is_some() {
            talk.connected = true;
            *handshakes += 1;
        }
        if heard {
            talk.heard = Some(Instant::now());
        }
        let closed = talk.client.is_closed();
        if heard && !self.seats[at].audible {
            self.seats[at].audible = true;
            let _ = self.news.send(News::Audible);
        }
        if closed {
            self.over(at, "the call was ended before anything was heard");
        } else {
            self.arm(at);
        }
        Some(result)
    }

    /// A client's call is over, or has not come about: the next one is placed, if there is to be one.
    fn over(&mut self, at: usize, why: &str) {
        let hanging_up = self.hanging_up.is_some();
        let again = self.shared.plan.reconnect && !hanging_up;
        let seat = &mut self.seats[at];
        seat.said = seat.sent();
        let phase = std::mem::replace(&mut seat.phase, Phase::Over);
        let talked = matches!(phase, Phase::Talking(_));
        if talked && !hanging_up {
            seat.cut += 1;
        }
        if again {
            let wait = if talked { Duration::ZERO } else { RETRY };
            seat.phase = Phase::Waiting(Instant::now() + wait);
            seat.pauses.restart();
            // A new connection has a new socket; without one the old one serves.
            let _ = another(seat, None);
            self.arm(at);
        } else if !seat.audible {
            let _ = self.news.send(News::Failed(why.to_owned()));
        }
    }

    /// Ends a client's call from its side, and places none any more.
    pub(super) fn give_up(&mut self, at: usize) {
        let Seat { phase, socket, .. } = &mut self.seats[at];
        if let Phase::Talking(talk) = phase {
            talk.client.leave(Instant::now(), &mut |to, packet| {
                let _ = socket.send_to(packet, to);
            });
        }
        *phase = Phase::Over;
    }

    fn leave(&mut self) {
        for at in 0..self.seats.len() {
            self.give_up(at);
        }
        // Calls whose answer is still to come are hung up: nobody else knows of them.
        while self.placer.waiting() > 0 {
            while let Some(placed) = self.placer.take() {
                if let Ok(answered) = placed.result {
                    self.placer.hang_up(answered.name);
                }
            }
            let socket = [self.placer.socket().as_raw_fd()];
            if readable::wait(&socket, LONGEST_WAIT).is_err() {
                return;
            }
        }
    }

    fn arm(&mut self, at: usize) {
        let seat = &mut self.seats[at];
        let due = match &seat.phase {
            Phase::Waiting(due) => *due,
            Phase::Talking(talk) if self.shared.plan.reconnect => {
                talk.client.deadline().min(talk.patience())
            }
            Phase::Talking(talk) => talk.client.deadline(),
            Phase::Asking { .. } | Phase::Over => return,
        };
        if seat.armed.is_none_or(|armed| due < armed) {
            seat.armed = Some(due);
            self.timers.push(Reverse((due, at)));
        }
    }
}
