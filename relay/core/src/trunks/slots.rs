//! Which trunks there are: found or made when a claim names one, counted by claims, and given to the next owner when none does.

use firsthop_shared::address::OwnerAddr;

use super::{Lead, Origin, Ride, Target, Trunk, TrunkId, Trunks};

impl Trunks {
    /// How many trunks are in use.
    pub(crate) fn len(&self) -> u32 {
        (self.trunks.len() - self.free.len()) as u32
    }

    /// How many trunks there can be.
    pub(crate) fn capacity(&self) -> u16 {
        self.capacity
    }

    /// The trunks that claims name: each slot, and where it leads.
    pub(crate) fn claimed(&self) -> impl Iterator<Item = (usize, Target)> + '_ {
        let trunks = self.trunks.iter().enumerate();
        trunks
            .filter(|(_, trunk)| trunk.claims > 0 && !matches!(trunk.target.lead, Lead::Lane(_)))
            .map(|(slot, trunk)| (slot, trunk.target))
    }

    /// The slot of a claim's trunk.
    pub(crate) fn slot_of(&self, id: TrunkId) -> usize {
        usize::from(id.slot)
    }

    /// Finds or makes the trunk to a target, and counts one claim on it. Nothing when all are taken, or no relay leads there.
    pub(crate) fn acquire(&mut self, target: Target) -> Option<TrunkId> {
        let slot = match self.find(&target) {
            Some(slot) => slot,
            None => self.make(target)?,
        };
        let trunk = &mut self.trunks[usize::from(slot)];
        trunk.claims += 1;
        Some(TrunkId {
            slot,
            generation: trunk.generation,
        })
    }

    /// Counts one claim more on a trunk that is held already.
    pub(crate) fn hold(&mut self, id: TrunkId) {
        self.trunks[usize::from(id.slot)].claims += 1;
    }

    /// Gives one claim on a trunk back.
    pub(crate) fn release_claim(&mut self, id: TrunkId) {
        let trunk = &mut self.trunks[usize::from(id.slot)];
        assert!(
            trunk.generation == id.generation && trunk.claims > 0,
            "a claim outlived its trunk"
        );
        trunk.claims -= 1;
        self.free_if_unused(id.slot);
    }

    /// Whether the end of one claim frees its trunk at once: no other names it, and nothing waits on it.
    pub(crate) fn is_held_once(&self, id: TrunkId) -> bool {
        let trunk = &self.trunks[usize::from(id.slot)];
        trunk.claims == 1 && trunk.open.is_none()
    }

    /// Whether a trunk leads to the owner's worker that wrote a record, whichever lane it takes.
    pub(crate) fn leads_to(&self, id: TrunkId, origin: &Origin) -> bool {
        let trunk = &self.trunks[usize::from(id.slot)];
        trunk.generation == id.generation && origin.is_at(&trunk.target)
    }

    /// Where a claim's trunk leads.
    pub(crate) fn target(&self, id: TrunkId) -> &Target {
        &self.trunks[usize::from(id.slot)].target
    }

    /// The owner that each record on a trunk must name, because its datagrams go to a relay.
    pub(crate) fn names(&self, id: TrunkId) -> Option<OwnerAddr> {
        let target = &self.trunks[usize::from(id.slot)].target;
        matches!(target.lead, Lead::Beyond(_)).then_some(target.address)
    }

    fn find(&self, target: &Target) -> Option<u16> {
        let slot = self.index.find(target.hash(&self.hasher), |slot| {
            self.trunks[slot as usize].target == *target
        })?;
        Some(slot as u16)
    }

    fn make(&mut self, target: Target) -> Option<u16> {
        let ride = match target.lead {
            Lead::Straight | Lead::Back => {
                self.room()?;
                Ride::Own(self.owners.acquire(target.address))
            }
            Lead::Lane(lane) => {
                self.room()?;
                let leader = self.leader(lane)?;
                Ride::Own(self.owners.acquire(leader))
            }
            Lead::Beyond(lane) => {
                let with = self.acquire(Target::lane(lane, target.shard))?;
                if self.room().is_none() {
                    self.release_claim(with);
                    return None;
                }
                Ride::With(with.slot)
            }
        };
        let hash = target.hash(&self.hasher);
        let fresh = |generation| Trunk {
            target,
            ride,
            generation,
            claims: 0,
            hash,
            open: None,
        };
        let slot = match self.free.pop() {
            Some(slot) => {
                let trunk = &mut self.trunks[usize::from(slot)];
                *trunk = fresh(trunk.generation);
                slot
            }
            None => {
                self.trunks.push(fresh(0));
                (self.trunks.len() - 1) as u16
            }
        };
        self.index.insert(hash, u32::from(slot));
        Some(slot)
    }

    /// Whether there are as many free trunks as one target can need: one of its own, and one that it rides with.
    pub(crate) fn has_room(&self) -> bool {
        usize::from(self.capacity) >= self.len() as usize + 2
    }

    /// Whether one more trunk can be made.
    fn room(&self) -> Option<()> {
        (!self.free.is_empty() || self.trunks.len() < usize::from(self.capacity)).then_some(())
    }

    /// A trunk that no claim names goes when nothing waits on it any more.
    pub(super) fn free_if_unused(&mut self, slot: u16) {
        let trunk = &mut self.trunks[usize::from(slot)];
        if trunk.claims == 0 && trunk.open.is_none() {
            trunk.generation = trunk.generation.wrapping_add(1);
            let (hash, ride) = (trunk.hash, trunk.ride);
            self.index.remove(hash, u32::from(slot));
            self.free.push(slot);
            match ride {
                Ride::Own(hop) => self.owners.release(hop),
                Ride::With(lane) => {
                    self.trunks[usize::from(lane)].claims -= 1;
                    // A lane rides with nobody: this goes no deeper.
                    self.free_if_unused(lane);
                }
            }
        }
    }
}
