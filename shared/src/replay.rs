//! The replay filter of a trunk receiver: a window of sequence numbers for each sender.
//!
//! A sender is a boot id (RFC 4303 section 3.4.3 calls the same thing an anti-replay window). The table of senders is
//! bounded; the sender that was silent longest makes room for a new one, so a flood of restarts cannot grow it, and only
//! datagrams with a valid tag ever reach it.

use std::collections::HashMap;

use crate::address::BootId;
use crate::limits::{REPLAY_SENDERS, REPLAY_WINDOW};

const WORDS: usize = REPLAY_WINDOW as usize / 64;

/// The last [`REPLAY_WINDOW`] sequence numbers of one sender, as a ring of bits.
#[derive(Clone, Debug)]
struct Window {
    highest: u32,
    seen: [u64; WORDS],
    last_used: u32,
}

impl Window {
    fn new(sequence: u32, now_secs: u32) -> Self {
        let mut window = Self {
            highest: sequence,
            seen: [0; WORDS],
            last_used: now_secs,
        };
        window.mark(sequence);
        window
    }

    fn place(sequence: u32) -> (usize, u64) {
        let bit = sequence % REPLAY_WINDOW;
        (bit as usize / 64, 1 << (bit % 64))
    }

    fn mark(&mut self, sequence: u32) {
        let (word, bit) = Self::place(sequence);
        self.seen[word] |= bit;
    }

    fn accept(&mut self, sequence: u32) -> bool {
        if sequence > self.highest {
            let ahead = sequence - self.highest;
            if ahead >= REPLAY_WINDOW {
                self.seen = [0; WORDS];
            } else {
                for skipped in self.highest + 1..sequence {
                    let (word, bit) = Self::place(skipped);
                    self.seen[word] &= !bit;
                }
            }
            self.highest = sequence;
        } else {
            let (word, bit) = Self::place(sequence);
            if self.highest - sequence >= REPLAY_WINDOW || self.seen[word] & bit != 0 {
                return false;
            }
        }
        self.mark(sequence);
        true
    }
}

/// Windows of up to [`REPLAY_SENDERS`] senders.
#[derive(Debug)]
pub struct ReplayFilter {
    windows: HashMap<BootId, Window>,
    capacity: usize,
}

impl Default for ReplayFilter {
    fn default() -> Self {
        Self::with_capacity(REPLAY_SENDERS)
    }
}

impl ReplayFilter {
    /// Makes room for `capacity` senders (at least one), so that nothing is allocated later.
    #[must_use]
    pub fn with_capacity(capacity: usize) -> Self {
        let capacity = capacity.max(1);
        Self {
            windows: HashMap::with_capacity(capacity + 1),
            capacity,
        }
    }

    /// Whether a datagram is new. One that is too old to tell counts as a replay.
    ///
    /// `now_secs` is any monotonic count of seconds; it only orders senders by use. A sequence does not wrap: a sender
    /// takes a new boot id instead.
    pub fn accept(&mut self, boot: BootId, sequence: u32, now_secs: u32) -> bool {
        if let Some(window) = self.windows.get_mut(&boot) {
            window.last_used = now_secs;
            return window.accept(sequence);
        }
        if self.windows.len() >= self.capacity {
            self.evict();
        }
        self.windows.insert(boot, Window::new(sequence, now_secs));
        true
    }

    /// How many senders are remembered.
    #[must_use]
    pub fn senders(&self) -> usize {
        self.windows.len()
    }

    /// Forgets the sender that was silent longest. It runs once per new sender beyond the capacity, never per datagram.
    fn evict(&mut self) {
        let oldest = self
            .windows
            .iter()
            .min_by_key(|(_, window)| window.last_used)
            .map(|(boot, _)| *boot);
        if let Some(boot) = oldest {
            self.windows.remove(&boot);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    const BOOT: BootId = BootId(7);

    #[test]
    fn a_datagram_is_accepted_once() {
        let mut filter = ReplayFilter::default();
        assert!(filter.accept(BOOT, 5, 0));
        assert!(!filter.accept(BOOT, 5, 0));
        assert!(filter.accept(BOOT, 4, 0));
        assert!(!filter.accept(BOOT, 4, 0));
    }

    #[test]
    fn a_late_one_passes_within_the_window_and_not_beyond() {
        let mut filter = ReplayFilter::default();
        assert!(filter.accept(BOOT, 10_000, 0));
        assert!(filter.accept(BOOT, 10_000 - REPLAY_WINDOW + 1, 0));
        assert!(!filter.accept(BOOT, 10_000 - REPLAY_WINDOW, 0));
    }

    #[test]
    fn senders_do_not_share_a_window() {
        let mut filter = ReplayFilter::default();
        assert!(filter.accept(BootId(1), 9, 0));
        assert!(filter.accept(BootId(2), 9, 0));
    }

    #[test]
    fn the_longest_silent_sender_makes_room() {
        let mut filter = ReplayFilter::with_capacity(2);
        assert!(filter.accept(BootId(1), 1, 0));
        assert!(filter.accept(BootId(2), 1, 1));
        assert!(filter.accept(BootId(1), 2, 2));
        assert!(filter.accept(BootId(3), 1, 3));
        assert_eq!(filter.senders(), 2);
        assert!(!filter.accept(BootId(1), 2, 4), "sender 1 is still known");
    }

    proptest! {
        #[test]
        fn no_sequence_passes_twice_and_recent_ones_pass_once(
            steps in proptest::collection::vec(0u32..3_000, 1..400)
        ) {
            let mut filter = ReplayFilter::default();
            let mut seen = HashSet::new();
            let mut highest = None::<u32>;
            for sequence in steps {
                let accepted = filter.accept(BOOT, sequence, 0);
                let recent = highest.is_none_or(|h| sequence + REPLAY_WINDOW > h);
                prop_assert_eq!(accepted, recent && !seen.contains(&sequence));
                seen.insert(sequence);
                highest = highest.max(Some(sequence));
            }
        }
    }
}
