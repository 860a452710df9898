//! One media section of an offer, as its client wrote it, and which codec it offers.

use super::offer::OfferError;
use crate::audio::Codec;

/// What a media section of the offer is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The voice: the first audio section with a codec that is served.
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
    pub(super) port: u16,
    /// The client's `mid`, which the answer repeats.
    pub(super) mid: Option<String>,
    /// The `mid` that the engine sees: the client's when it is one that the engine can hold.
    pub(super) engine_mid: String,
    /// Whether it is in the group that the call's transport belongs to.
    pub(super) grouped: bool,
    pub(super) attributes: Vec<String>,
}

impl Section {
    /// Reads `<kind> <port> <protocol> <formats…>` (RFC 8866 section 5.14).
    pub(super) fn parse(number: usize, value: &str) -> Result<Self, OfferError> {
        let fault =
            || OfferError::malformed(format!("line {}: not a media description", number + 1));
        let mut fields = value.splitn(4, ' ');
        let mut field = || fields.next().filter(|field| !field.is_empty());
        let (kind, port) = (field().ok_or_else(fault)?, field().ok_or_else(fault)?);
        let (protocol, formats) = (field().ok_or_else(fault)?, field().ok_or_else(fault)?);
        // All of it is repeated in the answer.
        if !value.bytes().all(|b| b == b' ' || b.is_ascii_graphic()) {
            return Err(fault());
        }
        Ok(Self {
            role: Role::Rejected,
            kind: kind.to_owned(),
            protocol: protocol.to_owned(),
            formats: formats.to_owned(),
            port: port.parse().map_err(|_| fault())?,
            mid: None,
            engine_mid: String::new(),
            grouped: false,
            attributes: Vec::new(),
        })
    }

    pub(super) fn attribute(&self, name: &str) -> Option<&str> {
        attribute(&self.attributes, name)
    }

    /// Whether the client lets the section be used, given that it is in a group or is not.
    ///
    /// Port 0 says no; but of a section of a group with `bundle-only` it says that it has no transport of its own (RFC 9143 section 6).
    pub(super) fn is_offered(&self, grouped: bool) -> bool {
        self.port != 0 || (grouped && self.attribute("bundle-only").is_some())
    }

    /// The best codec that is offered and served, with its payload type: the wanted one, else the first of [`Codec::ALL`].
    pub(super) fn codec(&self, wanted: Option<Codec>) -> Option<(Codec, u8)> {
        if !["UDP/TLS/RTP/SAVPF", "UDP/TLS/RTP/SAVP"].contains(&self.protocol.as_str()) {
            return None;
        }
        let codecs = wanted.into_iter().chain(Codec::ALL);
        codecs
            .filter_map(|codec| Some((codec, self.payload_type(codec)?)))
            .next()
    }

    /// The first payload type that is a codec's, by its `rtpmap` or without one by its number (RFC 3551 section 6).
    fn payload_type(&self, codec: Codec) -> Option<u8> {
        let listed = self.formats.split_ascii_whitespace();
        let mut listed = listed.filter_map(|format| format.parse::<u8>().ok());
        // With RTCP on the same port 64 to 95 would be taken for RTCP (RFC 5761 section 4).
        listed.find(|pt| {
            *pt < 128
                && !(64..96).contains(pt)
                && match self.mapped(*pt) {
                    Some(encoding) => names(encoding, codec),
                    None => static_payload_type(codec) == Some(*pt),
                }
        })
    }

    /// What the first `rtpmap` of a payload type says.
    fn mapped(&self, pt: u8) -> Option<&str> {
        self.attributes.iter().find_map(|line| {
            let (of, encoding) = line.strip_prefix("rtpmap:")?.split_once(' ')?;
            (of.parse() == Ok(pt)).then(|| encoding.trim())
        })
    }
}

/// The encoding of a codec in an `rtpmap` that we write.
pub(super) fn encoding(codec: Codec) -> &'static str {
    match codec {
        Codec::Opus => "opus/48000/2",
        Codec::Pcmu => "PCMU/8000",
        Codec::Pcma => "PCMA/8000",
    }
}

/// Whether an `rtpmap` names a codec, in any case. Opus is taken without its two channels, too; G.711 with more than one is another.
fn names(mapped: &str, codec: Codec) -> bool {
    let mut fields = mapped.split('/');
    let name = fields.next().unwrap_or_default();
    let (rate, channels) = (fields.next(), fields.next());
    match codec {
        Codec::Opus => name.eq_ignore_ascii_case("opus") && rate == Some("48000"),
        Codec::Pcmu | Codec::Pcma => {
            let ours = encoding(codec).split('/').next().unwrap_or_default();
            name.eq_ignore_ascii_case(ours)
                && rate == Some("8000")
                && channels.is_none_or(|channels| channels == "1")
        }
    }
}

fn static_payload_type(codec: Codec) -> Option<u8> {
    match codec {
        Codec::Opus => None,
        Codec::Pcmu => Some(0),
        Codec::Pcma => Some(8),
    }
}

/// The value of the first attribute of a name; empty for one without a value.
pub(super) fn attribute<'a>(attributes: &'a [String], name: &str) -> Option<&'a str> {
    all(attributes, name).next()
}

/// The values of all attributes of a name.
pub(super) fn all<'a>(attributes: &'a [String], name: &str) -> impl Iterator<Item = &'a str> {
    attributes.iter().filter_map(move |line| {
        let rest = line.strip_prefix(name)?;
        match rest.strip_prefix(':') {
            Some(value) => Some(value),
            None => rest.is_empty().then_some(""),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn section(media: &str, attributes: &[&str]) -> Section {
        let mut section = Section::parse(0, media).expect("a section");
        section.attributes = attributes.iter().map(|&line| line.to_owned()).collect();
        section
    }

    #[test]
    fn codecs_are_found_by_map_and_by_number_and_the_best_is_taken() {
        let all = "audio 9 UDP/TLS/RTP/SAVPF 8 0 111";
        let map = "rtpmap:111 opus/48000/2";
        assert_eq!(section(all, &[map]).codec(None), Some((Codec::Opus, 111)));
        let wanted = section(all, &[map]).codec(Some(Codec::Pcma));
        assert_eq!(wanted, Some((Codec::Pcma, 8)));
        assert_eq!(section(all, &[]).codec(None), Some((Codec::Pcmu, 0)));
        let dynamic = section(
            "audio 9 UDP/TLS/RTP/SAVPF 100 97",
            &["rtpmap:97 pcma/8000/1"],
        );
        assert_eq!(dynamic.codec(Some(Codec::Opus)), Some((Codec::Pcma, 97)));
        assert_eq!(dynamic.codec(Some(Codec::Pcmu)), Some((Codec::Pcma, 97)));
    }

    #[test]
    fn what_is_not_served_is_not_found() {
        for (formats, map) in [
            ("0", "rtpmap:0 G722/8000"),
            ("111", "rtpmap:111 opus/16000"),
            ("111", "rtpmap:111 opusX/48000/2"),
            ("97", "rtpmap:97 PCMU/16000"),
            ("97", "rtpmap:97 PCMU/8000/2"),
            ("97", "rtpmap:98 PCMU/8000"),
            ("72", "rtpmap:72 opus/48000/2"),
            ("128", "rtpmap:128 opus/48000/2"),
            ("9 13 webrtc-datachannel", ""),
        ] {
            let section = section(&format!("audio 9 UDP/TLS/RTP/SAVPF {formats}"), &[map]);
            assert_eq!(section.codec(None), None, "{map}");
        }
        assert_eq!(section("audio 9 RTP/AVP 0", &[]).codec(None), None);
    }
}
