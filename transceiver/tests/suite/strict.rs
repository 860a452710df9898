//! Offers that say what they must not: refused by name, or answered with what is wrong left out.

use std::time::Instant;

use firsthop_shared::address::SessionId;
use firsthop_shared::control::CallKind;
use firsthop_transceiver::audio::Codec;
use firsthop_transceiver::sdp::{Offer, OfferError, Purpose};

use crate::peer::{make_session_with, two_ingresses};

mod served;

const FINGERPRINT: &str = "sha-256 B4:12:1C:7C:7D:ED:F1:FA:61:07:57:9C:29:BE:58:E3:BC:41:E7:13:8E:7D:D3:9D:1F:94:6E:A5:23:46:94:23";

/// An audio section and a channel in one group.
fn good() -> String {
    format!(
        "v=0\r\no=- 1 2 IN IP4 0.0.0.0\r\ns=-\r\nt=0 0\r\na=group:BUNDLE voice events\r\n\
         a=ice-ufrag:abcd\r\na=ice-pwd:0123456789012345678901\r\na=fingerprint:{FINGERPRINT}\r\na=setup:actpass\r\n\
         m=audio 9 UDP/TLS/RTP/SAVPF 111 0\r\nc=IN IP4 0.0.0.0\r\na=mid:voice\r\na=sendrecv\r\na=rtcp-mux\r\n\
         a=rtpmap:111 opus/48000/2\r\n\
         m=application 9 UDP/DTLS/SCTP webrtc-datachannel\r\nc=IN IP4 0.0.0.0\r\na=mid:events\r\na=sctp-port:5000\r\n"
    )
}

fn answer_for(offer: &str, kind: CallKind, codec: Option<Codec>) -> Result<String, OfferError> {
    let now = Instant::now();
    make_session_with(SessionId(1), offer, &two_ingresses(), now, |new| {
        new.kind = kind;
        new.codec = codec;
    })
    .map(|(_, answer)| answer)
}

fn answer(offer: &str) -> Result<String, OfferError> {
    answer_for(offer, CallKind::Realtime, None)
}

/// The message of a refusal as malformed.
fn malformed(offer: &str) -> String {
    match answer(offer) {
        Err(OfferError::Malformed(message)) => message,
        other => panic!("{other:?} for\n{offer}"),
    }
}

fn unsupported(offer: &str, kind: CallKind) -> String {
    match answer_for(offer, kind, None) {
        Err(OfferError::Unsupported(message)) => message,
        other => panic!("{other:?} for\n{offer}"),
    }
}

fn media(answer: &str) -> Vec<&str> {
    answer.lines().filter(|l| l.starts_with("m=")).collect()
}

#[test]
fn the_good_offer_is_answered() {
    let text = answer(&good()).expect("an answer");
    assert!(text.contains("a=group:BUNDLE voice events\r\n"), "{text}");
    assert_eq!(media(&text).len(), 2);
    assert!(media(&text).iter().all(|m| m.contains(" 3478 ")), "{text}");
}

#[test]
fn what_is_wrong_is_said() {
    let sections = format!("v=0\r\n{}", "m=audio 9 RTP/AVP 0\r\n".repeat(33));
    let cases = [
        (sections.as_str(), "more than 32 media sections"),
        ("v=0\r\nX\r\n", "line 2 is not SDP: a line is"),
        ("", "begins with 'v=0'"),
        ("hello", "begins with 'v=0'"),
        ("v=0\r\ns=-\r\n", "no media section"),
        ("v=0\r\nnonsense\r\n", "line 2 is not SDP"),
        ("v=0\r\ns=a\0b\r\n", "line 2 is not SDP"),
        ("v=0\r\nm=audio\r\n", "line 2: not a media description"),
        (
            "v=0\r\nm=audio 70000 RTP/AVP 0\r\n",
            "line 2: not a media description",
        ),
        (
            "v=0\r\nm=audio 9 RTP/AVP 0\u{7}\r\n",
            "line 2: not a media description",
        ),
    ];
    for (text, expected) in cases {
        let message = malformed(text);
        assert!(message.contains(expected), "{text:?}: {message}");
    }
    let without = good().replace("a=ice-pwd:0123456789012345678901\r\n", "");
    assert_eq!(malformed(&without), "the offer has no a=ice-pwd");
    let without = good().replace(&format!("a=fingerprint:{FINGERPRINT}\r\n"), "");
    assert_eq!(malformed(&without), "the offer has no a=fingerprint");
}

#[test]
fn a_fingerprint_of_another_length_or_of_an_unknown_hash_function_is_refused_by_name() {
    let short = &FINGERPRINT[..FINGERPRINT.len() - 3];
    let long = format!("{FINGERPRINT}:00");
    for (shown, expected) in [
        (short, "sha-256 has 32 bytes"),
        (long.as_str(), "sha-256 has 32 bytes"),
        ("sha-256", "sha-256 has 32 bytes"),
        (&FINGERPRINT.replace("B4", "B"), "sha-256 has 32 bytes"),
        (&FINGERPRINT.replace("B4", "XY"), "sha-256 has 32 bytes"),
        (
            &FINGERPRINT.replace("sha-256", "sha-1"),
            "sha-1 has 20 bytes",
        ),
        (
            &FINGERPRINT.replace("sha-256", "md5"),
            "md5 is no hash function",
        ),
        (
            &FINGERPRINT.replace("sha-256", "sha-257"),
            "sha-257 is no hash function",
        ),
        ("", "is no hash function"),
    ] {
        let message = malformed(&good().replace(FINGERPRINT, shown));
        assert!(
            message.starts_with("a=fingerprint: ") && message.contains(expected),
            "{shown}: {message}"
        );
    }
}

#[test]
fn a_fingerprint_of_a_hash_function_that_is_not_served_is_unsupported() {
    let sha1 = "sha-1 00:11:22:33:44:55:66:77:88:99:AA:BB:CC:DD:EE:FF:00:11:22:33";
    let message = unsupported(&good().replace(FINGERPRINT, sha1), CallKind::Realtime);
    assert!(message.contains("sha-1 is not served"), "{message}");
}

#[test]
fn of_several_fingerprints_the_one_that_is_served_counts() {
    for other in [
        "sha-1 00:11:22:33:44:55:66:77:88:99:AA:BB:CC:DD:EE:FF:00:11:22:33",
        "sha3-256 00",
    ] {
        let lines = format!("{other}\r\na=fingerprint:{FINGERPRINT}");
        let offer = Offer::parse(&good().replace(FINGERPRINT, &lines)).expect("an offer");
        let engine = offer.for_engine();
        assert_eq!(
            engine.matches("a=fingerprint:sha-256 B4:12").count(),
            2,
            "{engine}"
        );
        assert_eq!(engine.matches("fingerprint").count(), 2, "{engine}");
    }
}

#[test]
fn a_dtls_role_that_is_none_is_refused() {
    for (said, named) in [
        ("bogus", "bogus"),
        ("holdconn", "holdconn"),
        ("", "none"),
        ("a\u{1b}[2J", "\\u{1b}"),
    ] {
        let message = malformed(&good().replace("setup:actpass", &format!("setup:{said}")));
        assert!(
            message.starts_with("a=setup:") && message.contains(named),
            "{message}"
        );
    }
    let in_a_section = good().replace("a=mid:events", "a=setup:bogus\r\na=mid:events");
    assert!(malformed(&in_a_section).starts_with("a=setup:bogus"));
    for role in ["active", "passive"] {
        let text =
            answer(&good().replace("setup:actpass", &format!("setup:{role}"))).expect("an answer");
        let ours = if role == "active" {
            "passive"
        } else {
            "active"
        };
        assert!(text.contains(&format!("a=setup:{ours}\r\n")), "{text}");
    }
}

#[test]
fn control_characters_in_a_mid_are_refused() {
    for mid in ["vo\u{1}ce", "vo\tce", "vo ce", "voix\u{e9}", "", "\u{7f}"] {
        let message = malformed(&good().replace("mid:voice", &format!("mid:{mid}")));
        assert!(message.starts_with("a=mid:"), "{message}");
        assert!(message.chars().all(|c| !c.is_control()), "{message:?}");
    }
    assert!(malformed(&good().replace("mid:voice", "mid:vo\0ce")).contains("is not SDP"));
    let twice = good().replace("mid:events", "mid:voice");
    assert_eq!(malformed(&twice), "two sections have a=mid:voice");
}

#[test]
fn a_mid_that_the_engine_cannot_hold_does_not_meet_one_that_looks_like_ours() {
    let offer = good()
        .replace("voice", "the-voice-of-the-caller")
        .replace("events", "fh0");
    let text = answer(&offer).expect("an answer");
    for mid in ["a=mid:the-voice-of-the-caller\r\n", "a=mid:fh0\r\n"] {
        assert!(text.contains(mid), "{text}");
    }
}

#[test]
fn a_group_that_names_nothing_or_strangers_is_as_good_as_none() {
    for group in [
        "BUNDLE",
        "BUNDLE ",
        "BUNDLE x y",
        "LS voice events",
        "BUNDLEvoice events",
    ] {
        let text = answer(&good().replace("BUNDLE voice events", group)).expect("an answer");
        assert!(!text.contains("a=group"), "{group}: {text}");
        // The same credentials: one transport all the same.
        assert!(
            media(&text).iter().all(|m| m.contains(" 3478 ")),
            "{group}: {text}"
        );
    }
}

#[test]
fn the_answer_s_group_has_the_served_sections_of_the_offered_one_alone() {
    let text = answer(&good().replace("BUNDLE voice events", "BUNDLE x voice")).expect("an answer");
    assert!(text.contains("a=group:BUNDLE voice\r\n"), "{text}");
    assert!(media(&text)[1].starts_with("m=application 0 "), "{text}");
    // Of a group whose first section is refused, the rest stays.
    let video = "m=video 9 UDP/TLS/RTP/SAVPF 96\r\na=mid:v\r\na=rtpmap:96 VP8/90000\r\nm=audio 9";
    let offer = good()
        .replace("BUNDLE voice", "BUNDLE v voice")
        .replace("m=audio 9", video);
    let text = answer(&offer).expect("an answer");
    assert!(text.contains("a=group:BUNDLE voice events\r\n"), "{text}");
    let two = good().replace(
        "a=group:BUNDLE voice events",
        "a=group:BUNDLE x\r\na=group:BUNDLE voice events",
    );
    assert!(
        answer(&two)
            .expect("an answer")
            .contains("a=group:BUNDLE voice events\r\n")
    );
}

#[test]
fn a_section_with_port_0_is_refused_and_what_is_left_is_served() {
    let text = answer(&good().replace("m=audio 9", "m=audio 0")).expect("an answer");
    assert!(media(&text)[0].starts_with("m=audio 0 "), "{text}");
    assert!(media(&text)[1].starts_with("m=application 3478 "), "{text}");
    assert!(text.contains("a=group:BUNDLE events\r\n"), "{text}");
    let text = answer(&good().replace("m=application 9", "m=application 0")).expect("an answer");
    assert!(media(&text)[1].starts_with("m=application 0 "), "{text}");
    assert!(text.contains("a=group:BUNDLE voice\r\n"), "{text}");
    // In a group port 0 with bundle-only says that there is no transport of its own.
    let bundled = good()
        .replace("m=application 9", "m=application 0")
        .replace("a=mid:events", "a=bundle-only\r\na=mid:events");
    let text = answer(&bundled).expect("an answer");
    assert!(media(&text)[1].starts_with("m=application 3478 "), "{text}");
}

#[test]
fn an_offer_with_neither_audio_nor_a_channel_to_serve_is_unsupported() {
    let nothing = good()
        .replace("m=audio 9", "m=audio 0")
        .replace("m=application 9", "m=application 0");
    assert!(unsupported(&nothing, CallKind::Realtime).contains("neither an audio section"));
    // The channel alone would leave a client mute that wants to speak.
    let speex = good()
        .replace("opus", "speex")
        .replace(" 111 0\r\n", " 111\r\n");
    assert!(unsupported(&speex, CallKind::Realtime).contains("neither an audio section"));
}

#[test]
fn a_channel_on_a_transport_of_its_own_is_not_served() {
    let offer = good()
        .replace("a=group:BUNDLE voice events\r\n", "")
        .replace("a=mid:events", "a=ice-ufrag:efgh\r\na=mid:events");
    let text = answer(&offer).expect("an answer");
    assert!(media(&text)[1].starts_with("m=application 0 "), "{text}");
}

#[test]
fn an_sctp_port_out_of_range_is_refused() {
    for port in ["65536", "99999999999999999999", "-1", "+5", "abc", ""] {
        let message = malformed(&good().replace("sctp-port:5000", &format!("sctp-port:{port}")));
        assert!(message.contains("a=sctp-port:"), "{message}");
    }
    let older = good()
        .replace("UDP/DTLS/SCTP webrtc-datachannel", "DTLS/SCTP 70000")
        .replace("a=sctp-port:5000\r\n", "");
    assert!(malformed(&older).contains("SCTP port 70000"));
    answer(&older.replace("70000", "5000")).expect("an answer");
    // 0 closes the association: the section is refused, the call is not.
    let text = answer(&good().replace("sctp-port:5000", "sctp-port:0")).expect("an answer");
    assert!(media(&text)[1].starts_with("m=application 0 "), "{text}");
}

#[test]
fn opus_wins_unless_another_codec_is_wanted() {
    let offer = good().replace(" 111 0\r\n", " 0 8 111\r\n");
    for (wanted, pt) in [
        (None, "111"),
        (Some(Codec::Opus), "111"),
        (Some(Codec::Pcmu), "0"),
        (Some(Codec::Pcma), "8"),
    ] {
        let text = answer_for(&offer, CallKind::Realtime, wanted).expect("an answer");
        assert_eq!(
            media(&text)[0],
            format!("m=audio 3478 UDP/TLS/RTP/SAVPF {pt}"),
            "{text}"
        );
    }
    let opus = offer.replace(" 0 8 111\r\n", " 111\r\n");
    let text = answer_for(&opus, CallKind::Realtime, Some(Codec::Pcma)).expect("an answer");
    assert!(media(&text)[0].ends_with(" 111"), "{text}");
}

#[test]
fn g711_is_answered_under_the_client_s_payload_type_static_or_mapped() {
    for (formats, map, answered) in [
        ("0", "", "a=rtpmap:0 PCMU/8000"),
        ("8", "", "a=rtpmap:8 PCMA/8000"),
        ("0", "a=rtpmap:0 PCMU/8000\r\n", "a=rtpmap:0 PCMU/8000"),
        ("9 96", "a=rtpmap:96 PCMU/8000\r\n", "a=rtpmap:96 PCMU/8000"),
        (
            "13 118",
            "a=rtpmap:118 pcma/8000/1\r\n",
            "a=rtpmap:118 PCMA/8000",
        ),
    ] {
        for direction in ["sendrecv", "sendonly", "recvonly"] {
            let offer = good()
                .replace(" 111 0\r\n", &format!(" {formats}\r\n"))
                .replace("a=rtpmap:111 opus/48000/2\r\n", map)
                .replace("sendrecv", direction);
            let text = answer(&offer).expect("an answer");
            let pt = formats.split(' ').next_back().expect("a format");
            assert_eq!(
                media(&text)[0],
                format!("m=audio 3478 UDP/TLS/RTP/SAVPF {pt}"),
                "{text}"
            );
            assert!(text.lines().any(|line| line == answered), "{text}");
        }
    }
}

/// The good offer as a WHIP client makes it.
fn whip() -> String {
    let offer = good()
        .replace("sendrecv", "sendonly")
        .replace("BUNDLE voice events", "BUNDLE voice");
    let end = offer.find("m=application").expect("a channel");
    offer[..end].to_owned()
}

#[test]
fn a_whip_offer_is_answered_recvonly() {
    for direction in ["sendonly", "sendrecv"] {
        let offer = whip().replace("sendonly", direction);
        let text = answer_for(&offer, CallKind::Whip, None).expect("an answer");
        assert!(text.contains("a=recvonly\r\n"), "{text}");
        assert!(!text.contains("a=msid:"), "{text}");
        assert_eq!(media(&text).len(), 1);
    }
    let unsaid = whip().replace("a=sendonly\r\n", "");
    let text = answer_for(&unsaid, CallKind::Whip, None).expect("an answer");
    assert!(text.contains("a=recvonly\r\n"), "{text}");
}

#[test]
fn a_whip_offer_that_is_not_served_whole_is_refused_whole() {
    let audio = &whip()[whip().find("m=audio").expect("audio")..];
    let second = audio.replace("mid:voice", "mid:other");
    let video = "m=video 9 UDP/TLS/RTP/SAVPF 96\r\na=mid:v\r\na=rtpmap:96 VP8/90000\r\n";
    for (offer, named) in [
        (whip() + &second, "m=audio"),
        (whip() + video, "m=video"),
        (good().replace("sendrecv", "sendonly"), "m=application"),
        (whip().replace("sendonly", "recvonly"), "recvonly"),
        (whip().replace("sendonly", "inactive"), "inactive"),
        (
            whip()
                .replace("opus", "speex")
                .replace(" 111 0\r\n", " 111\r\n"),
            "audio section",
        ),
    ] {
        let message = unsupported(&offer, CallKind::Whip);
        assert!(message.contains(named), "{message}");
    }
    // What the client itself refuses does not count.
    let refused = whip() + &video.replace("m=video 9", "m=video 0");
    answer_for(&refused, CallKind::Whip, None).expect("an answer");
}

#[test]
fn new_credentials_take_the_place_of_the_old_ones_and_nothing_else() {
    let offer = Offer::parse_for(
        &whip(),
        Purpose {
            kind: CallKind::Whip,
            codec: None,
        },
    )
    .expect("an offer");
    let ice = firsthop_shared::control::IceCredentials {
        ufrag: "wxyz".to_owned(),
        password: "abcdefghijklmnopqrstuv".to_owned(),
    };
    let fresh = offer.with_ice(&ice).expect("an offer");
    assert_eq!(
        (fresh.ice_ufrag(), fresh.ice_password()),
        ("wxyz", "abcdefghijklmnopqrstuv")
    );
    let expected = offer
        .for_engine()
        .replace("a=ice-ufrag:abcd", "a=ice-ufrag:wxyz")
        .replace("0123456789012345678901", "abcdefghijklmnopqrstuv");
    assert_eq!(fresh.for_engine(), expected);
    for (ufrag, password) in [
        ("abc", "0123456789012345678901"),
        ("abcd", "short"),
        ("ab\r\n", "0123456789012345678901"),
    ] {
        let bad = firsthop_shared::control::IceCredentials {
            ufrag: ufrag.to_owned(),
            password: password.to_owned(),
        };
        assert!(matches!(
            offer.with_ice(&bad),
            Err(OfferError::Malformed(_))
        ));
    }
}
