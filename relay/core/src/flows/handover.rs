//! How a table is read out for a successor, and filled by what a predecessor has read out.
//!
//! A flow keeps its slot and generation, so that the handles that owners echo stay valid. What is put in is checked as if a
//! stranger had written it: every rule of the table holds afterwards, or it is refused.

use std::num::NonZeroU32;

use firsthop_shared::address::Restart;
use siphasher::sip::SipHasher13;

use super::slot::{GENERATION_MASK, LIVE, Mark, PROVEN, SECOND_IS_OLDER};
use super::{Back, Claim, FlowKey, Flows, node};
use crate::limits::{CLAIMS_PER_FLOW, FLOW_IDLE_TICKS};

/// A flow apart from its table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FlowImage {
    pub(crate) slot: u32,
    pub(crate) generation: u16,
    pub(crate) key: FlowKey,
    pub(crate) claims: [Option<ClaimImage>; CLAIMS_PER_FLOW],
    /// Of two provisional claims the second is the older one.
    pub(crate) second_is_older: bool,
    /// Ticks since the last packet.
    pub(crate) age: u32,
    /// Ticks since a request was verified at nobody's expense.
    pub(crate) check_age: u32,
}

/// A claim apart from its table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ClaimImage {
    pub(crate) claim: Claim,
    pub(crate) proven: bool,
    /// How many ICE restarts of its session have been seen.
    pub(crate) restart: Restart,
    /// The ufrag of its last verified request, as the table's hash makes it; 0 when there was none.
    pub(crate) mark: u32,
    /// The way back to another relay.
    pub(crate) back: Option<Back>,
}

impl Flows {
    /// How many flows there is room for.
    pub(crate) fn capacity(&self) -> u32 {
        self.slots.len() as u32
    }

    /// How many provisional claims there is room for.
    pub(crate) fn provisional_max(&self) -> u32 {
        self.capacity() - self.proven_max
    }

    /// The keys of the table's hash. Marks mean nothing without them.
    pub(crate) fn hash_keys(&self) -> [u64; 2] {
        let (first, second) = self.hasher.keys();
        [first, second]
    }

    /// Every flow.
    pub(crate) fn images(&self, now: u32) -> impl Iterator<Item = FlowImage> + '_ {
        let slots = self.slots.iter().zip(0..);
        slots
            .filter(|(slot, _)| slot.is_live(0) || slot.is_live(1))
            .map(move |(slot, at)| FlowImage {
                slot: at,
                generation: slot.generation,
                key: slot.key,
                claims: std::array::from_fn(|i| {
                    slot.is_live(i).then(|| ClaimImage {
                        claim: slot.claims[i],
                        proven: slot.is_proven(i),
                        restart: slot.restarts[i],
                        mark: slot.marks[i].map_or(0, Mark::to_raw),
                        back: self.back(at, i),
                    })
                }),
                second_is_older: slot.flags & SECOND_IS_OLDER != 0,
                age: now.saturating_sub(slot.last_seen),
                check_age: now.wrapping_sub(slot.free_check),
            })
    }

    /// The provisional claims, oldest first: twice the slot, and which of the flow's claims.
    pub(crate) fn order(&self) -> impl Iterator<Item = u32> + '_ {
        self.queue.iter()
    }

    /// Begins to fill an empty table, which hashes by these keys from now on.
    pub(crate) fn restoring(&mut self, hash: [u64; 2]) -> Restoring<'_> {
        assert!(
            self.free.len() == self.slots.len(),
            "only a fresh table is filled"
        );
        self.hasher = SipHasher13::new_with_keys(hash[0], hash[1]);
        let taken = vec![0; self.slots.len()];
        Restoring {
            flows: self,
            taken,
            provisional: 0,
        }
    }
}

/// What is known of a slot while a table is filled.
const TAKEN: u8 = 1;
const LEFT_OUT: u8 = 2;
const QUEUED: [u8; CLAIMS_PER_FLOW] = [4, 8];

/// A table that is being filled. Of no use before [`Restoring::finish`], nor after an error.
pub(crate) struct Restoring<'a> {
    flows: &'a mut Flows,
    /// By slot.
    taken: Vec<u8>,
    /// Provisional claims that are not in their queue yet.
    provisional: u32,
}

impl Restoring<'_> {
    /// Puts a flow at its slot. Its provisional claims are still to be [queued](Restoring::queue).
    pub(crate) fn put(&mut self, now: u32, image: &FlowImage) -> Result<(), &'static str> {
        self.take(image.slot, TAKEN)?;
        let (first, second) = (image.claims[0], image.claims[1]);
        let is = |claim: Option<ClaimImage>, proven| claim.is_some_and(|c| c.proven == proven);
        if first.is_none() && second.is_none() {
            return Err("a flow has no claim");
        }
        if let (Some(first), Some(second)) = (first, second)
            && (first.claim.same(&second.claim) || (first.proven && second.proven))
        {
            return Err("a flow's two claims contradict each other");
        }
        if image.second_is_older && (first.is_none() || second.is_none()) {
            return Err("a claim that is not there is older");
        }
        if image.generation > GENERATION_MASK {
            return Err("a generation is out of range");
        }
        let flows = &mut *self.flows;
        let key = flows.hashed(image.key);
        if flows.find(&key).is_some() {
            return Err("an address has two flows");
        }
        let proven = u32::from(is(first, true) || is(second, true));
        if flows.proven + proven > flows.proven_max {
            return Err("more flows are proven than the table keeps room for");
        }
        flows.proven += proven;
        self.provisional += u32::from(is(first, false)) + u32::from(is(second, false));
        let slot = &mut flows.slots[image.slot as usize];
        slot.key = image.key;
        slot.hash = key.hash;
        slot.generation = image.generation;
        slot.last_seen = now.saturating_sub(image.age);
        slot.free_check = now.wrapping_sub(image.check_age);
        slot.flags = if image.second_is_older {
            SECOND_IS_OLDER
        } else {
            0
        };
        for (i, claim) in image.claims.iter().enumerate() {
            let Some(claim) = claim else { continue };
            slot.claims[i] = claim.claim;
            slot.restarts[i] = claim.restart;
            slot.marks[i] = NonZeroU32::new(claim.mark).map(Mark::from_raw);
            slot.flags |= LIVE[i] | if claim.proven { PROVEN[i] } else { 0 };
        }
        let deadline = slot.last_seen + FLOW_IDLE_TICKS;
        for (i, claim) in image.claims.iter().enumerate() {
            flows.set_back(image.slot, i, claim.and_then(|claim| claim.back));
        }
        flows.index.insert(key.hash, image.slot);
        flows.wheel.add(image.slot, deadline);
        Ok(())
    }

    /// Notes a flow that is not served on. Its place stays free, and its claims may be queued without effect.
    pub(crate) fn leave_out(&mut self, slot: u32) -> Result<(), &'static str> {
        self.take(slot, TAKEN | LEFT_OUT)
    }

    /// Queues a provisional claim behind those before it. How long it had been there is not told: its time begins anew.
    pub(crate) fn queue(&mut self, now: u32, claim: u32) -> Result<(), &'static str> {
        let (at, i) = (
            claim / CLAIMS_PER_FLOW as u32,
            claim as usize % CLAIMS_PER_FLOW,
        );
        let taken = self
            .taken
            .get_mut(at as usize)
            .ok_or("a claim is nowhere")?;
        if *taken & QUEUED[i] != 0 {
            return Err("a claim is queued twice");
        }
        *taken |= QUEUED[i];
        if *taken & LEFT_OUT != 0 {
            return Ok(());
        }
        let slot = &self.flows.slots[at as usize];
        if *taken & TAKEN == 0 || !slot.is_live(i) || slot.is_proven(i) {
            return Err("a claim is queued that is not provisional");
        }
        if self.flows.queue.is_full() {
            return Err("more claims are provisional than the table keeps room for");
        }
        self.flows.queue.push(node(at, i), now);
        self.provisional -= 1;
        Ok(())
    }

    /// Ends it: what is not taken is free.
    pub(crate) fn finish(self) -> Result<(), &'static str> {
        if self.provisional > 0 {
            return Err("a provisional claim is not queued");
        }
        let free = |at: &u32| self.taken[*at as usize] & (TAKEN | LEFT_OUT) != TAKEN;
        self.flows.free.clear();
        let slots = (0..self.taken.len() as u32).rev();
        self.flows.free.extend(slots.filter(free));
        Ok(())
    }

    fn take(&mut self, slot: u32, how: u8) -> Result<(), &'static str> {
        let taken = self
            .taken
            .get_mut(slot as usize)
            .ok_or("a slot is out of range")?;
        if *taken != 0 {
            return Err("a slot holds two flows");
        }
        *taken = how;
        Ok(())
    }
}
