//! Connections that go on in another protocol.

use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::routing::get;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::server::{AMPLE, PATIENCE, Served, response, rest};

#[tokio::test]
async fn who_was_upgraded_ends_its_own_side_and_hears_the_client_out() {
    let (heard, mut told) = mpsc::channel(1);
    let upgrade = move |mut request: Request| async move {
        let upgraded = hyper::upgrade::on(&mut request);
        tokio::spawn(async move {
            let mut stream = TokioIo::new(upgraded.await.expect("upgraded"));
            let mut first = [0; 6];
            stream.read_exact(&mut first).await.expect("no reset");
            stream.write_all(b"goodbye").await.expect("no reset");
            stream.shutdown().await.expect("no reset");
            let mut rest = first.to_vec();
            stream.read_to_end(&mut rest).await.expect("no reset");
            heard.send(rest).await.expect("the test waits");
        });
        let headers = [("connection", "upgrade"), ("upgrade", "telling")];
        (StatusCode::SWITCHING_PROTOCOLS, headers)
    };
    let routes = Router::new().route("/upgrade", get(upgrade));
    let served = Served::start_with(routes, Arc::default(), AMPLE).await;
    let head =
        "GET /upgrade HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: telling\r\n\r\n";
    let mut stream = served.send(head).await;
    let text = response(&mut stream, "\r\n\r\n").await;
    assert!(text.starts_with("HTTP/1.1 101 "), "{text}");
    stream.write_all(b"before").await.expect("sent");
    assert_eq!(rest(&mut stream).await, "goodbye");
    stream.write_all(b" and after").await.expect("sent");
    stream.shutdown().await.expect("shut down");
    let all = timeout(PATIENCE, told.recv()).await.expect("in time");
    assert_eq!(all.as_deref(), Some(b"before and after".as_slice()));
}
