//! One client, sans-IO: str0m in a browser's role, that offers audio and a channel, speaks a recording and listens.

use std::net::SocketAddr;
use std::time::Instant;

use str0m::change::{SdpAnswer, SdpPendingOffer};
use str0m::media::{Direction, MediaKind, Mid};
use str0m::net::{Protocol, Receive};
use str0m::rtp::RtpWrite;
use str0m::{Candidate, Event, IceConnectionState, Input, Output, Rtc, RtcConfig};

use super::browser;
pub use super::failing::ClientError;
use super::hearing::Packet;
use super::identity::Identity;
use super::listening::Listening;
use super::recording::{Codec, Recording};
use super::speaking::Speech;
use super::stamp::Stamp;

/// When what happened.
#[derive(Clone, Copy, Default, Debug)]
pub struct Times {
    /// The answer came.
    pub answered: Option<Instant>,
    /// ICE had a way to the server.
    pub ice: Option<Instant>,
    /// DTLS was up.
    pub connected: Option<Instant>,
    /// The channel was open.
    pub channel: Option<Instant>,
    /// The first audio came.
    pub first_audio: Option<Instant>,
}

/// Takes what a client sends: where to, and the packet.
pub type Send<'a> = &'a mut dyn FnMut(SocketAddr, &[u8]);

/// Takes the audio that a client gets.
pub type Hear<'a> = &'a mut dyn FnMut(Packet);

/// One client.
pub struct Client {
    pub(super) rtc: Rtc,
    pub(super) local: SocketAddr,
    pub(super) pending: Option<SdpPendingOffer>,
    /// The server's candidates, and the only one of them that is used, if it has been chosen.
    pub(super) remotes: Vec<Candidate>,
    pub(super) via: Option<SocketAddr>,
    /// The address changes: what would leave from the old one is not sent.
    pub(super) moves: bool,
    mid: Mid,
    codec: Codec,
    speech: Option<Speech>,
    times: Times,
    deadline: Instant,
    closed: bool,
    sent: u64,
    pub(super) listening: Option<Listening>,
    after_channel: bool,
}

impl Client {
    /// A client at `local`, and its offer. Without a recording it says nothing.
    ///
    /// # Errors
    /// The engine takes no such address.
    pub fn offer(
        identity: &Identity,
        codec: Codec,
        recording: Option<Recording>,
        local: SocketAddr,
        now: Instant,
    ) -> Result<(Self, String), ClientError> {
        // Transport-wide congestion control is what a browser would offer; a server of voice turns it down, and it costs the generator most.
        let mut config = RtcConfig::new()
            .set_crypto_provider(identity.provider())
            .set_dtls_cert(identity.certificate())
            .set_rtp_mode(true)
            .clear_codecs()
            .clear_extension_map()
            .set_extension(4, str0m::rtp::Extension::RtpMid);
        match codec {
            Codec::Opus => config.codec_config().enable_opus(true, false),
            Codec::Pcmu => config.codec_config().enable_pcmu(true, false),
        }
        let mut rtc = config.build(now);
        let candidate = Candidate::host(local, "udp")
            .map_err(|error| ClientError::Answer(error.to_string()))?;
        rtc.add_local_candidate(candidate);
        let mut changes = rtc.sdp_api();
        let mid = changes.add_media(MediaKind::Audio, Direction::SendRecv, None, None, None);
        changes.add_channel("oai-events".to_owned());
        let (offer, pending) = changes
            .apply()
            .unwrap_or_else(|| unreachable!("there are changes"));
        let client = Self {
            rtc,
            local,
            pending: Some(pending),
            remotes: Vec::new(),
            via: None,
            moves: false,
            mid,
            codec,
            speech: recording.map(Speech::new),
            times: Times::default(),
            deadline: now,
            closed: false,
            sent: 0,
            listening: None,
            after_channel: false,
        };
        Ok((client, browser::offer(&offer.to_sdp_string())))
    }

    /// Has it begin to speak when its channel is open, and not when DTLS is up.
    pub fn speak_after_channel(&mut self) {
        self.after_channel = true;
    }

    /// Marks what it says from now on, `first` being the mark of the next frame. For G.711 alone: Opus does not keep marks.
    pub fn stamp(&mut self, first: Stamp) {
        if let Some(speech) = &mut self.speech {
            speech.stamp(first, self.sent);
        }
    }

    /// Takes the answer to its offer, and begins with ICE; or goes on with it, after [`Client::restart`].
    ///
    /// # Errors
    /// It is not an answer to the offer, or there was one before.
    pub fn accept(
        &mut self,
        answer: &str,
        now: Instant,
        send: Send<'_>,
    ) -> Result<(), ClientError> {
        let refused = |error: String| ClientError::Answer(error);
        let pending = self
            .pending
            .take()
            .ok_or_else(|| refused("there was one before".to_owned()))?;
        let answer = self.choose(answer);
        self.check_choice()?;
        browser::begin_sctp(&mut self.rtc, &answer);
        let answer =
            SdpAnswer::from_sdp_string(&answer).map_err(|error| refused(error.to_string()))?;
        self.rtc
            .sdp_api()
            .accept_answer(pending, answer)
            .map_err(|error| refused(error.to_string()))?;
        self.arrive()?;
        self.times.answered.get_or_insert(now);
        self.rtc.handle_input(Input::Timeout(now))?;
        self.drain(now, 0, &mut |_| {}, send)
    }

    /// Takes a packet that came from `from` at `at_nanos`; audio in it is handed to `hear`.
    ///
    /// # Errors
    /// The engine failed.
    pub fn receive(
        &mut self,
        from: SocketAddr,
        packet: &[u8],
        at_nanos: u64,
        now: Instant,
        hear: Hear<'_>,
        send: Send<'_>,
    ) -> Result<(), ClientError> {
        // What is none of WebRTC is nobody's.
        let Ok(received) = Receive::new(Protocol::Udp, from, self.local, packet) else {
            return Ok(());
        };
        self.rtc.handle_input(Input::Receive(now, received))?;
        self.drain(now, at_nanos, hear, send)
    }

    /// Does what is due at `now`: frames of the recording, and the engine's timers.
    ///
    /// # Errors
    /// The engine failed.
    pub fn poll(&mut self, now: Instant, send: Send<'_>) -> Result<(), ClientError> {
        self.speak(now);
        if let Some(listening) = &mut self.listening {
            listening.pass(now);
        }
        self.rtc.handle_input(Input::Timeout(now))?;
        self.drain(now, 0, &mut |_| {}, send)
    }

    /// Leaves the call as a page does that closes its connection.
    pub fn leave(&mut self, now: Instant, send: Send<'_>) {
        // Closing an engine that has failed says nothing more.
        let _ = self.rtc.close();
        let _ = self.drain(now, 0, &mut |_| {}, send);
        self.closed = true;
    }

    /// When [`Client::poll`] is due.
    #[must_use]
    pub fn deadline(&self) -> Instant {
        let frame = self.speech.as_ref().and_then(Speech::next);
        frame.map_or(self.deadline, |frame| frame.min(self.deadline))
    }

    /// When what happened.
    #[must_use]
    pub fn times(&self) -> Times {
        self.times
    }

    /// Whether the other side has ended the call, or the client has left.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    /// Packets of the recording that were sent.
    #[must_use]
    pub fn sent(&self) -> u64 {
        self.sent
    }

    fn begin_to_speak(&mut self, now: Instant, has_channel: bool) {
        if let Some(speech) = self.speech.as_mut()
            && self.after_channel == has_channel
        {
            speech.begin(now);
        }
    }

    fn speak(&mut self, now: Instant) {
        let Some(speech) = &mut self.speech else {
            return;
        };
        let Some(said) = speech.say(now) else {
            return;
        };
        if speech.pt.is_none() {
            let media = self.rtc.media(self.mid);
            speech.pt = media.and_then(|media| media.remote_pts().first().copied());
        }
        let Some(pt) = speech.pt else {
            return;
        };
        let payload = speech.payload(said.frame, self.sent);
        if let Some(listening) = &mut self.listening {
            listening.said(&speech.recording, said);
        }
        let frame = said.frame;
        let timestamp = (frame as u32).wrapping_mul(self.codec.clock_rate() / 50);
        let mut api = self.rtc.direct_api();
        let Some(stream) = api.stream_tx_by_mid(self.mid, None) else {
            return;
        };
        // A frame that was left out is one that was lost.
        stream.write_rtp(RtpWrite::new(
            pt,
            (1_000 + frame).into(),
            timestamp,
            now,
            payload,
        ));
        self.sent += 1;
    }

    pub(super) fn drain(
        &mut self,
        now: Instant,
        at_nanos: u64,
        hear: Hear<'_>,
        send: Send<'_>,
    ) -> Result<(), ClientError> {
        loop {
            match self.rtc.poll_output()? {
                Output::Timeout(at) => {
                    self.deadline = at;
                    return Ok(());
                }
                Output::Transmit(transmit) => {
                    if !self.moves && self.via.is_none_or(|via| via == transmit.destination) {
                        send(transmit.destination, &transmit.contents);
                    }
                }
                Output::Event(event) => match event {
                    Event::IceConnectionStateChange(
                        IceConnectionState::Connected | IceConnectionState::Completed,
                    ) => {
                        self.times.ice.get_or_insert(now);
                    }
                    Event::Connected => {
                        self.times.connected = Some(now);
                        self.begin_to_speak(now, false);
                    }
                    Event::ChannelOpen(..) => {
                        self.times.channel = Some(now);
                        self.begin_to_speak(now, true);
                    }
                    Event::RtpPacket(packet) => {
                        self.times.first_audio.get_or_insert(now);
                        let rate = u64::from(self.codec.clock_rate());
                        let ticks = packet.time.numer();
                        hear(Packet {
                            sequence: *packet.seq_no,
                            media_nanos: ticks * (1_000_000_000 / rate)
                                + ticks * (1_000_000_000 % rate) / rate,
                            marker: packet.header.marker,
                            at_nanos,
                        });
                        if let Some(listening) = &mut self.listening {
                            listening.packet(ticks, &packet.payload, at_nanos);
                        }
                    }
                    Event::ChannelData(message) => {
                        if let Some(listening) = &mut self.listening {
                            listening.message(&message.data, at_nanos);
                        }
                    }
                    Event::Closed => self.closed = true,
                    _ => {}
                },
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// A server of str0m's own, beside a client on a network that takes no time.
    struct Server {
        rtc: Rtc,
        address: SocketAddr,
        deadline: Instant,
        received: usize,
    }

    impl Server {
        fn answer(
            identity: &Identity,
            offer: &str,
            address: SocketAddr,
            now: Instant,
        ) -> (Self, String) {
            let mut rtc = RtcConfig::new()
                .set_crypto_provider(identity.provider())
                .set_dtls_cert(identity.certificate())
                .set_rtp_mode(true)
                .build(now);
            rtc.add_local_candidate(Candidate::host(address, "udp").expect("a candidate"));
            let offer = str0m::change::SdpOffer::from_sdp_string(offer).expect("an offer");
            let answer = rtc.sdp_api().accept_offer(offer).expect("an answer");
            let server = Self {
                rtc,
                address,
                deadline: now,
                received: 0,
            };
            (server, answer.to_sdp_string())
        }

        /// Takes packets, and returns what it sends.
        fn turn(&mut self, from: SocketAddr, packets: &[Vec<u8>], now: Instant) -> Vec<Vec<u8>> {
            let mut out = Vec::new();
            self.rtc
                .handle_input(Input::Timeout(now))
                .expect("a timeout");
            self.drain(&mut out);
            for packet in packets {
                let received = Receive::new(Protocol::Udp, from, self.address, packet);
                let input = Input::Receive(now, received.expect("WebRTC"));
                self.rtc.handle_input(input).expect("received");
                self.drain(&mut out);
            }
            out
        }

        fn drain(&mut self, out: &mut Vec<Vec<u8>>) {
            loop {
                match self.rtc.poll_output().expect("output") {
                    Output::Timeout(at) => {
                        self.deadline = at;
                        return;
                    }
                    Output::Transmit(transmit) => out.push(transmit.contents.to_vec()),
                    Output::Event(Event::RtpPacket(_)) => self.received += 1,
                    Output::Event(_) => {}
                }
            }
        }
    }

    #[test]
    fn a_client_connects_opens_its_channel_and_speaks_every_20_ms() {
        for after_channel in [false, true] {
            speaks(after_channel);
        }
    }

    fn speaks(after_channel: bool) {
        let identity = Identity::new().expect("an identity");
        let start = Instant::now();
        let mut now = start;
        let (here, there): (SocketAddr, SocketAddr) = (
            "127.64.0.1:4000".parse().expect("an address"),
            "127.2.0.1:3478".parse().expect("an address"),
        );
        let recording = Recording::new(Codec::Opus).expect("a recording");
        let (mut client, offer) =
            Client::offer(&identity, Codec::Opus, Some(recording), here, now).expect("an offer");
        assert!(offer.contains("webrtc-datachannel") && offer.contains("opus"));
        if after_channel {
            client.speak_after_channel();
        }
        let (mut server, answer) = Server::answer(&identity, &offer, there, now);
        let mut up: Vec<Vec<u8>> = Vec::new();
        let mut send = |to: SocketAddr, packet: &[u8]| {
            assert_eq!(to, there);
            up.push(packet.to_vec());
        };
        client.accept(&answer, now, &mut send).expect("accepted");
        let mut spoken_from = None;
        while now < start + Duration::from_secs(8) {
            let down = server.turn(here, &up, now);
            up.clear();
            let mut send = |_: SocketAddr, packet: &[u8]| up.push(packet.to_vec());
            for packet in down {
                client
                    .receive(there, &packet, 0, now, &mut |_| {}, &mut send)
                    .expect("received");
            }
            client.poll(now, &mut send).expect("polled");
            let times = client.times();
            let begins = [times.connected, times.channel][usize::from(after_channel)];
            spoken_from = spoken_from.or(begins.map(|_| now));
            assert!(spoken_from.is_some() || client.sent() == 0);
            if spoken_from.is_some_and(|from| now >= from + Duration::from_secs(1)) {
                break;
            }
            now += Duration::from_millis(5);
        }
        let times = client.times();
        assert!(
            times.connected.is_some() && times.channel.is_some(),
            "{times:?}"
        );
        assert!((50..=51).contains(&client.sent()), "{}", client.sent());
        assert!((48..=51).contains(&server.received), "{}", server.received);
        // A stall is not made up with a burst.
        let mut send = |_: SocketAddr, packet: &[u8]| up.push(packet.to_vec());
        let before = client.sent();
        now += Duration::from_secs(1);
        for _ in 0..30 {
            client.poll(now, &mut send).expect("polled");
        }
        assert_eq!(client.sent(), before + 1);
        assert!(!client.is_closed());
        client.leave(now, &mut send);
        assert!(client.is_closed());
    }

    #[test]
    fn an_answer_that_is_none_is_refused_in_words() {
        let identity = Identity::new().expect("an identity");
        let now = Instant::now();
        let here = "127.64.0.1:4000".parse().expect("an address");
        let (mut client, _) =
            Client::offer(&identity, Codec::Pcmu, None, here, now).expect("an offer");
        let refused = client
            .accept("hello", now, &mut |_, _| {})
            .expect_err("refused");
        assert!(
            refused.to_string().starts_with("the answer cannot be used"),
            "{refused}"
        );
        assert!(client.accept("hello", now, &mut |_, _| {}).is_err());
    }
}
