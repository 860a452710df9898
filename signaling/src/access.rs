//! What happens around every request: an id, an access log line, a count.
//!
//! The log line holds the route as a template, never the path: call ids stay out of logs, and so do headers and bodies.

use std::sync::Arc;
use std::time::Instant;

use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderName, HeaderValue};
use axum::middleware::Next;
use axum::response::Response;

use firsthop_service::server::Peer;

use crate::calls::FrontDoor;
use crate::error::ErrorCode;
use crate::limits::REQUEST_ID_MAX;

/// The header of request ids, both ways.
pub const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// What the log and the metrics call a path that is not ours.
const UNMATCHED: &str = "unmatched";

/// When the head of the request had been read.
#[derive(Clone, Copy, Debug)]
pub struct Started(pub Instant);

/// Gives the request an id (the client's own, when it is usable), logs and counts its response.
pub async fn observe(
    State(door): State<Arc<FrontDoor>>,
    mut request: Request,
    next: Next,
) -> Response {
    let started = Instant::now();
    let id = request
        .headers()
        .get(&REQUEST_ID)
        .filter(|id| usable(id))
        .cloned()
        .unwrap_or_else(new_id);
    let route = request
        .extensions()
        .get::<MatchedPath>()
        .map_or_else(|| UNMATCHED.to_owned(), |path| path.as_str().to_owned());
    let peer = request.extensions().get::<Peer>().map(|peer| peer.0);
    let method = request.method().clone();
    request.extensions_mut().insert(Started(started));

    let mut response = next.run(request).await;

    let status = response.status().as_u16();
    door.metrics.request(&route, status);
    let code = response.extensions().get::<ErrorCode>().map(|code| code.0);
    let micros = u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX);
    let id_text = id.to_str().unwrap_or_default();
    if route.starts_with("/v1/") || route.starts_with("/whip/") {
        tracing::info!(id = id_text, %method, route, status, code, micros, peer = peer.map(tracing::field::display), "request");
    } else {
        tracing::debug!(id = id_text, %method, route, status, code, micros, peer = peer.map(tracing::field::display), "request");
    }
    response.headers_mut().insert(REQUEST_ID, id);
    response
}

fn usable(id: &HeaderValue) -> bool {
    let bytes = id.as_bytes();
    (1..=REQUEST_ID_MAX).contains(&bytes.len())
        && bytes
            .iter()
            .all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(b))
}

fn new_id() -> HeaderValue {
    let id = format!("req_{:032x}", rand::random::<u128>());
    HeaderValue::from_str(&id).unwrap_or_else(|_| HeaderValue::from_static("req_"))
}
