//! How many files a process may have open, and a socket is one.
//!
//! The soft limit is 1,024 by custom, for the sake of programs that use `select`, and a program that needs more is meant to raise it to
//! the hard one. A server that has reached it hears nobody: what it cannot accept waits, and what it cannot open fails.

#![allow(unsafe_code)] // `getrlimit` and `setrlimit` have no safe wrapper among the crates used here.

use std::io;

use crate::limits::FILES_RESERVE;

/// Raises the limit as far as it goes, for so many sockets and some other files. To be called at the start.
pub fn provide(sockets: usize) -> OpenFiles {
    OpenFiles {
        needed: u64::try_from(sockets).map_or(u64::MAX, |n| n.saturating_add(FILES_RESERVE)),
        granted: raise(),
    }
}

/// What came of raising the limit.
#[derive(Debug)]
#[must_use = "whoever runs the program does not know yet"]
pub struct OpenFiles {
    needed: u64,
    granted: io::Result<u64>,
}

impl OpenFiles {
    /// Says in the log when there are not enough. To be called when the program has started: one that refuses a setting says nothing else.
    pub fn report(&self) {
        let needed = self.needed;
        match &self.granted {
            Ok(granted) if *granted >= needed => {}
            Ok(granted) => tracing::info!(
                granted,
                needed,
                "fewer files may be open than these settings can make necessary; raise the hard limit (ulimit -Hn, LimitNOFILE=)"
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
}
