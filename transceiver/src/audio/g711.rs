//! The two laws of ITU-T G.711: one byte per sample, 8,000 samples per second.
//!
//! Samples are 16 bits wide here, twice and eight times finer than the laws' own scales (14 bits for µ-law, 13 for A-law): the lower bits
//! are cut off on the way in and zero on the way out. With one exception: µ-law has two zeros, and its negative one becomes -1. So
//! [`compress`](Law::compress) takes every code back to itself, and a payload may pass through samples without changing a bit.

/// Samples, and bytes, per second.
pub(super) const RATE: u32 = 8_000;

/// Samples in a frame of 20 ms.
pub(super) const FRAME: usize = RATE as usize / 50;

/// How a sample becomes a byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Law {
    /// µ-law: North America and Japan.
    Mu,
    /// A-law: the rest of the world.
    A,
}

static MU: [i16; 256] = table(Law::Mu);
static A: [i16; 256] = table(Law::A);

/// The codes of magnitudes on the laws' own scales: a frame that passes through is compressed once each way.
static MU_CODES: [u8; 1 << 13] = mu_codes();
static A_CODES: [u8; 1 << 12] = a_codes();

impl Law {
    /// The sample that a byte stands for.
    #[must_use]
    pub fn expand(self, code: u8) -> i16 {
        match self {
            Self::Mu => MU[usize::from(code)],
            Self::A => A[usize::from(code)],
        }
    }

    /// The byte whose sample is nearest, by the decision values of the recommendation.
    #[must_use]
    pub fn compress(self, sample: i16) -> u8 {
        // One's complement: zero is positive, and the negative side mirrors the positive one.
        let magnitude = (if sample < 0 { !sample } else { sample }).cast_unsigned();
        let sign = if sample < 0 { 0 } else { 0x80 };
        // Magnitudes have 15 bits.
        match self {
            Self::Mu => sign | MU_CODES[usize::from(magnitude >> 2) & 0x1fff],
            Self::A => sign ^ A_CODES[usize::from(magnitude >> 3) & 0xfff],
        }
    }
}

/// Adding this makes each segment of µ-law begin at a power of two.
const MU_BIAS: u16 = 33;

/// Segment (3 bits) and place in it (4 bits) of a magnitude of 13 bits.
const fn mu_magnitude(magnitude: u16) -> u8 {
    let biased = magnitude + MU_BIAS;
    let biased = if biased > 0x1fff { 0x1fff } else { biased };
    // The highest bit is bit 5 in the first segment, and bit 12 in the last.
    let segment = biased.ilog2() - 5;
    let place = (biased >> (segment + 1)) & 0xf;
    (segment << 4) as u8 | place as u8
}

/// The same of a magnitude of 12 bits.
const fn a_magnitude(magnitude: u16) -> u8 {
    let scaled = magnitude >> 1;
    // The first two segments have the same step: together they are linear.
    if scaled < 32 {
        return scaled as u8;
    }
    let segment = scaled.ilog2() - 3;
    let place = (scaled >> (segment - 1)) & 0xf;
    (segment << 4) as u8 | place as u8
}

const fn mu_codes() -> [u8; 1 << 13] {
    let mut codes = [0; 1 << 13];
    let mut magnitude = 0;
    while magnitude < codes.len() {
        codes[magnitude] = !mu_magnitude(magnitude as u16) & 0x7f;
        magnitude += 1;
    }
    codes
}

const fn a_codes() -> [u8; 1 << 12] {
    let mut codes = [0; 1 << 12];
    let mut magnitude = 0;
    while magnitude < codes.len() {
        codes[magnitude] = a_magnitude(magnitude as u16) ^ 0x55;
        magnitude += 1;
    }
    codes
}

const fn mu_expanded(code: u8) -> i16 {
    let bits = !code;
    let segment = (bits >> 4) & 7;
    let place = (bits & 0xf) as i16;
    let magnitude = (((2 * place + MU_BIAS as i16) << segment) - MU_BIAS as i16) * 4;
    match (bits & 0x80 != 0, magnitude) {
        (true, 0) => -1,
        (true, _) => -magnitude,
        (false, _) => magnitude,
    }
}

const fn a_expanded(code: u8) -> i16 {
    let bits = code ^ 0x55;
    let segment = (bits >> 4) & 7;
    let place = (bits & 0xf) as i16;
    let magnitude = match segment {
        0 => 16 * place + 8,
        _ => (16 * (place + 16) + 8) << (segment - 1),
    };
    if bits & 0x80 != 0 {
        magnitude
    } else {
        -magnitude
    }
}

const fn table(law: Law) -> [i16; 256] {
    let mut table = [0; 256];
    let mut code = 0;
    while code < 256 {
        table[code] = match law {
            Law::Mu => mu_expanded(code as u8),
            Law::A => a_expanded(code as u8),
        };
        code += 1;
    }
    table
}
