//! Encodes 20 ms frames of 24 kHz mono PCM for a client.
//!
//! Opus is the largest cost of a call, so its complexity is a setting. It takes 24 kHz directly; G.711 is brought down to 8 kHz.

use super::codec::{Codec, CodecError};
use super::g711::{self, Law};
use super::resample::Narrower;
use super::{FRAME, SAMPLE_RATE};

/// Room for any 20 ms frame: at 64 kbit/s it has 160 bytes, and a peak of the variable rate stays far below an IP packet.
pub const MAX_PAYLOAD: usize = 1_000;

/// Above this expected loss more redundancy costs more quality than it saves.
const MAX_EXPECTED_LOSS: u8 = 30;

/// How an encoder trades CPU and bandwidth for quality.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EncoderSettings {
    /// Opus complexity, 0 (cheapest) to 10.
    pub complexity: u8,
    /// Target rate in bits per second, 6,000 to 510,000.
    pub bitrate: u32,
    /// Packets in a hundred that the path loses; above 0 each packet carries forward error correction for the one before.
    pub expected_loss: u8,
}

impl Default for EncoderSettings {
    /// Complexity 5: above it speech hardly gains and the cost grows by half. 32 kbit/s: super-wideband speech, all that 24 kHz holds.
    fn default() -> Self {
        Self {
            complexity: 5,
            bitrate: 32_000,
            expected_loss: 0,
        }
    }
}

/// An encoder of one stream.
pub struct Encoder {
    state: State,
    expected_loss: u8,
}

enum State {
    Opus(opus::Encoder),
    G711 { law: Law, narrower: Narrower },
}

impl Encoder {
    /// An encoder with no history.
    ///
    /// # Errors
    /// A setting is out of its range, or the codec library could not make one (out of memory).
    pub fn new(codec: Codec, settings: EncoderSettings) -> Result<Self, CodecError> {
        let state = match codec.law() {
            None => State::Opus(opus_encoder(settings)?),
            Some(law) => State::G711 {
                law,
                narrower: Narrower::new(),
            },
        };
        let mut encoder = Self {
            state,
            expected_loss: 0,
        };
        encoder.set_expected_loss(settings.expected_loss)?;
        Ok(encoder)
    }

    /// Encodes one frame into `payload` and returns its length in bytes.
    ///
    /// # Errors
    /// The codec library refused, which these sizes rule out.
    pub fn encode(
        &mut self,
        pcm: &[i16; FRAME],
        payload: &mut [u8; MAX_PAYLOAD],
    ) -> Result<usize, CodecError> {
        match &mut self.state {
            State::Opus(encoder) => encoder
                .encode(pcm, payload)
                .map_err(CodecError::opus("encode an Opus frame")),
            State::G711 { law, narrower } => {
                let mut bytes = payload.iter_mut();
                narrower.push(pcm, |sample| {
                    if let Some(byte) = bytes.next() {
                        *byte = law.compress(sample);
                    }
                });
                Ok(g711::FRAME)
            }
        }
    }

    /// Says how many packets in a hundred the path loses, as RTCP reports it; capped at 30. G.711 can do nothing about it.
    ///
    /// # Errors
    /// The codec library refused, which the cap rules out.
    pub fn set_expected_loss(&mut self, percent: u8) -> Result<(), CodecError> {
        let percent = percent.min(MAX_EXPECTED_LOSS);
        if percent == self.expected_loss {
            return Ok(());
        }
        let State::Opus(encoder) = &mut self.state else {
            return Ok(());
        };
        encoder
            .set_inband_fec(percent > 0)
            .and_then(|()| encoder.set_packet_loss_perc(i32::from(percent)))
            .map_err(CodecError::opus("set the expected loss"))?;
        self.expected_loss = percent;
        Ok(())
    }
}

fn opus_encoder(settings: EncoderSettings) -> Result<opus::Encoder, CodecError> {
    let mut encoder =
        opus::Encoder::new(SAMPLE_RATE, opus::Channels::Mono, opus::Application::Voip)
            .map_err(CodecError::opus("create an Opus encoder"))?;
    let complexity = i32::from(settings.complexity);
    let bitrate = i32::try_from(settings.bitrate).unwrap_or(i32::MAX);
    encoder
        .set_complexity(complexity)
        .map_err(CodecError::opus("set the complexity (0 to 10)"))?;
    encoder
        .set_bitrate(opus::Bitrate::Bits(bitrate))
        .map_err(CodecError::opus("set the bitrate (6,000 to 510,000)"))?;
    encoder
        .set_signal(opus::Signal::Voice)
        .map_err(CodecError::opus("set the signal"))?;
    Ok(encoder)
}
