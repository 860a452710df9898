//! Paces a backend's audio out in frames of 20 ms, and keeps account of what was really sent.
//!
//! A backend delivers faster than real time and in pieces of any size. [`Playout`] takes what fits its bound and says how much that
//! was: the rest stays with the backend, so the middle of a sentence is never dropped. A clock takes the frames out:
//!
//! - **On a grid of 20 ms.** A tick that comes late does not shift the grid. After a stall the frames follow each other at
//!   [`MIN_SPACING`] until they are on the grid again: a client's jitter buffer takes that without dropping any. What is later than
//!   [`MAX_LATE`] is not caught up: the grid moves.
//! - **Timestamps** go on by one frame per frame sent. After silence, when nothing was sent, they advance by the time
//!   that passed, and only the packet after it has the marker (RFC 3551, section 4.1).
//! - **In silence** some frames of silence are sent, so that the client's jitter buffer ends cleanly, then nothing: encoding is the
//!   largest cost of a call, and a receiver treats the gap as it treats DTX. A [`silence_tail`](PlayoutSettings::silence_tail) of
//!   `Duration::MAX` sends on for ever.
//!
//! Audio belongs to items, and the ledger knows of each how much has been sent: on barge-in, [`clear`](Playout::clear) ends the item
//! within the frame, with a short fade, and reports the milliseconds that the user can have heard.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::g711;
use super::ledger::{ItemId, Ledger, PlayoutEvent};
use super::{FRAME, SAMPLE_RATE};

/// The least time between two frames, while catching up.
pub const MIN_SPACING: Duration = Duration::from_millis(10);

/// The most that is caught up after a stall.
pub const MAX_LATE: Duration = Duration::from_millis(100);

/// How long less than a frame of an unfinished item may wait for the rest of it.
const PARTIAL_WAIT: Duration = Duration::from_millis(40);

/// The fade after a clear: too short to be heard as sound and long enough not to click.
const FADE: Duration = Duration::from_millis(5);

/// Frames fit the grid.
const FRAME_TIME: Duration = Duration::from_millis(20);

/// At most this much of the queue's memory is kept while it is empty: a second of the widest audio.
const KEPT_SAMPLES: usize = SAMPLE_RATE as usize;

/// How a playout behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlayoutSettings {
    /// How much audio the queue takes. A second is 48 kB, or 16 kB at 8 kHz.
    pub capacity: Duration,
    /// How much must be there before sending begins, or begins again after running dry. Zero for a backend faster than real time.
    pub prebuffer: Duration,
    /// How long silence is sent after the last audio.
    pub silence_tail: Duration,
}

impl Default for PlayoutSettings {
    /// For a model that generates faster than real time. What does not fit these two minutes waits in front of the translator, where only an
    /// interruption is seen before its turn: events behind the audio come when there is room.
    fn default() -> Self {
        Self {
            capacity: Duration::from_secs(120),
            prebuffer: Duration::ZERO,
            silence_tail: Duration::from_millis(200),
        }
    }
}

/// One frame to encode and send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutFrame {
    /// The samples: all of them at 24 kHz; at a lower rate as many of the first as 20 ms hold, and zeros.
    pub pcm: [i16; FRAME],
    /// RTP timestamp.
    pub timestamp: u32,
    /// The first frame after nothing was sent.
    pub marker: bool,
}

/// What happened since the call began.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct PlayoutCounters {
    /// Frames taken.
    pub frames: u64,
    /// Of these, frames of nothing but silence of our own.
    pub silent_frames: u64,
    /// Times that the queue ran dry in the middle of an item.
    pub underruns: u64,
    /// Samples dropped by a clear, and samples of a cleared item that came after it.
    pub cleared: u64,
    /// Milliseconds by which stalls moved the grid.
    pub stalled_ms: u64,
}

/// The sending half of a call's audio: PCM in, paced frames out.
pub struct Playout {
    settings: PlayoutSettings,
    /// Samples per second, at most [`SAMPLE_RATE`].
    rate: u32,
    /// Ticks of the timestamp per second.
    clock_rate: u32,
    /// Samples that the queue takes.
    capacity: usize,
    /// Samples in a frame.
    frame: usize,
    samples: VecDeque<i16>,
    /// Whose samples are queued, in order: lengths sum up to `samples.len()`.
    runs: VecDeque<Run>,
    ledger: Ledger,
    /// Whose the last sample sent was.
    last_item: Option<ItemId>,
    /// The last frame had audio of an item in it.
    of_item: bool,
    /// The beginning of what was cleared, faded, to be sent next.
    fade: Vec<i16>,
    phase: Phase,
    /// Timestamp of the next frame if it follows without a gap, and the moment that the first one stands for.
    timestamp: u64,
    anchor: Option<(Instant, u64)>,
    counters: PlayoutCounters,
}

struct Run {
    item: Option<ItemId>,
    samples: usize,
}

/// What the clock does.
#[derive(Clone, Copy)]
enum Phase {
    /// Nothing is sent. `since` is when audio began to wait, if any does.
    Stopped { since: Option<Instant> },
    /// Frames are sent on the grid.
    Running {
        grid: Instant,
        last: Instant,
        /// `None` while audio is played; else when silence began, and since when audio waits.
        silence: Option<(Instant, Option<Instant>)>,
    },
}

impl Playout {
    /// An empty playout of 24 kHz audio whose timestamps count `clock_rate` ticks per second.
    ///
    /// `first_timestamp` should be random (RFC 3550, section 5.1).
    pub fn new(settings: PlayoutSettings, clock_rate: u32, first_timestamp: u32) -> Self {
        Self::of_rate(settings, SAMPLE_RATE, clock_rate, first_timestamp)
    }

    /// The same for audio of 8 kHz, as G.711 has it, with a tick of the timestamp per sample.
    pub fn narrow(settings: PlayoutSettings, first_timestamp: u32) -> Self {
        Self::of_rate(settings, g711::RATE, g711::RATE, first_timestamp)
    }

    fn of_rate(settings: PlayoutSettings, rate: u32, clock_rate: u32, first: u32) -> Self {
        Self {
            settings,
            rate,
            clock_rate,
            capacity: samples_in(settings.capacity, rate),
            frame: samples_in(FRAME_TIME, rate),
            samples: VecDeque::new(),
            runs: VecDeque::new(),
            ledger: Ledger::new(rate),
            last_item: None,
            of_item: false,
            fade: Vec::new(),
            phase: Phase::Stopped { since: None },
            timestamp: u64::from(first),
            anchor: None,
            counters: PlayoutCounters::default(),
        }
    }

    /// Samples waiting.
    pub fn queued(&self) -> usize {
        self.samples.len()
    }

    /// How long these take to play.
    pub fn queued_time(&self) -> Duration {
        Duration::from_micros(self.samples.len() as u64 * 1_000_000 / u64::from(self.rate))
    }

    /// Samples that [`push`](Self::push) would take, of whatever item.
    pub fn room(&self) -> usize {
        if !self.ledger.has_room() {
            return 0;
        }
        self.capacity.saturating_sub(self.samples.len())
    }

    /// Queues the beginning of `pcm` as far as it fits, and returns how many samples that was. Offer the rest again later.
    ///
    /// Audio without an item is sent like any other and appears in no event. Audio of a cleared or finished item is taken and
    /// thrown away: it was on its way when the item ended.
    pub fn push(&mut self, item: Option<ItemId>, pcm: &[i16], now: Instant) -> usize {
        if item.is_some_and(|item| self.ledger.takes_no_more(item)) {
            self.counters.cleared += pcm.len() as u64;
            return pcm.len();
        }
        let taken = pcm.len().min(self.room());
        if taken == 0 || item.is_some_and(|item| !self.ledger.queue(item, taken as u64)) {
            return 0;
        }
        self.samples.extend(&pcm[..taken]);
        match self.runs.back_mut() {
            Some(run) if run.item == item => run.samples += taken,
            _ => self.runs.push_back(Run {
                item,
                samples: taken,
            }),
        }
        match &mut self.phase {
            Phase::Stopped { since } => {
                since.get_or_insert(now);
            }
            Phase::Running { silence, .. } => {
                if let Some((_, since)) = silence {
                    since.get_or_insert(now);
                }
            }
        }
        taken
    }

    /// Says that all audio of an item has been pushed. Unknown and cleared items are left alone.
    pub fn finish(&mut self, item: ItemId) {
        self.ledger.finish(item);
    }

    /// Drops everything that waits, and ends every item that is not sent in full; the ledger of each is final.
    ///
    /// If audio was being played, the next frame is its fade. Clearing again changes nothing.
    pub fn clear(&mut self) {
        let playing = matches!(self.phase, Phase::Running { silence: None, .. });
        if playing && self.fade.is_empty() {
            let length = samples_in(FADE, self.rate);
            let faded = self.samples.iter().take(length).enumerate();
            self.fade = faded
                .map(|(i, &s)| (i32::from(s) * (length - i) as i32 / length as i32) as i16)
                .collect();
        }
        self.counters.cleared += self.samples.len() as u64;
        self.samples.clear();
        self.samples.shrink_to(KEPT_SAMPLES);
        self.runs.clear();
        self.ledger.clear();
        match &mut self.phase {
            Phase::Stopped { since }
            | Phase::Running {
                silence: Some((_, since)),
                ..
            } => *since = None,
            Phase::Running { .. } => {}
        }
    }

    /// How many milliseconds of an item have been sent, rounded down; `None` if the ledger does not know it (any more).
    pub fn sent_ms(&self, item: ItemId) -> Option<u64> {
        self.ledger.sent_ms(item)
    }

    /// The frame that is due at `now`, or `None`. Call until `None`: at most one frame per [`MIN_SPACING`] is due.
    pub fn poll(&mut self, now: Instant) -> Option<OutFrame> {
        let ready = self.ready(now);
        let (grid, marker) = match self.phase {
            Phase::Stopped { .. } if ready => (now, true),
            Phase::Stopped { .. } => return None,
            Phase::Running { grid, last, .. } => {
                if now < grid.max(last + MIN_SPACING) {
                    return None;
                }
                let late = now.saturating_duration_since(grid + MAX_LATE);
                self.counters.stalled_ms += late.as_millis() as u64;
                (grid + late, false)
            }
        };
        let mut pcm = [0; FRAME];
        self.of_item = false;
        let silence = if ready {
            self.take_audio(&mut pcm);
            None
        } else {
            let (began, since) = self.silence(now);
            if self.fade.is_empty() && now >= began + self.settings.silence_tail_bounded() {
                self.phase = Phase::Stopped { since };
                return None;
            }
            let faded = self.fade.len();
            pcm[..faded].copy_from_slice(&self.fade);
            self.fade.clear();
            self.counters.silent_frames += 1;
            Some((began, since))
        };
        self.phase = Phase::Running {
            grid: grid + FRAME_TIME,
            last: now,
            silence,
        };
        self.counters.frames += 1;
        Some(self.stamp(pcm, marker, grid))
    }

    /// Whether the last frame that [`poll`](Self::poll) gave has audio of an item in it, be it the item's last. Sound of no item may be
    /// nothing but an echo of silence.
    pub fn plays_item(&self) -> bool {
        self.of_item
    }

    /// Whether [`clear`](Self::clear) would cut off the audio of an item that is being played. It does not when nothing but silence is
    /// sent, however much waits, nor when all that was given has been sent.
    pub fn cuts_item(&self) -> bool {
        let sounds = matches!(self.phase, Phase::Running { silence: None, .. });
        let goes_on = || self.last_item.is_some_and(|item| self.ledger.goes_on(item));
        let follows = || self.runs.iter().any(|run| run.item.is_some());
        sounds && self.of_item && (goes_on() || follows())
    }

    /// Whether nothing is sent: the next frame, if any comes, begins anew.
    pub fn is_stopped(&self) -> bool {
        matches!(self.phase, Phase::Stopped { .. })
    }

    /// What became of items since the last call, in order. Call after each [`poll`](Self::poll), finish and clear until `None`.
    pub fn poll_event(&mut self) -> Option<PlayoutEvent> {
        self.ledger.poll_event()
    }

    /// When [`poll`](Self::poll) has a frame; `None` while nothing is sent and nothing waits.
    pub fn deadline(&self) -> Option<Instant> {
        match self.phase {
            Phase::Running { grid, last, .. } => Some(grid.max(last + MIN_SPACING)),
            Phase::Stopped { since: None } => None,
            Phase::Stopped { since: Some(since) } if self.enough() => Some(since),
            Phase::Stopped { since: Some(since) } => Some(since + self.partial_wait()),
        }
    }

    /// What happened since the call began.
    pub fn counters(&self) -> PlayoutCounters {
        self.counters
    }

    /// Whether the next frame is one of audio.
    fn ready(&self, now: Instant) -> bool {
        match self.phase {
            _ if self.samples.is_empty() || !self.fade.is_empty() => false,
            Phase::Running { silence: None, .. } => {
                self.samples.len() >= self.frame || self.complete()
            }
            Phase::Stopped { since }
            | Phase::Running {
                silence: Some((_, since)),
                ..
            } => self.enough() || since.is_some_and(|since| now >= since + self.partial_wait()),
        }
    }

    /// Whether so much waits that playing can begin.
    fn enough(&self) -> bool {
        let wanted = samples_in(self.settings.prebuffer, self.rate).max(self.frame);
        self.samples.len() >= wanted || self.complete()
    }

    /// Whether nothing more will be pushed to what waits.
    fn complete(&self) -> bool {
        let last = self.runs.back().and_then(|run| run.item);
        last.is_some_and(|item| self.ledger.is_complete(item))
    }

    fn partial_wait(&self) -> Duration {
        self.settings.prebuffer.max(PARTIAL_WAIT)
    }

    /// When the silence at `now` began, and since when audio waits for more of it.
    fn silence(&mut self, now: Instant) -> (Instant, Option<Instant>) {
        match self.phase {
            Phase::Running {
                silence: Some(silence),
                ..
            } => silence,
            Phase::Stopped { since } => (now, since),
            Phase::Running { silence: None, .. } => {
                let ended = self
                    .last_item
                    .is_some_and(|item| self.ledger.takes_no_more(item));
                if self.fade.is_empty() && !ended {
                    self.counters.underruns += 1;
                }
                (now, (!self.samples.is_empty()).then_some(now))
            }
        }
    }

    /// Moves a frame of audio, or the last part of one, from the queue into `pcm`, and accounts for it.
    fn take_audio(&mut self, pcm: &mut [i16; FRAME]) {
        let taken = self.samples.len().min(self.frame);
        // By slices: a ring buffer's items one by one cost more than the rest of the frame.
        let (first, second) = self.samples.as_slices();
        let before = first.len().min(taken);
        pcm[..before].copy_from_slice(&first[..before]);
        pcm[before..taken].copy_from_slice(&second[..taken - before]);
        self.samples.drain(..taken);
        let mut left = taken;
        while left > 0 {
            let Some(run) = self.runs.front_mut() else {
                debug_assert!(false, "samples without a run");
                break;
            };
            let part = run.samples.min(left);
            let item = run.item;
            run.samples -= part;
            left -= part;
            if run.samples == 0 {
                self.runs.pop_front();
            }
            self.last_item = item;
            self.of_item |= item.is_some();
            if let Some(item) = item {
                self.ledger.send(item, part as u64);
            }
        }
        if self.samples.is_empty() {
            self.samples.shrink_to(KEPT_SAMPLES);
        }
    }

    /// Gives a frame its timestamp. `grid` is the moment that it stands for.
    fn stamp(&mut self, pcm: [i16; FRAME], marker: bool, grid: Instant) -> OutFrame {
        let (began, first) = *self.anchor.get_or_insert((grid, self.timestamp));
        if marker {
            let passed = samples_in(grid.saturating_duration_since(began), self.clock_rate);
            self.timestamp = self.timestamp.max(first + passed as u64);
        }
        let frame = OutFrame {
            pcm,
            timestamp: self.timestamp as u32,
            marker,
        };
        self.timestamp += u64::from(self.clock_rate / 50);
        frame
    }
}

/// How many samples a time holds, at so many a second.
fn samples_in(time: Duration, rate: u32) -> usize {
    (time.as_micros() * u128::from(rate) / 1_000_000) as usize
}

impl PlayoutSettings {
    /// The silence tail, short enough to be added to any moment.
    fn silence_tail_bounded(&self) -> Duration {
        const CENTURY: Duration = Duration::from_secs(100 * 365 * 86_400);
        self.silence_tail.min(CENTURY)
    }
}
