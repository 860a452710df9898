//! A fixed routing workload for an instruction counter: `scripts/bench instructions` runs it under callgrind.
//!
//! The argument names the part to run; `measured` is the function whose instructions count.

mod workload;

use workload::{TURN, Workload};

/// Turns of each part.
const TURNS: usize = 50;

/// What is counted, and nothing else.
#[inline(never)]
fn measured(part: &str, workload: &mut Workload, datagrams: &[Vec<u8>]) {
    match part {
        "media" => (0..TURNS).for_each(|_| workload.media_turn()),
        "check" => (0..TURNS).for_each(|_| workload.check_turn(0)),
        "wrong_integrity" => (0..TURNS).for_each(|_| workload.check_turn(1)),
        "forged" => (0..TURNS).for_each(|_| workload.check_turn(2)),
        "random" => (0..TURNS).for_each(|_| workload.random_turn()),
        "downlink" => datagrams.iter().for_each(|bytes| workload.downlink(bytes)),
        other => panic!("no part {other}"),
    }
}

fn main() {
    let Some(part) = std::env::args()
        .nth(1)
        .filter(|part| !part.starts_with("--"))
    else {
        // Run as a bench or a test of the workspace, it has nothing to say.
        return;
    };
    let mut workload = Workload::new(1_000, 8);
    let datagrams: Vec<_> = match part.as_str() {
        "downlink" => {
            let mut writer = workload.writer();
            let datagram = |_| writer.datagram(TURN / 2).to_vec();
            (0..TURNS).map(datagram).collect()
        }
        _ => Vec::new(),
    };
    measured(&part, &mut workload, &datagrams);
}
