//! Encodes 20 ms frames of 24 kHz mono PCM for a client.
//!
//! Opus is the largest cost of a call, so how it encodes is a setting. It takes 24 kHz directly; G.711 is brought down to 8 kHz.

use super::codec::{Codec, CodecError};
use super::g711::{self, Law};
use super::resample::Narrower;
use super::{FRAME, SAMPLE_RATE};

/// Room for any 20 ms frame: at 64 kbit/s one has 160 bytes, and a peak of the variable rate stays far below an IP packet.
pub const MAX_PAYLOAD: usize = 1_000;

/// Above this expected loss more redundancy costs more quality than it saves.
const MAX_EXPECTED_LOSS: u8 = 30;

/// How Opus is encoded.
///
/// Measured on two minutes of espeak's speech at 24 kHz (PESQ wide band, µs per 20 ms frame on one Xeon core): speech at 32 kbit/s 3.85 and 200;
/// light at 64 kbit/s 3.82 and 65, at 48 kbit/s 3.4, at 32 kbit/s 2.9.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum OpusMode {
    /// 32 kbit/s, by a model of the voice for the low frequencies (hybrid mode): the best speech for its bytes.
    #[default]
    Speech,
    /// 64 kbit/s without that model (CELT mode), as good for a third of the CPU. A path that loses packets gets the other mode, which alone
    /// has forward error correction.
    Light,
}

/// How an encoder trades CPU and bandwidth for quality.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EncoderSettings {
    /// How Opus is encoded.
    pub mode: OpusMode,
    /// Opus complexity, 0 (cheapest) to 10.
    pub complexity: u8,
    /// Target rate in bits per second, 6,000 to 510,000.
    pub bitrate: u32,
    /// Packets in a hundred that the path loses; above 0 each packet carries forward error correction for the one before.
    pub expected_loss: u8,
}

impl Default for EncoderSettings {
    fn default() -> Self {
        OpusMode::default().into()
    }
}

impl From<OpusMode> for EncoderSettings {
    /// Complexity 6: the first whose quantiser libopus has written for AVX2, so that it costs as much as 5 and sounds better (PESQ 3.85 to
    /// 3.63); 10 gains 0.14 for a quarter more.
    fn from(mode: OpusMode) -> Self {
        Self {
            mode,
            complexity: 6,
            bitrate: match mode {
                OpusMode::Speech => 32_000,
                OpusMode::Light => 64_000,
            },
            expected_loss: 0,
        }
    }
}

/// An encoder of one stream.
pub struct Encoder {
    state: State,
    mode: OpusMode,
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
            mode: settings.mode,
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
            .and_then(|()| encoder.set_signal(signal(self.mode, percent > 0)))
            .map_err(CodecError::opus("set the expected loss"))?;
        self.expected_loss = percent;
        Ok(())
    }
}

/// What the library is told of the sound, which decides about its mode.
fn signal(mode: OpusMode, lossy: bool) -> opus::Signal {
    match mode {
        OpusMode::Light if !lossy => opus::Signal::Music,
        _ => opus::Signal::Voice,
    }
}

fn opus_encoder(settings: EncoderSettings) -> Result<opus::Encoder, CodecError> {
    let application = match settings.mode {
        OpusMode::Speech => opus::Application::Voip,
        OpusMode::Light => opus::Application::Audio,
    };
    let mut encoder = opus::Encoder::new(SAMPLE_RATE, opus::Channels::Mono, application)
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
        .set_signal(signal(settings.mode, false))
        .map_err(CodecError::opus("set the signal"))?;
    Ok(encoder)
}
