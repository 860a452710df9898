//! How many round trips a call takes to begin: on a network that takes time for nothing else, they can be counted.
//!
//! The call's answer is there when these begin; the POST that brought it was one more.

use std::time::{Duration, Instant};

use firsthop_shared::packet::{PacketClass, classify};
use firsthop_transceiver::life::{EndReason, State};
use firsthop_transceiver::limits;

use crate::peer::{Call, Client, LATENCY, two_ingresses};

const ROUND_TRIP: Duration = Duration::from_millis(2 * LATENCY.as_millis() as u64);

/// What a call needs beside round trips: the client speaks every 20 ms, and the echo holds 80 ms.
const ECHO: Duration = Duration::from_millis(110);

fn without_channel(id: u32) -> Call {
    Call::with(id, false, &two_ingresses(), |offer| offer)
}

fn with_snap(id: u32) -> Call {
    let now = Instant::now();
    let client = Client::with_snap(now);
    let longest = limits::SESSION_MAX;
    Call::of(id, client, true, &two_ingresses(), longest, |o| o, now)
}

fn like_a_browser(id: u32) -> Call {
    let now = Instant::now();
    let client = Client::libwebrtc(now);
    let longest = limits::SESSION_MAX;
    Call::of(id, client, true, &two_ingresses(), longest, |o| o, now)
}

fn update(call: &mut Call) {
    let updates = |call: &Call| {
        let types = call.client.heard.types();
        types.iter().filter(|of| *of == "session.updated").count()
    };
    let before = updates(call);
    call.say(r#"{"type":"session.update","session":{}}"#);
    call.until(Duration::from_secs(1), |call| updates(call) > before);
}

/// Runs until something is so; returns how many whole round trips that took from now.
fn round_trips(call: &mut Call, done: impl FnMut(&Call) -> bool) -> u128 {
    let begin = call.now;
    call.until(Duration::from_secs(5), done);
    (call.now - begin).as_millis() / ROUND_TRIP.as_millis()
}

fn dtls_sent(call: &Call) -> Vec<Duration> {
    let begin = call.sent.first().map(|(at, _)| *at).expect("something");
    let dtls = |payload: &[u8]| classify(payload) == PacketClass::Dtls;
    let sent = call.sent.iter().filter(|(_, one)| dtls(&one.payload));
    sent.map(|(at, _)| *at - begin).collect()
}

#[test]
fn a_client_without_a_channel_is_up_two_round_trips_after_the_answer_and_heard_in_the_third() {
    let mut call = without_channel(1);
    assert!(call.answer.contains("a=setup:active"), "{}", call.answer);
    let begin = call.now;
    call.speak(true);
    let up = round_trips(&mut call, |call| call.client.heard.connected.is_some());
    assert_eq!(up, 2);
    call.until(Duration::from_secs(5), |call| call.client.heard.packets > 0);
    let heard = call.now - begin;
    assert!(heard < 3 * ROUND_TRIP + ECHO, "{heard:?}");
    // One flight of ours, and the last.
    assert_eq!(dtls_sent(&call).len(), 2, "{:?}", dtls_sent(&call));
    assert_eq!(call.session.summary(call.now).drops, 0);
}

#[test]
fn a_channel_whose_handshake_is_in_the_offer_takes_no_round_trip_more() {
    let mut call = with_snap(2);
    assert!(call.answer.contains("a=setup:active"), "{}", call.answer);
    assert!(call.answer.contains("a=sctp-init:"), "{}", call.answer);
    let told = |call: &Call| !call.client.heard.events.is_empty();
    // The client is up after two, opens its channel, and is told of its session at once.
    assert_eq!(round_trips(&mut call, told), 3);
    // It stays so over a restart, whose offer repeats the handshake.
    call.restart(1).expect("an answer");
    call.run(Duration::from_secs(1));
    assert_eq!(call.session.state(), State::Live);
    update(&mut call);
}

#[test]
fn a_client_whose_channel_shakes_hands_begins_dtls_itself() {
    let mut call = Call::new(3);
    assert!(call.answer.contains("a=setup:passive"), "{}", call.answer);
    let up = round_trips(&mut call, |call| call.client.heard.connected.is_some());
    assert_eq!(up, 3);
}

#[test]
fn a_browser_is_heard_in_the_fifth_round_trip_from_its_post_and_told_of_its_session_in_the_sixth() {
    let mut call = like_a_browser(8);
    assert!(call.answer.contains("a=setup:active"), "{}", call.answer);
    let begin = call.now;
    call.speak(true);
    let up = round_trips(&mut call, |call| call.client.heard.connected.is_some());
    assert_eq!(up, 2);
    call.until(Duration::from_secs(5), |call| {
        !call.client.heard.events.is_empty()
    });
    // INIT and COOKIE ECHO take a round trip each; the third is that of the channel's opening, which has to wait for them.
    let told = call.now - begin;
    assert!(told < 5 * ROUND_TRIP + Duration::from_millis(5), "{told:?}");
    assert_eq!(call.session.summary(call.now).drops, 0);
}

#[test]
fn audio_waits_for_sctp_and_not_for_the_channel_s_opening() {
    for (id, mut call, trips) in [(12, like_a_browser(12), 4), (13, Call::new(13), 5)] {
        // On a line that is long beside what the echo holds.
        let slow = Duration::from_millis(380);
        call.delay_up = Box::new(move |_| slow);
        let trip = ROUND_TRIP + slow;
        let begin = call.now;
        call.speak(true);
        call.until(Duration::from_secs(5), |call| call.client.heard.packets > 0);
        // The answer to the cookie and the first audio leave together.
        let heard = call.now - begin;
        let by = trips * trip;
        assert!(heard < by + Duration::from_millis(25), "{id}: {heard:?}");
        assert!(call.client.heard.events.is_empty());
        call.until(Duration::from_secs(5), |call| {
            !call.client.heard.events.is_empty()
        });
        let told = call.now - begin;
        assert!(
            told < by + trip + Duration::from_millis(25),
            "{id}: {told:?}"
        );
    }
}

#[test]
fn a_browser_s_audio_and_events_go_both_ways_and_stay_so_over_restarts() {
    let mut call = like_a_browser(9);
    call.speak(true);
    call.until(Duration::from_secs(5), |call| {
        !call.client.heard.events.is_empty()
    });
    for restart in 0..3 {
        let answer = match restart {
            0 => call.answer.clone(),
            1 => call.restart(1).expect("an answer"),
            _ => call.restart_ice(2).expect("an answer"),
        };
        assert!(answer.contains("a=setup:active"), "{answer}");
        assert!(!answer.contains("a=setup:passive"), "{answer}");
        let loud = call.client.heard.loud();
        // The echo is ours decoded and encoded anew: it is loud when both directions have the right keys.
        call.until(Duration::from_secs(5), |call| {
            call.client.heard.loud() > loud + 20
        });
        update(&mut call);
        assert_eq!(call.session.state(), State::Live);
    }
    assert_eq!(call.session.summary(call.now).drops, 0);
    // Its end is heard, too.
    call.session
        .end(EndReason::Drained, call.now, &mut call.out);
    call.until(Duration::from_secs(1), |call| call.client.heard.closed);
}

#[test]
fn the_part_in_dtls_that_the_first_offer_settled_stays_whatever_a_later_one_looks_like() {
    // A page may rewrite its later offers, or a proxy its first.
    for (id, mut call, setup) in [
        (10, like_a_browser(10), "active"),
        (11, Call::new(11), "passive"),
    ] {
        call.until(Duration::from_secs(5), |call| {
            !call.client.heard.events.is_empty()
        });
        let answer = call.restart_with(1, |offer| {
            if id == 10 {
                offer.replace("a=msid-semantic: WMS\r\n", "")
            } else {
                let origin = offer.lines().nth(1).expect("an origin");
                offer.replace(origin, "o=- 1 3 IN IP4 127.0.0.1").replace(
                    "t=0 0\r\n",
                    "t=0 0\r\na=extmap-allow-mixed\r\na=msid-semantic: WMS\r\n",
                )
            }
        });
        let answer = answer.expect("an answer");
        assert!(answer.contains(&format!("a=setup:{setup}\r\n")), "{answer}");
        call.run(Duration::from_secs(1));
        update(&mut call);
    }
}

#[test]
fn a_first_flight_that_is_lost_is_repeated_after_a_tenth_of_a_second() {
    let mut call = without_channel(4);
    let mut lost = false;
    call.lose_down = Box::new(move |one| {
        let first = classify(&one.payload) == PacketClass::Dtls && !lost;
        lost |= first;
        first
    });
    let begin = call.now;
    call.until(Duration::from_secs(5), |call| {
        call.client.heard.connected.is_some()
    });
    let up = call.now - begin;
    // The provider repeats up to a quarter sooner or later, so that not all do it at once.
    let repeated = limits::DTLS_FIRST_RETRANSMIT * 5 / 4;
    assert!(up < 3 * ROUND_TRIP + repeated, "{up:?}");
}

#[test]
fn an_address_that_is_never_validated_gets_one_flight_and_no_more() {
    let mut call = without_channel(5);
    // The client's answers to our checks are lost: who sends its checks may have borrowed the address.
    call.lose_up = Box::new(|_, packet| packet[..2] == [1, 1]);
    call.run(Duration::from_secs(8));
    assert_eq!(call.session.state(), State::Connecting);
    assert_eq!(dtls_sent(&call).len(), 1);
}

#[test]
fn the_clock_of_a_handshake_of_ours_begins_with_the_client_s_first_check() {
    let mut call = without_channel(6);
    // The answer took long to reach the client.
    let mut early = 4;
    call.lose_up = Box::new(move |_, _| {
        early -= i32::from(early > 0);
        early > 0
    });
    call.until(Duration::from_secs(10), |call| {
        call.client.heard.connected.is_some()
    });
    // The handshake type of a ClientHello, after the record's header.
    let hello = |payload: &[u8]| classify(payload) == PacketClass::Dtls && payload[13] == 1;
    let hellos = call.sent.iter().filter(|(_, one)| hello(&one.payload));
    assert_eq!(hellos.count(), 1);
}
