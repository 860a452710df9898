use std::time::{Duration, Instant};

use firsthop_transceiver::audio::{CAPACITY, MAX_WAIT, Pushed, Released, Reorder};
use proptest::prelude::*;

const SSRC: u32 = 1;

fn at(start: Instant, ms: u64) -> Instant {
    start + Duration::from_millis(ms)
}

/// Everything due, as the packets' numbers; a loss of `n` packets as `-n`.
fn drain(reorder: &mut Reorder<i64>, now: Instant) -> Vec<i64> {
    std::iter::from_fn(|| reorder.pop(now))
        .map(|released| match released {
            Released::Frame(packet) => packet,
            Released::Lost(packets) => -(packets as i64),
        })
        .collect()
}

#[test]
fn packets_in_order_pass_at_once() {
    let (mut reorder, now) = (Reorder::new(), Instant::now());
    for n in 0..5 {
        assert_eq!(reorder.push(SSRC, n, i64::from(n), now), Pushed::Accepted);
        assert_eq!(drain(&mut reorder, now), [i64::from(n)]);
        assert_eq!(reorder.deadline(), None);
    }
}

#[test]
fn a_swapped_pair_is_released_in_order() {
    let (mut reorder, now) = (Reorder::new(), Instant::now());
    reorder.push(SSRC, 10, 10, now);
    reorder.push(SSRC, 12, 12, now);
    assert_eq!(drain(&mut reorder, now), [10]);
    reorder.push(SSRC, 11, 11, now);
    assert_eq!(drain(&mut reorder, now), [11, 12]);
    assert_eq!(reorder.counters(), Default::default());
}

#[test]
fn a_lost_packet_is_given_up_after_40_ms_and_not_before() {
    let (mut reorder, start) = (Reorder::new(), Instant::now());
    reorder.push(SSRC, 1, 1, start);
    assert_eq!(drain(&mut reorder, start), [1]);
    reorder.push(SSRC, 3, 3, at(start, 40));
    reorder.push(SSRC, 4, 4, at(start, 60));
    assert!(drain(&mut reorder, at(start, 79)).is_empty());
    assert_eq!(reorder.deadline(), Some(at(start, 80)));
    assert_eq!(reorder.pop(at(start, 80)), Some(Released::Lost(1)));
    assert_eq!(drain(&mut reorder, at(start, 80)), [3, 4]);
    assert_eq!(reorder.counters().missing, 1);
}

#[test]
fn two_holes_are_waited_for_at_the_same_time() {
    let (mut reorder, start) = (Reorder::new(), Instant::now());
    reorder.push(SSRC, 1, 1, start);
    reorder.push(SSRC, 3, 3, at(start, 40));
    reorder.push(SSRC, 5, 5, at(start, 80));
    assert_eq!(drain(&mut reorder, at(start, 80)), [1, -1, 3]);
    assert!(drain(&mut reorder, at(start, 119)).is_empty());
    assert_eq!(drain(&mut reorder, at(start, 120)), [-1, 5]);
}

#[test]
fn a_packet_that_came_early_does_not_wait_for_the_hole_before_a_later_one() {
    let (mut reorder, start) = (Reorder::new(), Instant::now());
    reorder.push(SSRC, 1, 1, start);
    drain(&mut reorder, start);
    // 4 comes first, and waits longest, although 3 is before it in the order.
    reorder.push(SSRC, 4, 4, start);
    reorder.push(SSRC, 3, 3, at(start, 30));
    assert_eq!(drain(&mut reorder, at(start, 40)), [-1, 3, 4]);
}

#[test]
fn duplicates_are_dropped_before_and_after_their_release() {
    let (mut reorder, now) = (Reorder::new(), Instant::now());
    reorder.push(SSRC, 1, 1, now);
    reorder.push(SSRC, 3, 3, now);
    assert_eq!(reorder.push(SSRC, 3, 3, now), Pushed::Duplicate);
    assert_eq!(drain(&mut reorder, now), [1]);
    assert_eq!(reorder.push(SSRC, 1, 1, now), Pushed::Duplicate);
    assert_eq!(reorder.counters().duplicate, 2);
}

#[test]
fn a_late_packet_is_told_from_a_duplicate() {
    let (mut reorder, start) = (Reorder::new(), Instant::now());
    reorder.push(SSRC, 1, 1, start);
    reorder.push(SSRC, 3, 3, start);
    drain(&mut reorder, start + MAX_WAIT);
    assert_eq!(reorder.push(SSRC, 2, 2, start), Pushed::Late);
    assert_eq!(reorder.push(SSRC, 3, 3, start), Pushed::Duplicate);
    let counters = reorder.counters();
    assert_eq!(
        (counters.late, counters.duplicate, counters.missing),
        (1, 1, 1)
    );
}

#[test]
fn the_sequence_wraps_also_with_a_loss_at_the_border() {
    let (mut reorder, start) = (Reorder::new(), Instant::now());
    for (n, sequence) in [65_533_u16, 65_534, 1, 0, 2].into_iter().enumerate() {
        reorder.push(SSRC, sequence, n as i64, start);
    }
    assert_eq!(drain(&mut reorder, start), [0, 1]);
    assert_eq!(drain(&mut reorder, start + MAX_WAIT), [-1, 3, 2, 4]);
    assert_eq!(reorder.counters().restarts, 0);
}

#[test]
fn a_far_jump_is_believed_when_the_next_packet_confirms_it() {
    for jump in [20_000_u16, 50_000] {
        let (mut reorder, now) = (Reorder::new(), Instant::now());
        reorder.push(SSRC, 30_000, 1, now);
        drain(&mut reorder, now);
        let sequence = 30_000_u16.wrapping_add(jump);
        assert_eq!(reorder.push(SSRC, sequence, 2, now), Pushed::Stray);
        // The stream may also go on as if nothing had happened.
        assert_eq!(reorder.push(SSRC, 30_001, 3, now), Pushed::Accepted);
        assert_eq!(drain(&mut reorder, now), [3]);
        assert_eq!(reorder.push(SSRC, sequence, 4, now), Pushed::Stray);
        assert_eq!(reorder.push(SSRC, sequence + 1, 5, now), Pushed::Accepted);
        assert_eq!(drain(&mut reorder, now), [5]);
        let counters = reorder.counters();
        assert_eq!((counters.stray, counters.restarts), (2, 1));
    }
}

#[test]
fn another_ssrc_begins_the_stream_anew_at_once() {
    let (mut reorder, now) = (Reorder::new(), Instant::now());
    reorder.push(SSRC, 100, 1, now);
    reorder.push(SSRC, 102, 2, now);
    drain(&mut reorder, now);
    assert_eq!(reorder.push(2, 7, 3, now), Pushed::Accepted);
    assert_eq!(drain(&mut reorder, now), [3]);
    let counters = reorder.counters();
    assert_eq!(
        (counters.restarts, counters.discarded, counters.missing),
        (1, 1, 0)
    );
}

#[test]
fn a_burst_behind_a_hole_is_released_when_the_buffer_is_full() {
    let (mut reorder, now) = (Reorder::new(), Instant::now());
    reorder.push(SSRC, 0, 0, now);
    drain(&mut reorder, now);
    for n in 2..CAPACITY as u16 + 2 {
        assert_eq!(reorder.push(SSRC, n, i64::from(n), now), Pushed::Accepted);
    }
    assert_eq!(reorder.push(SSRC, 100, 100, now), Pushed::Full);
    let released = drain(&mut reorder, now);
    assert_eq!(released[..2], [-1, 2]);
    assert_eq!(released.len(), CAPACITY + 1);
}

#[test]
fn an_outage_is_one_loss_of_many_packets() {
    let (mut reorder, start) = (Reorder::new(), Instant::now());
    reorder.push(SSRC, 0, 0, start);
    reorder.push(SSRC, 150, 150, at(start, 3_000));
    assert_eq!(drain(&mut reorder, at(start, 3_040)), [0, -149, 150]);
}

proptest! {
    /// Whatever the network does to a stream, it comes out in order, once, in bounded time, and is accounted for.
    #[test]
    fn any_network_is_put_in_order(
        first in any::<u16>(),
        fates in prop::collection::vec((0_u64..120, 0_u8..10), 1..300),
    ) {
        let start = Instant::now();
        // Fate 0: lost. Fate 1: doubled.
        let mut arrivals: Vec<(u64, i64)> = Vec::new();
        for (n, (jitter, fate)) in fates.iter().enumerate() {
            let due = 20 * n as u64 + jitter;
            if *fate != 0 {
                arrivals.push((due, n as i64));
            }
            if *fate == 1 {
                arrivals.push((due + 7, n as i64));
            }
        }
        arrivals.sort();
        prop_assume!(!arrivals.is_empty());
        let (begin, end) = (arrivals[0].1, arrivals.iter().map(|a| a.1).max().unwrap());

        let mut reorder = Reorder::new();
        let mut next = begin;
        let mut accepted = 0;
        let mut frames = 0;
        let mut arrived = std::collections::HashMap::new();
        let mut check = |reorder: &mut Reorder<i64>, now: Instant, arrived: &std::collections::HashMap<i64, Instant>| {
            for released in drain(reorder, now) {
                if released < 0 {
                    next -= released;
                } else {
                    assert_eq!(released, next, "out of order");
                    assert!(now <= arrived[&released] + MAX_WAIT, "waited too long");
                    next += 1;
                    frames += 1;
                }
            }
            next
        };
        let mut reached = begin;
        for (ms, n) in &arrivals {
            let now = at(start, *ms);
            // The clock is read when the buffer asks for it.
            while let Some(deadline) = reorder.deadline().filter(|d| *d <= now) {
                reached = check(&mut reorder, deadline, &arrived);
            }
            let pushed = reorder.push(SSRC, first.wrapping_add(*n as u16), *n, now);
            prop_assert_ne!(pushed, Pushed::Full);
            prop_assert_ne!(pushed, Pushed::Stray);
            if pushed == Pushed::Accepted {
                arrived.insert(*n, now);
                accepted += 1;
            }
            reached = check(&mut reorder, now, &arrived).max(reached);
        }
        while let Some(deadline) = reorder.deadline() {
            reached = check(&mut reorder, deadline, &arrived);
        }
        prop_assert_eq!(reached, end + 1);
        prop_assert_eq!(frames, accepted);
        let counters = reorder.counters();
        prop_assert_eq!(frames + counters.missing as i64, end + 1 - begin);
        prop_assert_eq!(
            accepted as u64 + counters.duplicate + counters.late,
            arrivals.len() as u64
        );
        prop_assert_eq!(counters.restarts + counters.discarded + counters.stray, 0);
    }

    /// Any sequence numbers at all are taken without panic and without growing.
    #[test]
    fn nonsense_is_survived(packets in prop::collection::vec((0_u32..3, any::<u16>(), 0_u64..50), 0..500)) {
        let mut now = Instant::now();
        let mut reorder = Reorder::new();
        for (ssrc, sequence, later) in packets {
            now += Duration::from_millis(later);
            reorder.push(ssrc, sequence, 0, now);
            prop_assert!(drain(&mut reorder, now).len() <= 2 * CAPACITY);
        }
    }
}
