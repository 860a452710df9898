//! `POST /v1/realtime/client_secrets`, and its beta alias `POST /v1/realtime/sessions`: an app's server gets a secret for its page.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Request, State};
use axum::http::header::CACHE_CONTROL;
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};

use crate::body;
use crate::calls::{FrontDoor, unix_millis};
use crate::client_secret::{self, Claims};
use crate::credentials::Scope;
use crate::error::ApiError;
use crate::limits::{ORIGIN_MAX, ORIGINS_MAX, SECRET_SECONDS, SECRET_SECONDS_DEFAULT};
use crate::session_config;

const JSON: [&str; 1] = ["application/json"];

/// `POST /v1/realtime/client_secrets`: the secret stands at the top of the answer.
///
/// Besides OpenAI's `expires_after` and `session`, it takes `max_seconds` and `allowed_origins`.
pub async fn client_secret(
    State(door): State<Arc<FrontDoor>>,
    request: Request,
) -> Result<Response, ApiError> {
    let (grant, mut fields) = read(&door, request).await?;
    let session = match fields.remove("session") {
        Some(session) => body::check_session(session)?,
        None => Map::new(),
    };
    let minted = door.mint_secret(&grant, &fields, session)?;
    let answer = json!({
        "value": minted.value,
        "expires_at": minted.claims.expires,
        "session": told(&minted.claims),
    });
    Ok(respond(answer))
}

/// `POST /v1/realtime/sessions`: the body is the session itself, and so is the answer, with the secret in it.
pub async fn session(
    State(door): State<Arc<FrontDoor>>,
    request: Request,
) -> Result<Response, ApiError> {
    let (grant, mut fields) = read(&door, request).await?;
    // In the beta, what is said of the secret stands in an object of its own.
    let about = match fields.remove("client_secret") {
        Some(Value::Object(about)) => about,
        Some(_) => {
            return Err(ApiError::field(
                "client_secret",
                "client_secret has to be an object.",
            ));
        }
        None => Map::new(),
    };
    let session = body::check_session(Value::Object(session_config::from_beta(fields)))?;
    let minted = door.mint_secret(&grant, &about, session)?;
    let mut answer = told(&minted.claims);
    answer.insert("object".into(), "realtime.session".into());
    answer.insert(
        "client_secret".into(),
        json!({ "value": minted.value, "expires_at": minted.claims.expires }),
    );
    Ok(respond(Value::Object(answer)))
}

type Grant = Arc<crate::credentials::Grant>;

async fn read(door: &FrontDoor, request: Request) -> Result<(Grant, Map<String, Value>), ApiError> {
    let caller = door.authenticate_and_count(request.headers(), Scope::Secrets)?;
    // A body is optional; one that is there has to be JSON.
    if body::media_type(request.headers()).is_some() {
        body::require(request.headers(), &JSON)?;
    }
    let body = body::read(request).await?;
    Ok((caller.grant, body::json_object(&body)?))
}

/// The session as the answer shows it, with what goes without saying.
fn told(claims: &Claims) -> Map<String, Value> {
    let mut session = claims.session.clone();
    session
        .entry("type")
        .or_insert_with(|| Value::from("realtime"));
    session
}

fn respond(answer: Value) -> Response {
    ([(CACHE_CONTROL, "no-store")], Json(answer)).into_response()
}

struct Minted {
    value: String,
    claims: Claims,
}

impl FrontDoor {
    fn mint_secret(
        &self,
        grant: &crate::credentials::Grant,
        fields: &Map<String, Value>,
        session: Map<String, Value>,
    ) -> Result<Minted, ApiError> {
        let now = unix_millis() / 1_000;
        let claims = Claims {
            key: grant.name.to_string(),
            created: now,
            expires: now + seconds(fields.get("expires_after"))?,
            // 0 in a call id means that no secret placed the call.
            nonce: rand::random_range(1..=u64::MAX),
            session,
            max_seconds: max_seconds(fields.get("max_seconds"))?,
            origins: origins(fields.get("allowed_origins"))?,
        };
        let value = client_secret::mint(self.files.api_keyring.borrow().active(), &claims);
        self.metrics.secret();
        tracing::info!(key = %grant.name, expires = claims.expires, "client secret minted");
        Ok(Minted { value, claims })
    }
}

fn seconds(expires_after: Option<&Value>) -> Result<u64, ApiError> {
    let Some(value) = expires_after.filter(|value| !value.is_null()) else {
        return Ok(SECRET_SECONDS_DEFAULT);
    };
    let fields = value
        .as_object()
        .ok_or_else(|| ApiError::field("expires_after", "expires_after has to be an object."))?;
    if fields
        .get("anchor")
        .is_some_and(|anchor| anchor != "created_at")
    {
        return Err(ApiError::field(
            "expires_after.anchor",
            "expires_after.anchor has to be created_at.",
        ));
    }
    match fields.get("seconds") {
        None => Ok(SECRET_SECONDS_DEFAULT),
        Some(value) => session_config::whole(value)
            .filter(|seconds| SECRET_SECONDS.contains(seconds))
            .ok_or_else(|| {
                ApiError::field(
                    "expires_after.seconds",
                    format!(
                        "expires_after.seconds has to be a whole number from {} to {}.",
                        SECRET_SECONDS.start(),
                        SECRET_SECONDS.end()
                    ),
                )
            }),
    }
}

fn max_seconds(value: Option<&Value>) -> Result<Option<u32>, ApiError> {
    let Some(value) = value.filter(|value| !value.is_null()) else {
        return Ok(None);
    };
    session_config::whole(value)
        .and_then(|seconds| u32::try_from(seconds).ok())
        .filter(|seconds| *seconds > 0)
        .map(Some)
        .ok_or_else(|| {
            ApiError::field(
                "max_seconds",
                "max_seconds has to be a whole number from 1 on.",
            )
        })
}

fn origins(value: Option<&Value>) -> Result<Vec<String>, ApiError> {
    let Some(value) = value.filter(|value| !value.is_null()) else {
        return Ok(Vec::new());
    };
    let list = value
        .as_array()
        .filter(|list| (1..=ORIGINS_MAX).contains(&list.len()))
        .ok_or_else(|| {
            ApiError::field(
                "allowed_origins",
                format!("allowed_origins has to be an array of 1 to {ORIGINS_MAX} web origins."),
            )
        })?;
    let origin = |(index, value): (usize, &Value)| {
        value
            .as_str()
            .filter(|text| is_origin(text))
            .map(str::to_owned)
            .ok_or_else(|| {
                ApiError::field(
                    format!("allowed_origins[{index}]"),
                    format!(
                        "allowed_origins[{index}] has to be a web origin such as https://app.example, without a path."
                    ),
                )
            })
    };
    list.iter().enumerate().map(origin).collect()
}

/// Whether a text is the ASCII serialisation of an origin (RFC 6454 section 6.2).
fn is_origin(text: &str) -> bool {
    text.len() <= ORIGIN_MAX
        && reqwest::Url::parse(text).is_ok_and(|url| {
            matches!(url.scheme(), "http" | "https")
                && url
                    .origin()
                    .ascii_serialization()
                    .eq_ignore_ascii_case(text)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lifetimes_are_ten_minutes_or_what_is_asked_within_bounds() {
        assert_eq!(seconds(None).ok(), Some(600));
        let asked = |value: Value| seconds(Some(&value)).map_err(|e| e.param.unwrap_or_default());
        assert_eq!(
            asked(json!({ "anchor": "created_at", "seconds": 10 })),
            Ok(10)
        );
        assert_eq!(asked(json!({})), Ok(600));
        for (value, param) in [
            (json!(60), "expires_after"),
            (json!({ "seconds": 9 }), "expires_after.seconds"),
            (json!({ "seconds": 7201 }), "expires_after.seconds"),
            (json!({ "seconds": "60" }), "expires_after.seconds"),
            (json!({ "anchor": "now" }), "expires_after.anchor"),
        ] {
            assert_eq!(asked(value), Err(param.into()));
        }
    }

    #[test]
    fn origins_are_whole_and_without_a_path() {
        assert!(is_origin("https://app.example") && is_origin("http://localhost:3000"));
        for text in [
            "app.example",
            "https://app.example/",
            "https://app.example/x",
            "https://app.example:443",
            "ftp://app.example",
            "null",
            "*",
        ] {
            assert!(!is_origin(text), "{text}");
        }
        let asked = |value: Value| origins(Some(&value)).map_err(|e| e.param.unwrap_or_default());
        assert_eq!(asked(json!([])), Err("allowed_origins".into()));
        assert_eq!(
            asked(json!(["https://a.example", 7])),
            Err("allowed_origins[1]".into())
        );
    }
}
