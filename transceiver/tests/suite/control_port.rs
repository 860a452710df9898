//! The control port, and clients that are slow, huge, or do not go. The server's own tests stand with it, in `service`.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use firsthop_shared::control::{ControlCode, ControlError};
use firsthop_transceiver::limits::CONTROL;

use crate::loopback::{Process, SECRET, Signaling, request};
use crate::peer::Client;

fn connect(process: &Process, sent: &str) -> TcpStream {
    let mut stream = TcpStream::connect(process.control).expect("the control port");
    let patience = Some(Duration::from_secs(30));
    stream.set_read_timeout(patience).expect("a time-out");
    stream.write_all(sent.as_bytes()).expect("sent");
    stream
}

/// All that comes until the transceiver closes.
fn rest(stream: &mut TcpStream) -> String {
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("closed in time");
    text
}

#[test]
fn slow_heads_and_bodies_are_cut_off_and_a_huge_body_is_refused_at_once() {
    let process = Process::start("slow", &[]);
    let began = Instant::now();
    let mut slow = connect(&process, "GET /v1/status HTTP/1.1\r\nhost: x\r\nx-slow: ");
    let post = |length: &str| {
        format!(
            "POST /v1/sessions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {SECRET}\r\ncontent-length: {length}\r\n\r\n{{"
        )
    };
    let mut slow_body = connect(&process, &post("100"));
    let mut huge = connect(&process, &post("1000000000000"));
    let text = rest(&mut huge);
    assert!(text.starts_with("HTTP/1.1 413 "), "{text}");
    assert!(text.contains("connection: close\r\n"), "{text}");
    // Had the body been waited for, it would not have come in time.
    assert!(text.contains("too_large"), "{text}");
    let text = rest(&mut slow_body);
    assert!(text.starts_with("HTTP/1.1 400 "), "{text}");
    assert!(text.contains("in time"), "{text}");
    rest(&mut slow);
    assert!(began.elapsed() >= CONTROL.head);
}

#[test]
fn without_the_secret_a_body_is_not_waited_for() {
    let process = Process::start("unread", &[]);
    let mut stream = connect(
        &process,
        "POST /v1/sessions HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\nhalf",
    );
    let text = rest(&mut stream);
    assert!(text.starts_with("HTTP/1.1 401 "), "{text}");
    assert!(text.contains("connection: close\r\n"), "{text}");
}

#[test]
fn a_port_without_a_file_left_says_so_and_serves_again_once_it_has_one() {
    let mut process = Process::start_after("ulimit -n 80", "files", &[]);
    let held: Vec<TcpStream> = (0..100).map(|_| connect(&process, "")).collect();
    process.wait_for("cannot accept connections");
    drop(held);
    let mut late = connect(
        &process,
        "GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n",
    );
    let text = rest(&mut late);
    assert!(text.starts_with("HTTP/1.1 200 "), "{text}");
    let (status, log) = process.stop();
    assert!(status.success(), "{log:#?}");
    assert!(!log.iter().any(|l| l.contains("panicked")), "{log:#?}");
}

#[test]
fn sessions_with_a_model_leave_files_to_the_control_port() {
    // It takes connections and says nothing.
    let model = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("ws://{}/", model.local_addr().expect("bound"));
    let backend = ["--backend", "realtime", "--backend-url", &url];
    // The start of two workers takes 64; half of what is left is the sessions'.
    let process = Process::start_after("ulimit -n 80", "few-files", &backend);
    let signaling = Signaling::new();
    let (offer, _) = Client::new(Instant::now()).offer(true);
    for (session, shard) in (0..16).zip([0, 1].into_iter().cycle()) {
        let (status, body) = signaling.create(&process, &request(&process, session, shard, &offer));
        if session < 8 {
            assert_eq!(status, 201, "{session}: {body}");
        } else {
            let error: ControlError = serde_json::from_str(&body).expect("an error");
            assert_eq!((status, error.code), (503, ControlCode::Full), "{session}");
        }
    }
    let get = |path: &str| {
        let head = format!(
            "GET {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {SECRET}\r\nconnection: close\r\n\r\n"
        );
        rest(&mut connect(&process, &head))
    };
    assert!(get("/metrics").contains("firsthop_transceiver_sessions"));
    let status = get("/v1/status");
    assert_eq!(status.matches("\"capacity\":4").count(), 2, "{status}");
    let (status, log) = process.stop();
    assert!(status.success(), "{log:#?}");
    let lowered: Vec<&String> = log
        .iter()
        .filter(|line| line.contains("--sessions-per-worker"))
        .collect();
    assert_eq!(lowered.len(), 1, "{log:#?}");
    assert!(lowered[0].contains("wanted=1000") && lowered[0].contains("lowered=4"));
    assert!(!log.iter().any(|l| l.contains("cannot accept")), "{log:#?}");
}

#[test]
fn open_sockets_do_not_keep_a_stop_from_ending() {
    let process = Process::start("open", &[]);
    let silent = connect(&process, "");
    let half = connect(&process, "GET /healthz HTTP/1.1\r\nhost");
    let mut idle = connect(&process, "GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n");
    let mut first = [0; 12];
    idle.read_exact(&mut first).expect("served");
    assert_eq!(&first, b"HTTP/1.1 200");
    let began = Instant::now();
    let (status, log) = process.stop();
    assert!(status.success(), "{log:?}");
    assert!(began.elapsed() < CONTROL.head, "{:?}", began.elapsed());
    drop((silent, half, idle));
}
