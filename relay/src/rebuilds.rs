//! Whether a relay that lost a core may build its group of cores anew once more: a small decision, made at each loss.
//!
//! One loss may be anything, and calls heal from it. A core that is lost again and again has a cause that stays, and a
//! supervisor, who can wait longer each time, move the work elsewhere or call somebody, must see it: the process ends.

use std::collections::VecDeque;
use std::time::Duration;

use crate::limits::{REBUILD_WINDOW, REBUILDS_MAX};

/// When the group was built anew of late.
#[derive(Debug, Default)]
pub struct Rebuilds {
    /// At most [`REBUILDS_MAX`], oldest first.
    times: VecDeque<Duration>,
}

impl Rebuilds {
    /// Says whether the group may be built anew at `now`, and if so counts it. `now` is the time since any fixed moment, and
    /// never goes back.
    pub fn allow(&mut self, now: Duration) -> bool {
        while self
            .times
            .front()
            .is_some_and(|&time| now.saturating_sub(time) >= REBUILD_WINDOW)
        {
            self.times.pop_front();
        }
        let allowed = self.times.len() < REBUILDS_MAX;
        if allowed {
            self.times.push_back(now);
        }
        allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_loss_now_and_then_is_always_forgiven() {
        let mut rebuilds = Rebuilds::default();
        for time in 0..100 {
            assert!(rebuilds.allow(REBUILD_WINDOW * time));
        }
    }

    #[test]
    fn losses_in_a_row_are_forgiven_so_often_and_no_more() {
        let mut rebuilds = Rebuilds::default();
        for _ in 0..REBUILDS_MAX {
            assert!(rebuilds.allow(seconds(1)));
        }
        assert!(!rebuilds.allow(seconds(1)));
        assert!(!rebuilds.allow(REBUILD_WINDOW));
    }

    #[test]
    fn an_old_loss_makes_room_for_one_new() {
        let mut rebuilds = Rebuilds::default();
        for time in 1..=REBUILDS_MAX as u64 {
            assert!(rebuilds.allow(seconds(time)));
        }
        let first_is_old = REBUILD_WINDOW + seconds(1);
        assert!(!rebuilds.allow(first_is_old - Duration::from_nanos(1)));
        assert!(rebuilds.allow(first_is_old));
        assert!(!rebuilds.allow(first_is_old));
    }

    #[test]
    fn memory_is_bounded() {
        let mut rebuilds = Rebuilds::default();
        for time in 0..1_000 {
            rebuilds.allow(Duration::from_millis(time));
        }
        assert_eq!(rebuilds.times.len(), REBUILDS_MAX);
    }
}
