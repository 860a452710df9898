//! What becomes of a frame on a link that is long, uneven, lossy or cut. Pure: times are passed in, and chance comes from a seed.
//!
//! Times are nanoseconds since any moment. A frame that is not lost is due after the delay, more or less up to the jitter, equally likely; so
//! frames may overtake each other by twice the jitter, as on a link of several paths.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

/// Frames that are under way at once, at most: 200 ms of 80,000 frames a second.
pub const FRAMES_MAX: usize = 16_384;

/// Bytes that are under way at once, at most.
pub const BYTES_MAX: usize = 64 << 20;

/// The longest delay and the largest jitter that a link has.
pub const LONGEST: Duration = Duration::from_secs(10);

/// What a link does to frames.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Line {
    /// How long a frame takes; at most [`LONGEST`].
    pub delay: Duration,
    /// How much sooner or later it may come; at most [`LONGEST`].
    pub jitter: Duration,
    /// The share of frames that are lost, from 0 to 1.
    pub loss: f64,
    /// Nothing passes.
    pub cut: bool,
}

/// Why a frame was dropped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cause {
    /// Chance.
    Loss,
    /// The link is cut, or was while the frame was under way.
    Cut,
    /// Too many are under way.
    Full,
}

/// How many frames were dropped, by cause.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, serde::Serialize)]
pub struct Dropped {
    /// See [`Cause::Loss`].
    pub loss: u64,
    /// See [`Cause::Cut`].
    pub cut: u64,
    /// See [`Cause::Full`].
    pub full: u64,
}

struct Underway<F> {
    due: u64,
    /// Frames that are due at the same moment leave as they came.
    number: u64,
    length: usize,
    frame: F,
}

impl<F> Ord for Underway<F> {
    fn cmp(&self, other: &Self) -> Ordering {
        // The heap gives the greatest first.
        (other.due, other.number).cmp(&(self.due, self.number))
    }
}

impl<F> PartialOrd for Underway<F> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<F> PartialEq for Underway<F> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<F> Eq for Underway<F> {}

/// One direction of a link, with the frames that are on it.
pub struct Fate<F> {
    line: Line,
    chance: StdRng,
    underway: BinaryHeap<Underway<F>>,
    bytes: usize,
    number: u64,
    dropped: Dropped,
}

impl<F> Fate<F> {
    /// An empty link. The same seed loses the same frames.
    #[must_use]
    pub fn new(line: Line, seed: u64) -> Self {
        Self {
            line,
            chance: StdRng::seed_from_u64(seed),
            underway: BinaryHeap::new(),
            bytes: 0,
            number: 0,
            dropped: Dropped::default(),
        }
    }

    /// Changes the link. Frames that are under way come when they are due, but a cut takes them.
    pub fn set(&mut self, line: Line) {
        self.line = line;
        if line.cut {
            self.dropped.cut += self.underway.len() as u64;
            self.underway.clear();
            self.bytes = 0;
        }
    }

    /// Takes a frame of `length` bytes that arrived at `at`; returns why it was dropped, if it was.
    pub fn take(&mut self, frame: F, length: usize, at: u64) -> Option<Cause> {
        // Chance is asked for every frame, so that what else happens to one does not change what becomes of the next.
        let (lot, shift) = (self.chance.random::<f64>(), self.chance.random::<f64>());
        let cause = if self.line.cut {
            Some((Cause::Cut, &mut self.dropped.cut))
        } else if lot < self.line.loss {
            Some((Cause::Loss, &mut self.dropped.loss))
        } else if self.underway.len() >= FRAMES_MAX || self.bytes + length > BYTES_MAX {
            Some((Cause::Full, &mut self.dropped.full))
        } else {
            None
        };
        if let Some((cause, counter)) = cause {
            *counter += 1;
            return Some(cause);
        }
        let jitter = self.line.jitter.as_nanos() as f64 * (2.0 * shift - 1.0);
        let delay = (self.line.delay.as_nanos() as f64 + jitter).max(0.0) as u64;
        self.number += 1;
        self.bytes += length;
        self.underway.push(Underway {
            due: at + delay,
            number: self.number,
            length,
            frame,
        });
        None
    }

    /// The next frame that is due at `now`, and when it was.
    pub fn due(&mut self, now: u64) -> Option<(F, u64)> {
        if self.next()? > now {
            return None;
        }
        let Underway {
            due, length, frame, ..
        } = self.underway.pop()?;
        self.bytes -= length;
        Some((frame, due))
    }

    /// When the next frame is due.
    #[must_use]
    pub fn next(&self) -> Option<u64> {
        self.underway.peek().map(|first| first.due)
    }

    /// Frames that are under way.
    #[must_use]
    pub fn len(&self) -> usize {
        self.underway.len()
    }

    /// Whether none is under way.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.underway.is_empty()
    }

    /// What the link does.
    #[must_use]
    pub fn line(&self) -> Line {
        self.line
    }

    /// How many frames were dropped.
    #[must_use]
    pub fn dropped(&self) -> Dropped {
        self.dropped
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn line(delay: u64, jitter: u64, loss: f64) -> Line {
        Line {
            delay: Duration::from_millis(delay),
            jitter: Duration::from_millis(jitter),
            loss,
            cut: false,
        }
    }

    /// Frames that are due up to `now`.
    fn due(fate: &mut Fate<u64>, now: u64) -> Vec<(u64, u64)> {
        std::iter::from_fn(|| fate.due(now)).collect()
    }

    #[test]
    fn frames_come_after_the_delay_and_in_order() {
        let mut fate = Fate::new(line(20, 0, 0.0), 1);
        for n in 0..100 {
            assert_eq!(fate.take(n, 100, n / 2 * MS), None);
        }
        assert_eq!(fate.next(), Some(20 * MS));
        assert_eq!(due(&mut fate, 20 * MS - 1), []);
        assert_eq!(due(&mut fate, 20 * MS), [(0, 20 * MS), (1, 20 * MS)]);
        let rest: Vec<u64> = due(&mut fate, 1_000 * MS).iter().map(|f| f.0).collect();
        assert_eq!(rest, (2..100).collect::<Vec<u64>>());
        assert!(fate.is_empty() && fate.next().is_none());
    }

    #[test]
    fn jitter_spreads_frames_evenly_about_the_delay_and_never_before_their_arrival() {
        let mut fate = Fate::new(line(20, 2, 0.0), 7);
        for n in 0..10_000 {
            fate.take(n, 100, n * MS);
        }
        let came = due(&mut fate, u64::MAX);
        assert!(came.is_sorted_by_key(|(_, due)| *due));
        let delays: Vec<f64> = came
            .iter()
            .map(|(n, due)| (due - n * MS) as f64 / MS as f64)
            .collect();
        let mean = delays.iter().sum::<f64>() / delays.len() as f64;
        assert!((19.9..20.1).contains(&mean), "{mean}");
        assert!(delays.iter().all(|delay| (18.0..=22.0).contains(delay)));
        let outer = delays.iter().filter(|d| (*d - 20.0).abs() > 1.0).count();
        assert!((4_500..5_500).contains(&outer), "{outer}");
        // A jitter larger than the delay.
        let mut fate = Fate::new(line(1, 50, 0.0), 7);
        for n in 0..1_000 {
            fate.take(n, 100, n * MS);
        }
        assert!(
            due(&mut fate, u64::MAX)
                .iter()
                .all(|(n, due)| *due >= n * MS)
        );
    }

    #[test]
    fn a_share_of_the_frames_is_lost_the_same_ones_for_the_same_seed() {
        let lost = |seed, loss| {
            let mut fate = Fate::new(line(0, 0, loss), seed);
            let lost: Vec<u64> = (0..50_000)
                .filter(|n| fate.take(*n, 1, *n).is_some() | fate.due(u64::MAX).is_none())
                .collect();
            assert_eq!(fate.dropped().loss, lost.len() as u64);
            lost
        };
        let some = lost(1, 0.02);
        assert!((850..1_150).contains(&some.len()), "{}", some.len());
        assert_eq!(some, lost(1, 0.02));
        assert_ne!(some, lost(2, 0.02));
        assert!(lost(1, 0.0).is_empty());
        assert_eq!(lost(1, 1.0).len(), 50_000);
    }

    #[test]
    fn a_cut_takes_what_is_under_way_and_what_comes_until_it_is_healed() {
        let mut fate = Fate::new(line(20, 0, 0.0), 1);
        fate.take(1, 100, 0);
        fate.take(2, 100, 0);
        let cut = Line {
            cut: true,
            ..fate.line()
        };
        fate.set(cut);
        assert_eq!(fate.take(3, 100, 10 * MS), Some(Cause::Cut));
        assert!(fate.is_empty());
        fate.set(line(30, 0, 0.0));
        assert_eq!(fate.take(4, 100, 20 * MS), None);
        assert_eq!(due(&mut fate, u64::MAX), [(4, 50 * MS)]);
        let dropped = Dropped {
            cut: 3,
            ..Dropped::default()
        };
        assert_eq!(fate.dropped(), dropped);
    }

    #[test]
    fn no_more_is_under_way_than_there_is_room_for() {
        let mut fate = Fate::new(line(20, 0, 0.0), 1);
        for n in 0..FRAMES_MAX as u64 {
            assert_eq!(fate.take(n, 1, 0), None);
        }
        assert_eq!(fate.take(0, 1, 0), Some(Cause::Full));
        assert!(fate.due(20 * MS).is_some());
        assert_eq!(fate.take(0, 1, 0), None);
        let mut fate = Fate::new(line(20, 0, 0.0), 1);
        assert_eq!(fate.take(0, BYTES_MAX, 0), None);
        assert_eq!(fate.take(0, 1, 0), Some(Cause::Full));
        assert_eq!((fate.dropped().full, fate.len()), (1, 1));
    }
}
