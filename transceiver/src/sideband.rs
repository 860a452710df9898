//! The owner's end of a sideband: a WebSocket (RFC 6455) beside a call's channel, with the same events both ways.
//!
//! Signaling passes the handshake and the bytes through; see [`firsthop_shared::control`]. The connection is a task of the control
//! server's: a session never waits for it. It is closed with 1000 and the session's end reason, with 1008 when it is too slow or does not
//! answer pings, and with 1009 after a message that is too large.

use std::collections::HashMap;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Path, Query, Request, State};
use axum::http::header::{
    CONNECTION, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL,
    SEC_WEBSOCKET_VERSION, UPGRADE,
};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::Response;
use firsthop_shared::address::SessionId;
use firsthop_shared::control::ControlCode;
use futures_util::{SinkExt as _, StreamExt as _};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot, watch};
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Bytes, Error, Message, Utf8Bytes};

use crate::control::{Control, Refusal, created_of, submit, unknown_session, wait};
use crate::limits;
use crate::session::{Sideband, SidebandEnd};
use crate::worker::Command;

/// The subprotocol that is chosen when it is offered.
const SUBPROTOCOL: &str = "realtime";

/// Joins a session's events, or refuses before any upgrade.
pub(crate) async fn join(
    State(control): State<Arc<Control>>,
    Path(id): Path<String>,
    Query(query): Query<HashMap<String, String>>,
    mut request: Request,
) -> Result<Response, Refusal> {
    let created = created_of(&query)?;
    let (id, shard) = control.find(&id)?;
    let key = key(request.headers())?;
    let too_many = || Refusal::new(ControlCode::Full, "there are too many sidebands");
    let Ok(permit) = Arc::clone(&control.sidebands).try_acquire_owned() else {
        return Err(too_many());
    };
    let worker = control.worker(shard)?;
    let (reply, result) = oneshot::channel();
    submit(worker, Command::Join { id, created, reply })?;
    let joined = wait(result).await?.ok_or_else(unknown_session)?;
    let sideband = joined.ok_or_else(too_many)?;

    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    if let Ok(accept) = HeaderValue::from_str(&derive_accept_key(key.as_bytes())) {
        headers.insert(SEC_WEBSOCKET_ACCEPT, accept);
    }
    if lists(request.headers(), SEC_WEBSOCKET_PROTOCOL, SUBPROTOCOL) {
        let chosen = HeaderValue::from_static(SUBPROTOCOL);
        headers.insert(SEC_WEBSOCKET_PROTOCOL, chosen);
    }
    let upgraded = hyper::upgrade::on(&mut request);
    let commands = worker.commands.clone();
    tokio::spawn(async move {
        // A client that has gone meanwhile leaves a queue that is closed: the session forgets it.
        if let Ok(stream) = upgraded.await {
            let call = Call {
                id,
                created,
                commands,
                sideband,
            };
            carry(TokioIo::new(stream), call, PACE, permit).await;
        }
    });
    Ok(response)
}

/// Checks the handshake (RFC 6455 section 4.2.1) and returns its key.
fn key(headers: &HeaderMap) -> Result<HeaderValue, Refusal> {
    let key = headers.get(SEC_WEBSOCKET_KEY).filter(|_| {
        lists(headers, CONNECTION, "upgrade")
            && lists(headers, UPGRADE, "websocket")
            && lists(headers, SEC_WEBSOCKET_VERSION, "13")
    });
    key.cloned().ok_or_else(|| {
        let message = "this is a WebSocket of version 13: send its handshake";
        Refusal::new(ControlCode::BadRequest, message)
    })
}

/// Whether a header that is a list has this word.
fn lists(headers: &HeaderMap, name: axum::http::HeaderName, word: &str) -> bool {
    headers
        .get_all(name)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .any(|part| part.trim().eq_ignore_ascii_case(word))
}

/// How a connection is kept.
#[derive(Clone, Copy)]
struct Pace {
    /// How often it is pinged.
    ping: Duration,
    /// How long its client may send nothing, or take nothing.
    silence: Duration,
}

const PACE: Pace = Pace {
    ping: limits::SIDEBAND_PING,
    silence: limits::SIDEBAND_SILENCE,
};

/// Whose events they are.
struct Call {
    id: SessionId,
    created: u64,
    commands: mpsc::Sender<Command>,
    sideband: Sideband,
}

impl Call {
    /// Gives the session a message, and waits until it has taken it: so that one sideband has one command in line at most.
    async fn say(&self, binary: bool, data: Bytes) {
        let (reply, taken) = oneshot::channel();
        let command = Command::Say {
            id: self.id,
            created: self.created,
            from: self.sideband.id,
            binary,
            data,
            reply,
        };
        let said = async {
            if self.commands.send(command).await.is_ok() {
                let _ = taken.await;
            }
        };
        // The session's end, should that be why, comes by the sideband.
        let _ = timeout(limits::CONTROL_TIMEOUT, said).await;
    }
}

/// Carries events until one side ends.
async fn carry(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    mut call: Call,
    pace: Pace,
    _permit: OwnedSemaphorePermit,
) {
    let max = Some(limits::CHANNEL_MESSAGE_MAX as usize);
    let config = WebSocketConfig::default()
        .max_message_size(max)
        .max_frame_size(max);
    let mut socket = WebSocketStream::from_raw_socket(stream, Role::Server, Some(config)).await;
    let goodbye = exchange(&mut socket, &mut call, pace).await;
    // The session forgets it, and queues no more.
    drop(call);
    if let Some((code, reason)) = goodbye {
        let frame = CloseFrame {
            code,
            reason: Utf8Bytes::from_static(reason),
        };
        let parting = async {
            // What the client still says is of no interest, but its own close ends the connection in order.
            if socket.close(Some(frame)).await.is_ok() {
                while let Some(Ok(_)) = socket.next().await {}
                // After a message that was too large nothing is read as one any more. But bytes that nobody reads reset the
                // connection, and the close frame is lost with it (RFC 9293 section 3.10.7.4).
                let mut rest = socket.into_inner();
                let mut space = [0; 4_096];
                let _ = rest.shutdown().await;
                while rest.read(&mut space).await.is_ok_and(|count| count > 0) {}
            }
        };
        let _ = timeout(limits::SIDEBAND_GOODBYE, parting).await;
    }
}

/// Passes events both ways; returns how to close, where the client has not.
async fn exchange<S: AsyncRead + AsyncWrite + Unpin>(
    socket: &mut WebSocketStream<S>,
    call: &mut Call,
    pace: Pace,
) -> Option<(CloseCode, &'static str)> {
    let mut pings = interval(pace.ping);
    pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut heard = Instant::now();
    loop {
        tokio::select! {
            event = call.sideband.events.recv() => {
                let Some(event) = event else {
                    return Some(match *call.sideband.end.borrow() {
                        Some(SidebandEnd::Session(reason)) => (CloseCode::Normal, reason.label()),
                        Some(SidebandEnd::TooSlow) => TOO_SLOW,
                        // The worker has gone without a word.
                        None => (CloseCode::Error, "the media server failed"),
                    });
                };
                call.sideband.taken(&event);
                let sent = timeout(pace.silence, socket.send(Message::text(&*event)));
                tokio::select! {
                    sent = sent => match sent {
                        Ok(sent) => sent.ok()?,
                        Err(_) => return Some(TOO_SLOW),
                    },
                    () = too_slow(&mut call.sideband.end) => return Some(TOO_SLOW),
                }
            }
            message = socket.next() => {
                heard = Instant::now();
                match message? {
                    Ok(Message::Text(text)) => call.say(false, text.into()).await,
                    Ok(Message::Binary(data)) => call.say(true, data).await,
                    Ok(_) => {}
                    Err(Error::Capacity(_)) => {
                        return Some((CloseCode::Size, "an event has at most 256 KiB"));
                    }
                    Err(_) => return None,
                }
            }
            _ = pings.tick() => {
                if heard.elapsed() > pace.silence {
                    return Some((CloseCode::Policy, "pings were not answered"));
                }
                let ping = timeout(pace.silence, socket.send(Message::Ping(Bytes::new())));
                ping.await.ok()?.ok()?;
            }
        }
    }
}

const TOO_SLOW: (CloseCode, &str) = (CloseCode::Policy, "events were not taken fast enough");

/// Returns when the session has cut the sideband off. The session's own end leaves time for what is still to be sent.
async fn too_slow(end: &mut watch::Receiver<Option<SidebandEnd>>) {
    if end
        .wait_for(|end| *end == Some(SidebandEnd::TooSlow))
        .await
        .is_err()
    {
        pending::<()>().await;
    }
}

#[cfg(test)]
mod tests {
    use std::iter::empty;

    use tokio::io::duplex;
    use tokio::sync::Semaphore;

    use super::*;
    use crate::life::EndReason;
    use crate::session::Sidebands;

    struct Rig {
        all: Sidebands,
        client: WebSocketStream<tokio::io::DuplexStream>,
        permits: Arc<Semaphore>,
        _commands: mpsc::Receiver<Command>,
    }

    /// One sideband, on a connection that holds a few hundred bytes.
    async fn rig(pace: Pace) -> Rig {
        let mut all = Sidebands::default();
        let sideband = all
            .join(empty(), Instant::now().into_std())
            .expect("joined");
        let (near, far) = duplex(256);
        let (commands, queue) = mpsc::channel(1);
        let call = Call {
            id: SessionId(1),
            created: 1,
            commands,
            sideband,
        };
        let permits = Arc::new(Semaphore::new(1));
        let permit = Arc::clone(&permits).try_acquire_owned().expect("a permit");
        tokio::spawn(carry(near, call, pace, permit));
        Rig {
            all,
            client: WebSocketStream::from_raw_socket(far, Role::Client, None).await,
            permits,
            _commands: queue,
        }
    }

    /// The close frame, and how many events came before.
    async fn end(client: &mut WebSocketStream<tokio::io::DuplexStream>) -> (CloseFrame, usize) {
        let mut events = 0;
        loop {
            match client.next().await.expect("not ended").expect("a message") {
                Message::Text(_) => events += 1,
                Message::Close(frame) => return (frame.expect("a frame"), events),
                _ => {}
            }
        }
    }

    #[tokio::test]
    async fn a_reader_that_is_too_slow_is_cut_off_with_a_code() {
        let mut rig = rig(PACE).await;
        let event: Arc<str> = "x".repeat(1_000).into();
        let mut cut = 0;
        while cut == 0 {
            cut += rig.all.pass(&event);
            tokio::task::yield_now().await;
        }
        let (frame, events) = end(&mut rig.client).await;
        assert_eq!(frame.code, CloseCode::Policy);
        assert!(events <= 1, "{events} of those that waited are sent still");
    }

    #[tokio::test]
    async fn all_that_was_said_is_sent_before_the_end_is_told() {
        let mut rig = rig(PACE).await;
        for _ in 0..100 {
            rig.all.pass(&"{}".into());
        }
        rig.all.end(EndReason::ClientClosed);
        let (frame, events) = end(&mut rig.client).await;
        assert_eq!((frame.code, events), (CloseCode::Normal, 100));
        assert_eq!(frame.reason.as_str(), "client_closed");
        assert!(rig.client.next().await.is_none(), "the connection ends");
        let _permit = rig.permits.acquire().await.expect("given back");
    }

    #[tokio::test]
    async fn a_client_that_does_not_answer_pings_is_given_up() {
        let pace = Pace {
            ping: Duration::from_millis(20),
            silence: Duration::from_millis(60),
        };
        let rig = rig(pace).await;
        let begin = tokio::time::Instant::now();
        // It reads nothing, so it answers nothing.
        let _permit = rig.permits.acquire().await.expect("given back");
        let lasted = begin.elapsed();
        assert!(lasted > pace.silence, "{lasted:?}");
        assert!(lasted < PACE.silence, "{lasted:?}");
    }
}
