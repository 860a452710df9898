//! Keeps account, per item, of the audio queued and sent, and tells what became of each.

use std::collections::VecDeque;

/// How many items the ledger knows. Finished ones make room for new ones; while all have audio waiting, none is added.
pub const MAX_ITEMS: usize = 64;

/// How many events wait to be polled before no further item is added: every known item may start and end.
const MAX_EVENTS: usize = 4 * MAX_ITEMS;

/// Names an item in one call: chosen by the backend, never used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ItemId(pub u64);

/// What became of an item. Each item has at most one start and then one end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlayoutEvent {
    /// Its first audio is in the frame just taken.
    Started(ItemId),
    /// It is finished, and its last audio has been taken.
    Finished(ItemId),
    /// It was cleared before its end.
    Cleared {
        /// The item.
        item: ItemId,
        /// How much of it was sent, in milliseconds, rounded down.
        sent_ms: u64,
    },
}

/// The account of a call's items: at most [`MAX_ITEMS`].
pub(super) struct Ledger {
    /// Samples per second.
    rate: u32,
    entries: VecDeque<Entry>,
    events: VecDeque<PlayoutEvent>,
}

/// Counts are in samples.
struct Entry {
    item: ItemId,
    queued: u64,
    sent: u64,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// More may come.
    Open,
    /// All of it has been queued.
    Complete,
    /// Sent to its end.
    Over,
    /// Cleared: what still comes is to be thrown away.
    Cleared,
}

impl Ledger {
    /// An account of no items, of audio with so many samples per second.
    pub(super) fn new(rate: u32) -> Self {
        Self {
            rate,
            entries: VecDeque::new(),
            events: VecDeque::new(),
        }
    }

    /// Whether audio of an item that is not known yet would be taken.
    pub(super) fn has_room(&self) -> bool {
        self.events.len() < MAX_EVENTS
            && (self.entries.len() < MAX_ITEMS || self.replaceable().is_some())
    }

    /// Whether audio of an item that still comes is to be thrown away: all of it has been queued, or it was cleared. It may still be playing.
    pub(super) fn takes_no_more(&self, item: ItemId) -> bool {
        self.find(item).is_some_and(|e| e.state != State::Open)
    }

    /// Whether an item has not come to its end: it was neither sent in full nor cleared.
    pub(super) fn goes_on(&self, item: ItemId) -> bool {
        self.find(item).is_some_and(|e| !e.is_over())
    }

    /// Whether all audio of an item has been queued.
    pub(super) fn is_complete(&self, item: ItemId) -> bool {
        self.find(item).is_some_and(|e| e.state == State::Complete)
    }

    /// Accounts for queued samples. Returns false, and does nothing, when the item is new and there is no room.
    pub(super) fn queue(&mut self, item: ItemId, samples: u64) -> bool {
        if let Some(entry) = self.find_mut(item) {
            entry.queued += samples;
            return true;
        }
        if !self.has_room() {
            return false;
        }
        if self.entries.len() >= MAX_ITEMS
            && let Some(at) = self.replaceable()
        {
            self.entries.remove(at);
        }
        self.entries.push_back(Entry {
            item,
            queued: samples,
            sent: 0,
            state: State::Open,
        });
        true
    }

    /// Accounts for sent samples.
    pub(super) fn send(&mut self, item: ItemId, samples: u64) {
        let Some(entry) = self.find_mut(item) else {
            debug_assert!(false, "audio of an item that is not in the ledger");
            return;
        };
        let starts = entry.sent == 0;
        entry.sent += samples;
        let ends = entry.is_sent_in_full();
        if ends {
            entry.state = State::Over;
        }
        if starts {
            self.events.push_back(PlayoutEvent::Started(item));
        }
        if ends {
            self.events.push_back(PlayoutEvent::Finished(item));
        }
    }

    /// All audio of an item has been queued. Unknown and ended items are left alone.
    pub(super) fn finish(&mut self, item: ItemId) {
        let Some(entry) = self.find_mut(item).filter(|e| e.state == State::Open) else {
            return;
        };
        entry.state = State::Complete;
        if entry.is_sent_in_full() {
            entry.state = State::Over;
            self.events.push_back(PlayoutEvent::Finished(item));
        }
    }

    /// Ends every item that has not ended.
    pub(super) fn clear(&mut self) {
        let rate = self.rate;
        for entry in &mut self.entries {
            if !entry.is_over() {
                entry.state = State::Cleared;
                self.events.push_back(PlayoutEvent::Cleared {
                    item: entry.item,
                    sent_ms: milliseconds(entry.sent, rate),
                });
            }
        }
    }

    /// How many milliseconds of an item have been sent, rounded down.
    pub(super) fn sent_ms(&self, item: ItemId) -> Option<u64> {
        self.find(item).map(|e| milliseconds(e.sent, self.rate))
    }

    /// The next event, in order.
    pub(super) fn poll_event(&mut self) -> Option<PlayoutEvent> {
        self.events.pop_front()
    }

    /// The oldest ended entry, or else the oldest with nothing waiting: a backend that ends no item must not block the call.
    fn replaceable(&self) -> Option<usize> {
        let idle = |e: &Entry| e.sent == e.queued;
        let at = self.entries.iter().position(Entry::is_over);
        at.or_else(|| self.entries.iter().position(idle))
    }

    // Items in use are young: both look from the end.
    fn find(&self, item: ItemId) -> Option<&Entry> {
        self.entries.iter().rev().find(|e| e.item == item)
    }

    fn find_mut(&mut self, item: ItemId) -> Option<&mut Entry> {
        self.entries.iter_mut().rev().find(|e| e.item == item)
    }
}

impl Entry {
    fn is_over(&self) -> bool {
        matches!(self.state, State::Over | State::Cleared)
    }

    fn is_sent_in_full(&self) -> bool {
        self.state == State::Complete && self.sent == self.queued
    }
}

fn milliseconds(samples: u64, rate: u32) -> u64 {
    samples * 1_000 / u64::from(rate)
}
