//! The HTTP API: which paths there are, who may use them, and what they take and give.
//!
//! | endpoint | takes | gives |
//! |---|---|---|
//! | `POST /v1/realtime/calls` | `application/sdp`: the offer | 201, `application/sdp`, `Location: /v1/realtime/calls/rtc_…` |
//! | `POST /v1/realtime/calls/{call_id}/hangup` | nothing | 200 |
//! | `GET /healthz`, `GET /readyz` | nothing | 200, or 503 while no transceiver takes calls |
//! | `GET /` and the files it names | nothing | the page, see [`page`] |
//!
//! The shapes are those of OpenAI's Realtime API over WebRTC, so that its clients work when their URL is changed. Errors are JSON
//! everywhere, for unknown paths and methods too. Any origin may call: what protects a call is the key, and keys are not cookies.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Bytes;
use axum::extract::rejection::PathRejection;
use axum::extract::{DefaultBodyLimit, FromRequest as _, Path, Request, State};
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE, ETAG, LINK, LOCATION};
use axum::http::{HeaderMap, Method, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use tokio::time::timeout;
use tower_http::cors::{AllowHeaders, Any, CorsLayer};

use crate::access::{self, REQUEST_ID, Started};
use crate::calls::FrontDoor;
use crate::credentials::{Denied, KeyName};
use crate::error::ApiError;
use crate::limits::{BODY_MAX, BODY_TIMEOUT};
use crate::metrics::Phase;
use crate::offer;
use crate::page;

/// Path of call creation, and of every call below it.
pub const CALLS: &str = "/v1/realtime/calls";

/// The media type of offers and answers (RFC 8866 section 8.1).
const SDP: &str = "application/sdp";

/// How long browsers may remember a preflight: two hours is what Chromium allows.
const PREFLIGHT_MAX_AGE: Duration = Duration::from_secs(7_200);

/// The API, ready to be served.
pub fn router(door: Arc<FrontDoor>) -> Router {
    Router::new()
        .route(CALLS, post(create_call))
        .route("/v1/realtime/calls/{call_id}/hangup", post(hang_up))
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .merge(page::routes())
        .fallback(unknown_path)
        .method_not_allowed_fallback(unknown_method)
        .layer(DefaultBodyLimit::max(BODY_MAX))
        .layer(cors())
        .layer(axum::middleware::from_fn_with_state(
            Arc::clone(&door),
            access::observe,
        ))
        .with_state(door)
}

/// What is served on the metrics port.
pub fn metrics_router(door: Arc<FrontDoor>) -> Router {
    Router::new()
        .route("/metrics", get(metrics))
        .fallback(unknown_path)
        .method_not_allowed_fallback(unknown_method)
        .with_state(door)
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
        .expose_headers([LOCATION, ETAG, LINK, REQUEST_ID])
        .max_age(PREFLIGHT_MAX_AGE)
}

async fn create_call(
    State(door): State<Arc<FrontDoor>>,
    request: Request,
) -> Result<Response, ApiError> {
    let started = request
        .extensions()
        .get::<Started>()
        .map_or_else(Instant::now, |started| started.0);
    let caller = authorize(&door, request.headers())?;
    require_sdp(request.headers())?;
    let body = read_body(request).await?;
    let offer = offer::check(&body).map_err(|error| {
        ApiError::new(StatusCode::BAD_REQUEST, "invalid_offer", capital(&error)).about("sdp")
    })?;
    door.metrics.create_phase(Phase::Offer, started.elapsed());
    let call = door.create_call(offer, &caller).await?;
    door.metrics.create_phase(Phase::Total, started.elapsed());
    let location = format!("{CALLS}/{}", call.id.as_str());
    let headers = [(CONTENT_TYPE, SDP.to_owned()), (LOCATION, location)];
    Ok((StatusCode::CREATED, headers, call.answer).into_response())
}

async fn hang_up(
    State(door): State<Arc<FrontDoor>>,
    call_id: Result<Path<String>, PathRejection>,
    headers: HeaderMap,
) -> Result<StatusCode, ApiError> {
    authorize(&door, &headers)?;
    let Path(call_id) = call_id.map_err(|_| ApiError::unknown_call())?;
    door.hang_up(&call_id).await?;
    Ok(StatusCode::OK)
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
}

async fn unknown_method() -> ApiError {
    ApiError::new(
        StatusCode::METHOD_NOT_ALLOWED,
        "method_not_allowed",
        "This URL does not take that method; the Allow header says which it takes.",
    )
}

fn authorize(door: &FrontDoor, headers: &HeaderMap) -> Result<KeyName, ApiError> {
    let header = headers.get(AUTHORIZATION).map(|value| value.as_bytes());
    door.files
        .api_keys
        .borrow()
        .authorize(header)
        .map_err(|denied| {
            let (code, message) = match denied {
                Denied::Missing => (
                    "missing_api_key",
                    "No API key: send the header Authorization: Bearer <key>.",
                ),
                Denied::Scheme => (
                    "invalid_authorization",
                    "The Authorization header is not of the form Bearer <key>.",
                ),
                Denied::Unknown => ("invalid_api_key", "The API key is not valid."),
            };
            ApiError::new(StatusCode::UNAUTHORIZED, code, message).about("authorization")
        })
}

fn require_sdp(headers: &HeaderMap) -> Result<(), ApiError> {
    let sent = headers.get(CONTENT_TYPE).map(|value| value.as_bytes());
    let media_type = sent
        .unwrap_or_default()
        .split(|byte| *byte == b';')
        .next()
        .unwrap_or_default()
        .trim_ascii();
    if media_type.eq_ignore_ascii_case(SDP.as_bytes()) {
        return Ok(());
    }
    let message = if sent.is_none() {
        "The Content-Type is missing. Accepted is application/sdp: the SDP offer as the body."
    } else {
        "This Content-Type is not accepted. Accepted is application/sdp: the SDP offer as the body."
    };
    Err(ApiError::new(
        StatusCode::UNSUPPORTED_MEDIA_TYPE,
        "unsupported_content_type",
        message,
    )
    .about("content-type"))
}

async fn read_body(request: Request) -> Result<Bytes, ApiError> {
    match timeout(BODY_TIMEOUT, Bytes::from_request(request, &())).await {
        Ok(Ok(body)) => Ok(body),
        Ok(Err(rejection)) if rejection.status() == StatusCode::PAYLOAD_TOO_LARGE => {
            Err(ApiError::new(
                StatusCode::PAYLOAD_TOO_LARGE,
                "body_too_large",
                format!("The body is larger than {BODY_MAX} bytes."),
            ))
        }
        Ok(Err(_)) => Err(ApiError::new(
            StatusCode::BAD_REQUEST,
            "unreadable_body",
            "The body broke off or is not valid HTTP.",
        )),
        Err(_) => Err(ApiError::new(
            StatusCode::REQUEST_TIMEOUT,
            "body_timeout",
            format!(
                "The body did not arrive within {} seconds.",
                BODY_TIMEOUT.as_secs()
            ),
        )),
    }
}

/// An error of ours as a sentence.
fn capital(error: &impl std::fmt::Display) -> String {
    let text = error.to_string();
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| {
        format!("{}{}.", first.to_uppercase(), letters.as_str())
    })
}
