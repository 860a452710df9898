//! More connections than there are places.

use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::routing::get;
use firsthop_service::refusals::Refusal;
use firsthop_service::server::{self, Limits};
use hyper_util::rt::TokioIo;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, watch};
use tokio::time::timeout;

use crate::server::{AMPLE, PATIENCE, Served, response, rest};

const REQUEST: &str = "GET / HTTP/1.1\r\nhost: x\r\n\r\n";
const HOLD: &str = "GET /hold HTTP/1.1\r\nhost: x\r\n\r\n";

fn places(connections: usize) -> Limits {
    Limits {
        connections,
        ..AMPLE
    }
}

/// Asks once more on a connection that is open.
async fn again(stream: &mut TcpStream) {
    stream.write_all(REQUEST.as_bytes()).await.expect("sent");
    response(stream, "here\n").await;
}

/// A server whose `/hold` answers when the test lets it, and how many requests have got there.
struct Holding {
    served: Served,
    begun: watch::Receiver<usize>,
    release: Arc<Semaphore>,
}

impl Holding {
    async fn start(connections: usize) -> Self {
        let (began, begun) = watch::channel(0);
        let release = Arc::new(Semaphore::new(0));
        let held = Arc::clone(&release);
        let hold = move || async move {
            began.send_modify(|count| *count += 1);
            held.acquire().await.expect("open").forget();
            "held\n"
        };
        let routes = Router::new()
            .route("/", get(|| async { "here\n" }))
            .route("/hold", get(hold));
        Self {
            served: Served::start_with(routes, Arc::default(), places(connections)).await,
            begun,
            release,
        }
    }

    async fn begun(&mut self, count: usize) {
        let begun = self.begun.wait_for(|begun| *begun >= count);
        timeout(PATIENCE, begun)
            .await
            .expect("begun in time")
            .expect("served");
    }
}

#[tokio::test]
async fn silent_connections_keep_no_probe_away() {
    let served = Served::start(places(64)).await;
    let mut silent = Vec::new();
    for n in 0..260 {
        let half = if n % 2 == 0 {
            ""
        } else {
            "GET / HTTP/1.1\r\nx"
        };
        silent.push(served.send(half).await);
        if n % 20 == 0 {
            let mut probe = served.send(REQUEST).await;
            response(&mut probe, "here\n").await;
        }
    }
    let mut probe = served.send(REQUEST).await;
    response(&mut probe, "here\n").await;
    assert!(
        served.refused(Refusal::Room) >= 260 - 64,
        "all but those that fit have made room"
    );
    // Whoever made room was told so by an end, as with any other.
    assert_eq!(rest(&mut silent[0]).await, "");
}

#[tokio::test]
async fn the_one_that_has_been_idle_longest_makes_room() {
    let served = Served::start(places(3)).await;
    let mut known = Vec::new();
    for _ in 0..3 {
        let mut stream = served.send(REQUEST).await;
        response(&mut stream, "here\n").await;
        known.push(stream);
    }
    again(&mut known[0]).await;
    let mut next = served.send(REQUEST).await;
    response(&mut next, "here\n").await;
    assert_eq!(rest(&mut known[1]).await, "");
    for stream in [0, 2] {
        again(&mut known[stream]).await;
    }
    again(&mut next).await;
    assert_eq!(served.refused(Refusal::Room), 1);
}

#[tokio::test]
async fn one_that_is_being_answered_keeps_its_place() {
    let mut holding = Holding::start(2).await;
    let mut held = holding.served.send(HOLD).await;
    holding.begun(1).await;
    for _ in 0..20 {
        let mut probe = holding.served.send(REQUEST).await;
        response(&mut probe, "here\n").await;
        drop(holding.served.send("").await);
    }
    let mut second = holding.served.send(HOLD).await;
    holding.begun(2).await;
    // All places are taken, and nobody is idle: the next one waits for an answer, and no longer. Who is answered stays connected, and is idle then.
    let mut next = holding.served.send(REQUEST).await;
    holding.release.add_permits(1);
    response(&mut next, "here\n").await;
    holding.release.add_permits(1);
    response(&mut held, "held\n").await;
    response(&mut second, "held\n").await;
}

#[tokio::test]
async fn whoever_does_not_take_its_answer_makes_room() {
    // More than both ends' buffers hold.
    let large = "x".repeat(64 << 20);
    let routes = Router::new()
        .route("/", get(|| async { "here\n" }))
        .route("/large", get(|| async { large }));
    let served = Served::start_with(routes, Arc::default(), places(2)).await;
    let _reads_nothing = served.send("GET /large HTTP/1.1\r\nhost: x\r\n\r\n").await;
    // An answer that does not wait for the body ends the connection, once the client has seen it.
    let _sends_no_body = served
        .send("GET / HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\n\r\n")
        .await;
    let mut probes = Vec::new();
    for _ in 0..2 {
        let mut probe = served.send(REQUEST).await;
        response(&mut probe, "here\n").await;
        probes.push(probe);
    }
    assert!(served.refused(Refusal::Room) >= 2, "both have made room");
}

#[tokio::test]
async fn a_handshake_without_end_makes_room_after_a_respite() {
    let listeners = server::listen(&["127.0.0.1:0".to_owned()])
        .await
        .expect("a free port");
    let address = listeners[0].local_addr().expect("bound");
    let (stop, stopping) = watch::channel(false);
    let (began, mut begun) = watch::channel(0);
    let began = Arc::new(began);
    let never = move |stream: TcpStream| {
        began.send_modify(|count| *count += 1);
        async move {
            std::future::pending::<()>().await;
            Ok(stream)
        }
    };
    let serving = tokio::spawn(server::serve_after(
        never,
        listeners,
        Router::new(),
        places(1),
        Arc::default(),
        stopping,
    ));
    let mut first = TcpStream::connect(address).await.expect("connected");
    let second = TcpStream::connect(address).await.expect("connected");
    assert_eq!(rest(&mut first).await, "");
    begun.wait_for(|count| *count == 2).await.expect("accepted");
    stop.send_replace(true);
    serving.await.expect("no panic");
    drop(second);
}

#[tokio::test]
async fn who_was_upgraded_takes_no_place_and_makes_no_room() {
    let upgrade = |mut request: Request| async move {
        let upgraded = hyper::upgrade::on(&mut request);
        tokio::spawn(async move {
            let mut stream = TokioIo::new(upgraded.await.expect("upgraded"));
            let (mut reader, mut writer) = tokio::io::split(&mut stream);
            tokio::io::copy(&mut reader, &mut writer)
                .await
                .expect("told");
            writer.shutdown().await.expect("ended");
        });
        let headers = [("connection", "upgrade"), ("upgrade", "telling")];
        (StatusCode::SWITCHING_PROTOCOLS, headers)
    };
    let routes = Router::new()
        .route("/", get(|| async { "here\n" }))
        .route("/upgrade", get(upgrade));
    let served = Served::start_with(routes, Arc::default(), places(1)).await;
    let head =
        "GET /upgrade HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: telling\r\n\r\n";
    let mut upgraded = served.send(head).await;
    response(&mut upgraded, "\r\n\r\n").await;
    for _ in 0..3 {
        let mut probe = served.send(REQUEST).await;
        response(&mut probe, "here\n").await;
    }
    upgraded.write_all(b"still here").await.expect("sent");
    upgraded.shutdown().await.expect("shut down");
    assert_eq!(rest(&mut upgraded).await, "still here");
}
