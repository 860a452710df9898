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
    let failed = |measure: &Measure| note.starts_with(&failed(*measure));
    match Measure::ALL.into_iter().find(failed) {
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

    #[test]
    fn what_is_measured_anew_goes_and_the_rest_stays() {
        let carried = |service: &str, work: &str| Carried {
            service: service.to_owned(),
            work: work.to_owned(),
            per_core: 1.0,
            gives_first: None,
            micros: 1.0,
            bytes_per_call: None,
            tried: Vec::new(),
        };
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
