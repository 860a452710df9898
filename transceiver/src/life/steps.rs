//! Where a session has stood, and what brought it there: the last steps, for whoever asks why a call went as it did.

use std::collections::VecDeque;
use std::time::Instant;

use super::{EndReason, State};
use crate::limits;

/// A step of a session's life.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
pub struct Step {
    /// When, in milliseconds from the answer.
    pub at_ms: u64,
    /// Where the session stood from then on: a [`State::label`].
    pub state: &'static str,
    /// What brought it there, in a word; at the end an [`EndReason::label`].
    pub why: &'static str,
}

/// The steps after the first, bounded: the oldest make room.
#[derive(Clone, Debug, Default)]
pub(super) struct Steps(VecDeque<(Instant, State)>);

impl Steps {
    /// Notes where the session stands; only a change counts.
    pub(super) fn note(&mut self, state: State, now: Instant) {
        if self.0.back().map_or(State::Created, |(_, last)| *last) == state {
            return;
        }
        if self.0.len() == limits::STEPS_KEPT {
            self.0.pop_front();
        }
        self.0.push_back((now, state));
    }

    /// All that is kept, after the step that every session begins with.
    pub(super) fn list(&self, created: Instant, ended: Option<EndReason>) -> Vec<Step> {
        let mut list = vec![Step {
            at_ms: 0,
            state: State::Created.label(),
            why: "answered",
        }];
        let mut before = State::Created;
        for (at, state) in &self.0 {
            let passed = at.saturating_duration_since(created).as_millis();
            list.push(Step {
                at_ms: u64::try_from(passed).unwrap_or(u64::MAX),
                state: state.label(),
                why: match (before, state) {
                    (_, State::Ended) => ended.map_or("ended", EndReason::label),
                    (_, State::Interrupted) => "not_heard",
                    (State::Interrupted, State::Live) => "heard_again",
                    (_, State::Live) => "dtls_up",
                    (_, State::Connecting) => "first_check",
                    (_, State::Created) => "answered",
                },
            });
            before = *state;
        }
        list
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::Life;
    use super::*;

    #[test]
    fn each_step_is_told_with_its_time_and_what_brought_it() {
        let start = Instant::now();
        let mut life = Life::new(start);
        life.checked(start + Duration::from_millis(40));
        life.checked(start + Duration::from_millis(50));
        life.connected(start + Duration::from_millis(90));
        life.proven(start + Duration::from_millis(95));
        let steps: Vec<(u64, &str)> = life.steps().iter().map(|s| (s.at_ms, s.why)).collect();
        assert_eq!(
            steps,
            [(0, "answered"), (40, "first_check"), (90, "dtls_up")]
        );
    }

    #[test]
    fn of_a_long_life_the_last_steps_are_kept() {
        let start = Instant::now();
        let mut life = Life::new(start);
        let mut now = start;
        life.connected(now);
        for _ in 0..limits::STEPS_KEPT {
            now += limits::SILENCE_BEFORE_INTERRUPTED;
            life.poll(now);
            now += Duration::from_secs(1);
            life.proven(now);
        }
        life.end(EndReason::HungUp, now);
        life.end(EndReason::Stopped, now);
        let steps = life.steps();
        assert_eq!(steps.len(), 1 + limits::STEPS_KEPT);
        assert_eq!(steps[0].why, "answered");
        let last: Vec<&str> = steps.iter().rev().take(3).map(|step| step.why).collect();
        assert_eq!(last, ["hung_up", "heard_again", "not_heard"]);
    }
}
