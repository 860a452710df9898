//! What the embedded echo of a transceiver waits on purpose: no delay of the system, and subtracted from what is measured through it.
//!
//! The echo begins when it has so much audio in hand (`DELAY` in the transceiver's `audio/echo.rs`). How long that is to a caller depends on when it
//! begins to count:
//!
//! ```text
//! 0 ms      20 ms               80 ms
//! │ frame 1 │ 2, 3              │ frame 4 is whole: the echo begins, with frame 1
//! │         └ frame 1 leaves ───┘ BETWEEN_PACKETS
//! └ its first sample is spoken ─┘ FROM_MOUTH
//! ```
//!
//! So who counts from a spoken sample (`perf calls`, by marks in the audio) subtracts one frame more than who counts from the first packet sent to the
//! first one back (`perf setup`).

use std::time::Duration;

use super::speaking::FRAME;

/// From the first sample spoken until its packet would be sent back, if all else took no time.
pub const FROM_MOUTH: Duration = Duration::from_millis(80);

/// From the first packet sent until the first one would be sent back: a frame has been spoken when its packet leaves.
pub const BETWEEN_PACKETS: Duration = FROM_MOUTH.saturating_sub(FRAME);

// The echo has frames in hand, and no part of one.
const _: () = assert!(
    FROM_MOUTH.as_millis().is_multiple_of(FRAME.as_millis()) && BETWEEN_PACKETS.as_millis() > 0
);
