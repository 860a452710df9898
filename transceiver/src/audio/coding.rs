//! How long the codecs compute: the largest cost of a call, and what a machine that carries many runs out of first.

use std::fmt;
use std::time::Instant;

/// What was encoded and decoded in one call.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Coding {
    /// Packets and holes of the client's, turned into samples.
    pub decoded: Work,
    /// Frames for the client.
    pub encoded: Work,
}

/// Pieces of work, and how long they took. The clock is only read here: nothing that happens depends on it.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Work {
    /// How many.
    pub pieces: u64,
    /// The sum of their times, in nanoseconds.
    pub nanos: u64,
}

impl Coding {
    /// What metrics sum up over ended calls: the name, and what it is. What is called seconds is given in microseconds.
    pub const SUMS: [(&'static str, &'static str); 4] = [
        (
            "decoded_pieces",
            "Packets and holes from clients that were decoded or concealed, in ended calls",
        ),
        ("decode_seconds", "Sum of the times that took"),
        (
            "encoded_frames",
            "Frames that were encoded for clients, in ended calls",
        ),
        ("encode_seconds", "Sum of the times that took"),
    ];

    /// The addends of one call, in the order of [`Self::SUMS`].
    #[must_use]
    pub fn addends(&self) -> [u64; Self::SUMS.len()] {
        let Self { decoded, encoded } = self;
        let micros = |work: &Work| work.nanos / 1_000;
        [
            decoded.pieces,
            micros(decoded),
            encoded.pieces,
            micros(encoded),
        ]
    }
}

impl fmt::Display for Coding {
    /// For the log: names and values.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [_, decode_us, _, encode_us] = self.addends();
        write!(f, "decode_us={decode_us} encode_us={encode_us}")
    }
}

impl Work {
    /// Does a piece.
    pub(super) fn timed<T>(&mut self, piece: impl FnOnce() -> T) -> T {
        let begin = Instant::now();
        let done = piece();
        let took = u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.pieces += 1;
        self.nanos = self.nanos.saturating_add(took);
        done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_counted_and_its_time_added_up() {
        let mut coding = Coding::default();
        let begin = Instant::now();
        for _ in 0..3 {
            let waited = coding.encoded.timed(|| {
                let inner = Instant::now();
                while inner.elapsed().as_micros() < 100 {}
                inner.elapsed()
            });
            assert!(waited.as_micros() >= 100);
        }
        let whole = u64::try_from(begin.elapsed().as_micros()).expect("a short time");
        let [decoded, decode_us, encoded, encode_us] = coding.addends();
        assert_eq!((decoded, decode_us, encoded), (0, 0, 3));
        assert!((300..=whole).contains(&encode_us), "{encode_us} of {whole}");
        assert_eq!(
            coding.to_string(),
            format!("decode_us=0 encode_us={encode_us}")
        );
    }
}
