//! Request bodies: read within their bounds, and taken apart by their content type.

use axum::body::{Body, Bytes};
use axum::extract::{FromRequest as _, Multipart, Request};
use axum::http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use axum::http::{HeaderMap, StatusCode};
use firsthop_service::body::BodyFault;
use firsthop_shared::limits::SDP_MAX;
use serde_json::{Map, Value};

use crate::error::ApiError;
use crate::limits::{API, BODY_MAX};
use crate::offer;
use crate::session_config;

/// The media type of offers and answers (RFC 8866 section 8.1).
pub const SDP: &str = "application/sdp";

/// The media type of what is trickled (RFC 8840 section 9).
pub const FRAGMENT: &str = "application/trickle-ice-sdpfrag";

const JSON: &str = "application/json";
const FORM: &str = "multipart/form-data";

/// What a client sends to make a call.
#[derive(Clone, PartialEq, Debug)]
pub struct CallBody {
    /// The offer; it passed [`offer::check`].
    pub sdp: String,
    /// The session's configuration; it passed [`session_config::check`].
    pub session: Option<Map<String, Value>>,
}

/// Reads a body whole.
///
/// # Errors
/// 415 for an encoded one, 413, 408, or 400 when it broke off.
pub async fn read(request: Request) -> Result<Bytes, ApiError> {
    require_plain(request.headers())?;
    let body = firsthop_service::body::read(request.into_body(), BODY_MAX).await;
    body.map_err(|fault| match fault {
        BodyFault::TooLarge => ApiError::too_large(BODY_MAX),
        BodyFault::Broken => ApiError::new(
            StatusCode::BAD_REQUEST,
            "unreadable_body",
            "The body broke off or is not valid HTTP.",
        )
        .about("body"),
        BodyFault::TooSlow => ApiError::new(
            StatusCode::REQUEST_TIMEOUT,
            "body_timeout",
            format!(
                "The body did not arrive within {} seconds.",
                API.body.as_secs()
            ),
        )
        .about("body"),
    })
}

/// The media type of a request, in lower case and without parameters.
#[must_use]
pub fn media_type(headers: &HeaderMap) -> Option<String> {
    let value = headers.get(CONTENT_TYPE)?.to_str().ok()?;
    let kind = value.split(';').next().unwrap_or_default();
    Some(kind.trim().to_ascii_lowercase())
}

/// Refuses any media type but these, before the body is read.
///
/// # Errors
/// 415 that names what is accepted.
pub fn require(headers: &HeaderMap, accepted: &[&str]) -> Result<String, ApiError> {
    let sent = media_type(headers);
    match sent {
        Some(kind) if accepted.contains(&kind.as_str()) => Ok(kind),
        sent => Err(ApiError::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "unsupported_content_type",
            format!(
                "{} Accepted: {}.",
                if sent.is_none() {
                    "The Content-Type is missing."
                } else {
                    "This Content-Type is not accepted here."
                },
                accepted.join(", ")
            ),
        )
        .about("content-type")),
    }
}

/// Refuses a body that is compressed or encoded otherwise (RFC 9110 section 8.4): nothing here decodes, and taking the bytes as they are would
/// be taking them for something else.
fn require_plain(headers: &HeaderMap) -> Result<(), ApiError> {
    let plain = headers.get_all(CONTENT_ENCODING).iter().all(|value| {
        // A list, of which elements may be empty (RFC 9110 section 5.6.1).
        value.to_str().is_ok_and(|value| {
            let mut codings = value.split(',').map(str::trim);
            codings.all(|name| name.is_empty() || name.eq_ignore_ascii_case("identity"))
        })
    });
    if plain {
        return Ok(());
    }
    Err(ApiError::new(
        StatusCode::UNSUPPORTED_MEDIA_TYPE,
        "unsupported_content_encoding",
        "This Content-Encoding is not accepted here. Send the body as it is, without the header.",
    )
    .about("content-encoding"))
}

/// The media types in which a call may be asked for.
pub const CALL_TYPES: [&str; 3] = [SDP, FORM, JSON];

/// Takes a call's body apart.
///
/// # Errors
/// 400 with the field that cannot be used, 413 for an offer that is too large.
pub async fn call(headers: &HeaderMap, kind: &str, body: Bytes) -> Result<CallBody, ApiError> {
    let (sdp, session) = match kind {
        SDP => (body, None),
        JSON => from_json(&body)?,
        _ => from_form(headers, body).await?,
    };
    if sdp.len() > SDP_MAX {
        return Err(ApiError::sdp_too_large(sdp.len()));
    }
    let sdp = check_offer(&sdp)?.to_owned();
    let session = session.map(check_session).transpose()?;
    Ok(CallBody { sdp, session })
}

/// Takes a body as an offer.
///
/// # Errors
/// 400 with the reason, 413.
pub fn check_offer(body: &[u8]) -> Result<&str, ApiError> {
    if body.len() > SDP_MAX {
        return Err(ApiError::sdp_too_large(body.len()));
    }
    offer::check(body).map_err(|error| {
        ApiError::new(StatusCode::BAD_REQUEST, "invalid_offer", sentence(&error)).about("sdp")
    })
}

/// Takes a value as a session's configuration.
///
/// # Errors
/// 400 with the field that cannot be used.
pub fn check_session(value: Value) -> Result<Map<String, Value>, ApiError> {
    session_config::check(value).map_err(|error| {
        let message = error.to_string();
        ApiError::field(error.path, format!("{message}."))
    })
}

/// Takes a body as a JSON object; an empty body counts as an empty object.
///
/// # Errors
/// 400 with the place of the fault.
pub fn json_object(body: &[u8]) -> Result<Map<String, Value>, ApiError> {
    if body.trim_ascii().is_empty() {
        return Ok(Map::new());
    }
    match serde_json::from_slice(body) {
        Ok(Value::Object(fields)) => Ok(fields),
        Ok(_) => Err(invalid_json("The body is not a JSON object.".to_owned())),
        // The parser's message says where, and quotes nothing but numbers of lines and columns.
        Err(error) => Err(invalid_json(format!(
            "The body is not JSON: line {}, column {}.",
            error.line(),
            error.column()
        ))),
    }
}

fn from_json(body: &[u8]) -> Result<(Bytes, Option<Value>), ApiError> {
    let mut fields = json_object(body)?;
    let sdp = match fields.remove("sdp") {
        Some(Value::String(sdp)) => Bytes::from(sdp),
        Some(_) => return Err(ApiError::field("sdp", "sdp has to be a string.")),
        None => return Err(missing_sdp()),
    };
    Ok((sdp, fields.remove("session")))
}

async fn from_form(headers: &HeaderMap, body: Bytes) -> Result<(Bytes, Option<Value>), ApiError> {
    let mut request = Request::new(Body::from(body));
    if let Some(kind) = headers.get(CONTENT_TYPE) {
        request.headers_mut().insert(CONTENT_TYPE, kind.clone());
    }
    let mut form = Multipart::from_request(request, &())
        .await
        .map_err(|_| invalid_form("The Content-Type names no boundary."))?;
    let mut sdp = None;
    let mut session = None;
    while let Some(field) = form
        .next_field()
        .await
        .map_err(|_| invalid_form("The form is not valid multipart/form-data."))?
    {
        let name = field.name().unwrap_or_default().to_owned();
        let slot = match name.as_str() {
            "sdp" => &mut sdp,
            "session" => &mut session,
            _ => continue,
        };
        if slot.is_some() {
            return Err(ApiError::field(
                name.clone(),
                format!("{name} stands twice in the form."),
            ));
        }
        *slot = Some(
            field
                .bytes()
                .await
                .map_err(|_| invalid_form("The form breaks off within a field."))?,
        );
    }
    let session = session
        .map(|text| {
            serde_json::from_slice(&text)
                .map_err(|_| ApiError::field(session_config::ROOT, "session is not JSON."))
        })
        .transpose()?;
    Ok((sdp.ok_or_else(missing_sdp)?, session))
}

/// An error of ours as a sentence.
#[must_use]
pub fn sentence(error: &impl std::fmt::Display) -> String {
    let text = error.to_string();
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| {
        format!("{}{}.", first.to_uppercase(), letters.as_str())
    })
}

fn missing_sdp() -> ApiError {
    ApiError::new(
        StatusCode::BAD_REQUEST,
        "missing_field",
        "sdp is missing: the client's SDP offer.",
    )
    .about("sdp")
}

fn invalid_form(message: &str) -> ApiError {
    ApiError::new(StatusCode::BAD_REQUEST, "invalid_form", message).about("body")
}

fn invalid_json(message: String) -> ApiError {
    ApiError::new(StatusCode::BAD_REQUEST, "invalid_json", message).about("body")
}
