//! The steps of the serving relay in a hand-over, as a state machine: what was said and the time go in, what to do comes out.

use std::time::Duration;

use super::HandoverError;
use super::message::ToGiver;
use crate::limits::{HANDOVER_ANSWER, HANDOVER_PREPARE, HANDOVER_STEP};

/// What the serving relay does next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// Nothing but to wait for the next message.
    Wait,
    /// Send all sockets.
    SendSockets,
    /// Have a core stand still, then send its flows and [say so](Giving::sent_flows).
    StandStill(u16),
    /// Say that a core is the successor's.
    SendYours(u16),
    /// Everything is handed over: end.
    End,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Offered,
    /// The successor makes its cores.
    Preparing,
    /// A core has been told to stand still.
    Standing(u16),
    /// Its flows are with the successor.
    Importing(u16),
    /// It is the successor's.
    Arming(u16),
    /// This core is the next.
    Between(u16),
    /// All are the successor's.
    Finishing,
    Ended,
}

/// A hand-over, as the serving relay sees it. Times are since any fixed moment, and never go back.
#[derive(Debug)]
pub struct Giving {
    cores: u16,
    phase: Phase,
    deadline: Duration,
}

impl Giving {
    /// The offer of so many cores (at least one) has been sent.
    #[must_use]
    pub fn new(cores: u16, now: Duration) -> Self {
        Self {
            cores,
            phase: Phase::Offered,
            deadline: now + HANDOVER_ANSWER,
        }
    }

    /// When the successor must have said the next thing.
    #[must_use]
    pub fn deadline(&self) -> Duration {
        self.deadline
    }

    /// The cores that stand still, or may: they go on when the hand-over fails.
    #[must_use]
    pub fn standing(&self) -> std::ops::Range<u16> {
        let end = match self.phase {
            Phase::Offered | Phase::Preparing => 0,
            Phase::Standing(core) | Phase::Importing(core) | Phase::Arming(core) => core + 1,
            Phase::Between(core) => core,
            Phase::Finishing | Phase::Ended => self.cores,
        };
        0..end
    }

    /// Where it is, in words.
    #[must_use]
    pub fn step(&self) -> &'static str {
        match self.phase {
            Phase::Offered => "before it accepted",
            Phase::Preparing => "while it prepared its cores",
            Phase::Standing(_) => "while a core came to stand still",
            Phase::Importing(_) => "while it read the flows of a core",
            Phase::Arming(_) => "while it armed a core",
            Phase::Between(_) => "between two cores",
            Phase::Finishing | Phase::Ended => "after the last core",
        }
    }

    /// The successor has said something.
    ///
    /// # Errors
    /// It is not what was due, or comes too late.
    pub fn on(&mut self, message: &ToGiver, now: Duration) -> Result<Step, HandoverError> {
        if now >= self.deadline {
            return Err(HandoverError::Late(self.step()));
        }
        let (phase, time, step) = match (self.phase, message) {
            (_, ToGiver::Refuse { why }) => {
                return Err(HandoverError::GivenUp {
                    why: why.clone(),
                    ends: false,
                });
            }
            (Phase::Offered, ToGiver::Accept) => {
                (Phase::Preparing, HANDOVER_PREPARE, Step::SendSockets)
            }
            (Phase::Preparing, ToGiver::Take { core: 0 }) => {
                (Phase::Standing(0), HANDOVER_STEP, Step::StandStill(0))
            }
            (Phase::Between(next), ToGiver::Take { core }) if next == *core => {
                (Phase::Standing(next), HANDOVER_STEP, Step::StandStill(next))
            }
            (Phase::Importing(this), ToGiver::Imported { core }) if this == *core => {
                (Phase::Arming(this), HANDOVER_STEP, Step::SendYours(this))
            }
            (Phase::Arming(this), ToGiver::Armed { core }) if this == *core => {
                let next = this + 1;
                if next < self.cores {
                    (Phase::Between(next), HANDOVER_STEP, Step::Wait)
                } else {
                    (Phase::Finishing, HANDOVER_STEP, Step::Wait)
                }
            }
            (Phase::Finishing, ToGiver::Serving) => (Phase::Ended, HANDOVER_STEP, Step::End),
            _ => {
                return Err(HandoverError::Unexpected {
                    said: format!("{message:?}"),
                    step: self.step(),
                });
            }
        };
        self.phase = phase;
        self.deadline = now + time;
        Ok(step)
    }

    /// The core that was told to stand still does, and its flows were sent.
    ///
    /// # Panics
    /// When no core was told to.
    pub fn sent_flows(&mut self, now: Duration) {
        let Phase::Standing(core) = self.phase else {
            panic!("flows are sent of a core that was told to stand still");
        };
        self.phase = Phase::Importing(core);
        self.deadline = now + HANDOVER_STEP;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// All that a successor of so many cores says, in order.
    fn script(cores: u16) -> Vec<ToGiver> {
        let each = (0..cores).flat_map(|core| {
            [
                ToGiver::Take { core },
                ToGiver::Imported { core },
                ToGiver::Armed { core },
            ]
        });
        let mut script = vec![ToGiver::Accept];
        script.extend(each);
        script.push(ToGiver::Serving);
        script
    }

    /// Plays messages, one each millisecond, and has every core stand still at once.
    fn play(cores: u16, messages: &[ToGiver]) -> (Giving, Result<Step, HandoverError>) {
        let mut giving = Giving::new(cores, Duration::ZERO);
        let mut last = Ok(Step::Wait);
        for (millis, message) in (1..).zip(messages) {
            let now = Duration::from_millis(millis);
            last = giving.on(message, now);
            match last {
                Ok(Step::StandStill(_)) => giving.sent_flows(now),
                Ok(_) => {}
                Err(_) => break,
            }
        }
        (giving, last)
    }

    #[test]
    fn core_after_core_is_handed_over_and_then_it_ends() {
        for cores in [1, 2, 5] {
            let (giving, last) = play(cores, &script(cores));
            assert_eq!(last.expect("in order"), Step::End);
            assert_eq!(giving.standing(), 0..cores);
        }
    }

    #[test]
    fn a_core_is_the_successors_only_once_its_flows_are_known() {
        let messages = script(2);
        let steps: Vec<Step> = (1..=messages.len())
            .map(|len| play(2, &messages[..len]).1.expect("in order"))
            .collect();
        use Step::{End, SendSockets, SendYours, StandStill, Wait};
        let expected = [
            SendSockets,
            StandStill(0),
            SendYours(0),
            Wait,
            StandStill(1),
            SendYours(1),
            Wait,
            End,
        ];
        assert_eq!(steps, expected);
    }

    #[test]
    fn whoever_stalls_is_given_up_and_nobody_else() {
        let messages = script(2);
        for len in 0..messages.len() {
            let (mut giving, _) = play(2, &messages[..len]);
            let deadline = giving.deadline();
            assert!(
                deadline <= Duration::from_secs(1) + HANDOVER_PREPARE,
                "{len}"
            );
            let late = giving.on(&messages[len], deadline);
            assert!(matches!(late, Err(HandoverError::Late(_))), "{len}");
            giving
                .on(&messages[len], deadline - Duration::from_millis(1))
                .expect("just in time");
        }
    }

    #[test]
    fn every_core_that_may_stand_still_is_known_at_every_step() {
        let messages = script(2);
        let standing: Vec<u16> = (0..=messages.len())
            .map(|len| play(2, &messages[..len]).0.standing().end)
            .collect();
        assert_eq!(standing, [0, 0, 1, 1, 1, 2, 2, 2, 2]);
    }

    #[test]
    fn a_refusal_ends_it_at_any_step_with_its_cause() {
        let messages = script(2);
        for len in 0..messages.len() {
            let (mut giving, _) = play(2, &messages[..len]);
            let why = "too small".to_owned();
            let now = Duration::from_millis(500);
            let error = giving
                .on(&ToGiver::Refuse { why }, now)
                .expect_err("refused");
            assert!(error.to_string().contains("too small"), "{error}");
        }
    }

    fn message() -> impl Strategy<Value = ToGiver> {
        let core = 0u16..4;
        prop_oneof![
            Just(ToGiver::Accept),
            core.clone().prop_map(|core| ToGiver::Take { core }),
            core.clone().prop_map(|core| ToGiver::Imported { core }),
            core.prop_map(|core| ToGiver::Armed { core }),
            Just(ToGiver::Serving),
        ]
    }

    proptest! {
        /// Whatever a peer says: it gets on by the one order alone, and never panics.
        #[test]
        fn nothing_but_the_script_gets_on(
            cores in 1u16..4, kept in 0usize..12, noise in prop::collection::vec(message(), 0..6),
        ) {
            let script = script(cores);
            let kept = kept.min(script.len());
            let mut messages = script[..kept].to_vec();
            messages.extend(noise);
            let in_order = messages.len() <= script.len() && messages[..] == script[..messages.len()];
            let (_, last) = play(cores, &messages);
            prop_assert_eq!(last.is_ok(), in_order);
        }
    }
}
