//! A router with a flow cache: what it tells the cache, what it asks, and how far it trusts the answers.

mod hints;
#[path = "../world/mod.rs"]
mod world;

use firsthop_relay_core::limits::{
    EXPIRY_BUDGET, PROVISIONAL_SHARE, RECALL_DENIED, RECALL_PACKETS_PER_CLIENT, RECALL_WAIT,
};
use firsthop_relay_core::{
    CacheConfig, Change, ChangeKind, DownVerdict, Entry, FlowId, Found, Micros, Placement, Reason,
    Recalled, RouterConfig, Steering, Transport, Verdict,
};
use firsthop_shared::address::{ClientAddr, ClusterId, FlowHandle, IngressId, Restart};
use firsthop_shared::trunk::RecordKind;
use world::{
    CLUSTER, Call, Relay, Who, client, config, dtls, keyring, record, rtp, stun_indication, who,
};

const OWNER: &str = "10.0.0.1:5000";
const SECOND: u64 = 1_000_000;
const ANY_HANDLE: FlowHandle = FlowHandle(0);

fn with_cache() -> RouterConfig {
    let mut config = config();
    config.cache = Some(CacheConfig { questions: 1_000 });
    config
}

fn relay(config: &RouterConfig) -> Relay {
    Relay::new(config, keyring(&[2, 1]), Micros(0))
}

fn flow(client: ClientAddr) -> FlowId {
    FlowId {
        ingress: IngressId(0),
        transport: Transport::Udp,
        client,
    }
}

fn entry(who: Who, restart: u8) -> Entry {
    Entry {
        cluster: CLUSTER,
        owner: who.owner,
        shard: who.shard,
        session: who.session,
        restart: Restart(restart),
    }
}

fn change(kind: ChangeKind, client: ClientAddr, who: Who, restart: u8) -> Change {
    Change {
        flow: flow(client),
        entry: entry(who, restart),
        kind,
    }
}

fn changes(relay: &mut Relay) -> Vec<Change> {
    std::iter::from_fn(|| relay.router.take_change()).collect()
}

/// A packet of a client that is not known, in a frame that stays taken while it waits.
fn wait(relay: &mut Relay, client: ClientAddr, packet: &[u8]) -> Recalled {
    let source = relay.router.source(IngressId(0), Transport::Udp, client);
    let verdict = relay.router.uplink(relay.now, &source, packet);
    let Verdict::Unknown(reason) = verdict else {
        panic!("{client} is known, or the packet is dropped: {verdict:?}");
    };
    let id = relay.take_frame(packet);
    let buffer = firsthop_relay_core::BufferId(id);
    let recalled = relay
        .router
        .recall(relay.now, &source, reason, buffer, packet.len() as u16);
    if !recalled.held {
        relay.free.push(id);
    }
    recalled
}

/// Lets those packets go on whose wait is over, and returns what owners get and why the others are dropped.
fn go_on(relay: &mut Relay) -> (Vec<(Who, Vec<u8>)>, Vec<Reason>) {
    relay.router.end_waits(relay.now);
    let mut dropped = Vec::new();
    while let Some((buffer, len, verdict)) = relay.router.take_recalled(relay.now) {
        match verdict {
            Verdict::Forward(forward) => {
                relay.pack_frame(&forward, buffer.0, usize::from(len));
            }
            Verdict::Drop(reason) => {
                relay.free.push(buffer.0);
                dropped.push(reason);
            }
            Verdict::Unknown(_) => panic!("it has waited already"),
        }
    }
    relay.router.flush(relay.now, true);
    let received = relay.send_ready();
    let received = received.into_iter().map(|one| (one.who(), one.payload));
    (received.collect(), dropped)
}

const ASKED: Recalled = Recalled {
    ask: true,
    held: true,
};

const HELD: Recalled = Recalled {
    ask: false,
    held: true,
};

const DROPPED: Recalled = Recalled {
    ask: false,
    held: false,
};

fn prove(relay: &mut Relay, who: Who, client: ClientAddr) {
    let proof = record(RecordKind::Packet, who, 0, client, true, ANY_HANDLE);
    assert_eq!(relay.down(who, &proof), DownVerdict::Send);
}

#[test]
fn a_flow_is_written_when_it_is_proven_and_not_before() {
    let mut relay = relay(&with_cache());
    let port = client("203.0.113.9:40000");
    let call = Call::new(who(1, OWNER, 3), CLUSTER, 1, 2);
    relay.deliver(0, port, &call.requests.good);
    relay.deliver(0, port, &rtp(1));
    let unproven = record(RecordKind::Packet, call.who, 0, port, false, ANY_HANDLE);
    relay.down(call.who, &unproven);
    assert_eq!(changes(&mut relay), []);
    prove(&mut relay, call.who, port);
    let written = change(ChangeKind::Proven, port, call.who, 2);
    assert_eq!(changes(&mut relay), [written]);
    // Proven again it is the same as before.
    prove(&mut relay, call.who, port);
    assert_eq!(changes(&mut relay), []);
}

#[test]
fn the_proof_of_another_session_at_an_address_writes_that_one() {
    let mut relay = relay(&with_cache());
    let port = client("203.0.113.9:40000");
    let calls = [1, 2].map(|session| Call::plain(who(session, OWNER, 0)));
    for call in &calls {
        relay.deliver(0, port, &call.requests.good);
        prove(&mut relay, call.who, port);
        let written = change(ChangeKind::Proven, port, call.who, 0);
        assert_eq!(changes(&mut relay), [written]);
    }
}

/// Takes it over from another relay, or after a restart: then this relay is the client's ingress.
#[test]
fn a_flow_that_a_proven_record_restores_is_written_and_one_without_proof_is_not() {
    let mut relay = relay(&with_cache());
    let (port, other) = (client("203.0.113.9:40000"), client("203.0.113.9:40001"));
    let (proven, unproven) = (who(1, OWNER, 0), who(2, OWNER, 0));
    prove(&mut relay, proven, port);
    let hint = record(RecordKind::Packet, unproven, 0, other, false, ANY_HANDLE);
    relay.down(unproven, &hint);
    let written = change(ChangeKind::Proven, port, proven, 0);
    assert_eq!(changes(&mut relay), [written]);
}

/// Runs a relay for `seconds`, in which a client sends every `every` seconds, and returns when its flow was said to be alive.
fn alive_at(relay: &mut Relay, port: ClientAddr, seconds: u64, every: u64) -> Vec<u64> {
    let mut times = Vec::new();
    let start = relay.now.0;
    let mut next = 0;
    while relay.now.0 < start + seconds * SECOND {
        relay.now.0 += 10_000;
        let passed = relay.now.0 - start;
        if passed >= next {
            next += every * SECOND;
            relay.receive(0, Transport::Udp, port, &rtp(1));
            relay.flush();
        }
        relay.router.expire(relay.now, EXPIRY_BUDGET);
        for change in changes(relay) {
            assert_eq!((change.kind, change.flow), (ChangeKind::Alive, flow(port)));
            times.push(passed);
        }
    }
    times
}

#[test]
fn a_long_flow_is_renewed_after_half_the_life_of_its_entry() {
    for every in [1, 7, 20, 29] {
        let mut relay = relay(&with_cache());
        let port = client("203.0.113.9:40000");
        let call = Call::new(who(1, OWNER, 3), CLUSTER, 1, 2);
        relay.deliver(0, port, &call.requests.good);
        prove(&mut relay, call.who, port);
        changes(&mut relay);
        let times = alive_at(&mut relay, port, 600, every);
        let mut last = 0;
        for time in &times {
            assert!(time - last <= 35 * SECOND, "{times:?} every {every} s");
            last = *time;
        }
        assert!(600 * SECOND - last <= 35 * SECOND);
        // With packets that come often, no more than two a minute.
        if every == 1 {
            assert!(times.len() <= 20, "{times:?}");
        }
    }
}

#[test]
fn a_renewed_entry_says_what_the_first_one_said() {
    let mut relay = relay(&with_cache());
    let port = client("[2001:db8::9]:40000");
    let call = Call::new(who(1, "[fd00::7]:5000", 3), CLUSTER, 1, 2);
    relay.deliver(0, port, &call.requests.good);
    prove(&mut relay, call.who, port);
    relay.now.0 += 20 * SECOND;
    relay.deliver(0, port, &rtp(1));
    relay.now.0 += 15 * SECOND;
    while relay.router.expire(relay.now, EXPIRY_BUDGET) {}
    let all = changes(&mut relay);
    let expected = [ChangeKind::Proven, ChangeKind::Alive];
    assert_eq!(all, expected.map(|kind| change(kind, port, call.who, 2)));
}

#[test]
fn a_flow_that_is_not_proven_or_over_is_not_renewed() {
    let mut relay = relay(&with_cache());
    let port = client("203.0.113.9:40000");
    let call = Call::plain(who(1, OWNER, 0));
    relay.deliver(0, port, &call.requests.good);
    assert!(alive_at(&mut relay, port, 100, 1).is_empty());
    prove(&mut relay, call.who, port);
    changes(&mut relay);
    let times = alive_at(&mut relay, port, 200, 1_000);
    // Its last packet and its end lie 30 s apart.
    assert!(times.len() <= 1, "{times:?}");
    assert_eq!(relay.router.flow_counts().flows, 0);
}

#[test]
fn an_owner_that_ends_a_session_or_does_not_know_it_removes_its_entry() {
    for kind in [RecordKind::Close, RecordKind::UnknownSession] {
        let mut relay = relay(&with_cache());
        let port = client("203.0.113.9:40000");
        let call = Call::new(who(1, OWNER, 0), CLUSTER, 1, 2);
        relay.deliver(0, port, &call.requests.good);
        prove(&mut relay, call.who, port);
        changes(&mut relay);
        let end = record(kind, call.who, 0, port, false, ANY_HANDLE);
        let closed = change(ChangeKind::Closed, port, call.who, 0);
        relay.down(call.who, &end);
        assert_eq!(changes(&mut relay), [closed]);
        // A relay that has been restarted does not know the flow, and the entry must go all the same.
        relay.down(call.who, &end);
        assert_eq!(changes(&mut relay), [closed]);
    }
}

#[test]
fn what_belongs_to_another_core_is_that_cores_to_write() {
    let mut config = with_cache();
    let steering = Steering::new(7, 2);
    let port = client("203.0.113.9:40000");
    let core = steering.core_for(&port);
    let end = |relay: &mut Relay, kind| {
        let who = who(1, OWNER, 0);
        let record = record(kind, who, 0, port, true, ANY_HANDLE);
        relay.down(who, &record)
    };
    config.placement = Some(Placement {
        steering,
        core: 1 - core,
    });
    let mut stranger = relay(&config);
    assert_eq!(
        end(&mut stranger, RecordKind::Packet),
        DownVerdict::SendAndNote(core)
    );
    assert_eq!(
        end(&mut stranger, RecordKind::Close),
        DownVerdict::Note(core)
    );
    assert_eq!(changes(&mut stranger), []);
    config.placement = Some(Placement { steering, core });
    let mut own = relay(&config);
    end(&mut own, RecordKind::Packet);
    end(&mut own, RecordKind::Close);
    let kinds: Vec<_> = changes(&mut own).iter().map(|c| c.kind).collect();
    assert_eq!(kinds, [ChangeKind::Proven, ChangeKind::Closed]);
}

#[test]
fn the_packets_of_a_client_wait_for_one_answer_and_go_on_in_order() {
    let mut relay = relay(&with_cache());
    let port = client("203.0.113.9:40000");
    let call = Call::plain(who(1, OWNER, 3));
    let packets = [rtp(1), dtls(2), stun_indication(), rtp(4)];
    assert_eq!(wait(&mut relay, port, &packets[0]), ASKED);
    for packet in &packets[1..] {
        assert_eq!(wait(&mut relay, port, packet), HELD);
    }
    assert_eq!(go_on(&mut relay), (vec![], vec![]));
    relay
        .router
        .answer(relay.now, flow(port), Found::Entry(entry(call.who, 2)));
    let (received, dropped) = go_on(&mut relay);
    let expected = packets.map(|packet| (call.who, packet));
    assert_eq!((received, dropped), (expected.to_vec(), vec![]));
    // A hint proves nothing.
    assert_eq!(relay.claims(0, port), [(call.who, false)]);
    assert_eq!(changes(&mut relay), []);
    assert_eq!(relay.deliver(0, port, &rtp(5)), [call.who]);
    // The owner does, and the entry is this relay's from now on, with what was known of the session.
    prove(&mut relay, call.who, port);
    assert_eq!(relay.claims(0, port), [(call.who, true)]);
    let written = change(ChangeKind::Proven, port, call.who, 2);
    assert_eq!(changes(&mut relay), [written]);
    let counted = relay.router.recall_counters().expect("a cache");
    assert_eq!((counted.questions, counted.hits, counted.waited), (1, 1, 4));
    assert_eq!(relay.router.counters().claims_recalled, 1);
    assert_eq!(relay.free.len(), 4, "every buffer is back");
}

#[test]
fn packets_beyond_those_that_may_wait_are_dropped_and_counted() {
    let mut relay = relay(&with_cache());
    let port = client("203.0.113.9:40000");
    assert_eq!(wait(&mut relay, port, &rtp(0)), ASKED);
    for n in 1..RECALL_PACKETS_PER_CLIENT {
        assert_eq!(wait(&mut relay, port, &rtp(n)), HELD);
    }
    assert_eq!(wait(&mut relay, port, &rtp(99)), DROPPED);
    assert_eq!(relay.router.counters().drops(Reason::CacheFull), 1);
}

#[test]
fn who_is_not_in_the_cache_is_dropped_and_not_asked_about_for_a_second() {
    let mut relay = relay(&with_cache());
    let port = client("203.0.113.9:40000");
    assert_eq!(wait(&mut relay, port, &rtp(1)), ASKED);
    relay.router.answer(relay.now, flow(port), Found::Nothing);
    assert_eq!(go_on(&mut relay), (vec![], vec![Reason::CacheMiss]));
    assert_eq!(wait(&mut relay, port, &rtp(2)), DROPPED);
    assert_eq!(relay.router.counters().drops(Reason::NoFlowRtp), 1);
    relay.now.0 += RECALL_DENIED.0;
    assert_eq!(wait(&mut relay, port, &rtp(3)), ASKED);
    // No answer at all.
    relay.now.0 += RECALL_WAIT.0;
    assert_eq!(go_on(&mut relay), (vec![], vec![Reason::CacheLate]));
    let counted = relay.router.recall_counters().expect("a cache");
    assert_eq!((counted.questions, counted.misses, counted.late), (2, 1, 1));
    assert_eq!(relay.router.flow_counts().flows, 0);
}

#[test]
fn an_entry_that_a_record_could_not_have_made_is_refused() {
    let good = entry(who(1, OWNER, 3), 0);
    let outside = entry(who(1, "203.0.113.77:5000", 3), 0);
    let foreign = Entry {
        cluster: ClusterId(2),
        ..good
    };
    for found in [
        Found::Nonsense,
        Found::Entry(outside),
        Found::Entry(foreign),
    ] {
        let mut relay = relay(&with_cache());
        let port = client("203.0.113.9:40000");
        assert_eq!(wait(&mut relay, port, &rtp(1)), ASKED);
        relay.router.answer(relay.now, flow(port), found);
        assert_eq!(go_on(&mut relay), (vec![], vec![Reason::CacheRefused]));
        let counted = relay.router.recall_counters().expect("a cache");
        assert_eq!((counted.refused, counted.hits), (1, 0), "{found:?}");
        assert_eq!(relay.router.flow_counts().flows, 0);
        assert_eq!(relay.router.trunk_count(), 0);
    }
}

#[test]
fn a_client_inside_the_internal_networks_is_neither_asked_about_nor_restored() {
    let mut relay = relay(&with_cache());
    let inside = client("10.1.2.3:40000");
    assert_eq!(wait(&mut relay, inside, &rtp(1)), DROPPED);
    assert_eq!(relay.router.counters().drops(Reason::NoFlowRtp), 1);
    let found = Found::Entry(entry(who(1, OWNER, 3), 0));
    relay.router.answer(relay.now, flow(inside), found);
    assert_eq!(relay.router.flow_counts().flows, 0);
}

/// Fault 9: a spoofed ClientHello makes no state, whatever the cache says of others.
#[test]
fn a_flood_of_unknown_clients_makes_no_flow() {
    let mut relay = relay(&with_cache());
    let mut asked = 0;
    for n in 0..5_000u32 {
        let [.., high, low] = n.to_be_bytes();
        let port = client(&format!("198.18.{high}.{low}:4000"));
        asked += u64::from(wait(&mut relay, port, &dtls(1)).ask);
    }
    assert!(asked < 1_000, "no more than the rate allows: {asked}");
    relay.now.0 += RECALL_WAIT.0;
    while !go_on(&mut relay).1.is_empty() {}
    assert_eq!(relay.router.flow_counts().flows, 0);
    assert_eq!(relay.router.trunk_count(), 0);
    let counted = relay.router.recall_counters().expect("a cache");
    assert_eq!(counted.questions, asked);
    assert_eq!(relay.router.counters().drops_total(), 5_000);
}

#[test]
fn without_a_cache_nothing_is_asked_or_told() {
    let mut relay = Relay::plain();
    let port = client("203.0.113.9:40000");
    let call = Call::plain(who(1, OWNER, 0));
    assert_eq!(relay.refuse(0, port, &rtp(1)), Reason::NoFlowRtp);
    assert_eq!(relay.refuse(0, port, &dtls(1)), Reason::NoFlowDtls);
    relay.deliver(0, port, &call.requests.good);
    prove(&mut relay, call.who, port);
    assert_eq!(changes(&mut relay), []);
    assert_eq!(relay.router.recall_counters(), None);
    assert_eq!(relay.router.take_recalled(relay.now), None);
}

#[test]
fn too_few_questions_are_refused_at_the_start() {
    let mut config = config();
    config.cache = Some(CacheConfig { questions: 9 });
    let refused = firsthop_relay_core::Router::new(&config, keyring(&[1]), Micros(0));
    let error = refused.err().expect("refused").to_string();
    assert!(error.contains("10 questions"), "{error}");
}
