//! How large a trunk datagram may be on its way to an owner, as the kernel knows the path.
//!
//! The kernel is asked when a first datagram goes to an owner that is not remembered, and again now and then, one owner at a
//! time: never per packet. An answer outlives the owner's trunks, so that calls that come and go cost no system calls. What
//! a path took once and takes no more leaves in fragments until it is asked again.

use std::collections::{HashMap, VecDeque};

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
    /// Owners remembered at the most.
    capacity: usize,
    /// The kernel's last answer for an owner; nothing when there was no route.
    answers: HashMap<OwnerAddr, Option<u16>>,
    /// Each of them once, by when it was asked about, oldest first.
    order: VecDeque<(OwnerAddr, Micros)>,
}

impl PathSizes {
    /// Remembers up to `owners` owners. `mtu` is an upper bound for the MTU of every path, in bytes; without it the format's
    /// own bound holds.
    #[must_use]
    pub fn new(owners: u16, mtu: Option<u16>) -> Self {
        let most = TRUNK_DATAGRAM_MAX as u16;
        let capacity = usize::from(owners.max(1));
        Self {
            cap: mtu.map_or(most, |mtu| mtu.saturating_sub(HEADERS).min(most)),
            capacity,
            answers: HashMap::with_capacity(capacity),
            order: VecDeque::with_capacity(capacity),
        }
    }

    /// Looks up the owner that a first datagram went to, and asks about one that is not remembered; then the owner that was
    /// asked about longest ago may have to go. Returns its largest datagram in bytes, when there is a route.
    pub fn learn(&mut self, owner: OwnerAddr, now: Micros) -> Option<u16> {
        if let Some(answer) = self.answers.get(&owner) {
            return *answer;
        }
        if self.order.len() == self.capacity
            && let Some((oldest, _)) = self.order.pop_front()
        {
            self.answers.remove(&oldest);
        }
        self.remember(owner, now)
    }

    /// Asks again about the owner whose answer is oldest, when it has become old; forgets it when it is not `in_use`.
    pub fn refresh(
        &mut self,
        now: Micros,
        in_use: impl FnOnce(OwnerAddr) -> bool,
    ) -> Option<(OwnerAddr, u16)> {
        let &(owner, asked) = self.order.front()?;
        if now.0.saturating_sub(asked.0) < PATH_MTU_AGE.as_micros() as u64 {
            return None;
        }
        self.order.pop_front();
        if !in_use(owner) {
            self.answers.remove(&owner);
            return None;
        }
        Some((owner, self.remember(owner, now)?))
    }

    fn remember(&mut self, owner: OwnerAddr, now: Micros) -> Option<u16> {
        let answer = self.ask(owner);
        self.answers.insert(owner, answer);
        self.order.push_back((owner, now));
        answer
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

    fn later() -> Micros {
        Micros(PATH_MTU_AGE.as_micros() as u64)
    }

    #[test]
    fn an_owner_is_asked_about_again_only_when_the_answer_is_old() {
        let mut sizes = PathSizes::new(4, None);
        assert_eq!(sizes.refresh(Micros(0), |_| true), None);
        sizes.learn(loopback(), Micros(0));
        assert_eq!(sizes.refresh(Micros(1), |_| true), None);
        assert_eq!(
            sizes.refresh(later(), |_| true).map(|(owner, _)| owner),
            Some(loopback())
        );
        assert_eq!(sizes.refresh(later(), |_| true), None);
    }

    #[test]
    fn a_trunk_that_is_made_again_asks_nothing() {
        let mut sizes = PathSizes::new(4, None);
        sizes.learn(loopback(), Micros(0));
        sizes.learn(loopback(), Micros(1));
        assert_eq!(sizes.order, [(loopback(), Micros(0))]);
    }

    #[test]
    fn owners_that_are_gone_make_room_and_new_ones_are_asked_about_again() {
        let owner = |port: u16| OwnerAddr::new(([127, 0, 0, 1], port).into());
        let mut sizes = PathSizes::new(2, None);
        for port in 1..=5 {
            assert!(sizes.learn(owner(port), Micros(u64::from(port))).is_some());
        }
        assert_eq!(sizes.answers.len(), 2);
        let now = Micros(later().0 + 10);
        let again = sizes.refresh(now, |_| true);
        assert_eq!(again.map(|(owner, _)| owner), Some(owner(4)));
        assert_eq!(sizes.refresh(now, |_| false), None);
        assert_eq!(sizes.order, [(owner(4), now)]);
        assert_eq!(sizes.answers.len(), 1);
    }
}
