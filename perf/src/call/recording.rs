//! What every client says: a recording that is made once, so that no client encodes.

use std::f32::consts::TAU;
use std::sync::Arc;

/// A client's codec.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Codec {
    /// Opus, 20 ms of mono.
    Opus,
    /// G.711 µ-law.
    Pcmu,
}

impl Codec {
    /// Ticks of RTP timestamps per second.
    #[must_use]
    pub fn clock_rate(self) -> u32 {
        match self {
            Self::Opus => 48_000,
            Self::Pcmu => 8_000,
        }
    }
}

/// How long a recording is, in frames of 20 ms; then it begins anew. Two talk spurts with a pause after each.
const FRAMES: usize = 200;

/// Payloads of 20 ms each, without end.
#[derive(Clone, Debug)]
pub struct Recording {
    codec: Codec,
    frames: Arc<[Arc<[u8]>]>,
}

/// The Opus library failed.
#[derive(Debug, thiserror::Error)]
#[error("the recording could not be encoded: {0}")]
pub struct RecordingError(#[from] opus::Error);

impl Recording {
    /// Encodes the recording.
    ///
    /// # Errors
    /// The Opus library fails.
    pub fn new(codec: Codec) -> Result<Self, RecordingError> {
        let mut voice = Voice::new(codec.clock_rate());
        let samples = codec.clock_rate() as usize / 50;
        let mut frames: Vec<Arc<[u8]>> = Vec::with_capacity(FRAMES);
        let mut encoder = opus::Encoder::new(
            codec.clock_rate(),
            opus::Channels::Mono,
            opus::Application::Voip,
        )?;
        encoder.set_bitrate(opus::Bitrate::Bits(24_000))?;
        for frame in 0..FRAMES {
            let pcm: Vec<i16> = (0..samples)
                .map(|_| if is_pause(frame) { 0 } else { voice.sample() })
                .collect();
            frames.push(match codec {
                Codec::Opus => encoder.encode_vec(&pcm, 400)?.into(),
                Codec::Pcmu => pcm.iter().map(|sample| mu_law(*sample)).collect(),
            });
        }
        Ok(Self {
            codec,
            frames: frames.into(),
        })
    }

    /// A second of speech as a model server says it in PCM: 24 kHz, 16 bits, the low byte first.
    #[must_use]
    pub fn second_of_pcm() -> Vec<u8> {
        const RATE: u32 = 24_000;
        let mut voice = Voice::new(RATE);
        (0..RATE)
            .flat_map(|_| voice.sample().to_le_bytes())
            .collect()
    }

    /// Its codec.
    #[must_use]
    pub fn codec(&self) -> Codec {
        self.codec
    }

    /// Frame number `n`.
    #[must_use]
    pub fn frame(&self, n: u64) -> Arc<[u8]> {
        Arc::clone(&self.frames[(n % self.frames.len() as u64) as usize])
    }
}

/// A second and a half of speech, half a second of nothing.
fn is_pause(frame: usize) -> bool {
    frame % 100 >= 75
}

/// Roughly a voice: pulses through two formants, in syllables.
struct Voice {
    rate: f32,
    n: u32,
    phase: f32,
    formants: [[f32; 2]; 2],
}

impl Voice {
    fn new(rate: u32) -> Self {
        Self {
            rate: rate as f32,
            n: 0,
            phase: 0.0,
            formants: [[0.0; 2]; 2],
        }
    }

    fn sample(&mut self) -> i16 {
        let t = self.n as f32 / self.rate;
        self.n += 1;
        self.phase += (130.0 + 20.0 * (TAU * 1.3 * t).sin()) / self.rate;
        let mut input = 0.0;
        if self.phase >= 1.0 {
            self.phase -= 1.0;
            input = 40.0;
        }
        let open = 0.5 + 0.5 * (TAU * 2.1 * t).sin();
        let centres = [350.0 + 350.0 * open, 1_300.0 + 700.0 * open];
        let mut out = 0.0;
        for (centre, state) in centres.into_iter().zip(&mut self.formants) {
            let radius = (-std::f32::consts::PI * 110.0 / self.rate).exp();
            let y = input * (1.0 - radius)
                + 2.0 * radius * (TAU * centre / self.rate).cos() * state[0]
                - radius * radius * state[1];
            *state = [y, state[0]];
            out += y;
        }
        let syllable = 0.3 + 0.7 * (TAU * 3.5 * t).sin().max(0.0);
        (out * syllable * 6_000.0).clamp(-24_000.0, 24_000.0) as i16
    }
}

/// G.711 µ-law of a sample (ITU-T G.711, table 2a): 14 bits in a sign, three bits of segment and four of step, all inverted.
fn mu_law(sample: i16) -> u8 {
    const BIAS: i32 = 33;
    const CLIP: i32 = 8_158;
    let value = i32::from(sample) >> 2;
    let sign = if value < 0 { 0x80 } else { 0 };
    let magnitude = value.abs().min(CLIP) + BIAS;
    // The magnitude has its highest bit at 5 to 12.
    let segment = 26 - magnitude.leading_zeros() as i32;
    let step = (magnitude >> (segment + 1)) & 0x0f;
    !(sign | (segment << 4) | step) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mu_law_has_the_codes_of_the_standard() {
        // Silence, the largest of either sign, and the smallest steps about zero.
        assert_eq!(mu_law(0), 0xff);
        assert_eq!(mu_law(i16::MAX), 0x80);
        assert_eq!(mu_law(i16::MIN), 0x00);
        assert_eq!(mu_law(8), 0xfe);
        assert_eq!(mu_law(-8), 0x7e);
        // 1,000 of 8,159 lies in segment 5: 1,033 is 0b1_0000_001001.
        assert_eq!(mu_law(4_000), !0x50);
    }

    #[test]
    fn pcm_for_a_second_is_loud() {
        let pcm = Recording::second_of_pcm();
        assert_eq!(pcm.len(), 48_000);
        let loud = pcm
            .chunks_exact(2)
            .filter(|s| i16::from_le_bytes([s[0], s[1]]).unsigned_abs() > 500);
        assert!(loud.count() > 2_000);
    }

    #[test]
    fn a_recording_speaks_and_pauses_and_goes_on_for_ever() {
        for codec in [Codec::Opus, Codec::Pcmu] {
            let recording = Recording::new(codec).expect("encoded");
            let (speech, pause) = (recording.frame(30), recording.frame(95));
            match codec {
                // The encoder spends bits on what there is to hear.
                Codec::Opus => assert!(speech.len() > 2 * pause.len(), "{speech:?} {pause:?}"),
                Codec::Pcmu => {
                    assert_eq!((speech.len(), pause.len()), (160, 160));
                    assert!(pause.iter().all(|code| *code == 0xff));
                    assert!(speech.iter().any(|code| *code != 0xff));
                }
            }
            assert_eq!(recording.frame(30), recording.frame(30 + FRAMES as u64));
        }
    }
}
