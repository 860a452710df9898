//! The search for the most that goes well: few tell what one costs, that tells how many could fit, and from there on the number is halved in
//! between what was good and what was not. Pure.

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
    /// Begins with a first number, of which each costs so many microseconds of a processor's second.
    #[must_use]
    pub fn new(first: u32, micros: f64, beyond: Option<&'static str>) -> Self {
        // As many as a processor has time for, and some: costs of each fall when there are more.
        let fits = (1.4e6 / micros.max(1.0)).clamp(1.0, 20_000.0) as u32;
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
            None => self.good = tried,
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
        // It carries less than the first step has.
        assert!((9..=10).contains(&found(10, 90_000.0).0));
    }
}
