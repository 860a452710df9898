//! Takes audio from one rate to another: 24 kHz down to 16 for the voice activity detector, and down to 8 and up again for G.711.
//!
//! Each is a windowed sinc, of which only the taps that meet an input are computed.

use std::f64::consts::PI;
use std::sync::LazyLock;

/// One tap of a windowed sinc of `length` taps whose edge lies at `edge`, a part of the sampling rate. All of them sum up to 1.
fn tap(index: usize, length: usize, edge: f64) -> f64 {
    let x = index as f64 - (length - 1) as f64 / 2.0;
    let sinc = if x == 0.0 {
        2.0 * edge
    } else {
        (2.0 * PI * edge * x).sin() / (PI * x)
    };
    let turn = 2.0 * PI * index as f64 / (length - 1) as f64;
    let hamming = 0.54 - 0.46 * turn.cos();
    sinc * hamming
}

/// Taps of one phase of the filter from 24 to 16 kHz: short, because a detector of voice does not hear the difference.
const TAPS: usize = 16;

/// Two phases: outputs lie on an input, and halfway between two, in turn.
static FILTER: LazyLock<[[f32; TAPS]; 2]> = LazyLock::new(|| {
    // A windowed sinc with its edge at 7.2 kHz of 48: little is left of what would fold below 8 kHz.
    let mut phases = [[0.0; TAPS]; 2];
    for index in 0..2 * TAPS {
        // Twice, for the zeros between the inputs.
        phases[index % 2][index / 2] = (2.0 * tap(index, 2 * TAPS, 7_200.0 / 48_000.0)) as f32;
    }
    phases
});

/// A resampler from 24 to 16 kHz, with the filter's memory.
///
/// Two for three: each output is a low-pass filter over the input at 48 kHz, the input with zeros between.
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

/// How many samples at 24 kHz one at 8 kHz stands for.
const RATIO: usize = 3;

/// Taps of the filter between 24 and 8 kHz, at 24 kHz: it passes what a telephone does, to 3.4 kHz, and delays by 2 ms.
const NARROW_TAPS: usize = 96;

/// Taps of one of its phases.
const PHASE_TAPS: usize = NARROW_TAPS / RATIO;

const NARROW_EDGE: f64 = 3_700.0 / 24_000.0;

/// Symmetric: the order of the taps does not matter.
static NARROW: LazyLock<[f32; NARROW_TAPS]> =
    LazyLock::new(|| std::array::from_fn(|index| tap(index, NARROW_TAPS, NARROW_EDGE) as f32));

/// By phase, the taps that meet an input, the one for the oldest input first.
static WIDE: LazyLock<[[f32; PHASE_TAPS]; RATIO]> = LazyLock::new(|| {
    std::array::from_fn(|phase| {
        std::array::from_fn(|age| {
            let index = phase + RATIO * (PHASE_TAPS - 1 - age);
            (RATIO as f64 * tap(index, NARROW_TAPS, NARROW_EDGE)) as f32
        })
    })
});

/// A resampler from 24 to 8 kHz: one sample for each whole three.
pub(crate) struct Narrower {
    /// The last inputs, then the new ones while they are worked on.
    input: Vec<f32>,
}

impl Narrower {
    pub(crate) fn new() -> Self {
        Self {
            input: vec![0.0; NARROW_TAPS - RATIO],
        }
    }

    /// Calls `output` with each sample that the new input completes.
    pub(crate) fn push(&mut self, pcm: &[i16], mut output: impl FnMut(i16)) {
        self.input.extend(pcm.iter().map(|&s| f32::from(s)));
        let mut used = 0;
        while let Some(window) = self.input.get(used..used + NARROW_TAPS) {
            output(dot(window, &NARROW[..]));
            used += RATIO;
        }
        self.input.drain(..used);
    }
}

/// A resampler from 8 to 24 kHz: three samples for each.
pub(crate) struct Widener {
    input: Vec<f32>,
}

impl Widener {
    pub(crate) fn new() -> Self {
        Self {
            input: vec![0.0; PHASE_TAPS - 1],
        }
    }

    /// Appends what the new input makes to `output`.
    pub(crate) fn push(&mut self, pcm: &[i16], output: &mut Vec<i16>) {
        self.input.extend(pcm.iter().map(|&s| f32::from(s)));
        for window in self.input.windows(PHASE_TAPS) {
            output.extend(WIDE.iter().map(|phase| dot(window, phase)));
        }
        let used = self.input.len() - (PHASE_TAPS - 1);
        self.input.drain(..used);
    }
}

/// The sum of the products, in eight sums side by side: so the compiler may use vectors. Both lengths are the same, a multiple of eight.
fn dot(samples: &[f32], taps: &[f32]) -> i16 {
    let mut sums = [0.0_f32; 8];
    for (samples, taps) in samples.chunks_exact(8).zip(taps.chunks_exact(8)) {
        for (sum, (sample, tap)) in sums.iter_mut().zip(samples.iter().zip(taps)) {
            *sum += sample * tap;
        }
    }
    // Saturates: a filter may overshoot.
    sums.iter().sum::<f32>().round() as i16
}

/// Taps of one phase of a [`Resampler`] that raises the rate; one that lowers it has more, as its edge is lower.
const ANY_TAPS: usize = 32;

/// The rates that a [`Resampler`] takes and gives, in samples per second: those of telephony, of speech models, and of sound files.
const RATES: [u32; 9] = [
    8_000, 11_025, 12_000, 16_000, 22_050, 24_000, 32_000, 44_100, 48_000,
];

/// A resampler from any to any of the rates in use, with its filter: up by `up` to a rate that both divide, and down by `down`.
pub(crate) struct Resampler {
    up: usize,
    down: usize,
    /// By phase, the taps that meet an input, the one for the oldest input first; each phase has as many.
    phases: Vec<f32>,
    taps: usize,
    input: Vec<f32>,
    /// Where the next output lies, in steps of the high rate from the newest input that the first window has.
    position: usize,
}

impl Resampler {
    /// From `from` to `to` samples per second; `None` when one of them is not in use anywhere.
    pub(crate) fn new(from: u32, to: u32) -> Option<Self> {
        if !(RATES.contains(&from) && RATES.contains(&to)) {
            return None;
        }
        let shared = greatest_common_divisor(from, to);
        let (up, down) = ((to / shared) as usize, (from / shared) as usize);
        // The lower of the two rates sets the edge, and how long the filter has to be in inputs; eights, for `dot`.
        let taps = (ANY_TAPS * down.div_ceil(up)).next_multiple_of(8);
        let length = taps * up;
        // A little below half of the lower rate, as a part of the high rate.
        let edge = 0.46 / up.max(down) as f64;
        let mut phases = vec![0.0; length];
        for phase in 0..up {
            for age in 0..taps {
                let index = phase + up * (taps - 1 - age);
                phases[phase * taps + age] = (up as f64 * tap(index, length, edge)) as f32;
            }
        }
        Some(Self {
            up,
            down,
            phases,
            taps,
            input: vec![0.0; taps - 1],
            position: 0,
        })
    }

    /// Appends each output that the new input completes to `output`.
    pub(crate) fn push(&mut self, pcm: impl Iterator<Item = i16>, output: &mut Vec<i16>) {
        self.input.extend(pcm.map(f32::from));
        // The window of an output ends at the newest input that it needs.
        while let Some(window) = {
            let first = self.position / self.up;
            self.input.get(first..first + self.taps)
        } {
            let phase = self.position % self.up;
            let taps = &self.phases[phase * self.taps..(phase + 1) * self.taps];
            output.push(dot(window, taps));
            self.position += self.down;
        }
        let used = (self.position / self.up).min(self.input.len());
        self.input.drain(..used);
        self.position -= used * self.up;
    }
}

fn greatest_common_divisor(a: u32, b: u32) -> u32 {
    if b == 0 {
        a
    } else {
        greatest_common_divisor(b, a % b)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tone(rate: u32, hertz: f64, samples: usize) -> Vec<i16> {
        let sample =
            |n| (10_000.0 * (2.0 * PI * hertz * f64::from(n) / f64::from(rate)).sin()) as i16;
        (0..samples as u32).map(sample).collect()
    }

    fn power(pcm: &[i16]) -> f64 {
        let sum: f64 = pcm.iter().map(|&s| f64::from(s).powi(2)).sum();
        (sum / pcm.len() as f64).sqrt()
    }

    #[test]
    fn a_tone_keeps_its_length_its_loudness_and_its_pitch_between_all_rates() {
        for from in RATES {
            for to in RATES {
                let mut resampler = Resampler::new(from, to).expect("a rate in use");
                let mut output = Vec::new();
                // In odd pieces.
                for piece in tone(from, 1_000.0, from as usize).chunks(171) {
                    resampler.push(piece.iter().copied(), &mut output);
                }
                assert!(
                    output.len().abs_diff(to as usize) <= 2,
                    "{from} to {to}: {}",
                    output.len()
                );
                let middle = &output[output.len() / 4..output.len() / 4 * 3];
                let expected = 10_000.0 / 2.0_f64.sqrt();
                assert!(
                    (power(middle) / expected - 1.0).abs() < 0.02,
                    "{from} to {to}"
                );
                let crossings = middle.windows(2).filter(|w| w[0] < 0 && w[1] >= 0).count();
                assert!(crossings.abs_diff(500) <= 2, "{from} to {to}: {crossings}");
            }
        }
    }

    #[test]
    fn what_the_lower_rate_cannot_carry_is_taken_out() {
        let mut resampler = Resampler::new(48_000, 16_000).expect("a rate in use");
        let mut output = Vec::new();
        resampler.push(tone(48_000, 11_000.0, 48_000).into_iter(), &mut output);
        assert!(power(&output[100..]) < 100.0, "{}", power(&output[100..]));
    }

    #[test]
    fn a_rate_that_nobody_uses_is_refused() {
        for rate in [0, 1, 7_999, 96_000, u32::MAX] {
            assert!(Resampler::new(rate, 24_000).is_none());
        }
    }
}
