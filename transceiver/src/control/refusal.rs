//! What a request of signaling's is refused with.

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use firsthop_shared::control::{ControlCode, ControlError};

/// A refusal as a response.
pub(crate) struct Refusal(pub(super) ControlError);

impl Refusal {
    pub(crate) fn new(code: ControlCode, message: impl Into<String>) -> Self {
        Self(ControlError::new(code, message))
    }
}

impl From<ControlError> for Refusal {
    fn from(error: ControlError) -> Self {
        Self(error)
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let status =
            StatusCode::from_u16(self.0.code.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        (status, axum::Json(self.0)).into_response()
    }
}

pub(super) fn too_large(max: usize) -> Refusal {
    Refusal::new(
        ControlCode::TooLarge,
        format!("a body has at most {max} bytes"),
    )
}

pub(crate) fn unknown_session() -> Refusal {
    Refusal::new(ControlCode::UnknownSession, "there is no such session")
}
