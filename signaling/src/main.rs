//! The signaling program: reads its settings, opens its files and sockets, serves until it is told to stop.

use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;
use firsthop_signaling::calls::FrontDoor;
use firsthop_signaling::config::{Config, ConfigError, LogFormat, Start, cannot_listen};
use firsthop_signaling::files::FileWatch;
use firsthop_signaling::limits::POLL_INTERVAL;
use firsthop_signaling::metrics::Metrics;
use firsthop_signaling::owner::{OwnerClient, Patience};
use firsthop_signaling::transceivers::Transceivers;
use firsthop_signaling::{routes, server};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};
use tracing_subscriber::EnvFilter;

/// Exit status for a setting that cannot be used.
const BAD_SETTING: u8 = 2;

fn main() -> ExitCode {
    let config = match Config::read(std::env::args_os()) {
        Ok(Start::Run(config)) => config,
        Ok(Start::Print(text)) => {
            print!("{text}");
            return ExitCode::SUCCESS;
        }
        Err(error) => return refuse(&error),
    };
    start_log(&config);
    let result = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")
        .and_then(|runtime| runtime.block_on(run(&config)));
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => match error.downcast_ref::<ConfigError>() {
            Some(error) => refuse(error),
            None => {
                eprintln!("signaling: {error:#}");
                ExitCode::FAILURE
            }
        },
    }
}

fn refuse(error: &ConfigError) -> ExitCode {
    eprintln!("signaling: {error}");
    ExitCode::from(BAD_SETTING)
}

fn start_log(config: &Config) {
    // The filter was checked with the settings.
    let filter = EnvFilter::try_new(&config.log).unwrap_or_default();
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal());
    match config.log_format {
        LogFormat::Text => log.init(),
        LogFormat::Json => log.json().init(),
    }
}

async fn run(config: &Config) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate()).context("cannot watch for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot watch for SIGINT")?;

    let (mut files_watch, files) = FileWatch::open(config.paths()).map_err(ConfigError::from)?;
    config.check_fleet(&files.fleet.borrow())?;
    let metrics = Arc::new(Metrics::new());
    let client = OwnerClient::new(&config.control_secret, Patience::default())
        .context("cannot make the HTTP client")?;
    let transceivers = Transceivers::new(config.transceivers.clone(), client);
    let door = Arc::new(FrontDoor {
        cluster: config.cluster,
        files,
        ingresses: config.ingresses.clone(),
        transceivers: Arc::clone(&transceivers),
        metrics: Arc::clone(&metrics),
    });

    let api = server::listen(&config.listen)
        .await
        .map_err(|(place, cause)| cannot_listen("--listen", &place, &cause))?;
    let for_metrics = server::listen(&[config.metrics.to_string()])
        .await
        .map_err(|(place, cause)| cannot_listen("--metrics", &place, &cause))?;
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        api = %addresses(&api),
        metrics = %addresses(&for_metrics),
        cluster = %config.cluster,
        "ready"
    );

    let (stop, stopping) = watch::channel(false);
    let polling = tokio::spawn(transceivers.poll_forever(Arc::clone(&metrics)));
    let reloading = tokio::spawn(async move {
        let mut ticks = interval(POLL_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            files_watch.poll(&metrics);
        }
    });
    let serving_api = tokio::spawn(server::serve(
        api,
        routes::router(Arc::clone(&door)),
        stopping.clone(),
    ));
    let serving_metrics = tokio::spawn(server::serve(
        for_metrics,
        routes::metrics_router(door),
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
    polling.abort();
    reloading.abort();
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
