//! No allocation on the packet path: a core's pump runs in this process under load, and its allocations are counted.
//!
//! The pump is one future. Each of its polls is some turns, with all the packets that they handle, and ends with one timer
//! of the executor, which allocates (see [`firsthop_relay::shard`] on why the pump yields by a timer). So a poll without
//! packets tells what a poll may allocate, and a poll with packets may not allocate more.

#![allow(unsafe_code)] // A global allocator is unsafe to write: this one counts, and hands everything on.

mod calls;
mod pump;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use firsthop_relay::cache::{CacheSettings, FlowCache};

use crate::testbed::redis::Redis;
use crate::testbed::{Testbed, until};
use calls::{CHECKED_ROUNDS, CLIENTS, Calls, NEIGHBOURS, ROUNDS, Strangers};
use pump::{Core, Counted, ENDING, IDLE, LOADED};

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

fn count() {
    ALLOCATIONS.set(ALLOCATIONS.get() + 1);
}

// SAFETY: every call goes to the system's allocator unchanged, and counting neither allocates nor unwinds.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promise.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: the caller's promise.
        unsafe { System.realloc(block, layout, size) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn a_pump_allocates_nothing_for_packets() {
    allocates_nothing(&Testbed::new(), None);
}

/// Proofs and ends are told to it, and strangers are asked about.
#[test]
fn a_pump_with_a_flow_cache_allocates_nothing_either() {
    let testbed = Testbed::new();
    let redis = Redis::start(&testbed, &[]);
    let settings = CacheSettings {
        url: Some(redis.url().parse().expect("a URL")),
        password_file: None,
        ca_file: None,
        questions: 10_000,
    };
    let target = settings.check(1).expect("valid").expect("set");
    let cache = FlowCache::start(target).expect("a thread");
    until("the cache is up", || {
        (redis.calls("ping") > 1).then_some(())
    });
    allocates_nothing(&testbed, Some((&cache, &redis)));
    assert!(redis.calls("set") >= u64::from(CLIENTS), "proofs");
    assert!(redis.calls("eval") >= u64::from(CLIENTS), "ends");
    assert!(redis.calls("getrange") >= u64::from(ROUNDS), "questions");
}

fn allocates_nothing(testbed: &Testbed, cached: Option<(&FlowCache, &Redis)>) {
    let core = Core::start(testbed, cached.map(|(cache, _)| cache));
    let mut strangers = cached.map(|(_, redis)| Strangers::new(testbed, redis));
    // The executor's own tables grow to their size.
    Calls::new(testbed, 0, cached.is_some()).all_kinds(0);

    core.polls.enter(IDLE);
    until("the pump was polled without packets", || {
        (core.polls.of(IDLE).polls >= 100).then_some(())
    });
    core.polls.enter(LOADED);
    // Other clients and another owner: also their first packets cost nothing.
    let mut calls = Calls::new(testbed, 1, cached.is_some());
    for round in 0..ROUNDS {
        calls.all_kinds(round);
        if let Some(strangers) = &mut strangers {
            strangers.come();
            // The next round of checks makes their flows anew.
            if round + 1 < CHECKED_ROUNDS {
                calls.close();
            }
        }
    }
    core.polls.enter(ENDING);

    let (idle, loaded) = (core.polls.of(IDLE), core.polls.of(LOADED));
    println!("{idle:?} idle, {loaded:?} loaded");
    assert!(
        idle.allocations >= idle.polls,
        "the counter sees the timer of every poll: {idle:?}"
    );
    let per_poll = |counted: &Counted| counted.allocations as f64 / counted.polls as f64;
    // However many polls a slow machine needs for the packets: what the polls themselves do not explain is next to nothing.
    let packets = f64::from(ROUNDS * 2 * 2 * u32::from(CLIENTS + 2 * NEIGHBOURS));
    let for_packets = loaded.allocations as f64 - loaded.polls as f64 * per_poll(&idle);
    assert!(
        for_packets < packets / 20.0,
        "{for_packets} for {packets} packets: {idle:?} idle, {loaded:?} loaded"
    );
    // A timer that is due before it is first polled is made once more (see the pump's pause): that is luck, and rare.
    assert!(
        loaded.most <= idle.most + 1,
        "{idle:?} idle, {loaded:?} loaded"
    );
    assert!(
        per_poll(&loaded) < 1.25 * per_poll(&idle),
        "{idle:?} idle, {loaded:?} loaded"
    );
    core.stop();
}
