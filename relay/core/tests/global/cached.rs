//! The flow cache of an ingress site beside the Global Relay: calls of other clusters are in it, other relays' clients are not.

use firsthop_relay_core::{
    CacheConfig, Change, ChangeKind, Entry, FlowId, Found, RouterConfig, Transport,
};
use firsthop_shared::address::{ClientAddr, ClusterId, IngressId, Restart};
use firsthop_shared::trunk::RecordKind;

use crate::net::{FLEET, Net, hop};
use crate::world::{Call, client, rtp, who};
use crate::{INGRESS, OWNER, claims, core_of, downlink, uplink};

/// How often its session had restarted ICE.
const RESTARTS: u8 = 2;

fn with_cache(config: &mut RouterConfig) {
    config.cache = Some(CacheConfig { questions: 1_000 });
}

/// The world, in which the first ingress core and the relay that a client's packets go to have a cache.
fn world(from: &ClientAddr) -> Net {
    let mut net = Net::world();
    net.start_with(INGRESS, 1, &[0], FLEET, with_cache);
    net.start_with(core_of(from), 2, &[], FLEET, with_cache);
    net
}

fn call() -> Call {
    Call::new(who(7, OWNER, 3), ClusterId(2), 1, RESTARTS)
}

fn flow(client: ClientAddr) -> FlowId {
    FlowId {
        ingress: IngressId(0),
        transport: Transport::Udp,
        client,
    }
}

fn entry(call: &Call, restart: u8) -> Entry {
    Entry {
        cluster: ClusterId(2),
        owner: call.who.owner,
        shard: call.who.shard,
        session: call.who.session,
        restart: Restart(restart),
    }
}

fn changes(net: &mut Net, at: &str) -> Vec<Change> {
    let router = &mut net.node(at).router;
    std::iter::from_fn(|| router.take_change()).collect()
}

/// The ingress takes what the cache has for a client.
fn answer(net: &mut Net, from: ClientAddr, entry: Entry) {
    let now = net.now;
    let router = &mut net.node(INGRESS).router;
    router.answer(now, flow(from), Found::Entry(entry));
}

#[test]
fn an_ingress_writes_its_clients_calls_in_other_clusters_and_the_relay_there_writes_nothing() {
    let (call, from) = (call(), client("203.0.113.9:40000"));
    let mut net = world(&from);
    let relay = core_of(&from);
    let change = |kind, restart| Change {
        flow: flow(from),
        entry: entry(&call, restart),
        kind,
    };
    let check = uplink(&mut net, INGRESS, from, &call.requests.good);
    downlink(&mut net, &check, false, b"an answer", INGRESS);
    assert_eq!(changes(&mut net, INGRESS), []);
    downlink(&mut net, &check, true, b"a proof", INGRESS);
    assert_eq!(
        changes(&mut net, INGRESS),
        [change(ChangeKind::Proven, RESTARTS)]
    );
    assert_eq!(claims(&mut net, relay, from), [(call.who, true)]);

    for _ in 0..2 {
        net.pass(20_000);
        uplink(&mut net, INGRESS, from, &rtp(1));
    }
    assert_eq!(
        changes(&mut net, INGRESS),
        [change(ChangeKind::Alive, RESTARTS)]
    );

    net.reply(&check, RecordKind::Close, false, b"");
    net.run();
    assert_eq!(changes(&mut net, INGRESS), [change(ChangeKind::Closed, 0)]);
    assert_eq!(claims(&mut net, relay, from), []);
    assert_eq!(changes(&mut net, relay), []);
}

#[test]
fn an_entry_of_another_cluster_leads_to_a_relay_there_and_stays_a_hint() {
    let (call, from) = (call(), client("203.0.113.9:40000"));
    let mut net = world(&from);
    answer(&mut net, from, entry(&call, RESTARTS));
    assert_eq!(claims(&mut net, INGRESS, from), [(call.who, false)]);
    let got = uplink(&mut net, INGRESS, from, &rtp(1));
    assert_eq!((got.owner, got.shard), (call.who.owner, call.who.shard));
    assert_eq!(got.from, hop(core_of(&from)));
    downlink(&mut net, &got, true, b"a proof", INGRESS);
    assert_eq!(claims(&mut net, INGRESS, from), [(call.who, true)]);
    let written = changes(&mut net, INGRESS);
    assert_eq!(written.len(), 1);
    assert_eq!(written[0].entry, entry(&call, RESTARTS));
}

#[test]
fn an_entry_of_a_cluster_that_no_relay_leads_to_makes_no_claim() {
    let from = client("203.0.113.9:40000");
    for (cluster, relays_away) in [(9, true), (2, false)] {
        let mut net = Net::world();
        net.start_with(INGRESS, 1, &[0], FLEET, |config| {
            with_cache(config);
            config.relays_away = relays_away;
        });
        let entry = Entry {
            cluster: ClusterId(cluster),
            ..entry(&call(), 0)
        };
        answer(&mut net, from, entry);
        assert_eq!(claims(&mut net, INGRESS, from), []);
        let router = &net.node(INGRESS).router;
        assert_eq!(router.trunk_count(), 0);
        assert_eq!(router.counters().claims_recalled, 0);
    }
}
