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
        match self {
            Self::Mu => mu_compressed(sample),
            Self::A => a_compressed(sample),
        }
    }

    /// [Compresses](Self::compress) as many samples as there are, or as there is room for.
    pub fn compress_all(self, samples: &[i16], bytes: &mut [u8]) {
        // A loop for each law, without a branch in it: the compiler makes several samples of each step.
        let pairs = bytes.iter_mut().zip(samples);
        match self {
            Self::Mu => pairs.for_each(|(byte, sample)| *byte = mu_compressed(*sample)),
            Self::A => pairs.for_each(|(byte, sample)| *byte = a_compressed(*sample)),
        }
    }
}

/// Adding this makes each segment of µ-law begin at a power of two.
const MU_BIAS: u16 = 33;

/// Sign, and magnitude in 15 bits. One's complement: zero is positive, and the negative side mirrors the positive one.
fn parts(sample: i16) -> (u8, i32) {
    let negative = sample >> 15;
    let sign = !(negative as u8) & 0x80;
    (sign, i32::from(sample ^ negative))
}

/// Segment and place of a number from 1 to 2^24: its highest bit, and the four below that, as a floating-point number has them. `first` is the
/// highest bit of the first segment, which has the number 0.
fn segment_and_place(number: i32, first: u32) -> u32 {
    ((number as f32).to_bits() >> 19).wrapping_sub((127 + first) << 4)
}

fn mu_compressed(sample: i16) -> u8 {
    let (sign, magnitude) = parts(sample);
    let biased = ((magnitude >> 2) + i32::from(MU_BIAS)).min(0x1fff);
    sign | (!segment_and_place(biased, 5) as u8 & 0x7f)
}

fn a_compressed(sample: i16) -> u8 {
    let (sign, magnitude) = parts(sample);
    let scaled = magnitude >> 4;
    // The first two segments have the same step: together they are linear.
    let code = if scaled < 32 {
        scaled as u32
    } else {
        segment_and_place(scaled, 3)
    };
    (sign | code as u8) ^ 0x55
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
