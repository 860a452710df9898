//! What a run of some parts keeps of an earlier one, of the same programs. Pure.

use super::results::{BESIDE_MISSING, SetupResults, Subject, round_trips};
use super::targets::targets;

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
        let others = |subject| !self.subjects.contains(&subject);
        earlier.rungs.iter().any(|rung| others(rung.case.subject))
            || (earlier.beside.is_some() && !self.beside)
    }

    /// Whether a line says why something was not measured that is measured anew.
    fn explains(&self, missing: &str) -> bool {
        let begins = |name: &str| {
            let rest = missing.strip_prefix(name);
            rest.is_some_and(|rest| rest.starts_with(':'))
        };
        (self.beside && begins(BESIDE_MISSING))
            || self.subjects.iter().any(|subject| begins(subject.name()))
    }
}

impl SetupResults {
    /// Puts what an earlier run found beside this one's results, but for what was measured anew.
    #[must_use]
    pub fn beside_earlier(mut self, mut earlier: Self, again: &Again) -> Self {
        let others = |subject: Subject| !again.subjects.contains(&subject);
        earlier.rungs.retain(|rung| others(rung.case.subject));
        self.rungs.append(&mut earlier.rungs);
        // As a ladder is climbed. The order of the cases of one subject stays.
        self.rungs.sort_by(|a, b| {
            (a.loss.total_cmp(&b.loss))
                .then(a.rtt_ms.total_cmp(&b.rtt_ms))
                .then(a.case.subject.cmp(&b.case.subject))
        });
        earlier.echoes.retain(|echo| others(echo.subject));
        self.echoes.append(&mut earlier.echoes);
        self.echoes.sort_by_key(|echo| echo.subject);
        if !again.beside {
            self.beside = earlier.beside;
        }
        earlier.missing.retain(|missing| !again.explains(missing));
        self.missing.append(&mut earlier.missing);
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

    #[test]
    fn a_subject_that_was_measured_anew_is_held_against_the_others_that_were_not() {
        let again = Again {
            subjects: vec![Subject::Relay, Subject::Aiortc],
            beside: false,
        };
        let climbed = ladder(Subject::Relay, Channel::Without, 3.3, 3.9);
        let found = SetupResults::of(Measured::default(), false, &climbed, Vec::new())
            .beside_earlier(read(&whole()), &again);
        assert_eq!(found.rungs.len(), 8);
        assert_eq!(found.rungs[1].case.subject, Subject::Direct);
        assert!(found.beside.is_some());
        // It was called this time.
        assert_eq!(found.missing, [""; 0]);
        let slower = found
            .targets
            .iter()
            .find(|target| target.name == "set-up through the relay / direct, 200 ms, no channel");
        let slower = slower.expect("a target");
        assert!((slower.found - 665.0 / 605.0).abs() < 1e-9, "{slower:?}");
        let both = Again {
            subjects: vec![Subject::Relay, Subject::Direct],
            beside: true,
        };
        assert!(!both.leaves_some_of(&whole()));
    }
}
