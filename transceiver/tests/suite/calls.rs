//! Whole calls in one process, on a simulated clock and network: connect, hear oneself, move, restart, end.

use std::time::{Duration, Instant};

use firsthop_shared::address::IngressId;
use firsthop_shared::packet::{PacketClass, classify};
use firsthop_transceiver::audio::ConversationCounters;
use firsthop_transceiver::life::{EndReason, Phase, State};
use firsthop_transceiver::limits;
use firsthop_transceiver::reason::Reason;

use str0m::channel::ChannelConfig;
use str0m::media::Direction;

use crate::peer::{Call, Client, credentials, is_media, two_ingresses};

fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

#[test]
fn a_call_connects_and_the_session_comes_first() {
    let mut call = Call::live(1);
    assert_eq!(call.client.heard.types()[0], "session.created");
    call.speak(true);
    call.run(secs(1));
    assert_eq!(call.session.state(), State::Live);
    let setup = call.session.summary(call.now).life.setup;
    println!("{setup}");
    let times = Phase::ALL.map(|phase| setup.of(phase).expect("reached"));
    assert!(setup.of(Phase::Dtls).expect("connected") < 500, "{setup}");
    assert!(times[..4].is_sorted(), "{setup}");
    assert!(times[4..].iter().all(|media| *media >= times[2]), "{setup}");
}

#[test]
fn the_answer_names_every_candidate_and_a_real_stream() {
    let call = Call::new(2);
    for line in [
        "a=candidate:1 1 udp 2130706431 203.0.113.10 3478 typ host",
        "a=candidate:2 1 udp 2130706175 203.0.113.20 3478 typ host",
        "a=end-of-candidates",
        "a=sendrecv",
    ] {
        assert!(call.answer.lines().any(|l| l == line), "{}", call.answer);
    }
    let ufrag = credentials(call.id, 0).ufrag;
    assert!(call.answer.contains(&format!("a=ice-ufrag:{ufrag}\r\n")));
    let msid = call.answer.lines().find_map(|l| l.strip_prefix("a=msid:"));
    let stream = msid.and_then(|m| m.split(' ').next()).expect("a stream");
    assert!(stream.len() > 4 && stream != "-", "{stream}");
}

#[test]
fn what_the_client_says_comes_back_with_the_events_of_a_turn_in_order() {
    let mut call = Call::live(3);
    call.speak(false);
    call.run(secs(1));
    call.speak(true);
    call.run(secs(3));
    call.speak(false);
    call.run(secs(3));
    let loud = call.client.heard.loud();
    assert!(
        loud > 50,
        "{loud} loud packets of {}",
        call.client.heard.packets
    );
    let types = call.client.heard.types();
    let place = |name: &str| {
        types
            .iter()
            .position(|t| t == name)
            .unwrap_or_else(|| panic!("{name} in {types:?}"))
    };
    assert_eq!(place("session.created"), 0);
    assert!(place("input_audio_buffer.speech_started") < place("output_audio_buffer.started"));
    assert!(place("output_audio_buffer.started") < place("input_audio_buffer.speech_stopped"));
    assert!(place("input_audio_buffer.speech_stopped") < place("output_audio_buffer.stopped"));
}

#[test]
fn the_channel_answers_updates_and_refuses_what_it_must() {
    let mut call = Call::live(4);
    call.say(r#"{"type":"session.update","session":{"type":"realtime"}}"#);
    call.say(r#"{"type":"input_audio_buffer.append","audio":"AAAA"}"#);
    call.say("not JSON");
    call.until(secs(2), |call| call.client.heard.events.len() == 4);
    assert_eq!(
        call.client.heard.types(),
        ["session.created", "session.updated", "error", "error"]
    );
}

#[test]
fn a_flood_on_the_channel_is_cut_and_said() {
    let mut call = Call::live(5);
    for _ in 0..limits::CHANNEL_MESSAGES_BURST + 100 {
        call.say(r#"{"type":"session.update","session":{"type":"realtime"}}"#);
    }
    call.run(secs(2));
    let types = call.client.heard.types();
    assert!(types.iter().any(|t| t == "error"));
    let updated = types.iter().filter(|t| *t == "session.updated").count();
    assert!(
        updated <= limits::CHANNEL_MESSAGES_BURST as usize + 60,
        "{updated}"
    );
    assert!(call.out.drops[Reason::ChannelMessage] > 0);
}

#[test]
fn a_few_large_messages_are_cut_like_many_small_ones() {
    let mut call = Call::live(34);
    let padding = "x".repeat(60_000);
    let sent = 2 * limits::CHANNEL_BYTES_BURST as usize / padding.len();
    let text = format!(
        r#"{{"type":"session.update","session":{{"type":"realtime"}},"event_id":"{padding}"}}"#
    );
    let id = call.client.channel.expect("a channel");
    let write = |call: &mut Call| {
        let mut channel = call.client.rtc.channel(id).expect("an open channel");
        channel.write(false, text.as_bytes()).expect("written")
    };
    for _ in 0..sent {
        // The client's own buffer takes one or two at a time.
        while !write(&mut call) {
            call.run(ms(10));
        }
        call.run(ms(10));
    }
    call.run(secs(2));
    assert!(call.out.drops[Reason::ChannelMessage] > 0);
    assert!(
        call.client
            .heard
            .events
            .iter()
            .any(|(_, text)| text.contains("rate_limit_exceeded"))
    );
    assert_eq!(call.session.state(), State::Live);
}

#[test]
fn a_message_above_what_is_announced_is_refused_and_the_call_goes_on() {
    let now = Instant::now();
    let client = Client::heedless(now);
    let ingresses = two_ingresses();
    let mut call = Call::of(
        35,
        client,
        true,
        &ingresses,
        limits::SESSION_MAX,
        |offer| offer,
        now,
    );
    call.until(secs(5), |call| !call.client.heard.events.is_empty());
    let announced = format!("a=max-message-size:{}\r\n", limits::CHANNEL_MESSAGE_MAX);
    assert!(call.answer.contains(&announced), "{}", call.answer);
    let text = |length: usize| {
        let empty = r#"{"type":"none.of.ours","x":""}"#;
        empty.replace(
            ":\"\"",
            &format!(":\"{}\"", "x".repeat(length - empty.len())),
        )
    };
    let largest = limits::CHANNEL_MESSAGE_MAX as usize;
    for (n, length) in [largest, largest + 1, 600_000, 1_000_000]
        .into_iter()
        .enumerate()
    {
        // What was sent before is paid for.
        call.run(secs(10));
        call.say(&text(length));
        call.until(secs(20), |call| call.client.heard.events.len() == n + 2);
        let (_, told) = call.client.heard.events.last().expect("an event");
        assert_eq!(
            told.contains("message_too_large"),
            length > largest,
            "{told}"
        );
    }
    assert_eq!(call.session.state(), State::Live);
    assert_eq!(call.out.drops[Reason::ChannelMessage], 3);
}

#[test]
fn the_right_channel_begins_with_the_session_although_another_opened_first() {
    let now = Instant::now();
    let mut client = Client::new(now);
    client.label = "chat".to_owned();
    let longest = limits::SESSION_MAX;
    let mut call = Call::of(33, client, true, &two_ingresses(), longest, |o| o, now);
    call.until(secs(5), |call| !call.client.heard.events.is_empty());
    assert_eq!(call.client.heard.types(), ["session.created"]);
    let config = ChannelConfig {
        label: "oai-events".to_owned(),
        ..ChannelConfig::default()
    };
    let right = call.client.rtc.direct_api().create_data_channel(config);
    call.client.channel = Some(right);
    call.until(secs(5), |call| call.client.heard.events.len() == 2);
    call.say(r#"{"type":"session.update","session":{"type":"realtime"}}"#);
    call.until(secs(5), |call| call.client.heard.events.len() == 3);
    assert_eq!(
        call.client.heard.types(),
        ["session.created", "session.created", "session.updated"]
    );
    assert_eq!(call.client.heard.events[0].1, call.client.heard.events[1].1);
}

#[test]
fn what_went_wrong_with_a_call_s_audio_is_in_its_summary() {
    let mut call = Call::live(35);
    call.speak(true);
    call.run(secs(1));
    let mut sent = 0;
    call.lose_up = Box::new(move |_, packet| {
        let media = classify(packet) == PacketClass::Rtp;
        sent += u32::from(media);
        media && sent.is_multiple_of(5)
    });
    call.run(secs(1));
    let faults = call.session.summary(call.now).audio.faults();
    let named = |name: &str| {
        let mut all = ConversationCounters::FAULTS.iter().zip(faults);
        all.find(|(fault, _)| **fault == name).expect("a fault").1
    };
    assert!((8..=12).contains(&named("missing_packets")), "{faults:?}");
    assert_eq!(named("malformed_packets"), 0, "{faults:?}");
}

#[test]
fn a_call_without_a_channel_is_a_call() {
    let mut call = Call::with(6, false, &two_ingresses(), |offer| offer);
    call.speak(true);
    call.until(secs(5), |call| call.client.heard.packets > 50);
    assert_eq!(call.session.state(), State::Live);
}

#[test]
fn candidates_in_the_offer_are_never_probed() {
    let mut call = Call::with(7, true, &two_ingresses(), |offer| {
        assert!(offer.contains("192.168.1.5"), "{offer}");
        let local = "a=candidate:9 1 udp 2122260223 10.0.0.1 9 typ host\r\n\
                     a=candidate:8 1 udp 2122260223 f5a2.local 9 typ host\r\na=ice-ufrag";
        offer.replacen("a=ice-ufrag", local, 1)
    });
    call.until(secs(5), |call| call.session.state() == State::Live);
    call.run(secs(5));
    let public = call.client.public;
    assert!(call.sent.iter().all(|(_, o)| o.to.key.client == public));
}

#[test]
fn a_quiet_call_lives_past_consent_expiry() {
    let mut call = Call::live(16);
    call.run(secs(90));
    assert_eq!(call.session.state(), State::Live);
    call.speak(true);
    let heard = call.client.heard.packets;
    call.run(secs(1));
    assert!(call.client.heard.packets > heard + 40);
}

#[test]
fn a_client_that_vanishes_is_lost_after_its_grace_and_gets_no_more_media() {
    let mut call = Call::live(17);
    call.run(secs(1));
    call.lose_up = Box::new(|_, _| true);
    call.lose_down = Box::new(|_| true);
    call.until(secs(12), |call| call.session.state() == State::Interrupted);
    call.until(secs(20), |call| call.session.state() == State::Ended);
    assert_eq!(call.session.end_reason(), Some(EndReason::ClientLost));
    assert_eq!(call.session.deadline(|at| at), None);
    assert_eq!(
        call.session.destinations().count(),
        2,
        "the places to close"
    );
}

#[test]
fn a_call_that_never_connects_is_reaped() {
    let mut call = Call::new(18);
    call.lose_up = Box::new(|_, _| true);
    call.until(secs(31), |call| call.session.state() == State::Ended);
    assert_eq!(call.session.end_reason(), Some(EndReason::Reaped));
}

#[test]
fn hanging_up_tells_the_client_and_leaves_the_places_to_close() {
    let mut call = Call::live(19);
    call.session.end(EndReason::HungUp, call.now, &mut call.out);
    call.run(secs(1));
    assert!(call.client.heard.closed, "close_notify arrived");
    assert_eq!(call.session.destinations().count(), 2);
    call.session
        .end(EndReason::Stopped, call.now, &mut call.out);
    assert_eq!(call.session.end_reason(), Some(EndReason::HungUp));
}

#[test]
fn a_session_that_reaches_its_length_is_warned_told_and_ended() {
    let mut call = Call::lasting(32, true, &two_ingresses(), secs(20), |offer| offer);
    let start = call.now;
    call.until(secs(25), |call| call.session.state() == State::Ended);
    assert_eq!(call.session.end_reason(), Some(EndReason::Expired));
    assert_eq!(call.now - start, secs(20) + limits::EXPIRY_GRACE);
    call.run(secs(1));
    let events = &call.client.heard.events;
    let with = |code: &str| events.iter().find(|(_, text)| text.contains(code));
    let (warned, text) = with("session_expires_soon").expect("a warning");
    assert!(
        *warned - start < secs(11) && text.contains("10 seconds"),
        "{text}"
    );
    let (told, text) = with("\"session_expired\"").expect("told");
    assert!(
        *told - start >= secs(20) && text.contains("\"type\":\"error\""),
        "{text}"
    );
    assert!(call.client.heard.closed, "and DTLS is closed");
}

#[test]
fn a_client_that_closes_ends_its_session() {
    let mut call = Call::live(20);
    call.client.rtc.close().expect("closes");
    call.until(secs(2), |call| call.session.state() == State::Ended);
    assert_eq!(call.session.end_reason(), Some(EndReason::ClientClosed));
    assert_eq!(
        call.session.destinations().count(),
        2,
        "the places to close"
    );
}

#[test]
fn a_lost_dtls_flight_costs_a_tenth_of_a_second_and_not_a_second() {
    let mut call = Call::new(21);
    let mut lost = false;
    call.lose_down = Box::new(move |o| {
        let dtls = classify(&o.payload) == PacketClass::Dtls;
        let first = dtls && !lost;
        lost |= dtls;
        first
    });
    call.until(secs(5), |call| call.session.state() == State::Live);
    let dtls = call
        .session
        .summary(call.now)
        .life
        .setup
        .of(Phase::Dtls)
        .expect("connected");
    println!("DTLS with its first server flight lost: {dtls} ms");
    assert!(dtls < 600, "{dtls} ms");
}

#[test]
fn dtls_that_overtakes_the_answer_to_our_check_is_not_lost() {
    let mut call = Call::new(25);
    // The client's answers take 30 ms longer than everything else.
    call.delay_up = Box::new(|packet| if packet[..2] == [1, 1] { ms(30) } else { ms(0) });
    call.until(secs(5), |call| call.session.state() == State::Live);
    assert_eq!(call.out.drops[Reason::Unvalidated], 0);
    let dtls = call
        .session
        .summary(call.now)
        .life
        .setup
        .of(Phase::Dtls)
        .expect("up");
    println!("DTLS with late answers: {dtls} ms");
    assert!(dtls < 250, "{dtls} ms");
}

#[test]
fn the_marker_is_set_only_after_silence() {
    let mut call = Call::live(22);
    call.speak(true);
    call.run(secs(3));
    let heard = &call.client.heard;
    assert!(heard.packets > 100);
    assert!(heard.markers <= 3, "{} of {}", heard.markers, heard.packets);
}

#[test]
fn a_hold_leaves_no_hole_in_the_sequence_numbers() {
    let mut call = Call::live(28);
    call.speak(true);
    call.run(secs(2));
    let numbers = |call: &Call| -> Vec<u16> {
        // RTP and not RTCP: the payload type of Opus, with or without the marker.
        let rtp = call.sent.iter().filter(|(_, o)| is_media(o));
        rtp.filter(|(_, o)| !(192..=223).contains(&o.payload[1]))
            .map(|(_, o)| u16::from_be_bytes([o.payload[2], o.payload[3]]))
            .collect()
    };
    let before = numbers(&call).len();
    assert!(before > 20);
    call.direct(Direction::SendOnly).expect("on hold");
    call.run(secs(3));
    assert_eq!(
        numbers(&call).len(),
        before,
        "nothing is sent to a client on hold"
    );
    call.direct(Direction::SendRecv).expect("back");
    call.run(secs(2));
    let all = numbers(&call);
    assert!(all.len() > before + 20);
    assert!(
        all.windows(2)
            .all(|pair| pair[1] == pair[0].wrapping_add(1)),
        "{all:?}"
    );
}

/// The offer of a client that announces no SSRC and sends no `mid`.
fn embedded(offer: String) -> String {
    offer
        .lines()
        .filter(|l| {
            !l.starts_with("a=ssrc") && !l.starts_with("a=extmap") && !l.starts_with("a=group")
        })
        .map(|l| l.replace("SAVPF", "SAVP") + "\r\n")
        .collect()
}

#[test]
fn forged_packets_do_not_deafen_a_client_that_announces_no_ssrc() {
    let mut call = Call::with(29, false, &two_ingresses(), embedded);
    call.until(secs(5), |call| call.session.state() == State::Live);
    // Whoever knows the client's address sends RTP under ever other SSRCs.
    let from = call.arrival(IngressId(0));
    let pt = call
        .answer
        .split("m=audio")
        .nth(1)
        .and_then(|rest| rest.split_ascii_whitespace().nth(2)?.parse::<u8>().ok());
    let forge = |call: &mut Call, ssrc: u32| {
        let mut packet = vec![0x80, pt.expect("a payload type"), 0, 1, 0, 0, 0, 0];
        packet.extend_from_slice(&ssrc.to_be_bytes());
        packet.extend_from_slice(&[7; 40]);
        call.inject(from, &packet);
    };
    for ssrc in 1..100 {
        forge(&mut call, ssrc);
    }
    call.speak(true);
    for ssrc in 100..200 {
        call.run(ms(20));
        forge(&mut call, ssrc);
    }
    call.until(secs(5), |call| call.client.heard.loud() > 20);
}

#[test]
fn an_embedded_client_that_announces_no_ssrc_is_heard() {
    let mut call = Call::with(23, false, &two_ingresses(), embedded);
    call.speak(true);
    call.until(secs(5), |call| call.client.heard.loud() > 20);
}
