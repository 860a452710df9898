//! How many files a process may have open, and a socket is one.
//!
//! The soft limit is 1,024 by custom, for the sake of programs that use `select`, and a program that needs more is meant to raise it to
//! the hard one. A server that has reached it hears nobody: what it cannot accept waits, and what it cannot open fails.

#![allow(unsafe_code)] // `getrlimit` and `setrlimit` have no safe wrapper among the crates used here.

use std::io;

use crate::limits::{FILES_LEAST, FILES_RESERVE};
use crate::settings::SettingError;

/// What helps when the limit is too low, in units, containers and shells.
const FIX: &str = "raise the hard limit (LimitNOFILE=, --ulimit nofile=, ulimit -Hn)";

/// How many files a program opens that others do not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Demand {
    /// Before it serves anybody: without them it cannot start.
    pub start: usize,
    /// At the most, when it serves as many as its settings allow.
    pub full: usize,
}

/// Raises the limit as far as it goes. To be called at the start, before anything is opened that stays open: much of what is opened later
/// can only panic when it is refused.
///
/// # Errors
/// The limit is too low for a start.
pub fn provide(demand: Demand) -> Result<OpenFiles, SettingError> {
    OpenFiles::new(demand, raise())
}

/// What came of raising the limit.
#[derive(Debug)]
#[must_use = "whoever runs the program does not know yet"]
pub struct OpenFiles {
    least: u64,
    needed: u64,
    granted: io::Result<u64>,
}

impl OpenFiles {
    fn new(demand: Demand, granted: io::Result<u64>) -> Result<Self, SettingError> {
        let with = |files, more: u64| {
            u64::try_from(files)
                .unwrap_or(u64::MAX)
                .saturating_add(more)
        };
        let least = with(demand.start, FILES_LEAST);
        match granted {
            Ok(granted) if granted < least => Err(SettingError::new(
                "",
                format!("only {granted} files may be open, and the start takes {least}"),
                FIX,
            )),
            granted => Ok(Self {
                least,
                needed: with(demand.full, FILES_RESERVE),
                granted,
            }),
        }
    }

    /// How many may be open beside what the start takes; no bound where the kernel does not tell.
    #[must_use]
    pub fn spare(&self) -> u64 {
        match &self.granted {
            Ok(granted) => granted.saturating_sub(self.least),
            Err(_) => u64::MAX,
        }
    }

    /// Says that this setting was lowered to what there is room for, in the place of [`OpenFiles::report`]. No warning: what a setting is by
    /// default is more than most machines are to carry.
    pub fn report_lowered(&self, setting: &str, wanted: usize, lowered: usize) {
        let granted = self.granted.as_ref().ok();
        let needed = self.needed;
        tracing::info!(
            granted,
            needed,
            wanted,
            lowered,
            "fewer files may be open than {setting} makes necessary, so it is lowered; {FIX}"
        );
    }

    /// Says in the log when there are not enough. To be called when the program has started: one that refuses a setting says nothing else.
    pub fn report(&self) {
        let needed = self.needed;
        match &self.granted {
            Ok(granted) if *granted >= needed => {}
            Ok(granted) => tracing::info!(
                granted,
                needed,
                "fewer files may be open than these settings can make necessary; {FIX}"
            ),
            Err(error) => tracing::warn!(%error, "the limit of open files cannot be raised"),
        }
    }
}

/// Raises the soft limit to the hard one; returns how many files may be open from here on.
fn raise() -> io::Result<u64> {
    let mut limit = limit()?;
    if limit.rlim_cur < limit.rlim_max {
        limit.rlim_cur = limit.rlim_max;
        set(&limit)?;
    }
    Ok(limit.rlim_cur)
}

/// How many files may be open now; nothing where the kernel does not tell.
pub(crate) fn now() -> Option<u64> {
    limit().ok().map(|limit| limit.rlim_cur)
}

fn limit() -> io::Result<libc::rlimit> {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the kernel writes one `rlimit`.
    match unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } {
        0 => Ok(limit),
        _ => Err(io::Error::last_os_error()),
    }
}

fn set(limit: &libc::rlimit) -> io::Result<()> {
    // SAFETY: the kernel reads one `rlimit`.
    match unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const *limit) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_soft_limit_is_raised_to_the_hard_one() {
        let before = limit().expect("a limit");
        let lower = libc::rlimit {
            rlim_cur: before.rlim_max - 1,
            ..before
        };
        set(&lower).expect("lowered");
        assert_eq!(raise().expect("raised"), before.rlim_max);
        let after = limit().expect("a limit");
        assert_eq!(
            (after.rlim_cur, after.rlim_max),
            (before.rlim_max, before.rlim_max)
        );
        assert_eq!(raise().expect("as before"), before.rlim_max);
    }

    #[test]
    fn a_limit_below_what_the_start_takes_is_refused_with_both_numbers_and_the_fix() {
        let demand = Demand {
            start: 10,
            full: 1_000,
        };
        let least = FILES_LEAST + 10;
        let refused = OpenFiles::new(demand, Ok(least - 1)).expect_err("too low");
        assert_eq!(
            refused.to_string(),
            format!(
                "only {} files may be open, and the start takes {least}; {FIX}",
                least - 1
            )
        );
        let low = OpenFiles::new(demand, Ok(least)).expect("enough to start");
        assert_eq!(low.needed, FILES_RESERVE + 1_000);
        assert_eq!(low.spare(), 0);
        let more = OpenFiles::new(demand, Ok(least + 7)).expect("enough to start");
        assert_eq!(more.spare(), 7);
        let unknown = OpenFiles::new(demand, Err(io::ErrorKind::PermissionDenied.into()));
        let unknown = unknown.expect("what cannot be told is no reason to stay down");
        assert_eq!(unknown.spare(), u64::MAX);
    }
}
