//! Calls through the real programs at a scale that any machine bears: they are heard, and leave nothing behind.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use firsthop_perf::call::air::Way;
use firsthop_perf::call::churn::{self, ChurnPlan};
use firsthop_perf::call::load::{self, Ending, LoadPlan};
use firsthop_perf::call::manner::{Manner, Sharing};
use firsthop_perf::call::model::{Format, ModelServer};
use firsthop_perf::call::recording::Codec;
use firsthop_perf::call::report::CallReport;
use firsthop_perf::call::schedule::{Arrivals, Lengths};
use firsthop_perf::call::stack::{self, Backend, Stack, StackPlan, model_address};
use firsthop_perf::call::trouble::Rates;

/// The programs that were built beside this test, or those that `FIRSTHOP_BINARIES` names, started; each test has a number of its own.
fn start(number: u8, backend: Backend) -> Stack {
    let wanted = ["transceiver", "relay", "signaling"];
    let named = std::env::var_os("FIRSTHOP_BINARIES").map(PathBuf::from);
    let programs = stack::programs(named.as_deref(), &wanted).expect("the programs");
    let cores = core_affinity::get_core_ids().expect("processors");
    let directory = format!("firsthop-calls-{}-{number}", std::process::id());
    Stack::start(StackPlan {
        programs,
        directory: std::env::temp_dir().join(directory),
        number,
        processor: cores.last().expect("at least one").id,
        backend,
        whole: true,
    })
    .expect("a stack")
}

/// By when a session is given up whose client says nothing more, and far more.
const FORGET: Duration = Duration::from_secs(120);

/// The longest calls that a busy machine is given.
const LONGEST: Duration = Duration::from_secs(40);

fn plan(stack: &Stack, codec: Codec, ending: Ending) -> LoadPlan {
    LoadPlan {
        desk: stack.signaling_desk(),
        way: Way::Relay,
        calls: 6,
        ramp: 10.0,
        hold: Duration::from_secs(5),
        settle: Duration::from_secs(1),
        codec,
        silent: false,
        ending,
        threads: 2,
        watch: stack.processes(),
        manner: Manner::default(),
    }
}

/// Places the calls, of whose marks so many should come back; again, and longer ones, on a machine that is too busy to serve them in their time.
fn place(plan: &LoadPlan, marks: u64) -> CallReport {
    let mut plan = plan.clone();
    loop {
        let report = load::run(&plan, &Arc::default()).expect("a load");
        let all = [report.connected, report.channels, report.audible] == [6; 3];
        let quiet = report.failures.is_empty() && report.cut == 0 && report.unclosed == 0;
        let heard = report.sent > 100 && report.received > 100 && report.marks_heard >= marks;
        if all && quiet && heard {
            assert!(
                report.lateness.is_some() && report.jitter.is_some(),
                "{report}"
            );
            assert_eq!(report.watched.len(), 3, "{report}");
            for program in &report.watched {
                assert!(
                    program.before.resident > 0 && program.busy > 0.0,
                    "{report}"
                );
            }
            return report;
        }
        assert!(plan.hold < LONGEST, "{report}");
        plan.hold *= 2;
    }
}

#[test]
fn calls_by_signaling_and_relay_and_past_both_are_heard() {
    let stack = start(30, Backend::Echo);
    let by_relay = plan(&stack, Codec::Opus, Ending::HangUp);
    hears_itself(&place(&by_relay, 6));
    assert!(
        stack
            .relay_metrics()
            .expect("metrics")
            .sum("uplink_packets_total")
            > 0
    );
    let before = stack.relay_metrics().expect("metrics");
    let direct = LoadPlan {
        desk: stack.control_desk(),
        way: stack.direct(),
        ..plan(&stack, Codec::Pcmu, Ending::Close)
    };
    hears_itself(&place(&direct, 6));
    let after = stack.relay_metrics().expect("metrics");
    assert_eq!(
        after.sum("requests_verified_total"),
        before.sum("requests_verified_total")
    );
    say_goodbye(&stack);
}

/// The owner hears that clients close, however they reach it.
fn say_goodbye(stack: &Stack) {
    // A client that says nothing is given up by itself, later.
    let (mut sessions, began) = (u64::MAX, Instant::now());
    while sessions > 0 {
        assert!(began.elapsed() < FORGET, "{sessions} sessions are left");
        std::thread::sleep(Duration::from_millis(50));
        let metrics = stack.transceiver_metrics().expect("metrics");
        sessions = metrics.sum("sessions");
    }
    let log = stack.log("transceiver").expect("a log");
    assert!(log.contains("client_closed"), "{log}");
    assert!(!log.contains("client_lost"), "{log}");
}

/// What clients said came back, every phase of their set-up was timed, and the phases make the whole.
fn hears_itself(report: &CallReport) {
    let delay = report.mouth_to_ear.expect("marks came back");
    assert!(delay.p50 > 0.0, "{report}");
    let phase = |name| report.set_up.get(name).expect("timed").max;
    let sum = phase("answer") + phase("connected") + phase("first_audio");
    assert!(phase("total") <= sum * 1.01, "{report}");
    assert!(
        phase("connected") <= (phase("ice") + phase("dtls")) * 1.01,
        "{report}"
    );
}

/// What befalls calls of their own accord is not a failure: they are heard all the same.
#[test]
fn calls_restart_ice_and_move_and_come_and_go() {
    let stack = start(34, Backend::Echo);
    let mut plan = plan(&stack, Codec::Opus, Ending::Mixed);
    plan.hold = Duration::from_secs(8);
    plan.manner = Manner {
        arrivals: Arrivals::Poisson,
        lengths: Lengths::LogNormal { sigma: 0.3 },
        churn: Duration::from_secs(6),
        vanish: 0.1,
        trouble: Rates {
            restarts: 0.2,
            moves: 0.2,
            rebinds: 0.2,
        },
        ..Manner::default()
    };
    // Again, and longer ones, on a machine that is too busy to serve them in their time.
    loop {
        let report = load::run(&plan, &Arc::default()).expect("a load");
        let troubles = [report.restarts, report.moves, report.rebinds];
        // A request may take longer than its patience; and longer calls have more of them.
        let refused = 4 * report.restarts_failed > report.restarts + report.moves;
        let befallen = troubles.iter().all(|count| *count > 0) && !refused;
        let heard = report.audible > 0 && report.marks_heard > 0;
        if report.calls > 6 && befallen && heard {
            return;
        }
        assert!(plan.hold < LONGEST, "{report}");
        plan.hold *= 2;
        plan.manner.churn *= 2;
    }
}

/// A socket for each client, as for servers anywhere.
#[test]
fn clients_with_sockets_of_their_own_are_heard() {
    let stack = start(35, Backend::Echo);
    let mut plan = plan(&stack, Codec::Pcmu, Ending::Close);
    let here = std::net::Ipv4Addr::LOCALHOST;
    plan.manner.sockets = Sharing::Own {
        from: here,
        bind: std::net::Ipv4Addr::UNSPECIFIED,
    };
    hears_itself(&place(&plan, 6));
    say_goodbye(&stack);
}

#[test]
fn a_model_server_is_heard_passed_through_and_transcoded() {
    for (number, format, codec) in [
        (31, Format::Pcmu, Codec::Pcmu),
        (33, Format::Pcm, Codec::Opus),
    ] {
        let model = ModelServer::start(model_address(number), format).expect("a server");
        let backend = Backend::Realtime {
            url: model.url().to_owned(),
            format,
        };
        let stack = start(number, backend);
        place(&plan(&stack, codec, Ending::Close), 0);
        let log = stack.log("transceiver").expect("a log");
        assert!(!log.contains("WARN") && !log.contains("ERROR"), "{log}");
    }
}

#[test]
fn hundreds_of_short_calls_leave_nothing_behind() {
    const ROUNDS: usize = 5;
    let stack = start(32, Backend::Echo);
    // What a program keeps depends on how many calls were up at once, and that on how fast the machine is. So memory may grow in a round,
    // but not in all of them: a session that stayed would be 65 KiB, each time.
    let mut least = [f64::INFINITY; 3];
    // A flow whose session has ended goes with it, and not when it has been idle for long; but on a busy machine a word of that may be lost.
    let mut expired = [u64::MAX; 2];
    for round in 0..ROUNDS {
        let plan = ChurnPlan {
            warm: 0,
            calls: 100,
            ramp: 50.0,
            hold: Duration::from_secs(3),
            silent: true,
            ending: if round % 2 == 0 {
                Ending::Close
            } else {
                Ending::HangUp
            },
        };
        let churn = churn::run(&stack, &plan).expect("calls");
        let report = &churn.report;
        // A slow machine may not connect them all in their time; there is something to leave behind all the same.
        assert!(report.answered > 0, "{report}");
        assert_eq!(churn.left, (0, 0), "sessions and flows");
        expired[round % 2] = expired[round % 2].min(churn.flows_expired);
        for (program, least) in churn.programs.iter().zip(&mut least) {
            let (before, after) = (&program.before, &program.after);
            // The first round makes what is kept.
            if round > 0 {
                let spare = before.descriptors + churn::SPARE;
                assert!(after.descriptors <= spare, "{program:?}");
                assert!(after.threads <= before.threads, "{program:?}");
                *least = least.min(program.bytes_per_call);
            }
        }
        if round > 1 && least.iter().all(|bytes| *bytes < 8_000.0) && expired == [0, 0] {
            return;
        }
    }
    panic!(
        "memory grows with every call: {least:?} bytes each at least; or flows stay when calls end: {expired:?} at least"
    );
}

#[test]
fn logs_stay_for_whoever_asks_why_calls_failed_and_secrets_do_not() {
    let folder = std::env::temp_dir().join(format!("firsthop-calls-{}-36", std::process::id()));
    let mut stack = start(36, Backend::Echo);
    assert!(folder.join("control-secret").exists());
    stack.keep_logs();
    drop(stack);
    let left = std::fs::read_dir(&folder).expect("a folder");
    let mut left: Vec<_> = left
        .map(|entry| entry.expect("a file").file_name())
        .collect();
    left.sort();
    assert_eq!(left, ["relay.log", "signaling.log", "transceiver.log"]);
    std::fs::remove_dir_all(&folder).expect("removed");
    drop(start(36, Backend::Echo));
    assert!(!folder.exists());
}
