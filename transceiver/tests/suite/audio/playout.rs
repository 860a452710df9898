//! The playout: what leaves when, and what becomes of what does not.

mod account;

use std::time::{Duration, Instant};

use crate::audio::signals::ms;
use firsthop_transceiver::audio::{
    FRAME, ItemId, MAX_ITEMS, MIN_SPACING, OutFrame, Playout, PlayoutEvent, PlayoutSettings,
};

const CLOCK: u32 = 48_000;

const A: ItemId = ItemId(1);
const B: ItemId = ItemId(2);

fn playout() -> Playout {
    // Near both wraps.
    Playout::new(PlayoutSettings::default(), CLOCK, u32::MAX - 2_000)
}

fn at(start: Instant, ms: u64) -> Instant {
    start + Duration::from_millis(ms)
}

/// Polls each millisecond of `from..to`.
fn run(playout: &mut Playout, start: Instant, from: u64, to: u64) -> Vec<(u64, OutFrame)> {
    let mut frames = Vec::new();
    for ms in from..to {
        while let Some(frame) = playout.poll(at(start, ms)) {
            frames.push((ms, frame));
        }
    }
    frames
}

fn events(playout: &mut Playout) -> Vec<PlayoutEvent> {
    std::iter::from_fn(|| playout.poll_event()).collect()
}

fn times(frames: &[(u64, OutFrame)]) -> Vec<u64> {
    frames.iter().map(|(ms, _)| *ms).collect()
}

#[test]
fn audio_faster_than_real_time_leaves_in_frames_of_20_ms() {
    let (mut playout, start) = (playout(), Instant::now());
    let pcm: Vec<i16> = (1..=ms(100) as i16).collect();
    assert_eq!(playout.push(Some(A), &pcm, start), pcm.len());
    playout.finish(A);
    let frames = run(&mut playout, start, 0, 95);
    assert_eq!(times(&frames), [0, 20, 40, 60, 80]);
    let heard: Vec<i16> = frames.iter().flat_map(|(_, frame)| frame.pcm).collect();
    assert_eq!(heard, pcm);
    for (n, (_, frame)) in frames.iter().enumerate() {
        assert_eq!(
            frame.timestamp,
            (u32::MAX - 2_000).wrapping_add(960 * n as u32)
        );
        assert_eq!(frame.marker, n == 0);
    }
}

#[test]
fn an_item_is_played_until_its_last_frame_whether_or_not_its_end_is_known() {
    // As of a model that is slower than what is heard, one that is faster, and one whose last word is its end.
    for finish_at in [None, Some(0), Some(40)] {
        let (mut playout, start) = (playout(), Instant::now());
        playout.push(Some(A), &[1; 3 * FRAME], start);
        for (n, goes_on) in [(0, true), (1, true), (2, finish_at.is_none())] {
            let now = at(start, 20 * n);
            if finish_at.is_some_and(|ms| 20 * n >= ms) {
                playout.finish(A);
            }
            assert!(playout.poll(now).is_some());
            assert!(playout.plays_item(), "frame {n}, {finish_at:?}");
            assert_eq!(playout.cuts_item(), goes_on, "frame {n}, {finish_at:?}");
        }
        // The silence that ends it is none of its own.
        assert!(playout.poll(at(start, 60)).is_some());
        assert!(!playout.plays_item() && !playout.cuts_item());
    }
}

#[test]
fn what_is_cut_off_is_sound_of_an_item_and_nothing_else() {
    type Before = fn(&mut Playout, Instant);
    let cases: [(&str, bool, Before); 8] = [
        ("nothing was ever given", false, |_, _| {}),
        ("it waits for its first frame", false, |playout, start| {
            playout.push(Some(A), &[1; 3 * FRAME], start);
        }),
        ("all of it is queued", true, |playout, start| {
            playout.push(Some(A), &[1; 3 * FRAME], start);
            playout.finish(A);
            playout.poll(start);
        }),
        (
            "it is over, and the next one waits",
            true,
            |playout, start| {
                playout.push(Some(A), &[1; FRAME], start);
                playout.finish(A);
                playout.push(Some(B), &[1; FRAME], start);
                playout.poll(start);
            },
        ),
        (
            "it is over, and sound of no item waits",
            false,
            |playout, start| {
                playout.push(Some(A), &[1; FRAME], start);
                playout.finish(A);
                playout.push(None, &[1; FRAME], start);
                playout.poll(start);
            },
        ),
        ("sound of no item", false, |playout, start| {
            playout.push(None, &[1; 3 * FRAME], start);
            playout.poll(start);
        }),
        (
            "it ran dry, and silence is sent",
            false,
            |playout, start| {
                playout.push(Some(A), &[1; FRAME], start);
                run(playout, start, 0, 100);
            },
        ),
        (
            "it ran dry, and nothing is sent",
            false,
            |playout, start| {
                playout.push(Some(A), &[1; FRAME], start);
                run(playout, start, 0, 1_000);
                assert!(playout.is_stopped());
            },
        ),
    ];
    for (case, expected, before) in cases {
        let (mut playout, start) = (playout(), Instant::now());
        before(&mut playout, start);
        assert_eq!(playout.cuts_item(), expected, "{case}");
        playout.clear();
        assert!(!playout.cuts_item(), "{case}: cut once");
    }
}

#[test]
fn nothing_is_sent_before_the_first_audio() {
    let (mut playout, start) = (playout(), Instant::now());
    assert_eq!(run(&mut playout, start, 0, 100), []);
    assert_eq!(playout.deadline(), None);
}

#[test]
fn a_late_tick_does_not_shift_the_grid() {
    let (mut playout, start) = (playout(), Instant::now());
    playout.push(Some(A), &[1; 100 * FRAME], start);
    for n in 0..100_u64 {
        let late = n * 7 % 9;
        let now = at(start, 20 * n + late);
        assert!(playout.poll(now).is_some(), "frame {n}");
        assert_eq!(playout.poll(now), None);
        assert_eq!(
            playout.deadline(),
            Some(at(start, 20 * n + 20).max(now + MIN_SPACING))
        );
    }
}

#[test]
fn after_a_stall_frames_catch_up_without_a_burst() {
    let (mut playout, start) = (playout(), Instant::now());
    playout.push(Some(A), &[1; 100 * FRAME], start);
    run(&mut playout, start, 0, 100);
    // Asleep from 100 to 170 ms.
    let frames = run(&mut playout, start, 170, 300);
    assert_eq!(
        times(&frames)[..9],
        [170, 180, 190, 200, 210, 220, 230, 240, 260]
    );
    assert_eq!(playout.counters().stalled_ms, 0);
    assert!(frames.iter().all(|(_, frame)| !frame.marker));
}

#[test]
fn a_long_stall_moves_the_grid_and_loses_no_audio() {
    let (mut playout, start) = (playout(), Instant::now());
    let pcm: Vec<i16> = (0..50 * FRAME).map(|n| n as i16).collect();
    playout.push(Some(A), &pcm, start);
    playout.finish(A);
    let mut frames = run(&mut playout, start, 0, 100);
    frames.extend(run(&mut playout, start, 1_100, 2_200));
    let heard: Vec<i16> = frames[..50]
        .iter()
        .flat_map(|(_, frame)| frame.pcm)
        .collect();
    assert_eq!(heard, pcm);
    assert_eq!(playout.counters().stalled_ms, 900);
    let burst = frames[5..].windows(2).map(|w| w[1].0 - w[0].0).min();
    assert_eq!(burst, Some(10));
    for pair in frames.windows(2) {
        assert_eq!(pair[1].1.timestamp, pair[0].1.timestamp.wrapping_add(960));
    }
}

#[test]
fn silence_follows_for_200_ms_and_then_nothing() {
    let (mut playout, start) = (playout(), Instant::now());
    playout.push(Some(A), &[1; FRAME], start);
    playout.finish(A);
    let frames = run(&mut playout, start, 0, 1_000);
    assert_eq!(times(&frames), (0..11).map(|n| 20 * n).collect::<Vec<_>>());
    assert!(frames[1..].iter().all(|(_, frame)| frame.pcm == [0; FRAME]));
    assert_eq!(playout.counters().silent_frames, 10);
    assert_eq!(playout.counters().underruns, 0);
    assert_eq!(playout.deadline(), None);
}

#[test]
fn silence_can_be_sent_for_ever() {
    let settings = PlayoutSettings {
        silence_tail: Duration::MAX,
        ..PlayoutSettings::default()
    };
    let (mut playout, start) = (Playout::new(settings, CLOCK, 0), Instant::now());
    playout.push(None, &[1; FRAME], start);
    assert_eq!(run(&mut playout, start, 0, 10_000).len(), 500);
}

#[test]
fn the_marker_and_the_jump_of_the_timestamp_come_only_after_nothing_was_sent() {
    let (mut playout, start) = (playout(), Instant::now());
    playout.push(Some(A), &[1; FRAME], start);
    playout.finish(A);
    let mut frames = run(&mut playout, start, 0, 100);
    // Within the tail of silence: no gap.
    playout.push(Some(B), &[2; FRAME], at(start, 100));
    playout.finish(B);
    frames.extend(run(&mut playout, start, 100, 1_005));
    // After it: a gap, off the old grid.
    playout.push(None, &[3; 2 * FRAME], at(start, 1_005));
    frames.extend(run(&mut playout, start, 1_005, 1_040));
    let markers: Vec<u64> = frames.iter().filter(|f| f.1.marker).map(|f| f.0).collect();
    assert_eq!(markers, [0, 1_005]);
    let first = frames[0].1.timestamp;
    for (n, (ms, frame)) in frames.iter().enumerate() {
        let passed = frame.timestamp.wrapping_sub(first);
        assert_eq!(u64::from(passed), ms * 48, "frame {n}");
    }
}

#[test]
fn items_follow_each_other_without_a_gap_inside_a_frame() {
    let (mut playout, start) = (playout(), Instant::now());
    playout.push(Some(A), &[1; 700], start);
    playout.finish(A);
    playout.push(Some(B), &[2; 740], start);
    playout.finish(B);
    let frame = playout.poll(start).unwrap();
    assert_eq!(frame.pcm, [1; FRAME]);
    assert_eq!(events(&mut playout), [PlayoutEvent::Started(A)]);
    let frame = playout.poll(at(start, 20)).unwrap();
    assert_eq!((frame.pcm[219], frame.pcm[220]), (1, 2));
    assert_eq!(
        events(&mut playout),
        [PlayoutEvent::Finished(A), PlayoutEvent::Started(B)]
    );
    assert_eq!(
        (playout.sent_ms(A), playout.sent_ms(B)),
        (Some(29), Some(10))
    );
    playout.poll(at(start, 40)).unwrap();
    assert_eq!(events(&mut playout), [PlayoutEvent::Finished(B)]);
}

#[test]
fn the_end_of_an_item_is_padded_but_the_middle_waits() {
    let (mut playout, start) = (playout(), Instant::now());
    playout.push(Some(A), &[1; FRAME + 100], start);
    assert_eq!(playout.poll(start).unwrap().pcm, [1; FRAME]);
    // The rest of the frame is not there: silence, not a hole in the middle of a word.
    assert_eq!(playout.poll(at(start, 20)).unwrap().pcm, [0; FRAME]);
    assert_eq!(playout.counters().underruns, 1);
    playout.push(Some(A), &[1; FRAME - 100], at(start, 30));
    assert_eq!(playout.poll(at(start, 40)).unwrap().pcm, [1; FRAME]);
    playout.push(Some(A), &[1; 100], at(start, 50));
    playout.finish(A);
    let frame = playout.poll(at(start, 60)).unwrap();
    assert_eq!((frame.pcm[99], frame.pcm[100]), (1, 0));
    assert_eq!(
        events(&mut playout),
        [PlayoutEvent::Started(A), PlayoutEvent::Finished(A)]
    );
}

#[test]
fn a_rest_that_nobody_finishes_leaves_after_40_ms() {
    let (mut playout, start) = (playout(), Instant::now());
    playout.push(Some(A), &[1; 100], start);
    assert_eq!(playout.deadline(), Some(at(start, 40)));
    let frames = run(&mut playout, start, 0, 45);
    assert_eq!(times(&frames), [40]);
    assert_eq!(frames[0].1.pcm[..100], [1; 100]);
}

#[test]
fn a_prebuffer_is_filled_first_and_again_after_running_dry() {
    let settings = PlayoutSettings {
        prebuffer: Duration::from_millis(60),
        ..PlayoutSettings::default()
    };
    let (mut playout, start) = (Playout::new(settings, CLOCK, 0), Instant::now());
    for n in 0..3 {
        assert_eq!(playout.poll(at(start, 20 * n)), None);
        playout.push(None, &[1; FRAME], at(start, 20 * n));
    }
    let heard = |frames: Vec<(u64, OutFrame)>| -> Vec<(u64, bool)> {
        frames.iter().map(|(ms, f)| (*ms, f.pcm[0] != 0)).collect()
    };
    let frames = run(&mut playout, start, 40, 105);
    assert_eq!(
        heard(frames),
        [(40, true), (60, true), (80, true), (100, false)]
    );
    assert_eq!(playout.counters().underruns, 1);
    playout.push(None, &[1; 2 * FRAME], at(start, 110));
    let frames = run(&mut playout, start, 110, 150);
    assert_eq!(heard(frames), [(120, false), (140, false)]);
    playout.push(None, &[1; FRAME], at(start, 150));
    assert_eq!(heard(run(&mut playout, start, 150, 165)), [(160, true)]);
}

#[test]
fn the_queue_takes_what_fits_and_says_how_much() {
    let settings = PlayoutSettings {
        capacity: Duration::from_millis(100),
        ..PlayoutSettings::default()
    };
    let (mut playout, start) = (Playout::new(settings, CLOCK, 0), Instant::now());
    assert_eq!(playout.room(), ms(100));
    assert_eq!(playout.push(Some(A), &[1; 1_000], start), 1_000);
    assert_eq!(playout.push(Some(A), &[2; 10_000], start), ms(100) - 1_000);
    assert_eq!(playout.push(Some(A), &[3; 1], start), 0);
    assert_eq!((playout.room(), playout.queued()), (0, ms(100)));
    playout.poll(start).unwrap();
    assert_eq!(playout.room(), FRAME);
    assert_eq!(playout.push(Some(A), &[2; 10_000], start), FRAME);
}

#[test]
fn a_clear_ends_the_item_in_the_frame_with_a_fade_and_silence() {
    let (mut playout, start) = (playout(), Instant::now());
    playout.push(Some(A), &[8_000; 100 * FRAME], start);
    run(&mut playout, start, 0, 50);
    events(&mut playout);
    playout.clear();
    assert_eq!(
        events(&mut playout),
        [PlayoutEvent::Cleared {
            item: A,
            sent_ms: 60
        }]
    );
    assert_eq!(playout.queued(), 0);
    let frames = run(&mut playout, start, 50, 1_000);
    let fade = &frames[0].1.pcm;
    assert_eq!(frames[0].0, 60);
    assert_eq!((fade[0], fade[ms(5)]), (8_000, 0));
    assert!(fade.windows(2).all(|w| w[1] <= w[0] && w[0] - w[1] < 100));
    assert!(frames[1..].iter().all(|(_, frame)| frame.pcm == [0; FRAME]));
    assert!(
        frames.len() >= 6,
        "a few frames of silence: {}",
        frames.len()
    );
    // The ledger is final, and clearing again says nothing.
    assert_eq!(playout.sent_ms(A), Some(60));
    playout.clear();
    assert_eq!(events(&mut playout), []);
}

#[test]
fn audio_of_a_cleared_item_is_thrown_away_and_the_next_item_plays() {
    let (mut playout, start) = (playout(), Instant::now());
    playout.push(Some(A), &[1; 10 * FRAME], start);
    playout.poll(start).unwrap();
    playout.clear();
    events(&mut playout);
    assert_eq!(playout.push(Some(A), &[1; FRAME], start), FRAME);
    playout.finish(A);
    assert!(playout.queued() == 0 && events(&mut playout).is_empty());
    playout.push(Some(B), &[2; FRAME], at(start, 1));
    let frames = run(&mut playout, start, 1, 45);
    assert_eq!(frames[1].1.pcm, [2; FRAME]);
    assert_eq!(events(&mut playout), [PlayoutEvent::Started(B)]);
}

#[test]
fn an_item_played_in_full_is_not_cleared_and_a_waiting_one_is_with_nothing_sent() {
    let (mut playout, start) = (playout(), Instant::now());
    playout.push(Some(A), &[1; FRAME], start);
    playout.finish(A);
    playout.push(Some(B), &[1; FRAME], start);
    playout.poll(start).unwrap();
    events(&mut playout);
    playout.clear();
    assert_eq!(
        events(&mut playout),
        [PlayoutEvent::Cleared {
            item: B,
            sent_ms: 0
        }]
    );
}

#[test]
fn a_clear_before_anything_was_played_makes_no_sound() {
    let (mut playout, start) = (playout(), Instant::now());
    playout.push(Some(A), &[9_000; FRAME], start);
    playout.clear();
    assert_eq!(run(&mut playout, start, 0, 100), []);
    assert_eq!(playout.deadline(), None);
}

#[test]
fn finishing_after_the_last_sample_was_sent_still_finishes() {
    let (mut playout, start) = (playout(), Instant::now());
    playout.push(Some(A), &[1; FRAME], start);
    playout.poll(start).unwrap();
    assert_eq!(events(&mut playout), [PlayoutEvent::Started(A)]);
    playout.finish(A);
    playout.finish(A);
    assert_eq!(events(&mut playout), [PlayoutEvent::Finished(A)]);
    playout.finish(B);
    assert_eq!(events(&mut playout), []);
}

#[test]
fn the_ledger_is_bounded_and_never_blocks_a_call() {
    let (mut playout, start) = (playout(), Instant::now());
    for n in 0..MAX_ITEMS as u64 {
        assert_eq!(playout.push(Some(ItemId(n)), &[1; FRAME], start), FRAME);
    }
    // All of them wait: push back.
    assert_eq!(playout.room(), 0);
    assert_eq!(playout.push(Some(ItemId(1_000)), &[1; FRAME], start), 0);
    // One is played, although never finished: there is room.
    playout.poll(start).unwrap();
    events(&mut playout);
    assert!(playout.room() > 0);
    assert_eq!(playout.push(Some(ItemId(1_000)), &[1; FRAME], start), FRAME);
    assert_eq!(playout.sent_ms(ItemId(0)), None);
}
