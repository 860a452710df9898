//! Who a request comes from, and whether it may do what it asks.
//!
//! The bearer token is an API key ([`credentials`](crate::credentials)) or a client secret ([`client_secret`]). A browser's
//! WebSocket cannot set headers, so there it may also come as a subprotocol, `openai-insecure-api-key.<token>`, as OpenAI's clients
//! send it. Nothing that is told or logged here holds any part of the token.

use std::sync::Arc;

use axum::http::header::{AUTHORIZATION, ORIGIN, SEC_WEBSOCKET_PROTOCOL};
use axum::http::{HeaderMap, StatusCode};

use crate::call_id::{CallRef, Placed, Tenant};
use crate::calls::{FrontDoor, unix_millis};
use crate::client_secret::{self, Claims, SecretError};
use crate::credentials::{Denied, Grant, Scope, bearer};
use crate::error::ApiError;
use crate::resource::Located;
use crate::sealed;

/// Prefix of the subprotocol that carries a token.
pub const KEY_SUBPROTOCOL: &str = "openai-insecure-api-key.";

/// Who asks.
#[derive(Clone, PartialEq, Debug)]
pub struct Caller {
    /// The API key, or the one that the client secret was minted with.
    pub grant: Arc<Grant>,
    /// The client secret's claims.
    pub claims: Option<Claims>,
}

impl Caller {
    /// What a call that this caller places says of who placed it.
    #[must_use]
    pub fn placed(&self) -> Placed {
        Placed {
            tenant: Tenant::named(self.grant.tenant.as_str()),
            secret: self.claims.as_ref().map_or(0, |claims| claims.nonce),
        }
    }

    /// Whether a call is this caller's to join, restart or end: an API key reaches every call of its tenant, also those that client secrets
    /// placed, and a client secret those that it placed itself.
    #[must_use]
    pub fn reaches(&self, call: &CallRef) -> bool {
        let own = self.placed();
        own.tenant == call.placed.tenant
            && (self.claims.is_none() || own.secret == call.placed.secret)
    }

    /// The call, when it is this caller's ([`Caller::reaches`]).
    ///
    /// # Errors
    /// 404 as for a call that is not there, so that nobody learns which ids are others' calls.
    pub fn reached(&self, located: Located) -> Result<Located, ApiError> {
        if self.reaches(located.call()) {
            return Ok(located);
        }
        tracing::info!(key = %self.grant.name, session = %located.call().session, "somebody else's call was asked for");
        Err(ApiError::unknown_call())
    }
}

/// What is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// Something that needs this scope.
    Scope(Scope),
    /// To restart or end a call that was created at this time, in Unix time in milliseconds. A client secret that was good then may do that
    /// also when it has expired since: a call outlives its secret, and its network may change.
    Call {
        /// When the call was created.
        created: u64,
    },
}

impl FrontDoor {
    /// Finds out who asks, and whether they may.
    ///
    /// # Errors
    /// 401 with a code that tells what is wrong with the token, 403 when it is good and does not reach that far.
    pub fn authenticate(&self, headers: &HeaderMap, purpose: Purpose) -> Result<Caller, ApiError> {
        let token = token(headers)?;
        let caller = match std::str::from_utf8(token) {
            Ok(secret) if client_secret::is_one(secret) => self.by_secret(secret, purpose)?,
            _ => {
                let grant = self
                    .files
                    .api_keys
                    .borrow()
                    .authorize(token)
                    .map_err(denied)?;
                Caller {
                    grant,
                    claims: None,
                }
            }
        };
        let scope = match purpose {
            Purpose::Scope(scope) => scope,
            Purpose::Call { .. } => Scope::Calls,
        };
        let allowed = match &caller.claims {
            Some(_) => caller.grant.allows_secret(scope),
            None => caller.grant.allows(scope),
        };
        if !allowed {
            return Err(ApiError::new(
                StatusCode::FORBIDDEN,
                "insufficient_scope",
                format!(
                    "This needs an API key with the scope '{}'; the one sent does not have it.",
                    scope.name()
                ),
            )
            .about("authorization"));
        }
        if let Some(claims) = &caller.claims {
            let origin = headers.get(ORIGIN).and_then(|value| value.to_str().ok());
            if !claims.allow_origin(origin) {
                return Err(ApiError::new(
                    StatusCode::FORBIDDEN,
                    "origin_not_allowed",
                    "This client secret may not be used from this web origin.",
                )
                .about("origin"));
            }
        }
        Ok(caller)
    }

    /// As [`FrontDoor::authenticate`], for what creates something: that also counts against the key's rate.
    ///
    /// # Errors
    /// Also 429.
    pub fn authenticate_and_count(
        &self,
        headers: &HeaderMap,
        scope: Scope,
    ) -> Result<Caller, ApiError> {
        let caller = self.authenticate(headers, Purpose::Scope(scope))?;
        self.rates
            .key(&caller.grant)
            .map_err(|wait| ApiError::too_many("API key", wait).about("authorization"))?;
        Ok(caller)
    }

    fn by_secret(&self, secret: &str, purpose: Purpose) -> Result<Caller, ApiError> {
        let now = match purpose {
            Purpose::Scope(_) => unix_millis(),
            Purpose::Call { created } => created,
        };
        let keyring = Arc::clone(&self.files.api_keyring.borrow());
        let claims =
            client_secret::open(&keyring, secret, now / 1_000).map_err(|error| match error {
                SecretError::Invalid(sealed::SealError::UnknownKey) => invalid_secret(
                    "The client secret is from before a change of keys, or was altered.",
                ),
                SecretError::Invalid(_) => {
                    invalid_secret("The client secret is not valid: it was altered or cut.")
                }
                SecretError::Expired { at } => unauthorized(
                    "expired_client_secret",
                    format!(
                        "The client secret expired at {at} (Unix time in seconds): get a new one."
                    ),
                ),
            })?;
        let grant = self
            .files
            .api_keys
            .borrow()
            .named(&claims.key)
            .ok_or_else(|| {
                unauthorized(
                    "revoked_client_secret",
                    "The API key that this client secret was made with is no longer in use.",
                )
            })?;
        Ok(Caller {
            grant,
            claims: Some(claims),
        })
    }
}

/// The token of a request, wherever it stands.
fn token(headers: &HeaderMap) -> Result<&[u8], ApiError> {
    let header = headers.get(AUTHORIZATION).map(|value| value.as_bytes());
    match (bearer(header), subprotocol_token(headers)) {
        (Ok(token), _) => Ok(token),
        (Err(Denied::Missing), Some(token)) => Ok(token.as_bytes()),
        (Err(reason), _) => Err(denied(reason)),
    }
}

/// The subprotocols that a WebSocket's client offers (RFC 6455 section 11.3.4), in order.
pub fn subprotocols(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    headers
        .get_all(SEC_WEBSOCKET_PROTOCOL)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(str::trim)
}

fn subprotocol_token(headers: &HeaderMap) -> Option<&str> {
    subprotocols(headers)
        .find_map(|protocol| protocol.strip_prefix(KEY_SUBPROTOCOL))
        .filter(|token| !token.is_empty())
}

fn denied(reason: Denied) -> ApiError {
    match reason {
        Denied::Missing => unauthorized(
            "missing_api_key",
            "No API key: send the header Authorization: Bearer <key>.",
        ),
        Denied::Scheme => unauthorized(
            "invalid_authorization",
            "The Authorization header is not of the form Bearer <key>.",
        ),
        Denied::Unknown => unauthorized("invalid_api_key", "The API key is not valid."),
    }
}

fn invalid_secret(message: &str) -> ApiError {
    unauthorized("invalid_client_secret", message)
}

fn unauthorized(code: &'static str, message: impl Into<String>) -> ApiError {
    ApiError::new(StatusCode::UNAUTHORIZED, code, message).about("authorization")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_comes_in_the_header_or_as_a_subprotocol() {
        let mut headers = HeaderMap::new();
        assert_eq!(token(&headers).map_err(|e| e.code), Err("missing_api_key"));
        let offered = "realtime, openai-insecure-api-key.k1, openai-beta.realtime-v1";
        headers.insert(SEC_WEBSOCKET_PROTOCOL, offered.parse().expect("a value"));
        assert_eq!(token(&headers), Ok(b"k1".as_slice()));
        headers.insert(AUTHORIZATION, "Bearer k2".parse().expect("a value"));
        assert_eq!(token(&headers), Ok(b"k2".as_slice()));
        headers.insert(AUTHORIZATION, "Basic k2".parse().expect("a value"));
        assert_eq!(
            token(&headers).map_err(|e| e.code),
            Err("invalid_authorization")
        );
    }
}
