//! How often something may happen: a token bucket.

use std::time::Instant;

/// A token bucket: `rate` tokens per second, `burst` at most.
#[derive(Debug)]
pub(crate) struct Bucket {
    rate: u32,
    burst: u32,
    tokens: u32,
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
        let elapsed = now.saturating_duration_since(self.refilled).as_millis();
        let earned = elapsed * u128::from(self.rate) / 1_000;
        if earned > 0 {
            let earned = u32::try_from(earned).unwrap_or(u32::MAX);
            self.tokens = self.tokens.saturating_add(earned).min(self.burst);
            self.refilled = now;
        }
        let left = self.tokens.checked_sub(wanted);
        self.tokens = left.unwrap_or(self.tokens);
        left.is_some()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

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
}
