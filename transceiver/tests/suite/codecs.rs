//! Whole calls in G.711, and what goes wrong with them.

use std::time::{Duration, Instant};

use firsthop_shared::packet::{PacketClass, classify};
use firsthop_transceiver::audio::Codec;
use firsthop_transceiver::life::State;
use firsthop_transceiver::limits;

use crate::peer::{Call, Client, two_ingresses};

fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

fn call(id: u32, codec: Codec) -> Call {
    let now = Instant::now();
    let client = Client::with_codec(now, codec);
    let longest = limits::SESSION_MAX;
    let mut call = Call::of(id, client, true, &two_ingresses(), longest, |o| o, now);
    call.until(secs(5), |call| {
        call.session.state() == State::Live && !call.client.heard.events.is_empty()
    });
    call
}

#[test]
fn a_call_in_either_law_is_heard_with_the_events_of_a_turn() {
    for (id, codec) in [(60, Codec::Pcmu), (61, Codec::Pcma)] {
        let mut call = call(id, codec);
        call.speak(false);
        call.run(secs(1));
        call.speak(true);
        call.run(secs(3));
        call.speak(false);
        call.run(secs(3));
        assert!(
            call.client.heard.loud() > 50,
            "{codec:?}: {} loud packets",
            call.client.heard.loud()
        );
        let types = call.client.heard.types();
        for kind in [
            "input_audio_buffer.speech_started",
            "output_audio_buffer.started",
            "input_audio_buffer.speech_stopped",
            "output_audio_buffer.stopped",
        ] {
            assert!(
                types.iter().any(|t| t == kind),
                "{codec:?}: {kind} in {types:?}"
            );
        }
        let audio = call.session.summary(call.now).audio;
        assert_eq!((audio.unencoded, audio.overrun), (0, 0));
        assert_eq!(audio.uplink.malformed, 0);
    }
}

#[test]
fn frames_of_g711_are_160_bytes_20_ms_apart_on_the_clock_of_8_khz() {
    let mut call = call(62, Codec::Pcmu);
    call.speak(true);
    call.run(secs(2));
    let mut packets: Vec<(Instant, usize)> = call
        .sent
        .iter()
        .filter(|(_, o)| classify(&o.payload) == PacketClass::Rtp && o.payload[1] & 0x7f == 0)
        .map(|(at, o)| (*at, o.payload.len()))
        .collect();
    packets.drain(..20);
    assert!(packets.len() > 50);
    let length = packets[0].1;
    // A header with its extension, 160 bytes, and the tag of SRTP.
    assert!(
        (160 + 12..160 + 12 + 40).contains(&length),
        "{length} bytes"
    );
    assert!(packets.iter().all(|(_, l)| *l == length));
    let time = packets.last().expect("packets").0 - packets[0].0;
    let expected = Duration::from_millis(20) * (packets.len() as u32 - 1);
    assert!(
        time.abs_diff(expected) <= Duration::from_millis(10),
        "{time:?}, not {expected:?}"
    );
}

#[test]
fn lost_packets_of_g711_are_concealed() {
    let mut call = call(63, Codec::Pcma);
    call.speak(true);
    call.run(secs(1));
    let mut sent = 0;
    call.lose_up = Box::new(move |_, packet| {
        let media = classify(packet) == PacketClass::Rtp && packet[1] & 0x7f == 8;
        sent += u32::from(media);
        media && sent.is_multiple_of(5)
    });
    call.run(secs(2));
    let uplink = call.session.summary(call.now).audio.uplink;
    assert!((17..=22).contains(&uplink.reorder.missing), "{uplink:?}");
    assert_eq!(uplink.concealed, uplink.reorder.missing * 480, "{uplink:?}");
    assert_eq!(uplink.recovered, 0);
}

#[test]
fn a_later_offer_of_another_codec_is_refused_and_the_call_goes_on() {
    let mut call = call(64, Codec::Pcmu);
    call.speak(true);
    call.run(secs(1));
    let other = |offer: String| {
        offer
            .replace("RTP/SAVPF 0\r\n", "RTP/SAVPF 8\r\n")
            .replace("0 PCMU", "8 PCMA")
    };
    let error = call.restart_with(1, other).expect_err("refused");
    assert!(error.to_string().contains("codec"), "{error}");
    let heard = call.client.heard.packets;
    call.run(secs(2));
    assert!(call.client.heard.packets > heard + 90);
    call.restart(1).expect("an answer");
    call.run(secs(40));
    assert_eq!(call.session.state(), State::Live);
}

#[test]
fn a_call_of_events_alone_is_a_call() {
    let mut call = Call::with(65, true, &two_ingresses(), |offer| {
        offer.replace("m=audio 9", "m=audio 0")
    });
    call.until(secs(5), |call| !call.client.heard.events.is_empty());
    call.say(r#"{"type":"session.update","session":{"type":"realtime"}}"#);
    call.until(secs(5), |call| call.client.heard.events.len() == 2);
    assert_eq!(
        call.client.heard.types(),
        ["session.created", "session.updated"]
    );
    call.run(secs(40));
    assert_eq!(call.session.state(), State::Live);
    assert_eq!(call.client.heard.packets, 0);
}
