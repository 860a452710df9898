//! Listening, serving connections within limits, and stopping without cutting a request off.
//!
//! Why not `axum::serve`: it sets no limit on how long a client may take for its request, nor on how many connections there are, it
//! knows no TLS, and a client that is refused while it still sends may never hear why.

use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use axum::Router;
use axum::http::header::CONNECTION;
use axum::http::{HeaderValue, Request, StatusCode};
use firsthop_shared::address::canonical;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream, lookup_host};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Sleep, sleep, timeout};

use crate::body::Timed;
use crate::gate::Gate;
use crate::limits::{
    ACCEPT_PAUSE, COMPLAINT_INTERVAL, HEAD_BYTES_PARSED, HEADERS_PARSED, LINGER, LINGER_BYTES,
};
use crate::refusals::Refusal;
use crate::room::{Answer, Room, Seat};

/// What a server allows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// How many connections are served at once. For one more, the one that has been idle longest is closed; while all are being answered, more
    /// wait in the kernel's accept queue.
    pub connections: usize,
    /// How long a client may take for a request head, for a TLS handshake, and between two requests.
    pub head: Duration,
    /// How long a request body may make its reader wait, all in all.
    pub body: Duration,
    /// How long open requests may go on after a stop was asked for.
    pub stop: Duration,
}

/// The address of the connection's other end, which the server puts into each request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Peer(pub SocketAddr);

/// Opens a listener at every address that each of the places has; a place is `address:port` or `name:port`.
///
/// A name such as `localhost` may have an address of a family that this machine lacks: that one is left out, as long as
/// another of the same name could be opened.
///
/// # Errors
/// The place that could not be opened, and why.
pub async fn listen(places: &[String]) -> Result<Vec<TcpListener>, (String, io::Error)> {
    let mut listeners = Vec::new();
    for place in places {
        let fail = |error| (place.clone(), error);
        let addresses: Vec<SocketAddr> = lookup_host(place).await.map_err(fail)?.collect();
        let before = listeners.len();
        let mut missing = io::Error::from(io::ErrorKind::AddrNotAvailable);
        for address in addresses {
            match TcpListener::bind(address).await {
                Ok(listener) => listeners.push(listener),
                Err(error) if family_missing(&error) => missing = error,
                Err(error) => return Err(fail(error)),
            }
        }
        if listeners.len() == before {
            return Err(fail(missing));
        }
    }
    Ok(listeners)
}

/// Opens a listener before there is a runtime; [`TcpListener::from_std`] takes it over.
///
/// # Errors
/// The port is in use, or the address is not this machine's.
pub fn bind(address: SocketAddr) -> io::Result<std::net::TcpListener> {
    let listener = std::net::TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

fn family_missing(error: &io::Error) -> bool {
    // EAFNOSUPPORT has no name in `ErrorKind`: the kernel was built or started without IPv6.
    const EAFNOSUPPORT: i32 = 97;
    error.kind() == io::ErrorKind::AddrNotAvailable || error.raw_os_error() == Some(EAFNOSUPPORT)
}

/// Serves the router on all listeners until `stop` becomes true, then lets open requests finish within [`Limits::stop`].
pub async fn serve(
    listeners: Vec<TcpListener>,
    router: Router,
    limits: Limits,
    stop: watch::Receiver<bool>,
) {
    let plain = |stream| std::future::ready(Ok(stream));
    let gate = Arc::default();
    serve_after(plain, listeners, router, limits, gate, stop).await;
}

/// The same, after a handshake such as that of TLS on each connection that the gate lets in.
pub async fn serve_after<H, F, S>(
    handshake: H,
    listeners: Vec<TcpListener>,
    router: Router,
    limits: Limits,
    gate: Arc<Gate>,
    stop: watch::Receiver<bool>,
) where
    H: Fn(TcpStream) -> F + Clone + Send + 'static,
    F: Future<Output = io::Result<S>> + Send + 'static,
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let room = Room::new(limits.connections);
    let mut accepting = JoinSet::new();
    for listener in listeners {
        let connections = Connections {
            handshake: handshake.clone(),
            router: router.clone(),
            limits,
            gate: Arc::clone(&gate),
            room: Arc::clone(&room),
            stop: stop.clone(),
        };
        accepting.spawn(connections.accept(listener));
    }
    while accepting.join_next().await.is_some() {}
    if timeout(limits.stop, room.empty(limits.connections))
        .await
        .is_err()
    {
        tracing::info!("some connections were still open after the grace period");
    }
}

/// What the connections of one listener are served with.
#[derive(Clone)]
struct Connections<H> {
    handshake: H,
    router: Router,
    limits: Limits,
    gate: Arc<Gate>,
    room: Arc<Room>,
    stop: watch::Receiver<bool>,
}

impl<H, F, S> Connections<H>
where
    H: Fn(TcpStream) -> F + Clone + Send + 'static,
    F: Future<Output = io::Result<S>> + Send + 'static,
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    async fn accept(mut self, listener: TcpListener) {
        let mut complaints = Complaints::default();
        let mut turned_away = Complaints::default();
        let mut crowded = Complaints::default();
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = stopped(&mut self.stop) => return,
            };
            match accepted {
                Ok((stream, peer)) => {
                    let peer = canonical(peer);
                    let Some(held) = self.gate.enter(peer.ip()) else {
                        if let Some(closed) = turned_away.due(Instant::now()) {
                            tracing::warn!(%peer, closed, "connections closed: their address holds as many as one client may; is it a proxy that is not among the trusted ones?");
                        }
                        continue;
                    };
                    let entered = tokio::select! {
                        entered = self.room.enter() => entered,
                        () = stopped(&mut self.stop) => return,
                    };
                    // The room is never closed.
                    let Ok((place, seat, displaced)) = entered else {
                        return;
                    };
                    if displaced && let Some(closed) = crowded.due(Instant::now()) {
                        tracing::warn!(%peer, closed, places = self.limits.connections, "all connections are in use: those that were idle longest are closed for others");
                    }
                    let connections = self.clone();
                    tokio::spawn(async move {
                        let seat = Arc::new(seat);
                        connections.serve(stream, peer, &seat).await;
                        // Who was upgraded goes on without a place.
                        seat.ending();
                        drop((held, place));
                    });
                }
                Err(error) if is_the_connections_own(&error) => {}
                Err(error) => {
                    if let Some(failures) = complaints.due(Instant::now()) {
                        tracing::warn!(%error, failures, "cannot accept connections: may enough files be open?");
                    }
                    sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    async fn serve(mut self, stream: TcpStream, peer: SocketAddr, seat: &Arc<Seat>) {
        // Answers are small and the next request waits for them.
        let _ = stream.set_nodelay(true);
        let shaking = timeout(self.limits.head, (self.handshake)(stream));
        let shaken = tokio::select! {
            biased;
            shaken = shaking => shaken,
            () = seat.wanted() => return self.gate.refusals().count(Refusal::Room),
            () = stopped(&mut self.stop) => return,
        };
        match shaken {
            Ok(Ok(stream)) => {
                seat.shaken();
                self.answer(stream, peer, seat).await;
            }
            Ok(Err(error)) => tracing::debug!(%peer, %error, "handshake failed"),
            Err(_) => tracing::debug!(%peer, "handshake timed out"),
        }
    }

    async fn answer(mut self, stream: S, peer: SocketAddr, seat: &Arc<Seat>) {
        let unread = Arc::new(AtomicBool::new(false));
        let upgraded = Arc::new(AtomicBool::new(false));
        let stream = Lingering {
            stream,
            unread: Arc::clone(&unread),
            upgraded: Arc::clone(&upgraded),
            ended: false,
            left: LINGER_BYTES,
            patience: None,
            stall: self.limits.body,
            stalled: None,
            seat: Arc::clone(seat),
        };
        let asked = Arc::clone(seat);
        let service = TowerToHyperService::new(self.router);
        let service = service_fn(move |request: Request<Incoming>| {
            let (head, body) = request.into_parts();
            let (body, whole) = Timed::new(body, self.limits.body);
            let mut request = Request::from_parts(head, body);
            request.extensions_mut().insert(Peer(peer));
            unread.store(false, Relaxed);
            let seat = Arc::clone(&asked);
            seat.answering();
            let answering = service.call(request);
            let (unread, upgraded) = (Arc::clone(&unread), Arc::clone(&upgraded));
            async move {
                let mut response = answering.await?;
                let whole = whole.load(Relaxed);
                let switching = response.status() == StatusCode::SWITCHING_PROTOCOLS;
                upgraded.store(switching, Relaxed);
                unread.store(!whole && !switching, Relaxed);
                if !whole && !switching {
                    // What is left of the body would be taken for the next request.
                    let close = HeaderValue::from_static("close");
                    response.headers_mut().insert(CONNECTION, close);
                }
                seat.answered();
                let response = response.map(|body| Answer::new(body, seat));
                Ok::<_, std::convert::Infallible>(response)
            }
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(self.limits.head)
            .max_headers(HEADERS_PARSED)
            .max_buf_size(HEAD_BYTES_PARSED)
            .serve_connection(TokioIo::new(stream), service)
            .with_upgrades();
        let mut connection = pin!(connection);
        let finish = tokio::select! {
            biased;
            // What has come is heard before it is decided who is idle.
            result = connection.as_mut() => Some(result),
            () = seat.wanted() => {
                if !seat.stays() {
                    return self.gate.refusals().count(Refusal::Room);
                }
                None
            }
            () = stopped(&mut self.stop) => None,
        };
        let result = match finish {
            Some(result) => result,
            None => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        if let Err(error) = result {
            if let Some(why) = Refusal::of(&error) {
                self.gate.refusals().count(why);
            }
            tracing::debug!(%peer, %error, "connection ended");
        }
    }
}

/// Complains of what goes wrong now and then, and not each time.
#[derive(Debug, Default)]
pub struct Complaints {
    told: Option<Instant>,
    untold: u64,
}

impl Complaints {
    /// It went wrong at `now`. Returns how often since the last complaint, when another is due.
    pub fn due(&mut self, now: Instant) -> Option<u64> {
        self.untold += 1;
        let due = self
            .told
            .is_none_or(|at| now.saturating_duration_since(at) >= COMPLAINT_INTERVAL);
        due.then(|| {
            self.told = Some(now);
            std::mem::take(&mut self.untold)
        })
    }
}

/// Returns when a stop is asked for, or when nobody is left who could ask.
async fn stopped(stop: &mut watch::Receiver<bool>) {
    let _ = stop.wait_for(|stop| *stop).await;
}

fn is_the_connections_own(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionRefused
    )
}

/// A stream that, when a request was not read whole, reads on for a moment after its own end.
///
/// The kernel answers bytes that nobody will read with a reset, and a reset throws away the response on its way to the client
/// (RFC 9112 section 9.6).
struct Lingering<S> {
    stream: S,
    /// Whether something has come that no handler has taken.
    unread: Arc<AtomicBool>,
    /// Whether what comes is another protocol's: whoever speaks it reads on after its own end, as long as it likes.
    upgraded: Arc<AtomicBool>,
    ended: bool,
    left: usize,
    patience: Option<Pin<Box<Sleep>>>,
    /// How long the client may take none of the response...
    stall: Duration,
    /// ...and the end of that time, while it takes none.
    stalled: Option<Pin<Box<Sleep>>>,
    seat: Arc<Seat>,
}

impl<S> Lingering<S> {
    /// Passes on what a write came to. One that has been waiting for too long fails: a client that asks and never reads would
    /// hold its connection for ever.
    fn watch<T>(
        &mut self,
        cx: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.stalled = None;
            return written;
        }
        let end = || Box::pin(sleep(self.stall));
        ready!(self.stalled.get_or_insert_with(end).as_mut().poll(cx));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Lingering<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buffer);
        if buffer.filled().len() > before && !self.upgraded.load(Relaxed) {
            // The beginning of a request, until it is one: who sends a head without end is to hear the refusal, too.
            self.unread.store(true, Relaxed);
        }
        read
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Lingering<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.watch(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, bytes);
        self.watch(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        if matches!(flushed, Poll::Ready(Ok(()))) {
            self.seat.flushed();
        }
        self.watch(cx, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if !this.ended {
            ready!(Pin::new(&mut this.stream).poll_shutdown(cx))?;
            this.ended = true;
        }
        if !this.unread.load(Relaxed) {
            return Poll::Ready(Ok(()));
        }
        let patience = this.patience.get_or_insert_with(|| Box::pin(sleep(LINGER)));
        let mut space = [0; 4_096];
        while this.left > 0 && patience.as_mut().poll(cx).is_pending() {
            let mut buffer = ReadBuf::new(&mut space);
            match ready!(Pin::new(&mut this.stream).poll_read(cx, &mut buffer)) {
                Ok(()) if buffer.filled().is_empty() => break,
                Ok(()) => this.left = this.left.saturating_sub(buffer.filled().len()),
                // It is gone.
                Err(_) => break,
            }
        }
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fails_all_the_time_is_complained_of_now_and_then_with_the_number() {
        let start = Instant::now();
        let mut complaints = Complaints::default();
        assert_eq!(complaints.due(start), Some(1));
        for n in 1..100 {
            assert_eq!(complaints.due(start + n * COMPLAINT_INTERVAL / 100), None);
        }
        assert_eq!(complaints.due(start + COMPLAINT_INTERVAL), Some(100));
        assert_eq!(complaints.due(start + 3 * COMPLAINT_INTERVAL), Some(1));
    }
}
