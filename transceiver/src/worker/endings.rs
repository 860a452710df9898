//! Sessions that have ended of late: support asks for a call most often when it is over.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use firsthop_shared::address::SessionId;
use serde::Serialize;

use crate::limits;
use crate::session::SessionReport;

/// A call as support sees it.
#[derive(Clone, Debug, Serialize)]
pub struct CallReport {
    /// The name of the API key that it was made with.
    pub client: Option<String>,
    /// The application that it named.
    pub app: Option<String>,
    /// What kind of backend it has.
    pub backend_kind: &'static str,
    /// Its worker.
    pub shard: u8,
    /// The session.
    #[serde(flatten)]
    pub session: SessionReport,
}

/// A call that has ended.
#[derive(Clone, Debug, Serialize)]
pub struct Ended {
    /// Why: an [`EndReason::label`](crate::life::EndReason::label).
    pub reason: &'static str,
    /// How it stood at its end; nothing when a fault of ours has left nothing to tell.
    pub call: Option<Box<CallReport>>,
}

/// The last sessions of all workers that have ended: [`limits::ENDINGS_KEPT`] of them.
///
/// Touched when a session ends, and when somebody asks; by no packet.
#[derive(Clone, Debug, Default)]
pub struct Endings(Arc<Mutex<VecDeque<(SessionId, Instant, Ended)>>>);

impl Endings {
    /// Notes the end of a session at `now`.
    pub fn note(&self, id: SessionId, ended: Ended, now: Instant) {
        let mut last = self.lock();
        if last.len() == limits::ENDINGS_KEPT {
            last.pop_front();
        }
        last.push_back((id, now, ended));
    }

    /// The last session of this id that has ended, and when.
    #[must_use]
    pub fn find(&self, id: SessionId) -> Option<(Instant, Ended)> {
        let last = self.lock();
        let found = last.iter().rev().find(|(of, ..)| *of == id);
        found.map(|(_, at, ended)| (*at, ended.clone()))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, VecDeque<(SessionId, Instant, Ended)>> {
        // No code panics while it holds the lock; were it so, the list would still be whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_make_room_and_of_an_id_the_last_counts() {
        let endings = Endings::default();
        let now = Instant::now();
        let end = |reason| Ended { reason, call: None };
        endings.note(SessionId(7), end("hung_up"), now);
        endings.note(SessionId(8), end("reaped"), now);
        endings.note(SessionId(7), end("expired"), now);
        let reason = |id| endings.find(SessionId(id)).map(|(_, ended)| ended.reason);
        assert_eq!((reason(7), reason(8)), (Some("expired"), Some("reaped")));
        for id in 0..limits::ENDINGS_KEPT as u32 {
            endings.note(SessionId(100 + id), end("idle"), now);
        }
        assert_eq!(
            (reason(7), reason(8), reason(100)),
            (None, None, Some("idle"))
        );
    }
}
