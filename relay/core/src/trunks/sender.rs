//! The boot ids and the sequence numbers of one core.

use firsthop_shared::address::BootId;
use siphasher::sip::SipHasher13;

/// Numbers the datagrams that go one way: up, to owners and to relays that lead there, or down, to relays of clients.
pub(super) struct Sender {
    seed: SipHasher13,
    name: fn(u32) -> BootId,
    boots: u64,
    boot: BootId,
    sequence: u32,
}

impl Sender {
    pub(super) fn up(seed: u64) -> Self {
        Self::new(seed, 0, BootId::of_relay)
    }

    pub(super) fn down(seed: u64) -> Self {
        Self::new(seed, 1, BootId::of_owner)
    }

    fn new(seed: u64, way: u64, name: fn(u32) -> BootId) -> Self {
        let mut sender = Self {
            seed: SipHasher13::new_with_keys(seed, way),
            name,
            boots: 0,
            boot: BootId(0),
            sequence: 0,
        };
        sender.reboot();
        sender
    }

    pub(super) fn next(&mut self) -> (BootId, u32) {
        let number = self.sequence;
        let boot = self.boot;
        match number.checked_add(1) {
            Some(next) => self.sequence = next,
            // A number is never used twice under one boot id: receivers would take it for a replay.
            None => self.reboot(),
        }
        (boot, number)
    }

    /// The boot id of the datagrams that leave now.
    pub(super) fn boot(&self) -> BootId {
        self.boot
    }

    fn reboot(&mut self) {
        self.boot = (self.name)(self.seed.hash(&self.boots.to_be_bytes()) as u32);
        self.boots += 1;
        self.sequence = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sequence_that_would_wrap_takes_a_new_boot_id() {
        let mut sender = Sender::up(7);
        let (first_boot, number) = sender.next();
        assert_eq!(number, 0);
        sender.sequence = u32::MAX;
        assert_eq!(sender.next(), (first_boot, u32::MAX));
        let (second_boot, number) = sender.next();
        assert_eq!(number, 0);
        assert_ne!(first_boot, second_boot);
    }

    #[test]
    fn another_seed_or_another_way_is_another_sender() {
        assert_ne!(Sender::up(1).next().0, Sender::up(2).next().0);
        assert!(!Sender::up(1).boot().is_owner() && Sender::down(1).boot().is_owner());
    }
}
