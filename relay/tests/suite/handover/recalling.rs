//! A hand-over while packets wait for the flow cache.

use std::path::Path;

use firsthop_relay::handover::message::{ToGiver, ToTaker};

use super::fake::FakeSuccessor;
use super::path;
use crate::testbed::redis::Redis;
use crate::testbed::{Testbed, rtp, until};

#[test]
fn a_packet_that_waits_for_a_cache_that_hangs_is_counted_before_its_core_is_given_up() {
    const STRANGERS: u8 = 4;
    let testbed = Testbed::new();
    let redis = Redis::start(&testbed, &[]);
    let relay = testbed.relay(&[
        ("--handover", path(&testbed)),
        ("--redis", redis.url()),
        ("--cores", "1".to_owned()),
    ]);
    until("the cache is up", || {
        (relay.whole("redis_up") == Some(1)).then_some(())
    });
    redis.signal("STOP");
    for client in 0..STRANGERS {
        testbed.client(client).send(testbed.public(0), &rtp(1));
    }
    // None waits if Redis has hung for longer than it may, on a machine without time for this test.
    let waited = || relay.metric("redis_packets_waited_total", None);
    until("the packets wait", || {
        (waited() + relay.drops("no_flow_rtp") >= u64::from(STRANGERS)).then_some(())
    });
    let mut successor = FakeSuccessor::connect(Path::new(&path(&testbed)));
    let (accept_and_take, core) = (2, 0);
    if !successor.play(1, accept_and_take) {
        // The machine stood still, and it was given up before.
        return relay.kill();
    }
    let ended = || ["cache_late", "cache_miss"].map(|reason| relay.drops(reason));
    until("every wait has ended", || {
        (ended().iter().sum::<u64>() == waited()).then_some(())
    });
    // And the core has stood still for all that time.
    successor.say(&ToGiver::Imported { core });
    match successor.hear() {
        // It was longer than it may be, on a machine without time for this test.
        ToTaker::GiveUp { why, .. } if why.contains("in time") => relay.kill(),
        said => assert_eq!(said, ToTaker::Yours { core }),
    }
}
