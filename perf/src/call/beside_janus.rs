//! The servers' processor time of a call beside Janus's, with the same clients.
//!
//! What is compared alternates, pass by pass, so that what else the machine does falls on both.

use std::io;
use std::num::NonZeroU32;

use super::air::Way;
use super::capacity_results::Target;
use super::comparison::{ComparisonPlan, NUMBER, lost, words};
use super::handled::{self, Handled, Reading};
use super::janus::{self, Janus, JanusPlan};
use super::load::{self, Ending, LoadError, LoadPlan};
use super::manner::{Manner, Sharing};
use super::recording::Codec;
use super::report::CallReport;
use super::trial::{self, Answerer, Served, Service, Work};
use crate::report::median;

/// The servers' time per call, as a share of Janus's.
const OF_JANUS: f64 = 0.5;

/// Servers that are compared by their time.
const SERVERS: [&str; 4] = [
    "firsthop",
    "firsthop, every caller's own audio back",
    "janus, one event loop",
    "janus, a thread for each call",
];

/// The servers' processor time per call and second beside Janus's, with the same clients and so many calls of G.711.
///
/// # Errors
/// Programs do not start, Janus is not installed, or see [`LoadError`].
pub fn measure(
    plan: &ComparisonPlan,
    calls: u32,
    mut said: impl FnMut(&str, &CallReport),
) -> Result<Vec<Target>, LoadError> {
    let mut times: Vec<[f64; SERVERS.len()]> = Vec::new();
    let mut handled: [Vec<Vec<Handled>>; 2] = Default::default();
    let mut failed: Vec<[Option<String>; SERVERS.len()]> = Vec::new();
    for pass in 0..plan.passes {
        let mut pass_times = [f64::NAN; SERVERS.len()];
        let mut pass_failed: [Option<String>; SERVERS.len()] = Default::default();
        let mut order: Vec<usize> = (0..SERVERS.len()).collect();
        if pass % 2 == 1 {
            order.reverse();
        }
        for at in order {
            let (report, did) = match at {
                0 => firsthop(plan, calls, Answerer::Speaks)?,
                1 => firsthop(plan, calls, Answerer::Echoes(NonZeroU32::MIN))?,
                2 => (janus(plan, calls, Some(1))?, Vec::new()),
                _ => (janus(plan, calls, None)?, Vec::new()),
            };
            said(SERVERS[at], &report);
            pass_times[at] = server_micros(&report, calls);
            pass_failed[at] = lost(SERVERS[at], &report);
            if let Some(handled) = handled.get_mut(at).filter(|_| pass_times[at].is_finite()) {
                handled.push(did);
            }
        }
        times.push(pass_times);
        failed.push(pass_failed);
    }
    let handled = handled.each_ref().map(|passes| handled::medians(passes));
    Ok(beside_janus(calls, &times, &failed, handled))
}

fn firsthop(
    plan: &ComparisonPlan,
    calls: u32,
    answerer: Answerer,
) -> Result<(CallReport, Vec<Handled>), LoadError> {
    let served = Served::start(
        &plan.bench,
        NUMBER,
        Service::All,
        Work::Passthrough,
        answerer,
    )?;
    let load = own_sockets(served.calls(calls, plan.counted))?;
    let mut readings = None;
    let report = load::run_beside(&load, &Default::default(), || {
        // Both while all calls are up.
        let most = plan.counted.mul_f64(0.9);
        readings = Some(Reading::of(&served.stack).and_then(|first| {
            std::thread::sleep(most);
            Ok((first, Reading::of(&served.stack)?))
        }));
    })?;
    let readings = readings.transpose()?;
    let handled = readings.map(|(first, last)| first.until(&last, calls, &report.watched));
    Ok((report, handled.unwrap_or_default()))
}

fn janus(
    plan: &ComparisonPlan,
    calls: u32,
    event_loops: Option<u32>,
) -> Result<CallReport, LoadError> {
    let bench = &plan.bench;
    let janus = Janus::start(JanusPlan {
        event_loops,
        ..JanusPlan::here(bench.directory.join("janus"), bench.processor)?
    })?;
    let load = LoadPlan {
        // A session would wait for its next connection.
        ending: Ending::HangUp,
        watch: vec![janus.process.id()],
        ..trial::held(
            janus.desk(),
            Way::Relay,
            Codec::Pcmu,
            calls,
            bench.settle,
            plan.counted,
        )
    };
    load::run(&own_sockets(load)?, &Default::default())
}

/// Clients with a socket each at this machine's own address: Janus serves no others here, and what many clients send by one system call would come
/// in trains, which spares servers work.
fn own_sockets(load: LoadPlan) -> io::Result<LoadPlan> {
    let from = janus::own_address()?;
    Ok(LoadPlan {
        manner: Manner {
            sockets: Sharing::Own { from, bind: from },
            ..load.manner
        },
        ..load
    })
}

/// What the servers of media used per call and second, in microseconds; no number when not every call came about.
fn server_micros(report: &CallReport, calls: u32) -> f64 {
    if report.audible < u64::from(calls) || report.failed() > 0 {
        return f64::NAN;
    }
    let media = report.watched.iter().filter(|one| one.name != "signaling");
    media.map(|one| one.micros_per_call_second).sum()
}

fn beside_janus(
    calls: u32,
    times: &[[f64; SERVERS.len()]],
    failed: &[[Option<String>; SERVERS.len()]],
    handled: [Vec<Handled>; 2],
) -> Vec<Target> {
    let [speaks, echoes] = handled;
    let target = |name, at: usize, what: &str, handled| {
        // Janus has the setting that is better for it.
        let passes: Vec<f64> = times
            .iter()
            .map(|pass| pass[at] / pass[2].min(pass[3]))
            .collect();
        let left_out: Vec<String> = passes
            .iter()
            .zip(failed)
            .filter(|(pass, _)| !pass.is_finite())
            .map(|(_, failed)| [at, 2, 3].map(|server| failed[server].clone()))
            .map(|failed| words(&failed.into_iter().flatten().collect::<Vec<_>>()))
            .collect();
        let figures: Vec<String> = SERVERS
            .iter()
            .enumerate()
            .filter_map(|(at, server)| {
                let micros = median(times.iter().map(|pass| pass[at]).collect())?;
                Some(format!("{server} {micros:.0}"))
            })
            .collect();
        let how = format!(
            "{what}, as a share of Janus's echo test, which decrypts a packet and encrypts it again for the same caller, at its cheaper setting; \
             {calls} calls of G.711, 50 packets a second each way, with the same clients; medians of microseconds per call and second: {}",
            figures.join(", ")
        );
        Target::of(name, median(passes.clone()), OF_JANUS, passes, how)
            .left_out(&left_out)
            .with(handled)
    };
    vec![
        target(
            "server_time_vs_janus",
            0,
            "processor time of relay and transceiver, which decrypt G.711, send it to a model server over a WebSocket as base64 in JSON, and encrypt and \
             send the speech of that server, a second to a message",
            speaks,
        ),
        target(
            "server_time_vs_janus_own_audio",
            1,
            "the same, where the model server gives every caller its own audio back, 20 ms to a message",
            echoes,
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn janus_is_taken_at_its_cheaper_setting_and_a_pass_with_failed_calls_is_left_out() {
        let targets = beside_janus(
            100,
            &[
                [500.0, 800.0, 2_000.0, 1_000.0],
                [600.0, 800.0, 1_000.0, 1_500.0],
                [f64::NAN, 800.0, 1_000.0, 1_000.0],
            ],
            &[
                Default::default(),
                // The other setting is compared with.
                [
                    None,
                    None,
                    Some("janus: 2 of 100 calls failed".to_owned()),
                    None,
                ],
                [
                    Some("firsthop: 1 of 100 calls failed".to_owned()),
                    None,
                    None,
                    None,
                ],
            ],
            [[200.0, 350.0], [300.0, 500.0]].map(|micros| {
                let programs = ["relay", "transceiver"].into_iter().zip(micros);
                let handled = programs.map(|(program, micros)| Handled {
                    program: program.to_owned(),
                    micros,
                    counts: Vec::new(),
                });
                handled.collect()
            }),
        );
        assert_eq!(targets[0].handled[1].micros, 350.0);
        assert_eq!(targets[1].handled[0].micros, 300.0);
        assert!((targets[0].found.expect("found") - 0.55).abs() < 1e-9);
        assert_eq!(targets[0].met, Some(false));
        assert_eq!(targets[1].found, Some(0.8));
        for part in [
            "firsthop 550",
            "; 1 pass is left out (firsthop: 1 of 100 calls failed)",
        ] {
            assert!(targets[0].how.contains(part), "{}", targets[0].how);
        }
        assert!(!targets[1].how.contains("failed"), "{}", targets[1].how);
    }
}
