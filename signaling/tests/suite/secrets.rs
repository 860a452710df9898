//! Nothing secret in a log or an error, whatever goes wrong and however much is logged.

use std::io::Write;
use std::sync::{Arc, Mutex};

use crate::stage::{KEY, OFFER, Reply, SECRET, Stage, Stub, key_file};
use axum::http::StatusCode;
use firsthop_shared::control::ControlCode;
use tracing_subscriber::fmt::MakeWriter;

/// Keeps what is logged.
#[derive(Clone, Default)]
struct Kept(Arc<Mutex<Vec<u8>>>);

impl Write for Kept {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0
            .lock()
            .expect("not poisoned")
            .extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Kept {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}

#[tokio::test]
async fn nothing_secret_is_logged_or_told() {
    let log = Kept::default();
    tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_writer(log.clone())
        .with_ansi(false)
        .init();

    let stage = Stage::new();
    let stub = Stub::start(&stage, &[10]).await;
    let mut front = stage.front(&[&stub]).await;
    let id = front.call_id().await;
    let mut bodies = Vec::new();
    for reply in [
        Reply::Refuse(ControlCode::BadUfrag),
        Reply::Refuse(ControlCode::Unauthorized),
        Reply::Refuse(ControlCode::Internal),
        Reply::Raw(StatusCode::INTERNAL_SERVER_ERROR, "stack trace"),
    ] {
        stub.reply(reply);
        bodies.push(front.call().await.text().await.expect("a body"));
        front.poll().await;
    }
    let minted = front
        .request("POST", "/v1/realtime/client_secrets")
        .json(&serde_json::json!({ "session": { "instructions": "be discreet-4711" } }))
        .send()
        .await
        .expect("a response");
    let minted: serde_json::Value = minted.json().await.expect("JSON");
    let minted = minted["value"].as_str().expect("a secret").to_owned();
    let altered = format!("{}xyz", &minted[..minted.len() - 3]);
    for secret in [&minted, &altered] {
        let sent = front
            .post("/v1/realtime/calls")
            .bearer_auth(secret)
            .header("content-type", "application/sdp")
            .body(OFFER)
            .send()
            .await
            .expect("a response");
        if sent.status() != 201 {
            bodies.push(sent.text().await.expect("a body"));
        }
    }
    let restarted = front
        .request("PATCH", &format!("/v1/realtime/calls/{id}"))
        .header("content-type", "application/trickle-ice-sdpfrag")
        .header("if-match", "*")
        .body("a=ice-ufrag:fragufrag\r\na=ice-pwd:fragpassword0123456789\r\n")
        .send()
        .await
        .expect("a response");
    assert_eq!(restarted.status(), 200);
    let wrong = front
        .post("/v1/realtime/calls?key=query-secret")
        .bearer_auth("wrong-key-6b1f")
        .header("content-type", "application/sdp")
        .header("x-request-id", "mine-1")
        .body(OFFER)
        .send()
        .await
        .expect("a response");
    bodies.push(wrong.text().await.expect("a body"));
    let hash = key_file(&[("dev", KEY)]).to_lowercase();
    stage.write("keys.toml", &hash.replace("name", "nam"));
    front.reload();
    assert_eq!(front.hang_up(&id).await.status(), 200);
    let gone = front.hang_up(&id).await.text().await.expect("a body");
    bodies.push(gone);

    let mut said = String::from_utf8(log.0.lock().expect("not poisoned").clone()).expect("text");
    for expected in [
        "call created",
        "call hung up",
        "mine-1",
        "invalid_api_key",
        "client secret minted",
        "invalid_client_secret",
        "ICE restarted",
    ] {
        assert!(
            said.contains(expected),
            "{expected} was not logged:\n{said}"
        );
    }
    said.push_str(&bodies.join("\n"));
    let sealed = &id[4..];
    let ufrag = stub.state().asked[0].ufrag.clone();
    let digits = hash.split('"').nth(3).expect("the hash");
    for secret in [
        KEY,
        SECRET,
        "wrong-key-6b1f",
        "query-secret",
        "clientpassword",
        "fragpassword",
        "discreet-4711",
        &minted[3..40],
        "stack trace",
        digits,
        sealed,
        ufrag.as_str(),
    ] {
        assert!(!said.contains(secret), "{secret} shows in\n{said}");
    }
}
