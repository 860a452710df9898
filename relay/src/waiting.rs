//! How a core waits for packets: a small decision, made once a turn.
//!
//! A core is hot, warm or cold. *Hot*: a turn was full, so there is more; it does not wait. *Warm*: packets come often, but not
//! so often that turns fill. A wake-up costs as much as dozens of packets and a lone packet is packed with no other, so the
//! core sleeps for a fixed moment and takes what has gathered as one batch. *Cold*: packets come seldom; it sleeps until one does.
//!
//! A core with a processor of its own may poll for a moment after each packet instead ([`SPIN`]): that is the least latency,
//! for processor time that nobody else needs. It must stop soon, for the machine's power budget.

use std::time::Duration;

use firsthop_relay_core::Micros;

use crate::limits::{FULL_TURN, GATHER, SLEEP_MAX, SPIN, WARM_PACKETS};

/// How a turn's system call waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wait {
    /// Not at all.
    No,
    /// For this long, whatever comes meanwhile.
    Gather(Duration),
    /// Until something comes, and for this long at the most.
    Sleep(Duration),
}

/// Packets are counted by the millisecond.
const WINDOW: Micros = Micros(1_000);

/// How a core waits.
#[derive(Clone, Copy, Debug)]
pub struct Waiting {
    /// How long it polls after the last packet.
    spin: Micros,
    last_packet: Micros,
    window_start: Micros,
    /// Packets since then.
    current: usize,
    /// Packets in the window before.
    last: usize,
}

impl Waiting {
    /// With `spin`, polls for [`SPIN`] after the last packet; without, never polls.
    #[must_use]
    pub fn new(spin: bool, now: Micros) -> Self {
        let spin = if spin { SPIN } else { Duration::ZERO };
        Self {
            spin: Micros(spin.as_micros() as u64),
            last_packet: now,
            window_start: now,
            current: 0,
            last: 0,
        }
    }

    /// How the next system call waits.
    ///
    /// `received` is how many packets this turn had, `unfinished` whether something is left that cannot wait: packets taken and
    /// not yet handled, datagrams not yet sent, records that wait for company.
    pub fn next(&mut self, now: Micros, received: usize, unfinished: bool) -> Wait {
        self.count(now, received);
        let polling = now.0.saturating_sub(self.last_packet.0) < self.spin.0;
        if unfinished || received >= FULL_TURN || polling {
            Wait::No
        } else if self.last.max(self.current) >= WARM_PACKETS {
            Wait::Gather(GATHER)
        } else {
            Wait::Sleep(SLEEP_MAX)
        }
    }

    fn count(&mut self, now: Micros, received: usize) {
        let age = now.0.saturating_sub(self.window_start.0);
        if age >= WINDOW.0 {
            // What is older than a window says nothing about now.
            self.last = if age < 2 * WINDOW.0 { self.current } else { 0 };
            self.current = 0;
            self.window_start = now;
        }
        self.current += received;
        if received > 0 {
            self.last_packet = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLEEP: Wait = Wait::Sleep(SLEEP_MAX);

    #[test]
    fn polls_for_a_moment_then_sleeps() {
        let mut waiting = Waiting::new(true, Micros(1_000));
        let spin = SPIN.as_micros() as u64;
        assert_eq!(waiting.next(Micros(2_000), 1, false), Wait::No);
        assert_eq!(waiting.next(Micros(2_000 + spin - 1), 0, false), Wait::No);
        assert_eq!(waiting.next(Micros(2_000 + spin), 0, false), SLEEP);
    }

    #[test]
    fn sleeps_at_once_when_it_shall_not_poll_and_packets_are_few() {
        let mut waiting = Waiting::new(false, Micros(0));
        assert_eq!(waiting.next(Micros(5), 1, false), SLEEP);
    }

    #[test]
    fn never_sleeps_on_unfinished_work_or_after_a_full_turn() {
        let mut waiting = Waiting::new(false, Micros(0));
        assert_eq!(waiting.next(Micros(1_000_000), 0, true), Wait::No);
        assert_eq!(waiting.next(Micros(2_000_000), FULL_TURN, false), Wait::No);
    }

    #[test]
    fn gathers_while_packets_come_often_and_sleeps_soon_after_they_end() {
        let mut waiting = Waiting::new(false, Micros(0));
        let often = WINDOW.0 / WARM_PACKETS as u64;
        let mut now = 0;
        for packet in 1..=10 * WARM_PACKETS {
            now += often;
            let expected = if packet < WARM_PACKETS {
                SLEEP
            } else {
                Wait::Gather(GATHER)
            };
            assert_eq!(waiting.next(Micros(now), 1, false), expected, "{packet}");
        }
        let end = now + 2 * WINDOW.0;
        while now < end {
            now += GATHER.as_micros() as u64;
            waiting.next(Micros(now), 0, false);
        }
        assert_eq!(waiting.next(Micros(now), 0, false), SLEEP);
    }

    #[test]
    fn a_burst_after_a_long_silence_is_not_taken_for_a_rate() {
        let mut waiting = Waiting::new(false, Micros(0));
        assert_eq!(waiting.next(Micros(500), WARM_PACKETS - 1, false), SLEEP);
        assert_eq!(waiting.next(Micros(60_000_000), 1, false), SLEEP);
    }
}
