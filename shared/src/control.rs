//! The messages between signaling and a transceiver: JSON over HTTP, on the transceiver's control port.
//!
//! Every request carries `Authorization: Bearer <control secret>`. A session is named by its id **and** its creation time:
//! an id that was used again belongs to another call.
//!
//! | request | body | answer |
//! |---|---|---|
//! | `POST /v1/sessions` | [`CreateRequest`] | 201 [`CreateResponse`] |
//! | `POST /v1/sessions/{id}/restart` | [`RestartRequest`] | 200 [`RestartResponse`] |
//! | `DELETE /v1/sessions/{id}?created={unix ms}` | none | 200, also when the session is just ending |
//! | `GET /v1/status` | none | 200 [`Status`] |
//!
//! Errors carry a [`ControlError`] with the status of its [`ControlCode`].

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

/// Path of session creation.
pub const SESSIONS_PATH: &str = "/v1/sessions";

/// Path of the status.
pub const STATUS_PATH: &str = "/v1/status";

/// Asks the owner for a session and the answer to its client's offer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CreateRequest {
    /// The session id that signaling minted.
    pub session: u32,
    /// The worker that signaling chose.
    pub shard: u8,
    /// When the call was created, in milliseconds since the Unix epoch.
    pub created: u64,
    /// The routable ufrag: it opens to this owner, shard and session.
    pub ufrag: String,
    /// The client's SDP offer.
    pub offer: String,
    /// The ingress points to advertise, best first.
    pub ingresses: Vec<u8>,
    /// The name of the API key, for the owner's log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
}

/// The owner's answer to the offer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CreateResponse {
    /// The SDP answer, with every candidate.
    pub answer: String,
}

/// Asks the owner to restart ICE under a new ufrag.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestartRequest {
    /// When the call was created, in milliseconds since the Unix epoch.
    pub created: u64,
    /// The new routable ufrag.
    pub ufrag: String,
    /// How many restarts there were, this one included.
    pub restart: u8,
    /// The client's new SDP offer.
    pub offer: String,
    /// The ingress points to advertise, best first.
    pub ingresses: Vec<u8>,
}

/// The owner's answer to a restart.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestartResponse {
    /// The SDP answer, with every candidate.
    pub answer: String,
}

/// How a transceiver is doing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// A random number of this process: it changes when the transceiver restarts.
    pub boot: u32,
    /// Its trunk address, as it is to be minted.
    pub owner: SocketAddr,
    /// Whether it takes no new sessions.
    pub draining: bool,
    /// Its workers, by shard id.
    pub shards: Vec<ShardStatus>,
    /// Its version.
    pub version: String,
}

/// How one worker is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShardStatus {
    /// Sessions that live.
    pub sessions: u32,
    /// Sessions that fit.
    pub capacity: u32,
}

/// Why the owner refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct ControlError {
    /// What kind of refusal it is.
    pub code: ControlCode,
    /// What is wrong, in words for the client's developer.
    pub message: String,
}

/// The kinds of refusal, each with its HTTP status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ControlCode {
    /// The request is not of the expected shape.
    BadRequest,
    /// The offer is not SDP.
    BadOffer,
    /// The offer is SDP that cannot be served.
    UnsupportedOffer,
    /// The ufrag does not open, or names another owner, shard or session.
    BadUfrag,
    /// The control secret is missing or wrong.
    Unauthorized,
    /// There is no such session.
    UnknownSession,
    /// The session id is taken: mint another one.
    SessionExists,
    /// The owner has no such worker: ask for its status anew.
    NoSuchShard,
    /// The body is too large.
    TooLarge,
    /// The owner takes no new sessions.
    Draining,
    /// The worker is full.
    Full,
    /// The owner failed.
    Internal,
}

impl ControlCode {
    /// The HTTP status that goes with the code.
    #[must_use]
    pub fn status(self) -> u16 {
        match self {
            Self::BadRequest | Self::BadOffer | Self::BadUfrag => 400,
            Self::Unauthorized => 401,
            Self::UnknownSession => 404,
            Self::SessionExists | Self::NoSuchShard => 409,
            Self::TooLarge => 413,
            Self::UnsupportedOffer => 422,
            Self::Internal => 500,
            Self::Draining | Self::Full => 503,
        }
    }
}

impl ControlError {
    /// Makes an error of a kind, with words for people.
    #[must_use]
    pub fn new(code: ControlCode, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_have_the_documented_json_shape() {
        let request = CreateRequest {
            session: 7,
            shard: 1,
            created: 5,
            ufrag: "u".into(),
            offer: "v=0".into(),
            ingresses: vec![0],
            client: None,
        };
        assert_eq!(
            serde_json::to_string(&request).expect("JSON"),
            r#"{"session":7,"shard":1,"created":5,"ufrag":"u","offer":"v=0","ingresses":[0]}"#
        );
        let error = ControlError::new(ControlCode::SessionExists, "taken");
        assert_eq!(
            serde_json::to_string(&error).expect("JSON"),
            r#"{"code":"session_exists","message":"taken"}"#
        );
    }
}
