//! Health and metrics, on a thread of their own with a tokio runtime: never on a packet core.
//!
//! `/healthz` answers while the process lives (a lost core ends it), `/readyz` says whether every core receives, and
//! `/metrics` reads what the cores publish ten times a second. The same thread reads changed files again.

use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use axum::Router as Routes;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use firsthop_relay_core::Reason;
use firsthop_service::{body, files, server};
use firsthop_shared::fleet::{Fleet, FleetError};
use firsthop_shared::keyring::{DataKeyring, KeyringError};
use firsthop_shared::reload::Reloader;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, text};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tracing::warn;

use crate::config::Listen;
use crate::control::CoreControl;
use crate::counters::{COUNTERS, GAUGES, Published, Value};
use crate::limits::{ADMIN, ADMIN_BODY_MAX, RELOAD_INTERVAL, SOCKET_BUFFER};
use crate::sockets::{self, GrantedBuffers};

/// One core, as the admin thread sees it.
#[derive(Debug)]
pub struct CoreView {
    /// What it publishes.
    pub published: Arc<Published>,
    /// Its public sockets, to ask the kernel how much they dropped.
    pub public: Vec<OwnedFd>,
    /// Its internal socket, for the same.
    pub internal: OwnedFd,
}

/// Files that are read again when they change, and who is told.
pub struct Reload {
    /// The data keyring.
    pub keyring: Reloader<DataKeyring, KeyringError>,
    /// The fleet.
    pub fleet: Reloader<Fleet, FleetError>,
    /// The cores.
    pub controls: Vec<Arc<CoreControl>>,
    /// The public addresses, whose ingress ids cannot change under a running relay.
    pub listen: Vec<Listen>,
}

/// What the admin pages show.
#[derive(Debug)]
struct Metrics {
    cores: Vec<CoreView>,
    granted: GrantedBuffers,
}

struct Pages {
    metrics: Arc<Metrics>,
    registry: Registry,
}

/// Serves the admin pages and watches the files until `stop` becomes true.
pub async fn serve(
    listener: TcpListener,
    cores: Vec<CoreView>,
    granted: GrantedBuffers,
    reload: Reload,
    stop: watch::Receiver<bool>,
) {
    let metrics = Arc::new(Metrics { cores, granted });
    let mut registry = Registry::with_prefix("firsthop_relay");
    registry.register_collector(Box::new(Arc::clone(&metrics)));
    let pages = Arc::new(Pages { metrics, registry });
    let routes = Routes::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .route("/metrics", get(show_metrics))
        .with_state(pages);
    let routes = body::bounded(routes, ADMIN_BODY_MAX, |_| {
        (StatusCode::PAYLOAD_TOO_LARGE, "send no body\n").into_response()
    });
    let watching = tokio::spawn(watch_files(reload));
    server::serve(vec![listener], routes, ADMIN, stop).await;
    watching.abort();
}

async fn ready(State(pages): State<Arc<Pages>>) -> (StatusCode, String) {
    let cores = &pages.metrics.cores;
    let armed = cores.iter().filter(|core| core.published.armed()).count();
    let status = if armed == cores.len() {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    (
        status,
        format!("{armed} of {} cores receive\n", cores.len()),
    )
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
        for (row, value) in COUNTERS.iter().enumerate() {
            self.each_core(&mut encoder, value, |core| {
                ConstCounter::new(core.counter(row))
            })?;
        }
        for (row, value) in GAUGES.iter().enumerate() {
            self.each_core(&mut encoder, value, |core| ConstGauge::new(core.gauge(row)))?;
        }
        self.encode_drops(&mut encoder)?;
        self.encode_sockets(&mut encoder)
    }
}

impl Metrics {
    fn each_core<M: EncodeMetric + prometheus_client::metrics::TypedMetric>(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        value: &Value,
        read: impl Fn(&Published) -> M,
    ) -> fmt::Result {
        let mut family = encoder.encode_descriptor(value.name, value.help, None, M::TYPE)?;
        for (number, core) in self.cores.iter().enumerate() {
            let labels = [("core", number.to_string())];
            read(&core.published).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }

    fn encode_drops(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let help = "Packets, records and datagrams dropped, by reason";
        let kind = ConstCounter::new(0u64).metric_type();
        let mut family = encoder.encode_descriptor("drops", help, None, kind)?;
        for (number, core) in self.cores.iter().enumerate() {
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

    fn encode_sockets(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let help = "Datagrams that the kernel dropped because a receive buffer was full";
        let kind = ConstCounter::new(0u64).metric_type();
        let mut family = encoder.encode_descriptor("socket_receive_drops", help, None, kind)?;
        for (number, core) in self.cores.iter().enumerate() {
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
        let help = "Smallest buffer that the kernel granted to a socket; less than what was asked for means rmem_max or wmem_max cap it";
        let kind = ConstGauge::new(0u64).metric_type();
        let mut family = encoder.encode_descriptor("socket_buffer_bytes", help, None, kind)?;
        for (direction, granted, asked) in [
            ("receive", self.granted.receive, SOCKET_BUFFER),
            ("send", self.granted.send, SOCKET_BUFFER),
        ] {
            for (which, bytes) in [("granted", granted), ("asked", asked)] {
                let labels = [("direction", direction), ("value", which)];
                ConstGauge::new(bytes as u64).encode(family.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}

async fn watch_files(mut reload: Reload) {
    let mut timer = tokio::time::interval(RELOAD_INTERVAL);
    loop {
        timer.tick().await;
        if let Ok(Some(keyring)) = files::changed("keyring", &mut reload.keyring) {
            let keyring = Arc::new(keyring);
            for control in &reload.controls {
                control.set_keyring(Arc::clone(&keyring));
            }
        }
        if let Ok(Some(fleet)) = files::changed("fleet", &mut reload.fleet) {
            report_fleet(&fleet, &reload.listen);
        }
    }
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
