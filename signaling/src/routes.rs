//! The HTTP API: which paths there are, and what lies around them.
//!
//! | endpoint | takes | gives |
//! |---|---|---|
//! | `POST /v1/realtime/calls` | the offer: `application/sdp`, `multipart/form-data` or `application/json` | 201, `application/sdp`, `Location: /v1/realtime/calls/rtc_…` |
//! | `POST /v1/realtime?model=…` | the same (beta) | the same |
//! | `GET /v1/realtime?call_id=rtc_…` | a WebSocket handshake | the sideband of the call |
//! | `PATCH /v1/realtime/calls/{call_id}` | `application/trickle-ice-sdpfrag` or `application/sdp`, `If-Match` | 204, or 200 and a new `ETag` |
//! | `DELETE /v1/realtime/calls/{call_id}`, `POST …/hangup` | nothing | 200 |
//! | `POST /v1/realtime/client_secrets`, `POST /v1/realtime/sessions` (beta) | JSON | 200 with `ek_…` |
//! | `POST /whip/{app}`; `PATCH`, `DELETE /whip/{app}/{call_id}` | WHIP | see [`whip`] |
//! | `GET /v1/fleet` | a key with the scope `admin` | 200: how transceivers, clusters and ingress points stand |
//! | `GET /v1/fleet/calls/{call_id}` | a key with the scope `admin` | 200: what the owner tells of the call, see [`support`] |
//! | `GET /openapi.json` | nothing | 200: all of this for programs |
//! | `GET /healthz`, `GET /readyz` | nothing | 200, or 503 while no transceiver takes calls |
//! | `GET /` and the files it names | nothing | the page, see [`page`] |
//!
//! The shapes are those of OpenAI's Realtime API over WebRTC, so that its clients work when their URL is changed. Errors are JSON
//! everywhere, for unknown paths and methods too; what is no HTTP/1.1 request gets a bare 400, see [`head`]. Any origin may call: what protects a call is the key, and keys are not cookies.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, ETAG, LINK, LOCATION, RETRY_AFTER};
use axum::http::{Method, StatusCode};
use axum::middleware::{from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use firsthop_service::body::bounded;
use serde_json::{Value, json};
use tower_http::cors::{AllowHeaders, Any, CorsLayer};

use crate::access::{self, REQUEST_ID};
use crate::auth::Purpose;
use crate::calls::FrontDoor;
use crate::context;
use crate::credentials::Scope;
use crate::error::ApiError;
use crate::head;
use crate::limits::{BODY_MAX, METRICS_BODY_MAX};
use crate::minting;
use crate::page;
use crate::realtime::{self, CALLS};
use crate::support;
use crate::whip;

/// The description of the API (OpenAPI 3.1).
pub const OPENAPI: &str = include_str!("../openapi.json");

/// How long browsers may remember a preflight: two hours is what Chromium allows.
const PREFLIGHT_MAX_AGE: Duration = Duration::from_secs(7_200);

/// The API, ready to be served.
pub fn router(door: Arc<FrontDoor>) -> Router {
    let routes = Router::new()
        .route(CALLS, post(realtime::create))
        .route(
            "/v1/realtime",
            post(realtime::create).get(realtime::sideband),
        )
        .route(
            "/v1/realtime/calls/{call_id}",
            axum::routing::patch(realtime::patch).delete(realtime::hang_up),
        )
        .route(
            "/v1/realtime/calls/{call_id}/hangup",
            post(realtime::hang_up),
        )
        .route("/v1/realtime/client_secrets", post(minting::client_secret))
        .route("/v1/realtime/sessions", post(minting::session))
        .route("/whip/{app}", post(whip::create))
        .route(
            "/whip/{app}/{call_id}",
            axum::routing::patch(whip::patch).delete(whip::delete),
        )
        .route("/v1/fleet", get(fleet))
        .route("/v1/fleet/calls/{call_id}", get(support::call))
        .route("/openapi.json", get(openapi))
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .merge(page::routes())
        .fallback(unknown_path)
        .method_not_allowed_fallback(unknown_method);
    bounded(routes, BODY_MAX, too_large)
        .layer(from_fn_with_state(Arc::clone(&door), context::admit))
        .layer(from_fn(head::bounded))
        .layer(cors())
        .layer(from_fn(whip::options))
        .layer(from_fn_with_state(Arc::clone(&door), access::observe))
        .with_state(door)
}

/// What is served on the metrics port.
pub fn metrics_router(door: Arc<FrontDoor>) -> Router {
    let routes = Router::new()
        .route("/metrics", get(metrics))
        .fallback(unknown_path)
        .method_not_allowed_fallback(unknown_method)
        .with_state(door);
    bounded(routes, METRICS_BODY_MAX, too_large)
}

fn too_large(max: usize) -> Response {
    ApiError::too_large(max).into_response()
}

fn cors() -> CorsLayer {
    CorsLayer::new()
        .allow_origin(Any)
        .allow_methods([
            Method::GET,
            Method::POST,
            Method::PATCH,
            Method::DELETE,
            Method::OPTIONS,
        ])
        .allow_headers(AllowHeaders::mirror_request())
        .expose_headers([LOCATION, ETAG, LINK, RETRY_AFTER, REQUEST_ID])
        .max_age(PREFLIGHT_MAX_AGE)
}

async fn healthz() -> &'static str {
    "ok\n"
}

async fn readyz(State(door): State<Arc<FrontDoor>>) -> Result<&'static str, ApiError> {
    if door.transceivers.placeable() {
        Ok("ready\n")
    } else {
        Err(ApiError::no_capacity())
    }
}

async fn openapi() -> Response {
    ([(CONTENT_TYPE, "application/json")], OPENAPI).into_response()
}

async fn fleet(State(door): State<Arc<FrontDoor>>, request: Request) -> Result<Response, ApiError> {
    door.authenticate(request.headers(), Purpose::Scope(Scope::Admin))?;
    let fleet = Arc::clone(&door.files.fleet.borrow());
    let ingresses: Vec<Value> = fleet
        .ingresses()
        .iter()
        .map(|i| json!({ "id": i.id.0, "name": i.name, "well": door.neighbours.ingress_is_well(i.id) }))
        .collect();
    let clusters: Vec<Value> = fleet
        .clusters()
        .iter()
        .map(|c| {
            let well = if c.id == door.cluster {
                door.transceivers.placeable()
            } else {
                door.neighbours.cluster_is_well(c.id)
            };
            json!({ "id": c.id.0, "name": c.name, "own": c.id == door.cluster, "well": well })
        })
        .collect();
    let transceivers: Vec<Value> = door
        .transceivers
        .standings()
        .into_iter()
        .map(|(control, standing)| {
            json!({ "control": control.to_string(), "standing": standing.name() })
        })
        .collect();
    let body =
        json!({ "clusters": clusters, "ingresses": ingresses, "transceivers": transceivers });
    Ok(([(CACHE_CONTROL, "no-store")], Json(body)).into_response())
}

async fn metrics(State(door): State<Arc<FrontDoor>>) -> Response {
    door.transceivers.publish(&door.metrics);
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(CONTENT_TYPE, kind)], door.metrics.text()).into_response()
}

async fn unknown_path() -> ApiError {
    ApiError::new(
        StatusCode::NOT_FOUND,
        "unknown_url",
        format!("There is nothing at this URL. Calls are made with POST {CALLS}."),
    )
    .about("url")
}

async fn unknown_method() -> ApiError {
    ApiError::new(
        StatusCode::METHOD_NOT_ALLOWED,
        "method_not_allowed",
        format!("This URL does not take that method; the Allow header says which it takes. Calls are made with POST {CALLS}."),
    )
    .about("method")
}
