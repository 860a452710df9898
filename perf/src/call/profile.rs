//! Where a transceiver's time goes: samples of `perf record`, by what the code that ran is for.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::time::Duration;

use serde::Serialize;

use crate::sampling::{Depth, Sampling, symbol_and_file};

/// What code is for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// The kernel: sockets, timers, wake-ups.
    Kernel,
    /// SRTP and the cryptography below it.
    Srtp,
    /// Opus, encoder and decoder.
    Opus,
    /// The voice detector of the echo.
    Detector,
    /// The rest of the WebRTC engine: ICE, RTP, DTLS, SCTP.
    Engine,
    /// Taking memory and giving it back, and moving bytes.
    Memory,
    /// The runtime, and the WebSocket to a model server.
    Runtime,
    /// What Firsthop itself does.
    Firsthop,
    /// What none of these has a name for.
    Other,
}

/// What a symbol's name has in it, and what it is for; the first that fits counts.
const NAMES: [(&str, Part); 33] = [
    ("firsthop", Part::Firsthop),
    ("celt_", Part::Opus),
    ("silk_", Part::Opus),
    ("opus", Part::Opus),
    ("srtp", Part::Srtp),
    ("aws_lc", Part::Srtp),
    ("aes", Part::Srtp),
    ("gcm", Part::Srtp),
    ("ghash", Part::Srtp),
    ("gmult", Part::Srtp),
    ("ctr32", Part::Srtp),
    ("sha1", Part::Srtp),
    ("sha256", Part::Srtp),
    ("EVP_", Part::Srtp),
    ("CRYPTO_", Part::Srtp),
    ("OPENSSL_", Part::Srtp),
    ("HMAC", Part::Srtp),
    ("hmac", Part::Srtp),
    ("earshot", Part::Detector),
    ("str0m", Part::Engine),
    ("dimpl", Part::Engine),
    ("sctp", Part::Engine),
    ("is::", Part::Engine),
    ("tungstenite", Part::Runtime),
    ("tokio", Part::Runtime),
    ("mio::", Part::Runtime),
    ("malloc", Part::Memory),
    ("_int_free", Part::Memory),
    ("cfree", Part::Memory),
    ("realloc", Part::Memory),
    ("memcpy", Part::Memory),
    ("memmove", Part::Memory),
    ("memset", Part::Memory),
];

/// What a sample's code is for, from its file and symbol.
#[must_use]
pub fn part(file: &str, symbol: &str) -> Part {
    if file.starts_with("[kernel") {
        return Part::Kernel;
    }
    let fits = |(name, _): &&(&str, Part)| symbol.contains(name);
    if let Some((_, part)) = NAMES.iter().find(fits) {
        return *part;
    }
    // Two libraries in C are linked into the program, and the cryptography's names are above. Rust's names are paths or types.
    let is_c = symbol
        .chars()
        .all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '.');
    if is_c && !symbol.starts_with('_') && !file.contains(".so") {
        Part::Opus
    } else {
        Part::Other
    }
}

/// Shares of a profile.
#[derive(Clone, Default, Debug, Serialize)]
pub struct Profile {
    /// Samples in it.
    pub samples: u64,
    /// The share of each part.
    pub shares: BTreeMap<Part, f64>,
    /// The symbols that took most, outside of SRTP, Opus and the kernel, and their shares.
    pub rest: Vec<(String, f64)>,
}

impl Profile {
    /// Of lines with a file and a symbol each, a line per sample, as [`record`] gets them.
    #[must_use]
    pub fn of(lines: &str) -> Self {
        let mut samples = 0;
        let mut parts: BTreeMap<Part, u64> = BTreeMap::new();
        let mut symbols: BTreeMap<&str, u64> = BTreeMap::new();
        for line in lines.lines() {
            let Some((symbol, file)) = symbol_and_file(line) else {
                continue;
            };
            samples += 1;
            let part = part(file, symbol);
            *parts.entry(part).or_default() += 1;
            if !part.is_wanted() {
                *symbols.entry(symbol).or_default() += 1;
            }
        }
        let share = |count: u64| count as f64 / samples.max(1) as f64;
        let mut rest: Vec<(String, f64)> = symbols
            .into_iter()
            .map(|(symbol, count)| (symbol.to_owned(), share(count)))
            .collect();
        rest.sort_by(|a, b| b.1.total_cmp(&a.1));
        rest.truncate(25);
        Self {
            samples,
            shares: parts
                .into_iter()
                .map(|(part, count)| (part, share(count)))
                .collect(),
            rest,
        }
    }

    /// The share in SRTP, Opus and the kernel: what a transceiver cannot do without.
    #[must_use]
    pub fn wanted(&self) -> f64 {
        let of = |(part, share): (&Part, &f64)| if part.is_wanted() { *share } else { 0.0 };
        self.shares.iter().map(of).sum()
    }
}

impl Part {
    fn is_wanted(self) -> bool {
        matches!(self, Self::Kernel | Self::Srtp | Self::Opus)
    }
}

/// Samples a process for a while.
///
/// # Errors
/// See [`Sampling`].
pub fn record(pid: u32, seconds: Duration, data: &Path) -> io::Result<Profile> {
    let sampling = Sampling::start(pid, seconds, data, Depth::Function)?;
    Ok(Profile::of(&sampling.finish()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_sorted_by_what_their_code_is_for() {
        let lines = "deemphasis (/x/transceiver)\nudp_sendmsg ([kernel.kallsyms])\n\
                     aws_lc_0_47_0_aes_hw_ctr32_encrypt_blocks (/x/transceiver)\n\
                     firsthop_transceiver::worker::core::Core::settle (/x/transceiver)\n\
                     str0m::session::Session::do_poll_output (/x/transceiver)\n_int_malloc (/lib/libc.so.6)\n\
                     nonsense\n[unknown] (/x/transceiver)\n\
                     firsthop_transceiver::worker::core::Core::settle (/x/transceiver)\nstrange::Thing ([unknown])\n";
        let profile = Profile::of(lines);
        assert_eq!(profile.samples, 9);
        let share = |part| {
            profile
                .shares
                .get(&part)
                .map(|share| (share * 9.0).round() as u32)
        };
        assert_eq!(share(Part::Other), Some(2));
        assert_eq!(share(Part::Firsthop), Some(2));
        for part in [
            Part::Opus,
            Part::Srtp,
            Part::Engine,
            Part::Memory,
            Part::Kernel,
        ] {
            assert_eq!(share(part), Some(1), "{part:?}");
        }
        assert!((profile.wanted() - 3.0 / 9.0).abs() < 1e-9);
        assert!(profile.rest[0].0.ends_with("Core::settle"));
    }
}
