//! The sideband: joined by call id at any replica, bytes both ways, and nothing upgraded for a dead call.

use crate::stage::{Front, KEY, SECRET, Stage, Stub, key_file};
use firsthop_shared::control::ControlCode;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

const HANDSHAKE: &str = "connection: Upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n\
    sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n";

/// Sends a request by hand and returns the connection with the head of the response.
async fn ask(front: &Front, path: &str, headers: &str) -> (TcpStream, String) {
    let mut stream = TcpStream::connect(front.address).await.expect("connected");
    let head = format!("GET {path} HTTP/1.1\r\nhost: x\r\n{headers}\r\n");
    stream.write_all(head.as_bytes()).await.expect("sent");
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        answer.push(stream.read_u8().await.expect("a whole head"));
    }
    let answer = String::from_utf8(answer).expect("text").to_lowercase();
    (stream, answer)
}

fn with_key(key: &str) -> String {
    format!("{HANDSHAKE}authorization: Bearer {key}\r\n")
}

#[tokio::test]
async fn a_sideband_joins_at_once_through_another_replica_and_ends_with_the_call() {
    let stage = Stage::new();
    let stub = Stub::start(&stage, &[10]).await;
    let (one, other) = (stage.front(&[&stub]).await, stage.front(&[&stub]).await);
    let id = one.call_id().await;
    let path = format!("/v1/realtime?call_id={id}");
    let (mut stream, answer) = ask(&other, &path, &with_key(KEY)).await;
    assert!(answer.starts_with("http/1.1 101 "), "{answer}");
    assert!(answer.contains("sec-websocket-accept: s3pplmbitxaq9kygzzhzrbk+xoo="));
    for _ in 0..3 {
        stream.write_all(b"events").await.expect("sent");
        let mut back = [0; 6];
        stream.read_exact(&mut back).await.expect("answered");
        assert_eq!(&back, b"EVENTS");
    }
    assert!(
        other
            .door
            .metrics
            .text()
            .contains("firsthop_signaling_sidebands 1")
    );
    stub.state().end_sidebands.send_replace(true);
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).await.expect("closed");
    assert!(rest.is_empty());
    drop(stream);
}

#[tokio::test]
async fn a_key_may_come_as_a_subprotocol_and_does_not_reach_the_owner() {
    let stage = Stage::new();
    let stub = Stub::start(&stage, &[10]).await;
    let front = stage.front(&[&stub]).await;
    let path = format!("/v1/realtime?call_id={}", front.call_id().await);
    let protocols = format!(
        "{HANDSHAKE}sec-websocket-protocol: realtime, openai-insecure-api-key.{KEY}, openai-beta.realtime-v1\r\n"
    );
    let (_stream, answer) = ask(&front, &path, &protocols).await;
    assert!(answer.starts_with("http/1.1 101 "), "{answer}");
    assert!(
        answer.contains("sec-websocket-protocol: realtime\r\n"),
        "{answer}"
    );
    let joined = stub.state().joined.pop().expect("joined");
    assert_eq!(
        joined["sec-websocket-protocol"],
        "realtime, openai-beta.realtime-v1"
    );
    assert_eq!(joined["authorization"], format!("Bearer {SECRET}"));
}

#[tokio::test]
async fn what_cannot_be_joined_is_told_before_the_upgrade() {
    let stage = Stage::new();
    let stub = Stub::start(&stage, &[10]).await;
    let front = stage.front(&[&stub]).await;
    let dead = front.call_id().await;
    assert_eq!(front.hang_up(&dead).await.status(), 200);
    let live = front.call_id().await;
    let live = format!("/v1/realtime?call_id={live}");
    let good = with_key(KEY);
    let plain = format!("authorization: Bearer {KEY}\r\n");
    for (path, headers, status, code) in [
        (
            format!("/v1/realtime?call_id={dead}"),
            good.as_str(),
            404,
            "call_not_found",
        ),
        (
            "/v1/realtime?call_id=rtc_made_up".into(),
            &good,
            404,
            "call_not_found",
        ),
        ("/v1/realtime".into(), &good, 400, "invalid_value"),
        // A client that knows the API over WebSocket alone.
        (
            "/v1/realtime?model=m".into(),
            &good,
            400,
            "POST its offer to /v1/realtime/calls",
        ),
        (live.clone(), HANDSHAKE, 401, "missing_api_key"),
        (live.clone(), &with_key("nope"), 401, "invalid_api_key"),
        (live, &plain, 426, "websocket_required"),
    ] {
        let (mut stream, answer) =
            ask(&front, &path, &format!("{headers}connection: close\r\n")).await;
        assert!(
            answer.starts_with(&format!("http/1.1 {status} ")),
            "{path}: {answer}"
        );
        let mut body = String::new();
        stream.read_to_string(&mut body).await.expect("a body");
        assert!(body.contains(code), "{body}");
    }
    assert!(stub.state().joined.is_empty());
}

/// What a replica says to a sideband that finds no room.
async fn refusal(front: &Front, path: &str) -> String {
    let headers = with_key(KEY) + "connection: close\r\n";
    let (mut stream, head) = ask(front, path, &headers).await;
    assert!(head.starts_with("http/1.1 503 "), "{head}");
    assert!(head.contains("\r\nretry-after: "), "{head}");
    let mut body = String::new();
    stream.read_to_string(&mut body).await.expect("a body");
    body
}

#[tokio::test]
async fn an_owner_without_room_is_no_failure_and_is_told_with_the_time_to_wait() {
    let stage = Stage::new();
    let stub = Stub::start(&stage, &[10]).await;
    let front = stage.front(&[&stub]).await;
    let path = format!("/v1/realtime?call_id={}", front.call_id().await);
    stub.state().sideband_refusals = [ControlCode::Full, ControlCode::Internal].into();
    let refused = refusal(&front, &path).await;
    assert!(refused.contains("too_many_sidebands"), "{refused}");
    let (_, head) = ask(&front, &path, &with_key(KEY)).await;
    assert!(head.starts_with("http/1.1 502 "), "{head}");
    let (_stream, head) = ask(&front, &path, &with_key(KEY)).await;
    assert!(head.starts_with("http/1.1 101 "), "{head}");
}

#[tokio::test]
async fn a_key_without_the_scope_and_a_replica_without_room_refuse() {
    let stage = Stage::new();
    let stub = Stub::start(&stage, &[10]).await;
    let mut front = stage.front(&[&stub]).await;
    let path = format!("/v1/realtime?call_id={}", front.call_id().await);
    let mut held = Vec::new();
    for _ in 0..8 {
        let (stream, answer) = ask(&front, &path, &with_key(KEY)).await;
        assert!(answer.starts_with("http/1.1 101 "), "{answer}");
        held.push(stream);
    }
    let refused = refusal(&front, &path).await;
    assert!(refused.contains("too_many_sidebands"), "{refused}");
    let keys = key_file(&[("dev", KEY)]) + "scopes = [\"calls\"]\n";
    stage.write("keys.toml", &keys);
    front.reload();
    let (_, answer) = ask(&front, &path, &with_key(KEY)).await;
    assert!(answer.starts_with("http/1.1 403 "), "{answer}");
}
