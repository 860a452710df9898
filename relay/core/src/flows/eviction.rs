//! Which provisional claims go when there is no room for a new one.

use super::{Back, Claim, Ended, Flows};
use crate::fifo::Fifo;
use crate::limits::{CLAIMS_PER_FLOW, PROOF_TICKS};

/// No node.
const NONE: u32 = u32::MAX;

/// The provisional claims of all flows in the order of their age, by node.
pub(super) struct Queue {
    fifo: Fifo,
    /// By node: the tick at which it entered.
    since: Box<[u32]>,
    /// Where the next look for a claim that holds a trunk alone goes on: a node of the queue, or none for its oldest.
    next: u32,
}

impl Queue {
    /// A queue that holds at most `capacity` of the nodes `0..nodes`.
    pub(super) fn new(nodes: u32, capacity: u32) -> Self {
        Self {
            fifo: Fifo::new(nodes, capacity),
            since: vec![0; nodes as usize].into_boxed_slice(),
            next: NONE,
        }
    }

    pub(super) fn len(&self) -> u32 {
        self.fifo.len()
    }

    pub(super) fn is_full(&self) -> bool {
        self.fifo.is_full()
    }

    /// All nodes, the oldest first.
    pub(super) fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.fifo.iter()
    }

    /// Enters a node that is not in the queue; the caller has made room.
    pub(super) fn push(&mut self, node: u32, now: u32) {
        self.fifo.push(node);
        self.since[node as usize] = now;
    }

    /// Takes a node that is in the queue out of it.
    pub(super) fn remove(&mut self, node: u32) {
        if self.next == node {
            self.pass(node);
        }
        self.fifo.remove(node);
    }

    /// Lets the next look go on behind a node.
    fn pass(&mut self, node: u32) {
        self.next = self.fifo.newer(node).unwrap_or(NONE);
    }
}

impl Flows {
    /// Drops the oldest provisional claim, and its flow when it was the last claim of it.
    pub(super) fn evict(&mut self) -> Option<Ended> {
        let node = self.queue.fifo.oldest()?;
        Some(self.evict_node(node))
    }

    /// Drops a provisional claim that `alone` accepts, because its end gives a trunk back, and that has had the time in which an
    /// owner proves one. Looks at `looks` claims at the most (counted down), each time from where it ended the last time, so that
    /// claims which stay for long do not hide the ones behind them.
    pub(crate) fn evict_alone(
        &mut self,
        now: u32,
        looks: &mut u32,
        alone: impl Fn(&Claim, Option<&Back>) -> bool,
    ) -> Option<Ended> {
        while *looks > 0 {
            *looks -= 1;
            let first = self.queue.next == NONE;
            let node = match self.queue.next {
                NONE => self.queue.fifo.oldest()?,
                next => next,
            };
            if now.saturating_sub(self.queue.since[node as usize]) < PROOF_TICKS {
                // Those behind it are younger.
                self.queue.next = NONE;
                if first {
                    return None;
                }
                continue;
            }
            self.queue.pass(node);
            let (at, i) = place(node);
            let back = self.back(at, i);
            if alone(&self.slots[at as usize].claims[i], back.as_ref()) {
                return Some(self.evict_node(node));
            }
        }
        None
    }

    fn evict_node(&mut self, node: u32) -> Ended {
        let (at, i) = place(node);
        let ended = self.drop_claim(at, i);
        self.free_if_empty(at);
        ended
    }
}

/// The slot of a node, and which of its claims it is.
fn place(node: u32) -> (u32, usize) {
    (
        node / CLAIMS_PER_FLOW as u32,
        node as usize % CLAIMS_PER_FLOW,
    )
}
