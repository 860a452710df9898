//! A coarse timer wheel for idle flows: every slot in exactly one bucket, looked at only when the bucket's time is over.
//!
//! A packet does not move its flow's timer: it only stamps the flow. When a bucket comes up, the owner of the slots decides
//! for each whether it is over or when to look again, so that a busy flow costs the wheel one look per idle time. A call
//! does a bounded amount of work and goes on where it stopped.

use crate::limits::{WHEEL_BUCKETS, WHEEL_TICK_BITS};

/// Marks a link as the head of the bucket in its low bits, or as the end of a list.
const HEAD: u32 = 1 << 31;
const NONE: u32 = u32::MAX;

#[derive(Clone, Copy)]
struct Link {
    previous: u32,
    next: u32,
}

/// A wheel over the slots `0..slots`.
pub(crate) struct Wheel {
    links: Box<[Link]>,
    heads: [u32; WHEEL_BUCKETS as usize],
    /// The bucket time (ticks over [`WHEEL_TICK_BITS`]) that is being swept.
    cursor: u32,
}

impl Wheel {
    /// An empty wheel that starts at `now` ticks.
    pub(crate) fn new(slots: u32, now: u32) -> Self {
        Self {
            links: vec![
                Link {
                    previous: NONE,
                    next: NONE
                };
                slots as usize
            ]
            .into_boxed_slice(),
            heads: [NONE; WHEEL_BUCKETS as usize],
            cursor: now >> WHEEL_TICK_BITS,
        }
    }

    /// Puts a slot that is not on the wheel into the bucket of its deadline (in ticks).
    ///
    /// A deadline that the sweep has passed, or that is more than a round away because the sweep lags, is looked at early.
    pub(crate) fn add(&mut self, slot: u32, deadline: u32) {
        let ahead = (deadline >> WHEEL_TICK_BITS).saturating_sub(self.cursor);
        let bucket = (self.cursor + ahead.min(WHEEL_BUCKETS - 1)) & (WHEEL_BUCKETS - 1);
        let next = self.heads[bucket as usize];
        self.links[slot as usize] = Link {
            previous: HEAD | bucket,
            next,
        };
        if next != NONE {
            self.links[next as usize].previous = slot;
        }
        self.heads[bucket as usize] = slot;
    }

    /// Takes a slot that is on the wheel off it.
    pub(crate) fn remove(&mut self, slot: u32) {
        let Link { previous, next } = self.links[slot as usize];
        if previous & HEAD != 0 {
            let bucket = previous & !HEAD;
            assert!(bucket < WHEEL_BUCKETS, "slot {slot} is not on the wheel");
            self.heads[bucket as usize] = next;
        } else {
            self.links[previous as usize].next = next;
        }
        if next != NONE {
            self.links[next as usize].previous = previous;
        }
        self.links[slot as usize] = Link {
            previous: NONE,
            next: NONE,
        };
    }

    /// Takes the next slot whose bucket time lies before `now` (ticks) off the wheel.
    ///
    /// The caller then asks the flow and [adds](Wheel::add) the slot again, or frees it.
    pub(crate) fn take_due(&mut self, now: u32) -> Option<u32> {
        let time = now >> WHEEL_TICK_BITS;
        // After a long sleep one round shows every bucket; older rounds hold nothing more.
        self.cursor = self.cursor.max(time.saturating_sub(WHEEL_BUCKETS));
        while self.cursor < time {
            let slot = self.heads[(self.cursor & (WHEEL_BUCKETS - 1)) as usize];
            if slot != NONE {
                self.remove(slot);
                return Some(slot);
            }
            self.cursor += 1;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    proptest! {
        /// Deadlines up to a round ahead, sweeps of any length, and budgets that leave work for the next call.
        #[test]
        fn a_slot_comes_up_once_its_bucket_is_over_and_never_before(
            steps in prop::collection::vec((0u32..6, 0u32..470, 0u32..600, 1u32..4), 1..100),
        ) {
            let mut now = 5_000;
            let mut wheel = Wheel::new(6, now);
            let mut deadlines: HashMap<u32, u32> = HashMap::new();
            for (slot, ahead, pass, budget) in steps {
                if deadlines.remove(&slot).is_some() {
                    wheel.remove(slot);
                } else {
                    wheel.add(slot, now + ahead);
                    deadlines.insert(slot, now + ahead);
                }
                now += pass;
                let mut drained = false;
                for _ in 0..budget {
                    let Some(due) = wheel.take_due(now) else {
                        drained = true;
                        break;
                    };
                    let deadline = deadlines[&due];
                    if deadline >> WHEEL_TICK_BITS < now >> WHEEL_TICK_BITS {
                        deadlines.remove(&due);
                    } else {
                        wheel.add(due, deadline);
                    }
                }
                if drained {
                    prop_assert!(deadlines.values().all(|d| d >> WHEEL_TICK_BITS >= now >> WHEEL_TICK_BITS));
                }
            }
        }
    }
}
