//! How late a core's timers fire: a histogram with fixed buckets, and the small task of each core that fills it.
//!
//! A pump that does not yield in time starves everything else on its executor. The task sleeps, and notes by how much it
//! overslept. It runs beside the pump on the same executor, costs one wake-up per [`LATENESS_INTERVAL`], shares nothing with
//! the packet path, and allocates nothing of its own; what it has counted goes where the other counters go.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::counters::Published;
use crate::limits::{LATENESS_INTERVAL, PUBLISH_INTERVAL};

/// Upper bounds of the buckets, in microseconds, ascending; one bucket more takes what is later.
pub const BOUNDS: [u32; 18] = [
    100, 250, 500, 1_000, 1_500, 2_000, 3_000, 4_000, 6_000, 8_000, 10_000, 12_500, 15_000, 20_000,
    30_000, 50_000, 100_000, 1_000_000,
];

/// Buckets, the unbounded one included.
pub const BUCKETS: usize = BOUNDS.len() + 1;

/// By how much timers were late.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Lateness {
    /// By bucket, how often.
    pub buckets: [u64; BUCKETS],
    /// All of them together, in microseconds.
    pub sum: u64,
}

impl Lateness {
    /// Counts a timer that fired so late.
    pub fn record(&mut self, late: Duration) {
        let micros = u64::try_from(late.as_micros()).unwrap_or(u64::MAX);
        let bucket = BOUNDS.partition_point(|&bound| u64::from(bound) < micros);
        self.buckets[bucket] += 1;
        self.sum = self.sum.saturating_add(micros);
    }
}

/// Sleeps again and again, and publishes how late it woke. Ends with its executor.
pub(crate) async fn watch(published: Arc<Published>) {
    const ROUNDS: u128 = PUBLISH_INTERVAL.as_nanos() / LATENESS_INTERVAL.as_nanos();
    let mut lateness = Lateness::default();
    loop {
        for _ in 0..ROUNDS {
            let due = Instant::now() + LATENESS_INTERVAL;
            glommio::timer::sleep(LATENESS_INTERVAL).await;
            lateness.record(Instant::now().saturating_duration_since(due));
        }
        published.publish_lateness(&lateness);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bucket_of(micros: u64) -> usize {
        let mut lateness = Lateness::default();
        lateness.record(Duration::from_micros(micros));
        assert_eq!(lateness.sum, micros);
        let hit = lateness.buckets.iter().position(|&count| count == 1);
        hit.expect("counted once")
    }

    #[test]
    fn a_bucket_holds_what_is_not_above_its_bound() {
        assert_eq!(bucket_of(0), 0);
        for (bucket, &bound) in BOUNDS.iter().enumerate() {
            assert_eq!(bucket_of(u64::from(bound)), bucket);
            assert_eq!(bucket_of(u64::from(bound) + 1), bucket + 1);
        }
    }

    #[test]
    fn what_is_later_than_every_bound_is_counted_too() {
        assert_eq!(bucket_of(3_600_000_000), BUCKETS - 1);
        let mut lateness = Lateness::default();
        lateness.record(Duration::MAX);
        lateness.record(Duration::MAX);
        assert_eq!(lateness.buckets[BUCKETS - 1], 2);
        assert_eq!(lateness.sum, u64::MAX);
    }

    #[test]
    fn bounds_ascend_and_the_target_is_one_of_them() {
        assert!(BOUNDS.is_sorted_by(|a, b| a < b));
        // Whether timers are late by less than 15 ms must be readable.
        assert!(BOUNDS.contains(&15_000));
    }
}
