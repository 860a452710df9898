//! How much of a core's time strangers may take: a budget of verifications that refills with time.

use crate::limits::{VERIFICATIONS_BURST, VERIFICATIONS_PER_MS};
use crate::time::Micros;

/// One verification, in units that a microsecond refills a whole number of.
const COST: u32 = 1_000;

/// Verifications that may still be made: [`VERIFICATIONS_BURST`] at the most, refilled at [`VERIFICATIONS_PER_MS`].
pub(crate) struct Budget {
    left: u32,
    refilled: Micros,
}

impl Budget {
    /// A full budget.
    pub(crate) fn new(now: Micros) -> Self {
        Self {
            left: VERIFICATIONS_BURST * COST,
            refilled: now,
        }
    }

    /// Adds what the time since the last refill allows. Once a turn is enough.
    pub(crate) fn refill(&mut self, now: Micros) {
        let passed = now.0.saturating_sub(self.refilled.0);
        let earned = passed.saturating_mul(u64::from(VERIFICATIONS_PER_MS));
        let left = u64::from(self.left).saturating_add(earned);
        self.left = left.min(u64::from(VERIFICATIONS_BURST * COST)) as u32;
        self.refilled = now;
    }

    /// Takes one verification, if there is one.
    pub(crate) fn take(&mut self) -> bool {
        let left = self.left.checked_sub(COST);
        self.left = left.unwrap_or(self.left);
        left.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(budget: &mut Budget) -> u32 {
        let mut count = 0;
        while budget.take() {
            count += 1;
        }
        count
    }

    #[test]
    fn gives_its_burst_and_then_its_rate_whatever_the_turns() {
        let mut budget = Budget::new(Micros(0));
        assert_eq!(taken(&mut budget), VERIFICATIONS_BURST);
        let mut count = 0;
        for turn in 1..=10_000u64 {
            budget.refill(Micros(turn * 7));
            count += taken(&mut budget);
        }
        assert_eq!(count, 70 * VERIFICATIONS_PER_MS);
    }

    #[test]
    fn holds_no_more_than_its_burst() {
        let mut budget = Budget::new(Micros(0));
        taken(&mut budget);
        budget.refill(Micros(u64::MAX));
        assert_eq!(taken(&mut budget), VERIFICATIONS_BURST);
    }
}
