//! Firsthop's programs, started for a measurement on one processor, with files and addresses of their own.

use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use firsthop_shared::address::{ClusterId, IngressId};
use firsthop_shared::keyring::{DataKeyring, Masters};
use sha2::{Digest as _, Sha256};

use super::air::Way;
use super::model::Format;
use super::placing::Desk;
use crate::folder;
use crate::metrics::{self, Metrics};
use crate::place::Place;
use crate::process::Process;

/// The API key that signaling takes here.
const KEY: &str = "perf";

/// What answers the callers.
#[derive(Clone, Debug)]
pub enum Backend {
    /// The transceiver's own echo.
    Echo,
    /// A server that speaks the Realtime protocol.
    Realtime {
        /// Where it is.
        url: String,
        /// Its audio.
        format: Format,
    },
}

/// What to start.
#[derive(Clone, Debug)]
pub struct StackPlan {
    /// The folder with the programs.
    pub programs: PathBuf,
    /// Where files and logs go; removed at the end, unless [`Stack::keep_logs`] says otherwise.
    pub directory: PathBuf,
    /// Tells stacks of one process apart, by their addresses.
    pub number: u8,
    /// The processor that all of them run on.
    pub processor: usize,
    /// What answers the callers.
    pub backend: Backend,
    /// A relay and signaling, too, and not the transceiver alone.
    pub whole: bool,
}

/// Programs that run.
pub struct Stack {
    plan: StackPlan,
    logs_stay: bool,
    keyring: Arc<DataKeyring>,
    secret: String,
    place: Place,
    /// The transceiver.
    pub transceiver: Process,
    /// The relay, if there is one.
    pub relay: Option<Process>,
    /// Signaling, if there is one.
    pub signaling: Option<Process>,
}

impl Stack {
    /// Starts what the plan says, and waits until it serves.
    ///
    /// # Errors
    /// A program is not there, or does not start: its log's end is in the message.
    pub fn start(plan: StackPlan) -> io::Result<Self> {
        let place = Place::of_this_process(plan.number);
        Self::start_at(plan, place)
    }

    /// The same at a place of another kind, such as addresses of the network namespace that this thread is in.
    ///
    /// # Errors
    /// As [`Stack::start`].
    pub fn start_at(plan: StackPlan, place: Place) -> io::Result<Self> {
        folder::private(&plan.directory)?;
        let masters = Masters::new(rand::random());
        let (data, api) = (masters.data_toml(), masters.api_toml());
        let secret = format!("{:032x}", rand::random::<u128>());
        let digest: String = Sha256::digest(KEY)
            .iter()
            .map(|b| format!("{b:02x}"))
            .collect();
        for (name, text) in [
            ("data.toml", data.as_str()),
            ("api.toml", api.as_str()),
            ("control-secret", secret.as_str()),
            (
                "api-keys.toml",
                &format!("[[key]]\nname = \"perf\"\nsha256 = \"{digest}\"\n"),
            ),
            (
                "fleet.toml",
                &format!(
                    "[[cluster]]\nid = 1\nname = \"perf\"\nsignaling = \"http://{}\"\n\
                     relays = [{{ address = \"{}\", cores = 1 }}]\n\
                     [[ingress]]\nid = 0\nname = \"perf\"\nipv4 = \"{}\"\n",
                    http(place),
                    place.internal.ip(),
                    place.public
                ),
            ),
        ] {
            fs::write(plan.directory.join(name), text)?;
        }
        let keyring = Arc::new(DataKeyring::parse(&data).map_err(io::Error::other)?);
        let transceiver = start(&plan, "transceiver", transceiver(&plan, place), |log| {
            Ok(log.contains("ready"))
        })?;
        let (mut relay, mut signaling) = (None, None);
        if plan.whole {
            relay = Some(start(&plan, "relay", relay_settings(&plan, place), |_| {
                Ok(Metrics::read(place.admin).is_ok_and(|m| m.sum("receives_armed_total") > 0))
            })?);
            signaling = Some(start(
                &plan,
                "signaling",
                signaling_settings(place),
                |_| Ok(metrics::get(http(place), "/readyz").is_ok()),
            )?);
        }
        Ok(Self {
            plan,
            logs_stay: false,
            keyring,
            secret,
            place,
            transceiver,
            relay,
            signaling,
        })
    }

    /// Places calls at the transceiver, past signaling.
    #[must_use]
    pub fn control_desk(&self) -> Desk {
        Desk::Control {
            url: format!("http://{}", control(self.place)),
            secret: self.secret.clone(),
            keyring: Arc::clone(&self.keyring),
            cluster: ClusterId(1),
            ingresses: vec![0],
        }
    }

    /// Places calls with signaling.
    #[must_use]
    pub fn signaling_desk(&self) -> Desk {
        Desk::Signaling {
            url: format!("http://{}", http(self.place)),
            key: KEY.to_owned(),
        }
    }

    /// Past the relay.
    #[must_use]
    pub fn direct(&self) -> Way {
        Way::Direct {
            keyring: Arc::clone(&self.keyring),
            ingress: IngressId(0),
        }
    }

    /// The process ids of what runs.
    #[must_use]
    pub fn processes(&self) -> Vec<u32> {
        [
            Some(&self.transceiver),
            self.relay.as_ref(),
            self.signaling.as_ref(),
        ]
        .into_iter()
        .flatten()
        .map(Process::id)
        .collect()
    }

    /// What the transceiver says of itself.
    ///
    /// # Errors
    /// It does not answer.
    pub fn transceiver_metrics(&self) -> io::Result<Metrics> {
        Metrics::read_transceiver(control(self.place))
    }

    /// What the relay says of itself.
    ///
    /// # Errors
    /// There is none, or it does not answer.
    pub fn relay_metrics(&self) -> io::Result<Metrics> {
        Metrics::read(self.place.admin)
    }

    /// What a program has logged.
    ///
    /// # Errors
    /// It has no log.
    pub fn log(&self, program: &str) -> io::Result<String> {
        fs::read_to_string(self.plan.directory.join(format!("{program}.log")))
    }

    /// Leaves the logs where they are when the programs end, for whoever asks why calls failed.
    pub fn keep_logs(&mut self) {
        self.logs_stay = true;
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        let folder = &self.plan.directory;
        if !self.logs_stay {
            let _ = fs::remove_dir_all(folder);
            return;
        }
        // Keys and secrets are of no use to anybody any more.
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            if entry.path().extension().is_none_or(|end| end != "log") {
                let _ = fs::remove_file(entry.path());
            }
        }
    }
}

fn control(place: Place) -> SocketAddrV4 {
    SocketAddrV4::new(*place.internal.ip(), 5_080)
}

fn http(place: Place) -> SocketAddrV4 {
    SocketAddrV4::new(*place.public.ip(), 8_080)
}

/// The network that the programs of a place trust: on loopback the one given, elsewhere that of the internal address.
fn internal_network(place: Place, loopback: &str) -> String {
    let ip = place.internal.ip();
    match ip.is_loopback() {
        true => loopback.to_owned(),
        false => format!("{}/24", Ipv4Addr::from_bits(ip.to_bits() & !0xff)),
    }
}

type Settings = Vec<(&'static str, String)>;

fn transceiver(plan: &StackPlan, place: Place) -> Settings {
    let trunk = SocketAddrV4::new(*place.internal.ip(), 5_000);
    let mut settings = vec![
        ("trunk", trunk.to_string()),
        ("control", control(place).to_string()),
        ("control-secret-file", file(plan, "control-secret")),
        // The generator's own trunk has the address of loopback itself.
        ("internal-networks", internal_network(place, "127.0.0.0/8")),
        ("workers", "1".to_owned()),
        ("sessions-per-worker", "20000".to_owned()),
        ("drain", "0".to_owned()),
    ];
    match &plan.backend {
        Backend::Echo => settings.push(("backend", "echo".to_owned())),
        Backend::Realtime { url, format } => settings.extend([
            ("backend", "realtime".to_owned()),
            ("backend-url", url.clone()),
            ("backend-format", format.name().to_owned()),
        ]),
    }
    settings
}

fn relay_settings(plan: &StackPlan, place: Place) -> Settings {
    let processor = plan.processor;
    vec![
        ("listen", place.public.to_string()),
        ("internal", place.internal.ip().to_string()),
        ("internal-port", place.internal.port().to_string()),
        (
            "internal-networks",
            internal_network(place, crate::place::INTERNAL_NETWORK),
        ),
        ("admin", place.admin.to_string()),
        ("cores", format!("{processor}-{processor}")),
        ("spin", "off".to_owned()),
        ("drain", "0".to_owned()),
    ]
}

fn signaling_settings(place: Place) -> Settings {
    let metrics = SocketAddrV4::new(*place.internal.ip(), 9_103);
    vec![
        ("listen", http(place).to_string()),
        ("metrics", metrics.to_string()),
        ("transceivers", format!("http://{}", control(place))),
        // All calls are from one address here.
        ("address-rate", "off".to_owned()),
    ]
}

fn file(plan: &StackPlan, name: &str) -> String {
    plan.directory.join(name).display().to_string()
}

fn start(
    plan: &StackPlan,
    name: &'static str,
    settings: Settings,
    serves: impl Fn(&str) -> io::Result<bool>,
) -> io::Result<Process> {
    let mut command = Command::new(plan.programs.join(name));
    let mut all = vec![
        ("keyring", file(plan, "data.toml")),
        ("fleet", file(plan, "fleet.toml")),
        ("cluster", "1".to_owned()),
        ("log-format", "text".to_owned()),
    ];
    if name == "signaling" {
        all.extend([
            ("control-secret-file", file(plan, "control-secret")),
            ("api-keyring", file(plan, "api.toml")),
            ("api-keys", file(plan, "api-keys.toml")),
        ]);
    }
    all.extend(settings);
    for (name, value) in all {
        command.arg(format!("--{name}={value}"));
    }
    // Whoever starts this may have settings of its own in the environment.
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("FIRSTHOP_") {
            command.env_remove(name);
        }
    }
    command.env("NO_COLOR", "1");
    let log = plan.directory.join(format!("{name}.log"));
    let failed = |error: io::Error| {
        let text = fs::read_to_string(&log).unwrap_or_default();
        let last = text.lines().next_back().unwrap_or_default();
        io::Error::other(format!("{name}: {error}; its last words: {last}"))
    };
    let mut process =
        Process::start(plan.processor, &command, fs::File::create(&log)?).map_err(failed)?;
    process
        .wait_until("serve", || serves(&fs::read_to_string(&log)?))
        .map_err(failed)?;
    Ok(process)
}

/// The folder with Firsthop's programs: the one given, or that of the program that runs.
///
/// # Errors
/// A program is missing there.
pub fn programs(named: Option<&Path>, wanted: &[&str]) -> io::Result<PathBuf> {
    let folder = match named {
        Some(folder) => folder.to_owned(),
        None => {
            let this = std::env::current_exe()?;
            let folder = this.parent().unwrap_or(Path::new("."));
            // Tests lie one folder deeper.
            match folder.file_name().and_then(|name| name.to_str()) {
                Some("deps") => folder.parent().unwrap_or(folder).to_owned(),
                _ => folder.to_owned(),
            }
        }
    };
    for name in wanted {
        if !folder.join(name).is_file() {
            return Err(io::Error::other(format!(
                "there is no program {name} in {}; build it (cargo build -p firsthop-{name}), or name another folder",
                folder.display()
            )));
        }
    }
    Ok(folder)
}

/// The address of the host that a stack's model server listens on.
#[must_use]
pub fn model_address(number: u8) -> SocketAddr {
    SocketAddr::from((*Place::of_this_process(number).internal.ip(), 0))
}
