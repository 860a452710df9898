//! Where records for clients of other relays go back: for each claim, the trunk to the relay that brought its newest packet.
//!
//! Apart from the slots, whose cache line is full, and not there at all on a relay that takes no packets of others. Two words per
//! claim, zero where there is none, so that memory which no relayed flow ever used is never touched.

use firsthop_shared::address::FlowHandle;

use super::slot::RELAYED;
use super::{Bound, Claim, Flows, Found, HashedKey, node};
use crate::limits::CLAIMS_PER_FLOW;
use crate::trunks::TrunkId;

/// The way back to a client of another relay.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Back {
    /// The trunk to that relay's core.
    pub(crate) trunk: TrunkId,
    /// The flow's handle there.
    pub(crate) handle: FlowHandle,
}

/// The ways back of all claims of a table, by node.
pub(super) struct Backs(Box<[[u32; 2]]>);

impl Backs {
    /// Room for every claim of so many flows; `none` when there will be no ways back.
    pub(super) fn new(flows: u32, none: bool) -> Self {
        let claims = if none {
            0
        } else {
            flows as usize * CLAIMS_PER_FLOW
        };
        Self(vec![[0; 2]; claims].into_boxed_slice())
    }

    /// The way back that was set for a claim, whether it still holds or not.
    pub(super) fn get(&self, node: u32) -> Back {
        let [trunk, handle] = self.0[node as usize];
        Back {
            trunk: TrunkId::from_bits(trunk),
            handle: FlowHandle(handle),
        }
    }

    pub(super) fn set(&mut self, node: u32, back: Back) {
        self.0[node as usize] = [back.trunk.to_bits(), back.handle.0];
    }
}

impl Flows {
    /// Makes or renews a claim on the strength of another relay's record, and remembers the way back there.
    pub(crate) fn bind_relayed(
        &mut self,
        now: u32,
        key: &HashedKey,
        claim: Claim,
        back: Back,
    ) -> Bound {
        self.hold(now, key, claim, None, Some(back))
    }

    /// The place in the flow of the claim that `same` accepts.
    #[inline]
    pub(crate) fn place(
        &self,
        found: Found,
        mut same: impl FnMut(&Claim) -> bool,
    ) -> Option<usize> {
        let slot = &self.slots[found.0 as usize];
        (0..CLAIMS_PER_FLOW).find(|i| slot.is_live(*i) && same(&slot.claims[*i]))
    }

    /// The way back to another relay of the claim in this place.
    #[inline]
    pub(crate) fn back_at(&self, found: Found, place: usize) -> Option<Back> {
        self.back(found.0, place)
    }

    /// The claim that `same` accepts, and its way back to another relay.
    pub(crate) fn claim(
        &self,
        found: Found,
        same: impl FnMut(&Claim) -> bool,
    ) -> Option<(Claim, Option<Back>)> {
        let place = self.place(found, same)?;
        let claim = self.slots[found.0 as usize].claims[place];
        Some((claim, self.back(found.0, place)))
    }

    /// Lets the claim that `same` accepts take another trunk: its owner is reached by another lane. Returns the one before.
    pub(crate) fn take_trunk(
        &mut self,
        found: Found,
        trunk: TrunkId,
        mut same: impl FnMut(&Claim) -> bool,
    ) -> Option<TrunkId> {
        let slot = &mut self.slots[found.0 as usize];
        let i = (0..CLAIMS_PER_FLOW).find(|i| slot.is_live(*i) && same(&slot.claims[*i]))?;
        Some(std::mem::replace(&mut slot.claims[i].trunk, trunk))
    }

    /// A packet of a claim came from another relay the way that is known, under this handle.
    pub(crate) fn renew_back(&mut self, found: Found, now: u32, claim: &Claim, back: Back) {
        let slot = &mut self.slots[found.0 as usize];
        slot.last_seen = now;
        if let Some(i) = slot.position(claim) {
            self.backs.set(node(found.0, i), back);
        }
    }

    /// Whether records of any of a flow's claims go back to another relay.
    pub(crate) fn is_relayed(&self, found: Found) -> bool {
        self.slots[found.0 as usize].flags & (RELAYED[0] | RELAYED[1]) != 0
    }

    /// Takes the ways back of all of a flow's claims away, and returns them.
    pub(crate) fn take_backs(&mut self, found: Found) -> [Option<Back>; CLAIMS_PER_FLOW] {
        std::array::from_fn(|i| self.set_back(found.0, i, None))
    }

    /// A claim's way back to another relay.
    pub(super) fn back(&self, at: u32, i: usize) -> Option<Back> {
        let relayed = self.slots[at as usize].is_relayed(i);
        relayed.then(|| self.backs.get(node(at, i)))
    }

    /// Sets a claim's way back, or takes it away. Returns the one before.
    pub(super) fn set_back(&mut self, at: u32, i: usize, back: Option<Back>) -> Option<Back> {
        let before = self.back(at, i);
        let slot = &mut self.slots[at as usize];
        slot.flags &= !RELAYED[i];
        if let Some(back) = back {
            slot.flags |= RELAYED[i];
            self.backs.set(node(at, i), back);
        }
        before
    }
}
