//! The connection of one session to its model server: a WebSocket over TCP or TLS, kept alive and made again. It knows no protocol.
//!
//! One task a session, on the worker's own runtime. It ends with the session, by whichever end of the link goes first; whatever happens
//! here is told to the session in order, and nothing is awaited without a bound.

use std::pin::pin;
use std::sync::Arc;
use std::time::Instant;

use futures_util::{SinkExt as _, StreamExt as _};
use rustls_pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::{MissedTickBehavior, interval, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::ClientConfig;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::error::Error as WsError;
use tokio_tungstenite::tungstenite::http::{HeaderName, HeaderValue, Request, Uri, header};
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Message as Frame, error::ProtocolError};
use tokio_tungstenite::{WebSocketStream, client_async_with_config};

use super::link::{Line, Outgoing, Teller};
use super::outage::{self, Outages};
use super::retry::{Retries, closed};
use super::translator::{FromServer, Loss, LossCause, Message};
use crate::limits;

/// Where a session connects to, and what it shows there.
#[derive(Clone)]
pub struct Target {
    /// `ws` or `wss`, with a host; checked.
    pub url: Uri,
    /// Headers of the handshake beside WebSocket's own; secrets among them are marked as such.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// TLS, when the URL asks for it.
    pub tls: Arc<ClientConfig>,
}

impl std::fmt::Debug for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Target")
            .field("url", &self.url)
            .finish_non_exhaustive()
    }
}

/// Why an attempt failed: what the session is told, and what an operator wants to know.
struct Failed(LossCause, String);

/// What came of a connection.
enum Carried {
    SessionEnded,
    Lost(LossCause),
}

/// A stream that may be TLS.
trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

type Socket = WebSocketStream<Box<dyn Stream>>;

/// Serves a session's link until one of its ends has gone. `session` names it in the log, where `outages` are told once.
pub async fn serve(session: u32, target: Target, mut line: Line, outages: Arc<Outages>) {
    let mut retries = Retries::default();
    let mut epoch = 0;
    let server = outage::name(&target.url);
    let shown = outage::shown(&target.headers);
    // Of the attempts in a row that fail, the first alone is told.
    let mut told = false;
    // Ends: each turn without a stable connection uses up one of a bounded number of attempts.
    loop {
        let attempt = timeout(limits::BACKEND_CONNECT, connect(&target));
        let attempt = tokio::select! {
            biased;
            () = line.teller.session_ended() => return,
            attempt = attempt => attempt,
        };
        let (cause, lived) = match attempt {
            Ok(Ok(socket)) => {
                epoch += 1;
                told = false;
                if outages.ends(&server, shown) {
                    tracing::info!(server, "the model server takes connections again");
                }
                let began = Instant::now();
                if !line.teller.tell(FromServer::Connected).await {
                    return;
                }
                match carry(socket, &mut line, epoch).await {
                    Carried::SessionEnded => return,
                    Carried::Lost(cause) => {
                        tracing::info!(session, server, %cause, "the connection to the model server is lost");
                        (cause, Some(began.elapsed()))
                    }
                }
            }
            missed => {
                let Failed(cause, error) = match missed {
                    Ok(Err(failed)) => failed,
                    _ => Failed(LossCause::TimedOut, LossCause::TimedOut.to_string()),
                };
                failed(
                    session,
                    (&server, shown),
                    &cause,
                    &error,
                    &mut told,
                    &outages,
                );
                (cause, None)
            }
        };
        let retry = retries.after(&cause, lived, rand::random());
        let told = line.teller.tell(FromServer::Lost(Loss { cause, retry }));
        let (true, Some(wait)) = (told.await, retry) else {
            return;
        };
        tokio::select! {
            () = line.teller.session_ended() => return,
            () = tokio::time::sleep(wait) => {}
        }
    }
}

/// Tells the log of an attempt that failed: as a warning when an outage begins, else once of each call.
fn failed(
    session: u32,
    (server, shown): (&str, u64),
    cause: &LossCause,
    error: &str,
    told: &mut bool,
    outages: &Outages,
) {
    let refused = matches!(cause, LossCause::Status(status) if outage::is_refusal(*status));
    let what = if refused {
        "the model server wants a key that it accepts: see FIRSTHOP_BACKEND_KEY, or the application's key_file"
    } else {
        "the model server could not be connected to"
    };
    if outage::is_outage(cause) && outages.begins(server, shown, refused, Instant::now()) {
        tracing::warn!(session, server, error, "{what}");
    } else if !*told {
        tracing::info!(session, server, error, "{what}");
    }
    *told = true;
}

async fn connect(target: &Target) -> Result<Socket, Failed> {
    let failed = |error: &dyn std::fmt::Display| Failed(LossCause::Unreachable, error.to_string());
    let request = request(target).map_err(|error| failed(&error))?;
    let host = target.url.host().unwrap_or_default();
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let secure = target.url.scheme_str() == Some("wss");
    let port = target.url.port_u16();
    let port = port.unwrap_or(if secure { 443 } else { 80 });
    let tcp = TcpStream::connect((bare, port))
        .await
        .map_err(|error| failed(&error))?;
    // Small messages, each of them awaited.
    tcp.set_nodelay(true).map_err(|error| failed(&error))?;
    let stream: Box<dyn Stream> = if secure {
        let name = ServerName::try_from(bare.to_owned()).map_err(|error| failed(&error))?;
        let tls = TlsConnector::from(Arc::clone(&target.tls));
        let stream = tls.connect(name, tcp).await;
        Box::new(stream.map_err(|error| failed(&error))?)
    } else {
        Box::new(tcp)
    };
    let config = WebSocketConfig::default()
        // One buffer per session: small, a message may span many.
        .read_buffer_size(16 * 1_024)
        .write_buffer_size(0)
        .max_write_buffer_size(limits::BACKEND_UNSENT_BYTES)
        .max_message_size(Some(limits::BACKEND_MESSAGE_MAX))
        .max_frame_size(Some(limits::BACKEND_MESSAGE_MAX));
    match client_async_with_config(request, stream, Some(config)).await {
        Ok((socket, _)) => Ok(socket),
        Err(WsError::Http(response)) => {
            let status = response.status();
            Err(Failed(
                LossCause::Status(status.as_u16()),
                status.to_string(),
            ))
        }
        Err(error) => Err(failed(&error)),
    }
}

fn request(target: &Target) -> Result<Request<()>, WsError> {
    let mut request = target.url.clone().into_client_request()?;
    let headers = request.headers_mut();
    let agent = concat!("firsthop/", env!("CARGO_PKG_VERSION"));
    headers.insert(header::USER_AGENT, HeaderValue::from_static(agent));
    for (name, value) in &target.headers {
        headers.insert(name, value.clone());
    }
    Ok(request)
}

/// Carries messages both ways until something ends. Neither direction waits for the other.
async fn carry(socket: Socket, line: &mut Line, epoch: u32) -> Carried {
    let began = Instant::now();
    let (mut sink, mut stream) = socket.split();
    let teller = &line.teller;
    let messages = &mut line.messages;
    let ended = {
        let writing = pin!(write(&mut sink, messages, epoch));
        let reading = pin!(read(&mut stream, teller, began));
        tokio::select! {
            ended = reading => ended,
            ended = writing => ended,
        }
    };
    // Goodbye, as far as the server still listens.
    let code = match ended {
        Carried::SessionEnded => CloseCode::Normal,
        Carried::Lost(LossCause::Violation) => CloseCode::Protocol,
        Carried::Lost(_) => CloseCode::Away,
    };
    let frame = CloseFrame {
        code,
        reason: Default::default(),
    };
    let goodbye = sink.send(Frame::Close(Some(frame)));
    let _ = timeout(limits::BACKEND_GOODBYE, goodbye).await;
    ended
}

/// Reads as fast as the session takes: the socket is left alone while the session's queue is full.
async fn read<S>(stream: &mut S, teller: &Teller, began: Instant) -> Carried
where
    S: futures_util::Stream<Item = Result<Frame, WsError>> + Unpin,
{
    loop {
        let Ok(next) = timeout(limits::BACKEND_SILENCE, stream.next()).await else {
            return Carried::Lost(LossCause::TimedOut);
        };
        let message = match next {
            Some(Ok(Frame::Text(text))) => Message::Text(text.as_str().to_owned()),
            Some(Ok(Frame::Binary(bytes))) => Message::Binary(bytes.into()),
            Some(Ok(Frame::Close(frame))) => {
                let code = frame.map(|frame| frame.code.into());
                return Carried::Lost(closed(code, began.elapsed()));
            }
            // Pings are answered by the library.
            Some(Ok(_)) => continue,
            None => return Carried::Lost(LossCause::Closed(None)),
            Some(Err(error)) => return Carried::Lost(broken(&error)),
        };
        if !teller.tell(FromServer::Message(message)).await {
            return Carried::SessionEnded;
        }
    }
}

/// Writes what the session says, and a ping now and then. Ends with the session.
async fn write<S>(
    sink: &mut S,
    messages: &mut tokio::sync::mpsc::Receiver<Outgoing>,
    epoch: u32,
) -> Carried
where
    S: futures_util::Sink<Frame, Error = WsError> + Unpin,
{
    let mut pings = interval(limits::BACKEND_PING);
    pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
    pings.reset();
    loop {
        let frame = tokio::select! {
            outgoing = messages.recv() => match outgoing {
                None => return Carried::SessionEnded,
                // Made for a connection that has broken meanwhile.
                Some(outgoing) if outgoing.epoch != epoch => continue,
                Some(outgoing) => match outgoing.message {
                    Message::Text(text) => Frame::Text(text.into()),
                    Message::Binary(bytes) => Frame::Binary(bytes.into()),
                },
            },
            _ = pings.tick() => Frame::Ping(Default::default()),
        };
        match timeout(limits::BACKEND_STALL, sink.send(frame)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return Carried::Lost(broken(&error)),
            Err(_) => return Carried::Lost(LossCause::TimedOut),
        }
    }
}

fn broken(error: &WsError) -> LossCause {
    match error {
        WsError::Protocol(ProtocolError::ResetWithoutClosingHandshake)
        | WsError::Io(_)
        | WsError::ConnectionClosed
        | WsError::AlreadyClosed => LossCause::Closed(None),
        _ => LossCause::Violation,
    }
}
