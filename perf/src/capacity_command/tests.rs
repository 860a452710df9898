//! Limits on the command line, and what stays of an earlier run.

use clap::Parser as _;
use firsthop_perf::call::capacity_results::{Carried, Target};

use super::*;

#[derive(clap::Parser)]
struct Line {
    #[command(flatten)]
    capacity: CapacityArgs,
}

fn line(words: &[&str]) -> Result<CapacityArgs, String> {
    Line::try_parse_from(["capacity"].iter().chain(words))
        .map(|line| line.capacity)
        .map_err(|error| error.to_string())
}

#[test]
fn limits_are_flags_that_have_defaults_and_what_is_none_is_refused() {
    let args = line(&["--only", "whole,costs", "--gaps-per-hundred", "0"]).expect("a line");
    assert_eq!(args.only, [Measure::Whole, Measure::Costs]);
    let expected = Tolerance {
        gaps_per_hundred: 0.0,
        ..Tolerance::default()
    };
    assert_eq!(args.tolerance, expected);
    for (words, named) in [
        (&["--only", "everything"][..], "--only"),
        (&["--set-up-p99-ms", "soon"], "--set-up-p99-ms"),
        (&["--lost=-1"], "not negative"),
        (&["--lost", "NaN"], "not negative"),
        (&["--janus-calls", "0"], "--janus-calls"),
    ] {
        let error = line(words).err().expect("refused");
        assert!(error.contains(named), "{error}");
    }
}
#[test]
fn what_fails_replaces_nothing_and_what_does_not_replaces_what_rests_on_it_too() {
    let args = line(&["--only", "whole"]).expect("a line");
    let target = |name: &str| Target::of(name, Some(1.0), 2.0, Vec::new(), String::new());
    let carried = |per_core| Carried {
        service: "all".to_owned(),
        work: "passthrough".to_owned(),
        per_core,
        gives_first: None,
        micros: 1.0,
        bytes_per_call: None,
        tried: Vec::new(),
    };
    let mut survey = Survey {
        args: &args,
        bench: Bench {
            programs: PathBuf::new(),
            directory: PathBuf::new(),
            processor: 1,
            settle: Duration::ZERO,
        },
        effort: Effort::new(true),
        calls: CallResults::default(),
        calls_kept: Some(serde_json::json!({"memory": 1, "churn": 2})),
        found: CapacityResults {
            carried: vec![carried(100.0)],
            targets: vec![target("then")],
            ..CapacityResults::default()
        },
        done: Vec::new(),
    };
    for _ in 0..2 {
        let failed = survey.replace(Measure::Whole, |survey, _| {
            survey.found.carried.push(carried(50.0));
            anyhow::bail!("the second half went wrong")
        });
        let words = failed.expect_err("failed");
        assert!(words.contains("measured earlier"), "{words}");
        assert_eq!(survey.found.per_core("all", "passthrough"), Some(100.0));
        assert_eq!(survey.found.targets.len(), 1);
        assert_eq!(survey.found.notes, [words]);
    }
    // Of what there was nothing, what was found until it failed stays.
    let failed = survey.replace(Measure::Costs, |survey, _| {
        survey.found.notes.push("1,000 calls do not fit".to_owned());
        anyhow::bail!("no")
    });
    assert!(!failed.expect_err("failed").contains("earlier"));
    assert_eq!(survey.found.notes.len(), 3);
    let whole = survey.replace(Measure::Whole, |survey, _| {
        assert!(survey.found.carried.is_empty(), "it is searched for");
        survey.found.carried.push(carried(120.0));
        Ok(())
    });
    assert_eq!(whole, Ok(()));
    assert_eq!(survey.found.per_core("all", "passthrough"), Some(120.0));
    assert!(survey.found.targets.is_empty());

    let memory = |survey: &Survey<'_>| survey.calls_kept.as_ref().expect("kept")["memory"].clone();
    let failed = survey.replace(Measure::Memory, |_, _| anyhow::bail!("no"));
    assert!(failed.is_err() && memory(&survey) == 1);
    assert_eq!(survey.replace(Measure::Memory, |_, _| Ok(())), Ok(()));
    assert!(memory(&survey).is_null());
    assert_eq!(survey.done, [Measure::Whole, Measure::Memory]);
}
