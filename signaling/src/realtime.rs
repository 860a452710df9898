//! Realtime calls (OpenAI's Realtime API over WebRTC): made, ended, restarted, watched.
//!
//! Shapes are OpenAI's, with two extensions on the call's own URL: `PATCH` restarts ICE as WHIP does, and `DELETE` is a hang-up.

use std::sync::Arc;
use std::time::Instant;

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Request, State};
use axum::http::header::{CONTENT_TYPE, ETAG, IF_MATCH, LOCATION, ORIGIN};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::{Extension, body::Bytes};
use firsthop_service::traces::TRACEPARENT;
use firsthop_shared::control::CallKind;
use serde_json::Value;

use crate::access::Started;
use crate::auth::{Caller, Purpose};
use crate::body::{self, CALL_TYPES, FRAGMENT, SDP};
use crate::calls::{FrontDoor, NewCall, Steering};
use crate::context::{Context, STEERED};
use crate::credentials::Scope;
use crate::error::ApiError;
use crate::fragment::{self, FragmentError};
use crate::metrics::{Phase, Steered};
use crate::neighbours::{Forward, base, did_not_take_it};
use crate::resource::{IfMatch, Located, NewIce};
use crate::steering;
use crate::traces::CallTrace;

/// Path of call creation, and of every call below it.
pub const CALLS: &str = "/v1/realtime/calls";

/// How many other clusters are asked for one call before it stays here.
const CLUSTERS_TRIED_MAX: usize = 2;

/// The head of a request and its body, as it may be sent on.
#[derive(Clone, Debug)]
pub struct Received {
    /// Its method.
    pub method: Method,
    /// Its path and query.
    pub path: String,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body.
    pub body: Bytes,
}

impl Received {
    /// Reads a request whole.
    ///
    /// # Errors
    /// As [`body::read`].
    pub async fn read(request: Request) -> Result<Self, ApiError> {
        let method = request.method().clone();
        let path = request
            .uri()
            .path_and_query()
            .map_or_else(String::new, |path| path.as_str().to_owned());
        let headers = request.headers().clone();
        let body = body::read(request).await?;
        Ok(Self {
            method,
            path,
            headers,
            body,
        })
    }

    /// The same, for who reads it next to put its spans below those of this trace.
    #[must_use]
    pub(crate) fn below(mut self, trace: Option<&CallTrace>) -> Self {
        if let Some(value) = trace.and_then(|trace| trace.traceparent().parse().ok()) {
            self.headers.insert(TRACEPARENT, value);
        }
        self
    }
}

/// `POST /v1/realtime/calls`, and its beta alias `POST /v1/realtime?model=…`.
pub async fn create(
    State(door): State<Arc<FrontDoor>>,
    Extension(context): Extension<Context>,
    request: Request,
) -> Result<Response, ApiError> {
    let started = started(&request);
    let caller = door.authenticate_and_count(request.headers(), Scope::Calls)?;
    let trace = door.trace(request.headers(), "POST /v1/realtime/calls", started);
    let result = make(&door, &context, request, started, &caller, trace.as_ref()).await;
    if let Some(trace) = trace {
        trace.end(&result);
    }
    result
}

async fn make(
    door: &FrontDoor,
    context: &Context,
    request: Request,
    started: Instant,
    caller: &Caller,
    trace: Option<&CallTrace>,
) -> Result<Response, ApiError> {
    let kind = body::require(request.headers(), &CALL_TYPES)?;
    let model = query(&request, "model")?;
    let received = Received::read(request).await?.below(trace);
    let mut call = body::call(&received.headers, &kind, received.body.clone()).await?;
    if let Some(model) = model {
        // The body's own model wins: a URL is written once, a session for each call.
        let session = call.session.get_or_insert_default();
        session.entry("model").or_insert(Value::from(model));
        body::check_session(Value::Object(session.clone()))?;
    }
    door.metrics.create_phase(Phase::Offer, started.elapsed());
    if let Some(elsewhere) = door.steer(context, &received).await {
        return elsewhere;
    }
    let made = door
        .create_call(&NewCall {
            offer: &call.sdp,
            session: call.session,
            caller,
            kind: CallKind::Realtime,
            app: None,
            place: context.place,
            trace,
        })
        .await?;
    door.metrics.create_phase(Phase::Total, started.elapsed());
    let headers = [
        (CONTENT_TYPE, SDP.to_owned()),
        (LOCATION, format!("{CALLS}/{}", made.id.as_str())),
        (ETAG, made.etag),
    ];
    Ok((StatusCode::CREATED, headers, made.answer).into_response())
}

/// `POST /v1/realtime/calls/{call_id}/hangup`, and `DELETE` of the call.
pub async fn hang_up(
    State(door): State<Arc<FrontDoor>>,
    Extension(context): Extension<Context>,
    call_id: Result<Path<String>, PathRejection>,
    request: Request,
) -> Result<Response, ApiError> {
    let located = find(&door, call_id, &context, request.headers())?;
    door.end(located, &context, request).await
}

/// `PATCH /v1/realtime/calls/{call_id}`.
pub async fn patch(
    State(door): State<Arc<FrontDoor>>,
    Extension(context): Extension<Context>,
    call_id: Result<Path<String>, PathRejection>,
    request: Request,
) -> Result<Response, ApiError> {
    let located = find(&door, call_id, &context, request.headers())?;
    door.patch(located, &context, request).await
}

/// `GET /v1/realtime?call_id=…`.
pub async fn sideband(
    State(door): State<Arc<FrontDoor>>,
    Extension(context): Extension<Context>,
    request: Request,
) -> Result<Response, ApiError> {
    door.join(&context, request).await
}

fn find(
    door: &FrontDoor,
    call_id: Result<Path<String>, PathRejection>,
    context: &Context,
    headers: &HeaderMap,
) -> Result<Located, ApiError> {
    let id = call_id.map(|Path(id)| id).unwrap_or_default();
    door.open_call(&id, context, headers)
}

impl FrontDoor {
    /// The trace of a call, when it is traced.
    #[must_use]
    pub fn trace(
        &self,
        headers: &HeaderMap,
        name: &'static str,
        started: Instant,
    ) -> Option<CallTrace> {
        self.traces.as_ref()?.begin(headers, name, started)
    }

    /// Finds a call and checks that who asks may change it.
    ///
    /// # Errors
    /// 401 before 404: who has no key learns nothing about calls. Somebody else's call is told as one that is not there.
    pub fn open_call(
        &self,
        id: &str,
        context: &Context,
        headers: &HeaderMap,
    ) -> Result<Located, ApiError> {
        match self.locate(id, context.steered) {
            Ok(located) => {
                let created = located.call().created;
                let caller = self.authenticate(headers, Purpose::Call { created });
                match caller.and_then(|caller| caller.reached(located)) {
                    Ok(located) => Ok(located),
                    // When somebody else's call was created is nobody's business: the answer is that of an id without a call.
                    Err(refused) => {
                        self.authenticate(headers, Purpose::Scope(Scope::Calls))?;
                        Err(refused)
                    }
                }
            }
            Err(unknown) => {
                self.authenticate(headers, Purpose::Scope(Scope::Calls))?;
                Err(unknown)
            }
        }
    }

    /// Sends a new call to the cluster nearest to its client; nothing when it is served here.
    pub async fn steer(
        &self,
        context: &Context,
        received: &Received,
    ) -> Option<Result<Response, ApiError>> {
        if context.steered || self.steering == Steering::Off {
            return None;
        }
        let fleet = Arc::clone(&self.files.fleet.borrow());
        let well = |id| self.neighbours.cluster_is_well(id);
        let order = steering::clusters(&fleet, self.cluster, context.place, well);
        // Full here, and somebody else is not: the next nearest, instead of a refusal.
        let room_here = self.transceivers.placeable();
        // A page's browser leaves the key out when it follows to another origin: its calls are forwarded all the same.
        let redirects =
            self.steering == Steering::Redirect && !received.headers.contains_key(ORIGIN);
        let nearer = order
            .iter()
            .take_while(|id| **id != self.cluster || !room_here)
            .filter(|id| **id != self.cluster)
            .filter_map(|id| fleet.cluster(*id)?.signaling.as_deref())
            .take(CLUSTERS_TRIED_MAX);
        for signaling in nearer {
            if redirects {
                self.metrics.steered(Steered::Redirect);
                return Some(Ok(redirect(signaling, &received.path)));
            }
            let sent = self.send_on(signaling, context, received).await;
            match sent {
                Ok(response) if !did_not_take_it(response.status()) => {
                    self.metrics.steered(Steered::Forward);
                    return Some(Ok(response));
                }
                Ok(response) => {
                    tracing::info!(signaling, status = %response.status(), "the nearer cluster did not take a call");
                }
                Err(error) => {
                    tracing::info!(signaling, %error, "the nearer cluster did not take a call");
                }
            }
            self.metrics.steered(Steered::Failed);
        }
        self.metrics.steered(Steered::Here);
        None
    }

    async fn send_on(
        &self,
        signaling: &str,
        context: &Context,
        received: &Received,
    ) -> Result<Response, crate::neighbours::ForwardError> {
        let forward = Forward {
            method: &received.method,
            path: &received.path,
            headers: &received.headers,
            body: received.body.clone(),
            note: self.note(context),
        };
        self.neighbours.forward(signaling, forward).await
    }

    /// Has the cluster of a call do what was asked of it.
    pub(crate) async fn ask_there(
        &self,
        signaling: &str,
        context: &Context,
        request: Request,
    ) -> Result<Response, ApiError> {
        let received = Received::read(request).await?;
        self.send_on(signaling, context, &received)
            .await
            .map_err(|error| {
                tracing::info!(signaling, %error, "the call's cluster could not be asked");
                ApiError::new(
                    StatusCode::BAD_GATEWAY,
                    "cluster_unreachable",
                    "The cluster that serves this call could not be reached. Try again.",
                )
            })
    }

    /// Ends a call.
    ///
    /// # Errors
    /// 404 for a call that is not there.
    pub async fn end(
        &self,
        located: Located,
        context: &Context,
        request: Request,
    ) -> Result<Response, ApiError> {
        match located {
            Located::Here(call) => {
                self.hang_up(&call).await?;
                Ok(StatusCode::OK.into_response())
            }
            Located::Elsewhere { signaling, .. } => {
                self.ask_there(&signaling, context, request).await
            }
        }
    }

    /// Trickles, or restarts ICE (RFC 9725 section 4.3).
    ///
    /// | `If-Match` | body | answer |
    /// |---|---|---|
    /// | the current entity tag | a fragment | 204: candidates are taken note of and not used |
    /// | `*` | a fragment with new credentials | 200 with a fragment, and a new `ETag` |
    /// | `*` or the current entity tag | `application/sdp`: a whole offer | 200 with an answer, and a new `ETag` |
    ///
    /// # Errors
    /// 428 without `If-Match`, 412 for another ICE session, 415, 400, 404.
    pub async fn patch(
        &self,
        located: Located,
        context: &Context,
        request: Request,
    ) -> Result<Response, ApiError> {
        let kind = body::require(request.headers(), &[FRAGMENT, SDP])?;
        let condition = condition(request.headers())?;
        let call = match located {
            Located::Here(call) => call,
            Located::Elsewhere { signaling, .. } => {
                return self.ask_there(&signaling, context, request).await;
            }
        };
        let body = body::read(request).await?;
        if kind == SDP {
            let offer = body::check_offer(&body)?.to_owned();
            let made = self
                .restart(&call, &condition, NewIce::Offer(offer), context.place)
                .await?;
            let headers = [(CONTENT_TYPE, SDP.to_owned()), (ETAG, made.etag)];
            return Ok((StatusCode::OK, headers, made.answer).into_response());
        }
        let credentials = fragment::parse(&body);
        if condition != IfMatch::Any {
            match credentials {
                // Clients that trickle without repeating their credentials are out there.
                Ok(_) | Err(FragmentError::Missing(_)) => {}
                Err(error) => return Err(invalid_fragment(&error)),
            }
            self.require_match(&call, &condition).await?;
            return Ok(StatusCode::NO_CONTENT.into_response());
        }
        let credentials = credentials.map_err(|error| invalid_fragment(&error))?;
        let made = self
            .restart(
                &call,
                &condition,
                NewIce::Credentials(credentials),
                context.place,
            )
            .await?;
        let answer = fragment::of_answer(&made.answer).ok_or_else(|| {
            ApiError::new(
                StatusCode::BAD_GATEWAY,
                "media_server_failed",
                "The media server's answer has no ICE credentials. Make a new call.",
            )
        })?;
        let headers = [(CONTENT_TYPE, FRAGMENT.to_owned()), (ETAG, made.etag)];
        Ok((StatusCode::OK, headers, answer).into_response())
    }
}

/// What the request says in `If-Match`.
fn condition(headers: &HeaderMap) -> Result<IfMatch, ApiError> {
    headers
        .get(IF_MATCH)
        .and_then(|value| value.to_str().ok())
        .map(IfMatch::parse)
        .ok_or_else(|| {
            ApiError::new(
                StatusCode::PRECONDITION_REQUIRED,
                "missing_if_match",
                "If-Match is missing: send the ETag of the ICE session to trickle, or \"*\" to restart.",
            )
            .about("if-match")
        })
}

fn invalid_fragment(error: &FragmentError) -> ApiError {
    ApiError::new(
        StatusCode::BAD_REQUEST,
        "invalid_fragment",
        body::sentence(error),
    )
    .about("sdpfrag")
}

/// When the head of the request had been read.
pub fn started(request: &Request) -> Instant {
    request
        .extensions()
        .get::<Started>()
        .map_or_else(Instant::now, |started| started.0)
}

/// A parameter of the query, decoded.
fn query(request: &Request, name: &str) -> Result<Option<String>, ApiError> {
    let Some(query) = request.uri().query() else {
        return Ok(None);
    };
    let pairs: Vec<(String, String)> = axum::extract::Query::try_from_uri(request.uri())
        .map(|axum::extract::Query(pairs)| pairs)
        .map_err(|_| {
            ApiError::field(
                "query",
                format!("The query has {} bytes that cannot be read.", query.len()),
            )
        })?;
    Ok(pairs
        .into_iter()
        .find_map(|(key, value)| (key == name).then_some(value)))
}

/// 307 to another cluster, which serves what it is asked then.
fn redirect(signaling: &str, path: &str) -> Response {
    let mark = if path.contains('?') { '&' } else { '?' };
    let url = format!("{}{path}{mark}{STEERED}=1", base(signaling));
    let mut response = StatusCode::TEMPORARY_REDIRECT.into_response();
    if let Ok(url) = HeaderValue::from_str(&url) {
        response.headers_mut().insert(LOCATION, url);
    }
    response
}
