//! The cheap checks of an SDP offer, before a transceiver is troubled with it.
//!
//! The owner parses the offer in full and has the last word. What is checked here is what tells a person at once what went
//! wrong (an empty body, an HTML page, an answer without ICE credentials), and what keeps nonsense off the owners.

/// What is wrong with an offer; the text is meant for the client.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum OfferError {
    /// Nothing was sent.
    #[error("the body is empty: send the SDP offer")]
    Empty,
    /// Not UTF-8 (RFC 8866 section 5).
    #[error("the SDP is not UTF-8")]
    NotText,
    /// It does not begin with the protocol version (RFC 8866 section 5.1).
    #[error("this is not SDP: the first line has to be v=0")]
    Version,
    /// A line is not of the form `<letter>=<value>` (RFC 8866 section 5).
    #[error("line {0} of the SDP is not of the form <letter>=<value>")]
    Line(usize),
    /// No media description: nothing to talk about.
    #[error("the SDP has no m= line")]
    NoMedia,
    /// An attribute is missing without which no connection can be made (RFC 8839 section 4.4, RFC 8122 section 5).
    #[error("the SDP has no a={0} line")]
    Missing(&'static str),
}

const NEEDED: [&str; 3] = ["ice-ufrag", "ice-pwd", "fingerprint"];

/// Takes the body of a request as an offer.
///
/// Lines may end in CRLF or LF; blank ones at the end are ignored. Attributes count at session or media level alike.
///
/// # Errors
/// The first thing that is wrong.
pub fn check(body: &[u8]) -> Result<&str, OfferError> {
    if body.trim_ascii().is_empty() {
        return Err(OfferError::Empty);
    }
    let text = std::str::from_utf8(body).map_err(|_| OfferError::NotText)?;
    let mut media = false;
    let mut found = [false; NEEDED.len()];
    for (index, line) in text.trim_end().lines().enumerate() {
        if index == 0 && line != "v=0" {
            return Err(OfferError::Version);
        }
        match line.as_bytes() {
            [letter, b'=', ..] if letter.is_ascii_lowercase() => {}
            _ => return Err(OfferError::Line(index + 1)),
        }
        media |= line.starts_with("m=");
        let attribute = line
            .strip_prefix("a=")
            .and_then(|rest| rest.split_once(':'));
        if let Some((name, value)) = attribute
            && let Some(at) = NEEDED.iter().position(|needed| *needed == name)
        {
            found[at] |= !value.trim().is_empty();
        }
    }
    if !media {
        return Err(OfferError::NoMedia);
    }
    match found.iter().position(|seen| !seen) {
        Some(at) => Err(OfferError::Missing(NEEDED[at])),
        None => Ok(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "v=0\r\no=- 1 2 IN IP4 127.0.0.1\r\ns=-\r\nt=0 0\r\nm=audio 9 UDP/TLS/RTP/SAVPF 111\r\n\
        a=ice-ufrag:abcd\r\na=ice-pwd:0123456789012345678901\r\na=fingerprint:sha-256 AA\r\n";

    #[test]
    fn an_offer_passes_with_either_line_end_and_trailing_blanks() {
        assert_eq!(check(GOOD.as_bytes()), Ok(GOOD));
        let unix = GOOD.replace("\r\n", "\n") + "\n\n";
        assert_eq!(check(unix.as_bytes()), Ok(unix.as_str()));
    }

    #[test]
    fn every_fault_is_named() {
        let without = |what: &str| {
            let lines: Vec<&str> = GOOD.lines().filter(|l| !l.contains(what)).collect();
            lines.join("\n").into_bytes()
        };
        let cases: [(Vec<u8>, OfferError); 9] = [
            (Vec::new(), OfferError::Empty),
            (b" \r\n".to_vec(), OfferError::Empty),
            (b"\xff\xfe".to_vec(), OfferError::NotText),
            (b"<html></html>".to_vec(), OfferError::Version),
            (b"v=0\r\nhello\r\n".to_vec(), OfferError::Line(2)),
            (without("m="), OfferError::NoMedia),
            (without("ufrag"), OfferError::Missing("ice-ufrag")),
            (without("pwd"), OfferError::Missing("ice-pwd")),
            (without("fingerprint"), OfferError::Missing("fingerprint")),
        ];
        for (body, expected) in cases {
            assert_eq!(check(&body), Err(expected));
        }
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_taken_or_refused_without_a_panic(
            body in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..200),
            cut in 0..GOOD.len(),
        ) {
            let _ = check(&body);
            let mut mixed = GOOD.as_bytes()[..cut].to_vec();
            mixed.extend_from_slice(&body);
            let _ = check(&mixed);
        }
    }

    #[test]
    fn an_attribute_without_a_value_is_missing() {
        let empty = GOOD.replace("a=ice-ufrag:abcd", "a=ice-ufrag:");
        assert_eq!(
            check(empty.as_bytes()),
            Err(OfferError::Missing("ice-ufrag"))
        );
    }
}
