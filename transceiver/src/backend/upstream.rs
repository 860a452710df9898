//! What waits for the server: the client's audio and events, held until there is a session to take them.

use std::collections::VecDeque;

use super::translator::Message;
use crate::limits;

/// The most audio that one message carries, in frames of 20 ms.
const PIECE_MAX: usize = 5;

/// The bounded queue towards a server.
///
/// Audio goes in messages of one frame to [`PIECE_MAX`]. Until it is opened, audio is held as samples (the newest are kept: what was said long ago is no turn any more) and events as they are.
/// Then they follow each other in the order in which they came; audio that the server does not take is dropped, the newest first, so that
/// what it has taken stays whole.
#[derive(Debug)]
pub(super) struct Upstream {
    /// Samples in 20 ms.
    frame: usize,
    /// How many samples are held.
    held_max: usize,
    open: bool,
    held: VecDeque<i16>,
    /// Samples of less than a frame that wait for the rest of it.
    partial: Vec<i16>,
    held_events: VecDeque<Message>,
    held_bytes: usize,
    messages: VecDeque<Message>,
    bytes: usize,
    /// Samples dropped.
    pub(super) unsent: u64,
    /// Events refused.
    pub(super) refused: u64,
}

impl Upstream {
    /// A queue that is not open, for audio of so many samples in 20 ms.
    pub(super) fn new(frame: usize) -> Self {
        Self {
            frame,
            held_max: limits::BACKEND_HELD.as_millis() as usize / 20 * frame,
            open: false,
            held: VecDeque::new(),
            partial: Vec::new(),
            held_events: VecDeque::new(),
            held_bytes: 0,
            messages: VecDeque::new(),
            bytes: 0,
            unsent: 0,
            refused: 0,
        }
    }

    pub(super) fn is_open(&self) -> bool {
        self.open
    }

    /// The server is ready: the events that were held follow, as `word` puts them, and then the audio, which is given back for that. The
    /// caller has put first what comes before it.
    pub(super) fn open(&mut self, word: impl Fn(Message) -> Message) -> Vec<i16> {
        self.open = true;
        self.held_bytes = 0;
        for event in std::mem::take(&mut self.held_events) {
            self.push(word(event));
        }
        std::mem::take(&mut self.held).into()
    }

    /// The connection is lost, and with it what was made for it.
    pub(super) fn close(&mut self) {
        self.open = false;
        self.partial.clear();
        self.messages.clear();
        self.bytes = 0;
    }

    /// Takes audio, of which `pack` makes messages.
    pub(super) fn hear(&mut self, pcm: &[i16], mut pack: impl FnMut(&[i16]) -> Message) {
        if !self.open {
            return self.hold(pcm);
        }
        self.partial.extend(pcm);
        if self.partial.len() < self.frame {
            return;
        }
        let mut partial = std::mem::take(&mut self.partial);
        for piece in partial.chunks(PIECE_MAX * self.frame) {
            self.push_audio(pack(piece), piece.len());
        }
        partial.clear();
        self.partial = partial;
    }

    /// Keeps audio until the server is ready.
    fn hold(&mut self, pcm: &[i16]) {
        self.held.extend(pcm);
        let over = self.held.len().saturating_sub(self.held_max);
        self.held.drain(..over);
        self.unsent += over as u64;
    }

    /// Takes a message that carries `samples` of audio, if there is room.
    fn push_audio(&mut self, message: Message, samples: usize) {
        if self.has_room(message.len()) {
            self.push(message);
        } else {
            self.unsent += samples as u64;
        }
    }

    /// Takes an event; returns false when there is no room.
    pub(super) fn push_event(&mut self, event: Message) -> bool {
        if self.open {
            let fits = self.has_room(event.len());
            if fits {
                self.push(event);
            }
            self.refused += u64::from(!fits);
            return fits;
        }
        let fits = self.held_events.len() < limits::BACKEND_HELD_EVENTS
            && self.held_bytes + event.len() <= limits::BACKEND_HELD_BYTES;
        if fits {
            self.held_bytes += event.len();
            self.held_events.push_back(event);
        }
        self.refused += u64::from(!fits);
        fits
    }

    /// Takes a message of our own: there is one for each thing that has happened, so these are few.
    pub(super) fn push(&mut self, message: Message) {
        self.bytes += message.len();
        self.messages.push_back(message);
    }

    pub(super) fn pop(&mut self) -> Option<Message> {
        let message = self.messages.pop_front()?;
        self.bytes -= message.len();
        Some(message)
    }

    fn has_room(&self, length: usize) -> bool {
        self.messages.len() < limits::BACKEND_UNSENT_MESSAGES
            && self.bytes + length <= limits::BACKEND_UNSENT_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_audio_and_the_first_events_are_held() {
        let mut up = Upstream::new(80);
        let samples: Vec<i16> = (0..40_005).map(|n| (n % 30_000) as i16).collect();
        up.hold(&samples);
        for n in 0..limits::BACKEND_HELD_EVENTS {
            assert!(up.push_event(Message::Text(n.to_string())));
        }
        assert!(!up.push_event(Message::Text("one too many".to_owned())));
        assert_eq!((up.unsent, up.refused), (5, 1));
        assert_eq!(up.open(|event| event), samples[5..]);
        assert_eq!(up.pop(), Some(Message::Text("0".to_owned())));
    }

    #[test]
    fn a_server_that_takes_nothing_costs_a_bounded_amount() {
        let mut up = Upstream::new(80);
        up.open(|event| event);
        let piece = Message::Text("x".repeat(2_000));
        for _ in 0..100_000 {
            up.push_audio(piece.clone(), 480);
        }
        assert!(up.bytes <= limits::BACKEND_UNSENT_BYTES);
        assert!(up.messages.len() <= limits::BACKEND_UNSENT_MESSAGES);
        assert_eq!(up.unsent / 480 + up.messages.len() as u64, 100_000);
        assert!(!up.push_event(Message::Text("y".repeat(limits::BACKEND_UNSENT_BYTES))));
        up.close();
        assert_eq!((up.pop(), up.bytes), (None, 0));
    }
}
