//! Writes the offer that the engine is given: the sections that are served alone, nothing that its parser could trip over.

use std::fmt::Write as _;

use super::offer::Offer;
use super::section::{Role, Section, encoding};
use crate::limits;

/// Attributes of a section that the engine needs; all others stay outside. Payload-bound ones are filtered apart.
const KEPT: [&str; 6] = [
    "sctp-port",
    "sctp-init",
    "extmap",
    "ssrc",
    "msid",
    "sctpmap",
];

impl Offer {
    /// The offer that the engine is given: accepted sections only, with one payload type for the voice.
    #[must_use]
    pub fn for_engine(&self) -> String {
        let accepted = || self.sections.iter().filter(|s| s.role != Role::Rejected);
        let mut out = String::with_capacity(2_048);
        out.push_str("v=0\r\no=- 1 2 IN IP4 127.0.0.1\r\ns=-\r\nt=0 0\r\na=group:BUNDLE");
        for section in accepted() {
            let _ = write!(out, " {}", section.engine_mid);
        }
        out.push_str("\r\n");
        for section in accepted() {
            match section.role {
                Role::Audio => self.write_audio(&mut out, section),
                _ => out.push_str("m=application 9 UDP/DTLS/SCTP webrtc-datachannel\r\n"),
            }
            self.write_transport(&mut out);
            let _ = write!(out, "a=mid:{}\r\n", section.engine_mid);
            for line in section.attributes.iter().filter(|line| is_kept(line)) {
                let _ = write!(out, "a={line}\r\n");
            }
            if section.role == Role::Channel {
                // What the client takes is judged before the engine is asked, which remembers the first offer's value for ever.
                let _ = write!(out, "a=max-message-size:{}\r\n", limits::CHANNEL_SEND_MAX);
            }
        }
        out
    }

    fn write_audio(&self, out: &mut String, section: &Section) {
        let Some((codec, pt)) = self.codec else {
            return;
        };
        let _ = write!(out, "m=audio 9 UDP/TLS/RTP/SAVPF {pt}\r\n");
        // What the engine takes for `sendonly` it answers with `recvonly`.
        let direction = if self.uplink_only {
            "sendonly"
        } else {
            self.direction(section)
        };
        // An offer that does not say so anywhere is refused, and where it says so is no concern of the engine's.
        let _ = write!(
            out,
            "a={direction}\r\na=rtcp-mux\r\na=rtpmap:{pt} {}\r\n",
            encoding(codec)
        );
        for line in section
            .attributes
            .iter()
            .filter(|line| is_of_payload(line, pt))
        {
            let _ = write!(out, "a={line}\r\n");
        }
    }

    /// Writes ICE credentials, fingerprint and role: the same in every section, because there is one transport. The engine
    /// would take the first it finds, and answers would be verified with another.
    fn write_transport(&self, out: &mut String) {
        let _ = write!(
            out,
            "a=ice-ufrag:{}\r\na=ice-pwd:{}\r\na=fingerprint:{}\r\na=setup:{}\r\n",
            self.ice_ufrag(),
            self.ice_password(),
            self.fingerprint,
            self.setup(),
        );
    }

    /// What the engine is told of who begins the handshake of DTLS: the client's word, and ours where that leaves the choice.
    ///
    /// We begin where we may: it saves a round trip. Where SCTP has a handshake of its own the client begins that one, and the engine lets
    /// its client of DTLS begin it alone: so it is told that the client begins DTLS, which is true of all but those in
    /// [`Offer::parts_differ`].
    fn setup(&self) -> &str {
        if self.leaves_dtls_to_us() && !self.shakes_hands_for_sctp() {
            return "passive";
        }
        self.offered_setup()
    }

    /// Whether the client leaves the choice who begins DTLS to us. In WHIP it does not: the endpoint should be passive (RFC 9725 section
    /// 4.2).
    pub(super) fn leaves_dtls_to_us(&self) -> bool {
        self.offered_setup() == "actpass" && !self.uplink_only
    }

    fn offered_setup(&self) -> &str {
        self.credential("setup").unwrap_or("actpass").trim()
    }

    /// Forgets every attribute that neither the engine nor an answer will ask for: an offer that is kept for a restart is small then.
    pub(super) fn forget_unused(&mut self) {
        let pt = self.codec.map(|(_, pt)| pt);
        for (index, section) in self.sections.iter_mut().enumerate() {
            let rejected = section.role == Role::Rejected;
            // The section that has the call's transport may be one that is not served.
            let transport = index == self.transport;
            section.attributes.retain(|line| {
                if rejected {
                    return is_map(line) || (transport && is_transport(line));
                }
                is_kept(line)
                    || is_transport(line)
                    || name(line) == "max-message-size"
                    || is_direction(line)
                    || pt.is_some_and(|pt| is_of_payload(line, pt))
            });
            section.attributes.shrink_to_fit();
        }
        self.session_attributes.retain(|line| {
            is_transport(line) || is_direction(line) || line.as_str() == "extmap-allow-mixed"
        });
        self.session_attributes.shrink_to_fit();
    }
}

pub(super) const DIRECTIONS: [&str; 4] = ["sendrecv", "sendonly", "recvonly", "inactive"];

fn name(line: &str) -> &str {
    line.split_once(':').map_or(line, |(name, _)| name)
}

fn is_kept(line: &str) -> bool {
    KEPT.contains(&name(line))
}

fn is_direction(line: &str) -> bool {
    DIRECTIONS.contains(&line)
}

fn is_transport(line: &str) -> bool {
    ["ice-ufrag", "ice-pwd", "fingerprint", "setup"].contains(&name(line))
}

/// Whether a line maps a payload type and can be repeated in an answer.
fn is_map(line: &str) -> bool {
    name(line) == "rtpmap" && line.bytes().all(|b| b == b' ' || b.is_ascii_graphic())
}

/// Format parameters and feedback of a payload type. Transport-wide feedback is not served.
fn is_of_payload(line: &str, pt: u8) -> bool {
    let Some((name, rest)) = line.split_once(':') else {
        return false;
    };
    let of = rest.split_ascii_whitespace().next();
    of.and_then(|of| of.parse().ok()) == Some(pt)
        && match name {
            "fmtp" => true,
            "rtcp-fb" => !rest.ends_with("transport-cc"),
            _ => false,
        }
}
