//! The audio codecs that a call may use, and what RTP needs to know of them.

/// A negotiated codec.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Codec {
    /// Opus (RFC 6716, in RTP by RFC 7587), mono or stereo from the client, mono to it.
    Opus,
}

impl Codec {
    /// Ticks of the RTP timestamp per second. Opus always counts at 48 kHz, whatever it carries (RFC 7587, section 4.1).
    pub fn clock_rate(self) -> u32 {
        match self {
            Self::Opus => 48_000,
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
