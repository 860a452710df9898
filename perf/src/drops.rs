//! How many datagrams the kernel has dropped at a socket, because nobody took them in time.

#![allow(unsafe_code)] // `getsockopt` has no safe wrapper for this.

use std::io;
use std::net::UdpSocket;
use std::os::fd::AsRawFd as _;

/// Asks for a socket's memory and drops (asm-generic/socket.h): an array of 32-bit numbers, see `SK_MEMINFO_DROPS`.
const SO_MEMINFO: libc::c_int = 55;

/// How many numbers there are (linux/sock_diag.h); a kernel that has more tells these.
const NUMBERS: usize = libc::SK_MEMINFO_DROPS as usize + 1;

/// Asks the kernel.
///
/// # Errors
/// It does not say: Linux does since 4.12.
pub(crate) fn of(socket: &UdpSocket) -> io::Result<u64> {
    let mut numbers = [0u32; NUMBERS];
    let mut length = size_of_val(&numbers) as libc::socklen_t;
    // SAFETY: the socket is open; the kernel writes at most so many bytes as the length says, and the array has as many.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            SO_MEMINFO,
            (&raw mut numbers).cast(),
            &raw mut length,
        )
    };
    match result {
        0 => Ok(u64::from(numbers[libc::SK_MEMINFO_DROPS as usize])),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_finds_no_room_is_counted() {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        let to = socket.local_addr().expect("an address");
        assert_eq!(of(&socket).expect("told"), 0);
        socket2::SockRef::from(&socket)
            .set_recv_buffer_size(4_096)
            .expect("a small buffer");
        let sender = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        for _ in 0..100 {
            sender.send_to(&[0; 1_000], to).expect("sent");
        }
        assert!(of(&socket).expect("told") > 0);
    }
}
