//! Signals to speak with, and measures of what came back.

use firsthop_transceiver::audio::{
    Codec, Encoder, EncoderSettings, FRAME, MAX_PAYLOAD, SAMPLE_RATE,
};

/// Milliseconds as samples.
pub(crate) fn ms(milliseconds: usize) -> usize {
    milliseconds * SAMPLE_RATE as usize / 1_000
}

/// Voiced syllables: pulses of a changing pitch through three formants that move from vowel to vowel.
pub(crate) fn speech(samples: usize) -> Vec<i16> {
    const VOWELS: [[f64; 3]; 5] = [
        [730.0, 1_090.0, 2_440.0],
        [270.0, 2_290.0, 3_010.0],
        [300.0, 870.0, 2_240.0],
        [530.0, 1_840.0, 2_480.0],
        [570.0, 840.0, 2_410.0],
    ];
    let rate = f64::from(SAMPLE_RATE);
    let syllable = ms(220);
    let mut noise = Noise::new(7);
    let mut memory = [[0.0_f64; 2]; 3];
    let mut phase = 0.0;
    (0..samples)
        .map(|n| {
            let (which, at) = (n / syllable, (n % syllable) as f64 / syllable as f64);
            let pitch = 110.0 + 25.0 * (n as f64 / rate * 2.1).sin() + 15.0 * at;
            phase += pitch / rate;
            let pulse = if phase >= 1.0 {
                phase -= 1.0;
                1.0
            } else {
                0.0
            };
            let mut sample = pulse + f64::from(noise.next()) / 32_768.0 * 0.01;
            let (from, to) = (VOWELS[which * 3 % 5], VOWELS[(which + 1) * 3 % 5]);
            for (formant, state) in memory.iter_mut().enumerate() {
                let hertz = from[formant] * (1.0 - at) + to[formant] * at;
                let radius = (-std::f64::consts::PI * 90.0 / rate).exp();
                let turn = 2.0 * std::f64::consts::PI * hertz / rate;
                let out = sample * (1.0 - radius) + 2.0 * radius * turn.cos() * state[0]
                    - radius * radius * state[1];
                *state = [out, state[0]];
                sample = out * 6.0;
            }
            let envelope = (std::f64::consts::PI * at).sin().powf(0.6).max(0.05);
            (sample * envelope * 14_000.0).clamp(-30_000.0, 30_000.0) as i16
        })
        .collect()
}

/// White noise that is the same for the same seed.
pub(crate) struct Noise(u64);

impl Noise {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(2).wrapping_add(1))
    }

    pub(crate) fn next(&mut self) -> i16 {
        // An LCG with Knuth's constants: its upper bits are noise enough.
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 48) as i16
    }
}

/// The root of the mean square.
pub(crate) fn rms(pcm: &[i16]) -> f64 {
    let sum: f64 = pcm.iter().map(|&s| f64::from(s) * f64::from(s)).sum();
    (sum / pcm.len().max(1) as f64).sqrt()
}

/// How alike two signals are, -1 to 1, sample by sample over the shorter.
pub(crate) fn correlation(a: &[i16], b: &[i16]) -> f64 {
    let (mut ab, mut aa, mut bb) = (0.0, 0.0, 0.0);
    for (&x, &y) in a.iter().zip(b) {
        let (x, y) = (f64::from(x), f64::from(y));
        ab += x * y;
        aa += x * x;
        bb += y * y;
    }
    ab / (aa * bb).sqrt().max(1.0)
}

/// The best correlation of `sent` with what was `heard` later, and by how many samples it lags.
pub(crate) fn aligned(sent: &[i16], heard: &[i16], max_lag: usize) -> (f64, usize) {
    // Looking at every seventh sample is enough to find the place.
    let thin = |pcm: &[i16]| -> Vec<i16> { pcm.iter().step_by(7).copied().collect() };
    let last = heard.len().saturating_sub(sent.len()).min(max_lag);
    let thin_sent = thin(sent);
    let lag = (0..=last)
        .map(|lag| {
            let heard = &heard[lag..lag + sent.len().min(heard.len() - lag)];
            (correlation(&thin_sent, &thin(heard)), lag)
        })
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .expect("at least one lag")
        .1;
    (correlation(sent, &heard[lag..]), lag)
}

/// Frames of 20 ms, the last one padded with silence.
pub(crate) fn frames(pcm: &[i16]) -> Vec<[i16; FRAME]> {
    pcm.chunks(FRAME)
        .map(|chunk| {
            let mut frame = [0; FRAME];
            frame[..chunk.len()].copy_from_slice(chunk);
            frame
        })
        .collect()
}

/// The payloads of what is said.
pub(crate) fn encoded(codec: Codec, settings: EncoderSettings, pcm: &[i16]) -> Vec<Vec<u8>> {
    let mut encoder = Encoder::new(codec, settings).expect("an encoder");
    let mut payload = [0; MAX_PAYLOAD];
    let mut encode = |frame| {
        let length = encoder.encode(frame, &mut payload).expect("a frame");
        payload[..length].to_vec()
    };
    frames(pcm).iter().map(&mut encode).collect()
}
