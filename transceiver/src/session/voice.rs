//! The voice of one call: between the engine's RTP and the [`Conversation`] with the backend.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use str0m::Rtc;
use str0m::media::{Direction, MediaKind, Mid, Pt};
use str0m::rtp::{RtpPacket, RtpWrite, Ssrc};

use crate::audio::{
    BackendEnd, BackendReport, Codec, CodecError, Conversation, ConversationCounters,
    ConversationSettings, OpusMode, RtpIn, Tap,
};
use crate::backend::Opened;
use crate::limits;

/// Notices of the channel's own that may wait beside the backend's events.
const NOTICES: usize = 16;

/// The audio of one session.
pub(super) struct Voice {
    media: Option<Media>,
    conversation: Option<Conversation>,
    failed: Option<CodecError>,
    started: bool,
    /// Extended sequence number of the next packet that is written.
    sequence: u64,
    has_sent: bool,
    /// Frames were taken and not written since the last packet.
    gap: bool,
    /// Events that go before the backend's: notices, and what a full channel gave back.
    first: VecDeque<String>,
    /// The client can use in-band forward error correction (RFC 7587 section 6.1).
    fec: bool,
    expected_loss: u8,
    /// SSRCs that no SDP announced and that the engine was told of, the oldest first.
    announced: Vec<Announced>,
}

struct Announced {
    ssrc: u32,
    /// A packet with it has authenticated.
    proven: bool,
}

struct Media {
    mid: Mid,
    pt: Pt,
    sends: bool,
}

impl Voice {
    /// Everything random about the session's audio comes from `seed`.
    pub(super) fn new(opened: Opened, codec: Codec, opus: OpusMode, seed: u64) -> Self {
        let settings = ConversationSettings {
            codec,
            encoder: opus.into(),
            playout: opened.playout,
        };
        // RFC 3550 section 5.1: random starts. Above 32,767 a sequence number could wrap before the client has seen one.
        let sequence = seed & 0x7fff;
        let timestamp = (seed >> 16) as u32;
        let (conversation, failed) = match Conversation::new(opened.backend, settings, timestamp) {
            Ok(conversation) => (Some(conversation), None),
            Err(error) => (None, Some(error)),
        };
        Self {
            media: None,
            conversation,
            failed,
            started: false,
            sequence,
            has_sent: false,
            gap: false,
            first: VecDeque::new(),
            fec: false,
            expected_loss: 0,
            announced: Vec::new(),
        }
    }

    /// The engine negotiated a section.
    pub(super) fn negotiated(&mut self, rtc: &Rtc, mid: Mid, kind: MediaKind) {
        let Some(media) = rtc.media(mid).filter(|_| kind.is_audio()) else {
            return;
        };
        if let Some(pt) = media.remote_pts().first() {
            self.media = Some(Media {
                mid,
                pt: *pt,
                sends: media.direction().is_sending(),
            });
        }
    }

    /// The client changed a section's direction.
    pub(super) fn changed(&mut self, mid: Mid, direction: Direction) {
        if let Some(media) = self.media.as_mut().filter(|media| media.mid == mid) {
            media.sends = direction.is_sending();
        }
    }

    /// Tells the engine of an SSRC that the SDP did not announce, before the first packet with it.
    ///
    /// The engine drops packets that neither an `a=ssrc` line nor a `mid` extension places. Embedded clients send neither.
    /// The packet is not authenticated yet, hence the bound; and whoever forges packets must not use it up, so an SSRC under
    /// which nothing has authenticated makes room. A genuine packet authenticates right after its announcement.
    pub(super) fn announce(&mut self, rtc: &mut Rtc, packet: &[u8]) {
        let Some(media) = &self.media else {
            return;
        };
        let Some(&[_, second, _, _, _, _, _, _, a, b, c, d]) = packet.first_chunk::<12>() else {
            return;
        };
        let ssrc = u32::from_be_bytes([a, b, c, d]);
        if second & 0x7f != *media.pt
            || ssrc == 0
            || self.announced.iter().any(|known| known.ssrc == ssrc)
        {
            return;
        }
        let mid = media.mid;
        let mut api = rtc.direct_api();
        if api.stream_rx(&Ssrc::from(ssrc)).is_some() {
            return;
        }
        if self.announced.len() == limits::UNANNOUNCED_SSRCS {
            let Some(place) = self.announced.iter().position(|known| !known.proven) else {
                return;
            };
            let forged = self.announced.remove(place);
            api.remove_stream_rx(Ssrc::from(forged.ssrc));
        }
        api.expect_stream_rx(Ssrc::from(ssrc), None, mid, None);
        self.announced.push(Announced {
            ssrc,
            proven: false,
        });
    }

    /// Takes an authenticated packet.
    pub(super) fn received(&mut self, packet: RtpPacket, now: Instant) {
        let ssrc = *packet.header.ssrc;
        if let Some(known) = self.announced.iter_mut().find(|known| known.ssrc == ssrc) {
            known.proven = true;
        }
        let ours = self
            .media
            .as_ref()
            .is_some_and(|media| media.pt == packet.header.payload_type);
        if let (true, Some(conversation)) = (ours, &mut self.conversation) {
            let _ = conversation.received(
                RtpIn {
                    ssrc,
                    sequence: packet.header.sequence_number,
                    timestamp: packet.header.timestamp,
                    payload: packet.payload,
                },
                now,
            );
        }
    }

    /// Whether there is anything that the client could report on: audio that was sent, if any is to be.
    pub(super) fn takes_reports(&self) -> bool {
        self.has_sent || !self.media.as_ref().is_some_and(|media| media.sends)
    }

    /// The client says whether it can use in-band forward error correction.
    pub(super) fn takes_fec(&mut self, fec: bool) {
        if let (false, Some(conversation)) = (fec, &mut self.conversation) {
            conversation.forget_loss();
            self.expected_loss = 0;
        }
        self.fec = fec;
    }

    /// Takes the part of packets that the client reports as lost.
    pub(super) fn path_loss(&mut self, lost: f32) {
        if let (true, Some(conversation)) = (self.fec, &mut self.conversation) {
            self.expected_loss = conversation.path_loss(lost);
        }
    }

    pub(super) fn expected_loss(&self) -> u8 {
        self.expected_loss
    }

    /// Takes a message of the client's on the channel.
    pub(super) fn client_event(&mut self, text: &str, now: Instant) {
        if let Some(conversation) = &mut self.conversation {
            conversation.client_event(text, now);
        }
    }

    /// Puts an event of the channel's own in line.
    pub(super) fn notify(&mut self, event: String) {
        if let Some(tap) = self.tap() {
            tap.copy(&event);
        }
        if self.first.len() < NOTICES {
            self.first.push_back(event);
        } else {
            self.event_lost();
        }
    }

    /// What passed between backend and client, for those who look on.
    pub(super) fn tap(&mut self) -> Option<&mut Tap> {
        self.conversation.as_mut().map(Conversation::tap)
    }

    /// The next event for the client.
    pub(super) fn next_event(&mut self) -> Option<String> {
        self.first
            .pop_front()
            .or_else(|| self.conversation.as_mut()?.poll_event())
    }

    /// Has each waiting event that is longer than `max` bytes replaced by what `shorten` makes of it; returns how many.
    pub(super) fn shorten_events(
        &mut self,
        max: usize,
        shorten: impl FnMut(&str) -> String,
    ) -> u64 {
        self.conversation
            .as_mut()
            .map_or(0, |conversation| conversation.shorten_events(max, shorten))
    }

    /// The client's channel takes events from here on, or does not.
    pub(super) fn events_flow(&mut self, flowing: bool) {
        if let Some(conversation) = &mut self.conversation {
            conversation.events_flow(flowing);
        }
    }

    /// An event did not reach the client: it will be told.
    pub(super) fn event_lost(&mut self) {
        if let Some(conversation) = &mut self.conversation {
            conversation.event_lost();
        }
    }

    /// Takes an event back that the channel had no room for.
    pub(super) fn put_back(&mut self, event: String) {
        self.first.push_front(event);
    }

    /// Audio may be sent from here on.
    pub(super) fn start(&mut self) {
        if !self.started
            && let Some(conversation) = &mut self.conversation
        {
            conversation.start_playing();
            self.started = true;
        }
    }

    pub(super) fn is_started(&self) -> bool {
        self.started
    }

    /// Why there is no codec, if there is none.
    pub(super) fn failure(&self) -> Option<&CodecError> {
        self.failed.as_ref()
    }

    /// Writes one due packet to the engine; the caller drains, and calls again until there is none.
    pub(super) fn send_one(&mut self, rtc: &mut Rtc, now: Instant) -> bool {
        let Some(conversation) = &mut self.conversation else {
            return false;
        };
        let mut api = rtc.direct_api();
        let media = self.media.as_ref().filter(|media| media.sends);
        let Some((media, stream)) =
            media.and_then(|m| Some((m, api.stream_tx_by_mid(m.mid, None)?)))
        else {
            // A client that does not receive still speaks: its frames are taken, and go nowhere. They use no sequence numbers up
            // either: SRTP tells its rollover counter from them, and loses it over a hole of 32,768 (RFC 3711 section 3.3.1).
            while conversation.skip_packet(now) {
                self.gap = true;
            }
            return false;
        };
        let Some(packet) = conversation.poll_packet(now) else {
            return false;
        };
        let write = RtpWrite::new(
            media.pt,
            self.sequence.into(),
            packet.timestamp,
            now,
            packet.payload,
        );
        let marker = packet.marker || std::mem::take(&mut self.gap);
        stream.write_rtp(write.marker(marker));
        self.sequence += 1;
        self.has_sent = true;
        true
    }

    /// When the next frame, timer or concealment is due.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.conversation.as_ref()?.deadline()
    }

    /// Why the backend has ended the session, if it has.
    pub(super) fn ended(&self) -> Option<BackendEnd> {
        self.conversation.as_ref()?.ended()
    }

    /// How much of the backend's audio waits to be sent, and how many of the client's packets wait behind a hole.
    pub(super) fn waiting(&self) -> (Duration, usize) {
        self.conversation
            .as_ref()
            .map(|conversation| (conversation.queued_time(), conversation.packets_waiting()))
            .unwrap_or_default()
    }

    pub(super) fn backend_report(&self) -> BackendReport {
        self.conversation
            .as_ref()
            .map(Conversation::backend_report)
            .unwrap_or_default()
    }

    pub(super) fn counters(&self) -> ConversationCounters {
        self.conversation
            .as_ref()
            .map(Conversation::counters)
            .unwrap_or_default()
    }
}
