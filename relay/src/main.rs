//! The relay program: settings, logs, start, wait for a signal, stop.
//!
//! Exit status: 0 after SIGTERM or SIGINT, 2 when a setting or a limit of the machine must be changed (one line on standard
//! error says which), 1 when a running relay failed.

use std::process::ExitCode;

use anyhow::Context as _;
use clap::error::ErrorKind;
use firsthop_relay::config::{self, Config, LogFormat, Settings};
use firsthop_relay::relay::{Relay, RelayError};
use tracing::info;
use tracing_subscriber::EnvFilter;

fn main() -> ExitCode {
    let settings = match Settings::read() {
        Ok(settings) => settings,
        Err(error)
            if matches!(
                error.kind(),
                ErrorKind::DisplayHelp | ErrorKind::DisplayVersion
            ) =>
        {
            print!("{error}");
            return ExitCode::SUCCESS;
        }
        Err(error) => return refuse(&config::one_line(&error)),
    };
    if let Err(error) = start_log(&settings) {
        return refuse(&format!("--log {}: {error:#}", settings.log));
    }
    let config = match Config::check(&settings) {
        Ok(config) => config,
        Err(error) => return refuse(&error.to_string()),
    };
    let public: Vec<String> = config
        .listen
        .iter()
        .map(|one| format!("{}={}", one.address, one.advertised))
        .collect();
    let processors = config.processors.clone();
    let relay = match Relay::start(config) {
        Ok(relay) => relay,
        Err(error) if error.is_setting() => return refuse(&error.to_string()),
        Err(error) => return fail(&error.into()),
    };
    let result = run(&relay, &public, &processors);
    relay.stop();
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => match error.downcast_ref::<RelayError>() {
            Some(cause) if cause.is_setting() => refuse(&cause.to_string()),
            _ => fail(&error),
        },
    }
}

fn run(relay: &Relay, public: &[String], processors: &[usize]) -> anyhow::Result<()> {
    if relay.wait_ready().context("starting")? {
        info!(
            public = public.join(","),
            internal = ?relay.internal,
            admin = %relay.admin_address,
            ?processors,
            "ready"
        );
        relay.wait_signal().context("running")?;
    }
    info!("stopping");
    Ok(())
}

fn start_log(settings: &Settings) -> anyhow::Result<()> {
    let filter = EnvFilter::try_new(&settings.log)
        .context("not a level or a filter such as info,firsthop_relay=debug")?;
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr);
    match settings.log_format {
        LogFormat::Text => log.init(),
        LogFormat::Json => log.json().init(),
    }
    Ok(())
}

fn refuse(line: &str) -> ExitCode {
    eprintln!("relay: {}", line.replace('\n', " "));
    ExitCode::from(2)
}

fn fail(error: &anyhow::Error) -> ExitCode {
    eprintln!("relay: {error:#}");
    ExitCode::FAILURE
}
