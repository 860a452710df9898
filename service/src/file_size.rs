//! The limit of file sizes (`ulimit -f`, `LimitFSIZE=`), which ends a process by default.
//!
//! A write beyond it raises SIGXFSZ, and fails once that is ignored. What counts as a file is more than what a program takes for one: a
//! memory file that is passed to another process does, and so does the log when standard error leads to a file. None of them is worth the
//! calls that a process holds.

#![allow(unsafe_code)] // `signal` has no safe wrapper among the crates used here.

/// Has a write beyond the limit fail, as one to a full disk does, instead of ending the process. To be called at the start.
pub fn outlive_limit() {
    // SAFETY: no handler is installed, and nobody else has an interest in this signal.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}
