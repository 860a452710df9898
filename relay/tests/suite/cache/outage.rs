//! Redis dies, hangs, forgets: calls go on, the log has one line, a metric says so, and it is found again.

use crate::testbed::owner::Owner;
use crate::testbed::process::RelayProcess;
use crate::testbed::redis::{Redis, Reply};
use crate::testbed::{Client, Testbed, rtp, rtp_number, until};

use super::{answers, arrives, key, prove, start, value, wait_up, with};

const GONE: &str = "the flow cache is out of reach";
const BACK: &str = "the flow cache is up again";
const REFUSES: &str = "refuses what is written to it";

fn lines(relay: &RelayProcess, text: &str) -> usize {
    relay.log().matches(text).count()
}

fn wait_lines(relay: &RelayProcess, text: &str, count: usize) {
    until(&format!("{count} or more lines say that {text}"), || {
        (lines(relay, text) >= count).then_some(())
    });
}

/// One line says what the test has brought about. A Redis without processor time for two seconds is an outage more, which is none
/// of the test's; a line for each attempt or packet would be many.
fn assert_few_warnings(log: &str, text: &str) {
    let warnings: Vec<&str> = log.lines().filter(|line| line.contains(" WARN ")).collect();
    let known = |line: &&str| line.contains(text) || line.contains(GONE);
    assert!(warnings.iter().all(known), "{log}");
    assert!(warnings.iter().any(|line| line.contains(text)), "{log}");
    assert!(warnings.len() <= 3, "{log}");
}

/// A call that goes on, in both directions.
struct Call<'a> {
    testbed: &'a Testbed,
    owner: Owner,
    client: Client,
}

impl<'a> Call<'a> {
    fn new(testbed: &'a Testbed) -> Self {
        let mut owner = Owner::bind(testbed.owner_address(0));
        let client = testbed.client(0);
        prove(testbed, &mut owner, &client, 1);
        Self {
            testbed,
            owner,
            client,
        }
    }

    fn exchange(&mut self) {
        for number in 0..50 {
            self.client.send(self.testbed.public(0), &rtp(number));
            let (hop, header, payload) = self.owner.receive_one();
            assert_eq!(rtp_number(&payload), number);
            self.owner.send(hop, &[(header, &payload)]);
            assert_eq!(rtp_number(&self.client.receive().1), number);
        }
    }
}

#[test]
fn a_redis_that_dies_costs_live_calls_nothing_and_is_found_again() {
    let testbed = Testbed::new();
    let redis = Redis::start(&testbed, &[]);
    let relay = start(&testbed, &with(&redis));
    let mut call = Call::new(&testbed);
    redis.kill();
    call.exchange();
    wait_up(&relay, 0);
    wait_lines(&relay, GONE, 1);
    call.exchange();
    // Nobody waits for a cache that is out of reach, and what it should learn is dropped by name.
    testbed.client(1).send(testbed.public(0), &rtp(1));
    relay.wait_drops("no_flow_rtp", 1);
    let second = testbed.client(2);
    prove(&testbed, &mut call.owner, &second, 2);
    until("the change is dropped", || {
        let dropped = relay.metric("redis_write_drops_total", Some(("cause", "unreachable")));
        (dropped > 0).then_some(())
    });

    let redis = Redis::start(&testbed, &[]);
    wait_up(&relay, 1);
    wait_lines(&relay, BACK, 1);
    call.exchange();
    let third = testbed.client(3);
    prove(&testbed, &mut call.owner, &third, 3);
    redis.wait(&key(&third), Some(&value(&call.owner, 3)));
    assert_few_warnings(&relay.stop_warned(), GONE);
}

#[test]
fn a_redis_that_hangs_costs_live_calls_nothing_and_is_found_again() {
    let testbed = Testbed::new();
    let redis = Redis::start(&testbed, &[]);
    let relay = start(&testbed, &with(&redis));
    let mut call = Call::new(&testbed);
    redis.signal("STOP");
    // Who is unknown now waits for an answer that does not come, and no longer than a packet may.
    testbed.client(1).send(testbed.public(0), &rtp(1));
    call.exchange();
    until("its packet is dropped", || {
        let late = relay.drops("cache_late") + relay.drops("no_flow_rtp");
        (late == 1).then_some(())
    });
    wait_up(&relay, 0);
    wait_lines(&relay, GONE, 1);
    call.exchange();
    redis.signal("CONT");
    wait_up(&relay, 1);
    wait_lines(&relay, BACK, 1);
    let second = testbed.client(2);
    prove(&testbed, &mut call.owner, &second, 2);
    redis.wait(&key(&second), Some(&value(&call.owner, 2)));
    assert_few_warnings(&relay.stop_warned(), GONE);
}

#[test]
fn a_redis_that_forgets_everything_costs_live_calls_nothing() {
    let testbed = Testbed::new();
    let redis = Redis::start(&testbed, &[]);
    let relay = start(&testbed, &with(&redis));
    let mut call = Call::new(&testbed);
    redis.wait(&key(&call.client), Some(&value(&call.owner, 1)));
    redis.command(&["FLUSHALL"]);
    call.exchange();
    assert_eq!(redis.get(&key(&call.client)), None);
    let second = testbed.client(2);
    prove(&testbed, &mut call.owner, &second, 2);
    redis.wait(&key(&second), Some(&value(&call.owner, 2)));
    assert_eq!(relay.whole("redis_up"), Some(1));
    relay.stop();
}

#[test]
fn a_redis_that_is_not_there_at_the_start_is_found_later() {
    let testbed = Testbed::new();
    let url = format!("redis://{}", testbed.redis());
    let relay = testbed.relay(&[("--redis", url)]);
    let mut call = Call::new(&testbed);
    call.exchange();
    wait_lines(&relay, GONE, 1);
    assert_eq!(relay.whole("redis_up"), Some(0));
    let _redis = Redis::start(&testbed, &[]);
    wait_up(&relay, 1);
    wait_lines(&relay, BACK, 1);
    assert_few_warnings(&relay.stop_warned(), GONE);
}

/// It is full, or a replica: it answers, but takes nothing.
#[test]
fn a_redis_that_refuses_changes_is_reported_once_and_asked_all_the_same() {
    let testbed = Testbed::new();
    let redis = Redis::start(&testbed, &[]);
    let relay = start(&testbed, &with(&redis));
    let mut owner = Owner::bind(testbed.owner_address(0));
    let known = testbed.client(9);
    redis.set(&key(&known), &value(&owner, 9));
    let full = redis.command(&["CONFIG", "SET", "maxmemory", "1"]);
    assert_eq!(full, Reply::Text("OK".to_owned()));
    for session in 1..4 {
        prove(
            &testbed,
            &mut owner,
            &testbed.client(session),
            u32::from(session),
        );
        until("the change is refused", || {
            let refused = relay.metric("redis_write_drops_total", Some(("cause", "refused")));
            (refused >= u64::from(session)).then_some(())
        });
    }
    wait_lines(&relay, REFUSES, 1);
    arrives(&testbed, &relay, &owner, (&known, 9), 1);
    let log = relay.stop_warned();
    assert_few_warnings(&log, REFUSES);
    assert!(log.contains("OOM"), "{log}");
}

/// Its user may write, but not read.
#[test]
fn a_redis_that_refuses_questions_is_reported_once_and_written_to_all_the_same() {
    let testbed = Testbed::new();
    let rights = "+ping +get +set +del +eval";
    let mut settings = vec!["--user", "relay", "on", ">horse", "~firsthop:flow:*"];
    settings.extend(rights.split(' '));
    let redis = Redis::start(&testbed, &settings);
    let url = format!("redis://relay:horse@{}", testbed.redis());
    let relay = start(&testbed, &[("--redis", url)]);
    let mut owner = Owner::bind(testbed.owner_address(0));
    for client in 1..4 {
        let client_socket = testbed.client(client);
        until("the question is refused", || {
            client_socket.send(testbed.public(0), &rtp(1));
            (answers(&relay, "refused") >= u64::from(client)).then_some(())
        });
    }
    wait_lines(&relay, "refuses what is asked of it", 1);
    let client = testbed.client(9);
    prove(&testbed, &mut owner, &client, 9);
    redis.wait(&key(&client), Some(&value(&owner, 9)));
    let log = relay.stop_warned();
    assert_few_warnings(&log, "refuses what is asked of it");
    assert!(log.contains("getrange"), "{log}");
}
