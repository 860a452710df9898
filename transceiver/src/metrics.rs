//! The metrics page: every worker's counters, read when the page is asked for.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use firsthop_service::traces::{Counts, CountsShown};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use tokio::sync::Semaphore;

use crate::audio::{Coding, ConversationCounters, Turns};
use crate::backend;
use crate::life::{EndReason, Phase, State};
use crate::limits;
use crate::reason::Reason;
use crate::session::QualitySummary;
use crate::worker::WorkerStats;

/// Reads the workers' counters on each scrape.
#[derive(Debug)]
struct Workers {
    stats: Vec<Arc<WorkerStats>>,
    capacity: u64,
    draining: Arc<AtomicBool>,
    sidebands: Arc<Semaphore>,
}

/// A labelled value of one worker.
type Sample<'a> = (usize, Option<(&'static str, &'static str)>, &'a AtomicU64);

impl Collector for Workers {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        type Pick = fn(&WorkerStats) -> &AtomicU64;
        let counters: [(&str, &str, Pick); 11] = [
            ("sessions_created", "Sessions made", |s| &s.created),
            ("sessions_connected", "Sessions that became live", |s| {
                &s.connected
            }),
            ("offers_refused", "Offers refused", |s| &s.refused),
            ("ice_restarts", "ICE restarts carried out", |s| &s.restarts),
            (
                "trunk_datagrams_received",
                "Trunk datagrams received",
                |s| &s.datagrams_in,
            ),
            ("trunk_records_received", "Trunk records received", |s| {
                &s.records_in
            }),
            ("trunk_datagrams_sent", "Trunk datagrams sent", |s| {
                &s.datagrams_out
            }),
            ("trunk_records_sent", "Trunk records sent", |s| {
                &s.records_out
            }),
            ("timers_served", "Session timers served", |s| &s.timers),
            (
                "trunk_send_errors",
                "Datagrams that the trunk socket refused for another cause than a full buffer",
                |s| &s.send_errors,
            ),
            (
                "trunk_receive_errors",
                "Errors on receiving from the trunk socket, ICMP answers included",
                |s| &s.receive_errors,
            ),
        ];
        for (name, help, pick) in counters {
            let samples = self.each(|s, out| out(None, pick(s)));
            family(&mut encoder, name, help, MetricType::Counter, &samples)?;
        }
        let samples = self.each(|s, out| {
            for reason in EndReason::ALL {
                out(Some(("reason", reason.label())), &s.ended[reason as usize]);
            }
        });
        family(
            &mut encoder,
            "sessions_ended",
            "Sessions ended, by reason",
            MetricType::Counter,
            &samples,
        )?;
        let samples = self.each(|s, out| {
            for (fault, count) in ConversationCounters::FAULTS.into_iter().zip(&s.audio) {
                out(Some(("fault", fault)), count);
            }
        });
        family(
            &mut encoder,
            "audio_faults",
            "What went wrong with the audio of calls that have ended, in the unit that each fault names",
            MetricType::Counter,
            &samples,
        )?;
        type PickAll = fn(&WorkerStats) -> &[AtomicU64];
        let phases: [(&str, &str, PickAll); 2] = [
            (
                "setup_calls",
                "Ended calls that reached this phase of their set-up",
                |s| &s.setup_calls,
            ),
            (
                "setup_milliseconds",
                "Sum of the times from the answer until these reached it",
                |s| &s.setup_ms,
            ),
        ];
        for (name, help, pick) in phases {
            let samples = self.each(|s, out| {
                for (phase, count) in Phase::ALL.into_iter().zip(pick(s)) {
                    out(Some(("phase", phase.label())), count);
                }
            });
            family(&mut encoder, name, help, MetricType::Counter, &samples)?;
        }
        for (at, (name, help)) in Turns::SUMS.into_iter().enumerate() {
            let samples = self.each(|s, out| out(None, &s.turns[at]));
            family(&mut encoder, name, help, MetricType::Counter, &samples)?;
        }
        for (at, (name, help)) in Coding::SUMS.into_iter().enumerate() {
            let samples = self.each(|s, out| out(None, &s.coding[at]));
            family(&mut encoder, name, help, MetricType::Counter, &samples)?;
        }
        for (at, (name, help)) in QualitySummary::SUMS.into_iter().enumerate() {
            let samples = self.each(|s, out| out(None, &s.quality[at]));
            family(&mut encoder, name, help, MetricType::Counter, &samples)?;
        }
        let samples = self.each(|s, out| {
            for reason in Reason::ALL {
                out(Some(("reason", reason.label())), &s.drops[reason as usize]);
            }
        });
        family(
            &mut encoder,
            "drops",
            "Datagrams, records, packets and messages dropped, by reason",
            MetricType::Counter,
            &samples,
        )?;
        let samples = self.each(|s, out| {
            for state in State::ALL {
                if state != State::Ended {
                    out(Some(("state", state.label())), &s.states[state as usize]);
                }
            }
        });
        family(
            &mut encoder,
            "sessions",
            "Sessions now, by state",
            MetricType::Gauge,
            &samples,
        )?;
        let samples = self.each(|s, out| out(None, &s.timer_late_us));
        family(
            &mut encoder,
            "timer_lateness_max_microseconds",
            "The latest that a session timer ever was",
            MetricType::Gauge,
            &samples,
        )?;
        let samples = self.each(|s, out| out(None, &s.kernel_drops));
        family(
            &mut encoder,
            "trunk_kernel_drops",
            "Datagrams that the kernel dropped at the worker's socket",
            MetricType::Gauge,
            &samples,
        )?;
        let backends: Vec<_> = self.stats.iter().map(|s| Arc::clone(&s.backend)).collect();
        backend::encode_stats(&mut encoder, &backends)?;
        single(
            &mut encoder,
            "capacity_sessions",
            "Sessions that fit all workers",
            self.capacity,
        )?;
        // Each that is open holds a permit.
        let free = self.sidebands.available_permits();
        single(
            &mut encoder,
            "sidebands",
            "Sidebands that are open",
            limits::SIDEBANDS_MAX.saturating_sub(free) as u64,
        )?;
        single(
            &mut encoder,
            "draining",
            "Whether no new sessions are taken",
            u64::from(self.draining.load(Relaxed)),
        )
    }
}

impl Workers {
    /// Collects samples of every worker.
    fn each<'a>(
        &'a self,
        pick: impl Fn(
            &'a WorkerStats,
            &mut dyn FnMut(Option<(&'static str, &'static str)>, &'a AtomicU64),
        ),
    ) -> Vec<Sample<'a>> {
        let mut samples = Vec::new();
        for (worker, stats) in self.stats.iter().enumerate() {
            pick(stats, &mut |label, value| {
                samples.push((worker, label, value));
            });
        }
        samples
    }
}

fn family(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    kind: MetricType,
    samples: &[Sample<'_>],
) -> fmt::Result {
    let mut family = encoder.encode_descriptor(name, help, None, kind)?;
    for (worker, label, value) in samples {
        let value = value.load(Relaxed);
        let worker = worker.to_string();
        let mut labels = vec![("worker", worker.as_str())];
        labels.extend(label);
        let metric = family.encode_family(&labels)?;
        match kind {
            MetricType::Counter => ConstCounter::new(value).encode(metric)?,
            _ => ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX)).encode(metric)?,
        }
    }
    Ok(())
}

fn single(encoder: &mut DescriptorEncoder<'_>, name: &str, help: &str, value: u64) -> fmt::Result {
    let metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX)).encode(metric)
}

/// The metrics of a process.
#[derive(Debug)]
pub struct Metrics(Registry);

impl Metrics {
    /// Shows these workers, with the prefix `firsthop_transceiver`. `sidebands` are the permits, [`limits::SIDEBANDS_MAX`] when none is open.
    #[must_use]
    pub fn new(
        stats: Vec<Arc<WorkerStats>>,
        sessions_per_worker: usize,
        draining: Arc<AtomicBool>,
        sidebands: Arc<Semaphore>,
        traces: Arc<Counts>,
    ) -> Self {
        let capacity = (stats.len() * sessions_per_worker) as u64;
        let mut registry = Registry::with_prefix("firsthop_transceiver");
        registry.register_collector(Box::new(Workers {
            stats,
            capacity,
            draining,
            sidebands,
        }));
        registry.register_collector(Box::new(CountsShown(traces)));
        Self(registry)
    }

    /// The page, in the Prometheus text format.
    ///
    /// # Errors
    /// Never, in practice: writing to a string does not fail.
    pub fn page(&self) -> Result<String, fmt::Error> {
        let mut page = String::new();
        encode(&mut page, &self.0)?;
        Ok(page)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn every_worker_and_reason_has_its_line() {
        let stats: Vec<_> = (0..2).map(|_| Arc::new(WorkerStats::default())).collect();
        stats[1].ended[EndReason::Reaped as usize].store(3, Relaxed);
        stats[1].drops[Reason::ForeignShard as usize].store(4, Relaxed);
        stats[0].states[State::Live as usize].store(5, Relaxed);
        stats[0].receive_errors.store(6, Relaxed);
        stats[0].audio[1].store(7, Relaxed);
        stats[1].quality[1].store(8, Relaxed);
        stats[0].setup_calls[Phase::Dtls as usize].store(9, Relaxed);
        stats[1].turns[0].store(10, Relaxed);
        stats[0].coding[3].store(11, Relaxed);
        stats[1].backend.connected(Duration::from_millis(40));
        stats[0].backend.answered(Duration::from_millis(500));
        stats[1].backend.lost(&backend::Loss {
            cause: backend::LossCause::TimedOut,
            retry: None,
        });
        let sidebands = Arc::new(Semaphore::new(limits::SIDEBANDS_MAX));
        let _open = sidebands.try_acquire_many(2).expect("two permits");
        let page = Metrics::new(
            stats,
            10,
            Arc::default(),
            Arc::clone(&sidebands),
            Arc::default(),
        )
        .page()
        .expect("a page");
        for line in [
            "firsthop_transceiver_sessions_ended_total{worker=\"1\",reason=\"reaped\"} 3",
            "firsthop_transceiver_drops_total{worker=\"1\",reason=\"foreign_shard\"} 4",
            "firsthop_transceiver_sessions{worker=\"0\",state=\"live\"} 5",
            "firsthop_transceiver_trunk_receive_errors_total{worker=\"0\"} 6",
            "firsthop_transceiver_trunk_send_errors_total{worker=\"0\"} 0",
            "firsthop_transceiver_audio_faults_total{worker=\"0\",fault=\"missing_packets\"} 7",
            "firsthop_transceiver_rtt_milliseconds_total{worker=\"1\"} 8",
            "firsthop_transceiver_packets_lost_down_total{worker=\"0\"} 0",
            "firsthop_transceiver_setup_calls_total{worker=\"0\",phase=\"dtls\"} 9",
            "firsthop_transceiver_setup_milliseconds_total{worker=\"1\",phase=\"audio_out\"} 0",
            "firsthop_transceiver_barge_ins_total{worker=\"1\"} 10",
            "firsthop_transceiver_encode_microseconds_total{worker=\"0\"} 11",
            "firsthop_transceiver_backend_connect_seconds_bucket{le=\"0.05\",worker=\"1\"} 1",
            "firsthop_transceiver_backend_connect_seconds_count{worker=\"1\"} 1",
            "firsthop_transceiver_backend_first_audio_seconds_sum{worker=\"0\"} 0.5",
            "firsthop_transceiver_backend_reconnects_total{worker=\"0\"} 0",
            "firsthop_transceiver_backend_losses_total{worker=\"1\",cause=\"timed_out\"} 1",
            "firsthop_transceiver_capacity_sessions 20",
            "firsthop_transceiver_sidebands 2",
            "firsthop_transceiver_draining 0",
            "firsthop_transceiver_trace_spans_total{outcome=\"exported\"} 0",
        ] {
            assert!(page.lines().any(|l| l == line), "{line} in\n{page}");
        }
    }
}
