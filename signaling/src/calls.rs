//! Making a call: placement, minting, and the owner's word on it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use axum::http::StatusCode;
use firsthop_shared::address::{ClusterId, IngressId, Restart, SessionId};
use firsthop_shared::control::{CallKind, ControlCode, CreateRequest};
use firsthop_shared::token::{self, Route, Ufrag};
use serde_json::{Map, Value};
use tokio::sync::{Semaphore, watch};

use crate::auth::Caller;
use crate::call_id::{self, CallId, CallRef};
use crate::client::{Places, Proxies};
use crate::error::ApiError;
use crate::files::Files;
use crate::limits::{MINTS_MAX, SHARDS_TRIED_MAX};
use crate::metrics::{Again, Metrics, Phase};
use crate::neighbours::Neighbours;
use crate::owner::OwnerError;
use crate::placement::Place;
use crate::rates::Rates;
use crate::session_config;
use crate::steering::{self, Position};
use crate::traces::{CallTrace, Traces};
use crate::transceivers::Transceivers;

/// The code of an error about an application that nobody serves.
pub(crate) const UNKNOWN_APP: &str = "unknown_app";

/// How a call gets to the cluster that is nearest to its client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Steering {
    /// This signaling asks that cluster's, and brings the answer.
    Forward,
    /// The client is told to ask there, by 307; one in a page, whose request has an `Origin`, is forwarded.
    Redirect,
    /// Not at all: every call stays in the cluster that it reached.
    Off,
}

/// Everything that a request needs: the state of the router.
#[derive(Debug)]
pub struct FrontDoor {
    /// The cluster whose transceivers are these.
    pub cluster: ClusterId,
    /// Keyrings, fleet, API keys.
    pub files: Files,
    /// Which ingress points answers advertise, the preferred first; nothing means all of the fleet's, in its order.
    pub ingresses: Option<Vec<IngressId>>,
    /// Where calls are placed.
    pub transceivers: Arc<Transceivers>,
    /// What is counted.
    pub metrics: Arc<Metrics>,
    /// How often may be asked.
    pub rates: Rates,
    /// Whom to believe about where a client is.
    pub proxies: Proxies,
    /// Where addresses are, when a database was given.
    pub places: Option<watch::Receiver<Arc<Places>>>,
    /// Other clusters, and the ingress points.
    pub neighbours: Arc<Neighbours>,
    /// How calls get to other clusters.
    pub steering: Steering,
    /// The values of `Link` headers that name ICE servers (RFC 9725 section 4.6).
    pub ice_servers: Vec<axum::http::HeaderValue>,
    /// One permit for each sideband that is carried at once.
    pub sidebands: Arc<Semaphore>,
    /// Which calls are traced; nothing when none is.
    pub traces: Option<Traces>,
}

/// A call that is asked for.
#[derive(Clone, Debug)]
pub struct NewCall<'a> {
    /// The client's offer, checked.
    pub offer: &'a str,
    /// The configuration in the request, checked.
    pub session: Option<Map<String, Value>>,
    /// Who asks.
    pub caller: &'a Caller,
    /// What kind of client.
    pub kind: CallKind,
    /// The application that a WHIP client names.
    pub app: Option<&'a str>,
    /// Where the client is.
    pub place: Option<Position>,
    /// Its trace, when it is traced.
    pub trace: Option<&'a CallTrace>,
}

/// A call that its owner has.
#[derive(Debug)]
pub struct Created {
    /// The id under which any replica finds it.
    pub id: CallId,
    /// The SDP answer.
    pub answer: String,
    /// The entity tag of its ICE session.
    pub etag: String,
}

/// The entity tag of an ICE session (RFC 9725 section 4.3.1): how many restarts its ufrag has seen. It is strong, and the call that it is
/// about is named by the URL, so that no replica has to remember any.
#[must_use]
pub fn etag(restart: Restart) -> String {
    format!("\"ice-{}\"", restart.0)
}

impl FrontDoor {
    /// Has a call made from an offer: placed, minted, answered by its owner.
    ///
    /// An owner that fails is tried once elsewhere; an owner that answers 409 (session id taken, shard unknown) gets another id,
    /// and in the latter case another worker, a bounded number of times.
    ///
    /// # Errors
    /// What the client is told: 400 and 422 are the owner's verdict on the offer, 503 no room, 502 and 504 an owner's failure.
    pub async fn create_call(&self, call: &NewCall<'_>) -> Result<Created, ApiError> {
        let caller = &call.caller.grant.name;
        let started = Instant::now();
        let mut except = None;
        let mut mints = 0;
        let mut failed: Option<ApiError> = None;
        // At most SHARDS_TRIED_MAX requests and one retry elsewhere: each turn either counts a mint or sets `except`.
        loop {
            let placing = Instant::now();
            let Some(reservation) = self.transceivers.reserve(except) else {
                return Err(failed.unwrap_or_else(ApiError::no_capacity));
            };
            let place = *reservation.place();
            let created = unix_millis();
            let session = SessionId(rand::random());
            let request = self.request(call, &place, session, created);
            mints += 1;
            let asking = call
                .trace
                .map(|trace| trace.placed(placing, &place, session));
            let result = self
                .transceivers
                .client()
                .create(place.control, &request, asking.map(|a| a.traceparent()))
                .await;
            if let (Some(trace), Some(asking)) = (call.trace, asking) {
                trace.answered(asking, &place, &result);
            }
            let error = match result {
                Ok(response) => {
                    drop(reservation);
                    self.metrics.create_phase(Phase::Answer, started.elapsed());
                    tracing::info!(%session, owner = %place.owner, shard = %place.shard, key = %caller, "call created");
                    let keyring = self.files.api_keyring.borrow();
                    let id = call_id::seal(
                        keyring.active(),
                        &CallRef {
                            cluster: self.cluster,
                            control: place.control,
                            session,
                            created,
                            placed: call.caller.placed(),
                        },
                    );
                    return Ok(Created {
                        id,
                        answer: response.answer,
                        etag: etag(Restart(0)),
                    });
                }
                Err(error) => error,
            };
            match error.code() {
                // Each of these takes workers away from those that may be chosen.
                Some(ControlCode::NoSuchShard) if mints < SHARDS_TRIED_MAX => {
                    tracing::info!(control = %place.control, shard = %place.shard, reason = %error, "minting again");
                    self.metrics.create_again(Again::Minted);
                    reservation.no_such_shard();
                }
                Some(ControlCode::SessionExists) if mints < MINTS_MAX => {
                    tracing::info!(control = %place.control, shard = %place.shard, reason = %error, "minting again");
                    self.metrics.create_again(Again::Minted);
                    reservation.refused();
                }
                Some(
                    ControlCode::BadOffer
                    | ControlCode::UnsupportedOffer
                    | ControlCode::TooLarge
                    | ControlCode::UnknownApp,
                ) => {
                    reservation.refused();
                    return Err(request_refused(&error));
                }
                _ => {
                    self.note_failure(place.control, &error);
                    // After a time-out the owner may have the session: it stays counted until the next status.
                    if !matches!(error, OwnerError::TimedOut) {
                        reservation.refused();
                    }
                    let told = owner_failed(&error);
                    if except.is_some() {
                        return Err(told);
                    }
                    self.metrics.create_again(Again::Elsewhere);
                    except = Some(place.control);
                    failed = Some(told);
                }
            }
        }
    }

    fn request(
        &self,
        call: &NewCall<'_>,
        place: &Place,
        session: SessionId,
        created: u64,
    ) -> CreateRequest {
        let ufrag = self.mint(Route {
            cluster: self.cluster,
            owner: place.owner,
            shard: place.shard,
            restart: Restart(0),
            session,
        });
        let claims = call.caller.claims.as_ref();
        let limits = [
            call.caller.grant.max_seconds,
            claims.and_then(|claims| claims.max_seconds),
        ];
        CreateRequest {
            session: session.0,
            shard: place.shard.0,
            created,
            ufrag: ufrag.to_string(),
            offer: call.offer.to_owned(),
            ingresses: self.advertise(call.place),
            client: Some(call.caller.grant.name.to_string()),
            session_config: configuration(
                claims.map(|claims| claims.session.clone()),
                call.session.clone(),
            ),
            kind: call.kind,
            app: call.app.map(str::to_owned),
            max_seconds: limits.into_iter().flatten().min(),
        }
    }

    /// Mints a ufrag with the active key.
    #[must_use]
    pub fn mint(&self, route: Route) -> Ufrag {
        token::mint(self.files.keyring.borrow().active(), &route)
    }

    /// The ingress points that an answer to a client at this place names.
    #[must_use]
    pub fn advertise(&self, place: Option<Position>) -> Vec<u8> {
        let fleet = Arc::clone(&self.files.fleet.borrow());
        let well = |id| self.neighbours.ingress_is_well(id);
        steering::ingresses(&fleet, self.ingresses.as_deref(), place, well)
            .into_iter()
            .map(|id| id.0)
            .collect()
    }

    fn note_failure(&self, control: SocketAddr, error: &OwnerError) {
        // A request that it does not understand says nothing of its health, and may be a client's doing.
        if error.code() != Some(ControlCode::BadRequest) {
            self.transceivers.doubt(control);
        }
        match error.code() {
            Some(ControlCode::BadUfrag | ControlCode::Unauthorized) => {
                tracing::warn!(%control, %error, "transceiver does not accept what was minted for it: do both have the same files?");
            }
            _ => tracing::info!(%control, reason = %error, "call could not be made there"),
        }
    }
}

/// What the owner is told of the session: what the secret fixes, and what the request adds.
fn configuration(
    fixed: Option<Map<String, Value>>,
    added: Option<Map<String, Value>>,
) -> Option<Value> {
    let mut merged = session_config::merge(fixed.unwrap_or_default(), added.unwrap_or_default());
    if merged.is_empty() {
        return None;
    }
    // `session.update` of the GA protocol has to say it.
    merged
        .entry("type")
        .or_insert_with(|| Value::from("realtime"));
    Some(Value::Object(merged))
}

/// The owner's verdict on what the client sent, passed on.
pub(crate) fn request_refused(error: &OwnerError) -> ApiError {
    let OwnerError::Refused(_, refusal) = error else {
        return owner_failed(error);
    };
    let (status, code, field) = match refusal.code {
        ControlCode::UnsupportedOffer => {
            (StatusCode::UNPROCESSABLE_ENTITY, "unsupported_offer", "sdp")
        }
        ControlCode::TooLarge => (StatusCode::PAYLOAD_TOO_LARGE, "offer_too_large", "sdp"),
        ControlCode::UnknownApp => (StatusCode::NOT_FOUND, UNKNOWN_APP, "app"),
        _ => (StatusCode::BAD_REQUEST, "invalid_offer", "sdp"),
    };
    ApiError::new(status, code, refusal.message.clone()).about(field)
}

/// An owner's failure in words for the client: what happened, and nothing about the inside.
pub(crate) fn owner_failed(error: &OwnerError) -> ApiError {
    match error {
        OwnerError::Refused(_, refusal)
            if matches!(refusal.code, ControlCode::Draining | ControlCode::Full) =>
        {
            ApiError::no_capacity()
        }
        OwnerError::TimedOut => ApiError::new(
            StatusCode::GATEWAY_TIMEOUT,
            "media_server_timeout",
            "The media server did not answer in time. Try again.",
        ),
        OwnerError::Gone | OwnerError::Unreachable(_) => ApiError::new(
            StatusCode::BAD_GATEWAY,
            "media_server_unreachable",
            "The media server could not be reached. Try again.",
        ),
        OwnerError::Refused(..) | OwnerError::Garbled(_) => ApiError::new(
            StatusCode::BAD_GATEWAY,
            "media_server_failed",
            "The media server could not serve the call. Try again; if it stays so, tell the operator.",
        ),
    }
}

/// The time, as Unix time in milliseconds.
#[must_use]
pub fn unix_millis() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| {
            u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
        })
}
