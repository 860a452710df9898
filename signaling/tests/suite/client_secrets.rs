//! Client secrets: minted by a server, used by a page, at any replica; and their format, against golden vectors.

use crate::stage::{self, KEY, OFFER, Stage, Stub, key_file, told};
use firsthop_shared::address::{ClusterId, SessionId};
use firsthop_shared::keyring::{ApiKeyring, Masters};
use firsthop_signaling::call_id::{self, CallRef, Placed, Tenant};
use firsthop_signaling::client_secret::{self, Claims, SecretError};
use firsthop_signaling::sealed::SealError;
use serde_json::{Map, Value, json};

const SECRETS: &str = "/v1/realtime/client_secrets";
const CALLS: &str = "/v1/realtime/calls";

async fn mint(front: &stage::Front, path: &str, body: &Value) -> Value {
    let response = front
        .request("POST", path)
        .json(body)
        .send()
        .await
        .expect("a response");
    assert_eq!(response.status(), 200);
    assert_eq!(stage::header(&response, "cache-control"), "no-store");
    response.json().await.expect("JSON")
}

async fn call(front: &stage::Front, secret: &str, origin: Option<&str>) -> reqwest::Response {
    let mut request = front
        .post(CALLS)
        .bearer_auth(secret)
        .header("content-type", "application/sdp")
        .body(OFFER);
    if let Some(origin) = origin {
        request = request.header("origin", origin);
    }
    request.send().await.expect("a response")
}

fn now() -> u64 {
    firsthop_signaling::calls::unix_millis() / 1_000
}

#[tokio::test]
async fn a_secret_makes_calls_with_its_session_at_any_replica_again_and_again() {
    let stage = Stage::new();
    let stub = Stub::start(&stage, &[10]).await;
    let (one, other) = (stage.front(&[&stub]).await, stage.front(&[&stub]).await);
    let session =
        json!({ "type": "realtime", "model": "m", "audio": { "output": { "voice": "v" } } });
    let asked = json!({ "expires_after": { "anchor": "created_at", "seconds": 60 }, "session": session, "max_seconds": 90 });
    let made = mint(&one, SECRETS, &asked).await;
    assert_eq!(made["session"], session);
    let expires = made["expires_at"].as_u64().expect("a time");
    assert!(expires.abs_diff(now() + 60) <= 2);
    let secret = made["value"].as_str().expect("a secret");
    assert!(secret.starts_with("ek_"));
    for front in [&one, &other, &other] {
        assert_eq!(call(front, secret, None).await.status(), 201);
        let asked = stub.state().asked.pop().expect("asked");
        assert_eq!(asked.session_config, Some(session.clone()));
        assert_eq!(asked.max_seconds, Some(90));
        assert_eq!(asked.client.as_deref(), Some("dev"));
    }
}

#[tokio::test]
async fn a_key_that_may_only_mint_lets_its_secrets_call_until_it_may_no_more() {
    let stage = Stage::new();
    let stub = Stub::start(&stage, &[10]).await;
    let mut front = stage.front(&[&stub]).await;
    let with = |scopes: &str| key_file(&[("dev", KEY)]) + &format!("scopes = [{scopes}]\n");
    stage.write("keys.toml", &with("\"secrets\""));
    front.reload();
    let made = mint(&front, SECRETS, &json!({})).await;
    let secret = made["value"].as_str().expect("a secret");
    assert_eq!(front.call().await.status(), 403, "the key itself");
    assert_eq!(call(&front, secret, None).await.status(), 201);
    // It opens nothing else.
    let minted = front.post(SECRETS).bearer_auth(secret).send().await;
    assert_eq!(minted.expect("a response").status(), 403);
    for (scopes, status) in [("\"calls\"", 201), ("\"sideband\", \"admin\"", 403)] {
        stage.write("keys.toml", &with(scopes));
        front.reload();
        assert_eq!(
            call(&front, secret, None).await.status(),
            status,
            "{scopes}"
        );
    }
}

#[tokio::test]
async fn an_empty_request_is_good_for_ten_minutes() {
    let stage = Stage::new();
    let front = stage.front(&[]).await;
    let response = front
        .request("POST", SECRETS)
        .send()
        .await
        .expect("a response");
    let made: Value = response.json().await.expect("JSON");
    assert!(
        made["expires_at"]
            .as_u64()
            .expect("a time")
            .abs_diff(now() + 600)
            <= 2
    );
    assert_eq!(made["session"], json!({ "type": "realtime" }));
}

#[tokio::test]
async fn the_beta_alias_translates_and_nests_the_secret() {
    let stage = Stage::new();
    let stub = Stub::start(&stage, &[10]).await;
    let front = stage.front(&[&stub]).await;
    let asked = json!({ "model": "m", "voice": "alloy", "input_audio_format": "pcm16" });
    let made = mint(&front, "/v1/realtime/sessions", &asked).await;
    assert_eq!(made["model"], "m");
    assert_eq!(made["object"], "realtime.session");
    let secret = made["client_secret"]["value"].as_str().expect("a secret");
    assert!(made["client_secret"]["expires_at"].is_u64());
    assert_eq!(call(&front, secret, None).await.status(), 201);
    let config = stub.state().asked[0].session_config.clone().expect("one");
    assert_eq!(config["audio"]["output"]["voice"], "alloy");
    assert_eq!(config["audio"]["input"]["format"]["type"], "audio/pcm");
}

#[tokio::test]
async fn what_a_secret_fixes_a_page_cannot_change() {
    let stage = Stage::new();
    let stub = Stub::start(&stage, &[10]).await;
    let front = stage.front(&[&stub]).await;
    let made = mint(&front, SECRETS, &json!({ "session": { "model": "m" } })).await;
    let body = json!({ "sdp": OFFER, "session": { "model": "dearer", "instructions": "i" } });
    let response = front
        .post(CALLS)
        .bearer_auth(made["value"].as_str().expect("a secret"))
        .json(&body)
        .send()
        .await
        .expect("a response");
    assert_eq!(response.status(), 201);
    assert_eq!(
        stub.state().asked[0].session_config,
        Some(json!({ "type": "realtime", "model": "m", "instructions": "i" }))
    );
}

#[tokio::test]
async fn altered_expired_and_revoked_secrets_get_401_and_say_which() {
    let stage = Stage::new();
    let stub = Stub::start(&stage, &[10]).await;
    let mut front = stage.front(&[&stub]).await;
    let made = mint(&front, SECRETS, &json!({})).await;
    let good = made["value"].as_str().expect("a secret").to_owned();
    let keyring = ApiKeyring::load(&stage.path("api.toml")).expect("a keyring");
    let old = Claims {
        key: "dev".into(),
        created: now() - 20,
        expires: now() - 1,
        nonce: 1,
        session: Map::new(),
        max_seconds: None,
        origins: Vec::new(),
    };
    let expired = client_secret::mint(keyring.active(), &old);
    let stranger = ApiKeyring::parse(&Masters::new([9; 32]).api_toml()).expect("valid");
    let fresh = Claims {
        expires: now() + 60,
        ..old
    };
    let strange = client_secret::mint(stranger.active(), &fresh);
    let last = good.len() - 1;
    let altered = format!(
        "{}{}",
        &good[..last],
        if good.ends_with('A') { 'B' } else { 'A' }
    );
    for (secret, code) in [
        (altered.as_str(), "invalid_client_secret"),
        (&good[..20], "invalid_client_secret"),
        ("ek_", "invalid_client_secret"),
        (&strange, "invalid_client_secret"),
        (&expired, "expired_client_secret"),
    ] {
        let told = told(call(&front, secret, None).await).await;
        assert_eq!((told.status, told.code.as_str()), (401, code));
        assert_eq!(told.headers["www-authenticate"], "Bearer");
        assert!(!told.message.contains(&secret[3..]) || secret == "ek_");
    }
    stage.write("keys.toml", &key_file(&[("another", KEY)]));
    front.reload();
    let told = told(call(&front, &good, None).await).await;
    assert_eq!(
        (told.status, told.code.as_str()),
        (401, "revoked_client_secret")
    );
}

#[tokio::test]
async fn a_secret_is_bound_to_its_origins_and_to_calls() {
    let stage = Stage::new();
    let stub = Stub::start(&stage, &[10]).await;
    let front = stage.front(&[&stub]).await;
    let asked = json!({ "allowed_origins": ["https://shop.example"] });
    let made = mint(&front, SECRETS, &asked).await;
    let secret = made["value"].as_str().expect("a secret");
    assert_eq!(
        call(&front, secret, Some("https://shop.example"))
            .await
            .status(),
        201
    );
    for origin in [None, Some("https://evil.example"), Some("null")] {
        let told = told(call(&front, secret, origin).await).await;
        assert_eq!(
            (told.status, told.code.as_str()),
            (403, "origin_not_allowed")
        );
        assert_eq!(told.param.as_deref(), Some("origin"));
    }
    let another = front
        .post(SECRETS)
        .bearer_auth(secret)
        .send()
        .await
        .expect("a response");
    let told = told(another).await;
    assert_eq!(
        (told.status, told.code.as_str()),
        (403, "insufficient_scope")
    );
}

/// A client secret that was good for ten minutes, and is no more.
fn expired() -> Claims {
    Claims {
        key: "dev".into(),
        created: now() - 1_000,
        expires: now() - 400,
        nonce: 1,
        session: Map::new(),
        max_seconds: None,
        origins: Vec::new(),
    }
}

#[tokio::test]
async fn an_expired_secret_still_restarts_and_ends_a_call_that_it_was_good_for() {
    let stage = Stage::new();
    let stub = Stub::start(&stage, &[10]).await;
    let front = stage.front(&[&stub]).await;
    let keyring = ApiKeyring::load(&stage.path("api.toml")).expect("a keyring");
    let claims = expired();
    let secret = client_secret::mint(keyring.active(), &claims);
    let call_of = |session: u32, age: u64| {
        let created = (now() - age) * 1_000;
        stub.state().sessions.insert(session, (created, 0, 0));
        let call = CallRef {
            cluster: ClusterId(1),
            control: stub.control,
            session: SessionId(session),
            created,
            placed: Placed {
                tenant: Tenant::named("dev"),
                secret: claims.nonce,
            },
        };
        let id = call_id::seal(keyring.active(), &call);
        format!("{CALLS}/{}", id.as_str())
    };
    let (during, after) = (call_of(1, 900), call_of(2, 100));
    let restart = async |url: &str| {
        let sent = front
            .client
            .patch(format!("{}{url}", front.url))
            .bearer_auth(&secret)
            .header("content-type", "application/sdp")
            .header("if-match", "*")
            .body(OFFER)
            .send();
        sent.await.expect("a response")
    };
    assert_eq!(restart(&during).await.status(), 200);
    let told = told(restart(&after).await).await;
    assert_eq!(
        (told.status, told.code.as_str()),
        (401, "expired_client_secret")
    );
    let ended = front
        .post(&format!("{during}/hangup"))
        .bearer_auth(&secret)
        .send()
        .await
        .expect("a response");
    assert_eq!(ended.status(), 200);
}

#[tokio::test]
async fn an_expired_secret_does_not_tell_when_somebody_else_s_call_was_created() {
    let stage = Stage::new();
    let stub = Stub::start(&stage, &[10]).await;
    let front = stage.front(&[&stub]).await;
    let keyring = ApiKeyring::load(&stage.path("api.toml")).expect("a keyring");
    let claims = expired();
    let secret = client_secret::mint(keyring.active(), &claims);
    for age in [900, 100] {
        let call = CallRef {
            cluster: ClusterId(1),
            control: stub.control,
            session: SessionId(1),
            created: (now() - age) * 1_000,
            placed: Placed {
                tenant: Tenant::named("another"),
                secret: 2,
            },
        };
        let theirs = call_id::seal(keyring.active(), &call);
        let mut forged = theirs.as_str().to_owned();
        let last = forged.pop();
        forged.push(if last == Some('A') { 'B' } else { 'A' });
        for id in [theirs.as_str(), &forged] {
            let sent = front
                .client
                .delete(format!("{}{CALLS}/{id}", front.url))
                .bearer_auth(&secret)
                .send();
            let told = told(sent.await.expect("a response")).await;
            let answer = (told.status, told.code.as_str());
            assert_eq!(answer, (401, "expired_client_secret"), "{age}");
        }
    }
}

#[tokio::test]
async fn slips_in_the_request_are_told_by_their_field() {
    let stage = Stage::new();
    let front = stage.front(&[]).await;
    for (body, param) in [
        (
            json!({ "expires_after": { "seconds": 5 } }),
            "expires_after.seconds",
        ),
        (json!({ "session": { "type": "chat" } }), "session.type"),
        (json!({ "max_seconds": 0 }), "max_seconds"),
        (json!({ "allowed_origins": ["x"] }), "allowed_origins[0]"),
    ] {
        let sent = front.request("POST", SECRETS).json(&body).send().await;
        let told = told(sent.expect("a response")).await;
        assert_eq!((told.status, told.param.as_deref()), (400, Some(param)));
    }
}

#[test]
fn golden_vectors_open_and_seal_alike() {
    let text = include_str!("../../vectors/client_secret.json");
    let vectors: Value = serde_json::from_str(text).expect("JSON");
    let ring = ApiKeyring::parse(vectors["api_keyring"].as_str().expect("text")).expect("valid");
    for case in vectors["valid"].as_array().expect("a list") {
        let secret = case["secret"].as_str().expect("text");
        let claims: Claims = serde_json::from_value(case["claims"].clone()).expect("claims");
        assert_eq!(
            client_secret::open(&ring, secret, claims.created),
            Ok(claims.clone())
        );
        let id = case["key"].as_u64().expect("a number") as u16;
        let key = firsthop_shared::address::KeyId::new(id).and_then(|id| ring.get(id));
        assert_eq!(client_secret::mint(key.expect("known"), &claims), secret);
    }
    for case in vectors["invalid"].as_array().expect("a list") {
        let expected = match case["error"].as_str().expect("text") {
            "prefix" => SealError::Prefix,
            "length" => SealError::Length,
            "alphabet" => SealError::Alphabet,
            "version" => SealError::Version,
            "unknown_key" => SealError::UnknownKey,
            _ => SealError::Forged,
        };
        let secret = case["secret"].as_str().expect("text");
        assert_eq!(
            client_secret::open(&ring, secret, 0),
            Err(SecretError::Invalid(expected)),
            "{}",
            case["name"]
        );
    }
}
