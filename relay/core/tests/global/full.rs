//! All trunks are taken: who is refused, who gives way, and who keeps its call.

use firsthop_relay_core::Reason;
use firsthop_relay_core::limits::EVICTION_LOOKS;
use firsthop_shared::address::ClientAddr;

use crate::net::{FLEET, Net};
use crate::world::{client, dtls, rtp};
use crate::{INGRESS, OWNER, claims, core_of, downlink, far, proven, uplink};

/// One client after the other, each of whose packets goes to this core.
fn clients_of(core: &str) -> impl FnMut() -> ClientAddr {
    let mut clients = (40_000..)
        .map(|port| client(&format!("203.0.113.9:{port}")))
        .filter(move |client| core_of(client) == core);
    move || clients.next().expect("ports enough")
}

#[test]
fn a_full_table_of_trunks_refuses_what_is_relayed_and_loses_nothing_that_is_proven() {
    let mut net = Net::world();
    let from = client("203.0.113.9:40000");
    let relay = core_of(&from);
    net.start_with(relay, 2, &[], FLEET, |config| config.trunks = 2);
    net.start_with(INGRESS, 1, &[0], FLEET, |config| config.trunks = 3);
    // One trunk to the owner and one back: both are taken.
    let check = proven(&mut net, &far(1, OWNER, 0), from);
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
    net.end();
}

/// A relay with the fleet's key names owners without end: what it made gives way to the next call, and nobody else.
#[test]
fn whoever_names_many_owners_keeps_no_call_from_a_new_one() {
    let mut net = Net::world();
    let relay = "10.2.0.1:4000";
    let mut next = clients_of(relay);
    net.start_with(INGRESS, 1, &[0], FLEET, |config| config.flows = 512);
    net.start_with(relay, 2, &[], FLEET, |config| {
        config.trunks = 6;
        config.flows = 512;
    });
    let from = next();
    let check = proven(&mut net, &far(1, OWNER, 0), from);
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
    net.end();
}

/// However often a client asks for a trunk where none is to be had, calls that are being set up go on.
#[test]
fn a_full_table_of_trunks_takes_no_call_from_those_that_are_new() {
    let mut net = Net::world();
    let relay = "10.2.0.1:4000";
    let mut next = clients_of(relay);
    net.start_with(relay, 2, &[], FLEET, |config| config.trunks = 3);
    proven(&mut net, &far(1, OWNER, 0), next());
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
    net.end();
}
