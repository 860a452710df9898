//! The playout's account of what it sent, against the frames that came, whatever is done to it.

use proptest::prelude::*;

use super::*;

#[derive(Debug, Clone)]
enum Step {
    Push(u64, usize),
    Finish(u64),
    Clear,
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0_u64..6, 1_usize..3_000).prop_map(|(item, n)| Step::Push(item, n)),
        2 => (0_u64..6).prop_map(Step::Finish),
        1 => Just(Step::Clear),
        6 => (1_u64..150).prop_map(Step::Wait),
    ]
}

proptest! {
    /// Whatever is done: what the ledger says was sent is what the frames held, sequence numbers have no gap, timestamps follow real
    /// time, no two frames are closer than 10 ms, and each item starts and ends once, in that order.
    #[test]
    fn the_account_is_exact(steps in prop::collection::vec(step(), 1..120)) {
        let settings = PlayoutSettings { capacity: Duration::from_millis(500), ..PlayoutSettings::default() };
        let (mut playout, start) = (Playout::new(settings, CLOCK, 0), Instant::now());
        let mut now = 0;
        let mut sent = [0_u64; 6];
        let mut last: Option<(u64, OutFrame)> = None;
        let mut story: Vec<PlayoutEvent> = Vec::new();
        for step in steps {
            match step {
                Step::Push(item, n) => {
                    // Each item has a value of its own.
                    let pcm = vec![1_000 + item as i16; n];
                    let room = playout.room();
                    let taken = playout.push(Some(ItemId(item)), &pcm, at(start, now));
                    prop_assert!(taken <= n);
                    prop_assert!(taken == n || taken == room);
                    prop_assert!(playout.queued() <= ms(500));
                }
                Step::Finish(item) => playout.finish(ItemId(item)),
                Step::Clear => playout.clear(),
                Step::Wait(ms) => {
                    for (at, frame) in run(&mut playout, start, now, now + ms) {
                        for sample in frame.pcm.iter().filter(|s| **s >= 1_000) {
                            sent[(*sample - 1_000) as usize] += 1;
                        }
                        if let Some((before, earlier)) = &last {
                            prop_assert!(at - before >= 10);
                            let ticks = frame.timestamp - earlier.timestamp;
                            prop_assert!(frame.marker || ticks == 960);
                            prop_assert!(ticks >= 960);
                        }
                        prop_assert!(u64::from(frame.timestamp) <= at * 48);
                        last = Some((at, frame));
                    }
                    now += ms;
                }
            }
            story.extend(events(&mut playout));
        }
        for item in 0..6 {
            let of_item: Vec<_> = story.iter().filter(|event| match event {
                PlayoutEvent::Started(i) | PlayoutEvent::Finished(i) => *i == ItemId(item),
                PlayoutEvent::Cleared { item: i, .. } => *i == ItemId(item),
            }).collect();
            let sent_ms = sent[item as usize] / 24;
            match playout.sent_ms(ItemId(item)) {
                None => prop_assert_eq!(sent_ms, 0),
                // A fade begins with one unfaded sample, which is not counted.
                Some(counted) => prop_assert!(sent_ms == counted || sent[item as usize].saturating_sub(1) / 24 == counted),
            }
            let started = of_item.iter().position(|e| matches!(e, PlayoutEvent::Started(_)));
            prop_assert!(started.is_none_or(|at| at == 0));
            let ends: Vec<_> = of_item.iter().filter(|e| !matches!(e, PlayoutEvent::Started(_))).collect();
            prop_assert!(ends.len() <= 1);
            if let Some(PlayoutEvent::Cleared { sent_ms: reported, .. }) = ends.first() {
                prop_assert_eq!(Some(*reported), playout.sent_ms(ItemId(item)));
            }
        }
    }
}
