//! What `perf capacity` measures, at a size that any machine bears: every figure is there and of the right kind. How large they are says nothing here.

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use firsthop_perf::call::comparison::{self, ComparisonPlan};
use firsthop_perf::call::cost::{Kind, Program};
use firsthop_perf::call::costs::{self, CostPlan};
use firsthop_perf::call::load;
use firsthop_perf::call::stack;
use firsthop_perf::call::trial::{Answerer, Bench, Served, Service, Work};

/// The programs that were built beside this test, or those that `FIRSTHOP_BINARIES` names.
fn bench(name: &str) -> Bench {
    let wanted = ["transceiver", "relay", "signaling"];
    let named = std::env::var_os("FIRSTHOP_BINARIES").map(PathBuf::from);
    let cores = core_affinity::get_core_ids().expect("processors");
    let directory = format!("firsthop-capacity-{name}-{}", std::process::id());
    Bench {
        programs: stack::programs(named.as_deref(), &wanted).expect("the programs"),
        directory: std::env::temp_dir().join(directory),
        processor: cores.last().expect("at least one").id,
        settle: Duration::from_secs(1),
    }
}

/// How often something is tried on a machine that is too busy to serve calls in their time.
const TRIES: u32 = 5;

#[test]
fn an_echo_of_the_model_servers_tells_how_long_a_caller_waits_for_its_own_voice() {
    for (number, work) in [(40, Work::Passthrough), (41, Work::Transcoding)] {
        let answerer = Answerer::Echoes(NonZeroU32::MIN);
        let served = Served::start(&bench("echo"), number, Service::All, work, answerer);
        let served = served.expect("programs");
        let mut counted = Duration::from_secs(5);
        let delay = loop {
            let report = load::run(&served.calls(2, counted), &Default::default());
            let report = report.expect("a load");
            if let Some(delay) = report.mouth_to_ear {
                break delay;
            }
            assert!(counted < Duration::from_secs(60), "{report}");
            counted *= 2;
        };
        // A frame has to be spoken before it can leave.
        assert!(
            delay.p50 >= 19.0 && delay.p50 <= delay.p99,
            "{work:?} {delay:?}"
        );
    }
}

#[test]
fn what_calls_and_set_ups_cost_is_measured_program_by_program() {
    let plan = CostPlan {
        bench: bench("costs"),
        counted: Duration::from_secs(3),
        calls: vec![(Work::Silent, vec![2, 4]), (Work::Passthrough, vec![1, 3])],
        rates: vec![2, 4],
    };
    let kinds = [Kind::Silent, Kind::Passthrough, Kind::SetUps];
    let mut found = Vec::new();
    for _ in 0..TRIES {
        found = costs::measure(&plan, |_, _, _| ()).expect("costs").costs;
        if found.len() == 3 * kinds.len() {
            break;
        }
    }
    for kind in kinds {
        for program in [Program::Relay, Program::Transceiver, Program::Signaling] {
            let cost = found
                .iter()
                .find(|cost| cost.kind == kind && cost.program == program);
            let cost = cost.unwrap_or_else(|| panic!("{program:?} {kind:?} of {found:?}"));
            assert_eq!(cost.samples.len(), 2, "{cost:?}");
            assert_eq!(cost.processor.residuals.len(), 2);
            for sample in &cost.samples {
                assert!(sample.load > 0.0 && sample.resident_bytes > 1e6, "{cost:?}");
                // The silence of the calls that are up is taken off set-ups, and may be more than these cost.
                assert!(
                    kind == Kind::SetUps || sample.micros_per_second > 0.0,
                    "{cost:?}"
                );
            }
        }
    }
}

#[test]
fn a_comparison_finds_a_figure_for_all_that_is_asked() {
    let plan = ComparisonPlan {
        bench: bench("comparison"),
        counted: Duration::from_secs(3),
        passes: 1,
    };
    let mut targets = Vec::new();
    for _ in 0..TRIES {
        targets = comparison::relay_against_direct(&plan, 4, |_, _| ()).expect("a comparison");
        if targets.iter().all(|target| target.found.is_some()) {
            break;
        }
    }
    assert_eq!(targets.len(), 3);
    for target in &targets {
        assert!(target.found.expect("found").is_finite(), "{target:?}");
        assert_eq!(target.passes.len(), 1, "{target:?}");
        assert_eq!(target.found, Some(target.passes[0]), "{target:?}");
    }
    assert!(targets[0].found > Some(0.0), "a ratio of times");
    let mut heard = Vec::new();
    let gaps = comparison::gaps(&plan, Work::Passthrough, 2, |_, report| {
        heard.push((report.calls, report.gaps + report.failed()));
    })
    .expect("a comparison");
    // As many as the callers told of, on whatever machine.
    let &[(calls, told)] = &heard[..] else {
        panic!("{heard:?}");
    };
    assert_eq!(calls, 2);
    assert_eq!(gaps.found, Some(told as f64), "{gaps:?}");
}
