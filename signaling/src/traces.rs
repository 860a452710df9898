//! Traces of calls that are made here: which are traced, and their spans.
//!
//! ```text
//! POST /v1/realtime/calls      the request, from its head to its response; below the client's own span, where it sent one
//! ├── placement                choosing an owner, minting the ufrag
//! └── control create           the request to the owner, whose spans are below this one; once more for each further try
//! ```

use std::time::Instant;

use axum::http::HeaderMap;
use axum::response::Response;
use firsthop_service::traces::{
    KeyValue, Place, Sampler, Share, Span, SpanKind, TRACEPARENT, TraceParent, Tracer,
};
use firsthop_shared::address::SessionId;

use crate::calls::unix_millis;
use crate::error::ApiError;
use crate::owner::OwnerError;
use crate::placement;

/// Decides which calls are traced.
#[derive(Debug)]
pub struct Traces {
    tracer: Tracer,
    sampler: Sampler,
}

impl Traces {
    /// Traces this share of calls.
    #[must_use]
    pub fn new(tracer: Tracer, share: Share) -> Self {
        Self {
            tracer,
            sampler: Sampler::new(share),
        }
    }

    /// The trace of a call whose request came at `from`, when it is traced; `name` is `POST` and the route. Only for who has shown a key: what a client says of its own trace
    /// counts.
    #[must_use]
    pub fn begin(
        &self,
        headers: &HeaderMap,
        name: &'static str,
        from: Instant,
    ) -> Option<CallTrace> {
        let client = headers
            .get(TRACEPARENT)
            .and_then(|value| value.to_str().ok())
            .and_then(TraceParent::parse);
        let second = unix_millis() / 1_000;
        let dice = rand::random::<f64>();
        let place = self.sampler.decide(client.as_ref(), dice, second)?;
        Some(CallTrace {
            tracer: self.tracer.clone(),
            place,
            name,
            from,
        })
    }
}

/// The trace of one call.
#[derive(Debug)]
pub struct CallTrace {
    tracer: Tracer,
    place: Place,
    name: &'static str,
    from: Instant,
}

/// A request to an owner that is on its way.
#[derive(Clone, Copy, Debug)]
pub struct Asking {
    place: Place,
    from: Instant,
}

impl Asking {
    /// The header that puts the owner's spans below this one.
    #[must_use]
    pub fn traceparent(&self) -> String {
        self.place.traceparent()
    }
}

impl CallTrace {
    /// The header that puts the spans of another cluster's signaling below the request.
    #[must_use]
    pub fn traceparent(&self) -> String {
        self.place.traceparent()
    }

    /// A place for the call has been looked for since `from`; the request to its owner follows.
    #[must_use]
    pub fn placed(&self, from: Instant, place: &placement::Place, session: SessionId) -> Asking {
        let to = Instant::now();
        let span = Span::new(
            self.place.child(),
            "placement",
            SpanKind::Internal,
            (from, to),
        );
        self.tracer.tell(span.about([
            KeyValue::new("firsthop.session", i64::from(session.0)),
            KeyValue::new("firsthop.owner", place.owner.to_string()),
            KeyValue::new("firsthop.shard", i64::from(place.shard.0)),
        ]));
        Asking {
            place: self.place.child(),
            from: to,
        }
    }

    /// The owner has answered, or has not.
    pub fn answered<T>(
        &self,
        asking: Asking,
        place: &placement::Place,
        result: &Result<T, OwnerError>,
    ) {
        let control = place.control;
        let times = (asking.from, Instant::now());
        let span = Span::new(asking.place, "control create", SpanKind::Client, times)
            .about([
                KeyValue::new("server.address", control.ip().to_string()),
                KeyValue::new("server.port", i64::from(control.port())),
            ])
            .failed(result.as_ref().err().map(ToString::to_string));
        self.tracer.tell(span);
    }

    /// The request is answered.
    pub fn end(self, result: &Result<Response, ApiError>) {
        let (status, failed) = match result {
            Ok(response) => (response.status(), None),
            Err(error) => (error.status, Some(error.code.to_owned())),
        };
        let times = (self.from, Instant::now());
        let span = Span::new(self.place, self.name, SpanKind::Server, times)
            .about([
                KeyValue::new("http.request.method", "POST"),
                KeyValue::new("http.route", self.name.trim_start_matches("POST ")),
                KeyValue::new("http.response.status_code", i64::from(status.as_u16())),
            ])
            // What a client did wrong is no failure of ours.
            .failed(failed.filter(|_| status.is_server_error()));
        self.tracer.tell(span);
    }
}
