//! Asking the flow cache about clients that the table does not know: who asks, what waits meanwhile, and for how long.
//!
//! A client is asked about once. Until the answer comes, or the time is up, a few of its packets wait; who has no entry, or
//! whose answer is late, is not asked about again for a second. So three numbers bound what strangers can cause, from however
//! many addresses they send: questions in any second, packets that wait, clients that are remembered. When there are more
//! strangers than questions, the others' packets are dropped as if there were no cache, and nothing is remembered of them.
//!
//! Packets wait where the kernel put them: a receive buffer is held, and nothing is copied. A core has eight times as many
//! buffers as may wait here; a store of its own would cost a copy each way to save an eighth of them, in a flood, for a
//! fifth of a second.
//!
//! Every operation is O(1), and nothing is allocated after the start.

use crate::budget::Budget;
use crate::fifo::Fifo;
use crate::flows::HashedKey;
use crate::index::Index;
use crate::limits::{
    QUESTIONS_BURST_SHARE, RECALL_CLIENTS, RECALL_DENIED, RECALL_PACKETS,
    RECALL_PACKETS_PER_CLIENT, RECALL_WAIT,
};
use crate::reason::Reason;
use crate::time::Micros;
use crate::trunks::BufferId;
use crate::uplink::Source;

const NONE: u32 = u32::MAX;

/// A packet that waits: whose, and where it lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Held {
    pub(crate) source: Source,
    pub(crate) buffer: BufferId,
    pub(crate) len: u16,
}

/// What became of a packet of an unknown client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Outcome {
    /// Whether its client shall be asked about now.
    pub(crate) ask: bool,
    /// Why it does not wait; nothing when it does.
    pub(crate) dropped: Option<Reason>,
}

/// What this side of the cache has counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct RecallCounts {
    /// Questions asked.
    pub(crate) questions: u64,
    /// Questions not asked because too many were, or because too many clients wait.
    pub(crate) withheld: u64,
    /// Questions that had no answer in time.
    pub(crate) late: u64,
    /// Packets that waited.
    pub(crate) waited: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// A question is under way.
    Asked,
    /// The cache had nothing, or was late.
    Denied,
}

/// A list of packets: numbers of nodes.
#[derive(Clone, Copy)]
struct Chain {
    first: u32,
    last: u32,
}

const EMPTY: Chain = Chain {
    first: NONE,
    last: NONE,
};

struct Client {
    key: HashedKey,
    state: State,
    /// When it came into this state.
    since: Micros,
    packets: Chain,
    count: u8,
}

struct Node {
    held: Held,
    /// Why it is dropped when nothing is known of its client after all.
    reason: Reason,
    next: u32,
}

/// The clients that one core has asked about, and their packets.
pub(crate) struct Recall {
    clients: Box<[Client]>,
    free: Vec<u32>,
    index: Index,
    /// Clients by state, each the longest in it first.
    asked: Fifo,
    denied: Fifo,
    nodes: Vec<Node>,
    free_node: u32,
    /// Packets whose wait is over.
    ready: Chain,
    questions: Budget,
    counts: RecallCounts,
}

impl Recall {
    /// Allocates everything. In any second, at most `questions` are asked.
    pub(crate) fn new(questions: u32, now: Micros) -> Self {
        let [least, most] = RECALL_CLIENTS;
        let clients = questions.saturating_mul(2).clamp(least, most);
        let burst = questions / QUESTIONS_BURST_SHARE;
        let vacant = || Client {
            key: HashedKey::default(),
            state: State::Denied,
            since: now,
            packets: EMPTY,
            count: 0,
        };
        Self {
            clients: (0..clients).map(|_| vacant()).collect(),
            free: (0..clients).rev().collect(),
            index: Index::new(clients),
            asked: Fifo::new(clients, clients),
            denied: Fifo::new(clients, clients),
            nodes: Vec::with_capacity(usize::from(RECALL_PACKETS)),
            free_node: NONE,
            ready: EMPTY,
            questions: Budget::new(now, burst, questions - burst),
            counts: RecallCounts::default(),
        }
    }

    pub(crate) fn counts(&self) -> &RecallCounts {
        &self.counts
    }

    /// A packet of a client that the table does not know. `unknown` is why it is dropped when nobody is asked.
    pub(crate) fn packet(&mut self, now: Micros, held: Held, unknown: Reason) -> Outcome {
        let drop_it = |reason| Outcome {
            ask: false,
            dropped: Some(reason),
        };
        if let Some(at) = self.find(&held.source.key) {
            let client = &self.clients[at as usize];
            match client.state {
                State::Asked => {
                    return Outcome {
                        ask: false,
                        dropped: self.hold(at, held).err(),
                    };
                }
                State::Denied if age(client, now) < RECALL_DENIED => return drop_it(unknown),
                State::Denied => self.forget(at),
            }
        }
        let room = !self.free.is_empty() || self.denied.oldest().is_some();
        if !(room && self.questions.take()) {
            self.counts.withheld += 1;
            return drop_it(unknown);
        }
        let at = self.add(held.source.key, now);
        self.counts.questions += 1;
        Outcome {
            ask: true,
            dropped: self.hold(at, held).err(),
        }
    }

    /// A question found no room on its way: its client was not asked about, and may be by its next packet.
    pub(crate) fn withdraw(&mut self, key: &HashedKey, unknown: Reason) {
        let asked = |at: &u32| self.clients[*at as usize].state == State::Asked;
        if let Some(at) = self.find(key).filter(asked) {
            self.counts.questions -= 1;
            self.asked.remove(at);
            self.make_ready(at, unknown);
            self.vacate(at);
        }
    }

    /// The cache has answered about a client. `denied` is why its packets go nowhere; nothing when the table knows it now. Returns
    /// whether the answer was in time; else the question is counted as late already.
    pub(crate) fn answer(&mut self, now: Micros, key: &HashedKey, denied: Option<Reason>) -> bool {
        let Some(at) = self.find(key) else {
            return false;
        };
        let state = self.clients[at as usize].state;
        match (state, denied) {
            (State::Asked, Some(reason)) => self.deny(at, now, reason),
            (State::Asked, None) => {
                self.asked.remove(at);
                // The table may lose it again before they go on.
                self.make_ready(at, Reason::CacheRefused);
                self.vacate(at);
            }
            // It was late, and is of use all the same.
            (State::Denied, None) => self.forget(at),
            (State::Denied, Some(_)) => {}
        }
        state == State::Asked
    }

    /// Ends waits and memories whose time is up, at most so many. Call it in every turn.
    pub(crate) fn tick(&mut self, now: Micros, mut budget: u32) {
        self.questions.refill(now);
        while let Some(at) = self.asked.oldest()
            && budget > 0
            && age(&self.clients[at as usize], now) >= RECALL_WAIT
        {
            budget -= 1;
            self.counts.late += 1;
            self.deny(at, now, Reason::CacheLate);
        }
        while let Some(at) = self.denied.oldest()
            && budget > 0
            && age(&self.clients[at as usize], now) >= RECALL_DENIED
        {
            budget -= 1;
            self.forget(at);
        }
    }

    /// Whether a question is under way, or a packet's wait is over that was not taken.
    pub(crate) fn is_busy(&self) -> bool {
        self.asked.oldest().is_some() || self.ready.first != NONE
    }

    /// Ends all waits, as if their time were up.
    pub(crate) fn end_all(&mut self, now: Micros) {
        while let Some(at) = self.asked.oldest() {
            self.counts.late += 1;
            self.deny(at, now, Reason::CacheLate);
        }
    }

    /// The next packet whose wait is over, and why it is dropped when its client is still unknown.
    pub(crate) fn take_ready(&mut self) -> Option<(Held, Reason)> {
        let at = self.ready.first;
        let node = self.nodes.get_mut(at as usize)?;
        let taken = (node.held, node.reason);
        self.ready.first = std::mem::replace(&mut node.next, self.free_node);
        if self.ready.first == NONE {
            self.ready = EMPTY;
        }
        self.free_node = at;
        Some(taken)
    }

    fn find(&self, key: &HashedKey) -> Option<u32> {
        let is_it = |at: u32| self.clients[at as usize].key.key == key.key;
        self.index.find(key.hash, is_it)
    }

    /// Enters a client that is asked about. There is a place, or somebody who was denied gives way.
    fn add(&mut self, key: HashedKey, now: Micros) -> u32 {
        if self.free.is_empty()
            && let Some(oldest) = self.denied.oldest()
        {
            self.forget(oldest);
        }
        let Some(at) = self.free.pop() else {
            unreachable!("the caller has seen a place");
        };
        self.clients[at as usize] = Client {
            key,
            state: State::Asked,
            since: now,
            packets: EMPTY,
            count: 0,
        };
        self.index.insert(key.hash, at);
        self.asked.push(at);
        at
    }

    /// Lets a packet wait.
    fn hold(&mut self, at: u32, held: Held) -> Result<(), Reason> {
        if self.clients[at as usize].count == RECALL_PACKETS_PER_CLIENT {
            return Err(Reason::CacheFull);
        }
        let node = Node {
            held,
            reason: Reason::CacheLate,
            next: NONE,
        };
        let number = self.free_node;
        let number = if let Some(place) = self.nodes.get_mut(number as usize) {
            self.free_node = place.next;
            *place = node;
            number
        } else if self.nodes.len() < usize::from(RECALL_PACKETS) {
            self.nodes.push(node);
            (self.nodes.len() - 1) as u32
        } else {
            return Err(Reason::CacheFull);
        };
        let client = &mut self.clients[at as usize];
        client.count += 1;
        let added = Chain {
            first: number,
            last: number,
        };
        client.packets = join(&mut self.nodes, client.packets, added);
        self.counts.waited += 1;
        Ok(())
    }

    /// Ends the wait of a client that was asked about in vain.
    fn deny(&mut self, at: u32, now: Micros, reason: Reason) {
        self.asked.remove(at);
        self.make_ready(at, reason);
        let client = &mut self.clients[at as usize];
        client.state = State::Denied;
        client.since = now;
        self.denied.push(at);
    }

    /// Lets a client's packets go on.
    fn make_ready(&mut self, at: u32, reason: Reason) {
        let client = &mut self.clients[at as usize];
        let packets = std::mem::replace(&mut client.packets, EMPTY);
        client.count = 0;
        let mut next = packets.first;
        while let Some(node) = self.nodes.get_mut(next as usize) {
            node.reason = reason;
            next = node.next;
        }
        self.ready = join(&mut self.nodes, self.ready, packets);
    }

    /// Forgets a client that was denied.
    fn forget(&mut self, at: u32) {
        self.denied.remove(at);
        self.vacate(at);
    }

    /// Frees the place of a client that is in no queue any more.
    fn vacate(&mut self, at: u32) {
        self.index.remove(self.clients[at as usize].key.hash, at);
        self.free.push(at);
    }
}

fn age(client: &Client, now: Micros) -> Micros {
    Micros(now.0.saturating_sub(client.since.0))
}

/// Appends one list to another.
fn join(nodes: &mut [Node], before: Chain, behind: Chain) -> Chain {
    match (nodes.get_mut(before.last as usize), behind.first) {
        (_, NONE) => before,
        (None, _) => behind,
        (Some(last), first) => {
            last.next = first;
            Chain {
                first: before.first,
                last: behind.last,
            }
        }
    }
}

#[cfg(test)]
mod tests;
