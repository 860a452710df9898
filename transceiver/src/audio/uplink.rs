//! Turns the packets of one client into one unbroken stream of PCM.
//!
//! A backend measures silence by the audio that it gets, so the stream must go on where the client's does not: a lost packet is
//! restored or concealed, and a client that stops sending in silence (DTX) is filled in by the clock, not when its next packet
//! comes up to 400 ms later. A client that stops without a word, say at the end of a file, gets silence after [`STALL`], long enough
//! for any turn to end; late audio of a stalled network is worth more than silence, so not sooner.
//!
//! Packets in order pass without delay; see [`Reorder`] for the others.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::codec::{Codec, CodecError};
use super::coding::Work;
use super::decode::{Decoder, Origin};
use super::g711::Law;
use super::reorder::{Pushed, Released, Reorder, ReorderCounters};
use super::{FRAME, SAMPLE_RATE};

/// The most frames that are made up for one hole: the decoder's concealment has faded out by then. The rest of a longer hole is skipped.
const MAX_FILL: usize = 10;

/// A timestamp that jumps by more frames than this (10 s) is another clock, not a gap.
const MAX_GAP: usize = 500;

/// How long after a DTX packet the next one may come before comfort noise is filled in: some network jitter.
const DTX_SLACK: Duration = Duration::from_millis(60);

/// How long a client may stop sending without a word before silence is filled in.
pub const STALL: Duration = Duration::from_secs(1);

/// How much is filled in by the clock after one packet: more than any setting of a turn's silence, and an end to it.
const MAX_IDLE: Duration = Duration::from_secs(5);

/// How far a client may run ahead of real time, as after a stall of the network. What it sends beyond is not decoded: decoding costs
/// a thousand times more than sending.
const MAX_AHEAD: Duration = Duration::from_secs(5);

/// When the clock is read later than this the time is skipped, not made up for.
const MAX_LATE: Duration = Duration::from_millis(100);

const FRAME_TIME: Duration = Duration::from_millis(20);

/// A received RTP packet, as far as audio needs it.
#[derive(Debug, Clone)]
pub struct RtpIn {
    /// The sender's synchronisation source.
    pub ssrc: u32,
    /// Sequence number as on the wire.
    pub sequence: u16,
    /// Timestamp as on the wire, in ticks of [`Codec::clock_rate`].
    pub timestamp: u32,
    /// The codec's payload, without header and padding.
    pub payload: Arc<[u8]>,
}

/// What happened since the stream began. Samples are counted at 24 kHz, whatever rate is given out.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct UplinkCounters {
    /// Packets given to [`Uplink::push`].
    pub received: u64,
    /// Order and loss.
    pub reorder: ReorderCounters,
    /// Missing packets restored by forward error correction.
    pub recovered: u64,
    /// Packets whose payload the codec refused; they are concealed.
    pub malformed: u64,
    /// Samples made up for missing and malformed packets.
    pub concealed: u64,
    /// Samples of comfort noise and silence for a client that did not send.
    pub filled: u64,
    /// Samples of holes too long to fill.
    pub skipped: u64,
    /// Packets dropped because the client sent far faster than real time.
    pub excess: u64,
}

/// The receiving half of a call's audio: packets in, PCM out.
pub struct Uplink {
    codec: Codec,
    /// Samples per second given out: the decoder's.
    rate: u32,
    reorder: Reorder<Held>,
    decoder: Decoder,
    decoding: Work,
    /// What the last poll returned.
    pcm: Vec<i16>,
    /// Timestamp right after the last sample given out.
    expected: Option<u32>,
    /// Packets missing right before the next one released.
    lost: u64,
    idle: Option<Idle>,
    /// The moment in real time that the client's audio has reached; lags at most to now.
    reached: Option<Instant>,
    counters: UplinkCounters,
}

struct Held {
    timestamp: u32,
    payload: Arc<[u8]>,
}

/// What is filled in when no packet comes.
struct Idle {
    next: Instant,
    frames_left: u32,
    /// The client said that it is silent: comfort noise, and not plain silence.
    dtx: bool,
}

impl Uplink {
    /// The receiving half before the first packet.
    ///
    /// # Errors
    /// The codec library could not make a decoder.
    pub fn new(codec: Codec) -> Result<Self, CodecError> {
        Ok(Self::with(codec, Decoder::new(codec)?))
    }

    /// The same for G.711 at its own 8 kHz: the samples given out turn back into the client's bytes ([`Law`]).
    #[must_use]
    pub fn narrow(law: Law) -> Self {
        Self::with(law.into(), Decoder::narrow(law))
    }

    fn with(codec: Codec, decoder: Decoder) -> Self {
        Self {
            codec,
            rate: decoder.sample_rate(),
            reorder: Reorder::new(),
            decoder,
            decoding: Work::default(),
            pcm: Vec::new(),
            expected: None,
            lost: 0,
            idle: None,
            reached: None,
            counters: UplinkCounters::default(),
        }
    }

    /// Takes a packet that arrived at `now`; then call [`poll`](Self::poll) until it returns `None`.
    pub fn push(&mut self, packet: RtpIn, now: Instant) -> Pushed {
        self.counters.received += 1;
        let restarts = self.reorder.counters().restarts;
        let held = Held {
            timestamp: packet.timestamp,
            payload: packet.payload,
        };
        let pushed = self.reorder.push(packet.ssrc, packet.sequence, held, now);
        if self.reorder.counters().restarts != restarts {
            // A new stream has a clock of its own.
            self.expected = None;
            self.lost = 0;
        }
        pushed
    }

    /// The next piece of PCM, at most 320 ms long, or `None` when there is no more at `now`.
    pub fn poll(&mut self, now: Instant) -> Option<&[i16]> {
        self.pcm.clear();
        // Each turn takes a packet out of the bounded buffer, or a hole right before one.
        while self.pcm.is_empty() {
            match self.reorder.pop(now) {
                Some(Released::Lost(packets)) => self.lost = packets,
                Some(Released::Frame(held)) => self.take(&held, now),
                None if self.fill_idle(now) => {}
                None => return None,
            }
        }
        Some(&self.pcm)
    }

    /// When [`poll`](Self::poll) has something although no packet came.
    pub fn deadline(&self) -> Option<Instant> {
        let idle = self.idle.as_ref().map(|idle| idle.next);
        match (self.reorder.deadline(), idle) {
            (Some(hole), _) => Some(hole),
            (None, idle) => idle,
        }
    }

    /// What was decoded, and how long that took.
    pub fn decoding(&self) -> Work {
        self.decoding
    }

    /// How many packets wait behind a hole.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.reorder.waiting()
    }

    /// What happened since the stream began.
    pub fn counters(&self) -> UplinkCounters {
        UplinkCounters {
            reorder: self.reorder.counters(),
            ..self.counters
        }
    }

    /// Fills the hole before a packet, and decodes it.
    fn take(&mut self, held: &Held, now: Instant) {
        let lost = std::mem::take(&mut self.lost);
        let begin = self.reached.map_or(now, |reached| reached.max(now));
        if begin > now + MAX_AHEAD {
            self.counters.excess += 1;
            self.expected = None;
            return;
        }
        let samples = self.codec.duration(&held.payload).unwrap_or(FRAME);
        self.reached = Some(begin + FRAME_TIME * samples as u32 / FRAME as u32);
        self.fill_hole(held, lost);
        let decode = || self.decoder.decode(&held.payload, &mut self.pcm);
        let samples = match self.decoding.timed(decode) {
            Ok(samples) => samples,
            Err(_) => {
                self.counters.malformed += 1;
                self.conceal(self.frame(), None);
                self.frame()
            }
        };
        self.expected = Some(held.timestamp.wrapping_add(self.ticks(samples)));
        let dtx = self.codec.is_dtx(&held.payload);
        let slack = if dtx { DTX_SLACK } else { STALL };
        self.idle = Some(Idle {
            next: now + FRAME_TIME + slack,
            frames_left: (MAX_IDLE.as_millis() / FRAME_TIME.as_millis()) as u32,
            dtx,
        });
    }

    /// Makes up for the time between the last sample given out and this packet.
    ///
    /// The timestamps say how long it is; the sequence numbers only, whether packets were lost in it.
    fn fill_hole(&mut self, held: &Held, lost: u64) {
        let Some(expected) = self.expected else {
            return;
        };
        let ticks = held.timestamp.wrapping_sub(expected) as i32;
        let gap = i64::from(ticks) * i64::from(self.rate) / i64::from(self.codec.clock_rate());
        // Otherwise nothing is missing, more was filled in than was missing, or it is another clock.
        let longest = MAX_GAP * self.frame();
        let Some(gap) = usize::try_from(gap)
            .ok()
            .filter(|gap| (1..=longest).contains(gap))
        else {
            return;
        };
        let fill = gap.min(MAX_FILL * self.frame());
        self.counters.skipped += self.counted(gap - fill);
        if lost > 0 {
            self.conceal(fill, Some(&held.payload));
        } else {
            let before = self.pcm.len();
            // Concealing without a packet cannot fail: the sizes are the codec's own.
            let _ = self
                .decoding
                .timed(|| self.decoder.fill(fill, None, &mut self.pcm));
            self.counters.filled += self.counted(self.pcm.len() - before);
        }
    }

    fn conceal(&mut self, samples: usize, next: Option<&[u8]>) {
        let before = self.pcm.len();
        // An error means that `next` is malformed: it is counted when it is decoded.
        let fill = || self.decoder.fill(samples, next, &mut self.pcm);
        if let Ok(Origin::Recovered) = self.decoding.timed(fill) {
            self.counters.recovered += 1;
        }
        self.counters.concealed += self.counted(self.pcm.len() - before);
    }

    /// One frame for a client that did not send in time. Returns whether one was due.
    fn fill_idle(&mut self, now: Instant) -> bool {
        // Behind a hole packets are waiting: the client sends.
        if self.reorder.deadline().is_some() {
            return false;
        }
        let Some(idle) = self.idle.as_mut().filter(|idle| now >= idle.next) else {
            return false;
        };
        if now > idle.next + MAX_LATE {
            idle.next = now;
        }
        idle.next += FRAME_TIME;
        idle.frames_left -= 1;
        let (dtx, last) = (idle.dtx, idle.frames_left == 0);
        if last {
            self.idle = None;
        }
        let frame = self.frame();
        let fill = || self.decoder.fill(frame, None, &mut self.pcm);
        if !dtx || self.decoding.timed(fill).is_err() {
            self.pcm.resize(frame, 0);
        }
        self.counters.filled += FRAME as u64;
        self.expected = self.expected.map(|at| at.wrapping_add(self.ticks(frame)));
        true
    }

    /// Samples given out in a frame.
    fn frame(&self) -> usize {
        self.rate as usize / 50
    }

    /// Samples given out, as counters count them: at [`SAMPLE_RATE`].
    fn counted(&self, samples: usize) -> u64 {
        samples as u64 * u64::from(SAMPLE_RATE / self.rate)
    }

    fn ticks(&self, samples: usize) -> u32 {
        (samples as u64 * u64::from(self.codec.clock_rate()) / u64::from(self.rate)) as u32
    }
}
