//! The HTTP surface: error shapes, media types, sizes, methods, keys, CORS, request ids.

use std::time::Duration;

use crate::stage::{Front, KEY, OFFER, PATIENCE, Stage, Stub, header, told};
use reqwest::Method;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

const CALLS: &str = "/v1/realtime/calls";

#[tokio::test]
async fn a_wrong_or_missing_key_gets_401_and_says_which() {
    let stage = Stage::new();
    let stub = Stub::start(&stage, &[10]).await;
    let front = stage.front(&[&stub]).await;
    for path in [CALLS, "/v1/realtime/calls/rtc_x/hangup"] {
        for (authorization, code) in [
            (None, "missing_api_key"),
            (Some("Bearer nope"), "invalid_api_key"),
            (Some("Basic ZGV2"), "invalid_authorization"),
            (Some("Bearer "), "invalid_authorization"),
        ] {
            let mut request = front
                .post(path)
                .header("content-type", "application/sdp")
                .body(OFFER);
            if let Some(value) = authorization {
                request = request.header("authorization", value);
            }
            let told = told(request.send().await.expect("a response")).await;
            assert_eq!(told.status, 401, "{path} {authorization:?}");
            assert_eq!(told.code, code);
            assert_eq!(told.kind, "invalid_request_error");
            assert_eq!(told.headers["www-authenticate"], "Bearer");
            assert!(!told.message.contains("nope"));
        }
    }
    assert!(stub.state().asked.is_empty());
}

#[tokio::test]
async fn other_content_types_get_415_and_hear_what_is_accepted() {
    let stage = Stage::new();
    let front = stage.front(&[]).await;
    for kind in [
        None,
        Some("text/plain"),
        Some("application/x-www-form-urlencoded"),
        Some("application/sdp-answer"),
    ] {
        let mut request = front.post(CALLS).bearer_auth(KEY).body(OFFER);
        if let Some(kind) = kind {
            request = request.header("content-type", kind);
        }
        let told = told(request.send().await.expect("a response")).await;
        assert_eq!(told.status, 415, "{kind:?}");
        assert_eq!(told.code, "unsupported_content_type");
        assert!(told.message.contains("application/sdp"), "{}", told.message);
    }
}

#[tokio::test]
async fn encoded_bodies_get_415_and_the_identity_is_none() {
    let stage = Stage::new();
    let stub = Stub::start(&stage, &[10]).await;
    let front = stage.front(&[&stub]).await;
    let send = async |path: &str, kind: &str, encoding: &str| {
        let sent = front
            .post(path)
            .bearer_auth(KEY)
            .header("content-type", kind)
            .header("content-encoding", encoding)
            .body(if kind == "application/json" {
                "{}"
            } else {
                OFFER
            })
            .send();
        sent.await.expect("a response")
    };
    for (path, kind) in [
        (CALLS, "application/sdp"),
        ("/whip/notes", "application/sdp"),
        ("/v1/realtime/client_secrets", "application/json"),
    ] {
        for encoding in ["gzip", "br, identity", "deflate"] {
            let told = told(send(path, kind, encoding).await).await;
            assert_eq!(told.status, 415, "{path} {encoding}");
            assert_eq!(told.code, "unsupported_content_encoding");
            assert_eq!(told.param.as_deref(), Some("content-encoding"));
        }
        for encoding in ["Identity", "", "identity, "] {
            let status = send(path, kind, encoding).await.status();
            assert!(status.is_success(), "{path} '{encoding}': {status}");
        }
    }
}

#[tokio::test]
async fn the_content_type_may_have_parameters_and_any_case() {
    let stage = Stage::new();
    let stub = Stub::start(&stage, &[10]).await;
    let front = stage.front(&[&stub]).await;
    for kind in ["application/sdp; charset=utf-8", "Application/SDP"] {
        let response = front
            .post(CALLS)
            .bearer_auth(KEY)
            .header("content-type", kind)
            .body(OFFER)
            .send()
            .await
            .expect("a response");
        assert_eq!(response.status(), 201, "{kind}");
    }
}

#[tokio::test]
async fn malformed_sdp_gets_400_with_the_reason_and_reaches_no_owner() {
    let stage = Stage::new();
    let stub = Stub::start(&stage, &[10]).await;
    let front = stage.front(&[&stub]).await;
    for (body, part) in [
        ("", "empty"),
        ("hello", "v=0"),
        ("v=0\r\nx\r\n", "Line 2"),
        ("v=0\r\ns=-\r\n", "m= line"),
    ] {
        let response = front
            .post(CALLS)
            .bearer_auth(KEY)
            .header("content-type", "application/sdp")
            .body(body)
            .send()
            .await
            .expect("a response");
        let told = told(response).await;
        assert_eq!(told.status, 400, "{body:?}");
        assert_eq!(told.code, "invalid_offer");
        assert_eq!(told.param.as_deref(), Some("sdp"));
        assert!(told.message.contains(part), "{}", told.message);
    }
    assert!(stub.state().asked.is_empty());
}

#[tokio::test]
async fn an_oversized_body_gets_413_announced_or_not() {
    let stage = Stage::new();
    let front = stage.front(&[]).await;
    let large = "a".repeat(128 * 1024);
    let announced = front
        .post(CALLS)
        .bearer_auth(KEY)
        .header("content-type", "application/sdp")
        .body(large.clone())
        .send()
        .await
        .expect("a response");
    let announced = told(announced).await;
    assert_eq!(announced.status, 413);
    assert!(
        announced.message.ends_with("An SDP may have 65536."),
        "{}",
        announced.message
    );

    // In chunks, without a length: by hand, since nothing else would send it so.
    let mut connection = TcpStream::connect(front.address).await.expect("connected");
    let head = format!(
        "POST {CALLS} HTTP/1.1\r\nhost: x\r\nconnection: close\r\nauthorization: Bearer {KEY}\r\n\
         content-type: application/sdp\r\ntransfer-encoding: chunked\r\n\r\n{:x}\r\n{large}\r\n0\r\n\r\n",
        large.len()
    );
    connection.write_all(head.as_bytes()).await.expect("sent");
    let mut response = String::new();
    let _ = connection.read_to_string(&mut response).await;
    assert!(response.starts_with("HTTP/1.1 413 "), "{response}");
    assert!(response.contains("body_too_large"), "{response}");
}

/// Sends this by hand and returns all that comes until the connection is closed.
async fn exchange(front: &Front, sent: &str) -> String {
    let mut connection = TcpStream::connect(front.address).await.expect("connected");
    connection.write_all(sent.as_bytes()).await.expect("sent");
    let mut text = String::new();
    connection.read_to_string(&mut text).await.expect("closed");
    text
}

#[tokio::test]
async fn a_huge_content_length_gets_413_at_once_that_any_origin_may_read() {
    let stage = Stage::new();
    let front = stage.front(&[]).await;
    for path in [CALLS, "/v1/realtime/client_secrets", "/healthz", "/nothing"] {
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: x\r\norigin: https://app.example\r\ncontent-length: 1000000000000\r\n\r\n"
        );
        let text = exchange(&front, &head).await;
        assert!(text.starts_with("HTTP/1.1 413 "), "{path}: {text}");
        assert!(text.contains("connection: close\r\n"), "{text}");
        assert!(text.contains("body_too_large"), "{text}");
        assert!(text.contains("access-control-allow-origin: *"), "{text}");
        assert!(text.contains("x-request-id: req_"), "{text}");
    }
}

#[tokio::test]
async fn a_head_above_the_bounds_is_told_what_to_leave_out() {
    let stage = Stage::new();
    let front = stage.front(&[]).await;
    let url = format!("/healthz?{}", "x".repeat(10_000));
    let told_url = told(front.get(&url).await).await;
    assert_eq!(
        (told_url.status, told_url.code.as_str()),
        (414, "url_too_long")
    );
    assert_eq!(told_url.param.as_deref(), Some("url"));
    assert!(
        told_url.message.contains("at most 8192"),
        "{}",
        told_url.message
    );

    let cookie = "c".repeat(70_000);
    let large = front.post(CALLS).header("cookie", cookie);
    let many = (0..120).fold(front.post(CALLS), |request, _| {
        request.header("x-many", "1")
    });
    for (request, part) in [(large, "cookies"), (many, "at most 100")] {
        let told = told(
            request
                .bearer_auth(KEY)
                .body(OFFER)
                .send()
                .await
                .expect("a response"),
        )
        .await;
        assert_eq!(
            (told.status, told.code.as_str()),
            (431, "headers_too_large")
        );
        assert_eq!(told.param.as_deref(), Some("headers"));
        assert!(told.message.contains(part), "{}", told.message);
        assert_eq!(told.headers["access-control-allow-origin"], "*");
        assert!(told.headers.contains_key("x-request-id"));
    }
    let text = front.door.metrics.text();
    let line = format!("requests_total{{route=\"{CALLS}\",status=\"431\"}} 2");
    assert!(text.contains(&line), "{text}");
}

#[tokio::test]
async fn what_is_no_request_gets_400_and_is_counted() {
    let stage = Stage::new();
    let front = stage.front(&[]).await;
    let text = exchange(&front, "POST /v1 realtime HTTP/1.1\r\n\r\n").await;
    assert!(text.starts_with("HTTP/1.1 400 "), "{text}");
    // It is counted when its connection has ended on this side too.
    let line = "connections_refused_total{reason=\"malformed\"} 1";
    let counted = async {
        while !front.door.metrics.text().contains(line) {
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(PATIENCE, counted).await.expect("counted in time");
}

#[tokio::test]
async fn a_slow_head_or_body_is_cut_off() {
    let stage = Stage::new();
    let front = stage.front(&[]).await;
    let head = format!(
        "POST {CALLS} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {KEY}\r\ncontent-type: application/sdp\r\n"
    );
    let body = format!("{head}content-length: 100\r\n\r\nv=0\r\n");
    let (head, body) = tokio::join!(exchange(&front, &head), exchange(&front, &body));
    assert!(!head.contains(" 20"), "{head}");
    assert!(body.starts_with("HTTP/1.1 408 "), "{body}");
    assert!(body.contains("body_timeout"), "{body}");
}

#[tokio::test]
async fn wrong_methods_get_405_with_allow_in_json() {
    let stage = Stage::new();
    let front = stage.front(&[]).await;
    for (method, path, allow) in [
        (Method::GET, CALLS, "POST"),
        (Method::DELETE, CALLS, "POST"),
        (Method::GET, "/v1/realtime/calls/rtc_x/hangup", "POST"),
        (Method::GET, "/v1/realtime/calls/rtc_x", "PATCH,DELETE"),
        (Method::PUT, "/v1/realtime", "POST,GET,HEAD"),
        (Method::GET, "/v1/realtime/client_secrets", "POST"),
        (Method::GET, "/whip/app", "POST"),
        (Method::PUT, "/whip/app/rtc_x", "PATCH,DELETE"),
        (Method::POST, "/healthz", "GET,HEAD"),
    ] {
        let response = front
            .client
            .request(method.clone(), format!("{}{path}", front.url))
            .send()
            .await
            .expect("a response");
        let told = told(response).await;
        assert_eq!(told.status, 405, "{method} {path}");
        assert_eq!(told.code, "method_not_allowed");
        assert_eq!(told.headers["allow"], allow, "{method} {path}");
    }
}

#[tokio::test]
async fn unknown_paths_get_404_in_json() {
    let stage = Stage::new();
    let front = stage.front(&[]).await;
    for path in [
        "/nothing",
        "/v1/realtime/calls/",
        "/v1/realtime/calls/rtc_x/other",
        "/metrics",
    ] {
        let told = told(front.get(path).await).await;
        assert_eq!(
            (told.status, told.code.as_str()),
            (404, "unknown_url"),
            "{path}"
        );
    }
}

#[tokio::test]
async fn a_preflight_is_answered_for_whatever_headers_are_asked() {
    let stage = Stage::new();
    let front = stage.front(&[]).await;
    for path in [CALLS, "/v1/realtime/calls/rtc_x/hangup"] {
        let response = front
            .client
            .request(Method::OPTIONS, format!("{}{path}", front.url))
            .header("origin", "https://app.example")
            .header("access-control-request-method", "POST")
            .header(
                "access-control-request-headers",
                "authorization,content-type,x-any-thing",
            )
            .send()
            .await
            .expect("a response");
        assert!(response.status().is_success());
        assert_eq!(header(&response, "access-control-allow-origin"), "*");
        assert_eq!(
            header(&response, "access-control-allow-headers"),
            "authorization,content-type,x-any-thing"
        );
        assert!(header(&response, "access-control-allow-methods").contains("POST"));
    }
}

#[tokio::test]
async fn every_response_may_be_read_by_any_origin() {
    let stage = Stage::new();
    let stub = Stub::start(&stage, &[10]).await;
    let front = stage.front(&[&stub]).await;
    let made = front.call().await;
    assert_eq!(made.status(), 201);
    let refused = front.post(CALLS).send().await.expect("a response");
    assert_eq!(refused.status(), 401);
    for response in [made, refused, front.get("/nothing").await] {
        assert_eq!(header(&response, "access-control-allow-origin"), "*");
        let exposed = header(&response, "access-control-expose-headers").to_lowercase();
        for name in ["location", "etag", "link"] {
            assert!(exposed.contains(name), "{exposed}");
        }
    }
}

#[tokio::test]
async fn requests_have_an_id_their_own_if_it_is_usable() {
    let stage = Stage::new();
    let front = stage.front(&[]).await;
    let fresh = header(&front.get("/healthz").await, "x-request-id");
    assert!(fresh.starts_with("req_") && fresh.len() == 36, "{fresh}");
    for (sent, kept) in [
        ("abc-1.2_3", true),
        ("has blank", false),
        (&"x".repeat(129), false),
    ] {
        let response = front
            .client
            .get(format!("{}/healthz", front.url))
            .header("x-request-id", sent)
            .send()
            .await
            .expect("a response");
        assert_eq!(header(&response, "x-request-id") == sent, kept, "{sent}");
    }
}

#[tokio::test]
async fn requests_are_counted_by_route_and_status_and_calls_timed_by_phase() {
    let stage = Stage::new();
    let stub = Stub::start(&stage, &[10]).await;
    let front = stage.front(&[&stub]).await;
    front.call_id().await;
    front.hang_up("rtc_x").await;
    front.get("/made/up/path").await;
    let text = front.door.metrics.text();
    for line in [
        "requests_total{route=\"/v1/realtime/calls\",status=\"201\"} 1",
        "requests_total{route=\"/v1/realtime/calls/{call_id}/hangup\",status=\"404\"} 1",
        "requests_total{route=\"unmatched\",status=\"404\"} 1",
        "create_seconds_count{phase=\"offer\"} 1",
        "create_seconds_count{phase=\"answer\"} 1",
        "create_seconds_count{phase=\"total\"} 1",
    ] {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
    assert!(!text.contains("made"));
}
