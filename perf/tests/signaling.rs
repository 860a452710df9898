//! Calls on a real signaling program before stub transceivers: each kind of load makes the calls that it should, and all are answered.

use std::path::PathBuf;
use std::time::Duration;

use firsthop_perf::asking::{self, CallPlan, Pace};
use firsthop_perf::asking_report::{CALLS_PER_CORE, CallBench, CallReport};
use firsthop_perf::front_door::FrontDoor;
use firsthop_perf::measured::Measured;
use firsthop_perf::stubs::Stubs;

/// The signaling that was built beside this test, or the one that `FIRSTHOP_SIGNALING` names.
fn program() -> PathBuf {
    if let Some(named) = std::env::var_os("FIRSTHOP_SIGNALING") {
        return named.into();
    }
    let test = std::env::current_exe().expect("this test's own path");
    let built = test
        .ancestors()
        .nth(2)
        .map(|folder| folder.join("signaling"));
    built.filter(|path| path.is_file()).expect(
        "a signaling beside this test: cargo build -p firsthop-signaling, or set FIRSTHOP_SIGNALING",
    )
}

/// The processor that signaling runs on.
fn processor() -> usize {
    let cores = core_affinity::get_core_ids().expect("processors");
    cores.last().expect("at least one").id
}

fn directory(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("firsthop-{name}-{}", std::process::id()))
}

#[test]
fn every_load_makes_its_calls_and_reports_what_they_took() {
    let bench = CallBench {
        signaling: program(),
        processor: processor(),
        clients: 4,
        rate: 100.0,
        duration: Duration::from_millis(300),
    };
    let report =
        CallReport::measure(Measured::default(), &bench, &directory("calls")).expect("calls");
    let [asking, paced, connecting] = &report.loads[..] else {
        panic!("three loads: {report:?}");
    };
    assert_eq!((paced.calls, paced.due), (30, Some(100.0)));
    assert!(paced.generator.is_some() && asking.generator.is_none());
    assert!(connecting.connects && !asking.connects && !paced.connects);
    for load in &report.loads {
        assert!(load.calls >= 4, "{load:?}");
        assert!(load.per_second > 0.0 && load.micros > 0.0, "{load:?}");
        let latency = load.latency;
        assert!(latency.p50 > 0.0, "{load:?}");
        assert!(latency.p50 <= latency.p99 && latency.p99 <= latency.max);
    }
    assert_eq!(report.calls_per_core, 1e6 / asking.micros);
    assert!(report.quick, "a look takes less than ten seconds");
    let table = report.table();
    for part in [
        "always asking",
        "100 a second, open loop",
        "connecting for each call",
    ] {
        assert!(table.contains(part), "{table}");
    }
    assert_eq!(
        table.contains("missed"),
        report.calls_per_core < CALLS_PER_CORE
    );
}

#[test]
fn every_call_reaches_a_transceiver_and_a_refused_one_is_an_error() {
    let stubs = Stubs::start(2).expect("stubs");
    let mut door =
        FrontDoor::start(processor(), &program(), directory("door"), &stubs).expect("signaling");
    let plan = CallPlan {
        clients: 3,
        pace: Pace::OpenLoop(200.0),
        connects: false,
        duration: Duration::from_millis(250),
    };
    let load = asking::run(&mut door, &plan).expect("calls");
    assert_eq!(load.calls, 50);
    // And those that warmed it up.
    assert_eq!(stubs.created(), 50 + 3 * 20);

    door.key = "unknown".to_owned();
    let refused = asking::run(&mut door, &plan).expect_err("no such key");
    assert!(refused.to_string().contains("401"), "{refused}");
}
