//! A second of calls whose G.711 is passed through, for an instruction counter: `scripts/bench instructions` runs it under callgrind.
//!
//! The argument names the part to run; `measured` is the function whose instructions count. A second argument says how many seconds,
//! for a profiler.

mod workload;

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
    assert_eq!(part, "passthrough", "no part {part}");
    let seconds = arguments.next().map_or(1, |n| n.parse().expect("seconds"));
    let mut world = World::new(CALLS);
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
