//! A worker without its socket: records and commands in, datagrams out, on a clock of its own.

use firsthop_shared::address::{ClientAddr, FlowHandle, OwnerAddr, Restart};
use firsthop_shared::control::{CallKind, ControlCode, ControlError};
use firsthop_shared::keyring::Masters;
use firsthop_shared::limits::TRUNK_DATAGRAM_MAX;
use firsthop_shared::trunk::DatagramBuilder;
use tokio::sync::oneshot;

use super::super::command::{Command, CreateSpec};
use super::*;
use crate::audio::{Backend, Input, Output, QueueState};
use crate::backend::{App, NoSuchApp, Opened, Wanted};

#[path = "core_tests_panics.rs"]
mod panics;
#[path = "core_tests_rig.rs"]
mod rig;

use rig::{CREATED, OFFER, Rig, fleet, keyring};

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
    let flow = |n: usize| {
        let (mut header, packet) = check.clone();
        header.handle = FlowHandle(n as u32);
        (header, packet)
    };
    for n in 1..=2 * limits::UNKNOWN_PER_SEC {
        rig.send(&[flow(n)]);
    }
    assert_eq!(rig.flush().len(), limits::UNKNOWN_PER_SEC - 1);
    let dropped = 2 * limits::UNKNOWN_PER_SEC as u64 + 1;
    assert_eq!(rig.drops(Reason::UnknownSession), dropped);
    rig.now += Duration::from_secs(1);
    rig.send(&[flow(2 * limits::UNKNOWN_PER_SEC)]);
    assert_eq!(rig.flush().len(), 1, "another second");
}

#[test]
fn what_is_under_way_of_one_flow_takes_no_word_from_another() {
    let mut rig = Rig::new(10);
    let check = rig.check(7);
    let many = vec![check.clone(); 10];
    for _ in 0..limits::UNKNOWN_PER_SEC {
        rig.send(&many);
    }
    assert_eq!(rig.flush().len(), 1, "the relay is told once");
    // The client's next check makes the flow anew, and another client's is another flow.
    let mut anew = check.clone();
    anew.0.handle = FlowHandle(check.0.handle.0 + (1 << 20));
    let other = rig.check(8);
    rig.send(&[anew.clone(), other.clone(), anew.clone()]);
    let told: Vec<_> = rig
        .flush()
        .iter()
        .map(|(h, _)| (h.session, h.handle))
        .collect();
    assert_eq!(told, [anew, other].map(|(h, _)| (h.session, h.handle)));
    // What it was told may be lost: in the next second it is told again.
    rig.now += Duration::from_secs(1);
    rig.send(&many);
    assert_eq!(rig.flush().len(), 1);
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
fn whatever_ends_a_session_closes_it_at_its_relay_which_is_told_again_when_a_check_comes_late() {
    type End = fn(&mut Rig);
    let ends: [(End, EndReason); 4] = [
        (|rig| assert!(rig.hang_up(1, CREATED)), EndReason::HungUp),
        (|rig| assert!(!rig.core.stop(rig.now)), EndReason::Stopped),
        (
            |rig| {
                rig.core.drain(rig.now, rig.now);
                rig.now += limits::EXPIRY_GRACE;
                while rig.core.timers(rig.now) {}
            },
            EndReason::Drained,
        ),
        (
            |rig| {
                rig.now += limits::CONNECT_TIMEOUT;
                while rig.core.timers(rig.now) {}
            },
            EndReason::Reaped,
        ),
    ];
    for (end, reason) in ends {
        let mut rig = Rig::new(10);
        rig.create(1).expect("an answer");
        assert_eq!(rig.answers(1), 1);
        end(&mut rig);
        assert_eq!(rig.ending(1), reason.label());
        let words = |rig: &mut Rig, kind| {
            let sent = rig.flush().into_iter().map(|(header, _)| header);
            let words = sent.filter(|header| header.kind == kind);
            words.map(|header| header.handle).collect::<Vec<_>>()
        };
        let known = FlowHandle(1_001);
        assert_eq!(words(&mut rig, RecordKind::Close), [known], "{reason}");
        // The relay has made a flow anew for it.
        let (mut late, packet) = rig.check(1);
        late.handle = FlowHandle(2_002);
        rig.send(&[(late, packet)]);
        let told = words(&mut rig, RecordKind::UnknownSession);
        assert_eq!(told, [late.handle], "{reason}");
    }
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
