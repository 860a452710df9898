//! WHIP (RFC 9725), and the same PATCH on realtime calls: trickle, ICE restart, entity tags, through any replica.

use crate::stage::{self, OFFER, Stage, Stub, header, told};
use firsthop_shared::control::{CallKind, ControlCode};
use firsthop_shared::keyring::DataKeyring;
use firsthop_shared::token;
use reqwest::header::HeaderValue;

const FRAGMENT: &str = "application/trickle-ice-sdpfrag";
const TRICKLE: &str = "a=ice-ufrag:clientufrag\r\na=ice-pwd:clientpassword0123456789\r\nm=audio 9 UDP/TLS/RTP/SAVPF 111\r\na=mid:0\r\n\
    a=candidate:1 1 udp 1 192.0.2.1 5000 typ host\r\n";
const NEW_ICE: &str = "a=ice-ufrag:another1\r\na=ice-pwd:anotherpassword012345678\r\n";

async fn publish(front: &stage::Front) -> reqwest::Response {
    front
        .request("POST", "/whip/notes")
        .header("content-type", "application/sdp")
        .body(OFFER)
        .send()
        .await
        .expect("a response")
}

async fn patch(
    front: &stage::Front,
    url: &str,
    kind: &str,
    if_match: Option<&str>,
    body: &str,
) -> reqwest::Response {
    let mut request = front
        .request("PATCH", url)
        .header("content-type", kind)
        .body(body.to_owned());
    if let Some(tag) = if_match {
        request = request.header("if-match", tag);
    }
    request.send().await.expect("a response")
}

#[tokio::test]
async fn a_session_is_made_trickled_restarted_and_deleted_at_any_replica() {
    let stage = Stage::new();
    let stub = Stub::start(&stage, &[10]).await;
    let (one, other) = (stage.front(&[&stub]).await, stage.front(&[&stub]).await);
    let made = publish(&one).await;
    assert_eq!(made.status(), 201);
    assert_eq!(header(&made, "content-type"), "application/sdp");
    assert_eq!(header(&made, "accept-patch"), FRAGMENT);
    let etag = header(&made, "etag");
    assert_eq!(etag, "\"ice-0\"", "strong");
    let url = header(&made, "location");
    assert!(url.starts_with("/whip/notes/rtc_"), "{url}");
    let asked = stub.state().asked.pop().expect("asked");
    assert_eq!(
        (asked.kind, asked.app.as_deref()),
        (CallKind::Whip, Some("notes"))
    );

    let trickled = patch(&other, &url, FRAGMENT, Some(&etag), TRICKLE).await;
    assert_eq!(trickled.status(), 204);
    assert!(stub.state().restarts.is_empty());

    let restarted = patch(&other, &url, FRAGMENT, Some("\"*\""), NEW_ICE).await;
    assert_eq!(restarted.status(), 200);
    assert_eq!(header(&restarted, "content-type"), FRAGMENT);
    let fresh = header(&restarted, "etag");
    assert_eq!(fresh, "\"ice-1\"");
    let text = restarted.text().await.expect("a body");
    let ufrag = text
        .lines()
        .find_map(|line| line.strip_prefix("a=ice-ufrag:"))
        .expect("a ufrag");
    let keyring = DataKeyring::load(&stage.path("data.toml")).expect("a keyring");
    let route = token::open(&keyring, ufrag.as_bytes()).expect("ours");
    assert_eq!(route.restart.0, 1);
    assert_eq!(
        route.session.0, asked.session,
        "the same session, so the same owner and state"
    );
    assert!(
        text.contains("a=candidate:") && text.contains("a=ice-pwd:"),
        "{text}"
    );
    let sent = stub.state().restarts.pop().expect("asked");
    assert_eq!(sent.ice.map(|ice| ice.ufrag).as_deref(), Some("another1"));

    let stale = told(patch(&one, &url, FRAGMENT, Some(&etag), TRICKLE).await).await;
    assert_eq!((stale.status, stale.code.as_str()), (412, "stale_etag"));
    assert_eq!(
        patch(&one, &url, FRAGMENT, Some(&fresh), TRICKLE)
            .await
            .status(),
        204
    );

    let deleted = other
        .request("DELETE", &url)
        .send()
        .await
        .expect("a response");
    assert_eq!(deleted.status(), 200);
    assert_eq!(stub.sessions(), 0);
    for gone in [
        patch(&one, &url, FRAGMENT, Some(&fresh), TRICKLE).await,
        patch(&one, &url, FRAGMENT, Some("*"), NEW_ICE).await,
    ] {
        let told = told(gone).await;
        assert_eq!((told.status, told.code.as_str()), (404, "call_not_found"));
    }
}

#[tokio::test]
async fn deleting_a_session_that_has_ended_is_no_fault_but_an_id_that_never_was_is() {
    let stage = Stage::new();
    let stub = Stub::start(&stage, &[10]).await;
    let front = stage.front(&[&stub]).await;
    let made = publish(&front).await;
    let url = header(&made, "location").to_owned();
    let delete = async |path: &str| {
        let sent = front.request("DELETE", path).send().await;
        sent.expect("a response")
    };
    assert_eq!(delete(&url).await.status(), 200);
    assert_eq!(stub.sessions(), 0);
    assert_eq!(delete(&url).await.status(), 200);
    // The same call by the other API, as its clients know it.
    let id = url.rsplit('/').next().expect("an id");
    let realtime = told(delete(&format!("/v1/realtime/calls/{id}")).await).await;
    assert_eq!(
        (realtime.status, realtime.code.as_str()),
        (404, "call_not_found")
    );
    let unknown = told(delete("/whip/notes/rtc_nothing").await).await;
    assert_eq!(
        (unknown.status, unknown.code.as_str()),
        (404, "call_not_found")
    );
    assert!(unknown.message.contains("Location"), "{}", unknown.message);
}

#[tokio::test]
async fn a_realtime_call_restarts_by_fragment_or_by_whole_offer_and_keeps_its_id() {
    let stage = Stage::new();
    let stub = Stub::start(&stage, &[10]).await;
    let front = stage.front(&[&stub]).await;
    let url = format!("/v1/realtime/calls/{}", front.call_id().await);
    let by_offer = patch(&front, &url, "application/sdp", Some("\"ice-0\""), OFFER).await;
    assert_eq!(by_offer.status(), 200);
    assert_eq!(header(&by_offer, "content-type"), "application/sdp");
    assert_eq!(header(&by_offer, "etag"), "\"ice-1\"");
    assert_eq!(stub.state().restarts[0].offer, OFFER);
    let by_fragment = patch(&front, &url, FRAGMENT, Some("*"), NEW_ICE).await;
    assert_eq!(by_fragment.status(), 200);
    assert_eq!(header(&by_fragment, "etag"), "\"ice-2\"");
    let ended = front
        .request("DELETE", &url)
        .send()
        .await
        .expect("a response");
    assert_eq!(ended.status(), 200);
}

#[tokio::test]
async fn every_fault_of_a_patch_has_its_status() {
    let stage = Stage::new();
    let stub = Stub::start(&stage, &[10]).await;
    let front = stage.front(&[&stub]).await;
    let url = header(&publish(&front).await, "location");
    for (kind, if_match, body, status, code, param) in [
        (FRAGMENT, None, TRICKLE, 428, "missing_if_match", "if-match"),
        (
            FRAGMENT,
            Some("\"x\""),
            TRICKLE,
            412,
            "stale_etag",
            "if-match",
        ),
        (
            FRAGMENT,
            Some("W/\"ice-0\""),
            TRICKLE,
            412,
            "stale_etag",
            "if-match",
        ),
        (
            "application/json",
            Some("*"),
            "{}",
            415,
            "unsupported_content_type",
            "content-type",
        ),
        (
            FRAGMENT,
            Some("\"ice-0\""),
            "hello",
            400,
            "invalid_fragment",
            "sdpfrag",
        ),
        (
            FRAGMENT,
            Some("*"),
            "m=audio 9 X 0\r\n",
            400,
            "invalid_fragment",
            "sdpfrag",
        ),
        (
            "application/sdp",
            Some("*"),
            "hello",
            400,
            "invalid_offer",
            "sdp",
        ),
    ] {
        let told = told(patch(&front, &url, kind, if_match, body).await).await;
        assert_eq!(
            (told.status, told.code.as_str(), told.param.as_deref()),
            (status, code, Some(param)),
            "{kind} {if_match:?}"
        );
    }
    assert!(stub.state().restarts.is_empty());
    stub.state()
        .restart_refusals
        .push_back(ControlCode::StaleRestart);
    let raced = told(patch(&front, &url, FRAGMENT, Some("*"), NEW_ICE).await).await;
    assert_eq!(raced.status, 412);
}

#[tokio::test]
async fn whip_refuses_what_it_cannot_take() {
    let stage = Stage::new();
    let stub = Stub::start(&stage, &[10]).await;
    let front = stage.front(&[&stub]).await;
    stub.reply(stage::Reply::Refuse(ControlCode::UnsupportedOffer));
    let told_of = |response| async { told(response).await };
    let unsupported = told_of(publish(&front).await).await;
    assert_eq!(
        (unsupported.status, unsupported.code.as_str()),
        (422, "unsupported_offer")
    );
    let form = front
        .request("POST", "/whip/notes")
        .header("content-type", "application/json")
        .body("{}")
        .send()
        .await
        .expect("a response");
    assert_eq!(told(form).await.status, 415);
    let unnamed = front
        .request("POST", "/whip/no%20name")
        .header("content-type", "application/sdp")
        .body(OFFER)
        .send()
        .await
        .expect("a response");
    assert_eq!(told(unnamed).await.code, "unknown_app");
    let stranger = front
        .post("/whip/notes")
        .body(OFFER)
        .send()
        .await
        .expect("a response");
    assert_eq!(told(stranger).await.status, 401);
    let full = stage.front(&[]).await;
    let full = told(publish(&full).await).await;
    assert_eq!(full.status, 503);
    assert!(full.headers.contains_key("retry-after"));
}

#[tokio::test]
async fn options_say_what_is_accepted_and_answers_name_ice_servers() {
    let stage = Stage::new();
    let stub = Stub::start(&stage, &[10]).await;
    let link = "<stun:stun.example>; rel=\"ice-server\"";
    let front = stage
        .front_but(&[&stub], |door| {
            door.ice_servers = vec![HeaderValue::from_static(link)];
        })
        .await;
    let made = publish(&front).await;
    assert_eq!(header(&made, "link"), link);
    for (path, name, kind) in [
        ("/whip/notes", "accept-post", "application/sdp"),
        ("/whip/notes/rtc_x", "accept-patch", FRAGMENT),
    ] {
        let asked = front
            .request("OPTIONS", path)
            .send()
            .await
            .expect("a response");
        assert!(asked.status().is_success());
        assert_eq!(header(&asked, name), kind);
        assert!(header(&asked, "access-control-allow-methods").contains("PATCH"));
    }
}
