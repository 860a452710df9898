//! Reads a client's offer leniently, and rewrites it for the engine.
//!
//! Source: RFC 8866 (SDP), RFC 8829 (JSEP), RFC 9143 (BUNDLE), RFC 8841 (SCTP), RFC 7587 (Opus in RTP).

use std::fmt::Write as _;

use firsthop_shared::limits::SDP_MAX;

use crate::limits;

/// Why an offer cannot become a call.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OfferError {
    /// The text is not a usable SDP offer; the message says what is wrong.
    #[error("{0}")]
    Malformed(String),
    /// The text is SDP, but asks for nothing that this service can do.
    #[error("{0}")]
    Unsupported(String),
}

impl OfferError {
    pub(super) fn malformed(message: impl Into<String>) -> Self {
        Self::Malformed(message.into())
    }
}

/// What a media section of the offer is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The voice: the first audio section with Opus.
    Audio,
    /// The data channel.
    Channel,
    /// Nothing: answered with port 0.
    Rejected,
}

/// One media section, as the client wrote it.
#[derive(Clone, Debug)]
pub(super) struct Section {
    pub(super) role: Role,
    pub(super) kind: String,
    pub(super) protocol: String,
    pub(super) formats: String,
    port: String,
    /// The client's `mid`, which the answer repeats.
    pub(super) mid: Option<String>,
    /// The `mid` that the engine sees: the client's when it is one that the engine can hold.
    pub(super) engine_mid: String,
    attributes: Vec<String>,
}

impl Section {
    fn attribute(&self, name: &str) -> Option<&str> {
        attribute(&self.attributes, name)
    }

    /// The payload types whose `rtpmap` names the codec.
    fn payload_types(&self, codec: &str) -> Vec<u8> {
        let listed: Vec<u8> = self
            .formats
            .split_ascii_whitespace()
            .filter_map(|format| format.parse().ok())
            .filter(|pt| *pt < 128)
            .collect();
        let mut found: Vec<u8> = Vec::new();
        for line in &self.attributes {
            let Some(rest) = line.strip_prefix("rtpmap:") else {
                continue;
            };
            let Some((pt, encoding)) = rest.split_once(' ') else {
                continue;
            };
            let named = encoding.trim().get(..codec.len());
            if let Ok(pt) = pt.parse::<u8>()
                && named.is_some_and(|name| name.eq_ignore_ascii_case(codec))
                && listed.contains(&pt)
                && !found.contains(&pt)
            {
                found.push(pt);
            }
        }
        found
    }
}

/// A client's offer, read and sorted.
#[derive(Clone, Debug)]
pub struct Offer {
    session_attributes: Vec<String>,
    pub(super) sections: Vec<Section>,
    /// The section whose transport is the call's: the group's first when the audio is in the group (the offerer-tagged one,
    /// RFC 9143 section 7.2.1), else the audio section.
    transport: usize,
    /// Whether the client bundles: only then may the answer have a group (RFC 9143 section 7.3).
    pub(super) bundled: bool,
}

/// Attributes of a section that the engine needs; all others stay outside. Payload-bound ones are filtered apart.
const KEPT: [&str; 11] = [
    "ice-ufrag",
    "ice-pwd",
    "fingerprint",
    "setup",
    "rtcp-mux",
    "sctp-port",
    "max-message-size",
    "extmap",
    "ssrc",
    "msid",
    "sctpmap",
];

const DIRECTIONS: [&str; 4] = ["sendrecv", "sendonly", "recvonly", "inactive"];

impl Offer {
    /// Reads an offer.
    ///
    /// Candidates are not looked at: remote addresses come from verified checks only, so that nobody makes us probe our
    /// own network.
    ///
    /// # Errors
    /// [`OfferError::Malformed`] for text that is no SDP or lacks ICE credentials or a fingerprint;
    /// [`OfferError::Unsupported`] for SDP without a servable audio section.
    pub fn parse(text: &str) -> Result<Self, OfferError> {
        if text.len() > SDP_MAX {
            return Err(OfferError::malformed(format!(
                "the offer has {} bytes, more than {SDP_MAX}",
                text.len()
            )));
        }
        let mut lines = text
            .split('\n')
            .map(|line| line.trim_end_matches('\r'))
            .enumerate()
            .filter(|(_, line)| !line.is_empty());
        match lines.next() {
            Some((_, "v=0")) => {}
            _ => return Err(OfferError::malformed("an SDP offer begins with 'v=0'")),
        }

        let mut offer = Self {
            session_attributes: Vec::new(),
            sections: Vec::new(),
            transport: 0,
            bundled: false,
        };
        for (number, line) in lines {
            let Some((kind, value)) = line.split_at_checked(2) else {
                return Err(not_sdp(number));
            };
            let section = offer.sections.last_mut();
            match (kind, section) {
                ("a=", None) => offer.session_attributes.push(value.to_owned()),
                ("a=", Some(section)) => section.attributes.push(value.to_owned()),
                ("m=", _) => {
                    if offer.sections.len() == limits::SDP_SECTIONS_MAX {
                        return Err(OfferError::malformed("too many media sections"));
                    }
                    offer.sections.push(media_line(number, value)?);
                }
                _ if kind.as_bytes()[0].is_ascii_lowercase() && kind.ends_with('=') => {}
                _ => return Err(not_sdp(number)),
            }
        }
        offer.sort()?;
        Ok(offer)
    }

    /// What the client lets us send in one message on the channel, in bytes; nothing when it offers no channel.
    #[must_use]
    pub fn channel_message_max(&self) -> Option<usize> {
        let section = self.section(Role::Channel)?;
        Some(match section.attribute("max-message-size") {
            Some(text) => match text.trim().parse() {
                // Zero means any size.
                Ok(0) | Err(_) => limits::CHANNEL_MESSAGE_MAX as usize,
                Ok(size) => size,
            },
            None => limits::CHANNEL_REMOTE_MESSAGE_DEFAULT,
        })
    }

    /// Whether the offer has a data channel section that is served.
    #[must_use]
    pub fn has_channel(&self) -> bool {
        self.section(Role::Channel).is_some()
    }

    /// The client's ICE password: its answers to our checks are signed with it.
    #[must_use]
    pub fn ice_password(&self) -> &str {
        // `sort` has made sure that there is one.
        self.credential("ice-pwd").unwrap_or_default()
    }

    /// The client's ICE ufrag: the second half of the USERNAME in its checks.
    #[must_use]
    pub fn ice_ufrag(&self) -> &str {
        self.credential("ice-ufrag").unwrap_or_default()
    }

    /// The sections that the engine is given, in order: what each is, and its `mid` there.
    #[must_use]
    pub fn layout(&self) -> Vec<(Role, String)> {
        let accepted = self.sections.iter().filter(|s| s.role != Role::Rejected);
        accepted.map(|s| (s.role, s.engine_mid.clone())).collect()
    }

    pub(super) fn section(&self, role: Role) -> Option<&Section> {
        self.sections.iter().find(|section| section.role == role)
    }

    pub(super) fn session_attribute(&self, name: &str) -> Option<&str> {
        attribute(&self.session_attributes, name)
    }

    /// The offer that the engine is given: accepted sections only, nothing that its parser could trip over.
    #[must_use]
    pub fn for_engine(&self) -> String {
        let accepted = || self.sections.iter().filter(|s| s.role != Role::Rejected);
        let mut out = String::with_capacity(2_048);
        out.push_str("v=0\r\no=- 1 2 IN IP4 127.0.0.1\r\ns=-\r\nt=0 0\r\na=group:BUNDLE");
        for section in accepted() {
            let _ = write!(out, " {}", section.engine_mid);
        }
        out.push_str("\r\n");
        if self.session_attribute("ice-lite").is_some() {
            out.push_str("a=ice-lite\r\n");
        }
        for section in accepted() {
            match section.role {
                Role::Audio => self.write_audio(&mut out, section),
                _ => out.push_str("m=application 9 UDP/DTLS/SCTP webrtc-datachannel\r\n"),
            }
            self.write_transport(&mut out);
            let _ = write!(out, "a=mid:{}\r\n", section.engine_mid);
            for line in &section.attributes {
                let name = line.split_once(':').map_or(line.as_str(), |(name, _)| name);
                let transport = ["ice-ufrag", "ice-pwd", "fingerprint", "setup"].contains(&name);
                if KEPT.contains(&name) && !transport {
                    let _ = write!(out, "a={line}\r\n");
                }
            }
        }
        out
    }

    /// Writes the audio section with its Opus payload types alone.
    fn write_audio(&self, out: &mut String, section: &Section) {
        let opus = section.payload_types("opus/48000");
        out.push_str("m=audio 9 UDP/TLS/RTP/SAVPF");
        for pt in &opus {
            let _ = write!(out, " {pt}");
        }
        out.push_str("\r\n");
        let direction = DIRECTIONS
            .iter()
            .find(|name| section.attribute(name).is_some())
            .or_else(|| {
                DIRECTIONS
                    .iter()
                    .find(|name| self.session_attribute(name).is_some())
            })
            .unwrap_or(&"sendrecv");
        let _ = write!(out, "a={direction}\r\n");
        let mut mapped = Vec::new();
        for line in &section.attributes {
            let Some((name, rest)) = line.split_once(':') else {
                continue;
            };
            let pt = rest
                .split_ascii_whitespace()
                .next()
                .and_then(|pt| pt.parse::<u8>().ok());
            let Some(pt) = pt.filter(|pt| opus.contains(pt)) else {
                continue;
            };
            match name {
                // A payload type is mapped once; a second line for it would be refused.
                "rtpmap" if !mapped.contains(&pt) => mapped.push(pt),
                "fmtp" => {}
                "rtcp-fb" if !rest.ends_with("transport-cc") => {}
                _ => continue,
            }
            let _ = write!(out, "a={line}\r\n");
        }
    }

    /// Writes ICE credentials, fingerprint and role: the same in every section, because there is one transport. The engine
    /// would take the first it finds, and answers would be verified with another.
    fn write_transport(&self, out: &mut String) {
        for name in ["ice-ufrag", "ice-pwd", "fingerprint"] {
            if let Some(value) = self.credential(name) {
                let _ = write!(out, "a={name}:{value}\r\n");
            }
        }
        let setup = self.credential("setup").unwrap_or("actpass");
        let _ = write!(out, "a=setup:{setup}\r\n");
    }

    /// A transport attribute of the call: of the section that has the transport, else of the session, else of the audio.
    fn credential(&self, name: &str) -> Option<&str> {
        self.sections
            .get(self.transport)
            .and_then(|section| section.attribute(name))
            .or_else(|| self.session_attribute(name))
            .or_else(|| self.section(Role::Audio)?.attribute(name))
    }

    /// Gives each section its role, and checks what every call needs.
    fn sort(&mut self) -> Result<(), OfferError> {
        if self.sections.is_empty() {
            return Err(OfferError::malformed("the offer has no media section"));
        }
        let bundle: Option<Vec<String>> = self
            .session_attributes
            .iter()
            .find_map(|line| line.strip_prefix("group:BUNDLE"))
            .map(|mids| mids.split_ascii_whitespace().map(str::to_owned).collect());
        self.bundled = bundle.is_some();
        for (index, section) in self.sections.iter_mut().enumerate() {
            section.mid = attribute(&section.attributes, "mid").map(str::to_owned);
            section.engine_mid = match &section.mid {
                Some(mid) if engine_can_hold(mid) => mid.clone(),
                _ => format!("fh{index}"),
            };
        }

        let bundled = |section: &Section| match (&bundle, &section.mid) {
            (Some(mids), Some(mid)) => mids.contains(mid),
            _ => false,
        };
        // Port 0 outside the group is a rejected section; inside it only says "no transport of my own" (RFC 9143).
        let alive = |section: &Section| section.port != "0" || bundled(section);

        let audio = self.sections.iter().position(|section| {
            section.kind == "audio"
                && alive(section)
                && ["UDP/TLS/RTP/SAVPF", "UDP/TLS/RTP/SAVP"].contains(&section.protocol.as_str())
                && !section.payload_types("opus/48000").is_empty()
        });
        let Some(audio) = audio else {
            return Err(OfferError::Unsupported(
                "the offer has no audio section with Opus over DTLS-SRTP".to_owned(),
            ));
        };
        let audio_bundled = bundled(&self.sections[audio]);
        let audio_ufrag = self.sections[audio].attribute("ice-ufrag");
        let channel = self.sections.iter().position(|section| {
            let one_transport = bundled(section) == audio_bundled
                && (audio_bundled || section.attribute("ice-ufrag") == audio_ufrag);
            section.kind == "application"
                && alive(section)
                && section.protocol.ends_with("DTLS/SCTP")
                && one_transport
        });
        let tagged = bundle.as_ref().and_then(|mids| mids.first());
        self.transport = self
            .sections
            .iter()
            .position(|section| audio_bundled && section.mid.as_ref() == tagged)
            .unwrap_or(audio);
        self.sections[audio].role = Role::Audio;
        if let Some(channel) = channel {
            self.sections[channel].role = Role::Channel;
        }

        self.check_credential("ice-ufrag", 4)?;
        self.check_credential("ice-pwd", 22)?;
        if self.credential("fingerprint").is_none() {
            return Err(OfferError::malformed("the offer has no a=fingerprint"));
        }
        Ok(())
    }

    fn check_credential(&self, name: &str, shortest: usize) -> Result<(), OfferError> {
        // RFC 8839 section 5.4: ice-char, at most 256.
        let ice_char = |b: u8| b.is_ascii_alphanumeric() || b == b'+' || b == b'/';
        match self.credential(name) {
            Some(value)
                if (shortest..=256).contains(&value.len()) && value.bytes().all(ice_char) =>
            {
                Ok(())
            }
            Some(_) => Err(OfferError::malformed(format!("a={name} is not valid"))),
            None => Err(OfferError::malformed(format!("the offer has no a={name}"))),
        }
    }
}

fn not_sdp(number: usize) -> OfferError {
    OfferError::malformed(format!("line {} is not SDP", number + 1))
}

fn attribute<'a>(attributes: &'a [String], name: &str) -> Option<&'a str> {
    attributes.iter().find_map(|line| {
        let rest = line.strip_prefix(name)?;
        match rest.strip_prefix(':') {
            Some(value) => Some(value),
            None => rest.is_empty().then_some(""),
        }
    })
}

/// The engine keeps a `mid` of 16 letters and digits, and changes anything else.
fn engine_can_hold(mid: &str) -> bool {
    (1..=16).contains(&mid.len()) && mid.bytes().all(|b| b.is_ascii_alphanumeric())
}

/// `<kind> <port> <protocol> <formats…>` (RFC 8866 section 5.14).
fn media_line(number: usize, value: &str) -> Result<Section, OfferError> {
    let mut fields = value.splitn(4, ' ');
    match (fields.next(), fields.next(), fields.next(), fields.next()) {
        (Some(kind), Some(port), Some(protocol), Some(formats))
            if !kind.is_empty() && port.parse::<u16>().is_ok() && !formats.is_empty() =>
        {
            Ok(Section {
                role: Role::Rejected,
                kind: kind.to_owned(),
                protocol: protocol.to_owned(),
                formats: formats.to_owned(),
                port: port.to_owned(),
                mid: None,
                engine_mid: String::new(),
                attributes: Vec::new(),
            })
        }
        _ => Err(OfferError::malformed(format!(
            "line {}: not a media description",
            number + 1
        ))),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) const TRANSPORT: &str = "a=ice-ufrag:abcd\r\na=ice-pwd:0123456789012345678901\r\n\
        a=fingerprint:sha-256 B4:12:1C:7C:7D:ED:F1:FA:61:07:57:9C:29:BE:58:E3:BC:41:E7:13:8E:7D:D3:9D:1F:94:6E:A5:23:46:94:23\r\n";

    fn offer(sections: &str) -> String {
        format!("v=0\r\no=- 1 2 IN IP4 0.0.0.0\r\ns=-\r\nt=0 0\r\na=group:BUNDLE 0 1\r\n{sections}")
    }

    fn audio(mid: &str) -> String {
        format!(
            "m=audio 9 UDP/TLS/RTP/SAVPF 111 0\r\nc=IN IP4 0.0.0.0\r\n{TRANSPORT}a=setup:actpass\r\na=mid:{mid}\r\n\
             a=sendrecv\r\na=rtpmap:111 opus/48000/2\r\na=fmtp:111 minptime=10;useinbandfec=1\r\n\
             a=rtcp-fb:111 transport-cc\r\na=rtpmap:0 PCMU/8000\r\n\
             a=candidate:1 1 udp 2113937151 abc.local 5000 typ host\r\n"
        )
    }

    fn channel(mid: &str) -> String {
        format!(
            "m=application 9 UDP/DTLS/SCTP webrtc-datachannel\r\n{TRANSPORT}a=setup:actpass\r\na=mid:{mid}\r\n\
             a=sctp-port:5000\r\na=max-message-size:262144\r\n"
        )
    }

    #[test]
    fn audio_and_channel_are_served_and_candidates_never_reach_the_engine() {
        let offer = Offer::parse(&offer(&(audio("0") + &channel("1")))).expect("an offer");
        assert!(offer.has_channel());
        assert_eq!(offer.channel_message_max(), Some(262_144));
        let text = offer.for_engine();
        assert!(!text.contains("candidate"), "{text}");
        assert!(!text.contains("PCMU"), "{text}");
        assert!(!text.contains("transport-cc"), "{text}");
        assert!(
            text.contains("m=audio 9 UDP/TLS/RTP/SAVPF 111\r\n"),
            "{text}"
        );
    }

    #[test]
    fn extra_sections_are_rejected_without_failing_the_call() {
        let video = format!(
            "m=video 9 UDP/TLS/RTP/SAVPF 96\r\n{TRANSPORT}a=mid:v\r\na=sendrecv\r\na=rtpmap:96 VP8/90000\r\n"
        );
        let offer = Offer::parse(&offer(&(video + &audio("0") + &channel("1") + &audio("2"))))
            .expect("an offer");
        let roles: Vec<Role> = offer.sections.iter().map(|s| s.role).collect();
        assert_eq!(
            roles,
            [Role::Rejected, Role::Audio, Role::Channel, Role::Rejected]
        );
    }

    #[test]
    fn an_embedded_offer_without_group_mid_direction_or_feedback_profile_is_served() {
        let text = format!(
            "v=0\no=- 1 2 IN IP4 0.0.0.0\ns=-\nt=0 0\n{}m=audio 9 UDP/TLS/RTP/SAVP 111\na=setup:passive\n\
             a=mid:audio-section-with-a-long-name\na=rtpmap:111 OPUS/48000/2\n",
            TRANSPORT.replace("\r\n", "\n")
        );
        let offer = Offer::parse(&text).expect("an offer");
        assert!(!offer.bundled);
        let engine = offer.for_engine();
        assert!(engine.contains("a=mid:fh0\r\n"), "{engine}");
        assert!(engine.contains("a=sendrecv\r\n"), "{engine}");
        assert!(engine.contains("SAVPF 111\r\n"), "{engine}");
        assert!(engine.contains("a=setup:passive\r\n"), "{engine}");
    }

    #[test]
    fn what_is_wrong_is_said() {
        let cases = [
            ("", "begins with 'v=0'"),
            ("hello", "begins with 'v=0'"),
            ("v=0\r\ns=-\r\n", "no media section"),
            ("v=0\r\nnonsense\r\n", "line 2 is not SDP"),
            ("v=0\r\nm=audio\r\n", "line 2: not a media description"),
        ];
        for (text, message) in cases {
            let error = Offer::parse(text).expect_err("refused");
            assert!(matches!(error, OfferError::Malformed(_)), "{text:?}");
            assert!(error.to_string().contains(message), "{text:?}: {error}");
        }
        let without = offer(&audio("0")).replace("a=ice-pwd:0123456789012345678901\r\n", "");
        let error = Offer::parse(&without).expect_err("refused");
        assert_eq!(error.to_string(), "the offer has no a=ice-pwd");
    }

    #[test]
    fn an_offer_without_servable_audio_is_unsupported_not_malformed() {
        for text in [
            offer(&channel("1")),
            offer(&audio("0")).replace("opus/48000/2", "G722/8000"),
            offer(&audio("0")).replace("UDP/TLS/RTP/SAVPF", "RTP/AVP"),
        ] {
            assert!(matches!(
                Offer::parse(&text),
                Err(OfferError::Unsupported(_))
            ));
        }
    }

    #[test]
    fn the_engine_and_the_checks_take_the_credentials_of_the_tagged_section() {
        // In a group the first section's transport counts; what the others say is not looked at.
        let other = channel("1").replace("ice-ufrag:abcd", "ice-ufrag:efgh");
        for (group, ufrag) in [("BUNDLE 0 1", "abcd"), ("BUNDLE 1 0", "efgh")] {
            let text = offer(&(other.clone() + &audio("0"))).replace("BUNDLE 0 1", group);
            let offer = Offer::parse(&text).expect("an offer");
            assert_eq!(offer.ice_ufrag(), ufrag);
            let engine = offer.for_engine();
            let told = engine.matches(&format!("a=ice-ufrag:{ufrag}\r\n")).count();
            assert_eq!(
                (told, engine.matches("ice-ufrag").count()),
                (2, 2),
                "{engine}"
            );
        }
    }

    #[test]
    fn a_channel_on_a_transport_of_its_own_is_not_served() {
        let text = offer(&(audio("0") + &channel("1").replace("ice-ufrag:abcd", "ice-ufrag:efgh")))
            .replace("a=group:BUNDLE 0 1\r\n", "");
        let offer = Offer::parse(&text).expect("an offer");
        assert!(!offer.has_channel());
    }
}
