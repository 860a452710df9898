//! The search for the most that goes well: few tell what one costs, that tells how many could fit, and from there on the number is halved in
//! between what was good and what was not. Where nothing was met up to near the guess, that is doubled. Pure.

/// The two ends that are known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Between {
    /// The most that went well.
    pub good: u32,
    /// The fewest that did not, or a guess.
    bad: u32,
    /// What kept more from going well; nothing when nothing has yet.
    pub limit: Option<&'static str>,
}

impl Between {
    /// Begins with a first number, of which each costs so many microseconds of a processor's second; no number, where that is not known.
    #[must_use]
    pub fn new(first: u32, micros: f64, beyond: Option<&'static str>) -> Self {
        // As many as a processor has time for, and some: costs of each fall when there are more.
        let fits = if micros > 0.0 {
            (1.4e6 / micros.max(1.0)).clamp(1.0, 20_000.0) as u32
        } else {
            2 * first
        };
        Self {
            good: if beyond.is_none() { first } else { 0 },
            bad: if beyond.is_none() {
                fits.max(first + 2)
            } else {
                first
            },
            limit: beyond,
        }
    }

    /// How many to try next; nothing when the two ends are within a thirtieth of each other.
    #[must_use]
    pub fn next(&self) -> Option<u32> {
        let gap = self.bad - self.good;
        (gap > (self.bad / 30).max(1)).then(|| self.good + gap.div_ceil(2))
    }

    /// So many were tried.
    pub fn found(&mut self, tried: u32, beyond: Option<&'static str>) {
        match beyond {
            None => {
                self.good = tried;
                // Nothing has been met up to near the guess: it was too low.
                if self.limit.is_none() && self.bad - tried.min(self.bad) <= self.bad / 4 {
                    self.bad = tried.saturating_mul(2).max(tried + 2);
                }
            }
            Some(_) => (self.bad, self.limit) = (tried, beyond),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Searches a machine that carries so many, each at a cost.
    fn found(capacity: u32, micros: f64) -> (u32, usize) {
        let beyond = |calls| (calls > capacity).then_some("lateness");
        let mut between = Between::new(20, micros, beyond(20));
        let mut steps = 0;
        while let Some(calls) = between.next() {
            between.found(calls, beyond(calls));
            steps += 1;
            assert!(steps < 20, "the search ends");
        }
        (between.good, steps)
    }

    #[test]
    fn a_search_that_meets_nothing_goes_on_upwards() {
        let mut between = Between::new(400, 500.0, None);
        let mut last = 400;
        for _ in 0..8 {
            let calls = between.next().expect("more");
            assert!(calls > last, "{calls} after {last}");
            between.found(calls, None);
            last = calls;
        }
        // Its first guess was 2,800.
        assert!(between.good > 10_000, "{between:?}");
    }

    #[test]
    fn the_search_comes_within_a_thirtieth() {
        for (capacity, micros) in [
            (70, 14_000.0),
            (1_000, 900.0),
            (37, 20_000.0),
            (25, 30_000.0),
        ] {
            let (calls, steps) = found(capacity, micros);
            assert!(
                calls <= capacity && calls * 15 >= capacity * 14,
                "{calls} of {capacity}"
            );
            assert!(steps <= 8, "{steps} steps for {capacity}");
        }
        // The first few cost more each than many do, or what they cost is not known.
        for micros in [14_000.0, f64::NAN, 0.0] {
            let (calls, steps) = found(1_000, micros);
            assert!((934..=1_000).contains(&calls), "{calls}");
            assert!(steps <= 14, "{steps} steps");
        }
        // It carries less than the first step has.
        assert!((9..=10).contains(&found(10, 90_000.0).0));
    }
}
