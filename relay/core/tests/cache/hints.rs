//! What an answer of the cache is worth: a hint, which takes nothing from anybody.

use super::*;

/// The hint of a cache touches nothing that is there, proven or not.
#[test]
fn an_answer_changes_no_flow_that_exists() {
    for proven in [false, true] {
        let mut relay = relay(&with_cache());
        let port = client("203.0.113.9:40000");
        let old = who(9, "10.0.0.9:5000", 0);
        let call = Call::plain(who(1, OWNER, 0));
        assert_eq!(wait(&mut relay, port, &rtp(1)), ASKED);
        // Meanwhile its next check comes.
        relay.receive(0, Transport::Udp, port, &call.requests.good);
        if proven {
            prove(&mut relay, call.who, port);
        }
        let found = Found::Entry(entry(old, 0));
        relay.router.answer(relay.now, flow(port), found);
        assert_eq!(relay.claims(0, port), [(call.who, proven)]);
        let (received, dropped) = go_on(&mut relay);
        assert_eq!(dropped, []);
        assert!(
            received.contains(&(call.who, rtp(1))),
            "it goes by the flow"
        );
        assert!(received.iter().all(|(who, _)| *who == call.who));
        assert_eq!(relay.router.counters().claims_recalled, 0);
    }
}

/// A session that is proven at the address of a hint displaces it, as it does any provisional claim.
#[test]
fn a_restored_hint_gives_way_to_a_proof() {
    let mut relay = relay(&with_cache());
    let port = client("203.0.113.9:40000");
    let old = who(9, "10.0.0.9:5000", 0);
    let call = Call::plain(who(1, OWNER, 0));
    assert_eq!(wait(&mut relay, port, &rtp(1)), ASKED);
    let found = Found::Entry(entry(old, 0));
    relay.router.answer(relay.now, flow(port), found);
    go_on(&mut relay);
    relay.deliver(0, port, &call.requests.good);
    // Nobody knows yet whose address it is.
    assert_eq!(relay.deliver(0, port, &rtp(2)), [call.who, old]);
    prove(&mut relay, call.who, port);
    assert_eq!(relay.deliver(0, port, &rtp(3)), [call.who]);
}

#[test]
fn hints_take_no_more_room_than_other_claims_without_proof() {
    let mut config = with_cache();
    config.flows = 16;
    let mut relay = relay(&config);
    let proven = Call::plain(who(1, OWNER, 0));
    let port = client("203.0.113.9:40000");
    relay.deliver(0, port, &proven.requests.good);
    prove(&mut relay, proven.who, port);
    for n in 0..20 {
        let port = client(&format!("203.0.113.10:{}", 1_000 + n));
        let found = Found::Entry(entry(who(n, OWNER, 0), 0));
        relay.router.answer(relay.now, flow(port), found);
    }
    let counts = relay.router.flow_counts();
    assert_eq!(counts.provisional, config.flows / PROVISIONAL_SHARE);
    assert_eq!(counts.proven, 1);
    assert_eq!(relay.claims(0, port), [(proven.who, true)]);
}

#[test]
fn a_hint_that_no_trunk_is_left_for_is_refused() {
    let mut config = with_cache();
    config.trunks = 1;
    let mut relay = relay(&config);
    let call = Call::plain(who(1, OWNER, 0));
    relay.deliver(0, client("203.0.113.9:40000"), &call.requests.good);
    let port = client("203.0.113.9:40001");
    assert_eq!(wait(&mut relay, port, &rtp(1)), ASKED);
    let found = Found::Entry(entry(who(2, "10.0.0.2:5000", 0), 0));
    relay.router.answer(relay.now, flow(port), found);
    assert_eq!(go_on(&mut relay).1, [Reason::CacheRefused]);
    assert_eq!(relay.router.counters().restores_refused, 1);
}

/// An answer that is too late for its packet is in time for the next one.
#[test]
fn a_late_hint_restores_the_flow_all_the_same() {
    let mut relay = relay(&with_cache());
    let port = client("203.0.113.9:40000");
    let call = Call::plain(who(1, OWNER, 0));
    assert_eq!(wait(&mut relay, port, &rtp(1)), ASKED);
    relay.now.0 += RECALL_WAIT.0;
    assert_eq!(go_on(&mut relay), (vec![], vec![Reason::CacheLate]));
    let found = Found::Entry(entry(call.who, 0));
    relay.router.answer(relay.now, flow(port), found);
    assert_eq!(relay.deliver(0, port, &rtp(2)), [call.who]);
    // Its question is counted once.
    let counted = relay.router.recall_counters().expect("a cache");
    let answers = counted.hits + counted.misses + counted.refused;
    assert_eq!((counted.questions, counted.late, answers), (1, 1, 0));
    assert_eq!(relay.router.counters().claims_recalled, 1);
}
