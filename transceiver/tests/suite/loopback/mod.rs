//! The real binary on loopback: a process, signaling's side of its control port, and a stub relay that speaks the trunk, through which a client of
//! str0m's makes calls.
//!
//! Real time and real sockets, but no sleeps: each wait is for a packet, a deadline of the client's, or the process.

mod relay;

use std::io::{BufRead as _, BufReader};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU16, Ordering::Relaxed};
use std::sync::mpsc;
use std::time::Duration;

use firsthop_shared::address::{ClusterId, OwnerAddr, Restart, SessionId, ShardId};
use firsthop_shared::control::CreateRequest;
use firsthop_shared::keyring::{DataKeyring, Masters};
use firsthop_shared::token::{self, Route};

use crate::peer;

pub(crate) use relay::Relay;

/// How long a test waits for anything at most: long, since the machine may have other things to do.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) const SECRET: &str = "0123456789abcdef0123456789abcdef";

/// A running transceiver with its files.
pub(crate) struct Process {
    child: Child,
    log: mpsc::Receiver<String>,
    seen: Vec<String>,
    folder: PathBuf,
    pub(crate) trunk: SocketAddr,
    pub(crate) control: SocketAddr,
}

/// A loopback address of this process's own, with a port that no other test of it has: nothing else on the machine binds
/// there, so none can take it between the choice and the start of the binary.
fn own_address() -> SocketAddr {
    static PORT: AtomicU16 = AtomicU16::new(20_000);
    let [_, high, middle, low] = std::process::id().to_be_bytes();
    // Process ids have 22 bits at most.
    let ip = Ipv4Addr::new(127, 64 | high, middle, low);
    SocketAddr::from((ip, PORT.fetch_add(1, Relaxed)))
}

/// The keys of every process.
pub(crate) fn masters() -> Masters {
    Masters::new([3; 32])
}

/// The binary, after something that a shell does to the process.
pub(crate) fn after(preparation: &str) -> Command {
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", &format!("{preparation} && exec \"$0\" \"$@\"")]);
    shell.arg(env!("CARGO_BIN_EXE_transceiver"));
    shell
}

impl Process {
    pub(crate) fn start(name: &str, more: &[&str]) -> Self {
        Self::start_after(":", name, more)
    }

    /// The same, after something that a shell does to the process.
    pub(crate) fn start_after(preparation: &str, name: &str, more: &[&str]) -> Self {
        let folder =
            std::env::temp_dir().join(format!("firsthop-loopback-{}-{name}", std::process::id()));
        // Keys are in it: a folder that others can look into is warned of.
        let mut private = std::fs::DirBuilder::new();
        private.recursive(true).mode(0o700);
        private.create(&folder).expect("a folder");
        let write = |name: &str, text: &str| {
            let path = folder.join(name);
            std::fs::write(&path, text).expect("written");
            path
        };
        let keyring = write("keyring.toml", &masters().data_toml());
        let fleet = write(
            "fleet.toml",
            "[[cluster]]\nid=1\nname=\"dev\"\n\
             [[ingress]]\nid=0\nipv4=\"203.0.113.10:3478\"\n[[ingress]]\nid=1\nipv4=\"203.0.113.20:3478\"\n",
        );
        let secret = write("secret", SECRET);
        let (trunk, control) = (own_address(), own_address());
        let mut child = after(preparation)
            .arg("--keyring")
            .arg(keyring)
            .arg("--fleet")
            .arg(fleet)
            .arg("--control-secret-file")
            .arg(secret)
            .args(["--trunk", &trunk.to_string()])
            .args(["--control", &control.to_string()])
            .args(["--workers", "2"])
            .args(more)
            // A test that means to drain says so.
            .env("FIRSTHOP_DRAIN", "0")
            .stderr(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .expect("the binary starts");
        let stderr = child.stderr.take().expect("piped");
        let (lines, log) = mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                if lines.send(line).is_err() {
                    return;
                }
            }
        });
        let mut process = Self {
            child,
            log,
            seen: Vec::new(),
            folder,
            trunk,
            control,
        };
        process.wait_for("ready");
        process
    }

    pub(crate) fn wait_for(&mut self, text: &str) -> String {
        loop {
            let line = self
                .log
                .recv_timeout(PATIENCE)
                .unwrap_or_else(|_| panic!("no '{text}' in the log: {:#?}", self.seen));
            self.seen.push(line.clone());
            if line.contains(text) {
                return line;
            }
        }
    }

    /// Stops it as an operator would, and returns its status and whole log.
    pub(crate) fn stop(self) -> (ExitStatus, Vec<String>) {
        self.signal("-TERM");
        self.ended()
    }

    /// Sends it a signal.
    pub(crate) fn signal(&self, signal: &str) {
        let pid = self.child.id().to_string();
        let killed = Command::new("kill").args([signal, &pid]).status();
        assert!(killed.expect("kill runs").success());
    }

    /// Waits until it has ended, and returns its status and whole log.
    pub(crate) fn ended(mut self) -> (ExitStatus, Vec<String>) {
        let status = self.child.wait().expect("it ends");
        while let Ok(line) = self.log.recv_timeout(Duration::from_secs(5)) {
            self.seen.push(line);
        }
        (status, std::mem::take(&mut self.seen))
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.control)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Signaling's side of the control port, blocking.
pub(crate) struct Signaling {
    pub(crate) runtime: tokio::runtime::Runtime,
    pub(crate) http: reqwest::Client,
}

impl Signaling {
    pub(crate) fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        Self {
            runtime,
            http: reqwest::Client::new(),
        }
    }

    pub(crate) fn send(&self, request: reqwest::RequestBuilder) -> (u16, String) {
        self.runtime.block_on(async {
            let response = request.send().await.expect("a response");
            let status = response.status().as_u16();
            (status, response.text().await.expect("a body"))
        })
    }

    pub(crate) fn get(&self, process: &Process, path: &str) -> (u16, String) {
        self.send(self.http.get(process.url(path)).bearer_auth(SECRET))
    }

    pub(crate) fn create(&self, process: &Process, request: &CreateRequest) -> (u16, String) {
        let post = self.http.post(process.url("/v1/sessions"));
        self.send(post.bearer_auth(SECRET).json(request))
    }

    pub(crate) fn hang_up(&self, process: &Process, id: u32) -> u16 {
        let path = format!("/v1/sessions/{id}?created={}", peer::CREATED);
        self.send(self.http.delete(process.url(&path)).bearer_auth(SECRET))
            .0
    }
}

pub(crate) fn request(process: &Process, session: u32, shard: u8, offer: &str) -> CreateRequest {
    request_of(process, session, shard, 0, offer)
}

/// The same with a ufrag for a restart.
pub(crate) fn request_of(
    process: &Process,
    session: u32,
    shard: u8,
    restart: u8,
    offer: &str,
) -> CreateRequest {
    let keyring = DataKeyring::parse(&masters().data_toml()).expect("a keyring");
    let route = Route {
        cluster: ClusterId(1),
        owner: OwnerAddr::new(process.trunk),
        shard: ShardId(shard),
        restart: Restart(restart),
        session: SessionId(session),
    };
    CreateRequest {
        session,
        shard,
        created: peer::CREATED,
        ufrag: token::mint(keyring.active(), &route).to_string(),
        offer: offer.to_owned(),
        ingresses: vec![0, 1],
        client: Some("test".to_owned()),
        ..CreateRequest::default()
    }
}

pub(crate) fn assert_quiet(log: &[String]) {
    let loud: Vec<_> = log
        .iter()
        .filter(|line| line.contains("WARN") || line.contains("ERROR"))
        .collect();
    assert!(loud.is_empty(), "{loud:#?}");
}
