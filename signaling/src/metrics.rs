//! What signaling counts: requests, the time to make a call by phase, and how the transceivers stand.
//!
//! Labels have few values: routes as templates, never paths; so that no client can grow the set.

use std::sync::Arc;
use std::time::Duration;

use firsthop_service::about::About;
use firsthop_service::refusals::{Refusals, RefusalsShown};
use firsthop_service::traces::{Counts, CountsShown};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use crate::placement::Standing;

/// Upper bounds of the time histograms, in seconds: from a loopback answer to the timeout of two tries.
const BUCKETS: [f64; 12] = [
    0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0,
];

/// A part of making a call.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Phase {
    /// From the request's head until the offer is read and checked.
    Offer,
    /// Choosing an owner, minting the ufrag, and the owner's answer; second tries included.
    Answer,
    /// Everything, from the request's head to the response.
    Total,
}

impl Phase {
    const ALL: [Self; 3] = [Self::Offer, Self::Answer, Self::Total];

    fn name(self) -> &'static str {
        match self {
            Self::Offer => "offer",
            Self::Answer => "answer",
            Self::Total => "total",
        }
    }
}

/// Why a call needed another request to an owner.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Again {
    /// The owner failed: tried elsewhere.
    Elsewhere,
    /// The session id was taken or the shard unknown: minted again.
    Minted,
}

impl Again {
    const ALL: [Self; 2] = [Self::Elsewhere, Self::Minted];

    fn name(self) -> &'static str {
        match self {
            Self::Elsewhere => "elsewhere",
            Self::Minted => "minted",
        }
    }
}

/// Where a new call was steered.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Steered {
    /// Nowhere: it stays in this cluster.
    Here,
    /// To another cluster, which answered through this replica.
    Forward,
    /// To another cluster, which its client was sent to.
    Redirect,
    /// To another cluster, which did not take it.
    Failed,
}

impl Steered {
    const ALL: [Self; 4] = [Self::Here, Self::Forward, Self::Redirect, Self::Failed];

    fn name(self) -> &'static str {
        match self {
            Self::Here => "here",
            Self::Forward => "forward",
            Self::Redirect => "redirect",
            Self::Failed => "failed",
        }
    }
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct RequestLabels {
    route: String,
    status: u16,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct PhaseLabels {
    phase: &'static str,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct AgainLabels {
    reason: &'static str,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct SteeredLabels {
    to: &'static str,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct StandingLabels {
    standing: &'static str,
}

/// The counters and the registry that writes them out.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    requests: Family<RequestLabels, Counter>,
    create: Family<PhaseLabels, Histogram, fn() -> Histogram>,
    again: Family<AgainLabels, Counter>,
    hang_ups: Counter,
    restarts: Counter,
    sidebands: Gauge,
    secrets: Counter,
    steered: Family<SteeredLabels, Counter>,
    about: Arc<About>,
    transceivers: Family<StandingLabels, Gauge>,
    traces: Arc<Counts>,
    refusals: Arc<Refusals>,
}

fn time_histogram() -> Histogram {
    Histogram::new(BUCKETS)
}

impl Metrics {
    /// All counters at zero, of a process that reads the files of these settings again when they change.
    #[must_use]
    pub fn new(files: &[&'static str]) -> Self {
        let mut registry = Registry::with_prefix("firsthop_signaling");
        let about = About::new(files);
        about.register(&mut registry);
        let requests = Family::default();
        registry.register(
            "requests",
            "HTTP requests answered, by route and status",
            requests.clone(),
        );
        let create = Family::new_with_constructor(time_histogram as fn() -> Histogram);
        registry.register_with_unit(
            "create",
            "Time to make a call, by phase",
            Unit::Seconds,
            create.clone(),
        );
        let again = Family::default();
        registry.register(
            "create_again",
            "Further requests to transceivers for one call, by reason",
            again.clone(),
        );
        let hang_ups = Counter::default();
        registry.register("hang_ups", "Calls ended by request", hang_ups.clone());
        let traces = Arc::default();
        registry.register_collector(Box::new(CountsShown(Arc::clone(&traces))));
        let refusals = Arc::default();
        registry.register_collector(Box::new(RefusalsShown(Arc::clone(&refusals))));
        let restarts = Counter::default();
        registry.register("ice_restarts", "ICE restarts carried out", restarts.clone());
        let sidebands = Gauge::default();
        registry.register("sidebands", "Sidebands that are open", sidebands.clone());
        let secrets = Counter::default();
        registry.register("client_secrets", "Client secrets minted", secrets.clone());
        let steered = Family::default();
        registry.register(
            "steered",
            "New calls by where they were steered: here, forward, redirect, or failed for a cluster that did not take it",
            steered.clone(),
        );
        let transceivers = Family::default();
        registry.register(
            "transceivers",
            "Transceivers by how they stand: ready, full, draining, away, and further addresses of those: repeated",
            transceivers.clone(),
        );
        let metrics = Self {
            registry,
            requests,
            create,
            again,
            hang_ups,
            restarts,
            sidebands,
            secrets,
            steered,
            about,
            transceivers,
            traces,
            refusals,
        };
        metrics.show_zeros();
        metrics
    }

    /// Makes what can happen visible before it does: the first time of anything is a change too.
    fn show_zeros(&self) {
        for phase in Phase::ALL {
            let phase = phase.name();
            drop(self.create.get_or_create(&PhaseLabels { phase }));
        }
        for reason in Again::ALL {
            let reason = reason.name();
            drop(self.again.get_or_create(&AgainLabels { reason }));
        }
        for to in Steered::ALL {
            drop(self.steered.get_or_create(&SteeredLabels { to: to.name() }));
        }
        for standing in Standing::ALL {
            self.transceivers(standing, 0);
        }
    }

    /// What the process says of itself.
    #[must_use]
    pub fn about(&self) -> &About {
        &self.about
    }

    /// Counts a response. `route` is a template of ours, never a client's path.
    pub fn request(&self, route: &str, status: u16) {
        self.requests
            .get_or_create(&RequestLabels {
                route: route.to_owned(),
                status,
            })
            .inc();
    }

    /// Notes how long a phase of making a call took.
    pub fn create_phase(&self, phase: Phase, took: Duration) {
        let phase = phase.name();
        self.create
            .get_or_create(&PhaseLabels { phase })
            .observe(took.as_secs_f64());
    }

    /// Counts a further request to an owner for one call.
    pub fn create_again(&self, reason: Again) {
        let reason = reason.name();
        self.again.get_or_create(&AgainLabels { reason }).inc();
    }

    /// Counts a call that was ended by request.
    pub fn hang_up(&self) {
        self.hang_ups.inc();
    }

    /// Counts an ICE restart.
    pub fn restart(&self) {
        self.restarts.inc();
    }

    /// Counts a sideband that opened (1) or ended (-1).
    pub fn sideband(&self, change: i64) {
        self.sidebands.inc_by(change);
    }

    /// Counts a client secret that was minted.
    pub fn secret(&self) {
        self.secrets.inc();
    }

    /// Counts where a new call was steered.
    pub fn steered(&self, to: Steered) {
        let to = to.name();
        self.steered.get_or_create(&SteeredLabels { to }).inc();
    }

    /// Where spans of traces are counted.
    #[must_use]
    pub fn traces(&self) -> Arc<Counts> {
        Arc::clone(&self.traces)
    }

    /// Where connections are counted that were closed before there was a request.
    #[must_use]
    pub fn refusals(&self) -> Arc<Refusals> {
        Arc::clone(&self.refusals)
    }

    /// Sets how many transceivers stand like this.
    pub fn transceivers(&self, standing: Standing, count: usize) {
        self.transceivers
            .get_or_create(&StandingLabels {
                standing: standing.name(),
            })
            .set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// All metrics in the Prometheus text format.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a String cannot fail.
        let _ = encode(&mut text, &self.registry);
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_carry_the_program_and_the_unit() {
        let metrics = Metrics::new(&["keyring"]);
        metrics.request("/v1/realtime/calls", 201);
        metrics.create_phase(Phase::Total, Duration::from_millis(3));
        metrics.create_again(Again::Minted);
        metrics.transceivers(Standing::Ready, 2);
        let text = metrics.text();
        for line in [
            "firsthop_signaling_requests_total{route=\"/v1/realtime/calls\",status=\"201\"} 1",
            "firsthop_signaling_create_seconds_bucket{le=\"0.005\",phase=\"total\"} 1",
            "firsthop_signaling_create_seconds_bucket{le=\"+Inf\",phase=\"total\"} 1",
            "firsthop_signaling_create_seconds_count{phase=\"offer\"} 0",
            "firsthop_signaling_create_again_total{reason=\"minted\"} 1",
            "firsthop_signaling_create_again_total{reason=\"elsewhere\"} 0",
            "firsthop_signaling_steered_total{to=\"redirect\"} 0",
            "firsthop_signaling_transceivers{standing=\"away\"} 0",
            "firsthop_signaling_file_reloads_total{file=\"keyring\"} 0",
            "firsthop_signaling_transceivers{standing=\"ready\"} 2",
            "firsthop_signaling_trace_spans_total{outcome=\"dropped_queue\"} 0",
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
    }
}
