//! How often something may happen: a token bucket.

use std::time::{Duration, Instant};

const SECOND: u128 = 1_000_000_000;

/// A token bucket: `rate` tokens per second, `burst` at most.
#[derive(Debug)]
pub(crate) struct Bucket {
    rate: u32,
    burst: u32,
    tokens: u32,
    /// Until when time has become tokens: not the part of it that makes less than one.
    refilled: Instant,
}

impl Bucket {
    /// One that holds its burst.
    pub(crate) fn full(rate: u32, burst: u32, now: Instant) -> Self {
        Self {
            rate,
            burst,
            tokens: burst,
            refilled: now,
        }
    }

    /// Takes tokens; returns false, and takes none, when there are not so many.
    pub(crate) fn take(&mut self, wanted: u32, now: Instant) -> bool {
        let elapsed = now.saturating_duration_since(self.refilled).as_nanos();
        let parts = elapsed * u128::from(self.rate);
        if parts >= SECOND {
            let earned = u32::try_from(parts / SECOND).unwrap_or(u32::MAX);
            self.tokens = self.tokens.saturating_add(earned).min(self.burst);
            // Less than a token's time, and so less than a second.
            let rest = parts % SECOND / u128::from(self.rate);
            self.refilled = now - Duration::from_nanos(rest as u64);
        }
        let left = self.tokens.checked_sub(wanted);
        self.tokens = left.unwrap_or(self.tokens);
        left.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_gives_its_burst_and_then_its_rate() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut bucket = Bucket::full(1_000, 500, start);
        assert!(!bucket.take(501, start), "more than it ever holds");
        assert!(bucket.take(500, start));
        assert!(!bucket.take(1, start));
        assert!(bucket.take(100, at(100)));
        assert!(!bucket.take(1, at(100)));
        assert!(bucket.take(500, at(60_000)), "it holds no more than that");
        assert!(!bucket.take(1, at(60_000)));
    }

    #[test]
    fn its_rate_is_the_same_however_often_it_is_asked() {
        const BURST: u32 = 8;
        for rate in [1, 3, 100, 1_000, 7_919] {
            for micros in [1, 333, 1_000, 1_001, 1_900, 9_999, 700_000] {
                let start = Instant::now();
                let mut bucket = Bucket::full(rate, BURST, start);
                assert!(bucket.take(BURST, start));
                let asked = Duration::from_micros(micros);
                let (mut taken, mut most) = (0, 0.0);
                for n in 1..=20_000 {
                    let now = start + asked * n;
                    while bucket.take(1, now) {
                        taken += 1;
                    }
                    // What fills it between two questions is more than it holds.
                    most = (now - start).as_secs_f64() * f64::from(rate);
                }
                let bound = 20_000.0 * f64::from(BURST);
                let least = most.min(bound);
                let taken = f64::from(taken);
                let about = format!("{taken} of {least}, {rate} a second, asked each {asked:?}");
                assert!(taken <= most && taken >= 0.999 * least - 1.0, "{about}");
            }
        }
    }
}
