//! How many receives to arm ahead of the one that stays, at a socket where empty datagrams end them.

use crate::limits::GLANCES_MAX;

/// What is known of one socket.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Empties {
    /// Glances that were armed last.
    glances: u16,
    /// Receives of any kind that an empty datagram has ended since.
    ended: u16,
}

impl Empties {
    /// An empty datagram has ended a receive.
    pub(super) fn ended(&mut self) {
        self.ended = self.ended.saturating_add(1);
    }

    /// How many glances to arm now, with a receive that stays.
    ///
    /// Twice as many, and one, when all that were armed have ended so: there may be more. Else one less than have: a glance that finds
    /// nothing costs a fraction of a turn, and a lone empty datagram brings no more than one.
    pub(super) fn glances(&mut self) -> u16 {
        self.glances = if self.ended > self.glances {
            (2 * self.glances + 1).min(GLANCES_MAX)
        } else {
            self.ended.saturating_sub(1)
        };
        self.ended = 0;
        self.glances
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_met_with_more_and_more_glances_up_to_a_bound() {
        let mut empties = Empties::default();
        let mut met = Vec::new();
        for _ in 0..6 {
            // The receive that stays is one more.
            (0..=empties.glances).for_each(|_| empties.ended());
            met.push(empties.glances());
        }
        assert_eq!(met, [1, 3, 7, 15, GLANCES_MAX, GLANCES_MAX]);
    }

    #[test]
    fn they_are_no_more_than_there_is_for_them_to_take() {
        let mut empties = Empties {
            glances: GLANCES_MAX,
            ended: 0,
        };
        (0..6).for_each(|_| empties.ended());
        assert_eq!(empties.glances(), 5);
        // The receive ended for another reason.
        assert_eq!(empties.glances(), 0);
    }

    #[test]
    fn every_second_of_lone_empty_datagrams_brings_one() {
        let mut empties = Empties::default();
        let lone = [(); 4].map(|()| {
            empties.ended();
            empties.glances()
        });
        assert_eq!(lone, [1, 0, 1, 0]);
    }
}
