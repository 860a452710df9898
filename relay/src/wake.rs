//! Waking a core that sleeps in its packet ring: an eventfd whose read is armed there.
//!
//! The ring's own descriptor must not be polled, and its thread sleeps in one system call only; so who has something for
//! a core writes to its eventfd.

#![allow(unsafe_code)] // `eventfd` has no safe wrapper among the crates used here.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{FromRawFd as _, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

/// Wakes one core; shared by everybody who may.
#[derive(Debug)]
pub struct Wake {
    event: File,
    /// Whether a wake-up is under way that the core has not yet answered: saves a system call for each further one.
    pending: AtomicBool,
}

impl Wake {
    /// Makes the eventfd, and returns the waking end and the descriptor for [`Ring::new`](crate::ring::Ring::new).
    ///
    /// # Errors
    /// Too many open files.
    pub fn new() -> io::Result<(Self, OwnedFd)> {
        // Blocking on purpose: io_uring answers a read of an empty non-blocking descriptor at once instead of keeping it.
        // SAFETY: no memory is passed.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is fresh, and nobody else owns it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let event = File::from(fd.try_clone()?);
        Ok((
            Self {
                event,
                pending: AtomicBool::new(false),
            },
            fd,
        ))
    }

    /// Wakes the core, unless a wake-up is on its way already.
    pub fn wake(&self) {
        if !self.pending.swap(true, Ordering::AcqRel) {
            // The counter cannot overflow with one unanswered write at a time, and nothing else can fail.
            let _ = (&self.event).write_all(&1u64.to_ne_bytes());
        }
    }

    /// The core is awake and is about to look at everything that others may have left for it.
    pub fn answer(&self) {
        if self.pending.load(Ordering::Relaxed) {
            // Reads the last waker's store, and so sees everything that it left before.
            self.pending.swap(false, Ordering::AcqRel);
        }
    }
}
