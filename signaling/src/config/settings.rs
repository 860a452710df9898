//! What may be set, on the command line or in the environment.

use std::path::PathBuf;

use clap::Parser;
use firsthop_service::settings::Log;
use firsthop_service::traces::{ExportArgs, Share};

use crate::limits::ADDRESS_RATE_DEFAULT;

/// Firsthop signaling: takes SDP offers over HTTP and has transceivers answer them.
#[derive(Parser, Debug)]
#[command(name = "signaling", version)]
pub struct Settings {
    /// Address of the HTTP API, as address:port or name:port; may be repeated, or a comma-separated list.
    #[arg(
        long,
        env = "FIRSTHOP_LISTEN",
        value_delimiter = ',',
        default_value = "127.0.0.1:8080"
    )]
    pub(super) listen: Vec<String>,

    /// Address of the metrics.
    #[arg(long, env = "FIRSTHOP_METRICS", default_value = "127.0.0.1:9103")]
    pub(super) metrics: String,

    /// Control URLs of the transceivers, such as http://10.0.0.1:5080; may be repeated, or a comma-separated list. A name stands
    /// for a transceiver at each of its addresses.
    #[arg(long, env = "FIRSTHOP_TRANSCEIVERS", value_delimiter = ',')]
    pub(super) transceivers: Vec<String>,

    /// File with the secret that transceivers ask for on their control port.
    #[arg(long, env = "FIRSTHOP_CONTROL_SECRET_FILE")]
    pub(super) control_secret_file: Option<PathBuf>,

    /// File with the API keys: `[[key]]` tables with name and sha256, and the tenant whose calls the key reaches, when that is not its name. It
    /// is read again when it changes; a key that is taken out is revoked, with the client secrets minted with it. `key = []` alone revokes all; an empty file changes nothing.
    #[arg(long, env = "FIRSTHOP_API_KEYS")]
    pub(super) api_keys: Option<PathBuf>,

    /// Ingress points that answers may advertise, by id, the preferred first: a client whose place is known gets the nearest of them
    /// [default: all of the fleet, in its order].
    #[arg(long, env = "FIRSTHOP_INGRESSES", value_delimiter = ',')]
    pub(super) ingresses: Vec<String>,

    /// File with the data keyring.
    #[arg(long, env = "FIRSTHOP_KEYRING")]
    pub(super) keyring: Option<PathBuf>,

    /// File with the API keyring.
    #[arg(long, env = "FIRSTHOP_API_KEYRING")]
    pub(super) api_keyring: Option<PathBuf>,

    /// File with the fleet.
    #[arg(long, env = "FIRSTHOP_FLEET")]
    pub(super) fleet: Option<PathBuf>,

    /// PEM file with the certificate chain: the API is then served over TLS.
    #[arg(long, env = "FIRSTHOP_TLS_CERTIFICATE")]
    pub(super) tls_certificate: Option<PathBuf>,

    /// PEM file with the private key of the certificate.
    #[arg(long, env = "FIRSTHOP_TLS_KEY")]
    pub(super) tls_key: Option<PathBuf>,

    /// How many requests one client address may make, as RATE/BURST: so many a second in the long run, so many at once; off sets no limit.
    #[arg(long, env = "FIRSTHOP_ADDRESS_RATE", default_value = ADDRESS_RATE_DEFAULT)]
    pub(super) address_rate: String,

    /// How many connections one client address may hold at once, or one IPv6 /64; off sets no limit. Trusted proxies have none: name other clusters' addresses among
    /// them too, when these forward calls from one. Give off, or name the proxies, where clients come through a balancer that they share the address of [default: 2048; off when --address-rate is off].
    #[arg(long, env = "FIRSTHOP_ADDRESS_CONNECTIONS")]
    pub(super) address_connections: Option<String>,

    /// Networks of our own proxies, of the CDN and of other clusters' signaling, as a comma-separated list of CIDRs: only they are believed about a client's address and place.
    #[arg(long, env = "FIRSTHOP_TRUSTED_PROXIES", default_value = "")]
    pub(super) trusted_proxies: String,

    /// Headers in which a trusted proxy tells a client's latitude, longitude and country, in this order.
    #[arg(
        long,
        env = "FIRSTHOP_PLACE_HEADERS",
        value_delimiter = ',',
        default_value = "cf-iplatitude,cf-iplongitude,cf-ipcountry"
    )]
    pub(super) place_headers: Vec<String>,

    /// MaxMind database (.mmdb) of cities or countries: places clients of which no proxy tells the place.
    #[arg(long, env = "FIRSTHOP_PLACES")]
    pub(super) places: Option<PathBuf>,

    /// How a call gets to the cluster nearest to its client: forward, redirect (307; clients in pages are forwarded all the same, browsers
    /// leave the key out when they follow) or off.
    #[arg(long, env = "FIRSTHOP_STEERING", default_value = "forward")]
    pub(super) steering: String,

    /// ICE servers that WHIP clients are told of, as stun: or turn: URLs; a turn: URL is followed by ;username=NAME;credential=SECRET.
    #[arg(long, env = "FIRSTHOP_ICE_SERVERS", value_delimiter = ',')]
    pub(super) ice_servers: Vec<String>,

    /// Id of the cluster that this signaling serves.
    #[arg(long, env = "FIRSTHOP_CLUSTER")]
    pub(super) cluster: Option<String>,

    /// Which share of calls is traced, 0 to 1; whoever sends a traceparent with its sampled flag is traced, too, a few calls a second.
    #[arg(
        long,
        env = "FIRSTHOP_TRACE_SAMPLE",
        value_name = "SHARE",
        default_value = "0"
    )]
    pub(super) trace_sample: Share,

    /// Where traces go.
    #[command(flatten)]
    pub(super) traces: ExportArgs,

    /// What is logged, and how.
    #[command(flatten)]
    pub log: Log,
}
