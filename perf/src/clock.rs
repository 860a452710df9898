//! The clock by which the kernel stamps packets.

use std::time::{SystemTime, UNIX_EPOCH};

/// Nanoseconds since the Unix epoch.
#[must_use]
pub fn wall_nanos() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_nanos() as u64)
}

/// Nanoseconds in milliseconds.
#[must_use]
pub fn millis(nanos: u64) -> f64 {
    nanos as f64 / 1e6
}
