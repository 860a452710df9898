//! Signals to programs that this one has started.

#![allow(unsafe_code)] // `kill` has no safe wrapper.

use std::io;

/// What to tell a program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Signal {
    /// Stand still.
    Stop,
    /// Run on.
    Continue,
    /// End.
    Terminate,
}

/// Sends a signal to a process.
///
/// # Errors
/// The process has ended, or is another user's.
pub fn send(pid: u32, signal: Signal) -> io::Result<()> {
    let number = match signal {
        Signal::Stop => libc::SIGSTOP,
        Signal::Continue => libc::SIGCONT,
        Signal::Terminate => libc::SIGTERM,
    };
    let pid = i32::try_from(pid).map_err(io::Error::other)?;
    // SAFETY: no memory is involved; a positive number names one process and no group.
    match unsafe { libc::kill(pid, number) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
