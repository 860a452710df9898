//! A client on a simulated network and a simulated clock: str0m in the browser's role, with Opus and a NAT of its own.
//!
//! Nothing here sleeps. [`Call::run`] steps from one due thing to the next: a packet that arrives, or a deadline of either
//! side. Both directions take [`LATENCY`].

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use firsthop_shared::address::{FlowHandle, Hop, IngressId, SessionId};
use firsthop_shared::control::CallKind;
use firsthop_shared::packet::{PacketClass, classify};
use firsthop_transceiver::audio::{Backend, PlayoutSettings};
use firsthop_transceiver::backend::Opened;
use firsthop_transceiver::life::State;
use firsthop_transceiver::limits;
use firsthop_transceiver::session::{Advertised, Arrival, NewSession, Outbox, Outgoing, Session};
use str0m::media::Direction;
use str0m::net::{Protocol, Receive};
use str0m::{Input, Output};

mod client;
mod renegotiate;
mod session;
mod speaker;

use session::make_session_to;

pub(crate) use client::Client;
pub(crate) use session::{
    CREATED, addr, credentials, make_session, make_session_with, two_ingresses,
};

/// One way between client and owner.
pub(crate) const LATENCY: Duration = Duration::from_millis(10);

/// Whether a packet of ours carries sound.
pub(crate) fn is_media(outgoing: &Outgoing) -> bool {
    classify(&outgoing.payload) == PacketClass::Rtp
}

type LoseUp = Box<dyn FnMut(&Arrival, &[u8]) -> bool>;
type ChangeUp = Box<dyn FnMut(&mut Vec<u8>)>;
type DelayUp = Box<dyn Fn(&[u8]) -> Duration>;
type LoseDown = Box<dyn FnMut(&Outgoing) -> bool>;
type Up = (Instant, Arrival, Vec<u8>);
type Down = (Instant, Outgoing);

/// A call: the client, the session, and the network between them.
pub(crate) struct Call {
    pub(crate) now: Instant,
    pub(crate) client: Client,
    pub(crate) session: Session,
    pub(crate) out: Outbox,
    pub(crate) hop: Hop,
    pub(crate) handle: FlowHandle,
    pub(crate) ingresses: Vec<Advertised>,
    up: VecDeque<Up>,
    down: VecDeque<Down>,
    /// Everything the session sent, with the time.
    pub(crate) sent: Vec<(Instant, Outgoing)>,
    /// Drops what the client sends, when it says so.
    pub(crate) lose_up: LoseUp,
    /// Makes another packet of what the client sends.
    pub(crate) change_up: ChangeUp,
    /// How much longer than [`LATENCY`] a packet of the client's takes.
    pub(crate) delay_up: DelayUp,
    /// Drops what the session sends, when it says so.
    pub(crate) lose_down: LoseDown,
    pub(crate) answer: String,
    pub(crate) id: SessionId,
}

impl Call {
    /// A call with a channel, answered, nothing sent yet.
    pub(crate) fn new(seed: u32) -> Self {
        Self::with(seed, true, &two_ingresses(), |offer| offer)
    }

    pub(crate) fn with(
        id: u32,
        channel: bool,
        ingresses: &[Advertised],
        edit: impl FnOnce(String) -> String,
    ) -> Self {
        Self::lasting(id, channel, ingresses, limits::SESSION_MAX, edit)
    }

    /// The same for a call that may last so long.
    pub(crate) fn lasting(
        id: u32,
        channel: bool,
        ingresses: &[Advertised],
        longest: Duration,
        edit: impl FnOnce(String) -> String,
    ) -> Self {
        let now = Instant::now();
        Self::of(id, Client::new(now), channel, ingresses, longest, edit, now)
    }

    /// The same for a client that was made at `now`.
    pub(crate) fn of(
        id: u32,
        client: Client,
        channel: bool,
        ingresses: &[Advertised],
        longest: Duration,
        edit: impl FnOnce(String) -> String,
        now: Instant,
    ) -> Self {
        let new = |new: &mut NewSession<'_>| new.longest = longest;
        let echo = Opened::echo(7);
        Self::made(id, client, channel, ingresses, edit, new, echo, now)
    }

    /// A call with what a test has to say about its session.
    pub(crate) fn tailored(id: u32, new: impl FnOnce(&mut NewSession<'_>)) -> Self {
        let now = Instant::now();
        let client = Client::new(now);
        let (ingresses, echo) = (two_ingresses(), Opened::echo(7));
        Self::made(id, client, true, &ingresses, |offer| offer, new, echo, now)
    }

    /// The same with a backend of the test's own.
    pub(crate) fn answered(id: u32, opened: Opened, new: impl FnOnce(&mut NewSession<'_>)) -> Self {
        let now = Instant::now();
        let client = Client::new(now);
        let ingresses = two_ingresses();
        Self::made(
            id,
            client,
            true,
            &ingresses,
            |offer| offer,
            new,
            opened,
            now,
        )
    }

    /// A call with a backend of the test's own, by an offer that the test has a say in.
    pub(crate) fn to(
        id: u32,
        backend: Box<dyn Backend>,
        edit: impl FnOnce(String) -> String,
    ) -> Self {
        let now = Instant::now();
        Self::between(id, Client::new(now), backend, edit, now)
    }

    /// The same for a client that was made at `now`.
    pub(crate) fn between(
        id: u32,
        client: Client,
        backend: Box<dyn Backend>,
        edit: impl FnOnce(String) -> String,
        now: Instant,
    ) -> Self {
        let opened = Opened {
            backend,
            playout: PlayoutSettings::default(),
        };
        Self::made(
            id,
            client,
            true,
            &two_ingresses(),
            edit,
            |_| {},
            opened,
            now,
        )
    }

    /// A call by WHIP: audio alone, which the client sends.
    pub(crate) fn whip(id: u32, direction: Direction) -> Self {
        let now = Instant::now();
        let mut client = Client::new(now);
        client.direction = direction;
        let new = |new: &mut NewSession<'_>| new.kind = CallKind::Whip;
        let (ingresses, echo) = (two_ingresses(), Opened::echo(7));
        Self::made(id, client, false, &ingresses, |offer| offer, new, echo, now)
    }

    // Each of them is what one of the above varies.
    #[expect(clippy::too_many_arguments)]
    fn made(
        id: u32,
        mut client: Client,
        channel: bool,
        ingresses: &[Advertised],
        edit: impl FnOnce(String) -> String,
        new: impl FnOnce(&mut NewSession<'_>),
        opened: Opened,
        now: Instant,
    ) -> Self {
        let id = SessionId(id);
        let (offer, pending) = client.offer(channel);
        let offer = edit(offer);
        let (session, answer) =
            make_session_to(id, &offer, ingresses, now, new, opened).expect("an answer");
        client.accept(pending, &answer);
        // It begins with ICE at once, also when it has nothing else to do.
        let begin = client.rtc.handle_input(Input::Timeout(now));
        begin.expect("a timeout");
        Self {
            now,
            client,
            session,
            out: Outbox::default(),
            hop: Hop::new(addr("127.0.0.1:4000")),
            handle: FlowHandle(99),
            ingresses: ingresses.to_vec(),
            up: VecDeque::new(),
            down: VecDeque::new(),
            sent: Vec::new(),
            lose_up: Box::new(|_, _| false),
            change_up: Box::new(|_| {}),
            delay_up: Box::new(|_| Duration::ZERO),
            lose_down: Box::new(|_| false),
            answer,
            id,
        }
    }

    /// A call that is live, its channel open.
    pub(crate) fn live(id: u32) -> Self {
        let mut call = Self::new(id);
        call.until(Duration::from_secs(5), |call| {
            call.session.state() == State::Live && !call.client.heard.events.is_empty()
        });
        call
    }

    /// What a packet from the client to an ingress looks like to the owner.
    pub(crate) fn arrival(&self, ingress: IngressId) -> Arrival {
        Arrival {
            client: self.client.public,
            ingress,
            tcp: false,
            hop: self.hop,
            handle: self.handle,
        }
    }

    /// Speaks (or is silent, in packets) from now on.
    pub(crate) fn speak(&mut self, speaking: bool) {
        self.client.speaking = speaking;
        self.client.next_frame.get_or_insert(self.now);
    }

    /// Sends a message on the channel.
    pub(crate) fn say(&mut self, text: &str) {
        let id = self.client.channel.expect("a channel");
        let mut channel = self.client.rtc.channel(id).expect("an open channel");
        assert!(channel.write(false, text.as_bytes()).expect("written"));
        self.drain_client();
    }

    pub(crate) fn inject(&mut self, from: Arrival, packet: &[u8]) {
        self.session.receive(from, packet, self.now, &mut self.out);
        self.flush_session();
    }

    pub(crate) fn run(&mut self, time: Duration) {
        let end = self.now + time;
        while self.step(end) {}
        self.now = end;
    }

    /// Runs until `done`, and fails when that takes longer than `limit`.
    pub(crate) fn until(&mut self, limit: Duration, mut done: impl FnMut(&Self) -> bool) {
        let end = self.now + limit;
        while !done(self) {
            assert!(self.step(end), "not within {limit:?}: {}", self.describe());
        }
    }

    fn describe(&self) -> String {
        format!(
            "session {:?}, client connected {:?}, events {:?}, drops {:?}",
            self.session.state(),
            self.client.heard.connected,
            self.client.heard.types(),
            self.out.drops,
        )
    }

    /// Does the next due thing, unless it is due after `end`.
    fn step(&mut self, end: Instant) -> bool {
        self.drain_client();
        self.flush_session();
        let due = [
            self.up.front().map(|(at, ..)| *at),
            self.down.front().map(|(at, _)| *at),
            Some(self.client.deadline),
            self.client.next_frame,
            self.session.deadline(|at| at),
        ];
        let at = due.into_iter().flatten().min().expect("a client deadline");
        if at > end {
            return false;
        }
        // At least a little: some deadlines lie in the past, and time must not stand still.
        self.now = at.max(self.now + Duration::from_micros(10));
        let now = self.now;

        while self.up.front().is_some_and(|(at, ..)| *at <= now) {
            let Some((_, from, packet)) = self.up.pop_front() else {
                break;
            };
            self.session.receive(from, &packet, now, &mut self.out);
            self.flush_session();
        }
        while self.down.front().is_some_and(|(at, _)| *at <= now) {
            let Some((_, packet)) = self.down.pop_front() else {
                break;
            };
            self.deliver(&packet);
        }
        if self.session.deadline(|at| at).is_some_and(|at| at <= now) {
            self.session.timeout(now, &mut self.out);
            self.flush_session();
        }
        if self.client.next_frame.is_some_and(|at| at <= now) {
            if self.client.heard.connected.is_some() {
                self.client.speak(now);
                self.drain_client();
                self.client
                    .rtc
                    .handle_input(Input::Timeout(now))
                    .expect("a timeout");
            }
            self.client.next_frame = Some(now + Duration::from_millis(20));
        }
        if self.client.deadline <= now {
            self.client
                .rtc
                .handle_input(Input::Timeout(now))
                .expect("a timeout");
        }
        self.drain_client();
        true
    }

    fn deliver(&mut self, packet: &Outgoing) {
        if packet.to.key.client != self.client.public {
            return;
        }
        let source = self
            .ingresses
            .iter()
            .find(|a| a.ingress == packet.to.key.ingress)
            .expect("an advertised ingress")
            .address;
        let receive = Receive::new(Protocol::Udp, source, self.client.local, &packet.payload)
            .expect("a packet of WebRTC");
        self.client
            .rtc
            .handle_input(Input::Receive(self.now, receive))
            .expect("received");
        self.drain_client();
    }

    fn drain_client(&mut self) {
        loop {
            match self.client.rtc.poll_output().expect("output") {
                Output::Timeout(at) => {
                    self.client.deadline = at;
                    return;
                }
                Output::Event(event) => self.client.event(event, self.now),
                Output::Transmit(transmit) => {
                    let Some(a) = self
                        .ingresses
                        .iter()
                        .find(|a| a.address == transmit.destination)
                    else {
                        panic!("the client sends to {}", transmit.destination);
                    };
                    let from = self.arrival(a.ingress);
                    let mut packet: Vec<u8> = transmit.contents.into();
                    (self.change_up)(&mut packet);
                    if !(self.lose_up)(&from, &packet) {
                        let at = self.now + LATENCY + (self.delay_up)(&packet);
                        let place = self.up.partition_point(|(other, ..)| *other <= at);
                        self.up.insert(place, (at, from, packet));
                    }
                }
            }
        }
    }

    fn flush_session(&mut self) {
        for outgoing in self.out.sends.drain(..) {
            self.sent.push((self.now, outgoing.clone()));
            if !(self.lose_down)(&outgoing) {
                self.down.push_back((self.now + LATENCY, outgoing));
            }
        }
    }
}
