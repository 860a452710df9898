//! Calls whose client moves, and calls whose relays die, restart or are handed over.

use firsthop_relay_core::{Reason, Steering};
use firsthop_shared::address::ClusterId;
use firsthop_shared::trunk::RecordKind;

use crate::net::{FLEET, Net, hop};
use crate::world::{Call, client, dtls, rtp, stun_response, who};
use crate::{INGRESS, OWNER, SECOND_INGRESS, claims, core_of, downlink, far, proven, uplink};

#[test]
fn a_dead_cluster_relay_is_passed_by_and_taken_again_when_it_answers() {
    let mut net = Net::world();
    net.pass(3_000);
    let (call, from) = (far(7, OWNER, 3), client("203.0.113.9:40000"));
    proven(&mut net, &call, from);
    net.dead
        .extend([hop("10.2.0.1:4000"), hop("10.2.0.1:4001")]);
    net.client(INGRESS, 0, from, &rtp(1));
    assert!(net.run().0.is_empty(), "lost");
    net.pass(3_200);
    // The very next packet goes by the second relay, and the owner follows it.
    let got = uplink(&mut net, INGRESS, from, &rtp(2));
    assert_eq!(got.from.ip(), hop("10.2.0.2:4100").ip());
    assert_eq!(got.header.session, call.who.session);
    downlink(&mut net, &got, true, b"audio", INGRESS);
    assert_eq!(net.node(INGRESS).router.counters().fail_overs, 1);
    // The next check takes the core that its address selects there, which is one claim still.
    let got = uplink(&mut net, INGRESS, from, &call.requests.good);
    let core = Steering::new(9, 3).core_for(&from);
    assert_eq!(got.from, hop(&format!("10.2.0.2:{}", 4100 + core)));
    assert_eq!(claims(&mut net, INGRESS, from), vec![(call.who, true)]);
    assert_eq!(uplink(&mut net, INGRESS, from, &rtp(3)).from, got.from);
    net.dead.clear();
    net.pass(4_000);
    assert_eq!(
        uplink(&mut net, INGRESS, from, &rtp(4)).from.ip(),
        hop("10.2.0.1:4000").ip()
    );
    assert_eq!(net.node(INGRESS).router.counters().fail_overs, 2);
    net.end();
}

#[test]
fn a_restarted_cluster_relay_learns_from_the_next_packet_of_any_kind() {
    let mut net = Net::world();
    let (call, from) = (far(7, OWNER, 3), client("203.0.113.9:40000"));
    let check = uplink(&mut net, INGRESS, from, &call.requests.good);
    let relay = core_of(&from);
    net.start(relay, 2, &[], FLEET);
    // It does not know yet where this goes.
    net.reply(&check, RecordKind::Packet, true, b"lost");
    assert!(net.run().1.is_empty());
    assert_eq!(net.drops(relay, Reason::RecordIngress), 1);
    let got = uplink(&mut net, INGRESS, from, &rtp(1));
    downlink(&mut net, &got, true, b"audio", INGRESS);
    assert_eq!(claims(&mut net, relay, from), vec![(call.who, true)]);
}

#[test]
fn a_restarted_ingress_restores_the_flow_from_the_downlink_and_not_over_another() {
    let mut net = Net::world();
    let (call, from) = (far(7, OWNER, 3), client("203.0.113.9:40000"));
    let check = proven(&mut net, &call, from);
    net.start(INGRESS, 1, &[0], FLEET);
    assert_eq!(
        net.client(INGRESS, 0, from, &rtp(1)),
        Some(Reason::NoFlowRtp)
    );
    downlink(&mut net, &check, true, b"audio", INGRESS);
    assert_eq!(claims(&mut net, INGRESS, from), vec![(call.who, true)]);
    uplink(&mut net, INGRESS, from, &rtp(2));

    // Somebody else has the address now: a late record changes nothing.
    net.start(INGRESS, 1, &[0], FLEET);
    let other = Call::new(who(9, "10.1.9.1:5000", 0), ClusterId(1), 1, 0);
    uplink(&mut net, INGRESS, from, &other.requests.good);
    downlink(&mut net, &check, true, b"late", INGRESS);
    assert_eq!(claims(&mut net, INGRESS, from), vec![(other.who, false)]);
}

/// One address is announced by two relays, and the client's packets move from one to the other.
#[test]
fn a_client_that_moves_to_another_ingress_keeps_its_session() {
    let mut net = Net::world();
    let (call, from) = (far(7, OWNER, 3), client("203.0.113.9:40000"));
    let check = proven(&mut net, &call, from);
    assert_eq!(
        net.client(SECOND_INGRESS, 0, from, &rtp(1)),
        Some(Reason::NoFlowRtp)
    );
    let moved = uplink(&mut net, SECOND_INGRESS, from, &call.requests.good);
    assert_eq!(moved.header.session, call.who.session);
    downlink(&mut net, &moved, true, b"here now", SECOND_INGRESS);
    uplink(&mut net, SECOND_INGRESS, from, &rtp(2));
    // And back, by any packet: the newest one shows where the client is.
    uplink(&mut net, INGRESS, from, &rtp(3));
    downlink(&mut net, &check, false, b"back", INGRESS);
    net.end();
}

/// The cluster's relay announces the same address, and the client's packets move to it.
#[test]
fn a_client_that_moves_to_the_relay_of_its_own_cluster_is_answered_from_there() {
    let mut net = Net::world();
    let (call, from) = (far(7, OWNER, 3), client("203.0.113.9:40000"));
    let relay = core_of(&from);
    net.start(relay, 2, &[0], FLEET);
    proven(&mut net, &call, from);
    let moved = uplink(&mut net, relay, from, &call.requests.good);
    downlink(&mut net, &moved, true, b"from here", relay);
    let back = uplink(&mut net, INGRESS, from, &rtp(1));
    downlink(&mut net, &back, true, b"from there", INGRESS);
    assert_eq!(claims(&mut net, relay, from), vec![(call.who, true)]);
    net.end();
}

#[test]
fn a_valid_request_from_a_borrowed_address_moves_nothing_of_a_proven_call() {
    let mut net = Net::world();
    let from = client("203.0.113.9:40000");
    let (call, thief) = (far(7, OWNER, 3), far(8, OWNER, 3));
    let check = proven(&mut net, &call, from);
    let stolen = uplink(&mut net, SECOND_INGRESS, from, &thief.requests.good);
    assert_eq!(stolen.header.session, thief.who.session);
    // What the victim's owner sends still goes where the victim is.
    downlink(&mut net, &check, false, b"audio", INGRESS);
    let relay = core_of(&from);
    let mut known = claims(&mut net, relay, from);
    known.sort();
    assert_eq!(known, vec![(call.who, true), (thief.who, false)]);
}

/// The cluster's relay serves the address, too; a packet that names no session moves the flow there as a check does.
#[test]
fn a_packet_without_a_ufrag_takes_the_way_back_over_as_a_check_does() {
    let mut net = Net::world();
    let (call, from) = (far(7, OWNER, 3), client("203.0.113.9:40000"));
    let relay = core_of(&from);
    net.start(relay, 2, &[0], FLEET);
    proven(&mut net, &call, from);
    assert_eq!(net.node(relay).router.trunk_count(), 2);
    for packet in [dtls(1), rtp(1), stun_response()] {
        let moved = uplink(&mut net, relay, from, &packet);
        assert_eq!(
            net.node(relay).router.trunk_count(),
            1,
            "the way back is given back"
        );
        downlink(&mut net, &moved, false, b"from here", relay);
        let back = uplink(&mut net, INGRESS, from, &rtp(2));
        downlink(&mut net, &back, false, b"from there", INGRESS);
    }
    assert_eq!(claims(&mut net, relay, from), vec![(call.who, true)]);
    net.end();
}

/// A hot restart of either relay: neither direction misses a packet.
#[test]
fn a_relayed_call_goes_on_when_its_relays_are_handed_over() {
    let mut net = Net::world();
    let (call, from) = (far(7, OWNER, 3), client("203.0.113.9:40000"));
    let relay = core_of(&from);
    let check = proven(&mut net, &call, from);
    net.hand_over(relay, 2, &[]);
    assert_eq!(claims(&mut net, relay, from), vec![(call.who, true)]);
    downlink(&mut net, &check, false, b"straight after", INGRESS);
    let got = uplink(&mut net, INGRESS, from, &rtp(1));
    assert_eq!(got.header.handle, check.header.handle);
    net.hand_over(INGRESS, 1, &[0]);
    assert_eq!(claims(&mut net, INGRESS, from), vec![(call.who, true)]);
    let got = uplink(&mut net, INGRESS, from, &rtp(2));
    assert_eq!((got.owner, got.from), (check.owner, check.from));
    downlink(&mut net, &check, false, b"there", INGRESS);
    net.end();
}
