//! The flow table: which sessions a client address stands for, for packets that carry no ufrag.
//!
//! A flow is a client address at one ingress over one transport: a client that checks two advertised addresses from one
//! port has two flows. It holds one or two *claims*, each a session at an owner's worker. A claim is *provisional* until
//! its owner proves that the session's client really has this address; at most one claim of a flow is proven, and:
//!
//! - a proof makes the claim the only one of its flow;
//! - a provisional claim never displaces a proven one; a third claim replaces the older provisional one;
//! - provisional claims of all flows stand in one bounded queue, and a new one evicts the oldest when it is full, so that
//!   borrowed source addresses cost the borrowers' own kind only;
//! - flows with a proven claim are bounded by the rest of the table. So a free slot is there whenever a claim needs one:
//!   `flows <= proven + provisional <= capacity`.
//!
//! A claim whose newest packet another relay brought also knows the way back there: see `backs`.
//!
//! Every operation is O(1). Nothing is allocated after the start: 64 bytes per flow in one cache line, 16 to 32 in the
//! index, 24 in the queue, 8 in the expiry wheel and 4 in the list of free slots; 16 more where flows of other relays are. The
//! table knows no trunk; claims that it removes are returned, for the router to give their trunks back.

mod backs;
mod eviction;
mod handover;
mod key;
mod outcome;
mod slot;

use firsthop_shared::address::{FlowHandle, Restart, SessionId};
use siphasher::sip::SipHasher13;

use crate::index::Index;
use crate::limits::{
    CLAIMS_PER_FLOW, FLOW_IDLE_TICKS, FLOWS_MAX, PROVISIONAL_SHARE, WHEEL_TICK_BITS,
};
use crate::trunks::TrunkId;
use crate::wheel::Wheel;

pub(crate) use backs::Back;
use backs::Backs;
use eviction::Queue;
pub(crate) use handover::{ClaimImage, FlowImage};
pub use key::Transport;
pub(crate) use key::{FlowKey, HashedKey};
pub(crate) use outcome::{Bound, Ended, Proof, Removed, Restored};
pub(crate) use slot::Mark;
use slot::{GENERATION_MASK, LIVE, PROVEN, RELAYED, SECOND_IS_OLDER, Slot};

/// A session's hold on a flow.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Claim {
    /// The session at its owner.
    pub(crate) session: SessionId,
    /// The trunk to the owner's worker: (owner, shard).
    pub(crate) trunk: TrunkId,
}

impl Claim {
    /// Whether both stand for the same session at the same owner's worker.
    fn same(&self, other: &Claim) -> bool {
        self.session == other.session && self.trunk == other.trunk
    }
}

/// How full a table is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FlowCounts {
    /// Flows with any claim.
    pub flows: u32,
    /// Flows with a proven claim.
    pub proven: u32,
    /// Provisional claims.
    pub provisional: u32,
}

/// A flow that was found. Valid until the next change of the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Found(u32);

/// The flow table of one core.
pub(crate) struct Flows {
    slots: Box<[Slot]>,
    backs: Backs,
    /// Free slots; the last one is the next to be taken.
    free: Vec<u32>,
    index: Index,
    hasher: SipHasher13,
    wheel: Wheel,
    queue: Queue,
    proven: u32,
    proven_max: u32,
}

impl Flows {
    /// Allocates a table of `capacity` flows (4 to [`FLOWS_MAX`]), a quarter of them for provisional claims.
    ///
    /// `hash` keys the index, `generation` (its low 12 bits) starts the handles: both random. `now` is in ticks. Flows of other
    /// relays' clients find room when it is made for them: `relayed`.
    #[must_use]
    pub(crate) fn new(
        capacity: u32,
        hash: [u64; 2],
        generation: u16,
        now: u32,
        relayed: bool,
    ) -> Self {
        let capacity = capacity.clamp(PROVISIONAL_SHARE, FLOWS_MAX);
        let provisional = capacity / PROVISIONAL_SHARE;
        let vacant = Slot::vacant(generation);
        Self {
            slots: vec![vacant; capacity as usize].into_boxed_slice(),
            backs: Backs::new(capacity, !relayed),
            free: (0..capacity).rev().collect(),
            index: Index::new(capacity),
            hasher: SipHasher13::new_with_keys(hash[0], hash[1]),
            wheel: Wheel::new(capacity, now),
            queue: Queue::new(capacity * CLAIMS_PER_FLOW as u32, provisional),
            proven: 0,
            proven_max: capacity - provisional,
        }
    }

    /// How many flows and claims there are.
    #[must_use]
    pub(crate) fn counts(&self) -> FlowCounts {
        FlowCounts {
            flows: (self.slots.len() - self.free.len()) as u32,
            proven: self.proven,
            provisional: self.queue.len(),
        }
    }

    /// The claims of a flow and whether each is proven. For tests and hand-over, not for the packet path.
    pub(crate) fn claims(&self, key: FlowKey) -> impl Iterator<Item = (Claim, bool)> + '_ {
        let found = self.find(&self.hashed(key));
        let slot = found.map(|found| &self.slots[found.0 as usize]);
        (0..CLAIMS_PER_FLOW).filter_map(move |i| {
            let slot = slot.filter(|slot| slot.is_live(i))?;
            Some((slot.claims[i], slot.is_proven(i)))
        })
    }

    /// A key as this table hashes it.
    pub(crate) fn hashed(&self, key: FlowKey) -> HashedKey {
        key.hashed(&self.hasher)
    }

    /// Loads the place in the index where a search for the key starts, and does nothing with it.
    pub(crate) fn warm_index(&self, key: &HashedKey) {
        self.index.warm(key.hash);
    }

    /// Loads the flow that a search for the key is likely to find, and does nothing with it.
    pub(crate) fn warm_flow(&self, key: &HashedKey) {
        if let Some(slot) = self.index.likely(key.hash) {
            std::hint::black_box(self.slots[slot as usize].last_seen);
        }
    }

    /// The flow of a key.
    pub(crate) fn find(&self, key: &HashedKey) -> Option<Found> {
        self.index
            .find(key.hash, |slot| self.slots[slot as usize].key == key.key)
            .map(Found)
    }

    /// The flow of a handle that a record brought back, if the handle still stands for this key and session.
    pub(crate) fn find_handle(
        &self,
        handle: FlowHandle,
        key: &FlowKey,
        session: SessionId,
    ) -> Option<Found> {
        let at = handle.0 & (FLOWS_MAX - 1);
        let slot = self.slots.get(at as usize)?;
        let holds =
            (0..CLAIMS_PER_FLOW).any(|i| slot.is_live(i) && slot.claims[i].session == session);
        (holds && handle == slot.handle(at) && slot.key == *key).then_some(Found(at))
    }

    /// The handle by which an owner can name the flow.
    pub(crate) fn handle(&self, found: Found) -> FlowHandle {
        self.slots[found.0 as usize].handle(found.0)
    }

    /// The live claims of a flow, at least one.
    pub(crate) fn live(&self, found: Found) -> [Option<Claim>; CLAIMS_PER_FLOW] {
        let slot = &self.slots[found.0 as usize];
        std::array::from_fn(|i| slot.is_live(i).then_some(slot.claims[i]))
    }

    /// A ufrag as this table remembers it.
    pub(crate) fn mark(&self, ufrag: &[u8]) -> Mark {
        Mark::new(&self.hasher, ufrag)
    }

    /// Whether a request on the flow is verified at nobody's expense: once per tick, for the ufrag of its proven claim.
    ///
    /// Anybody can borrow the flow's address; only whom the session was answered to knows its ufrag, and who sees its packets.
    /// A claim that a record restored has no ufrag before its first verified request: until then any takes the check.
    pub(crate) fn take_free_check(&mut self, found: Found, ufrag: &[u8], now: u32) -> bool {
        let slot = &self.slots[found.0 as usize];
        let Some(proven) = (0..CLAIMS_PER_FLOW).find(|i| slot.is_proven(*i)) else {
            return false;
        };
        let known = slot.marks[proven];
        let free = slot.free_check != now && known.is_none_or(|known| known == self.mark(ufrag));
        if free {
            self.slots[found.0 as usize].free_check = now;
        }
        free
    }

    /// Notes that a packet passed: the idle time starts anew.
    pub(crate) fn touch(&mut self, found: Found, now: u32) {
        self.slots[found.0 as usize].last_seen = now;
    }

    /// The proven claim of a flow, if its client is this relay's own: no other relay brought its newest packet. And how many
    /// ICE restarts of its session have been seen.
    pub(crate) fn proven_here(&self, found: Found) -> Option<(Claim, Restart)> {
        let slot = &self.slots[found.0 as usize];
        let i = (0..CLAIMS_PER_FLOW).find(|i| slot.is_proven(*i) && !slot.is_relayed(*i))?;
        Some((slot.claims[i], slot.restarts[i]))
    }

    /// Makes or renews a claim on the strength of a verified request with this ufrag. A new claim is provisional.
    pub(crate) fn bind(
        &mut self,
        now: u32,
        key: &HashedKey,
        claim: Claim,
        seen: (Mark, Restart),
    ) -> Bound {
        self.hold(now, key, claim, Some(seen), None)
    }

    /// Makes or renews a claim: one that a request was verified for, whose mark and restarts were `seen`, or one that another
    /// relay's record names, with the way `back` there.
    fn hold(
        &mut self,
        now: u32,
        key: &HashedKey,
        claim: Claim,
        seen: Option<(Mark, Restart)>,
        back: Option<Back>,
    ) -> Bound {
        let mut removed = Removed::default();
        if let Some(found) = self.find(key) {
            let slot = &mut self.slots[found.0 as usize];
            slot.last_seen = now;
            if let Some(i) = slot.position(&claim) {
                if let Some((mark, restart)) = seen {
                    slot.marks[i] = Some(mark);
                    slot.restarts[i] = restart;
                }
                removed.back = self.set_back(found.0, i, back);
                return Bound {
                    handle: self.handle(found),
                    added: false,
                    removed,
                };
            }
            if slot.is_live(0) && slot.is_live(1) {
                let give_way = slot.older_provisional();
                removed.displaced = Some(self.drop_claim(found.0, give_way));
            }
        }
        if self.queue.is_full() {
            removed.evicted = self.evict();
        }
        // The eviction may have taken this very flow.
        let at = match self.find(key) {
            Some(found) => found.0,
            None => self.allocate(now, key),
        };
        let i = self.add_claim(
            now,
            at,
            claim,
            seen.map(|(mark, _)| mark),
            seen.map_or(Restart(0), |(_, restart)| restart),
        );
        self.set_back(at, i, back);
        Bound {
            handle: self.handle(Found(at)),
            added: true,
            removed,
        }
    }

    /// Makes a flow anew from an authenticated downlink record, or from the flow cache. The caller has seen that the key has
    /// none.
    ///
    /// A claim that is to be proven and finds no room among the proven ones is made provisional.
    pub(crate) fn restore(
        &mut self,
        now: u32,
        key: &HashedKey,
        claim: Claim,
        restart: Restart,
        proven: bool,
    ) -> Restored {
        let proven_now = proven && self.proven < self.proven_max;
        let evicted = if !proven_now && self.queue.is_full() {
            self.evict()
        } else {
            None
        };
        let at = self.allocate(now, key);
        if proven_now {
            let slot = &mut self.slots[at as usize];
            slot.claims[0] = claim;
            slot.marks[0] = None;
            slot.restarts[0] = restart;
            slot.flags = LIVE[0] | PROVEN[0];
            self.proven += 1;
        } else {
            self.add_claim(now, at, claim, None, restart);
        }
        Restored {
            refused: proven && !proven_now,
            evicted,
        }
    }

    /// Marks a claim of the flow proven by a fresh proof, which ends every other claim of the flow.
    ///
    /// Returns nothing when `same` accepts no claim.
    pub(crate) fn prove(
        &mut self,
        found: Found,
        mut same: impl FnMut(&Claim) -> bool,
    ) -> Option<Proof> {
        let slot = &self.slots[found.0 as usize];
        let i = (0..CLAIMS_PER_FLOW).find(|i| slot.is_live(*i) && same(&slot.claims[*i]))?;
        let other = 1 - i;
        let mut proof = Proof {
            promoted: false,
            refused: false,
            displaced: None,
        };
        if slot.is_live(other) {
            proof.displaced = Some(self.drop_claim(found.0, other));
        }
        if !self.slots[found.0 as usize].is_proven(i) {
            if self.proven < self.proven_max {
                self.queue.remove(node(found.0, i));
                self.slots[found.0 as usize].flags |= PROVEN[i];
                self.proven += 1;
                proof.promoted = true;
            } else {
                proof.refused = true;
            }
        }
        Some(proof)
    }

    /// Removes one claim of the flow, and the flow with its last claim. Returns the claim, if `same` accepted one.
    pub(crate) fn remove(
        &mut self,
        found: Found,
        mut same: impl FnMut(&Claim) -> bool,
    ) -> Option<Ended> {
        let slot = &self.slots[found.0 as usize];
        let i = (0..CLAIMS_PER_FLOW).find(|i| slot.is_live(*i) && same(&slot.claims[*i]))?;
        let ended = self.drop_claim(found.0, i);
        self.free_if_empty(found.0);
        Some(ended)
    }

    /// Takes the next flow that was idle too long out of the table, within `budget` looks (counted down).
    ///
    /// Returns its claims, or nothing when no flow is due or the budget is used up. Of the flows that were looked at and are
    /// alive, those with a proven claim of an own client are given to `alive`: each of them about once per idle time.
    pub(crate) fn expire(
        &mut self,
        now: u32,
        budget: &mut u32,
        mut alive: impl FnMut(&FlowKey, Claim, Restart),
    ) -> Option<[Option<Ended>; CLAIMS_PER_FLOW]> {
        while *budget > 0 {
            let at = self.wheel.take_due(now)?;
            *budget -= 1;
            let deadline = self.slots[at as usize].last_seen + FLOW_IDLE_TICKS;
            if deadline >> WHEEL_TICK_BITS >= now >> WHEEL_TICK_BITS {
                self.wheel.add(at, deadline);
                if let Some((claim, restart)) = self.proven_here(Found(at)) {
                    alive(&self.slots[at as usize].key, claim, restart);
                }
                continue;
            }
            let ended = std::array::from_fn(|i| {
                let live = self.slots[at as usize].is_live(i);
                live.then(|| self.drop_claim(at, i))
            });
            self.free(at);
            return Some(ended);
        }
        None
    }

    /// Takes a free slot. There is one: see the inequality at the top, with room made for the claim that is to come.
    fn allocate(&mut self, now: u32, key: &HashedKey) -> u32 {
        let Some(at) = self.free.pop() else {
            unreachable!("flows never outnumber proven flows and provisional claims");
        };
        let slot = &mut self.slots[at as usize];
        slot.key = key.key;
        slot.hash = key.hash;
        slot.last_seen = now;
        slot.flags = 0;
        self.index.insert(key.hash, at);
        self.wheel.add(at, now + FLOW_IDLE_TICKS);
        at
    }

    /// Adds a provisional claim. Returns its place in the flow.
    fn add_claim(
        &mut self,
        now: u32,
        at: u32,
        claim: Claim,
        ufrag: Option<Mark>,
        restart: Restart,
    ) -> usize {
        let slot = &mut self.slots[at as usize];
        let i = usize::from(slot.is_live(0));
        debug_assert!(!slot.is_live(i), "a flow with two claims takes no third");
        slot.claims[i] = claim;
        slot.marks[i] = ufrag;
        slot.restarts[i] = restart;
        slot.flags |= LIVE[i];
        // The claim that was there before is the older one.
        slot.flags &= !SECOND_IS_OLDER;
        if i == 0 && slot.is_live(1) {
            slot.flags |= SECOND_IS_OLDER;
        }
        self.queue.push(node(at, i), now);
        i
    }

    fn drop_claim(&mut self, at: u32, i: usize) -> Ended {
        let back = self.back(at, i);
        let slot = &mut self.slots[at as usize];
        if slot.is_proven(i) {
            self.proven -= 1;
        } else {
            self.queue.remove(node(at, i));
        }
        slot.flags &= !(LIVE[i] | PROVEN[i] | RELAYED[i] | SECOND_IS_OLDER);
        Ended {
            claim: slot.claims[i],
            back,
        }
    }

    fn free_if_empty(&mut self, at: u32) {
        let slot = &self.slots[at as usize];
        if !slot.is_live(0) && !slot.is_live(1) {
            self.wheel.remove(at);
            self.free(at);
        }
    }

    /// Gives back a slot without claims that is off the wheel; handles to it end.
    fn free(&mut self, at: u32) {
        let slot = &mut self.slots[at as usize];
        slot.generation = (slot.generation + 1) & GENERATION_MASK;
        self.index.remove(slot.hash, at);
        self.free.push(at);
    }
}

fn node(at: u32, claim: usize) -> u32 {
    at * CLAIMS_PER_FLOW as u32 + claim as u32
}
