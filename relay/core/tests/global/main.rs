//! The Global Relay: relays of two clusters, whole datagrams between them, on virtual time.

mod cached;
mod full;
mod moving;
mod net;
mod random;
mod refused;
mod reloads;
#[path = "../world/mod.rs"]
mod world;

use firsthop_relay_core::{Reason, Steering};
use firsthop_shared::address::{ClientAddr, ClusterId, ShardId};
use firsthop_shared::limits::CLIENT_PACKET_MAX;
use firsthop_shared::trunk::RecordKind;

use net::{AtOwner, FLEET, Net, hop};
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

/// A call is set up: its client's check reaches the owner, who proves the address.
fn proven(net: &mut Net, call: &Call, from: ClientAddr) -> AtOwner {
    let check = uplink(net, INGRESS, from, &call.requests.good);
    downlink(net, &check, true, b"proof", INGRESS);
    check
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
        net.end();
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
        net.assert_clean();
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
    net.end();
}
