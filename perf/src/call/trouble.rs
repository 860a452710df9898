//! What befalls calls while they last: ICE restarts, and changes of the client's address with and without one. Pure, and the same for the same seed.

use std::time::{Duration, Instant};

use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};
use rand_distr::{Distribution as _, Exp1};

/// How often each befalls a call, per second.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub struct Rates {
    /// The client restarts ICE where it is.
    pub restarts: f64,
    /// The client gets another address, knows it, and restarts ICE from there, as when a phone leaves a network.
    pub moves: f64,
    /// The client gets another port, and nobody knows, as behind a NAT that forgets.
    pub rebinds: f64,
}

impl Rates {
    fn sum(self) -> f64 {
        self.restarts + self.moves + self.rebinds
    }
}

/// What befalls a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Trouble {
    /// See [`Rates::restarts`].
    Restart,
    /// See [`Rates::moves`].
    Move,
    /// See [`Rates::rebinds`].
    Rebind,
}

/// The troubles of one call: each comes by chance, whenever the others came.
#[derive(Debug)]
pub struct Troubles {
    rates: Rates,
    random: StdRng,
    next: Instant,
}

impl Troubles {
    /// Those of call number `n`, from `now` on; nothing when there are none.
    #[must_use]
    pub fn new(rates: Rates, seed: u64, n: u32, now: Instant) -> Option<Self> {
        if rates.sum() <= 0.0 {
            return None;
        }
        // Odd, so that no two calls share what is random.
        let mut random = StdRng::seed_from_u64(seed ^ (u64::from(n) << 1 | 1).rotate_right(32));
        let next = now + wait(rates, &mut random);
        Some(Self {
            rates,
            random,
            next,
        })
    }

    /// When the next one comes.
    #[must_use]
    pub fn next(&self) -> Instant {
        self.next
    }

    /// The one that has come by `now`, if one has.
    pub fn take(&mut self, now: Instant) -> Option<Trouble> {
        if now < self.next {
            return None;
        }
        self.next = now + wait(self.rates, &mut self.random);
        let at = self.random.random_range(0.0..self.rates.sum());
        Some(if at < self.rates.restarts {
            Trouble::Restart
        } else if at < self.rates.restarts + self.rates.moves {
            Trouble::Move
        } else {
            Trouble::Rebind
        })
    }
}

fn wait(rates: Rates, random: &mut StdRng) -> Duration {
    let waiting: f64 = Exp1.sample(random);
    // Not for ever: an instant has its bounds.
    Duration::from_secs_f64((waiting / rates.sum()).min(1e6))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn troubles_come_as_often_as_asked_for_and_alike_for_the_same_seed() {
        let rates = Rates {
            restarts: 0.5,
            moves: 0.2,
            rebinds: 0.3,
        };
        let start = Instant::now();
        let befallen = |seed, n| {
            let mut troubles = Troubles::new(rates, seed, n, start).expect("some");
            let mut all = Vec::new();
            while troubles.next() < start + Duration::from_secs(10_000) {
                let at = troubles.next();
                all.push((at - start, troubles.take(at).expect("due")));
            }
            all
        };
        let all = befallen(1, 7);
        let count = |trouble| all.iter().filter(|(_, t)| *t == trouble).count();
        for (trouble, expected) in [
            (Trouble::Restart, 5_000),
            (Trouble::Move, 2_000),
            (Trouble::Rebind, 3_000),
        ] {
            let found = count(trouble);
            assert!(found.abs_diff(expected) < 250, "{trouble:?} {found}");
        }
        assert_eq!(befallen(1, 7), all);
        assert_ne!(befallen(1, 8), all);
        assert_ne!(befallen(2, 7), all);
    }

    #[test]
    fn a_call_that_nothing_befalls_has_no_troubles() {
        assert!(Troubles::new(Rates::default(), 1, 1, Instant::now()).is_none());
        let rare = Rates {
            moves: 1e-30,
            ..Rates::default()
        };
        let now = Instant::now();
        let mut troubles = Troubles::new(rare, 1, 1, now).expect("some");
        assert!(troubles.next() > now);
        assert_eq!(troubles.take(now), None);
    }
}
