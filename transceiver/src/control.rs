//! The control port: signaling makes, restarts and ends sessions here; health and metrics are read here.
//!
//! The messages are [`firsthop_shared::control`]'s. The server owns no session: a command goes to the session's worker by a
//! bounded channel, and a full channel is told as 503.

mod ask;
mod named;
mod refusal;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, Query, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use firsthop_service::body::{self, BodyFault};
use firsthop_service::traces::Tracer;
use firsthop_shared::address::{ClusterId, OwnerAddr, Restart, SessionId, ShardId};
use firsthop_shared::control::{
    ControlCode, CreateRequest, CreateResponse, DEBUG_PATH, EVENTS_SEGMENT, RestartRequest,
    RestartResponse, SESSIONS_PATH, STATUS_PATH, SessionInfo, ShardStatus, Status,
};
use serde::de::DeserializeOwned;
use subtle::ConstantTimeEq as _;
use tokio::sync::{Semaphore, mpsc, oneshot, watch};

use crate::debug;
use crate::limits;
use crate::metrics::Metrics;
use crate::sideband;
use crate::traces::CallTrace;
use crate::worker::{
    Command, CreateSpec, Directory, Endings, RestartBy, RestartSpec, Shared, WorkerStats,
};

use refusal::too_large;

pub(crate) use ask::{submit, wait};
pub(crate) use refusal::{Refusal, unknown_session};

/// One worker, as the control server sees it.
#[derive(Clone, Debug)]
pub struct WorkerHandle {
    /// The way to it.
    pub commands: mpsc::Sender<Command>,
    /// Its counters.
    pub stats: Arc<WorkerStats>,
}

/// What the control server knows.
pub struct Control {
    /// A random number of this process.
    pub boot: u32,
    /// The trunk address that ufrags must name.
    pub owner: OwnerAddr,
    /// The cluster that ufrags must name.
    pub cluster: ClusterId,
    /// The workers, by shard.
    pub workers: Vec<WorkerHandle>,
    /// How many sessions a worker takes.
    pub sessions_per_worker: usize,
    /// Which worker has which session.
    pub directory: Directory,
    /// What sessions were that have ended.
    pub endings: Endings,
    /// Keys and fleet, as they are now.
    pub shared: watch::Receiver<Shared>,
    /// Whether no new sessions are taken.
    pub draining: Arc<AtomicBool>,
    /// The secret that signaling must show.
    pub secret: String,
    /// One permit for each sideband that is carried at once.
    pub sidebands: Arc<Semaphore>,
    /// The metrics page.
    pub metrics: Metrics,
    /// Where the spans of traced calls go; nothing when they go nowhere.
    pub tracer: Option<Tracer>,
}

impl fmt::Debug for Control {
    /// Leaves the secret out, and what is long.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Control")
            .field("boot", &self.boot)
            .field("owner", &self.owner)
            .field("cluster", &self.cluster)
            .field("workers", &self.workers.len())
            .field("draining", &self.draining)
            .finish_non_exhaustive()
    }
}

/// The routes of the control port.
pub fn router(control: Arc<Control>) -> Router {
    let guarded = Router::new()
        .route(SESSIONS_PATH, post(create))
        .route(&format!("{SESSIONS_PATH}/{{id}}/restart"), post(restart))
        .route(
            &format!("{SESSIONS_PATH}/{{id}}"),
            get(look).delete(hang_up),
        )
        .route(
            &format!("{SESSIONS_PATH}/{{id}}/{EVENTS_SEGMENT}"),
            get(sideband::join),
        )
        .route(STATUS_PATH, get(status))
        .route(&format!("{DEBUG_PATH}/{{id}}"), get(debug::call))
        .layer(from_fn_with_state(Arc::clone(&control), authorize));
    let routes = Router::new()
        .merge(guarded)
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .with_state(control);
    body::bounded(routes, limits::CONTROL_BODY_MAX, |max| {
        too_large(max).into_response()
    })
}

async fn authorize(
    State(control): State<Arc<Control>>,
    request: Request,
    next: Next,
) -> Result<Response, Refusal> {
    let shown = request
        .headers()
        .get(header::AUTHORIZATION)
        .and_then(|value| value.as_bytes().strip_prefix(b"Bearer "))
        .unwrap_or_default();
    // In constant time for secrets of equal length; the length is no secret.
    if !bool::from(shown.ct_eq(control.secret.as_bytes())) {
        return Err(Refusal::new(
            ControlCode::Unauthorized,
            "show the control secret: Authorization: Bearer <secret>",
        ));
    }
    Ok(next.run(request).await)
}

async fn read<T: DeserializeOwned>(body: Body) -> Result<T, Refusal> {
    let max = limits::CONTROL_BODY_MAX;
    let body = body::read(body, max).await.map_err(|fault| match fault {
        BodyFault::TooLarge => too_large(max),
        BodyFault::TooSlow | BodyFault::Broken => {
            Refusal::new(ControlCode::BadRequest, fault.to_string())
        }
    })?;
    serde_json::from_slice(&body)
        .map_err(|error| Refusal::new(ControlCode::BadRequest, error.to_string()))
}

async fn create(
    State(control): State<Arc<Control>>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Refusal> {
    let began = Instant::now();
    let trace = CallTrace::begin(control.tracer.as_ref(), &headers, began);
    let request: CreateRequest = read(body).await?;
    let session = request.session;
    let mut queued = None;
    let result = make(&control, request, trace.as_ref(), &mut queued).await;
    if let Some(trace) = trace {
        let failed = result.as_ref().err().map(|refusal| refusal.0.to_string());
        trace.created(session, queued, failed);
    }
    let answer = result?;
    Ok((StatusCode::CREATED, axum::Json(CreateResponse { answer })).into_response())
}

/// Has a worker make the session, and returns the answer. Leaves in `queued` when the worker was asked.
async fn make(
    control: &Control,
    request: CreateRequest,
    trace: Option<&CallTrace>,
    queued: &mut Option<Instant>,
) -> Result<String, Refusal> {
    if control.draining.load(Relaxed) {
        return Err(Refusal::new(
            ControlCode::Draining,
            "this transceiver takes no new sessions",
        ));
    }
    let id = SessionId(request.session);
    let shard = ShardId(request.shard);
    let worker = control.worker(shard)?;
    let credentials = control.credentials(&request.ufrag, id, shard, Restart(0))?;
    let advertised = control.advertised(&request.ingresses)?;
    if !control.directory.reserve(id, shard) {
        return Err(Refusal::new(
            ControlCode::SessionExists,
            "the session id is taken",
        ));
    }
    let spec = CreateSpec {
        id,
        created: request.created,
        client: request.client,
        credentials,
        offer: request.offer,
        advertised,
        longest: request
            .max_seconds
            .map(|secs| Duration::from_secs(secs.into())),
        kind: request.kind,
        app: request.app,
        config: request.session_config,
        trace: trace.cloned().map(Box::new),
    };
    let (reply, result) = oneshot::channel();
    *queued = Some(Instant::now());
    if let Err(refused) = submit(worker, Command::Create(Box::new(spec), reply)) {
        control.directory.release(id);
        return Err(refused);
    }
    Ok(wait(result).await??)
}

async fn restart(
    State(control): State<Arc<Control>>,
    Path(id): Path<String>,
    body: Body,
) -> Result<Response, Refusal> {
    let (id, shard) = control.find(&id)?;
    let request: RestartRequest = read(body).await?;
    let by = match request.ice {
        None => RestartBy::Offer(request.offer),
        Some(ice) if request.offer.is_empty() => RestartBy::Ice(ice),
        Some(_) => {
            return Err(Refusal::new(
                ControlCode::BadRequest,
                "a restart has an offer or the client's credentials, not both",
            ));
        }
    };
    let number = Restart(request.restart);
    let credentials = control.credentials(&request.ufrag, id, shard, number)?;
    let spec = RestartSpec {
        id,
        created: request.created,
        restart: number,
        credentials,
        by,
        advertised: control.advertised(&request.ingresses)?,
    };
    let (reply, result) = oneshot::channel();
    submit(
        control.worker(shard)?,
        Command::Restart(Box::new(spec), reply),
    )?;
    let answer = wait(result).await??;
    Ok(axum::Json(RestartResponse { answer }).into_response())
}

/// When the call was created, which a path without a body says in its query.
pub(crate) fn created_of(query: &HashMap<String, String>) -> Result<u64, Refusal> {
    let created = query.get("created").and_then(|text| text.parse().ok());
    created.ok_or_else(|| {
        Refusal::new(
            ControlCode::BadRequest,
            "name the call: ?created=<unix milliseconds>",
        )
    })
}

async fn look(
    State(control): State<Arc<Control>>,
    Path(id): Path<String>,
    Query(query): Query<HashMap<String, String>>,
) -> Result<axum::Json<SessionInfo>, Refusal> {
    let created = created_of(&query)?;
    let (id, shard) = control.find(&id)?;
    let (reply, result) = oneshot::channel();
    submit(control.worker(shard)?, Command::Look { id, created, reply })?;
    let restart = wait(result).await?.ok_or_else(unknown_session)?;
    Ok(axum::Json(SessionInfo {
        owner: control.owner.get(),
        shard: shard.0,
        restart: restart.0,
    }))
}

async fn hang_up(
    State(control): State<Arc<Control>>,
    Path(id): Path<String>,
    Query(query): Query<HashMap<String, String>>,
) -> Result<StatusCode, Refusal> {
    let created = created_of(&query)?;
    let (id, shard) = control.find(&id)?;
    let (reply, result) = oneshot::channel();
    submit(
        control.worker(shard)?,
        Command::HangUp { id, created, reply },
    )?;
    if wait(result).await? {
        Ok(StatusCode::OK)
    } else {
        Err(unknown_session())
    }
}

async fn status(State(control): State<Arc<Control>>) -> axum::Json<Status> {
    let capacity = u32::try_from(control.sessions_per_worker).unwrap_or(u32::MAX);
    axum::Json(Status {
        boot: control.boot,
        owner: control.owner.get(),
        draining: control.draining.load(Relaxed),
        shards: control
            .workers
            .iter()
            .map(|worker| ShardStatus {
                sessions: worker.stats.sessions(),
                capacity,
            })
            .collect(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
    })
}

async fn ready(State(control): State<Arc<Control>>) -> (StatusCode, &'static str) {
    if control.draining.load(Relaxed) {
        (StatusCode::SERVICE_UNAVAILABLE, "draining\n")
    } else if control.workers.iter().any(|w| w.commands.is_closed()) {
        (StatusCode::SERVICE_UNAVAILABLE, "a worker has stopped\n")
    } else {
        (StatusCode::OK, "ready\n")
    }
}

async fn metrics(State(control): State<Arc<Control>>) -> Response {
    match control.metrics.page() {
        Ok(page) => {
            let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
            ([(header::CONTENT_TYPE, kind)], page).into_response()
        }
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use firsthop_service::about::About;
    use firsthop_shared::fleet::Fleet;
    use firsthop_shared::keyring::{DataKeyring, Masters};

    use super::*;

    /// A control server of these workers.
    pub(crate) fn control(workers: Vec<WorkerHandle>) -> Control {
        let keyring = DataKeyring::parse(&Masters::new([1; 32]).data_toml());
        let fleet = Fleet::parse(
            "[[cluster]]\nid=1\nname=\"dev\"\n[[ingress]]\nid=0\nipv4=\"203.0.113.10:3478\"\n",
        );
        let shared = Shared {
            keyring: Arc::new(keyring.expect("a keyring")),
            fleet: Arc::new(fleet.expect("a fleet")),
        };
        Control {
            boot: 1,
            owner: OwnerAddr::new(([127, 0, 0, 1], 5_000).into()),
            cluster: ClusterId(1),
            workers,
            sessions_per_worker: 1,
            directory: Directory::default(),
            endings: Endings::default(),
            shared: watch::channel(shared).1,
            draining: Arc::default(),
            secret: "not-for-logs".to_owned(),
            sidebands: Arc::new(Semaphore::new(1)),
            metrics: Metrics::new(
                Vec::new(),
                1,
                Arc::default(),
                Arc::new(Semaphore::new(1)),
                &About::new(&[]),
                Arc::default(),
            ),
            tracer: None,
        }
    }

    #[test]
    fn the_secret_is_not_shown_for_debugging() {
        let shown = format!("{:?}", control(Vec::new()));
        assert!(!shown.contains("not-for-logs"), "{shown}");
        assert!(shown.contains("127.0.0.1:5000"), "{shown}");
    }
}
