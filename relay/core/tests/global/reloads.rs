//! The fleet changes while calls are up.

use firsthop_relay_core::Reason;
use firsthop_shared::trunk::RecordKind;

use crate::net::{FLEET, Net, hop, peers};
use crate::world::{client, rtp};
use crate::{INGRESS, OWNER, SECOND_INGRESS, core_of, downlink, far, proven, uplink};

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
    let check = proven(&mut net, &call, from);
    net.node(INGRESS).router.set_peers(now, peers(alone, 1));
    net.client(INGRESS, 0, from, &rtp(1));
    assert!(net.run().0.is_empty());
    assert_eq!(net.drops(INGRESS, Reason::RelayGone), 1);
    // The way back is no peer's any more either.
    net.reply(&check, RecordKind::Packet, true, b"nobody");
    assert!(net.run().1.is_empty());
    assert_eq!(net.drops(INGRESS, Reason::RecordRelayed), 1);
    net.end();
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

#[test]
fn a_relay_that_a_reload_takes_away_gets_nothing_any_more() {
    for kind in [RecordKind::Packet, RecordKind::Close] {
        let mut net = Net::world();
        let (call, from) = (far(7, OWNER, 3), client("203.0.113.9:40000"));
        let relay = core_of(&from);
        let check = proven(&mut net, &call, from);
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
        net.end();
    }
}
