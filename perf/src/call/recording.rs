//! What every client says: a recording that is made once, so that no client encodes.

use std::f32::consts::TAU;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use super::ear::Ear;
use super::mark::{self, Sweep};
use super::wav::Speech;

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

/// How long a talk spurt and the pause after it are, in frames of 20 ms; then it begins anew.
const FRAMES: usize = 200;

/// Frames of these in which there is speech.
const SPURT: usize = 150;

/// How loud a frame with speech in it is at least, on average, of 32,768.
const LOUD: u16 = 300;

/// How many quiet frames are a pause, after which somebody begins to speak anew: longer than any within a word.
const PAUSE: usize = 15;

/// How often there is a mark, in frames.
const PERIOD: usize = 100;

/// How many frames before a mark those who listen for it are told.
const READY: usize = 3;

/// What a frame is to those who listen for marks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Cue {
    Nothing,
    /// A mark is near.
    Ready,
    /// A mark begins here.
    Mark(Sweep),
}

/// Payloads of 20 ms each, without end.
#[derive(Clone, Debug)]
pub struct Recording {
    codec: Codec,
    frames: Arc<[Arc<[u8]>]>,
    /// One per frame.
    cues: Arc<[Cue]>,
    /// Whether somebody begins to speak in a frame.
    onsets: Arc<[bool]>,
}

/// The Opus library failed.
#[derive(Debug, thiserror::Error)]
#[error("the recording could not be encoded: {0}")]
pub struct RecordingError(opus::Error);

// Its words have the cause: it is not named as a source as well, which would have it printed twice.
impl From<opus::Error> for RecordingError {
    fn from(error: opus::Error) -> Self {
        Self(error)
    }
}

impl Recording {
    /// Encodes the recording.
    ///
    /// # Errors
    /// The Opus library fails.
    pub fn new(codec: Codec) -> Result<Self, RecordingError> {
        let rate = codec.clock_rate();
        let mut voice = Voice::new(rate);
        let mut pcm: Vec<i16> = (0..FRAMES * samples_of_frame(codec))
            .map(|n| {
                let pause = is_pause(n / samples_of_frame(codec));
                if pause { 0 } else { voice.sample() }
            })
            .collect();
        // In the middle of the spurt and at its end: the pause is silent all the same.
        let places = [SPURT / 2, SPURT].map(|end| end - mark::FRAMES);
        put_marks(codec, &mut pcm, &places);
        Self::encode(codec, &pcm, &places)
    }

    /// Encodes speech from a file, with a mark over the quietest moment of every two seconds.
    ///
    /// # Errors
    /// The Opus library fails.
    pub fn of(codec: Codec, speech: &Speech) -> Result<Self, RecordingError> {
        let samples = samples_of_frame(codec);
        let mut pcm = speech.at(codec.clock_rate()).samples;
        pcm.resize(pcm.len().next_multiple_of(samples), 0);
        // As many periods as there are marks, and an even number: it is said over and over again.
        let once = pcm.len();
        while pcm.len() < 2 * PERIOD * samples {
            pcm.extend_from_within(..once);
        }
        let loudness: Vec<u64> = pcm
            .chunks_exact(samples)
            .map(|frame| frame.iter().map(|s| u64::from(s.unsigned_abs())).sum())
            .collect();
        let mut places: Vec<usize> = loudness
            .chunks_exact(PERIOD)
            .enumerate()
            .map(|(n, period)| n * PERIOD + quietest(period))
            .collect();
        places.truncate(places.len() & !1);
        put_marks(codec, &mut pcm, &places);
        Self::encode(codec, &pcm, &places)
    }

    fn encode(codec: Codec, pcm: &[i16], places: &[usize]) -> Result<Self, RecordingError> {
        let mut frames: Vec<Arc<[u8]>> = Vec::new();
        let mut encoder = opus::Encoder::new(
            codec.clock_rate(),
            opus::Channels::Mono,
            opus::Application::Voip,
        )?;
        encoder.set_bitrate(opus::Bitrate::Bits(24_000))?;
        for pcm in pcm.chunks_exact(samples_of_frame(codec)) {
            frames.push(match codec {
                Codec::Opus => encoder.encode_vec(pcm, 400)?.into(),
                Codec::Pcmu => pcm.iter().map(|sample| mu_law(*sample)).collect(),
            });
        }
        let mut cues = vec![Cue::Nothing; frames.len()];
        for (n, place) in places.iter().enumerate() {
            cues[(place + frames.len() - READY) % frames.len()] = Cue::Ready;
            cues[*place] = Cue::Mark(Sweep::nth(n));
        }
        Ok(Self {
            codec,
            frames: frames.into(),
            cues: cues.into(),
            onsets: onsets(codec, pcm).into(),
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

    /// Whether somebody begins to speak in frame number `n`.
    #[must_use]
    pub fn is_onset(&self, n: u64) -> bool {
        self.onsets[(n % self.onsets.len() as u64) as usize]
    }

    /// How long after a mark the same one is said again, at least: until then it can be told which of them came back.
    #[must_use]
    pub fn until_same_mark(&self) -> Duration {
        let marks: Vec<(usize, Sweep)> = self.marks_in(0..self.cues.len() as u64).collect();
        let distances = marks.iter().filter_map(|(at, sweep)| {
            // What is said is said over and over: after the last mark comes the first.
            let again = marks
                .iter()
                .map(|(at, sweep)| (at + self.cues.len(), sweep));
            let later = marks.iter().map(|(at, sweep)| (*at, sweep)).chain(again);
            let mut same = later.filter(|(other, like)| other > at && *like == sweep);
            same.next().map(|(other, _)| other - at)
        });
        distances.min().map_or(Duration::MAX, |frames| {
            Duration::from_millis(20) * frames as u32
        })
    }

    /// Which frames of these begin a mark, counted from the first of these, and which mark.
    pub(super) fn marks_in(&self, frames: Range<u64>) -> impl Iterator<Item = (usize, Sweep)> {
        let cues = |n: u64| self.cues[(n % self.cues.len() as u64) as usize];
        (0..).zip(frames).filter_map(move |(at, n)| match cues(n) {
            Cue::Mark(sweep) => Some((at, sweep)),
            _ => None,
        })
    }

    /// Tells an ear what is in frame number `n`, whose first sample was due to be spoken then.
    pub fn cue(&self, n: u64, ear: &mut Ear, spoken_nanos: u64) {
        match self.cues[(n % self.cues.len() as u64) as usize] {
            Cue::Nothing => {}
            Cue::Ready => ear.get_ready(),
            Cue::Mark(sweep) => ear.said(sweep, spoken_nanos),
        }
    }
}

/// In which frames somebody begins to speak: loud ones after a pause.
fn onsets(codec: Codec, pcm: &[i16]) -> Vec<bool> {
    let frames = pcm.chunks_exact(samples_of_frame(codec));
    let loud: Vec<bool> = frames
        .map(|frame| {
            let sum: u64 = frame.iter().map(|s| u64::from(s.unsigned_abs())).sum();
            sum > u64::from(LOUD) * frame.len() as u64
        })
        .collect();
    let count = loud.len();
    // What is said is said over and over: the frame before the first is the last.
    let quiet_before = |at: usize| (1..=PAUSE.min(count)).all(|n| !loud[(at + count - n) % count]);
    (0..count).map(|at| loud[at] && quiet_before(at)).collect()
}

/// Samples of 20 ms.
fn samples_of_frame(codec: Codec) -> usize {
    codec.clock_rate() as usize / 50
}

/// Where in a period the loudness of its frames is least for as long as a mark; neither at its beginning nor at its end, so that no two marks are near.
fn quietest(period: &[u64]) -> usize {
    let edge = PERIOD / 10;
    (edge..period.len() - edge - mark::FRAMES)
        .min_by_key(|at| period[*at..at + mark::FRAMES].iter().sum::<u64>())
        .unwrap_or(edge)
}

/// Puts marks over what is said from these frames on.
fn put_marks(codec: Codec, pcm: &mut [i16], places: &[usize]) {
    for (n, place) in places.iter().enumerate() {
        let mark = Sweep::nth(n).samples(codec.clock_rate());
        let room = &mut pcm[place * samples_of_frame(codec)..];
        for (sample, mark) in room.iter_mut().zip(mark) {
            *sample = mark;
        }
    }
}

/// Three seconds of speech and one of nothing: a voice detector hears the turn's end in it, and an echo that lags can leave silence out.
fn is_pause(frame: usize) -> bool {
    frame >= SPURT
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
pub(super) fn mu_law(sample: i16) -> u8 {
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

/// The sample that a code of G.711 µ-law stands for: the reverse of [`mu_law`].
pub(super) fn linear(code: u8) -> i16 {
    const BIAS: i32 = 33;
    let code = !code;
    let (segment, step) = (i32::from(code >> 4 & 7), i32::from(code & 0x0f));
    let magnitude = (((step << 1) + BIAS) << segment) - BIAS;
    let value = if code & 0x80 == 0 {
        magnitude
    } else {
        -magnitude
    };
    (value << 2) as i16
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
    fn every_code_of_mu_law_is_that_of_what_it_stands_for() {
        for code in 0..=u8::MAX {
            let again = mu_law(linear(code));
            // There are two codes for nothing.
            assert!(again == code || linear(code) == 0, "{code:#x} {again:#x}");
        }
        assert_eq!(
            (linear(0xff), linear(0x80), linear(0x00)),
            (0, 32_124, -32_124)
        );
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
    fn marks_are_put_where_speech_is_quiet_and_are_even_in_number() {
        // Seven seconds: loud, but for a tenth of each second that is quieter.
        let rate = 24_000;
        let samples = (0..7 * rate as usize).map(|n| {
            let quiet = n * 10 / rate as usize % 10 == 4;
            let loud = if n % 100 < 50 { 8_000 } else { -8_000 };
            if quiet { loud / 100 } else { loud }
        });
        let speech = Speech {
            rate,
            samples: samples.collect(),
        };
        let recording = Recording::of(Codec::Pcmu, &speech).expect("encoded");
        assert_eq!(recording.frames.len(), 350);
        let marks: Vec<(usize, Sweep)> = (0..)
            .zip(&*recording.cues)
            .filter_map(|(at, cue)| match cue {
                Cue::Mark(sweep) => Some((at, *sweep)),
                _ => None,
            })
            .collect();
        assert_eq!(marks.len(), 2);
        for (n, (at, sweep)) in marks.into_iter().enumerate() {
            assert!((19..=21).contains(&(at % 50)), "{at}");
            assert_eq!(sweep, Sweep::nth(n));
        }
        // A word is said over and over again.
        let word = Speech {
            rate,
            samples: speech.samples[..rate as usize].to_vec(),
        };
        let recording = Recording::of(Codec::Opus, &word).expect("encoded");
        assert_eq!(recording.frames.len(), 200);
        let marks = recording
            .cues
            .iter()
            .filter(|cue| matches!(cue, Cue::Mark(_)));
        assert_eq!(marks.count(), 2);
    }

    #[test]
    fn the_same_mark_is_not_said_again_while_it_is_listened_for() {
        let made_up = Recording::new(Codec::Pcmu).expect("encoded");
        assert_eq!(made_up.until_same_mark(), Duration::from_secs(4));
        assert_eq!(made_up.marks_in(60..340).count(), 3);
        // Of speech, the quiet moments of two periods may be near.
        let rate = 24_000;
        let quiet = [80, 15, 15, 80];
        let samples = (0..8 * rate as usize).map(|n| {
            let frame = n / (rate as usize / 50);
            let at = frame % PERIOD;
            let place = quiet[frame / PERIOD];
            if (place..place + mark::FRAMES).contains(&at) {
                0
            } else {
                8_000
            }
        });
        let samples = samples.collect();
        let speech = Recording::of(Codec::Pcmu, &Speech { rate, samples }).expect("encoded");
        assert_eq!(speech.until_same_mark(), Duration::from_millis(2_700));
    }

    #[test]
    fn a_recording_speaks_and_pauses_and_goes_on_for_ever() {
        for codec in [Codec::Opus, Codec::Pcmu] {
            let recording = Recording::new(codec).expect("encoded");
            let (speech, pause) = (recording.frame(30), recording.frame(190));
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
            let onsets = (0..400).filter(|n| recording.is_onset(*n));
            assert_eq!(onsets.collect::<Vec<_>>(), [0, 200]);
        }
    }
}
