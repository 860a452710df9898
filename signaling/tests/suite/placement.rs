//! Placement as a pure function: even, within capacity, away from what is full, draining, silent or doubted.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use firsthop_shared::control::{ShardStatus, Status};
use firsthop_signaling::limits::STATUS_FRESH;
use firsthop_signaling::placement::{Outcome, Placement, Standing};
use proptest::prelude::*;
use rand::SeedableRng as _;
use rand::rngs::StdRng;

fn control(number: u16) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 1], number))
}

/// A status with these sessions and capacities by shard.
fn status(number: u16, shards: &[(u32, u32)]) -> Status {
    Status {
        boot: u32::from(number),
        owner: SocketAddr::from(([10, 1, 0, 1], number)),
        draining: false,
        shards: shards
            .iter()
            .map(|(sessions, capacity)| ShardStatus {
                sessions: *sessions,
                capacity: *capacity,
            })
            .collect(),
        version: String::new(),
    }
}

fn table(statuses: &[Status], now: Instant) -> Placement {
    let controls: Vec<SocketAddr> = (1..).map(control).take(statuses.len()).collect();
    let mut table = Placement::new(STATUS_FRESH);
    table.set_members(&controls);
    for (control, status) in controls.iter().zip(statuses) {
        table.poll_started(*control);
        table.observe(*control, status, now);
    }
    table
}

#[test]
fn a_thousand_calls_over_two_owners_stay_even_within_a_tenth() {
    let now = Instant::now();
    for seed in 0..20 {
        let mut random = StdRng::seed_from_u64(seed);
        let mut table = table(
            &[
                status(1, &[(0, 1_000), (0, 1_000)]),
                status(2, &[(0, 1_000), (0, 1_000)]),
            ],
            now,
        );
        let mut counts = [[0_i32; 2]; 2];
        for call in 0..1_000 {
            let place = table.place(now, None, &mut random).expect("room");
            counts[usize::from(place.control.port() - 1)][usize::from(place.shard.0)] += 1;
            table.settle(&place, Outcome::Kept);
            if call % 250 == 249 {
                // A poll in between tells what is there, and changes nothing.
                for (number, shards) in (1..).zip(&counts) {
                    table.poll_started(control(number));
                    let told: Vec<(u32, u32)> =
                        shards.iter().map(|count| (*count as u32, 1_000)).collect();
                    table.observe(control(number), &status(number, &told), now);
                }
            }
        }
        for count in counts.iter().flatten() {
            assert!((225..=275).contains(count), "seed {seed}: {counts:?}");
        }
    }
}

#[test]
fn many_owners_fill_alike_whatever_their_size() {
    let now = Instant::now();
    let mut random = StdRng::seed_from_u64(1);
    let statuses: Vec<Status> = (1..=20)
        .map(|number| status(number, &[(0, if number <= 10 { 100 } else { 300 })]))
        .collect();
    let mut table = table(&statuses, now);
    let mut counts = [0_u32; 20];
    for _ in 0..2_000 {
        let place = table.place(now, None, &mut random).expect("room");
        counts[usize::from(place.control.port() - 1)] += 1;
    }
    for (at, count) in counts.iter().enumerate() {
        // Half of the capacity of all is used.
        let expected = if at < 10 { 40..=60 } else { 135..=165 };
        assert!(expected.contains(count), "{counts:?}");
    }
}

#[test]
fn the_less_loaded_of_two_gets_every_call_until_they_are_level() {
    let now = Instant::now();
    let mut random = StdRng::seed_from_u64(2);
    let mut table = table(&[status(1, &[(90, 100)]), status(2, &[(10, 100)])], now);
    for _ in 0..80 {
        let place = table.place(now, None, &mut random).expect("room");
        assert_eq!(place.control, control(2));
    }
}

#[test]
fn nothing_is_placed_on_the_full_the_draining_the_silent_and_the_doubted() {
    let start = Instant::now();
    let now = start + STATUS_FRESH;
    let late = Duration::from_millis(1);
    let mut random = StdRng::seed_from_u64(3);
    let mut draining = status(2, &[(0, 9)]);
    draining.draining = true;
    let statuses = [
        status(1, &[(9, 9), (0, 0)]),
        draining,
        status(3, &[(0, 9)]),
        status(4, &[(0, 9)]),
        status(5, &[(9, 9), (8, 9)]),
    ];
    let mut table = table(&statuses, start);
    table.set_members(&(1..=6).map(control).collect::<Vec<_>>());
    for number in [1, 2, 5] {
        table.observe(control(number), &statuses[usize::from(number) - 1], now);
    }
    table.doubt(control(4));

    let standings: Vec<Standing> = (1..=6)
        .filter_map(|number| table.standing(control(number), now + late))
        .collect();
    assert_eq!(
        standings,
        [
            Standing::Full,
            Standing::Draining,
            Standing::Away,
            Standing::Away,
            Standing::Ready,
            Standing::Away
        ]
    );
    let place = table
        .place(now + late, None, &mut random)
        .expect("one has room");
    assert_eq!((place.control, place.shard.0), (control(5), 1));
    assert_eq!(table.place(now + late, None, &mut random), None);
    assert_eq!(table.count(Standing::Full, now + late), 2);

    // A good status clears the doubt.
    table.observe(control(4), &statuses[3], now + late);
    assert!(table.place(now + late, None, &mut random).is_some());
    assert_eq!(table.place(now + late, Some(control(4)), &mut random), None);
}

#[test]
fn a_refused_call_gives_its_place_back_and_a_kept_one_does_not() {
    let now = Instant::now();
    let mut random = StdRng::seed_from_u64(4);
    let mut table = table(&[status(1, &[(0, 1)])], now);
    let place = table.place(now, None, &mut random).expect("room");
    assert_eq!(table.place(now, None, &mut random), None, "in flight");
    table.settle(&place, Outcome::Refused);
    let place = table.place(now, None, &mut random).expect("room again");
    table.settle(&place, Outcome::Kept);
    assert_eq!(table.place(now, None, &mut random), None, "kept");
}

#[test]
fn a_worker_that_is_gone_is_left_out_with_those_behind_it_until_the_next_status() {
    let now = Instant::now();
    let mut random = StdRng::seed_from_u64(7);
    let four = status(1, &[(0, 9), (0, 9), (0, 9), (0, 9)]);
    let mut table = table(std::slice::from_ref(&four), now);
    let two = loop {
        let place = table.place(now, None, &mut random).expect("room");
        if place.shard.0 == 2 {
            break place;
        }
        table.settle(&place, Outcome::Refused);
    };
    table.settle(&two, Outcome::NoSuchShard);
    // The load counts only what is there: two workers have room for eighteen.
    for _ in 0..18 {
        let place = table.place(now, None, &mut random).expect("room");
        assert!(place.shard.0 < 2, "{}", place.shard);
    }
    assert_eq!(table.place(now, None, &mut random), None);
    assert_eq!(table.standing(control(1), now), Some(Standing::Full));
    table.observe(control(1), &four, now);
    assert!(table.place(now, None, &mut random).expect("room").shard.0 >= 2);
}

#[test]
fn a_call_made_during_a_poll_counts_until_the_poll_after_it() {
    let now = Instant::now();
    let mut random = StdRng::seed_from_u64(5);
    let mut table = table(&[status(1, &[(0, 1)])], now);
    table.poll_started(control(1));
    let place = table.place(now, None, &mut random).expect("room");
    table.settle(&place, Outcome::Kept);
    // The owner wrote its status before it got the call.
    table.observe(control(1), &status(1, &[(0, 1)]), now);
    assert_eq!(table.place(now, None, &mut random), None);
    // The next status says that the call has ended already.
    table.poll_started(control(1));
    table.observe(control(1), &status(1, &[(0, 1)]), now);
    assert!(table.place(now, None, &mut random).is_some());
}

#[test]
fn a_restarted_owner_starts_from_nothing() {
    let now = Instant::now();
    let mut random = StdRng::seed_from_u64(6);
    let mut table = table(&[status(1, &[(0, 2)])], now);
    let first = table.place(now, None, &mut random).expect("room");
    let second = table.place(now, None, &mut random).expect("room");
    table.settle(&second, Outcome::Kept);
    let mut restarted = status(1, &[(0, 2)]);
    restarted.boot = 99;
    table.observe(control(1), &restarted, now);
    // What was placed with the old process says nothing about the new one.
    table.settle(&first, Outcome::Kept);
    assert!(table.place(now, None, &mut random).is_some());
    assert!(table.place(now, None, &mut random).is_some());
    assert_eq!(table.place(now, None, &mut random), None);
}

#[test]
fn a_transceiver_at_two_addresses_has_its_room_once_and_is_reached_by_either() {
    let now = Instant::now();
    let mut random = StdRng::seed_from_u64(1);
    let same = status(1, &[(0, 2)]);
    let mut table = table(&[same.clone(), same.clone(), status(3, &[(9, 9)])], now);
    let standings = |table: &Placement| [1, 2].map(|n| table.standing(control(n), now));
    let (ready, repeated) = (Some(Standing::Ready), Some(Standing::Repeated));
    assert_eq!(standings(&table), [ready, repeated]);
    for _ in 0..2 {
        let place = table.place(now, None, &mut random).expect("room");
        assert_eq!(place.control, control(1));
        table.settle(&place, Outcome::Refused);
    }
    // Asked again, both stay what they are.
    for n in [1, 2, 1] {
        table.observe(control(n), &same, now);
    }
    assert_eq!(standings(&table), [ready, repeated]);
    // The first address fails: the other one takes its place at its next status, and keeps it.
    table.doubt(control(1));
    assert!(table.place(now, None, &mut random).is_none());
    table.observe(control(2), &same, now);
    let place = table.place(now, None, &mut random).expect("room");
    assert_eq!(place.control, control(2));
    table.observe(control(1), &same, now);
    assert_eq!(standings(&table), [repeated, ready]);
    // After a restart the boot tells that nothing is known of the other address yet.
    let restarted = Status { boot: 99, ..same };
    table.observe(control(1), &restarted, now);
    table.observe(control(2), &restarted, now);
    assert_eq!(standings(&table), [ready, repeated]);
}

#[test]
fn a_transceiver_that_left_the_list_gets_nothing_and_the_others_keep_their_state() {
    let now = Instant::now();
    let mut random = StdRng::seed_from_u64(7);
    let mut table = table(&[status(1, &[(0, 9)]), status(2, &[(0, 1)])], now);
    let kept = table
        .place(now, Some(control(1)), &mut random)
        .expect("room");
    table.set_members(&[control(2), control(3)]);
    assert_eq!(
        table.members().collect::<Vec<_>>(),
        [control(2), control(3)]
    );
    assert_eq!(table.place(now, None, &mut random), None, "still in flight");
    table.settle(&kept, Outcome::Refused);
    let place = table.place(now, None, &mut random).expect("room");
    assert_eq!(place.control, control(2));
}

/// What may happen to a table.
#[derive(Clone, Debug)]
enum Step {
    Place(Option<u16>),
    Settle(usize, bool),
    PollStarted(u16),
    Observe(u16, bool, Vec<(u32, u32)>),
    Doubt(u16),
    Wait(u64),
    Members(Vec<u16>),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let number = 1_u16..5;
    let shards = prop::collection::vec((0_u32..4, 0_u32..4), 0..4);
    let step = prop_oneof![
        6 => prop::option::of(number.clone()).prop_map(Step::Place),
        4 => (any::<usize>(), any::<bool>()).prop_map(|(at, kept)| Step::Settle(at, kept)),
        2 => number.clone().prop_map(Step::PollStarted),
        4 => (number.clone(), any::<bool>(), shards).prop_map(|(n, d, s)| Step::Observe(n, d, s)),
        1 => number.clone().prop_map(Step::Doubt),
        1 => (0_u64..4_000).prop_map(Step::Wait),
        1 => prop::collection::vec(number, 0..4).prop_map(Step::Members),
    ];
    prop::collection::vec(step, 0..120)
}

proptest! {
    /// Whatever happens, a place is on a ready member that is not excepted, and its shard had room in the last status.
    #[test]
    fn every_place_is_one_that_may_be_used(steps in steps(), seed in any::<u64>()) {
        let mut random = StdRng::seed_from_u64(seed);
        let mut now = Instant::now();
        let mut table = Placement::new(STATUS_FRESH);
        table.set_members(&[control(1), control(2)]);
        let mut told: std::collections::HashMap<SocketAddr, Status> = Default::default();
        let mut places = Vec::new();
        for step in steps {
            match step {
                Step::Place(except) => {
                    let except = except.map(control);
                    if let Some(place) = table.place(now, except, &mut random) {
                        prop_assert!(Some(place.control) != except);
                        prop_assert!(table.members().any(|member| member == place.control));
                        let status = &told[&place.control];
                        prop_assert!(!status.draining);
                        let shard = status.shards[usize::from(place.shard.0)];
                        prop_assert!(shard.sessions < shard.capacity);
                        prop_assert_eq!(place.owner.get(), status.owner);
                        places.push(place);
                    } else {
                        let ready = table.members().filter(|m| Some(*m) != except).any(|member| {
                            table.standing(member, now) == Some(Standing::Ready)
                        });
                        prop_assert!(!ready);
                    }
                }
                Step::Settle(at, kept) if !places.is_empty() => {
                    let place = places.swap_remove(at % places.len());
                    table.settle(&place, if kept { Outcome::Kept } else { Outcome::Refused });
                }
                Step::Settle(..) => {}
                Step::PollStarted(number) => table.poll_started(control(number)),
                Step::Observe(number, draining, shards) => {
                    let status = Status { draining, ..status(number, &shards) };
                    table.observe(control(number), &status, now);
                    told.insert(control(number), status);
                }
                Step::Doubt(number) => table.doubt(control(number)),
                Step::Wait(millis) => now += Duration::from_millis(millis),
                Step::Members(numbers) => {
                    table.set_members(&numbers.into_iter().map(control).collect::<Vec<_>>());
                }
            }
        }
    }
}
