//! What the log says of servers that do not speak their protocol: a warning, and never more than one a minute. Each session's last line counts
//! what it could not read.

use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use crate::limits;

/// When the log was warned last, whatever the worker.
static WARNED: Pace = Pace::new();

/// Who cannot read what is said, and who says it.
#[derive(Clone, Debug, Default)]
pub(super) struct Peer {
    /// The session.
    pub(super) session: u32,
    /// The server, as the log calls it.
    pub(super) server: String,
}

impl Peer {
    /// Warns, unless somebody has just been warned.
    pub(super) fn warn(&self, problem: &str) {
        if WARNED.due(Instant::now()) {
            let Self { session, server } = self;
            tracing::warn!(
                session,
                server,
                problem,
                "a server does not speak its protocol"
            );
        }
    }
}

/// Lets one through in so much time.
struct Pace(Mutex<Option<Instant>>);

impl Pace {
    const fn new() -> Self {
        Self(Mutex::new(None))
    }

    fn due(&self, now: Instant) -> bool {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let due =
            last.is_none_or(|at| now.saturating_duration_since(at) >= limits::BACKEND_OUTAGE_PAUSE);
        if due {
            *last = Some(now);
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_one_warning_in_a_while_however_many_sessions_meet_it() {
        let (pace, begin) = (Pace::new(), Instant::now());
        let warned = (0..240_u32)
            .filter(|n| pace.due(begin + *n * limits::BACKEND_OUTAGE_PAUSE / 60))
            .count();
        assert_eq!(warned, 4);
    }
}
