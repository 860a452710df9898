//! Whose call is whose: knowing an id is not enough to join, restart or end the call.

use crate::stage::{Front, KEY, OFFER, Stage, Stub, header, key_file, told};
use serde_json::{Value, json};

const CALLS: &str = "/v1/realtime/calls";

/// The same tenant as `dev`, by another key.
const COLLEAGUE: &str = "colleague-key-47d0";
const STRANGER: &str = "stranger-key-9b2e";

fn write_keys(stage: &Stage) {
    let keys = [
        key_file(&[("dev", KEY)]),
        key_file(&[("colleague", COLLEAGUE)]),
        "tenant = \"dev\"\n".to_owned(),
        key_file(&[("stranger", STRANGER)]),
    ];
    stage.write("keys.toml", &keys.concat());
}

async fn mint(front: &Front) -> String {
    let asked = front
        .request("POST", "/v1/realtime/client_secrets")
        .json(&json!({}))
        .send();
    let made: Value = asked.await.expect("a response").json().await.expect("JSON");
    made["value"].as_str().expect("a secret").to_owned()
}

/// Places a call at `path` and returns where it is.
async fn place(front: &Front, path: &str, token: &str) -> String {
    let made = front
        .post(path)
        .bearer_auth(token)
        .header("content-type", "application/sdp")
        .body(OFFER)
        .send()
        .await
        .expect("a response");
    assert_eq!(made.status(), 201);
    header(&made, "location").to_owned()
}

async fn restart(front: &Front, location: &str, token: &str) -> reqwest::Response {
    front
        .client
        .patch(format!("{}{location}", front.url))
        .bearer_auth(token)
        .header("content-type", "application/sdp")
        .header("if-match", "*")
        .body(OFFER)
        .send()
        .await
        .expect("a response")
}

async fn end(front: &Front, location: &str, token: &str) -> reqwest::Response {
    front
        .client
        .delete(format!("{}{location}", front.url))
        .bearer_auth(token)
        .send()
        .await
        .expect("a response")
}

async fn join(front: &Front, location: &str, token: &str) -> reqwest::Response {
    let id = location.rsplit('/').next().expect("an id");
    front
        .client
        .get(format!("{}/v1/realtime?call_id={id}", front.url))
        .bearer_auth(token)
        .header("connection", "upgrade")
        .header("upgrade", "websocket")
        .header("sec-websocket-version", "13")
        .header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==")
        .send()
        .await
        .expect("a response")
}

#[tokio::test]
async fn another_tenants_key_and_secret_do_not_find_a_call() {
    let stage = Stage::new();
    write_keys(&stage);
    let stub = Stub::start(&stage, &[10]).await;
    let (one, other) = (stage.front(&[&stub]).await, stage.front(&[&stub]).await);
    for path in [CALLS, "/whip/notes"] {
        let location = place(&one, path, STRANGER).await;
        let secret = mint(&one).await;
        for token in [KEY, COLLEAGUE, &secret] {
            for refused in [
                restart(&other, &location, token).await,
                end(&other, &location, token).await,
            ] {
                let told = told(refused).await;
                assert_eq!((told.status, told.code.as_str()), (404, "call_not_found"));
            }
        }
        let refused = told(join(&other, &location, KEY).await).await;
        assert_eq!(
            (refused.status, refused.code.as_str()),
            (404, "call_not_found")
        );
        assert!(stub.state().joined.is_empty());
        assert_eq!(restart(&other, &location, STRANGER).await.status(), 200);
        assert_eq!(stub.sessions(), 1, "the call lives on");
        assert_eq!(end(&other, &location, STRANGER).await.status(), 200);
        assert_eq!(stub.sessions(), 0);
    }
}

#[tokio::test]
async fn keys_of_one_tenant_reach_each_others_calls_and_those_of_their_secrets() {
    let stage = Stage::new();
    write_keys(&stage);
    let stub = Stub::start(&stage, &[10]).await;
    let front = stage.front(&[&stub]).await;
    let by_key = place(&front, CALLS, KEY).await;
    let secret = mint(&front).await;
    let by_secret = place(&front, CALLS, &secret).await;
    for location in [&by_key, &by_secret] {
        assert_eq!(join(&front, location, COLLEAGUE).await.status(), 101);
        assert_eq!(restart(&front, location, COLLEAGUE).await.status(), 200);
        assert_eq!(end(&front, location, COLLEAGUE).await.status(), 200);
    }
    assert_eq!(stub.sessions(), 0);
}

#[tokio::test]
async fn a_client_secret_reaches_the_calls_that_it_placed_itself_alone() {
    let stage = Stage::new();
    let stub = Stub::start(&stage, &[10]).await;
    let front = stage.front(&[&stub]).await;
    let (mine, theirs) = (mint(&front).await, mint(&front).await);
    let location = place(&front, CALLS, &mine).await;
    let by_key = place(&front, CALLS, KEY).await;
    for (location, secret) in [(&location, &theirs), (&by_key, &mine)] {
        for refused in [
            restart(&front, location, secret).await,
            end(&front, location, secret).await,
        ] {
            let told = told(refused).await;
            assert_eq!((told.status, told.code.as_str()), (404, "call_not_found"));
        }
    }
    assert_eq!(stub.sessions(), 2);
    assert_eq!(restart(&front, &location, &mine).await.status(), 200);
    assert_eq!(end(&front, &location, &mine).await.status(), 200);
    assert_eq!(stub.sessions(), 1);
}
