//! When each call of a load is placed, and how long it lasts: ramp, hold and churn. Pure, and the same for the same seed.
//!
//! ```text
//!  calls   ┌──────────────┬─ ─ ─ ─ ─        ramp    one call after the other
//!     ╱    │    hold      │  as many go      hold    all are up
//!   ╱      │              │  as come         churn   further calls arrive, as fast as those there are end
//! ```

use std::time::Duration;

use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};
use rand_distr::{Distribution as _, Exp1, LogNormal};

use super::load::LoadPlan;

/// No call is shorter, unless all are: it would end in the middle of its set-up, and count as failed.
const SHORTEST: Duration = Duration::from_secs(2);

/// What calls that arrive one after the other have between them.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, clap::ValueEnum)]
pub enum Arrivals {
    /// The same time.
    #[default]
    Even,
    /// An exponentially distributed time, as where many people call who do not know of each other: a Poisson process.
    Poisson,
}

/// How the lengths of calls are distributed about their mean.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub enum Lengths {
    /// All are the mean.
    #[default]
    Fixed,
    /// Any moment is as likely as any other to be a call's last.
    Exponential,
    /// As conversations are: most are shorter than the mean, and a few much longer.
    LogNormal {
        /// The standard deviation of the logarithm.
        sigma: f64,
    },
}

impl std::str::FromStr for Lengths {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let sigma = |text: &str| match text.parse::<f64>() {
            Ok(sigma) if (0.0..=3.0).contains(&sigma) => Ok(Self::LogNormal { sigma }),
            _ => Err(format!("{text:?} is no sigma; give one from 0 to 3")),
        };
        match text.split_once(':') {
            None if text == "fixed" => Ok(Self::Fixed),
            None if text == "exponential" => Ok(Self::Exponential),
            None if text == "log-normal" => sigma("1"),
            Some(("log-normal", text)) => sigma(text),
            _ => Err(format!(
                "{text:?} is no distribution; there are fixed, exponential and log-normal:SIGMA"
            )),
        }
    }
}

/// One call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Planned {
    /// When it is placed, from the beginning.
    pub due: Duration,
    /// How long it lasts from then, set-up included.
    pub length: Duration,
    /// It ends without a word.
    pub vanishes: bool,
}

impl Planned {
    fn end(&self) -> Duration {
        self.due + self.length
    }
}

/// All calls of a load, in order.
#[derive(Clone, Debug)]
pub struct Schedule {
    calls: Vec<Planned>,
    /// From when to when what is heard counts.
    window: (Duration, Duration),
}

impl Schedule {
    /// Plans the calls of a load.
    #[must_use]
    pub fn new(plan: &LoadPlan) -> Self {
        let manner = &plan.manner;
        let mut random = StdRng::seed_from_u64(manner.seed);
        let mean = plan.hold.as_secs_f64();
        let mut calls = Vec::new();
        let mut at = 0.0;
        for n in 0..plan.calls {
            if n > 0 {
                at += match manner.arrivals {
                    Arrivals::Even => 1.0 / plan.ramp,
                    Arrivals::Poisson => waiting(&mut random) / plan.ramp,
                };
            }
            let due = match manner.arrivals {
                // Without the sum of a million roundings.
                Arrivals::Even => f64::from(n) / plan.ramp,
                Arrivals::Poisson => at,
            };
            calls.push(planned(&mut random, plan, due));
        }
        let ramped = calls.last().map_or(Duration::ZERO, |call| call.due);
        if !manner.churn.is_zero() {
            // Whatever their distribution, so many end in a second when so many are up.
            let rate = f64::from(plan.calls) / mean;
            let until = (ramped + manner.churn).as_secs_f64();
            let mut at = ramped.as_secs_f64();
            loop {
                at += waiting(&mut random) / rate;
                if at >= until {
                    break;
                }
                calls.push(planned(&mut random, plan, at));
            }
        }
        let window = window(plan, &calls, ramped);
        Self { calls, window }
    }

    /// The calls, those that are placed first first.
    #[must_use]
    pub fn calls(&self) -> &[Planned] {
        &self.calls
    }

    /// From when to when what is heard counts: while all calls are up; or while calls come and go; or, when there is no such time, all the time.
    #[must_use]
    pub fn window(&self) -> (Duration, Duration) {
        self.window
    }

    /// When the last call ends.
    #[must_use]
    pub fn ends(&self) -> Duration {
        self.calls
            .iter()
            .map(Planned::end)
            .max()
            .unwrap_or_default()
    }

    /// How many calls are up on average while it counts.
    #[must_use]
    pub fn calls_at_once(&self) -> f64 {
        let (from, to) = self.window;
        let up = self.calls.iter().map(|call| {
            let (begin, end) = (call.due.max(from), call.end().min(to));
            end.saturating_sub(begin).as_secs_f64()
        });
        up.sum::<f64>() / (to - from).as_secs_f64()
    }
}

/// How long until the next of independent events, when one is expected in a unit of time.
fn waiting(random: &mut StdRng) -> f64 {
    Exp1.sample(random)
}

fn planned(random: &mut StdRng, plan: &LoadPlan, due: f64) -> Planned {
    let mean = plan.hold.as_secs_f64();
    let length = match plan.manner.lengths {
        Lengths::Fixed => mean,
        Lengths::Exponential => mean * waiting(random),
        // So that e to the power of it has this mean.
        Lengths::LogNormal { sigma } => LogNormal::new(mean.ln() - sigma * sigma / 2.0, sigma)
            .map_or(mean, |d| d.sample(random)),
    };
    let length = Duration::try_from_secs_f64(length).unwrap_or(plan.hold);
    Planned {
        due: Duration::from_secs_f64(due),
        length: length.max(plan.hold.min(SHORTEST)),
        vanishes: random.random_bool(plan.manner.vanish),
    }
}

fn window(plan: &LoadPlan, calls: &[Planned], ramped: Duration) -> (Duration, Duration) {
    let last_end = calls.iter().map(Planned::end).max().unwrap_or_default();
    let from = ramped + plan.settle;
    let to = if plan.manner.churn.is_zero() {
        calls.iter().map(Planned::end).min().unwrap_or_default()
    } else {
        ramped + plan.manner.churn
    };
    if from < to {
        (from, to)
    } else {
        (Duration::ZERO, last_end)
    }
}

#[cfg(test)]
mod tests {
    use super::super::load::tests::plan;
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn calls_count_while_all_are_up_or_else_all_the_time() {
        let together = Schedule::new(&plan(101, 20.0, 30));
        assert_eq!(together.window(), (SECOND * 7, SECOND * 30));
        assert!((together.calls_at_once() - 101.0).abs() < 1e-6);
        let churn = Schedule::new(&plan(1_001, 100.0, 2));
        assert_eq!(churn.window(), (Duration::ZERO, SECOND * 12));
        assert!((churn.calls_at_once() - 166.8).abs() < 0.1);
    }

    #[test]
    fn even_calls_are_evenly_spaced() {
        let schedule = Schedule::new(&plan(5, 2.0, 10));
        let due: Vec<f64> = schedule
            .calls()
            .iter()
            .map(|call| call.due.as_secs_f64())
            .collect();
        assert_eq!(due, [0.0, 0.5, 1.0, 1.5, 2.0]);
        assert!(
            schedule
                .calls()
                .iter()
                .all(|call| call.length == SECOND * 10 && !call.vanishes)
        );
    }

    #[test]
    fn arrivals_of_a_poisson_process_vary_as_much_as_they_are_apart() {
        let mut poisson = plan(20_000, 50.0, 10);
        poisson.manner.arrivals = Arrivals::Poisson;
        let schedule = Schedule::new(&poisson);
        let gaps: Vec<f64> = schedule
            .calls()
            .windows(2)
            .map(|two| (two[1].due - two[0].due).as_secs_f64())
            .collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        assert!((mean * 50.0 - 1.0).abs() < 0.05, "{mean}");
        assert!((variance.sqrt() / mean - 1.0).abs() < 0.05, "{variance}");
        // The same seed makes the same calls, and another makes others.
        assert_eq!(Schedule::new(&poisson).calls(), schedule.calls());
        poisson.manner.seed = 2;
        assert_ne!(Schedule::new(&poisson).calls(), schedule.calls());
    }

    #[test]
    fn lengths_have_the_mean_and_the_shape_that_was_asked_for() {
        for (text, median) in [
            ("fixed", 1.0),
            ("exponential", std::f64::consts::LN_2),
            ("log-normal:0.8", (-0.32f64).exp()),
            ("log-normal:0", 1.0),
        ] {
            let mut long = plan(20_000, 1_000.0, 100);
            long.manner.lengths = text.parse().expect("a distribution");
            let schedule = Schedule::new(&long);
            let mut lengths: Vec<f64> = schedule
                .calls()
                .iter()
                .map(|call| call.length.as_secs_f64() / 100.0)
                .collect();
            lengths.sort_by(f64::total_cmp);
            let mean = lengths.iter().sum::<f64>() / lengths.len() as f64;
            assert!((mean - 1.0).abs() < 0.03, "{text}: {mean}");
            let found = lengths[lengths.len() / 2];
            assert!((found / median - 1.0).abs() < 0.05, "{text}: {found}");
            assert!(lengths[0] >= 0.02, "{text}: {}", lengths[0]);
        }
        for text in [
            "",
            "uniform",
            "log-normal:",
            "log-normal:-1",
            "exponential:2",
        ] {
            assert!(text.parse::<Lengths>().is_err(), "{text}");
        }
    }

    #[test]
    fn churn_keeps_as_many_calls_up_as_the_ramp_has_placed() {
        let mut churn = plan(200, 100.0, 20);
        churn.manner.churn = SECOND * 200;
        churn.manner.lengths = Lengths::Exponential;
        let schedule = Schedule::new(&churn);
        let (from, to) = schedule.window();
        assert_eq!((from.as_secs(), to.as_secs()), (3, 201));
        let up = schedule.calls_at_once();
        assert!((up / 200.0 - 1.0).abs() < 0.1, "{up}");
        assert!(schedule.calls().is_sorted_by_key(|call| call.due));
    }

    #[test]
    fn as_many_vanish_as_should() {
        let mut some = plan(10_000, 100.0, 10);
        some.manner.vanish = 0.2;
        let vanished = Schedule::new(&some)
            .calls()
            .iter()
            .filter(|c| c.vanishes)
            .count();
        assert!((1_900..2_100).contains(&vanished), "{vanished}");
    }
}
