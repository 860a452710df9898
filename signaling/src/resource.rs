//! A call as a resource: ended and restarted through any replica, of any cluster.
//!
//! The call id says where the owner is. What a restart needs besides (the owner's trunk address, the worker, how many restarts there
//! were) the owner itself is asked for, since replicas remember nothing. So the entity tag of the ICE session is the owner's word too.

use std::sync::Arc;

use axum::http::StatusCode;
use firsthop_shared::address::{OwnerAddr, Restart, ShardId};
use firsthop_shared::control::{ControlCode, IceCredentials, RestartRequest, SessionInfo};
use firsthop_shared::token::{self, Route};

use crate::call_id::{self, CallRef};
use crate::calls::{FrontDoor, etag, owner_failed, request_refused};
use crate::error::ApiError;
use crate::fragment;
use crate::owner::OwnerError;
use crate::steering::Position;

/// Where a call is served.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Located {
    /// In this cluster.
    Here(CallRef),
    /// In another one, whose signaling is there.
    Elsewhere {
        /// The call.
        call: CallRef,
        /// Base URL of that cluster's signaling.
        signaling: String,
    },
}

impl Located {
    /// The call, wherever it is.
    #[must_use]
    pub fn call(&self) -> &CallRef {
        match self {
            Self::Here(call) | Self::Elsewhere { call, .. } => call,
        }
    }
}

/// What `If-Match` says (RFC 9110 section 13.1.1).
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum IfMatch {
    /// `*`, also in quotes as RFC 9725 writes it: whatever there is.
    Any,
    /// These entity tags.
    Tags(Vec<String>),
}

impl IfMatch {
    /// Reads a header's value. Weak tags never match and are dropped (RFC 9110 section 8.8.3.2).
    #[must_use]
    pub fn parse(value: &str) -> Self {
        let value = value.trim();
        if value == "*" || value == "\"*\"" {
            return Self::Any;
        }
        let tags = value.split(',').map(str::trim);
        Self::Tags(
            tags.filter(|tag| tag.starts_with('"'))
                .map(str::to_owned)
                .collect(),
        )
    }

    fn accepts(&self, current: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Tags(tags) => tags.iter().any(|tag| tag == current),
        }
    }
}

/// A restart that is asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NewIce {
    /// By a whole offer.
    Offer(String),
    /// By the client's new credentials alone.
    Credentials(IceCredentials),
}

/// A restart that was made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Restarted {
    /// The SDP answer.
    pub answer: String,
    /// The entity tag of the ICE session from now on.
    pub etag: String,
}

impl FrontDoor {
    /// Finds where a call is served. `steered` requests are not sent on.
    ///
    /// # Errors
    /// 404 alike for an id that does not open and a cluster that cannot be reached from here.
    pub fn locate(&self, id: &str, steered: bool) -> Result<Located, ApiError> {
        let keyring = Arc::clone(&self.files.api_keyring.borrow());
        let call = call_id::open(&keyring, id).map_err(|_| ApiError::unknown_call())?;
        if call.cluster == self.cluster {
            return Ok(Located::Here(call));
        }
        let fleet = Arc::clone(&self.files.fleet.borrow());
        fleet
            .cluster(call.cluster)
            .filter(|_| !steered)
            .and_then(|cluster| cluster.signaling.clone())
            .map(|signaling| Located::Elsewhere { call, signaling })
            .ok_or_else(ApiError::unknown_call)
    }

    /// Ends a call, whichever replica made it.
    ///
    /// # Errors
    /// 404 alike for a call that ended and one whose owner is gone.
    pub async fn hang_up(&self, call: &CallRef) -> Result<(), ApiError> {
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
            Err(error) => Err(failed(call, &error)),
        }
    }

    /// Checks that a client means the ICE session that there is.
    ///
    /// # Errors
    /// 404 for a call that ended, 412 for another ICE session.
    pub async fn require_match(
        &self,
        call: &CallRef,
        condition: &IfMatch,
    ) -> Result<SessionInfo, ApiError> {
        let asked = self
            .transceivers
            .client()
            .session(call.control, call.session, call.created)
            .await;
        let info = match asked {
            Ok(Some(info)) => info,
            Ok(None) | Err(OwnerError::Gone) => return Err(ApiError::unknown_call()),
            Err(error) => return Err(failed(call, &error)),
        };
        if condition.accepts(&etag(Restart(info.restart))) {
            Ok(info)
        } else {
            Err(stale())
        }
    }

    /// Restarts a call's ICE: same owner, same worker, same call id, new ufrag.
    ///
    /// # Errors
    /// 404 for a call that ended, 412 when another restart was faster, 400 and 422 for the owner's verdict on the offer.
    pub async fn restart(
        &self,
        call: &CallRef,
        condition: &IfMatch,
        ice: NewIce,
        place: Option<Position>,
    ) -> Result<Restarted, ApiError> {
        let info = self.require_match(call, condition).await?;
        let restart = info.restart.checked_add(1).map(Restart).ok_or_else(|| {
            ApiError::new(
                StatusCode::CONFLICT,
                "too_many_restarts",
                "ICE was restarted 255 times in this call: make a new one.",
            )
            .about("call_id")
        })?;
        let ufrag = self.mint(Route {
            cluster: call.cluster,
            owner: OwnerAddr::new(info.owner),
            shard: ShardId(info.shard),
            restart,
            session: call.session,
        });
        let (offer, ice) = match ice {
            NewIce::Offer(offer) => (offer, None),
            NewIce::Credentials(ice) => (String::new(), Some(ice)),
        };
        let request = RestartRequest {
            created: call.created,
            ufrag: ufrag.to_string(),
            restart: restart.0,
            offer,
            ingresses: self.advertise(place),
            ice,
        };
        match self
            .transceivers
            .client()
            .restart(call.control, call.session, &request)
            .await
        {
            Ok(response) => {
                self.metrics.restart();
                tracing::info!(session = %call.session, control = %call.control, restart = restart.0, "ICE restarted");
                // An offer without new credentials is no restart, and the owner's answer keeps the ufrag that it had.
                let used = self
                    .restart_in(&response.answer)
                    .unwrap_or(Restart(info.restart));
                Ok(Restarted {
                    answer: response.answer,
                    etag: etag(used),
                })
            }
            Err(OwnerError::Gone) => Err(ApiError::unknown_call()),
            Err(error) => Err(match error.code() {
                Some(ControlCode::UnknownSession) => ApiError::unknown_call(),
                Some(ControlCode::StaleRestart) => stale(),
                Some(
                    ControlCode::BadOffer | ControlCode::UnsupportedOffer | ControlCode::TooLarge,
                ) => request_refused(&error),
                _ => failed(call, &error),
            }),
        }
    }

    /// The number of restarts in the ufrag of an answer.
    fn restart_in(&self, answer: &str) -> Option<Restart> {
        let ufrag = fragment::attribute(answer, "ice-ufrag")?;
        let keyring = Arc::clone(&self.files.keyring.borrow());
        let route = token::open(&keyring, ufrag.trim().as_bytes()).ok()?;
        Some(route.restart)
    }
}

fn failed(call: &CallRef, error: &OwnerError) -> ApiError {
    tracing::info!(control = %call.control, reason = %error, "the owner did not do what it was asked");
    owner_failed(error)
}

fn stale() -> ApiError {
    ApiError::new(
        StatusCode::PRECONDITION_FAILED,
        "stale_etag",
        "If-Match names an ICE session that is not the current one.",
    )
    .about("if-match")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn if_match_is_any_or_a_list_of_strong_tags() {
        assert_eq!(IfMatch::parse("*"), IfMatch::Any);
        assert_eq!(IfMatch::parse(" \"*\" "), IfMatch::Any);
        let tags = IfMatch::parse("\"ice-0\", W/\"ice-1\", \"x\"");
        assert_eq!(
            tags,
            IfMatch::Tags(vec!["\"ice-0\"".into(), "\"x\"".into()])
        );
        assert!(tags.accepts("\"ice-0\"") && !tags.accepts("\"ice-1\""));
        assert!(!IfMatch::parse("ice-0").accepts("ice-0"));
    }
}
