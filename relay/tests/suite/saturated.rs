//! A core that has more to do than it can: whether what waits has room, and what else its executor does meanwhile. Counted, not timed.

use crate::testbed::owner::{Owner, record};
use crate::testbed::process::RelayProcess;
use crate::testbed::{Testbed, until};

/// What is of no class, and so costs the least that a packet can.
const JUNK: [u8; 20] = [0x7f; 20];

/// What a relay has counted.
struct Counted {
    timers: u64,
    sleeps: u64,
}

impl Counted {
    fn by(relay: &RelayProcess) -> Self {
        // All from one page: they are compared with each other.
        let (_, page) = relay.page("/metrics");
        let sum = |name: &str| {
            let name = format!("firsthop_relay_{name}{{");
            let lines = page.lines().filter(|line| line.starts_with(&name));
            let values = lines.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok());
            values.sum()
        };
        Self {
            timers: sum("timer_lateness_seconds_count"),
            sleeps: sum("sleeps_total"),
        }
    }
}

/// Fault 25: sixteen receive buffers, and half a second of delay as soon as they are not enough.
#[test]
fn a_core_that_is_behind_has_buffers_for_what_waits() {
    // Fewer than a core has buffers for, and many more than sixteen.
    const PACKETS: u64 = 900;
    let testbed = Testbed::new();
    let relay = testbed.relay(&[("--spin", "off".to_owned())]);
    let stranger = testbed.client(0);
    relay.signal("STOP");
    for _ in 0..PACKETS {
        stranger.send(testbed.public(0), &JUNK);
    }
    relay.signal("CONT");
    let lost = || relay.metric("socket_receive_drops_total", Some(("socket", "public")));
    until("every packet is handled or counted as lost", || {
        (relay.drops("unknown_class") + lost() == PACKETS).then_some(())
    });
    let handled = relay.drops("unknown_class");
    assert!(handled > 100, "only {handled} could wait at all");
    let exhausted = relay.metric("receive_buffers_exhausted_total", None);
    assert_eq!(exhausted, 0, "for {handled} packets");
    relay.stop();
}

/// Fault 26: receives that take so long in one go that timers starve. A timer of a core that never rests fires when the pump yields, or not at
/// all.
#[test]
fn timers_of_a_core_that_never_rests_fire() {
    // More than one each time that the core rests, when they have their turn in any case.
    const FIRED: u64 = 100;
    let testbed = Testbed::new();
    let relay = testbed.relay(&[]);
    let mut owner = Owner::bind(testbed.owner_address(0));
    let client = testbed.client(0);
    let header = record(client.address(), 0, 7);
    let packet = [0x80; 80];
    let records: Vec<_> = (0..90).map(|_| (header, packet.as_slice())).collect();
    let before = Counted::by(&relay);
    until("timers fire although the core has no rest", || {
        // Tens of milliseconds of work, again before the last is done.
        relay.signal("STOP");
        for _ in 0..300 {
            owner.send(testbed.relay_internal(0), &records);
        }
        relay.signal("CONT");
        let now = Counted::by(&relay);
        let rests = now.sleeps - before.sleeps;
        (now.timers - before.timers >= rests + FIRED).then_some(())
    });
    relay.stop();
}
