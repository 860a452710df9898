//! What went wrong in other relays (docs/faults.md), one test each: each fails without the behaviour that it names.

mod budget;
mod world;

use firsthop_relay_core::{DownVerdict, Micros, Reason, Transport};
use firsthop_shared::address::{BootId, ClusterId, FlowHandle};
use firsthop_shared::limits::TRUNK_DATAGRAM_MAX;
use firsthop_shared::trunk::{DatagramBuilder, RecordKind};

use world::{Call, Relay, client, config, dtls, keyring, record, rtp, socket, who};

const OWNER: &str = "10.0.0.1:5000";
const ANY_HANDLE: FlowHandle = FlowHandle(0);
const SECOND: u64 = 1_000_000;

/// A relay that knows `first` at an address as proven.
fn proven_call(relay: &mut Relay, call: &Call, address: &str) {
    let address = client(address);
    assert_eq!(
        relay.deliver(0, address, &call.requests.good),
        vec![call.who]
    );
    let proof = record(RecordKind::Packet, call.who, 0, address, true, ANY_HANDLE);
    assert_eq!(relay.down(call.who, &proof), DownVerdict::Send);
    assert_eq!(relay.claims(0, address), vec![(call.who, true)]);
}

/// Fault 1: a client port is reused for a new session, and a cached tuple would send its checks to the old one.
#[test]
fn the_ufrag_of_a_request_wins_over_the_flow_of_its_address() {
    let mut relay = Relay::plain();
    let old = Call::plain(who(1, OWNER, 0));
    let new = Call::plain(who(2, "10.0.0.2:5000", 3));
    let port = client("203.0.113.9:40000");
    proven_call(&mut relay, &old, "203.0.113.9:40000");

    assert_eq!(relay.deliver(0, port, &new.requests.good), vec![new.who]);
    // Nobody knows yet whose address it is: what carries no ufrag goes to both.
    assert_eq!(relay.deliver(0, port, &dtls(1)), vec![old.who, new.who]);
    let proof = record(RecordKind::Packet, new.who, 0, port, true, ANY_HANDLE);
    relay.down(new.who, &proof);
    assert_eq!(relay.deliver(0, port, &rtp(1)), vec![new.who]);
    assert_eq!(relay.claims(0, port), vec![(new.who, true)]);
}

/// Fault 2: cleaning up an ended session would remove the entry of a newer one at the same address.
#[test]
fn closing_a_session_leaves_a_newer_one_at_its_address() {
    let mut relay = Relay::plain();
    let old = Call::plain(who(1, OWNER, 0));
    let new = Call::plain(who(2, OWNER, 0));
    let port = client("203.0.113.9:40000");
    proven_call(&mut relay, &old, "203.0.113.9:40000");
    relay.deliver(0, port, &new.requests.good);
    let proof = record(RecordKind::Packet, new.who, 0, port, true, ANY_HANDLE);
    relay.down(new.who, &proof);

    for kind in [RecordKind::Close, RecordKind::UnknownSession] {
        relay.down(old.who, &record(kind, old.who, 0, port, false, ANY_HANDLE));
        assert_eq!(relay.deliver(0, port, &rtp(1)), vec![new.who]);
    }
    // A session of the same number at another owner or worker is not this one either.
    for other in [who(2, "10.0.0.2:5000", 0), who(2, OWNER, 1)] {
        relay.down(
            other,
            &record(RecordKind::Close, other, 0, port, false, ANY_HANDLE),
        );
        assert_eq!(relay.deliver(0, port, &rtp(2)), vec![new.who]);
    }
    relay.down(
        new.who,
        &record(RecordKind::Close, new.who, 0, port, false, ANY_HANDLE),
    );
    assert_eq!(relay.refuse(0, port, &rtp(3)), Reason::NoFlowRtp);
    assert_eq!(relay.router.trunk_count(), 0);
}

/// Fault 3: one client must not be two because a socket spelled its address as mapped into IPv6.
#[test]
fn a_mapped_and_a_plain_address_are_one_flow() {
    let mut relay = Relay::plain();
    let call = Call::plain(who(1, OWNER, 0));
    let mapped = client("[::ffff:203.0.113.9]:40000");
    let plain = client("203.0.113.9:40000");
    assert_eq!(
        relay.deliver(0, mapped, &call.requests.good),
        vec![call.who]
    );
    assert_eq!(relay.deliver(0, plain, &rtp(1)), vec![call.who]);
    assert_eq!(relay.router.flow_counts().flows, 1);
}

/// Fault 7: the address of an owner that is gone belongs to another one now, which does not know the session.
#[test]
fn a_session_that_its_owner_does_not_know_is_sent_there_no_more() {
    let mut relay = Relay::plain();
    let gone = Call::plain(who(1, OWNER, 0));
    let alive = Call::plain(who(2, OWNER, 0));
    let (client_of_gone, client_of_alive) =
        (client("203.0.113.9:40000"), client("203.0.113.9:40001"));
    proven_call(&mut relay, &gone, "203.0.113.9:40000");
    proven_call(&mut relay, &alive, "203.0.113.9:40001");
    let unknown = |owner| {
        let kind = RecordKind::UnknownSession;
        record(kind, owner, 0, client_of_gone, false, ANY_HANDLE)
    };
    // Nobody but the owner that packets go to can say so.
    let stranger = who(1, "10.0.0.2:5000", 0);
    relay.down(stranger, &unknown(stranger));
    assert_eq!(
        relay.deliver(0, client_of_gone, &rtp(1)),
        vec![gone.who],
        "still believed"
    );
    relay.down(gone.who, &unknown(gone.who));
    assert_eq!(relay.refuse(0, client_of_gone, &rtp(2)), Reason::NoFlowRtp);
    // The same address serves the sessions that it knows.
    assert_eq!(relay.deliver(0, client_of_alive, &rtp(3)), vec![alive.who]);
    // A request names its owner by itself, and so asks there again: an owner that only restarted its network is back.
    assert_eq!(
        relay.deliver(0, client_of_gone, &gone.requests.good),
        vec![gone.who]
    );
}

/// Fault 7 again: the last check of a client overtakes the word of its session's end, and nobody else sends there any more.
#[test]
fn a_check_after_its_session_s_end_makes_a_flow_that_its_owner_can_tell_from_the_one_before_and_end()
 {
    let mut relay = Relay::plain();
    let call = Call::plain(who(1, OWNER, 0));
    let port = client("203.0.113.9:40000");
    let mut handles = Vec::new();
    for kind in [RecordKind::Close, RecordKind::UnknownSession] {
        relay.receive(0, Transport::Udp, port, &call.requests.good);
        let handle = relay.flush()[0].header.handle;
        handles.push(handle);
        relay.down(call.who, &record(kind, call.who, 0, port, false, handle));
        assert_eq!(relay.router.flow_counts().flows, 0);
    }
    assert_ne!(handles[0], handles[1]);
}

/// Fault 10: a flood of packets with no verified token would fill a proxy's table.
#[test]
fn nothing_that_is_unverified_leaves_a_trace() {
    let mut relay = Relay::plain();
    let call = Call::plain(who(1, OWNER, 0));
    let foreign = Call::new(who(1, OWNER, 0), ClusterId(2), 1, 0);
    let outside = Call::plain(who(1, "198.51.100.7:5000", 0));
    let from = client("203.0.113.9:40000");
    let inside = client("10.9.9.9:40000");
    let nowhere = client("203.0.113.9:0");
    let r = &call.requests;
    let method = world::turn_allocate();
    let response = world::stun_response();
    let indication = world::stun_indication();
    let expected: &[(&[u8], Reason)] = &[
        (b"", Reason::Empty),
        (b"\x40channel data", Reason::UnknownClass),
        (&[0x80; 1_901], Reason::Oversize),
        (b"\x00\x01\x00", Reason::StunMalformed),
        (&method, Reason::StunMethod),
        (&response, Reason::NoFlowStun),
        (&indication, Reason::NoFlowStun),
        (&dtls(1), Reason::NoFlowDtls),
        (&rtp(1), Reason::NoFlowRtp),
        (&r.no_colon, Reason::StunNoUfrag),
        (&r.no_integrity, Reason::StunNoIntegrity),
        (&r.wrong_fingerprint, Reason::StunFingerprint),
        (&r.wrong_length, Reason::UfragLength),
        (&r.wrong_format, Reason::UfragFormat),
        (&r.forged, Reason::UfragForged),
        (&r.wrong_integrity, Reason::StunIntegrity),
        (&foreign.requests.good, Reason::ForeignCluster),
        (&outside.requests.good, Reason::OwnerOutside),
    ];
    for (packet, reason) in expected {
        let before = relay.router.counters().drops(*reason);
        let others = relay.router.counters().drops_total() - before;
        for _ in 0..3 {
            assert_eq!(relay.refuse(0, from, packet), *reason);
        }
        let counters = relay.router.counters();
        assert_eq!(counters.drops(*reason), before + 3);
        assert_eq!(counters.drops_total(), others + before + 3);
    }
    assert_eq!(relay.refuse(0, inside, &r.good), Reason::ClientInside);
    assert_eq!(relay.refuse(0, nowhere, &r.good), Reason::ClientPort);
    relay.router.set_keyring(keyring(&[2]));
    assert_eq!(relay.refuse(0, from, &r.good), Reason::UfragUnknownKey);
    assert_eq!(relay.router.flow_counts().flows, 0);
    assert_eq!(relay.router.trunk_count(), 0);
    assert_eq!(relay.router.counters().uplink_packets, 0);
}

/// Nor does it change what is known: a known flow gives a request no credit.
#[test]
fn a_request_on_a_known_flow_is_verified_like_any_other() {
    let mut relay = Relay::plain();
    let call = Call::plain(who(1, OWNER, 0));
    proven_call(&mut relay, &call, "203.0.113.9:40000");
    let from = client("203.0.113.9:40000");
    let wrong = &call.requests.wrong_integrity;
    assert_eq!(relay.refuse(0, from, wrong), Reason::StunIntegrity);
    assert_eq!(
        relay.refuse(0, from, &call.requests.forged),
        Reason::UfragForged
    );
    assert_eq!(relay.claims(0, from), vec![(call.who, true)]);
}

/// A borrowed source address on a valid request costs the live call at that address nothing, however often it comes.
#[test]
fn a_spoofed_valid_request_takes_nothing_from_a_live_call() {
    let mut relay = Relay::plain();
    let live = Call::plain(who(1, OWNER, 0));
    let address = client("203.0.113.9:40000");
    proven_call(&mut relay, &live, "203.0.113.9:40000");
    for n in 2..60 {
        let spoofer = Call::plain(who(n, OWNER, 1));
        relay.deliver(0, address, &spoofer.requests.good);
        let receivers = relay.deliver(0, address, &rtp(n as u8));
        assert_eq!(receivers, vec![live.who, spoofer.who]);
    }
    let proof = record(RecordKind::Packet, live.who, 0, address, true, ANY_HANDLE);
    relay.down(live.who, &proof);
    assert_eq!(relay.deliver(0, address, &rtp(0)), vec![live.who]);
}

/// Any number of valid requests with borrowed addresses evict only claims of their own kind.
#[test]
fn a_flood_of_provisional_claims_spares_the_proven_ones() {
    let mut relay = Relay::plain();
    let live = Call::plain(who(1, OWNER, 0));
    let spoofer = Call::plain(who(2, OWNER, 0));
    proven_call(&mut relay, &live, "203.0.113.9:40000");
    for port in 1_000..2_000 {
        let from = client(&format!("198.51.100.1:{port}"));
        assert_eq!(
            relay.deliver(0, from, &spoofer.requests.good),
            vec![spoofer.who]
        );
    }
    let counts = relay.router.flow_counts();
    assert_eq!((counts.proven, counts.provisional), (1, 64 / 4));
    assert_eq!(
        relay.deliver(0, client("203.0.113.9:40000"), &rtp(1)),
        vec![live.who]
    );
}

/// One client socket that checks two advertised addresses is two flows, and each is restored and closed by itself.
#[test]
fn one_socket_at_two_ingresses_is_two_flows() {
    let mut relay = Relay::plain();
    let call = Call::plain(who(1, OWNER, 0));
    let from = client("203.0.113.9:40000");
    assert_eq!(relay.deliver(0, from, &call.requests.good), vec![call.who]);
    assert_eq!(relay.refuse(1, from, &rtp(1)), Reason::NoFlowRtp);
    assert_eq!(relay.deliver(1, from, &call.requests.good), vec![call.who]);
    assert_eq!(relay.deliver(1, from, &rtp(1)), vec![call.who]);
    let close = record(RecordKind::Close, call.who, 1, from, false, ANY_HANDLE);
    relay.down(call.who, &close);
    assert_eq!(relay.refuse(1, from, &rtp(1)), Reason::NoFlowRtp);
    assert_eq!(relay.deliver(0, from, &rtp(1)), vec![call.who]);
}

/// A restarted relay sends downlink at once, and knows the client again from the first record.
#[test]
fn a_downlink_record_restores_the_flow_that_a_restart_lost() {
    let call = Call::plain(who(1, OWNER, 2));
    let from = client("203.0.113.9:40000");
    for proven in [false, true] {
        let mut relay = Relay::plain();
        assert_eq!(relay.refuse(0, from, &rtp(1)), Reason::NoFlowRtp);
        let packet = record(
            RecordKind::Packet,
            call.who,
            0,
            from,
            proven,
            FlowHandle(0x1234_5678),
        );
        assert_eq!(relay.down(call.who, &packet), DownVerdict::Send);
        assert_eq!(relay.claims(0, from), vec![(call.who, proven)]);
        assert_eq!(relay.deliver(0, from, &rtp(1)), vec![call.who]);
    }
}

/// A late record of a call that is over is delivered, and neither takes nor joins the flow of its successor.
#[test]
fn a_late_record_of_an_old_session_changes_no_flow() {
    let mut relay = Relay::plain();
    let new = Call::plain(who(2, OWNER, 0));
    let old = who(1, OWNER, 0);
    let from = client("203.0.113.9:40000");
    relay.deliver(0, from, &new.requests.good);
    let late = record(RecordKind::Packet, old, 0, from, true, ANY_HANDLE);
    assert_eq!(relay.down(old, &late), DownVerdict::Send);
    assert_eq!(relay.claims(0, from), vec![(new.who, false)]);
}

/// A handle that has been given to another flow leads nowhere, and the record finds its flow by the address.
#[test]
fn a_stale_handle_is_noticed() {
    let mut relay = Relay::plain();
    let first = Call::plain(who(1, OWNER, 0));
    let second = Call::plain(who(2, OWNER, 0));
    let (a, b) = (client("203.0.113.9:1"), client("203.0.113.9:2"));
    relay.receive(0, Transport::Udp, a, &first.requests.good);
    let handle = relay.flush()[0].header.handle;
    relay.down(
        first.who,
        &record(RecordKind::Close, first.who, 0, a, false, handle),
    );
    // The slot is free, and the next flow takes it with another generation.
    relay.receive(0, Transport::Udp, b, &second.requests.good);
    let reused = relay.flush()[0].header.handle;
    assert_eq!(reused.0 & 0xf_ffff, handle.0 & 0xf_ffff);
    assert_ne!(reused, handle);
    // A record under the old handle closes nothing that is not its own, and its own whatever the handle.
    relay.down(
        first.who,
        &record(RecordKind::Close, first.who, 0, a, false, handle),
    );
    assert_eq!(relay.claims(0, b), vec![(second.who, false)]);
    relay.down(
        second.who,
        &record(RecordKind::Close, second.who, 0, b, false, handle),
    );
    assert_eq!(relay.claims(0, b), vec![]);
}

/// Thirty seconds of silence end a flow; a packet either way begins them anew.
#[test]
fn a_flow_lives_as_long_as_packets_pass() {
    let mut relay = Relay::plain();
    let call = Call::plain(who(1, OWNER, 0));
    let from = client("203.0.113.9:40000");
    proven_call(&mut relay, &call, "203.0.113.9:40000");
    for turn in 1..20u64 {
        relay.now = Micros(turn * 20 * SECOND);
        if turn % 2 == 0 {
            assert_eq!(relay.deliver(0, from, &rtp(1)), vec![call.who]);
        } else {
            let packet = record(RecordKind::Packet, call.who, 0, from, false, ANY_HANDLE);
            relay.down(call.who, &packet);
        }
        assert!(!relay.router.expire(relay.now, 100));
    }
    relay.now = relay.now.after(Micros(29 * SECOND));
    relay.router.expire(relay.now, 100);
    assert_eq!(relay.router.flow_counts().flows, 1);
    relay.now = relay.now.after(Micros(3 * SECOND));
    relay.router.expire(relay.now, 100);
    assert_eq!(relay.router.flow_counts().flows, 0);
    assert_eq!(relay.router.counters().flows_expired, 1);
    assert_eq!(relay.refuse(0, from, &rtp(1)), Reason::NoFlowRtp);
}

/// What the internal socket refuses, and what a record may not ask for.
#[test]
fn internal_datagrams_are_checked_before_they_are_believed() {
    let mut relay = Relay::plain();
    let keys = keyring(&[2, 1]);
    let call = who(1, OWNER, 0);
    let from = client("203.0.113.9:40000");
    let packet = record(RecordKind::Packet, call, 0, from, true, ANY_HANDLE);
    let good = relay.datagram(call.shard, &packet, b"x", &keys);
    let outside = who(1, "198.51.100.7:5000", 0);
    assert_eq!(
        relay.down_bytes(outside.owner, &good),
        Err(Reason::TrunkSource)
    );
    let mut altered = good.clone();
    altered[3] ^= 1;
    assert_eq!(
        relay.down_bytes(call.owner, &altered),
        Err(Reason::TrunkTag)
    );
    altered = good.clone();
    altered[0] = b'X';
    assert_eq!(
        relay.down_bytes(call.owner, &altered),
        Err(Reason::TrunkMagic)
    );
    assert_eq!(
        relay.down_bytes(call.owner, &good[..20]),
        Err(Reason::TrunkLength)
    );
    assert_eq!(
        relay.down_bytes(call.owner, &good[..good.len() - 1]),
        Err(Reason::RecordMalformed)
    );
    assert_eq!(relay.router.flow_counts().flows, 0);
    assert_eq!(relay.down_bytes(call.owner, &good), Ok(DownVerdict::Send));
    assert_eq!(
        relay.down_bytes(call.owner, &good),
        Err(Reason::TrunkReplay)
    );
    // What a relay wrote to an owner has a good tag, too.
    let mut builder = DatagramBuilder::new(TRUNK_DATAGRAM_MAX);
    assert!(builder.push(&packet, b"x"));
    let reflected = builder.finish(keys.active(), call.shard, BootId::of_relay(77), 1);
    assert_eq!(
        relay.down_bytes(call.owner, reflected),
        Err(Reason::PeerUnknown)
    );

    let mut refused = |change: &dyn Fn(&mut firsthop_shared::trunk::RecordHeader)| {
        let mut record = packet;
        change(&mut record);
        let before = relay.router.flow_counts();
        let verdict = relay.down(call, &record);
        assert_eq!(relay.router.flow_counts(), before);
        verdict
    };
    let drop = DownVerdict::Drop;
    assert_eq!(refused(&|r| r.ingress.0 = 9), drop(Reason::RecordIngress));
    assert_eq!(refused(&|r| r.tcp = true), drop(Reason::RecordIngress));
    assert_eq!(
        refused(&|r| {
            r.client = client("[2001:db8::1]:5");
            r.ingress.0 = 1;
        }),
        drop(Reason::RecordIngress)
    );
    assert_eq!(
        refused(&|r| r.client = client("10.1.1.1:5")),
        drop(Reason::RecordClientInside)
    );
    assert_eq!(
        refused(&|r| r.owner = Some(call.owner)),
        drop(Reason::RecordRelayed)
    );
    assert_eq!(
        refused(&|r| r.kind = RecordKind::Keepalive),
        drop(Reason::RecordKeepalive)
    );
}

/// A development relay may serve clients inside its own networks.
#[test]
fn internal_clients_are_served_when_that_is_allowed() {
    let mut config = config();
    config.allow_internal_clients = true;
    let mut relay = Relay::new(&config, keyring(&[2, 1]), Micros(0));
    let call = Call::plain(who(1, OWNER, 0));
    let from = client("10.0.0.77:40000");
    assert_eq!(relay.deliver(0, from, &call.requests.good), vec![call.who]);
    let packet = record(RecordKind::Packet, call.who, 0, from, false, ANY_HANDLE);
    assert_eq!(relay.down(call.who, &packet), DownVerdict::Send);
}

/// A record for a client of another core is passed on to it, and restores the flow there.
#[test]
fn a_flow_is_restored_on_the_core_that_its_client_reaches() {
    use firsthop_relay_core::{Placement, Steering};
    use firsthop_shared::address::Hop;
    let steering = Steering::new(5, 2);
    let mut relays = [0u16, 1].map(|core| {
        let mut config = config();
        config.placement = Some(Placement { steering, core });
        Relay::new(&config, keyring(&[2, 1]), Micros(0))
    });
    let call = who(1, OWNER, 0);
    for port in 1_000..1_020 {
        let from = client(&format!("203.0.113.9:{port}"));
        let home = steering.core_for(&from);
        let other = usize::from(1 - home);
        let mut packet = record(RecordKind::Packet, call, 0, from, true, ANY_HANDLE);
        packet.payload_len = 8;
        assert_eq!(
            relays[other].down(call, &packet),
            DownVerdict::SendAndNote(home)
        );
        assert_eq!(relays[other].claims(0, from), vec![]);
        let source = Hop::new(socket(OWNER));
        let there = &mut relays[usize::from(home)];
        there.router.note(Micros(0), source, call.shard, &packet);
        assert_eq!(there.claims(0, from), vec![(call, true)]);
        let close = record(RecordKind::Close, call, 0, from, false, ANY_HANDLE);
        assert_eq!(relays[other].down(call, &close), DownVerdict::Note(home));
    }
}
