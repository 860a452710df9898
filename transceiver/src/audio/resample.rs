//! Takes 24 kHz audio down to 16 kHz for the voice activity detector.
//!
//! Two for three: each output is a low-pass filter over the input at 48 kHz (the input with zeros between), of which only
//! the taps that meet an input are computed. The filter is short, because a detector of voice does not hear the difference.

use std::sync::LazyLock;

/// Taps of one phase.
const TAPS: usize = 16;

/// Two phases: outputs lie on an input, and halfway between two, in turn.
static FILTER: LazyLock<[[f32; TAPS]; 2]> = LazyLock::new(|| {
    // A windowed sinc with its edge at 7.2 kHz of 48: little is left of what would fold below 8 kHz.
    const EDGE: f64 = 7_200.0 / 48_000.0;
    const LENGTH: usize = 2 * TAPS;
    let mut phases = [[0.0; TAPS]; 2];
    for tap in 0..LENGTH {
        let x = tap as f64 - (LENGTH - 1) as f64 / 2.0;
        let sinc = (2.0 * std::f64::consts::PI * EDGE * x).sin() / (std::f64::consts::PI * x);
        let turn = 2.0 * std::f64::consts::PI * tap as f64 / (LENGTH - 1) as f64;
        let hamming = 0.54 - 0.46 * turn.cos();
        // Twice, for the zeros between the inputs.
        phases[tap % 2][tap / 2] = (2.0 * sinc * hamming) as f32;
    }
    phases
});

/// A resampler from 24 to 16 kHz, with the filter's memory.
pub(super) struct Downsampler {
    /// The last inputs, then the new ones while they are worked on.
    input: Vec<f32>,
    /// Where the next output lies, in steps of 48 kHz from the first input kept.
    position: usize,
}

impl Downsampler {
    pub(super) fn new() -> Self {
        Self {
            input: vec![0.0; TAPS - 1],
            position: 2 * (TAPS - 1),
        }
    }

    /// Appends each output that the new input completes to `output`.
    pub(super) fn push(&mut self, pcm: &[i16], output: &mut Vec<i16>) {
        self.input.extend(pcm.iter().map(|&s| f32::from(s)));
        // The newest input that an output at step `p` needs is `p / 2`.
        while self.position / 2 < self.input.len() {
            let newest = self.position / 2;
            let taps = &FILTER[self.position % 2];
            let window = &self.input[newest + 1 - TAPS..=newest];
            let sum: f32 = window.iter().rev().zip(taps).map(|(s, t)| s * t).sum();
            output.push(sum as i16);
            self.position += 3;
        }
        let used = self.input.len() - (TAPS - 1);
        self.input.drain(..used);
        self.position -= 2 * used;
    }
}
