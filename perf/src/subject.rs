//! The programs under test: Firsthop's relay, the floors below it, and the peers that somebody could pick instead.

use std::fs;
use std::io;
use std::net::{SocketAddr, SocketAddrV4};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use firsthop_shared::keyring::{DataKeyring, Masters};

use crate::folder;
use crate::metrics::Metrics;
use crate::packet::Sizes;
use crate::place::{self, Place};
use crate::process::Process;
use crate::wire::Wire;

/// What to run.
#[derive(Clone, Debug)]
pub enum Program {
    /// Firsthop's relay on one core.
    Relay(RelayOptions),
    /// `recvmmsg` and throw away.
    FloorReceive,
    /// Bare `sendmmsg` to the crowd's ports.
    FloorSend {
        /// The ports.
        ports: Vec<u16>,
        /// The crowd's flows.
        flows: u32,
        /// How large the packets are.
        sizes: Sizes,
    },
    /// One system call per packet and direction.
    Single,
    /// Batched system calls, one datagram per packet.
    Batched,
    /// The relay in Go.
    Go,
    /// nginx with its `stream` module.
    Nginx,
    /// coturn.
    Coturn,
}

/// Settings of the relay that measurements vary.
#[derive(Clone, Debug)]
pub struct RelayOptions {
    /// `--internal-mtu`.
    pub mtu: u16,
    /// `--flows-per-core`.
    pub flows: u32,
    /// Whether it polls before it sleeps.
    pub spin: bool,
    /// Whether it has an address that other relays have not: it stays while they are measured.
    pub apart: bool,
}

impl Default for RelayOptions {
    fn default() -> Self {
        Self {
            mtu: 1_500,
            flows: 65_536,
            spin: true,
            apart: false,
        }
    }
}

/// How many owners a program forwards to, and where.
#[derive(Clone, Copy, Debug)]
pub struct Owned {
    /// How many.
    pub owners: u16,
    /// Their port.
    pub port: u16,
}

/// Where programs are, and the files they read.
pub struct Lab {
    /// The processor that programs under test run on.
    pub processor: usize,
    directory: PathBuf,
    relay: PathBuf,
    go: Option<PathBuf>,
    keyring: Arc<DataKeyring>,
}

/// A program that runs.
pub struct Subject {
    /// What it is, for reports.
    pub name: &'static str,
    /// What it speaks.
    pub wire: Wire,
    /// Where it is.
    pub place: Place,
    /// The process.
    pub process: Process,
}

/// How long a relay may take to publish its counters, which it does ten times a second on a machine that is quiet.
const PUBLISHED: Duration = Duration::from_secs(10);

impl Subject {
    /// What a relay has counted up to now: counters that it published later than this was asked for.
    ///
    /// # Errors
    /// It does not answer, or publishes nothing.
    pub fn published(&self) -> io::Result<Metrics> {
        let begin = Instant::now();
        let turns = |metrics: &Metrics| metrics.sum("turns_total");
        let old = turns(&Metrics::read(self.place.admin)?);
        while turns(&Metrics::read(self.place.admin)?) == old {
            if begin.elapsed() > PUBLISHED {
                return Err(io::Error::other("the relay publishes no counters"));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        // That reading may have been taken in the middle of the publication.
        Metrics::read(self.place.admin)
    }
}

impl Program {
    /// What it is, for reports.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Relay(RelayOptions { spin: true, .. }) => "relay",
            Self::Relay(_) => "relay without polling",
            Self::FloorReceive => "floor: recvmmsg",
            Self::FloorSend { .. } => "floor: sendmmsg",
            Self::Single => "one packet per call",
            Self::Batched => "recvmmsg/sendmmsg",
            Self::Go => "Go relay",
            Self::Nginx => "nginx stream",
            Self::Coturn => "coturn",
        }
    }

    /// Whether it is somebody else's, which has to be installed or built first.
    #[must_use]
    pub fn is_foreign(&self) -> bool {
        matches!(self, Self::Go | Self::Nginx | Self::Coturn)
    }

    /// Where it runs. Each kind has an address of its own, so that the next program does not meet the last one's sockets.
    #[must_use]
    pub fn place(&self) -> Place {
        Place::of_this_process(match self {
            Self::Relay(RelayOptions { apart: false, .. }) => 1,
            Self::Relay(_) => 9,
            Self::FloorReceive => 2,
            Self::FloorSend { .. } => 3,
            Self::Single => 4,
            Self::Batched => 5,
            Self::Go => 6,
            Self::Nginx => 7,
            Self::Coturn => 8,
        })
    }

    /// What it speaks.
    #[must_use]
    pub fn wire(&self) -> Wire {
        match self {
            Self::Relay(_) => Wire::Trunk,
            Self::Single | Self::Batched | Self::Go => Wire::Record,
            Self::Nginx | Self::FloorReceive | Self::FloorSend { .. } => Wire::Plain,
            Self::Coturn => Wire::Channel,
        }
    }
}

impl Lab {
    /// Writes a keyring and a fleet file of its own to `directory`.
    ///
    /// # Errors
    /// The directory is not writable.
    pub fn new(
        processor: usize,
        directory: PathBuf,
        relay: PathBuf,
        go: Option<PathBuf>,
    ) -> io::Result<Self> {
        folder::private(&directory)?;
        let toml = Masters::new(rand::random()).data_toml();
        fs::write(directory.join("data.toml"), toml.as_bytes())?;
        let keyring = DataKeyring::parse(&toml).map_err(io::Error::other)?;
        Ok(Self {
            processor,
            directory,
            relay,
            go,
            keyring: Arc::new(keyring),
        })
    }

    /// The keys of the fleet here.
    #[must_use]
    pub fn keyring(&self) -> &Arc<DataKeyring> {
        &self.keyring
    }

    /// Starts a program, and waits until it serves.
    ///
    /// # Errors
    /// It is not there, or it does not start; its output is in the message.
    pub fn start(&self, program: &Program, owned: Owned) -> io::Result<Subject> {
        let place = program.place();
        let command = self.command(program, place, owned)?;
        let log = self.directory.join("program.log");
        let failed = |error: io::Error| {
            let output = fs::read_to_string(&log).unwrap_or_default();
            let start = output.len().saturating_sub(300);
            let tail = output.get(start..).unwrap_or(&output);
            io::Error::other(format!(
                "{}: {error}; its output ends: {tail}",
                program.name()
            ))
        };
        let mut process =
            Process::start(self.processor, &command, fs::File::create(&log)?).map_err(failed)?;
        process
            .wait_udp(SocketAddr::V4(place.public))
            .map_err(failed)?;
        if let Program::Relay(_) = program {
            // Its sockets are there before it receives on them.
            process
                .wait_until("serve", || {
                    Ok(Metrics::read(place.admin).is_ok_and(|m| m.sum("receives_armed_total") > 0))
                })
                .map_err(failed)?;
        }
        Ok(Subject {
            name: program.name(),
            wire: program.wire(),
            place,
            process,
        })
    }

    fn command(&self, program: &Program, place: Place, owned: Owned) -> io::Result<Command> {
        let forward = |mut command: Command, prefix: &str| {
            for (name, value) in [
                ("listen", place.public.to_string()),
                ("internal", place.internal.to_string()),
                ("owners", owned.owners.to_string()),
                ("owner-port", owned.port.to_string()),
            ] {
                command.arg(format!("{prefix}{name}={value}"));
            }
            command
        };
        let this = || -> io::Result<Command> { Ok(Command::new(std::env::current_exe()?)) };
        Ok(match program {
            Program::Relay(options) => self.relay_command(options, place)?,
            Program::FloorReceive => {
                let mut command = this()?;
                command.args(["floor-receive", "--listen", &place.public.to_string()]);
                command
            }
            Program::FloorSend {
                ports,
                flows,
                sizes,
            } => {
                let mut command = this()?;
                let ports: Vec<String> = ports.iter().map(u16::to_string).collect();
                command.args(["floor-send", "--listen", &place.public.to_string()]);
                command.args(["--ports", &ports.join(","), "--flows", &flows.to_string()]);
                match sizes {
                    Sizes::Fixed(size) => command.args(["--size", &size.to_string()]),
                    Sizes::Voice => command.arg("--voice"),
                };
                command
            }
            Program::Single | Program::Batched => {
                let mut command = this()?;
                command.arg(if matches!(program, Program::Single) {
                    "forward-single"
                } else {
                    "forward-batched"
                });
                forward(command, "--")
            }
            Program::Go => {
                let binary = self
                    .go
                    .as_ref()
                    .ok_or_else(|| io::Error::other("not built"))?;
                forward(Command::new(binary), "-")
            }
            Program::Nginx => {
                let file = self.directory.join("nginx.conf");
                fs::write(&file, nginx(&self.directory, place, owned))?;
                let mut command = Command::new("nginx");
                command.arg("-c").arg(file).arg("-e").arg("stderr");
                command
            }
            Program::Coturn => coturn(&self.directory, place),
        })
    }

    fn relay_command(&self, options: &RelayOptions, place: Place) -> io::Result<Command> {
        let fleet = format!(
            "[[cluster]]\nid = 1\nname = \"perf\"\n[[ingress]]\nid = 0\nname = \"perf\"\nipv4 = \"{}\"\n",
            place.public
        );
        // A relay reads it again when it changes.
        let fleet_file = self
            .directory
            .join(format!("fleet-{}.toml", place.public.ip()));
        fs::write(&fleet_file, fleet)?;
        let mut command = Command::new(&self.relay);
        let processor = self.processor;
        for (name, value) in [
            (
                "keyring",
                self.directory.join("data.toml").display().to_string(),
            ),
            ("fleet", fleet_file.display().to_string()),
            ("cluster", "1".to_owned()),
            ("listen", place.public.to_string()),
            ("internal", place.internal.ip().to_string()),
            ("internal-port", place.internal.port().to_string()),
            ("internal-networks", place::INTERNAL_NETWORK.to_owned()),
            ("admin", place.admin.to_string()),
            ("cores", format!("{processor}-{processor}")),
            ("internal-mtu", options.mtu.to_string()),
            ("flows-per-core", options.flows.to_string()),
            ("drain", "0".to_owned()),
            ("spin", if options.spin { "on" } else { "off" }.to_owned()),
        ] {
            command.arg(format!("--{name}={value}"));
        }
        Ok(command)
    }
}

/// One worker that proxies to the first owner, with what its documentation advises for UDP.
fn nginx(directory: &Path, place: Place, owned: Owned) -> String {
    let owner = SocketAddrV4::new(place::owner(0), owned.port);
    let directory = directory.display();
    format!(
        "load_module /usr/lib/nginx/modules/ngx_stream_module.so;
daemon off;
master_process off;
worker_rlimit_nofile 20000;
pid {directory}/nginx.pid;
error_log stderr crit;
events {{ worker_connections 18000; use epoll; multi_accept on; }}
stream {{
    access_log off;
    server {{
        listen {} udp rcvbuf=8m sndbuf=8m;
        proxy_pass {owner};
        proxy_timeout 60s;
        proxy_buffer_size 2k;
    }}
}}
",
        place.public
    )
}

fn coturn(directory: &Path, place: Place) -> Command {
    let mut command = Command::new("turnserver");
    command
        .args(["-n", "--no-auth", "--no-cli", "--no-tls", "--no-dtls"])
        .args(["--no-tcp", "--no-tcp-relay", "--allow-loopback-peers"])
        .args(["--no-stdout-log", "--log-file", "stdout", "--simple-log"])
        .args(["-m", "1", "--realm", "perf"])
        .args(["--min-port", "20000", "--max-port", "59999"])
        .args(["--listening-ip", &place.public.ip().to_string()])
        .args(["--listening-port", &place.public.port().to_string()])
        .args(["--relay-ip", &place.internal.ip().to_string()])
        .arg("--pidfile")
        .arg(directory.join("coturn.pid"))
        .arg("--userdb")
        .arg(directory.join("coturn.db"));
    command
}

impl Drop for Lab {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}
