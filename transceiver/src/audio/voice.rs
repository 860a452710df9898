//! Hears when the user begins and ends to speak, as OpenAI's `server_vad` does, in the time of the audio itself.
//!
//! The judgement of each 16 ms is `earshot`'s, a small neural network in plain Rust. The rest is hysteresis: a turn begins when
//! [`ONSET`] pieces in a row sound like voice, and ends when none did for
//! [`silence_duration_ms`](VoiceSettings::silence_duration_ms); inside a turn a lower threshold holds it together.

use std::collections::VecDeque;

use super::resample::Downsampler;

/// Pieces that must sound like voice in a row: 64 ms. A click is shorter, any syllable longer.
const ONSET: u64 = 4;

/// How far the threshold is lowered inside a turn.
const HOLD: f32 = 0.15;

/// Samples per piece, at the detector's 16 kHz.
const PIECE: usize = 256;

/// Milliseconds per piece.
const PIECE_MS: u64 = 16;

/// Bounds of [`VoiceSettings::silence_duration_ms`]: shorter splits words, longer is never a turn.
const SILENCE_MS: std::ops::RangeInclusive<u64> = 100..=4_000;

/// Bound of [`VoiceSettings::prefix_padding_ms`].
const MAX_PREFIX_MS: u64 = 4_000;

/// When a turn begins and ends: the settings of `server_vad`, with its defaults.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct VoiceSettings {
    /// Above which the detector's judgement, 0 to 1, counts as voice.
    pub threshold: f32,
    /// How much audio before the first voice belongs to the turn, in milliseconds; 4,000 at most.
    pub prefix_padding_ms: u64,
    /// How long without voice ends the turn, in milliseconds; 100 to 4,000.
    pub silence_duration_ms: u64,
}

impl Default for VoiceSettings {
    fn default() -> Self {
        Self {
            threshold: 0.5,
            prefix_padding_ms: 300,
            silence_duration_ms: 500,
        }
    }
}

/// The beginning or the end of a turn, in milliseconds since the detector's first sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VoiceEvent {
    /// The user speaks. The turn's audio begins at `start_ms`, padding included, never before the end of the last turn.
    Started {
        /// Where the turn's audio begins.
        start_ms: u64,
    },
    /// The user has stopped. The turn's audio ends at `end_ms`, the silence that told included.
    Stopped {
        /// Where the turn's audio ends.
        end_ms: u64,
    },
}

/// A voice activity detector for one stream, about 9 KiB.
pub struct VoiceDetector {
    settings: VoiceSettings,
    detector: Box<earshot::Detector>,
    downsampler: Downsampler,
    piece: Vec<i16>,
    /// Pieces judged.
    judged: u64,
    /// Pieces of voice in a row, or without voice in a row inside a turn.
    voiced: u64,
    unvoiced: u64,
    speaking: bool,
    /// Where the last turn ended.
    ended_ms: u64,
    /// At most one per [`ONSET`] pieces pushed.
    events: VecDeque<VoiceEvent>,
}

impl VoiceDetector {
    /// A detector at the beginning of a stream.
    pub fn new(settings: VoiceSettings) -> Self {
        let mut voice = Self {
            settings,
            detector: earshot::Detector::default_boxed(),
            downsampler: Downsampler::new(),
            piece: Vec::with_capacity(PIECE),
            judged: 0,
            voiced: 0,
            unvoiced: 0,
            speaking: false,
            ended_ms: 0,
            events: VecDeque::new(),
        };
        voice.configure(settings);
        voice
    }

    /// Changes the settings from here on; what is out of bounds is brought into them.
    pub fn configure(&mut self, settings: VoiceSettings) {
        self.settings = VoiceSettings {
            threshold: settings.threshold.clamp(0.0, 1.0),
            prefix_padding_ms: settings.prefix_padding_ms.min(MAX_PREFIX_MS),
            silence_duration_ms: settings
                .silence_duration_ms
                .clamp(*SILENCE_MS.start(), *SILENCE_MS.end()),
        };
    }

    /// The settings in use.
    pub fn settings(&self) -> VoiceSettings {
        self.settings
    }

    /// Hears 24 kHz mono audio; then call [`poll_event`](Self::poll_event) until it returns `None`.
    pub fn push(&mut self, pcm: &[i16]) {
        self.downsampler.push(pcm, &mut self.piece);
        let mut judged = 0;
        while let Some(piece) = self.piece.get(judged..judged + PIECE) {
            let score = self.detector.predict_i16(piece);
            judged += PIECE;
            self.judge(score);
        }
        self.piece.drain(..judged);
    }

    /// The next event, in order.
    pub fn poll_event(&mut self) -> Option<VoiceEvent> {
        self.events.pop_front()
    }

    /// Takes the score of the next piece.
    fn judge(&mut self, score: f32) {
        self.judged += 1;
        let now_ms = self.judged * PIECE_MS;
        let VoiceSettings {
            threshold,
            prefix_padding_ms,
            silence_duration_ms,
        } = self.settings;
        if self.speaking {
            let voice = score >= threshold - HOLD;
            self.unvoiced = if voice { 0 } else { self.unvoiced + 1 };
            if self.unvoiced * PIECE_MS >= silence_duration_ms {
                self.speaking = false;
                self.voiced = 0;
                self.ended_ms = now_ms;
                self.events
                    .push_back(VoiceEvent::Stopped { end_ms: now_ms });
            }
        } else {
            let voice = score >= threshold;
            self.voiced = if voice { self.voiced + 1 } else { 0 };
            if self.voiced >= ONSET {
                self.speaking = true;
                self.unvoiced = 0;
                let first_ms = now_ms - self.voiced * PIECE_MS;
                let padded = first_ms.saturating_sub(prefix_padding_ms);
                let start_ms = padded.max(self.ended_ms);
                self.events.push_back(VoiceEvent::Started { start_ms });
            }
        }
    }
}
