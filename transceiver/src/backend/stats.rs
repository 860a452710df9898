//! What a worker's connections to model servers have done, for the metrics page.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::registry::Unit;

use super::translator::{Loss, LossCause};

/// The bounds of the buckets of [`Durations`], in milliseconds; above the last is one more.
pub const BUCKETS_MS: [u64; 9] = [25, 50, 100, 200, 400, 800, 1_600, 3_200, 6_400];

/// A histogram of times, as another thread may read it.
#[derive(Debug, Default)]
pub struct Durations {
    buckets: [AtomicU64; BUCKETS_MS.len() + 1],
    sum_ms: AtomicU64,
}

impl Durations {
    /// Counts one time.
    pub fn add(&self, time: Duration) {
        let ms = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let bucket = BUCKETS_MS.iter().position(|bound| ms <= *bound);
        self.buckets[bucket.unwrap_or(BUCKETS_MS.len())].fetch_add(1, Relaxed);
        self.sum_ms.fetch_add(ms, Relaxed);
    }

    /// How many fell into each bucket.
    #[must_use]
    pub fn counts(&self) -> [u64; BUCKETS_MS.len() + 1] {
        std::array::from_fn(|n| self.buckets[n].load(Relaxed))
    }

    /// The sum of all, in milliseconds.
    #[must_use]
    pub fn sum_ms(&self) -> u64 {
        self.sum_ms.load(Relaxed)
    }
}

/// Why connections were lost, as metrics name it.
pub const LOSSES: [&str; 7] = [
    "unreachable",
    "timed_out",
    "status",
    "closed",
    "expired",
    "violation",
    "fault",
];

/// The counters of one worker's connections. They change a few times in a session, never with a packet.
#[derive(Debug, Default)]
pub struct BackendStats {
    /// From a session's beginning to the answer of its server's handshake.
    pub connect: Durations,
    /// From the end of a user's turn to the first audio of its answer.
    pub answer: Durations,
    /// Connections after a session's first.
    pub reconnects: AtomicU64,
    /// Connections that broke or could not be made, in the order of [`LOSSES`].
    pub losses: [AtomicU64; LOSSES.len()],
}

impl BackendStats {
    pub(crate) fn connected(&self, took: Duration) {
        self.connect.add(took);
    }

    pub(crate) fn answered(&self, took: Duration) {
        self.answer.add(took);
    }

    pub(crate) fn reconnected(&self) {
        self.reconnects.fetch_add(1, Relaxed);
    }

    pub(crate) fn lost(&self, loss: &Loss) {
        let at = match loss.cause {
            LossCause::Unreachable => 0,
            LossCause::TimedOut => 1,
            LossCause::Status(_) => 2,
            LossCause::Closed(_) => 3,
            LossCause::Expired => 4,
            LossCause::Violation => 5,
            LossCause::Fault => 6,
        };
        self.losses[at].fetch_add(1, Relaxed);
    }
}

/// Writes the counters of each worker on the metrics page.
///
/// # Errors
/// What the page itself says.
pub fn encode(encoder: &mut DescriptorEncoder<'_>, workers: &[Arc<BackendStats>]) -> fmt::Result {
    type Pick<T> = fn(&BackendStats) -> &T;
    let histograms: [(&str, &str, Pick<Durations>); 2] = [
        (
            "backend_connect",
            "From a session's beginning to its model server's answer to the handshake",
            |stats| &stats.connect,
        ),
        (
            "backend_first_audio",
            "From the end of a user's turn to the first audio of its answer, as it comes from the model server",
            |stats| &stats.answer,
        ),
    ];
    for (name, help, pick) in histograms {
        let unit = Unit::Seconds;
        let mut family =
            encoder.encode_descriptor(name, help, Some(&unit), MetricType::Histogram)?;
        for (worker, stats) in workers.iter().enumerate() {
            let (durations, worker) = (pick(stats), worker.to_string());
            let counts = durations.counts();
            let bounds = BUCKETS_MS.map(|ms| ms as f64 / 1_000.0);
            let bounds = bounds.into_iter().chain([f64::MAX]);
            let buckets: Vec<(f64, u64)> = bounds.zip(counts).collect();
            family
                .encode_family(&[("worker", worker.as_str())])?
                .encode_histogram::<NoLabelSet>(
                    durations.sum_ms() as f64 / 1_000.0,
                    counts.iter().sum(),
                    &buckets,
                    None,
                )?;
        }
    }
    let help = "Connections to model servers made again after a loss";
    let mut family =
        encoder.encode_descriptor("backend_reconnects", help, None, MetricType::Counter)?;
    for (worker, stats) in workers.iter().enumerate() {
        let worker = worker.to_string();
        let labels = [("worker", worker.as_str())];
        let metric = family.encode_family(&labels)?;
        ConstCounter::new(stats.reconnects.load(Relaxed)).encode(metric)?;
    }
    let help = "Connections to model servers that broke or could not be made, by cause";
    let mut family =
        encoder.encode_descriptor("backend_losses", help, None, MetricType::Counter)?;
    for (worker, stats) in workers.iter().enumerate() {
        let worker = worker.to_string();
        for (cause, count) in LOSSES.iter().zip(&stats.losses) {
            let labels = [("worker", worker.as_str()), ("cause", cause)];
            let metric = family.encode_family(&labels)?;
            ConstCounter::new(count.load(Relaxed)).encode(metric)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_falls_into_the_first_bucket_that_holds_it() {
        let durations = Durations::default();
        for ms in [0, 25, 26, 6_400, 6_401, 60_000] {
            durations.add(Duration::from_millis(ms));
        }
        assert_eq!(durations.counts(), [2, 1, 0, 0, 0, 0, 0, 0, 1, 2]);
        assert_eq!(durations.sum_ms(), 25 + 26 + 6_400 + 6_401 + 60_000);
    }
}
