//! What a server has said and its session has not taken yet: in its order, and an interruption among it is found before its turn.
//!
//! A model that is minutes ahead of what is heard fills the playout and then this queue, and the word that the user speaks comes behind all
//! that. It makes the audio before it void; so all up to it is taken at once, and nothing of it has to be played first.

use std::collections::VecDeque;

/// What a message is to those that wait in front of it, as far as can be told before it is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Glance {
    /// Nothing.
    Plain,
    /// The end of all audio among them.
    Interruption,
    /// Nothing; but what comes behind it may mean something else once it is taken.
    Opaque,
}

/// The queue.
#[derive(Debug)]
pub(super) struct Ahead<E> {
    waiting: VecDeque<E>,
    /// How many of the first have been looked at.
    seen: usize,
    /// The last of these is opaque.
    blocked: bool,
    /// How many of the first are to be taken at once, up to the interruption that is the last of them.
    at_once: usize,
}

impl<E> Default for Ahead<E> {
    fn default() -> Self {
        Self {
            waiting: VecDeque::new(),
            seen: 0,
            blocked: false,
            at_once: 0,
        }
    }
}

impl<E> Ahead<E> {
    /// Adds one at the end.
    pub(super) fn push(&mut self, event: E) {
        self.waiting.push_back(event);
    }

    /// Looks for interruptions, at each that waits once.
    pub(super) fn look(&mut self, glance: impl Fn(&E) -> Glance) {
        while !self.blocked
            && let Some(event) = self.waiting.get(self.seen)
        {
            self.seen += 1;
            match glance(event) {
                Glance::Plain => {}
                Glance::Interruption => self.at_once = self.seen,
                Glance::Opaque => self.blocked = true,
            }
        }
    }

    /// Whether an interruption waits that was found.
    pub(super) fn hurries(&self) -> bool {
        self.at_once > 0
    }

    /// Takes the first one, and whether an interruption behind it makes it void; nothing when it has to wait until `all_taken`, that is until
    /// all that came of the one before has been taken.
    pub(super) fn take(&mut self, all_taken: bool) -> Option<(E, bool)> {
        if !all_taken && self.at_once == 0 {
            return None;
        }
        let event = self.waiting.pop_front()?;
        self.seen = self.seen.saturating_sub(1);
        self.blocked &= self.seen > 0;
        self.at_once = self.at_once.saturating_sub(1);
        Some((event, self.at_once > 0))
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    fn of(events: &str) -> Ahead<char> {
        let mut ahead = Ahead::default();
        events.chars().for_each(|event| ahead.push(event));
        ahead
    }

    fn glance(event: &char) -> Glance {
        match event {
            '!' => Glance::Interruption,
            '?' => Glance::Opaque,
            _ => Glance::Plain,
        }
    }

    /// What is taken without a wait: the void ones in capitals.
    fn taken(ahead: &mut Ahead<char>) -> String {
        std::iter::from_fn(|| ahead.take(false))
            .map(|(event, void)| {
                if void {
                    event.to_ascii_uppercase()
                } else {
                    event
                }
            })
            .collect()
    }

    #[test]
    fn each_waits_for_the_one_before() {
        let mut ahead = of("ab");
        ahead.look(glance);
        assert_eq!(ahead.take(false), None);
        assert_eq!(ahead.take(true), Some(('a', false)));
        assert_eq!(ahead.take(false), None);
        assert_eq!(ahead.take(true), Some(('b', false)));
        assert_eq!(ahead.take(true), None);
    }

    #[test]
    fn all_before_an_interruption_is_void_and_does_not_wait() {
        let mut ahead = of("ab!c");
        assert!(!ahead.hurries());
        ahead.look(glance);
        assert!(ahead.hurries());
        assert_eq!(taken(&mut ahead), "AB!");
        assert!(!ahead.hurries());
        assert_eq!(ahead.take(true), Some(('c', false)));
        // An interruption that nobody looked at comes in its turn.
        ahead.push('!');
        assert_eq!(ahead.take(false), None);
        ahead.look(glance);
        assert_eq!(taken(&mut ahead), "!");
    }

    #[test]
    fn of_two_interruptions_the_later_counts() {
        let mut ahead = of("a!b!c");
        ahead.look(glance);
        assert_eq!(taken(&mut ahead), "A!B!");
    }

    #[test]
    fn nothing_is_found_behind_what_may_change_its_meaning_until_that_is_taken() {
        let mut ahead = of("a?b!c");
        ahead.look(glance);
        assert_eq!(ahead.take(false), None);
        assert_eq!(ahead.take(true), Some(('a', false)));
        ahead.look(glance);
        assert_eq!(ahead.take(false), None);
        assert_eq!(ahead.take(true), Some(('?', false)));
        ahead.look(glance);
        assert_eq!(taken(&mut ahead), "B!");
        // But what was found before it counts.
        let mut ahead = of("a!?!");
        ahead.look(glance);
        assert_eq!(taken(&mut ahead), "A!");
    }

    #[test]
    fn each_is_looked_at_once() {
        let looks = Cell::new(0);
        let mut ahead = of("ab?c");
        for more in "def".chars() {
            ahead.look(|event| {
                looks.set(looks.get() + 1);
                glance(event)
            });
            ahead.push(more);
        }
        assert_eq!(looks.get(), 3);
    }
}
