//! Empty datagrams, each of which ends a receive, and the receives that are armed ahead of them.

use std::time::{Duration, Instant};

use firsthop_relay::waiting::Wait;

use super::{MEDIUM, PATIENCE, SMALL, bench};

#[test]
fn an_empty_datagram_is_a_datagram_and_the_receive_goes_on() {
    let mut bench = bench(SMALL);
    for payload in [&b""[..], b"x", b"", b"y"] {
        bench.peer.send_to(payload, bench.public).expect("sent");
    }
    let lens: Vec<usize> = bench
        .receive(4)
        .iter()
        .map(|received| received.len)
        .collect();
    assert_eq!(lens, [0, 1, 0, 1]);
}

/// Each ends a receive, and costs a system call if nothing is armed for the next.
#[test]
fn many_empty_datagrams_share_a_system_call() {
    const EMPTY: usize = 150;
    let mut bench = bench(MEDIUM);
    for _ in 0..EMPTY {
        bench.peer.send_to(&[], bench.public).expect("sent");
    }
    let before = bench.ring.counters().enters;
    let mut received = Vec::new();
    let deadline = Instant::now() + PATIENCE;
    while received.len() < EMPTY {
        assert!(Instant::now() < deadline, "{} came", received.len());
        let some = bench.receive_any();
        assert!(!some.is_empty(), "all of them wait in the socket");
        received.extend(some);
    }
    let enters = bench.ring.counters().enters - before;
    assert!(
        enters <= EMPTY as u64 / 8,
        "{enters} system calls for {EMPTY} datagrams"
    );
    assert_eq!(bench.ring.counters().receive_errors, 0);
    // All that was armed for more of them has ended, and only what stays is left.
    bench.receive_any();
    assert!(bench.ring.all_armed());
    assert_eq!(bench.ring.public_buffers_free(), 100);
    while !bench.ring.is_quiet() {
        assert!(Instant::now() < deadline, "it came to rest");
        bench.ring.stop_receiving();
        bench.ring.enter(Wait::No).expect("entered");
        bench.ring.reap(&mut received);
    }
}

#[test]
fn a_lack_of_buffers_counts_once_however_many_receives_find_it() {
    let mut bench = bench(MEDIUM);
    // Twice as many are armed each time, for all that were armed have ended.
    for armed in [1, 2, 4, 8] {
        for _ in 0..armed {
            bench.peer.send_to(&[], bench.public).expect("sent");
        }
        assert_eq!(bench.receive_any().len(), armed);
    }
    for number in 0..200u8 {
        bench.peer.send_to(&[number], bench.public).expect("sent");
    }
    let mut held = Vec::with_capacity(1_024);
    let deadline = Instant::now() + PATIENCE;
    while bench.ring.counters().buffers_exhausted == 0 {
        assert!(Instant::now() < deadline, "{} came", held.len());
        bench.ring.enter(Wait::No).expect("entered");
        bench.ring.reap(&mut held);
    }
    assert_eq!(held.len(), usize::from(MEDIUM.public_buffers));
    bench.ring.enter(Wait::No).expect("entered");
    bench.ring.reap(&mut held);
    assert_eq!(bench.ring.counters().buffers_exhausted, 1);
}

#[test]
fn packets_among_empty_datagrams_keep_their_order() {
    let mut bench = bench(MEDIUM);
    let mut expected: Vec<u8> = Vec::new();
    for number in 0..200u8 {
        // Runs of every length up to a dozen, of either kind.
        let empty = number % 13 < number % 7 || number < 30;
        let payload = [number];
        let payload = if empty { &[][..] } else { &payload[..] };
        bench.peer.send_to(payload, bench.public).expect("sent");
        expected.extend(payload);
    }
    let mut received = Vec::new();
    let mut count = 0;
    let deadline = Instant::now() + PATIENCE;
    while count < 200 {
        assert!(Instant::now() < deadline, "{count} came");
        bench
            .ring
            .enter(Wait::Sleep(Duration::from_millis(10)))
            .expect("entered");
        let mut some = Vec::with_capacity(1_024);
        bench.ring.reap(&mut some);
        count += some.len();
        for one in some {
            received.extend(bench.payload(&one));
            bench.ring.release(one.buffer);
        }
        bench.ring.arm();
    }
    assert_eq!(received, expected);
}
