//! Decodes a client's packets to mono PCM, and makes up for those that are missing.
//!
//! Opus decodes at 24 kHz directly, so nothing is resampled. A lost packet is restored from the in-band forward error correction
//! of the packet after it when that is here and carries any (RFC 6716, section 2.1.7); otherwise the decoder conceals it: it
//! goes on with the last sound and fades, or makes comfort noise after a DTX packet.
//!
//! G.711 has neither redundancy nor a model of speech: the last 20 ms are played to and fro, fading out ([`Concealer`]).

use super::codec::{Codec, CodecError, MAX_PACKET};
use super::conceal::Concealer;
use super::g711::{self, Law};
use super::resample::Widener;
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
    G711(Box<Narrowband>),
}

/// A decoder of G.711.
struct Narrowband {
    law: Law,
    concealer: Concealer,
    /// To 24 kHz; nothing where 8 kHz are wanted.
    widener: Option<Widener>,
    /// At 8 kHz; kept for its memory.
    narrow: Vec<i16>,
}

impl Decoder {
    /// A decoder to 24 kHz with no history.
    ///
    /// # Errors
    /// The codec library could not make one (out of memory).
    pub fn new(codec: Codec) -> Result<Self, CodecError> {
        let state = match codec.law() {
            None => State::Opus(
                opus::Decoder::new(SAMPLE_RATE, opus::Channels::Mono)
                    .map_err(CodecError::opus("create an Opus decoder"))?,
            ),
            Some(law) => State::G711(Narrowband::new(law, Some(Widener::new()))),
        };
        Ok(Self {
            codec,
            state,
            last: FRAME,
        })
    }

    /// A decoder of G.711 that leaves the rate as it is: its samples [compress](Law::compress) to the payload that they were.
    #[must_use]
    pub fn narrow(law: Law) -> Self {
        Self {
            codec: law.into(),
            state: State::G711(Narrowband::new(law, None)),
            last: g711::FRAME,
        }
    }

    /// Samples per second of what it makes: 24,000, or 8,000 of one made [`narrow`](Self::narrow).
    #[must_use]
    pub fn sample_rate(&self) -> u32 {
        match &self.state {
            State::G711(decoder) if decoder.widener.is_none() => g711::RATE,
            _ => SAMPLE_RATE,
        }
    }

    /// Appends the samples of one packet to `pcm`, and returns how many.
    ///
    /// An empty payload is no packet: it is concealed, as long as the last one.
    ///
    /// # Errors
    /// The payload is not of this codec. `pcm` is unchanged then, and the decoder can go on.
    pub fn decode(&mut self, payload: &[u8], pcm: &mut Vec<i16>) -> Result<usize, CodecError> {
        let samples = match &mut self.state {
            State::Opus(decoder) => {
                let room = if payload.is_empty() {
                    self.last
                } else {
                    MAX_PACKET
                };
                append(pcm, room, |out| decoder.decode(payload, out, false))?
            }
            State::G711(decoder) if payload.is_empty() => {
                decoder.conceal(self.last, pcm);
                self.last
            }
            State::G711(decoder) => {
                if self.codec.duration(payload).is_none() {
                    return Err(CodecError {
                        what: "decode a G.711 packet",
                        reason: "it is shorter than 2.5 ms or longer than 120 ms",
                    });
                }
                decoder.decode(payload, pcm)
            }
        };
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
        let samples = samples - samples % self.piece();
        let restorable = match next {
            Some(payload) if self.codec == Codec::Opus && !self.codec.is_dtx(payload) => {
                self.codec.duration(payload).unwrap_or(0).min(samples)
            }
            _ => 0,
        };
        self.conceal(samples - restorable, pcm)?;
        match (next, &mut self.state) {
            (Some(payload), State::Opus(decoder)) if restorable > 0 => {
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

    /// Appends made-up samples, a multiple of [`piece`](Self::piece).
    fn conceal(&mut self, samples: usize, pcm: &mut Vec<i16>) -> Result<(), CodecError> {
        let piece = self.piece();
        match &mut self.state {
            State::Opus(decoder) => {
                let mut left = samples;
                while left > 0 {
                    let part = left.min(self.last.max(piece));
                    append(pcm, part, |out| decoder.decode(&[], out, false))?;
                    left -= part;
                }
            }
            State::G711(decoder) => decoder.conceal(samples, pcm),
        }
        Ok(())
    }

    /// Samples in 2.5 ms.
    fn piece(&self) -> usize {
        self.sample_rate() as usize / 400
    }
}

impl Narrowband {
    fn new(law: Law, widener: Option<Widener>) -> Box<Self> {
        Box::new(Self {
            law,
            concealer: Concealer::default(),
            widener,
            narrow: Vec::new(),
        })
    }

    /// Appends what a payload holds, and returns how many samples that was.
    fn decode(&mut self, payload: &[u8], pcm: &mut Vec<i16>) -> usize {
        let law = self.law;
        self.narrow.clear();
        self.narrow
            .extend(payload.iter().map(|&code| law.expand(code)));
        self.concealer.heard(&self.narrow);
        self.give(pcm)
    }

    /// Appends so many made-up samples.
    fn conceal(&mut self, samples: usize, pcm: &mut Vec<i16>) {
        let ratio = match self.widener {
            Some(_) => FRAME / g711::FRAME,
            None => 1,
        };
        self.narrow.clear();
        self.concealer.make(samples / ratio, &mut self.narrow);
        self.give(pcm);
    }

    fn give(&mut self, pcm: &mut Vec<i16>) -> usize {
        let before = pcm.len();
        match &mut self.widener {
            Some(widener) => widener.push(&self.narrow, pcm),
            None => pcm.extend_from_slice(&self.narrow),
        }
        pcm.len() - before
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
