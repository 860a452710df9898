//! Listening, serving connections, and stopping without cutting a request off.
//!
//! Why not `axum::serve`: it sets no limit on how long a client may take for its request head, nor on how many connections there
//! are, and it knows no TLS.

use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::http::Request;
use firsthop_shared::address::canonical;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, lookup_host};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use crate::access::Peer;
use crate::limits::{CONNECTIONS_MAX, HEAD_TIMEOUT, STOP_GRACE};
use crate::tls::Tls;

/// How long accepting rests after a failure that is not one connection's own, such as too few file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

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

fn family_missing(error: &io::Error) -> bool {
    // EAFNOSUPPORT has no name in `ErrorKind`: the kernel was built or started without IPv6.
    const EAFNOSUPPORT: i32 = 97;
    error.kind() == io::ErrorKind::AddrNotAvailable || error.raw_os_error() == Some(EAFNOSUPPORT)
}

/// Serves the router on all listeners until `stop` becomes true, then lets open requests finish within [`STOP_GRACE`].
pub async fn serve(
    listeners: Vec<TcpListener>,
    router: Router,
    tls: Option<Tls>,
    stop: watch::Receiver<bool>,
) {
    let slots = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut accepting = JoinSet::new();
    for listener in listeners {
        accepting.spawn(accept(
            listener,
            router.clone(),
            tls.clone(),
            Arc::clone(&slots),
            stop.clone(),
        ));
    }
    while accepting.join_next().await.is_some() {}
    // Every connection holds a slot: when all can be had, all connections are closed.
    let closed = slots.acquire_many(u32::try_from(CONNECTIONS_MAX).unwrap_or(u32::MAX));
    if timeout(STOP_GRACE, closed).await.is_err() {
        tracing::info!("some requests were still open after the grace period");
    }
}

async fn accept(
    listener: TcpListener,
    router: Router,
    tls: Option<Tls>,
    slots: Arc<Semaphore>,
    mut stop: watch::Receiver<bool>,
) {
    loop {
        let next = async {
            let slot = Arc::clone(&slots).acquire_owned().await;
            (slot, listener.accept().await)
        };
        let (slot, accepted) = tokio::select! {
            next = next => next,
            () = stopped(&mut stop) => return,
        };
        match (slot, accepted) {
            (Ok(slot), Ok((stream, peer))) => {
                // Answers are small and the next request waits for them.
                let _ = stream.set_nodelay(true);
                let peer = canonical(peer);
                let (router, stop) = (router.clone(), stop.clone());
                let config = tls.as_ref().map(|tls| Arc::clone(&tls.borrow()));
                tokio::spawn(async move {
                    match config {
                        None => serve_connection(stream, peer, router, slot, stop).await,
                        Some(config) => {
                            let shaking = TlsAcceptor::from(config).accept(stream);
                            match timeout(HEAD_TIMEOUT, shaking).await {
                                Ok(Ok(stream)) => {
                                    serve_connection(stream, peer, router, slot, stop).await;
                                }
                                Ok(Err(error)) => {
                                    tracing::debug!(%peer, %error, "no TLS connection");
                                }
                                Err(_) => tracing::debug!(%peer, "TLS handshake timed out"),
                            }
                        }
                    }
                });
            }
            (Ok(_), Err(error)) if is_the_connections_own(&error) => {}
            (Ok(_), Err(error)) => {
                tracing::warn!(%error, "cannot accept connections: are there enough file descriptors?");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
            // The semaphore is never closed.
            (Err(_), _) => return,
        }
    }
}

async fn serve_connection(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    peer: SocketAddr,
    router: Router,
    slot: OwnedSemaphorePermit,
    mut stop: watch::Receiver<bool>,
) {
    let service = TowerToHyperService::new(router);
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(Peer(peer));
        service.call(request)
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
    let mut connection = pin!(connection);
    let result = tokio::select! {
        result = connection.as_mut() => result,
        () = stopped(&mut stop) => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = result {
        tracing::debug!(%peer, %error, "connection ended");
    }
    drop(slot);
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
