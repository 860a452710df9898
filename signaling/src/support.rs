//! `GET /v1/fleet/calls/{call_id}`: from the id that a client knows to what its owner tells of the call.
//!
//! Only signaling can open a call id, and support has nothing else: whoever complains of a call has read it in `Location`. The answer
//! names the session and its owner's control port, as logs do, and has what the owner says: `call` while it lives, and `ended` for a while
//! after. It takes a key with the scope `admin`: the client's address is in it.

use std::sync::Arc;

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Request, State};
use axum::http::header::CACHE_CONTROL;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use serde::Serialize;

use crate::auth::Purpose;
use crate::calls::{FrontDoor, owner_failed};
use crate::context::Context;
use crate::credentials::Scope;
use crate::error::ApiError;
use crate::owner::{OwnerError, Report};
use crate::resource::Located;

/// What support is told.
#[derive(Serialize)]
struct Told {
    /// The session's number at its owner.
    session: u32,
    /// The owner's control address.
    control: String,
    #[serde(flatten)]
    report: Report,
}

/// `GET /v1/fleet/calls/{call_id}`.
pub async fn call(
    State(door): State<Arc<FrontDoor>>,
    Extension(context): Extension<Context>,
    call_id: Result<Path<String>, PathRejection>,
    request: Request,
) -> Result<Response, ApiError> {
    door.authenticate(request.headers(), Purpose::Scope(Scope::Admin))?;
    let id = call_id.map(|Path(id)| id).unwrap_or_default();
    let call = match door.locate(&id, context.steered)? {
        Located::Here(call) => call,
        Located::Elsewhere { signaling, .. } => {
            return door.ask_there(&signaling, &context, request).await;
        }
    };
    let client = door.transceivers.client();
    let report = match client
        .report(call.control, call.session, call.created)
        .await
    {
        Ok(Some(report)) => report,
        // A process that is gone took what it knew along.
        Ok(None) | Err(OwnerError::Gone) => return Err(ApiError::unknown_call()),
        Err(error) => {
            tracing::info!(control = %call.control, reason = %error, "the owner did not tell of a call");
            return Err(owner_failed(&error));
        }
    };
    let told = Told {
        session: call.session.0,
        control: call.control.to_string(),
        report,
    };
    Ok(([(CACHE_CONTROL, "no-store")], Json(told)).into_response())
}
