//! A small server on a port of its own, and clients that speak HTTP by hand.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::http::StatusCode;
use axum::response::IntoResponse as _;
use axum::routing::{get, post};
use firsthop_service::body::{self, BodyFault};
use firsthop_service::gate::{AddressBound, Gate};
use firsthop_service::refusals::Refusal;
use firsthop_service::server::{self, Limits, Peer};
use firsthop_shared::address::Networks;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

/// Only a failing test waits this long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Nothing runs out.
pub(crate) const AMPLE: Limits = Limits {
    connections: 100,
    head: PATIENCE,
    body: PATIENCE,
    stop: PATIENCE,
};

/// Short, where running out is what a test waits for.
const SHORT: Duration = Duration::from_millis(200);

const BODY_MAX: usize = 1_000;

pub(crate) struct Served {
    address: SocketAddr,
    gate: Arc<Gate>,
    stop: watch::Sender<bool>,
    serving: JoinHandle<()>,
}

async fn echo(body: Body) -> Result<Vec<u8>, (StatusCode, String)> {
    body::read(body, BODY_MAX)
        .await
        .map(Vec::from)
        .map_err(|fault| {
            let status = match fault {
                BodyFault::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
                BodyFault::TooSlow => StatusCode::REQUEST_TIMEOUT,
                BodyFault::Broken => StatusCode::BAD_REQUEST,
            };
            (status, fault.to_string())
        })
}

impl Served {
    pub(crate) async fn start(limits: Limits) -> Self {
        Self::start_behind(Arc::default(), limits).await
    }

    async fn start_behind(gate: Arc<Gate>, limits: Limits) -> Self {
        let routes =
            Router::new()
                .route("/", get(|| async { "here\n" }))
                .route("/echo", post(echo))
                .route("/no", post(|| async { StatusCode::UNAUTHORIZED }))
                .route(
                    "/peer",
                    get(|axum::Extension(peer): axum::Extension<Peer>| async move {
                        peer.0.to_string()
                    }),
                );
        Self::start_with(routes, gate, limits).await
    }

    pub(crate) async fn start_with(routes: Router, gate: Arc<Gate>, limits: Limits) -> Self {
        let routes = body::bounded(routes, BODY_MAX, |max| {
            (StatusCode::PAYLOAD_TOO_LARGE, format!("at most {max}")).into_response()
        });
        let listeners = server::listen(&["127.0.0.1:0".to_owned()])
            .await
            .expect("a free port");
        let address = listeners[0].local_addr().expect("bound");
        let (stop, stopping) = watch::channel(false);
        let plain = |stream| std::future::ready(Ok(stream));
        let at = Arc::clone(&gate);
        let serving = tokio::spawn(server::serve_after(
            plain, listeners, routes, limits, at, stopping,
        ));
        Self {
            address,
            gate,
            stop,
            serving,
        }
    }

    pub(crate) async fn send(&self, bytes: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).await.expect("connected");
        stream.write_all(bytes.as_bytes()).await.expect("sent");
        stream
    }

    /// How many were turned away for this.
    pub(crate) fn refused(&self, why: Refusal) -> u64 {
        self.gate.refusals().of(why)
    }

    /// Waits until that many were turned away: a connection is counted when it has ended on the server's side too.
    async fn counted(&self, why: Refusal, count: u64) {
        let counted = async {
            while self.gate.refusals().of(why) != count {
                sleep(Duration::from_millis(20)).await;
            }
        };
        timeout(PATIENCE, counted).await.expect("counted in time");
    }

    /// Stops it, and returns how long that took.
    async fn stop(self) -> Duration {
        let began = Instant::now();
        self.stop.send_replace(true);
        timeout(PATIENCE, self.serving)
            .await
            .expect("stopped in time")
            .expect("no panic");
        began.elapsed()
    }
}

/// All that comes until the other side closes.
pub(crate) async fn rest(stream: &mut TcpStream) -> String {
    let mut text = String::new();
    timeout(PATIENCE, stream.read_to_string(&mut text))
        .await
        .expect("closed in time")
        .expect("no reset");
    text
}

/// The next response that ends with `end`.
pub(crate) async fn response(stream: &mut TcpStream, end: &str) -> String {
    let mut text = String::new();
    while !text.ends_with(end) {
        let mut space = [0; 1_024];
        let read = timeout(PATIENCE, stream.read(&mut space)).await;
        let count = read.expect("answered in time").expect("no reset");
        assert!(count > 0, "closed after: {text}");
        text += std::str::from_utf8(&space[..count]).expect("text");
    }
    text
}

#[tokio::test]
async fn a_head_that_does_not_come_to_its_end_is_cut_off() {
    // Longer than a machine that has no time stands still between a connection and its request.
    let head = Duration::from_secs(1);
    let served = Served::start(Limits { head, ..AMPLE }).await;
    let mut silent = served.send("").await;
    let mut slow = served.send("GET / HTTP/1.1\r\nhost: x\r\nx-slow: ").await;
    assert_eq!(rest(&mut silent).await, "");
    rest(&mut slow).await;
    // Nor is a connection kept on which no other request comes.
    let mut idle = served.send("GET / HTTP/1.1\r\nhost: x\r\n\r\n").await;
    assert!(
        response(&mut idle, "here\n")
            .await
            .starts_with("HTTP/1.1 200 ")
    );
    assert_eq!(rest(&mut idle).await, "");
}

#[tokio::test]
async fn an_address_above_its_bound_is_closed_and_others_are_served() {
    let bound = |but_for| AddressBound {
        connections: NonZeroUsize::new(2).expect("not zero"),
        but_for: Networks::parse(but_for).expect("networks"),
    };
    let gate = Gate::new(Some(bound("")), Arc::default());
    let served = Served::start_behind(gate, AMPLE).await;
    let request = "GET / HTTP/1.1\r\nhost: x\r\n\r\n";
    let mut first = served.send(request).await;
    let mut second = served.send(request).await;
    response(&mut first, "here\n").await;
    response(&mut second, "here\n").await;
    let mut third = TcpStream::connect(served.address).await.expect("connected");
    assert_eq!(rest(&mut third).await, "");
    assert_eq!(served.gate.refusals().of(Refusal::Address), 1);
    let other = TcpSocket::new_v4().expect("a socket");
    let from = SocketAddr::from(([127, 0, 0, 2], 0));
    other.bind(from).expect("an address of loopback");
    let mut other = other.connect(served.address).await.expect("connected");
    other.write_all(request.as_bytes()).await.expect("sent");
    response(&mut other, "here\n").await;
    // The server notices the end of a connection on its own time.
    drop(first);
    let again = async {
        loop {
            let mut next = TcpStream::connect(served.address).await.expect("connected");
            let asked = next.write_all(request.as_bytes()).await;
            let mut space = [0; 1];
            if asked.is_ok() && next.read(&mut space).await.is_ok_and(|count| count == 1) {
                return;
            }
        }
    };
    timeout(PATIENCE, again).await.expect("room in time");

    let gate = Gate::new(Some(bound("127.0.0.1")), Arc::default());
    let served = Served::start_behind(gate, AMPLE).await;
    let mut many = Vec::new();
    for _ in 0..10 {
        let mut one = served.send(request).await;
        response(&mut one, "here\n").await;
        many.push(one);
    }
    assert_eq!(served.gate.refusals().of(Refusal::Address), 0);
}

#[tokio::test]
async fn a_huge_content_length_is_refused_at_once_and_the_connection_closed() {
    let served = Served::start(AMPLE).await;
    for (method, path) in [("POST", "/echo"), ("GET", "/"), ("POST", "/no")] {
        let mut stream = served
            .send(&format!(
                "{method} {path} HTTP/1.1\r\nhost: x\r\ncontent-length: 1000000000000\r\n\r\n"
            ))
            .await;
        let text = rest(&mut stream).await;
        assert!(text.starts_with("HTTP/1.1 413 "), "{text}");
        assert!(text.contains("connection: close\r\n"), "{text}");
        assert!(text.ends_with("at most 1000"), "{text}");
    }
}

#[tokio::test]
async fn a_client_that_sends_on_still_hears_why_it_was_refused() {
    let served = Served::start(AMPLE).await;
    let body = "x".repeat(500_000);
    let mut stream = served
        .send(&format!(
            "POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        ))
        .await;
    let text = rest(&mut stream).await;
    assert!(text.starts_with("HTTP/1.1 413 "), "{text}");
    // The same when no length was declared, and the bound is met on the way.
    let mut stream = served
        .send(&format!(
            "POST /echo HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n{:x}\r\n{body}\r\n0\r\n\r\n",
            body.len()
        ))
        .await;
    let text = rest(&mut stream).await;
    assert!(text.starts_with("HTTP/1.1 413 "), "{text}");
    assert!(text.contains("connection: close\r\n"), "{text}");
}

#[tokio::test]
async fn a_refusal_before_the_body_was_read_closes_and_one_after_it_does_not() {
    let served = Served::start(AMPLE).await;
    let mut refused = served
        .send("POST /no HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\nhalf")
        .await;
    let text = rest(&mut refused).await;
    assert!(text.starts_with("HTTP/1.1 401 "), "{text}");
    assert!(text.contains("connection: close\r\n"), "{text}");
    let mut kept = served
        .send("POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 3\r\n\r\none")
        .await;
    let text = response(&mut kept, "one").await;
    assert!(text.starts_with("HTTP/1.1 200 "), "{text}");
    assert!(!text.contains("connection: close"), "{text}");
    let again = "POST /no HTTP/1.1\r\nhost: x\r\n\r\n";
    kept.write_all(again.as_bytes()).await.expect("sent");
    let text = response(&mut kept, "\r\n\r\n").await;
    assert!(text.starts_with("HTTP/1.1 401 "), "{text}");
    assert!(
        !text.contains("connection: close"),
        "nothing was left unread: {text}"
    );
}

#[tokio::test]
async fn what_is_no_request_gets_a_bare_status_is_closed_and_counted() {
    let served = Served::start(AMPLE).await;
    let long = "x".repeat(70_000);
    // Its client is heard out, so that the refusal is not lost in a reset.
    let wide = format!("x-long: {long}\r\n").repeat(8);
    for (sent, status, why) in [
        ("nonsense\r\n\r\n".to_owned(), "400", Refusal::Malformed),
        (
            "GET / HTTP/1.1\r\nno header\r\n\r\n".to_owned(),
            "400",
            Refusal::Malformed,
        ),
        (
            format!("GET /{long} HTTP/1.1\r\n\r\n"),
            "414",
            Refusal::HeadTooLarge,
        ),
        (
            format!("GET / HTTP/1.1\r\n{}\r\n", "x: y\r\n".repeat(257)),
            "431",
            Refusal::HeadTooLarge,
        ),
        (
            format!("GET / HTTP/1.1\r\n{wide}"),
            "431",
            Refusal::HeadTooLarge,
        ),
    ] {
        let before = served.gate.refusals().of(why);
        let mut stream = served.send(&sent).await;
        let text = rest(&mut stream).await;
        assert!(text.starts_with(&format!("HTTP/1.1 {status} ")), "{text}");
        assert!(text.ends_with("\r\n\r\n"), "there is no body: {text}");
        served.counted(why, before + 1).await;
    }
    // Who sends nothing, or leaves in the middle of a head, has done nothing wrong.
    for sent in ["", "GET / HTTP/1.1\r\nhost"] {
        let mut gone = served.send(sent).await;
        gone.shutdown().await.expect("shut down");
        rest(&mut gone).await;
    }
    // HTTP/2 without TLS is not answered in a language that its client does not speak.
    let mut second = served.send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await;
    assert_eq!(rest(&mut second).await, "");
    served.counted(Refusal::Malformed, 3).await;
}

#[tokio::test]
async fn a_body_that_comes_too_slowly_ends_for_its_reader() {
    let served = Served::start(Limits {
        body: SHORT,
        ..AMPLE
    })
    .await;
    let mut slow = served
        .send("POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n\r\nhalf")
        .await;
    let text = rest(&mut slow).await;
    assert!(text.starts_with("HTTP/1.1 408 "), "{text}");
    assert!(text.contains("connection: close\r\n"), "{text}");
    let served = Served::start(AMPLE).await;
    let mut broken = served
        .send("POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n\r\nhalf")
        .await;
    broken.shutdown().await.expect("shut down");
    let text = rest(&mut broken).await;
    assert!(
        text.is_empty() || text.starts_with("HTTP/1.1 400 "),
        "{text}"
    );
}

#[tokio::test]
async fn a_client_that_asks_and_never_reads_is_cut_off() {
    let served = Served::start(Limits {
        connections: 1,
        body: SHORT,
        ..AMPLE
    })
    .await;
    // More responses than the buffers of both sides hold, so that a write must wait for the client.
    let request = "GET / HTTP/1.1\r\nhost: x\r\n\r\n".repeat(1_000);
    let mut silent = served.send("").await;
    let refused = async {
        loop {
            if silent.write_all(request.as_bytes()).await.is_err() {
                return;
            }
        }
    };
    timeout(PATIENCE, refused).await.expect("cut off in time");
    // The only place is free again.
    let mut next = served.send("GET / HTTP/1.1\r\nhost: x\r\n\r\n").await;
    assert!(
        response(&mut next, "here\n")
            .await
            .starts_with("HTTP/1.1 200 ")
    );
}

#[tokio::test]
async fn open_sockets_do_not_keep_a_stop_from_ending() {
    let served = Served::start(AMPLE).await;
    let silent = served.send("").await;
    let mut idle = served.send("GET / HTTP/1.1\r\nhost: x\r\n\r\n").await;
    response(&mut idle, "here\n").await;
    assert!(served.stop().await < PATIENCE / 2);
    // One in the middle of a request is waited for as long as the grace says.
    let served = Served::start(Limits {
        stop: SHORT,
        ..AMPLE
    })
    .await;
    let halves = [
        served.send("GET / HTTP/1.1\r\nhost").await,
        served
            .send("POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n\r\nhalf")
            .await,
    ];
    let mut known = served.send("GET / HTTP/1.1\r\nhost: x\r\n\r\n").await;
    response(&mut known, "here\n").await;
    let took = served.stop().await;
    assert!((SHORT..PATIENCE / 2).contains(&took), "{took:?}");
    drop((silent, idle, halves));
}

#[tokio::test]
async fn a_request_knows_where_it_came_from() {
    let served = Served::start(AMPLE).await;
    let mut stream = served
        .send("GET /peer HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        .await;
    let own = stream.local_addr().expect("connected").to_string();
    assert!(rest(&mut stream).await.ends_with(&own));
}

#[tokio::test]
async fn a_handshake_that_never_ends_is_cut_off_and_keeps_no_stop() {
    for (head, stop_first) in [(SHORT, false), (PATIENCE, true)] {
        let listeners = server::listen(&["127.0.0.1:0".to_owned()])
            .await
            .expect("a free port");
        let address = listeners[0].local_addr().expect("bound");
        let (stop, stopping) = watch::channel(false);
        let limits = Limits { head, ..AMPLE };
        let (began, mut begun) = watch::channel(0);
        let never = move |stream: TcpStream| {
            began.send_modify(|count| *count += 1);
            async move {
                std::future::pending::<()>().await;
                Ok(stream)
            }
        };
        let never = std::sync::Arc::new(never);
        let serving = tokio::spawn(server::serve_after(
            move |stream| never(stream),
            listeners,
            Router::new(),
            limits,
            Arc::default(),
            stopping,
        ));
        let mut stream = TcpStream::connect(address).await.expect("connected");
        begun.wait_for(|count| *count == 1).await.expect("accepted");
        if !stop_first {
            assert_eq!(rest(&mut stream).await, "");
        }
        stop.send_replace(true);
        timeout(PATIENCE / 2, serving)
            .await
            .expect("stopped in time")
            .expect("no panic");
    }
}
