//! What a packet sounds like: samples at [`RATE`], which are enough to find marks and to tell sound from silence.

use super::mark::{FRAME, RATE};
use super::recording::{Codec, linear};

/// Samples of the longest packet there is: 120 ms.
const LONGEST: usize = 6 * FRAME;

/// A decoder of one stream.
pub(super) enum Decoder {
    /// Decoded to [`RATE`] by the Opus library itself, which costs a fraction of its full band.
    Opus(opus::Decoder),
    /// A table.
    Pcmu,
}

impl Decoder {
    /// A decoder, unless the library has none.
    pub(super) fn new(codec: Codec) -> Option<Self> {
        Some(match codec {
            Codec::Opus => Self::Opus(opus::Decoder::new(RATE, opus::Channels::Mono).ok()?),
            Codec::Pcmu => Self::Pcmu,
        })
    }

    /// Appends a packet's samples to `samples`; none where it is not of this codec.
    pub(super) fn decode(&mut self, payload: &[u8], samples: &mut Vec<f32>) {
        match self {
            Self::Pcmu => samples.extend(payload.iter().map(|code| f32::from(linear(*code)))),
            Self::Opus(decoder) => {
                let mut pcm = [0; LONGEST];
                let count = decoder.decode(payload, &mut pcm, false).unwrap_or(0);
                samples.extend(pcm[..count].iter().map(|sample| f32::from(*sample)));
            }
        }
    }
}

/// The mean loudness of samples.
pub(super) fn loudness(samples: &[f32]) -> f32 {
    let energy: f32 = samples.iter().map(|sample| sample * sample).sum();
    (energy / samples.len().max(1) as f32).sqrt()
}
