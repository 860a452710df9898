//! The sideband: a WebSocket by which the server side of an app watches and controls a call, joined by call id from any replica.
//!
//! Signaling speaks no WebSocket. It checks who asks, opens the owner's event stream with the client's own handshake, and when the owner
//! has agreed, passes the bytes both ways unchanged: events have one producer and one consumer, and a replica in between is no third. So a
//! dead call is told as 404 before any upgrade, and when the owner closes, the client sees that close.

use std::pin::pin;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::Request;
use axum::http::header::{
    CONNECTION, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL,
    SEC_WEBSOCKET_VERSION, UPGRADE,
};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri};
use axum::response::Response;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, copy, sink, split};
use tokio::time::timeout;

use crate::auth::{KEY_SUBPROTOCOL, Purpose, subprotocols};
use crate::calls::{FrontDoor, owner_failed};
use crate::context::Context;
use crate::credentials::Scope;
use crate::error::ApiError;
use crate::limits::SIDEBAND_TIMEOUT;
use crate::owner::{OwnerError, failure};
use crate::resource::Located;

/// The value of `call_id` in a query.
#[must_use]
pub fn call_id(uri: &Uri) -> Option<&str> {
    uri.query()?
        .split('&')
        .find_map(|pair| pair.strip_prefix("call_id="))
}

impl FrontDoor {
    /// Joins a client to the event stream of a call.
    ///
    /// # Errors
    /// 401, 403; 400 without `call_id`; 426 for what is no WebSocket handshake; 404 for a call that is not there or is somebody else's; 503 when too many are joined.
    pub async fn join(
        self: &Arc<Self>,
        context: &Context,
        mut request: Request,
    ) -> Result<Response, ApiError> {
        let caller = self.authenticate(request.headers(), Purpose::Scope(Scope::Sideband))?;
        let id = call_id(request.uri()).ok_or_else(|| {
            ApiError::field(
                "call_id",
                "call_id is missing: a WebSocket joins a call that there is, with ?call_id=rtc_…. A new call is made by WebRTC: POST its offer to /v1/realtime/calls.",
            )
        })?;
        let located = caller.reached(self.locate(id, context.steered)?)?;
        let key = handshake(request.method(), request.headers())?;
        let Ok(slot) = Arc::clone(&self.sidebands).try_acquire_owned() else {
            return Err(ApiError::too_many_sidebands());
        };
        let asked = match &located {
            Located::Here(call) => {
                self.transceivers
                    .client()
                    .events(call.control, call.session, call.created)
            }
            Located::Elsewhere { signaling, .. } => {
                let path = request.uri().path_and_query().map_or("", |p| p.as_str());
                let note = self.note(context);
                self.neighbours
                    .upgrade(signaling, path, request.headers(), &note)
            }
        };
        let mut asked = asked
            .header(CONNECTION, "upgrade")
            .header(UPGRADE, "websocket")
            .header(SEC_WEBSOCKET_VERSION, "13")
            .header(SEC_WEBSOCKET_KEY, key);
        // The key stays here, unless another cluster has to check it too.
        let with_keys = matches!(located, Located::Elsewhere { .. });
        let offered: Vec<&str> = subprotocols(request.headers())
            .filter(|name| with_keys || !name.starts_with(KEY_SUBPROTOCOL))
            .filter(|name| !name.is_empty())
            .collect();
        if !offered.is_empty() {
            asked = asked.header(SEC_WEBSOCKET_PROTOCOL, offered.join(", "));
        }
        let answer = match timeout(SIDEBAND_TIMEOUT, asked.send()).await {
            Err(_) => return Err(owner_failed(&OwnerError::TimedOut)),
            Ok(Err(error)) => {
                return Err(match failure(error) {
                    OwnerError::Gone => ApiError::unknown_call(),
                    error => owner_failed(&error),
                });
            }
            Ok(Ok(answer)) => answer,
        };
        match answer.status() {
            StatusCode::SWITCHING_PROTOCOLS => {}
            StatusCode::NOT_FOUND => return Err(ApiError::unknown_call()),
            StatusCode::SERVICE_UNAVAILABLE => return Err(ApiError::too_many_sidebands()),
            status => {
                tracing::info!(status = status.as_u16(), "sideband refused by the owner");
                return Err(ApiError::new(
                    StatusCode::BAD_GATEWAY,
                    "media_server_failed",
                    "The media server did not open the event stream. Try again.",
                ));
            }
        }
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        let headers = response.headers_mut();
        headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
        for name in [SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_PROTOCOL] {
            if let Some(value) = answer.headers().get(&name) {
                headers.insert(name, value.clone());
            }
        }
        let client = hyper::upgrade::on(&mut request);
        let metrics = Arc::clone(&self.metrics);
        tokio::spawn(async move {
            let _slot = slot;
            let (Ok(client), Ok(owner)) = (client.await, answer.upgrade().await) else {
                return;
            };
            metrics.sideband(1);
            pass_on(TokioIo::new(client), owner).await;
            metrics.sideband(-1);
        });
        Ok(response)
    }
}

/// Passes bytes both ways until one side ends; the other may then finish what it is saying, for a while.
async fn pass_on(client: impl AsyncRead + AsyncWrite, owner: impl AsyncRead + AsyncWrite) {
    let (mut from_client, mut to_client) = split(client);
    let (mut from_owner, mut to_owner) = split(owner);
    let up = async {
        let _ = copy(&mut from_client, &mut to_owner).await;
        let _ = to_owner.shutdown().await;
        // An owner that takes no more may have said something last, and bytes that nobody reads reset the connection on which it is
        // on its way to the client (RFC 9293 section 3.10.7.4).
        let _ = copy(&mut from_client, &mut sink()).await;
    };
    let down = async {
        let _ = copy(&mut from_owner, &mut to_client).await;
        let _ = to_client.shutdown().await;
    };
    let (mut up, mut down) = (pin!(up), pin!(down));
    tokio::select! {
        () = up.as_mut() => { let _ = timeout(SIDEBAND_TIMEOUT, down).await; }
        () = down.as_mut() => { let _ = timeout(SIDEBAND_TIMEOUT, up).await; }
    }
}

/// Checks the client's half of the handshake (RFC 6455 section 4.2.1) and returns its key.
fn handshake(method: &Method, headers: &HeaderMap) -> Result<HeaderValue, ApiError> {
    let says = |name, word: &str| {
        headers.get_all(name).iter().any(|value| {
            value.to_str().is_ok_and(|value| {
                value
                    .split(',')
                    .any(|part| part.trim().eq_ignore_ascii_case(word))
            })
        })
    };
    let key = headers.get(SEC_WEBSOCKET_KEY).filter(|_| {
        *method == Method::GET
            && says(CONNECTION, "upgrade")
            && says(UPGRADE, "websocket")
            && says(SEC_WEBSOCKET_VERSION, "13")
    });
    key.cloned().ok_or_else(|| {
        ApiError::new(
            StatusCode::UPGRADE_REQUIRED,
            "websocket_required",
            "This URL is a WebSocket of version 13: connect with wss://.",
        )
        .about("upgrade")
    })
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt as _;

    use super::*;

    #[tokio::test]
    async fn a_client_of_an_owner_that_has_gone_is_heard_out() {
        let (client_end, mut client) = tokio::io::duplex(64);
        let (owner_end, mut owner) = tokio::io::duplex(64);
        let passing = tokio::spawn(pass_on(client_end, owner_end));
        owner.write_all(b"goodbye").await.expect("taken");
        drop(owner);
        let sent = client.write_all(&[0; 10_000]).await;
        sent.expect("read, though nobody wants it");
        let mut told = String::new();
        client.read_to_string(&mut told).await.expect("ended");
        assert_eq!(told, "goodbye");
        drop(client);
        passing.await.expect("no panic");
    }

    #[test]
    fn the_call_id_is_found_anywhere_in_the_query() {
        for (uri, id) in [
            ("/v1/realtime?call_id=rtc_a", Some("rtc_a")),
            ("/v1/realtime?model=m&call_id=rtc_a&x", Some("rtc_a")),
            ("/v1/realtime?my_call_id=rtc_a", None),
            ("/v1/realtime", None),
        ] {
            assert_eq!(call_id(&uri.parse().expect("a URI")), id, "{uri}");
        }
    }

    #[test]
    fn only_a_whole_handshake_is_one() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            (CONNECTION, "keep-alive, Upgrade"),
            (UPGRADE, "WebSocket"),
            (SEC_WEBSOCKET_VERSION, "13"),
            (SEC_WEBSOCKET_KEY, "dGhlIHNhbXBsZSBub25jZQ=="),
        ] {
            let error = handshake(&Method::GET, &headers).expect_err("not whole");
            assert_eq!(error.status, StatusCode::UPGRADE_REQUIRED);
            headers.insert(name, HeaderValue::from_static(value));
        }
        assert!(handshake(&Method::GET, &headers).is_ok());
        headers.insert(SEC_WEBSOCKET_VERSION, HeaderValue::from_static("8"));
        assert!(handshake(&Method::GET, &headers).is_err());
    }
}
