//! Whether and when a lost connection is made again.

use std::time::Duration;

use super::translator::LossCause;
use crate::limits::{
    BACKEND_ATTEMPTS, BACKEND_BACKOFF_FIRST, BACKEND_BACKOFF_MAX, BACKEND_LIFE, BACKEND_STABLE,
};

/// The attempts of one session.
#[derive(Debug, Default)]
pub(super) struct Retries {
    failures: u32,
}

impl Retries {
    /// What follows from a loss after a connection that lived so long, if there was one: the time to wait, or nothing.
    ///
    /// `random` spreads the sessions that lost the same server. Doubling from a quarter of a second; a connection that was stable
    /// begins anew.
    pub(super) fn after(
        &mut self,
        cause: &LossCause,
        lived: Option<Duration>,
        random: u8,
    ) -> Option<Duration> {
        if lived.is_some_and(|lived| lived >= BACKEND_STABLE) {
            self.failures = 0;
        }
        if is_final(cause) || self.failures >= BACKEND_ATTEMPTS {
            return None;
        }
        let whole = (BACKEND_BACKOFF_FIRST * 2_u32.pow(self.failures)).min(BACKEND_BACKOFF_MAX);
        self.failures += 1;
        // Three quarters of it, and up to a quarter more.
        Some(whole * 3 / 4 + whole * u32::from(random) / (4 * 255))
    }
}

/// What a close code means after a connection that lived so long.
pub(super) fn closed(code: Option<u16>, lived: Duration) -> LossCause {
    match code {
        // Going away: a server that stops, or one that gives a session no more time.
        Some(1_001) if lived >= BACKEND_LIFE => LossCause::Expired,
        code => LossCause::Closed(code),
    }
}

/// Whether trying again would bring the same.
fn is_final(cause: &LossCause) -> bool {
    match cause {
        // Timeout, too early, too many: the client's errors that pass.
        LossCause::Status(status) => {
            (300..500).contains(status) && !matches!(status, 408 | 425 | 429)
        }
        // Done; against the policy; what an application says by codes of its own (RFC 6455 section 7.4.2).
        LossCause::Closed(Some(code)) => matches!(code, 1_000 | 1_008 | 3_000..=4_999),
        LossCause::Expired | LossCause::Fault => true,
        LossCause::Unreachable
        | LossCause::TimedOut
        | LossCause::Closed(None)
        | LossCause::Violation => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3_600);

    #[test]
    fn waits_double_up_to_their_bound_and_then_it_is_over() {
        let mut retries = Retries::default();
        let mut waits = Vec::new();
        while let Some(wait) = retries.after(&LossCause::Unreachable, None, 255) {
            waits.push(wait.as_millis());
        }
        assert_eq!(waits, [250, 500, 1_000, 2_000, 4_000, 8_000]);
        let mut early = Retries::default();
        let wait = early.after(&LossCause::Unreachable, None, 0);
        assert_eq!(wait, Some(Duration::from_micros(187_500)));
    }

    #[test]
    fn a_stable_connection_begins_anew_and_a_short_one_does_not() {
        let mut retries = Retries::default();
        let broken = LossCause::Closed(None);
        for _ in 0..3 {
            retries.after(&broken, Some(Duration::from_secs(1)), 255);
        }
        let after = retries.after(&broken, Some(HOUR), 255);
        assert_eq!(after, Some(BACKEND_BACKOFF_FIRST));
    }

    #[test]
    fn only_what_may_pass_is_tried_again() {
        let again = |cause: LossCause| Retries::default().after(&cause, None, 0).is_some();
        for status in [301, 400, 401, 403, 404] {
            assert!(!again(LossCause::Status(status)), "{status}");
        }
        for status in [200, 408, 429, 500, 503] {
            assert!(again(LossCause::Status(status)), "{status}");
        }
        for code in [1_000, 1_008, 3_000, 4_001] {
            assert!(!again(LossCause::Closed(Some(code))), "{code}");
        }
        for code in [1_001, 1_006, 1_009, 1_011, 1_012, 1_013] {
            assert!(again(LossCause::Closed(Some(code))), "{code}");
        }
    }

    #[test]
    fn going_away_after_an_hour_is_the_end_of_the_session() {
        assert_eq!(closed(Some(1_001), HOUR), LossCause::Expired);
        let early = closed(Some(1_001), Duration::from_secs(600));
        assert_eq!(early, LossCause::Closed(Some(1_001)));
        assert_eq!(closed(Some(1_011), HOUR), LossCause::Closed(Some(1_011)));
    }
}
