//! The signaling program: reads its settings, opens its files and sockets, serves until it is told to stop.

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;
use firsthop_service::file_size;
use firsthop_service::gate::Gate;
use firsthop_service::open_files::{self, Demand, OpenFiles};
use firsthop_service::server;
use firsthop_service::settings::{self, SettingError};
use firsthop_signaling::calls::FrontDoor;
use firsthop_signaling::config::{Config, Settings, bad_file, bad_places, bad_tls};
use firsthop_signaling::files::{FILES, FileWatch, PLACES, PlacesWatch};
use firsthop_signaling::limits::{
    API, HEALTH_INTERVAL, HEALTH_TIMEOUT, METRICS, POLL_INTERVAL, SIDEBANDS_MAX,
};
use firsthop_signaling::metrics::Metrics;
use firsthop_signaling::neighbours::Neighbours;
use firsthop_signaling::owner::{OwnerClient, Patience};
use firsthop_signaling::rates::Rates;
use firsthop_signaling::routes;
use firsthop_signaling::tls::{self, TlsWatch};
use firsthop_signaling::traces::Traces;
use firsthop_signaling::transceivers::Transceivers;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Semaphore, watch};
use tokio::time::{MissedTickBehavior, interval};

const PROGRAM: &str = "signaling";

fn main() -> ExitCode {
    file_size::outlive_limit();
    let settings: Settings = match settings::of_process(PROGRAM) {
        Ok(settings) => settings,
        Err(ended) => return ended,
    };
    let checked = settings
        .log
        .start(&[])
        .and_then(|()| Config::check(settings));
    let config = match checked {
        Ok(config) => config,
        Err(error) => return settings::refuse(PROGRAM, &error),
    };
    let demand = Demand {
        start: config.listen.len(),
        // A request and a sideband have a client's connection and one to a transceiver.
        full: 2 * (API.connections + SIDEBANDS_MAX) + METRICS.connections,
    };
    let open_files = match open_files::provide(demand) {
        Ok(open_files) => open_files,
        Err(error) => return settings::refuse(PROGRAM, &error),
    };
    let result = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")
        .and_then(|runtime| {
            let result = runtime.block_on(run(&config, &open_files));
            // A look-up of a name goes on when nobody waits for it any more, and a name server that is silent takes its time.
            runtime.shutdown_background();
            result
        });
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => match error.downcast_ref::<SettingError>() {
            Some(error) => settings::refuse(PROGRAM, error),
            None => {
                settings::say(PROGRAM, &format!("{error:#}"));
                ExitCode::FAILURE
            }
        },
    }
}

async fn run(config: &Config, open_files: &OpenFiles) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate()).context("cannot watch for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot watch for SIGINT")?;

    let (mut files_watch, files) =
        FileWatch::open(config.paths()).map_err(|fault| bad_file(&fault, config.paths()))?;
    config.check_fleet(&files.fleet.borrow())?;
    let mut watched = FILES.to_vec();
    watched.extend(config.places.is_some().then_some(PLACES));
    watched.extend(config.tls.is_some().then_some(tls::CERTIFICATE));
    let metrics = Arc::new(Metrics::new(&watched));
    let (share, to) = &config.traces;
    let traced = if share.is_none() {
        None
    } else {
        to.open(PROGRAM, metrics.traces())?
    };
    let (tracer, exporter) = traced.unzip();
    let client = OwnerClient::new(&config.control_secret, Patience::default())
        .context("cannot make the HTTP client")?;
    let transceivers = Transceivers::new(config.transceivers.clone(), client);
    let neighbours =
        Arc::new(Neighbours::new(HEALTH_TIMEOUT).context("cannot make the HTTP client")?);
    let (mut places_watch, places) = match &config.places {
        None => (None, None),
        Some(path) => {
            let (watch, places) =
                PlacesWatch::open(path).map_err(|error| bad_places(path, &error))?;
            (Some(watch), Some(places))
        }
    };
    let (mut tls_watch, tls) = match &config.tls {
        None => (None, None),
        Some((certificate, key)) => {
            let (watch, tls) = TlsWatch::open(certificate, key).map_err(|fault| bad_tls(&fault))?;
            (Some(watch), Some(tls))
        }
    };
    let door = Arc::new(FrontDoor {
        cluster: config.cluster,
        files,
        ingresses: config.ingresses.clone(),
        transceivers: Arc::clone(&transceivers),
        metrics: Arc::clone(&metrics),
        rates: Rates::new(config.address_rate),
        proxies: config.proxies.clone(),
        places,
        neighbours,
        steering: config.steering,
        ice_servers: config.ice_servers.clone(),
        sidebands: Arc::new(Semaphore::new(SIDEBANDS_MAX)),
        traces: tracer.map(|tracer| Traces::new(tracer, *share)),
    });

    let api = server::listen(&config.listen)
        .await
        .map_err(|(place, cause)| SettingError::cannot_listen("--listen", &place, &cause))?;
    let for_metrics = server::listen(&[config.metrics.to_string()])
        .await
        .map_err(|(place, cause)| SettingError::cannot_listen("--metrics", &place, &cause))?;
    open_files.report();
    config.secrets().warn_of_exposed();
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        api = %addresses(&api),
        metrics = %addresses(&for_metrics),
        cluster = %config.cluster,
        tls = tls.is_some(),
        "ready"
    );

    let (stop, stopping) = watch::channel(false);
    let exporting = exporter.map(|exporter| tokio::spawn(exporter.run(stopping.clone())));
    let polling = tokio::spawn(transceivers.poll_forever(Arc::clone(&metrics)));
    let reloading = tokio::spawn({
        let door = Arc::clone(&door);
        async move {
            let mut ticks = interval(POLL_INTERVAL);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                ticks.tick().await;
                files_watch.poll(&metrics);
                if let Some(watch) = &mut places_watch {
                    watch.poll(&metrics);
                }
                if let Some(watch) = &mut tls_watch {
                    watch.poll(&metrics);
                }
                door.rates.tidy(&door.files.api_keys.borrow());
            }
        }
    });
    let asking_neighbours = tokio::spawn({
        let door = Arc::clone(&door);
        async move {
            let mut ticks = interval(HEALTH_INTERVAL);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                ticks.tick().await;
                let fleet = Arc::clone(&door.files.fleet.borrow());
                door.neighbours.poll_once(&fleet, door.cluster).await;
            }
        }
    });
    let gate = Gate::new(config.address_connections.clone(), door.metrics.refusals());
    let serving_api = tokio::spawn(tls::serve(
        api,
        routes::router(Arc::clone(&door)),
        tls,
        gate,
        stopping.clone(),
    ));
    let serving_metrics = tokio::spawn(server::serve(
        for_metrics,
        routes::metrics_router(door),
        METRICS,
        stopping,
    ));

    let asked_by = tokio::select! {
        _ = terminate.recv() => "SIGTERM",
        _ = interrupt.recv() => "SIGINT",
    };
    tracing::info!(signal = asked_by, "stopping");
    stop.send_replace(true);
    serving_api.await.context("the API server failed")?;
    serving_metrics.await.context("the metrics server failed")?;
    if let Some(exporting) = exporting {
        exporting.await.context("the export of traces failed")?;
    }
    polling.abort();
    reloading.abort();
    asking_neighbours.abort();
    tracing::info!("stopped");
    Ok(())
}

fn addresses(listeners: &[TcpListener]) -> String {
    let texts: Vec<String> = listeners
        .iter()
        .filter_map(|listener| listener.local_addr().ok())
        .map(|address| address.to_string())
        .collect();
    texts.join(",")
}
