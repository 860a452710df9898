//! The client: an engine of its own, an encoder, and what it heard.

use std::net::SocketAddr;
use std::time::Instant;

use firsthop_shared::address::ClientAddr;
use firsthop_transceiver::audio::{Codec, Decoder, Encoder, EncoderSettings, FRAME, MAX_PAYLOAD};
use firsthop_transceiver::dtls::Identity;
use str0m::change::{SdpAnswer, SdpPendingOffer};
use str0m::channel::ChannelId;
use str0m::media::{Direction, MediaKind, Mid, Pt};
use str0m::rtp::RtpWrite;
use str0m::{Candidate, Event, Rtc, RtcConfig};

use super::addr;
use super::speaker::Speaker;

/// What the client knows of its call.
#[derive(Default)]
pub(crate) struct Heard {
    /// Text messages on the channel, as `(when, text)`.
    pub(crate) events: Vec<(Instant, String)>,
    /// Decoded audio packets: when, RMS.
    pub(crate) audio: Vec<(Instant, f32)>,
    /// Packets with the marker bit.
    pub(crate) markers: usize,
    pub(crate) packets: usize,
    /// Of these, packets that carry a copy of the one before.
    pub(crate) redundant: usize,
    pub(crate) closed: bool,
    pub(crate) connected: Option<Instant>,
}

impl Heard {
    /// How many audio packets were loud: speech, not the noise of a codec in silence.
    pub(crate) fn loud(&self) -> usize {
        self.audio.iter().filter(|(_, rms)| *rms > 500.0).count()
    }

    /// The types of the events, in order.
    pub(crate) fn types(&self) -> Vec<String> {
        self.events
            .iter()
            .map(|(_, text)| {
                let value: serde_json::Value = serde_json::from_str(text).expect("JSON");
                value["type"].as_str().expect("a type").to_owned()
            })
            .collect()
    }
}

pub(crate) struct Client {
    pub(crate) rtc: Rtc,
    pub(crate) local: SocketAddr,
    /// Where the NAT puts it.
    pub(crate) public: ClientAddr,
    pub(crate) heard: Heard,
    pub(crate) channel: Option<ChannelId>,
    /// The label of the channel that the offer opens.
    pub(crate) label: String,
    pub(crate) mid: Option<Mid>,
    pub(crate) pt: Option<Pt>,
    pub(crate) deadline: Instant,
    speaker: Speaker,
    pub(crate) speaking: bool,
    pub(crate) next_frame: Option<Instant>,
    sequence: u64,
    timestamp: u32,
    codec: Codec,
    encoder: Encoder,
    decoder: Decoder,
    /// Where the offer's audio goes.
    pub(crate) direction: Direction,
    /// Does as libwebrtc does: begins SCTP whatever its part in DTLS is, and has the offer that it is known by.
    libwebrtc: bool,
    heedless: bool,
}

/// Has an offer of str0m's say what those of libwebrtc alone do.
fn like_libwebrtc(offer: &str) -> String {
    let lines = offer.split_inclusive('\n').map(|line| {
        if line.starts_with("o=") {
            let numbers: Vec<&str> = line.split(' ').skip(1).take(2).collect();
            format!("o=- {} IN IP4 127.0.0.1\r\n", numbers.join(" "))
        } else if line.starts_with("t=") {
            format!("{line}a=extmap-allow-mixed\r\na=msid-semantic: WMS\r\n")
        } else {
            line.to_owned()
        }
    });
    lines.collect()
}

fn mids(sdp: &str) -> String {
    let mids: Vec<_> = sdp
        .lines()
        .filter_map(|l| l.strip_prefix("a=mid:"))
        .collect();
    mids.join(" ")
}

impl Client {
    pub(crate) fn new(now: Instant) -> Self {
        Self::with_codec(now, Codec::Opus)
    }

    /// A client that offers this codec and no other.
    pub(crate) fn with_codec(now: Instant, codec: Codec) -> Self {
        Self::made(now, codec, false, false)
    }

    /// A client whose offer has the handshake of SCTP in it (draft-hancke-tsvwg-snap).
    pub(crate) fn with_snap(now: Instant) -> Self {
        Self::made(now, Codec::Opus, true, false)
    }

    /// A client that does as a browser does.
    pub(crate) fn libwebrtc(now: Instant) -> Self {
        Self {
            libwebrtc: true,
            ..Self::new(now)
        }
    }

    /// A client that sends messages of any size, whatever it is told of them.
    pub(crate) fn heedless(now: Instant) -> Self {
        Self::made(now, Codec::Opus, false, true)
    }

    fn made(now: Instant, codec: Codec, snap: bool, heedless: bool) -> Self {
        let identity = Identity::process().expect("an identity");
        let local = addr("192.168.1.5:40000");
        let mut config = RtcConfig::new()
            .set_crypto_provider(identity.provider())
            .set_rtp_mode(true)
            .set_snap_enabled(snap)
            .clear_codecs();
        if heedless {
            config = config.set_sctp_max_buffered_amount(4 * 1_024 * 1_024);
        }
        let codecs = config.codec_config();
        match codec {
            Codec::Opus => codecs.enable_opus(true, false),
            Codec::Pcmu => codecs.enable_pcmu(true, false),
            Codec::Pcma => codecs.enable_pcma(true, false),
        }
        let mut rtc = config.build(now);
        rtc.add_local_candidate(Candidate::host(local, "udp").expect("a candidate"));
        Self {
            rtc,
            local,
            public: ClientAddr::new(addr("198.51.100.7:61000")),
            heard: Heard::default(),
            channel: None,
            label: "oai-events".to_owned(),
            mid: None,
            pt: None,
            deadline: now,
            speaker: Speaker::default(),
            speaking: false,
            next_frame: None,
            sequence: 1_000,
            timestamp: 77,
            codec,
            encoder: Encoder::new(codec, EncoderSettings::default()).expect("an encoder"),
            decoder: Decoder::new(codec).expect("a decoder"),
            direction: Direction::SendRecv,
            libwebrtc: false,
            heedless,
        }
    }

    pub(crate) fn offer(&mut self, channel: bool) -> (String, SdpPendingOffer) {
        let mut api = self.rtc.sdp_api();
        self.mid = Some(api.add_media(MediaKind::Audio, self.direction, None, None, None));
        if channel {
            self.channel = Some(api.add_channel(self.label.clone()));
        }
        let (offer, pending) = api.apply().expect("changes");
        (self.written(&offer.to_sdp_string()), pending)
    }

    /// An offer as this client writes it.
    pub(crate) fn written(&self, offer: &str) -> String {
        if self.libwebrtc {
            like_libwebrtc(offer)
        } else {
            offer.to_owned()
        }
    }

    pub(crate) fn accept(&mut self, pending: SdpPendingOffer, answer: &str) {
        // The engine in the client's role insists on what embedded clients do without.
        let mut text = answer.replace("RTP/SAVP ", "RTP/SAVPF ");
        if !text.contains("a=group:") {
            text = text.replacen(
                "t=0 0\r\n",
                &format!("t=0 0\r\na=group:BUNDLE {}\r\n", mids(answer)),
                1,
            );
        }
        if self.heedless {
            text = text.replace(
                "a=max-message-size:",
                "a=max-message-size:1073741823\r\na=x-told:",
            );
        }
        if self.libwebrtc && self.channel.is_some() {
            self.rtc.direct_api().start_sctp(true);
        }
        let answer =
            SdpAnswer::from_sdp_string(&text).unwrap_or_else(|error| panic!("{error} in\n{text}"));
        self.rtc
            .sdp_api()
            .accept_answer(pending, answer)
            .expect("an acceptable answer");
    }

    pub(crate) fn event(&mut self, event: Event, now: Instant) {
        match event {
            Event::Connected => self.heard.connected = Some(now),
            Event::Closed => self.heard.closed = true,
            Event::ChannelData(data) => {
                let text = String::from_utf8(data.data).expect("text");
                self.heard.events.push((now, text));
            }
            Event::RtpPacket(packet) => {
                let mut pcm = Vec::new();
                let samples = self
                    .decoder
                    .decode(&packet.payload, &mut pcm)
                    .expect("a payload of the codec");
                let energy: f32 = pcm.iter().map(|s| f32::from(*s).powi(2)).sum();
                self.heard
                    .audio
                    .push((now, (energy / samples as f32).sqrt()));
                self.heard.packets += 1;
                self.heard.redundant += usize::from(self.codec.has_fec(&packet.payload));
                self.heard.markers += usize::from(packet.header.marker);
            }
            _ => {}
        }
    }

    pub(crate) fn speak(&mut self, now: Instant) {
        let Some(mid) = self.mid else { return };
        let mut pcm = [0; FRAME];
        if self.speaking {
            let wide = self.speaker.frame();
            for (to, pair) in pcm.iter_mut().zip(wide.chunks_exact(2)) {
                *to = pair[0].midpoint(pair[1]);
            }
        }
        let mut payload = [0; MAX_PAYLOAD];
        let length = self.encoder.encode(&pcm, &mut payload).expect("encoded");
        let payload = payload[..length].to_vec();
        let pt = *self.pt.get_or_insert_with(|| {
            self.rtc
                .media(mid)
                .and_then(|media| media.remote_pts().first().copied())
                .expect("a payload type")
        });
        let mut api = self.rtc.direct_api();
        let Some(stream) = api.stream_tx_by_mid(mid, None) else {
            return;
        };
        stream.write_rtp(RtpWrite::new(
            pt,
            self.sequence.into(),
            self.timestamp,
            now,
            payload,
        ));
        self.sequence += 1;
        self.timestamp = self.timestamp.wrapping_add(self.codec.clock_rate() / 50);
    }
}
