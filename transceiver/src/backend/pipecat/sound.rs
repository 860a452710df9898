//! Sound in the forms of a bot: the rate that it wants, and whatever it gives.

use super::wire::{self, Audio, Kind};
use crate::audio::{Resampler, SAMPLE_RATE};

/// The most channels of a bot's sound; it is mixed to one.
const MAX_CHANNELS: usize = 8;

/// The rate at which a bot is sent sound: nothing is negotiated, and its pipeline takes it for the rate of its own setting
/// (`audio_in_sample_rate`).
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    serde::Serialize,
    serde::Deserialize,
    clap::ValueEnum,
)]
pub enum Rate {
    /// 8 kHz.
    #[serde(rename = "8000")]
    #[value(name = "8000")]
    Eight,
    /// 16 kHz: Pipecat's own default.
    #[default]
    #[serde(rename = "16000")]
    #[value(name = "16000")]
    Sixteen,
    /// 24 kHz: nothing is resampled.
    #[serde(rename = "24000")]
    #[value(name = "24000")]
    TwentyFour,
}

impl Rate {
    /// Samples per second.
    #[must_use]
    pub fn hertz(self) -> u32 {
        match self {
            Self::Eight => 8_000,
            Self::Sixteen => 16_000,
            Self::TwentyFour => SAMPLE_RATE,
        }
    }
}

/// Makes frames of the client's samples.
pub(super) struct Packer {
    rate: Rate,
    resampler: Option<Resampler>,
    resampled: Vec<i16>,
}

impl Packer {
    pub(super) fn new(rate: Rate) -> Self {
        let resamples = rate.hertz() != SAMPLE_RATE;
        Self {
            rate,
            resampler: resamples
                .then(|| Resampler::new(SAMPLE_RATE, rate.hertz()))
                .flatten(),
            resampled: Vec::new(),
        }
    }

    /// The frame with these samples, at 24 kHz.
    pub(super) fn pack(&mut self, pcm: &[i16]) -> Vec<u8> {
        let bytes = |pcm: &[i16]| pcm.iter().flat_map(|s| s.to_le_bytes()).collect();
        let audio = match &mut self.resampler {
            None => bytes(pcm),
            Some(resampler) => {
                self.resampled.clear();
                resampler.push(pcm.iter().copied(), &mut self.resampled);
                bytes(&self.resampled)
            }
        };
        wire::write(Kind::Audio(Audio {
            audio,
            sample_rate: self.rate.hertz(),
            num_channels: 1,
            ..Audio::default()
        }))
    }
}

/// Why sound cannot be played.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unplayable {
    /// Of a rate that nobody uses.
    Rate(u32),
    /// No channel, or too many.
    Channels(u32),
    /// Half a sample, or samples for half of the channels.
    Cut,
}

impl std::fmt::Display for Unplayable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Rate(rate) => write!(
                f,
                "a rate of {rate} samples per second is not supported; set audio_out_sample_rate to 24000"
            ),
            Self::Channels(count) => write!(
                f,
                "{count} channels are not supported; set audio_out_channels to 1"
            ),
            Self::Cut => f.write_str(
                "it is not a whole number of 16-bit samples; send PCM without a WAV header",
            ),
        }
    }
}

/// Makes samples at 24 kHz of a bot's frames.
#[derive(Default)]
pub(super) struct Unpacker {
    /// With the rate that it takes.
    resampler: Option<(u32, Resampler)>,
}

impl Unpacker {
    /// New speech: nothing of what was said before rings on.
    pub(super) fn begin(&mut self) {
        self.resampler = None;
    }

    pub(super) fn unpack(&mut self, frame: &Audio) -> Result<Vec<i16>, Unplayable> {
        let channels = usize::try_from(frame.num_channels).unwrap_or(usize::MAX);
        if channels == 0 || channels > MAX_CHANNELS {
            return Err(Unplayable::Channels(frame.num_channels));
        }
        if !frame.audio.len().is_multiple_of(2 * channels) {
            return Err(Unplayable::Cut);
        }
        let mixed = frame.audio.chunks_exact(2 * channels).map(|together| {
            let sum: i32 = together
                .chunks_exact(2)
                .map(|s| i32::from(i16::from_le_bytes([s[0], s[1]])))
                .sum();
            // The mean of samples is a sample.
            (sum / channels as i32) as i16
        });
        let rate = frame.sample_rate;
        if rate == SAMPLE_RATE {
            self.resampler = None;
            return Ok(mixed.collect());
        }
        if self.resampler.as_ref().is_none_or(|(of, _)| *of != rate) {
            let made = Resampler::new(rate, SAMPLE_RATE).ok_or(Unplayable::Rate(rate))?;
            self.resampler = Some((rate, made));
        }
        let mut pcm = Vec::new();
        if let Some((_, resampler)) = &mut self.resampler {
            resampler.push(mixed, &mut pcm);
        }
        Ok(pcm)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(rate: u32, channels: u32, audio: Vec<u8>) -> Audio {
        Audio {
            audio,
            sample_rate: rate,
            num_channels: channels,
            ..Audio::default()
        }
    }

    #[test]
    fn channels_are_mixed_and_other_rates_resampled() {
        let mut unpacker = Unpacker::default();
        let stereo = frame(24_000, 2, vec![2, 0, 4, 0, 0xff, 0x7f, 0xff, 0x7f]);
        assert_eq!(unpacker.unpack(&stereo), Ok(vec![3, 32_767]));
        let slow = unpacker.unpack(&frame(16_000, 1, vec![0; 32_000]));
        assert!(slow.expect("played").len().abs_diff(24_000) <= 2);
    }

    #[test]
    fn what_cannot_be_played_is_refused_with_what_to_do() {
        let mut unpacker = Unpacker::default();
        let cases = [
            (frame(0, 1, vec![0; 2]), Unplayable::Rate(0)),
            (frame(96_000, 1, vec![0; 2]), Unplayable::Rate(96_000)),
            (frame(24_000, 0, vec![]), Unplayable::Channels(0)),
            (
                frame(24_000, u32::MAX, vec![0; 2]),
                Unplayable::Channels(u32::MAX),
            ),
            (frame(24_000, 1, vec![0; 3]), Unplayable::Cut),
            (frame(24_000, 2, vec![0; 6]), Unplayable::Cut),
        ];
        for (frame, expected) in cases {
            assert_eq!(unpacker.unpack(&frame), Err(expected));
            assert!(expected.to_string().contains(';'));
        }
    }

    #[test]
    fn a_bot_is_sent_the_rate_that_it_wants() {
        for (rate, bytes) in [
            (Rate::Eight, 320),
            (Rate::Sixteen, 640),
            (Rate::TwentyFour, 960),
        ] {
            let mut packer = Packer::new(rate);
            packer.pack(&[0; 480]);
            let packed = wire::read(&packer.pack(&[0; 480])).and_then(|f| f.frame);
            let Some(Kind::Audio(frame)) = packed else {
                panic!("audio");
            };
            assert_eq!((frame.sample_rate, frame.num_channels), (rate.hertz(), 1));
            assert!(
                frame.audio.len().abs_diff(bytes) <= 2,
                "{}",
                frame.audio.len()
            );
        }
    }
}
