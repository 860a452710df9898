//! Offers as real clients write them, and thousands of damaged ones: an answer or a refusal, never a panic.

use std::time::Instant;

use firsthop_shared::address::SessionId;
use firsthop_shared::control::CallKind;
use firsthop_transceiver::sdp::OfferError;
use proptest::prelude::*;

use firsthop_transceiver::limits;

use crate::peer::{credentials, make_session, make_session_with, two_ingresses};

const CHROME: &str = include_str!("../offers/chrome.sdp");
const FIREFOX: &str = include_str!("../offers/firefox.sdp");
const AIORTC: &str = include_str!("../offers/aiortc.sdp");
const EMBEDDED: &str = include_str!("../offers/embedded.sdp");
/// Captured from aiortc 1.14, its codecs restricted to one.
const PCMU: &str = include_str!("../offers/pcmu.sdp");
const PCMA: &str = include_str!("../offers/pcma.sdp");
/// Captured from the same, as a WHIP client offers.
const WHIP: &str = include_str!("../offers/whip.sdp");

fn answer(offer: &str) -> Result<String, OfferError> {
    let offer = offer.replace('\n', "\r\n");
    let longest = limits::SESSION_MAX;
    make_session(
        SessionId(1),
        &offer,
        &two_ingresses(),
        longest,
        Instant::now(),
    )
    .map(|(_, answer)| answer)
}

/// The answer's sections: the `m=` line and the lines behind it.
fn sections(sdp: &str) -> Vec<Vec<&str>> {
    let mut sections: Vec<Vec<&str>> = Vec::new();
    for line in sdp.lines() {
        if line.starts_with("m=") {
            sections.push(Vec::new());
        }
        if let Some(section) = sections.last_mut() {
            section.push(line);
        }
    }
    sections
}

#[test]
fn chrome_s_offer_is_answered_line_for_line() {
    let text = answer(CHROME).expect("an answer");
    let sections = sections(&text);
    let kinds: Vec<&str> = sections.iter().map(|s| s[0]).collect();
    assert_eq!(
        kinds,
        [
            "m=audio 3478 UDP/TLS/RTP/SAVPF 111",
            "m=video 0 UDP/TLS/RTP/SAVPF 96 97",
            "m=application 3478 UDP/DTLS/SCTP webrtc-datachannel",
        ],
        "{text}"
    );
    let ufrag = format!("a=ice-ufrag:{}", credentials(SessionId(1), 0).ufrag);
    for (section, mid) in [(0, "a=mid:0"), (2, "a=mid:2")] {
        for line in [
            mid,
            &ufrag,
            "a=setup:active",
            "a=end-of-candidates",
            "c=IN IP4 203.0.113.10",
        ] {
            assert!(sections[section].contains(&line), "{line} in\n{text}");
        }
    }
    assert!(sections[1].contains(&"a=inactive"));
    assert!(sections[0].contains(&"a=sendrecv"));
    assert!(sections[0].contains(&"a=rtcp-mux"));
    assert!(sections[2].contains(&"a=sctp-port:5000"));
    assert!(text.contains("a=group:BUNDLE 0 2\r\n"), "{text}");
    assert!(text.contains("a=extmap-allow-mixed\r\n"));
    assert!(
        !text.contains("transport-wide-cc") && !text.contains("transport-cc"),
        "{text}"
    );
    assert!(!text.contains("red/48000"), "{text}");
}

#[test]
fn firefox_s_offer_keeps_its_payload_type() {
    let text = answer(FIREFOX).expect("an answer");
    let sections = sections(&text);
    assert_eq!(sections[0][0], "m=audio 3478 UDP/TLS/RTP/SAVPF 109");
    assert!(
        sections[0]
            .iter()
            .any(|l| l.starts_with("a=rtpmap:109 opus/48000/2"))
    );
    assert_eq!(sections.len(), 2);
}

#[test]
fn aiortc_s_offer_is_answered() {
    let text = answer(AIORTC).expect("an answer");
    let sections = sections(&text);
    assert_eq!(sections[0][0], "m=audio 3478 UDP/TLS/RTP/SAVPF 96");
    assert!(
        sections[1][0].starts_with("m=application 3478 DTLS/SCTP 5000"),
        "{text}"
    );
}

#[test]
fn an_offer_of_one_law_of_g711_alone_is_answered_with_it() {
    for (offer, media, map) in [
        (
            PCMU,
            "m=audio 3478 UDP/TLS/RTP/SAVPF 0",
            "a=rtpmap:0 PCMU/8000",
        ),
        (
            PCMA,
            "m=audio 3478 UDP/TLS/RTP/SAVPF 8",
            "a=rtpmap:8 PCMA/8000",
        ),
    ] {
        let text = answer(offer).expect("an answer");
        let sections = sections(&text);
        assert_eq!(sections[0][0], media);
        assert!(sections[0].contains(&map), "{text}");
        assert!(sections[0].contains(&"a=sendrecv"), "{text}");
        let maps = text.lines().filter(|l| l.starts_with("a=rtpmap")).count();
        assert_eq!(maps, 1, "{text}");
        assert!(sections[1][0].starts_with("m=application 3478 "), "{text}");
    }
}

#[test]
fn a_whip_client_s_offer_is_answered_recvonly() {
    let offer = WHIP.replace('\n', "\r\n");
    let now = Instant::now();
    let made = make_session_with(SessionId(1), &offer, &two_ingresses(), now, |new| {
        new.kind = CallKind::Whip;
    });
    let text = made.expect("an answer").1;
    let sections = sections(&text);
    assert_eq!(sections.len(), 1);
    assert_eq!(sections[0][0], "m=audio 3478 UDP/TLS/RTP/SAVPF 96");
    assert!(sections[0].contains(&"a=recvonly"), "{text}");
    assert!(sections[0].contains(&"a=setup:passive"), "{text}");
}

#[test]
fn an_embedded_client_s_offer_is_answered_in_its_own_terms() {
    let text = answer(EMBEDDED).expect("an answer");
    let sections = sections(&text);
    assert_eq!(sections[0][0], "m=audio 3478 UDP/TLS/RTP/SAVP 111");
    assert!(
        sections[0].contains(&"a=mid:audio-of-the-device-in-room-7"),
        "{text}"
    );
    assert!(
        sections[0].contains(&"a=setup:active"),
        "the client is passive"
    );
    assert!(!text.contains("BUNDLE"));
}

#[test]
fn directions_are_answered_in_kind() {
    for (offered, answered) in [
        ("sendrecv", "sendrecv"),
        ("sendonly", "recvonly"),
        ("recvonly", "sendonly"),
        ("inactive", "inactive"),
    ] {
        let text =
            answer(&CHROME.replace("a=sendrecv", &format!("a={offered}"))).expect("an answer");
        assert!(
            sections(&text)[0].contains(&format!("a={answered}").as_str()),
            "{text}"
        );
    }
}

/// One way to damage an offer.
#[derive(Clone, Debug)]
enum Damage {
    DropLine(usize),
    RepeatLine(usize),
    SwapLines(usize, usize),
    CutLine(usize, usize),
    Replace(usize, usize, char),
    Insert(usize, String),
    Number(usize, u64),
}

fn damage() -> impl Strategy<Value = Damage> {
    prop_oneof![
        any::<usize>().prop_map(Damage::DropLine),
        any::<usize>().prop_map(Damage::RepeatLine),
        (any::<usize>(), any::<usize>()).prop_map(|(a, b)| Damage::SwapLines(a, b)),
        (any::<usize>(), any::<usize>()).prop_map(|(a, b)| Damage::CutLine(a, b)),
        (any::<usize>(), any::<usize>(), any::<char>())
            .prop_map(|(a, b, c)| Damage::Replace(a, b, c)),
        (any::<usize>(), "[a-z]=.{0,40}").prop_map(|(a, text)| Damage::Insert(a, text)),
        (any::<usize>(), any::<u64>()).prop_map(|(a, n)| Damage::Number(a, n)),
    ]
}

fn apply(text: &str, damages: &[Damage]) -> String {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    for damage in damages {
        let count = lines.len().max(1);
        match damage {
            Damage::DropLine(at) if !lines.is_empty() => {
                lines.remove(at % count);
            }
            Damage::RepeatLine(at) if !lines.is_empty() => {
                let line = lines[at % count].clone();
                lines.insert(at % count, line);
            }
            Damage::SwapLines(a, b) if !lines.is_empty() => lines.swap(a % count, b % count),
            Damage::CutLine(at, keep) if !lines.is_empty() => {
                let line = &mut lines[at % count];
                let keep = keep % (line.chars().count() + 1);
                *line = line.chars().take(keep).collect();
            }
            Damage::Replace(at, place, with) if !lines.is_empty() => {
                let line = &mut lines[at % count];
                let place = place % (line.chars().count() + 1);
                *line = line
                    .chars()
                    .enumerate()
                    .map(|(i, c)| if i == place { *with } else { c })
                    .collect();
            }
            Damage::Insert(at, line) => lines.insert(at % (lines.len() + 1), line.clone()),
            Damage::Number(at, number) if !lines.is_empty() => {
                let line = &mut lines[at % count];
                if let Some(place) = line.find(|c: char| c.is_ascii_digit()) {
                    let end = line[place..]
                        .find(|c: char| !c.is_ascii_digit())
                        .map_or(line.len(), |n| place + n);
                    line.replace_range(place..end, &number.to_string());
                }
            }
            _ => {}
        }
    }
    lines.join("\n") + "\n"
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn a_damaged_offer_is_answered_or_refused_and_never_panics(
        offer in prop_oneof![Just(CHROME), Just(FIREFOX), Just(AIORTC), Just(EMBEDDED), Just(PCMU), Just(WHIP)],
        damages in prop::collection::vec(damage(), 1..12),
    ) {
        let text = apply(offer, &damages);
        if let Ok(answer) = answer(&text) {
            let ours = credentials(SessionId(1), 0).ufrag;
            prop_assert!(answer.contains(ours.as_str()), "without credentials there is no call: {}", answer);
            let offered = text.lines().filter(|l| l.starts_with("m=")).count();
            prop_assert_eq!(sections(&answer).len(), offered);
        }
    }

    #[test]
    fn any_text_is_answered_or_refused(text in "\\PC{0,400}") {
        let _ = answer(&text);
    }
}

#[test]
fn the_transport_of_a_group_is_taken_from_its_first_section_also_when_that_is_not_served() {
    // Sections behind the first may leave it out (RFC 9143 section 7.1.3).
    let text = "v=0\r\no=- 1 2 IN IP4 0.0.0.0\r\ns=-\r\nt=0 0\r\na=group:BUNDLE v a\r\n\
        m=video 9 UDP/TLS/RTP/SAVPF 96\r\na=mid:v\r\na=ice-ufrag:abcd\r\na=ice-pwd:0123456789012345678901\r\na=setup:actpass\r\n\
        a=fingerprint:sha-256 B4:12:1C:7C:7D:ED:F1:FA:61:07:57:9C:29:BE:58:E3:BC:41:E7:13:8E:7D:D3:9D:1F:94:6E:A5:23:46:94:23\r\n\
        m=audio 0 UDP/TLS/RTP/SAVPF 0\r\na=mid:a\r\na=bundle-only\r\na=rtcp-mux\r\na=sendrecv\r\n";
    let offer = firsthop_transceiver::sdp::Offer::parse(text).expect("an offer");
    assert_eq!(offer.ice_ufrag(), "abcd");
    assert_eq!(offer.ice_password(), "0123456789012345678901");
    assert!(offer.for_engine().contains("a=ice-ufrag:abcd\r\n"));
}
