//! What an offer must not say: values outside their grammar are refused by name, before the engine trips over them or takes them.
//!
//! Checked is what is used: an attribute of a section that is answered with port 0 fails no call, but for its `mid`, which the answer
//! repeats.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::engine::DIRECTIONS;
use super::offer::{Offer, OfferError};
use super::section::{Role, Section, all};

/// How much of a value an error repeats.
const QUOTED: usize = 40;

/// The hash functions of RFC 8122 section 5 with the bytes of their hashes; the weak ones, which it forbids, are left out.
const HASHES: [(&str, usize); 5] = [
    ("sha-1", 20),
    ("sha-224", 28),
    ("sha-256", 32),
    ("sha-384", 48),
    ("sha-512", 64),
];

/// The hash function that is served: the one that every WebRTC client has (RFC 8122 section 5).
const SERVED_HASH: &str = "sha-256";

/// Checks a `mid`: no control characters, no spaces. (RFC 5888 allows fewer characters still; real clients use more.)
pub(super) fn mid(mid: &str) -> Result<(), OfferError> {
    if mid.is_empty() || !mid.bytes().all(|b| b.is_ascii_graphic()) {
        return Err(OfferError::malformed(format!(
            "a=mid:{} is not made of visible ASCII characters",
            quoted(mid)
        )));
    }
    Ok(())
}

/// Checks that no two sections have the same `mid` (RFC 5888 section 4).
pub(super) fn mids_differ(sections: &[Section]) -> Result<(), OfferError> {
    for (index, section) in sections.iter().enumerate() {
        if let Some(mid) = &section.mid
            && sections[..index]
                .iter()
                .any(|s| s.mid.as_ref() == Some(mid))
        {
            let mid = quoted(mid);
            return Err(OfferError::malformed(format!(
                "two sections have a=mid:{mid}"
            )));
        }
    }
    Ok(())
}

/// Finds the fingerprint that is served among those of the call's transport.
///
/// A client may show several, of different hash functions (RFC 8122 section 5); those that we do not know do not matter then.
pub(super) fn fingerprint<'a>(shown: impl Iterator<Item = &'a str>) -> Result<String, OfferError> {
    let mut served = None;
    let mut other = None;
    for line in shown {
        let (hash, value) = line.trim().split_once(' ').unwrap_or((line.trim(), ""));
        let hash = hash.to_ascii_lowercase();
        let Some((_, bytes)) = HASHES.iter().find(|(name, _)| *name == hash) else {
            other.get_or_insert(OfferError::malformed(format!(
                "a=fingerprint: {} is no hash function that we know: use {SERVED_HASH}",
                quoted(&hash)
            )));
            continue;
        };
        let pair = |byte: &str| byte.len() == 2 && byte.bytes().all(|b| b.is_ascii_hexdigit());
        let value = value.trim();
        if !value.split(':').all(pair) || value.split(':').count() != *bytes {
            return Err(OfferError::malformed(format!(
                "a=fingerprint: {hash} has {bytes} bytes in hexadecimal, separated by colons"
            )));
        }
        if hash == SERVED_HASH {
            served.get_or_insert_with(|| format!("{hash} {value}"));
        } else {
            other = Some(OfferError::Unsupported(format!(
                "a=fingerprint: {hash} is not served: use {SERVED_HASH}"
            )));
        }
    }
    served.ok_or_else(|| {
        other.unwrap_or_else(|| OfferError::malformed("the offer has no a=fingerprint"))
    })
}

/// Checks a DTLS role of an offer (RFC 8842 section 5.2; `holdconn` has no meaning for DTLS).
pub(super) fn setup(value: &str) -> Result<(), OfferError> {
    match value.trim() {
        "actpass" | "active" | "passive" => Ok(()),
        other => Err(OfferError::malformed(format!(
            "a=setup:{} is none of actpass, active and passive",
            quoted(other)
        ))),
    }
}

/// The SCTP port of a channel's section: its attribute (RFC 8841 section 5.1), or in the older form its first format; nothing when it says
/// neither. 0 closes the association.
pub(super) fn sctp_port(section: &Section) -> Result<Option<u16>, OfferError> {
    let (what, value) = match section.attribute("sctp-port") {
        Some(value) => ("a=sctp-port:", value),
        None if section.protocol == "DTLS/SCTP" => ("m=application, SCTP port ", {
            let mut formats = section.formats.split_ascii_whitespace();
            formats.next().unwrap_or_default()
        }),
        None => return Ok(None),
    };
    let digits = value.trim().bytes().all(|b| b.is_ascii_digit());
    match value.trim().parse() {
        Ok(port) if digits => Ok(Some(port)),
        _ => Err(OfferError::malformed(format!(
            "{what}{} is no number from 1 to 65535",
            quoted(value)
        ))),
    }
}

/// Checks a credential of ICE: `ice-char`s, at most 256 (RFC 8839 section 5.4).
pub(super) fn credential(
    name: &str,
    shortest: usize,
    value: Option<&str>,
) -> Result<(), OfferError> {
    let ice_char = |b: u8| b.is_ascii_alphanumeric() || b == b'+' || b == b'/';
    match value {
        Some(value) if (shortest..=256).contains(&value.len()) && value.bytes().all(ice_char) => {
            Ok(())
        }
        Some(_) => Err(OfferError::malformed(format!("a={name} is not valid"))),
        None => Err(OfferError::malformed(format!("the offer has no a={name}"))),
    }
}

/// Checks what is used of the sections that are served, beyond their transport's credentials.
pub(super) fn served(offer: &Offer) -> Result<(), OfferError> {
    if offer.credential("ice-lite").is_some() {
        return Err(OfferError::Unsupported(
            "a=ice-lite: such a client sends no checks, and here it is the client who does: offer full ICE"
                .to_owned(),
        ));
    }
    if let Some(audio) = offer.section(Role::Audio) {
        rtcp_mux(offer, audio)?;
        for value in all(&audio.attributes, "extmap") {
            extmap(value)?;
        }
    }
    if let Some(channel) = offer.section(Role::Channel) {
        message_size(channel)?;
        sctp_init(channel)?;
    }
    Ok(())
}

/// Checks that RTCP comes on the port of the audio (RFC 5761 section 5.1.1): there is one port, and no answer without this may follow from an
/// offer without it. In a group the section that has the transport may say it for all (RFC 9143 section 7.1.3).
fn rtcp_mux(offer: &Offer, audio: &Section) -> Result<(), OfferError> {
    let says = |name| {
        audio.attribute(name).is_some() || (audio.grouped && offer.credential(name).is_some())
    };
    if ["rtcp-mux", "rtcp-mux-only"].into_iter().any(says) {
        return Ok(());
    }
    Err(OfferError::Unsupported(
        "the audio has no a=rtcp-mux: RTCP has no port of its own here, so offer it on the audio's"
            .to_owned(),
    ))
}

/// Checks a header extension, `id[/direction] URI …` (RFC 8285 section 8). Its id is one that a header can hold, or one of those that stand for
/// more extensions than there is room for (section 7), which the engine leaves out.
fn extmap(value: &str) -> Result<(), OfferError> {
    let (entry, uri) = value.split_once(' ').unwrap_or((value, ""));
    let (id, direction) = match entry.split_once('/') {
        Some((id, direction)) => (id, Some(direction)),
        None => (entry, None),
    };
    let digits = id.bytes().all(|b| b.is_ascii_digit());
    let known = matches!(id.parse::<u16>(), Ok(1..=256 | 4_096..=4_351)) && digits;
    if known && direction.is_none_or(|d| DIRECTIONS.contains(&d)) && !uri.trim().is_empty() {
        return Ok(());
    }
    Err(OfferError::malformed(format!(
        "a=extmap:{} is no header extension: an id from 1 to 255, perhaps a direction, and a URI",
        quoted(value)
    )))
}

/// Checks what a client lets us send in one message (RFC 8841 section 6.1).
fn message_size(channel: &Section) -> Result<(), OfferError> {
    let Some(value) = channel.attribute("max-message-size") else {
        return Ok(());
    };
    let digits = value.trim().bytes().all(|b| b.is_ascii_digit());
    if digits && value.trim().parse::<usize>().is_ok() {
        return Ok(());
    }
    Err(OfferError::malformed(format!(
        "a=max-message-size:{} is no number of bytes: give one, or 0 for any",
        quoted(value)
    )))
}

/// Checks the form of a handshake of SCTP that is in an offer; what is in it the engine reads.
fn sctp_init(channel: &Section) -> Result<(), OfferError> {
    let Some(value) = channel.attribute("sctp-init") else {
        return Ok(());
    };
    match STANDARD.decode(value) {
        Ok(chunk) if !chunk.is_empty() => Ok(()),
        _ => Err(OfferError::malformed(format!(
            "a=sctp-init:{} is not base64: give an INIT chunk, or leave it out",
            quoted(value)
        ))),
    }
}

/// Checks what is particular to WHIP: one audio section, which sends, and nothing that would be answered with port 0.
pub(super) fn whip(offer: &Offer) -> Result<(), OfferError> {
    let unsupported = |message: String| Err(OfferError::Unsupported(message));
    let Some(audio) = offer.section(Role::Audio) else {
        return unsupported(
            "the offer has no audio section with Opus, PCMU or PCMA over DTLS-SRTP".to_owned(),
        );
    };
    for section in &offer.sections {
        if section.is_offered(section.grouped) && section.role != Role::Audio {
            return unsupported(format!(
                "WHIP is served with one audio section and nothing else here: leave the other m={} out",
                section.kind
            ));
        }
    }
    let direction = offer.direction(audio);
    if !["sendonly", "sendrecv"].contains(&direction) {
        return unsupported(format!(
            "the audio is {direction}: a WHIP client sends, so offer sendonly"
        ));
    }
    Ok(())
}

/// The beginning of a value, with nothing in it that a terminal or a log would take for more than text.
fn quoted(value: &str) -> String {
    value
        .chars()
        .take(QUOTED)
        .collect::<String>()
        .escape_debug()
        .to_string()
}
