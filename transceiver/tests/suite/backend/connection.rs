//! Connections over loopback, to a WebSocket server of the test's own: real sockets, real TLS, and no sleep in place of an event.

mod tls;

use std::sync::Arc;
use std::time::{Duration, Instant};

use firsthop_shared::address::SessionId;
use firsthop_transceiver::audio::{Backend, BackendReport, Input, Output, QueueState};
use firsthop_transceiver::backend::{
    BackendStats, FromServer, Line, Linked, Loss, LossCause, Message, Realtime, RealtimeSettings,
    Roots, Target, Translator, TranslatorCounters, Waker, serve, tls_config,
};
use firsthop_transceiver::limits;
use futures_util::{SinkExt as _, StreamExt as _};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::Message as Frame;
use tokio_tungstenite::tungstenite::handshake::server::{Request, Response};
use tokio_tungstenite::tungstenite::http::{HeaderName, HeaderValue};
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::{WebSocketStream, accept_hdr_async};

/// Long enough for a busy machine.
const LONG: Duration = Duration::from_secs(20);

/// A translator that does nothing but note what it is told: the connection without a protocol.
#[derive(Default)]
struct Notes {
    told: Vec<FromServer>,
    up: Vec<String>,
    /// It does not take what the server says.
    deaf: bool,
}

impl Translator for Notes {
    fn handle(&mut self, input: Input<'_>, _: Instant) {
        if let Input::Event(text) = input {
            self.deaf |= text == "listen no more";
            self.up.push(text.to_owned());
        }
    }
    fn server(&mut self, event: FromServer, _: Instant, _: Instant) {
        self.told.push(event);
    }
    fn gone(&mut self) {}
    fn tick(&mut self, _: Instant) {}
    /// Everything that it is told, as text.
    fn poll(&mut self, _: QueueState, _: Instant) -> Option<Output<'_>> {
        let told = (!self.told.is_empty()).then(|| self.told.remove(0))?;
        Some(Output::Event(match told {
            FromServer::Connected => "connected".to_owned(),
            FromServer::Message(Message::Text(text)) => text,
            FromServer::Message(Message::Binary(bytes)) => format!("{bytes:?}"),
            FromServer::Lost(Loss { cause, retry }) => {
                format!(
                    "lost: {cause}; {}",
                    if retry.is_some() { "again" } else { "over" }
                )
            }
        }))
    }
    fn poll_clear(&mut self) -> Option<Instant> {
        None
    }
    fn is_idle(&self) -> bool {
        !self.deaf && self.told.is_empty()
    }
    fn poll_server(&mut self) -> Option<Message> {
        (!self.up.is_empty()).then(|| Message::Text(self.up.remove(0)))
    }
    fn deadline(&self) -> Option<Instant> {
        None
    }
    fn take_latency(&mut self) -> Option<Duration> {
        None
    }
    fn counters(&self) -> TranslatorCounters {
        TranslatorCounters::default()
    }
}

/// A session with its connection, and the worker that it wakes.
struct Session<T> {
    linked: Linked<T>,
    wakes: mpsc::UnboundedReceiver<SessionId>,
    stats: Arc<BackendStats>,
    task: tokio::task::JoinHandle<()>,
}

impl<T: Translator + 'static> Session<T> {
    fn new(translator: T, target: Target) -> Self {
        Self::serving(translator, |line| async move {
            serve(7, target, line, Arc::default()).await
        })
    }

    fn serving<F>(translator: T, run: impl FnOnce(Line) -> F) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let (sender, wakes) = mpsc::unbounded_channel();
        let stats = Arc::new(BackendStats::default());
        let waker = Waker::new(SessionId(7), sender);
        let (linked, line) = Linked::new(translator, waker, Arc::clone(&stats), Instant::now());
        let task = tokio::spawn(run(line));
        Self {
            linked,
            wakes,
            stats,
            task,
        }
    }

    /// The next event for the client, once the worker has been woken for it.
    async fn next(&mut self) -> String {
        loop {
            let queue = QueueState {
                queued: 0,
                room: 1_000_000,
            };
            match self.linked.poll(queue, Instant::now()) {
                Some(Output::Event(text)) => return text,
                Some(_) => continue,
                None => {}
            }
            let woken = timeout(LONG, self.wakes.recv()).await;
            assert_eq!(woken.expect("a wake in time"), Some(SessionId(7)));
        }
    }

    fn say(&mut self, text: &str) {
        self.linked.handle(Input::Event(text), Instant::now());
    }

    fn report(&self) -> BackendReport {
        self.linked.report()
    }
}

struct Server(TcpListener);

impl Server {
    async fn new() -> Self {
        Self(TcpListener::bind("127.0.0.1:0").await.expect("a port"))
    }

    fn target(&self) -> Target {
        let url = format!(
            "ws://{}/v1/realtime?model=m",
            self.0.local_addr().expect("bound")
        );
        Target {
            url: url.parse().expect("a URL"),
            headers: vec![(
                HeaderName::from_static("authorization"),
                HeaderValue::from_static("Bearer s3cret"),
            )],
            tls: tls_config(Roots::None, None).expect("TLS"),
        }
    }

    async fn tcp(&self) -> TcpStream {
        let accepted = timeout(LONG, self.0.accept())
            .await
            .expect("a connection in time");
        accepted.expect("a connection").0
    }

    async fn accept(&self) -> (WebSocketStream<TcpStream>, Request) {
        upgrade(self.tcp().await).await
    }
}

#[expect(clippy::result_large_err, reason = "the library's own signature")]
async fn upgrade<S: AsyncRead + AsyncWrite + Unpin>(stream: S) -> (WebSocketStream<S>, Request) {
    let mut seen = None;
    let look = |request: &Request, response: Response| {
        seen = Some(request.clone());
        Ok(response)
    };
    let socket = accept_hdr_async(stream, look).await.expect("a handshake");
    (socket, seen.expect("a request"))
}

async fn heard<S: AsyncRead + AsyncWrite + Unpin>(socket: &mut WebSocketStream<S>) -> Frame {
    let next = timeout(LONG, socket.next())
        .await
        .expect("a message in time");
    next.expect("a message").expect("no error")
}

fn close(code: u16) -> Frame {
    Frame::Close(Some(CloseFrame {
        code: CloseCode::from(code),
        reason: "".into(),
    }))
}

#[tokio::test]
async fn messages_go_both_ways_in_order_and_the_key_is_shown() {
    let server = Server::new().await;
    let mut session = Session::new(Notes::default(), server.target());
    let (mut socket, request) = server.accept().await;
    assert_eq!(request.uri().to_string(), "/v1/realtime?model=m");
    assert_eq!(request.headers()["authorization"], "Bearer s3cret");
    assert_eq!(session.next().await, "connected");
    for n in 0..100 {
        socket
            .send(Frame::text(format!("down {n}")))
            .await
            .expect("sent");
    }
    for n in 0..100 {
        assert_eq!(session.next().await, format!("down {n}"));
    }
    for n in 0..100 {
        session.say(&format!("up {n}"));
    }
    for n in 0..100 {
        assert_eq!(heard(&mut socket).await, Frame::text(format!("up {n}")));
    }
    socket.send(Frame::binary(vec![1, 2])).await.expect("sent");
    assert_eq!(session.next().await, "[1, 2]");
    assert!(session.report().connect_ms.is_some());
    assert_eq!(session.stats.connect.read().count(), 1);
}

#[tokio::test]
async fn the_connection_ends_with_its_session_and_says_goodbye() {
    let server = Server::new().await;
    let mut session = Session::new(Notes::default(), server.target());
    let (mut socket, _) = server.accept().await;
    assert_eq!(session.next().await, "connected");
    let Session { linked, task, .. } = session;
    drop(linked);
    let Frame::Close(Some(frame)) = heard(&mut socket).await else {
        panic!("a close");
    };
    assert_eq!(frame.code, CloseCode::Normal);
    timeout(LONG, task)
        .await
        .expect("it ends")
        .expect("without a panic");
}

#[tokio::test]
async fn a_session_that_is_gone_before_its_connection_makes_none() {
    let server = Server::new().await;
    let session = Session::new(Notes::default(), server.target());
    let Session { linked, task, .. } = session;
    drop(linked);
    timeout(LONG, task)
        .await
        .expect("it ends")
        .expect("without a panic");
    let accepted = futures_util::FutureExt::now_or_never(server.0.accept());
    assert!(accepted.is_none(), "nobody came");
}

#[tokio::test]
async fn a_broken_connection_is_made_again_and_old_messages_do_not_reach_it() {
    let server = Server::new().await;
    let mut session = Session::new(Notes::default(), server.target());
    let (socket, _) = server.accept().await;
    assert_eq!(session.next().await, "connected");
    drop(socket);
    assert_eq!(session.next().await, "lost: the connection broke; again");
    // Nobody is there to take this, and the next connection has not been told to the session.
    session.say("too late");
    let (mut socket, _) = server.accept().await;
    assert_eq!(session.next().await, "connected");
    session.say("in time");
    assert_eq!(heard(&mut socket).await, Frame::text("in time"));
    let report = session.report();
    assert_eq!((report.reconnects, report.losses), (1, 1));
}

#[tokio::test]
async fn a_refusal_for_good_is_not_tried_again() {
    let server = Server::new().await;
    let mut session = Session::new(Notes::default(), server.target());
    let mut tcp = server.tcp().await;
    let mut request = [0; 4_096];
    assert_ne!(tcp.read(&mut request).await.expect("read"), 0);
    let refusal = b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n";
    tcp.write_all(refusal).await.expect("written");
    assert_eq!(
        session.next().await,
        "lost: it wants a key that it accepts (HTTP status 401); over"
    );
    timeout(LONG, session.task)
        .await
        .expect("it ends")
        .expect("without a panic");
}

#[tokio::test]
async fn close_codes_are_told() {
    for (code, expected) in [
        (1_000, "lost: it closed the connection with code 1000; over"),
        (
            1_011,
            "lost: it closed the connection with code 1011; again",
        ),
        (4_001, "lost: it closed the connection with code 4001; over"),
    ] {
        let server = Server::new().await;
        let mut session = Session::new(Notes::default(), server.target());
        let (mut socket, _) = server.accept().await;
        assert_eq!(session.next().await, "connected");
        socket.send(close(code)).await.expect("sent");
        assert_eq!(session.next().await, expected);
    }
}

#[tokio::test]
async fn a_message_that_is_too_large_ends_the_connection() {
    let server = Server::new().await;
    let mut session = Session::new(Notes::default(), server.target());
    let (mut socket, _) = server.accept().await;
    assert_eq!(session.next().await, "connected");
    let huge = "x".repeat(limits::BACKEND_MESSAGE_MAX + 1);
    // It may be cut off in the middle of it.
    let _ = socket.send(Frame::text(huge)).await;
    assert_eq!(
        session.next().await,
        "lost: it sent what cannot be read; again"
    );
}

#[tokio::test]
async fn a_session_that_does_not_listen_pushes_back_on_the_server_alone() {
    let server = Server::new().await;
    let mut session = Session::new(Notes::default(), server.target());
    let (mut socket, _) = server.accept().await;
    assert_eq!(session.next().await, "connected");
    session.say("listen no more");
    assert_eq!(heard(&mut socket).await, Frame::text("listen no more"));
    let (mut sink, mut stream) = socket.split();
    // More than all queues and socket buffers hold.
    let sent = tokio::spawn(async move {
        let piece = "x".repeat(1_000_000);
        for n in 0..100 {
            if timeout(
                Duration::from_secs(2),
                sink.send(Frame::text(piece.clone())),
            )
            .await
            .is_err()
            {
                return n;
            }
        }
        100
    });
    let stuck = sent.await.expect("no panic");
    assert!(stuck < 100, "the server had to wait");
    // The other direction is free.
    session.say("still here");
    loop {
        let next = timeout(LONG, stream.next()).await.expect("in time");
        match next.expect("a message").expect("no error") {
            Frame::Ping(_) => {}
            frame => break assert_eq!(frame, Frame::text("still here")),
        }
    }
}

#[tokio::test]
async fn a_ping_behind_minutes_of_audio_is_answered() {
    let server = Server::new().await;
    let mut session = Session::new(Notes::default(), server.target());
    let (mut socket, _) = server.accept().await;
    assert_eq!(session.next().await, "connected");
    session.say("listen no more");
    assert_eq!(heard(&mut socket).await, Frame::text("listen no more"));
    // Three minutes in pieces of 100 ms, each of them 4,800 bytes of PCM in base64 and 300 of JSON.
    let piece = "x".repeat(6_400 + 300);
    let talk = async {
        for _ in 0..1_800 {
            socket.feed(Frame::text(piece.clone())).await.expect("sent");
        }
        let ping = Frame::Ping("are you there?".into());
        socket.send(ping).await.expect("sent");
    };
    timeout(LONG, talk).await.expect("all of it is read");
    loop {
        match heard(&mut socket).await {
            // The other side may ask the same.
            Frame::Ping(_) => {}
            frame => break assert_eq!(frame, Frame::Pong("are you there?".into())),
        }
    }
}

#[tokio::test]
async fn what_has_no_effect_is_taken_in_bounded_turns() {
    let (sender, _wakes) = mpsc::unbounded_channel();
    let now = Instant::now();
    let (mut linked, line) = Linked::new(
        Realtime::new(RealtimeSettings::default()),
        Waker::new(SessionId(7), sender),
        Arc::new(BackendStats::default()),
        now,
    );
    let turn = limits::BACKEND_EVENTS_PER_TURN as u64;
    for _ in 0..turn + turn / 2 {
        let text = Message::Text("this is no event".to_owned());
        assert!(line.teller.tell(FromServer::Message(text)).await);
    }
    let queue = QueueState {
        queued: 0,
        room: 1_000_000,
    };
    // The client is told of the first, and what it is told is taken before the next.
    let told = linked.poll(queue, now);
    assert!(
        matches!(told, Some(Output::Event(text)) if text.contains("backend_message_unreadable"))
    );
    assert_eq!(linked.report().malformed, 1);
    assert!(linked.poll(queue, now).is_none());
    assert_eq!(linked.report().malformed, turn + 1);
    assert_eq!(linked.deadline(), Some(now), "there is more");
    assert!(linked.poll(queue, now).is_none());
    assert_eq!(linked.report().malformed, turn + turn / 2);
    assert_eq!(linked.deadline(), None);
}

#[tokio::test]
async fn a_server_that_takes_nothing_costs_a_bounded_amount() {
    let server = Server::new().await;
    let mut session = Session::new(Realtime::new(RealtimeSettings::default()), server.target());
    let (mut socket, _) = server.accept().await;
    let created = r#"{"type":"session.created","session":{}}"#;
    socket.send(Frame::text(created)).await.expect("sent");
    assert_eq!(session.next().await, created);
    // Nobody reads the socket: five minutes of sound, without a pause for the connection's task.
    for _ in 0..15_000 {
        session
            .linked
            .handle(Input::Audio(&[0; 480]), Instant::now());
    }
    let unsent = session.report().unsent_samples / 480;
    let kept = limits::BACKEND_MESSAGES_WAITING + limits::BACKEND_UNSENT_MESSAGES + 1;
    assert!(unsent >= 15_000 - kept as u64, "{unsent} frames");
    assert!(session.linked.deadline().is_some(), "it is tried again");
}

#[tokio::test]
async fn a_connection_that_panics_ends_its_session_and_no_other() {
    let mut session = Session::serving(Notes::default(), |line| async move {
        let _line = line;
        panic!("a fault made by a test");
    });
    assert_eq!(
        session.next().await,
        "lost: the connection failed here; over"
    );
    assert!(session.task.await.is_err_and(|error| error.is_panic()));
}

#[test]
fn causes_name_no_server() {
    let told = LossCause::Unreachable.to_string();
    assert_eq!(told, "it could not be reached");
}
