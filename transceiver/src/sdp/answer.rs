//! Puts the engine's answer back into the shape of the client's offer.
//!
//! The engine knows the accepted sections alone and, after an ICE restart, credentials that are not ours. The client must
//! get one section per section that it offered, in its order (RFC 8829 section 5.3.1), our minted credentials, and every
//! server candidate at once: some clients never trickle.

use std::fmt::Write as _;
use std::net::SocketAddr;

use super::offer::{Offer, OfferError};
use super::section::{Role, Section, all};
use crate::limits;

/// What the answer says beside what the engine negotiated.
#[derive(Clone, Copy, Debug)]
pub struct AnswerParts<'a> {
    /// Our ICE ufrag, as minted.
    pub ufrag: &'a str,
    /// Our ICE password, as derived.
    pub password: &'a str,
    /// Whether DTLS is ours to begin.
    pub active: bool,
    /// The advertised addresses, best first.
    pub candidates: &'a [SocketAddr],
    /// Session id of the `o=` line; a number that stays.
    pub origin: u64,
    /// Version of the `o=` line; grows with each answer.
    pub version: u64,
}

/// What a client may send in one message on the channel.
const MESSAGE_MAX: &str = "a=max-message-size:";

/// Host candidates of one component: type preference 126 (RFC 8445 section 5.1.2.2).
const HOST_PREFERENCE: u32 = 126;

/// Writes the answer for the client from the engine's answer to [`Offer::for_engine`].
///
/// # Errors
/// [`OfferError::Malformed`] when the engine's answer lacks an accepted section: the offer contradicts an earlier one.
pub fn compose(offer: &Offer, engine: &str, parts: &AnswerParts<'_>) -> Result<String, OfferError> {
    let engine_sections = sections(engine);
    let default = parts.candidates.first();
    let mut out = String::with_capacity(2_048);
    let _ = write!(
        out,
        "v=0\r\no=- {} {} IN IP4 127.0.0.1\r\ns=-\r\nt=0 0\r\n",
        parts.origin, parts.version
    );
    // Only a group that was offered is answered, with those of its sections that are served (RFC 9143 section 7.3); never an empty one.
    let served = offer.sections.iter().filter(|s| s.role != Role::Rejected);
    let grouped: Vec<&str> = served
        .filter(|section| section.grouped)
        .filter_map(|section| section.mid.as_deref())
        .collect();
    if !grouped.is_empty() {
        let _ = write!(out, "a=group:BUNDLE {}\r\n", grouped.join(" "));
    }
    if offer.session_attribute("extmap-allow-mixed").is_some() {
        out.push_str("a=extmap-allow-mixed\r\n");
    }
    out.push_str("a=msid-semantic: WMS *\r\n");

    for section in &offer.sections {
        if section.role == Role::Rejected {
            write_rejected(&mut out, section);
            continue;
        }
        let lines = engine_sections
            .iter()
            .find(|lines| lines.iter().any(|line| is_mid(line, &section.engine_mid)))
            .ok_or_else(|| {
                OfferError::malformed("the offer changes the order or the kind of its sections")
            })?;
        write_media_line(&mut out, section, lines, default);
        write_transport(&mut out, section, lines, parts);
        // Who does not send has no stream to name (RFC 8829 section 5.3.1).
        let sends = !lines
            .iter()
            .any(|l| ["a=recvonly", "a=inactive"].contains(l));
        let mine =
            |line: &&&str| sends || !["a=msid:", "a=ssrc"].iter().any(|p| line.starts_with(p));
        let negotiated = lines.iter().skip(1).filter(|line| is_negotiated(line));
        for line in negotiated.filter(mine) {
            if line.starts_with(MESSAGE_MAX) {
                // The engine takes more, so that what is too large is refused and does not end the call.
                let _ = write!(out, "{MESSAGE_MAX}{}\r\n", limits::CHANNEL_MESSAGE_MAX);
            } else {
                let _ = write!(out, "{line}\r\n");
            }
        }
    }
    Ok(out)
}

/// The engine's media sections, each a list of lines that begins with its `m=` line.
fn sections(engine: &str) -> Vec<Vec<&str>> {
    let mut out: Vec<Vec<&str>> = Vec::new();
    for line in engine.lines() {
        if line.starts_with("m=") {
            out.push(vec![line]);
        } else if let Some(section) = out.last_mut() {
            section.push(line);
        }
    }
    out
}

fn is_mid(line: &str, mid: &str) -> bool {
    line.strip_prefix("a=mid:") == Some(mid)
}

/// Lines that the engine decides; what is ours to say is written elsewhere.
fn is_negotiated(line: &str) -> bool {
    const OURS: [&str; 7] = [
        "a=candidate:",
        "a=end-of-candidates",
        "a=ice-",
        "a=fingerprint:",
        "a=setup:",
        "a=mid:",
        "a=rtcp:",
    ];
    line.starts_with("a=")
        && !OURS.iter().any(|prefix| line.starts_with(prefix))
        && !line.ends_with("transport-cc")
}

fn write_rejected(out: &mut String, section: &Section) {
    let _ = write!(
        out,
        "m={} 0 {} {}\r\nc=IN IP4 0.0.0.0\r\n",
        section.kind, section.protocol, section.formats
    );
    if let Some(mid) = &section.mid {
        let _ = write!(out, "a=mid:{mid}\r\n");
    }
    if section.protocol.contains("RTP/") {
        out.push_str("a=inactive\r\n");
        // Strict parsers want every format explained, also where it means nothing any more.
        for map in all(&section.attributes, "rtpmap") {
            let _ = write!(out, "a=rtpmap:{map}\r\n");
        }
    }
}

/// The `m=` line with the client's own profile name, and the default destination (RFC 8839 section 4.2.1.2).
fn write_media_line(
    out: &mut String,
    section: &Section,
    lines: &[&str],
    default: Option<&SocketAddr>,
) {
    let formats = match section.role {
        Role::Audio => lines[0].splitn(4, ' ').nth(3).unwrap_or("0"),
        _ => &section.formats,
    };
    let port = default.map_or(9, SocketAddr::port);
    let _ = write!(
        out,
        "m={} {port} {} {formats}\r\n",
        section.kind, section.protocol
    );
    match default {
        Some(SocketAddr::V6(v6)) => {
            let _ = write!(out, "c=IN IP6 {}\r\n", v6.ip());
        }
        Some(SocketAddr::V4(v4)) => {
            let _ = write!(out, "c=IN IP4 {}\r\n", v4.ip());
        }
        None => out.push_str("c=IN IP4 0.0.0.0\r\n"),
    }
}

fn write_transport(out: &mut String, section: &Section, lines: &[&str], parts: &AnswerParts<'_>) {
    if let Some(mid) = &section.mid {
        let _ = write!(out, "a=mid:{mid}\r\n");
    }
    let _ = write!(
        out,
        "a=ice-ufrag:{}\r\na=ice-pwd:{}\r\n",
        parts.ufrag, parts.password
    );
    for line in lines.iter().filter(|l| l.starts_with("a=fingerprint:")) {
        let _ = write!(out, "{line}\r\n");
    }
    // The engine's part may be another: see `Offer::parts_differ`.
    let setup = if parts.active { "active" } else { "passive" };
    let _ = write!(out, "a=setup:{setup}\r\n");
    for (index, address) in parts.candidates.iter().enumerate() {
        let _ = write!(
            out,
            "a=candidate:{} 1 udp {} {} {} typ host\r\n",
            index + 1,
            priority(index),
            address.ip(),
            address.port()
        );
    }
    out.push_str("a=end-of-candidates\r\n");
}

/// The priority of the candidate at `index` in the advertised order (RFC 8445 section 5.1.2.1).
fn priority(index: usize) -> u32 {
    let local = 65_535u32.saturating_sub(index as u32);
    (HOST_PREFERENCE << 24) | (local << 8) | 255
}

#[cfg(test)]
mod tests {
    use super::super::offer::tests::TRANSPORT;
    use super::*;

    const ENGINE: &str = "v=0\r\no=str0m 1 2 IN IP4 0.0.0.0\r\ns=-\r\nt=0 0\r\na=group:BUNDLE fh1\r\n\
        m=audio 9 UDP/TLS/RTP/SAVPF 111\r\nc=IN IP4 0.0.0.0\r\na=rtcp:9 IN IP4 0.0.0.0\r\na=candidate:7 1 udp 1 10.0.0.1 1 typ host\r\n\
        a=ice-ufrag:random\r\na=ice-pwd:random\r\na=ice-options:trickle\r\na=fingerprint:sha-256 AA\r\na=setup:passive\r\n\
        a=mid:fh1\r\na=sendrecv\r\na=msid:stream track\r\na=rtcp-mux\r\na=rtpmap:111 opus/48000/2\r\na=rtcp-fb:111 transport-cc\r\n";

    fn parts(candidates: &[SocketAddr]) -> AnswerParts<'_> {
        AnswerParts {
            ufrag: "minted",
            password: "derived",
            active: true,
            candidates,
            origin: 7,
            version: 1,
        }
    }

    fn offer() -> Offer {
        Offer::parse(&format!(
            "v=0\r\no=- 1 2 IN IP4 0.0.0.0\r\ns=-\r\nt=0 0\r\nm=video 9 UDP/TLS/RTP/SAVPF 96\r\na=mid:v\r\n\
             m=audio 9 UDP/TLS/RTP/SAVP 111\r\n{TRANSPORT}a=mid:the-voice\r\na=rtcp-mux\r\na=rtpmap:111 opus/48000/2\r\n"
        ))
        .expect("an offer")
    }

    #[test]
    fn the_answer_has_the_offer_s_sections_our_credentials_and_every_candidate() {
        let candidates = [
            "203.0.113.10:3478".parse().expect("an address"),
            "[2001:db8::1]:3478".parse().expect("an address"),
        ];
        let text = compose(&offer(), ENGINE, &parts(&candidates)).expect("an answer");
        let media: Vec<&str> = text.lines().filter(|line| line.starts_with("m=")).collect();
        assert_eq!(
            media,
            [
                "m=video 0 UDP/TLS/RTP/SAVPF 96",
                "m=audio 3478 UDP/TLS/RTP/SAVP 111"
            ]
        );
        for line in [
            "c=IN IP4 203.0.113.10",
            "a=mid:the-voice",
            "a=ice-ufrag:minted",
            "a=ice-pwd:derived",
            "a=setup:active",
            "a=sendrecv",
            "a=msid:stream track",
            "a=candidate:1 1 udp 2130706431 203.0.113.10 3478 typ host",
            "a=candidate:2 1 udp 2130706175 2001:db8::1 3478 typ host",
            "a=end-of-candidates",
        ] {
            assert!(text.lines().any(|l| l == line), "{line} in\n{text}");
        }
        for absent in [
            "random",
            "10.0.0.1",
            "transport-cc",
            "BUNDLE",
            "trickle",
            "fh1",
        ] {
            assert!(!text.contains(absent), "{absent} in\n{text}");
        }
    }

    #[test]
    fn an_offer_that_contradicts_the_session_is_refused() {
        let other = ENGINE.replace("fh1", "other");
        assert!(compose(&offer(), &other, &parts(&[])).is_err());
    }
}
