//! Calls at Debian's Janus: its echo test answers perf's clients, and they hear what they said.

use std::time::Duration;

use firsthop_perf::call::air::Way;
use firsthop_perf::call::janus::{self, Janus, JanusPlan};
use firsthop_perf::call::load::{self, Ending, LoadPlan};
use firsthop_perf::call::manner::Manner;
use firsthop_perf::call::recording::Codec;
use firsthop_perf::call::trial;

const SECOND: Duration = Duration::from_secs(1);

/// The longest calls that a busy machine is given.
const LONGEST: Duration = Duration::from_secs(60);

/// Starts it where it is installed, as scripts/test and scripts/bench see to; elsewhere there is nothing to call.
fn start(name: &str) -> Option<Janus> {
    if let Err(error) = janus::program() {
        eprintln!("left out: {error}");
        return None;
    }
    let cores = core_affinity::get_core_ids().expect("processors");
    let directory = std::env::temp_dir().join(format!("firsthop-{name}-{}", std::process::id()));
    let plan = JanusPlan::here(directory, cores.last().expect("at least one").id);
    Some(Janus::start(plan.expect("an address")).expect("janus"))
}

#[test]
fn its_echo_test_answers_and_gives_back_what_clients_say() {
    for codec in [Codec::Pcmu, Codec::Opus] {
        let Some(janus) = start("janus-calls") else {
            return;
        };
        let mut plan = LoadPlan {
            ending: Ending::HangUp,
            watch: vec![janus.process.id()],
            manner: Manner {
                // It waits for nothing on purpose.
                echo: Some(Duration::ZERO),
                sockets: janus.sockets(),
                ..Manner::default()
            },
            ..trial::held(janus.desk(), Way::Relay, codec, 3, SECOND, 5 * SECOND)
        };
        // Again, and longer calls, on a machine that is too busy to serve them in their time.
        let report = loop {
            let report = load::run(&plan, &Default::default()).expect("a load");
            let up = [report.connected, report.channels, report.audible] == [3; 3];
            let heard = report.marks_heard > 0 && report.received > 100;
            if up && heard && report.failed() == 0 && report.failures.is_empty() {
                break report;
            }
            assert!(
                plan.hold < LONGEST,
                "{report}\n{}",
                janus.log().expect("a log")
            );
            plan.hold *= 2;
        };
        assert!(report.received <= report.sent, "{report}");
        assert!(
            report.watched[0].name == "janus" && report.watched[0].busy > 0.0,
            "{report}"
        );
    }
}
