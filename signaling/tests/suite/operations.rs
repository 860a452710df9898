//! Running it: scopes, rates, caps, TLS with reload, the fleet page, the API's description.

use std::num::NonZeroU32;
use std::sync::Arc;

use crate::stage::{self, KEY, OFFER, Stage, Stub, Told, certificate, key_file, told};
use firsthop_service::gate::Gate;
use firsthop_service::server;
use firsthop_shared::address::Networks;
use firsthop_signaling::credentials::Rate;
use firsthop_signaling::rates::Rates;
use firsthop_signaling::routes;
use firsthop_signaling::tls::{self, TlsWatch};
use serde_json::Value;
use tokio::sync::watch;

const CALLS: &str = "/v1/realtime/calls";

fn rate(per_second: u32, burst: u32) -> Rate {
    Rate {
        per_second: NonZeroU32::new(per_second).expect("not zero"),
        burst: NonZeroU32::new(burst).expect("not zero"),
    }
}

#[tokio::test]
async fn a_key_does_what_its_scopes_say_and_a_reload_changes_that() {
    let stage = Stage::new();
    let stub = Stub::start(&stage, &[10]).await;
    let mut front = stage.front(&[&stub]).await;
    let with = |scopes: &str| key_file(&[("dev", KEY)]) + &format!("scopes = [{scopes}]\n");
    for (scopes, calls, secrets, fleet) in [
        ("\"calls\"", 201, 403, 403),
        ("\"secrets\"", 403, 200, 403),
        ("\"admin\"", 403, 403, 200),
        ("", 403, 403, 403),
    ] {
        stage.write("keys.toml", &with(scopes));
        front.reload();
        assert_eq!(front.call().await.status(), calls, "{scopes}");
        let minted = front
            .request("POST", "/v1/realtime/client_secrets")
            .send()
            .await
            .expect("a response");
        assert_eq!(minted.status(), secrets, "{scopes}");
        let seen = front.request("GET", "/v1/fleet").send().await;
        assert_eq!(seen.expect("a response").status(), fleet, "{scopes}");
    }
    let refused = told(front.call().await).await;
    assert_eq!(refused.code, "insufficient_scope");
    assert!(refused.message.contains("'calls'"));
}

/// Asks until that is too often. A request that takes long has earned another one: on a slow machine the burst is not all.
async fn until_too_often(ask: impl AsyncFn() -> reqwest::Response) -> Told {
    for _ in 0..20 {
        let response = ask().await;
        if response.status() == 429 {
            return told(response).await;
        }
    }
    panic!("it was never too often")
}

#[tokio::test]
async fn a_key_that_asks_too_often_hears_when_to_come_back() {
    let stage = Stage::new();
    let stub = Stub::start(&stage, &[100]).await;
    let keys =
        key_file(&[("dev", KEY)]) + "rate = { per_second = 1, burst = 2 }\nmax_seconds = 60\n";
    stage.write("keys.toml", &keys);
    let front = stage.front(&[&stub]).await;
    let id = front.call_id().await;
    assert_eq!(stub.state().asked[0].max_seconds, Some(60));
    front.call_id().await;
    let told = until_too_often(|| front.call()).await;
    assert_eq!(told.code, "rate_limit_exceeded");
    assert_eq!(told.kind, "rate_limit_error");
    assert_eq!(told.headers["retry-after"], "1");
    // Ending a call is not rated: it frees something.
    assert_eq!(front.hang_up(&id).await.status(), 200);
}

#[tokio::test]
async fn an_address_that_asks_too_often_is_refused_before_its_key_is_looked_at() {
    let stage = Stage::new();
    let stub = Stub::start(&stage, &[10]).await;
    let front = stage
        .front_but(&[&stub], |door| {
            door.rates = Rates::new(Some(rate(1, 3)));
            door.proxies.trusted = Networks::parse("127.0.0.0/8").expect("a network");
        })
        .await;
    let guess = async |client: &str| {
        front
            .post(CALLS)
            .bearer_auth("a-guess")
            .header("x-forwarded-for", client)
            .send()
            .await
            .expect("a response")
    };
    for _ in 0..3 {
        assert_eq!(guess("198.51.100.1").await.status(), 401);
    }
    let refused = until_too_often(|| guess("198.51.100.1")).await;
    assert!(refused.headers.contains_key("retry-after"));
    assert_eq!(refused.headers["access-control-allow-origin"], "*");
    assert_eq!(guess("198.51.100.2").await.status(), 401);
    assert_eq!(front.get("/healthz").await.status(), 200);
}

/// Asks for `/healthz` over TLS, trusting this certificate alone.
async fn healthz_over_tls(address: std::net::SocketAddr, trusted: &str) -> Option<u16> {
    let root = reqwest::Certificate::from_pem(trusted.as_bytes()).expect("a certificate");
    let client = reqwest::Client::builder()
        .no_proxy()
        .tls_certs_only([root])
        .resolve("front.example", address)
        .build()
        .expect("a client");
    let url = format!("https://front.example:{}/healthz", address.port());
    let response = client.get(url).send().await.ok()?;
    Some(response.status().as_u16())
}

#[tokio::test]
async fn tls_is_served_with_the_certificate_that_the_files_now_hold() {
    let stage = Stage::new();
    let front = stage.front(&[]).await;
    let (old, new) = (certificate("front.example"), certificate("front.example"));
    stage.write("tls.pem", &old.0);
    stage.write("tls.key", &old.1);
    let (mut files, tls) =
        TlsWatch::open(&stage.path("tls.pem"), &stage.path("tls.key")).expect("a pair");
    let listeners = server::listen(&["127.0.0.1:0".into()])
        .await
        .expect("a free port");
    let address = listeners[0].local_addr().expect("bound");
    let (_stop, stopping) = watch::channel(false);
    let router = routes::router(Arc::clone(&front.door));
    let gate = Gate::new(None, front.door.metrics.refusals());
    tokio::spawn(tls::serve(listeners, router, Some(tls), gate, stopping));
    assert_eq!(healthz_over_tls(address, &old.0).await, Some(200));

    // A certificate without its key is no pair: the old one stays.
    stage.write("tls.pem", &new.0);
    files.poll(&front.door.metrics);
    assert_eq!(healthz_over_tls(address, &old.0).await, Some(200));
    stage.write("tls.key", &new.1);
    files.poll(&front.door.metrics);
    assert_eq!(healthz_over_tls(address, &new.0).await, Some(200));
    assert_eq!(healthz_over_tls(address, &old.0).await, None);
}

#[tokio::test]
async fn the_fleet_page_shows_how_everything_stands() {
    let stage = Stage::new();
    let stub = Stub::start(&stage, &[10]).await;
    let keys = key_file(&[("dev", KEY)]) + "scopes = [\"admin\"]\n";
    stage.write("keys.toml", &keys);
    let front = stage.front(&[&stub]).await;
    let seen = front.request("GET", "/v1/fleet").send().await;
    let seen: Value = seen.expect("a response").json().await.expect("JSON");
    assert_eq!(seen["transceivers"][0]["standing"], "ready");
    assert_eq!(seen["clusters"][0]["own"], true);
    assert_eq!(seen["ingresses"][0]["well"], true);
}

/// Every path and method of the description, and what the router says to it.
#[tokio::test]
async fn the_description_names_every_route_and_no_other() {
    let stage = Stage::new();
    let front = stage.front(&[]).await;
    let served = front.get("/openapi.json").await;
    assert_eq!(stage::header(&served, "content-type"), "application/json");
    let described: Value = served.json().await.expect("JSON");
    assert!(
        described["openapi"]
            .as_str()
            .is_some_and(|v| v.starts_with("3.1"))
    );
    let methods = ["get", "post", "patch", "delete", "put"];
    for (path, entry) in described["paths"].as_object().expect("paths") {
        let concrete = path.replace("{call_id}", "rtc_x").replace("{app}", "notes");
        for method in methods {
            let sent = front
                .client
                .request(
                    method.to_uppercase().parse().expect("a method"),
                    format!("{}{concrete}", front.url),
                )
                .body(OFFER)
                .send()
                .await
                .expect("a response");
            let taken = sent.status() != 405;
            assert_eq!(
                taken,
                entry.get(method).is_some(),
                "{method} {path}: {}",
                sent.status()
            );
            if let Some(operation) = entry.get(method) {
                let listed = operation["responses"].as_object().expect("responses");
                let status = sent.status().as_u16().to_string();
                assert!(
                    listed.contains_key(&status),
                    "{method} {path}: {status} is not described"
                );
            }
        }
    }
    for path in [
        "/v1/realtime/calls",
        "/v1/realtime",
        "/v1/realtime/calls/{call_id}",
        "/v1/realtime/calls/{call_id}/hangup",
        "/v1/realtime/client_secrets",
        "/v1/realtime/sessions",
        "/whip/{app}",
        "/whip/{app}/{call_id}",
        "/v1/fleet",
        "/v1/fleet/calls/{call_id}",
        "/openapi.json",
        "/healthz",
        "/readyz",
    ] {
        assert!(
            described["paths"].get(path).is_some(),
            "{path} is not described"
        );
    }
}
