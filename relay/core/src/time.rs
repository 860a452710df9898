//! Time as the relay core takes it: a number that the caller read from a monotonic clock.

/// Microseconds since a start that the caller chose once for the process. It never goes back.
///
/// A turn of the pump reads the clock once and passes the same value to every call.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Micros(pub u64);

/// One tick is two to the power of this many microseconds: 65.536 ms.
const TICK_BITS: u32 = 16;

impl Micros {
    /// The coarse time that flows are stamped with: units of 65.536 ms, enough for 8.9 years in 32 bits.
    #[must_use]
    pub const fn ticks(self) -> u32 {
        (self.0 >> TICK_BITS) as u32
    }

    /// Whole seconds, as the trunk's replay filter takes them.
    #[must_use]
    pub const fn secs(self) -> u32 {
        (self.0 / 1_000_000) as u32
    }

    /// The time `later` after this one.
    #[must_use]
    pub const fn after(self, later: Micros) -> Micros {
        Micros(self.0.saturating_add(later.0))
    }
}
