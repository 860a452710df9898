//! What a run of some parts keeps of an earlier one, of the same programs. Pure.

use serde::{Deserialize, Serialize};

use super::beside_results::Beside;
use super::results::{BESIDE_MISSING, SetupResults, Subject, round_trips};
use super::targets::targets;

/// How a line ends that says why something was not measured that an earlier run has.
const KEPT: &str = "; what is here of it was measured earlier";

/// Whom calls are compared at, one with the other: ratios are of one run.
const COMPARED: [Subject; 2] = [Subject::Relay, Subject::Direct];

/// What was climbed: calls of runs compare where it is the same.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Ladder {
    /// Round-trip times, in milliseconds.
    pub rtt_ms: Vec<f64>,
    /// Shares of frames that are lost each way.
    pub loss: Vec<f64>,
    /// Calls of every kind on every line.
    pub calls: u32,
}

/// What is measured anew.
#[derive(Clone, Debug)]
pub struct Again {
    /// Whom the ladder calls.
    pub subjects: Vec<Subject>,
    /// Set-ups beside calls that are up.
    pub beside: bool,
}

impl Again {
    /// Whether results have something that is not measured anew.
    #[must_use]
    pub fn leaves_some_of(&self, earlier: &SetupResults) -> bool {
        self.leaves_rungs_of(earlier) || (earlier.beside.is_some() && !self.beside)
    }

    fn leaves_rungs_of(&self, earlier: &SetupResults) -> bool {
        let others = |subject| !self.subjects.contains(&subject);
        earlier.rungs.iter().any(|rung| others(rung.case.subject))
    }

    /// Whether what this ladder finds can stand beside what an earlier run found.
    ///
    /// # Errors
    /// Why not, in words: it would be compared with what another run found, or was climbed otherwise.
    pub fn goes_with(&self, earlier: &SetupResults, ladder: &Ladder) -> Result<(), String> {
        if self.subjects.is_empty() || !self.leaves_rungs_of(earlier) {
            return Ok(());
        }
        let anew = |subject: &&Subject| self.subjects.contains(subject);
        if let (Some(one), Some(other)) = (
            COMPARED.iter().find(anew),
            COMPARED.iter().find(|subject| !anew(subject)),
        ) && earlier.has(*other)
        {
            return Err(format!(
                "{} is compared with {}, within one run: name both, as in --only relay,direct",
                one.name(),
                other.name()
            ));
        }
        match &earlier.ladder {
            Some(climbed) if climbed == ladder => Ok(()),
            Some(_) => Err("--rtt, --loss or --calls were others then".to_owned()),
            None => Err("it does not say what --rtt, --loss and --calls were then".to_owned()),
        }
    }

    /// Those whose calls did not begin this time, where an earlier run has calls. Of two that are compared, both.
    fn failed(&self, found: &SetupResults, earlier: &SetupResults) -> Vec<Subject> {
        let began = |subject: Subject| {
            let mut rungs = found.rungs.iter();
            rungs.any(|rung| rung.case.subject == subject && !rung.phases.is_empty())
        };
        let failed = |subject: Subject| {
            self.subjects.contains(&subject) && earlier.has(subject) && !began(subject)
        };
        let compared = COMPARED.into_iter().any(failed);
        let subjects = self.subjects.iter().copied();
        subjects
            .filter(|subject| failed(*subject) || (compared && COMPARED.contains(subject)))
            .collect()
    }

    /// Whether a line says why something was not measured that is measured anew.
    fn explains(&self, missing: &str) -> bool {
        (self.beside && is_of(missing, BESIDE_MISSING))
            || (self.subjects.iter()).any(|subject| is_of(missing, subject.name()))
    }
}

/// Whether a line says why this was not measured.
fn is_of(missing: &str, name: &str) -> bool {
    let rest = missing.strip_prefix(name);
    rest.is_some_and(|rest| rest.starts_with(':'))
}

impl SetupResults {
    fn has(&self, subject: Subject) -> bool {
        self.rungs.iter().any(|rung| rung.case.subject == subject)
    }

    /// Says of something that was not measured this time that an earlier run's figures stand in its place.
    fn stays(&mut self, name: &str, why: &str) {
        match self.missing.iter_mut().find(|one| is_of(one, name)) {
            Some(missing) => missing.push_str(KEPT),
            None => self.missing.push(format!("{name}: {why}{KEPT}")),
        }
    }

    /// Puts what an earlier run found beside this one's results, but for what was measured anew: what failed this time replaces nothing.
    #[must_use]
    pub fn beside_earlier(mut self, mut earlier: Self, again: &Again) -> Self {
        let failed = again.failed(&self, &earlier);
        for subject in &failed {
            self.stays(
                subject.name(),
                "no call began, or none of what it is compared with",
            );
        }
        let stays =
            |subject: &Subject| !again.subjects.contains(subject) || failed.contains(subject);
        self.rungs
            .retain(|rung| !failed.contains(&rung.case.subject));
        earlier.rungs.retain(|rung| stays(&rung.case.subject));
        self.rungs.append(&mut earlier.rungs);
        // As a ladder is climbed. The order of the cases of one subject stays.
        self.rungs.sort_by(|a, b| {
            (a.loss.total_cmp(&b.loss))
                .then(a.rtt_ms.total_cmp(&b.rtt_ms))
                .then(a.case.subject.cmp(&b.case.subject))
        });
        self.echoes.retain(|echo| !failed.contains(&echo.subject));
        earlier.echoes.retain(|echo| stays(&echo.subject));
        self.echoes.append(&mut earlier.echoes);
        self.echoes.sort_by_key(|echo| echo.subject);
        let counts = |beside: &Beside| !beside.targets().is_empty();
        if earlier.beside.is_some() && !self.beside.as_ref().is_some_and(counts) {
            self.beside = earlier.beside;
            if again.beside {
                self.stays(BESIDE_MISSING, "no pass counts");
            }
        }
        earlier.missing.retain(|missing| !again.explains(missing));
        self.missing.append(&mut earlier.missing);
        self.ladder = self.ladder.or(earlier.ladder);
        self.measured = self.measured.beside(&earlier.measured);
        self.round_trips = round_trips(&self.rungs);
        self.targets = targets(&self.rungs, &self.round_trips);
        self.targets
            .extend(self.beside.iter().flat_map(|beside| beside.targets()));
        self
    }
}

#[cfg(test)]
mod tests {
    use super::super::beside_results::tests::beside;
    use super::super::results::{Channel, tests::ladder};
    use super::*;
    use crate::measured::Measured;

    fn whole() -> SetupResults {
        let mut climbed = ladder(Subject::Relay, Channel::Without, 3.0, 3.9);
        climbed.extend(ladder(Subject::Direct, Channel::Without, 3.0, 3.9));
        let missing = vec!["aiortc: not installed".to_owned()];
        SetupResults::of(Measured::default(), false, &climbed, missing)
            .with(beside(&[(61.0, 60.0, 0)]))
    }

    /// As it is read from a file.
    fn read(results: &SetupResults) -> SetupResults {
        let text = serde_json::to_string(results).expect("JSON");
        serde_json::from_str(&text).expect("read")
    }

    #[test]
    fn what_was_not_measured_anew_stays() {
        let again = Again {
            subjects: Vec::new(),
            beside: true,
        };
        let earlier = whole();
        assert!(again.leaves_some_of(&earlier));
        let alone = SetupResults::of(Measured::default(), false, &[], Vec::new())
            .with(beside(&[(66.0, 60.0, 0)]));
        let found = alone.beside_earlier(read(&earlier), &again);
        assert_eq!(found.rungs.len(), earlier.rungs.len());
        assert_eq!(found.round_trips.len(), earlier.round_trips.len());
        assert_eq!(found.targets.len(), earlier.targets.len());
        assert_eq!(found.missing, earlier.missing);
        let loaded = |found: &SetupResults| {
            let mut targets = found.targets.iter();
            let median = targets.find(|target| target.name.ends_with("calls that are up, median"));
            median.expect("a target").found
        };
        assert!((loaded(&found) - 1.1).abs() < 1e-9, "{:?}", found.targets);
        assert!(loaded(&earlier) < 1.05);
    }

    fn climbed_then() -> Ladder {
        Ladder {
            rtt_ms: vec![0.0, 20.0, 80.0, 200.0],
            loss: vec![0.0],
            calls: 5,
        }
    }

    fn anew(subjects: &[Subject], beside: bool) -> Again {
        Again {
            subjects: subjects.to_vec(),
            beside,
        }
    }

    #[test]
    fn what_is_compared_is_of_one_run_and_a_ladder_of_one_form() {
        let then = whole().on(Some(climbed_then()));
        let refused = |again: &Again, then: &SetupResults, ladder: &Ladder| {
            again.goes_with(then, ladder).expect_err("refused")
        };
        for subject in COMPARED {
            let alone = anew(&[subject, Subject::Janus], true);
            let why = refused(&alone, &then, &climbed_then());
            assert!(why.contains("--only relay,direct"), "{why}");
        }
        let both = anew(&COMPARED, false);
        assert_eq!(both.goes_with(&then, &climbed_then()), Ok(()));
        assert!(!anew(&COMPARED, true).leaves_some_of(&then));
        let janus = anew(&[Subject::Janus], false);
        assert_eq!(janus.goes_with(&then, &climbed_then()), Ok(()));
        let fewer = Ladder {
            calls: 3,
            ..climbed_then()
        };
        assert!(refused(&janus, &then, &fewer).contains("--calls"));
        assert!(refused(&janus, &whole(), &fewer).contains("does not say"));
        // Without a ladder nothing is climbed otherwise; and one that has nothing to stand beside may be any.
        assert_eq!(anew(&[], true).goes_with(&whole(), &fewer), Ok(()));
        assert_eq!(both.goes_with(&whole(), &fewer), Ok(()));
    }

    #[test]
    fn both_that_are_compared_are_replaced_by_a_run_in_which_calls_of_both_began() {
        let run = |direct_began: bool| {
            let mut climbed = ladder(Subject::Relay, Channel::Without, 3.3, 3.9);
            let mut direct = ladder(Subject::Direct, Channel::Without, 3.0, 3.9);
            if !direct_began {
                for rung in &mut direct {
                    rung.samples.clear();
                    rung.failures.insert("no answer came".to_owned(), 5);
                }
            }
            climbed.extend(direct);
            let again = anew(&[Subject::Relay, Subject::Direct, Subject::Aiortc], false);
            let now = Measured {
                date: "2026-01-02".to_owned(),
                ..Measured::default()
            };
            SetupResults::of(now, false, &climbed, Vec::new())
                .on(Some(climbed_then()))
                .beside_earlier(read(&whole()), &again)
        };
        let over = |found: &SetupResults| {
            let mut targets = found.targets.iter();
            let name = "set-up through the relay / direct, 200 ms, no channel";
            let target = targets.find(|target| target.name == name);
            target.expect("a target").found
        };
        let found = run(true);
        assert_eq!(found.rungs.len(), 8);
        assert_eq!(found.rungs[1].case.subject, Subject::Direct);
        assert!(found.beside.is_some());
        // It was called this time.
        assert_eq!(found.missing, [""; 0]);
        assert!((over(&found) - 665.0 / 605.0).abs() < 1e-9);
        assert_eq!(found.measured.earlier, [whole().measured.date]);

        let kept = run(false);
        assert_eq!(kept.rungs.len(), 8);
        assert!((over(&kept) - 1.0).abs() < 1e-9, "{:?}", kept.targets);
        for (missing, name) in kept.missing.iter().zip(["relay: ", "direct: "]) {
            assert!(
                missing.starts_with(name) && missing.ends_with(KEPT),
                "{missing}"
            );
        }
        assert_eq!(kept.missing.len(), 2);
    }

    #[test]
    fn set_ups_beside_calls_that_failed_replace_none() {
        let again = anew(&[], true);
        let missing = vec![format!("{BESIDE_MISSING}: no such program")];
        let failed = SetupResults::of(Measured::default(), false, &[], missing);
        let uncounted = SetupResults::of(Measured::default(), false, &[], Vec::new())
            .with(beside(&[(90.0, 60.0, 1)]));
        for run in [failed, uncounted] {
            let found = run.beside_earlier(read(&whole()), &again);
            let kept = found.beside.as_ref().expect("kept");
            assert!(kept.uncounted().is_empty(), "{kept:?}");
            assert_eq!(found.targets.len(), whole().targets.len());
            let said =
                |missing: &String| missing.starts_with(BESIDE_MISSING) && missing.ends_with(KEPT);
            assert!(found.missing.iter().any(said), "{:?}", found.missing);
        }
    }
}
