//! What can be set: each a long flag and an environment variable.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use clap::builder::BoolishValueParser;
use clap::{ArgAction, Parser, ValueEnum};
use firsthop_relay_core::limits::{FLOWS_DEFAULT, LINGER_DEFAULT};
use firsthop_service::settings::Log;

use crate::cache::CacheSettings;
use crate::limits::DRAIN_DEFAULT;
use crate::site::Role;

/// Routes WebRTC packets between clients and the transceivers that own their sessions.
#[derive(Parser, Debug)]
#[command(name = "relay", version)]
pub struct Settings {
    /// Data keyring, a TOML file; read again when it changes.
    #[arg(long, env = "FIRSTHOP_KEYRING", value_name = "FILE")]
    pub keyring: PathBuf,
    /// The fleet: clusters and ingress points, a TOML file.
    #[arg(long, env = "FIRSTHOP_FLEET", value_name = "FILE")]
    pub fleet: PathBuf,
    /// The cluster that this relay belongs to.
    #[arg(long, env = "FIRSTHOP_CLUSTER", value_name = "ID", default_value_t = 1)]
    pub cluster: u16,
    /// What the relay does: serve clients, take what relays of other clusters send, or both.
    #[arg(
        long,
        env = "FIRSTHOP_ROLE",
        value_name = "both|ingress|cluster",
        default_value = "both"
    )]
    pub role: Role,
    /// Public UDP address and port, with the address that the fleet file advertises for it when that is another.
    #[arg(
        long,
        env = "FIRSTHOP_LISTEN",
        value_name = "ADDR[=ADVERTISED]",
        value_delimiter = ',',
        required_unless_present = "role"
    )]
    pub listen: Vec<String>,
    /// Address of the internal sockets, one per core.
    #[arg(
        long,
        env = "FIRSTHOP_INTERNAL",
        value_name = "IP",
        default_value = "127.0.0.1"
    )]
    pub internal: IpAddr,
    /// Port of the first core's internal socket; the others follow.
    #[arg(
        long,
        env = "FIRSTHOP_INTERNAL_PORT",
        value_name = "PORT",
        default_value_t = 4000
    )]
    pub internal_port: u16,
    /// Where transceivers are, and clients are not.
    #[arg(
        long,
        env = "FIRSTHOP_INTERNAL_NETWORKS",
        value_name = "CIDRS",
        default_value = "127.0.0.0/8"
    )]
    pub internal_networks: String,
    /// Serve clients inside the internal networks too: for development.
    #[arg(long, env = "FIRSTHOP_ALLOW_INTERNAL_CLIENTS", action = ArgAction::Set, num_args = 0..=1,
          require_equals = true, default_value = "false", default_missing_value = "true",
          value_parser = BoolishValueParser::new())]
    pub allow_internal_clients: bool,
    /// Upper bound for the MTU of the paths to transceivers, in bytes; without it the kernel's knowledge of each path.
    #[arg(long, env = "FIRSTHOP_INTERNAL_MTU", value_name = "BYTES")]
    pub internal_mtu: Option<u16>,
    /// How long a packet may wait for company on a busy core, in microseconds.
    #[arg(long, env = "FIRSTHOP_LINGER", value_name = "MICROSECONDS", default_value_t = LINGER_DEFAULT.0)]
    pub linger: u64,
    /// Processors to run on: a count, or a list such as 0,2 or 4-7.
    #[arg(
        long,
        env = "FIRSTHOP_CORES",
        value_name = "N|LIST",
        default_value = "1"
    )]
    pub cores: String,
    /// Client addresses that each core can know at a time.
    #[arg(long, env = "FIRSTHOP_FLOWS_PER_CORE", value_name = "N", default_value_t = FLOWS_DEFAULT)]
    pub flows_per_core: u32,
    /// Seed of the rule that spreads clients over cores; the same for all relays that share clients.
    #[arg(
        long,
        env = "FIRSTHOP_STEERING_SEED",
        value_name = "N",
        default_value_t = 0
    )]
    pub steering_seed: u32,
    /// Address of /healthz, /readyz and /metrics.
    #[arg(
        long,
        env = "FIRSTHOP_ADMIN",
        value_name = "ADDR",
        default_value = "127.0.0.1:9101"
    )]
    pub admin: SocketAddr,
    /// Unix socket at which this relay hands its sockets and flows over to a successor, and a successor asks for them.
    #[arg(long, env = "FIRSTHOP_HANDOVER", value_name = "PATH")]
    pub handover: Option<PathBuf>,
    /// Take over from the relay that serves at --handover, without losing a packet; when none does, start as usual.
    #[arg(long, env = "FIRSTHOP_TAKEOVER", action = ArgAction::Set, num_args = 0..=1,
          require_equals = true, default_value = "false", default_missing_value = "true",
          value_parser = BoolishValueParser::new())]
    pub takeover: bool,
    /// What a relay does once a successor serves: exit, or stay without holding anything until SIGTERM, for a supervisor that
    /// would start again what ends by itself (Kubernetes).
    #[arg(
        long,
        env = "FIRSTHOP_HANDED_OVER",
        value_name = "exit|stay",
        default_value = "exit"
    )]
    pub handed_over: HandedOver,
    /// How long flows are forwarded after SIGTERM, in seconds. /readyz says 503 meanwhile, and the relay ends early when no flow is left.
    /// 0 ends it at once, and so do SIGINT and a second SIGTERM.
    #[arg(long, env = "FIRSTHOP_DRAIN", value_name = "SECONDS", default_value_t = DRAIN_DEFAULT.as_secs())]
    pub drain: u64,
    /// Whether a core polls for a moment before it sleeps.
    #[arg(
        long,
        env = "FIRSTHOP_SPIN",
        value_name = "on|off",
        default_value = "on"
    )]
    pub spin: Switch,
    /// Where flows are remembered.
    #[command(flatten)]
    pub cache: CacheSettings,
    /// What is logged, and how.
    #[command(flatten)]
    pub log: Log,
}

/// A setting that is on or off.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Switch {
    /// On.
    On,
    /// Off.
    Off,
}

/// What a relay does once a successor serves.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum HandedOver {
    /// It ends.
    Exit,
    /// It stays, and holds nothing (see [`bystander`](crate::bystander)).
    Stay,
}
