//! What becomes of an entry when relays tell of its flow, in whatever order: the cache's own side, without a relay.

use std::sync::Arc;

use firsthop_relay::cache::{CacheSettings, CoreCache, FlowCache};
use firsthop_relay::control::{CoreControl, Mailbox};
use firsthop_relay::wake::Wake;
use firsthop_relay_core::{Change, ChangeKind, Entry, FlowId, Transport};
use firsthop_shared::address::{
    ClientAddr, ClusterId, IngressId, OwnerAddr, Restart, SessionId, ShardId,
};

use crate::testbed::redis::{Redis, Reply};
use crate::testbed::{Testbed, keyring};

struct Relay {
    cache: Arc<FlowCache>,
    core: CoreCache,
    _mailbox: Mailbox,
}

impl Relay {
    fn new(redis: &Redis) -> Self {
        let settings = CacheSettings {
            url: Some(redis.url().parse().expect("a URL")),
            password_file: None,
            ca_file: None,
            questions: 100,
        };
        let target = settings.check(1).expect("valid").expect("set");
        let cache = FlowCache::start(target).expect("a thread");
        let (wake, _) = Wake::new().expect("an eventfd");
        let (control, mailbox) = CoreControl::new(Arc::new(keyring(7)), wake);
        let core = cache.enter(&[control]).remove(0);
        Self {
            cache,
            core,
            _mailbox: mailbox,
        }
    }

    fn tell(&mut self, kind: ChangeKind, session: u32, restart: u8) {
        let entry = Entry {
            cluster: ClusterId(1),
            owner: OwnerAddr::new("10.0.0.7:5000".parse().expect("an address")),
            shard: ShardId(3),
            session: SessionId(session),
            restart: Restart(restart),
        };
        let flow = FlowId {
            ingress: IngressId(0),
            transport: Transport::Udp,
            client: ClientAddr::new("203.0.113.9:40000".parse().expect("an address")),
        };
        self.core.change(Change { flow, entry, kind });
        self.core.flush();
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.cache.stop();
    }
}

const KEY: &str = "firsthop:flow:0:udp:203.0.113.9:40000";
const ONE: &str = "1 1 10.0.0.7:5000 3 1 0";
const TWO: &str = "1 1 10.0.0.7:5000 3 2 0";
/// A session whose number begins as the first one's.
const TWELVE: &str = "1 1 10.0.0.7:5000 3 12 0";

/// Changes reach Redis in their order: when this one is there, those before it were.
fn settle(redis: &Redis, relay: &mut Relay) {
    let calls = redis.calls("eval");
    relay.tell(ChangeKind::Closed, u32::MAX, 0);
    crate::testbed::until("the last change is there", || {
        (redis.calls("eval") > calls).then_some(())
    });
}

fn value(redis: &Redis, relay: &mut Relay) -> Option<String> {
    settle(redis, relay);
    settle(redis, relay);
    redis.get(KEY)
}

#[test]
fn a_proof_writes_its_entry_whatever_is_there() {
    let testbed = Testbed::new();
    let redis = Redis::start(&testbed, &[]);
    let mut relay = Relay::new(&redis);
    relay.tell(ChangeKind::Proven, 1, 0);
    redis.wait(KEY, Some(ONE));
    relay.tell(ChangeKind::Proven, 2, 0);
    redis.wait(KEY, Some(TWO));
    assert_eq!(redis.command(&["DEL", KEY]), Reply::Number(1));
    assert_eq!(redis.command(&["RPUSH", KEY, "x"]), Reply::Number(1));
    relay.tell(ChangeKind::Proven, 1, 0);
    let string = Reply::Text("string".to_owned());
    crate::testbed::until("the list gives way", || {
        (redis.command(&["TYPE", KEY]) == string).then_some(())
    });
    assert_eq!(redis.get(KEY).as_deref(), Some(ONE));
}

#[test]
fn a_flow_that_lives_on_renews_its_own_entry_and_no_others() {
    let testbed = Testbed::new();
    let redis = Redis::start(&testbed, &[]);
    let mut relay = Relay::new(&redis);
    // It has been flushed meanwhile.
    relay.tell(ChangeKind::Alive, 1, 0);
    redis.wait(KEY, Some(ONE));
    // Its time begins anew, and a restart since is told.
    assert_eq!(redis.command(&["EXPIRE", KEY, "5"]), Reply::Number(1));
    relay.tell(ChangeKind::Alive, 1, 4);
    redis.wait(KEY, Some("1 1 10.0.0.7:5000 3 1 4"));
    let Reply::Number(left) = redis.command(&["TTL", KEY]) else {
        panic!("it lives for ever");
    };
    assert!(left > 5, "{left} s");
    // Another relay has seen another session proven there.
    for other in [TWO, TWELVE] {
        redis.set(KEY, other);
        relay.tell(ChangeKind::Alive, 1, 0);
        assert_eq!(value(&redis, &mut relay).as_deref(), Some(other));
    }
    // What is no entry gives way, of whatever type it is.
    redis.set(KEY, "nonsense");
    relay.tell(ChangeKind::Alive, 1, 0);
    assert_eq!(value(&redis, &mut relay).as_deref(), Some(ONE));
    redis.command(&["DEL", KEY]);
    assert_eq!(redis.command(&["RPUSH", KEY, "x"]), Reply::Number(1));
    relay.tell(ChangeKind::Alive, 1, 0);
    assert_eq!(value(&redis, &mut relay).as_deref(), Some(ONE));
}

#[test]
fn the_end_of_a_session_removes_its_own_entry_and_no_others() {
    let testbed = Testbed::new();
    let redis = Redis::start(&testbed, &[]);
    let mut relay = Relay::new(&redis);
    relay.tell(ChangeKind::Proven, 1, 0);
    redis.wait(KEY, Some(ONE));
    relay.tell(ChangeKind::Closed, 1, 0);
    redis.wait(KEY, None);
    // Whatever its restarts were: the owner does not say.
    redis.set(KEY, "1 1 10.0.0.7:5000 3 1 4");
    relay.tell(ChangeKind::Closed, 1, 0);
    redis.wait(KEY, None);
    for other in [TWO, TWELVE, "nonsense"] {
        redis.set(KEY, other);
        relay.tell(ChangeKind::Closed, 1, 0);
        assert_eq!(value(&redis, &mut relay).as_deref(), Some(other));
    }
    redis.command(&["DEL", KEY]);
    assert_eq!(redis.command(&["RPUSH", KEY, "x"]), Reply::Number(1));
    relay.tell(ChangeKind::Closed, 1, 0);
    settle(&redis, &mut relay);
    settle(&redis, &mut relay);
    assert_eq!(redis.command(&["LLEN", KEY]), Reply::Number(1));
}
