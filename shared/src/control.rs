//! The messages between signaling and a transceiver: JSON over HTTP, on the transceiver's control port.
//!
//! Every request carries `Authorization: Bearer <control secret>`. A session is named by its id **and** its creation time:
//! an id that was used again belongs to another call.
//!
//! | request | body | answer |
//! |---|---|---|
//! | `POST /v1/sessions` | [`CreateRequest`] | 201 [`CreateResponse`] |
//! | `GET /v1/sessions/{id}?created={unix ms}` | none | 200 [`SessionInfo`] |
//! | `POST /v1/sessions/{id}/restart` | [`RestartRequest`] | 200 [`RestartResponse`] |
//! | `GET /v1/sessions/{id}/events?created={unix ms}` | WebSocket upgrade | 101, see below |
//! | `DELETE /v1/sessions/{id}?created={unix ms}` | none | 200, also when the session is just ending |
//! | `GET /v1/status` | none | 200 [`Status`] |
//! | `GET /debug/call/{id}?created={unix ms}` | none | 200, or 404 with `ended`: what the transceiver's own documentation says; for support |
//!
//! Errors carry a [`ControlError`] with the status of its [`ControlCode`].
//!
//! **Events** (the sideband): a WebSocket (RFC 6455) whose text frames are one JSON event each. The owner sends what the client's channel
//! gets, in the same order, and takes what the client may send on the channel; when the session ends, it closes with 1000. A session that
//! is not there is refused with 404 before the upgrade. Signaling passes the handshake and the bytes after it through and looks at neither,
//! so the owner also chooses the subprotocol: `realtime` when that is offered.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use crate::limits::APP_NAME_MAX;

/// Path of session creation.
pub const SESSIONS_PATH: &str = "/v1/sessions";

/// Last segment of the path of a session's restart.
pub const RESTART_SEGMENT: &str = "restart";

/// Last segment of the path of a session's events.
pub const EVENTS_SEGMENT: &str = "events";

/// Path below which a session tells support how it stands.
pub const DEBUG_PATH: &str = "/debug/call";

/// Path of the status.
pub const STATUS_PATH: &str = "/v1/status";

/// Which kind of client makes the call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallKind {
    /// A realtime call: audio both ways, and the event channel.
    #[default]
    Realtime,
    /// WHIP (RFC 9725): uplink only. The answer is `recvonly`, and an offer that asks for more than can be served is refused whole.
    Whip,
}

impl CallKind {
    /// Whether this is the kind that goes without saying.
    #[must_use]
    pub fn is_realtime(&self) -> bool {
        *self == Self::Realtime
    }
}

/// Asks the owner for a session and the answer to its client's offer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
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
    /// The session's configuration, an object with the fields of `session.update` (GA names): the backend gets it before any audio.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_config: Option<serde_json::Value>,
    /// What kind of call it is.
    #[serde(default, skip_serializing_if = "CallKind::is_realtime")]
    pub kind: CallKind,
    /// The application that a WHIP client named in its URL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub app: Option<String>,
    /// After how many seconds the owner ends the session, with a warning before; nothing means the owner's own limit alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_seconds: Option<u32>,
}

/// Whether a text is the name of an application, as a WHIP client's URL has it: 1 to [`APP_NAME_MAX`] letters, digits, `-`, `_` or `.`.
#[must_use]
pub fn is_app_name(text: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
    (1..=APP_NAME_MAX).contains(&text.len()) && text.bytes().all(plain)
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
    /// The client's new SDP offer; empty when there is only [`RestartRequest::ice`].
    pub offer: String,
    /// The ingress points to advertise, best first.
    pub ingresses: Vec<u8>,
    /// The client's new ICE credentials, sent without an offer (RFC 9725 section 4.3.2): the owner takes its last offer of this
    /// session with these in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ice: Option<IceCredentials>,
}

/// What an ICE agent is called and proves itself with (RFC 8839 section 5.4).
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IceCredentials {
    /// `ice-ufrag`.
    pub ufrag: String,
    /// `ice-pwd`.
    pub password: String,
}

impl std::fmt::Debug for IceCredentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("IceCredentials")
            .field("ufrag", &self.ufrag)
            .finish_non_exhaustive()
    }
}

/// A session that lives, as its owner knows it: what signaling needs to mint a ufrag for its restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionInfo {
    /// The owner's trunk address.
    pub owner: SocketAddr,
    /// The session's worker.
    pub shard: u8,
    /// The `restart` of the ufrag in use: 0 until ICE was restarted for the first time.
    pub restart: u8,
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
    /// The call names an application that the owner does not serve.
    UnknownApp,
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
    /// The restart's number is not above that of the ufrag in use: another restart was faster.
    StaleRestart,
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
            Self::UnknownSession | Self::UnknownApp => 404,
            Self::SessionExists | Self::NoSuchShard | Self::StaleRestart => 409,
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
            ..CreateRequest::default()
        };
        assert_eq!(
            serde_json::to_string(&request).expect("JSON"),
            r#"{"session":7,"shard":1,"created":5,"ufrag":"u","offer":"v=0","ingresses":[0]}"#
        );
        let whip = CreateRequest {
            session_config: Some(serde_json::json!({ "model": "m" })),
            kind: CallKind::Whip,
            app: Some("notes".into()),
            max_seconds: Some(60),
            ..request
        };
        assert_eq!(
            serde_json::to_string(&whip).expect("JSON"),
            r#"{"session":7,"shard":1,"created":5,"ufrag":"u","offer":"v=0","ingresses":[0],"session_config":{"model":"m"},"kind":"whip","app":"notes","max_seconds":60}"#
        );
        let error = ControlError::new(ControlCode::SessionExists, "taken");
        assert_eq!(
            serde_json::to_string(&error).expect("JSON"),
            r#"{"code":"session_exists","message":"taken"}"#
        );
    }
}
