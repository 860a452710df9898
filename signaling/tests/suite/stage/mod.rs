//! What the tests play on: stub transceivers, key files in a folder of their own, and front doors on loopback.
//!
//! Nothing runs in the background but the servers: a test polls transceivers and files itself, so that it waits for no timer.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use axum::extract::{Query, Request, State};
use axum::http::HeaderName;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{delete, get, post};
use axum::{Json, Router};
use firsthop_service::gate::Gate;
use firsthop_service::server;
use firsthop_shared::address::{BootId, ClusterId, IngressId, Networks, SessionId, ShardId};
use firsthop_shared::control::{
    ControlCode, ControlError, CreateRequest, CreateResponse, RestartRequest, RestartResponse,
    SessionInfo, ShardStatus, Status,
};
use firsthop_shared::keyring::{DataKeyring, Masters};
use firsthop_shared::token;
use firsthop_signaling::calls::{FrontDoor, Steering};
use firsthop_signaling::client::Proxies;
use firsthop_signaling::files::{FILES, FileWatch, Paths};
use firsthop_signaling::metrics::Metrics;
use firsthop_signaling::neighbours::Neighbours;
use firsthop_signaling::owner::{ControlSecret, OwnerClient, Patience};
use firsthop_signaling::rates::Rates;
use firsthop_signaling::routes;
use firsthop_signaling::tls;
use firsthop_signaling::transceivers::{Source, Transceivers};
use serde_json::json;
use sha2::{Digest as _, Sha256};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};

/// How long anything that must happen may take. Only a failing test waits so long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// What a front door grants its transceivers: nothing runs out while a slow machine runs a test.
pub(crate) const PATIENT: Patience = Patience {
    status: PATIENCE,
    fresh: Duration::from_secs(600),
    create: PATIENCE,
    hang_up: PATIENCE,
};

pub(crate) const KEY: &str = "dev-key-8c1f60";
pub(crate) const SECRET: &str = "control-secret-51ab77";
pub(crate) const ANSWER: &str = "v=0\r\no=- 9 1 IN IP4 127.0.0.1\r\ns=-\r\nt=0 0\r\n";
pub(crate) const OFFER: &str = "v=0\r\no=- 1 2 IN IP4 127.0.0.1\r\ns=-\r\nt=0 0\r\nm=audio 9 UDP/TLS/RTP/SAVPF 111\r\n\
    a=ice-ufrag:clientufrag\r\na=ice-pwd:clientpassword0123456789\r\na=fingerprint:sha-256 AA:BB\r\n";

/// What a stub answers to one request for a session, instead of making it.
#[derive(Clone, Debug)]
pub(crate) enum Reply {
    Refuse(ControlCode),
    Raw(StatusCode, &'static str),
    Never,
}

/// How a stub stands and what it was asked.
pub(crate) struct StubState {
    pub(crate) boot: u32,
    pub(crate) owner: SocketAddr,
    pub(crate) draining: bool,
    pub(crate) capacity: Vec<u32>,
    pub(crate) replies: VecDeque<Reply>,
    pub(crate) asked: Vec<CreateRequest>,
    /// What was asked for restarts.
    pub(crate) restarts: Vec<RestartRequest>,
    /// The next restarts are refused with these.
    pub(crate) restart_refusals: VecDeque<ControlCode>,
    /// Creation time, worker and restarts by session id.
    pub(crate) sessions: HashMap<u32, (u64, u8, u8)>,
    /// Sessions that have ended and that support may still ask of.
    pub(crate) ended: Vec<u32>,
    /// The `traceparent` of each request for a session.
    pub(crate) traceparents: Vec<Option<String>>,
    /// Headers of each sideband that was joined.
    pub(crate) joined: Vec<HeaderMap>,
    /// Ends the sidebands.
    pub(crate) end_sidebands: watch::Sender<bool>,
    /// The next sidebands are refused with these.
    pub(crate) sideband_refusals: VecDeque<ControlCode>,
    keyring: DataKeyring,
}

/// A transceiver's control port without a transceiver: it checks what the real one checks, and keeps sessions as numbers.
pub(crate) struct Stub {
    pub(crate) control: SocketAddr,
    state: Arc<Mutex<StubState>>,
    server: tokio::task::JoinHandle<()>,
}

impl Stub {
    pub(crate) async fn start(stage: &Stage, capacity: &[u32]) -> Self {
        Self::start_at(stage, "127.0.0.1:0", capacity).await
    }

    pub(crate) async fn start_at(stage: &Stage, address: &str, capacity: &[u32]) -> Self {
        let listener = TcpListener::bind(address).await.expect("a free port");
        let control = listener.local_addr().expect("bound");
        let state = Arc::new(Mutex::new(StubState {
            boot: BootId(u32::from(control.port())).0,
            owner: SocketAddr::from(([127, 0, 0, 1], control.port() ^ 1)),
            draining: false,
            capacity: capacity.to_vec(),
            replies: VecDeque::new(),
            asked: Vec::new(),
            restarts: Vec::new(),
            restart_refusals: VecDeque::new(),
            sessions: HashMap::new(),
            ended: Vec::new(),
            traceparents: Vec::new(),
            joined: Vec::new(),
            end_sidebands: watch::channel(false).0,
            sideband_refusals: VecDeque::new(),
            keyring: DataKeyring::load(&stage.path("data.toml")).expect("a keyring"),
        }));
        let router = Router::new()
            .route("/v1/sessions", post(make))
            .route("/v1/sessions/{id}", delete(end).get(info))
            .route("/v1/sessions/{id}/restart", post(restart))
            .route("/v1/sessions/{id}/events", get(events))
            .route("/v1/status", get(status))
            .route("/debug/call/{id}", get(report))
            .with_state(Arc::clone(&state));
        let server = tokio::spawn(async move {
            axum::serve(listener, router).await.expect("served");
        });
        Self {
            control,
            state,
            server,
        }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, StubState> {
        self.state.lock().expect("not poisoned")
    }

    pub(crate) fn reply(&self, reply: Reply) {
        self.state().replies.push_back(reply);
    }

    /// Takes over the keyring that the stage has now.
    pub(crate) fn learn(&self, stage: &Stage) {
        self.state().keyring = DataKeyring::load(&stage.path("data.toml")).expect("a keyring");
    }

    pub(crate) fn sessions(&self) -> usize {
        self.state().sessions.len()
    }

    /// Goes away: its port refuses connections from then on.
    pub(crate) async fn stop(self) {
        self.server.abort();
        let _ = self.server.await;
    }
}

fn refuse(code: ControlCode, message: &str) -> Response {
    let status = StatusCode::from_u16(code.status()).expect("a status");
    (status, Json(ControlError::new(code, message))).into_response()
}

fn knows_secret(headers: &HeaderMap) -> bool {
    headers
        .get("authorization")
        .is_some_and(|value| value.as_bytes() == format!("Bearer {SECRET}").as_bytes())
}

async fn make(State(state): State<Arc<Mutex<StubState>>>, request: Request) -> Response {
    if !knows_secret(request.headers()) {
        return refuse(ControlCode::Unauthorized, "wrong secret");
    }
    let traceparent = request.headers().get("traceparent").cloned();
    let body = axum::body::to_bytes(request.into_body(), 1 << 20)
        .await
        .expect("a body");
    let asked: CreateRequest = serde_json::from_slice(&body).expect("a request");
    let reply = {
        let mut state = state.lock().expect("not poisoned");
        state.asked.push(asked.clone());
        let text = traceparent.map(|value| value.to_str().expect("ASCII").to_owned());
        state.traceparents.push(text);
        state.replies.pop_front()
    };
    match reply {
        Some(Reply::Refuse(code)) => return refuse(code, "the stub's reason"),
        Some(Reply::Raw(status, body)) => return (status, body).into_response(),
        Some(Reply::Never) => std::future::pending().await,
        None => {}
    }
    let mut state = state.lock().expect("not poisoned");
    let route = token::open(&state.keyring, asked.ufrag.as_bytes()).expect("a ufrag that opens");
    assert_eq!(route.owner.get(), state.owner);
    assert_eq!(route.session, SessionId(asked.session));
    assert_eq!(route.shard, ShardId(asked.shard));
    assert_eq!(route.restart.0, 0);
    if usize::from(asked.shard) >= state.capacity.len() {
        return refuse(ControlCode::NoSuchShard, "no such shard");
    }
    state
        .sessions
        .insert(asked.session, (asked.created, asked.shard, 0));
    let answer = answer(&asked.ufrag);
    (StatusCode::CREATED, Json(CreateResponse { answer })).into_response()
}

/// The answer of a stub under a ufrag.
pub(crate) fn answer(ufrag: &str) -> String {
    format!(
        "{ANSWER}m=audio 9 UDP/TLS/RTP/SAVPF 111\r\na=mid:0\r\na=ice-ufrag:{ufrag}\r\n\
         a=ice-pwd:0123456789012345678901\r\na=candidate:1 1 udp 1 127.0.0.1 3478 typ host\r\n"
    )
}

async fn info(
    State(state): State<Arc<Mutex<StubState>>>,
    axum::extract::Path(id): axum::extract::Path<u32>,
    Query(query): Query<HashMap<String, u64>>,
    headers: HeaderMap,
) -> Response {
    if !knows_secret(&headers) {
        return refuse(ControlCode::Unauthorized, "wrong secret");
    }
    let state = state.lock().expect("not poisoned");
    match state.sessions.get(&id) {
        Some((created, shard, restart)) if Some(created) == query.get("created") => {
            Json(SessionInfo {
                owner: state.owner,
                shard: *shard,
                restart: *restart,
            })
            .into_response()
        }
        _ => refuse(ControlCode::UnknownSession, "no such session"),
    }
}

/// What it tells support.
async fn report(
    State(state): State<Arc<Mutex<StubState>>>,
    axum::extract::Path(id): axum::extract::Path<u32>,
    Query(query): Query<HashMap<String, u64>>,
    headers: HeaderMap,
) -> Response {
    if !knows_secret(&headers) {
        return refuse(ControlCode::Unauthorized, "wrong secret");
    }
    let state = state.lock().expect("not poisoned");
    match state.sessions.get(&id) {
        Some((created, ..)) if Some(created) == query.get("created") => {
            Json(json!({ "session": id, "state": "live" })).into_response()
        }
        _ if state.ended.contains(&id) => {
            let told = json!({ "code": "unknown_session", "message": "it has ended", "ended": { "reason": "hung_up" } });
            (StatusCode::NOT_FOUND, Json(told)).into_response()
        }
        _ => refuse(ControlCode::UnknownSession, "no such session"),
    }
}

async fn restart(
    State(state): State<Arc<Mutex<StubState>>>,
    axum::extract::Path(id): axum::extract::Path<u32>,
    headers: HeaderMap,
    Json(asked): Json<RestartRequest>,
) -> Response {
    if !knows_secret(&headers) {
        return refuse(ControlCode::Unauthorized, "wrong secret");
    }
    let mut state = state.lock().expect("not poisoned");
    state.restarts.push(asked.clone());
    if let Some(code) = state.restart_refusals.pop_front() {
        return refuse(code, "the stub's reason");
    }
    let Some((created, shard, restart)) = state.sessions.get(&id).copied() else {
        return refuse(ControlCode::UnknownSession, "no such session");
    };
    if created != asked.created {
        return refuse(ControlCode::UnknownSession, "no such session");
    }
    let route = token::open(&state.keyring, asked.ufrag.as_bytes()).expect("a ufrag that opens");
    assert_eq!(route.owner.get(), state.owner);
    assert_eq!(route.session, SessionId(id));
    assert_eq!(route.shard, ShardId(shard));
    assert_eq!(route.restart.0, asked.restart);
    assert_eq!(asked.offer.is_empty(), asked.ice.is_some());
    if asked.restart <= restart {
        return refuse(ControlCode::StaleRestart, "another was faster");
    }
    state.sessions.insert(id, (created, shard, asked.restart));
    let answer = answer(&asked.ufrag);
    Json(RestartResponse { answer }).into_response()
}

/// A sideband that speaks no WebSocket after its handshake: bytes come back in capitals, until it is told to end.
async fn events(
    State(state): State<Arc<Mutex<StubState>>>,
    axum::extract::Path(id): axum::extract::Path<u32>,
    Query(query): Query<HashMap<String, u64>>,
    mut request: Request,
) -> Response {
    if !knows_secret(request.headers()) {
        return refuse(ControlCode::Unauthorized, "wrong secret");
    }
    let mut ending = {
        let mut state = state.lock().expect("not poisoned");
        match state.sessions.get(&id) {
            Some((created, ..)) if Some(created) == query.get("created") => {}
            _ => return refuse(ControlCode::UnknownSession, "no such session"),
        }
        if let Some(code) = state.sideband_refusals.pop_front() {
            return refuse(code, "the stub's reason");
        }
        state.joined.push(request.headers().clone());
        state.end_sidebands.subscribe()
    };
    let upgrade = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        let mut stream = hyper_util::rt::TokioIo::new(upgrade.await.expect("upgraded"));
        let mut buffer = [0; 256];
        loop {
            tokio::select! {
                read = stream.read(&mut buffer) => match read {
                    Ok(0) | Err(_) => return,
                    Ok(n) => {
                        buffer[..n].make_ascii_uppercase();
                        stream.write_all(&buffer[..n]).await.expect("written");
                    }
                },
                () = async { drop(ending.wait_for(|end| *end).await); } => return,
            }
        }
    });
    let mut response = StatusCode::SWITCHING_PROTOCOLS.into_response();
    let headers = response.headers_mut();
    for (name, value) in [
        ("connection", "upgrade"),
        ("upgrade", "websocket"),
        ("sec-websocket-accept", "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="),
        ("sec-websocket-protocol", "realtime"),
    ] {
        headers.insert(name, value.parse().expect("a value"));
    }
    response
}

async fn end(
    State(state): State<Arc<Mutex<StubState>>>,
    axum::extract::Path(id): axum::extract::Path<u32>,
    Query(query): Query<HashMap<String, u64>>,
    headers: HeaderMap,
) -> Response {
    if !knows_secret(&headers) {
        return refuse(ControlCode::Unauthorized, "wrong secret");
    }
    let mut state = state.lock().expect("not poisoned");
    match state.sessions.get(&id) {
        Some((created, ..)) if Some(created) == query.get("created") => {
            state.sessions.remove(&id);
            StatusCode::OK.into_response()
        }
        _ => refuse(ControlCode::UnknownSession, "no such session"),
    }
}

async fn status(State(state): State<Arc<Mutex<StubState>>>, headers: HeaderMap) -> Response {
    if !knows_secret(&headers) {
        return refuse(ControlCode::Unauthorized, "wrong secret");
    }
    let state = state.lock().expect("not poisoned");
    let shards = state
        .capacity
        .iter()
        .enumerate()
        .map(|(shard, capacity)| ShardStatus {
            sessions: state
                .sessions
                .values()
                .filter(|(_, s, _)| usize::from(*s) == shard)
                .count() as u32,
            capacity: *capacity,
        })
        .collect();
    Json(Status {
        boot: state.boot,
        owner: state.owner,
        draining: state.draining,
        shards,
        version: "stub".into(),
    })
    .into_response()
}

/// A folder with the files of a small fleet, removed at the end.
pub(crate) struct Stage {
    folder: PathBuf,
}

impl Stage {
    pub(crate) fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("firsthop-signaling-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).expect("a writable temporary folder");
        let stage = Self { folder };
        stage.write_keyrings(&Masters::new([7; 32]));
        stage.write(
            "fleet.toml",
            "[[cluster]]\nid = 1\nname = \"one\"\n[[ingress]]\nid = 4\nipv4 = \"127.0.0.1:3478\"\n\
             [[ingress]]\nid = 2\nipv6 = \"[::1]:3478\"\n",
        );
        stage.write("keys.toml", &key_file(&[("dev", KEY)]));
        stage.write("secret", SECRET);
        stage
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Replaces a file at once, as a careful editor or a config map does.
    pub(crate) fn write(&self, name: &str, text: &str) {
        let fresh = self.path(&format!("{name}.new"));
        std::fs::write(&fresh, text).expect("a writable folder");
        std::fs::rename(&fresh, self.path(name)).expect("a writable folder");
    }

    pub(crate) fn write_keyrings(&self, masters: &Masters) {
        self.write("data.toml", &masters.data_toml());
        self.write("api.toml", &masters.api_toml());
    }

    /// A front door that knows these transceivers and has their status.
    pub(crate) async fn front(&self, stubs: &[&Stub]) -> Front {
        let controls: Vec<SocketAddr> = stubs.iter().map(|stub| stub.control).collect();
        self.front_with(&controls, None, PATIENT).await
    }

    pub(crate) async fn front_with(
        &self,
        controls: &[SocketAddr],
        ingresses: Option<Vec<IngressId>>,
        patience: Patience,
    ) -> Front {
        self.front_changed(controls, ingresses, patience, |_| {})
            .await
    }

    /// A front door like the others, but for what `change` makes of it.
    pub(crate) async fn front_but(
        &self,
        stubs: &[&Stub],
        change: impl FnOnce(&mut FrontDoor),
    ) -> Front {
        let controls: Vec<SocketAddr> = stubs.iter().map(|stub| stub.control).collect();
        self.front_changed(&controls, None, PATIENT, change).await
    }

    async fn front_changed(
        &self,
        controls: &[SocketAddr],
        ingresses: Option<Vec<IngressId>>,
        patience: Patience,
        change: impl FnOnce(&mut FrontDoor),
    ) -> Front {
        let paths = [
            self.path("data.toml"),
            self.path("api.toml"),
            self.path("fleet.toml"),
            self.path("keys.toml"),
        ];
        let (files_watch, files) = FileWatch::open(Paths {
            keyring: &paths[0],
            api_keyring: &paths[1],
            fleet: &paths[2],
            api_keys: &paths[3],
        })
        .expect("usable files");
        let secret = ControlSecret::parse(SECRET).expect("a secret");
        let client = OwnerClient::new(&secret, patience).expect("a client");
        let sources = controls.iter().copied().map(Source::Address).collect();
        let transceivers = Transceivers::new(sources, client);
        transceivers.poll_once().await;
        let metrics = Arc::new(Metrics::new(&[&FILES[..], &[tls::CERTIFICATE]].concat()));
        let mut door = FrontDoor {
            cluster: ClusterId(1),
            files,
            ingresses,
            transceivers,
            metrics,
            rates: Rates::new(None),
            proxies: Proxies {
                trusted: Networks::default(),
                latitude: HeaderName::from_static("x-latitude"),
                longitude: HeaderName::from_static("x-longitude"),
                country: HeaderName::from_static("x-country"),
            },
            places: None,
            neighbours: Arc::new(Neighbours::new(PATIENCE).expect("a client")),
            steering: Steering::Forward,
            ice_servers: Vec::new(),
            sidebands: Arc::new(Semaphore::new(8)),
            traces: None,
        };
        change(&mut door);
        let door = Arc::new(door);
        let listeners = server::listen(&["127.0.0.1:0".into()])
            .await
            .expect("a free port");
        let address = listeners[0].local_addr().expect("bound");
        let (stop, stopping) = watch::channel(false);
        let router = routes::router(Arc::clone(&door));
        let gate = Gate::new(None, door.metrics.refusals());
        tokio::spawn(tls::serve(listeners, router, None, gate, stopping));
        Front {
            url: format!("http://{address}"),
            address,
            door,
            files_watch,
            client: reqwest::Client::builder()
                .no_proxy()
                .timeout(2 * PATIENCE)
                .build()
                .expect("a client"),
            _stop: stop,
        }
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// A certificate for that name which signed itself, and its private key, both in PEM.
pub(crate) fn certificate(name: &str) -> (String, String) {
    let made = rcgen::generate_simple_self_signed([name.to_owned()]).expect("a certificate");
    let key = pem::Pem::new("PRIVATE KEY", made.signing_key.serialize_der());
    let certificate = pem::Pem::new("CERTIFICATE", made.cert.der().to_vec());
    (pem::encode(&certificate), pem::encode(&key))
}

/// The text of a file of API keys.
pub(crate) fn key_file(keys: &[(&str, &str)]) -> String {
    keys.iter()
        .map(|(name, key)| {
            let hash: String = Sha256::digest(key)
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect();
            format!("[[key]]\nname = \"{name}\"\nsha256 = \"{hash}\"\n")
        })
        .collect()
}

/// A served front door, and a client for it.
pub(crate) struct Front {
    pub(crate) url: String,
    pub(crate) address: SocketAddr,
    pub(crate) door: Arc<FrontDoor>,
    pub(crate) files_watch: FileWatch,
    pub(crate) client: reqwest::Client,
    _stop: watch::Sender<bool>,
}

impl Front {
    /// Asks for a call as a client does.
    pub(crate) async fn call(&self) -> reqwest::Response {
        self.post("/v1/realtime/calls")
            .bearer_auth(KEY)
            .header("content-type", "application/sdp")
            .body(OFFER)
            .send()
            .await
            .expect("a response")
    }

    /// Asks for a call and returns its id.
    pub(crate) async fn call_id(&self) -> String {
        let response = self.call().await;
        assert_eq!(response.status(), 201);
        let location = header(&response, "location");
        location
            .strip_prefix("/v1/realtime/calls/")
            .expect("the path of the call")
            .to_owned()
    }

    pub(crate) async fn hang_up(&self, call_id: &str) -> reqwest::Response {
        self.post(&format!("/v1/realtime/calls/{call_id}/hangup"))
            .bearer_auth(KEY)
            .send()
            .await
            .expect("a response")
    }

    pub(crate) fn request(&self, method: &str, path: &str) -> reqwest::RequestBuilder {
        let method = method.parse().expect("a method");
        self.client
            .request(method, format!("{}{path}", self.url))
            .bearer_auth(KEY)
    }

    pub(crate) fn post(&self, path: &str) -> reqwest::RequestBuilder {
        self.client.post(format!("{}{path}", self.url))
    }

    pub(crate) async fn get(&self, path: &str) -> reqwest::Response {
        self.client
            .get(format!("{}{path}", self.url))
            .send()
            .await
            .expect("a response")
    }

    /// Looks at the files now.
    pub(crate) fn reload(&mut self) {
        self.files_watch.poll(&self.door.metrics);
    }

    pub(crate) async fn poll(&self) {
        self.door.transceivers.poll_once().await;
    }
}

pub(crate) fn header(response: &reqwest::Response, name: &str) -> String {
    response
        .headers()
        .get(name)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default()
        .to_owned()
}

/// What an error response says.
#[derive(Debug)]
pub(crate) struct Told {
    pub(crate) status: u16,
    pub(crate) kind: String,
    pub(crate) code: String,
    pub(crate) param: Option<String>,
    pub(crate) message: String,
    pub(crate) headers: HeaderMap,
}

/// Reads an error response and checks that it has the one shape.
pub(crate) async fn told(response: reqwest::Response) -> Told {
    let status = response.status().as_u16();
    let headers = response.headers().clone();
    assert_eq!(header(&response, "content-type"), "application/json");
    let body: serde_json::Value =
        serde_json::from_str(&response.text().await.expect("a body")).expect("JSON");
    let object = body.as_object().expect("an object");
    assert_eq!(object.keys().collect::<Vec<_>>(), ["error"], "{body}");
    let error = object["error"].as_object().expect("an object");
    let mut fields: Vec<&str> = error.keys().map(String::as_str).collect();
    fields.sort_unstable();
    assert_eq!(fields, ["code", "message", "param", "type"], "{body}");
    let text = |name: &str| error[name].as_str().expect("text").to_owned();
    Told {
        status,
        kind: text("type"),
        code: text("code"),
        param: error["param"].as_str().map(str::to_owned),
        message: text("message"),
        headers,
    }
}
