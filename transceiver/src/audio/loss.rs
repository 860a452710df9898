//! Decides how much loss the encoder is to expect, from what the client's receiver reports say.
//!
//! Redundancy costs quality at the same rate, so it follows the loss in few steps: one step up with a report that calls for it, one down
//! only after several reports in a row that would do with less. Between the two lies a band in which nothing changes.

/// Reports in a row that must be content with the step below. Browsers report about every 5 s or more often.
const CALM_REPORTS: u8 = 3;

/// How much of a new report counts: half, so that one burst of loss does not rule alone and two do.
const WEIGHT: f32 = 0.5;

/// A step, in packets of a hundred.
struct Step {
    /// The smoothed loss from which it is taken.
    from: f32,
    /// The smoothed loss under which it is left.
    until: f32,
    /// What the encoder is told.
    expected: u8,
}

/// Nothing expected means no forward error correction: below 2 % concealment is as good.
const STEPS: [Step; 5] = [
    Step {
        from: 0.0,
        until: 0.0,
        expected: 0,
    },
    Step {
        from: 2.0,
        until: 1.0,
        expected: 5,
    },
    Step {
        from: 6.0,
        until: 4.0,
        expected: 10,
    },
    Step {
        from: 13.0,
        until: 9.0,
        expected: 20,
    },
    Step {
        from: 25.0,
        until: 18.0,
        expected: 30,
    },
];

/// The loss of one path towards a client.
#[derive(Debug, Clone, Default)]
pub struct ExpectedLoss {
    smoothed: f32,
    step: usize,
    calm: u8,
}

impl ExpectedLoss {
    /// Takes the part of packets, 0 to 1, that a report says were lost; returns how many in a hundred the encoder should expect.
    ///
    /// What is no such number changes nothing.
    pub fn report(&mut self, lost: f32) -> u8 {
        if (0.0..=1.0).contains(&lost) {
            self.smoothed += (lost * 100.0 - self.smoothed) * WEIGHT;
            let higher = STEPS.get(self.step + 1);
            if higher.is_some_and(|step| self.smoothed >= step.from) {
                self.step += 1;
                self.calm = 0;
            } else if self.smoothed < STEPS[self.step].until {
                self.calm += 1;
                if self.calm == CALM_REPORTS {
                    self.step -= 1;
                    self.calm = 0;
                }
            } else {
                self.calm = 0;
            }
        }
        STEPS[self.step].expected
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(loss: &mut ExpectedLoss, reports: &[f32]) -> Vec<u8> {
        reports.iter().map(|lost| loss.report(*lost)).collect()
    }

    #[test]
    fn a_path_without_loss_has_no_redundancy() {
        assert_eq!(
            after(&mut ExpectedLoss::default(), &[0.0, 0.01, 0.0, 0.015]),
            [0; 4]
        );
    }

    #[test]
    fn it_rises_by_a_step_per_report_and_never_above_the_highest() {
        let mut loss = ExpectedLoss::default();
        assert_eq!(after(&mut loss, &[0.6; 6]), [5, 10, 20, 30, 30, 30]);
        assert_eq!(after(&mut ExpectedLoss::default(), &[0.05; 6]), [5; 6]);
    }

    #[test]
    fn it_falls_by_a_step_after_three_calm_reports() {
        let mut loss = ExpectedLoss::default();
        after(&mut loss, &[0.1; 6]);
        let falling = after(&mut loss, &[0.0; 12]);
        assert_eq!(falling, [10, 10, 10, 5, 5, 5, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn loss_that_swings_around_a_threshold_changes_nothing_back_and_forth() {
        let mut loss = ExpectedLoss::default();
        let steps = after(&mut loss, &[0.03, 0.012].repeat(20));
        let changes = steps.windows(2).filter(|pair| pair[0] != pair[1]).count();
        assert!(changes <= 1, "{steps:?}");
        assert_eq!(steps.last(), Some(&5));
    }

    #[test]
    fn one_burst_raises_one_step_and_is_forgotten() {
        let mut loss = ExpectedLoss::default();
        let steps = after(&mut loss, &[0.05, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
        assert_eq!(steps, [5, 5, 5, 5, 0, 0, 0]);
    }

    #[test]
    fn what_is_no_part_changes_nothing() {
        let mut loss = ExpectedLoss::default();
        after(&mut loss, &[0.05; 3]);
        let odd = [f32::NAN, f32::INFINITY, -1.0, 7.0];
        assert_eq!(after(&mut loss, &odd), [5; 4]);
    }
}
