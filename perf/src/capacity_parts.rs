//! What stays of `capacity.json` and `calls.json` when some parts are measured anew. Pure.

use firsthop_perf::call::capacity_results::CapacityResults;
use serde_json::Value;

use crate::measures::Measure;

/// How the note begins that says why there is no comparison with Janus.
pub(crate) const WITHOUT_JANUS: &str = "Janus was left out";

/// How the note begins that says that no number of calls went well.
pub(crate) const NONE_KEPT: &str = "No number of calls";

/// Which measure finds how many calls of a kind of work a service carries.
fn finds(service: &str, work: &str) -> Option<Measure> {
    match (service, work) {
        ("transceiver", "passthrough") => Some(Measure::Passthrough),
        ("transceiver", "transcoding") => Some(Measure::Transcoding),
        ("transceiver", "echo") => Some(Measure::Echo),
        ("relay", _) => Some(Measure::Relay),
        ("signaling", _) => Some(Measure::Signaling),
        ("all", _) => Some(Measure::Whole),
        _ => None,
    }
}

/// Which measure made a note.
fn notes(note: &str) -> Measure {
    let of = |measure: &Measure| {
        note.starts_with(&failed(*measure)) || note.starts_with(&dropped(*measure))
    };
    match Measure::ALL.into_iter().find(of) {
        Some(measure) => measure,
        None if note.starts_with(WITHOUT_JANUS) => Measure::Targets,
        None if note.starts_with(NONE_KEPT) => Measure::Whole,
        None => Measure::Costs,
    }
}

/// How the note begins that says that a measure failed.
pub(crate) fn failed(measure: Measure) -> String {
    format!("{measure:?} failed")
}

/// How the note begins that says that what a measure found went with what it rests on.
fn dropped(measure: Measure) -> String {
    format!("{measure:?} dropped")
}

/// Whether `capacity.json` has something that a measure finds.
pub(crate) fn has(file: &CapacityResults, measure: Measure) -> bool {
    match measure {
        Measure::Costs => !file.costs.is_empty(),
        Measure::Targets => !file.targets.is_empty(),
        _ => (file.carried.iter()).any(|one| finds(&one.service, &one.work) == Some(measure)),
    }
}

/// What of `capacity.json` a measure's findings come to stand beside. Costs and targets are taken at shares of what all programs carry: when that is found
/// anew, those of an earlier run go.
pub(crate) fn without(file: CapacityResults, measure: Measure) -> CapacityResults {
    let mut left = of_capacity(file, &[measure]);
    if measure == Measure::Whole {
        for rests in [Measure::Costs, Measure::Targets] {
            if has(&left, rests) {
                left = of_capacity(left, &[rests]);
                left.notes.push(format!(
                    "{}: they were of numbers of calls that an earlier search found; --only {} measures them.",
                    dropped(rests),
                    format!("{rests:?}").to_lowercase()
                ));
            }
        }
    }
    left
}

/// Says what of a file is of earlier runs; nothing when all of it is of this one.
pub(crate) fn told(file: &CapacityResults, done: &[Measure]) -> Option<String> {
    let earlier = |measure: &Measure| !done.contains(measure) && has(file, *measure);
    let kept: Vec<String> = Measure::ALL
        .into_iter()
        .filter(earlier)
        .map(|measure| format!("{measure:?}").to_lowercase())
        .collect();
    let dates = file.measured.earlier.join(", ");
    (!kept.is_empty() && !dates.is_empty())
        .then(|| format!("\nOf earlier runs ({dates}): {}.\n", kept.join(", ")))
}

/// What stays of `capacity.json`.
pub(crate) fn of_capacity(mut file: CapacityResults, again: &[Measure]) -> CapacityResults {
    let stays = |measure: Option<Measure>| measure.is_none_or(|one| !again.contains(&one));
    file.carried
        .retain(|one| stays(finds(&one.service, &one.work)));
    file.notes.retain(|note| stays(Some(notes(note))));
    if !stays(Some(Measure::Costs)) {
        file.costs.clear();
    }
    if !stays(Some(Measure::Targets)) {
        file.targets.clear();
    }
    file
}

/// Whether that is anything.
pub(crate) fn is_something(file: &CapacityResults) -> bool {
    !(file.carried.is_empty() && file.costs.is_empty() && file.targets.is_empty())
}

/// What stays of `calls.json`.
pub(crate) fn of_calls(mut file: Value, again: &[Measure]) -> Value {
    let name = |one: &Value, key: &str| one[key].as_str().unwrap_or("transceiver").to_owned();
    if let Some(found) = file["capacity"].as_array_mut() {
        found.retain(|one| {
            let measure = finds(&name(one, "service"), &name(one, "work"));
            measure.is_none_or(|one| !again.contains(&one))
        });
    }
    for (measure, key) in [(Measure::Memory, "memory"), (Measure::Churn, "churn")] {
        if again.contains(&measure) {
            file[key] = Value::Null;
        }
    }
    file
}

/// Whether that is anything.
pub(crate) fn is_any_call(file: &Value) -> bool {
    let none = file["capacity"].as_array().is_none_or(Vec::is_empty);
    !(none && file["memory"].is_null() && file["churn"].is_null())
}

/// Puts what stays of `calls.json` beside what was measured anew.
pub(crate) fn beside(mut calls: Value, kept: &Value) -> Value {
    let mut found = kept["capacity"].as_array().cloned().unwrap_or_default();
    if let Some(new) = calls["capacity"].as_array() {
        found.extend(new.iter().cloned());
    }
    calls["capacity"] = found.into();
    for key in ["memory", "churn"] {
        if calls[key].is_null() {
            calls[key] = kept[key].clone();
        }
    }
    calls
}

#[cfg(test)]
mod tests {
    use firsthop_perf::call::capacity_results::{Carried, Target};
    use serde_json::json;

    use super::*;

    fn carried(service: &str, work: &str) -> Carried {
        Carried {
            service: service.to_owned(),
            work: work.to_owned(),
            per_core: 1.0,
            gives_first: None,
            micros: 1.0,
            bytes_per_call: None,
            tried: Vec::new(),
        }
    }

    #[test]
    fn what_rests_on_a_capacity_goes_with_it_and_that_is_said_until_it_is_measured() {
        let mut file = CapacityResults {
            carried: vec![
                carried("transceiver", "echo"),
                carried("all", "passthrough"),
            ],
            targets: vec![Target::of("a", Some(1.0), 2.0, Vec::new(), String::new())],
            ..CapacityResults::default()
        };
        file.measured.earlier = vec!["2026-01-01".to_owned()];
        let left = without(file.clone(), Measure::Whole);
        assert!(has(&left, Measure::Echo) && !has(&left, Measure::Whole));
        assert!(left.targets.is_empty());
        let [note] = &left.notes[..] else {
            panic!("{:?}", left.notes);
        };
        assert!(note.contains("--only targets"), "{note}");
        assert_eq!(without(left, Measure::Targets).notes, [""; 0]);
        // Another search leaves them.
        let left = without(file.clone(), Measure::Echo);
        assert!(has(&left, Measure::Targets) && has(&left, Measure::Whole));

        let told = told(&file, &[Measure::Whole]).expect("some");
        assert!(told.contains("2026-01-01): echo, targets."), "{told}");
        assert_eq!(super::told(&file, &Measure::ALL), None);
    }

    #[test]
    fn what_is_measured_anew_goes_and_the_rest_stays() {
        let file = CapacityResults {
            carried: vec![
                carried("transceiver", "echo"),
                carried("relay", "forwarding"),
                carried("all", "passthrough"),
            ],
            targets: vec![Target::of("a", Some(1.0), 2.0, Vec::new(), String::new())],
            notes: vec![
                format!("{}: no reason.", failed(Measure::Relay)),
                format!("{WITHOUT_JANUS}: not installed."),
                "1,000 calls do not fit".to_owned(),
            ],
            ..CapacityResults::default()
        };
        let kept = of_capacity(file.clone(), &[Measure::Relay, Measure::Targets]);
        let left: Vec<&str> = kept
            .carried
            .iter()
            .map(|one| one.service.as_str())
            .collect();
        assert_eq!(left, ["transceiver", "all"]);
        assert!(kept.targets.is_empty());
        assert_eq!(kept.notes, ["1,000 calls do not fit"]);
        assert!(is_something(&kept));
        assert!(!is_something(&of_capacity(file, &Measure::ALL)));
    }

    #[test]
    fn calls_that_were_not_measured_anew_stand_beside_those_that_were() {
        let one = |work: &str, calls: u32| json!({"service": "transceiver", "work": work, "calls": calls});
        let file =
            json!({"capacity": [one("passthrough", 1), one("echo", 2)], "memory": 3, "churn": 4});
        let kept = of_calls(file.clone(), &[Measure::Echo, Measure::Memory]);
        let new = json!({"capacity": [one("echo", 5)], "memory": 6, "churn": null});
        assert_eq!(
            beside(new, &kept),
            json!({"capacity": [one("passthrough", 1), one("echo", 5)], "memory": 6, "churn": 4})
        );
        assert!(is_any_call(&kept));
        assert!(!is_any_call(&of_calls(file, &Measure::ALL)));
    }
}
