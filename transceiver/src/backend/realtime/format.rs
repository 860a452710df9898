//! The forms in which audio goes to and comes from a server: base64 of PCM at 24 kHz, or of one of the laws of G.711 at 8 kHz.

use std::sync::LazyLock;

use base64::Engine as _;
use base64::engine::{DecodePaddingMode, GeneralPurposeConfig};
use serde_json::{Value, json};

use crate::audio::{FRAME, Law, Narrower, SAMPLE_RATE, Widener};

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
type Base64 = base64::engine::Simd;
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
type Base64 = base64::engine::GeneralPurpose;

/// Standard base64, by the processor's widest instructions. Padding is written, and not insisted on.
static BASE64: LazyLock<Base64> = LazyLock::new(|| {
    let config =
        GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    return Base64::standard(config);
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    return Base64::new(&base64::alphabet::STANDARD, config);
});

/// A form of audio that a server takes or gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Format {
    /// Signed 16-bit samples, the low byte first, 24,000 a second.
    #[default]
    Pcm,
    /// G.711 µ-law, 8,000 a second.
    Pcmu,
    /// G.711 A-law, 8,000 a second.
    Pcma,
}

impl Format {
    /// Reads a format: an object with a type, or the beta's name. `None` for anything else.
    #[must_use]
    pub fn of(value: &Value) -> Option<Self> {
        let name = value.as_str().or_else(|| value["type"].as_str())?;
        match name {
            "audio/pcm" | "pcm16" => Some(Self::Pcm),
            "audio/pcmu" | "g711_ulaw" => Some(Self::Pcmu),
            "audio/pcma" | "g711_alaw" => Some(Self::Pcma),
            _ => None,
        }
    }

    /// The format as a session says it.
    #[must_use]
    pub fn to_json(self) -> Value {
        match self {
            Self::Pcm => json!({"type": "audio/pcm", "rate": SAMPLE_RATE}),
            Self::Pcmu => json!({"type": "audio/pcmu"}),
            Self::Pcma => json!({"type": "audio/pcma"}),
        }
    }

    /// The format's name in the beta.
    #[must_use]
    pub fn beta_name(self) -> &'static str {
        match self {
            Self::Pcm => "pcm16",
            Self::Pcmu => "g711_ulaw",
            Self::Pcma => "g711_alaw",
        }
    }

    /// Its law of G.711, if it is that.
    #[must_use]
    pub fn law(self) -> Option<Law> {
        match self {
            Self::Pcm => None,
            Self::Pcmu => Some(Law::Mu),
            Self::Pcma => Some(Law::A),
        }
    }
}

/// The rate at which samples cross the seam to the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rate {
    /// 24 kHz.
    Wide,
    /// 8 kHz: the samples of a law of G.711, which turn back into the same bytes.
    Narrow,
}

impl Rate {
    /// Samples in 20 ms.
    pub(super) fn frame(self) -> usize {
        match self {
            Self::Wide => FRAME,
            Self::Narrow => FRAME / 3,
        }
    }
}

/// Turns the client's samples into what the server takes.
pub(super) struct Packer {
    format: Format,
    rate: Rate,
    narrower: Narrower,
    widener: Widener,
    wide: Vec<i16>,
    bytes: Vec<u8>,
}

impl Packer {
    pub(super) fn new(format: Format, rate: Rate) -> Self {
        Self {
            format,
            rate,
            narrower: Narrower::new(),
            widener: Widener::new(),
            wide: Vec::new(),
            bytes: Vec::new(),
        }
    }

    pub(super) fn format(&self) -> Format {
        self.format
    }

    /// The base64 of these samples, between what stands before and behind it in a message.
    pub(super) fn pack(&mut self, before: &str, pcm: &[i16], behind: &str) -> String {
        self.bytes.clear();
        let bytes = &mut self.bytes;
        match (self.format.law(), self.rate) {
            (Some(law), Rate::Narrow) => {
                bytes.resize(pcm.len(), 0);
                law.compress_all(pcm, bytes);
            }
            (Some(law), Rate::Wide) => {
                let narrower = &mut self.narrower;
                narrower.push(pcm, |sample| bytes.push(law.compress(sample)));
            }
            (None, Rate::Wide) => bytes.extend(pcm.iter().flat_map(|s| s.to_le_bytes())),
            (None, Rate::Narrow) => {
                self.wide.clear();
                self.widener.push(pcm, &mut self.wide);
                bytes.extend(self.wide.iter().flat_map(|s| s.to_le_bytes()));
            }
        }
        // Made at its whole length: there is one for each packet of each call.
        let length = base64::encoded_len(self.bytes.len(), true).unwrap_or_default();
        let mut text = String::with_capacity(before.len() + length + behind.len());
        text.push_str(before);
        BASE64.encode_string(&self.bytes, &mut text);
        text.push_str(behind);
        text
    }
}

/// Turns what the server gives into samples. A message may end in the middle of one.
pub(super) struct Unpacker {
    format: Format,
    rate: Rate,
    narrower: Narrower,
    widener: Widener,
    half: Option<u8>,
    bytes: Vec<u8>,
    samples: Vec<i16>,
}

impl Unpacker {
    pub(super) fn new(format: Format, rate: Rate) -> Self {
        Self {
            format,
            rate,
            narrower: Narrower::new(),
            widener: Widener::new(),
            half: None,
            bytes: Vec::new(),
            samples: Vec::new(),
        }
    }

    pub(super) fn format(&self) -> Format {
        self.format
    }

    /// Another stream begins.
    pub(super) fn begin(&mut self) {
        self.half = None;
    }

    /// The samples in this base64; `None` when it is none.
    pub(super) fn unpack(&mut self, text: &str) -> Option<Vec<i16>> {
        self.bytes.clear();
        self.bytes.extend(self.half.take());
        BASE64.decode_vec(text, &mut self.bytes).ok()?;
        self.samples.clear();
        let samples = &mut self.samples;
        if let Some(law) = self.format.law() {
            samples.extend(self.bytes.iter().map(|code| law.expand(*code)));
        } else {
            let (pairs, rest) = self.bytes.as_chunks::<2>();
            self.half = rest.first().copied();
            samples.extend(pairs.iter().map(|pair| i16::from_le_bytes(*pair)));
        }
        let given = if self.format.law().is_some() {
            Rate::Narrow
        } else {
            Rate::Wide
        };
        Some(match (given, self.rate) {
            (Rate::Narrow, Rate::Wide) => {
                let mut wide = Vec::with_capacity(3 * samples.len());
                self.widener.push(samples, &mut wide);
                wide
            }
            (Rate::Wide, Rate::Narrow) => {
                let mut narrow = Vec::with_capacity(samples.len() / 3 + 1);
                self.narrower.push(samples, |sample| narrow.push(sample));
                narrow
            }
            _ => std::mem::take(samples),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_survive_the_way_there_and_back() {
        let pcm: Vec<i16> = (0..960)
            .map(|n| (n * 37 % 65_536 - 30_000) as i16)
            .collect();
        let text = Packer::new(Format::Pcm, Rate::Wide).pack("", &pcm, "");
        assert_eq!(
            Unpacker::new(Format::Pcm, Rate::Wide).unpack(&text),
            Some(pcm)
        );
    }

    #[test]
    fn a_sample_that_two_messages_share_is_put_together_again() {
        let mut unpacker = Unpacker::new(Format::Pcm, Rate::Wide);
        let pieces: [&[u8]; 3] = [&[1, 0, 2], &[0], &[3, 0]];
        let heard: Vec<i16> = pieces
            .iter()
            .flat_map(|piece| unpacker.unpack(&BASE64.encode(piece)).expect("base64"))
            .collect();
        assert_eq!(heard, [1, 2, 3]);
        unpacker.unpack(&BASE64.encode([9]));
        unpacker.begin();
        assert_eq!(unpacker.unpack(&BASE64.encode([4, 0])), Some(vec![4]));
    }

    #[test]
    fn padding_may_be_missing_and_rubbish_is_told() {
        let mut unpacker = Unpacker::new(Format::Pcm, Rate::Wide);
        assert_eq!(unpacker.unpack("AQAC"), Some(vec![1]));
        assert_eq!(unpacker.unpack("AA"), Some(vec![2]));
        assert_eq!(unpacker.unpack("not base64!"), None);
    }

    #[test]
    fn a_law_has_a_third_of_the_samples_and_sounds_the_same() {
        for format in [Format::Pcmu, Format::Pcma] {
            let tone = |n: usize| (8_000.0 * (n as f32 * 0.1).sin()) as i16;
            let pcm: Vec<i16> = (0..4_800).map(tone).collect();
            let text = Packer::new(format, Rate::Wide).pack("", &pcm, "");
            let bytes = BASE64.decode(&text).expect("base64");
            assert!((1_560..=1_600).contains(&bytes.len()), "{}", bytes.len());
            let back = Unpacker::new(format, Rate::Wide)
                .unpack(&text)
                .expect("samples");
            let loudness = |pcm: &[i16]| {
                let sum: f64 = pcm.iter().map(|s| f64::from(*s).powi(2)).sum();
                (sum / pcm.len() as f64).sqrt()
            };
            let ratio = loudness(&back[1_000..4_000]) / loudness(&pcm[1_000..4_000]);
            assert!((0.95..1.05).contains(&ratio), "{format:?}: {ratio}");
        }
    }

    #[test]
    fn the_bytes_of_a_law_pass_through_narrow_samples_unchanged() {
        let all: Vec<u8> = (0..=255).collect();
        for (format, law) in [(Format::Pcmu, Law::Mu), (Format::Pcma, Law::A)] {
            let text = BASE64.encode(&all);
            let samples = Unpacker::new(format, Rate::Narrow).unpack(&text);
            let samples = samples.expect("samples");
            assert!(
                samples
                    .iter()
                    .zip(&all)
                    .all(|(s, code)| law.compress(*s) == *code)
            );
            assert_eq!(
                Packer::new(format, Rate::Narrow).pack("", &samples, ""),
                text
            );
        }
    }

    #[test]
    fn a_server_that_insists_on_pcm_is_served_from_narrow_samples_too() {
        let text = Packer::new(Format::Pcm, Rate::Narrow).pack("", &[100; 1_600], "");
        assert_eq!(BASE64.decode(&text).map(|bytes| bytes.len()), Ok(2 * 4_800));
        let back = Unpacker::new(Format::Pcm, Rate::Narrow).unpack(&text);
        let back = back.expect("samples");
        assert!((1_560..=1_600).contains(&back.len()) && (99..=101).contains(&back[800]));
    }

    #[test]
    fn a_format_is_known_by_both_names() {
        for format in [Format::Pcm, Format::Pcmu, Format::Pcma] {
            assert_eq!(Format::of(&format.to_json()), Some(format));
            assert_eq!(Format::of(&format.beta_name().into()), Some(format));
        }
        assert_eq!(Format::of(&json!({"type": "audio/opus"})), None);
    }
}
