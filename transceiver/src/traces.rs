//! The spans of a traced call's set-up, below signaling's own.
//!
//! ```text
//! control create (signaling's)
//! └── create session           the control request, from its head to its answer
//!     ├── offer                from the worker's queue to the answer that it has made
//!     ├── set-up               from the answer until audio flows both ways
//!     │   ├── first STUN       until the client's first verified check
//!     │   ├── ICE              until our first check is answered
//!     │   ├── DTLS             until the handshake is done
//!     │   ├── channel          until the data channel is open
//!     │   ├── first audio in   from DTLS to the client's first packet
//!     │   └── first audio out  from DTLS to the first packet to it
//!     └── backend connect      from the answer to the model server's own, where there is a server
//! ```
//!
//! Whether a call is traced, signaling has decided: there is a span where its request says so. The spans of the set-up are told all at once,
//! by the worker, when the last of it is there, when it has taken as long as it may ([`limits::CONNECT_TIMEOUT`]), or when the session
//! ends. Until then a traced session costs one look at its clock for each packet, and one that is not traced nothing.

use std::time::{Duration, Instant};

use axum::http::HeaderMap;
use firsthop_service::traces::{KeyValue, Place, Span, SpanKind, TRACEPARENT, TraceParent, Tracer};

use crate::audio::{BackendReport, BackendState};
use crate::life::{EndReason, Phase};
use crate::limits;

/// The trace of one call.
#[derive(Clone, Debug)]
pub struct CallTrace {
    tracer: Tracer,
    /// The place of the span `create session`.
    place: Place,
    from: Instant,
}

/// How far a set-up has come.
#[derive(Clone, Copy, Debug)]
pub struct SetUpTimes {
    /// When the answer was made.
    pub answered: Instant,
    /// When each phase was reached.
    pub phases: [Option<Instant>; Phase::ALL.len()],
    /// Whether the offer has a channel.
    pub has_channel: bool,
    /// What the backend has to tell.
    pub backend: BackendReport,
    /// Why the session has ended, if it has.
    pub ended: Option<EndReason>,
}

impl SetUpTimes {
    fn at(&self, phase: Phase) -> Option<Instant> {
        self.phases[phase as usize]
    }

    /// Whether there is nothing to wait for any more.
    #[must_use]
    pub fn is_over(&self, now: Instant) -> bool {
        let channel = !self.has_channel || self.at(Phase::Channel).is_some();
        let audio = self.at(Phase::AudioIn).is_some() && self.at(Phase::AudioOut).is_some();
        let backend = self.backend.state != BackendState::Connecting;
        (channel && audio && backend)
            || self.ended.is_some()
            || now.saturating_duration_since(self.answered) >= limits::CONNECT_TIMEOUT
    }
}

impl CallTrace {
    /// The trace of a call whose control request has these headers, when signaling traces it.
    #[must_use]
    pub fn begin(tracer: Option<&Tracer>, headers: &HeaderMap, from: Instant) -> Option<Self> {
        let tracer = tracer?;
        let value = headers.get(TRACEPARENT)?.to_str().ok()?;
        let parent = TraceParent::parse(value).filter(TraceParent::is_sampled)?;
        Some(Self {
            tracer: tracer.clone(),
            place: Place::under(&parent),
            from,
        })
    }

    /// The control request is answered; the worker had it from `queued` on, if it came that far.
    pub fn created(&self, session: u32, queued: Option<Instant>, failed: Option<String>) {
        let now = Instant::now();
        if let Some(queued) = queued {
            let place = self.place.child();
            let offer = Span::new(place, "offer", SpanKind::Internal, (queued, now));
            self.tracer.tell(offer.failed(failed.clone()));
        }
        let times = (self.from, now);
        let span = Span::new(self.place, "create session", SpanKind::Server, times)
            .about([KeyValue::new("firsthop.session", i64::from(session))])
            .failed(failed);
        self.tracer.tell(span);
    }

    /// The set-up is over.
    pub fn set_up(&self, session: u32, backend: &'static str, times: &SetUpTimes, now: Instant) {
        let set_up = self.place.child();
        let answered = times.answered;
        // Each begins where the one before has ended.
        let after = |before: &[Phase]| {
            let reached = before.iter().filter_map(|phase| times.at(*phase));
            reached.max().unwrap_or(answered)
        };
        let mut last = answered;
        for (phase, name, from) in [
            (Phase::FirstCheck, "first STUN", answered),
            (Phase::Ice, "ICE", after(&[Phase::FirstCheck])),
            (Phase::Dtls, "DTLS", after(&[Phase::Ice])),
            (Phase::Channel, "channel", after(&[Phase::Dtls])),
            (Phase::AudioIn, "first audio in", after(&[Phase::Dtls])),
            (Phase::AudioOut, "first audio out", after(&[Phase::Dtls])),
        ] {
            let Some(to) = times.at(phase) else {
                continue;
            };
            last = last.max(to);
            let place = set_up.child();
            let times = (from.min(to), to);
            self.tracer
                .tell(Span::new(place, name, SpanKind::Internal, times));
        }
        // Without DTLS there was no call.
        let failed = match times.at(Phase::Dtls) {
            Some(_) => None,
            None => Some(
                times
                    .ended
                    .map_or("not_connected", EndReason::label)
                    .to_owned(),
            ),
        };
        let end = if failed.is_some() { now } else { last };
        let span = Span::new(set_up, "set-up", SpanKind::Internal, (answered, end))
            .about([
                KeyValue::new("firsthop.session", i64::from(session)),
                KeyValue::new("firsthop.backend", backend),
            ])
            .failed(failed);
        self.tracer.tell(span);
        self.backend(times, now);
    }

    fn backend(&self, times: &SetUpTimes, now: Instant) {
        let from = times.answered;
        let (to, failed) = match (times.backend.state, times.backend.connect_ms) {
            (BackendState::Local, _) => return,
            (_, Some(ms)) => (from + Duration::from_millis(ms), None),
            (_, None) => (now, Some("no connection".to_owned())),
        };
        let place = self.place.child();
        let span = Span::new(place, "backend connect", SpanKind::Client, (from, to));
        self.tracer.tell(span.failed(failed));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_up_is_over_when_audio_flows_or_when_it_cannot_come_any_more() {
        let start = Instant::now();
        let mut times = SetUpTimes {
            answered: start,
            phases: [None; Phase::ALL.len()],
            has_channel: true,
            backend: BackendReport::default(),
            ended: None,
        };
        assert!(!times.is_over(start));
        for phase in [Phase::Dtls, Phase::AudioIn, Phase::AudioOut] {
            times.phases[phase as usize] = Some(start);
        }
        assert!(!times.is_over(start), "the channel is missing");
        times.phases[Phase::Channel as usize] = Some(start);
        assert!(times.is_over(start));
        times.backend.state = BackendState::Connecting;
        assert!(!times.is_over(start), "the model server is missing");
        assert!(times.is_over(start + limits::CONNECT_TIMEOUT));
        times.ended = Some(EndReason::HungUp);
        assert!(times.is_over(start));
    }
}
