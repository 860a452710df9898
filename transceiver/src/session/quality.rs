//! What RTCP says of a call's path: round trip, jitter and loss, as the client's reports and our own have it.

use std::time::Duration;

use str0m::stats::{MediaEgressStats, MediaIngressStats};

/// The path of one call, summed up over its reports.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Quality {
    clock_rate: u32,
    rtt: Mean,
    jitter_down: Mean,
    jitter_up: Mean,
    lost_down: u64,
    sent: u64,
    last: LastReport,
}

/// What the last report of the client's said; nothing of what it did not say.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize)]
pub struct LastReport {
    /// The round trip in milliseconds.
    pub rtt_ms: Option<u64>,
    /// The jitter of what it receives, in milliseconds.
    pub jitter_ms: Option<u64>,
    /// The part of packets that it lost since its report before, 0 to 1.
    pub lost: Option<f32>,
}

/// What came of it, for the log line and the metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct QualitySummary {
    /// The mean round trip in milliseconds; nothing when no report told.
    pub rtt_ms: Option<u64>,
    /// The mean jitter of what the client received, in milliseconds.
    pub jitter_down_ms: Option<u64>,
    /// The mean jitter of what we received, in milliseconds.
    pub jitter_up_ms: Option<u64>,
    /// Packets that did not reach the client, as it counts.
    pub lost_down: u64,
    /// RTP packets sent.
    pub sent: u64,
}

impl QualitySummary {
    /// What metrics sum up over ended calls: the name, and what it is.
    pub const SUMS: [(&'static str, &'static str); 2] = [
        ("packets_sent", "RTP packets sent in ended calls"),
        (
            "packets_lost_down",
            "Of these, packets that clients reported as lost",
        ),
    ];

    /// The addends of one call, in the order of [`Self::SUMS`].
    #[must_use]
    pub fn addends(&self) -> [u64; Self::SUMS.len()] {
        [self.sent, self.lost_down]
    }
}

impl Quality {
    /// A path before its first report; jitter is counted in ticks of this clock.
    pub(super) fn new(clock_rate: u32) -> Self {
        Self {
            clock_rate,
            ..Self::default()
        }
    }

    /// Takes what the engine says of what we send. Returns the part of packets lost, when a report came since the last time.
    pub(super) fn egress(&mut self, stats: &MediaEgressStats) -> Option<f32> {
        self.sent = stats.packets;
        let remote = stats.remote.as_ref()?;
        // A signed number of 24 bits (RFC 3550 section 6.4.1), below zero where duplicates outnumber losses; the engine reads it
        // without its sign. More than was sent is no count.
        self.lost_down = match remote.packets_lost {
            LOSS_NEGATIVE.. => 0,
            lost => lost.min(stats.packets),
        };
        // Each report tells of all three; without a new one the old ones are repeated.
        let lost = stats.loss?;
        let jitter = self.time(remote.jitter);
        self.jitter_down.add(jitter);
        if let Some(rtt) = stats.rtt {
            self.rtt.add(rtt);
        }
        let ms = |time: Duration| u64::try_from(time.min(LONGEST).as_millis()).unwrap_or(u64::MAX);
        self.last = LastReport {
            rtt_ms: stats.rtt.map(ms).or(self.last.rtt_ms),
            jitter_ms: Some(ms(jitter)),
            lost: Some(lost),
        };
        Some(lost)
    }

    /// Takes what the engine says of what we receive.
    pub(super) fn ingress(&mut self, stats: &MediaIngressStats) {
        if stats.loss.is_some() {
            self.jitter_up.add(self.time(stats.jitter));
        }
    }

    pub(super) fn last(&self) -> LastReport {
        self.last
    }

    pub(super) fn summary(&self) -> QualitySummary {
        QualitySummary {
            rtt_ms: self.rtt.milliseconds(),
            jitter_down_ms: self.jitter_down.milliseconds(),
            jitter_up_ms: self.jitter_up.milliseconds(),
            lost_down: self.lost_down,
            sent: self.sent,
        }
    }

    fn time(&self, ticks: u32) -> Duration {
        Duration::from_secs(u64::from(ticks)) / self.clock_rate.max(1)
    }
}

/// The mean of some times.
#[derive(Clone, Copy, Debug, Default)]
struct Mean {
    sum: Duration,
    count: u32,
}

/// From here on a cumulative loss stands for a number below zero.
const LOSS_NEGATIVE: u64 = 1 << 23;

/// A client may say anything: no round trip and no jitter that an audio call survives is longer.
const LONGEST: Duration = Duration::from_secs(10);

impl Mean {
    fn add(&mut self, time: Duration) {
        self.sum += time.min(LONGEST);
        self.count += 1;
    }

    fn milliseconds(&self) -> Option<u64> {
        let mean = self.sum.checked_div(self.count)?;
        Some(u64::try_from(mean.as_millis()).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use str0m::stats::RemoteIngressStats;

    use super::*;

    fn egress(loss: Option<f32>, jitter: u32, rtt: u64, lost: u64) -> MediaEgressStats {
        MediaEgressStats {
            mid: "0".into(),
            rid: None,
            bytes: 1,
            packets: 500,
            firs: 0,
            plis: 0,
            nacks: 0,
            rtt: Some(Duration::from_millis(rtt)),
            loss,
            timestamp: Instant::now(),
            remote: Some(RemoteIngressStats {
                jitter,
                maximum_sequence_number: 1.into(),
                packets_lost: lost,
            }),
        }
    }

    #[test]
    fn reports_are_summed_up_once_each() {
        let mut quality = Quality::new(48_000);
        assert_eq!(quality.summary(), QualitySummary::default());
        assert_eq!(quality.egress(&egress(Some(0.5), 480, 40, 10)), Some(0.5));
        assert_eq!(quality.egress(&egress(None, 480, 40, 10)), None);
        assert_eq!(quality.egress(&egress(Some(0.0), 1_440, 80, 12)), Some(0.0));
        let summary = quality.summary();
        assert_eq!(
            (summary.rtt_ms, summary.jitter_down_ms),
            (Some(60), Some(20))
        );
        assert_eq!((summary.sent, summary.lost_down), (500, 12));
        assert_eq!(summary.addends(), [500, 12]);
    }

    #[test]
    fn what_a_client_makes_up_stays_in_bounds() {
        let mut quality = Quality::new(8_000);
        for _ in 0..1_000 {
            quality.egress(&egress(Some(1.0), u32::MAX, 1 << 60, 0xff_ffff));
        }
        let summary = quality.summary();
        assert_eq!(
            (summary.rtt_ms, summary.jitter_down_ms),
            (Some(10_000), Some(10_000))
        );
        // As a signed number that is below zero.
        assert_eq!(summary.lost_down, 0);
        quality.egress(&egress(Some(1.0), 0, 0, LOSS_NEGATIVE - 1));
        assert_eq!(quality.summary().lost_down, 500);
    }
}
