//! How promptly a call is silent when it is to be, and how far a backend speaks ahead of what is heard.

use std::fmt;
use std::time::{Duration, Instant};

/// What was said in one call.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Turns {
    /// Times that the backend cut off what was being played.
    pub barge_ins: u64,
    /// The sum of the times from its word until the frame with which the sound fades, in microseconds.
    pub barge_in_us: u64,
    /// The longest of them.
    pub barge_in_max_us: u64,
    /// The most audio that ever waited to be played, in milliseconds.
    pub queue_peak_ms: u64,
    /// Since when a cut waits for its frame.
    cut: Option<Instant>,
}

impl Turns {
    /// What metrics sum up over ended calls: the name, and what it is.
    pub const SUMS: [(&'static str, &'static str); 3] = [
        (
            "barge_ins",
            "Times that what was being played was cut off, in ended calls",
        ),
        (
            "barge_in_microseconds",
            "Sum of the times from the backend's word to the frame with which the sound fades",
        ),
        (
            "queue_peak_milliseconds",
            "Sum over ended calls of the most audio that waited to be played",
        ),
    ];

    /// The addends of one call, in the order of [`Self::SUMS`].
    #[must_use]
    pub fn addends(&self) -> [u64; Self::SUMS.len()] {
        [self.barge_ins, self.barge_in_us, self.queue_peak_ms]
    }

    /// Audio that is being played is cut off.
    pub(super) fn cut(&mut self, now: Instant) {
        self.cut.get_or_insert(now);
    }

    /// A frame leaves.
    pub(super) fn sent(&mut self, now: Instant) {
        let Some(cut) = self.cut.take() else { return };
        let took = u64::try_from(now.saturating_duration_since(cut).as_micros());
        let took = took.unwrap_or(u64::MAX);
        self.barge_ins += 1;
        self.barge_in_us = self.barge_in_us.saturating_add(took);
        self.barge_in_max_us = self.barge_in_max_us.max(took);
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
            self.barge_ins, self.barge_in_max_us, self.queue_peak_ms
        )
    }
}
