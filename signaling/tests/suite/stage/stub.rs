//! The control port of a transceiver that is not there.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};

use axum::extract::{Query, Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{delete, get, post};
use axum::{Json, Router};
use firsthop_shared::address::{BootId, SessionId, ShardId};
use firsthop_shared::control::{
    ControlCode, ControlError, CreateRequest, CreateResponse, RestartRequest, RestartResponse,
    SessionInfo, ShardStatus, Status,
};
use firsthop_shared::keyring::DataKeyring;
use firsthop_shared::token;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::watch;

use super::{ANSWER, SECRET, Stage};

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

impl StubState {
    /// Worker and restarts of the session that has this id and was created when the query says.
    fn session(&self, id: u32, query: &HashMap<String, u64>) -> Option<(u8, u8)> {
        let (created, shard, restart) = self.sessions.get(&id)?;
        (query.get("created") == Some(created)).then_some((*shard, *restart))
    }
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
            .layer(from_fn(guard))
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

/// Answers whoever does not know the secret.
async fn guard(request: Request, next: Next) -> Response {
    let given = request.headers().get("authorization");
    if given.is_some_and(|value| value.as_bytes() == format!("Bearer {SECRET}").as_bytes()) {
        next.run(request).await
    } else {
        refuse(ControlCode::Unauthorized, "wrong secret")
    }
}

async fn make(State(state): State<Arc<Mutex<StubState>>>, request: Request) -> Response {
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
fn answer(ufrag: &str) -> String {
    format!(
        "{ANSWER}m=audio 9 UDP/TLS/RTP/SAVPF 111\r\na=mid:0\r\na=ice-ufrag:{ufrag}\r\n\
         a=ice-pwd:0123456789012345678901\r\na=candidate:1 1 udp 1 127.0.0.1 3478 typ host\r\n"
    )
}

async fn info(
    State(state): State<Arc<Mutex<StubState>>>,
    axum::extract::Path(id): axum::extract::Path<u32>,
    Query(query): Query<HashMap<String, u64>>,
) -> Response {
    let state = state.lock().expect("not poisoned");
    match state.session(id, &query) {
        Some((shard, restart)) => Json(SessionInfo {
            owner: state.owner,
            shard,
            restart,
        })
        .into_response(),
        None => refuse(ControlCode::UnknownSession, "no such session"),
    }
}

/// What it tells support.
async fn report(
    State(state): State<Arc<Mutex<StubState>>>,
    axum::extract::Path(id): axum::extract::Path<u32>,
    Query(query): Query<HashMap<String, u64>>,
) -> Response {
    let state = state.lock().expect("not poisoned");
    match state.session(id, &query) {
        Some(_) => Json(json!({ "session": id, "state": "live" })).into_response(),
        None if state.ended.contains(&id) => {
            let told = json!({ "code": "unknown_session", "message": "it has ended", "ended": { "reason": "hung_up" } });
            (StatusCode::NOT_FOUND, Json(told)).into_response()
        }
        None => refuse(ControlCode::UnknownSession, "no such session"),
    }
}

async fn restart(
    State(state): State<Arc<Mutex<StubState>>>,
    axum::extract::Path(id): axum::extract::Path<u32>,
    Json(asked): Json<RestartRequest>,
) -> Response {
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
    let mut ending = {
        let mut state = state.lock().expect("not poisoned");
        if state.session(id, &query).is_none() {
            return refuse(ControlCode::UnknownSession, "no such session");
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
) -> Response {
    let mut state = state.lock().expect("not poisoned");
    if state.session(id, &query).is_none() {
        return refuse(ControlCode::UnknownSession, "no such session");
    }
    state.sessions.remove(&id);
    StatusCode::OK.into_response()
}

async fn status(State(state): State<Arc<Mutex<StubState>>>) -> Response {
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
