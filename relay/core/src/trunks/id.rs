//! The name of a trunk, as claims keep it.

/// A trunk: an owner's worker, or what leads to other relays. Valid while a claim that names it lives.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct TrunkId {
    pub(super) slot: u16,
    pub(super) generation: u16,
}

impl TrunkId {
    /// The id as one number.
    pub(crate) fn to_bits(self) -> u32 {
        u32::from(self.slot) << 16 | u32::from(self.generation)
    }

    /// The id of a number that [`TrunkId::to_bits`] gave.
    pub(crate) fn from_bits(bits: u32) -> Self {
        Self {
            slot: (bits >> 16) as u16,
            generation: bits as u16,
        }
    }
}
