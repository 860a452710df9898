//! The metrics page: every worker's counters, read when the page is asked for.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use firsthop_service::about::About;
use firsthop_service::traces::{Counts, CountsShown};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use tokio::sync::Semaphore;

use crate::audio::{Coding, ConversationCounters, SAMPLE_RATE};
use crate::backend;
use crate::life::{EndReason, State};
use crate::limits;
use crate::reason::Reason;
use crate::session::QualitySummary;
use crate::worker::{WorkerStats, encode_call_times};

/// How many of a counter of microseconds are one second.
const MICROSECONDS: f64 = 1e6;

/// Reads the workers' counters on each scrape.
#[derive(Debug)]
struct Workers {
    stats: Vec<Arc<WorkerStats>>,
    /// Sessions that a worker takes at the most.
    capacity: u64,
    draining: Arc<AtomicBool>,
    sidebands: Arc<Semaphore>,
}

/// A labelled value of one worker.
type Sample<'a> = (usize, Option<(&'static str, &'static str)>, &'a AtomicU64);

impl Collector for Workers {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        type Pick = fn(&WorkerStats) -> &AtomicU64;
        let counters: [(&str, &str, Pick); 12] = [
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
                "trunk_datagrams_oversize",
                "Trunk datagrams larger than the path takes, sent as fragments",
                |s| &s.oversize,
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
        self.encode_faults(&mut encoder)?;
        encode_call_times(&mut encoder, self.stats.iter().map(|s| &s.times))?;
        for (at, (name, help)) in Coding::SUMS.into_iter().enumerate() {
            let samples = self.each(|s, out| out(None, &s.coding[at]));
            if name.ends_with("_seconds") {
                parts(&mut encoder, name, help, MICROSECONDS, &samples)?;
            } else {
                family(&mut encoder, name, help, MetricType::Counter, &samples)?;
            }
        }
        for (at, (name, help)) in QualitySummary::SUMS.into_iter().enumerate() {
            let samples = self.each(|s, out| out(None, &s.quality[at]));
            family(&mut encoder, name, help, MetricType::Counter, &samples)?;
        }
        let samples = self.each(|s, out| {
            for reason in Reason::ALL {
                out(Some(("reason", reason.label())), &s.drops[reason]);
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
        let mut latest = encoder.encode_descriptor(
            "timer_lateness_max_seconds",
            "The latest that a session timer ever was",
            None,
            MetricType::Gauge,
        )?;
        for (worker, _, micros) in self.each(|s, out| out(None, &s.timer_late_us)) {
            let seconds = micros.load(Relaxed) as f64 / MICROSECONDS;
            let worker = [("worker", worker.to_string())];
            ConstGauge::new(seconds).encode(latest.encode_family(&worker)?)?;
        }
        let samples = self.each(|s, out| out(None, &s.kernel_drops));
        family(
            &mut encoder,
            "socket_receive_drops",
            "Datagrams that the kernel dropped because the receive buffer of the worker's socket was full",
            MetricType::Counter,
            &samples,
        )?;
        let backends: Vec<_> = self.stats.iter().map(|s| Arc::clone(&s.backend)).collect();
        backend::encode_stats(&mut encoder, &backends)?;
        let mut capacity = encoder.encode_descriptor(
            "sessions_capacity",
            "Sessions that the worker takes at the most",
            None,
            MetricType::Gauge,
        )?;
        for worker in 0..self.stats.len() {
            let worker = [("worker", worker.to_string())];
            ConstGauge::new(self.capacity).encode(capacity.encode_family(&worker)?)?;
        }
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
    /// What went wrong with the audio of ended calls. What counts packets is one family; the rest has units of its own.
    fn encode_faults(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let samples = self.each(|s, out| {
            for (fault, count) in ConversationCounters::FAULTS.into_iter().zip(&s.audio) {
                if let Some(kind) = fault.strip_suffix("_packets") {
                    out(Some(("fault", kind)), count);
                }
            }
        });
        let help = "Packets of clients' audio in ended calls that were missing or could not be used, by what was wrong with them";
        family(
            encoder,
            "audio_packet_faults",
            help,
            MetricType::Counter,
            &samples,
        )?;
        for (fault, help) in [
            (
                "overrun_samples",
                "Samples that model servers gave beyond the room they were told of: dropped, in ended calls",
            ),
            (
                "unencoded_frames",
                "Frames for clients that the encoder refused, in ended calls",
            ),
            (
                "underruns",
                "Times that what was being played broke off because its model server had sent no more, in ended calls",
            ),
            (
                "dropped_events",
                "Events that were dropped because too many waited for a client's channel, in ended calls",
            ),
        ] {
            let samples = self.fault(fault);
            let name = format!("audio_{fault}");
            family(encoder, &name, help, MetricType::Counter, &samples)?;
        }
        let help = "Audio of clients that was made up for what did not come, in ended calls";
        let rate = f64::from(SAMPLE_RATE);
        let concealed = self.fault("concealed_samples");
        parts(encoder, "audio_concealed_seconds", help, rate, &concealed)
    }

    /// The counts of one of the faults.
    fn fault(&self, name: &str) -> Vec<Sample<'_>> {
        self.each(|s, out| {
            for (fault, count) in ConversationCounters::FAULTS.into_iter().zip(&s.audio) {
                if fault == name {
                    out(None, count);
                }
            }
        })
    }

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

/// Writes a family of counters in seconds that were counted in parts of a second.
fn parts(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    in_a_second: f64,
    samples: &[Sample<'_>],
) -> fmt::Result {
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
    for (worker, _, value) in samples {
        let seconds = value.load(Relaxed) as f64 / in_a_second;
        let worker = [("worker", worker.to_string())];
        ConstCounter::new(seconds).encode(family.encode_family(&worker)?)?;
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
    /// Shows these workers and the process, with the prefix `firsthop_transceiver`. `sidebands` are the permits, [`limits::SIDEBANDS_MAX`] when none is open.
    #[must_use]
    pub fn new(
        stats: Vec<Arc<WorkerStats>>,
        sessions_per_worker: usize,
        draining: Arc<AtomicBool>,
        sidebands: Arc<Semaphore>,
        about: &Arc<About>,
        traces: Arc<Counts>,
    ) -> Self {
        let mut registry = Registry::with_prefix("firsthop_transceiver");
        about.register(&mut registry);
        registry.register_collector(Box::new(Workers {
            stats,
            capacity: sessions_per_worker as u64,
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
    use crate::life::Phase;
    use crate::session::Summary;
    use crate::worker::CallTimes;

    fn none_open() -> Arc<Semaphore> {
        Arc::new(Semaphore::new(limits::SIDEBANDS_MAX))
    }

    fn show(stats: Vec<Arc<WorkerStats>>, sessions: usize, sidebands: Arc<Semaphore>) -> String {
        let about = About::new(&["keyring"]);
        let metrics = Metrics::new(
            stats,
            sessions,
            Arc::default(),
            sidebands,
            &about,
            Arc::default(),
        );
        metrics.page().expect("a page")
    }

    /// A call whose set-up got as far as DTLS, that was interrupted once.
    fn call_times() -> CallTimes {
        let mut call = Summary::default();
        call.life.setup.0[Phase::Dtls as usize] = Some(90);
        call.quality.jitter_up_ms = Some(30);
        call.audio.turns.barge_ins.add(Duration::from_micros(7_500));
        let mut times = CallTimes::default();
        times.take(&call);
        times
    }

    #[test]
    fn every_worker_and_reason_has_its_line() {
        let stats: Vec<_> = (0..2).map(|_| Arc::new(WorkerStats::default())).collect();
        stats[1].ended[EndReason::Reaped as usize].store(3, Relaxed);
        stats[1].drops[Reason::ForeignShard].store(4, Relaxed);
        stats[0].states[State::Live as usize].store(5, Relaxed);
        stats[0].receive_errors.store(6, Relaxed);
        stats[0].audio[1].store(7, Relaxed);
        stats[0].audio[6].store(36_000, Relaxed);
        stats[1].audio[9].store(9, Relaxed);
        stats[1].quality[1].store(8, Relaxed);
        stats[0].times.publish(&call_times());
        stats[1].times.publish(&call_times());
        stats[0].coding[3].store(11, Relaxed);
        stats[1].timer_late_us.store(2_500, Relaxed);
        stats[1].kernel_drops.store(12, Relaxed);
        stats[1].backend.connected(Duration::from_millis(40));
        stats[0].backend.answered(Duration::from_millis(500));
        stats[1].backend.lost(&backend::Loss {
            cause: backend::LossCause::TimedOut,
            retry: None,
        });
        let sidebands = Arc::new(Semaphore::new(limits::SIDEBANDS_MAX));
        let _open = sidebands.try_acquire_many(2).expect("two permits");
        let page = show(stats, 10, sidebands.clone());
        for line in [
            "firsthop_transceiver_sessions_ended_total{worker=\"1\",reason=\"reaped\"} 3",
            "firsthop_transceiver_drops_total{worker=\"1\",reason=\"foreign_shard\"} 4",
            "firsthop_transceiver_sessions{worker=\"0\",state=\"live\"} 5",
            "firsthop_transceiver_trunk_receive_errors_total{worker=\"0\"} 6",
            "firsthop_transceiver_trunk_send_errors_total{worker=\"0\"} 0",
            "firsthop_transceiver_audio_packet_faults_total{worker=\"0\",fault=\"missing\"} 7",
            "firsthop_transceiver_audio_concealed_seconds_total{worker=\"0\"} 1.5",
            "firsthop_transceiver_audio_underruns_total{worker=\"1\"} 9",
            "firsthop_transceiver_packets_lost_down_total{worker=\"1\"} 8",
            "firsthop_transceiver_setup_seconds_count{phase=\"dtls\"} 2",
            "firsthop_transceiver_setup_seconds_sum{phase=\"dtls\"} 0.18",
            "firsthop_transceiver_setup_seconds_bucket{le=\"+Inf\",phase=\"audio_out\"} 0",
            "firsthop_transceiver_call_rtt_seconds_count 0",
            "firsthop_transceiver_call_jitter_seconds_bucket{le=\"0.04\",direction=\"up\"} 2",
            "firsthop_transceiver_barge_in_seconds_sum 0.015",
            "firsthop_transceiver_playout_queue_peak_seconds_count 2",
            "firsthop_transceiver_encode_seconds_total{worker=\"0\"} 0.000011",
            "firsthop_transceiver_timer_lateness_max_seconds{worker=\"1\"} 0.0025",
            "firsthop_transceiver_socket_receive_drops_total{worker=\"1\"} 12",
            "firsthop_transceiver_backend_connect_seconds_bucket{le=\"0.04\"} 1",
            "firsthop_transceiver_backend_connect_seconds_bucket{le=\"+Inf\"} 1",
            "firsthop_transceiver_backend_first_audio_seconds_sum 0.5",
            "firsthop_transceiver_backend_reconnects_total{worker=\"0\"} 0",
            "firsthop_transceiver_backend_losses_total{worker=\"1\",cause=\"timed_out\"} 1",
            "firsthop_transceiver_sessions_capacity{worker=\"1\"} 10",
            "firsthop_transceiver_sidebands 2",
            "firsthop_transceiver_draining 0",
            "firsthop_transceiver_trace_spans_total{outcome=\"exported\"} 0",
        ] {
            assert!(page.lines().any(|l| l == line), "{line} in\n{page}");
        }
    }

    #[test]
    fn every_fault_of_the_audio_is_shown() {
        let stats = Arc::new(WorkerStats::default());
        for (at, count) in stats.audio.iter().enumerate() {
            count.store(1_000 * (at as u64 + 1), Relaxed);
        }
        let page = show(vec![stats], 1, none_open());
        for (at, fault) in ConversationCounters::FAULTS.into_iter().enumerate() {
            let count = 1_000 * (at as u64 + 1);
            let count = match fault {
                "concealed_samples" => (count as f64 / f64::from(SAMPLE_RATE)).to_string(),
                _ => count.to_string(),
            };
            let shown =
                |line: &str| line.contains("_audio_") && line.ends_with(&format!(" {count}"));
            assert!(page.lines().any(shown), "{fault}, {count} in\n{page}");
        }
    }

    #[test]
    fn the_last_bucket_of_each_histogram_is_unbounded_and_holds_all() {
        let stats = Arc::new(WorkerStats::default());
        stats.times.publish(&call_times());
        stats.backend.connected(Duration::from_secs(60));
        let page = show(vec![stats], 1, none_open());
        let value = |sample: &str| {
            let line = page.lines().find_map(|line| line.strip_prefix(sample));
            line.unwrap_or_else(|| panic!("{sample} in\n{page}"))
                .trim()
                .to_owned()
        };
        let mut histograms = 0;
        for family in page.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
            let Some(name) = family.strip_suffix(" histogram") else {
                continue;
            };
            histograms += 1;
            let counts = page
                .lines()
                .filter_map(|line| line.strip_prefix(&format!("{name}_count")));
            for count in counts {
                let (labels, count) = count.rsplit_once(' ').expect("a value");
                let labels = labels.trim_matches(['{', '}']);
                let labels = if labels.is_empty() {
                    String::new()
                } else {
                    format!(",{labels}")
                };
                assert_eq!(
                    value(&format!("{name}_bucket{{le=\"+Inf\"{labels}}}")),
                    count
                );
            }
        }
        assert_eq!(histograms, 7, "{page}");
        assert!(!page.contains("e308"), "{page}");
    }
}
