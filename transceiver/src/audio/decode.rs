//! Decodes a client's packets to 24 kHz mono PCM, and makes up for those that are missing.
//!
//! Opus decodes at 24 kHz directly, so nothing is resampled. A lost packet is restored from the in-band forward error correction
//! of the packet after it when that is here and carries any (RFC 6716, section 2.1.7); otherwise the decoder conceals it: it
//! goes on with the last sound and fades, or makes comfort noise after a DTX packet.

use super::codec::{Codec, CodecError, MAX_PACKET};
use super::{FRAME, SAMPLE_RATE};

/// What took the place of a missing packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// The forward error correction of the packet after it.
    Recovered,
    /// Made up by the decoder.
    Concealed,
}

/// A decoder of one stream.
pub struct Decoder {
    codec: Codec,
    state: State,
    /// Samples in the last packet: what a missing one is assumed to hold.
    last: usize,
}

enum State {
    Opus(opus::Decoder),
}

impl Decoder {
    /// A decoder with no history.
    ///
    /// # Errors
    /// The codec library could not make one (out of memory).
    pub fn new(codec: Codec) -> Result<Self, CodecError> {
        let state = match codec {
            Codec::Opus => State::Opus(
                opus::Decoder::new(SAMPLE_RATE, opus::Channels::Mono)
                    .map_err(CodecError::opus("create an Opus decoder"))?,
            ),
        };
        Ok(Self {
            codec,
            state,
            last: FRAME,
        })
    }

    /// Appends the samples of one packet to `pcm`, and returns how many.
    ///
    /// An empty payload is no packet: it is concealed, as long as the last one.
    ///
    /// # Errors
    /// The payload is not of this codec. `pcm` is unchanged then, and the decoder can go on.
    pub fn decode(&mut self, payload: &[u8], pcm: &mut Vec<i16>) -> Result<usize, CodecError> {
        let State::Opus(decoder) = &mut self.state;
        let room = if payload.is_empty() {
            self.last
        } else {
            MAX_PACKET
        };
        let samples = append(pcm, room, |out| decoder.decode(payload, out, false))?;
        self.last = samples;
        Ok(samples)
    }

    /// Appends `samples` samples for something missing: from `next`, the payload of the packet right after it, as far as that
    /// can restore it, and made up otherwise. Returns where the last part came from.
    ///
    /// `samples` is rounded down to 2.5 ms, the smallest piece that Opus makes. Forward error correction covers the one packet
    /// before `next`, so of a longer hole only its end is restored.
    ///
    /// # Errors
    /// `next` is not of this codec. `pcm` may hold concealed samples then.
    pub fn fill(
        &mut self,
        samples: usize,
        next: Option<&[u8]>,
        pcm: &mut Vec<i16>,
    ) -> Result<Origin, CodecError> {
        const PIECE: usize = SAMPLE_RATE as usize / 400;
        let State::Opus(decoder) = &mut self.state;
        let samples = samples - samples % PIECE;
        let restorable = match next {
            Some(payload) if !self.codec.is_dtx(payload) => {
                self.codec.duration(payload).unwrap_or(0).min(samples)
            }
            _ => 0,
        };
        let mut left = samples - restorable;
        while left > 0 {
            let part = left.min(self.last.max(PIECE));
            append(pcm, part, |out| decoder.decode(&[], out, false))?;
            left -= part;
        }
        match next {
            Some(payload) if restorable > 0 => {
                append(pcm, restorable, |out| decoder.decode(payload, out, true))?;
                Ok(if self.codec.has_fec(payload) {
                    Origin::Recovered
                } else {
                    Origin::Concealed
                })
            }
            _ => Ok(Origin::Concealed),
        }
    }
}

/// Decodes into `room` fresh samples at the end of `pcm`, and leaves there what was decoded.
fn append(
    pcm: &mut Vec<i16>,
    room: usize,
    decode: impl FnOnce(&mut [i16]) -> opus::Result<usize>,
) -> Result<usize, CodecError> {
    let before = pcm.len();
    pcm.resize(before + room, 0);
    let result = decode(&mut pcm[before..]);
    pcm.truncate(before + *result.as_ref().unwrap_or(&0));
    result.map_err(CodecError::opus("decode an Opus packet"))
}
