//! A mark in the audio itself: a sweep of a tenth of a second, found again in what a server sends back.
//!
//! A sweep looks like nothing but itself: against any other piece of audio, and against itself a millisecond away, its correlation is near zero,
//! after codecs and losses too. So the place is found to a fraction of a millisecond by a matched filter, in audio of 8 kHz. There are two sweeps, one
//! that rises and one that falls, said in turn: the echo of one may take as long as two periods and is still not taken for that of the next.

use std::f32::consts::{PI, TAU};
use std::sync::LazyLock;

/// Samples per second at which marks are looked for: all that G.711 has, and what Opus can be decoded to.
pub const RATE: u32 = 8_000;

/// Samples of 20 ms.
pub const FRAME: usize = RATE as usize / 50;

/// Frames of a mark.
pub const FRAMES: usize = 5;

/// Samples of a mark.
pub const LENGTH: usize = FRAMES * FRAME;

/// The correlation from which on it is the mark: a clean one has 1, two codecs and a lost packet leave 0.7, and other sounds have less than 0.3.
pub const THRESHOLD: f32 = 0.5;

/// How loud a mark is, of 32,768: as speech.
const AMPLITUDE: f32 = 9_000.0;

/// How loud at least, on average, what may be one: far below a mark, far above the noise that codecs make of silence.
const QUIET: f32 = 100.0;

/// Within the band that telephones carry, in hertz.
const BAND: (f32, f32) = (400.0, 3_000.0);

/// How long it takes a mark to grow loud, and to die away, in seconds: without a click.
const FADE: f32 = 0.005;

/// Which of the two marks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sweep {
    /// From low to high.
    Rising,
    /// From high to low.
    Falling,
}

impl Sweep {
    /// The mark that is said after `n` others.
    #[must_use]
    pub fn nth(n: usize) -> Self {
        if n.is_multiple_of(2) {
            Self::Rising
        } else {
            Self::Falling
        }
    }

    /// Its samples at a rate, 16 bits each.
    pub fn samples(self, rate: u32) -> impl Iterator<Item = i16> {
        let count = LENGTH as u32 * (rate / RATE);
        (0..count).map(move |n| self.at(n as f32 / rate as f32) as i16)
    }

    /// The sample at `t` seconds from its beginning.
    fn at(self, t: f32) -> f32 {
        let whole = LENGTH as f32 / RATE as f32;
        let (low, high) = BAND;
        let (from, to) = match self {
            Self::Rising => (low, high),
            Self::Falling => (high, low),
        };
        let phase = TAU * (from * t + (to - from) * t * t / (2.0 * whole));
        let edge = t.min(whole - t).clamp(0.0, FADE) / FADE;
        AMPLITUDE * phase.sin() * (0.5 - 0.5 * (PI * edge).cos())
    }

    /// Its samples at [`RATE`], scaled so that their squares sum to 1.
    fn template(self) -> &'static [f32; LENGTH] {
        static TEMPLATES: LazyLock<[[f32; LENGTH]; 2]> = LazyLock::new(|| {
            [Sweep::Rising, Sweep::Falling].map(|sweep| {
                let mut samples: [f32; LENGTH] =
                    std::array::from_fn(|n| sweep.at(n as f32 / RATE as f32));
                let norm = dot(&samples, &samples).sqrt();
                samples.iter_mut().for_each(|sample| *sample /= norm);
                samples
            })
        });
        &TEMPLATES[usize::from(self == Self::Falling)]
    }

    /// How much a piece of audio as long as a mark is this one, from -1 to 1; `energy` is the sum of its squares.
    fn correlation(self, piece: &[f32; LENGTH], energy: f32) -> f32 {
        if energy < QUIET * QUIET * LENGTH as f32 {
            return 0.0;
        }
        dot(self.template(), piece) / energy.sqrt()
    }
}

/// The inner product, in eight sums: the compiler may add those at once, but must not reorder one. Plain loops, which are fast also where nothing is optimised:
/// most of what an ear costs is here.
fn dot(a: &[f32; LENGTH], b: &[f32; LENGTH]) -> f32 {
    const LANES: usize = 8;
    const { assert!(LENGTH.is_multiple_of(LANES)) };
    let mut sums = [0.0; LANES];
    let mut at = 0;
    while at < LENGTH {
        let mut lane = 0;
        while lane < LANES {
            sums[lane] += a[at + lane] * b[at + lane];
            lane += 1;
        }
        at += LANES;
    }
    sums.iter().sum()
}

/// Looks for one mark in audio that comes piece by piece.
#[derive(Clone, Copy, Debug)]
pub struct Search {
    sweep: Sweep,
    /// The first position that has not been looked at.
    next: u64,
    best: Option<(u64, f32)>,
}

impl Search {
    /// How many samples after a likely place a likelier one may follow: a period of the mark's lowest tone, and some.
    const NEAR: u64 = 40;

    /// Looks for a mark from position `from` on.
    #[must_use]
    pub fn new(sweep: Sweep, from: u64) -> Self {
        Self {
            sweep,
            next: from,
            best: None,
        }
    }

    /// The first position that still matters to it.
    #[must_use]
    pub fn needs(&self) -> u64 {
        self.next
    }

    /// Looks through samples whose first has the position `begin`; each call has all from [`Search::needs`] on that there are. Returns the
    /// position of the mark's first sample once it is certain.
    pub fn look(&mut self, begin: u64, samples: &[f32]) -> Option<u64> {
        self.next = self.next.max(begin);
        let mut rest = samples.get((self.next - begin) as usize..)?;
        let mut energy = rest.first_chunk().map_or(0.0, |piece| dot(piece, piece));
        while let Some(piece) = rest.first_chunk::<LENGTH>() {
            let score = self.sweep.correlation(piece, energy);
            if score >= THRESHOLD && self.best.is_none_or(|(_, best)| score > best) {
                self.best = Some((self.next, score));
            }
            self.next += 1;
            // Anew with each call, so that roundings do not add up.
            let (leaves, comes) = (rest[0], rest.get(LENGTH).copied().unwrap_or(0.0));
            energy += comes * comes - leaves * leaves;
            rest = &rest[1..];
            if let Some((at, _)) = self.best
                && self.next > at + Self::NEAR
            {
                return Some(at);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};

    use super::*;

    fn floats(sweep: Sweep) -> Vec<f32> {
        sweep.samples(RATE).map(f32::from).collect()
    }

    /// Audio with a mark at 1,234, in noise of this loudness.
    fn noisy(sweep: Sweep, noise: f32, seed: u64) -> Vec<f32> {
        let mut random = StdRng::seed_from_u64(seed);
        let mut audio: Vec<f32> = (0..4_000)
            .map(|_| noise * (2.0 * random.random::<f32>() - 1.0))
            .collect();
        for (sample, mark) in audio[1_234..].iter_mut().zip(floats(sweep)) {
            *sample += mark;
        }
        audio
    }

    /// Looks as audio comes: in frames.
    fn find(sweep: Sweep, audio: &[f32]) -> Option<u64> {
        let mut search = Search::new(sweep, 0);
        (FRAME..=audio.len())
            .step_by(FRAME)
            .find_map(|until| search.look(0, &audio[..until]))
    }

    #[test]
    fn a_mark_is_found_to_the_sample_also_in_noise() {
        for seed in 0..20 {
            for sweep in [Sweep::Rising, Sweep::Falling] {
                for noise in [0.0, 2_000.0, 8_000.0] {
                    let found = find(sweep, &noisy(sweep, noise, seed));
                    let found = found.unwrap_or_else(|| panic!("noise {noise}, seed {seed}"));
                    assert!(
                        found.abs_diff(1_234) <= 1,
                        "{found}, noise {noise}, seed {seed}"
                    );
                }
            }
        }
    }

    #[test]
    fn a_mark_is_found_without_any_one_of_its_frames() {
        for lost in 0..FRAMES {
            let mut audio = noisy(Sweep::Rising, 100.0, 1);
            audio[1_234 + lost * FRAME..][..FRAME].fill(0.0);
            let found = find(Sweep::Rising, &audio).expect("found");
            assert!(found.abs_diff(1_234) <= 2, "{found} without frame {lost}");
        }
    }

    #[test]
    fn neither_noise_nor_silence_nor_the_other_mark_is_taken_for_one() {
        for seed in 0..20 {
            let mut random = StdRng::seed_from_u64(seed);
            let noise: Vec<f32> = (0..8_000)
                .map(|_| 8_000.0 * (2.0 * random.random::<f32>() - 1.0))
                .collect();
            assert_eq!(find(Sweep::Rising, &noise), None, "seed {seed}");
        }
        assert_eq!(find(Sweep::Rising, &[0.0; 4_000]), None);
        assert_eq!(
            find(Sweep::Rising, &noisy(Sweep::Falling, 100.0, 1)),
            None,
            "the other"
        );
    }

    #[test]
    fn what_came_before_it_was_said_is_not_looked_at() {
        let audio = noisy(Sweep::Rising, 0.0, 1);
        assert_eq!(Search::new(Sweep::Rising, 1_300).look(0, &audio), None);
        // Positions are those of the stream, wherever the samples begin.
        let mut search = Search::new(Sweep::Rising, 0);
        assert_eq!(search.look(70_000, &audio), Some(71_234));
    }
}
