//! The HTTP client for the control port of transceivers.
//!
//! One client for all: connections are reused, nothing follows a redirect or goes through a proxy, every request has a time
//! limit, and every response a size limit. The control secret goes into a header that is marked as sensitive.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use firsthop_service::traces::TRACEPARENT;
use firsthop_shared::address::SessionId;
use firsthop_shared::control::{
    ControlCode, ControlError, CreateRequest, CreateResponse, DEBUG_PATH, EVENTS_SEGMENT,
    RESTART_SEGMENT, RestartRequest, RestartResponse, SESSIONS_PATH, STATUS_PATH, SessionInfo,
    Status,
};
use firsthop_shared::control_secret::{self, ControlSecretError};
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use reqwest::redirect::Policy;
use reqwest::{Client, RequestBuilder, StatusCode};
use serde::de::DeserializeOwned;

use crate::limits::{
    CREATE_TIMEOUT, HANG_UP_TIMEOUT, IDLE_MAX, OWNER_CONNECT_TIMEOUT, OWNER_RESPONSE_MAX,
    STATUS_FRESH, STATUS_TIMEOUT,
};

/// The secret that transceivers ask for on their control port.
#[derive(Clone)]
pub struct ControlSecret(HeaderValue);

impl ControlSecret {
    /// Takes the content of a secret file ([`control_secret::parse`]).
    ///
    /// # Errors
    /// What is wrong with it, without any of it.
    pub fn parse(text: &str) -> Result<Self, ControlSecretError> {
        let secret = control_secret::parse(text)?;
        let mut value = HeaderValue::from_str(&format!("Bearer {secret}"))
            .map_err(|_| ControlSecretError::Characters)?;
        value.set_sensitive(true);
        Ok(Self(value))
    }
}

impl fmt::Debug for ControlSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ControlSecret(hidden)")
    }
}

/// Why a transceiver did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum OwnerError {
    /// It said no.
    #[error("refused ({status}, {code:?}): {message}", status = .0.as_u16(), code = .1.code, message = .1.message)]
    Refused(StatusCode, ControlError),
    /// No connection: nobody listens there.
    #[error("nobody listens there")]
    Gone,
    /// No connection for another reason, or it broke.
    #[error("cannot be reached: {0}")]
    Unreachable(String),
    /// It took too long.
    #[error("did not answer in time")]
    TimedOut,
    /// What it said makes no sense.
    #[error("said something unexpected: {0}")]
    Garbled(String),
}

impl OwnerError {
    /// The code of a refusal.
    #[must_use]
    pub fn code(&self) -> Option<ControlCode> {
        match self {
            Self::Refused(_, error) => Some(error.code),
            _ => None,
        }
    }
}

/// What a transceiver tells support of a session. Signaling does not look into it.
#[derive(Clone, PartialEq, Debug, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Report {
    /// It lives, and stands like this.
    Call(serde_json::Value),
    /// It has ended: why, how long ago, and how it stood then.
    Ended(serde_json::Value),
}

/// How long each kind of request to a transceiver may take, and for how long a status is believed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Patience {
    /// For its status.
    pub status: Duration,
    /// For the next good status: so long counts the last one as recent.
    pub fresh: Duration,
    /// For the answer to an offer.
    pub create: Duration,
    /// For the end of a session.
    pub hang_up: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            status: STATUS_TIMEOUT,
            fresh: STATUS_FRESH,
            create: CREATE_TIMEOUT,
            hang_up: HANG_UP_TIMEOUT,
        }
    }
}

/// Speaks to the control port of any transceiver.
#[derive(Clone, Debug)]
pub struct OwnerClient {
    http: Client,
    patience: Patience,
}

impl OwnerClient {
    /// A client that shows this secret, and waits no longer than this.
    ///
    /// # Errors
    /// When the HTTP client cannot be built.
    pub fn new(secret: &ControlSecret, patience: Patience) -> Result<Self, reqwest::Error> {
        let mut headers = HeaderMap::new();
        headers.insert(AUTHORIZATION, secret.0.clone());
        let http = Client::builder()
            .default_headers(headers)
            .no_proxy()
            .redirect(Policy::none())
            .connect_timeout(OWNER_CONNECT_TIMEOUT)
            .tcp_nodelay(true)
            .pool_idle_timeout(IDLE_MAX)
            .build()?;
        Ok(Self { http, patience })
    }

    /// How long it waits.
    #[must_use]
    pub fn patience(&self) -> Patience {
        self.patience
    }

    /// Asks for the status.
    ///
    /// # Errors
    /// [`OwnerError`]
    pub async fn status(&self, control: SocketAddr) -> Result<Status, OwnerError> {
        let url = format!("http://{control}{STATUS_PATH}");
        send(self.http.get(url), self.patience.status).await
    }

    /// Has a session made, and returns the answer. With a `traceparent` the owner's spans go below the one that it names.
    ///
    /// # Errors
    /// [`OwnerError`]
    pub async fn create(
        &self,
        control: SocketAddr,
        request: &CreateRequest,
        traceparent: Option<String>,
    ) -> Result<CreateResponse, OwnerError> {
        let url = format!("http://{control}{SESSIONS_PATH}");
        let mut post = self.http.post(url).json(request);
        if let Some(traceparent) = traceparent {
            post = post.header(TRACEPARENT, traceparent);
        }
        let made: CreateResponse = send(post, self.patience.create).await?;
        if !made.answer.starts_with("v=0") {
            return Err(OwnerError::Garbled("an answer that is not SDP".to_owned()));
        }
        Ok(made)
    }

    /// Asks for what a restart is minted from; nothing when the owner does not have the session (any more).
    ///
    /// # Errors
    /// [`OwnerError`]
    pub async fn session(
        &self,
        control: SocketAddr,
        session: SessionId,
        created: u64,
    ) -> Result<Option<SessionInfo>, OwnerError> {
        let url = format!("http://{control}{SESSIONS_PATH}/{session}?created={created}");
        match receive(self.http.get(url), self.patience.status).await? {
            (StatusCode::NOT_FOUND, _) => Ok(None),
            (status, body) => read(status, &body).map(Some),
        }
    }

    /// Has a session's ICE restarted, and returns the answer.
    ///
    /// # Errors
    /// [`OwnerError`]
    pub async fn restart(
        &self,
        control: SocketAddr,
        session: SessionId,
        request: &RestartRequest,
    ) -> Result<RestartResponse, OwnerError> {
        let url = format!("http://{control}{SESSIONS_PATH}/{session}/{RESTART_SEGMENT}");
        let made: RestartResponse =
            send(self.http.post(url).json(request), self.patience.create).await?;
        if !made.answer.starts_with("v=0") {
            return Err(OwnerError::Garbled("an answer that is not SDP".to_owned()));
        }
        Ok(made)
    }

    /// Asks what support wants to know of a session, alive or ended; nothing when the owner knows nothing of it any more.
    ///
    /// # Errors
    /// [`OwnerError`]
    pub async fn report(
        &self,
        control: SocketAddr,
        session: SessionId,
        created: u64,
    ) -> Result<Option<Report>, OwnerError> {
        let url = format!("http://{control}{DEBUG_PATH}/{session}?created={created}");
        let (status, body) = receive(self.http.get(url), self.patience.hang_up).await?;
        if status != StatusCode::NOT_FOUND {
            return read(status, &body).map(|call| Some(Report::Call(call)));
        }
        let mut told: serde_json::Map<String, serde_json::Value> = serde_json::from_slice(&body)
            .map_err(|error| OwnerError::Garbled(error.to_string()))?;
        Ok(told.remove("ended").map(Report::Ended))
    }

    /// A request for a session's events; the handshake's own headers are the caller's to add.
    pub fn events(&self, control: SocketAddr, session: SessionId, created: u64) -> RequestBuilder {
        self.http.get(format!(
            "http://{control}{SESSIONS_PATH}/{session}/{EVENTS_SEGMENT}?created={created}"
        ))
    }

    /// Has a session ended; `false` when the owner does not have it (any more).
    ///
    /// # Errors
    /// [`OwnerError`]
    pub async fn hang_up(
        &self,
        control: SocketAddr,
        session: SessionId,
        created: u64,
    ) -> Result<bool, OwnerError> {
        let url = format!("http://{control}{SESSIONS_PATH}/{session}?created={created}");
        match receive(self.http.delete(url), self.patience.hang_up).await? {
            (status, _) if status.is_success() => Ok(true),
            (StatusCode::NOT_FOUND, _) => Ok(false),
            (status, body) => Err(refusal(status, &body)),
        }
    }
}

async fn send<T: DeserializeOwned>(
    request: RequestBuilder,
    timeout: Duration,
) -> Result<T, OwnerError> {
    let (status, body) = receive(request, timeout).await?;
    read(status, &body)
}

fn read<T: DeserializeOwned>(status: StatusCode, body: &[u8]) -> Result<T, OwnerError> {
    if !status.is_success() {
        return Err(refusal(status, body));
    }
    serde_json::from_slice(body).map_err(|error| OwnerError::Garbled(error.to_string()))
}

/// Sends the request and reads the whole response, within one time limit.
async fn receive(
    request: RequestBuilder,
    timeout: Duration,
) -> Result<(StatusCode, Vec<u8>), OwnerError> {
    let mut response = request.timeout(timeout).send().await.map_err(failure)?;
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(failure)? {
        if body.len() + chunk.len() > OWNER_RESPONSE_MAX {
            return Err(OwnerError::Garbled(format!(
                "more than {OWNER_RESPONSE_MAX} bytes"
            )));
        }
        body.extend_from_slice(&chunk);
    }
    Ok((response.status(), body))
}

fn refusal(status: StatusCode, body: &[u8]) -> OwnerError {
    match serde_json::from_slice(body) {
        Ok(error) => OwnerError::Refused(status, error),
        Err(_) => OwnerError::Garbled(format!("status {}", status.as_u16())),
    }
}

pub(crate) fn failure(error: reqwest::Error) -> OwnerError {
    if error.is_timeout() {
        return OwnerError::TimedOut;
    }
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(&error);
    let mut last = String::new();
    while let Some(current) = cause {
        if let Some(io) = current.downcast_ref::<std::io::Error>() {
            return match io.kind() {
                std::io::ErrorKind::ConnectionRefused => OwnerError::Gone,
                _ => OwnerError::Unreachable(io.to_string()),
            };
        }
        last = current.to_string();
        cause = current.source();
    }
    OwnerError::Unreachable(last)
}
