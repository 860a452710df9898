//! SDP fragments (RFC 8840): what a client trickles, and what an ICE restart is answered with (RFC 9725 section 4.3).
//!
//! Candidates in them are read over: remotes are peer-reflexive only, so that nobody can make the fleet probe its own network.

use std::fmt::Write as _;

use firsthop_shared::control::IceCredentials;

/// What is wrong with a fragment; the text is meant for the client.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FragmentError {
    /// Not UTF-8.
    #[error("the fragment is not UTF-8")]
    NotText,
    /// A line is not of the form `<letter>=<value>`.
    #[error("line {0} of the fragment is not of the form <letter>=<value>")]
    Line(usize),
    /// A line of a kind that has no place in a fragment (RFC 8840 section 9).
    #[error("line {0} of the fragment is neither an a= nor an m= line")]
    Kind(usize),
    /// One of the two credentials without the other, or none.
    #[error("the fragment has no a={0} line")]
    Missing(&'static str),
    /// Credentials outside the grammar of RFC 8839 section 5.4.
    #[error("a={0} is not 4 (22 for ice-pwd) to 256 letters, digits, '+' or '/'")]
    Credential(&'static str),
}

/// Reads a fragment and returns the client's credentials in it.
///
/// They stand at session level or repeat in every media section; the first of each counts.
///
/// # Errors
/// The first thing that is wrong.
pub fn parse(body: &[u8]) -> Result<IceCredentials, FragmentError> {
    let text = std::str::from_utf8(body).map_err(|_| FragmentError::NotText)?;
    let mut ufrag = None;
    let mut password = None;
    for (index, line) in text.trim_end().lines().enumerate() {
        match line.as_bytes() {
            [b'a' | b'm', b'=', ..] => {}
            [letter, b'=', ..] if letter.is_ascii_lowercase() => {
                return Err(FragmentError::Kind(index + 1));
            }
            _ => return Err(FragmentError::Line(index + 1)),
        }
        let Some((name, value)) = line.strip_prefix("a=").and_then(|l| l.split_once(':')) else {
            continue;
        };
        match name {
            "ice-ufrag" if ufrag.is_none() => ufrag = Some(value),
            "ice-pwd" if password.is_none() => password = Some(value),
            _ => {}
        }
    }
    let credential = |name, value: Option<&str>, min| {
        let value = value.ok_or(FragmentError::Missing(name))?;
        let good = (min..=256).contains(&value.len())
            && value
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b == b'+' || b == b'/');
        if good {
            Ok(value.to_owned())
        } else {
            Err(FragmentError::Credential(name))
        }
    };
    Ok(IceCredentials {
        ufrag: credential("ice-ufrag", ufrag, 4)?,
        password: credential("ice-pwd", password, 22)?,
    })
}

/// The value of an attribute in an answer, at session level or in the first media section that has it.
#[must_use]
pub fn attribute<'a>(sdp: &'a str, name: &str) -> Option<&'a str> {
    sdp.lines().find_map(|line| {
        let (found, value) = line.strip_prefix("a=")?.split_once(':')?;
        (found == name).then_some(value)
    })
}

/// The fragment that tells a client what an answer says about ICE: our credentials, and all candidates.
///
/// One media section is enough: everything is bundled on the first (RFC 9725 section 4.3.2). Nothing is returned for an answer without
/// credentials or media.
#[must_use]
pub fn of_answer(answer: &str) -> Option<String> {
    let mut text = String::new();
    let _ = write!(text, "a=ice-ufrag:{}\r\n", attribute(answer, "ice-ufrag")?);
    let _ = write!(text, "a=ice-pwd:{}\r\n", attribute(answer, "ice-pwd")?);
    let mut sections = answer.split("\r\nm=");
    let first = sections.find(|section| !section.starts_with("v=0"))?;
    let media = first.lines().next().unwrap_or_default();
    let _ = write!(text, "m={media}\r\n");
    for line in first.lines() {
        if line.starts_with("a=mid:")
            || line.starts_with("a=candidate:")
            || line.starts_with("a=end-of-candidates")
        {
            let _ = write!(text, "{line}\r\n");
        }
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "a=ice-ufrag:EsAw\r\na=ice-pwd:P2uYro0UCOQ4zxjKXaWCBui1\r\nm=audio 9 RTP/AVP 0\r\na=mid:0\r\n\
        a=candidate:1387637174 1 udp 2122260223 192.0.2.1 61764 typ host generation 0 ufrag EsAw network-id 1\r\n";

    #[test]
    fn the_credentials_are_found_at_either_level() {
        let expected = IceCredentials {
            ufrag: "EsAw".into(),
            password: "P2uYro0UCOQ4zxjKXaWCBui1".into(),
        };
        assert_eq!(parse(GOOD.as_bytes()), Ok(expected.clone()));
        let below = "m=audio 9 UDP/TLS/RTP/SAVPF 0\na=mid:0\na=ice-ufrag:EsAw\na=ice-pwd:P2uYro0UCOQ4zxjKXaWCBui1\na=end-of-candidates\n";
        assert_eq!(parse(below.as_bytes()), Ok(expected));
    }

    #[test]
    fn every_fault_is_named() {
        for (body, error) in [
            (b"".as_slice(), FragmentError::Line(1)),
            (b"\xff", FragmentError::NotText),
            (b"a=ice-ufrag:abcd\nhello", FragmentError::Line(2)),
            (b"v=0\n", FragmentError::Kind(1)),
            (b"a=end-of-candidates", FragmentError::Missing("ice-ufrag")),
            (b"a=ice-ufrag:abcd", FragmentError::Missing("ice-pwd")),
            (
                b"a=ice-ufrag:ab\na=ice-pwd:0123456789012345678901",
                FragmentError::Credential("ice-ufrag"),
            ),
            (
                b"a=ice-ufrag:abcd\na=ice-pwd:short",
                FragmentError::Credential("ice-pwd"),
            ),
        ] {
            if body.is_empty() {
                assert_eq!(parse(body), Err(FragmentError::Missing("ice-ufrag")));
            } else {
                assert_eq!(parse(body), Err(error), "{}", String::from_utf8_lossy(body));
            }
        }
    }

    #[test]
    fn an_answer_becomes_a_fragment_with_all_candidates() {
        let answer = "v=0\r\no=- 1 1 IN IP4 0.0.0.0\r\ns=-\r\nt=0 0\r\na=group:BUNDLE 0 1\r\nm=audio 9 UDP/TLS/RTP/SAVPF 111\r\na=mid:0\r\n\
            a=ice-ufrag:server\r\na=ice-pwd:0123456789012345678901\r\na=candidate:1 1 udp 1 192.0.2.1 3478 typ host\r\na=end-of-candidates\r\n\
            a=sendrecv\r\nm=application 9 UDP/DTLS/SCTP webrtc-datachannel\r\na=mid:1\r\n";
        assert_eq!(
            of_answer(answer).as_deref(),
            Some(
                "a=ice-ufrag:server\r\na=ice-pwd:0123456789012345678901\r\nm=audio 9 UDP/TLS/RTP/SAVPF 111\r\na=mid:0\r\n\
                 a=candidate:1 1 udp 1 192.0.2.1 3478 typ host\r\na=end-of-candidates\r\n"
            )
        );
        assert_eq!(of_answer("v=0\r\n"), None);
        let own = of_answer(answer).expect("a fragment");
        assert_eq!(
            parse(own.as_bytes()).map(|c| c.ufrag),
            Ok("server".to_owned())
        );
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_taken_or_refused_without_a_panic(
            body in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..200),
        ) {
            let _ = parse(&body);
            let _ = of_answer(&String::from_utf8_lossy(&body));
        }
    }
}
