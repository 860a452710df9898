//! What a client says, and when each frame of it is due.

use std::sync::Arc;
use std::time::{Duration, Instant};

use str0m::media::Pt;

use super::recording::Recording;
use super::stamp::Stamp;

/// Of what length the packets of a recording are.
pub const FRAME: Duration = Duration::from_millis(20);

/// How much later than due a frame may be sent; what is later is left out, so that a stall of the generator is not made up with a burst.
const STALL: Duration = Duration::from_millis(200);

/// A frame to be sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Said {
    /// Its number, those that were left out counted too.
    pub(super) frame: u64,
    /// How many before it were left out.
    pub(super) left_out: u64,
    /// When it was due.
    pub(super) due: Instant,
}

/// A recording that is being said, from when DTLS is up.
#[derive(Debug)]
pub(super) struct Speech {
    pub(super) recording: Recording,
    next: Option<Instant>,
    frame: u64,
    pub(super) pt: Option<Pt>,
    /// The mark of the first frame, where frames are marked.
    stamp: Option<Stamp>,
}

impl Speech {
    /// A recording that has not begun.
    pub(super) fn new(recording: Recording) -> Self {
        Self {
            recording,
            next: None,
            frame: 0,
            pt: None,
            stamp: None,
        }
    }

    /// Its first frame is due now.
    pub(super) fn begin(&mut self, now: Instant) {
        self.next = Some(now);
    }

    /// When the next frame is due.
    pub(super) fn next(&self) -> Option<Instant> {
        self.next
    }

    /// Marks frames from now on, the first with `first`; `sent` frames went before it.
    pub(super) fn stamp(&mut self, first: Stamp, sent: u64) {
        let count = first.count.wrapping_sub(sent as u32);
        self.stamp = Some(Stamp { count, ..first });
    }

    /// The frame that is due, if one is.
    pub(super) fn say(&mut self, now: Instant) -> Option<Said> {
        let due = self.next.filter(|due| *due <= now)?;
        let behind = now.duration_since(due);
        let left_out = if behind > STALL {
            (behind.as_nanos() / FRAME.as_nanos()) as u64
        } else {
            0
        };
        let due = due + FRAME * left_out as u32;
        self.next = Some(due + FRAME);
        let frame = self.frame + left_out;
        self.frame = frame + 1;
        Some(Said {
            frame,
            left_out,
            due,
        })
    }

    /// What a frame carries, when `sent` were sent before it.
    pub(super) fn payload(&self, frame: u64, sent: u64) -> Arc<[u8]> {
        let mut payload = self.recording.frame(frame);
        if let Some(first) = self.stamp {
            let count = first.count.wrapping_add(sent as u32);
            // The recording is shared with other clients.
            Stamp { count, ..first }.write(Arc::make_mut(&mut payload));
        }
        payload
    }
}

#[cfg(test)]
mod tests {
    use super::super::recording::Codec;
    use super::*;

    #[test]
    fn frames_are_due_every_20_ms_and_a_stall_is_not_made_up() {
        let recording = Recording::new(Codec::Pcmu).expect("a recording");
        let mut speech = Speech::new(recording);
        let start = Instant::now();
        assert_eq!(speech.say(start), None);
        speech.begin(start);
        let frame = |n: u64| Said {
            frame: n,
            left_out: 0,
            due: start + FRAME * n as u32,
        };
        assert_eq!(speech.say(start), Some(frame(0)));
        assert_eq!(speech.say(start), None);
        // Late, but not too late: all of them are said, and say when they were due.
        let late = start + Duration::from_millis(70);
        let said: Vec<_> = std::iter::from_fn(|| speech.say(late)).collect();
        assert_eq!(said, [frame(1), frame(2), frame(3)]);
        // Too late.
        let stalled = start + Duration::from_millis(1_015);
        let left_out = Said {
            left_out: 46,
            ..frame(50)
        };
        assert_eq!(speech.say(stalled), Some(left_out));
        assert_eq!(speech.say(stalled), None);
        assert_eq!(speech.next(), Some(frame(51).due));
    }
}
