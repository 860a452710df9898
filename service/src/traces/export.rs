//! Spans on their way to a collector, as OTLP over HTTP (protobuf).
//!
//! The queue is bounded, and so is the time that the collector has for a batch. One that takes none is told of once in the log, and
//! again when it takes them; calls notice nothing of it.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use clap::Args;
use firsthop_shared::url_port;
use opentelemetry::KeyValue;
use opentelemetry_otlp::{Protocol, WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SpanData, SpanExporter as _};
use reqwest::Url;
use tokio::sync::{mpsc, watch};
use tokio::time::{sleep, timeout};

use super::{Counts, Tracer};
use crate::settings::SettingError;

/// Spans that may wait. About a kilobyte each.
const QUEUE: usize = 4_096;

/// Spans that are sent at once.
const BATCH: usize = 512;

/// How long the first span of a batch waits for others.
const GATHER: Duration = Duration::from_secs(1);

/// How long the collector has for a batch.
const PATIENCE: Duration = Duration::from_secs(3);

/// The same when the program ends.
const LAST_PATIENCE: Duration = Duration::from_secs(1);

/// Path of the signal below the endpoint (OTLP specification, "OTLP/HTTP Request").
const PATH: &str = "/v1/traces";

const ENDPOINT: &str = "--otlp-endpoint";

/// Where traces go. The names in the environment are OpenTelemetry's own; `OTEL_EXPORTER_OTLP_HEADERS` counts, too: a collector's key.
#[derive(Clone, Debug, Args)]
pub struct ExportArgs {
    /// Base URL of an OpenTelemetry collector that takes traces as OTLP over HTTP, such as http://localhost:4318; without it there are none.
    #[arg(long, env = "OTEL_EXPORTER_OTLP_ENDPOINT", value_name = "URL")]
    pub otlp_endpoint: Option<String>,
    /// What this program is called in traces [default: firsthop- and its name].
    #[arg(long, env = "OTEL_SERVICE_NAME", value_name = "NAME")]
    pub otlp_service_name: Option<String>,
}

/// What carries spans to the collector.
#[derive(Debug)]
pub struct Exporter {
    queue: mpsc::Receiver<SpanData>,
    counts: Arc<Counts>,
    to: opentelemetry_otlp::SpanExporter,
    endpoint: String,
}

impl ExportArgs {
    /// The way for spans and what carries them on, of the program of this name; nothing when no collector is set. What becomes of spans is
    /// counted in `counts`.
    ///
    /// # Errors
    /// The setting that cannot be used.
    pub fn open(
        &self,
        program: &'static str,
        counts: Arc<Counts>,
    ) -> Result<Option<(Tracer, Exporter)>, SettingError> {
        let Some(text) = self
            .otlp_endpoint
            .as_deref()
            .filter(|text| !text.is_empty())
        else {
            return Ok(None);
        };
        let endpoint = endpoint(text)?;
        let failed = |error: &dyn std::fmt::Display| {
            SettingError::new(
                ENDPOINT,
                error.to_string(),
                "correct OpenTelemetry's settings",
            )
        };
        let client = reqwest::Client::builder()
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .timeout(PATIENCE)
            .build()
            .map_err(|error| failed(&error))?;
        let mut to = opentelemetry_otlp::SpanExporter::builder()
            .with_http()
            .with_http_client(client)
            .with_protocol(Protocol::HttpBinary)
            .with_endpoint(format!("{endpoint}{PATH}"))
            .with_timeout(PATIENCE)
            .build()
            .map_err(|error| failed(&error))?;
        let name = match self.otlp_service_name.as_deref() {
            None | Some("") => format!("firsthop-{program}"),
            Some(name) => name.to_owned(),
        };
        let resource = Resource::builder()
            .with_service_name(name)
            .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")))
            .build();
        to.set_resource(&resource);
        let (sender, queue) = mpsc::channel(QUEUE);
        let tracer = Tracer::new(sender, program, Arc::clone(&counts));
        let exporter = Exporter {
            queue,
            counts,
            to,
            endpoint,
        };
        Ok(Some((tracer, exporter)))
    }
}

/// The endpoint without a slash at its end.
fn endpoint(text: &str) -> Result<String, SettingError> {
    // What cannot be used may be a secret in the wrong place: it is not repeated.
    let refuse = |problem: &str| {
        let fix = "give the collector's base URL, such as http://localhost:4318";
        Err(SettingError::new(ENDPOINT, problem, fix))
    };
    let Ok(url) = Url::parse(text.trim()) else {
        return refuse("it is no URL");
    };
    if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
        return refuse("it is no http or https URL");
    }
    if !url.username().is_empty() || url.password().is_some() {
        let fix = "give the collector's key in OTEL_EXPORTER_OTLP_HEADERS";
        let problem = "there is a user or a password in it";
        return Err(SettingError::new(ENDPOINT, problem, fix));
    }
    if url.query().is_some() || url.fragment().is_some() {
        return refuse("there is something after its path");
    }
    // The parser takes an empty port, and 0, for one; and more slashes, or fewer, for the two before the host.
    if let Err(error) = url_port::check(text.trim()) {
        return refuse(&error.to_string());
    }
    if url.port() == Some(0) {
        return refuse("its port is 0");
    }
    Ok(url.as_str().trim_end_matches('/').to_owned())
}

impl Exporter {
    /// Carries spans on until `stop` is true, and then those that are left.
    pub async fn run(mut self, mut stop: watch::Receiver<bool>) {
        tracing::info!(endpoint = self.endpoint, "traces are exported");
        let mut out = false;
        loop {
            let mut batch = Vec::new();
            tokio::select! {
                count = self.queue.recv_many(&mut batch, BATCH) => if count == 0 {
                    return;
                },
                _ = stop.wait_for(|stop| *stop) => break,
            }
            let full = self.gather(&mut batch);
            tokio::select! {
                () = full => {}
                _ = stop.wait_for(|stop| *stop) => {}
            }
            let count = batch.len() as u64;
            let sending = self.send(batch, PATIENCE, &mut out);
            tokio::pin!(sending);
            tokio::select! {
                () = &mut sending => continue,
                _ = stop.wait_for(|stop| *stop) => {}
            }
            // The program's end waits no longer for this one than for the last.
            if timeout(LAST_PATIENCE, sending).await.is_err() {
                self.counts.dropped_collector.fetch_add(count, Relaxed);
            }
            break;
        }
        self.queue.close();
        let mut rest = Vec::new();
        while let Ok(span) = self.queue.try_recv() {
            rest.push(span);
        }
        if !rest.is_empty() {
            self.send(rest, LAST_PATIENCE, &mut out).await;
        }
    }

    /// Waits a moment for others, until the batch is full.
    async fn gather(&mut self, batch: &mut Vec<SpanData>) {
        let end = sleep(GATHER);
        tokio::pin!(end);
        while batch.len() < BATCH {
            let room = BATCH - batch.len();
            tokio::select! {
                count = self.queue.recv_many(batch, room) => if count == 0 {
                    return;
                },
                () = &mut end => return,
            }
        }
    }

    /// Sends a batch. `out` is whether the collector is known to take none.
    async fn send(&self, batch: Vec<SpanData>, patience: Duration, out: &mut bool) {
        let count = batch.len() as u64;
        let problem = match timeout(patience, self.to.export(batch)).await {
            Ok(Ok(())) => {
                self.counts.exported.fetch_add(count, Relaxed);
                if std::mem::take(out) {
                    tracing::info!(endpoint = self.endpoint, "traces are taken again");
                }
                return;
            }
            Ok(Err(error)) => error.to_string(),
            Err(_) => "no answer in time".to_owned(),
        };
        self.counts.dropped_collector.fetch_add(count, Relaxed);
        if !std::mem::replace(out, true) {
            tracing::warn!(
                endpoint = self.endpoint,
                problem,
                "traces are not taken by the collector"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use tokio::net::TcpListener;

    use super::*;
    use crate::traces::{Place, Span, SpanKind};

    #[test]
    fn an_endpoint_is_a_plain_url() {
        for (good, is) in [
            ("http://localhost:4318", "http://localhost:4318"),
            ("https://otel.example/", "https://otel.example"),
            (" http://[::1]:4318/base/ ", "http://[::1]:4318/base"),
        ] {
            assert_eq!(endpoint(good).expect("an endpoint"), is);
        }
        for bad in [
            "localhost:4318",
            "grpc://localhost:4317",
            "http://",
            "http://otel.example:99999",
            "http://otel.example:0",
            "http:///otel.example:0",
            "http://otel.example:/base",
            "http://me:secret@otel.example",
            "http://otel.example/?key=secret",
        ] {
            let error = endpoint(bad).expect_err(bad).to_string();
            assert!(error.starts_with("--otlp-endpoint: "), "{error}");
            assert!(!error.contains("secret"), "{error}");
        }
    }

    /// The program's end cuts its time short: the collector has taken the connection, and says nothing.
    #[tokio::test]
    async fn what_a_silent_collector_has_not_taken_at_the_end_is_counted() {
        let collector = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let args = ExportArgs {
            otlp_endpoint: Some(format!(
                "http://{}",
                collector.local_addr().expect("an address")
            )),
            otlp_service_name: None,
        };
        let counts = Arc::new(Counts::default());
        let opened = args.open("signaling", Arc::clone(&counts));
        let (tracer, exporter) = opened.expect("settings").expect("traces");
        let (stop, stopped) = watch::channel(false);
        let running = tokio::spawn(exporter.run(stopped));
        let told = Instant::now();
        for _ in 0..3 {
            let times = (told, told);
            tracer.tell(Span::new(
                Place::root(),
                "a call",
                SpanKind::Internal,
                times,
            ));
        }
        let _silent = collector.accept().await.expect("a connection");
        stop.send(true).expect("it runs");
        running.await.expect("it ends");
        assert_eq!(counts.dropped_collector.load(Relaxed), 3);
        assert_eq!(counts.exported.load(Relaxed), 0);
    }

    #[test]
    fn without_an_endpoint_there_is_no_tracer() {
        for none in [None, Some(String::new())] {
            let args = ExportArgs {
                otlp_endpoint: none,
                otlp_service_name: None,
            };
            assert!(
                args.open("signaling", Arc::default())
                    .expect("settings")
                    .is_none()
            );
        }
    }
}
