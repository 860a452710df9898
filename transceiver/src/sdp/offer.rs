//! Reads a client's offer: leniently in what it leaves out or adds, strictly in what it says ([`strict`]).
//!
//! Source: RFC 8866 (SDP), RFC 8829 (JSEP), RFC 9143 (BUNDLE), RFC 8841 (SCTP), RFC 7587 (Opus in RTP), RFC 3551 (G.711 in RTP).

use firsthop_shared::control::{CallKind, IceCredentials};
use firsthop_shared::limits::SDP_MAX;

use super::channel;
use super::engine::DIRECTIONS;
use super::section::{Role, Section, all, attribute};
use super::strict;
use crate::audio::Codec;
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

/// What an offer is read for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Purpose {
    /// The kind of call. A WHIP offer is served whole or not at all (RFC 9725 section 4.4.3).
    pub kind: CallKind,
    /// The codec that is taken when it is offered, whatever else is.
    pub codec: Option<Codec>,
}

/// A client's offer, read and sorted.
#[derive(Clone, Debug)]
pub struct Offer {
    pub(super) session_attributes: Vec<String>,
    pub(super) sections: Vec<Section>,
    /// The section whose transport is the call's: the group's first when the audio is in the group (the offerer-tagged one,
    /// RFC 9143 section 7.2.1), else the audio section.
    pub(super) transport: usize,
    /// The codec of the voice and its payload type; nothing in a call of events alone.
    pub(super) codec: Option<(Codec, u8)>,
    /// The client's certificate, as the engine reads it.
    pub(super) fingerprint: String,
    /// Whether the client is only listened to.
    pub(super) uplink_only: bool,
    /// Whether the client begins SCTP whatever its part in DTLS is.
    pub(super) begins_sctp: bool,
    /// The client's newer ICE credentials, sent without an offer.
    ice: Option<IceCredentials>,
}

impl Offer {
    /// Reads an offer for a realtime call.
    ///
    /// # Errors
    /// See [`Offer::parse_for`].
    pub fn parse(text: &str) -> Result<Self, OfferError> {
        Self::parse_for(text, Purpose::default())
    }

    /// Reads an offer.
    ///
    /// Candidates are not looked at: remote addresses come from verified checks only, so that nobody makes us probe our
    /// own network.
    ///
    /// # Errors
    /// [`OfferError::Malformed`] for text that is no SDP, lacks ICE credentials or a fingerprint, or has a value in what is served that its
    /// grammar does not allow; [`OfferError::Unsupported`] for SDP with neither audio nor a channel that is served, for ICE lite, for audio
    /// without RTCP on its port, and for a WHIP offer that is not served whole.
    pub fn parse_for(text: &str, purpose: Purpose) -> Result<Self, OfferError> {
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
            codec: None,
            fingerprint: String::new(),
            uplink_only: purpose.kind == CallKind::Whip,
            begins_sctp: false,
            ice: None,
        };
        let mut origin = "";
        for (number, line) in lines {
            let Some((kind, value)) = line.split_at_checked(2) else {
                return Err(not_sdp(number));
            };
            // RFC 8866 section 5: a byte-string has no NUL.
            if value.contains('\0') {
                return Err(not_sdp(number));
            }
            let section = offer.sections.last_mut();
            match (kind, section) {
                ("o=", None) => origin = value,
                ("a=", None) => offer.session_attributes.push(value.to_owned()),
                ("a=", Some(section)) => section.attributes.push(value.to_owned()),
                ("m=", _) => {
                    if offer.sections.len() == limits::SDP_SECTIONS_MAX {
                        return Err(OfferError::malformed(format!(
                            "more than {} media sections (m= lines): offer audio and a data channel alone",
                            limits::SDP_SECTIONS_MAX
                        )));
                    }
                    offer.sections.push(Section::parse(number, value)?);
                }
                _ if kind.as_bytes()[0].is_ascii_lowercase() && kind.ends_with('=') => {}
                _ => return Err(not_sdp(number)),
            }
        }
        offer.begins_sctp = channel::begins_sctp(origin, &offer.session_attributes);
        offer.sort(purpose)?;
        offer.check()?;
        offer.forget_unused();
        Ok(offer)
    }

    /// The same offer with other ICE credentials of the client's: what an ICE restart without an offer means (RFC 9725 section 4.3.3).
    ///
    /// # Errors
    /// [`OfferError::Malformed`] when a credential is not one.
    pub fn with_ice(&self, ice: &IceCredentials) -> Result<Self, OfferError> {
        let mut offer = self.clone();
        offer.ice = Some(ice.clone());
        offer.check_ice()?;
        Ok(offer)
    }

    /// The codec of the voice; nothing when the call is one of events alone.
    #[must_use]
    pub fn codec(&self) -> Option<Codec> {
        self.codec.map(|(codec, _)| codec)
    }

    /// The payload type of the voice.
    #[must_use]
    pub fn payload_type(&self) -> Option<u8> {
        self.codec.map(|(_, pt)| pt)
    }

    /// Whether the client can use the redundancy of a codec that has any (`useinbandfec` of Opus, RFC 7587 section 6.1).
    #[must_use]
    pub fn takes_fec(&self) -> bool {
        let Some((Codec::Opus, pt)) = self.codec else {
            return false;
        };
        let section = self.section(Role::Audio);
        let mut lines = section.into_iter().flat_map(|s| all(&s.attributes, "fmtp"));
        lines.any(|line| {
            line.split_once(' ').is_some_and(|(of, parameters)| {
                let mut parameters = parameters.split(';').map(str::trim);
                of.parse() == Ok(pt) && parameters.any(|p| p == "useinbandfec=1")
            })
        })
    }

    /// The client's ICE password: its answers to our checks are signed with it.
    #[must_use]
    pub fn ice_password(&self) -> &str {
        // `check` has made sure that there is one.
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

    /// The direction of a section, or of the session, or what goes without saying.
    pub(super) fn direction(&self, section: &Section) -> &'static str {
        let find = |attributes: &[String]| {
            let mut names = DIRECTIONS.iter();
            names.find(|name| attribute(attributes, name).is_some())
        };
        let found = find(&section.attributes).or_else(|| find(&self.session_attributes));
        found.copied().unwrap_or("sendrecv")
    }

    /// A transport attribute of the call.
    pub(super) fn credential(&self, name: &str) -> Option<&str> {
        match (name, &self.ice) {
            ("ice-ufrag", Some(ice)) => Some(&ice.ufrag),
            ("ice-pwd", Some(ice)) => Some(&ice.password),
            _ => self.transport_lines(name).next(),
        }
    }

    /// The values of a transport attribute: of the section that has the transport, else of the session, else of the first one served.
    fn transport_lines(&self, name: &str) -> impl Iterator<Item = &str> {
        let section = self.sections.get(self.transport);
        let first = self.sections.iter().find(|s| s.role != Role::Rejected);
        let mut levels = [
            section.map(|s| s.attributes.as_slice()),
            Some(self.session_attributes.as_slice()),
            first.map(|s| s.attributes.as_slice()),
        ]
        .into_iter()
        .flatten();
        let level = levels.find(|attributes| attribute(attributes, name).is_some());
        all(level.unwrap_or_default(), name)
    }

    /// Gives each section its role.
    fn sort(&mut self, purpose: Purpose) -> Result<(), OfferError> {
        if self.sections.is_empty() {
            return Err(OfferError::malformed("the offer has no media section"));
        }
        for section in &mut self.sections {
            section.mid = attribute(&section.attributes, "mid").map(str::to_owned);
            if let Some(mid) = &section.mid {
                strict::mid(mid)?;
            }
        }
        strict::mids_differ(&self.sections)?;
        self.name_for_engine();

        // A group may name sections that are not there; they do not count. More than one group is rare, and allowed.
        let groups: Vec<Vec<String>> = all(&self.session_attributes, "group")
            .map(|group| group.split_ascii_whitespace().map(str::to_owned).collect())
            .filter(|group: &Vec<String>| group.first().is_some_and(|name| name == "BUNDLE"))
            .map(|group| group[1..].to_vec())
            .collect();
        let group_of = |section: &Section| {
            let mid = section.mid.as_ref()?;
            groups.iter().position(|group| group.contains(mid))
        };
        let offered = |section: &Section| section.is_offered(group_of(section).is_some());

        let audio = self
            .sections
            .iter()
            .enumerate()
            .find_map(|(index, section)| {
                let served = section.kind == "audio" && offered(section);
                let codec = section.codec(purpose.codec).filter(|_| served)?;
                Some((index, codec))
            });
        let mut channel = None;
        for (index, section) in self.sections.iter().enumerate() {
            if section.kind != "application"
                || !offered(section)
                || !section.protocol.ends_with("DTLS/SCTP")
                || strict::sctp_port(section)? == Some(0)
            {
                continue;
            }
            let one_transport = audio.is_none_or(|(audio, _)| {
                let audio = &self.sections[audio];
                let (group, ufrag) = (group_of(audio), audio.attribute("ice-ufrag"));
                group == group_of(section)
                    && (group.is_some() || section.attribute("ice-ufrag") == ufrag)
            });
            if one_transport && channel.is_none() {
                channel = Some(index);
            }
        }
        // A client that has put its audio to port 0 wants events alone. One whose audio is not understood would be mute without a word.
        let mut sections = self.sections.iter();
        let voice_wanted = sections.any(|section| section.kind == "audio" && offered(section));
        let events_alone = channel.filter(|_| !voice_wanted);
        let Some(first) = audio.map(|(index, _)| index).or(events_alone) else {
            return Err(OfferError::Unsupported(
                "the offer has neither an audio section with Opus, PCMU or PCMA over DTLS-SRTP nor a data channel alone"
                    .to_owned(),
            ));
        };
        // The offerer-tagged section's transport is the group's (RFC 9143 section 7.2.1).
        let group = group_of(&self.sections[first]).map(|group| &groups[group]);
        let tagged = group.and_then(|group| group.first());
        let mut sections = self.sections.iter();
        self.transport = sections
            .position(|section| tagged.is_some() && section.mid.as_ref() == tagged)
            .unwrap_or(first);
        for section in &mut self.sections {
            section.grouped = section
                .mid
                .as_ref()
                .is_some_and(|mid| group.is_some_and(|group| group.contains(mid)));
        }
        if let Some((audio, codec)) = audio {
            self.sections[audio].role = Role::Audio;
            self.codec = Some(codec);
        }
        if let Some(channel) = channel {
            self.sections[channel].role = Role::Channel;
        }
        match purpose.kind {
            CallKind::Realtime => Ok(()),
            CallKind::Whip => strict::whip(self),
        }
    }

    /// Gives each section a `mid` that the engine can hold: 16 letters and digits, each once. It would change anything else.
    fn name_for_engine(&mut self) {
        let fits = |mid: &&String| {
            (1..=16).contains(&mid.len()) && mid.bytes().all(|b| b.is_ascii_alphanumeric())
        };
        for index in 0..self.sections.len() {
            let name = match self.sections[index].mid.as_ref().filter(fits) {
                Some(mid) => mid.clone(),
                None => {
                    let taken = |name: &String| {
                        let mut sections = self.sections.iter();
                        sections.any(|s| s.mid.as_ref() == Some(name) || s.engine_mid == *name)
                    };
                    // A client may have used such a name, but not more of them than there are sections.
                    let mut names = (index..).map(|n| format!("fh{n}"));
                    names.find(|name| !taken(name)).unwrap_or_default()
                }
            };
            self.sections[index].engine_mid = name;
        }
    }

    /// Checks what every call needs, and what it must not say.
    fn check(&mut self) -> Result<(), OfferError> {
        self.check_ice()?;
        self.fingerprint = strict::fingerprint(self.transport_lines("fingerprint"))?;
        let served = self.sections.iter().filter(|s| s.role != Role::Rejected);
        let values = served.filter_map(|section| section.attribute("setup"));
        for value in values
            .chain(self.session_attribute("setup"))
            .chain(self.credential("setup"))
        {
            strict::setup(value)?;
        }
        strict::served(self)
    }

    fn check_ice(&self) -> Result<(), OfferError> {
        strict::credential("ice-ufrag", 4, self.credential("ice-ufrag"))?;
        strict::credential("ice-pwd", 22, self.credential("ice-pwd"))
    }
}

fn not_sdp(number: usize) -> OfferError {
    OfferError::malformed(format!(
        "line {} is not SDP: a line is a lower-case letter, '=' and a value without NUL",
        number + 1
    ))
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
             a=rtcp-mux\r\na=sendrecv\r\na=rtpmap:111 opus/48000/2\r\na=fmtp:111 minptime=10;useinbandfec=1\r\n\
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
            "v=0\no=- 1 2 IN IP4 0.0.0.0\ns=-\nt=0 0\n{}m=audio 9 UDP/TLS/RTP/SAVP 111\na=setup:passive\na=rtcp-mux\n\
             a=mid:audio-section-with-a-long-name\na=rtpmap:111 OPUS/48000/2\n",
            TRANSPORT.replace("\r\n", "\n")
        );
        let offer = Offer::parse(&text).expect("an offer");
        assert!(offer.sections.iter().all(|section| !section.grouped));
        let engine = offer.for_engine();
        assert!(engine.contains("a=mid:fh0\r\n"), "{engine}");
        assert!(engine.contains("a=sendrecv\r\n"), "{engine}");
        assert!(engine.contains("SAVPF 111\r\n"), "{engine}");
        assert!(engine.contains("a=setup:passive\r\n"), "{engine}");
    }

    #[test]
    fn an_offer_with_nothing_to_serve_is_unsupported_not_malformed() {
        for text in [
            offer(&audio("0"))
                .replace("opus/48000/2", "G722/8000")
                .replace("111 0\r\n", "111\r\n"),
            offer(&audio("0")).replace("m=audio 9", "m=audio 0"),
            offer(&channel("1")).replace("sctp-port:5000", "sctp-port:0"),
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
}
