//! `preflight`: says what a machine gives a relay, before one starts there. An init container's work, or an operator's.
//!
//! Exit status: 0 when a relay can start, 2 when it cannot.

use std::process::ExitCode;

use clap::Parser;
use firsthop_relay::preflight::{self, Facts, Verdict};
use firsthop_relay::system;
use firsthop_service::settings;

/// Says what this machine gives a relay: kernel, io_uring, memory to lock, socket buffers, processors.
#[derive(Parser, Debug)]
#[command(name = "preflight", version)]
struct Settings {
    /// Processors that the relay is to run on: a count, or a list such as 0,2 or 4-7.
    #[arg(
        long,
        env = "FIRSTHOP_CORES",
        value_name = "N|LIST",
        default_value = "1"
    )]
    cores: String,
    /// Unix socket of hand-overs, if the relay is to have one: then there are two relays for a moment.
    #[arg(long, env = "FIRSTHOP_HANDOVER", value_name = "PATH")]
    handover: Option<std::path::PathBuf>,
}

fn main() -> ExitCode {
    let settings: Settings = match settings::of_process("preflight") {
        Ok(settings) => settings,
        Err(ended) => return ended,
    };
    let available = system::processors();
    let processors = match system::choose_processors(&settings.cores, &available) {
        Ok(processors) => processors,
        Err(error) => return settings::refuse("preflight", &error),
    };
    println!(
        "ok    processors: a relay here runs on {processors:?} of {}",
        available.len()
    );
    let relays = if settings.handover.is_some() { 2 } else { 1 };
    let findings = preflight::judge(&Facts::gather(), processors.len(), relays);
    for finding in &findings {
        println!("{finding}");
    }
    if findings.iter().any(|f| f.verdict == Verdict::Fails) {
        return ExitCode::from(settings::BAD_SETTING);
    }
    ExitCode::SUCCESS
}
