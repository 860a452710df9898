//! Where a span stands in its trace, and the header that says so to the next program.

use std::collections::HashMap;

use opentelemetry::Context;
use opentelemetry::propagation::TextMapPropagator as _;
use opentelemetry::trace::{SpanId, TraceContextExt as _, TraceId};
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{IdGenerator as _, RandomIdGenerator};

/// The header of W3C Trace Context, section 3.2.
pub const TRACEPARENT: &str = "traceparent";

/// What a `traceparent` header says: a span of another program's, and whether that is recorded there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TraceParent {
    trace: TraceId,
    span: SpanId,
    sampled: bool,
}

impl TraceParent {
    /// Reads the value of the header; nothing when it is not one.
    #[must_use]
    pub fn parse(value: &str) -> Option<Self> {
        let header = HashMap::from([(TRACEPARENT.to_owned(), value.to_owned())]);
        let context = TraceContextPropagator::new().extract_with_context(&Context::new(), &header);
        let span = context.span();
        let found = span.span_context();
        found.is_valid().then(|| Self {
            trace: found.trace_id(),
            span: found.span_id(),
            sampled: found.is_sampled(),
        })
    }

    /// Whether who sent it records its own spans of this trace.
    #[must_use]
    pub fn is_sampled(&self) -> bool {
        self.sampled
    }
}

/// Where a span of ours stands. What has a place is recorded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    pub(super) trace: TraceId,
    pub(super) span: SpanId,
    /// Invalid when there is none.
    pub(super) parent: SpanId,
    pub(super) parent_is_remote: bool,
}

impl Place {
    /// The first span of a new trace.
    #[must_use]
    pub fn root() -> Self {
        Self {
            trace: RandomIdGenerator::default().new_trace_id(),
            span: new_span(),
            parent: SpanId::INVALID,
            parent_is_remote: false,
        }
    }

    /// Our first span under one of another program's.
    #[must_use]
    pub fn under(parent: &TraceParent) -> Self {
        Self {
            trace: parent.trace,
            span: new_span(),
            parent: parent.span,
            parent_is_remote: true,
        }
    }

    /// A span below this one.
    #[must_use]
    pub fn child(&self) -> Self {
        Self {
            trace: self.trace,
            span: new_span(),
            parent: self.span,
            parent_is_remote: false,
        }
    }

    /// The header that puts another program's spans below this one.
    #[must_use]
    pub fn traceparent(&self) -> String {
        format!("00-{}-{}-01", self.trace, self.span)
    }
}

fn new_span() -> SpanId {
    RandomIdGenerator::default().new_span_id()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_leads_to_the_span_that_wrote_it() {
        let root = Place::root();
        let header = root.traceparent();
        assert_eq!(header.len(), 55, "{header}");
        let parent = TraceParent::parse(&header).expect("a header");
        assert!(parent.is_sampled());
        let below = Place::under(&parent);
        assert_eq!((below.trace, below.parent), (root.trace, root.span));
        assert!(below.parent_is_remote && !below.child().parent_is_remote);
        assert_ne!(below.span, root.span);
        assert_eq!(below.child().parent, below.span);
    }

    #[test]
    fn what_is_no_header_is_nothing() {
        let trace = "0af7651916cd43dd8448eb211c80319c";
        for bad in [
            String::new(),
            "00".to_owned(),
            format!("00-{trace}-b7ad6b7169203331"),
            format!("ff-{trace}-b7ad6b7169203331-01"),
            format!("00-{trace}-0000000000000000-01"),
            format!("00-{}-b7ad6b7169203331-01", "0".repeat(32)),
            format!("00-{}-b7ad6b7169203331-01", trace.to_uppercase()),
            "00-ü-b7ad6b7169203331-01".to_owned(),
        ] {
            assert_eq!(TraceParent::parse(&bad), None, "{bad}");
        }
        let quiet = TraceParent::parse(&format!("00-{trace}-b7ad6b7169203331-00"));
        assert!(!quiet.expect("a header").is_sampled());
    }
}
