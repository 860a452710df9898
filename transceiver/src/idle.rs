//! The idle cap: a session in which nothing is said or sent is warned, told, and ended.
//!
//! What counts is speech (from the backend's `speech_started` to its `speech_stopped`), an event of the client's or of a sideband's,
//! and whatever the backend says or plays. Silence that is sent as audio does not count, nor do checks, nor our own warnings.

use std::time::{Duration, Instant};

use crate::life::{EndReason, Limit, LimitStep};

/// The clock of a session that may be idle for so long, or for ever.
#[derive(Clone, Debug)]
pub struct Idle {
    timeout: Option<Duration>,
    connected: bool,
    speaking: bool,
    limit: Option<Limit>,
}

impl Idle {
    /// A session that has not connected yet: it cannot be idle.
    #[must_use]
    pub fn new(timeout: Option<Duration>) -> Self {
        Self {
            timeout,
            connected: false,
            speaking: false,
            limit: None,
        }
    }

    /// The client is there: the time runs.
    pub fn connected(&mut self, now: Instant) {
        self.connected = true;
        self.active(now);
    }

    /// Something was said or sent. Too late for a client that has been told of the end.
    pub fn active(&mut self, now: Instant) {
        let told = self.limit.as_ref().is_some_and(Limit::is_told);
        if let Some(timeout) = self.timeout.filter(|_| self.connected && !told) {
            self.limit = Some(Limit::ending(now + timeout, EndReason::Idle, now));
        }
    }

    /// Audio of the client's came: it counts while the user speaks. A client that falls silent by sending nothing at all may never be told
    /// to have stopped.
    pub fn heard(&mut self, now: Instant) {
        if self.speaking {
            self.active(now);
        }
    }

    /// Whether the user speaks, as the backend says.
    pub fn speaking(&mut self, speaking: bool, now: Instant) {
        if self.speaking != speaking {
            self.speaking = speaking;
            self.active(now);
        }
    }

    /// When [`Idle::poll`] has the next step.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.limit.as_ref()?.deadline()
    }

    /// The next step that is due; call until there is none.
    pub fn poll(&mut self, now: Instant) -> Option<LimitStep> {
        self.limit.as_mut()?.poll(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(count: u64) -> Duration {
        Duration::from_secs(count)
    }

    #[test]
    fn silence_is_warned_of_told_and_ended() {
        let start = Instant::now();
        let mut idle = Idle::new(Some(seconds(300)));
        idle.active(start);
        assert_eq!(idle.deadline(), None, "nobody is there yet");
        idle.connected(start);
        assert_eq!(idle.poll(start + seconds(239)), None);
        assert_eq!(idle.poll(start + seconds(240)), Some(LimitStep::Warn(60)));
        assert_eq!(idle.poll(start + seconds(300)), Some(LimitStep::Expire));
        idle.active(start + seconds(300));
        assert_eq!(idle.poll(start + seconds(301)), Some(LimitStep::End));
    }

    #[test]
    fn activity_after_the_warning_begins_the_time_anew() {
        let start = Instant::now();
        let mut idle = Idle::new(Some(seconds(300)));
        idle.connected(start);
        assert_eq!(idle.poll(start + seconds(250)), Some(LimitStep::Warn(60)));
        idle.active(start + seconds(250));
        assert_eq!(idle.poll(start + seconds(489)), None);
        assert_eq!(idle.poll(start + seconds(490)), Some(LimitStep::Warn(60)));
    }

    #[test]
    fn who_speaks_for_long_is_not_idle() {
        let start = Instant::now();
        let mut idle = Idle::new(Some(seconds(10)));
        idle.connected(start);
        idle.speaking(true, start + seconds(1));
        for second in 2..100 {
            idle.heard(start + seconds(second));
            assert_eq!(idle.poll(start + seconds(second)), None);
        }
        idle.speaking(false, start + seconds(100));
        // Silence that is sent is silence.
        idle.heard(start + seconds(101));
        assert_eq!(idle.deadline(), Some(start + seconds(105)));
    }

    #[test]
    fn without_a_timeout_nothing_is_ever_due() {
        let mut idle = Idle::new(None);
        idle.connected(Instant::now());
        assert_eq!(idle.deadline(), None);
    }
}
