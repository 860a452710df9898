//! The last packets that a client got: whether their sender had fallen silent, and so may have stopped sending (RFC 3551, section 4.1). That there is no more until the
//! call's end is then no gap. Only the packet after a pause is marked, and here there is none.

use std::collections::VecDeque;

use super::decoding::{Decoder, loudness};
use super::interruption::SOUND;
use super::recording::Codec;

/// How many packets are kept: fewer than a transceiver sends of silence before it stops (`silence_tail` in its `audio/playout.rs`, 200 ms).
const KEPT: usize = 8;

/// How many of them a decoder takes to settle that has not heard those before.
const SETTLING: usize = 2;

/// See the module.
#[derive(Default)]
pub(super) struct Tail(VecDeque<Vec<u8>>);

impl Tail {
    /// A packet came.
    pub(super) fn packet(&mut self, payload: &[u8]) {
        let mut kept = if self.0.len() < KEPT {
            Vec::new()
        } else {
            self.0.pop_front().unwrap_or_default()
        };
        kept.clear();
        kept.extend_from_slice(payload);
        self.0.push_back(kept);
    }

    /// Whether there is nothing to be heard in the last packets; not so when there were too few to tell.
    pub(super) fn is_silent(&self, codec: Codec) -> bool {
        let Some(mut decoder) = Decoder::new(codec).filter(|_| self.0.len() == KEPT) else {
            return false;
        };
        let mut samples = Vec::new();
        let mut loudest: f32 = 0.0;
        for (n, payload) in self.0.iter().enumerate() {
            samples.clear();
            decoder.decode(payload, &mut samples);
            if n >= SETTLING {
                loudest = loudest.max(loudness(&samples));
            }
        }
        loudest < SOUND
    }
}

#[cfg(test)]
mod tests {
    use super::super::recording::Recording;
    use super::*;

    #[test]
    fn a_sender_is_silent_once_its_last_packets_are() {
        for codec in [Codec::Opus, Codec::Pcmu] {
            let recording = Recording::new(codec).expect("a recording");
            let after = |frames: u64| {
                let mut tail = Tail::default();
                for n in 0..frames {
                    tail.packet(&recording.frame(n));
                }
                tail.is_silent(codec)
            };
            assert!(!after(140), "it speaks");
            assert!(!after(153), "it has just stopped");
            assert!(after(170), "the pause");
            assert!(!after(7), "too few");
        }
    }
}
