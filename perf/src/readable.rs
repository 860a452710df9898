//! Waits for several sockets at once, and says which of them have something.

#![allow(unsafe_code)] // `ppoll` has no safe wrapper; every pointer leads to values that outlive the call.

use std::io;
use std::os::fd::RawFd;
use std::ptr;
use std::time::Duration;

/// Sleeps until one of these descriptors is readable, or for so long.
///
/// # Errors
/// What the kernel says, but for an interruption.
pub fn wait(descriptors: &[RawFd], longest: Duration) -> io::Result<()> {
    let mut polled = polled(descriptors);
    poll(&mut polled, longest)
}

/// The same, and replaces `ready` by the places of those that are readable, or that have failed: reading says why.
///
/// # Errors
/// What the kernel says, but for an interruption.
pub fn ready(descriptors: &[RawFd], longest: Duration, ready: &mut Vec<usize>) -> io::Result<()> {
    ready.clear();
    let mut polled = polled(descriptors);
    poll(&mut polled, longest)?;
    let readable = polled.iter().enumerate().filter(|(_, p)| p.revents != 0);
    ready.extend(readable.map(|(at, _)| at));
    Ok(())
}

fn polled(descriptors: &[RawFd]) -> Vec<libc::pollfd> {
    descriptors
        .iter()
        .map(|&fd| libc::pollfd {
            fd,
            events: libc::POLLIN,
            revents: 0,
        })
        .collect()
}

fn poll(polled: &mut [libc::pollfd], longest: Duration) -> io::Result<()> {
    let longest = libc::timespec {
        tv_sec: longest.as_secs() as libc::time_t,
        tv_nsec: libc::c_long::from(longest.subsec_nanos()),
    };
    // SAFETY: as many pollfds as the length says, and a timespec; both outlive the call. No signal mask.
    let result = unsafe {
        libc::ppoll(
            polled.as_mut_ptr(),
            polled.len() as libc::nfds_t,
            &raw const longest,
            ptr::null(),
        )
    };
    if result >= 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    match error.kind() {
        io::ErrorKind::Interrupted => Ok(()),
        _ => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;
    use std::os::fd::AsRawFd as _;

    #[test]
    fn those_that_have_something_are_named() {
        let sockets: Vec<UdpSocket> = (0..3)
            .map(|_| UdpSocket::bind("127.0.0.1:0").expect("a socket"))
            .collect();
        let descriptors: Vec<RawFd> = sockets.iter().map(|s| s.as_raw_fd()).collect();
        let mut found = vec![9];
        ready(&descriptors, Duration::ZERO, &mut found).expect("waited");
        assert!(found.is_empty());
        for to in [1, 2] {
            let to = sockets[to].local_addr().expect("an address");
            sockets[0].send_to(&[1], to).expect("sent");
        }
        ready(&descriptors, Duration::from_secs(5), &mut found).expect("waited");
        assert_eq!(found, [1, 2]);
    }
}
