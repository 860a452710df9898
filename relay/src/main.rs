//! The relay program: settings, logs, start, wait for a signal, stop.
//!
//! Exit status: 0 after SIGTERM or SIGINT, or when a successor serves; 2 when a setting or a limit of the machine must be
//! changed (one line on standard error says which); 1 when a running relay failed and could not mend itself, a hand-over
//! failed, or nobody serves any more while it stands by.

use std::io;
use std::process::ExitCode;

use anyhow::Context as _;
use firsthop_relay::bystander::{Bystander, Left};
use firsthop_relay::config::{Config, HandedOver, Settings};
use firsthop_relay::limits::{ADMIN, FILES_PER_CORE, FILES_PER_CORE_START};
use firsthop_relay::relay::{Relay, RelayError};
use firsthop_service::open_files::{self, Demand};
use firsthop_service::{file_size, settings};
use tracing::info;

const PROGRAM: &str = "relay";

fn main() -> ExitCode {
    file_size::outlive_limit();
    let settings: Settings = match settings::of_process(PROGRAM) {
        Ok(settings) => settings,
        Err(ended) => return ended,
    };
    let checked = settings
        .log
        .start(&[])
        .and_then(|()| Config::check(&settings));
    let (config, files) = match checked {
        Ok(checked) => checked,
        Err(error) => return settings::refuse(PROGRAM, &error),
    };
    let public: Vec<String> = config
        .listen
        .iter()
        .map(|one| format!("{}={}", one.address, one.advertised))
        .collect();
    let processors = config.processors.clone();
    let stays = (config.handed_over == HandedOver::Stay)
        .then(|| config.handover.clone())
        .flatten();
    let sockets = 2 * (config.listen.len() + 1);
    let demand = Demand {
        start: processors.len() * (FILES_PER_CORE_START + sockets),
        full: processors.len() * FILES_PER_CORE + ADMIN.connections,
    };
    let open_files = match open_files::provide(demand) {
        Ok(open_files) => open_files,
        Err(error) => return settings::refuse(PROGRAM, &error),
    };
    let mut relay = match Relay::start(config, files) {
        Ok(relay) => relay,
        Err(error) if error.is_setting() => return settings::refuse(PROGRAM, &error),
        Err(error) => return fail(&error.into()),
    };
    open_files.report();
    settings.secrets().warn_of_exposed();
    let result = run(&mut relay, &public, &processors);
    // Before the relay ends, so that somebody hears signals at any time.
    let bystander = match stays {
        Some(path) if result.is_ok() && relay.handed_over() => Some(Bystander::new(path)),
        _ => None,
    };
    let told = relay.stop();
    match result {
        Ok(()) => match bystander {
            Some(bystander) if !told => stand_by(bystander),
            _ => ExitCode::SUCCESS,
        },
        Err(error) => match error.downcast_ref::<RelayError>() {
            Some(cause) if cause.is_setting() => settings::refuse(PROGRAM, cause),
            _ => fail(&error),
        },
    }
}

fn run(relay: &mut Relay, public: &[String], processors: &[usize]) -> anyhow::Result<()> {
    if relay.wait_ready().context("starting")? {
        info!(
            public = public.join(","),
            internal = ?relay.internal(),
            admin = %relay.admin_address,
            ?processors,
            "ready"
        );
        relay.wait_signal().context("running")?;
    }
    info!("stopping");
    Ok(())
}

/// A successor serves. This process waits until it is told to end, or is needed again.
fn stand_by(bystander: io::Result<Bystander>) -> ExitCode {
    match bystander.map(Bystander::wait) {
        Ok(Left::Told) => ExitCode::SUCCESS,
        Ok(Left::Alone) => fail(&anyhow::anyhow!(
            "--handed-over: nobody serves where this relay has handed over; start it again (calls heal)"
        )),
        Err(error) => fail(&anyhow::Error::new(error).context("standing by")),
    }
}

fn fail(error: &anyhow::Error) -> ExitCode {
    settings::say(PROGRAM, &format!("{error:#}"));
    ExitCode::FAILURE
}
