//! What a relay takes from others, and what it does not.

use firsthop_relay_core::Reason;
use firsthop_shared::address::{BootId, FlowHandle, OwnerAddr, ShardId};
use firsthop_shared::trunk::{RecordHeader, RecordKind};

use crate::net::{FLEET, Net, hop};
use crate::world::{client, record, rtp, socket, who};
use crate::{INGRESS, OWNER, SECOND_INGRESS, claims, core_of, far, uplink};

/// A record as an ingress relay would send it up.
fn relayed(session: u32, owner: Option<&str>) -> RecordHeader {
    let mut header = record(
        RecordKind::Packet,
        who(session, OWNER, 0),
        0,
        client("203.0.113.9:40000"),
        false,
        FlowHandle(5),
    );
    header.owner = owner.map(|text| OwnerAddr::new(socket(text)));
    header
}

#[test]
fn what_no_listed_relay_may_send_is_refused_and_counted() {
    let to = "10.2.0.1:4000";
    let keepalive = RecordHeader {
        kind: RecordKind::Keepalive,
        ..relayed(1, None)
    };
    let inside_client = RecordHeader {
        client: client("10.3.3.3:9"),
        ..relayed(1, Some(OWNER))
    };
    let close = RecordHeader {
        kind: RecordKind::Close,
        ..relayed(1, Some(OWNER))
    };
    let cases: &[(&str, RecordHeader, &[u8], Reason)] = &[
        // Inside, with the right key, and in no list; also at another port of a relay that is.
        (
            "10.7.0.1:4000",
            relayed(1, Some(OWNER)),
            b"packet",
            Reason::PeerUnknown,
        ),
        (
            "10.1.0.1:4002",
            relayed(1, Some(OWNER)),
            b"packet",
            Reason::PeerUnknown,
        ),
        (
            "192.0.2.1:4000",
            relayed(1, Some(OWNER)),
            b"packet",
            Reason::TrunkSource,
        ),
        // A relay of the own cluster has nothing to relay here.
        (
            "10.2.0.2:4100",
            relayed(1, Some(OWNER)),
            b"packet",
            Reason::PeerUnknown,
        ),
        ("10.7.0.1:4000", keepalive, b"12345678", Reason::PeerUnknown),
        (
            INGRESS,
            relayed(1, Some("192.0.2.5:5000")),
            b"packet",
            Reason::RecordOwnerOutside,
        ),
        (INGRESS, relayed(1, None), b"packet", Reason::RecordNoOwner),
        // An owner that is a relay, of another cluster or of this one, or this very core.
        (
            INGRESS,
            relayed(1, Some("10.1.0.2:4000")),
            b"packet",
            Reason::RecordLoop,
        ),
        (
            INGRESS,
            relayed(1, Some("10.2.0.2:4102")),
            b"packet",
            Reason::RecordLoop,
        ),
        (INGRESS, relayed(1, Some(to)), b"packet", Reason::RecordLoop),
        (
            INGRESS,
            inside_client,
            b"packet",
            Reason::RecordClientInside,
        ),
        (
            INGRESS,
            relayed(1, Some(OWNER)),
            b"",
            Reason::RecordMalformed,
        ),
        (
            INGRESS,
            relayed(1, Some(OWNER)),
            &[7; 1_901],
            Reason::Oversize,
        ),
        (INGRESS, close, b"", Reason::RecordMalformed),
        (INGRESS, keepalive, &[7; 17], Reason::RecordMalformed),
    ];
    for (from, header, payload, reason) in cases {
        let mut net = Net::world();
        let bytes = net.datagram(BootId::of_relay(9), ShardId(0), &[(*header, payload)]);
        net.inject(hop(from), hop(to), bytes);
        let (owners, clients) = net.run();
        assert!(owners.is_empty() && clients.is_empty(), "{reason:?}");
        assert_eq!(net.drops(to, *reason), 1, "{reason:?} from {from}");
        net.assert_clean();
    }
}

#[test]
fn a_relay_that_serves_clients_alone_takes_nothing_from_others() {
    let mut net = Net::world();
    net.start_with("10.2.0.1:4000", 2, &[], FLEET, |config| {
        config.takes_relayed = false
    });
    let bytes = net.datagram(
        BootId::of_relay(9),
        ShardId(0),
        &[(relayed(1, Some(OWNER)), b"packet")],
    );
    net.inject(hop(INGRESS), hop("10.2.0.1:4000"), bytes);
    assert!(net.run().0.is_empty());
    assert_eq!(net.drops("10.2.0.1:4000", Reason::PeerRole), 1);
    // It answers no keepalive either: nobody shall count on it.
    net.start_with("10.2.0.1:4001", 2, &[], FLEET, |config| {
        config.takes_relayed = false
    });
    net.pass(5_000);
    let from = client("203.0.113.9:40000");
    let got = uplink(&mut net, INGRESS, from, &far(7, OWNER, 3).requests.good);
    assert_eq!(got.from.ip(), hop("10.2.0.2:4100").ip());
}

#[test]
fn what_comes_down_with_an_owner_is_taken_from_relays_of_other_clusters_alone() {
    let mut net = Net::world();
    let (call, from) = (far(7, OWNER, 3), client("203.0.113.9:40000"));
    let check = uplink(&mut net, INGRESS, from, &call.requests.good);
    let close = RecordHeader {
        kind: RecordKind::Close,
        owner: Some(call.who.owner),
        ..check.header
    };
    // From an owner, from a relay of the own cluster, and from a stranger.
    for source in ["10.1.9.1:5000", SECOND_INGRESS, "10.7.0.1:4000"] {
        let bytes = net.datagram(BootId::of_owner(3), ShardId(3), &[(close, b"")]);
        net.inject(hop(source), hop(INGRESS), bytes);
        net.run();
    }
    assert_eq!(net.drops(INGRESS, Reason::RecordRelayed), 3);
    // The right relay, and another owner or worker of that cluster.
    for (owner, shard) in [("10.2.9.2:5000", 3), (OWNER, 4)] {
        let other = RecordHeader {
            owner: Some(OwnerAddr::new(socket(owner))),
            ..close
        };
        let bytes = net.datagram(BootId::of_owner(4), ShardId(shard), &[(other, b"")]);
        net.inject(hop(core_of(&from)), hop(INGRESS), bytes);
        net.run();
    }
    // An owner of this cluster that claims to have the session.
    let straight = RecordHeader {
        owner: None,
        ..close
    };
    let bytes = net.datagram(BootId::of_owner(5), ShardId(3), &[(straight, b"")]);
    net.inject(hop(OWNER), hop(INGRESS), bytes);
    net.run();
    assert_eq!(claims(&mut net, INGRESS, from), vec![(call.who, false)]);
}

/// All records of a datagram are decided before they are packed.
#[test]
fn a_record_whose_claim_a_later_one_of_its_datagram_ends_is_dropped_and_counted() {
    let mut net = Net::world();
    let to = core_of(&client("203.0.113.9:40000"));
    // Three sessions of three owners at one address, which holds two: the third takes the place of the first.
    let owners = ["10.2.9.1:5000", "10.2.9.2:5000", "10.2.9.3:5000"];
    let headers = [1, 2, 3].map(|n: u32| relayed(n, Some(owners[n as usize - 1])));
    let records = headers.each_ref().map(|header| (*header, &b"packet"[..]));
    let bytes = net.datagram(BootId::of_relay(9), ShardId(0), &records);
    net.inject(hop(INGRESS), hop(to), bytes);
    let mut reached: Vec<_> = net.run().0.iter().map(|got| got.owner).collect();
    reached.sort();
    assert_eq!(reached, [1, 2].map(|at| OwnerAddr::new(socket(owners[at]))));
    assert_eq!(net.drops(to, Reason::TrunkGone), 1);
    net.end();
}

#[test]
fn a_datagram_that_is_sent_back_to_its_relay_is_refused() {
    let mut net = Net::world();
    let (call, from) = (far(7, OWNER, 3), client("203.0.113.9:40000"));
    let relay = core_of(&from);
    let check = uplink(&mut net, INGRESS, from, &call.requests.good);
    // What goes from one to the other, up and down, comes back under the receiver's name.
    net.client(INGRESS, 0, from, &rtp(1));
    let now = net.now;
    let up = net.take_sent(INGRESS, now);
    net.reply(&check, RecordKind::Packet, true, b"down");
    net.deliver_to(relay);
    let down = net.take_sent(relay, now);
    for (sender, receiver, bytes) in [(INGRESS, relay, up), (relay, INGRESS, down)] {
        net.inject(hop(receiver), hop(sender), bytes);
        let (owners, clients) = net.run();
        assert!(owners.is_empty() && clients.is_empty());
        assert_eq!(net.drops(sender, Reason::TrunkReflected), 1);
    }
}

#[test]
fn a_session_that_is_relayed_away_does_not_come_in_again() {
    let mut net = Net::world();
    let (call, from) = (far(7, OWNER, 3), client("203.0.113.9:40000"));
    uplink(&mut net, INGRESS, from, &call.requests.good);
    // The other relay sends it back, as if its owner were here.
    let looping = RecordHeader {
        session: call.who.session,
        ..relayed(7, Some(OWNER))
    };
    let bytes = net.datagram(BootId::of_relay(9), ShardId(3), &[(looping, b"packet")]);
    net.inject(hop(core_of(&from)), hop(INGRESS), bytes);
    assert!(net.run().0.is_empty());
    assert_eq!(net.drops(INGRESS, Reason::RecordLoop), 1);
}

#[test]
fn keepalives_of_strangers_and_answers_that_nobody_asked_for_do_nothing() {
    let mut net = Net::world();
    let answer = RecordHeader {
        kind: RecordKind::Keepalive,
        ..relayed(1, None)
    };
    for (source, payload) in [
        ("10.7.0.1:4000", &1u64.to_be_bytes()[..]),
        ("10.2.0.1:4000", &99u64.to_be_bytes()[..]),
        ("10.2.0.1:4000", b"short"),
    ] {
        let bytes = net.datagram(BootId::of_owner(9), ShardId(0), &[(answer, payload)]);
        net.inject(hop(source), hop(INGRESS), bytes);
        net.run();
    }
    assert_eq!(net.drops(INGRESS, Reason::RecordKeepalive), 3);
    assert_eq!(net.node(INGRESS).router.counters().peers_answered, 0);
}
