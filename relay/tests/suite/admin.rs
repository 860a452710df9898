//! The admin port, and clients that are slow, many, huge, or do not go. The server's own tests stand with it, in `service`.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Instant;

use crate::testbed::{PATIENCE, Testbed};
use firsthop_relay::limits::ADMIN;

fn connect(testbed: &Testbed, sent: &str) -> TcpStream {
    let mut stream = TcpStream::connect(testbed.admin()).expect("the admin port");
    stream.set_read_timeout(Some(PATIENCE)).expect("a time-out");
    stream.write_all(sent.as_bytes()).expect("sent");
    stream
}

/// All that comes until the relay closes.
fn rest(stream: &mut TcpStream) -> String {
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("closed in time");
    text
}

#[test]
fn a_slow_head_is_cut_off_and_a_huge_body_refused_at_once() {
    let testbed = Testbed::new();
    let relay = testbed.relay(&[]);
    let began = Instant::now();
    let mut slow = connect(&testbed, "GET /metrics HTTP/1.1\r\nhost: relay\r\nx-slow: ");
    for path in ["/metrics", "/healthz"] {
        let mut huge = connect(
            &testbed,
            &format!("GET {path} HTTP/1.1\r\nhost: relay\r\ncontent-length: 1000000000000\r\n\r\n"),
        );
        let text = rest(&mut huge);
        assert!(text.starts_with("HTTP/1.1 413 "), "{text}");
        assert!(text.contains("connection: close\r\n"), "{text}");
    }
    assert!(began.elapsed() < ADMIN.head, "nobody waited");
    rest(&mut slow);
    assert!(began.elapsed() >= ADMIN.head);
    relay.stop();
}

#[test]
fn connections_without_a_request_keep_no_probe_away_and_no_stop_from_ending() {
    let testbed = Testbed::new();
    let relay = testbed.relay(&[]);
    let began = Instant::now();
    let whole = "GET /healthz HTTP/1.1\r\nhost: relay\r\n\r\n";
    let mut open = Vec::new();
    for _ in 0..4 {
        open.extend((0..ADMIN.connections).map(|n| {
            let half = if n % 2 == 0 {
                ""
            } else {
                "GET /healthz HTTP/1.1\r\n"
            };
            connect(&testbed, half)
        }));
        let mut first = [0; 12];
        let mut probe = connect(&testbed, whole);
        probe.read_exact(&mut first).expect("served");
        assert_eq!(&first, b"HTTP/1.1 200");
    }
    assert!(began.elapsed() < ADMIN.head, "no place came free by itself");
    // The newest are in the middle of a request.
    let began = Instant::now();
    relay.stop_warned();
    assert!(began.elapsed() < ADMIN.head / 2, "{:?}", began.elapsed());
}
