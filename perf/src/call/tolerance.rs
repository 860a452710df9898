//! How bad calls may be: what a number of calls is held against before it counts as carried. Pure.

use std::fmt::{self, Display};

use serde::{Deserialize, Serialize};

/// From this share of its processor on, the generator is what limits.
pub(super) const GENERATOR_BUSY: f64 = 0.95;

/// Whether the generator is what limits: it uses nearly all of its processor, or its own sockets lose packets. What it shows of others counts nowhere then.
#[must_use]
pub fn is_generator_limit(busy: f64, lost: u64) -> bool {
    lost > 0 || busy > GENERATOR_BUSY
}

/// What calls must keep to.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize, clap::Args)]
pub struct Tolerance {
    /// How long a sound may take from a caller's mouth through the answerer back to the caller's ear, the answerer's own delay apart, in
    /// milliseconds: the 99th percentile.
    #[arg(long, default_value_t = Self::default().mouth_to_ear_p99_ms, value_name = "MS", value_parser = limit)]
    pub mouth_to_ear_p99_ms: f64,
    /// How much later than the earliest packets may come, in milliseconds, by their timestamps: the 99th percentile. A frame is 20.
    #[arg(long, default_value_t = Self::default().lateness_p99_ms, value_name = "MS", value_parser = limit)]
    pub lateness_p99_ms: f64,
    /// How long a call may take from the request until DTLS is up, in milliseconds: the 99th percentile.
    #[arg(long, default_value_t = Self::default().set_up_p99_ms, value_name = "MS", value_parser = limit)]
    pub set_up_p99_ms: f64,
    /// How long signaling alone may take to answer, in milliseconds: the 99th percentile.
    #[arg(long, default_value_t = Self::default().answer_p99_ms, value_name = "MS", value_parser = limit)]
    pub answer_p99_ms: f64,
    /// Gaps above 60 ms in what callers hear, for each hundred calls.
    #[arg(long, default_value_t = Self::default().gaps_per_hundred, value_name = "COUNT", value_parser = limit)]
    pub gaps_per_hundred: f64,
    /// The share of packets that may be lost.
    #[arg(long, default_value_t = Self::default().lost, value_name = "SHARE", value_parser = limit)]
    pub lost: f64,
    /// The share of calls that may fail: one in a hundred may be late for the party.
    #[arg(long, default_value_t = Self::default().failed, value_name = "SHARE", value_parser = limit)]
    pub failed: f64,
}

/// A limit as a flag has it.
fn limit(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(limit) if limit >= 0.0 && limit.is_finite() => Ok(limit),
        _ => Err("give a number that is not negative".to_owned()),
    }
}

impl Default for Tolerance {
    fn default() -> Self {
        Self {
            mouth_to_ear_p99_ms: 200.0,
            lateness_p99_ms: 20.0,
            set_up_p99_ms: 1_000.0,
            answer_p99_ms: 50.0,
            gaps_per_hundred: 1.0,
            lost: 0.001,
            failed: 0.01,
        }
    }
}

impl Display for Tolerance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "calls keep to: mouth-to-ear {} ms, set-up {} ms, lateness {} ms, signaling's answer {} ms (99th percentiles), {} gaps above 60 ms in a \
             hundred calls, {} % of packets lost, {} % of calls failed",
            self.mouth_to_ear_p99_ms,
            self.set_up_p99_ms,
            self.lateness_p99_ms,
            self.answer_p99_ms,
            self.gaps_per_hundred,
            100.0 * self.lost,
            100.0 * self.failed
        )
    }
}

/// What calls showed, as far as it is held against a tolerance.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Shown {
    /// How many calls there were.
    pub calls: u32,
    /// Calls that failed.
    pub failed: u64,
    /// The share of packets that were lost.
    pub lost: f64,
    /// Gaps above 60 ms.
    pub gaps: u64,
    /// Mouth-to-ear delay, the 99th percentile, in milliseconds; nothing where no caller hears itself.
    pub mouth_to_ear_p99_ms: Option<f64>,
    /// Lateness of packets, the 99th percentile, in milliseconds; infinite when none came.
    pub lateness_p99_ms: f64,
    /// From the request until DTLS was up, the 99th percentile, in milliseconds; infinite when none was.
    pub set_up_p99_ms: f64,
    /// The share of its processor that the generator used.
    pub generator_busy: f64,
    /// Packets that the generator's own sockets lost.
    pub generator_lost: u64,
}

impl Tolerance {
    /// What is beyond its limit, if anything: the first of what users would name first, unless the generator is not good enough to tell.
    #[must_use]
    pub fn beyond(&self, shown: &Shown) -> Option<&'static str> {
        let calls = f64::from(shown.calls);
        [
            (
                is_generator_limit(shown.generator_busy, shown.generator_lost),
                "the generator",
            ),
            (shown.failed as f64 > self.failed * calls, "calls failed"),
            (shown.set_up_p99_ms > self.set_up_p99_ms, "set-up"),
            (shown.lost > self.lost, "loss"),
            (
                shown.gaps as f64 > self.gaps_per_hundred * calls / 100.0,
                "gaps",
            ),
            (
                shown
                    .mouth_to_ear_p99_ms
                    .is_some_and(|delay| delay > self.mouth_to_ear_p99_ms),
                "mouth-to-ear",
            ),
            (shown.lateness_p99_ms > self.lateness_p99_ms, "lateness"),
        ]
        .into_iter()
        .find_map(|(is_beyond, name)| is_beyond.then_some(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: Shown = Shown {
        calls: 200,
        failed: 2,
        lost: 0.001,
        gaps: 2,
        mouth_to_ear_p99_ms: Some(200.0),
        lateness_p99_ms: 20.0,
        set_up_p99_ms: 1_000.0,
        generator_busy: 0.95,
        generator_lost: 0,
    };

    #[test]
    fn what_is_at_a_limit_is_good_and_what_is_beyond_it_is_named() {
        let tolerance = Tolerance::default();
        assert_eq!(tolerance.beyond(&GOOD), None);
        let mute = Shown {
            mouth_to_ear_p99_ms: None,
            ..GOOD
        };
        assert_eq!(tolerance.beyond(&mute), None);
        type Make = fn(&mut Shown);
        let worse: [(Make, &str); 8] = [
            (|shown| shown.failed = 3, "calls failed"),
            (|shown| shown.generator_busy = 0.96, "the generator"),
            (|shown| shown.generator_lost = 1, "the generator"),
            (|shown| shown.set_up_p99_ms = f64::INFINITY, "set-up"),
            (|shown| shown.lost = 0.002, "loss"),
            (|shown| shown.gaps = 3, "gaps"),
            (
                |shown| shown.mouth_to_ear_p99_ms = Some(201.0),
                "mouth-to-ear",
            ),
            (|shown| shown.lateness_p99_ms = 20.1, "lateness"),
        ];
        for (make, name) in worse {
            let mut shown = GOOD;
            make(&mut shown);
            assert_eq!(tolerance.beyond(&shown), Some(name));
        }
    }

    #[test]
    fn a_generator_that_is_too_slow_is_named_before_what_it_makes_of_the_calls() {
        let shown = Shown {
            failed: 50,
            generator_busy: 1.0,
            lateness_p99_ms: 500.0,
            gaps: 1_000,
            ..GOOD
        };
        assert_eq!(Tolerance::default().beyond(&shown), Some("the generator"));
        let shown = Shown {
            failed: 50,
            generator_lost: 1,
            ..GOOD
        };
        assert_eq!(Tolerance::default().beyond(&shown), Some("the generator"));
    }
}
