//! A panic in one session, wherever it happens, leaves its neighbours alive.

use super::*;

#[test]
fn a_panic_in_one_session_leaves_its_neighbours_alive() {
    let mut rig = Rig::new(10);
    for id in 1..=3 {
        rig.create(id).expect("an answer");
        assert_eq!(rig.answers(id), 1);
    }
    let slot = rig.core.sessions.get_mut(&SessionId(2)).expect("there");
    slot.session.panics_in = &["receive"];
    let records = [rig.check(1), rig.check(2), rig.check(3)];
    rig.send(&records);
    let sent = rig.flush();
    let of = |id: u32| sent.iter().filter(move |(h, _)| h.session == SessionId(id));
    assert!(of(1).any(|(_, payload)| payload.starts_with(&[1, 1])));
    assert!(of(3).any(|(_, payload)| payload.starts_with(&[1, 1])));
    assert!(of(2).all(|(h, _)| h.kind == RecordKind::Close) && of(2).count() == 1);
    assert_eq!(rig.core.sessions(), 2);
    assert_eq!(rig.core.counters().ended[EndReason::Panicked as usize], 1);
    assert_eq!(rig.answers(1), 1);
    rig.create(2).expect("the id is free again");
}

#[test]
fn a_session_that_panics_again_while_it_is_put_away_leaves_its_neighbours_alive() {
    const EVERYWHERE: &[&str] = &["receive", "sidebands", "destinations", "summary"];
    for places in [
        &["receive", "sidebands"][..],
        &["receive", "destinations"],
        &["receive", "summary"],
        EVERYWHERE,
        // None of these comes of a packet: the session had been fine until then.
        &["deadline"],
        &["deadline", "sidebands", "summary"],
    ] {
        let mut rig = Rig::new(10);
        for id in 1..=3 {
            rig.create(id).expect("an answer");
            assert_eq!(rig.answers(id), 1);
        }
        let directory = rig.core.settings.directory.clone();
        assert!(directory.reserve(SessionId(2), ShardId(3)));
        let slot = rig.core.sessions.get_mut(&SessionId(2)).expect("there");
        slot.session.panics_in = places;
        let records = [rig.check(1), rig.check(2), rig.check(3)];
        rig.send(&records);
        let sent = rig.flush();
        let of = |id: u32| sent.iter().filter(move |(h, _)| h.session == SessionId(id));
        assert!(of(1).any(|(_, payload)| payload.starts_with(&[1, 1])));
        assert!(of(3).any(|(_, payload)| payload.starts_with(&[1, 1])));
        let closes = of(2).filter(|(h, _)| h.kind == RecordKind::Close).count();
        // Who does not know any more where it was known cannot say goodbye there.
        let known = !places.contains(&"destinations");
        assert_eq!(closes, usize::from(known), "{places:?}");
        assert_eq!(rig.core.sessions(), 2);
        assert_eq!(rig.core.counters().ended[EndReason::Panicked as usize], 1);
        assert_eq!(rig.core.counters().states.iter().sum::<u64>(), 2);
        assert_eq!(directory.shard_of(SessionId(2)), None);
        assert_eq!(rig.answers(1), 1);
        rig.create(2).expect("the id is free again");
    }
}

#[test]
fn a_session_that_panics_for_the_first_time_while_it_is_put_away_is_counted_so() {
    for places in [&["sidebands"][..], &["destinations"], &["summary"]] {
        let mut rig = Rig::new(10);
        for id in 1..=2 {
            rig.create(id).expect("an answer");
            assert_eq!(rig.answers(id), 1);
        }
        let slot = rig.core.sessions.get_mut(&SessionId(2)).expect("there");
        slot.session.panics_in = places;
        assert!(rig.hang_up(2, CREATED));
        let counters = rig.core.counters();
        assert_eq!(counters.ended[EndReason::Panicked as usize], 1);
        assert_eq!(counters.ended.iter().sum::<u64>(), 1);
        // The debug page says what the metric does.
        assert_eq!(rig.ending(2), "panicked", "{places:?}");
        assert_eq!(rig.core.sessions(), 1);
        assert_eq!(rig.answers(1), 1);
    }
}

/// Backends of which one application's panic, and one's do not exist.
struct Faulty;

/// A backend that panics when it is woken.
struct Panics;

impl Backend for Panics {
    fn handle(&mut self, _: Input<'_>, _: Instant) {}
    fn poll(&mut self, _: QueueState, _: Instant) -> Option<Output<'_>> {
        panic!("a fault made by a test");
    }
    fn deadline(&self) -> Option<Instant> {
        None
    }
}

impl Backends for Faulty {
    fn find(&self, name: Option<&str>) -> Result<Arc<App>, NoSuchApp> {
        match name {
            Some("nowhere") => Err(NoSuchApp("nowhere".to_owned())),
            name => Ok(Arc::new(App {
                model: name.map(str::to_owned),
                ..App::default()
            })),
        }
    }

    fn open(&self, app: &App, wanted: Wanted<'_>, _: Instant) -> Opened {
        match app.model.as_deref() {
            Some("panics") => Opened {
                backend: Box::new(Panics),
                ..Opened::echo(wanted.seed)
            },
            Some("panics at last") => Opened {
                backend: Box::new(PanicsAtLast),
                ..Opened::echo(wanted.seed)
            },
            _ => Opened::echo(wanted.seed),
        }
    }
}

#[test]
fn a_call_for_an_application_that_is_not_there_is_refused_and_leaves_nothing() {
    let mut rig = Rig::with_backends(10, Box::new(Faulty));
    let error = rig.create_for(1, Some("nowhere")).expect_err("refused");
    assert_eq!(error.code, ControlCode::UnknownApp);
    assert!(error.message.contains("'nowhere'"), "{error}");
    assert_eq!(rig.core.sessions(), 0);
    rig.create_for(1, Some("there")).expect("the id is free");
}

/// A backend that panics when it is dropped.
struct PanicsAtLast;

impl Backend for PanicsAtLast {
    fn handle(&mut self, _: Input<'_>, _: Instant) {}
    fn poll(&mut self, _: QueueState, _: Instant) -> Option<Output<'_>> {
        None
    }
    fn deadline(&self) -> Option<Instant> {
        None
    }
}

impl Drop for PanicsAtLast {
    fn drop(&mut self) {
        panic!("a fault made by a test");
    }
}

#[test]
fn a_backend_that_panics_when_it_is_dropped_leaves_the_neighbours_alive() {
    let mut rig = Rig::with_backends(10, Box::new(Faulty));
    rig.create_for(1, Some("there")).expect("an answer");
    rig.create_for(2, Some("panics at last"))
        .expect("an answer");
    assert_eq!((rig.answers(1), rig.answers(2)), (1, 1));
    assert!(rig.hang_up(2, CREATED));
    let sent = rig.flush();
    assert!(sent.iter().any(|(h, _)| h.kind == RecordKind::Close));
    assert_eq!(rig.core.counters().ended[EndReason::Panicked as usize], 1);
    assert_eq!(rig.ending(2), "panicked");
    assert_eq!(rig.core.sessions(), 1);
    assert_eq!(rig.answers(1), 1);
    rig.create_for(2, Some("there"))
        .expect("the id is free again");
}

#[test]
fn a_backend_that_panics_ends_its_session_and_no_other() {
    let mut rig = Rig::with_backends(10, Box::new(Faulty));
    rig.create_for(1, Some("there")).expect("an answer");
    // It panics when it is asked for the first time, which may be at once.
    let _ = rig.create_for(2, Some("panics"));
    for id in [1, 2, 3] {
        rig.core.wake(SessionId(id), rig.now);
    }
    assert_eq!(rig.core.sessions(), 1);
    assert_eq!(rig.answers(1), 1);
    rig.create_for(2, Some("there"))
        .expect("the id is free again");
}
