//! Puts a client's RTP packets back into order, waiting a bounded time for the ones that are missing.
//!
//! A packet in order leaves at once: the buffer adds no delay to a stream without loss. Behind a hole, packets wait until the
//! missing one comes, until one of them has waited [`MAX_WAIT`], or until [`CAPACITY`] of them wait; then the hole is given up
//! as [`Released::Lost`] and the stream goes on. Two holes may be waited for at the same time, so a lost packet never
//! costs more than [`MAX_WAIT`], however many are lost.
//!
//! Sequence numbers are extended to 64 bits here (RFC 3550, appendix A.1): the sequence wraps every 22 minutes of 20 ms packets.
//! A jump that reordering cannot explain is believed when the packet after it confirms it; another SSRC is believed at once
//! (the packets are authenticated: only the client itself can change it).

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// How long a packet may wait for a missing one before it: two packets of 20 ms.
pub const MAX_WAIT: Duration = Duration::from_millis(40);

/// How many packets may wait behind holes: 640 ms in packets of 20 ms, far more than arrives within [`MAX_WAIT`] but for a burst.
pub const CAPACITY: usize = 32;

/// A sequence number so far ahead is a restart until confirmed (RFC 3550 MAX_DROPOUT): a minute of 20 ms packets.
const MAX_DROPOUT: i64 = 3_000;

/// A sequence number so far behind is a restart until confirmed (RFC 3550 MAX_MISORDER): two seconds of 20 ms packets.
const MAX_MISORDER: i64 = 100;

/// What [`Reorder::push`] did with a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pushed {
    /// It is in the buffer and will be released in its place.
    Accepted,
    /// It was there already, or has been released: dropped.
    Duplicate,
    /// Its place has been given up: dropped.
    Late,
    /// Its sequence number is far from the stream's: dropped, and believed if the next packet follows it.
    Stray,
    /// [`CAPACITY`] packets wait because nobody released them: dropped.
    Full,
}

/// What [`Reorder::pop`] releases, in the order of the stream.
#[derive(Debug, PartialEq, Eq)]
pub enum Released<P> {
    /// The next packet.
    Frame(P),
    /// So many packets are missing here. The next thing released is the packet after them.
    Lost(u64),
}

/// What happened since the stream began, in packets.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct ReorderCounters {
    /// Packets that were there already, or had been released.
    pub duplicate: u64,
    /// Packets that came after their place had been given up; they are in `missing` too.
    pub late: u64,
    /// Places given up.
    pub missing: u64,
    /// Packets with a sequence number far from the stream's that nothing confirmed.
    pub stray: u64,
    /// Packets dropped because the buffer was full, or was emptied by a restart of the stream.
    pub discarded: u64,
    /// Times that the stream began anew: another SSRC, or a confirmed jump of the sequence.
    pub restarts: u64,
}

struct Waiting<P> {
    sequence: i64,
    arrived: Instant,
    packet: P,
}

/// The reorder buffer of one RTP stream; `P` is whatever the caller keeps of a packet.
pub struct Reorder<P> {
    stream: Option<Stream>,
    /// By sequence, each once: at most [`CAPACITY`].
    waiting: VecDeque<Waiting<P>>,
    counters: ReorderCounters,
}

/// Where the stream stands. Sequence numbers are extended.
struct Stream {
    ssrc: u32,
    /// The one to be released next.
    next: i64,
    /// The highest seen: the reference for extending.
    highest: i64,
    /// Bit `i` is set when `next - 1 - i` was released as a frame: tells a duplicate from a late packet.
    released: u128,
    /// The sequence number that would confirm a jump.
    confirms: Option<u16>,
}

impl<P> Default for Reorder<P> {
    fn default() -> Self {
        Self::new()
    }
}

impl<P> Reorder<P> {
    /// An empty buffer. The first packet begins the stream.
    pub fn new() -> Self {
        Self {
            stream: None,
            waiting: VecDeque::new(),
            counters: ReorderCounters::default(),
        }
    }

    /// How many packets wait behind a hole.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Takes a packet that arrived at `now`.
    ///
    /// Call [`pop`](Self::pop) until it returns `None` after each packet: only packets behind a hole may stay.
    pub fn push(&mut self, ssrc: u32, sequence: u16, packet: P, now: Instant) -> Pushed {
        let extended = match self.place(ssrc, sequence) {
            Ok(extended) => extended,
            Err(pushed) => return pushed,
        };
        // Nearly always the last place. Never more than CAPACITY steps.
        let at = self.waiting.partition_point(|w| w.sequence < extended);
        if self.waiting.get(at).is_some_and(|w| w.sequence == extended) {
            self.counters.duplicate += 1;
            return Pushed::Duplicate;
        }
        if self.waiting.len() >= CAPACITY {
            self.counters.discarded += 1;
            return Pushed::Full;
        }
        let arrived = now;
        self.waiting.insert(
            at,
            Waiting {
                sequence: extended,
                arrived,
                packet,
            },
        );
        Pushed::Accepted
    }

    /// The next packet or hole that is due at `now`, or `None`.
    pub fn pop(&mut self, now: Instant) -> Option<Released<P>> {
        let stream = self.stream.as_mut()?;
        let head = self.waiting.front()?;
        let missing = head.sequence - stream.next;
        debug_assert!(missing >= 0, "a place behind the stream was taken");
        if missing > 0 {
            let due = self.waiting.len() >= CAPACITY
                || oldest(&self.waiting).is_some_and(|at| now >= at + MAX_WAIT);
            if !due {
                return None;
            }
            stream.next = head.sequence;
            stream.released = stream
                .released
                .checked_shl(missing.min(128) as u32)
                .unwrap_or(0);
            self.counters.missing += missing as u64;
            return Some(Released::Lost(missing as u64));
        }
        stream.next += 1;
        stream.released = stream.released << 1 | 1;
        self.waiting.pop_front().map(|w| Released::Frame(w.packet))
    }

    /// When [`pop`](Self::pop) gives up the first hole, if packets wait behind one.
    pub fn deadline(&self) -> Option<Instant> {
        oldest(&self.waiting).map(|at| at + MAX_WAIT)
    }

    /// What happened since the stream began.
    pub fn counters(&self) -> ReorderCounters {
        self.counters
    }

    /// The extended sequence number of a packet that has a place to come, or why it has none.
    fn place(&mut self, ssrc: u32, sequence: u16) -> Result<i64, Pushed> {
        let Some(stream) = self.stream.as_mut().filter(|s| s.ssrc == ssrc) else {
            return Ok(self.restart(ssrc, sequence));
        };
        let delta = i64::from(sequence.wrapping_sub(stream.highest as u16) as i16);
        if !(-MAX_MISORDER..=MAX_DROPOUT).contains(&delta) {
            if stream.confirms == Some(sequence) {
                return Ok(self.restart(ssrc, sequence));
            }
            stream.confirms = Some(sequence.wrapping_add(1));
            self.counters.stray += 1;
            return Err(Pushed::Stray);
        }
        stream.confirms = None;
        let extended = stream.highest + delta;
        let behind = stream.next - extended;
        if behind > 0 {
            let seen = behind <= 128 && stream.released >> (behind - 1) & 1 == 1;
            if seen {
                self.counters.duplicate += 1;
                return Err(Pushed::Duplicate);
            }
            self.counters.late += 1;
            return Err(Pushed::Late);
        }
        stream.highest = stream.highest.max(extended);
        Ok(extended)
    }

    /// Begins the stream at this packet; what waits of the old one is dropped.
    fn restart(&mut self, ssrc: u32, sequence: u16) -> i64 {
        let extended = i64::from(sequence);
        if self.stream.is_some() {
            self.counters.restarts += 1;
        }
        self.counters.discarded += self.waiting.len() as u64;
        self.waiting.clear();
        self.stream = Some(Stream {
            ssrc,
            next: extended,
            highest: extended,
            released: 0,
            confirms: None,
        });
        extended
    }
}

/// The arrival that has waited longest: not always the first in order. At most [`CAPACITY`] looks, and only behind a hole.
fn oldest<P>(waiting: &VecDeque<Waiting<P>>) -> Option<Instant> {
    waiting.iter().map(|w| w.arrived).min()
}
