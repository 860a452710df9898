//! The replay filter of a trunk receiver: a window of sequence numbers, and a source address, for each sender.
//!
//! A sender is a boot id (RFC 4303 section 3.4.3 calls the same thing an anti-replay window). The table of senders is
//! bounded: one that has been silent makes room for a new one, found without a look at all of them. Only datagrams with a
//! valid tag ever reach it.
//!
//! **A boot id is pinned to its source.** Answers go where datagrams come from, and the tag says nothing about that: whoever sees a
//! sender's datagrams could deliver a copy before the original, and draw the answers to itself. A sender keeps one address for as long as
//! it has a boot id, so a datagram from elsewhere is dropped.
//!
//! Yet the first datagram may be the copy, or an old one that a fresh receiver cannot know, and a pin that is wrong must not stay. What a
//! copy can hardly do is to be first every time: so each new sequence number speaks for the source that brings it first, and the pin moves
//! when another source is ahead by as many as [`SOURCE_TRUST_NEW`], up to [`SOURCE_TRUST_MAX`] against one that was first for long. Who
//! could hold back the originals for that long could as well stop them.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;

use siphasher::sip::SipHasher13;

use crate::address::{BootId, Hop};
use crate::limits::{REPLAY_SENDERS, REPLAY_WINDOW, SOURCE_TRUST_MAX, SOURCE_TRUST_NEW};

const WORDS: usize = REPLAY_WINDOW as usize / 64;

/// Why a datagram is not accepted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// It was seen before, or is too old to tell.
    Replay,
    /// It is new, and comes from another address than its sender's.
    Source,
}

/// The last [`REPLAY_WINDOW`] sequence numbers of one sender, as a ring of bits.
#[derive(Clone, Debug)]
struct Window {
    source: Hop,
    /// How many datagrams more than others `source` was first with, within bounds.
    trust: u8,
    /// The highest sequence number that another source was first with.
    rival: u32,
    highest: u32,
    seen: [u64; WORDS],
    last_used: u32,
}

impl Window {
    fn new(source: Hop, sequence: u32, now_secs: u32) -> Self {
        let mut window = Self {
            source,
            trust: SOURCE_TRUST_NEW,
            rival: 0,
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

    fn is_new(&self, sequence: u32) -> bool {
        let (word, bit) = Self::place(sequence);
        sequence > self.highest
            || (self.highest - sequence < REPLAY_WINDOW && self.seen[word] & bit == 0)
    }

    fn accept(&mut self, source: Hop, sequence: u32) -> Result<(), Refused> {
        if !self.is_new(sequence) {
            return Err(Refused::Replay);
        }
        if source == self.source {
            if sequence > self.highest.max(self.rival) {
                self.trust = (self.trust + 1).min(SOURCE_TRUST_MAX);
            }
        } else if !self.moves_to(source, sequence) {
            return Err(Refused::Source);
        }
        self.advance(sequence);
        Ok(())
    }

    /// Weighs a new datagram from another source, and pins that one when it has been first often enough.
    fn moves_to(&mut self, source: Hop, sequence: u32) -> bool {
        // One sequence number speaks once, however many copies come.
        if sequence > self.highest.max(self.rival) {
            self.rival = sequence;
            self.trust -= 1;
        }
        let moves = self.trust == 0;
        if moves {
            self.source = source;
            self.trust = SOURCE_TRUST_NEW;
        }
        moves
    }

    fn advance(&mut self, sequence: u32) {
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
        }
        self.mark(sequence);
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

    /// Takes a datagram in that is new and comes from its sender.
    ///
    /// `now_secs` is any monotonic count of seconds; it only orders senders by use. A sequence does not wrap: a sender
    /// takes a new boot id instead.
    ///
    /// # Errors
    /// [`Refused`]
    pub fn accept(
        &mut self,
        boot: BootId,
        source: Hop,
        sequence: u32,
        now_secs: u32,
    ) -> Result<(), Refused> {
        if let Some(place) = self.places.get(&boot) {
            let window = &mut self.windows[*place as usize].1;
            window.last_used = now_secs;
            return window.accept(source, sequence);
        }
        let window = Window::new(source, sequence, now_secs);
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
        Ok(())
    }

    /// How many senders are remembered.
    #[must_use]
    pub fn senders(&self) -> usize {
        self.windows.len()
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

    fn at(port: u16) -> Hop {
        Hop::new(([10, 0, 0, 1], port).into())
    }

    /// Whether a datagram of the boot id's one source is accepted.
    fn takes(filter: &mut ReplayFilter, boot: BootId, sequence: u32, now_secs: u32) -> bool {
        filter.accept(boot, at(4_000), sequence, now_secs).is_ok()
    }

    #[test]
    fn a_datagram_is_accepted_once() {
        let mut filter = ReplayFilter::default();
        assert!(takes(&mut filter, BOOT, 5, 0));
        assert!(!takes(&mut filter, BOOT, 5, 0));
        assert!(takes(&mut filter, BOOT, 4, 0));
        assert!(!takes(&mut filter, BOOT, 4, 0));
    }

    #[test]
    fn a_late_one_passes_within_the_window_and_not_beyond() {
        let mut filter = ReplayFilter::default();
        assert!(takes(&mut filter, BOOT, 10_000, 0));
        assert!(takes(&mut filter, BOOT, 10_000 - REPLAY_WINDOW + 1, 0));
        assert!(!takes(&mut filter, BOOT, 10_000 - REPLAY_WINDOW, 0));
    }

    #[test]
    fn senders_do_not_share_a_window() {
        let mut filter = ReplayFilter::default();
        assert!(takes(&mut filter, BootId(1), 9, 0));
        assert!(takes(&mut filter, BootId(2), 9, 0));
    }

    #[test]
    fn a_copy_from_elsewhere_is_refused_and_the_original_that_follows_is_not() {
        let mut filter = ReplayFilter::default();
        for sequence in 1..100 {
            assert_eq!(filter.accept(BOOT, at(1), sequence, 0), Ok(()));
            // Behind the original, and before the next.
            assert_eq!(
                filter.accept(BOOT, at(2), sequence, 0),
                Err(Refused::Replay)
            );
            if sequence % 3 == 0 {
                let next = filter.accept(BOOT, at(2), sequence + 1, 0);
                assert_eq!(next, Err(Refused::Source));
            }
        }
    }

    #[test]
    fn one_captured_datagram_sent_over_and_over_moves_nothing() {
        let mut filter = ReplayFilter::default();
        assert_eq!(filter.accept(BOOT, at(1), 1, 0), Ok(()));
        for _ in 0..1_000 {
            assert_eq!(filter.accept(BOOT, at(2), 2, 0), Err(Refused::Source));
        }
        assert_eq!(filter.accept(BOOT, at(1), 2, 0), Ok(()));
    }

    #[test]
    fn a_pin_that_was_stolen_by_the_first_datagram_comes_back() {
        let mut filter = ReplayFilter::default();
        assert_eq!(filter.accept(BOOT, at(2), 1, 0), Ok(()));
        let lost = (2..)
            .take_while(|sequence| {
                let original = filter.accept(BOOT, at(1), *sequence, 0);
                let copy = filter.accept(BOOT, at(2), *sequence, 0);
                original.is_err() && copy.is_ok()
            })
            .count();
        assert_eq!(lost, usize::from(SOURCE_TRUST_NEW) - 1);
        assert_eq!(filter.accept(BOOT, at(2), 500, 0), Err(Refused::Source));
    }

    #[test]
    fn old_datagrams_sent_to_a_fresh_receiver_hold_the_pin_for_a_moment_only() {
        let mut filter = ReplayFilter::default();
        for sequence in 1..10_000 {
            assert_eq!(filter.accept(BOOT, at(2), sequence, 0), Ok(()));
        }
        let lost = (10_000..)
            .take_while(|sequence| filter.accept(BOOT, at(1), *sequence, 0).is_err())
            .count();
        assert_eq!(lost, usize::from(SOURCE_TRUST_MAX) - 1);
    }

    #[test]
    fn a_new_boot_id_may_come_from_anywhere() {
        let mut filter = ReplayFilter::default();
        assert_eq!(filter.accept(BootId(1), at(1), 9, 0), Ok(()));
        assert_eq!(filter.accept(BootId(2), at(2), 9, 0), Ok(()));
        assert_eq!(filter.accept(BootId(3), at(1), 9, 0), Ok(()));
    }

    #[test]
    fn a_silent_sender_makes_room_among_many_in_use() {
        let mut filter = ReplayFilter::with_capacity(1_000);
        for boot in 0..1_000 {
            assert!(takes(&mut filter, BootId(boot), 1, u32::from(boot != 5)));
        }
        // One search looks at a few; every sixteenth new sender at the latest has seen them all.
        for boot in 1_000..1_064 {
            assert!(takes(&mut filter, BootId(boot), 1, 2));
        }
        assert_eq!(filter.senders(), 1_000);
        assert!(takes(&mut filter, BootId(5), 1, 3), "sender 5 had to go");
    }

    #[test]
    fn the_table_never_grows_whatever_the_churn() {
        let mut filter = ReplayFilter::with_capacity(100);
        let (windows, places) = (filter.windows.capacity(), filter.places.capacity());
        for boot in 0..100_000 {
            assert!(takes(&mut filter, BootId(boot), 1, boot / 50));
        }
        assert_eq!(filter.senders(), 100);
        assert_eq!(filter.windows.capacity(), windows);
        assert_eq!(filter.places.capacity(), places);
    }

    #[test]
    fn the_longest_silent_sender_makes_room() {
        let mut filter = ReplayFilter::with_capacity(2);
        assert!(takes(&mut filter, BootId(1), 1, 0));
        assert!(takes(&mut filter, BootId(2), 1, 1));
        assert!(takes(&mut filter, BootId(1), 2, 2));
        assert!(takes(&mut filter, BootId(3), 1, 3));
        assert_eq!(filter.senders(), 2);
        assert!(
            !takes(&mut filter, BootId(1), 2, 4),
            "sender 1 is still known"
        );
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
                let accepted = takes(&mut filter, BOOT, sequence, 0);
                let recent = highest.is_none_or(|h| sequence + REPLAY_WINDOW > h);
                prop_assert_eq!(accepted, recent && !seen.contains(&sequence));
                seen.insert(sequence);
                highest = highest.max(Some(sequence));
            }
        }
    }
}
