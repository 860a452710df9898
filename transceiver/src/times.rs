//! Histograms of times: how they are counted, and how the metrics page shows them.
//!
//! All have the same buckets, from a millisecond to ten seconds: a frame that fades and a model server that is awaited are both in them.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;

/// The bounds of the buckets, in microseconds, ascending; one bucket more takes what is longer.
pub const BOUNDS: [u64; 14] = [
    1_000, 2_500, 5_000, 10_000, 20_000, 40_000, 80_000, 160_000, 320_000, 640_000, 1_280_000,
    2_560_000, 5_120_000, 10_240_000,
];

/// Buckets, the unbounded one included.
const BUCKETS: usize = BOUNDS.len() + 1;

const SECOND: f64 = 1e6;

/// Times that were counted, as plain integers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    buckets: [u64; BUCKETS],
    /// In microseconds.
    sum: u64,
}

impl Times {
    /// Counts one time.
    pub fn add(&mut self, time: Duration) {
        let (bucket, micros) = place(time);
        self.buckets[bucket] += 1;
        self.sum = self.sum.saturating_add(micros);
    }

    /// Counts the times of another histogram too.
    pub fn join(&mut self, other: &Self) {
        for (count, more) in self.buckets.iter_mut().zip(other.buckets) {
            *count += more;
        }
        self.sum = self.sum.saturating_add(other.sum);
    }

    /// How many were counted.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// All of them together.
    #[must_use]
    pub fn sum(&self) -> Duration {
        Duration::from_micros(self.sum)
    }
}

/// The same, as another thread may read them.
#[derive(Debug, Default)]
pub struct SharedTimes {
    buckets: [AtomicU64; BUCKETS],
    sum: AtomicU64,
}

impl SharedTimes {
    /// Counts one time.
    pub fn add(&self, time: Duration) {
        let (bucket, micros) = place(time);
        self.buckets[bucket].fetch_add(1, Relaxed);
        self.sum.fetch_add(micros, Relaxed);
    }

    /// Replaces what was counted. Only one thread may do this, and no other adds.
    pub fn publish(&self, times: &Times) {
        for (to, from) in self.buckets.iter().zip(times.buckets) {
            to.store(from, Relaxed);
        }
        self.sum.store(times.sum, Relaxed);
    }

    /// What was counted.
    #[must_use]
    pub fn read(&self) -> Times {
        Times {
            buckets: std::array::from_fn(|bucket| self.buckets[bucket].load(Relaxed)),
            sum: self.sum.load(Relaxed),
        }
    }
}

/// The bucket of a time, and the time in microseconds.
fn place(time: Duration) -> (usize, u64) {
    let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    (BOUNDS.partition_point(|bound| *bound < micros), micros)
}

/// Writes a family of histograms on the metrics page; one without a label is alone in it. The unit is appended to the name.
///
/// # Errors
/// What the page itself says.
pub fn encode(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    histograms: &[(Option<(&str, &str)>, Times)],
) -> fmt::Result {
    let mut family =
        encoder.encode_descriptor(name, help, Some(&Unit::Seconds), MetricType::Histogram)?;
    for (label, times) in histograms {
        let bounds = BOUNDS.map(|micros| micros as f64 / SECOND);
        let bounds = bounds.into_iter().chain([f64::INFINITY]);
        let buckets: Vec<(f64, u64)> = bounds.zip(times.buckets).collect();
        let (sum, count) = (times.sum as f64 / SECOND, times.count());
        match label {
            Some(label) => family
                .encode_family(&[*label])?
                .encode_histogram::<NoLabelSet>(sum, count, &buckets, None)?,
            None => family.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_falls_into_the_first_bucket_that_holds_it() {
        let mut times = Times::default();
        let shared = SharedTimes::default();
        for micros in [0, 1_000, 1_001, 10_240_000, 10_240_001, 60_000_000] {
            times.add(Duration::from_micros(micros));
            shared.add(Duration::from_micros(micros));
        }
        let mut expected = [0; BUCKETS];
        (expected[0], expected[1], expected[13], expected[14]) = (2, 1, 1, 2);
        assert_eq!(times.buckets, expected);
        assert_eq!(times.count(), 6);
        assert_eq!(times.sum(), Duration::from_micros(80_482_002));
        assert_eq!(shared.read(), times);
    }

    #[test]
    fn histograms_are_joined_and_published_whole() {
        let (mut one, mut other) = (Times::default(), Times::default());
        one.add(Duration::from_millis(3));
        other.add(Duration::from_millis(3));
        other.add(Duration::MAX);
        let shared = SharedTimes::default();
        shared.publish(&one);
        one.join(&other);
        assert_eq!((one.count(), one.buckets[2], one.buckets[14]), (3, 2, 1));
        assert_eq!(one.sum, u64::MAX);
        shared.publish(&one);
        assert_eq!(shared.read(), one);
    }

    #[test]
    fn bounds_ascend() {
        assert!(BOUNDS.is_sorted_by(|a, b| a < b));
    }
}
