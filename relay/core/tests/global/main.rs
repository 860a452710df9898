//! The Global Relay: relays of two clusters, whole datagrams between them, on virtual time.

mod cached;
mod net;
mod random;
mod refused;
#[path = "../world/mod.rs"]
mod world;

use firsthop_relay_core::limits::EVICTION_LOOKS;
use firsthop_relay_core::{Reason, Steering};
use firsthop_shared::address::{ClientAddr, ClusterId, ShardId};
use firsthop_shared::limits::CLIENT_PACKET_MAX;
use firsthop_shared::trunk::RecordKind;

use net::{AtOwner, FLEET, Net, hop, peers};
use world::{Call, Who, client, dtls, rtp, stun_response, who};

/// An owner of the second cluster.
const OWNER: &str = "10.2.9.1:5000";
const INGRESS: &str = "10.1.0.1:4000";
const SECOND_INGRESS: &str = "10.1.0.2:4000";

fn far(session: u32, owner: &str, shard: u8) -> Call {
    Call::new(who(session, owner, shard), ClusterId(2), 1, 0)
}

/// The core of the first relay of cluster 2 that serves a client.
fn core_of(client: &ClientAddr) -> &'static str {
    ["10.2.0.1:4000", "10.2.0.1:4001"][usize::from(Steering::new(0, 2).core_for(client))]
}

/// A client sends one packet, and its owner gets it.
fn uplink(net: &mut Net, at: &str, from: ClientAddr, packet: &[u8]) -> AtOwner {
    assert_eq!(net.client(at, 0, from, packet), None);
    let (mut owners, clients) = net.run();
    assert!(clients.is_empty());
    assert_eq!(owners.len(), 1, "{owners:?}");
    let got = owners.remove(0);
    assert_eq!(got.payload, packet);
    assert_eq!(got.header.client, from);
    assert!(got.header.owner.is_none() && !got.header.proven);
    got
}

/// An owner answers, and the client gets it by this relay.
fn downlink(net: &mut Net, got: &AtOwner, proven: bool, payload: &[u8], by: &str) {
    net.reply(got, RecordKind::Packet, proven, payload);
    let (owners, clients) = net.run();
    assert!(owners.is_empty());
    assert_eq!(clients.len(), 1, "{clients:?}");
    assert_eq!(clients[0].payload, payload);
    assert_eq!(clients[0].client, got.header.client);
    assert_eq!(clients[0].relay, hop(by));
}

fn claims(net: &mut Net, at: &str, client: ClientAddr) -> Vec<(Who, bool)> {
    let router = &net.node(at).router;
    let transport = firsthop_relay_core::Transport::Udp;
    router
        .claims(firsthop_shared::address::IngressId(0), transport, client)
        .map(|(session, owner, shard, proven)| {
            (
                Who {
                    session,
                    owner,
                    shard,
                },
                proven,
            )
        })
        .collect()
}

fn assert_clean(net: &mut Net) {
    for (at, node) in &net.nodes {
        assert_eq!(node.router.flow_counts().flows, 0, "{at}");
        assert_eq!(node.router.trunk_count(), 0, "{at}");
    }
}

#[test]
fn a_call_goes_through_ingress_and_cluster_relay_to_its_owner_and_back() {
    for (address, owner) in [
        ("203.0.113.9:40000", OWNER),
        ("[2001:db8::77]:40000", "[fd00::9]:5000"),
        ("203.0.113.9:40000", "[fd00::9]:5000"),
        ("[2001:db8::77]:40000", OWNER),
    ] {
        let mut net = Net::world();
        let (call, from) = (far(7, owner, 3), client(address));
        let check = uplink(&mut net, INGRESS, from, &call.requests.good);
        assert_eq!((check.owner, check.shard), (call.who.owner, ShardId(3)));
        assert_eq!(check.header.session, call.who.session);
        let relay = core_of(&from);
        assert_eq!(
            check.from,
            hop(relay),
            "the core that the client's address selects"
        );
        assert_eq!(claims(&mut net, INGRESS, from), vec![(call.who, false)]);
        assert_eq!(claims(&mut net, relay, from), vec![(call.who, false)]);

        downlink(&mut net, &check, false, b"an answer", INGRESS);
        assert_eq!(claims(&mut net, relay, from), vec![(call.who, false)]);
        downlink(&mut net, &check, true, b"a proof", INGRESS);
        assert_eq!(claims(&mut net, INGRESS, from), vec![(call.who, true)]);
        assert_eq!(claims(&mut net, relay, from), vec![(call.who, true)]);

        for packet in [dtls(1), rtp(2), stun_response()] {
            let got = uplink(&mut net, INGRESS, from, &packet);
            assert_eq!(
                (got.owner, got.from, got.header.handle),
                (check.owner, check.from, check.header.handle)
            );
        }
        net.pass(40_000);
        assert_clean(&mut net);
    }
}

#[test]
fn close_and_unknown_session_end_the_flow_at_both_relays() {
    for kind in [RecordKind::Close, RecordKind::UnknownSession] {
        let mut net = Net::world();
        let (call, from) = (far(7, OWNER, 3), client("203.0.113.9:40000"));
        let check = uplink(&mut net, INGRESS, from, &call.requests.good);
        // One that names another session ends nothing.
        let mut other = check.clone();
        other.header.session.0 += 1;
        net.reply(&other, kind, false, b"");
        net.run();
        uplink(&mut net, INGRESS, from, &rtp(1));
        net.reply(&check, kind, false, b"");
        assert_eq!(net.run().0.len(), 0);
        assert_eq!(
            net.client(INGRESS, 0, from, &rtp(2)),
            Some(Reason::NoFlowRtp)
        );
        assert_clean(&mut net);
    }
}

#[test]
fn records_of_many_owners_share_a_datagram_between_relays() {
    let mut net = Net::world();
    let clients: Vec<_> = (0..8)
        .map(|i| client(&format!("203.0.113.{i}:40000")))
        .filter(|from| core_of(from) == "10.2.0.1:4000")
        .collect();
    assert!(clients.len() > 1);
    for (i, from) in clients.iter().enumerate() {
        let call = far(i as u32, &format!("10.2.9.{i}:5000"), 0);
        net.client(INGRESS, 0, *from, &call.requests.good);
    }
    let (owners, _) = net.run();
    assert_eq!(owners.len(), clients.len());
    let counters = net.node(INGRESS).router.counters().clone();
    assert_eq!(counters.uplink_datagrams, 1);
    assert_eq!(counters.beyond_records, clients.len() as u64);
    for got in &owners {
        net.reply(got, RecordKind::Packet, true, b"down");
    }
    assert_eq!(net.run().1.len(), clients.len());
    let counters = net.node("10.2.0.1:4000").router.counters().clone();
    assert_eq!(
        (counters.back_records, counters.back_datagrams),
        (clients.len() as u64, 1)
    );
    assert_eq!(counters.relayed_packets, clients.len() as u64);
}

#[test]
fn calls_of_both_clusters_share_an_ingress_and_an_address() {
    let mut net = Net::world();
    let from = client("203.0.113.9:40000");
    let near = Call::new(who(1, "10.1.9.1:5000", 0), ClusterId(1), 1, 0);
    let distant = far(1, OWNER, 0);
    let straight = uplink(&mut net, INGRESS, from, &near.requests.good);
    assert_eq!(
        straight.from,
        hop(INGRESS),
        "a token of the own cluster never leaves it"
    );
    let relayed = uplink(&mut net, INGRESS, from, &distant.requests.good);
    assert_eq!(relayed.owner, distant.who.owner);
    net.client(INGRESS, 0, from, &rtp(1));
    assert_eq!(net.run().0.len(), 2, "nobody knows yet whose address it is");
    downlink(&mut net, &relayed, true, b"proof", INGRESS);
    let got = uplink(&mut net, INGRESS, from, &rtp(2));
    assert_eq!(got.owner, distant.who.owner);
}

#[test]
fn a_cluster_without_relays_is_refused_as_before() {
    let mut net = Net::world();
    let call = Call::new(who(1, OWNER, 0), ClusterId(9), 1, 0);
    let from = client("203.0.113.9:40000");
    assert_eq!(
        net.client(INGRESS, 0, from, &call.requests.good),
        Some(Reason::ForeignCluster)
    );
    net.start_with(INGRESS, 1, &[0], FLEET, |config| config.relays_away = false);
    let call = far(1, OWNER, 0);
    assert_eq!(
        net.client(INGRESS, 0, from, &call.requests.good),
        Some(Reason::ForeignCluster)
    );
}

#[test]
fn a_dead_cluster_relay_is_passed_by_and_taken_again_when_it_answers() {
    let mut net = Net::world();
    net.pass(3_000);
    let (call, from) = (far(7, OWNER, 3), client("203.0.113.9:40000"));
    let check = uplink(&mut net, INGRESS, from, &call.requests.good);
    downlink(&mut net, &check, true, b"proof", INGRESS);
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
    net.pass(40_000);
    assert_clean(&mut net);
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
    let check = uplink(&mut net, INGRESS, from, &call.requests.good);
    downlink(&mut net, &check, true, b"proof", INGRESS);
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
    let check = uplink(&mut net, INGRESS, from, &call.requests.good);
    downlink(&mut net, &check, true, b"proof", INGRESS);
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
    net.pass(40_000);
    assert_clean(&mut net);
}

/// The cluster's relay announces the same address, and the client's packets move to it.
#[test]
fn a_client_that_moves_to_the_relay_of_its_own_cluster_is_answered_from_there() {
    let mut net = Net::world();
    let (call, from) = (far(7, OWNER, 3), client("203.0.113.9:40000"));
    let relay = core_of(&from);
    net.start(relay, 2, &[0], FLEET);
    let check = uplink(&mut net, INGRESS, from, &call.requests.good);
    downlink(&mut net, &check, true, b"proof", INGRESS);
    let moved = uplink(&mut net, relay, from, &call.requests.good);
    downlink(&mut net, &moved, true, b"from here", relay);
    let back = uplink(&mut net, INGRESS, from, &rtp(1));
    downlink(&mut net, &back, true, b"from there", INGRESS);
    assert_eq!(claims(&mut net, relay, from), vec![(call.who, true)]);
    net.pass(40_000);
    assert_clean(&mut net);
}

#[test]
fn a_valid_request_from_a_borrowed_address_moves_nothing_of_a_proven_call() {
    let mut net = Net::world();
    let from = client("203.0.113.9:40000");
    let (call, thief) = (far(7, OWNER, 3), far(8, OWNER, 3));
    let check = uplink(&mut net, INGRESS, from, &call.requests.good);
    downlink(&mut net, &check, true, b"proof", INGRESS);
    let stolen = uplink(&mut net, SECOND_INGRESS, from, &thief.requests.good);
    assert_eq!(stolen.header.session, thief.who.session);
    // What the victim's owner sends still goes where the victim is.
    downlink(&mut net, &check, false, b"audio", INGRESS);
    let relay = core_of(&from);
    let mut known = claims(&mut net, relay, from);
    known.sort();
    assert_eq!(known, vec![(call.who, true), (thief.who, false)]);
}

#[test]
fn a_reload_adds_a_cluster_and_takes_one_away() {
    let mut net = Net::world();
    let (call, from) = (far(7, OWNER, 3), client("203.0.113.9:40000"));
    let alone =
        "[[cluster]]\nid = 1\nname = \"here\"\n[[ingress]]\nid = 0\nipv4 = \"198.51.100.1:3478\"\n";
    net.start(INGRESS, 1, &[0], alone);
    assert_eq!(
        net.client(INGRESS, 0, from, &call.requests.good),
        Some(Reason::ForeignCluster)
    );
    let now = net.now;
    net.node(INGRESS).router.set_peers(now, peers(FLEET, 1));
    let check = uplink(&mut net, INGRESS, from, &call.requests.good);
    downlink(&mut net, &check, true, b"proof", INGRESS);
    net.node(INGRESS).router.set_peers(now, peers(alone, 1));
    net.client(INGRESS, 0, from, &rtp(1));
    assert!(net.run().0.is_empty());
    assert_eq!(net.drops(INGRESS, Reason::RelayGone), 1);
    // The way back is no peer's any more either.
    net.reply(&check, RecordKind::Packet, true, b"nobody");
    assert!(net.run().1.is_empty());
    assert_eq!(net.drops(INGRESS, Reason::RecordRelayed), 1);
    net.pass(40_000);
    assert_clean(&mut net);
}

#[test]
fn a_datagram_that_opens_behind_a_full_one_goes_to_the_relay_that_leads_now() {
    let mut net = Net::world();
    let (call, from) = (far(7, OWNER, 3), client("203.0.113.9:40000"));
    uplink(&mut net, INGRESS, from, &call.requests.good);
    // Two of these do not fit one datagram of Ethernet's size.
    let mut packet = rtp(1);
    packet.resize(1_000, 7);
    assert_eq!(net.client(INGRESS, 0, from, &packet), None);
    let first = "{ address = \"10.2.0.1\", cores = 2 }, ";
    let now = net.now;
    let changed = peers(&FLEET.replace(first, ""), 1);
    net.node(INGRESS).router.set_peers(now, changed);
    assert_eq!(net.client(INGRESS, 0, from, &packet), None);
    let by: Vec<_> = net.run().0.iter().map(|got| got.from.ip()).collect();
    assert_eq!(by, ["10.2.0.1:0", "10.2.0.2:0"].map(|at| hop(at).ip()));
}

/// The cluster's relay serves the address, too; a packet that names no session moves the flow there as a check does.
#[test]
fn a_packet_without_a_ufrag_takes_the_way_back_over_as_a_check_does() {
    let mut net = Net::world();
    let (call, from) = (far(7, OWNER, 3), client("203.0.113.9:40000"));
    let relay = core_of(&from);
    net.start(relay, 2, &[0], FLEET);
    let check = uplink(&mut net, INGRESS, from, &call.requests.good);
    downlink(&mut net, &check, true, b"proof", INGRESS);
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
    net.pass(40_000);
    assert_clean(&mut net);
}

#[test]
fn a_relay_that_a_reload_takes_away_gets_nothing_any_more() {
    for kind in [RecordKind::Packet, RecordKind::Close] {
        let mut net = Net::world();
        let (call, from) = (far(7, OWNER, 3), client("203.0.113.9:40000"));
        let relay = core_of(&from);
        let check = uplink(&mut net, INGRESS, from, &call.requests.good);
        downlink(&mut net, &check, true, b"proof", INGRESS);
        let without = FLEET.replace("{ address = \"10.1.0.1\", cores = 2 }, ", "");
        let now = net.now;
        net.node(relay).router.set_peers(now, peers(&without, 2));
        let sent = net.node(relay).sent;
        net.reply(&check, kind, false, b"nobody");
        assert!(net.run().1.is_empty());
        assert_eq!(net.node(relay).sent, sent);
        assert_eq!(net.drops(relay, Reason::PeerUnknown), 1, "{kind:?}");
        // By a relay that is listed it goes on.
        let moved = uplink(&mut net, SECOND_INGRESS, from, &call.requests.good);
        downlink(&mut net, &moved, true, b"here", SECOND_INGRESS);
        net.pass(40_000);
        assert_clean(&mut net);
    }
}

#[test]
fn an_owner_s_packet_that_no_client_takes_is_not_passed_to_its_relay() {
    let mut net = Net::world();
    let (call, from) = (far(7, OWNER, 3), client("203.0.113.9:40000"));
    let relay = core_of(&from);
    let check = uplink(&mut net, INGRESS, from, &call.requests.good);
    // The largest packet passes, in fragments if need be; and one that would not fit beside its owner's address does not.
    downlink(&mut net, &check, true, &[7; CLIENT_PACKET_MAX], INGRESS);
    net.reply(
        &check,
        RecordKind::Packet,
        true,
        &[7; CLIENT_PACKET_MAX + 1],
    );
    assert!(net.run().1.is_empty());
    assert_eq!(net.drops(relay, Reason::Oversize), 1);
    let end = [7; CLIENT_PACKET_MAX + 1];
    net.reply(&check, RecordKind::Close, false, &end);
    net.run();
    assert_eq!(net.drops(relay, Reason::Oversize), 2);
    net.pass(40_000);
    assert_clean(&mut net);
}

#[test]
fn a_full_table_of_trunks_refuses_what_is_relayed_and_loses_nothing_that_is_proven() {
    let mut net = Net::world();
    let from = client("203.0.113.9:40000");
    let relay = core_of(&from);
    net.start_with(relay, 2, &[], FLEET, |config| config.trunks = 2);
    net.start_with(INGRESS, 1, &[0], FLEET, |config| config.trunks = 3);
    // One trunk to the owner and one back: both are taken.
    let check = uplink(&mut net, INGRESS, from, &far(1, OWNER, 0).requests.good);
    downlink(&mut net, &check, true, b"proof", INGRESS);
    // A second owner in the same lane finds room here, and none there. So does a third one, in the place of the second.
    for (session, owner, evicted) in [(2, "10.2.9.2:5000", 0), (3, "10.2.9.3:5000", 1)] {
        net.pass(1_100);
        net.client(INGRESS, 0, from, &far(session, owner, 0).requests.good);
        assert!(net.run().0.is_empty());
        assert_eq!(
            net.drops(relay, Reason::TrunkTableFull),
            u64::from(session - 1)
        );
        let counters = net.node(INGRESS).router.counters();
        assert_eq!(counters.claims_evicted, evicted);
        assert_eq!(net.node(relay).router.counters().claims_evicted, 0);
    }
    // Once nothing but what is proven has trunks here, another lane finds none.
    downlink(&mut net, &check, true, b"proof again", INGRESS);
    let other = far(4, "10.2.9.4:5000", 1);
    let refused = net.client(INGRESS, 0, from, &other.requests.good);
    assert_eq!(refused, Some(Reason::TrunkTableFull));
    let got = uplink(&mut net, INGRESS, from, &rtp(1));
    assert_eq!(got.owner, check.owner);
    net.pass(40_000);
    assert_clean(&mut net);
}

/// A relay with the fleet's key names owners without end: what it made gives way to the next call, and nobody else.
#[test]
fn whoever_names_many_owners_keeps_no_call_from_a_new_one() {
    let mut net = Net::world();
    let mut clients = (40_000..)
        .map(|port| client(&format!("203.0.113.9:{port}")))
        .filter(|client| core_of(client) == "10.2.0.1:4000");
    let mut next = || clients.next().expect("ports enough");
    let relay = "10.2.0.1:4000";
    net.start_with(INGRESS, 1, &[0], FLEET, |config| config.flows = 512);
    net.start_with(relay, 2, &[], FLEET, |config| {
        config.trunks = 6;
        config.flows = 512;
    });
    let from = next();
    let check = uplink(&mut net, INGRESS, from, &far(1, OWNER, 0).requests.good);
    downlink(&mut net, &check, true, b"proof", INGRESS);
    // Claims that free no trunk when they go stand in front: more than one request looks at.
    let shared: Vec<_> = (0..EVICTION_LOOKS + 3).map(|_| next()).collect();
    for (session, client) in (100..).zip(&shared) {
        let call = far(session, OWNER, 0);
        uplink(&mut net, INGRESS, *client, &call.requests.good);
    }
    for session in 10..30 {
        let owner = format!("10.2.9.{session}:5000");
        let call = far(session, &owner, 0);
        let from = next();
        // The first that finds no trunk looks at those in front alone. Its client asks again.
        if session == 14 {
            assert_eq!(net.client(INGRESS, 0, from, &call.requests.good), None);
            assert!(net.run().0.is_empty());
        }
        let got = uplink(&mut net, INGRESS, from, &call.requests.good);
        assert_eq!(got.owner, call.who.owner);
        net.pass(1_100);
    }
    assert_eq!(net.drops(relay, Reason::TrunkTableFull), 1);
    let router = &net.node(relay).router;
    assert_eq!(router.trunk_count(), 6);
    // Two trunks are the call's, so four of the twenty are there.
    assert_eq!(router.counters().claims_evicted, 16);
    for client in shared {
        assert_eq!(claims(&mut net, relay, client).len(), 1);
    }
    let got = uplink(&mut net, INGRESS, from, &rtp(1));
    assert_eq!(
        (got.owner, got.header.handle),
        (check.owner, check.header.handle)
    );
    downlink(&mut net, &check, false, b"an answer", INGRESS);
    net.pass(40_000);
    assert_clean(&mut net);
}

/// However often a client asks for a trunk where none is to be had, calls that are being set up go on.
#[test]
fn a_full_table_of_trunks_takes_no_call_from_those_that_are_new() {
    let mut net = Net::world();
    let mut clients = (40_000..)
        .map(|port| client(&format!("203.0.113.9:{port}")))
        .filter(|client| core_of(client) == "10.2.0.1:4000");
    let mut next = || clients.next().expect("ports enough");
    let relay = "10.2.0.1:4000";
    net.start_with(relay, 2, &[], FLEET, |config| config.trunks = 3);
    let proven = uplink(&mut net, INGRESS, next(), &far(1, OWNER, 0).requests.good);
    downlink(&mut net, &proven, true, b"proof", INGRESS);
    // One call shares its trunk with the one that is proven, and one takes the last that is free.
    let sharing = next();
    uplink(&mut net, INGRESS, sharing, &far(2, OWNER, 0).requests.good);
    net.pass(1_100);
    let alone = next();
    let owner = "10.2.9.3:5000";
    uplink(&mut net, INGRESS, alone, &far(3, owner, 0).requests.good);
    let refused = next();
    for _ in 0..100 {
        let call = far(4, "10.2.9.4:5000", 0);
        assert_eq!(net.client(INGRESS, 0, refused, &call.requests.good), None);
        assert!(net.run().0.is_empty());
    }
    assert_eq!(net.drops(relay, Reason::TrunkTableFull), 100);
    assert_eq!(net.node(relay).router.counters().claims_evicted, 0);
    for from in [sharing, alone] {
        uplink(&mut net, INGRESS, from, &dtls(1));
    }
    net.pass(40_000);
    assert_clean(&mut net);
}

/// A hot restart of either relay: neither direction misses a packet.
#[test]
fn a_relayed_call_goes_on_when_its_relays_are_handed_over() {
    let mut net = Net::world();
    let (call, from) = (far(7, OWNER, 3), client("203.0.113.9:40000"));
    let relay = core_of(&from);
    let check = uplink(&mut net, INGRESS, from, &call.requests.good);
    downlink(&mut net, &check, true, b"proof", INGRESS);
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
    net.pass(40_000);
    assert_clean(&mut net);
}
