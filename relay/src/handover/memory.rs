//! A file that has no name and lies in memory, to be passed to another process.

#![allow(unsafe_code)] // `memfd_create` has no safe wrapper among the crates used here.

use std::fs::File;
use std::io;
use std::os::fd::{FromRawFd as _, OwnedFd};

/// Makes an empty one.
///
/// # Errors
/// Too many open files.
pub(crate) fn file() -> io::Result<File> {
    // SAFETY: the name is a constant C string, and no other memory is passed.
    let fd = unsafe { libc::memfd_create(c"firsthop-flows".as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is fresh, and nobody else owns it.
    Ok(File::from(unsafe { OwnedFd::from_raw_fd(fd) }))
}
