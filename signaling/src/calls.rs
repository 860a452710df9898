//! Making a call and ending it: placement, minting, and the owner's word on it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use axum::http::StatusCode;
use firsthop_shared::address::{ClusterId, IngressId, Restart, SessionId};
use firsthop_shared::control::{ControlCode, CreateRequest};
use firsthop_shared::limits::INGRESSES_PER_ANSWER_MAX;
use firsthop_shared::token::{self, Route};

use crate::call_id::{self, CallId, CallRef};
use crate::credentials::KeyName;
use crate::error::ApiError;
use crate::files::Files;
use crate::limits::MINTS_MAX;
use crate::metrics::{Again, Metrics, Phase};
use crate::owner::OwnerError;
use crate::placement::Place;
use crate::transceivers::Transceivers;

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
}

/// A call that its owner has.
#[derive(Debug)]
pub struct Created {
    /// The id under which any replica finds it.
    pub id: CallId,
    /// The SDP answer.
    pub answer: String,
}

impl FrontDoor {
    /// Has a call made from an offer: placed, minted, answered by its owner.
    ///
    /// An owner that fails is tried once elsewhere; an owner that answers 409 (session id taken, shard unknown) gets another id,
    /// a bounded number of times.
    ///
    /// # Errors
    /// What the client is told: 400 and 422 are the owner's verdict on the offer, 503 no room, 502 and 504 an owner's failure.
    pub async fn create_call(&self, offer: &str, caller: &KeyName) -> Result<Created, ApiError> {
        let started = Instant::now();
        let mut except = None;
        let mut mints = 0;
        let mut failed: Option<ApiError> = None;
        // At most MINTS_MAX requests and one retry elsewhere: each turn either counts a mint or sets `except`.
        loop {
            let Some(reservation) = self.transceivers.reserve(except) else {
                return Err(failed.unwrap_or_else(ApiError::no_capacity));
            };
            let place = *reservation.place();
            let created = unix_millis();
            let session = SessionId(rand::random());
            let request = self.request(offer, caller, &place, session, created);
            mints += 1;
            let error = match self
                .transceivers
                .client()
                .create(place.control, &request)
                .await
            {
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
                        },
                    );
                    return Ok(Created {
                        id,
                        answer: response.answer,
                    });
                }
                Err(error) => error,
            };
            match error.code() {
                Some(ControlCode::SessionExists | ControlCode::NoSuchShard)
                    if mints < MINTS_MAX =>
                {
                    tracing::info!(control = %place.control, reason = %error, "minting again");
                    self.metrics.create_again(Again::Minted);
                    reservation.refused();
                }
                Some(
                    ControlCode::BadOffer | ControlCode::UnsupportedOffer | ControlCode::TooLarge,
                ) => {
                    reservation.refused();
                    return Err(offer_refused(&error));
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

    /// Ends a call, whichever replica made it.
    ///
    /// # Errors
    /// 404 alike for an id that does not open, a call of another cluster, a call that ended, and one whose owner is gone.
    pub async fn hang_up(&self, id: &str) -> Result<(), ApiError> {
        let keyring = Arc::clone(&self.files.api_keyring.borrow());
        let call = call_id::open(&keyring, id).map_err(|_| ApiError::unknown_call())?;
        if call.cluster != self.cluster {
            return Err(ApiError::unknown_call());
        }
        match self
            .transceivers
            .client()
            .hang_up(call.control, call.session, call.created)
            .await
        {
            Ok(true) => {
                self.metrics.hang_up();
                tracing::info!(session = %call.session, control = %call.control, "call hung up");
                Ok(())
            }
            // A process that is gone took its sessions along.
            Ok(false) | Err(OwnerError::Gone) => Err(ApiError::unknown_call()),
            Err(error) => {
                tracing::info!(control = %call.control, reason = %error, "hang-up failed");
                Err(owner_failed(&error))
            }
        }
    }

    fn request(
        &self,
        offer: &str,
        caller: &KeyName,
        place: &Place,
        session: SessionId,
        created: u64,
    ) -> CreateRequest {
        let ufrag = token::mint(
            self.files.keyring.borrow().active(),
            &Route {
                cluster: self.cluster,
                owner: place.owner,
                shard: place.shard,
                restart: Restart(0),
                session,
            },
        );
        let fleet = Arc::clone(&self.files.fleet.borrow());
        // The fleet file may have changed since the settings were checked against it.
        let ingresses: Vec<u8> = match &self.ingresses {
            Some(ids) => ids
                .iter()
                .filter(|id| fleet.ingress(**id).is_some())
                .map(|id| id.0)
                .collect(),
            None => fleet
                .ingresses()
                .iter()
                .map(|ingress| ingress.id.0)
                .take(INGRESSES_PER_ANSWER_MAX)
                .collect(),
        };
        CreateRequest {
            session: session.0,
            shard: place.shard.0,
            created,
            ufrag: ufrag.to_string(),
            offer: offer.to_owned(),
            ingresses,
            client: Some(caller.to_string()),
        }
    }

    fn note_failure(&self, control: SocketAddr, error: &OwnerError) {
        self.transceivers.doubt(control);
        match error.code() {
            Some(ControlCode::BadUfrag | ControlCode::Unauthorized) => {
                tracing::warn!(%control, %error, "transceiver does not accept what was minted for it: do both have the same files?");
            }
            _ => tracing::info!(%control, reason = %error, "call could not be made there"),
        }
    }
}

/// The owner's verdict on the offer, passed on: it is about what the client sent.
fn offer_refused(error: &OwnerError) -> ApiError {
    let OwnerError::Refused(_, refusal) = error else {
        return owner_failed(error);
    };
    let (status, code) = match refusal.code {
        ControlCode::UnsupportedOffer => (StatusCode::UNPROCESSABLE_ENTITY, "unsupported_offer"),
        ControlCode::TooLarge => (StatusCode::PAYLOAD_TOO_LARGE, "offer_too_large"),
        _ => (StatusCode::BAD_REQUEST, "invalid_offer"),
    };
    ApiError::new(status, code, refusal.message.clone()).about("sdp")
}

/// An owner's failure in words for the client: what happened, and nothing about the inside.
fn owner_failed(error: &OwnerError) -> ApiError {
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

fn unix_millis() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| {
            u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
        })
}
