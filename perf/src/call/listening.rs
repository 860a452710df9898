//! What one client listens for in what it gets: the marks of its own recording, and how soon the server is quiet when it is spoken over.

use std::time::Instant;

use super::ear::{Ear, Outcome};
use super::interruption::{Interrupted, Interruptions};
use super::mark;
use super::recording::{Codec, Recording};
use super::speaking::FRAME;

/// Something that a client has learnt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum News {
    /// What became of a mark.
    Mark(Outcome),
    /// It has interrupted the server.
    Interrupted(Interrupted),
}

/// See the module.
pub struct Listening {
    codec: Codec,
    /// When the times that it is told begin.
    epoch: Instant,
    ear: Option<Ear>,
    interruptions: Interruptions,
}

impl Listening {
    /// Listens to a stream of a codec; to its marks when `ear` does. Times count from `epoch`.
    #[must_use]
    pub fn new(codec: Codec, ear: Option<Ear>, epoch: Instant) -> Self {
        Self {
            codec,
            epoch,
            ear,
            interruptions: Interruptions::new(codec),
        }
    }

    /// The client says frame number `frame`, which was due then.
    pub(super) fn said(&mut self, recording: &Recording, frame: u64, due: Instant) {
        // A frame is due when its last sample has been spoken.
        let spoken = due.checked_sub(FRAME).unwrap_or(self.epoch);
        let spoken = spoken.saturating_duration_since(self.epoch).as_nanos() as u64;
        if let Some(ear) = &mut self.ear {
            recording.cue(frame, ear, spoken);
        }
        if recording.is_onset(frame) {
            self.interruptions.voice(spoken);
        }
    }

    /// A packet of audio, by its timestamp in ticks of the codec.
    pub(super) fn packet(&mut self, ticks: u64, payload: &[u8], at_nanos: u64) {
        if let Some(ear) = &mut self.ear {
            let position = ticks / u64::from(self.codec.clock_rate() / mark::RATE);
            ear.packet(position, payload, at_nanos);
        }
        self.interruptions.packet(payload, at_nanos);
    }

    /// A message on the channel.
    pub(super) fn message(&mut self, text: &[u8], at_nanos: u64) {
        self.interruptions.event(text, at_nanos);
    }

    /// What was learnt, one after the other.
    pub(super) fn news(&mut self) -> Option<News> {
        let mark = self.ear.as_mut().and_then(Ear::outcome);
        mark.map(News::Mark)
            .or_else(|| self.interruptions.ended().map(News::Interrupted))
    }
}
