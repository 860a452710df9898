//! What set-ups beside calls that are up took, and what is asked of them. Pure.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::results::{Quantiles, Subject};
use super::targets::{Figure, Key, RELAY_OVER_DIRECT, Target};
use crate::call::comparison::{generator_limit, left_out};
use crate::call::tolerance::is_generator_limit;
use crate::impair::Late;
use crate::report::median;

/// Set-ups on a line, while other calls are up.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Beside {
    /// Calls of G.711 that were up.
    pub calls: u32,
    /// Why so many.
    pub why: String,
    /// Round-trip time of the line in milliseconds.
    pub rtt_ms: f64,
    /// What passes found, by the relay and past it.
    pub passes: Vec<[Pass; 2]>,
}

/// One way in one pass.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Pass {
    /// By the relay, or past it.
    pub subject: Subject,
    /// From the POST until DTLS was up, over a connection that was open, without a channel, in milliseconds; nothing when no call came so far.
    pub set_up: Option<Quantiles>,
    /// Set-ups that failed, by what happened.
    pub failed: BTreeMap<String, u32>,
    /// Calls that failed of those that should be up, or heard nothing.
    pub load_failed: u64,
    /// The share of their processor that the programs used.
    pub busy: f64,
    /// The share of its processor that the thread of the calls that are up used.
    pub generator_busy: f64,
    /// Packets that its own sockets lost.
    #[serde(default)]
    pub generator_lost: u64,
    /// How much later than due the line sent set-ups' frames on, in microseconds: what of a set-up is this program's fault.
    pub late_us: Late,
}

impl Pass {
    /// What it found; or why it does not count. Calls that fail leave more of the machine to the others, and a generator that does not keep up is what was measured
    /// then: see [`Tolerance::beyond`](crate::call::tolerance::Tolerance::beyond), which has the same limits.
    fn found(&self) -> Result<Quantiles, String> {
        let name = self.subject.name();
        let failed: u32 = self.failed.values().sum();
        if failed > 0 {
            return Err(format!("{name}: {failed} set-ups failed"));
        }
        if self.load_failed > 0 {
            let lost = self.load_failed;
            return Err(format!(
                "{name}: {lost} of the calls that should be up failed or heard nothing"
            ));
        }
        if is_generator_limit(self.generator_busy, self.generator_lost) {
            return Err(format!(
                "{name}: {}",
                generator_limit(self.generator_busy, self.generator_lost)
            ));
        }
        self.set_up
            .ok_or_else(|| format!("{name}: no set-up was placed"))
    }

    /// Whether calls failed in it, of either kind.
    #[must_use]
    pub fn has_failures(&self) -> bool {
        self.load_failed > 0 || !self.failed.is_empty()
    }
}

impl fmt::Display for Pass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let times = self.set_up.unwrap_or_default();
        write!(
            f,
            "{:<10}{:>5} set-ups, until DTLS {:.1} / {:.1} ms (p50 / p99), {} failed; of the calls that are up {}; programs {:.0} %, generator {:.0} % \
             of a processor, {} packets lost by its own sockets; line late by {:.0} / {:.0} µs",
            self.subject.name(),
            times.count,
            times.p50,
            times.p99,
            self.failed.values().sum::<u32>(),
            self.load_failed,
            100.0 * self.busy,
            100.0 * self.generator_busy,
            self.generator_lost,
            self.late_us.p50,
            self.late_us.p99
        )
    }
}

impl Beside {
    /// Why passes do not count that do not: for each, what either way says.
    #[must_use]
    pub fn uncounted(&self) -> Vec<String> {
        let why = |ways: &[Pass; 2]| {
            let why: Vec<String> = ways.iter().filter_map(|way| way.found().err()).collect();
            (!why.is_empty()).then(|| why.join(", "))
        };
        self.passes.iter().filter_map(why).collect()
    }

    /// What is asked: by the relay against past it, of the medians over the passes; nothing when no pass counts.
    #[must_use]
    pub fn targets(&self) -> Vec<Target> {
        let found = |[relay, direct]: &[Pass; 2]| Some((relay.found().ok()?, direct.found().ok()?));
        let pairs: Vec<_> = self.passes.iter().filter_map(found).collect();
        let left_out = left_out(&self.uncounted());
        let target = |figure: Figure, what: &str, of: fn(&Quantiles) -> f64| {
            let relay = median(pairs.iter().map(|(relay, _)| of(relay)).collect())?;
            let direct = median(pairs.iter().map(|(_, direct)| of(direct)).collect())?;
            let key = Key::RelayOverDirectLoaded {
                rtt_ms: self.rtt_ms,
                figure,
            };
            let how = format!(
                "{what} of the time from the POST until DTLS is up, of calls without a channel on a line of {:.0} ms, one after another, with {} calls \
                 of G.711 up ({}), which go the same way but not over the line: {relay:.1} ms by the relay, {direct:.1} ms past it over the trunk; \
                 medians of {} of {} passes{left_out}",
                self.rtt_ms,
                self.calls,
                self.why,
                pairs.len(),
                self.passes.len(),
            );
            Some(Target::new(key, relay / direct, RELAY_OVER_DIRECT).how(how))
        };
        [
            target(Figure::Median, "median", |times| times.p50),
            target(Figure::P99, "99th percentile", |times| times.p99),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    fn pass(subject: Subject, p50: f64, load_failed: u64) -> Pass {
        Pass {
            subject,
            set_up: Some(Quantiles {
                p50,
                p99: p50 + 20.0,
                count: 180,
                ..Quantiles::default()
            }),
            failed: BTreeMap::new(),
            load_failed,
            busy: 0.62,
            generator_busy: 0.4,
            generator_lost: 0,
            late_us: Late::default(),
        }
    }

    /// Passes of set-ups by the relay and past it, in milliseconds, and how many calls failed meanwhile.
    pub(in crate::setup) fn beside(passes: &[(f64, f64, u64)]) -> Beside {
        let passes = passes.iter().map(|(relay, direct, failed)| {
            [
                pass(Subject::Relay, *relay, 0),
                pass(Subject::Direct, *direct, *failed),
            ]
        });
        Beside {
            calls: 290,
            why: "half of 580".to_owned(),
            rtt_ms: 20.0,
            passes: passes.collect(),
        }
    }

    #[test]
    fn medians_of_the_passes_are_compared_and_a_pass_with_failed_calls_counts_for_neither_way() {
        let found = beside(&[
            (66.0, 60.0, 0),
            (63.0, 61.0, 0),
            (20.0, 90.0, 1),
            (62.0, 60.0, 0),
        ]);
        let targets = found.targets();
        let [median, p99] = &targets[..] else {
            panic!("{targets:?}");
        };
        assert!((median.found - 63.0 / 60.0).abs() < 1e-9, "{median:?}");
        assert!(median.met, "{median:?}");
        assert!((p99.found - 83.0 / 80.0).abs() < 1e-9, "{p99:?}");
        for part in [
            "with 290 calls of G.711 up (half of 580)",
            "63.0 ms by the relay, 60.0 ms past it",
            "medians of 3 of 4 passes; 1 pass is left out (direct: 1 of the calls that should be up failed or heard nothing)",
        ] {
            assert!(median.how.contains(part), "{}", median.how);
        }
        let missed = beside(&[(63.1, 60.0, 0)]).targets();
        assert_eq!((missed[0].met, missed[1].met), (false, true));
    }

    #[test]
    fn a_pass_that_its_generator_limited_is_left_out_and_said() {
        for (busy, lost, counts) in [(0.95, 0, true), (0.96, 0, false), (0.4, 1, false)] {
            let mut found = beside(&[(60.0, 60.0, 0), (70.0, 60.0, 0)]);
            found.passes[1][0].generator_busy = busy;
            found.passes[1][0].generator_lost = lost;
            let target = &found.targets()[0];
            assert_eq!(target.met, !counts, "{target:?}");
            let words = "1 pass is left out (relay: the generator was the limit";
            assert_eq!(target.how.contains(words), !counts, "{target:?}");
            assert!(!target.how.contains("failed"), "{target:?}");
        }
    }

    #[test]
    fn nothing_is_held_against_a_target_when_calls_failed_in_every_pass() {
        assert!(beside(&[(60.0, 60.0, 2)]).targets().is_empty());
        assert!(beside(&[]).targets().is_empty());
        let mut alone = beside(&[(60.0, 60.0, 0)]);
        let failed = &mut alone.passes[0][0].failed;
        failed.insert("no answer came".to_owned(), 1);
        assert!(alone.targets().is_empty());
    }
}
