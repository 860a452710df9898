//! Why sessions end although nobody hung up: idle for too long, and drained. In virtual time.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use firsthop_transceiver::audio::{Backend, Input, ItemId, Output, PlayoutSettings, QueueState};
use firsthop_transceiver::backend::Opened;
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

/// A backend that says all it has at once, and knows the end of it: as a model does that is faster than what is heard.
struct Answers {
    pcm: Vec<i16>,
    left: VecDeque<Say>,
}

enum Say {
    Created,
    Answer,
    End,
}

const ANSWER: ItemId = ItemId(1);

impl Answers {
    fn lasting(time: Duration) -> Box<Self> {
        let samples = time.as_millis() as usize * 24;
        Box::new(Self {
            pcm: (0..samples).map(|n| (n % 100) as i16 * 100).collect(),
            left: [Say::Created, Say::Answer, Say::End].into(),
        })
    }
}

impl Backend for Answers {
    fn handle(&mut self, _: Input<'_>, _: Instant) {}

    fn poll(&mut self, queue: QueueState, _: Instant) -> Option<Output<'_>> {
        Some(match self.left.pop_front()? {
            Say::Created => Output::Event(r#"{"type":"session.created"}"#.to_owned()),
            Say::Answer => {
                assert!(queue.room >= self.pcm.len());
                Output::Audio {
                    item: Some(ANSWER),
                    pcm: &self.pcm,
                }
            }
            Say::End => Output::Finished(ANSWER),
        })
    }

    fn deadline(&self) -> Option<Instant> {
        None
    }
}

#[test]
fn who_listens_to_an_answer_that_came_at_once_is_not_idle_before_its_end() {
    let answer = secs(90);
    let opened = Opened {
        backend: Answers::lasting(answer),
        playout: PlayoutSettings::default(),
    };
    let mut call = Call::answered(6, opened, |new| new.idle = Some(secs(20)));
    call.until(secs(5), |call| call.session.state() == State::Live);
    let start = call.now;
    call.until(secs(200), |call| call.session.state() == State::Ended);
    assert_eq!(call.session.end_reason(), Some(EndReason::Idle));
    let lasted = call.now - start;
    assert!(lasted >= answer + secs(19), "ended after {lasted:?}");
    assert!(lasted < answer + secs(25), "ended after {lasted:?}");
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
