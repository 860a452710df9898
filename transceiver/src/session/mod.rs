//! One call, sans-IO: packets, commands and the time go in; packets for hops, an answer, and a deadline come out.
//!
//! A [`Session`] joins one str0m engine with what the engine leaves to its user: whose packets may reach it ([`crate::proof`]),
//! where its packets go ([`crate::hops`]), what the client's SDP really means ([`crate::sdp`]), the voice and the events
//! ([`crate::audio`], [`crate::channel`]), and how long all that lives ([`crate::life`]).
//!
//! The engine wants one mutation, then a full drain of its output, then the next mutation. So what an event calls for (a
//! write to the channel, an RTP packet) is done after the drain that brought the event, never inside it.
//!
//! A session never reads a clock or a random number: both are arguments. It never logs about packets.

mod early;
mod engine;
mod negotiate;
mod quality;
mod receive;
mod report;
mod sidebands;
mod summary;
mod voice;

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use firsthop_shared::address::{ClientAddr, FlowHandle, Hop, IngressId, SessionId};
use firsthop_shared::control::CallKind;
use firsthop_shared::token::{IcePassword, Ufrag};
use str0m::crypto::dtls::SrtpProfile;
use str0m::{IceCreds, Input, Rtc};

use crate::audio::{BackendEnd, Codec, OpusMode};
use crate::bucket::Bucket;
use crate::channel::Channel;
use crate::hello::Hello;
use crate::hops::{Destination, PathKey, Paths};
use crate::idle::Idle;
use crate::life::{EndReason, Life, Limit, LimitStep, State};
use crate::limits;
use crate::proof::Checks;
use crate::reason::{Drops, Reason};
use crate::sdp::Offer;

use early::Early;
use quality::Quality;
use voice::Voice;

pub use quality::{LastReport, QualitySummary};
pub use report::{PathReport, SessionReport};
pub(crate) use sidebands::Sidebands;
pub use sidebands::{Sideband, SidebandEnd, SidebandId};
pub use summary::{LifeSummary, Summary};

/// An ingress point as a session knows it: an address that its answer advertises.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Advertised {
    /// The ingress.
    pub ingress: IngressId,
    /// One of its addresses.
    pub address: SocketAddr,
}

/// Our half of the ICE credentials.
#[derive(Clone, Copy, Debug)]
pub struct Credentials {
    /// The minted, routable ufrag.
    pub ufrag: Ufrag,
    /// The password derived from it.
    pub password: IcePassword,
}

impl Credentials {
    fn to_engine(self) -> IceCreds {
        IceCreds {
            ufrag: self.ufrag.as_str().to_owned(),
            pass: self.password.as_str().to_owned(),
        }
    }
}

/// What a session is made of.
#[derive(Clone, Debug)]
pub struct NewSession<'a> {
    /// Its id, minted by signaling.
    pub id: SessionId,
    /// When signaling created the call, in milliseconds since the Unix epoch.
    pub created: u64,
    /// Our ICE credentials.
    pub credentials: Credentials,
    /// The client's SDP offer.
    pub offer: &'a str,
    /// The addresses to advertise, best first.
    pub advertised: Vec<Advertised>,
    /// Random: RTP and event ids begin with it.
    pub seed: u64,
    /// How long it may take; [`SESSION_MAX`](crate::limits::SESSION_MAX) at most.
    pub longest: Duration,
    /// How long nothing may be said or sent; nothing means for ever.
    pub idle: Option<Duration>,
    /// What kind of call it is.
    pub kind: CallKind,
    /// The codec that is taken when the client offers it; otherwise, and without one, the best that it offers.
    pub codec: Option<Codec>,
    /// How Opus is encoded for it.
    pub opus: OpusMode,
}

/// A packet of the client's, as a record brought it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arrival {
    /// The client's address.
    pub client: ClientAddr,
    /// The ingress that it used.
    pub ingress: IngressId,
    /// Whether it came by TCP.
    pub tcp: bool,
    /// The relay core that sent the record.
    pub hop: Hop,
    /// That relay's name for the flow.
    pub handle: FlowHandle,
}

/// A packet for a client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Outgoing {
    /// Where it goes.
    pub to: Destination,
    /// The packet.
    pub payload: Vec<u8>,
}

/// What sessions send and drop in one turn.
#[derive(Debug, Default)]
pub struct Outbox {
    /// The packets, in order.
    pub sends: Vec<Outgoing>,
    /// Where the session is no longer: relays forget it there.
    pub closes: Vec<Destination>,
    /// The drops.
    pub drops: Drops,
}

/// One call.
pub struct Session {
    id: SessionId,
    created: u64,
    rtc: Rtc,
    credentials: Credentials,
    /// The client's ufrag and password.
    remote: (String, String),
    /// Every address that an answer advertised.
    advertised: Vec<Advertised>,
    paths: Paths,
    checks: Checks,
    channel: Channel,
    voice: Voice,
    quality: Quality,
    /// How much RTCP the client may send.
    rtcp: Bucket,
    life: Life,
    limit: Limit,
    /// The backend has ended the session: why, and when the client has had time to hear of it.
    ending: Option<(EndReason, Instant)>,
    idle: Idle,
    sidebands: Sidebands,
    engine_deadline: Instant,
    /// When a full channel is tried again.
    channel_retry: Option<Instant>,
    early: Early,
    /// Begins the handshake, where it is ours to begin.
    hello: Hello,
    /// Where its first flight goes, while there is one.
    hello_to: Option<PathKey>,
    /// It has left once.
    said_hello: bool,
    /// Where this input's packets begin in the outbox.
    sends_begin: usize,
    answers: u64,
    kind: CallKind,
    /// The client's last offer, less what nobody asks for any more: a later one must begin with the same sections. Nothing only until the
    /// first is answered.
    offer: Option<Offer>,
    drops: u64,
    /// How media is protected, once DTLS has agreed on it.
    srtp: Option<SrtpProfile>,
    /// Events of the client's that were taken, and those that were written to its channel.
    events_in: u64,
    events_out: u64,
    /// Where the session panics: for tests of what that does to the neighbours.
    #[cfg(test)]
    pub(crate) panics_in: &'static [&'static str],
}

impl Session {
    /// Does what is due at `now`. Call when [`Session::deadline`] has come; earlier does no harm.
    pub fn timeout(&mut self, now: Instant, out: &mut Outbox) {
        self.life.poll(now);
        while let Some(step) = self.limit.poll(now) {
            self.nearer(step, self.limit.reason(), now);
        }
        while let Some(step) = self.idle.poll(now) {
            self.nearer(step, EndReason::Idle, now);
        }
        if let Some((reason, at)) = self.ending
            && now >= at
        {
            self.life.end(reason, now);
        }
        if self.life.state() == State::Ended {
            self.farewell(now, out);
            return;
        }
        if now >= self.engine_deadline {
            self.feed(Input::Timeout(now), None, now, out);
        } else {
            self.act(now, out);
        }
    }

    /// The session's end has come nearer by a step.
    fn nearer(&mut self, step: LimitStep, why: EndReason, now: Instant) {
        match step {
            LimitStep::Warn(seconds) => {
                self.voice.notify(self.channel.expiry_warning(why, seconds));
            }
            LimitStep::Expire => self.voice.notify(self.channel.expired(why)),
            LimitStep::End => self.life.end(why, now),
        }
    }

    /// The process is going to stop at `end`: the session may go on until then.
    pub fn end_by(&mut self, end: Instant, now: Instant) {
        self.limit.shorten(end, EndReason::Drained, now);
    }

    /// Ends the session: tells the client by DTLS, where that is up.
    pub fn end(&mut self, reason: EndReason, now: Instant, out: &mut Outbox) {
        if self.life.state() != State::Ended {
            self.life.end(reason, now);
            self.farewell(now, out);
        }
    }

    /// Lets somebody watch and control the call beside its client; `None` when there are too many.
    pub fn join(&mut self, now: Instant) -> Option<Sideband> {
        let tap = self.voice.tap()?;
        // Those who are there already get what the snapshot has for the new one.
        while let Some(event) = tap.poll() {
            self.sidebands.pass(&event);
        }
        let joined = self.sidebands.join(tap.snapshot(), now);
        tap.watch(!self.sidebands.is_empty());
        joined
    }

    /// Takes a message of a sideband's, as the client's own are taken.
    pub fn said_beside(
        &mut self,
        from: SidebandId,
        binary: bool,
        data: &[u8],
        now: Instant,
        out: &mut Outbox,
    ) {
        if self.life.state() == State::Ended {
            return;
        }
        let Some(text) = self.sidebands.judge(from, binary, data, now) else {
            return out.drops.count(Reason::SidebandMessage);
        };
        self.idle.active(now);
        self.voice.client_event(text, now);
        self.act(now, out);
    }

    /// Passes on to those who look on what they have not heard yet.
    pub fn pass_to_sidebands(&mut self) {
        #[cfg(test)]
        self.fault("sidebands");
        if let Some(tap) = self.voice.tap() {
            while let Some(event) = tap.poll() {
                self.sidebands.pass(&event);
            }
        }
    }

    /// Tells those who look on that the session has ended, after all else that they are to hear.
    pub fn leave_sidebands(&mut self, reason: EndReason) {
        self.sidebands.end(reason);
    }

    /// When [`Session::timeout`] is due: engine, life, and audio on the grid that packs it with other sessions'.
    #[must_use]
    pub fn deadline(&self, grid: impl Fn(Instant) -> Instant) -> Option<Instant> {
        #[cfg(test)]
        self.fault("deadline");
        if self.life.state() == State::Ended {
            return None;
        }
        let audio = self.voice.deadline().map(grid);
        let waits = [
            Some(self.engine_deadline),
            self.life.deadline(),
            self.limit.deadline(),
            self.idle.deadline(),
            audio,
            self.channel_retry,
            self.media_deadline(),
            self.ending.map(|(_, at)| at),
        ];
        waits.into_iter().flatten().min()
    }

    /// Where the session stands.
    #[must_use]
    pub fn state(&self) -> State {
        self.life.state()
    }

    /// Why it ended, once it has.
    #[must_use]
    pub fn end_reason(&self) -> Option<EndReason> {
        self.life.end_reason()
    }

    /// Its id.
    #[must_use]
    pub fn id(&self) -> SessionId {
        self.id
    }

    /// The ufrag in use.
    #[must_use]
    pub fn ufrag(&self) -> Ufrag {
        self.credentials.ufrag
    }

    /// When signaling created it, in milliseconds since the Unix epoch: with the id, its name.
    #[must_use]
    pub fn created(&self) -> u64 {
        self.created
    }

    /// Every place where a relay knows the session: each gets a close record at the end.
    pub fn destinations(&self) -> impl Iterator<Item = Destination> + '_ {
        #[cfg(test)]
        self.fault("destinations");
        self.paths.all()
    }

    /// The client is to hear of the end of its backend before the end of its session.
    fn backend_ended(&mut self, why: BackendEnd, now: Instant) {
        let reason = match why {
            BackendEnd::Closed => EndReason::BackendClosed,
            BackendEnd::Expired => EndReason::Expired,
            BackendEnd::Failed => EndReason::BackendFailed,
        };
        self.ending
            .get_or_insert((reason, now + limits::EXPIRY_GRACE));
    }

    #[cfg(test)]
    fn fault(&self, place: &str) {
        assert!(!self.panics_in.contains(&place), "a fault made by a test");
    }

    fn drop_one(&mut self, reason: Reason, out: &mut Outbox) {
        self.drops += 1;
        out.drops.count(reason);
    }
}
