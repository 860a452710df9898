//! What a client is told when something goes wrong: the error shape of OpenAI's API.
//!
//! `{"error":{"message","type","param","code"}}` with the right status. The message is for a person and says what to do; `code`
//! is for programs and stays the same. No message holds a secret, and none of what an owner said about itself.

use std::borrow::Cow;

use axum::http::header::{CACHE_CONTROL, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use firsthop_shared::limits::SDP_MAX;
use serde::Serialize;

use crate::limits::{BODY_MAX, RETRY_AFTER_SECS};

/// Whose fault it is, in OpenAI's words.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorKind {
    /// The request cannot be served as it is.
    InvalidRequestError,
    /// The request may be good, and came too soon.
    RateLimitError,
    /// The request was good, and could not be served.
    ServerError,
}

/// An error as it goes out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ApiError {
    /// HTTP status.
    pub status: StatusCode,
    /// For programs; never changes.
    pub code: &'static str,
    /// For people; may change.
    pub message: String,
    /// The field at fault, if one is.
    pub param: Option<Cow<'static, str>>,
    /// After how many seconds another try makes sense.
    pub retry_after: Option<u64>,
}

/// The `code` of a response that is an error, for the access log.
#[derive(Clone, Copy, Debug)]
pub struct ErrorCode(pub &'static str);

impl ApiError {
    /// An error without `param`. What failed behind this program may be well again soon: 502 and 504 say when another try makes sense.
    #[must_use]
    pub fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self {
            status,
            code,
            message: message.into(),
            param: None,
            retry_after: matches!(
                status,
                StatusCode::BAD_GATEWAY | StatusCode::GATEWAY_TIMEOUT
            )
            .then_some(RETRY_AFTER_SECS),
        }
    }

    /// The same, naming the field at fault.
    #[must_use]
    pub fn about(self, param: impl Into<Cow<'static, str>>) -> Self {
        Self {
            param: Some(param.into()),
            ..self
        }
    }

    /// 404 for a call: alike whether it ended, never existed, or has an id that makes no sense.
    #[must_use]
    pub fn unknown_call() -> Self {
        Self::new(
            StatusCode::NOT_FOUND,
            "call_not_found",
            "There is no such call. If it has ended, there is nothing left to do; otherwise use the URL in the Location header of the answer to its offer.",
        )
        .about("call_id")
    }

    /// 503: every transceiver is full, draining or away.
    #[must_use]
    pub fn no_capacity() -> Self {
        Self {
            retry_after: Some(RETRY_AFTER_SECS),
            ..Self::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "no_capacity",
                "No media server is free at the moment. Try again shortly.",
            )
        }
    }

    /// 503: as many sidebands are open as there may be, here, at the owner, or of this call.
    #[must_use]
    pub fn too_many_sidebands() -> Self {
        Self {
            retry_after: Some(RETRY_AFTER_SECS),
            ..Self::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "too_many_sidebands",
                "As many sidebands are open as there may be. Close one of this call, or try again shortly.",
            )
        }
    }

    /// 429: too many requests of one key or one address.
    #[must_use]
    pub fn too_many(whose: &str, wait: std::time::Duration) -> Self {
        Self {
            // Rounded up: who comes back a moment early is refused again.
            retry_after: Some(wait.as_secs() + 1),
            ..Self::new(
                StatusCode::TOO_MANY_REQUESTS,
                "rate_limit_exceeded",
                format!(
                    "Too many requests of this {whose}. Try again after the seconds in Retry-After."
                ),
            )
        }
    }

    /// 413: a body has more bytes than this.
    #[must_use]
    pub fn too_large(max: usize) -> Self {
        let message = match max {
            // Who sends an offer as the body learns of its bound as well, and not only when the body has become smaller than this.
            BODY_MAX => format!("The body is larger than {max} bytes. An SDP may have {SDP_MAX}."),
            max => format!("The body is larger than {max} bytes."),
        };
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", message).about("body")
    }

    /// 413: an SDP has so many bytes.
    #[must_use]
    pub fn sdp_too_large(bytes: usize) -> Self {
        Self::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "body_too_large",
            format!("The SDP has {bytes} bytes. An SDP may have {SDP_MAX}."),
        )
        .about("sdp")
    }

    /// 400 for one field of the request.
    #[must_use]
    pub fn field(path: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "invalid_value", message).about(path)
    }

    fn kind(&self) -> ErrorKind {
        if self.status == StatusCode::TOO_MANY_REQUESTS {
            ErrorKind::RateLimitError
        } else if self.status.is_client_error() {
            ErrorKind::InvalidRequestError
        } else {
            ErrorKind::ServerError
        }
    }
}

#[derive(Serialize)]
struct Body<'a> {
    error: Inner<'a>,
}

#[derive(Serialize)]
struct Inner<'a> {
    message: &'a str,
    #[serde(rename = "type")]
    kind: ErrorKind,
    param: Option<&'a str>,
    code: &'a str,
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let body = axum::Json(Body {
            error: Inner {
                message: &self.message,
                kind: self.kind(),
                param: self.param.as_deref(),
                code: self.code,
            },
        });
        let mut response = (self.status, body).into_response();
        let headers = response.headers_mut();
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if let Some(seconds) = self.retry_after {
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        response.extensions_mut().insert(ErrorCode(self.code));
        response
    }
}
