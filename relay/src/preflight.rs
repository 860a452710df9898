//! What a machine gives a relay, told before one starts there: a line for each thing, with the fix where it is not enough.
//!
//! A relay that cannot start says why in one line, and no more than the first cause. On a cluster's nodes several things are somebody
//! else's to set (the kernel's settings, the container runtime's limits), so all of them are told at once. [`Facts`] are gathered,
//! [`judge`] is pure.

#![allow(unsafe_code)] // `getrlimit` has no safe wrapper among the crates used here.

use std::fmt;
use std::fs;
use std::str::FromStr;

use crate::limits::{MEMLOCK_PER_CORE, SOCKET_BUFFER};
use crate::ring;

/// What was found. What could not be read is not there.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Facts {
    /// The kernel's release.
    pub release: String,
    /// `kernel.io_uring_disabled`; kernels before 6.6 have none, and allow rings.
    pub io_uring_disabled: Option<u32>,
    /// Why no ring can be made, if none can.
    pub ring: Option<String>,
    /// The hard limit of locked memory, in bytes; `u64::MAX` is none.
    pub memlock: u64,
    /// `net.core.rmem_max`, in bytes.
    pub rmem_max: Option<usize>,
    /// `net.core.wmem_max`, in bytes.
    pub wmem_max: Option<usize>,
}

impl Facts {
    /// Asks the machine, as this process sees it.
    #[must_use]
    pub fn gather() -> Self {
        let mut limit = libc::rlimit {
            rlim_cur: 0,
            rlim_max: 0,
        };
        // SAFETY: the kernel writes one `rlimit`; when it does not, the limit stays zero.
        unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &raw mut limit) };
        let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        Self {
            release: release.trim().to_owned(),
            io_uring_disabled: number("/proc/sys/kernel/io_uring_disabled"),
            ring: ring::probe().err().map(|error| error.to_string()),
            memlock: limit.rlim_max,
            rmem_max: number("/proc/sys/net/core/rmem_max"),
            wmem_max: number("/proc/sys/net/core/wmem_max"),
        }
    }
}

fn number<N: FromStr>(path: &str) -> Option<N> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// What a fact means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Enough.
    Good,
    /// A relay starts, and may lose packets under load.
    Poor,
    /// No relay starts.
    Fails,
}

/// One line of the report. Prints as `ok`, `warn` or `FAIL`, then what was looked at and found, and the fix.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// What it means.
    pub verdict: Verdict,
    /// What was looked at.
    pub what: &'static str,
    /// What was found, and the fix.
    pub text: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mark = match self.verdict {
            Verdict::Good => "ok   ",
            Verdict::Poor => "warn ",
            Verdict::Fails => "FAIL ",
        };
        write!(f, "{mark} {}: {}", self.what, self.text)
    }
}

/// Says of every fact what it means for `relays` at once with as many `cores` each.
#[must_use]
pub fn judge(facts: &Facts, cores: usize, relays: u64) -> Vec<Finding> {
    let finding = |verdict, what, text| Finding {
        verdict,
        what,
        text,
    };
    let mut findings = vec![
        match is_new_enough(&facts.release) {
            Some(false) => finding(
                Verdict::Fails,
                "kernel",
                format!("{} is too old; Linux 6.1 or newer is needed", facts.release),
            ),
            _ => finding(Verdict::Good, "kernel", facts.release.clone()),
        },
        switch(facts),
        match &facts.ring {
            None => finding(Verdict::Good, "io_uring", "a ring can be made".to_owned()),
            Some(error) => finding(Verdict::Fails, "io_uring", error.clone()),
        },
    ];
    let needed = MEMLOCK_PER_CORE * cores as u64 * relays;
    findings.push(if facts.memlock >= needed {
        let now = match facts.memlock {
            u64::MAX => "any amount".to_owned(),
            bytes => format!("{} KiB", bytes / 1_024),
        };
        let text = format!("{now} may be locked, {} KiB are needed", needed / 1_024);
        finding(Verdict::Good, "memlock", text)
    } else {
        let text = format!(
            "{} KiB may be locked, {} KiB are needed; raise LimitMEMLOCK= of the container runtime's unit, or take fewer cores",
            facts.memlock / 1_024,
            needed / 1_024
        );
        finding(Verdict::Fails, "memlock", text)
    });
    for (what, found) in [
        ("net.core.rmem_max", facts.rmem_max),
        ("net.core.wmem_max", facts.wmem_max),
    ] {
        findings.push(match found {
            None => finding(Verdict::Poor, what, "not known here".to_owned()),
            Some(bytes) if bytes >= SOCKET_BUFFER => {
                finding(Verdict::Good, what, format!("{bytes} bytes"))
            }
            Some(bytes) => {
                let text = format!(
                    "{bytes} bytes; with {SOCKET_BUFFER} a burst has room (sysctl on the node)"
                );
                finding(Verdict::Poor, what, text)
            }
        });
    }
    findings
}

/// What the kernel's switch says. Whether a ring can be made in spite of it, the ring says.
fn switch(facts: &Facts) -> Finding {
    let (verdict, text) = match (facts.io_uring_disabled, &facts.ring) {
        (None, _) => (Verdict::Good, "this kernel has no such switch".to_owned()),
        (Some(0), _) => (Verdict::Good, "0, everybody may make rings".to_owned()),
        (Some(value), None) => (
            Verdict::Good,
            format!("{value}, and this process may make rings all the same"),
        ),
        (Some(value), Some(_)) => (
            Verdict::Fails,
            format!(
                "{value} forbids rings; set it to 0 on the node (sysctl kernel.io_uring_disabled=0)"
            ),
        ),
    };
    Finding {
        verdict,
        what: "kernel.io_uring_disabled",
        text,
    }
}

/// Whether a release is one of Linux 6.1 or newer; nothing when it is not spelled as releases are.
fn is_new_enough(release: &str) -> Option<bool> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    let major: u32 = numbers.next()?.parse().ok()?;
    let minor: u32 = numbers.next()?.parse().ok()?;
    Some((major, minor) >= (6, 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> Facts {
        Facts {
            release: "6.12.1-cloud".to_owned(),
            io_uring_disabled: Some(0),
            ring: None,
            memlock: 8 << 20,
            rmem_max: Some(SOCKET_BUFFER),
            wmem_max: Some(SOCKET_BUFFER),
        }
    }

    fn worst(facts: &Facts) -> Vec<String> {
        judge(facts, 4, 2)
            .iter()
            .filter(|finding| finding.verdict != Verdict::Good)
            .map(ToString::to_string)
            .collect()
    }

    #[test]
    fn nothing_is_said_of_a_machine_that_has_everything() {
        assert_eq!(worst(&good()), Vec::<String>::new());
    }

    #[test]
    fn each_thing_that_is_missing_is_named_with_its_fix() {
        let cases: [(Facts, &str); 6] = [
            (
                Facts {
                    release: "5.15.0".to_owned(),
                    ..good()
                },
                "FAIL  kernel: 5.15.0 is too old; Linux 6.1",
            ),
            (
                Facts {
                    io_uring_disabled: Some(2),
                    ring: Some("no".to_owned()),
                    ..good()
                },
                "FAIL  kernel.io_uring_disabled: 2 forbids rings; set it to 0",
            ),
            (
                Facts {
                    ring: Some("io_uring is not available".to_owned()),
                    ..good()
                },
                "FAIL  io_uring: io_uring is not available",
            ),
            (
                Facts {
                    memlock: 64 << 10,
                    ..good()
                },
                "FAIL  memlock: 64 KiB may be locked, 4096 KiB are needed; raise LimitMEMLOCK=",
            ),
            (
                Facts {
                    rmem_max: Some(212_992),
                    ..good()
                },
                "warn  net.core.rmem_max: 212992 bytes; with 4194304",
            ),
            (
                Facts {
                    wmem_max: None,
                    ..good()
                },
                "warn  net.core.wmem_max: not known here",
            ),
        ];
        for (facts, expected) in cases {
            let said = worst(&facts);
            assert!(
                said.iter().any(|line| line.starts_with(expected)),
                "{said:?}"
            );
        }
    }

    #[test]
    fn a_switch_that_lets_this_process_pass_is_no_fault() {
        let facts = Facts {
            io_uring_disabled: Some(1),
            ..good()
        };
        assert_eq!(worst(&facts), Vec::<String>::new());
    }
}
