//! A client that only begins a call, sans-IO: str0m in a browser's role, that notes when it came to what.
//!
//! It is [`crate::call::client::Client`]'s sibling: that one holds calls, this one may offer no channel, or one whose handshake is in the
//! offer, and looks at the first packet each way.
//!
//! What a browser does, and this does not: browsers nominate a pair with their first check, where this one nominates when a check was answered,
//! which costs no round trip because it is in time for DTLS; and browsers send the channel's opening with the third packet of SCTP's handshake,
//! where this one waits for the fourth: its channel opens a round trip later than theirs, where SCTP shakes hands. Audio waits for neither.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Instant;

use str0m::change::{SdpAnswer, SdpPendingOffer};
use str0m::media::{Direction, MediaKind, Mid};
use str0m::net::{Protocol, Receive};
use str0m::rtp::RtpWrite;
use str0m::{Candidate, Event, IceConnectionState, Input, Output, Rtc, RtcConfig};

use super::results::{Channel, Phase, Sample};
use crate::call::browser;
use crate::call::identity::Identity;
use crate::call::recording::{Codec, Recording};
use crate::call::speaking::FRAME;

/// Takes what the client sends: where to, and the packet.
pub type Send<'a> = &'a mut dyn FnMut(SocketAddr, &[u8]);

/// A client.
pub struct Opening {
    rtc: Rtc,
    local: SocketAddr,
    pending: Option<SdpPendingOffer>,
    mid: Mid,
    channel: Channel,
    recording: Recording,
    /// The next frame, and when it is due; from when DTLS is up.
    next: Option<(u64, Instant)>,
    deadline: Instant,
    reached: BTreeMap<Phase, Instant>,
    spoke: Option<Instant>,
    closed: bool,
}

impl Opening {
    /// A client at `local`, and its offer.
    ///
    /// # Errors
    /// The engine takes no such address.
    pub fn offer(
        identity: &Identity,
        channel: Channel,
        recording: Recording,
        local: SocketAddr,
        now: Instant,
    ) -> Result<(Self, String), String> {
        let mut config = RtcConfig::new()
            .set_crypto_provider(identity.provider())
            .set_dtls_cert(identity.certificate())
            .set_rtp_mode(true)
            .set_snap_enabled(channel == Channel::Snap)
            .clear_codecs()
            .clear_extension_map()
            .set_extension(4, str0m::rtp::Extension::RtpMid);
        match recording.codec() {
            Codec::Opus => config.codec_config().enable_opus(true, false),
            Codec::Pcmu => config.codec_config().enable_pcmu(true, false),
        }
        let mut rtc = config.build(now);
        let candidate = Candidate::host(local, "udp").map_err(|error| error.to_string())?;
        rtc.add_local_candidate(candidate);
        let mut changes = rtc.sdp_api();
        let mid = changes.add_media(MediaKind::Audio, Direction::SendRecv, None, None, None);
        if channel != Channel::Without {
            changes.add_channel("oai-events".to_owned());
        }
        let (offer, pending) = changes
            .apply()
            .unwrap_or_else(|| unreachable!("there are changes"));
        let client = Self {
            rtc,
            local,
            pending: Some(pending),
            mid,
            channel,
            recording,
            next: None,
            deadline: now,
            reached: BTreeMap::new(),
            spoke: None,
            closed: false,
        };
        Ok((client, browser::offer(&offer.to_sdp_string())))
    }

    /// Takes the answer, and begins with ICE.
    ///
    /// # Errors
    /// It is none to the offer, or the engine failed.
    pub fn accept(&mut self, answer: &str, now: Instant, send: Send<'_>) -> Result<(), String> {
        let pending = self.pending.take().ok_or("there was an answer before")?;
        let refused = |error: &dyn std::fmt::Display| format!("the answer cannot be used: {error}");
        if self.channel == Channel::Handshake {
            browser::begin_sctp(&mut self.rtc, answer);
        }
        let answer = SdpAnswer::from_sdp_string(answer).map_err(|error| refused(&error))?;
        self.rtc
            .sdp_api()
            .accept_answer(pending, answer)
            .map_err(|error| refused(&error))?;
        self.reached.insert(Phase::Answer, now);
        self.input(Input::Timeout(now), now, send)
    }

    /// Takes a packet.
    ///
    /// # Errors
    /// The engine failed.
    pub fn receive(
        &mut self,
        from: SocketAddr,
        packet: &[u8],
        now: Instant,
        send: Send<'_>,
    ) -> Result<(), String> {
        // What is none of WebRTC is nobody's.
        match Receive::new(Protocol::Udp, from, self.local, packet) {
            Ok(received) => self.input(Input::Receive(now, received), now, send),
            Err(_) => Ok(()),
        }
    }

    /// Does what is due at `now`.
    ///
    /// # Errors
    /// The engine failed.
    pub fn poll(&mut self, now: Instant, send: Send<'_>) -> Result<(), String> {
        while let Some((frame, due)) = self.next.filter(|(_, due)| *due <= now) {
            self.next = Some((frame + 1, due + FRAME));
            self.speak(frame, now);
        }
        self.input(Input::Timeout(now), now, send)
    }

    /// When [`Opening::poll`] is due.
    #[must_use]
    pub fn deadline(&self) -> Instant {
        self.next
            .map_or(self.deadline, |(_, due)| due.min(self.deadline))
    }

    /// Whether there is nothing more to wait for.
    #[must_use]
    pub fn is_open(&self) -> bool {
        let wanted = match self.channel {
            Channel::Without => &[Phase::FirstAudio][..],
            Channel::Handshake | Channel::Snap => &[Phase::FirstAudio, Phase::Channel],
        };
        wanted.iter().all(|phase| self.reached.contains_key(phase))
    }

    /// The last phase that it came to, for whoever waited for more.
    #[must_use]
    pub fn last(&self) -> Option<Phase> {
        self.reached.keys().next_back().copied()
    }

    /// When it came to what after `begin`.
    #[must_use]
    pub fn sample(&self, begin: Instant) -> Sample {
        let ms = |at: Instant| at.saturating_duration_since(begin).as_secs_f64() * 1_000.0;
        let phases = self.reached.iter().map(|(phase, at)| (*phase, ms(*at)));
        Sample {
            phases: phases.collect(),
            spoke: self.spoke.map(ms),
        }
    }

    /// Leaves the call as a page does that closes its connection.
    pub fn leave(&mut self, now: Instant, send: Send<'_>) {
        // Closing an engine that has failed says nothing more.
        let _ = self.rtc.close();
        let _ = self.drain(now, send);
    }

    fn speak(&mut self, frame: u64, now: Instant) {
        let media = self.rtc.media(self.mid);
        let Some(pt) = media.and_then(|media| media.remote_pts().first().copied()) else {
            return;
        };
        let payload = self.recording.frame(frame);
        let rate = self.recording.codec().clock_rate();
        let timestamp = (frame as u32).wrapping_mul(rate / 50);
        let mut api = self.rtc.direct_api();
        if let Some(stream) = api.stream_tx_by_mid(self.mid, None) {
            let number = (1_000 + frame).into();
            stream.write_rtp(RtpWrite::new(pt, number, timestamp, now, payload));
            self.spoke.get_or_insert(now);
        }
    }

    fn input(&mut self, input: Input<'_>, now: Instant, send: Send<'_>) -> Result<(), String> {
        self.rtc
            .handle_input(input)
            .map_err(|error| error.to_string())?;
        self.drain(now, send)?;
        // The first frame leaves as soon as it may.
        if self.next.is_some_and(|(_, due)| due <= now) {
            return self.poll(now, send);
        }
        match self.closed {
            true => Err("the other side ended the call".to_owned()),
            false => Ok(()),
        }
    }

    fn drain(&mut self, now: Instant, send: Send<'_>) -> Result<(), String> {
        loop {
            match self.rtc.poll_output().map_err(|error| error.to_string())? {
                Output::Timeout(at) => {
                    self.deadline = at;
                    return Ok(());
                }
                Output::Transmit(transmit) => send(transmit.destination, &transmit.contents),
                Output::Event(event) => self.event(event, now),
            }
        }
    }

    fn event(&mut self, event: Event, now: Instant) {
        let phase = match event {
            Event::IceConnectionStateChange(
                IceConnectionState::Connected | IceConnectionState::Completed,
            ) => Phase::Ice,
            Event::Connected => {
                self.next = Some((0, now));
                Phase::Dtls
            }
            Event::ChannelOpen(..) => Phase::Channel,
            Event::RtpPacket(_) => Phase::FirstAudio,
            Event::Closed => {
                self.closed = true;
                return;
            }
            _ => return,
        };
        self.reached.entry(phase).or_insert(now);
    }
}
