//! Spans on their way to a collector: what arrives there, and what becomes of them when it takes none.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use firsthop_service::traces::{
    Counts, ExportArgs, Exporter, KeyValue, Place, Span, SpanKind, TraceParent, Tracer,
};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span as Received;
use prost::Message as _;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};

/// Longer than anything here takes, on any machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// The signal's requests, as a collector gets them.
type Requests = mpsc::UnboundedReceiver<ExportTraceServiceRequest>;

/// A collector that takes everything. Returns its base URL.
async fn collector() -> (String, Requests) {
    let (sender, requests) = mpsc::unbounded_channel();
    let take = |State(sender): State<mpsc::UnboundedSender<_>>, headers: HeaderMap, body: Bytes| async move {
        assert_eq!(headers["content-type"], "application/x-protobuf");
        let request = ExportTraceServiceRequest::decode(body).expect("protobuf");
        sender.send(request).expect("a test that listens");
        StatusCode::OK
    };
    let routes = axum::Router::new()
        .route("/base/v1/traces", post(take))
        .with_state(sender);
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("bound");
    tokio::spawn(async move { axum::serve(listener, routes).await });
    (format!("http://{address}/base/"), requests)
}

fn open(endpoint: &str) -> (Tracer, Exporter, Arc<Counts>) {
    let counts = Arc::new(Counts::default());
    let args = ExportArgs {
        otlp_endpoint: Some(endpoint.to_owned()),
        otlp_service_name: None,
    };
    let opened = args.open("test", Arc::clone(&counts)).expect("settings");
    let (tracer, exporter) = opened.expect("an endpoint");
    (tracer, exporter, counts)
}

fn span(place: Place) -> Span {
    let now = Instant::now();
    let times = (now - Duration::from_millis(250), now);
    Span::new(place, "one", SpanKind::Server, times).about([KeyValue::new("firsthop.session", 7)])
}

fn spans(request: &ExportTraceServiceRequest) -> Vec<Received> {
    let resources = request.resource_spans.iter();
    let scopes = resources.flat_map(|resource| &resource.scope_spans);
    scopes.flat_map(|scope| scope.spans.clone()).collect()
}

#[tokio::test]
async fn spans_arrive_with_their_places_times_and_the_program_s_name() {
    let (endpoint, mut requests) = collector().await;
    let (tracer, exporter, counts) = open(&endpoint);
    let (stop, stopping) = watch::channel(false);
    let running = tokio::spawn(exporter.run(stopping));

    let client = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let root = Place::under(&TraceParent::parse(client).expect("a header"));
    tracer.tell(Span {
        failed: Some("refused".to_owned()),
        kind: SpanKind::Client,
        ..span(root.child())
    });
    tracer.tell(span(root));
    let request = tokio::time::timeout(PATIENCE, requests.recv()).await;
    let request = request.expect("in time").expect("a collector");
    let resource = request.resource_spans[0]
        .resource
        .clone()
        .expect("a resource");
    let name = resource.attributes.iter().find(|a| a.key == "service.name");
    let name = name.and_then(|a| a.value.clone()?.value);
    assert_eq!(name, Some(Value::StringValue("firsthop-test".to_owned())));
    let both = spans(&request);
    assert_eq!(both.len(), 2);
    let (child, first) = (&both[0], &both[1]);
    let hex = |bytes: &[u8]| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
    assert_eq!(hex(&first.trace_id), "0af7651916cd43dd8448eb211c80319c");
    assert_eq!(hex(&first.parent_span_id), "b7ad6b7169203331");
    assert_eq!(child.trace_id, first.trace_id);
    assert_eq!(child.parent_span_id, first.span_id);
    // Two clocks are read one after the other.
    let took = first.end_time_unix_nano - first.start_time_unix_nano;
    assert_eq!(took / 1_000_000, 250);
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("a date");
    let ended = Duration::from_nanos(first.end_time_unix_nano);
    assert!(now.abs_diff(ended) < PATIENCE, "{ended:?} at {now:?}");
    assert_eq!(child.status.clone().expect("a status").message, "refused");

    // What is told last is not lost by the end of the program.
    tracer.tell(span(root.child()));
    stop.send_replace(true);
    running.await.expect("ended");
    let mut count = 0;
    while let Ok(request) = requests.try_recv() {
        count += spans(&request).len();
    }
    assert_eq!(count, 1);
    assert_eq!(counts.exported.load(Relaxed), 3);
    assert_eq!(counts.dropped_collector.load(Relaxed), 0);
}

#[tokio::test]
async fn what_no_collector_takes_is_counted() {
    // Bound, and served by nobody: whoever connects waits in vain.
    let silent = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = silent.local_addr().expect("bound");
    // Bound no longer: whoever connects is refused.
    let gone = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let gone = gone.local_addr().expect("bound");
    for address in [address, gone] {
        let (tracer, exporter, counts) = open(&format!("http://{address}"));
        let (stop, stopping) = watch::channel(false);
        let running = tokio::spawn(exporter.run(stopping));
        tracer.tell(span(Place::root()));
        let dropped = async {
            while counts.dropped_collector.load(Relaxed) == 0 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(PATIENCE, dropped)
            .await
            .expect("counted");
        stop.send_replace(true);
        running.await.expect("ended");
        assert_eq!(counts.exported.load(Relaxed), 0);
    }
}

#[tokio::test]
async fn a_full_queue_takes_no_time_and_is_counted() {
    // Nobody runs the exporter.
    let (tracer, exporter, counts) = open("http://127.0.0.1:9");
    let root = Place::root();
    while counts.dropped_queue.load(Relaxed) < 100 {
        tracer.tell(span(root.child()));
    }
    drop(exporter);
    tracer.tell(span(root));
    assert_eq!(counts.dropped_queue.load(Relaxed), 101);
    assert_eq!(counts.exported.load(Relaxed), 0);
}
