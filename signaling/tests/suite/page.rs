//! The page over HTTP: what a browser gets, and that paths beside it stay errors of the API.

use crate::stage::{Stage, told};

#[tokio::test]
async fn the_page_is_served_under_a_strict_policy() {
    let stage = Stage::new();
    let front = stage.front(&[]).await;
    let response = front.get("/").await;
    assert_eq!(response.status(), 200);
    let headers = response.headers().clone();
    assert_eq!(headers["content-type"], "text/html; charset=utf-8");
    assert_eq!(headers["x-content-type-options"], "nosniff");
    assert_eq!(headers["cache-control"], "no-cache");
    let policy = headers["content-security-policy"].to_str().expect("text");
    assert!(policy.starts_with("default-src 'none'; script-src 'self';"));
    assert!(!policy.contains("unsafe"));
    let text = response.text().await.expect("a body");
    assert!(text.starts_with("<!doctype html>"));
}

#[tokio::test]
async fn a_module_comes_as_javascript_and_only_when_it_changed() {
    let stage = Stage::new();
    let front = stage.front(&[]).await;
    let first = front.get("/call.js").await;
    assert_eq!(
        first.headers()["content-type"],
        "text/javascript; charset=utf-8"
    );
    let again = reqwest::Client::new()
        .get(first.url().clone())
        .header("if-none-match", &first.headers()["etag"])
        .send()
        .await
        .expect("a response");
    assert_eq!(again.status(), 304);
    assert_eq!(again.headers()["etag"], first.headers()["etag"]);
    assert!(again.headers().contains_key("content-security-policy"));
    assert!(again.bytes().await.expect("a body").is_empty());
}

#[tokio::test]
async fn what_is_not_a_file_of_the_page_is_an_error_of_the_api() {
    let stage = Stage::new();
    let front = stage.front(&[]).await;
    for path in ["/index.html", "/package.json", "/tests/stats.test.js"] {
        let told = told(front.get(path).await).await;
        assert_eq!((told.status, told.code.as_str()), (404, "unknown_url"));
    }
    let posted = front.post("/").send().await;
    assert_eq!(posted.expect("a response").status(), 405);
}
