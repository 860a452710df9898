//! The ways to send an offer, and the session's configuration that goes with it.

use crate::stage::{self, KEY, OFFER, Stage, Stub, Told, header, told};
use serde_json::{Value, json};

const CALLS: &str = "/v1/realtime/calls";

fn form(parts: &[(&str, &str)]) -> (String, String) {
    let mut body = String::new();
    for (name, value) in parts {
        body += &format!(
            "--edge\r\ncontent-disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n"
        );
    }
    (
        "multipart/form-data; boundary=edge".to_owned(),
        body + "--edge--\r\n",
    )
}

fn as_json(body: &Value) -> (String, String) {
    ("application/json".to_owned(), body.to_string())
}

async fn send(front: &stage::Front, path: &str, sent: (String, String)) -> reqwest::Response {
    front
        .post(path)
        .bearer_auth(KEY)
        .header("content-type", sent.0)
        .body(sent.1)
        .send()
        .await
        .expect("a response")
}

#[tokio::test]
async fn an_offer_comes_raw_in_a_form_or_in_json_and_the_session_goes_along() {
    let stage = Stage::new();
    let stub = Stub::start(&stage, &[10]).await;
    let front = stage.front(&[&stub]).await;
    let session = json!({ "type": "realtime", "model": "m", "instructions": "Speak briefly." });
    for (sent, carried) in [
        (("application/sdp".to_owned(), OFFER.to_owned()), None),
        (form(&[("sdp", OFFER)]), None),
        (
            form(&[
                ("session", &session.to_string()),
                ("sdp", OFFER),
                ("other", "x"),
            ]),
            Some(&session),
        ),
        (as_json(&json!({ "sdp": OFFER })), None),
        (
            as_json(&json!({ "sdp": OFFER, "session": session })),
            Some(&session),
        ),
    ] {
        let response = send(&front, CALLS, sent).await;
        assert_eq!(response.status(), 201);
        assert_eq!(header(&response, "content-type"), "application/sdp");
        assert_eq!(header(&response, "etag"), "\"ice-0\"");
        assert!(header(&response, "location").starts_with("/v1/realtime/calls/rtc_"));
        let asked = stub.state().asked.pop().expect("asked");
        assert_eq!(asked.offer, OFFER);
        assert_eq!(asked.session_config.as_ref(), carried);
        assert!(asked.kind.is_realtime());
    }
}

#[tokio::test]
async fn the_beta_url_takes_the_model_in_its_query() {
    let stage = Stage::new();
    let stub = Stub::start(&stage, &[10]).await;
    let front = stage.front(&[&stub]).await;
    let raw = || ("application/sdp".to_owned(), OFFER.to_owned());
    let response = send(&front, "/v1/realtime?model=gpt%2Drealtime", raw()).await;
    assert_eq!(response.status(), 201);
    assert_eq!(
        stub.state().asked.pop().expect("asked").session_config,
        Some(json!({ "type": "realtime", "model": "gpt-realtime" }))
    );
    // The body's own model wins.
    let both = as_json(&json!({ "sdp": OFFER, "session": { "model": "other" } }));
    assert_eq!(
        send(&front, "/v1/realtime?model=m", both).await.status(),
        201
    );
    assert_eq!(
        stub.state().asked.pop().expect("asked").session_config,
        Some(json!({ "type": "realtime", "model": "other" }))
    );
    let told = told(send(&front, "/v1/realtime?model=", raw()).await).await;
    assert_eq!(told.param.as_deref(), Some("session.model"));
}

#[tokio::test]
async fn what_is_wrong_with_a_body_is_told_by_its_field() {
    let stage = Stage::new();
    let stub = Stub::start(&stage, &[10]).await;
    let front = stage.front(&[&stub]).await;
    let huge = format!("{OFFER}{}", "a=x\r\n".repeat(16_000));
    let unfinished = form(&[("sdp", OFFER)]).1.replace("--edge--\r\n", "");
    let no_boundary = ("multipart/form-data".to_owned(), String::new());
    for (sent, status, code, param) in [
        (form(&[]), 400, "missing_field", Some("sdp")),
        (form(&[("sdp", "")]), 400, "invalid_offer", Some("sdp")),
        (
            form(&[("sdp", OFFER), ("sdp", OFFER)]),
            400,
            "invalid_value",
            Some("sdp"),
        ),
        (
            form(&[("sdp", OFFER), ("session", "{")]),
            400,
            "invalid_value",
            Some("session"),
        ),
        (
            form(&[("sdp", OFFER), ("session", "[]")]),
            400,
            "invalid_value",
            Some("session"),
        ),
        (no_boundary, 400, "invalid_form", Some("body")),
        (
            ("multipart/form-data; boundary=edge".to_owned(), unfinished),
            400,
            "invalid_form",
            Some("body"),
        ),
        (
            ("application/json".to_owned(), "{".to_owned()),
            400,
            "invalid_json",
            Some("body"),
        ),
        (as_json(&json!([])), 400, "invalid_json", Some("body")),
        (as_json(&json!({})), 400, "missing_field", Some("sdp")),
        (
            as_json(&json!({ "sdp": 7 })),
            400,
            "invalid_value",
            Some("sdp"),
        ),
        (
            as_json(&json!({ "sdp": OFFER, "session": { "audio": { "output": { "speed": 9 } } } })),
            400,
            "invalid_value",
            Some("session.audio.output.speed"),
        ),
        (
            as_json(&json!({ "sdp": huge })),
            413,
            "body_too_large",
            Some("sdp"),
        ),
        (
            ("application/sdp".to_owned(), huge.clone()),
            413,
            "body_too_large",
            Some("sdp"),
        ),
    ] {
        let kind = sent.0.clone();
        let told: Told = told(send(&front, CALLS, sent).await).await;
        assert_eq!(
            (told.status, told.code.as_str(), told.param.as_deref()),
            (status, code, param),
            "{kind}: {}",
            told.message
        );
        assert_eq!(told.kind, "invalid_request_error");
        let bound = told.message.contains("An SDP may have 65536.");
        assert_eq!(bound, status == 413, "{}", told.message);
    }
    assert!(stub.state().asked.is_empty());
}

#[tokio::test]
async fn offers_of_real_clients_reach_the_owner_as_they_were_sent() {
    let stage = Stage::new();
    let stub = Stub::start(&stage, &[100]).await;
    let front = stage.front(&[&stub]).await;
    let chrome = include_str!("../../../transceiver/tests/offers/chrome.sdp");
    let pcmu = "v=0\no=- 1 1 IN IP4 0.0.0.0\ns=-\nt=0 0\na=ice-ufrag:abcd\na=ice-pwd:0123456789012345678901\n\
        a=fingerprint:sha-256 AA\nm=audio 9 UDP/TLS/RTP/SAVPF 0\na=mid:0\na=setup:actpass\n";
    let video = "m=video 9 UDP/TLS/RTP/SAVPF 96\r\nc=IN IP4 0.0.0.0\r\na=mid:v\r\na=rtpmap:96 VP8/90000\r\n";
    let with_video = format!("{chrome}{video}");
    for offer in [
        chrome,
        include_str!("../../../transceiver/tests/offers/firefox.sdp"),
        include_str!("../../../transceiver/tests/offers/aiortc.sdp"),
        include_str!("../../../transceiver/tests/offers/embedded.sdp"),
        pcmu,
        &with_video,
    ] {
        for sent in [
            ("application/sdp".to_owned(), offer.to_owned()),
            form(&[("sdp", offer)]),
            as_json(&json!({ "sdp": offer })),
        ] {
            let kind = sent.0.clone();
            let response = send(&front, CALLS, sent).await;
            assert_eq!(response.status(), 201, "{kind}: {offer}");
            assert_eq!(stub.state().asked.pop().expect("asked").offer, offer);
            let id = header(&response, "location");
            let ended = front.request("DELETE", &id).send().await;
            assert_eq!(ended.expect("a response").status(), 200);
        }
    }
}
