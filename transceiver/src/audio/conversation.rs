//! Joins the parts of one call's audio: packets in, packets and events out, a backend between.
//!
//! Sans-IO: give it what arrives and the time, and after each of these, and when [`deadline`](Conversation::deadline) has come, poll packets
//! and events until there are none. Nothing is sent before [`start_playing`](Conversation::start_playing): audio given before
//! waits, within the playout's bound.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::backend::{Backend, BackendEnd, BackendReport, Format, Input, Output, QueueState};
use super::codec::{Codec, CodecError};
use super::coding::Coding;
use super::encode::{Encoder, EncoderSettings, MAX_PAYLOAD};
use super::g711::{self, Law};
use super::loss::ExpectedLoss;
use super::playout::{OutFrame, Playout, PlayoutCounters, PlayoutSettings};
use super::reorder::Pushed;
use super::tap::Tap;
use super::turns::Turns;
use super::uplink::{RtpIn, Uplink, UplinkCounters};
use super::waiting::EventQueue;

/// Outputs of the backend taken in one turn; more are taken in the next, at once.
const MAX_OUTPUTS: usize = 256;

/// How a call's audio is set up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConversationSettings {
    /// The negotiated codec, the same both ways.
    pub codec: Codec,
    /// The encoder towards the client.
    pub encoder: EncoderSettings,
    /// The queue towards the client: what the backend needs.
    pub playout: PlayoutSettings,
}

/// An RTP packet to send.
///
/// Its sequence number is given by who writes it: a packet that is not written after all must not use one up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RtpOut {
    /// The codec's payload.
    pub payload: Arc<[u8]>,
    /// Timestamp in ticks of the codec's clock.
    pub timestamp: u32,
    /// The first packet after silence.
    pub marker: bool,
}

/// What happened since the call began.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct ConversationCounters {
    /// From the client.
    pub uplink: UplinkCounters,
    /// To the client.
    pub playout: PlayoutCounters,
    /// Events that the channel did not take: too many waited for one that takes none.
    pub dropped_events: u64,
    /// Samples that the backend gave beyond the room it was told of: dropped.
    pub overrun: u64,
    /// Frames that the encoder refused: not sent.
    pub unencoded: u64,
    /// Interruptions, and the queue towards the client.
    pub turns: Turns,
    /// What codecs did.
    pub coding: Coding,
}

impl ConversationCounters {
    /// What went wrong with audio, by the name under which metrics show it.
    pub const FAULTS: [&'static str; 11] = [
        "late_packets",
        "missing_packets",
        "stray_packets",
        "discarded_packets",
        "excess_packets",
        "malformed_packets",
        "concealed_samples",
        "overrun_samples",
        "unencoded_frames",
        "underruns",
        "dropped_events",
    ];

    /// How often each happened, in the order of [`Self::FAULTS`].
    #[must_use]
    pub fn faults(&self) -> [u64; Self::FAULTS.len()] {
        [
            self.uplink.reorder.late,
            self.uplink.reorder.missing,
            self.uplink.reorder.stray,
            self.uplink.reorder.discarded,
            self.uplink.excess,
            self.uplink.malformed,
            self.uplink.concealed,
            self.overrun,
            self.unencoded,
            self.playout.underruns,
            self.dropped_events,
        ]
    }
}

/// One call's audio.
pub struct Conversation {
    uplink: Uplink,
    backend: Box<dyn Backend>,
    playout: Playout,
    form: Form,
    loss: ExpectedLoss,
    payload: Box<[u8; MAX_PAYLOAD]>,
    playing: bool,
    events: EventQueue,
    tap: Tap,
    /// The last turn ended at its bound: there is more to take.
    more: Option<Instant>,
    /// Since when the backend is not asked for more: the events that wait for the channel push back.
    held: Option<Instant>,
    /// The backend has ended the session.
    ended: Option<BackendEnd>,
    counters: ConversationCounters,
}

/// In which form audio is between client and backend.
enum Form {
    /// 24 kHz PCM.
    Pcm(Encoder),
    /// G.711, passed through: 8 kHz samples that are the bytes of this law.
    Passed(Law),
}

impl Conversation {
    /// A call before its first packet. `first_timestamp` should be random (RFC 3550, section 5.1).
    ///
    /// # Errors
    /// The codec library could not make a decoder or an encoder, or a setting of the encoder is out of its range. Or the backend wants
    /// to pass another codec through than the call's.
    pub fn new(
        backend: Box<dyn Backend>,
        settings: ConversationSettings,
        first_timestamp: u32,
    ) -> Result<Self, CodecError> {
        let (uplink, playout, form) = match backend.format() {
            Format::Pcm => (
                Uplink::new(settings.codec)?,
                Playout::new(
                    settings.playout,
                    settings.codec.clock_rate(),
                    first_timestamp,
                ),
                Form::Pcm(Encoder::new(settings.codec, settings.encoder)?),
            ),
            Format::Narrow(law) if settings.codec.law() == Some(law) => (
                Uplink::narrow(law),
                Playout::narrow(settings.playout, first_timestamp),
                Form::Passed(law),
            ),
            Format::Narrow(_) => {
                return Err(CodecError {
                    what: "pass audio through",
                    reason: "the backend's codec is not the call's",
                });
            }
        };
        Ok(Self {
            uplink,
            backend,
            playout,
            form,
            loss: ExpectedLoss::default(),
            payload: Box::new([0; MAX_PAYLOAD]),
            playing: false,
            events: EventQueue::default(),
            tap: Tap::default(),
            more: None,
            held: None,
            ended: None,
            counters: ConversationCounters::default(),
        })
    }

    /// Takes a packet that arrived at `now`, of the payload type of the negotiated codec.
    pub fn received(&mut self, packet: RtpIn, now: Instant) -> Pushed {
        let pushed = self.uplink.push(packet, now);
        self.advance(now);
        pushed
    }

    /// Takes the text of a client's event.
    pub fn client_event(&mut self, text: &str, now: Instant) {
        self.backend.handle(Input::Event(text), now);
        self.take_outputs(now);
    }

    /// Media may be sent from here on: DTLS is up, and the channel is open or need not be waited for.
    pub fn start_playing(&mut self) {
        self.playing = true;
    }

    /// The packet that is due at `now`, or `None`. Call until `None`.
    pub fn poll_packet(&mut self, now: Instant) -> Option<RtpOut> {
        let frame = self.next_frame(now)?;
        let length = match &mut self.form {
            Form::Pcm(encoder) => match self
                .counters
                .coding
                .encoded
                .timed(|| encoder.encode(&frame.pcm, &mut self.payload))
            {
                Ok(length) => length,
                Err(_) => {
                    self.counters.unencoded += 1;
                    return None;
                }
            },
            Form::Passed(law) => {
                law.compress_all(&frame.pcm[..g711::FRAME], &mut self.payload[..]);
                g711::FRAME
            }
        };
        Some(RtpOut {
            payload: Arc::from(&self.payload[..length]),
            timestamp: frame.timestamp,
            marker: frame.marker,
        })
    }

    /// Lets the packet that is due at `now` pass for a client that does not listen: nothing is encoded. Returns whether one was due.
    pub fn skip_packet(&mut self, now: Instant) -> bool {
        self.next_frame(now).is_some()
    }

    /// Takes the part of packets, 0 to 1, that the client reports as lost: the encoder's redundancy follows it in steps. Returns how many
    /// packets in a hundred the encoder expects to be lost from here on.
    pub fn path_loss(&mut self, lost: f32) -> u8 {
        let expected = self.loss.report(lost);
        if let Form::Pcm(encoder) = &mut self.form {
            // What the codec library refuses, it goes on without.
            let _ = encoder.set_expected_loss(expected);
        }
        expected
    }

    /// Expects no loss from here on: the client cannot use redundancy any more.
    pub fn forget_loss(&mut self) {
        self.loss = ExpectedLoss::default();
        if let Form::Pcm(encoder) = &mut self.form {
            let _ = encoder.set_expected_loss(0);
        }
    }

    /// The next event for the client, a whole JSON text. Call only when the channel can take it; events wait until then.
    pub fn poll_event(&mut self) -> Option<String> {
        let event = self.events.pop();
        self.resume();
        event
    }

    /// The client's channel takes events from here on, or does not. While it does, the backend waits when too many events do; while it does
    /// not, those that come are dropped, so that audio goes on.
    pub fn events_flow(&mut self, flowing: bool) {
        self.events.flow(flowing);
        self.resume();
    }

    /// Replaces each waiting event that is longer than `max` bytes by what `shorten` makes of it, and returns how many. Each is looked at once.
    pub fn shorten_events(&mut self, max: usize, shorten: impl FnMut(&str) -> String) -> u64 {
        let count = self.events.shorten(max, shorten);
        self.resume();
        count
    }

    /// An event that was polled did not reach the client: it will be told.
    pub fn event_lost(&mut self) {
        self.events.lose();
    }

    /// Why the backend has ended the session, if it has.
    pub fn ended(&self) -> Option<BackendEnd> {
        self.ended
    }

    /// How much of the backend's audio waits to be sent.
    #[must_use]
    pub fn queued_time(&self) -> Duration {
        self.playout.queued_time()
    }

    /// How many of the client's packets wait behind a hole.
    #[must_use]
    pub fn packets_waiting(&self) -> usize {
        self.uplink.waiting()
    }

    /// What the backend has to tell of its server.
    pub fn backend_report(&self) -> BackendReport {
        self.backend.report()
    }

    /// What passed, for those who look on.
    pub fn tap(&mut self) -> &mut Tap {
        &mut self.tap
    }

    /// When to poll at the latest, although nothing arrived. It may lie in the past.
    pub fn deadline(&self) -> Option<Instant> {
        let playout = self.playing.then(|| self.playout.deadline()).flatten();
        // One that is held is not asked before there is room.
        let backend = match self.held {
            None => self.backend.deadline(),
            Some(_) => None,
        };
        let all = [self.uplink.deadline(), backend, playout, self.more];
        all.into_iter().flatten().min()
    }

    /// What happened since the call began.
    pub fn counters(&self) -> ConversationCounters {
        ConversationCounters {
            uplink: self.uplink.counters(),
            playout: self.playout.counters(),
            dropped_events: self.events.lost(),
            coding: Coding {
                decoded: self.uplink.decoding(),
                ..self.counters.coding
            },
            ..self.counters
        }
    }

    /// The frame that is due at `now`, taken from the queue and accounted for.
    fn next_frame(&mut self, now: Instant) -> Option<OutFrame> {
        self.advance(now);
        if !self.playing {
            return None;
        }
        let frame = self.playout.poll(now);
        if frame.is_some() || self.playout.is_stopped() {
            self.counters.turns.faded(now);
        }
        let frame = frame?;
        if self.playout.plays_item() {
            self.tap.played();
        }
        self.report_playout(now);
        self.take_outputs(now);
        Some(frame)
    }

    /// Moves everything that is due from the client to the backend, and from the backend to the queues.
    fn advance(&mut self, now: Instant) {
        let mut heard = false;
        // The uplink holds a bounded number of packets and fills in at most one frame per 20 ms.
        while let Some(pcm) = self.uplink.poll(now) {
            self.backend.handle(Input::Audio(pcm), now);
            self.take_outputs(now);
            heard = true;
        }
        // After the last piece that was heard nothing has happened.
        if !heard {
            self.take_outputs(now);
        }
    }

    fn take_outputs(&mut self, now: Instant) {
        self.more = None;
        self.held = None;
        for _ in 0..MAX_OUTPUTS {
            if self.events.pushes_back() {
                self.held = Some(now);
                return self.take_clears(now);
            }
            let queue = QueueState {
                queued: self.playout.queued(),
                room: self.playout.room(),
            };
            match self.backend.poll(queue, now) {
                None => return,
                Some(Output::Event(text)) => {
                    self.tap.said(&text);
                    self.events.push(text);
                }
                Some(Output::Audio { item, pcm }) => {
                    let taken = self.playout.push(item, pcm, now);
                    self.counters.overrun += (pcm.len() - taken) as u64;
                    self.counters.turns.queued(self.playout.queued_time());
                }
                Some(Output::Finished(item)) => {
                    self.playout.finish(item);
                    self.report_playout(now);
                }
                Some(Output::Clear { asked }) => self.clear(asked, now),
                Some(Output::End(why)) => self.ended = self.ended.or(Some(why)),
            }
        }
        self.more = Some(now);
    }

    /// Has what is played end, however much waits for the channel: an interruption is not an event.
    fn take_clears(&mut self, now: Instant) {
        // Ends: what a backend keeps is bounded.
        while let Some(asked) = self.backend.poll_clear(now) {
            self.clear(asked, now);
        }
    }

    /// What is played ends here, as was asked for at `asked`.
    fn clear(&mut self, asked: Instant, now: Instant) {
        if self.playout.cuts_item() {
            self.counters.turns.cut(asked);
        }
        self.playout.clear();
        self.report_playout(now);
    }

    /// Asks a backend that was held for more, at once, when there is room again.
    fn resume(&mut self) {
        if !self.events.pushes_back()
            && let Some(since) = self.held.take()
        {
            self.more = Some(since);
        }
    }

    fn report_playout(&mut self, now: Instant) {
        while let Some(event) = self.playout.poll_event() {
            self.backend.handle(Input::Playout(event), now);
        }
    }
}
