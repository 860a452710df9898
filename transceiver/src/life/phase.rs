//! The phases of a call's set-up, and when it reached each.

use std::fmt;

/// What a call reaches on its way to a conversation, each once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// The first verified check of the client's.
    FirstCheck,
    /// The first answered check of ours.
    Ice,
    /// DTLS is up.
    Dtls,
    /// The data channel is open.
    Channel,
    /// The first packet of the client's audio.
    AudioIn,
    /// The first packet of audio to the client.
    AudioOut,
}

impl Phase {
    /// Every phase, for metrics and the log.
    pub const ALL: [Self; 6] = [
        Self::FirstCheck,
        Self::Ice,
        Self::Dtls,
        Self::Channel,
        Self::AudioIn,
        Self::AudioOut,
    ];

    /// The name under which metrics and logs show it.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::FirstCheck => "first_check",
            Self::Ice => "ice",
            Self::Dtls => "dtls",
            Self::Channel => "channel",
            Self::AudioIn => "audio_in",
            Self::AudioOut => "audio_out",
        }
    }
}

/// When a call reached each phase, in milliseconds from its answer; nothing where it did not.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SetUp(pub [Option<u64>; Phase::ALL.len()]);

impl SetUp {
    /// When it reached this one.
    #[must_use]
    pub fn of(&self, phase: Phase) -> Option<u64> {
        self.0[phase as usize]
    }
}

impl fmt::Display for SetUp {
    /// For the log: names and values, and a dash for what was not reached.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (phase, ms) in Phase::ALL.into_iter().zip(self.0) {
            let space = if phase as usize == 0 { "" } else { " " };
            let ms = ms.map_or_else(|| "-".to_owned(), |ms| ms.to_string());
            write!(f, "{space}{}_ms={ms}", phase.label())?;
        }
        Ok(())
    }
}
