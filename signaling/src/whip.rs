//! WHIP (RFC 9725): what broadcasting tools, gateways and devices speak to bring audio in, without an API of ours.
//!
//! A WHIP session is a call whose answer is `recvonly`: transcription and listening agents. `{app}` in the URL is passed to the owner as the
//! name of the application. The resource of a session is below it, and takes the same `PATCH` and `DELETE` as any call.

use std::sync::Arc;
use std::time::Instant;

use axum::Extension;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Request, State};
use axum::http::header::{CONTENT_TYPE, ETAG, LINK, LOCATION};
use axum::http::{HeaderName, HeaderValue, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use firsthop_shared::control::{CallKind, is_app_name};
use firsthop_shared::limits::APP_NAME_MAX;

use crate::auth::Caller;
use crate::body::{self, FRAGMENT, SDP};
use crate::calls::{FrontDoor, NewCall, UNKNOWN_APP};
use crate::context::Context;
use crate::credentials::Scope;
use crate::error::ApiError;
use crate::metrics::Phase;
use crate::realtime::{Received, started};
use crate::traces::CallTrace;

/// Path below which the applications are.
pub const WHIP: &str = "/whip/";

const ACCEPT_POST: HeaderName = HeaderName::from_static("accept-post");
const ACCEPT_PATCH: HeaderName = HeaderName::from_static("accept-patch");

/// `POST /whip/{app}`.
pub async fn create(
    State(door): State<Arc<FrontDoor>>,
    Extension(context): Extension<Context>,
    app: Result<Path<String>, PathRejection>,
    request: Request,
) -> Result<Response, ApiError> {
    let started = started(&request);
    let caller = door.authenticate_and_count(request.headers(), Scope::Calls)?;
    let trace = door.trace(request.headers(), "POST /whip/{app}", started);
    let result = make(
        &door,
        &context,
        app,
        request,
        started,
        &caller,
        trace.as_ref(),
    )
    .await;
    if let Some(trace) = trace {
        trace.end(&result);
    }
    result
}

async fn make(
    door: &FrontDoor,
    context: &Context,
    app: Result<Path<String>, PathRejection>,
    request: Request,
    started: Instant,
    caller: &Caller,
    trace: Option<&CallTrace>,
) -> Result<Response, ApiError> {
    let app = app
        .map(|Path(app)| app)
        .ok()
        .filter(|app| is_app_name(app))
        .ok_or_else(|| {
            ApiError::new(
                StatusCode::NOT_FOUND,
                UNKNOWN_APP,
                format!("The name of an application has 1 to {APP_NAME_MAX} letters, digits, '-', '_' or '.'."),
            )
            .about("app")
        })?;
    body::require(request.headers(), &[SDP])?;
    let received = Received::read(request).await?.below(trace);
    let offer = body::check_offer(&received.body)?;
    door.metrics.create_phase(Phase::Offer, started.elapsed());
    if let Some(elsewhere) = door.steer(context, &received).await {
        return elsewhere;
    }
    let made = door
        .create_call(&NewCall {
            offer,
            session: None,
            caller,
            kind: CallKind::Whip,
            app: Some(&app),
            place: context.place,
            trace,
        })
        .await?;
    door.metrics.create_phase(Phase::Total, started.elapsed());
    let headers = [
        (CONTENT_TYPE, SDP.to_owned()),
        (LOCATION, format!("{WHIP}{app}/{}", made.id.as_str())),
        (ETAG, made.etag),
        (ACCEPT_PATCH, FRAGMENT.to_owned()),
    ];
    let mut response = (StatusCode::CREATED, headers, made.answer).into_response();
    for server in &door.ice_servers {
        response.headers_mut().append(LINK, server.clone());
    }
    Ok(response)
}

/// `PATCH /whip/{app}/{call_id}`.
pub async fn patch(
    State(door): State<Arc<FrontDoor>>,
    Extension(context): Extension<Context>,
    path: Result<Path<(String, String)>, PathRejection>,
    request: Request,
) -> Result<Response, ApiError> {
    let located = door.open_call(&call_id(path), &context, request.headers())?;
    door.patch(located, &context, request).await
}

/// `DELETE /whip/{app}/{call_id}`. That a session is there no more is what is asked for: clients close their connection first, and the owner
/// may have heard of that before. An id that was never given is told as 404 all the same: it does not open.
pub async fn delete(
    State(door): State<Arc<FrontDoor>>,
    Extension(context): Extension<Context>,
    path: Result<Path<(String, String)>, PathRejection>,
    request: Request,
) -> Result<Response, ApiError> {
    let located = door.open_call(&call_id(path), &context, request.headers())?;
    match door.end(located, &context, request).await {
        Err(error) if error == ApiError::unknown_call() => Ok(StatusCode::OK.into_response()),
        ended => ended,
    }
}

/// Says in the answer to `OPTIONS` what WHIP wants said there (RFC 9725 section 4.2), whether it is a preflight or not.
pub async fn options(request: Request, next: Next) -> Response {
    let asked = *request.method() == Method::OPTIONS;
    let rest = request.uri().path().strip_prefix(WHIP).map(str::to_owned);
    let mut response = next.run(request).await;
    if asked && let Some(rest) = rest {
        let (name, kind) = if rest.contains('/') {
            (ACCEPT_PATCH, FRAGMENT)
        } else {
            (ACCEPT_POST, SDP)
        };
        response
            .headers_mut()
            .insert(name, HeaderValue::from_static(kind));
    }
    response
}

fn call_id(path: Result<Path<(String, String)>, PathRejection>) -> String {
    path.map(|Path((_, id))| id).unwrap_or_default()
}
