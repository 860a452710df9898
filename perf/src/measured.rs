//! Where, of what and when something was measured: what every file of results begins with.

use std::fmt::{self, Display};
use std::fs;

use serde::{Deserialize, Serialize};

/// Where, of what and when.
#[derive(Clone, Default, PartialEq, Debug, Serialize, Deserialize)]
pub struct Measured {
    /// Where.
    pub machine: Machine,
    /// Of what: the commit that was built, with `-dirty` when the tree had changes.
    pub commit: String,
    /// When, as the caller wrote it.
    pub date: String,
    /// When earlier runs were that parts may be of: see [`Measured::beside`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub earlier: Vec<String>,
}

impl Measured {
    /// Whether results of another run may stand in one file with these: of the same commit, which anybody can build, on the same kind of machine.
    ///
    /// # Errors
    /// Why not, in words.
    pub fn goes_with(&self, other: &Self) -> Result<(), String> {
        let machine = |one: &Self| Machine {
            // It is another each time.
            load_at_start: 0.0,
            ..one.machine.clone()
        };
        if machine(self) != machine(other) {
            return Err(format!(
                "they are of {}, these of {}",
                other.machine, self.machine
            ));
        }
        let named = |commit: &str| {
            let first = commit.split(' ').next().unwrap_or_default();
            first.len() >= 7
                && first.bytes().all(|byte| byte.is_ascii_hexdigit())
                && !commit.contains("FIRSTHOP_BINARIES")
        };
        if self.commit != other.commit || !named(&self.commit) {
            return Err(format!(
                "they are of commit {}, these of {}, which have to be the same, and a commit without changes",
                other.commit, self.commit
            ));
        }
        Ok(())
    }

    /// The head of a file that has parts of an earlier run too: all dates, and the worst load that any of them was measured under.
    #[must_use]
    pub fn beside(mut self, earlier: &Self) -> Self {
        let load = &mut self.machine.load_at_start;
        *load = load.max(earlier.machine.load_at_start);
        for date in earlier.earlier.iter().chain([&earlier.date]) {
            if *date != self.date && !self.earlier.contains(date) {
                self.earlier.push(date.clone());
            }
        }
        self
    }
}

impl Display for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; commit {}", self.machine, self.commit)?;
        match &self.earlier[..] {
            [] => Ok(()),
            earlier => write!(f, "; parts are of {}", earlier.join(", ")),
        }
    }
}

/// The machine that measured.
#[derive(Clone, Default, PartialEq, Debug, Serialize, Deserialize)]
pub struct Machine {
    /// Processor model.
    pub processor: String,
    /// Processors that this program may use.
    pub processors: usize,
    /// Whether it is a virtual machine.
    pub virtual_machine: bool,
    /// Kernel release.
    pub kernel: String,
    /// The largest receive buffer that the kernel grants, in bytes.
    pub rmem_max: u64,
    /// Load average over a minute, when the measurement began: other work on the machine.
    pub load_at_start: f64,
}

/// Whether a load average says that a machine has other work: more than two programs that want to run for each processor. The build before a measurement
/// leaves about one.
#[must_use]
pub fn is_busy(load: f64, processors: usize) -> bool {
    load > 2.0 * processors as f64
}

impl Machine {
    /// Asks the kernel.
    #[must_use]
    pub fn this() -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let cpuinfo = read("/proc/cpuinfo");
        let field = |name: &str| {
            cpuinfo
                .lines()
                .find_map(|line| line.strip_prefix(name)?.split_once(':'))
                .map(|(_, value)| value.trim().to_owned())
        };
        let first = |text: String| {
            text.split_whitespace()
                .next()
                .unwrap_or_default()
                .to_owned()
        };
        Self {
            processor: field("model name").unwrap_or_default(),
            processors: std::thread::available_parallelism().map_or(0, usize::from),
            virtual_machine: field("flags")
                .is_some_and(|flags| flags.split(' ').any(|flag| flag == "hypervisor")),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            rmem_max: first(read("/proc/sys/net/core/rmem_max"))
                .parse()
                .unwrap_or(0),
            load_at_start: first(read("/proc/loadavg")).parse().unwrap_or(0.0),
        }
    }
}

impl Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.virtual_machine {
            " (virtual)"
        } else {
            ""
        };
        write!(
            f,
            "{}, {} processors{kind}, Linux {}, load {:.1}",
            self.processor, self.processors, self.kernel, self.load_at_start
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_over_parts_of_several_runs_has_all_dates_and_the_worst_load() {
        let measured = |date: &str, load_at_start| Measured {
            date: date.to_owned(),
            machine: Machine {
                load_at_start,
                ..Machine::default()
            },
            ..Measured::default()
        };
        let second = measured("2026-01-02", 0.1).beside(&measured("2026-01-01", 9.0));
        let third = measured("2026-01-03", 0.5).beside(&second);
        assert_eq!(third.machine.load_at_start, 9.0);
        assert_eq!(third.date, "2026-01-03");
        assert_eq!(third.earlier, ["2026-01-01", "2026-01-02"]);
        let said = "parts are of 2026-01-01, 2026-01-02";
        assert!(third.to_string().ends_with(said), "{third}");
        // One run goes on.
        let same = measured("2026-01-01", 0.1).beside(&measured("2026-01-01", 0.2));
        assert_eq!(same.earlier, [""; 0]);
    }

    #[test]
    fn results_go_together_of_one_commit_and_one_kind_of_machine() {
        let measured = |commit: &str, processors, load_at_start: f64| Measured {
            commit: commit.to_owned(),
            date: load_at_start.to_string(),
            machine: Machine {
                processors,
                load_at_start,
                ..Machine::default()
            },
            earlier: Vec::new(),
        };
        let commit = "80d33d8044d7";
        let this = measured(commit, 2, 0.1);
        assert_eq!(this.goes_with(&measured(commit, 2, 0.9)), Ok(()));
        for other in [measured(commit, 64, 0.1), measured("b773f28aaaaa", 2, 0.1)] {
            assert!(this.goes_with(&other).is_err(), "{other}");
        }
        // Nobody knows whether these are the same.
        for unknown in [
            "unknown",
            "80d33d8044d7-dirty",
            "80d33d8044d7 (build of FIRSTHOP_BINARIES)",
        ] {
            let this = measured(unknown, 2, 0.1);
            assert!(this.goes_with(&this).is_err(), "{unknown}");
        }
    }
}
