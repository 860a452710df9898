//! Traces of a call's set-up, for OpenTelemetry: which calls are traced, and how their spans reach a collector.
//!
//! A span is told when it has ended, with its times; nothing is kept open, and no thread has a current span. So a call that is not traced
//! costs nothing, and one that is costs a message to a queue for each span. [`Tracer::tell`] never waits: what finds no room in
//! the queue is counted and gone, and so is what the collector does not take in time.
//!
//! - [`Exporter`]: the queue, and what carries it to the collector as OTLP over HTTP;
//! - [`Sampler`]: which calls are traced, and how far a client's own word on it counts;
//! - [`Place`]: where a span stands, and the `traceparent` header (W3C Trace Context) that leads to it.

mod export;
mod place;
mod sampling;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Instant, SystemTime};

use opentelemetry::InstrumentationScope;
use opentelemetry::trace::{SpanContext, Status, TraceFlags, TraceState};
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanLinks};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use tokio::sync::mpsc;

pub use export::{ExportArgs, Exporter};
pub use opentelemetry::KeyValue;
pub use opentelemetry::trace::SpanKind;
pub use place::{Place, TRACEPARENT, TraceParent};
pub use sampling::{ASKED_PER_SEC, Sampler, Share};

/// A span that has ended.
#[derive(Clone, Debug)]
pub struct Span {
    /// Where it stands.
    pub place: Place,
    /// What it is, in a few words that do not vary.
    pub name: &'static str,
    /// Whether it asks, serves, or neither.
    pub kind: SpanKind,
    /// When it began.
    pub from: Instant,
    /// When it ended.
    pub to: Instant,
    /// What else there is to tell: no address of a client, no key, nothing that was said.
    pub attributes: Vec<KeyValue>,
    /// What went wrong, if anything did.
    pub failed: Option<String>,
}

impl Span {
    /// A span that told nothing else and went well, with the times of its beginning and end.
    #[must_use]
    pub fn new(
        place: Place,
        name: &'static str,
        kind: SpanKind,
        (from, to): (Instant, Instant),
    ) -> Self {
        Self {
            place,
            name,
            kind,
            from,
            to,
            attributes: Vec::new(),
            failed: None,
        }
    }

    /// The same, with what else there is to tell.
    #[must_use]
    pub fn about(self, attributes: impl Into<Vec<KeyValue>>) -> Self {
        Self {
            attributes: attributes.into(),
            ..self
        }
    }

    /// The same, with what went wrong, if anything did.
    #[must_use]
    pub fn failed(self, failed: Option<String>) -> Self {
        Self { failed, ..self }
    }
}

/// What became of spans.
#[derive(Debug, Default)]
pub struct Counts {
    /// Spans that the collector has taken.
    pub exported: AtomicU64,
    /// Spans that found no room in the queue.
    pub dropped_queue: AtomicU64,
    /// Spans that the collector did not take.
    pub dropped_collector: AtomicU64,
}

/// The counts on a metrics page, without traces as well: a metric that comes and goes is missed by alerts.
#[derive(Clone, Debug)]
pub struct CountsShown(pub Arc<Counts>);

impl Collector for CountsShown {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let help = "Spans of traced calls, by what became of them: exported, or dropped because the queue was full or the collector took none";
        let mut family =
            encoder.encode_descriptor("trace_spans", help, None, MetricType::Counter)?;
        for (outcome, count) in [
            ("exported", &self.0.exported),
            ("dropped_queue", &self.0.dropped_queue),
            ("dropped_collector", &self.0.dropped_collector),
        ] {
            let labels = [("outcome", outcome)];
            let metric = family.encode_family(&labels)?;
            ConstCounter::new(count.load(Relaxed)).encode(metric)?;
        }
        Ok(())
    }
}

/// The way of spans to the exporter. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Tracer {
    queue: mpsc::Sender<SpanData>,
    counts: Arc<Counts>,
    scope: InstrumentationScope,
}

impl Tracer {
    fn new(queue: mpsc::Sender<SpanData>, program: &'static str, counts: Arc<Counts>) -> Self {
        Self {
            queue,
            counts,
            scope: InstrumentationScope::builder(program).build(),
        }
    }

    /// Hands a span to the exporter, if there is room for it.
    pub fn tell(&self, span: Span) {
        let status = match span.failed {
            Some(description) => Status::error(description),
            None => Status::Unset,
        };
        let place = span.place;
        // Spans are timed by the clock that never jumps. What the other said long ago, it may have corrected since.
        let now = (Instant::now(), SystemTime::now());
        let data = SpanData {
            span_context: SpanContext::new(
                place.trace,
                place.span,
                TraceFlags::SAMPLED,
                false,
                TraceState::NONE,
            ),
            parent_span_id: place.parent,
            parent_span_is_remote: place.parent_is_remote,
            span_kind: span.kind,
            name: span.name.into(),
            start_time: wall(now, span.from),
            end_time: wall(now, span.to),
            attributes: span.attributes,
            dropped_attributes_count: 0,
            events: SpanEvents::default(),
            links: SpanLinks::default(),
            status,
            instrumentation_scope: self.scope.clone(),
        };
        if self.queue.try_send(data).is_err() {
            self.counts.dropped_queue.fetch_add(1, Relaxed);
        }
    }
}

/// What the wall's clock said at an instant, by what both clocks say now.
fn wall((instant, time): (Instant, SystemTime), at: Instant) -> SystemTime {
    match instant.checked_duration_since(at) {
        Some(ago) => time - ago,
        None => time + at.duration_since(instant),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn times_are_those_of_the_walls_clock_as_it_stands_when_a_span_is_told() {
        let began = Instant::now();
        let told = began + Duration::from_secs(7_200);
        // It has been set to this after the program's start.
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
        let ago = |seconds| time - Duration::from_secs(seconds);
        assert_eq!(wall((told, time), told), time);
        assert_eq!(
            wall((told, time), began + Duration::from_secs(7_198)),
            ago(2)
        );
        assert_eq!(wall((told, time), began), ago(7_200));
        let later = told + Duration::from_secs(1);
        assert_eq!(wall((told, time), later), time + Duration::from_secs(1));
    }
}
