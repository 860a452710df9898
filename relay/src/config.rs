//! The relay's settings: what can be set, and the check that stops a bad start.
//!
//! Every setting is a long flag and an environment variable `FIRSTHOP_<NAME>`. [`Config::check`] turns the words into values
//! that cannot be wrong any more; what is wrong is said in one line that names the setting and the fix, before anything is
//! opened.

mod settings;

use std::borrow::Cow;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use firsthop_relay_core::PeerList;
use firsthop_relay_core::limits::{FLOWS_MAX, PROVISIONAL_SHARE, TRUNKS_DEFAULT};
use firsthop_service::limits::{MTU_MAX, MTU_MIN};
use firsthop_service::secret_files::Secrets;
use firsthop_service::settings::SettingError;
use firsthop_shared::address::{ClusterId, IngressId, Networks, canonical};
use firsthop_shared::fleet::{Fleet, FleetError, RelayEntry};
use firsthop_shared::keyring::{DataKeyring, KeyringError};
use firsthop_shared::reload::Reloader;

use crate::cache::Target;
use crate::limits::{DRAIN_MAX, LISTEN_MAX};
use crate::site::Site;
use crate::system;

pub use settings::{HandedOver, Settings, Switch};

fn refuse<T>(
    setting: &'static str,
    problem: impl Into<String>,
    fix: impl Into<Cow<'static, str>>,
) -> Result<T, SettingError> {
    Err(SettingError::new(setting, problem, fix))
}

/// A public address of the relay.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Listen {
    /// Where the sockets are bound.
    pub address: SocketAddr,
    /// What clients are told.
    pub advertised: SocketAddr,
    /// The ingress point that advertises it.
    pub ingress: IngressId,
}

/// Settings that were checked.
pub struct Config {
    /// Public addresses, no two for one ingress and family; at least one unless the relay serves no clients.
    pub listen: Vec<Listen>,
    /// The relay's place in the fleet.
    pub site: Site,
    /// The relays of other clusters as the fleet lists them now.
    pub peers: Arc<PeerList>,
    /// The relay's cluster.
    pub cluster: ClusterId,
    /// Internal address.
    pub internal: IpAddr,
    /// First internal port; those of all cores are valid.
    pub internal_port: u16,
    /// Where owners are.
    pub internal_networks: Networks,
    /// Whether clients may be there too.
    pub allow_internal_clients: bool,
    /// Upper bound of internal MTUs, in bytes.
    pub internal_mtu: Option<u16>,
    /// How long a record waits for company, in microseconds.
    pub linger: u64,
    /// The processor of each core.
    pub processors: Vec<usize>,
    /// Flows per core.
    pub flows: u32,
    /// Owner workers per core.
    pub trunks: u16,
    /// Seed of the steering rule.
    pub steering_seed: u32,
    /// Admin address.
    pub admin: SocketAddr,
    /// Where sockets and flows are handed over.
    pub handover: Option<PathBuf>,
    /// Whether to take over from whoever serves there. Only with a path.
    pub takeover: bool,
    /// What to do once a successor serves.
    pub handed_over: HandedOver,
    /// How long flows are forwarded after SIGTERM.
    pub drain: Duration,
    /// Whether cores poll before they sleep.
    pub spin: bool,
    /// The flow cache; nothing when there is none.
    pub cache: Option<Target>,
    /// The keyring as it is now.
    pub keyring: Arc<DataKeyring>,
}

/// The files that the settings name, which are read again when they change.
pub struct Files {
    /// The data keyring.
    pub keyring: Reloader<DataKeyring, KeyringError>,
    /// The fleet.
    pub fleet: Reloader<Fleet, FleetError>,
}

/// The longest linger that can be set, in microseconds: longer is heard.
const LINGER_MAX: u64 = 5_000;

impl Config {
    /// Checks every setting, and reads the files they name.
    ///
    /// # Errors
    /// The first setting that is wrong.
    pub fn check(settings: &Settings) -> Result<(Self, Files), SettingError> {
        let (keyring_reloader, keyring) = Reloader::new(&settings.keyring, DataKeyring::load)
            .map_err(|error| {
                SettingError::in_file(
                    "--keyring",
                    &settings.keyring,
                    &error,
                    "make one with `keys init`, and give its data keyring",
                )
            })?;
        let (fleet_reloader, fleet) =
            Reloader::new(&settings.fleet, Fleet::load).map_err(|error| {
                SettingError::in_file("--fleet", &settings.fleet, &error, "correct the fleet file")
            })?;
        let cluster = ClusterId(settings.cluster);
        if fleet.cluster(cluster).is_none() {
            return refuse(
                "--cluster",
                format!("{cluster} is not a cluster of {}", settings.fleet.display()),
                "name one that is, or add it there",
            );
        }
        let internal_networks = match Networks::parse(&settings.internal_networks) {
            Ok(networks) if networks.is_empty() => {
                return refuse(
                    "--internal-networks",
                    "it is empty",
                    "name the networks that transceivers are in",
                );
            }
            Ok(networks) => networks,
            Err(error) => {
                return refuse(
                    "--internal-networks",
                    error.to_string(),
                    "give CIDRs such as 10.0.0.0/8,fd00::/8",
                );
            }
        };
        let processors = system::choose_processors(&settings.cores, &system::processors())?;
        check_internal(settings, &internal_networks, processors.len())?;
        let listen = check_listen(settings, &fleet, &internal_networks)?;
        check_numbers(settings)?;
        check_handover(settings)?;
        let cache = settings.cache.check(processors.len())?;
        // Locked memory is counted by user, and a successor of the same user locks as much again.
        let relays = if settings.handover.is_some() { 2 } else { 1 };
        system::ensure_memlock(processors.len(), relays)?;
        let site = Site {
            role: settings.role,
            cluster,
            networks: internal_networks.clone(),
            entry: RelayEntry {
                address: settings.internal,
                port: settings.internal_port,
                cores: processors.len() as u16,
                seed: settings.steering_seed,
            },
        };
        let config = Self {
            listen,
            peers: site.peers(&fleet),
            site,
            cluster,
            internal: settings.internal,
            internal_port: settings.internal_port,
            internal_networks,
            allow_internal_clients: settings.allow_internal_clients,
            internal_mtu: settings.internal_mtu,
            linger: settings.linger,
            processors,
            flows: settings.flows_per_core,
            trunks: TRUNKS_DEFAULT,
            steering_seed: settings.steering_seed,
            admin: settings.admin,
            handover: settings.handover.clone(),
            takeover: settings.takeover,
            handed_over: settings.handed_over,
            drain: Duration::from_secs(settings.drain),
            spin: settings.spin == Switch::On,
            cache,
            keyring: Arc::new(keyring),
        };
        let files = Files {
            keyring: keyring_reloader,
            fleet: fleet_reloader,
        };
        Ok((config, files))
    }
}

impl Settings {
    /// The files with secrets.
    #[must_use]
    pub fn secrets(&self) -> Secrets {
        let password = self.cache.password_file.as_deref();
        Secrets::of([
            ("keyring", Some(self.keyring.as_path())),
            ("redis-password-file", password),
        ])
    }
}

fn check_internal(
    settings: &Settings,
    networks: &Networks,
    cores: usize,
) -> Result<(), SettingError> {
    let address = settings.internal;
    if !networks.contains(address) {
        return refuse(
            "--internal",
            format!(
                "{address} is outside of --internal-networks, so transceivers would drop what comes from it"
            ),
            "give an address inside",
        );
    }
    if settings.internal_port == 0 || usize::from(settings.internal_port) + cores > 1 << 16 {
        return refuse(
            "--internal-port",
            format!(
                "{} and the following ports do not give each of {cores} cores one",
                settings.internal_port
            ),
            "give a port from which on they lie in 1 to 65535",
        );
    }
    Ok(())
}

fn check_listen(
    settings: &Settings,
    fleet: &Fleet,
    networks: &Networks,
) -> Result<Vec<Listen>, SettingError> {
    let mut listen: Vec<Listen> = Vec::new();
    for text in &settings.listen {
        let one = check_one_listen(text, settings, fleet, networks).map_err(|(problem, fix)| {
            SettingError::new("--listen", format!("{text}: {problem}"), fix)
        })?;
        for other in &listen {
            if other.address == one.address {
                return refuse(
                    "--listen",
                    format!("{} is named twice", one.address),
                    "name it once",
                );
            }
            if other.ingress == one.ingress && other.address.is_ipv6() == one.address.is_ipv6() {
                return refuse(
                    "--listen",
                    format!(
                        "{text}: {} already serves the advertised address {}",
                        other.address, one.advertised
                    ),
                    "give each ingress one address per family",
                );
            }
        }
        listen.push(one);
    }
    if !settings.role.serves_clients() {
        return match listen.is_empty() {
            true => Ok(listen),
            false => refuse(
                "--listen",
                "a relay with --role cluster serves no clients",
                "leave it away, or choose --role both",
            ),
        };
    }
    if listen.is_empty() || listen.len() > LISTEN_MAX {
        return refuse(
            "--listen",
            format!("it names {} addresses", listen.len()),
            format!("name 1 to {LISTEN_MAX}"),
        );
    }
    Ok(listen)
}

fn check_one_listen(
    text: &str,
    settings: &Settings,
    fleet: &Fleet,
    networks: &Networks,
) -> Result<Listen, (String, &'static str)> {
    let parse = |part: &str| {
        part.trim()
            .parse::<SocketAddr>()
            .map(canonical)
            .map_err(|_| {
                (
                    format!("'{part}' is not an address with a port"),
                    "give one such as 203.0.113.10:3478 or [2001:db8::10]:3478",
                )
            })
    };
    let bad = |problem: &str, fix| Err((problem.to_owned(), fix));
    let (address, advertised) = match text.split_once('=') {
        Some((address, advertised)) => (parse(address)?, parse(advertised)?),
        None => (parse(text)?, parse(text)?),
    };
    let ip = address.ip();
    if ip.is_unspecified() {
        return bad(
            "a wildcard address would answer from another address than the one that was hit",
            "name each address",
        );
    }
    if ip.is_multicast() {
        return bad(
            "it is a multicast address",
            "name an address of this machine",
        );
    }
    if address.port() == 0 {
        return bad(
            "port 0 is another for each socket",
            "name the port, all cores share it",
        );
    }
    if advertised.ip().is_unspecified() || advertised.ip().is_multicast() || advertised.port() == 0
    {
        return Err((
            format!("clients cannot reach the advertised address {advertised}"),
            "advertise the one that they can",
        ));
    }
    if address.is_ipv6() != advertised.is_ipv6() {
        return bad(
            "listen and advertised address are of different families",
            "give both the same",
        );
    }
    let Some(ingress) = fleet.ingress_by_address(advertised) else {
        return Err((
            format!(
                "no ingress in {} advertises {advertised}",
                settings.fleet.display()
            ),
            "add it there, or append =ADVERTISED with one of it",
        ));
    };
    if ip.is_loopback() && networks.contains(ip) && !settings.allow_internal_clients {
        return bad(
            "only clients inside --internal-networks reach a loopback address, and they are not served",
            "add --allow-internal-clients",
        );
    }
    Ok(Listen {
        address,
        advertised,
        ingress,
    })
}

fn check_handover(settings: &Settings) -> Result<(), SettingError> {
    if settings.takeover && settings.handover.is_none() {
        return refuse(
            "--takeover",
            "nobody knows where the serving relay is",
            "give its socket with --handover",
        );
    }
    if settings.handed_over == HandedOver::Stay && settings.handover.is_none() {
        return refuse(
            "--handed-over",
            "a relay without --handover hands nothing over",
            "give the socket with --handover, or leave it at exit",
        );
    }
    Ok(())
}

fn check_numbers(settings: &Settings) -> Result<(), SettingError> {
    if !(PROVISIONAL_SHARE..=FLOWS_MAX).contains(&settings.flows_per_core) {
        return refuse(
            "--flows-per-core",
            format!("a core cannot hold {} flows", settings.flows_per_core),
            format!("choose {PROVISIONAL_SHARE} to {FLOWS_MAX}"),
        );
    }
    if settings.linger > LINGER_MAX {
        return refuse(
            "--linger",
            format!("{} microseconds are heard", settings.linger),
            format!("choose 0 to {LINGER_MAX}"),
        );
    }
    if settings.drain > DRAIN_MAX.as_secs() {
        return refuse(
            "--drain",
            format!("{} seconds are longer than anybody waits", settings.drain),
            format!("choose 0 to {}", DRAIN_MAX.as_secs()),
        );
    }
    if let Some(mtu) = settings.internal_mtu
        && !(MTU_MIN..=MTU_MAX).contains(&mtu)
    {
        return refuse(
            "--internal-mtu",
            format!("no path has {mtu} bytes"),
            format!("choose {MTU_MIN} to {MTU_MAX}"),
        );
    }
    Ok(())
}
