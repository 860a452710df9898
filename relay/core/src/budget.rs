//! How much of something a core spends in a time, whatever is asked of it: a budget that refills with time.

use crate::time::Micros;

/// One piece, in units that a microsecond refills a whole number of.
const COST: u64 = 1_000_000;

/// Pieces that may still be had: `burst` at the most, refilled at `per_second`.
pub(crate) struct Budget {
    left: u64,
    burst: u64,
    per_second: u64,
    refilled: Micros,
}

impl Budget {
    /// A full budget.
    pub(crate) fn new(now: Micros, burst: u32, per_second: u32) -> Self {
        let burst = u64::from(burst) * COST;
        Self {
            left: burst,
            burst,
            per_second: u64::from(per_second),
            refilled: now,
        }
    }

    /// Adds what the time since the last refill allows. Once a turn is enough.
    pub(crate) fn refill(&mut self, now: Micros) {
        let passed = now.0.saturating_sub(self.refilled.0);
        let earned = passed.saturating_mul(self.per_second);
        self.left = self.left.saturating_add(earned).min(self.burst);
        self.refilled = now;
    }

    /// Takes one piece, if there is one.
    pub(crate) fn take(&mut self) -> bool {
        let left = self.left.checked_sub(COST);
        self.left = left.unwrap_or(self.left);
        left.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BURST: u32 = 1_024;
    const PER_MS: u32 = 64;

    fn full() -> Budget {
        Budget::new(Micros(0), BURST, 1_000 * PER_MS)
    }

    fn taken(budget: &mut Budget) -> u32 {
        let mut count = 0;
        while budget.take() {
            count += 1;
        }
        count
    }

    #[test]
    fn gives_its_burst_and_then_its_rate_whatever_the_turns() {
        let mut budget = full();
        assert_eq!(taken(&mut budget), BURST);
        let mut count = 0;
        for turn in 1..=10_000u64 {
            budget.refill(Micros(turn * 7));
            count += taken(&mut budget);
        }
        assert_eq!(count, 70 * PER_MS);
    }

    #[test]
    fn holds_no_more_than_its_burst() {
        let mut budget = full();
        taken(&mut budget);
        budget.refill(Micros(u64::MAX));
        assert_eq!(taken(&mut budget), BURST);
    }
}
