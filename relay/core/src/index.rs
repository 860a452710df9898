//! A fixed hash index from keys to slot numbers: open addressing, no tombstones, no allocation after the start.
//!
//! The keys live in the slots of whoever owns the index; a bucket holds only the slot number and 32 bits of the key's hash.
//! These bits name the bucket where a search starts, so that deletion can shift later entries back without touching a
//! slot, and tell most strangers apart without a cache miss. At most half of the buckets are ever in use, so probes stay
//! short. The caller's hash must be keyed: clients choose their ports.

/// A bucket that holds no slot.
const VACANT: u32 = u32::MAX;

#[derive(Clone, Copy)]
struct Bucket {
    hash: u32,
    slot: u32,
}

/// An index of at most `capacity` slots.
pub(crate) struct Index {
    buckets: Box<[Bucket]>,
    mask: u32,
}

impl Index {
    /// Allocates buckets for `capacity` slots (16 to 32 bytes each).
    pub(crate) fn new(capacity: u32) -> Self {
        let buckets = (capacity.max(2) * 2).next_power_of_two();
        Self {
            buckets: vec![
                Bucket {
                    hash: 0,
                    slot: VACANT
                };
                buckets as usize
            ]
            .into_boxed_slice(),
            mask: buckets - 1,
        }
    }

    /// Loads the bucket where a search for this hash starts.
    pub(crate) fn warm(&self, hash: u32) {
        std::hint::black_box(self.buckets[(hash & self.mask) as usize].slot);
    }

    /// The slot in the bucket where a search for this hash starts, if its hash is the same.
    pub(crate) fn likely(&self, hash: u32) -> Option<u32> {
        let bucket = self.buckets[(hash & self.mask) as usize];
        (bucket.slot != VACANT && bucket.hash == hash).then_some(bucket.slot)
    }

    /// The slot of this hash that `is_key` accepts.
    pub(crate) fn find(&self, hash: u32, mut is_key: impl FnMut(u32) -> bool) -> Option<u32> {
        let mut at = hash & self.mask;
        loop {
            let bucket = self.buckets[at as usize];
            if bucket.slot == VACANT {
                return None;
            }
            if bucket.hash == hash && is_key(bucket.slot) {
                return Some(bucket.slot);
            }
            at = (at + 1) & self.mask;
        }
    }

    /// Adds a slot whose key is not in the index.
    pub(crate) fn insert(&mut self, hash: u32, slot: u32) {
        let mut at = hash & self.mask;
        while self.buckets[at as usize].slot != VACANT {
            at = (at + 1) & self.mask;
        }
        self.buckets[at as usize] = Bucket { hash, slot };
    }

    /// Removes a slot that was added under this hash, and closes the gap that it leaves in its run.
    pub(crate) fn remove(&mut self, hash: u32, slot: u32) {
        let mut gap = hash & self.mask;
        while self.buckets[gap as usize].slot != slot {
            assert!(
                self.buckets[gap as usize].slot != VACANT,
                "slot {slot} is not in the index"
            );
            gap = (gap + 1) & self.mask;
        }
        let mut at = gap;
        loop {
            at = (at + 1) & self.mask;
            let bucket = self.buckets[at as usize];
            if bucket.slot == VACANT {
                break;
            }
            // An entry may move back into the gap unless its search starts after the gap.
            let from_home = at.wrapping_sub(bucket.hash) & self.mask;
            let from_gap = at.wrapping_sub(gap) & self.mask;
            if from_home >= from_gap {
                self.buckets[gap as usize] = bucket;
                gap = at;
            }
        }
        self.buckets[gap as usize].slot = VACANT;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    proptest! {
        /// Few hashes and few buckets, so that runs collide, wrap around the end and close gaps all the time.
        #[test]
        fn finds_exactly_what_a_map_finds(
            steps in prop::collection::vec((any::<bool>(), 0u32..8), 1..200),
            hashes in prop::array::uniform8(prop_oneof![0u32..4, 13u32..18, any::<u32>()]),
        ) {
            let mut index = Index::new(8);
            let mut model = HashMap::new();
            for (add, slot) in steps {
                let hash = hashes[slot as usize];
                if add && !model.contains_key(&slot) {
                    index.insert(hash, slot);
                    model.insert(slot, hash);
                } else if !add && model.remove(&slot).is_some() {
                    index.remove(hash, slot);
                }
                for slot in 0..8u32 {
                    let found = index.find(hashes[slot as usize], |s| s == slot);
                    prop_assert_eq!(found.is_some(), model.contains_key(&slot));
                }
            }
        }
    }
}
