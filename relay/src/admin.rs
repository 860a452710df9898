//! Health and metrics, on a thread of their own with a tokio runtime: never on a packet core.
//!
//! `/healthz` answers while the process lives, `/readyz` says whether every core receives (a lost core stops all of them for
//! a moment) and the relay is not about to end, and `/metrics` reads what the cores publish ten times a second; a group that was built anew counts from zero,
//! as after a restart. The same thread reads changed files again.

use std::fmt;
use std::sync::Arc;

use axum::Router as Routes;
use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::map_response;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use firsthop_relay_core::Reason;
use firsthop_service::about::About;
use firsthop_service::{body, files, server};
use firsthop_shared::fleet::{Fleet, FleetError};
use firsthop_shared::keyring::{DataKeyring, KeyringError};
use firsthop_shared::reload::Reloader;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tracing::warn;

use crate::cache;
use crate::config::Listen;
use crate::counters::{COUNTERS, GAUGES, Published, Value};
use crate::lateness::BOUNDS;
use crate::limits::{ADMIN, ADMIN_BODY_MAX, RELOAD_INTERVAL, SOCKET_BUFFER};
use crate::roster::{GroupView, Roster};
use crate::site::Site;
use crate::{peers, sockets};

/// Files that are read again when they change, and who is told.
pub struct Reload {
    /// The data keyring.
    pub keyring: Reloader<DataKeyring, KeyringError>,
    /// The fleet.
    pub fleet: Reloader<Fleet, FleetError>,
    /// The public addresses, whose ingress ids cannot change under a running relay.
    pub listen: Vec<Listen>,
    /// What the relay is to the fleet.
    pub site: Site,
    /// What the relay says of itself.
    pub about: Arc<About>,
}

/// What the admin pages show.
#[derive(Debug)]
struct Metrics {
    roster: Arc<Roster>,
}

struct Pages {
    roster: Arc<Roster>,
    registry: Registry,
}

/// Serves the admin pages and watches the files until `stop` becomes true. Once `left` is, each connection ends with its next
/// response: this process is about to end, and its client shall make another, to the successor.
pub async fn serve(
    listener: TcpListener,
    roster: Arc<Roster>,
    reload: Reload,
    stop: watch::Receiver<bool>,
    left: watch::Receiver<bool>,
) {
    let mut registry = Registry::with_prefix("firsthop_relay");
    registry.register_collector(Box::new(Metrics {
        roster: Arc::clone(&roster),
    }));
    show_keyring(&reload.about, &roster.keyring());
    reload.about.register(&mut registry);
    let pages = Arc::new(Pages {
        roster: Arc::clone(&roster),
        registry,
    });
    let routes = Routes::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .route("/metrics", get(show_metrics))
        .with_state(pages);
    let routes = body::bounded(routes, ADMIN_BODY_MAX, |_| {
        (StatusCode::PAYLOAD_TOO_LARGE, "send no body\n").into_response()
    });
    let routes = routes.layer(map_response(move |mut response: Response| {
        if *left.borrow() {
            let close = HeaderValue::from_static("close");
            response.headers_mut().insert(header::CONNECTION, close);
        }
        std::future::ready(response)
    }));
    let watching = tokio::spawn(watch_files(reload, roster));
    server::serve(vec![listener], routes, ADMIN, stop).await;
    watching.abort();
}

async fn ready(State(pages): State<Arc<Pages>>) -> (StatusCode, String) {
    if pages.roster.stopping() {
        return (StatusCode::SERVICE_UNAVAILABLE, "stopping\n".to_owned());
    }
    let (armed, expected) = (pages.roster.armed(), pages.roster.expected());
    let status = if armed == expected {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    (status, format!("{armed} of {expected} cores receive\n"))
}

async fn show_metrics(State(pages): State<Arc<Pages>>) -> impl IntoResponse {
    let mut body = String::new();
    match text::encode(&mut body, &pages.registry) {
        Ok(()) => (
            StatusCode::OK,
            [(
                header::CONTENT_TYPE,
                "application/openmetrics-text; version=1.0.0; charset=utf-8",
            )],
            body,
        )
            .into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

impl Collector for Metrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let group = self.roster.group();
        for (row, value) in COUNTERS.iter().enumerate() {
            each_core(&mut encoder, &group, value, |core| {
                ConstCounter::new(core.counter(row))
            })?;
        }
        for (row, value) in GAUGES.iter().enumerate() {
            each_core(&mut encoder, &group, value, |core| {
                ConstGauge::new(core.gauge(row))
            })?;
        }
        encode_drops(&mut encoder, &group)?;
        encode_sockets(&mut encoder, &group)?;
        encode_lateness(&mut encoder, &group)?;
        peers::encode(&mut encoder, &group, &self.roster.peers())?;
        if let Some(cache) = self.roster.cache() {
            cache::encode(&mut encoder, cache)?;
        }
        encode_rebuilds(&mut encoder, self.roster.rebuilds())?;
        encode_state(&mut encoder, &self.roster, &group)
    }
}

fn each_core<M: EncodeMetric + prometheus_client::metrics::TypedMetric>(
    encoder: &mut DescriptorEncoder<'_>,
    group: &GroupView,
    value: &Value,
    read: impl Fn(&Published) -> M,
) -> fmt::Result {
    let mut family = encoder.encode_descriptor(value.name, value.help, None, M::TYPE)?;
    for (number, core) in group.cores.iter().enumerate() {
        let labels = [("core", number.to_string())];
        read(&core.published).encode(family.encode_family(&labels)?)?;
    }
    Ok(())
}

fn encode_drops(encoder: &mut DescriptorEncoder<'_>, group: &GroupView) -> fmt::Result {
    let help = "Packets, records and datagrams dropped, by reason";
    let kind = ConstCounter::new(0u64).metric_type();
    let mut family = encoder.encode_descriptor("drops", help, None, kind)?;
    for (number, core) in group.cores.iter().enumerate() {
        for &reason in Reason::ALL {
            let labels = [
                ("core", number.to_string()),
                ("reason", reason.name().to_owned()),
            ];
            let dropped = ConstCounter::new(core.published.drops(reason));
            dropped.encode(family.encode_family(&labels)?)?;
        }
    }
    Ok(())
}

fn encode_sockets(encoder: &mut DescriptorEncoder<'_>, group: &GroupView) -> fmt::Result {
    let help = "Datagrams that the kernel dropped because a receive buffer was full";
    let kind = ConstCounter::new(0u64).metric_type();
    let mut family = encoder.encode_descriptor("socket_receive_drops", help, None, kind)?;
    for (number, core) in group.cores.iter().enumerate() {
        let public: u64 = core
            .public
            .iter()
            .map(|s| u64::from(sockets::dropped(s).unwrap_or(0)))
            .sum();
        let internal = u64::from(sockets::dropped(&core.internal).unwrap_or(0));
        for (socket, dropped) in [("public", public), ("internal", internal)] {
            let labels = [("core", number.to_string()), ("socket", socket.to_owned())];
            ConstCounter::new(dropped).encode(family.encode_family(&labels)?)?;
        }
    }
    let Some(granted) = group.granted else {
        return Ok(());
    };
    let help = "Smallest buffer that the kernel granted to a socket; less than what was asked for means rmem_max or wmem_max cap it";
    let kind = ConstGauge::new(0u64).metric_type();
    let mut family = encoder.encode_descriptor("socket_buffer_bytes", help, None, kind)?;
    for (direction, granted, asked) in [
        ("receive", granted.receive, SOCKET_BUFFER),
        ("send", granted.send, SOCKET_BUFFER),
    ] {
        for (which, bytes) in [("granted", granted), ("asked", asked)] {
            let labels = [("direction", direction), ("value", which)];
            ConstGauge::new(bytes as u64).encode(family.encode_family(&labels)?)?;
        }
    }
    Ok(())
}
fn encode_lateness(encoder: &mut DescriptorEncoder<'_>, group: &GroupView) -> fmt::Result {
    const SECOND: f64 = 1e6;
    let help = "By how much a timer of the core fired too late";
    let (unit, kind) = (Unit::Seconds, MetricType::Histogram);
    let mut family = encoder.encode_descriptor("timer_lateness", help, Some(&unit), kind)?;
    for (number, core) in group.cores.iter().enumerate() {
        let lateness = core.published.lateness();
        let bounds = BOUNDS.map(|micros| f64::from(micros) / SECOND);
        let bounds = bounds.into_iter().chain([f64::INFINITY]);
        let buckets: Vec<(f64, u64)> = bounds.zip(lateness.buckets).collect();
        let count = lateness.buckets.iter().sum();
        let labels = [("core", number.to_string())];
        family
            .encode_family(&labels)?
            .encode_histogram::<NoLabelSet>(lateness.sum as f64 / SECOND, count, &buckets, None)?;
    }
    Ok(())
}

fn encode_rebuilds(encoder: &mut DescriptorEncoder<'_>, rebuilds: u64) -> fmt::Result {
    let help = "Times that all cores were stopped and started anew because one was lost";
    let counter = ConstCounter::new(rebuilds);
    let family = encoder.encode_descriptor("group_rebuilds", help, None, counter.metric_type())?;
    counter.encode(family)
}

/// What the relay can do, and whether it does it.
fn encode_state(
    encoder: &mut DescriptorEncoder<'_>,
    roster: &Roster,
    group: &GroupView,
) -> fmt::Result {
    let receiving = group.cores.iter().filter(|core| core.published.armed());
    let values = [
        (
            "draining",
            "Whether the relay is about to end: 1, or 0",
            u64::from(roster.stopping()),
        ),
        (
            "cores",
            "Cores that shall receive",
            roster.expected() as u64,
        ),
        (
            "cores_receiving",
            "Cores that receive on all of their sockets",
            receiving.count() as u64,
        ),
    ];
    for (name, help, value) in values {
        let gauge = ConstGauge::new(value);
        gauge.encode(encoder.encode_descriptor(name, help, None, gauge.metric_type())?)?;
    }
    let help = "Flows that the core can know at a time";
    let mut family = encoder.encode_descriptor("flows_capacity", help, None, MetricType::Gauge)?;
    for (number, _) in group.cores.iter().enumerate() {
        let labels = [("core", number.to_string())];
        let capacity = ConstGauge::new(u64::from(roster.flows_per_core()));
        capacity.encode(family.encode_family(&labels)?)?;
    }
    Ok(())
}

async fn watch_files(mut reload: Reload, roster: Arc<Roster>) {
    let mut timer = tokio::time::interval(RELOAD_INTERVAL);
    loop {
        timer.tick().await;
        let about = &reload.about;
        if let Ok(Some(keyring)) = files::changed("keyring", &mut reload.keyring, about) {
            show_keyring(about, &keyring);
            roster.set_keyring(Arc::new(keyring));
        }
        if let Ok(Some(fleet)) = files::changed("fleet", &mut reload.fleet, about) {
            report_fleet(&fleet, &reload.listen);
            roster.set_peers(reload.site.peers(&fleet));
        }
    }
}

fn show_keyring(about: &About, keyring: &DataKeyring) {
    about.keyring("keyring", keyring.active().id(), keyring.len());
}

/// A relay serves the ingress ids that it started with: a record names its ingress by id, and flows are keyed by it.
fn report_fleet(fleet: &Fleet, listen: &[Listen]) {
    for one in listen {
        let now = fleet.ingress_by_address(one.advertised);
        if now != Some(one.ingress) {
            warn!(advertised = %one.advertised, ingress = %one.ingress,
                  "the fleet gives this address to another ingress now: restart this relay");
        }
    }
}
