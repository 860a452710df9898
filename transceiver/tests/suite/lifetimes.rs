//! Why sessions end although nobody hung up: idle for too long, and drained. In virtual time.

use std::time::Duration;

use firsthop_transceiver::life::{EndReason, State};
use firsthop_transceiver::limits;

use crate::peer::Call;

fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// A live call that may be idle for 20 s.
fn idle_call(id: u32) -> Call {
    let mut call = Call::tailored(id, |new| new.idle = Some(secs(20)));
    call.until(secs(5), |call| {
        call.session.state() == State::Live && !call.client.heard.events.is_empty()
    });
    call
}

fn count(call: &Call, code: &str) -> usize {
    let code = format!("\"code\":\"{code}\"");
    let events = &call.client.heard.events;
    events
        .iter()
        .filter(|(_, text)| text.contains(&code))
        .count()
}

#[test]
fn a_client_that_is_there_and_says_nothing_is_warned_told_and_ended() {
    let mut call = idle_call(1);
    let start = call.now;
    call.until(secs(30), |call| call.session.state() == State::Ended);
    assert_eq!(call.session.end_reason(), Some(EndReason::Idle));
    let lasted = call.now - start;
    assert!(lasted > secs(19) && lasted < secs(22), "{lasted:?}");
    call.run(secs(1));
    assert_eq!(count(&call, "session_expires_soon"), 1);
    assert_eq!(count(&call, "session_expired"), 1);
    assert!(call.client.heard.closed, "and DTLS is closed");
}

#[test]
fn an_event_after_the_warning_keeps_the_session() {
    let mut call = idle_call(2);
    for round in 1..=3 {
        call.run(secs(15));
        assert_eq!(count(&call, "session_expires_soon"), round);
        call.say(r#"{"type":"session.update","session":{"type":"realtime"}}"#);
    }
    assert_eq!(call.session.state(), State::Live);
    call.run(secs(25));
    assert_eq!(call.session.end_reason(), Some(EndReason::Idle));
}

#[test]
fn who_speaks_or_listens_is_not_idle() {
    let mut call = idle_call(3);
    call.speak(true);
    call.run(secs(60));
    call.speak(false);
    assert_eq!(call.session.state(), State::Live);
    assert_eq!(count(&call, "session_expires_soon"), 0);
    // What was said comes back, and then the time runs again.
    call.run(secs(120));
    assert_eq!(call.session.end_reason(), Some(EndReason::Idle));
}

#[test]
fn without_the_setting_silence_ends_nothing() {
    let mut call = Call::live(4);
    call.run(secs(300));
    assert_eq!(call.session.state(), State::Live);
}

#[test]
fn a_drain_touches_no_session_before_its_end() {
    let mut call = Call::live(5);
    let (start, end) = (call.now, call.now + secs(300));
    call.session.end_by(end, call.now);
    call.until(secs(310), |call| call.session.state() == State::Ended);
    assert_eq!(call.session.end_reason(), Some(EndReason::Drained));
    assert_eq!(call.now - start, secs(300) + limits::EXPIRY_GRACE);
    call.run(secs(1));
    let events = &call.client.heard.events;
    let at = |code: &str| events.iter().find(|(_, text)| text.contains(code));
    let (warned, _) = at("session_expires_soon").expect("a warning");
    assert!(*warned - start >= secs(240), "{:?}", *warned - start);
    let (told, _) = at("\"session_expired\"").expect("told");
    assert!(*told >= end);
}
