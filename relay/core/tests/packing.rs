//! How records become datagrams: when they leave, how they are divided, and what is full.

mod world;

use firsthop_relay_core::limits::{LINGER_DEFAULT, RECORDS_PER_DATAGRAM};
use firsthop_relay_core::{Datagram, Micros, Reason, RouterConfig, Transport, Verdict};
use firsthop_shared::address::OwnerAddr;
use proptest::prelude::*;

use world::{Call, Relay, client, config, keyring, rtp, socket, who};

const OWNER: &str = "10.0.0.1:5000";

fn relay(config: &RouterConfig) -> Relay {
    Relay::new(config, keyring(&[2, 1]), Micros(0))
}

/// A relay with one flow per session, from 203.0.113.9 and the session's number as port.
fn relay_with_flows(config: &RouterConfig, owners: &[(&str, u8)]) -> Relay {
    let mut relay = relay(config);
    for (i, (owner, shard)) in owners.iter().enumerate() {
        let call = Call::plain(who(i as u32, owner, *shard));
        relay.deliver(0, from(i), &call.requests.good);
    }
    relay
}

fn from(session: usize) -> firsthop_shared::address::ClientAddr {
    client(&format!("203.0.113.9:{}", 1_000 + session))
}

fn send(relay: &mut Relay, session: usize, len: usize) -> u8 {
    let mut packet = rtp(session as u8);
    packet.resize(len, 7);
    let (verdict, records) = relay.receive(0, Transport::Udp, from(session), &packet);
    assert!(matches!(verdict, Verdict::Forward(_)), "{verdict:?}");
    records
}

/// Takes what is ready without sending it: length and records.
fn ready(relay: &mut Relay) -> Vec<(u16, u16)> {
    let mut out = Vec::new();
    while let Some(datagram) = relay.router.take_ready() {
        out.push((datagram.len, datagram.records));
        relay.router.release(datagram);
    }
    out
}

#[test]
fn a_busy_core_lets_records_wait_for_the_linger_and_no_longer() {
    let mut relay = relay_with_flows(&config(), &[(OWNER, 0), (OWNER, 1)]);
    let start = Micros(1_000);
    relay.now = start;
    send(&mut relay, 0, 100);
    relay.now = Micros(1_100);
    send(&mut relay, 1, 100);
    send(&mut relay, 0, 100);
    assert_eq!(
        relay.router.next_linger(),
        Some(start.after(LINGER_DEFAULT))
    );

    relay.router.flush(Micros(1_199), false);
    assert!(relay.router.take_ready().is_none());
    relay.router.flush(Micros(1_200), false);
    // The first trunk is due with both of its records; the second one is younger.
    assert_eq!(ready(&mut relay), vec![(24 + 2 * 118, 2)]);
    assert_eq!(relay.router.next_linger(), Some(Micros(1_300)));
    relay.router.flush(Micros(1_200), true);
    assert_eq!(ready(&mut relay), vec![(24 + 118, 1)]);
    assert_eq!(relay.router.next_linger(), None);
}

#[test]
fn a_full_datagram_makes_way_for_the_next() {
    let mut config = config();
    config.datagram_limit = 1_452;
    let mut relay = relay_with_flows(&config, &[(OWNER, 0)]);
    // Seven records of 190 bytes and the header are 1,354; an eighth would be 1,544.
    for _ in 0..8 {
        send(&mut relay, 0, 172);
    }
    assert_eq!(ready(&mut relay), vec![(24 + 7 * 190, 7)]);
    relay.router.flush(relay.now, true);
    assert_eq!(ready(&mut relay), vec![(24 + 190, 1)]);
}

#[test]
fn a_datagram_without_room_for_any_record_does_not_wait() {
    let mut relay = relay_with_flows(&config(), &[(OWNER, 0)]);
    send(&mut relay, 0, 1_452 - 24 - 18);
    assert_eq!(ready(&mut relay), vec![(1_452, 1)]);
}

#[test]
fn a_packet_that_fits_no_datagram_goes_alone_and_in_order() {
    let mut relay = relay_with_flows(&config(), &[(OWNER, 0)]);
    send(&mut relay, 0, 100);
    send(&mut relay, 0, 1_411);
    send(&mut relay, 0, 100);
    relay.router.flush(relay.now, true);
    assert_eq!(ready(&mut relay), vec![(142, 1), (1_453, 1), (142, 1)]);
    assert_eq!(relay.router.counters().uplink_oversize, 1);
}

#[test]
fn a_learned_path_mtu_holds_for_every_worker_of_the_owner() {
    let mut relay = relay_with_flows(&config(), &[(OWNER, 0), (OWNER, 200), ("10.0.0.2:5000", 0)]);
    relay
        .router
        .set_datagram_limit(OwnerAddr::new(socket(OWNER)), 8_960);
    let mut sizes = Vec::new();
    for session in 0..3 {
        for _ in 0..12 {
            send(&mut relay, session, 182);
        }
        relay.router.flush(relay.now, true);
        sizes.push(ready(&mut relay).len());
    }
    assert_eq!(sizes, vec![1, 1, 2]);
}

#[test]
fn no_datagram_holds_more_records_than_a_receiver_takes() {
    let mut config = config();
    config.datagram_limit = 8_960;
    config.pending = 1_000;
    let mut relay = relay_with_flows(&config, &[(OWNER, 0)]);
    for _ in 0..300 {
        send(&mut relay, 0, 13);
    }
    relay.router.flush(relay.now, true);
    let records: Vec<_> = ready(&mut relay).iter().map(|(_, n)| *n).collect();
    assert_eq!(
        records,
        vec![RECORDS_PER_DATAGRAM, RECORDS_PER_DATAGRAM, 44]
    );
}

#[test]
fn records_beyond_the_bound_are_dropped_and_counted_until_some_leave() {
    let mut config = config();
    config.pending = 3;
    let mut relay = relay_with_flows(&config, &[(OWNER, 0), (OWNER, 1)]);
    assert_eq!(send(&mut relay, 0, 50), 1);
    assert_eq!(send(&mut relay, 1, 50), 1);
    assert_eq!(send(&mut relay, 0, 50), 1);
    assert_eq!(send(&mut relay, 0, 50), 0);
    assert_eq!(relay.router.counters().drops(Reason::TrunkFull), 1);
    // Closed but not taken: the records still wait.
    relay.router.flush(relay.now, true);
    assert_eq!(send(&mut relay, 1, 50), 0);
    assert_eq!(ready(&mut relay).len(), 2);
    assert_eq!(send(&mut relay, 1, 50), 1);
}

#[test]
fn a_worker_that_is_met_later_gets_datagrams_of_the_owners_path() {
    let mut relay = relay_with_flows(&config(), &[(OWNER, 0)]);
    relay
        .router
        .set_datagram_limit(OwnerAddr::new(socket(OWNER)), 8_960);
    let later = Call::plain(who(1, OWNER, 7));
    relay.deliver(0, from(1), &later.requests.good);
    for _ in 0..12 {
        send(&mut relay, 1, 182);
    }
    relay.router.flush(relay.now, true);
    assert_eq!(ready(&mut relay).len(), 1);
}

/// Whoever asks for path sizes asks once per owner, not for each of its workers.
#[test]
fn the_first_datagram_to_an_owner_says_so() {
    let mut relay = relay(&config());
    let owner = OwnerAddr::new(socket(OWNER));
    let mut first = Vec::new();
    for shard in [0, 0, 1] {
        let call = Call::plain(who(0, OWNER, shard));
        relay.receive(0, Transport::Udp, from(0), &call.requests.good);
        relay.router.flush(relay.now, true);
        let datagram: Datagram = relay.router.take_ready().expect("one is ready");
        first.push(datagram.first);
        relay.router.release(datagram);
    }
    assert_eq!(first, vec![true, false, false]);
    assert!(relay.router.sends_to(owner));

    // The owner is forgotten with its last claim, and its path size too.
    relay.router.set_datagram_limit(owner, 8_960);
    relay.now = relay.now.after(Micros(60_000_000));
    while relay.router.expire(relay.now, 16) {}
    assert!(!relay.router.sends_to(owner));
    let call = Call::plain(who(0, OWNER, 0));
    relay.receive(0, Transport::Udp, from(0), &call.requests.good);
    relay.router.flush(relay.now, true);
    assert_eq!(ready(&mut relay).len(), 1);
    for _ in 0..12 {
        send(&mut relay, 0, 182);
    }
    relay.router.flush(relay.now, true);
    assert_eq!(ready(&mut relay).len(), 2);
}

/// A trunk that nobody claims any more is kept until what waits on it has left, and then serves another owner.
#[test]
fn a_trunk_changes_hands_only_when_nothing_waits_on_it() {
    let mut config = config();
    config.trunks = 1;
    let mut relay = relay(&config);
    let old = Call::plain(who(1, OWNER, 0));
    let new = Call::plain(who(2, "10.0.0.2:5000", 0));
    relay.receive(0, Transport::Udp, from(1), &old.requests.good);
    let close = world::record(
        firsthop_shared::trunk::RecordKind::Close,
        old.who,
        0,
        from(1),
        false,
        firsthop_shared::address::FlowHandle(0),
    );
    relay.down(old.who, &close);
    assert_eq!(relay.router.flow_counts().flows, 0);
    assert_eq!(
        relay.refuse(0, from(2), &new.requests.good),
        Reason::TrunkTableFull
    );
    let received = relay.flush();
    assert_eq!(received[0].who(), old.who);
    assert_eq!(relay.router.trunk_count(), 0);
    assert_eq!(relay.deliver(0, from(2), &new.requests.good), vec![new.who]);
}

/// A verdict that outlives its trunk must not reach the owner that has the trunk now.
#[test]
fn a_stale_verdict_sends_nothing_to_a_stranger() {
    let mut config = config();
    config.trunks = 1;
    let mut relay = relay(&config);
    let old = Call::plain(who(1, OWNER, 0));
    let new = Call::plain(who(2, "10.0.0.2:5000", 0));
    relay.deliver(0, from(1), &old.requests.good);
    let packet = rtp(1);
    let now = relay.now;
    let ingress = firsthop_shared::address::IngressId(0);
    let source = relay.router.source(ingress, Transport::Udp, from(1));
    let Verdict::Forward(stale) = relay.router.uplink(now, &source, &packet) else {
        panic!("the flow is known");
    };
    let close = world::record(
        firsthop_shared::trunk::RecordKind::Close,
        old.who,
        0,
        from(1),
        false,
        firsthop_shared::address::FlowHandle(0),
    );
    relay.down(old.who, &close);
    relay.deliver(0, from(2), &new.requests.good);
    let mut frame = vec![0; 200];
    let buffer = firsthop_relay_core::BufferId(0);
    assert_eq!(
        relay.router.pack(now, &stale, buffer, &mut frame, 64..104),
        0
    );
    assert_eq!(relay.router.counters().drops(Reason::TrunkGone), 1);
}

/// A trunk whose last claim has ended lives on while its datagram waits. A late verdict may find that datagram full: the trunk
/// is then not given up between the two datagrams.
#[test]
fn a_verdict_that_finds_the_last_datagram_of_a_trunk_full_starts_another() {
    let mut relay = relay_with_flows(&config(), &[(OWNER, 0)]);
    let call = Call::plain(who(0, OWNER, 0));
    let now = relay.now;
    let ingress = firsthop_shared::address::IngressId(0);
    let source = relay.router.source(ingress, Transport::Udp, from(0));
    let packet = vec![0x80; 1_000];
    let Verdict::Forward(late) = relay.router.uplink(now, &source, &packet) else {
        panic!("the flow is known");
    };
    send(&mut relay, 0, 1_000);
    let close = world::record(
        firsthop_shared::trunk::RecordKind::Close,
        call.who,
        0,
        from(0),
        false,
        firsthop_shared::address::FlowHandle(0),
    );
    relay.down(call.who, &close);
    assert_eq!(relay.router.flow_counts().flows, 0);
    assert_eq!(relay.pack(&late, &packet), 1);
    assert_eq!(relay.flush().len(), 2);
    assert_eq!(relay.router.trunk_count(), 0);
}

/// A datagram that is open while the keyring changes verifies under the key that it names.
#[test]
fn a_key_change_spoils_no_open_datagram() {
    let mut relay = relay_with_flows(&config(), &[(OWNER, 0)]);
    send(&mut relay, 0, 100);
    relay.router.set_keyring(keyring(&[1, 2]));
    send(&mut relay, 0, 100);
    assert_eq!(relay.flush().len(), 2);
    send(&mut relay, 0, 100);
    assert_eq!(relay.flush().len(), 1);
}

proptest! {
    /// Whatever comes and whenever it is flushed: each datagram holds to its limits and carries its packets in order.
    #[test]
    fn every_packet_arrives_once_and_in_order(
        steps in prop::collection::vec((0usize..4, 13usize..1_900, 0u8..6), 1..60),
        limit in 1_232u16..8_960,
    ) {
        let mut config = config();
        config.datagram_limit = limit;
        let owners = [(OWNER, 0), (OWNER, 1), ("[fd00::1]:5000", 0), (OWNER, 0)];
        let mut relay = relay_with_flows(&config, &owners);
        let mut sent = vec![Vec::new(); owners.len()];
        let mut got = vec![Vec::new(); owners.len()];
        for (session, len, flush) in steps {
            relay.now = relay.now.after(Micros(60));
            prop_assert_eq!(send(&mut relay, session, len), 1);
            sent[session].push(len);
            relay.router.flush(relay.now, flush == 0);
            for record in relay.send_ready() {
                got[record.header.session.0 as usize].push(record.payload.len());
            }
        }
        for record in relay.flush() {
            got[record.header.session.0 as usize].push(record.payload.len());
        }
        prop_assert_eq!(sent, got);
    }
}
