//! Whether a core polls or sleeps: a small decision, made once a turn.
//!
//! A wake-up costs as much as dozens of packets, so a core that has just had packets polls for a moment before it sleeps.
//! It must stop soon: a core that polls takes its processor from everybody else, and from the machine's power budget.

use std::time::Duration;

use firsthop_relay_core::Micros;

use crate::limits::{SLEEP_MAX, SPIN};

/// When a core sleeps.
#[derive(Clone, Copy, Debug)]
pub struct Waiting {
    /// How long it polls after the last packet.
    spin: Micros,
    last_packet: Micros,
}

impl Waiting {
    /// With `spin`, polls for [`SPIN`] before it sleeps; without, sleeps at once.
    #[must_use]
    pub fn new(spin: bool, now: Micros) -> Self {
        let spin = if spin { SPIN } else { Duration::ZERO };
        Self {
            spin: Micros(spin.as_micros() as u64),
            last_packet: now,
        }
    }

    /// How long the next system call may wait for a packet. `None`: not at all.
    ///
    /// `received` says whether this turn had a packet, `unfinished` whether something is left that cannot wait: packets
    /// taken and not yet handled, datagrams not yet sent, records that wait for company.
    pub fn next(&mut self, now: Micros, received: bool, unfinished: bool) -> Option<Duration> {
        if received {
            self.last_packet = now;
        }
        let spinning = now.0.saturating_sub(self.last_packet.0) < self.spin.0;
        (!unfinished && !spinning).then_some(SLEEP_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn polls_for_a_moment_then_sleeps() {
        let mut waiting = Waiting::new(true, Micros(1_000));
        let spin = SPIN.as_micros() as u64;
        assert_eq!(waiting.next(Micros(2_000), true, false), None);
        assert_eq!(waiting.next(Micros(2_000 + spin - 1), false, false), None);
        assert_eq!(
            waiting.next(Micros(2_000 + spin), false, false),
            Some(SLEEP_MAX)
        );
    }

    #[test]
    fn sleeps_at_once_when_it_shall_not_poll() {
        let mut waiting = Waiting::new(false, Micros(0));
        assert_eq!(waiting.next(Micros(5), true, false), Some(SLEEP_MAX));
    }

    #[test]
    fn never_sleeps_on_unfinished_work() {
        let mut waiting = Waiting::new(false, Micros(0));
        assert_eq!(waiting.next(Micros(1_000_000), false, true), None);
    }
}
