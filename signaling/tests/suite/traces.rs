//! Which calls are traced, and what their owner hears of it. That the spans fit together, the end-to-end tests see.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use firsthop_service::traces::{Counts, ExportArgs, TraceParent};
use firsthop_signaling::traces::Traces;

use crate::stage::{OFFER, Reply, Stage, Stub};

const CLIENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

/// A share of calls is traced; nobody takes the spans, which are counted as dropped.
fn traces(share: &str, counts: &Arc<Counts>) -> Option<Traces> {
    let to = ExportArgs {
        otlp_endpoint: Some("http://127.0.0.1:9".to_owned()),
        otlp_service_name: None,
    };
    let (tracer, exporter) = to
        .open("signaling", Arc::clone(counts))
        .expect("settings")?;
    drop(exporter);
    Some(Traces::new(tracer, share.parse().expect("a share")))
}

#[tokio::test]
async fn the_owner_of_a_traced_call_is_told_where_its_spans_belong() {
    let counts = Arc::new(Counts::default());
    let stage = Stage::new();
    let stub = Stub::start(&stage, &[10]).await;
    let front = stage
        .front_but(&[&stub], |door| door.traces = traces("1", &counts))
        .await;
    assert_eq!(front.call().await.status(), 201);
    let told = stub.state().traceparents[0].clone().expect("a header");
    assert!(
        TraceParent::parse(&told).is_some_and(|parent| parent.is_sampled()),
        "{told}"
    );
    // Request, placement, and the request to the owner.
    assert_eq!(counts.dropped_queue.load(Relaxed), 3);

    // Each further try is a span of its own, within the client's own trace.
    stub.reply(Reply::Refuse(
        firsthop_shared::control::ControlCode::SessionExists,
    ));
    let call = front.request("POST", "/v1/realtime/calls");
    let call = call
        .header("content-type", "application/sdp")
        .header("traceparent", CLIENT);
    let made = call.body(OFFER).send().await.expect("a response");
    assert_eq!(made.status(), 201);
    let told = stub.state().traceparents.clone();
    assert_eq!(told.len(), 3);
    let ids = told[1..]
        .iter()
        .map(|told| told.as_deref().expect("a header"));
    let spans: Vec<&str> = ids.clone().map(|told| &told[36..52]).collect();
    assert!(
        ids.clone().all(|told| told[..35] == CLIENT[..35]),
        "{told:?}"
    );
    assert_ne!(spans[0], spans[1]);
    assert_eq!(counts.dropped_queue.load(Relaxed), 3 + 5);
}

#[tokio::test]
async fn the_owner_of_any_other_call_is_told_nothing() {
    let stage = Stage::new();
    let stub = Stub::start(&stage, &[10]).await;
    let front = stage.front(&[&stub]).await;
    let call = front.request("POST", "/v1/realtime/calls");
    let call = call
        .header("content-type", "application/sdp")
        .header("traceparent", CLIENT);
    assert_eq!(
        call.body(OFFER).send().await.expect("a response").status(),
        201
    );
    assert_eq!(stub.state().traceparents, [None]);
}
