//! What a session was, and how far its set-up has come.

use std::time::Instant;

use super::{QualitySummary, Session};
use crate::audio::{BackendReport, ConversationCounters};
use crate::life::SetUp;
use crate::traces::SetUpTimes;

/// What a session was, for the log line at its end.
#[derive(Clone, Copy, Debug, Default)]
pub struct Summary {
    /// How long it lived, and its setup times.
    pub life: LifeSummary,
    /// How often media moved to another path.
    pub moves: u32,
    /// How many ICE restarts there were.
    pub restarts: u64,
    /// How many packets and messages were dropped.
    pub drops: u64,
    /// What happened to the audio.
    pub audio: ConversationCounters,
    /// What RTCP said of the path.
    pub quality: QualitySummary,
    /// Packets in a hundred that the encoder expected to be lost, at the end.
    pub expected_loss: u8,
    /// What the backend has to tell of its server.
    pub backend: BackendReport,
}

/// Times of a session, in milliseconds.
#[derive(Clone, Copy, Debug, Default)]
pub struct LifeSummary {
    /// From answer to end.
    pub duration_ms: u64,
    /// When it reached each phase of its set-up.
    pub setup: SetUp,
    /// How often the client was lost for a while.
    pub interruptions: u32,
}

impl Session {
    /// What it was, for the log.
    #[must_use]
    pub fn summary(&self, now: Instant) -> Summary {
        #[cfg(test)]
        self.fault("summary");
        let ms = |d: std::time::Duration| u64::try_from(d.as_millis()).unwrap_or(u64::MAX);
        Summary {
            life: LifeSummary {
                duration_ms: ms(self.life.duration(now)),
                setup: self.life.setup(),
                interruptions: self.life.interruptions(),
            },
            moves: self.paths.moves(),
            restarts: self.answers.saturating_sub(1),
            drops: self.drops,
            audio: self.voice.counters(),
            quality: self.quality.summary(),
            expected_loss: self.voice.expected_loss(),
            backend: self.voice.backend_report(),
        }
    }

    /// How far its set-up has come.
    #[must_use]
    pub fn set_up_times(&self) -> SetUpTimes {
        SetUpTimes {
            answered: self.life.answered_at(),
            phases: self.life.phases(),
            has_channel: self.channel.is_offered(),
            backend: self.voice.backend_report(),
            ended: self.life.end_reason(),
        }
    }
}
