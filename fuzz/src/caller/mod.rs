//! A client that has connected, with ICE, DTLS and a channel of its own, and then says what it likes: what only an authenticated client can.

mod srtp;
mod wire;

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use firsthop_shared::address::{
    ClientAddr, ClusterId, FlowHandle, Hop, IngressId, OwnerAddr, Restart, SessionId, ShardId,
};
use firsthop_shared::control::CallKind;
use firsthop_shared::token::{self, Route};
use firsthop_transceiver::audio::OpusMode;
use firsthop_transceiver::backend::Opened;
use firsthop_transceiver::dtls::Identity;
use firsthop_transceiver::life::{EndReason, State};
use firsthop_transceiver::limits::SESSION_MAX;
use firsthop_transceiver::reason::Reason;
use firsthop_transceiver::session::{
    Advertised, Arrival, Credentials, NewSession, Outbox, Session,
};
use serde_json::Value;
use str0m::change::SdpAnswer;
use str0m::channel::{ChannelConfig, ChannelId};
use str0m::media::{Direction, MediaKind};
use str0m::net::{Protocol, Receive};
use str0m::{Candidate, Event, Input, Output, Rtc, RtcConfig};

use crate::data_keyring;
use srtp::Srtp;
use wire::{Instead, Wire};

/// How long connecting may take, on the clock of the call.
const CONNECT: Duration = Duration::from_secs(5);

/// Packets that the two may send each other without time passing, and steps of time that one piece may take: far above what they do.
const PACKETS: usize = 2_000;
const STEPS: usize = 20_000;

/// A channel that both ends are said to have agreed on, and of which the session knows nothing: what it sends becomes something else.
const CARRIER: u16 = 1_001;

/// A packet of Opus, and a report on nothing.
const VOICE: [u8; 15] = *b"\x80\x6f\x10\x00\x00\x00\x00\x00\x0a\x0b\x0c\x0d\xf8\xff\xfe";
/// So many of them are heard, and something is said, before reports are taken.
const VOICED: u8 = 10;
const REPORT: &[u8] = b"c\x80\xc9\x00\x01\x0a\x0b\x0c\x0d";
/// The protocol of a message that is text (RFC 8831 section 8).
const TEXT: u32 = 51;

/// A call of such a client's. What the client is told is JSON with a type, and nothing that it says makes the session send without an end.
pub struct Caller {
    session: Session,
    rtc: Rtc,
    now: Instant,
    out: Outbox,
    wire: Wire,
    srtp: Option<Srtp>,
    channel: ChannelId,
    carrier: ChannelId,
    /// When the client's engine wants the time.
    deadline: Instant,
    /// Events that the client was told of.
    told: usize,
}

impl Caller {
    /// A call that is live, its channel open.
    #[must_use]
    pub fn connected() -> Self {
        let now = Instant::now();
        let provider = Wire::provider();
        let mut rtc = RtcConfig::new()
            .set_crypto_provider(provider.clone())
            .set_rtp_mode(true)
            .clear_codecs()
            .enable_opus(true, false)
            .build(now);
        let wire = Wire::built();
        rtc.add_local_candidate(Candidate::host(client(), "udp").expect("a candidate"));
        let mut changes = rtc.sdp_api();
        changes.add_media(MediaKind::Audio, Direction::SendRecv, None, None, None);
        let channel = changes.add_channel("oai-events".to_owned());
        let (offer, pending) = changes.apply().expect("changes");
        let mut out = Outbox::default();
        let (session, answer) = session(&offer.to_sdp_string(), now, &mut out);
        let answer = SdpAnswer::from_sdp_string(&answer).expect("an answer");
        rtc.sdp_api()
            .accept_answer(pending, answer)
            .expect("an acceptable answer");
        let carrier = rtc.direct_api().create_data_channel(ChannelConfig {
            label: "carrier".to_owned(),
            ordered: false,
            negotiated: Some(CARRIER),
            ..ChannelConfig::default()
        });
        let mut caller = Self {
            session,
            rtc,
            now,
            out,
            wire,
            srtp: None,
            channel,
            carrier,
            deadline: now,
            told: 0,
        };
        caller.rtc.handle_input(Input::Timeout(now)).expect("time");
        caller.settle();
        let end = now + CONNECT;
        while caller.told == 0 || caller.session.state() != State::Live {
            assert!(
                caller.step(end),
                "it does not connect: {:?}",
                caller.session.state()
            );
        }
        let (material, profile, active) = caller.wire.keys().expect("keys");
        caller.srtp = Some(Srtp::new(
            provider.srtp_provider,
            &material,
            profile,
            active,
        ));
        caller.rehearse();
        caller
    }

    /// Sees that each way of saying something reaches its hearer: nobody is to find nothing because nobody listens.
    fn rehearse(&mut self) {
        for n in 0..VOICED {
            let mut voice = VOICE;
            voice[3] = n;
            self.play(&[b"r", &voice[..]].concat());
        }
        self.play(REPORT);
        let refused = [Reason::MediaRefused, Reason::RtcpRate].map(|reason| self.out.drops[reason]);
        assert_eq!(refused, [0, 0], "what is sealed is opened");
        let stream = self
            .rtc
            .direct_api()
            .sctp_stream_id_by_channel_id(self.channel);
        let stream = stream.expect("an open channel");
        let told = self.told;
        self.carry(Instead::Message(stream, TEXT, b"{}".to_vec()));
        self.pass(Duration::from_millis(20));
        assert!(self.told > told, "an event without a type is answered");
    }

    /// Does what a piece of an input says, by its first letter: `r` sends RTP and `c` RTCP of these bytes, sealed with the call's keys; `m` and
    /// `b` send a message on the channel, of text and of bytes; `d` makes a message of whatever stream and protocol, the first two bytes; `s`
    /// is an SCTP packet of these chunks; `o` opens another channel of this name; `w` lets time pass.
    pub fn play(&mut self, piece: &[u8]) {
        let Some((kind, rest)) = piece.split_first() else {
            return;
        };
        match (kind, rest) {
            (b'r', plain) => {
                let packet = self.srtp.as_mut().and_then(|srtp| srtp.rtp(plain));
                self.send(packet);
            }
            (b'c', plain) => {
                let packet = self.srtp.as_mut().and_then(|srtp| srtp.rtcp(plain));
                self.send(packet);
            }
            (b'm', text) => self.write(self.channel, false, text),
            (b'b', bytes) => self.write(self.channel, true, bytes),
            (b'd', [stream, protocol, message @ ..]) => {
                let (stream, protocol) = (u16::from(*stream), u32::from(*protocol));
                self.carry(Instead::Message(stream, protocol, message.to_vec()));
            }
            (b's', chunks) => self.carry(Instead::Chunks(chunks.to_vec())),
            (b'o', name) => {
                let label = String::from_utf8_lossy(name).into_owned();
                self.rtc.direct_api().create_data_channel(ChannelConfig {
                    label,
                    ..ChannelConfig::default()
                });
                self.time();
            }
            (b'w', frames) => {
                let frames = frames.first().map_or(1, |n| *n);
                self.pass(Duration::from_millis(20) * u32::from(frames));
            }
            _ => {}
        }
        self.settle();
        self.pass(Duration::from_millis(20));
    }

    /// Ends the call, and looks at how it fared.
    pub fn end(mut self) {
        self.session.end(EndReason::HungUp, self.now, &mut self.out);
        self.settle();
        assert_eq!(self.session.state(), State::Ended);
        let reason = self.session.end_reason();
        assert!(
            !matches!(reason, Some(EndReason::Panicked | EndReason::CodecFailed)),
            "{reason:?}"
        );
    }

    fn send(&mut self, packet: Option<Vec<u8>>) {
        if let Some(packet) = packet {
            self.session
                .receive(arrival(), &packet, self.now, &mut self.out);
        }
    }

    fn write(&mut self, channel: ChannelId, binary: bool, message: &[u8]) {
        if let Some(mut channel) = self.rtc.channel(channel) {
            // An association that has ended takes nothing more.
            let _ = channel.write(binary, message);
        }
    }

    fn carry(&mut self, instead: Instead) {
        self.wire.send_instead(instead);
        self.write(self.carrier, true, b"-");
    }

    fn time(&mut self) {
        // A client that has fallen over its own words says nothing more.
        let _ = self.rtc.handle_input(Input::Timeout(self.now));
    }

    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        for _ in 0..STEPS {
            if !self.step(end) {
                self.now = end;
                return;
            }
        }
        panic!("{time:?} do not pass");
    }

    /// Does the next thing that is due by `end`; false when there is none.
    fn step(&mut self, end: Instant) -> bool {
        let deadline = self.session.deadline(|at| at);
        let due = deadline.map_or(self.deadline, |at| at.min(self.deadline));
        if due > end {
            return false;
        }
        // Some deadlines lie in the past, and time must not stand still.
        self.now = due.max(self.now + Duration::from_micros(10));
        if deadline.is_some_and(|at| at <= self.now) {
            self.session.timeout(self.now, &mut self.out);
        }
        if self.deadline <= self.now {
            self.time();
        }
        self.settle();
        true
    }

    /// Carries packets to and fro until none is left.
    fn settle(&mut self) {
        let mut packets = 0;
        loop {
            let sent = self.sent();
            packets += sent.len() + self.out.sends.len();
            assert!(packets < PACKETS, "they send without an end");
            if sent.is_empty() && self.out.sends.is_empty() {
                break;
            }
            for packet in sent {
                self.session
                    .receive(arrival(), &packet, self.now, &mut self.out);
            }
            for outgoing in std::mem::take(&mut self.out.sends) {
                let received = Receive::new(Protocol::Udp, ingress(), client(), &outgoing.payload);
                let received = received.expect("a packet of WebRTC");
                let _ = self.rtc.handle_input(Input::Receive(self.now, received));
            }
        }
        self.out.closes.clear();
    }

    /// What the client's engine sends.
    fn sent(&mut self) -> Vec<Vec<u8>> {
        let mut sent = Vec::new();
        loop {
            match self.rtc.poll_output() {
                Ok(Output::Timeout(at)) => {
                    self.deadline = at;
                    return sent;
                }
                Ok(Output::Transmit(transmit)) => sent.push(transmit.contents.into()),
                Ok(Output::Event(Event::ChannelData(data))) if data.id == self.channel => {
                    let event: Value = serde_json::from_slice(&data.data).expect("JSON");
                    assert!(event["type"].is_string(), "{event}");
                    self.told += 1;
                }
                Ok(Output::Event(_)) => {}
                Err(_) => {
                    self.deadline = self.now + SESSION_MAX;
                    return sent;
                }
            }
        }
    }
}

fn session(offer: &str, now: Instant, out: &mut Outbox) -> (Session, String) {
    let new = NewSession {
        id: SessionId(7),
        created: 1_790_000_000_000,
        credentials: credentials(),
        offer,
        advertised: vec![Advertised {
            ingress: IngressId(0),
            address: ingress(),
        }],
        seed: 0x1234_5678_9abc_def0,
        longest: SESSION_MAX,
        idle: None,
        kind: CallKind::Realtime,
        codec: None,
        opus: OpusMode::default(),
    };
    let identity = Identity::process().expect("an identity");
    let open = |_| Opened::echo(5);
    Session::create(identity, new, open, now, out).expect("a session")
}

fn credentials() -> Credentials {
    let route = Route {
        cluster: ClusterId(1),
        owner: OwnerAddr::new(address("127.0.0.1:5000")),
        shard: ShardId(0),
        restart: Restart(0),
        session: SessionId(7),
    };
    let ufrag = token::mint(data_keyring().active(), &route);
    let password = token::ice_password(data_keyring(), ufrag.as_bytes()).expect("a known key");
    Credentials { ufrag, password }
}

fn arrival() -> Arrival {
    Arrival {
        client: ClientAddr::new(client()),
        ingress: IngressId(0),
        tcp: false,
        hop: Hop::new(address("10.0.0.1:4000")),
        handle: FlowHandle(1),
    }
}

fn client() -> SocketAddr {
    address("198.51.100.7:61000")
}

fn ingress() -> SocketAddr {
    address("203.0.113.10:3478")
}

fn address(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}
