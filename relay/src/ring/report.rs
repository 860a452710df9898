//! What a ring says about itself: its counters, and why it does not work.

use std::io;

/// What the ring has counted since it was made. Plain numbers: the ring belongs to one core.
#[derive(Clone, Copy, Default, Debug)]
pub struct RingCounters {
    /// Trunk datagrams that the kernel took.
    pub messages_sent: u64,
    /// Bytes of UDP payload in them.
    pub message_bytes_sent: u64,
    /// Records in them.
    pub records_sent: u64,
    /// Client packets that the kernel took.
    pub packets_sent: u64,
    /// Bytes of UDP payload in them.
    pub packet_bytes_sent: u64,
    /// Sends of several packets to one client at once.
    pub trains_sent: u64,
    /// Trunk datagrams refused because the socket's send buffer was full.
    pub messages_send_full: u64,
    /// Records in the trunk datagrams that were refused or failed.
    pub records_lost: u64,
    /// Trunk datagrams that the kernel would not send, for another reason.
    pub messages_failed: u64,
    /// Client packets refused because the socket's send buffer was full.
    pub packets_send_full: u64,
    /// Client packets that the kernel would not send, for another reason (no route, an ICMP error).
    pub packets_failed: u64,
    /// Sends that found the submission queue full.
    pub queue_full: u64,
    /// Times that a socket's receive ended because no buffer was free. Nothing is lost by that: packets wait in the socket, whose own drops
    /// are the losses.
    pub buffers_exhausted: u64,
    /// Receives that ended for another reason and were armed again.
    pub receive_errors: u64,
    /// Receives armed, the first time and again.
    pub arms: u64,
    /// Times the kernel found the completion queue full and kept completions back.
    pub overflows: u64,
    /// System calls.
    pub enters: u64,
}

/// Why a ring could not be made, or stopped to work.
#[derive(Debug, thiserror::Error)]
pub enum RingError {
    /// The kernel has no io_uring, or forbids it to this process.
    #[error(
        "io_uring is not available ({0}): allow it with sysctl kernel.io_uring_disabled=0, and in the container's seccomp profile"
    )]
    Disabled(io::Error),
    /// The kernel is too old for this kind of ring.
    #[error("io_uring is too old here ({0}): Linux 6.1 or newer is needed")]
    Unsupported(io::Error),
    /// The limit of locked memory is too small.
    #[error("io_uring cannot lock enough memory ({0}): raise the memlock limit (ulimit -l)")]
    Memory(io::Error),
    /// Another error of a system call.
    #[error("io_uring: {0}")]
    Io(io::Error),
    /// A receive cannot be armed on one of the sockets.
    #[error("receiving failed on socket {socket}: {error}")]
    Receive {
        /// Index of the socket, as in [`Received::socket`](super::Received::socket).
        socket: u8,
        /// What the kernel said.
        error: io::Error,
    },
}

impl RingError {
    pub(super) fn from_setup(error: io::Error) -> Self {
        match error.raw_os_error() {
            Some(libc::EPERM | libc::ENOSYS | libc::EACCES) => Self::Disabled(error),
            Some(libc::EINVAL) => Self::Unsupported(error),
            Some(libc::ENOMEM) => Self::Memory(error),
            _ => Self::Io(error),
        }
    }
}
