//! How promptly a call is silent when it is to be, and how far a backend speaks ahead of what is heard.

use std::fmt;
use std::time::{Duration, Instant};

use crate::times::Times;

/// What was said in one call.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Turns {
    /// Of each time that the backend cut off what was being played: from the arrival of its word, or the client's, until the frame with which the
    /// sound fades.
    pub barge_ins: Times,
    /// The longest of them.
    pub barge_in_max_us: u64,
    /// The most audio that ever waited to be played, in milliseconds.
    pub queue_peak_ms: u64,
    /// Since when a cut waits for its frame.
    cut: Option<Instant>,
}

impl Turns {
    /// Audio that is being played is cut off, which was asked for at `asked`.
    pub(super) fn cut(&mut self, asked: Instant) {
        self.cut.get_or_insert(asked);
    }

    /// The sound of what was cut is at its end at `now`: its fade leaves, or nothing is sent any more.
    pub(super) fn faded(&mut self, now: Instant) {
        let Some(cut) = self.cut.take() else { return };
        let took = now.saturating_duration_since(cut);
        self.barge_ins.add(took);
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.barge_in_max_us = self.barge_in_max_us.max(micros);
    }

    /// So much audio waits.
    pub(super) fn queued(&mut self, time: Duration) {
        let ms = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        self.queue_peak_ms = self.queue_peak_ms.max(ms);
    }
}

impl fmt::Display for Turns {
    /// For the log: names and values.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "barge_ins={} barge_in_max_us={} queue_peak_ms={}",
            self.barge_ins.count(),
            self.barge_in_max_us,
            self.queue_peak_ms
        )
    }
}
