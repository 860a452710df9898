//! A graceful stop: the relay has said that it is not ready, and goes on forwarding until nobody needs it or time is up.
//!
//! Balancers and ingress health checks look at `/readyz`, and take seconds to notice. Until they have, and their clients'
//! packets come another way, whoever ended at once would cut calls. A flow ends when its owner closes it or when nothing
//! passes for its idle time; so a relay without flows serves nobody any more.

use std::time::Duration;

use crate::limits::PUBLISH_INTERVAL;

/// A graceful stop that is under way. Times are since any fixed moment, and never go back.
#[derive(Debug)]
pub struct Drain {
    deadline: Duration,
    /// When the number of flows is believed next; nothing when it says nothing any more.
    look: Option<Duration>,
}

/// What a relay that drains does next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    /// It goes on, and asks again after this time at the latest.
    Wait(Duration),
    /// It ends, because no flow is left.
    Unused,
    /// It ends, because time is up.
    Late,
}

impl Drain {
    /// Begins at `now`, and takes `most` at the most.
    #[must_use]
    pub fn new(now: Duration, most: Duration) -> Self {
        Self {
            deadline: now.saturating_add(most),
            // Cores publish how many flows they have now and then: what is seen earlier may be older than the stop.
            look: Some(now + 2 * PUBLISH_INTERVAL),
        }
    }

    /// The flows were lost, and calls are about to make them anew: that there are none says nothing any more.
    pub fn flows_lost(&mut self) {
        self.look = None;
    }

    /// What to do at `now`, with as many `flows` as the cores published last.
    pub fn next(&mut self, now: Duration, flows: u64) -> Next {
        if now >= self.deadline {
            return Next::Late;
        }
        let left = self.deadline - now;
        let Some(look) = &mut self.look else {
            return Next::Wait(left);
        };
        if now >= *look {
            if flows == 0 {
                return Next::Unused;
            }
            *look = now + PUBLISH_INTERVAL;
        }
        Next::Wait(left.min(*look - now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// Asks whenever it is told to. Returns when and how it ended, and how often it asked.
    fn run(
        drain: &mut Drain,
        begun: Duration,
        flows: impl Fn(Duration) -> u64,
    ) -> (Duration, Next) {
        let mut now = begun;
        for _ in 0..100_000 {
            match drain.next(now, flows(now)) {
                Next::Wait(time) => {
                    assert!(time > Duration::ZERO, "it would spin");
                    now += time;
                }
                end => return (now - begun, end),
            }
        }
        panic!("it never ended");
    }

    #[test]
    fn flows_are_served_until_the_deadline_and_no_longer() {
        let begun = millis(7_000);
        let mut drain = Drain::new(begun, millis(2_550));
        assert_eq!(run(&mut drain, begun, |_| 3), (millis(2_550), Next::Late));
    }

    #[test]
    fn it_ends_soon_after_the_last_flow() {
        let begun = millis(50);
        let mut drain = Drain::new(begun, millis(25_000));
        let last = millis(8_030);
        let (took, end) = run(&mut drain, begun, |now| u64::from(now < last));
        assert_eq!(end, Next::Unused);
        assert!(
            took + begun >= last && took + begun <= last + PUBLISH_INTERVAL,
            "{took:?}"
        );
    }

    #[test]
    fn a_count_that_may_be_older_than_the_stop_is_not_believed() {
        let mut drain = Drain::new(millis(0), millis(25_000));
        assert_eq!(drain.next(millis(0), 0), Next::Wait(2 * PUBLISH_INTERVAL));
        assert!(matches!(drain.next(PUBLISH_INTERVAL, 0), Next::Wait(_)));
        assert_eq!(drain.next(2 * PUBLISH_INTERVAL, 0), Next::Unused);
    }

    #[test]
    fn lost_flows_are_waited_for() {
        let mut drain = Drain::new(millis(0), millis(25_000));
        drain.flows_lost();
        assert_eq!(
            run(&mut drain, millis(0), |_| 0),
            (millis(25_000), Next::Late)
        );
    }
}
