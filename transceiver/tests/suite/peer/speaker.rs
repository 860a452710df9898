//! What a client says.

use std::f32::consts::TAU;

/// Voiced speech, roughly: pulses of a voice through three formants, in syllables.
pub(super) struct Speaker {
    n: u64,
    states: [[f32; 2]; 3],
    noise: u32,
}

impl Default for Speaker {
    fn default() -> Self {
        Self {
            n: 0,
            states: [[0.0; 2]; 3],
            noise: 1,
        }
    }
}

impl Speaker {
    /// The next 20 ms at 48 kHz.
    pub(super) fn frame(&mut self) -> Vec<i16> {
        (0..960).map(|_| self.sample()).collect()
    }

    fn sample(&mut self) -> i16 {
        const RATE: f32 = 48_000.0;
        let t = self.n as f32 / RATE;
        self.n += 1;
        let pitch = 120.0 + 15.0 * (TAU * 2.5 * t).sin();
        let period = (RATE / pitch) as u64;
        self.noise = self
            .noise
            .wrapping_mul(1_664_525)
            .wrapping_add(1_013_904_223);
        let hiss = (self.noise >> 16) as f32 / 65_536.0 - 0.5;
        let pulse = if self.n.is_multiple_of(period.max(1)) {
            30.0
        } else {
            0.0
        };
        let syllable = (TAU * 4.0 * t).sin().max(0.0);
        let open = 0.5 + 0.5 * (TAU * 1.7 * t).sin();
        let formants = [
            (400.0 + 400.0 * open, 80.0),
            (1_200.0 + 600.0 * open, 100.0),
            (2_600.0, 150.0),
        ];
        let input = pulse + hiss * 0.3;
        let mut out = 0.0;
        for ((frequency, width), state) in formants.into_iter().zip(&mut self.states) {
            let r = (-std::f32::consts::PI * width / RATE).exp();
            let c = 2.0 * r * (TAU * frequency / RATE).cos();
            let y = input * (1.0 - r) + c * state[0] - r * r * state[1];
            state[1] = state[0];
            state[0] = y;
            out += y;
        }
        (out * syllable * 4_000.0).clamp(-30_000.0, 30_000.0) as i16
    }
}
