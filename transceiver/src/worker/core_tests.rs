//! A worker without its socket: records and commands in, datagrams out, on a clock of its own.

use firsthop_shared::address::{ClientAddr, ClusterId, FlowHandle, IngressId, OwnerAddr, Restart};
use firsthop_shared::keyring::Masters;
use firsthop_shared::limits::TRUNK_DATAGRAM_MAX;
use firsthop_shared::stun_write::{Role, binding_request};
use firsthop_shared::token::{self, Route};
use firsthop_shared::trunk::DatagramBuilder;
use tokio::sync::oneshot;

use firsthop_shared::control::{CallKind, ControlCode, ControlError};

use super::super::command::{Command, CreateSpec, RestartBy, RestartSpec};
use super::*;
use crate::audio::{Backend, Input, Output, QueueState};
use crate::backend::{App, NoSuchApp, Opened, Wanted};
use crate::session::{Advertised, Credentials};

#[path = "core_tests_panics.rs"]
mod panics;

const OFFER: &str = "v=0\r\no=- 1 2 IN IP4 0.0.0.0\r\ns=-\r\nt=0 0\r\na=group:BUNDLE 0\r\n\
    m=audio 9 UDP/TLS/RTP/SAVPF 111\r\nc=IN IP4 0.0.0.0\r\na=ice-ufrag:abcd\r\na=ice-pwd:0123456789012345678901\r\n\
    a=fingerprint:sha-256 B4:12:1C:7C:7D:ED:F1:FA:61:07:57:9C:29:BE:58:E3:BC:41:E7:13:8E:7D:D3:9D:1F:94:6E:A5:23:46:94:23\r\n\
    a=setup:actpass\r\na=mid:0\r\na=sendrecv\r\na=rtcp-mux\r\na=rtpmap:111 opus/48000/2\r\n";

const CREATED: u64 = 77;

/// A relay core and the worker that it talks to.
struct Rig {
    core: Core,
    keyring: Arc<DataKeyring>,
    relay: SocketAddr,
    sequence: u32,
    now: Instant,
}

fn keyring(secret: u8) -> Arc<DataKeyring> {
    Arc::new(DataKeyring::parse(&Masters::new([secret; 32]).data_toml()).expect("a keyring"))
}

fn fleet() -> Arc<Fleet> {
    let text = "[[cluster]]\nid=1\nname=\"dev\"\n[[ingress]]\nid=0\nipv4=\"203.0.113.10:3478\"\n";
    Arc::new(Fleet::parse(text).expect("a fleet"))
}

impl Rig {
    fn new(capacity: usize) -> Self {
        Self::with_backends(capacity, Box::new(Echoes))
    }

    fn with_backends(capacity: usize, backends: Box<dyn Backends>) -> Self {
        let now = Instant::now();
        let keyring = keyring(1);
        let settings = CoreSettings {
            shard: ShardId(3),
            capacity,
            networks: Networks::parse("10.0.0.0/8").expect("networks"),
            lifetimes: Lifetimes::default(),
            opus: OpusMode::default(),
            directory: Directory::default(),
            endings: Endings::default(),
            epoch: now,
        };
        let shared = Shared {
            keyring: Arc::clone(&keyring),
            fleet: fleet(),
        };
        let identity = Identity::process().expect("an identity");
        Self {
            core: Core::new(settings, shared, identity, || 42).with_backends(backends),
            keyring,
            relay: ([10, 0, 0, 9], 4_001).into(),
            sequence: 0,
            now,
        }
    }

    fn credentials(&self, id: u32) -> Credentials {
        self.credentials_of(id, 0)
    }

    fn credentials_of(&self, id: u32, restart: u8) -> Credentials {
        let route = Route {
            cluster: ClusterId(1),
            owner: OwnerAddr::new(([10, 0, 0, 1], 5_000).into()),
            shard: ShardId(3),
            restart: Restart(restart),
            session: SessionId(id),
        };
        let ufrag = token::mint(self.keyring.active(), &route);
        let password = token::ice_password(&self.keyring, ufrag.as_bytes()).expect("a password");
        Credentials { ufrag, password }
    }

    fn create(&mut self, id: u32) -> Result<String, ControlError> {
        self.create_for(id, None)
    }

    fn create_for(&mut self, id: u32, app: Option<&str>) -> Result<String, ControlError> {
        let spec = CreateSpec {
            id: SessionId(id),
            created: CREATED,
            client: None,
            credentials: self.credentials(id),
            offer: OFFER.to_owned(),
            advertised: vec![Advertised {
                ingress: IngressId(0),
                address: ([203, 0, 113, 10], 3_478).into(),
            }],
            longest: None,
            kind: CallKind::Realtime,
            app: app.map(str::to_owned),
            config: None,
            trace: None,
        };
        let (reply, mut result) = oneshot::channel();
        self.core
            .command(Command::Create(Box::new(spec), reply), self.now);
        result.try_recv().expect("answered")
    }

    fn restart(&mut self, restart: u8, offer: &str) -> Result<String, ControlError> {
        let spec = RestartSpec {
            id: SessionId(1),
            created: CREATED,
            restart: Restart(restart),
            credentials: self.credentials_of(1, restart),
            by: RestartBy::Offer(offer.to_owned()),
            advertised: Vec::new(),
        };
        let (reply, mut result) = oneshot::channel();
        self.core
            .command(Command::Restart(Box::new(spec), reply), self.now);
        result.try_recv().expect("answered")
    }

    fn look(&mut self, id: u32, created: u64) -> Option<Restart> {
        let (reply, mut result) = oneshot::channel();
        let id = SessionId(id);
        self.core
            .command(Command::Look { id, created, reply }, self.now);
        result.try_recv().expect("answered")
    }

    /// Why a session ended, as support is told.
    fn ending(&self, id: u32) -> &'static str {
        let found = self.core.settings.endings.find(SessionId(id));
        found.expect("an ended session").1.reason
    }

    fn hang_up(&mut self, id: u32, created: u64) -> bool {
        let (reply, mut result) = oneshot::channel();
        let id = SessionId(id);
        self.core
            .command(Command::HangUp { id, created, reply }, self.now);
        result.try_recv().expect("answered")
    }

    /// A client's check as the relay's record.
    fn check(&self, id: u32) -> (RecordHeader, Vec<u8>) {
        let credentials = self.credentials(id);
        let mut packet = Vec::new();
        binding_request(
            &mut packet,
            [9; 12],
            &format!("{}:abcd", credentials.ufrag),
            credentials.password.as_bytes(),
            1,
            Role::Controlling(1, true),
        );
        let header = RecordHeader {
            kind: RecordKind::Packet,
            client: ClientAddr::new(([198, 51, 100, 7], 4_000 + id as u16).into()),
            tcp: false,
            proven: false,
            ingress: IngressId(0),
            session: SessionId(id),
            handle: FlowHandle(1_000 + id),
            owner: None,
            payload_len: 0,
        };
        (header, packet)
    }

    fn datagram(&mut self, shard: u8, records: &[(RecordHeader, Vec<u8>)]) -> Vec<u8> {
        let mut builder = DatagramBuilder::new(TRUNK_DATAGRAM_MAX);
        for (header, payload) in records {
            assert!(builder.push(header, payload));
        }
        self.sequence += 1;
        builder
            .finish(
                self.keyring.active(),
                ShardId(shard),
                BootId(5),
                self.sequence,
            )
            .to_vec()
    }

    fn send(&mut self, records: &[(RecordHeader, Vec<u8>)]) {
        let datagram = self.datagram(3, records);
        self.core.datagram(self.relay, &datagram, self.now);
    }

    /// What the worker sends: the records with their payloads.
    fn flush(&mut self) -> Vec<(RecordHeader, Vec<u8>)> {
        let mut records = Vec::new();
        let keyring = Arc::clone(&self.keyring);
        let relay = self.relay;
        self.core.flush(|datagrams| {
            for (hop, bytes) in datagrams {
                assert_eq!(hop.get(), relay);
                let opened = trunk::open(&keyring, bytes).expect("authentic");
                records.extend(opened.records().map(|r| (r.header, r.payload.to_vec())));
            }
        });
        records
    }

    fn drops(&mut self, reason: Reason) -> u64 {
        self.core.drops()[reason]
    }

    fn answers(&mut self, id: u32) -> usize {
        let check = self.check(id);
        self.send(&[check]);
        self.flush()
            .iter()
            .filter(|(header, payload)| {
                header.session == SessionId(id) && payload.starts_with(&[1, 1])
            })
            .count()
    }
}

#[test]
fn a_verified_check_is_answered_down_its_own_hop_with_the_relay_s_handle() {
    let mut rig = Rig::new(10);
    rig.create(1).expect("an answer");
    let check = rig.check(1);
    rig.send(std::slice::from_ref(&check));
    let sent = rig.flush();
    assert_eq!(
        sent.len(),
        3,
        "the answer, a check of our own, and our first flight of DTLS"
    );
    for (header, _) in &sent {
        assert_eq!(header.client, check.0.client);
        assert_eq!(header.handle, check.0.handle);
        assert_eq!(header.kind, RecordKind::Packet);
        assert!(!header.proven, "a request proves no address");
    }
}

#[test]
fn a_drain_refuses_new_sessions_and_ends_the_others_at_its_end() {
    let mut rig = Rig::new(10);
    rig.create(1).expect("an answer");
    let end = rig.now + Duration::from_secs(5);
    rig.core.drain(end, rig.now);
    let refused = rig.create(2).expect_err("refused");
    assert_eq!(refused.code, ControlCode::Draining);
    rig.now = end;
    while rig.core.timers(rig.now) {}
    assert_eq!(
        rig.core.sessions(),
        1,
        "it is told, and has time to hear it"
    );
    rig.now = end + limits::EXPIRY_GRACE;
    while rig.core.timers(rig.now) {}
    assert_eq!(rig.core.sessions(), 0);
    assert_eq!(rig.core.counters.ended[EndReason::Drained as usize], 1);
}

#[test]
fn a_record_on_its_way_between_relays_moves_no_session_to_who_brings_it() {
    let mut rig = Rig::new(10);
    rig.create(1).expect("an answer");
    assert_eq!(rig.answers(1), 1);
    // What one relay sent to another, with a good tag and a boot id that this worker never saw, from another internal host.
    let (header, packet) = rig.check(1);
    let named = RecordHeader {
        owner: Some(OwnerAddr::new(([10, 0, 0, 1], 5_000).into())),
        ..header
    };
    let mut builder = DatagramBuilder::new(TRUNK_DATAGRAM_MAX);
    assert!(builder.push(&named, &packet));
    let captured = builder
        .finish(rig.keyring.active(), ShardId(3), BootId(77), 1)
        .to_vec();
    let elsewhere = SocketAddr::from(([10, 0, 0, 66], 4_001));
    rig.core.datagram(elsewhere, &captured, rig.now);
    assert_eq!(rig.drops(Reason::RecordOwner), 1);
    assert!(rig.flush().is_empty(), "it is not answered");
    // `flush` sees that the session's packets go to its relay, and nowhere else.
    assert!(rig.hang_up(1, CREATED));
    assert!(!rig.flush().is_empty(), "the farewell");
}

#[test]
fn what_is_not_ours_is_dropped_and_counted() {
    let mut rig = Rig::new(10);
    rig.create(1).expect("an answer");
    let check = rig.check(1);
    let foreign = rig.datagram(2, &[check.clone(), check.clone()]);
    rig.core.datagram(rig.relay, &foreign, rig.now);
    assert_eq!(rig.drops(Reason::ForeignShard), 2);

    let good = rig.datagram(3, std::slice::from_ref(&check));
    rig.core
        .datagram(([192, 0, 2, 1], 4_001).into(), &good, rig.now);
    assert_eq!(rig.drops(Reason::ForeignSender), 1);
    let mut bad = good.clone();
    bad[20] ^= 1;
    rig.core.datagram(rig.relay, &bad, rig.now);
    assert_eq!(rig.drops(Reason::TrunkTag), 1);
    rig.core.datagram(rig.relay, &good[..10], rig.now);
    assert_eq!(rig.drops(Reason::TrunkLength), 1);
    assert!(rig.flush().is_empty());

    rig.core.datagram(rig.relay, &good, rig.now);
    rig.core.datagram(rig.relay, &good, rig.now);
    assert_eq!(rig.drops(Reason::Replay), 1);
    // What the worker itself wrote to a relay has a good tag, too.
    let mut own = DatagramBuilder::new(TRUNK_DATAGRAM_MAX);
    assert!(own.push(&check.0, &check.1));
    let boot = BootId::of_owner(5);
    let reflected = own
        .finish(rig.keyring.active(), ShardId(3), boot, 1)
        .to_vec();
    rig.core.datagram(rig.relay, &reflected, rig.now);
    assert_eq!(rig.drops(Reason::Reflected), 1);
    assert_eq!(rig.flush().len(), 3, "the first of the two was served");

    let close = RecordHeader {
        kind: RecordKind::Close,
        ..check.0
    };
    rig.send(&[(close, Vec::new())]);
    assert_eq!(rig.drops(Reason::RecordKind), 1);
    assert_eq!(rig.core.sessions(), 1);
}

#[test]
fn a_relay_is_told_of_sessions_that_are_not_here_but_not_without_end() {
    let mut rig = Rig::new(10);
    let check = rig.check(7);
    rig.send(std::slice::from_ref(&check));
    let sent = rig.flush();
    assert_eq!(sent.len(), 1);
    assert_eq!(sent[0].0.kind, RecordKind::UnknownSession);
    assert_eq!(sent[0].0.session, SessionId(7));
    assert_eq!(sent[0].0.client, check.0.client);
    assert_eq!(sent[0].0.handle, check.0.handle);
    for _ in 0..1_000 {
        rig.send(std::slice::from_ref(&check));
    }
    assert!(rig.flush().len() < limits::UNKNOWN_PER_SEC as usize);
    assert_eq!(rig.drops(Reason::UnknownSession), 1_001);
}

#[test]
fn a_taken_id_and_a_full_worker_are_refused() {
    let mut rig = Rig::new(2);
    rig.create(1).expect("an answer");
    let code = |result: Result<String, ControlError>| result.expect_err("refused").code;
    assert_eq!(code(rig.create(1)), ControlCode::SessionExists);
    rig.create(2).expect("an answer");
    assert_eq!(code(rig.create(3)), ControlCode::Full);
    assert!(rig.hang_up(1, CREATED));
    rig.create(3).expect("there is room again");
}

#[test]
fn the_restart_in_use_is_told_and_an_older_one_is_refused() {
    let mut rig = Rig::new(10);
    rig.create(1).expect("an answer");
    assert_eq!(rig.look(1, CREATED), Some(Restart(0)));
    assert_eq!(rig.look(1, CREATED + 1), None);
    assert_eq!(rig.look(2, CREATED), None);
    let code = |result: Result<String, ControlError>| result.expect_err("refused").code;
    assert_eq!(code(rig.restart(0, OFFER)), ControlCode::StaleRestart);
    // Without new credentials of the client's it is no restart, and the ufrag stays.
    rig.restart(1, OFFER).expect("an answer");
    assert_eq!(rig.look(1, CREATED), Some(Restart(0)));
    rig.restart(2, &OFFER.replace("ufrag:abcd", "ufrag:efgh"))
        .expect("an answer");
    assert_eq!(rig.look(1, CREATED), Some(Restart(2)));
    for stale in [1, 2] {
        let offer = OFFER.replace("ufrag:abcd", "ufrag:ijkl");
        assert_eq!(code(rig.restart(stale, &offer)), ControlCode::StaleRestart);
    }
    assert_eq!(rig.look(1, CREATED), Some(Restart(2)));
}

#[test]
fn hanging_up_needs_the_call_s_own_creation_time_and_closes_at_the_relay() {
    let mut rig = Rig::new(10);
    rig.create(1).expect("an answer");
    assert_eq!(rig.answers(1), 1);
    assert!(!rig.hang_up(1, CREATED + 1));
    assert_eq!(rig.core.sessions(), 1);
    assert!(rig.hang_up(1, CREATED));
    let sent = rig.flush();
    let closes: Vec<_> = sent
        .iter()
        .filter(|(h, _)| h.kind == RecordKind::Close)
        .collect();
    assert_eq!(closes.len(), 1);
    assert_eq!(closes[0].0.session, SessionId(1));
    assert_eq!(closes[0].0.handle, FlowHandle(1_001));
    assert!(!rig.hang_up(1, CREATED));
}

#[test]
fn a_path_that_made_room_is_closed_at_its_relay() {
    let mut rig = Rig::new(10);
    rig.create(1).expect("an answer");
    for port in 0..=limits::PATHS_PER_SESSION as u16 {
        let (mut header, packet) = rig.check(1);
        header.client = ClientAddr::new(([198, 51, 100, 7], 5_000 + port).into());
        rig.now += Duration::from_millis(1);
        rig.send(&[(header, packet)]);
    }
    let sent = rig.flush();
    let closed: Vec<u16> = sent
        .iter()
        .filter(|(h, _)| h.kind == RecordKind::Close)
        .map(|(h, _)| h.client.port())
        .collect();
    assert_eq!(closed, [5_000], "the one that was silent longest");
    assert_eq!(rig.core.sessions(), 1);
}

#[test]
fn a_session_that_never_connects_is_reaped_by_its_timer_and_its_id_is_free() {
    let mut rig = Rig::new(10);
    let start = rig.now;
    assert!(
        rig.core
            .settings
            .directory
            .reserve(SessionId(1), ShardId(3))
    );
    rig.create(1).expect("an answer");
    while rig.core.sessions() > 0 {
        rig.now = rig.core.deadline().expect("a timer").max(rig.now);
        rig.core.timers(rig.now);
        assert!(rig.now < start + Duration::from_secs(31));
    }
    assert_eq!(rig.now, start + limits::CONNECT_TIMEOUT);
    assert_eq!(rig.core.counters().ended[EndReason::Reaped as usize], 1);
    assert_eq!(rig.core.settings.directory.shard_of(SessionId(1)), None);
    assert_eq!(rig.core.counters().states, [0; 5]);
}

#[test]
fn timers_stay_few_however_often_sessions_are_called() {
    let mut rig = Rig::new(10);
    for id in 1..=5 {
        rig.create(id).expect("an answer");
    }
    for n in 0..5_000 {
        rig.now += Duration::from_micros(100);
        let check = rig.check(1 + n % 5);
        rig.send(&[check]);
        rig.core.timers(rig.now);
    }
    assert!(rig.core.timers.len() < 200, "{}", rig.core.timers.len());
}

#[test]
fn stopping_closes_every_session() {
    let mut rig = Rig::new(10);
    for id in 1..=3 {
        rig.create(id).expect("an answer");
        assert_eq!(rig.answers(id), 1);
    }
    assert!(!rig.core.stop(rig.now));
    assert_eq!(rig.core.sessions(), 0);
    let closes = rig.flush();
    assert_eq!(
        closes
            .iter()
            .filter(|(h, _)| h.kind == RecordKind::Close)
            .count(),
        3
    );
}

#[test]
fn stopping_pauses_while_the_trunks_are_full() {
    let mut rig = Rig::new(10);
    for id in 1..=3 {
        rig.create(id).expect("an answer");
    }
    let (header, _) = rig.check(1);
    for hop in 0..limits::HOPS_PER_TURN as u16 {
        let hop = Hop::new(([10, 0, 0, 9], 5_000 + hop).into());
        assert!(rig.core.egress.push(hop, &header, &[0; 20]));
    }
    assert!(rig.core.stop(rig.now), "there is no room for goodbyes");
    assert_eq!(rig.core.sessions(), 3);
    rig.core.flush(|_| ());
    assert!(!rig.core.stop(rig.now));
    assert_eq!(rig.core.sessions(), 0);
}

#[test]
fn a_new_keyring_is_taken_without_a_restart() {
    let mut rig = Rig::new(10);
    rig.create(1).expect("an answer");
    assert_eq!(rig.answers(1), 1);
    let mut masters = Masters::new([1; 32]);
    let id = masters.add([2; 32]).expect("a key");
    masters.activate(id.get()).expect("known");
    rig.keyring = Arc::new(DataKeyring::parse(&masters.data_toml()).expect("a keyring"));
    let (header, packet) = {
        // The session was minted with the old key, and keeps it.
        let old = std::mem::replace(&mut rig.keyring, keyring(1));
        let check = rig.check(1);
        rig.keyring = old;
        check
    };
    rig.send(&[(header, packet.clone())]);
    assert_eq!(rig.drops(Reason::TrunkKey), 1);
    rig.core.reload(Shared {
        keyring: Arc::clone(&rig.keyring),
        fleet: fleet(),
    });
    rig.send(&[(header, packet)]);
    assert!(!rig.flush().is_empty());
}

#[test]
fn audio_deadlines_meet_on_the_grid() {
    let epoch = Instant::now();
    let at = |us: u64| epoch + Duration::from_micros(us);
    assert_eq!(on_grid(epoch, at(0)), at(0));
    assert_eq!(on_grid(epoch, at(1)), at(5_000));
    assert_eq!(on_grid(epoch, at(5_000)), at(5_000));
    assert_eq!(on_grid(epoch, at(20_001)), at(25_000));
}

#[test]
fn malformed_offers_are_refused_and_leave_nothing() {
    let mut rig = Rig::new(10);
    for (offer, code) in [
        (String::new(), ControlCode::BadOffer),
        ("v=0\r\nnot SDP".to_owned(), ControlCode::BadOffer),
        (
            OFFER.replace("opus", "speex"),
            ControlCode::UnsupportedOffer,
        ),
        (
            OFFER.replace("a=ice-ufrag:abcd\r\n", ""),
            ControlCode::BadOffer,
        ),
    ] {
        let spec = CreateSpec {
            id: SessionId(1),
            created: CREATED,
            client: None,
            credentials: rig.credentials(1),
            offer,
            advertised: Vec::new(),
            longest: None,
            kind: CallKind::Realtime,
            app: None,
            config: None,
            trace: None,
        };
        let (reply, mut result) = oneshot::channel();
        rig.core
            .command(Command::Create(Box::new(spec), reply), rig.now);
        let error = result.try_recv().expect("answered").expect_err("refused");
        assert_eq!(error.code, code, "{error}");
    }
    assert_eq!(rig.core.sessions(), 0);
    assert_eq!(rig.core.counters().refused, 4);
    assert_eq!(rig.core.deadline(), None);
}
