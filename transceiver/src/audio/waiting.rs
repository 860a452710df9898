//! Events that wait for the client's channel, bounded.
//!
//! A full queue pushes back as long as the channel takes events at all: its backend is not asked for more, so what a model says faster than
//! the path carries arrives later, and whole. A channel that is not open, or has taken nothing for long, must not hold the call's audio up:
//! then what comes is dropped, counted, and the client is told how many in the place of what it has missed.

use std::collections::VecDeque;

use super::events::events_lost;

/// Events to the client that may wait for the channel, beside one that says how many were lost.
pub const MAX_EVENTS: usize = 1_024;

/// Bytes of events that may wait, beside one event that is larger.
const MAX_EVENT_BYTES: usize = 4 * 1_024 * 1_024;

/// The queue of one call.
#[derive(Debug, Default)]
pub(super) struct EventQueue {
    events: VecDeque<String>,
    bytes: usize,
    /// How many of the newest have not been measured.
    fresh: usize,
    /// There is a channel that takes events.
    flowing: bool,
    /// Lost, and the client does not know.
    missing: u64,
    lost: u64,
    told: u64,
}

impl EventQueue {
    /// Whether nothing should be said now, because there will be room.
    pub(super) fn pushes_back(&self) -> bool {
        self.flowing && self.is_full()
    }

    /// A channel takes events from here on, or does not.
    pub(super) fn flow(&mut self, flowing: bool) {
        self.flowing = flowing;
    }

    /// Takes an event; without room for it, it is lost.
    pub(super) fn push(&mut self, event: String) {
        if self.is_full() {
            return self.lose();
        }
        self.tell();
        self.put(event);
    }

    /// An event did not reach the client, and will not.
    pub(super) fn lose(&mut self) {
        self.lost += 1;
        self.missing += 1;
    }

    /// The next event.
    pub(super) fn pop(&mut self) -> Option<String> {
        if self.events.is_empty() {
            self.tell();
        }
        let event = self.events.pop_front()?;
        self.bytes -= event.len();
        self.fresh = self.fresh.min(self.events.len());
        Some(event)
    }

    /// Has each event that has come since the last call, and is longer than `max` bytes, replaced by what `shorten` makes of it. Returns how
    /// many.
    pub(super) fn shorten(&mut self, max: usize, mut shorten: impl FnMut(&str) -> String) -> u64 {
        let known = self.events.len() - self.fresh;
        self.fresh = 0;
        let mut count = 0;
        for event in self.events.range_mut(known..) {
            if event.len() > max {
                let short = shorten(event);
                self.bytes = self.bytes - event.len() + short.len();
                *event = short;
                count += 1;
            }
        }
        count
    }

    /// How many events were lost.
    pub(super) fn lost(&self) -> u64 {
        self.lost
    }

    fn is_full(&self) -> bool {
        self.events.len() >= MAX_EVENTS || self.bytes >= MAX_EVENT_BYTES
    }

    fn tell(&mut self) {
        if self.missing > 0 {
            self.told += 1;
            let notice = events_lost(self.told, std::mem::take(&mut self.missing));
            self.put(notice);
        }
    }

    fn put(&mut self, event: String) {
        self.bytes += event.len();
        self.fresh += 1;
        self.events.push_back(event);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drain(queue: &mut EventQueue) -> Vec<String> {
        std::iter::from_fn(|| queue.pop()).collect()
    }

    #[test]
    fn a_full_queue_pushes_back_while_the_channel_takes_events_and_only_then() {
        let mut queue = EventQueue::default();
        for n in 0..MAX_EVENTS {
            assert!(!queue.pushes_back());
            queue.push(n.to_string());
        }
        assert!(!queue.pushes_back(), "nobody listens");
        queue.flow(true);
        assert!(queue.pushes_back());
        queue.pop();
        assert!(!queue.pushes_back());

        // By bytes as well as by number.
        let mut queue = EventQueue::default();
        queue.flow(true);
        queue.push("x".repeat(MAX_EVENT_BYTES + 1));
        assert!(queue.pushes_back());
    }

    #[test]
    fn what_is_lost_is_told_once_in_the_place_where_it_is_missing() {
        let mut queue = EventQueue::default();
        for n in 0..MAX_EVENTS + 3 {
            queue.push(n.to_string());
        }
        assert_eq!(queue.lost(), 3);
        for n in 0..10 {
            assert_eq!(queue.pop(), Some(n.to_string()));
        }
        queue.push("later".to_owned());
        let rest = drain(&mut queue);
        let [notice, later] = &rest[MAX_EVENTS - 10..] else {
            panic!("{} events", rest.len());
        };
        assert!(notice.contains("events_lost") && notice.contains('3'));
        assert_eq!(later, "later");

        // Also when nothing follows.
        queue.lose();
        let told = drain(&mut queue);
        assert_eq!(told.len(), 1);
        assert_ne!(&told[0], notice);
        assert_eq!(queue.lost(), 4);
    }

    #[test]
    fn an_event_that_is_too_long_is_shortened_once_and_gives_its_room_back() {
        let mut queue = EventQueue::default();
        queue.flow(true);
        queue.push("short".to_owned());
        queue.push("x".repeat(2 * MAX_EVENT_BYTES));
        assert_eq!(queue.shorten(5, |long| long[..1].to_owned()), 1);
        assert!(!queue.pushes_back());
        assert_eq!(queue.shorten(0, |_| String::new()), 0, "looked at before");
        queue.push("long".to_owned());
        assert_eq!(queue.shorten(3, |_| "l".to_owned()), 1);
        assert_eq!(drain(&mut queue), ["short", "x", "l"]);
    }
}
