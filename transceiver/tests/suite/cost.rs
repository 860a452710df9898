//! What a session costs: printed for comparison, and held to generous limits that only a mistake exceeds.
//!
//! Figures of an unoptimised build on a shared machine say little alone; run it with `--release -- --ignored
//! --nocapture` to measure.

use std::time::{Duration, Instant};

use firsthop_transceiver::life::State;

use crate::peer::Call;

/// Resident memory of this process, in bytes.
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("procfs");
    let pages = statm.split(' ').nth(1).expect("a second field");
    pages.parse::<usize>().expect("a number") * 4_096
}

#[test]
#[ignore = "a measurement: its figures are those of the machine and of what else runs on it"]
fn a_session_is_small_and_cheap() {
    const CALLS: u32 = 60;
    // The first call pays for what is made once per process.
    drop(Call::live(1));
    let memory = resident();
    let start = Instant::now();
    let mut calls: Vec<Call> = (0..CALLS).map(|n| Call::live(100 + n)).collect();
    let connect = start.elapsed() / CALLS;
    let bytes = (resident().saturating_sub(memory)) / CALLS as usize;

    // One second of speech both ways: 50 packets in, as many out, on each call.
    let start = Instant::now();
    for call in &mut calls {
        call.speak(true);
        call.run(Duration::from_secs(2));
        assert_eq!(call.session.state(), State::Live);
    }
    let packets: usize = calls.iter().map(|call| call.client.heard.packets).sum();
    let second = start.elapsed() / (2 * CALLS);
    println!(
        "connect, client and all: {connect:?}; memory with its client: {bytes} bytes; \
         a second of echoed speech with its client: {second:?}; {packets} packets heard"
    );
    assert!(connect < Duration::from_millis(100), "{connect:?}");
    assert!(bytes < 2_000_000, "{bytes} bytes");
}
