//! Signaling as a program under test: on one processor, with files of its own, in front of [stub transceivers](Stubs).

use std::fs;
use std::io;
use std::net::SocketAddrV4;
use std::path::{Path, PathBuf};
use std::process::Command;

use firsthop_shared::keyring::Masters;
use sha2::{Digest as _, Sha256};

use crate::folder;
use crate::metrics;
use crate::process::Process;
use crate::stubs::Stubs;

/// Signaling that runs, until this is dropped.
pub struct FrontDoor {
    /// The process.
    pub process: Process,
    /// Where its API is.
    pub api: SocketAddrV4,
    /// An API key for it.
    pub key: String,
    directory: PathBuf,
}

impl FrontDoor {
    /// Starts signaling with what it runs with in production but for the limit on each client address: its access log is
    /// written to a file in `directory`, which is removed at the end.
    ///
    /// # Errors
    /// It does not start, or finds no transceiver; its output is in the message.
    pub fn start(
        processor: usize,
        program: &Path,
        directory: PathBuf,
        stubs: &Stubs,
    ) -> io::Result<Self> {
        folder::private(&directory)?;
        let key = format!("{:032x}", rand::random::<u128>());
        let command = command(program, &directory, &key, stubs)?;
        let log = directory.join("signaling.log");
        let failed = |error: io::Error| {
            let output = fs::read_to_string(&log).unwrap_or_default();
            let last = output.lines().last().unwrap_or("nothing");
            io::Error::other(format!("signaling: {error}; it said last: {last}"))
        };
        let process = Process::start(processor, &command, fs::File::create(&log)?);
        let mut process = process.map_err(failed)?;
        // It takes free ports, and says which.
        let mut listens = None;
        process
            .wait_until("listen", || {
                listens = addresses(&fs::read_to_string(&log)?);
                Ok(listens.is_some())
            })
            .map_err(failed)?;
        let (api, admin) = listens.ok_or_else(|| io::Error::other("no addresses"))?;
        let ready = format!(
            "firsthop_signaling_transceivers{{standing=\"ready\"}} {}",
            stubs.control.len()
        );
        process
            .wait_until("find its transceivers", || {
                Ok(metrics::get(admin, "/metrics").is_ok_and(|page| page.contains(&ready)))
            })
            .map_err(failed)?;
        Ok(Self {
            process,
            api,
            key,
            directory,
        })
    }
}

impl Drop for FrontDoor {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// The addresses of the API and of the metrics, once the log tells them.
fn addresses(log: &str) -> Option<(SocketAddrV4, SocketAddrV4)> {
    let line = log.lines().find(|line| line.contains("\"ready\""))?;
    let value: serde_json::Value = serde_json::from_str(line).ok()?;
    let address = |name: &str| {
        let fields = [value.get(name), value.pointer(&format!("/fields/{name}"))];
        let text = fields.into_iter().flatten().next()?.as_str()?;
        text.parse().ok()
    };
    Some((address("api")?, address("metrics")?))
}

fn command(program: &Path, directory: &Path, key: &str, stubs: &Stubs) -> io::Result<Command> {
    let masters = Masters::new(rand::random());
    let hash: String = Sha256::digest(key)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let file = |name: &str, text: &str| -> io::Result<String> {
        let path = directory.join(name);
        fs::write(&path, text)?;
        Ok(path.display().to_string())
    };
    let fleet = "[[cluster]]\nid = 1\nname = \"perf\"\n[[ingress]]\nid = 0\nname = \"perf\"\nipv4 = \"203.0.113.10:3478\"\n";
    let keys = format!("[[key]]\nname = \"perf\"\nsha256 = \"{hash}\"\n");
    let transceivers: Vec<String> = stubs
        .control
        .iter()
        .map(|control| format!("http://{control}"))
        .collect();
    let mut command = Command::new(program);
    // Nothing of the caller's own settings may come in.
    for (name, _) in std::env::vars_os() {
        if name.as_encoded_bytes().starts_with(b"FIRSTHOP_") {
            command.env_remove(name);
        }
    }
    for (name, value) in [
        ("keyring", file("data.toml", &masters.data_toml())?),
        ("api-keyring", file("api.toml", &masters.api_toml())?),
        ("fleet", file("fleet.toml", fleet)?),
        ("api-keys", file("api-keys.toml", &keys)?),
        (
            "control-secret-file",
            file("control-secret", "for-these-stubs-alone")?,
        ),
        ("cluster", "1".to_owned()),
        ("listen", "127.0.0.1:0".to_owned()),
        ("metrics", "127.0.0.1:0".to_owned()),
        ("transceivers", transceivers.join(",")),
        ("address-rate", "off".to_owned()),
        ("log-format", "json".to_owned()),
    ] {
        command.arg(format!("--{name}={value}"));
    }
    Ok(command)
}
