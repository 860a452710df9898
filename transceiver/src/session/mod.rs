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
mod report;
mod sidebands;
mod voice;

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use firsthop_shared::address::{ClientAddr, FlowHandle, Hop, IngressId, SessionId};
use firsthop_shared::control::CallKind;
use firsthop_shared::packet::{PacketClass, classify};
use firsthop_shared::token::{IcePassword, Ufrag};
use str0m::crypto::dtls::SrtpProfile;
use str0m::net::{Protocol, Receive};
use str0m::{IceCreds, Input, Rtc};

use crate::audio::{BackendEnd, BackendReport, Codec, ConversationCounters, OpusMode};
use crate::bucket::Bucket;
use crate::channel::Channel;
use crate::hops::{Destination, PathIndex, PathKey, Paths};
use crate::idle::Idle;
use crate::life::{EndReason, Life, Limit, LimitStep, SetUp, State};
use crate::limits;
use crate::proof::{Checks, Meaning};
use crate::reason::{Drops, Reason};
use crate::sdp::Offer;
use crate::traces::SetUpTimes;

use early::{Early, alert_in_the_clear};
use quality::Quality;
use voice::Voice;

pub use quality::{LastReport, QualitySummary};
pub use report::{PathReport, SessionReport};
pub(crate) use sidebands::Sidebands;
pub use sidebands::{Sideband, SidebandEnd, SidebandId};

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

/// What a session was, for the log line at its end.
#[derive(Clone, Copy, Debug, Default)]
pub struct Summary {
    /// How long it lived, and its setup times.
    pub life: LifeSummary,
    /// How often media moved to another path.
    pub moves: u32,
    /// How many ICE restarts there were.
    pub restarts: u64,
    /// How many packets and messages were dropped.
    pub drops: u64,
    /// What happened to the audio.
    pub audio: ConversationCounters,
    /// What RTCP said of the path.
    pub quality: QualitySummary,
    /// Packets in a hundred that the encoder expected to be lost, at the end.
    pub expected_loss: u8,
    /// What the backend has to tell of its server.
    pub backend: BackendReport,
}

/// Times of a session, in milliseconds.
#[derive(Clone, Copy, Debug, Default)]
pub struct LifeSummary {
    /// From answer to end.
    pub duration_ms: u64,
    /// When it reached each phase of its set-up.
    pub setup: SetUp,
    /// How often the client was lost for a while.
    pub interruptions: u32,
}

impl Session {
    /// Takes a packet of the client's.
    pub fn receive(&mut self, from: Arrival, packet: &[u8], now: Instant, out: &mut Outbox) {
        #[cfg(test)]
        self.fault("receive");
        if let Err(reason) = self.try_receive(from, packet, now, out) {
            self.drop_one(reason, out);
        }
    }

    fn try_receive(
        &mut self,
        from: Arrival,
        packet: &[u8],
        now: Instant,
        out: &mut Outbox,
    ) -> Result<(), Reason> {
        if self.life.state() == State::Ended {
            return Err(Reason::Ended);
        }
        let destination = self
            .advertised
            .iter()
            .find(|a| a.ingress == from.ingress && a.address.is_ipv6() == from.client.is_ipv6())
            .map(|a| a.address)
            .ok_or(Reason::UnknownIngress)?;
        let key = PathKey {
            client: from.client,
            ingress: from.ingress,
            tcp: from.tcp,
        };
        let known = self.paths.arrived(&key, from.hop, from.handle);
        let path = match classify(packet) {
            PacketClass::Stun => {
                let path = self.receive_stun(known, &key, from, packet, now)?;
                out.closes.extend(self.paths.take_evicted());
                path
            }
            class @ (PacketClass::Dtls | PacketClass::Rtp) => {
                let path = known.ok_or(Reason::Unvalidated)?;
                let connecting = self.life.connected_at().is_none();
                if connecting && class == PacketClass::Dtls && alert_in_the_clear(packet) {
                    return Err(Reason::ClearAlert);
                }
                if !self.paths.is_validated(path) {
                    return match class {
                        PacketClass::Dtls if connecting => self.early.hold(key, packet),
                        _ => Err(Reason::Unvalidated),
                    };
                }
                if class == PacketClass::Rtp {
                    // The engine keeps each report until it sums them up, and does that only once we have sent something.
                    if is_rtcp(packet) && !(self.voice.takes_reports() && self.rtcp.take(1, now)) {
                        return Err(Reason::RtcpRate);
                    }
                    self.voice.announce(&mut self.rtc, packet);
                }
                path
            }
            PacketClass::Empty | PacketClass::Other => return Err(Reason::NotWebrtc),
        };
        self.input(path, &key, destination, packet, now, out)?;
        if self.paths.is_validated(path) {
            for held in self.early.release(&key) {
                self.input(path, &key, destination, &held, now, out)?;
            }
        }
        Ok(())
    }

    /// Gives the engine a packet that has passed every check.
    fn input(
        &mut self,
        path: PathIndex,
        key: &PathKey,
        destination: SocketAddr,
        packet: &[u8],
        now: Instant,
        out: &mut Outbox,
    ) -> Result<(), Reason> {
        let protocol = if key.tcp {
            Protocol::Tcp
        } else {
            Protocol::Udp
        };
        let received = Receive::new(protocol, key.client.get(), destination, packet)
            .map_err(|_| Reason::Unparsable)?;
        self.feed(Input::Receive(now, received), Some(path), now, out);
        Ok(())
    }

    /// Judges a STUN message, and keeps what it proves.
    fn receive_stun(
        &mut self,
        known: Option<PathIndex>,
        key: &PathKey,
        from: Arrival,
        packet: &[u8],
        now: Instant,
    ) -> Result<PathIndex, Reason> {
        let local = (
            self.credentials.ufrag.as_bytes(),
            self.credentials.password.as_bytes(),
        );
        let remote = (self.remote.0.as_bytes(), self.remote.1.as_bytes());
        match self.checks.judge(packet, key, local, remote)? {
            Meaning::Request { nominates } => {
                let path = match known {
                    Some(path) => path,
                    None => self
                        .paths
                        .admit(*key, from.hop, from.handle, now)
                        .ok_or(Reason::TooManyPaths)?,
                };
                self.life.checked(now);
                self.paths.requested(path, nominates, now);
                Ok(path)
            }
            Meaning::Proof => {
                // A path may have made room between the check and its answer.
                let path = known.ok_or(Reason::StunUnmatched)?;
                self.life.answered(now);
                self.paths.answered(path, now);
                Ok(path)
            }
            Meaning::Refusal => known.ok_or(Reason::StunUnmatched),
        }
    }

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

    /// What it was, for the log.
    #[must_use]
    pub fn summary(&self, now: Instant) -> Summary {
        #[cfg(test)]
        self.fault("summary");
        let ms = |d: std::time::Duration| u64::try_from(d.as_millis()).unwrap_or(u64::MAX);
        Summary {
            life: LifeSummary {
                duration_ms: ms(self.life.duration(now)),
                setup: self.life.setup(),
                interruptions: self.life.interruptions(),
            },
            moves: self.paths.moves(),
            restarts: self.answers.saturating_sub(1),
            drops: self.drops,
            audio: self.voice.counters(),
            quality: self.quality.summary(),
            expected_loss: self.voice.expected_loss(),
            backend: self.voice.backend_report(),
        }
    }

    /// How far its set-up has come.
    #[must_use]
    pub fn set_up_times(&self) -> SetUpTimes {
        SetUpTimes {
            answered: self.life.answered_at(),
            phases: self.life.phases(),
            has_channel: self.channel.is_offered(),
            backend: self.voice.backend_report(),
            ended: self.life.end_reason(),
        }
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

/// Tells RTCP from RTP on one port (RFC 5761 section 4).
fn is_rtcp(packet: &[u8]) -> bool {
    matches!(packet, [_, 192..=223, ..])
}
