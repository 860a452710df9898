//! Driving the engine: feed one input, drain it whole, then do what its events call for.

use std::time::Instant;

use firsthop_shared::packet::{PacketClass, classify};
use str0m::net::{Protocol, Transmit};
use str0m::{Event, Input, Output};

use super::{Outbox, Outgoing, Session};
use crate::channel::Incoming;
use crate::hops::{PathIndex, PathKey};
use crate::life::{EndReason, Phase, State};
use crate::limits;
use crate::reason::Reason;

/// More output than one input can cause; a loop that reaches it is a fault of the engine's.
const DRAIN_MAX: usize = 100_000;

impl Session {
    /// Gives the engine one input, and carries out what follows from it.
    ///
    /// `from` is the path that the input came by: what authenticates during the drain came from there.
    pub(super) fn feed(
        &mut self,
        input: Input<'_>,
        from: Option<PathIndex>,
        now: Instant,
        out: &mut Outbox,
    ) {
        self.sends_begin = out.sends.len();
        if let Err(error) = self.rtc.handle_input(input) {
            self.engine_failed(&error, now, out);
            return;
        }
        self.drain(from, now, out);
        self.say_hello(now, out);
        self.act(now, out);
    }

    /// Sends what a handshake of ours has before the client has replied.
    ///
    /// One packet goes to an address that is not validated: where the client's first check, which was verified, says that it is. It is
    /// about as large as the two that the address gets for that check anyway, and it saves each call a round trip.
    fn say_hello(&mut self, now: Instant, out: &mut Outbox) {
        let Some(key) = self.hello_to else {
            return;
        };
        for payload in self.hello.take() {
            if self.said_hello && !self.paths.may_send(&key, now) {
                self.drop_one(Reason::NoConsent, out);
                continue;
            }
            match self.paths.send_to(&key) {
                Some(to) => {
                    out.sends.push(Outgoing { to, payload });
                    self.said_hello = true;
                }
                None => self.drop_one(Reason::NoHop, out),
            }
        }
    }

    fn engine_failed(&mut self, error: &str0m::RtcError, now: Instant, out: &mut Outbox) {
        // The client's doing more often than ours (a certificate that does not match its fingerprint, an RSA key).
        tracing::info!(session = self.id.0, %error, "the engine gave the session up");
        self.life.end(EndReason::EngineFailed, now);
        self.farewell(now, out);
    }

    /// Takes everything that the engine has to give; leaves its next deadline behind.
    fn drain(&mut self, from: Option<PathIndex>, now: Instant, out: &mut Outbox) {
        for _ in 0..DRAIN_MAX {
            match self.rtc.poll_output() {
                Ok(Output::Timeout(at)) => {
                    self.engine_deadline = at;
                    // Within the drain that has brought it: no other session's can be there.
                    if self.srtp.is_none() {
                        self.srtp = self.hello.agreed();
                    }
                    return;
                }
                Ok(Output::Transmit(transmit)) => self.transmit(transmit, now, out),
                Ok(Output::Event(event)) => self.event(event, from, now, out),
                Err(error) => {
                    if self.life.state() != State::Ended {
                        self.engine_failed(&error, now, out);
                    }
                    return;
                }
            }
        }
        self.life.end(EndReason::EngineFailed, now);
    }

    /// Sends a packet of the engine's by the right hop: checks where the engine wants them, media where the client is.
    fn transmit(&mut self, transmit: Transmit, now: Instant, out: &mut Outbox) {
        let Some(advertised) = self
            .advertised
            .iter()
            .find(|a| a.address == transmit.source)
        else {
            self.drop_one(Reason::UnknownIngress, out);
            return;
        };
        let mut key = PathKey {
            client: transmit.destination.into(),
            ingress: advertised.ingress,
            tcp: transmit.proto != Protocol::Udp,
        };
        let mut check = false;
        if classify(&transmit.contents) == PacketClass::Stun {
            check = self.checks.sent(&transmit.contents, key);
        } else {
            self.paths.engine_chose(key);
            key = self.paths.chosen().unwrap_or(key);
            if !self.paths.may_send(&key, now) {
                self.drop_one(Reason::NoConsent, out);
                return;
            }
        }
        let Some(to) = self.paths.send_to(&key) else {
            self.drop_one(Reason::NoHop, out);
            return;
        };
        let outgoing = Outgoing {
            to,
            payload: transmit.contents.into(),
        };
        // A check of ours goes ahead of our answer to the client's: the client then answers it before it begins DTLS, and
        // its first flight comes from an address that is validated already.
        if check && self.sends_begin <= out.sends.len() {
            out.sends.insert(self.sends_begin, outgoing);
            self.sends_begin += 1;
        } else {
            out.sends.push(outgoing);
        }
    }

    fn event(&mut self, event: Event, from: Option<PathIndex>, now: Instant, out: &mut Outbox) {
        match event {
            Event::Connected => {
                self.authenticated(from, false, now);
                self.life.connected(now);
                self.idle.connected(now);
                self.early.clear();
                self.hello_to = None;
            }
            Event::MediaAdded(added) => self.voice.negotiated(&self.rtc, added.mid, added.kind),
            Event::MediaChanged(changed) => self.voice.changed(changed.mid, changed.direction),
            Event::RtpPacket(packet) => {
                self.authenticated(from, true, now);
                self.idle.heard(now);
                self.life.reached(Phase::AudioIn, now);
                self.voice.received(packet, now);
            }
            Event::ChannelOpen(id, label) => {
                self.life.reached(Phase::Channel, now);
                if let Some(first) = self.channel.opened(id, &label) {
                    self.voice.put_back(first);
                }
            }
            Event::ChannelClose(id) => self.channel.closed(id),
            Event::ChannelData(data) => {
                self.authenticated(from, false, now);
                match self.channel.incoming(data.id, data.binary, &data.data, now) {
                    Incoming::Event(text) => {
                        self.events_in += 1;
                        self.idle.active(now);
                        self.voice.client_event(text, now);
                    }
                    Incoming::Refused(notice) => {
                        out.drops.count(Reason::ChannelMessage);
                        self.voice.notify(notice);
                    }
                    Incoming::Dropped => self.drop_one(Reason::ChannelMessage, out),
                }
            }
            Event::MediaEgressStats(stats) => {
                if let Some(lost) = self.quality.egress(&stats) {
                    self.voice.path_loss(lost);
                }
            }
            Event::MediaIngressStats(stats) => self.quality.ingress(&stats),
            Event::Closed => self.life.end(EndReason::ClientClosed, now),
            _ => {}
        }
    }

    fn authenticated(&mut self, from: Option<PathIndex>, media: bool, now: Instant) {
        if let Some(path) = from {
            self.paths.authenticated(path, media, now);
            self.life.proven(now);
        }
    }

    /// Does what is due after a drain: events to the channel, audio to the client; each a mutation with a drain of its own.
    pub(super) fn act(&mut self, now: Instant, out: &mut Outbox) {
        if self.life.state() == State::Ended {
            self.farewell(now, out);
            return;
        }
        self.start_media(now);
        if let Some(error) = self.voice.failure() {
            tracing::error!(session = self.id.0, %error, "no audio codec");
            self.life.end(EndReason::CodecFailed, now);
            self.farewell(now, out);
            return;
        }
        while self.life.state() != State::Ended && self.voice.send_one(&mut self.rtc, now) {
            self.life.reached(Phase::AudioOut, now);
            // A due timeout is pending after a write: the packet leaves with it.
            if let Err(error) = self.rtc.handle_input(Input::Timeout(now)) {
                self.engine_failed(&error, now, out);
                return;
            }
            self.drain(None, now, out);
        }
        self.write_events(now, out);
        // A client that is still connecting is told first: it has until it is reaped.
        let told = self.voice.is_started() && !self.channel.is_awaited();
        if let Some(why) = self.voice.ended().filter(|_| told) {
            self.backend_ended(why, now);
        }
        self.look_on(now, out);
        if self.life.state() == State::Ended {
            self.farewell(now, out);
        }
    }

    /// Notes what the backend has said and played, and passes it on to sidebands.
    fn look_on(&mut self, now: Instant, out: &mut Outbox) {
        let Some(tap) = self.voice.tap() else {
            return;
        };
        if !self.sidebands.is_empty() {
            let mut cut = 0;
            while let Some(event) = tap.poll() {
                cut += self.sidebands.pass(&event);
            }
            if tap.take_lost() {
                cut += self.sidebands.cut_all();
            }
            tap.watch(!self.sidebands.is_empty());
            out.drops[Reason::SidebandSlow] += cut as u64;
        }
        let (active, speaking) = (tap.take_active(), tap.is_speaking());
        if active {
            self.idle.active(now);
        }
        self.idle.speaking(speaking, now);
    }

    fn write_events(&mut self, now: Instant, out: &mut Outbox) {
        let Some(largest) = self.channel.largest() else {
            while let Some(event) = self.voice.next_event() {
                self.channel.left(&event);
            }
            return;
        };
        // Before they take the room of others.
        let shorten = |event: &str| self.channel.shortened(event);
        let shortened = self.voice.shorten_events(largest, shorten);
        self.drops += shortened;
        out.drops[Reason::ChannelOversize] += shortened;
        self.write_waiting(now, out);
        // What a client misses before its channel can have opened is not its doing either.
        let flows = self.channel.flows() || self.channel.is_awaited();
        self.voice.events_flow(flows);
    }

    fn write_waiting(&mut self, now: Instant, out: &mut Outbox) {
        self.channel_retry = None;
        while let Some(id) = self.channel.id() {
            if self.life.state() == State::Ended {
                return;
            }
            let Some(mut text) = self.voice.next_event() else {
                return;
            };
            if !self.channel.fits(text.len()) {
                self.drop_one(Reason::ChannelOversize, out);
                text = self.channel.shortened(&text);
                if !self.channel.fits(text.len()) {
                    continue;
                }
            }
            let Some(mut channel) = self.rtc.channel(id) else {
                self.voice.put_back(text);
                return;
            };
            match channel.write(false, text.as_bytes()) {
                Ok(true) => {
                    self.channel.took();
                    self.channel.left(&text);
                    self.events_out += 1;
                    self.drain(None, now, out);
                }
                Ok(false) => {
                    let unacknowledged = channel.buffered_amount();
                    if self.channel.blocked(unacknowledged, now) {
                        self.drop_one(Reason::ChannelStalled, out);
                        self.voice.event_lost();
                    } else {
                        self.voice.put_back(text);
                    }
                    self.channel_retry = Some(now + limits::CHANNEL_RETRY);
                    return;
                }
                // The stream is closing under us; its close event follows.
                Err(_) => {
                    self.drop_one(Reason::ChannelMessage, out);
                    self.voice.event_lost();
                    return;
                }
            }
        }
    }

    /// Media starts with DTLS, and with SCTP when the offer has a channel; or without it, after a while. Once SCTP is up the client opens its
    /// channel with the next packet: audio need not wait for that.
    fn start_media(&mut self, now: Instant) {
        let Some(at) = self.life.connected_at() else {
            return;
        };
        if now >= at + limits::CHANNEL_WAIT {
            self.channel.settle();
        }
        if !self.channel.is_awaited() || self.hello.is_associated() {
            self.voice.start();
        }
    }

    pub(super) fn media_deadline(&self) -> Option<Instant> {
        let at = self.life.connected_at()? + limits::CHANNEL_WAIT;
        self.channel.is_awaited().then_some(at)
    }

    /// Sends the last packets: RTCP BYE and the DTLS close_notify, where the engine has them.
    pub(super) fn farewell(&mut self, now: Instant, out: &mut Outbox) {
        // A closed engine gives nothing, so a second farewell is silent.
        if self.rtc.close().is_err() {
            return;
        }
        for _ in 0..DRAIN_MAX {
            match self.rtc.poll_output() {
                Ok(Output::Transmit(transmit)) => self.transmit(transmit, now, out),
                Ok(Output::Event(_)) => {}
                Ok(Output::Timeout(_)) | Err(_) => break,
            }
        }
        self.rtc.disconnect();
    }
}
