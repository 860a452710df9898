//! A relay that was held up finds full queues in both directions, and works them off.

use std::time::Duration;

use crate::testbed::owner::{Owner, record};
use crate::testbed::{Client, Testbed, rtp, until};
use firsthop_relay::limits::SOCKET_BUFFER;

/// As many voice-sized records as one datagram of a large path holds.
const RECORDS: usize = 90;

#[test]
fn a_core_that_was_held_up_under_load_both_ways_goes_on() {
    let testbed = Testbed::new();
    let relay = testbed.relay(&[]);
    let mut owner = Owner::bind(testbed.owner_address(0));
    let client = testbed.client(0);
    let check = testbed.check(owner.address(), 0, 7);
    client.send(testbed.public(0), &check);
    owner.receive_one();

    relay.signal("STOP");
    let header = record(client.address(), 0, 7);
    let packet = [0x80; 80];
    let records: Vec<_> = (0..RECORDS).map(|_| (header, packet.as_slice())).collect();
    for _ in 0..300 {
        owner.send(testbed.relay_internal(0), &records);
    }
    let stranger = testbed.client(1);
    for _ in 0..4_000 {
        stranger.send(testbed.public(0), &[0x7f; 20]);
    }
    relay.signal("CONT");

    // Behind all that stands one more check: it comes through when everything before it was handled. The queue may hold less
    // than was sent; then there is no room for a check before the relay has begun.
    let soon = Some(Duration::from_millis(100));
    owner.socket.set_read_timeout(soon).expect("a time-out");
    until("a check behind all that comes through", || {
        client.send(testbed.public(0), &check);
        owner.try_receive().ok().map(drop)
    });
    relay.stop();
}

/// Fault 11: a burst that a buffer cannot hold, of which nothing is known afterwards.
#[test]
fn what_a_full_receive_buffer_loses_is_counted() {
    // Two or three times what the largest buffer holds that a relay asks for.
    const PACKETS: u64 = 30_000;
    let testbed = Testbed::new();
    let relay = testbed.relay(&[]);
    relay.signal("STOP");
    let stranger = testbed.client(0);
    for _ in 0..PACKETS {
        stranger.send(testbed.public(0), &[0x7f; 20]);
    }
    relay.signal("CONT");
    let lost = || relay.metric("socket_receive_drops_total", Some(("socket", "public")));
    until("every packet is handled or counted as lost", || {
        (relay.drops("unknown_class") + lost() == PACKETS).then_some(())
    });
    assert!(lost() > 0);
    assert_eq!(
        relay.metric("socket_receive_drops_total", Some(("socket", "internal"))),
        0
    );
    relay.stop();
}

/// Fault 11 again: buffers are sized, and a kernel that caps them is named.
#[test]
fn buffers_are_as_large_as_the_kernel_grants_and_a_cap_is_reported() {
    let testbed = Testbed::new();
    let relay = testbed.relay(&[]);
    let mut capped = false;
    for (direction, file) in [("receive", "rmem_max"), ("send", "wmem_max")] {
        let most = std::fs::read_to_string(format!("/proc/sys/net/core/{file}")).expect("Linux");
        let most: u64 = most.trim().parse().expect("a number");
        let (_, metrics) = relay.page("/metrics");
        let value = |which: &str| {
            let name = format!(
                "firsthop_relay_socket_buffer_bytes{{direction=\"{direction}\",value=\"{which}\"}} "
            );
            let mut lines = metrics.lines();
            let value = lines
                .find_map(|line| line.strip_prefix(&name))
                .expect("a line");
            value.parse::<u64>().expect("a number")
        };
        assert_eq!(value("asked"), SOCKET_BUFFER as u64);
        assert_eq!(value("granted"), most.min(SOCKET_BUFFER as u64));
        capped |= most < SOCKET_BUFFER as u64;
    }
    assert_eq!(relay.log().contains("the kernel caps"), capped);
    relay.stop();
}

#[test]
fn empty_datagrams_do_not_undo_the_packing_of_others() {
    const PACKETS: usize = 200;
    let testbed = Testbed::new();
    let relay = testbed.relay(&[]);
    let owner = Owner::bind(testbed.owner_address(0));
    let client = testbed.client(0);
    client.send(testbed.public(0), &testbed.check(owner.address(), 0, 7));
    owner.receive_one();

    relay.signal("STOP");
    let stranger: Client = testbed.client(1);
    for number in 0..PACKETS {
        client.send(testbed.public(0), &rtp(number as u32));
        stranger.send(testbed.public(0), &[]);
    }
    relay.signal("CONT");

    let mut datagrams = 0;
    let mut records = 0;
    while records < PACKETS {
        records += owner.receive().records.len();
        datagrams += 1;
    }
    assert!(
        datagrams * 2 < records,
        "{records} records came in {datagrams} datagrams"
    );
    relay.stop();
}

#[test]
fn half_a_request_to_the_admin_port_does_not_hold_up_the_end() {
    use std::io::Write as _;
    let testbed = Testbed::new();
    let relay = testbed.relay(&[]);
    let mut half = std::net::TcpStream::connect(testbed.admin()).expect("connected");
    half.write_all(b"GET /metr").expect("sent");
    relay.stop();
}
