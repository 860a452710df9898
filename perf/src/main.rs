//! `perf`: measures Firsthop from outside.

use std::io::Write as _;
use std::net::SocketAddrV4;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use firsthop_perf::forward::ForwardPlan;
use firsthop_perf::packet::Sizes;
use firsthop_perf::{floor, forward};

mod calls_command;
mod capacity_command;
mod capacity_parts;
mod commands;
mod measures;
mod measuring;
mod parts;
mod plan_command;
mod report_command;
mod setup_command;
mod testnet_commands;

/// Load generators for Firsthop.
#[derive(Parser)]
#[command(version, name = "perf")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Load a relay that runs on this machine, in an open loop; stand-in owners receive.
    Relay(commands::RelayArgs),
    /// Place calls with ICE, DTLS and SRTP of their own, and say how they fared.
    #[command(visible_alias = "call")]
    Calls(Box<calls_command::CallsArgs>),
    /// Find out how many calls a transceiver carries, what a session holds, and what many short calls leave behind.
    Capacity(capacity_command::CapacityArgs),
    /// Find out how long calls take to begin on lines of several lengths and losses, and how many round trips each phase takes. Makes network
    /// namespaces: run it as root.
    Setup(setup_command::SetupArgs),
    /// Say how much memory WebRTC engines alone take (a floor; `capacity` starts it).
    Engines {
        /// How many.
        #[arg(long, default_value_t = 500)]
        sessions: u32,
    },
    /// Compare a relay with the kernel's floors and with other relays, and write a report.
    Bench(commands::BenchArgs),
    /// Make calls on signaling alone, before stub transceivers: calls per second and core, and latency.
    Signaling(commands::SignalingArgs),
    /// Show results as one page, with how they changed from file to file.
    Report(report_command::ReportArgs),
    /// Say how many machines a number of users takes, from what calls were measured to cost.
    Plan(Box<plan_command::PlanArgs>),
    /// Join two interfaces by a link of any delay, jitter and loss, that can be cut. Commands on the standard input: delay TIME, jitter TIME,
    /// loss SHARE, cut, heal, measure.
    Impair(testnet_commands::ImpairArgs),
    /// Play a model server that speaks G.711 without a pause, and judges what it hears. Commands on the standard input: mark, measure, calls.
    Model(testnet_commands::ModelArgs),
    /// Hold calls, and say what their clients hear while something fails. Commands on the standard input: mark, measure, calls, rebind, move IP,
    /// via IP:PORT, storm SECONDS RATE, spoof SECONDS RATE, hang-up. rebind takes an address too, and spoof any number.
    Hold(testnet_commands::HoldArgs),
    /// Receive packets and throw them away (a floor; the bench starts it).
    FloorReceive {
        /// Where to receive.
        #[arg(long)]
        listen: SocketAddrV4,
    },
    /// Send packets when told to (a floor; the bench starts it).
    FloorSend {
        /// Where commands come to, and packets come from.
        #[arg(long)]
        listen: SocketAddrV4,
        /// Ports of the clients' sockets.
        #[arg(long, value_delimiter = ',', required = true)]
        ports: Vec<u16>,
        /// How many clients.
        #[arg(long)]
        flows: u32,
        /// The size of packets, in bytes.
        #[arg(long, default_value_t = 172)]
        size: usize,
        /// Sizes as in a voice call.
        #[arg(long)]
        voice: bool,
    },
    /// Forward with one system call per packet (a peer; the bench starts it).
    ForwardSingle(ForwardArgs),
    /// Forward with batched system calls (a peer; the bench starts it).
    ForwardBatched(ForwardArgs),
}

#[derive(clap::Args)]
struct ForwardArgs {
    /// Where clients send to.
    #[arg(long)]
    listen: SocketAddrV4,
    /// Where owners send to.
    #[arg(long)]
    internal: SocketAddrV4,
    /// How many owners there are.
    #[arg(long, default_value_t = 1)]
    owners: u16,
    /// Their port.
    #[arg(long)]
    owner_port: u16,
}

impl From<ForwardArgs> for ForwardPlan {
    fn from(args: ForwardArgs) -> Self {
        Self {
            listen: args.listen,
            internal: args.internal,
            owners: args.owners,
            owner_port: args.owner_port,
        }
    }
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // With its causes, and without a backtrace: it tells a user nothing, and hides what the error says. Nothing can be done if nobody reads it.
            let _ = writeln!(std::io::stderr(), "Error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> anyhow::Result<()> {
    match Cli::parse().command {
        Command::Relay(args) => commands::relay(&args),
        Command::Calls(args) => calls_command::calls(&args),
        Command::Capacity(args) => capacity_command::capacity(&args),
        Command::Setup(args) => setup_command::setup(&args),
        Command::Engines { sessions } => capacity_command::engines(sessions),
        Command::Bench(args) => commands::bench(args),
        Command::Signaling(args) => commands::signaling(args),
        Command::Report(args) => report_command::report(&args),
        Command::Plan(args) => plan_command::plan(&args),
        Command::Impair(args) => testnet_commands::impair(&args),
        Command::Model(args) => testnet_commands::model(&args),
        Command::Hold(args) => testnet_commands::hold(&args),
        Command::FloorReceive { listen } => Ok(floor::receive(listen)?),
        Command::FloorSend {
            listen,
            ports,
            flows,
            size,
            voice,
        } => {
            let sizes = if voice {
                Sizes::Voice
            } else {
                Sizes::Fixed(size)
            };
            Ok(floor::send(listen, &ports, flows, sizes)?)
        }
        Command::ForwardSingle(args) => Ok(forward::single(&args.into())?),
        Command::ForwardBatched(args) => Ok(forward::batched(&args.into())?),
    }
}
