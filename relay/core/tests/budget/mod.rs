//! The budget of verifications: what strangers may take of a core, and whose checks are free of it.

use firsthop_relay_core::limits::{VERIFICATIONS_BURST, VERIFICATIONS_PER_MS};
use firsthop_relay_core::{Micros, Reason, Transport, Verdict};
use firsthop_shared::trunk::RecordKind;

use crate::world::{Call, Relay, client, record, who};
use crate::{ANY_HANDLE, OWNER, SECOND, proven_call};

/// A bounded number of requests from strangers is verified in a time, so that a flood of them takes a bounded share of the core
/// from the calls that are up; these calls' own checks are not counted.
#[test]
fn a_flood_of_requests_is_cut_and_costs_a_live_call_no_check() {
    let mut relay = Relay::plain();
    let live = Call::plain(who(1, OWNER, 0));
    proven_call(&mut relay, &live, "203.0.113.9:40000");
    let new = Call::plain(who(2, OWNER, 0));
    let stranger = |n: u32| client(&format!("198.51.100.7:{}", 10_000 + n));
    relay.now.0 += SECOND;
    relay.flush();
    for n in 0..VERIFICATIONS_BURST {
        let junk = match n % 2 {
            0 => (&new.requests.forged, Reason::UfragForged),
            _ => (&new.requests.wrong_integrity, Reason::StunIntegrity),
        };
        assert_eq!(relay.refuse(0, stranger(n), junk.0), junk.1);
    }
    for n in 0..3 {
        let good = &new.requests.good;
        assert_eq!(relay.refuse(0, stranger(n), good), Reason::VerifyBudget);
    }
    let from = client("203.0.113.9:40000");
    let (verdict, records) = relay.receive(0, Transport::Udp, from, &live.requests.good);
    assert!(matches!(verdict, Verdict::Forward(_)) && records == 1);
    assert_eq!(relay.flush().len(), 1);
    // Nor is a live address, which others can borrow, a way around the budget.
    let wrong = &live.requests.wrong_integrity;
    assert_eq!(relay.refuse(0, from, wrong), Reason::VerifyBudget);
    relay.now.0 += 1_000;
    relay.flush();
    for n in 0..VERIFICATIONS_PER_MS {
        let sessions = relay.deliver(0, stranger(n), &new.requests.good);
        assert_eq!(sessions, vec![new.who]);
    }
    let good = &new.requests.good;
    assert_eq!(relay.refuse(0, stranger(0), good), Reason::VerifyBudget);
}

/// Takes all that the budget of verifications has, from addresses of its own.
fn empty_the_budget(relay: &mut Relay) {
    let junk = Call::plain(who(99, "10.0.0.9:5000", 0)).requests.forged;
    for port in 1_000..=1_000 + VERIFICATIONS_BURST {
        let from = client(&format!("198.51.100.8:{port}"));
        relay.receive(0, Transport::Udp, from, &junk);
    }
    let from = client("198.51.100.8:999");
    assert_eq!(relay.refuse(0, from, &junk), Reason::VerifyBudget);
}

/// Whoever borrows a live call's address while the budget is empty takes nothing from the check that this call has free.
#[test]
fn a_borrowed_address_does_not_take_a_live_calls_free_check() {
    let mut relay = Relay::plain();
    let live = Call::plain(who(1, OWNER, 0));
    let spoofer = Call::plain(who(2, OWNER, 1));
    let from = client("203.0.113.9:40000");
    proven_call(&mut relay, &live, "203.0.113.9:40000");
    // A valid request for the spoofer's own session is bound beside it, and changes nothing in whose check is free.
    relay.deliver(0, from, &spoofer.requests.good);
    for second in 1..4 {
        relay.now = Micros(second * SECOND);
        relay.flush();
        empty_the_budget(&mut relay);
        let r = &spoofer.requests;
        for packet in [&r.wrong_integrity, &r.forged, &r.wrong_length, &r.good] {
            assert_eq!(relay.refuse(0, from, packet), Reason::VerifyBudget);
        }
        assert_eq!(
            relay.deliver(0, from, &live.requests.good),
            vec![live.who],
            "second {second}"
        );
    }
}

/// The free check goes with the call's ufrag through an ICE restart.
#[test]
fn after_an_ice_restart_the_new_ufrag_has_the_free_check() {
    let mut relay = Relay::plain();
    let before = Call::plain(who(1, OWNER, 0));
    let after = Call::new(before.who, before.cluster, 1, 1);
    let from = client("203.0.113.9:40000");
    proven_call(&mut relay, &before, "203.0.113.9:40000");
    assert_eq!(
        relay.deliver(0, from, &after.requests.good),
        vec![after.who]
    );
    relay.now.0 += SECOND;
    relay.flush();
    empty_the_budget(&mut relay);
    let old = &before.requests.good;
    assert_eq!(relay.refuse(0, from, old), Reason::VerifyBudget);
    assert_eq!(
        relay.deliver(0, from, &after.requests.good),
        vec![after.who]
    );
}

/// A relay that was restarted knows a call's address from its owner, and its ufrag from the first check that it verifies.
#[test]
fn a_restored_flow_gives_its_free_check_to_the_first_ufrag_that_verifies() {
    let mut relay = Relay::plain();
    relay.now.0 += SECOND;
    let live = Call::plain(who(1, OWNER, 0));
    let spoofer = Call::plain(who(2, OWNER, 1));
    let from = client("203.0.113.9:40000");
    let packet = record(RecordKind::Packet, live.who, 0, from, true, ANY_HANDLE);
    relay.down(live.who, &packet);
    assert_eq!(relay.claims(0, from), vec![(live.who, true)]);
    empty_the_budget(&mut relay);
    assert_eq!(relay.deliver(0, from, &live.requests.good), vec![live.who]);

    relay.now.0 += SECOND;
    relay.flush();
    empty_the_budget(&mut relay);
    let wrong = &spoofer.requests.wrong_integrity;
    assert_eq!(relay.refuse(0, from, wrong), Reason::VerifyBudget);
    assert_eq!(relay.deliver(0, from, &live.requests.good), vec![live.who]);
}
