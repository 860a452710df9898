//! The audio codecs that a call may use, and what can be told of their payloads without decoding.

use super::g711::{self, Law};
use super::{FRAME, SAMPLE_RATE};

/// The longest packet that is taken of any codec, 120 ms: Opus has none longer (RFC 6716, section 3.2.5). In samples at [`SAMPLE_RATE`].
pub const MAX_PACKET: usize = 6 * FRAME;

/// The shortest packet that is taken of G.711, as short as Opus's shortest: 2.5 ms. What is sent in crumbs costs as much per packet.
const MIN_PACKET: usize = FRAME / 8;

/// An Opus payload of at most this many bytes is the discontinuous transmission's "silence goes on" (libopus's own rule).
const DTX_PAYLOAD: usize = 2;

/// A negotiated codec.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Codec {
    /// Opus (RFC 6716, in RTP by RFC 7587), mono or stereo from the client, mono to it.
    Opus,
    /// G.711 with the µ-law (RFC 3551, section 4.5.14).
    Pcmu,
    /// G.711 with the A-law.
    Pcma,
}

impl From<Law> for Codec {
    fn from(law: Law) -> Self {
        match law {
            Law::Mu => Self::Pcmu,
            Law::A => Self::Pcma,
        }
    }
}

impl Codec {
    /// Every codec, the best first.
    pub const ALL: [Self; 3] = [Self::Opus, Self::Pcmu, Self::Pcma];

    /// Its name, as SDP has it.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Opus => "opus",
            Self::Pcmu => "PCMU",
            Self::Pcma => "PCMA",
        }
    }

    /// The law of G.711, where it is that.
    #[must_use]
    pub fn law(self) -> Option<Law> {
        match self {
            Self::Opus => None,
            Self::Pcmu => Some(Law::Mu),
            Self::Pcma => Some(Law::A),
        }
    }

    /// Ticks of the RTP timestamp per second. Opus always counts at 48 kHz, whatever it carries (RFC 7587, section 4.1).
    pub fn clock_rate(self) -> u32 {
        match self {
            Self::Opus => 48_000,
            Self::Pcmu | Self::Pcma => g711::RATE,
        }
    }

    /// Whether the sender says with this payload that it has stopped sending because of silence.
    pub fn is_dtx(self, payload: &[u8]) -> bool {
        match self {
            Self::Opus => payload.len() <= DTX_PAYLOAD,
            Self::Pcmu | Self::Pcma => false,
        }
    }

    /// How many samples at [`SAMPLE_RATE`] a payload holds; `None` when it is not one of this codec.
    pub fn duration(self, payload: &[u8]) -> Option<usize> {
        match self {
            Self::Opus => opus::packet::get_nb_samples(payload, SAMPLE_RATE)
                .ok()
                .filter(|samples| (1..=MAX_PACKET).contains(samples)),
            Self::Pcmu | Self::Pcma => {
                const PER_BYTE: usize = (SAMPLE_RATE / g711::RATE) as usize;
                (MIN_PACKET / PER_BYTE..=MAX_PACKET / PER_BYTE)
                    .contains(&payload.len())
                    .then_some(payload.len() * PER_BYTE)
            }
        }
    }

    /// Whether a payload carries a copy of the frame before it (in-band forward error correction).
    pub fn has_fec(self, payload: &[u8]) -> bool {
        match self {
            Self::Opus => opus_has_fec(payload),
            Self::Pcmu | Self::Pcma => false,
        }
    }
}

/// The codec library refused something: it could not be created, or was given what it cannot take.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}: {reason}")]
pub struct CodecError {
    /// What was tried.
    pub what: &'static str,
    /// The library's own words.
    pub reason: &'static str,
}

impl CodecError {
    pub(super) fn opus(what: &'static str) -> impl Fn(opus::Error) -> Self {
        move |error| Self {
            what,
            reason: error.description(),
        }
    }
}

/// Whether an Opus payload carries a copy of the frame before it.
///
/// The flag is the second bit of a SILK or hybrid frame, after the voice activity bits of its 20 ms parts (RFC 6716, section
/// 4.2.3); of two channels either may have one. CELT frames have none. (The entropy coder's first, evenly distributed bits lie plainly in
/// the first byte.)
fn opus_has_fec(payload: &[u8]) -> bool {
    let Ok(packet) = opus::packet::parse(payload) else {
        return false;
    };
    let config = packet.toc >> 3;
    if config >= 16 {
        return false;
    }
    // SILK: configurations of 10, 20, 40, 60 ms; hybrid (from 12): 10, 20 ms.
    let parts = match config {
        12.. => 1,
        _ => [1, 1, 2, 3][usize::from(config & 3)],
    };
    let stereo = packet.toc & 0x04 != 0;
    let mut flags = 0x80_u8 >> parts;
    if stereo {
        flags |= 0x80 >> (2 * parts + 1);
    }
    packet
        .frames
        .first()
        .and_then(|frame| frame.first())
        .is_some_and(|byte| byte & flags != 0)
}
