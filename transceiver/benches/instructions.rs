//! A second of calls in a worker, for an instruction counter: `scripts/bench instructions` runs it under callgrind.
//!
//! The argument names the part to run: `passthrough`, whose G.711 reaches the model server as it is, or `transcoding`, whose Opus is decoded
//! and encoded. `measured` is the function whose instructions count: keys and hashes are random, which makes less than a hundredth. A second
//! argument says how many seconds, for a profiler.

mod workload;

use firsthop_transceiver::audio::Codec;
use workload::{Turn, World};

/// Calls at once: a worker's batch has several.
const CALLS: u32 = 8;

/// What is counted, and nothing else.
#[inline(never)]
fn measured(turn: &mut Turn<'_>) {
    turn.run();
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let Some(part) = arguments.next().filter(|part| !part.starts_with("--")) else {
        // Run as a bench or a test of the workspace, it has nothing to say.
        return;
    };
    let codec = match part.as_str() {
        "passthrough" => Codec::Pcmu,
        "transcoding" => Codec::Opus,
        other => panic!("no part {other}"),
    };
    let seconds = arguments.next().map_or(1, |n| n.parse().expect("seconds"));
    let mut world = World::new(CALLS, codec);
    world.connect();
    // The first second has what happens once: the report of the quality, items, queues that grow.
    world.talk(1, |turn| turn.run());
    let before = world.passed();
    world.talk(seconds, measured);
    let after = world.passed();
    let expected = 50 * seconds as usize * CALLS as usize;
    for (what, before, after) in [
        ("packets up", before.0, after.0),
        ("packets down", before.1, after.1),
        ("pieces for the server", before.2, after.2),
    ] {
        let passed = after - before;
        assert!(
            passed.abs_diff(expected) <= CALLS as usize,
            "{what}: {passed}, not {expected}"
        );
    }
}
