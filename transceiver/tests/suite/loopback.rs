//! The real binary on loopback: a stub relay speaks the trunk, a client of str0m's makes calls through it.
//!
//! Real time and real sockets, but no sleeps: each wait is for a packet, a deadline of the client's, or the process.

use std::io::{BufRead as _, BufReader, Read as _};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU16, Ordering::Relaxed};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use firsthop_shared::address::{
    BootId, ClientAddr, ClusterId, FlowHandle, IngressId, OwnerAddr, Restart, SessionId, ShardId,
};
use firsthop_shared::control::{
    CallKind, ControlCode, ControlError, CreateRequest, CreateResponse, IceCredentials,
    RestartRequest, RestartResponse, SessionInfo, Status,
};
use firsthop_shared::keyring::{DataKeyring, Masters};
use firsthop_shared::token::{self, Route};
use firsthop_shared::trunk::{self, DatagramBuilder, RecordHeader, RecordKind};
use str0m::media::Direction;
use str0m::net::{Protocol, Receive};
use str0m::{Input, Output};

use crate::peer::{self, Client, addr};

pub(crate) const SECRET: &str = "0123456789abcdef0123456789abcdef";

/// A running transceiver with its files.
pub(crate) struct Process {
    child: Child,
    log: mpsc::Receiver<String>,
    seen: Vec<String>,
    folder: PathBuf,
    trunk: SocketAddr,
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

fn masters() -> Masters {
    Masters::new([3; 32])
}

impl Process {
    pub(crate) fn start(name: &str, more: &[&str]) -> Self {
        let folder =
            std::env::temp_dir().join(format!("firsthop-loopback-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
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
        let mut child = Command::new(env!("CARGO_BIN_EXE_transceiver"))
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
                .recv_timeout(Duration::from_secs(20))
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
fn request_of(
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

/// A relay core with one client behind it: the client's packets travel in trunk records.
pub(crate) struct Relay {
    socket: UdpSocket,
    keyring: Arc<DataKeyring>,
    owner: SocketAddr,
    session: SessionId,
    shard: ShardId,
    boot: BootId,
    sequence: u32,
    pub(crate) client: Client,
    pub(crate) closed: bool,
    proven: usize,
    packed: usize,
}

impl Relay {
    /// Makes a call, and returns it answered and not yet connected.
    pub(crate) fn call(process: &Process, signaling: &Signaling, id: u32, shard: u8) -> Self {
        let mut client = Client::new(Instant::now());
        let (offer, pending) = client.offer(true);
        let (status, body) = signaling.create(process, &request(process, id, shard, &offer));
        assert_eq!(status, 201, "{body}");
        let answer: CreateResponse = serde_json::from_str(&body).expect("an answer");
        client.accept(pending, &answer.answer);
        Self {
            socket: UdpSocket::bind("127.0.0.1:0").expect("a socket"),
            keyring: Arc::new(DataKeyring::parse(&masters().data_toml()).expect("a keyring")),
            owner: process.trunk,
            session: SessionId(id),
            shard: ShardId(shard),
            boot: BootId::of_relay(id),
            sequence: 0,
            client,
            closed: false,
            proven: 0,
            packed: 0,
        }
    }

    /// Runs until `done`, and fails when that takes longer than ten seconds.
    pub(crate) fn until(&mut self, what: &str, mut done: impl FnMut(&Self) -> bool) {
        let end = Instant::now() + Duration::from_secs(10);
        let mut buffer = [0; 9_000];
        while !done(self) {
            let now = Instant::now();
            assert!(
                now < end,
                "{what}: not within ten seconds; events {:?}",
                self.client.heard.types()
            );
            self.turn(now);
            let mut wake = self.client.deadline.min(end);
            if let Some(frame) = self.client.next_frame {
                wake = wake.min(frame);
            }
            let wait = wake.saturating_duration_since(Instant::now());
            let wait = wait.clamp(Duration::from_micros(100), Duration::from_millis(100));
            self.socket.set_read_timeout(Some(wait)).expect("a timeout");
            if let Ok((length, from)) = self.socket.recv_from(&mut buffer) {
                assert_eq!(from, self.owner, "relays know an owner by its address");
                self.down(&buffer[..length]);
            }
        }
    }

    fn turn(&mut self, now: Instant) {
        if self.client.next_frame.is_some_and(|at| at <= now) {
            self.client.speak(now);
            self.client.next_frame = self
                .client
                .next_frame
                .map(|at| at + Duration::from_millis(20));
            self.drain(now);
        }
        self.client
            .rtc
            .handle_input(Input::Timeout(now))
            .expect("a timeout");
        self.drain(now);
    }

    fn drain(&mut self, now: Instant) {
        loop {
            match self.client.rtc.poll_output().expect("output") {
                Output::Timeout(at) => {
                    self.client.deadline = at;
                    return;
                }
                Output::Event(event) => self.client.event(event, now),
                Output::Transmit(transmit) => {
                    let ingress = u8::from(transmit.destination == addr("203.0.113.20:3478"));
                    self.up(IngressId(ingress), &transmit.contents);
                }
            }
        }
    }

    fn up(&mut self, ingress: IngressId, packet: &[u8]) {
        let header = RecordHeader {
            kind: RecordKind::Packet,
            client: self.client.public,
            tcp: false,
            proven: false,
            ingress,
            session: self.session,
            handle: FlowHandle(5),
            owner: None,
            payload_len: 0,
        };
        let mut builder = DatagramBuilder::new(1_452);
        assert!(builder.push(&header, packet));
        self.sequence += 1;
        let datagram = builder.finish(self.keyring.active(), self.shard, self.boot, self.sequence);
        self.socket.send_to(datagram, self.owner).expect("sent");
    }

    fn down(&mut self, datagram: &[u8]) {
        let keyring = Arc::clone(&self.keyring);
        let opened = trunk::open(&keyring, datagram).expect("an authentic datagram");
        assert_eq!(opened.header.shard, self.shard);
        let now = Instant::now();
        self.packed = self.packed.max(opened.records().count());
        for record in opened.records() {
            assert_eq!(record.header.session, self.session);
            assert_eq!(record.header.client, self.client.public);
            assert_eq!(record.header.handle, FlowHandle(5));
            self.proven += usize::from(record.header.proven);
            if record.header.kind == RecordKind::Close {
                self.closed = true;
                continue;
            }
            // What the client still sent to a session that had ended.
            if record.header.kind == RecordKind::UnknownSession {
                continue;
            }
            let source = match record.header.ingress {
                IngressId(0) => addr("203.0.113.10:3478"),
                _ => addr("203.0.113.20:3478"),
            };
            let receive = Receive::new(Protocol::Udp, source, self.client.local, record.payload)
                .expect("a packet of WebRTC");
            self.client
                .rtc
                .handle_input(Input::Receive(now, receive))
                .expect("received");
            self.drain(now);
        }
    }

    pub(crate) fn connect(&mut self) {
        self.until("connect", |relay| {
            relay.client.heard.connected.is_some() && !relay.client.heard.events.is_empty()
        });
    }
}

pub(crate) fn assert_quiet(log: &[String]) {
    let loud: Vec<_> = log
        .iter()
        .filter(|line| line.contains("WARN") || line.contains("ERROR"))
        .collect();
    assert!(loud.is_empty(), "{loud:#?}");
}

#[test]
fn a_call_connects_echoes_and_is_hung_up_without_a_warning() {
    let process = Process::start("call", &[]);
    let signaling = Signaling::new();
    let mut calls: Vec<Relay> = (0..2)
        .map(|shard| Relay::call(&process, &signaling, 100 + u32::from(shard), shard))
        .collect();
    for relay in &mut calls {
        relay.connect();
        assert_eq!(relay.client.heard.types()[0], "session.created");
        relay.client.speaking = true;
        relay.client.next_frame = Some(Instant::now());
        relay.until("echo", |relay| relay.client.heard.loud() > 30);
        assert!(relay.proven > 0, "proof reaches the relay");
    }

    let (status, body) = signaling.get(&process, "/v1/status");
    assert_eq!(status, 200);
    let report: Status = serde_json::from_str(&body).expect("a status");
    assert_eq!(report.owner, process.trunk);
    let sessions: Vec<u32> = report.shards.iter().map(|s| s.sessions).collect();
    assert_eq!(sessions, [1, 1]);
    let (_, page) = signaling.get(&process, "/metrics");
    for line in [
        "firsthop_transceiver_sessions{worker=\"0\",state=\"live\"} 1",
        "firsthop_transceiver_sessions{worker=\"1\",state=\"live\"} 1",
        "firsthop_transceiver_drops_total{worker=\"0\",reason=\"foreign_shard\"} 0",
        "firsthop_transceiver_drops_total{worker=\"1\",reason=\"foreign_shard\"} 0",
    ] {
        assert!(page.lines().any(|l| l == line), "{line} in\n{page}");
    }

    let mut first = calls.remove(0);
    assert_eq!(signaling.hang_up(&process, 100), 200);
    first.until("close", |relay| relay.closed && relay.client.heard.closed);
    assert_eq!(signaling.hang_up(&process, 100), 404);

    // The other call is closed by the stop.
    let mut second = calls.remove(0);
    let (status, log) = process.stop();
    second.until("close at the stop", |relay| relay.closed);
    assert!(status.success(), "{status}: {log:#?}");
    assert_quiet(&log);
    let ended: Vec<_> = log.iter().filter(|l| l.contains("session ended")).collect();
    assert_eq!(ended.len(), 2, "{log:#?}");
    println!("{ended:#?}");
    assert!(ended[0].contains("reason=\"hung_up\"") && ended[1].contains("reason=\"stopped\""));
    let secrets = log
        .iter()
        .any(|l| l.contains("ice-pwd") || l.contains(SECRET));
    assert!(!secrets);
}

#[test]
fn a_client_that_leaves_causes_no_warning() {
    let mut process = Process::start("leave", &["--log", "debug"]);
    let signaling = Signaling::new();
    let mut relay = Relay::call(&process, &signaling, 7, 0);
    relay.connect();
    relay.client.rtc.close().expect("closes");
    relay.until("close", |relay| relay.closed);
    process.wait_for("client_closed");
    let (status, log) = process.stop();
    assert!(status.success());
    assert_quiet(&log);
}

#[test]
fn refusals_have_their_status_and_their_code() {
    let process = Process::start("refuse", &["--sessions-per-worker", "1"]);
    let signaling = Signaling::new();
    let mut client = Client::new(Instant::now());
    let (offer, _) = client.offer(true);
    let good = request(&process, 1, 0, &offer);
    let expect = |request: &CreateRequest, status: u16, code: ControlCode| {
        let (got, body) = signaling.create(&process, request);
        let error: ControlError =
            serde_json::from_str(&body).unwrap_or_else(|e| panic!("{e}: {body}"));
        assert_eq!((got, error.code), (status, code), "{body}");
        assert!(!error.message.is_empty());
    };
    let with = |change: &dyn Fn(&mut CreateRequest)| {
        let mut request = good.clone();
        change(&mut request);
        request
    };

    expect(&with(&|r| r.shard = 9), 409, ControlCode::NoSuchShard);
    expect(&with(&|r| r.shard = 1), 400, ControlCode::BadUfrag);
    expect(&with(&|r| r.session = 2), 400, ControlCode::BadUfrag);
    expect(
        &with(&|r| r.ufrag = "x".repeat(42)),
        400,
        ControlCode::BadUfrag,
    );
    expect(&with(&|r| r.ufrag.clear()), 400, ControlCode::BadUfrag);
    let elsewhere = {
        let keyring = DataKeyring::parse(&masters().data_toml()).expect("a keyring");
        let route = Route {
            cluster: ClusterId(1),
            owner: OwnerAddr::new(addr("127.0.0.1:9")),
            shard: ShardId(0),
            restart: Restart(0),
            session: SessionId(1),
        };
        token::mint(keyring.active(), &route).to_string()
    };
    expect(
        &with(&|r| r.ufrag.clone_from(&elsewhere)),
        400,
        ControlCode::BadUfrag,
    );
    expect(
        &with(&|r| r.offer = "hello".to_owned()),
        400,
        ControlCode::BadOffer,
    );
    expect(
        &with(&|r| r.offer = offer.replace("opus", "speex")),
        422,
        ControlCode::UnsupportedOffer,
    );
    expect(
        &with(&|r| r.kind = CallKind::Whip),
        422,
        ControlCode::UnsupportedOffer,
    );
    expect(
        &with(&|r| r.ingresses = vec![9]),
        400,
        ControlCode::BadRequest,
    );
    expect(
        &with(&|r| r.ingresses = vec![]),
        400,
        ControlCode::BadRequest,
    );
    expect(
        &with(&|r| r.offer = "v".repeat(400_000)),
        413,
        ControlCode::TooLarge,
    );

    assert_eq!(signaling.create(&process, &good).0, 201);
    let look = |path: &str| signaling.get(&process, path);
    let (status, body) = look(&format!("/v1/sessions/1?created={}", peer::CREATED));
    assert_eq!(status, 200, "{body}");
    let info: SessionInfo = serde_json::from_str(&body).expect("a session");
    assert_eq!(
        (info.owner, info.shard, info.restart),
        (process.trunk, 0, 0)
    );
    assert_eq!(look("/v1/sessions/1?created=5").0, 404);
    assert_eq!(look("/v1/sessions/2?created=5").0, 404);
    assert_eq!(look("/v1/sessions/1").0, 400);
    expect(&good, 409, ControlCode::SessionExists);
    expect(&request(&process, 2, 0, &offer), 503, ControlCode::Full);

    let post = |secret: &str| {
        let post = signaling.http.post(process.url("/v1/sessions"));
        signaling.send(post.bearer_auth(secret).body("{}"))
    };
    assert_eq!(post("wrong").0, 401);
    assert_eq!(post("").0, 401);
    assert_eq!(post(SECRET).0, 400, "not the expected JSON");
    let (status, body) = signaling.send(signaling.http.get(process.url("/v1/status")));
    assert_eq!(status, 401, "{body}");
    for path in ["/healthz", "/readyz"] {
        assert_eq!(signaling.send(signaling.http.get(process.url(path))).0, 200);
    }
    assert_eq!(signaling.hang_up(&process, 99), 404);
    let (status, log) = process.stop();
    assert!(status.success());
    assert_quiet(&log);
}

#[test]
fn a_call_of_either_kind_is_restarted_by_the_client_s_credentials_alone() {
    let process = Process::start("restart", &[]);
    let signaling = Signaling::new();
    let restart = |id: u32, number: u8, offer: &str, ice: Option<(&str, &str)>| {
        let fresh = request_of(&process, id, 0, number, offer);
        let body = RestartRequest {
            created: peer::CREATED,
            ufrag: fresh.ufrag.clone(),
            restart: number,
            offer: offer.to_owned(),
            ingresses: vec![0, 1],
            ice: ice.map(|(ufrag, password)| IceCredentials {
                ufrag: ufrag.to_owned(),
                password: password.to_owned(),
            }),
        };
        let url = process.url(&format!("/v1/sessions/{id}/restart"));
        let post = signaling.http.post(url).bearer_auth(SECRET).json(&body);
        (signaling.send(post), fresh.ufrag)
    };
    let good = Some(("wxyz", "abcdefghijklmnopqrstuv"));
    for (id, kind) in [(1, CallKind::Realtime), (2, CallKind::Whip)] {
        let mut client = Client::new(Instant::now());
        client.direction = Direction::SendOnly;
        let (offer, _) = client.offer(kind == CallKind::Realtime);
        let create = CreateRequest {
            kind,
            ..request(&process, id, 0, &offer)
        };
        let (status, body) = signaling.create(&process, &create);
        assert_eq!(status, 201, "{body}");
        let first: CreateResponse = serde_json::from_str(&body).expect("an answer");
        for (number, offer, ice, expected) in [
            (1, "", Some(("abc", "abcdefghijklmnopqrstuv")), 400),
            (1, "", Some(("wxyz", "short")), 400),
            (1, offer.as_str(), good, 400),
            (1, "", None, 400),
            (0, "", good, 409),
        ] {
            let ((status, body), _) = restart(id, number, offer, ice);
            assert_eq!(status, expected, "{body}");
        }
        let ((status, body), ufrag) = restart(id, 1, "", good);
        assert_eq!(status, 200, "{body}");
        let again: RestartResponse = serde_json::from_str(&body).expect("an answer");
        assert!(again.answer.contains(&format!("a=ice-ufrag:{ufrag}\r\n")));
        assert_ne!(first.answer, again.answer);
        let sections = |sdp: &str| sdp.matches("\r\nm=").count();
        assert_eq!(sections(&first.answer), sections(&again.answer));
        let path = format!("/v1/sessions/{id}?created={}", peer::CREATED);
        let info: SessionInfo =
            serde_json::from_str(&signaling.get(&process, &path).1).expect("a session");
        assert_eq!(info.restart, 1);
    }
    let (status, log) = process.stop();
    assert!(status.success());
    assert_quiet(&log);
}

#[test]
fn an_unknown_client_gets_no_answer_but_its_relay_is_told() {
    let process = Process::start("unknown", &[]);
    let signaling = Signaling::new();
    let mut relay = Relay::call(&process, &signaling, 5, 1);
    relay.session = SessionId(6);
    relay.up(IngressId(0), &[0; 20]);
    let mut buffer = [0; 9_000];
    relay
        .socket
        .set_read_timeout(Some(Duration::from_secs(10)))
        .expect("a timeout");
    let (length, _) = relay.socket.recv_from(&mut buffer).expect("an answer");
    let opened = trunk::open(&relay.keyring, &buffer[..length]).expect("authentic");
    let record = opened.records().next().expect("a record");
    assert_eq!(record.header.kind, RecordKind::UnknownSession);
    assert_eq!(record.header.session, SessionId(6));
    assert_eq!(
        record.header.client,
        ClientAddr::new(addr("198.51.100.7:61000"))
    );
}

#[test]
fn a_bad_setting_stops_the_start_with_one_line() {
    let held = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let taken = held.local_addr().expect("an address").to_string();
    let folder = std::env::temp_dir().join(format!("firsthop-loopback-{}-bad", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let file = |name: &str, text: &str| {
        let path = folder.join(name);
        std::fs::write(&path, text).expect("written");
        path.to_str().expect("a path").to_owned()
    };
    let keyring = file("keyring.toml", &masters().data_toml());
    let fleet = file(
        "fleet.toml",
        "[[cluster]]\nid=1\nname=\"dev\"\n[[ingress]]\nid=0\nipv4=\"127.0.0.1:3478\"\n",
    );
    let secret = file("secret", SECRET);
    let cases: [(&[&str], &str); 6] = [
        (&["--trunk", "nonsense"], "--trunk"),
        (&["--backend", "nobody"], "--backend"),
        (&["--trunk", "0.0.0.0:5000"], "--owner"),
        (&["--keyring", "/nowhere"], "--keyring"),
        (&["--log", "no=such=filter"], "--log"),
        (&["--trunk", &taken], "--trunk"),
    ];
    for (more, named) in cases {
        let mut child = Command::new(env!("CARGO_BIN_EXE_transceiver"));
        child.args(["--fleet", &fleet, "--control-secret-file", &secret]);
        if more[0] != "--keyring" {
            child.args(["--keyring", &keyring]);
        }
        let mut child = child
            .args(more)
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary starts");
        let mut text = String::new();
        let mut stderr = child.stderr.take().expect("piped");
        stderr.read_to_string(&mut text).expect("text");
        let status = child.wait().expect("it ends");
        assert_eq!(status.code(), Some(2), "{more:?}: {text}");
        assert_eq!(text.lines().count(), 1, "{more:?}: {text}");
        assert!(text.contains(named), "{more:?}: {text}");
    }
    std::fs::remove_dir_all(&folder).expect("removed");
}
