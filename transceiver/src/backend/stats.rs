//! What a worker's connections to model servers have done, for the metrics page.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;

use super::translator::{Loss, LossCause};
use crate::times::{self, SharedTimes, Times};

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
    pub connect: SharedTimes,
    /// From the end of a user's turn to the first audio of its answer.
    pub answer: SharedTimes,
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

/// Writes the counters of each worker on the metrics page, and the times of all together.
///
/// # Errors
/// What the page itself says.
pub fn encode(encoder: &mut DescriptorEncoder<'_>, workers: &[Arc<BackendStats>]) -> fmt::Result {
    type Pick = fn(&BackendStats) -> &SharedTimes;
    let histograms: [(&str, &str, Pick); 2] = [
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
        let mut all = Times::default();
        for stats in workers {
            all.join(&pick(stats).read());
        }
        times::encode(encoder, name, help, &[(None, all)])?;
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
