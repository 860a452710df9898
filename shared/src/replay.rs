//! The replay filter of a trunk receiver: a window of sequence numbers for each sender.
//!
//! A sender is a boot id (RFC 4303 section 3.4.3 calls the same thing an anti-replay window). The table of senders is
//! bounded: one that has been silent makes room for a new one, found without a look at all of them. Only datagrams with a
//! valid tag ever reach it.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;

use siphasher::sip::SipHasher13;

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

/// What a filter knows of one sender, apart from the filter: for the process that takes its place.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SenderState {
    boot: BootId,
    highest: u32,
    idle_secs: u32,
    seen: [u64; WORDS],
}

impl SenderState {
    /// Length of the encoded form, in bytes: boot id, highest sequence, idle seconds, the window's words, all big-endian.
    pub const LEN: usize = 12 + 8 * WORDS;

    /// The encoded form.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[..4].copy_from_slice(&self.boot.0.to_be_bytes());
        bytes[4..8].copy_from_slice(&self.highest.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.idle_secs.to_be_bytes());
        for (place, word) in bytes[12..].chunks_exact_mut(8).zip(self.seen) {
            place.copy_from_slice(&word.to_be_bytes());
        }
        bytes
    }

    /// Reads the encoded form. Any bytes are one.
    #[must_use]
    pub fn from_bytes(bytes: &[u8; Self::LEN]) -> Self {
        let number = |at: usize| u32::from_be_bytes(std::array::from_fn(|i| bytes[at + i]));
        let word = |at: usize| u64::from_be_bytes(std::array::from_fn(|i| bytes[at + i]));
        Self {
            boot: BootId(number(0)),
            highest: number(4),
            idle_secs: number(8),
            seen: std::array::from_fn(|i| word(12 + 8 * i)),
        }
    }
}

/// How many senders are compared when one has to make room: enough that one in use is practically never the oldest.
const CANDIDATES: usize = 16;

/// Boot ids are random and come from datagrams whose tag verified, so nobody chooses which of them collide.
type BootHasher = BuildHasherDefault<SipHasher13>;

/// Windows of a bounded number of senders. Everything is allocated at the start.
#[derive(Debug)]
pub struct ReplayFilter {
    windows: Vec<(BootId, Window)>,
    /// Position in `windows` by boot id.
    places: HashMap<BootId, u32, BootHasher>,
    capacity: usize,
    /// Where the search for a sender that makes room goes on.
    hand: usize,
}

impl Default for ReplayFilter {
    fn default() -> Self {
        Self::with_capacity(REPLAY_SENDERS)
    }
}

impl ReplayFilter {
    /// Makes room for `capacity` senders (at least one).
    #[must_use]
    pub fn with_capacity(capacity: usize) -> Self {
        let capacity = capacity.max(1);
        Self {
            windows: Vec::with_capacity(capacity),
            // A table that is at most half full is cleaned in place, and never grows.
            places: HashMap::with_capacity_and_hasher(2 * capacity, BootHasher::default()),
            capacity,
            hand: 0,
        }
    }

    /// Whether a datagram is new. One that is too old to tell counts as a replay.
    ///
    /// `now_secs` is any monotonic count of seconds; it only orders senders by use. A sequence does not wrap: a sender
    /// takes a new boot id instead.
    pub fn accept(&mut self, boot: BootId, sequence: u32, now_secs: u32) -> bool {
        if let Some(place) = self.places.get(&boot) {
            let window = &mut self.windows[*place as usize].1;
            window.last_used = now_secs;
            return window.accept(sequence);
        }
        let window = Window::new(sequence, now_secs);
        let place = if self.windows.len() < self.capacity {
            self.windows.push((boot, window));
            self.windows.len() - 1
        } else {
            let place = self.oldest_of_some();
            self.places.remove(&self.windows[place].0);
            self.windows[place] = (boot, window);
            place
        };
        self.places.insert(boot, place as u32);
        true
    }

    /// How many senders are remembered.
    #[must_use]
    pub fn senders(&self) -> usize {
        self.windows.len()
    }

    /// How many senders there is room for.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// What is known of each sender.
    pub fn states(&self, now_secs: u32) -> impl Iterator<Item = SenderState> + '_ {
        self.windows.iter().map(move |(boot, window)| SenderState {
            boot: *boot,
            highest: window.highest,
            idle_secs: now_secs.saturating_sub(window.last_used),
            seen: window.seen,
        })
    }

    /// Takes over what another filter knew of a sender. Refuses one that is known here, or finds no room.
    pub fn restore(&mut self, state: &SenderState, now_secs: u32) -> bool {
        if self.windows.len() >= self.capacity || self.places.contains_key(&state.boot) {
            return false;
        }
        self.places.insert(state.boot, self.windows.len() as u32);
        let window = Window {
            highest: state.highest,
            seen: state.seen,
            last_used: now_secs.saturating_sub(state.idle_secs),
        };
        self.windows.push((state.boot, window));
        true
    }

    /// The place of the sender that was silent longest among the next few in turn.
    fn oldest_of_some(&mut self) -> usize {
        let count = self.windows.len();
        let first = self.hand;
        self.hand = (first + CANDIDATES) % count;
        (0..CANDIDATES.min(count))
            .map(|step| (first + step) % count)
            .min_by_key(|place| self.windows[*place].1.last_used)
            .unwrap_or(first)
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
    fn a_silent_sender_makes_room_among_many_in_use() {
        let mut filter = ReplayFilter::with_capacity(1_000);
        for boot in 0..1_000 {
            assert!(filter.accept(BootId(boot), 1, u32::from(boot != 5)));
        }
        // One search looks at a few; every sixteenth new sender at the latest has seen them all.
        for boot in 1_000..1_064 {
            assert!(filter.accept(BootId(boot), 1, 2));
        }
        assert_eq!(filter.senders(), 1_000);
        assert!(filter.accept(BootId(5), 1, 3), "sender 5 had to go");
    }

    #[test]
    fn the_table_never_grows_whatever_the_churn() {
        let mut filter = ReplayFilter::with_capacity(100);
        let (windows, places) = (filter.windows.capacity(), filter.places.capacity());
        for boot in 0..100_000 {
            assert!(filter.accept(BootId(boot), 1, boot / 50));
        }
        assert_eq!(filter.senders(), 100);
        assert_eq!(filter.windows.capacity(), windows);
        assert_eq!(filter.places.capacity(), places);
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
        fn a_filter_that_takes_over_decides_as_the_one_before(
            before in proptest::collection::vec((0u32..3, 0u32..3_000), 0..200),
            after in proptest::collection::vec((0u32..4, 0u32..3_000), 1..200),
        ) {
            let mut first = ReplayFilter::with_capacity(3);
            for (boot, sequence) in before {
                first.accept(BootId(boot), sequence, 100);
            }
            let mut second = ReplayFilter::with_capacity(3);
            for state in first.states(130) {
                let state = SenderState::from_bytes(&state.to_bytes());
                prop_assert!(second.restore(&state, 7));
                prop_assert!(!second.restore(&state, 7), "it is known");
            }
            for (boot, sequence) in after {
                let expected = first.accept(BootId(boot), sequence, 200);
                prop_assert_eq!(second.accept(BootId(boot), sequence, 200), expected);
            }
        }

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
