//! How large a trunk datagram may be on its way to another program, as the kernel knows the path.
//!
//! The kernel is asked when a first datagram goes to a destination that is not remembered, and again now and then, one destination at
//! a time: never per packet. An answer outlives what needed it, so that calls that come and go cost no system calls. What a path took
//! once and takes no more leaves in fragments until it is asked again.
#![allow(unsafe_code)] // `getsockopt` of a path's MTU has no safe wrapper among the crates used here.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd as _;
use std::time::Duration;

use firsthop_shared::limits::TRUNK_DATAGRAM_MAX;

use crate::limits::{PATH_MTU_AGE, PATH_MTU_DOUBT};

/// Bytes of IP and UDP headers in front of a datagram, for an MTU that is set by hand: the larger family's.
const HEADERS: u16 = 48;

/// The destinations that one thread has asked the kernel about. Times are since a start of its own.
#[derive(Debug)]
pub struct PathSizes {
    /// No datagram is larger, whatever the path takes.
    cap: u16,
    /// Destinations remembered at the most.
    capacity: usize,
    /// The kernel's last answer for a destination; nothing when there was no route.
    answers: HashMap<SocketAddr, Option<u16>>,
    /// Each of them once, by when it was asked about, oldest first.
    order: VecDeque<(SocketAddr, Duration)>,
}

impl PathSizes {
    /// Remembers up to so many destinations. `mtu` is an upper bound for the MTU of every path, in bytes; without it the format's
    /// own bound holds.
    #[must_use]
    pub fn new(destinations: u16, mtu: Option<u16>) -> Self {
        let most = TRUNK_DATAGRAM_MAX as u16;
        let capacity = usize::from(destinations.max(1));
        Self {
            cap: mtu.map_or(most, |mtu| mtu.saturating_sub(HEADERS).min(most)),
            capacity,
            answers: HashMap::with_capacity(capacity),
            order: VecDeque::with_capacity(capacity),
        }
    }

    /// No datagram is larger than this, whatever a path takes, in bytes.
    #[must_use]
    pub fn most(&self) -> u16 {
        self.cap
    }

    /// Looks up the destination that a first datagram went to, and asks about one that is not remembered; then the one that was
    /// asked about longest ago may have to go. Returns its largest datagram in bytes, when there is a route.
    pub fn learn(&mut self, to: SocketAddr, now: Duration) -> Option<u16> {
        if let Some(answer) = self.answers.get(&to) {
            return *answer;
        }
        if self.order.len() == self.capacity
            && let Some((oldest, _)) = self.order.pop_front()
        {
            self.answers.remove(&oldest);
        }
        self.remember(to, now)
    }

    /// Asks again about a destination to which the kernel has refused a datagram of a size that the answer allowed. At most once in
    /// `PATH_MTU_DOUBT`, whatever happens.
    pub fn doubt(&mut self, to: SocketAddr, now: Duration) -> Option<u16> {
        let Some(at) = self.order.iter().position(|(known, _)| *known == to) else {
            return self.learn(to, now);
        };
        let asked = self.order[at].1;
        if now.saturating_sub(asked) < PATH_MTU_DOUBT {
            return self.answers.get(&to).copied().flatten();
        }
        self.order.remove(at);
        self.remember(to, now)
    }

    /// Asks again about the destination whose answer is oldest, when it has become old; forgets it when it is not `in_use`.
    pub fn refresh(
        &mut self,
        now: Duration,
        in_use: impl FnOnce(SocketAddr) -> bool,
    ) -> Option<(SocketAddr, u16)> {
        let &(to, asked) = self.order.front()?;
        if now.saturating_sub(asked) < PATH_MTU_AGE {
            return None;
        }
        self.order.pop_front();
        if !in_use(to) {
            self.answers.remove(&to);
            return None;
        }
        Some((to, self.remember(to, now)?))
    }

    fn remember(&mut self, to: SocketAddr, now: Duration) -> Option<u16> {
        let answer = self.ask(to);
        self.answers.insert(to, answer);
        self.order.push_back((to, now));
        answer
    }

    fn ask(&self, to: SocketAddr) -> Option<u16> {
        let payload = path_payload(to).ok()?;
        Some(u16::try_from(payload).unwrap_or(u16::MAX).min(self.cap))
    }
}

/// The largest UDP payload that reaches `destination` unfragmented, as the kernel knows the path today.
///
/// # Errors
/// There is no route.
fn path_payload(destination: SocketAddr) -> io::Result<usize> {
    let any: SocketAddr = match destination {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let socket = UdpSocket::bind(any)?;
    socket.connect(destination)?;
    let (level, name, headers) = if destination.is_ipv6() {
        (libc::IPPROTO_IPV6, libc::IPV6_MTU, 48)
    } else {
        (libc::IPPROTO_IP, libc::IP_MTU, 28)
    };
    let mut mtu: libc::c_int = 0;
    let mut len = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: `socket` is open; the kernel writes at most `len` bytes, the size of `mtu`.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            level,
            name,
            (&raw mut mtu).cast(),
            &raw mut len,
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(usize::try_from(mtu).unwrap_or(0).saturating_sub(headers))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loopback() -> SocketAddr {
        ([127, 0, 0, 1], 5_000).into()
    }

    #[test]
    fn loopback_takes_the_largest_datagram() {
        let mut sizes = PathSizes::new(4, None);
        assert_eq!(
            sizes.learn(loopback(), Duration::ZERO),
            Some(TRUNK_DATAGRAM_MAX as u16)
        );
    }

    #[test]
    fn a_bound_set_by_hand_holds() {
        let mut sizes = PathSizes::new(4, Some(1_500));
        assert_eq!(sizes.learn(loopback(), Duration::ZERO), Some(1_452));
    }

    #[test]
    fn a_destination_is_asked_about_again_only_when_the_answer_is_old() {
        let mut sizes = PathSizes::new(4, None);
        assert_eq!(sizes.refresh(Duration::ZERO, |_| true), None);
        sizes.learn(loopback(), Duration::ZERO);
        assert_eq!(sizes.refresh(Duration::from_micros(1), |_| true), None);
        assert_eq!(
            sizes
                .refresh(PATH_MTU_AGE, |_| true)
                .map(|(owner, _)| owner),
            Some(loopback())
        );
        assert_eq!(sizes.refresh(PATH_MTU_AGE, |_| true), None);
    }

    #[test]
    fn a_trunk_that_is_made_again_asks_nothing() {
        let mut sizes = PathSizes::new(4, None);
        sizes.learn(loopback(), Duration::ZERO);
        sizes.learn(loopback(), Duration::from_micros(1));
        assert_eq!(sizes.order, [(loopback(), Duration::ZERO)]);
    }

    #[test]
    fn destinations_that_are_gone_make_room_and_new_ones_are_asked_about_again() {
        let owner = |port: u16| SocketAddr::from(([127, 0, 0, 1], port));
        let mut sizes = PathSizes::new(2, None);
        for port in 1..=5 {
            assert!(
                sizes
                    .learn(owner(port), Duration::from_micros(port.into()))
                    .is_some()
            );
        }
        assert_eq!(sizes.answers.len(), 2);
        let now = PATH_MTU_AGE + Duration::from_micros(10);
        let again = sizes.refresh(now, |_| true);
        assert_eq!(again.map(|(owner, _)| owner), Some(owner(4)));
        assert_eq!(sizes.refresh(now, |_| false), None);
        assert_eq!(sizes.order, [(owner(4), now)]);
        assert_eq!(sizes.answers.len(), 1);
    }

    #[test]
    fn a_destination_that_is_doubted_is_asked_about_at_once_and_not_over_and_over() {
        let other = SocketAddr::from(([127, 0, 0, 1], 5_001));
        let mut sizes = PathSizes::new(4, None);
        sizes.learn(loopback(), Duration::ZERO);
        sizes.learn(other, Duration::ZERO);
        let soon = PATH_MTU_DOUBT / 2;
        assert!(sizes.doubt(loopback(), soon).is_some());
        assert_eq!(
            sizes.order,
            [(loopback(), Duration::ZERO), (other, Duration::ZERO)]
        );
        assert!(sizes.doubt(loopback(), PATH_MTU_DOUBT).is_some());
        assert_eq!(
            sizes.order,
            [(other, Duration::ZERO), (loopback(), PATH_MTU_DOUBT)]
        );
    }
}
