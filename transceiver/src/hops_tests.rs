//! A session's paths without a session: what moves media, and what does not.

use super::*;

fn key(port: u16, ingress: u8) -> PathKey {
    PathKey {
        client: ClientAddr::new(([198, 51, 100, 7], port).into()),
        ingress: IngressId(ingress),
        tcp: false,
    }
}

fn hop(port: u16) -> Hop {
    Hop::new(([10, 0, 0, 1], port).into())
}

const HANDLE: FlowHandle = FlowHandle(5);

/// A session whose media flows over `key(1, 0)`.
fn live(now: Instant) -> Paths {
    let mut paths = Paths::default();
    let first = paths.admit(key(1, 0), hop(1), HANDLE, now).expect("room");
    paths.requested(first, true, now);
    paths.answered(first, now);
    paths.engine_chose(key(1, 0));
    assert_eq!(paths.chosen(), Some(key(1, 0)));
    paths
}

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

#[test]
fn the_hop_of_the_last_packet_is_the_way_down() {
    let now = Instant::now();
    let mut paths = live(now);
    paths.arrived(&key(1, 0), hop(2), FlowHandle(9));
    let to = paths.send_to(&key(1, 0)).expect("known");
    assert_eq!((to.hop, to.handle), (hop(2), FlowHandle(9)));
    assert_eq!(
        paths.send_to(&key(1, 1)),
        None,
        "another ingress is another path"
    );
}

#[test]
fn proof_is_spent_by_the_record_that_carries_it() {
    let now = Instant::now();
    let mut paths = live(now);
    assert!(paths.send_to(&key(1, 0)).expect("known").proven);
    assert!(!paths.send_to(&key(1, 0)).expect("known").proven);
    let index = paths.arrived(&key(1, 0), hop(1), HANDLE).expect("known");
    paths.authenticated(index, true, now);
    assert!(paths.send_to(&key(1, 0)).expect("known").proven);
}

#[test]
fn media_follows_a_nominated_and_answered_path_once_the_old_one_is_silent() {
    let now = Instant::now();
    let mut paths = live(now);
    let moved = now + ms(60);
    let index = paths.admit(key(2, 0), hop(1), HANDLE, moved).expect("room");
    paths.requested(index, true, moved);
    assert_eq!(
        paths.chosen(),
        Some(key(1, 0)),
        "a request alone moves nothing"
    );
    paths.answered(index, moved + ms(30));
    assert_eq!(paths.chosen(), Some(key(2, 0)));
    assert_eq!(paths.moves(), 1);
}

#[test]
fn a_nomination_does_not_move_media_off_a_path_that_is_heard() {
    let now = Instant::now();
    let mut paths = live(now);
    let index = paths.admit(key(1, 1), hop(1), HANDLE, now).expect("room");
    for n in 0..100 {
        let at = now + ms(20 * n);
        let old = paths.arrived(&key(1, 0), hop(1), HANDLE).expect("known");
        paths.authenticated(old, true, at);
        paths.requested(index, true, at);
        paths.answered(index, at);
    }
    assert_eq!(paths.chosen(), Some(key(1, 0)));
}

#[test]
fn media_does_not_return_to_a_path_that_a_silent_client_has_left() {
    let now = Instant::now();
    let mut paths = live(now);
    // The client nominates another path; both stay alive, by checks each 2.5 s, and it sends no media.
    let left = PathIndex(0);
    let now = now + ms(100);
    let used = paths.admit(key(1, 1), hop(1), HANDLE, now).expect("room");
    paths.requested(used, true, now);
    paths.answered(used, now);
    assert_eq!(paths.chosen(), Some(key(1, 1)));
    for n in 1..20 {
        let at = now + ms(2_500 * n);
        for (index, path, at) in [(used, key(1, 1), at), (left, key(1, 0), at + ms(200))] {
            paths.arrived(&path, hop(1), HANDLE);
            paths.requested(index, false, at);
            paths.answered(index, at);
        }
    }
    assert_eq!(paths.chosen(), Some(key(1, 1)));
    assert_eq!(paths.moves(), 1);
}

#[test]
fn packets_that_prove_nothing_do_not_keep_media_on_a_dead_path() {
    let now = Instant::now();
    let mut paths = live(now);
    let alive = paths.admit(key(2, 0), hop(1), HANDLE, now).expect("room");
    for n in 0..=3 {
        let at = now + ms(2_500 * n);
        paths.arrived(&key(1, 0), hop(1), HANDLE);
        paths.requested(alive, false, at);
        paths.answered(alive, at);
    }
    assert_eq!(paths.chosen(), Some(key(2, 0)));
}

#[test]
fn the_client_s_own_media_moves_ours() {
    let now = Instant::now();
    let mut paths = live(now);
    let index = paths.admit(key(1, 1), hop(1), HANDLE, now).expect("room");
    paths.answered(index, now);
    paths.authenticated(index, true, now + ms(1));
    assert_eq!(
        paths.chosen(),
        Some(key(1, 0)),
        "one packet may be a straggler"
    );
    paths.authenticated(index, true, now + ms(2));
    assert_eq!(paths.chosen(), Some(key(1, 1)));
}

#[test]
fn a_path_whose_checks_are_not_answered_never_gets_media() {
    let now = Instant::now();
    let mut paths = live(now);
    let index = paths.admit(key(2, 0), hop(1), HANDLE, now).expect("room");
    for n in 0..100 {
        paths.requested(index, true, now + ms(1_000 * n));
    }
    assert_eq!(paths.chosen(), Some(key(1, 0)));
    assert!(!paths.may_send(&key(2, 0), now));
}

#[test]
fn consent_expires() {
    let now = Instant::now();
    let paths = live(now);
    assert!(paths.may_send(&key(1, 0), now + ms(29_000)));
    assert!(!paths.may_send(&key(1, 0), now + ms(31_000)));
}

#[test]
fn the_table_is_bounded_and_keeps_the_chosen_and_the_validated() {
    let now = Instant::now();
    let mut paths = live(now);
    for port in 2..1_000 {
        paths.admit(key(port, 0), hop(1), HANDLE, now + ms(u64::from(port)));
    }
    assert_eq!(paths.all().count(), limits::PATHS_PER_SESSION);
    assert!(paths.send_to(&key(1, 0)).is_some());
    assert!(paths.admit(key(2_000, 0), hop(1), HANDLE, now).is_none());
    paths.restarted();
    assert!(paths.admit(key(2_000, 0), hop(1), HANDLE, now).is_some());
}
