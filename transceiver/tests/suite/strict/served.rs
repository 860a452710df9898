//! What is used of an offer, and cannot be served or read.

use firsthop_shared::control::CallKind;
use firsthop_transceiver::limits;
use firsthop_transceiver::sdp::Offer;

use super::{answer, good, malformed, unsupported};

#[test]
fn ice_lite_is_unsupported_whoever_says_it() {
    let session = good().replace("a=setup:actpass\r\n", "a=setup:actpass\r\na=ice-lite\r\n");
    let section = good().replace("a=mid:voice\r\n", "a=mid:voice\r\na=ice-lite\r\n");
    for offer in [session, section] {
        for kind in [CallKind::Realtime, CallKind::Whip] {
            // WHIP is of audio alone.
            let offer = match kind {
                CallKind::Realtime => offer.clone(),
                CallKind::Whip => offer
                    .split("m=application")
                    .next()
                    .unwrap_or_default()
                    .to_owned(),
            };
            let message = unsupported(&offer, kind);
            assert!(message.starts_with("a=ice-lite: "), "{message}");
            assert!(message.ends_with("offer full ICE"), "{message}");
        }
    }
}

#[test]
fn audio_without_rtcp_on_its_port_is_unsupported() {
    let without = good().replace("a=rtcp-mux\r\n", "");
    let message = unsupported(&without, CallKind::Realtime);
    assert!(message.contains("no a=rtcp-mux"), "{message}");
    // Events have no RTCP.
    answer(&without.replace("m=audio 9", "m=audio 0")).expect("an answer");
    // Sections behind the first of a group may leave it to that one.
    let tagged = without
        .replace("BUNDLE voice events", "BUNDLE events voice")
        .replace("a=mid:events\r\n", "a=mid:events\r\na=rtcp-mux\r\n");
    answer(&tagged).expect("an answer");
    // The engine is told in any case, wherever the offer says so.
    let session = without.replace("t=0 0\r\n", "t=0 0\r\na=rtcp-mux\r\n");
    for offer in [&tagged, &session] {
        let engine = Offer::parse(offer).expect("an offer").for_engine();
        Offer::parse(&engine).expect("our own offer");
    }
    let apart = tagged.replace("a=group:BUNDLE events voice\r\n", "");
    let message = unsupported(&apart, CallKind::Realtime);
    assert!(message.contains("no a=rtcp-mux"), "{message}");
}

#[test]
fn values_of_a_channel_outside_their_grammar_are_refused_by_name() {
    let with = |line: &str| {
        let channel = "a=mid:events\r\n";
        good().replace(channel, &format!("{channel}a={line}\r\n"))
    };
    for line in [
        "max-message-size:abc",
        "max-message-size:-1",
        "max-message-size:+1",
        "max-message-size:",
        "max-message-size",
        "max-message-size:99999999999999999999999",
        "sctp-init:!!!!",
        "sctp-init:AAA",
        // Base64, and no INIT chunk: the engine says so.
        "sctp-init:AAAA",
        "sctp-init:",
    ] {
        let name = line.split(':').next().unwrap_or_default();
        let message = malformed(&with(line));
        assert!(message.starts_with(&format!("a={name}:")), "{message}");
        // Of a channel that is not served it does not matter.
        let unserved = with(line).replace("sctp-port:5000", "sctp-port:0");
        answer(&unserved).expect("an answer");
    }
    for (size, taken) in [
        (
            "0",
            usize::try_from(limits::CHANNEL_MESSAGE_MAX).expect("a size"),
        ),
        ("65536", 65_536),
        (" 262144 ", 262_144),
        ("1073741823", 1_073_741_823),
    ] {
        let offer = Offer::parse(&with(&format!("max-message-size:{size}"))).expect("an offer");
        assert_eq!(offer.channel_message_max(), Some(taken), "{size}");
    }
}

#[test]
fn a_header_extension_that_is_none_is_refused_by_name() {
    let uri = "urn:ietf:params:rtp-hdrext:sdes:mid";
    let with = |entry: &str| {
        let audio = "a=mid:voice\r\n";
        good().replace(audio, &format!("{audio}a=extmap:{entry}\r\n"))
    };
    for entry in [
        format!("300 {uri}"),
        format!("0 {uri}"),
        format!("4095 {uri}"),
        format!("4352 {uri}"),
        format!("-1 {uri}"),
        format!("+1 {uri}"),
        format!("x {uri}"),
        format!("1/sideways {uri}"),
        "1".to_owned(),
        "1 ".to_owned(),
        String::new(),
    ] {
        let message = malformed(&with(&entry));
        // So much of a value is repeated.
        let begin: String = entry.chars().take(40).collect();
        let expected = format!("a=extmap:{begin} is no header extension: ");
        assert!(message.starts_with(&expected), "{message}");
    }
    for entry in [
        "1",
        "14",
        "255",
        "256",
        "4096",
        "4351",
        "2/recvonly",
        "3/inactive",
    ] {
        answer(&with(&format!("{entry} {uri}"))).expect(entry);
        answer(&with(&format!("{entry} {uri} with=attributes"))).expect(entry);
    }
}
