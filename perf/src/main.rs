//! `perf`: measures Firsthop from outside.

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use clap::{Parser, Subcommand};
use firsthop_perf::load::{Latency, Plan, Report, run};
use firsthop_shared::address::ClusterId;
use firsthop_shared::keyring::DataKeyring;
use firsthop_shared::limits::TRUNK_DATAGRAM_ETHERNET;

/// Load generators for Firsthop.
#[derive(Parser)]
#[command(version, name = "perf")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Load a running relay with flows of voice-sized packets; stand-in owners receive them.
    Relay(RelayArgs),
}

#[derive(clap::Args)]
struct RelayArgs {
    /// The relay's public address.
    #[arg(long, default_value = "127.0.0.1:3478")]
    relay: SocketAddr,
    /// The fleet's data keyring.
    #[arg(long, env = "FIRSTHOP_KEYRING")]
    keyring: PathBuf,
    /// The relay's cluster.
    #[arg(long, env = "FIRSTHOP_CLUSTER", default_value_t = 1)]
    cluster: u16,
    /// Where the stand-in owners listen; more than one take the ports that follow.
    #[arg(long, default_value = "127.0.0.1:5100")]
    owner: SocketAddr,
    /// How many owners: the number of destinations that a relay core packs for.
    #[arg(long, default_value_t = 1)]
    owners: u16,
    /// How many flows.
    #[arg(long, default_value_t = 1_000)]
    flows: u32,
    /// Packets per second and flow.
    #[arg(long, default_value_t = 50.0)]
    rate: f64,
    /// How long to send, in seconds.
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    /// Bytes of each packet.
    #[arg(long, default_value_t = 172)]
    size: usize,
    /// Send every packet back to its client too.
    #[arg(long)]
    both_ways: bool,
    /// Print JSON instead of a table.
    #[arg(long)]
    json: bool,
}

fn main() -> anyhow::Result<()> {
    match Cli::parse().command {
        Command::Relay(args) => relay(&args),
    }
}

fn relay(args: &RelayArgs) -> anyhow::Result<()> {
    let keyring = DataKeyring::load(&args.keyring).context("--keyring")?;
    let plan = Plan {
        relay: args.relay,
        cluster: ClusterId(args.cluster),
        owner: args.owner,
        owners: args.owners,
        flows: args.flows,
        rate: args.rate,
        duration: Duration::try_from_secs_f64(args.seconds).context("--seconds")?,
        size: args.size,
        both_ways: args.both_ways,
        set_up: Duration::from_secs(20),
        datagram_len: TRUNK_DATAGRAM_ETHERNET,
    };
    let report = run(&plan, &keyring)?;
    let mut out = std::io::stdout().lock();
    if args.json {
        writeln!(out, "{}", serde_json::to_string_pretty(&report)?)?;
    } else {
        print_table(&mut out, &report)?;
    }
    Ok(())
}

fn print_table(out: &mut impl std::io::Write, report: &Report) -> std::io::Result<()> {
    let lost = |received: u64| {
        100.0 * (report.sent.saturating_sub(received)) as f64 / report.sent.max(1) as f64
    };
    writeln!(out, "flows               {:>12}", report.flows)?;
    writeln!(out, "all proven after    {:>12.1} ms", report.set_up_ms)?;
    writeln!(out, "packets sent        {:>12}", report.sent)?;
    writeln!(
        out,
        "lost on the way up  {:>12.3} %",
        lost(report.received_up)
    )?;
    writeln!(out, "records a datagram  {:>12.2}", report.packing)?;
    let row = |out: &mut dyn std::io::Write, name: &str, latency: &Latency| {
        let Latency {
            p50,
            p99,
            p999,
            max,
        } = latency;
        writeln!(
            out,
            "{name:<20}{p50:>9.0} µs p50 {p99:>9.0} p99 {p999:>9.0} p99.9 {max:>9.0} max"
        )
    };
    row(out, "latency up", &report.up)?;
    if let Some(round_trip) = &report.round_trip {
        writeln!(
            out,
            "lost up and down    {:>12.3} %",
            lost(report.received_down)
        )?;
        row(out, "round trip", round_trip)?;
    }
    Ok(())
}
