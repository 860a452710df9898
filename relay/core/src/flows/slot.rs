//! One flow as it lies in memory.

use std::num::NonZeroU32;

use firsthop_shared::address::{FlowHandle, Restart};
use firsthop_shared::limits::UFRAG_LEN_IPV6;
use siphasher::sip::SipHasher13;

use super::{Claim, FlowKey};
use crate::limits::{CLAIMS_PER_FLOW, FLOW_SLOT_BITS};

pub(super) const LIVE: [u8; CLAIMS_PER_FLOW] = [1, 2];
pub(super) const PROVEN: [u8; CLAIMS_PER_FLOW] = [4, 8];
/// Of two provisional claims the second is the older one.
pub(super) const SECOND_IS_OLDER: u8 = 16;

/// Another relay brought the claim's newest packet: records of its session go back there.
pub(super) const RELAYED: [u8; CLAIMS_PER_FLOW] = [32, 64];

pub(super) const GENERATION_MASK: u16 = (1 << (u32::BITS - FLOW_SLOT_BITS)) - 1;

/// A ufrag as a flow remembers it: 32 bits of its hash under the secret of one core's table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Mark(NonZeroU32);

impl Mark {
    /// The mark of whatever a request names as its ufrag. No longer one is ours: the rest of that is not looked at.
    pub(super) fn new(hasher: &SipHasher13, ufrag: &[u8]) -> Self {
        let hash = hasher.hash(&ufrag[..ufrag.len().min(UFRAG_LEN_IPV6)]) as u32;
        Self(NonZeroU32::new(hash).unwrap_or(NonZeroU32::MAX))
    }

    /// The mark as a number, for a table with the same secret.
    pub(super) fn to_raw(self) -> u32 {
        self.0.get()
    }

    /// The mark from the number that [`Mark::to_raw`] gave.
    pub(super) fn from_raw(raw: NonZeroU32) -> Self {
        Self(raw)
    }
}

/// One flow: everything that a packet needs, in one cache line.
#[derive(Clone, Copy)]
#[repr(align(64))]
pub(super) struct Slot {
    pub(super) key: FlowKey,
    pub(super) claims: [Claim; CLAIMS_PER_FLOW],
    /// The ufrag of each claim's last verified request; none for a claim that a record restored.
    pub(super) marks: [Option<Mark>; CLAIMS_PER_FLOW],
    /// How many ICE restarts of each claim's session have been seen, for the flow cache.
    pub(super) restarts: [Restart; CLAIMS_PER_FLOW],
    /// Tick of the last packet either way.
    pub(super) last_seen: u32,
    /// Tick of the last request that was verified at nobody's expense.
    pub(super) free_check: u32,
    /// The low bits of the key's hash, to find the bucket on removal.
    pub(super) hash: u32,
    pub(super) generation: u16,
    pub(super) flags: u8,
}

const _: () = assert!(size_of::<Slot>() == 64);

impl Slot {
    /// A slot without a flow. Of the generation the low 12 bits count.
    pub(super) fn vacant(generation: u16) -> Self {
        Self {
            key: FlowKey::default(),
            claims: [Claim::default(); CLAIMS_PER_FLOW],
            marks: [None; CLAIMS_PER_FLOW],
            restarts: [Restart(0); CLAIMS_PER_FLOW],
            last_seen: 0,
            free_check: 0,
            hash: 0,
            generation: generation & GENERATION_MASK,
            flags: 0,
        }
    }

    pub(super) fn is_live(&self, claim: usize) -> bool {
        self.flags & LIVE[claim] != 0
    }

    pub(super) fn is_proven(&self, claim: usize) -> bool {
        self.flags & PROVEN[claim] != 0
    }

    pub(super) fn is_relayed(&self, claim: usize) -> bool {
        self.flags & RELAYED[claim] != 0
    }

    /// Which of the live claims this is.
    pub(super) fn position(&self, claim: &Claim) -> Option<usize> {
        (0..CLAIMS_PER_FLOW).find(|i| self.is_live(*i) && self.claims[*i].same(claim))
    }

    /// The handle that names this slot, which is number `at`, in its present generation.
    pub(super) fn handle(&self, at: u32) -> FlowHandle {
        FlowHandle(u32::from(self.generation) << FLOW_SLOT_BITS | at)
    }

    /// Of a flow's two claims the one that a third replaces: never the proven one.
    pub(super) fn older_provisional(&self) -> usize {
        if self.is_proven(0) {
            1
        } else if self.is_proven(1) {
            0
        } else {
            usize::from(self.flags & SECOND_IS_OLDER != 0)
        }
    }
}
