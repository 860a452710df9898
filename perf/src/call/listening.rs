//! What one client listens for in what it gets: the marks of its own recording, and how soon the server is quiet when it is spoken over.

use std::ops::Range;
use std::time::Instant;

use super::client::Client;
use super::ear::{Ear, Outcome};
use super::interruption::{Interrupted, Interruptions};
use super::mark;
use super::recording::{Codec, Recording};
use super::speaking::{FRAME, Said};
use super::tail::Tail;

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
    tail: Tail,
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
            tail: Tail::default(),
        }
    }

    /// The client says a frame of the recording.
    pub(super) fn said(&mut self, recording: &Recording, said: Said) {
        // A frame is due when its last sample has been spoken.
        let spoken = said.due.checked_sub(FRAME).unwrap_or(self.epoch);
        let spoken = self.nanos(spoken);
        if let Some(ear) = &mut self.ear {
            if said.left_out > 0 {
                let marks = recording.marks_in(said.frame - said.left_out..said.frame);
                let nanos = FRAME.as_nanos() as u64 * said.left_out;
                ear.left_out(marks.count(), spoken.saturating_sub(nanos));
            }
            recording.cue(said.frame, ear, spoken);
        }
        if recording.is_onset(said.frame) {
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
        if !self.echoes() {
            self.tail.packet(payload);
        }
    }

    /// A message on the channel.
    pub(super) fn message(&mut self, text: &[u8], at_nanos: u64) {
        self.interruptions.event(text, at_nanos);
    }

    /// Time passes, whether anything comes or not.
    pub(super) fn pass(&mut self, now: Instant) {
        let now_nanos = self.nanos(now);
        if let Some(ear) = &mut self.ear {
            ear.expire(now_nanos);
        }
    }

    /// Whether what answers is an echo, by what came so far: then it has always something to say.
    fn echoes(&self) -> bool {
        self.ear.as_ref().is_some_and(Ear::has_heard)
    }

    /// In nanoseconds since the moment that times count from.
    fn nanos(&self, at: Instant) -> u64 {
        at.saturating_duration_since(self.epoch).as_nanos() as u64
    }

    /// What was learnt, one after the other.
    pub(super) fn news(&mut self) -> Option<News> {
        let mark = self.ear.as_mut().and_then(Ear::outcome);
        mark.map(News::Mark)
            .or_else(|| self.interruptions.ended().map(News::Interrupted))
    }
}

impl Client {
    /// Has it listen for more than packets; the times that [`Client::receive`] is told count from the same moment as those of `listening`.
    pub fn listen(&mut self, listening: Listening) {
        self.listening = Some(listening);
    }

    /// What it has learnt, one after the other.
    pub fn news(&mut self) -> Option<News> {
        self.listening.as_mut().and_then(Listening::news)
    }

    /// The time of it that counted is over: what had not come by then did not. Returns that time as packets are timed, if more should have come until its end; not when
    /// the server had fallen silent.
    pub(super) fn over(&mut self, counted: Range<Instant>) -> Option<Range<u64>> {
        let listening = self.listening.as_mut()?;
        listening.pass(counted.end);
        let rests = !listening.echoes() && listening.tail.is_silent(listening.codec);
        (!rests).then(|| listening.nanos(counted.start)..listening.nanos(counted.end))
    }
}
