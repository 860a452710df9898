//! Settings, from flags and environment, checked before anything starts.
//!
//! A bad value stops the start with one line that names the setting and the fix.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Parser;
use firsthop_service::limits::{MTU_MAX, MTU_MIN};
use firsthop_service::secret_files::Secrets;
use firsthop_service::settings::{Log, SettingError};
use firsthop_service::traces::ExportArgs;
use firsthop_shared::address::{ClusterId, Networks, OwnerAddr};
use firsthop_shared::control_secret::{self, CONTROL_SECRET_FIX};
use firsthop_shared::fleet::Fleet;
use firsthop_shared::keyring::DataKeyring;
use firsthop_shared::limits::SHARDS_MAX;
use firsthop_shared::reload::{Reloader, read_small_file};

use crate::audio::OpusMode;
use crate::backend::{BackendArgs, BackendConfig};
use crate::lifetimes::{LifetimeArgs, Lifetimes};

/// The command line. Each setting may also stand in the environment, as `FIRSTHOP_` and its name.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "transceiver",
    version,
    about = "Terminates WebRTC sessions behind Firsthop relays"
)]
pub struct Args {
    /// The data keyring: keys of ufrags, ICE passwords and trunks.
    #[arg(long, env = "FIRSTHOP_KEYRING", value_name = "FILE")]
    pub keyring: PathBuf,
    /// fleet.toml: the clusters and the ingress points.
    #[arg(long, env = "FIRSTHOP_FLEET", value_name = "FILE")]
    pub fleet: PathBuf,
    /// The cluster of this transceiver.
    #[arg(long, env = "FIRSTHOP_CLUSTER", value_name = "ID", default_value_t = 1)]
    pub cluster: u16,
    /// UDP address of the trunk.
    #[arg(
        long,
        env = "FIRSTHOP_TRUNK",
        value_name = "ADDR",
        default_value = "127.0.0.1:5000"
    )]
    pub trunk: SocketAddr,
    /// The trunk address as relays reach it and as it is minted into ufrags; the trunk address when not given.
    ///
    /// Trunk datagrams must leave from this very address: relays know an owner by it.
    #[arg(long, env = "FIRSTHOP_OWNER", value_name = "ADDR")]
    pub owner: Option<SocketAddr>,
    /// HTTP address of control, health and metrics.
    #[arg(
        long,
        env = "FIRSTHOP_CONTROL",
        value_name = "ADDR",
        default_value = "127.0.0.1:5080"
    )]
    pub control: SocketAddr,
    /// File with the secret that signaling shows to this transceiver.
    #[arg(long, env = "FIRSTHOP_CONTROL_SECRET_FILE", value_name = "FILE")]
    pub control_secret_file: PathBuf,
    /// Networks of the relays, as CIDR blocks: trunk datagrams from elsewhere are dropped.
    #[arg(
        long,
        env = "FIRSTHOP_INTERNAL_NETWORKS",
        value_name = "CIDRS",
        default_value = "127.0.0.0/8"
    )]
    pub internal_networks: String,
    /// Upper bound for the MTU of the paths to relays, in bytes; without it the kernel's knowledge of each path.
    #[arg(long, env = "FIRSTHOP_INTERNAL_MTU", value_name = "BYTES")]
    pub internal_mtu: Option<u16>,
    /// Worker threads; one for each processor when not given.
    #[arg(long, env = "FIRSTHOP_WORKERS", value_name = "N")]
    pub workers: Option<usize>,
    /// How many sessions a worker takes.
    #[arg(
        long,
        env = "FIRSTHOP_SESSIONS_PER_WORKER",
        value_name = "N",
        default_value_t = 1_000
    )]
    pub sessions_per_worker: usize,
    /// Where audio and events come from.
    #[command(flatten)]
    pub backend: BackendArgs,
    /// How long sessions may take.
    #[command(flatten)]
    pub lifetimes: LifetimeArgs,
    /// How Opus is encoded for clients: speech at 32 kbit/s, or light at 64 kbit/s, as good for a third of the CPU.
    #[arg(
        long,
        env = "FIRSTHOP_OPUS",
        value_name = "MODE",
        value_enum,
        default_value_t
    )]
    pub opus: OpusMode,
    /// Where traces of calls go that signaling traces.
    #[command(flatten)]
    pub traces: ExportArgs,
    /// What is logged, and how.
    #[command(flatten)]
    pub log: Log,
}

/// How a data keyring is watched.
pub type KeyringReloader = Reloader<DataKeyring, firsthop_shared::keyring::KeyringError>;
/// How a fleet file is watched.
pub type FleetReloader = Reloader<Fleet, firsthop_shared::fleet::FleetError>;

/// Checked settings, with the files read.
pub struct Config {
    /// See [`Args::cluster`].
    pub cluster: ClusterId,
    /// See [`Args::trunk`].
    pub trunk: SocketAddr,
    /// See [`Args::owner`].
    pub owner: OwnerAddr,
    /// See [`Args::control`].
    pub control: SocketAddr,
    /// The secret, without white space around it.
    pub control_secret: String,
    /// See [`Args::internal_networks`].
    pub networks: Networks,
    /// See [`Args::internal_mtu`].
    pub internal_mtu: Option<u16>,
    /// See [`Args::workers`].
    pub workers: usize,
    /// See [`Args::sessions_per_worker`].
    pub sessions_per_worker: usize,
    /// How long sessions may take.
    pub lifetimes: Lifetimes,
    /// See [`Args::opus`].
    pub opus: OpusMode,
    /// How long running ones may go on after SIGTERM.
    pub drain: Duration,
    /// The keyring, and its watch.
    pub keyring: (KeyringReloader, DataKeyring),
    /// The fleet, and its watch.
    pub fleet: (FleetReloader, Fleet),
    /// See [`Args::backend`].
    pub backend: BackendConfig,
}

fn control_secret(path: &Path) -> Result<String, SettingError> {
    let setting = "--control-secret-file";
    let text = read_small_file(path).map_err(|e| {
        SettingError::new(
            setting,
            e.to_string(),
            "give a file that holds the secret on one line",
        )
    })?;
    let secret = control_secret::parse(&text)
        .map_err(|fault| SettingError::in_file(setting, path, &fault, CONTROL_SECRET_FIX))?;
    Ok(secret.to_owned())
}

impl Config {
    /// Checks the settings and reads the files.
    ///
    /// # Errors
    /// The first setting that cannot be used.
    pub fn load(args: &Args) -> Result<Self, SettingError> {
        let keyring = Reloader::new(&args.keyring, DataKeyring::load).map_err(|e| {
            SettingError::in_file(
                "--keyring",
                &args.keyring,
                &e,
                "make one with `keys init`, and give its data keyring",
            )
        })?;
        let fleet = Reloader::new(&args.fleet, Fleet::load).map_err(|e| {
            SettingError::in_file("--fleet", &args.fleet, &e, "correct the fleet file")
        })?;
        let cluster = ClusterId(args.cluster);
        if fleet.1.cluster(cluster).is_none() {
            return Err(SettingError::new(
                "--cluster",
                format!("{cluster} is not a cluster of the fleet file"),
                "name one that is, or add it there",
            ));
        }
        let control_secret = control_secret(&args.control_secret_file)?;
        let networks = Networks::parse(&args.internal_networks).map_err(|e| {
            SettingError::new(
                "--internal-networks",
                e.to_string(),
                "give CIDRs such as 10.0.0.0/8,fd00::/8",
            )
        })?;
        if networks.is_empty() {
            return Err(SettingError::new(
                "--internal-networks",
                "no network is named, so no relay could reach this transceiver",
                "name the networks of the relays",
            ));
        }
        if let Some(mtu) = args.internal_mtu
            && !(MTU_MIN..=MTU_MAX).contains(&mtu)
        {
            return Err(SettingError::new(
                "--internal-mtu",
                format!("no path has {mtu} bytes"),
                format!("choose {MTU_MIN} to {MTU_MAX}"),
            ));
        }
        // To a loopback address comes what is sent from one alone.
        let trunk = args.trunk.ip();
        if trunk.is_loopback() && !networks.contains(trunk) {
            return Err(SettingError::new(
                "--internal-networks",
                format!(
                    "the trunk's address {trunk} is outside of them, and only relays of this machine reach a loopback address"
                ),
                "name a network that holds it, or give --trunk an address that relays reach",
            ));
        }
        let workers = match args.workers {
            Some(workers) => workers,
            None => std::thread::available_parallelism().map_or(1, usize::from),
        };
        if !(1..=SHARDS_MAX).contains(&workers) {
            return Err(SettingError::new(
                "--workers",
                format!("{workers} is not between 1 and {SHARDS_MAX}"),
                "give a number that is",
            ));
        }
        if args.sessions_per_worker == 0 {
            return Err(SettingError::new(
                "--sessions-per-worker",
                "a worker that takes none serves nobody",
                "give 1 or more",
            ));
        }
        let (lifetimes, drain) = args.lifetimes.check()?;
        Ok(Self {
            cluster,
            trunk: args.trunk,
            owner: owner(args)?,
            control: args.control,
            control_secret,
            networks,
            internal_mtu: args.internal_mtu,
            workers,
            sessions_per_worker: args.sessions_per_worker,
            lifetimes,
            opus: args.opus,
            drain,
            keyring,
            fleet,
            backend: BackendConfig::load(&args.backend)?,
        })
    }
}

impl Args {
    /// The files with secrets.
    #[must_use]
    pub fn secrets(&self) -> Secrets {
        Secrets::of([
            ("keyring", Some(self.keyring.as_path())),
            (
                "control-secret-file",
                Some(self.control_secret_file.as_path()),
            ),
            ("backend-key-file", self.backend.backend_key_file.as_deref()),
        ])
    }
}

/// The address that is minted: one that a relay can send to.
fn owner(args: &Args) -> Result<OwnerAddr, SettingError> {
    let owner = OwnerAddr::new(args.owner.unwrap_or(args.trunk));
    let unusable = match owner.ip() {
        IpAddr::V4(ip) => ip.is_unspecified() || ip.is_multicast() || ip.is_broadcast(),
        IpAddr::V6(ip) => ip.is_unspecified() || ip.is_multicast(),
    };
    if unusable || owner.port() == 0 {
        return Err(SettingError::new(
            "--owner",
            format!("relays cannot send to {owner}"),
            "give the address and port by which they reach this transceiver",
        ));
    }
    Ok(owner)
}

/// The engine's libraries log no louder than this, unless the filter names them.
///
/// They warn about what peers send (an odd offer, an attribute out of place), and the SCTP library calls a client's normal
/// goodbye an error: all that is counted here, and no operator can mend it.
pub const QUIET: [(&str, &str); 4] = [
    ("str0m", "error"),
    ("is", "error"),
    ("dimpl", "error"),
    ("sctp_proto", "off"),
];

#[cfg(test)]
mod tests {
    use firsthop_shared::keyring::Masters;

    use super::*;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!(
                "firsthop-transceiver-{}-{name}",
                std::process::id()
            ));
            std::fs::create_dir_all(&path).expect("a folder");
            let write = |name: &str, text: &str| {
                std::fs::write(path.join(name), text).expect("written");
            };
            write("keyring.toml", &Masters::new([1; 32]).data_toml());
            write(
                "fleet.toml",
                "[[cluster]]\nid=1\nname=\"dev\"\n[[ingress]]\nid=0\nipv4=\"127.0.0.1:3478\"\n",
            );
            write("secret", "0123456789abcdef\n");
            Self(path)
        }

        fn load(&self, more: &[&str]) -> Result<Config, SettingError> {
            let file = |name: &str| self.0.join(name).to_str().expect("a path").to_owned();
            let mut all = vec![
                "transceiver".to_owned(),
                "--keyring".to_owned(),
                file("keyring.toml"),
                "--fleet".to_owned(),
                file("fleet.toml"),
                "--control-secret-file".to_owned(),
                file("secret"),
            ];
            all.extend(more.iter().map(|s| (*s).to_owned()));
            Config::load(&Args::try_parse_from(all).expect("arguments"))
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn the_owner_is_the_trunk_address_unless_named() {
        let folder = Folder::new("owner");
        let config = folder.load(&[]).expect("valid");
        assert_eq!(config.owner.to_string(), "127.0.0.1:5000");
        let config = folder
            .load(&["--trunk", "0.0.0.0:5000", "--owner", "10.1.2.3:5000"])
            .expect("valid");
        assert_eq!(config.owner.to_string(), "10.1.2.3:5000");
        assert_eq!(config.control_secret, "0123456789abcdef");
        assert_eq!(config.internal_mtu, None);
        let config = folder.load(&["--internal-mtu", "1280"]).expect("valid");
        assert_eq!(config.internal_mtu, Some(1_280));
    }

    #[test]
    fn a_bad_value_is_named_in_one_line_with_the_fix() {
        let folder = Folder::new("bad");
        let cases: [(&[&str], &str); 10] = [
            (
                &["--internal-networks", "10.0.0.0/8"],
                "--internal-networks: the trunk's address 127.0.0.1 is outside of them",
            ),
            (
                &["--trunk", "[::1]:5000"],
                "--internal-networks: the trunk's address ::1 is outside of them",
            ),
            (
                &["--trunk", "0.0.0.0:5000"],
                "--owner: relays cannot send to 0.0.0.0:5000",
            ),
            (
                &["--owner", "[::]:5000"],
                "--owner: relays cannot send to [::]:5000",
            ),
            (
                &["--cluster", "7"],
                "--cluster: 7 is not a cluster of the fleet file",
            ),
            (&["--workers", "0"], "--workers: 0 is not between 1 and 256"),
            (
                &["--internal-mtu", "1279"],
                "--internal-mtu: no path has 1279 bytes",
            ),
            (
                &["--internal-mtu", "9217"],
                "--internal-mtu: no path has 9217 bytes",
            ),
            (
                &["--internal-networks", "10.0.0.0/99"],
                "--internal-networks: '10.0.0.0/99'",
            ),
            (
                &["--internal-networks", ""],
                "--internal-networks: no network",
            ),
        ];
        for (more, expected) in cases {
            let error = folder.load(more).err().expect("refused").to_string();
            assert!(error.starts_with(expected), "{error}");
            assert!(!error.contains('\n'), "{error}");
        }
        let keyring = folder.0.join("keyring.toml");
        let good = std::fs::read_to_string(&keyring).expect("readable");
        std::fs::write(&keyring, "[[key]\n").expect("written");
        let error = folder.load(&[]).err().expect("refused").to_string();
        assert!(error.starts_with("--keyring: /"), "{error}");
        assert!(
            error.contains("keyring.toml: line 1 is not what"),
            "{error}"
        );
        std::fs::write(&keyring, good).expect("written");
        let secret = folder.0.join("secret");
        for (text, expected) in [
            (
                "0123456789abcdef\n0123456789abcdef\n".to_owned(),
                "more than one line",
            ),
            ("0123456789 abcdef".to_owned(), "blanks"),
            ("x".repeat(600_000), "more than 256 characters"),
            ("0123456789".to_owned(), "fewer than 16 characters"),
        ] {
            std::fs::write(&secret, &text).expect("written");
            let error = folder.load(&[]).err().expect("refused").to_string();
            assert!(error.starts_with("--control-secret-file: /"), "{error}");
            assert!(error.contains(expected), "{error}");
            assert!(!error.contains(&text[..10]), "{error}");
        }
        std::fs::remove_file(&secret).expect("removed");
        let error = folder.load(&[]).err().expect("refused").to_string();
        assert!(
            error.starts_with("--control-secret-file: cannot read"),
            "{error}"
        );
    }
}
