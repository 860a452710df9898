//! The flow cache in a real Redis: what survives a restart, what a cache may and may not do, and how little its absence does.

mod changes;
mod foreign;
mod outage;
mod reach;
mod refusals;

use std::time::{Duration, Instant};

use firsthop_shared::address::SessionId;
use firsthop_shared::trunk::{RecordHeader, RecordKind};

use crate::testbed::owner::{Owner, record};
use crate::testbed::process::RelayProcess;
use crate::testbed::redis::{Redis, Reply};
use crate::testbed::{Client, Testbed, dtls, need_two_processors, rtp, rtp_number, until};

type Settings = Vec<(&'static str, String)>;

fn with(redis: &Redis) -> Settings {
    vec![("--redis", redis.url())]
}

/// Starts a relay whose cache is up.
fn start(testbed: &Testbed, settings: &[(&'static str, String)]) -> RelayProcess {
    let relay = testbed.relay(settings);
    wait_up(&relay, 1);
    relay
}

fn wait_up(relay: &RelayProcess, up: u64) {
    until(&format!("redis_up is {up}"), || {
        (relay.whole("redis_up") == Some(up)).then_some(())
    });
}

fn key(client: &Client) -> String {
    format!("firsthop:flow:0:udp:{}", client.address())
}

/// The value that a relay writes for a session of an owner's first worker.
fn value(owner: &Owner, session: u32) -> String {
    format!("1 1 {} {} {session} 0", owner.address(), owner.shard)
}

/// A client's call, proven by its owner. Returns what the owner answers.
fn prove(testbed: &Testbed, owner: &mut Owner, client: &Client, session: u32) -> RecordHeader {
    client.send(
        testbed.public(0),
        &testbed.check(owner.address(), owner.shard.0, session),
    );
    let (hop, header, _) = owner.receive_one();
    assert_eq!(header.session, SessionId(session));
    let proof = RecordHeader {
        proven: true,
        ..header
    };
    owner.send(hop, &[(proof, &rtp(1))]);
    client.receive();
    header
}

/// Sends a packet, which reaches an owner's session that has heard nothing of the client: the cache must know where. Only when the
/// relay says that it has dropped it, because the cache was late on a machine without time for it, is it sent again.
fn arrives(
    testbed: &Testbed,
    relay: &RelayProcess,
    owner: &Owner,
    (client, session): (&Client, u32),
    number: u32,
) {
    let timeout = owner.socket.read_timeout().expect("its time-out");
    let soon = Some(Duration::from_millis(100));
    owner.socket.set_read_timeout(soon).expect("a time-out");
    let dropped = || -> u64 {
        let reasons = ["cache_late", "cache_miss", "no_flow_rtp"];
        reasons.iter().map(|reason| relay.drops(reason)).sum()
    };
    let mut seen = dropped();
    client.send(testbed.public(0), &rtp(number));
    until("a packet arrives", || {
        while let Ok(arrived) = owner.try_receive() {
            let is_it = |(header, payload): &(RecordHeader, Vec<u8>)| {
                (header.session, rtp_number(payload)) == (SessionId(session), number)
            };
            if arrived.records.iter().any(is_it) {
                return Some(());
            }
        }
        let now = dropped();
        if now > seen {
            seen = now;
            client.send(testbed.public(0), &rtp(number));
        }
        None
    });
    owner.socket.set_read_timeout(timeout).expect("a time-out");
}

/// Receives until a packet of this number comes.
fn wait_number(owner: &Owner, number: u32) {
    while rtp_number(&owner.receive_one().2) != number {}
}

fn answers(relay: &RelayProcess, answer: &str) -> u64 {
    relay.metric("redis_answers_total", Some(("answer", answer)))
}

fn restart_recalls(before: usize, after: usize) {
    let testbed = Testbed::new();
    let redis = Redis::start(&testbed, &[]);
    let cores = |count: usize| {
        let mut settings = with(&redis);
        settings.push(("--cores", count.to_string()));
        settings
    };
    let relay = start(&testbed, &cores(before));
    let mut owner = Owner::bind(testbed.owner_address(0));
    let clients: Vec<Client> = (0..8).map(|n| testbed.client(n)).collect();
    let mut headers = Vec::new();
    for (session, client) in clients.iter().enumerate() {
        headers.push(prove(&testbed, &mut owner, client, session as u32));
    }
    for (session, client) in clients.iter().enumerate() {
        redis.wait(&key(client), Some(&value(&owner, session as u32)));
    }
    relay.kill();

    let relay = start(&testbed, &cores(after));
    // No check, and nothing from the owner: the first packet finds its way, and the next one without the cache.
    for number in [1, 2] {
        for (session, client) in (0..).zip(&clients) {
            arrives(&testbed, &relay, &owner, (client, session), number);
        }
    }
    let all = clients.len() as u64;
    relay.wait_metric("claims_recalled_total", all);
    until("all answers were hits", || {
        (answers(&relay, "hit") >= all).then_some(())
    });
    assert_eq!(answers(&relay, "miss"), 0);
    // What was recalled is a hint. The owner proves it, and ends it.
    relay.wait_metric("flows_proven", 0);
    let hop = testbed.relay_internal(0);
    for (session, (header, client)) in headers.iter().zip(&clients).enumerate() {
        let proof = RecordHeader {
            proven: true,
            ..*header
        };
        // What is there after the proof has not been there from before.
        assert_eq!(redis.command(&["DEL", &key(client)]), Reply::Number(1));
        owner.send(hop, &[(proof, &rtp(3))]);
        assert_eq!(client.receive().1, rtp(3));
        redis.wait(&key(client), Some(&value(&owner, session as u32)));
    }
    relay.wait_metric("flows_proven", all);
    let close = RecordHeader {
        kind: RecordKind::Close,
        payload_len: 0,
        ..headers[0]
    };
    owner.send(hop, &[(close, &[])]);
    redis.wait(&key(&clients[0]), None);
    assert!(redis.get(&key(&clients[1])).is_some());
    relay.stop();
}

#[test]
fn a_relay_that_was_killed_routes_the_first_packet_of_a_proven_call_by_the_cache() {
    restart_recalls(1, 1);
}

#[test]
fn on_another_number_of_cores_the_right_core_recalls_a_call() {
    need_two_processors();
    restart_recalls(1, 2);
    restart_recalls(2, 1);
}

#[test]
fn an_entry_lives_for_a_minute() {
    let testbed = Testbed::new();
    let redis = Redis::start(&testbed, &[]);
    let relay = start(&testbed, &with(&redis));
    let mut owner = Owner::bind(testbed.owner_address(0));
    let client = testbed.client(0);
    let start = Instant::now();
    prove(&testbed, &mut owner, &client, 1);
    redis.wait(&key(&client), Some(&value(&owner, 1)));
    let Reply::Number(left) = redis.command(&["TTL", &key(&client)]) else {
        panic!("it lives for ever");
    };
    let passed = start.elapsed().as_secs() as i64 + 1;
    assert!((60 - passed..=60).contains(&left), "{left} s");
    relay.stop();
}

#[test]
fn who_has_no_entry_is_asked_about_once_and_dropped() {
    let testbed = Testbed::new();
    let redis = Redis::start(&testbed, &[]);
    let relay = start(&testbed, &with(&redis));
    let client = testbed.client(0);
    let start = Instant::now();
    let packets = 40;
    for number in 0..packets {
        client.send(testbed.public(0), &rtp(number));
    }
    let reasons = ["cache_miss", "cache_full", "cache_late", "no_flow_rtp"];
    let drops = || reasons.map(|reason| relay.drops(reason));
    until("all are dropped", || {
        (drops().iter().sum::<u64>() == u64::from(packets)).then_some(())
    });
    // Once a second: on a machine without time for this test it may take longer than one.
    let seconds = start.elapsed().as_secs() + 1;
    let asked = redis.calls("getrange");
    assert!((1..=seconds).contains(&asked), "{asked} in {seconds} s");
    let [_, full, _, known] = drops();
    assert!(full + known > 0, "no more wait than may: {:?}", drops());
    // After that second it is asked about again.
    until("another question", || {
        client.send(testbed.public(0), &dtls());
        (redis.calls("getrange") > asked).then_some(())
    });
    assert_eq!(relay.metric("flows", None), 0);
    relay.stop();
}

#[test]
fn a_flood_from_many_addresses_asks_a_bounded_number_of_questions() {
    const RATE: u64 = 50;
    const STRANGERS: u64 = 3_000;
    let testbed = Testbed::new();
    let redis = Redis::start(&testbed, &[]);
    let mut settings = with(&redis);
    settings.push(("--redis-questions", RATE.to_string()));
    let relay = start(&testbed, &settings);
    let mut owner = Owner::bind(testbed.owner_address(0));
    let live = testbed.client(0);
    prove(&testbed, &mut owner, &live, 1);
    let start = Instant::now();
    for number in 0..STRANGERS {
        testbed
            .client(1 + (number % 90) as u8)
            .send(testbed.public(0), &rtp(0));
        // A call that is up has no part in it. And when its packet is through, the relay's socket is empty.
        if number % 50 == 0 {
            live.send(testbed.public(0), &rtp(number as u32));
            assert_eq!(rtp_number(&owner.receive_one().2), number as u32);
        }
    }
    let reasons = ["cache_miss", "cache_full", "cache_late", "no_flow_rtp"];
    until("all are dropped", || {
        let drops = reasons.map(|reason| relay.drops(reason));
        (drops.iter().sum::<u64>() == STRANGERS).then_some(())
    });
    until("as many are asked as may be at once", || {
        (redis.calls("getrange") >= RATE / 4).then_some(())
    });
    let asked = redis.calls("getrange");
    let most = RATE * (start.elapsed().as_secs() + 1);
    assert!(asked <= most, "{asked} of {most}");
    let withheld = relay.metric("redis_questions_withheld_total", Some(("cause", "rate")));
    assert!(withheld > 0);
    relay.stop();
}

#[test]
fn what_no_relay_has_written_is_refused_and_counted() {
    let testbed = Testbed::new();
    let redis = Redis::start(&testbed, &[]);
    let relay = start(&testbed, &with(&redis));
    let owner = Owner::bind(testbed.owner_address(0));
    let outside = format!("1 1 {} 0 7 0", testbed.public(1));
    let foreign = format!("1 2 {} 0 7 0", owner.address());
    let padded = format!("{} ", value(&owner, 7));
    let huge = "1".repeat(1 << 20);
    let nonsense = ["x", "\u{7f}\u{ff}", &outside, &foreign, &padded, &huge];
    let clients: Vec<Client> = (0..=nonsense.len() as u8)
        .map(|n| testbed.client(n))
        .collect();
    for (client, text) in clients.iter().zip(nonsense) {
        redis.set(&key(client), text);
    }
    let list = &clients[nonsense.len()];
    assert_eq!(redis.command(&["RPUSH", &key(list), "x"]), Reply::Number(1));
    for client in &clients {
        client.send(testbed.public(0), &rtp(1));
    }
    let all = clients.len() as u64;
    until("every answer is refused", || {
        (answers(&relay, "refused") == all).then_some(())
    });
    until("every packet is dropped", || {
        let dropped = relay.drops("cache_refused") + relay.drops("cache_late");
        (dropped == all).then_some(())
    });
    assert_eq!(relay.metric("flows", None), 0);
    assert!(owner.is_empty());
    // It is none of the cache's faults: the next one is asked about as ever.
    let client = testbed.client(50);
    redis.set(&key(&client), &value(&owner, 7));
    arrives(&testbed, &relay, &owner, (&client, 7), 2);
    relay.stop();
}

#[test]
fn a_recalled_route_is_a_hint_that_the_next_proof_ends() {
    let testbed = Testbed::new();
    let redis = Redis::start(&testbed, &[]);
    let relay = start(&testbed, &with(&redis));
    let yesterday = Owner::bind(testbed.owner_address(1));
    let mut owner = Owner::bind(testbed.owner_address(0));
    let client = testbed.client(0);
    redis.set(&key(&client), &value(&yesterday, 9));
    arrives(&testbed, &relay, &yesterday, (&client, 9), 1);

    // A check of another session from there: packets go to both until one is proven.
    client.send(testbed.public(0), &testbed.check(owner.address(), 0, 1));
    let (hop, header, _) = owner.receive_one();
    client.send(testbed.public(0), &rtp(2));
    wait_number(&owner, 2);
    wait_number(&yesterday, 2);
    let proof = RecordHeader {
        proven: true,
        ..header
    };
    owner.send(hop, &[(proof, &rtp(3))]);
    client.receive();
    client.send(testbed.public(0), &rtp(4));
    assert_eq!(rtp_number(&owner.receive_one().2), 4);
    assert!(yesterday.is_empty());
    redis.wait(&key(&client), Some(&value(&owner, 1)));
    // What the cache says of a client that is known does not matter.
    redis.set(&key(&client), &value(&yesterday, 9));
    client.send(testbed.public(0), &rtp(5));
    assert_eq!(rtp_number(&owner.receive_one().2), 5);
    assert!(yesterday.is_empty());
    relay.stop();
}

/// An owner that was restarted at its address knows nothing of the session, and says so.
#[test]
fn an_entry_of_a_session_that_its_owner_does_not_know_is_removed() {
    let testbed = Testbed::new();
    let redis = Redis::start(&testbed, &[]);
    let relay = start(&testbed, &with(&redis));
    let mut owner = Owner::bind(testbed.owner_address(0));
    let client = testbed.client(0);
    redis.set(&key(&client), &value(&owner, 9));
    arrives(&testbed, &relay, &owner, (&client, 9), 1);
    let unknown = RecordHeader {
        kind: RecordKind::UnknownSession,
        ..record(client.address(), 0, 9)
    };
    owner.send(testbed.relay_internal(0), &[(unknown, &[])]);
    redis.wait(&key(&client), None);
    relay.wait_metric("flows", 0);
    relay.stop();
}

/// The relay takes the address over: the owner's next packet names the client, with a proof.
#[test]
fn a_flow_that_the_downlink_restores_as_proven_is_written() {
    let testbed = Testbed::new();
    let redis = Redis::start(&testbed, &[]);
    let relay = start(&testbed, &with(&redis));
    let mut owner = Owner::bind(testbed.owner_address(0));
    let client = testbed.client(0);
    let proof = RecordHeader {
        proven: true,
        ..record(client.address(), 0, 5)
    };
    owner.send(testbed.relay_internal(0), &[(proof, &rtp(1))]);
    client.receive();
    redis.wait(&key(&client), Some(&value(&owner, 5)));
    relay.stop();
}

#[test]
fn without_the_setting_there_is_nothing_of_it() {
    let testbed = Testbed::new();
    let relay = testbed.relay(&[]);
    let (_, metrics) = relay.page("/metrics");
    assert!(!metrics.contains("redis"), "{metrics}");
    let threads = std::fs::read_dir(format!("/proc/{}/task", relay.id())).expect("threads");
    for thread in threads {
        let name = thread.expect("a thread").path().join("comm");
        let name = std::fs::read_to_string(name).unwrap_or_default();
        assert_ne!(name.trim(), "relay-cache");
    }
    testbed.client(0).send(testbed.public(0), &rtp(1));
    relay.wait_drops("no_flow_rtp", 1);
    relay.stop();
}
