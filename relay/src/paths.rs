//! How large a trunk datagram may be on its way to an owner, as the kernel knows the path.
//!
//! The kernel is asked when a trunk sends its first datagram, and again now and then, one owner at a time: never per
//! packet. What a path took once and takes no more leaves in fragments until it is asked again.

use firsthop_relay_core::Micros;
use firsthop_shared::address::OwnerAddr;
use firsthop_shared::limits::TRUNK_DATAGRAM_MAX;

use crate::limits::PATH_MTU_AGE;
use crate::sockets;

/// Bytes of IP and UDP headers in front of a datagram, for an MTU that is set by hand: the larger family's.
const HEADERS: u16 = 48;

/// The owners that one core has asked the kernel about.
#[derive(Debug)]
pub struct PathSizes {
    /// No datagram is larger, whatever the path takes.
    cap: u16,
    /// Who was asked about, and when; never longer than its capacity.
    asked: Vec<(OwnerAddr, Micros)>,
    next: usize,
}

impl PathSizes {
    /// Remembers up to `owners` owners. `mtu` is an upper bound for the MTU of every path, in bytes; without it the format's
    /// own bound holds.
    #[must_use]
    pub fn new(owners: u16, mtu: Option<u16>) -> Self {
        let most = TRUNK_DATAGRAM_MAX as u16;
        Self {
            cap: mtu.map_or(most, |mtu| mtu.saturating_sub(HEADERS).min(most)),
            asked: Vec::with_capacity(usize::from(owners)),
            next: 0,
        }
    }

    /// Asks about an owner that a first datagram went to. Returns its largest datagram in bytes, when there is a route.
    pub fn learn(&mut self, owner: OwnerAddr, now: Micros) -> Option<u16> {
        if !self.asked.iter().any(|&(known, _)| known == owner)
            && self.asked.len() < self.asked.capacity()
        {
            self.asked.push((owner, now));
        }
        self.ask(owner)
    }

    /// Asks again about one owner whose answer has become old, the next in turn.
    pub fn refresh(&mut self, now: Micros) -> Option<(OwnerAddr, u16)> {
        self.next = if self.next + 1 < self.asked.len() {
            self.next + 1
        } else {
            0
        };
        let (owner, asked) = self.asked.get_mut(self.next)?;
        if now.0.saturating_sub(asked.0) < PATH_MTU_AGE.as_micros() as u64 {
            return None;
        }
        *asked = now;
        let owner = *owner;
        Some((owner, self.ask(owner)?))
    }

    fn ask(&self, owner: OwnerAddr) -> Option<u16> {
        let payload = sockets::path_payload(owner.get()).ok()?;
        Some(u16::try_from(payload).unwrap_or(u16::MAX).min(self.cap))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loopback() -> OwnerAddr {
        OwnerAddr::new("127.0.0.1:5000".parse().expect("an address"))
    }

    #[test]
    fn loopback_takes_the_largest_datagram() {
        let mut sizes = PathSizes::new(4, None);
        assert_eq!(
            sizes.learn(loopback(), Micros(0)),
            Some(TRUNK_DATAGRAM_MAX as u16)
        );
    }

    #[test]
    fn a_bound_set_by_hand_holds() {
        let mut sizes = PathSizes::new(4, Some(1_500));
        assert_eq!(sizes.learn(loopback(), Micros(0)), Some(1_452));
    }

    #[test]
    fn an_owner_is_asked_about_again_only_when_the_answer_is_old() {
        let mut sizes = PathSizes::new(4, None);
        assert_eq!(sizes.refresh(Micros(0)), None);
        sizes.learn(loopback(), Micros(0));
        assert_eq!(sizes.refresh(Micros(1)), None);
        let later = Micros(PATH_MTU_AGE.as_micros() as u64);
        assert_eq!(
            sizes.refresh(later).map(|(owner, _)| owner),
            Some(loopback())
        );
        assert_eq!(sizes.refresh(later), None);
    }
}
