//! The port of a URL that an operator sets, read before any parser does.
//!
//! Parsers differ in what a port is that cannot be one: some read none, and the connection goes to the scheme's own port, where another server may
//! stand and be shown a key. So every URL of a setting is looked at here as well as parsed.
//!
//! Source: RFC 3986 section 3.2.3, which allows an empty port; nobody who sets a URL means one.

/// A URL says a port that is none.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PortError {
    /// A number, or nothing.
    #[error("':{0}' in it is no port")]
    Number(String),
    /// Anything else is not repeated: it may be a password with a character that ends a host.
    #[error("what stands behind a colon in it is no port")]
    Other,
}

/// How much of what is no port an error repeats.
const QUOTED: usize = 20;

/// Checks the port of a URL such as `wss://user@host:443/path?query`, also of one without `//`, such as `turn:host:3478`: none at all, or a number
/// from 1 to 65535. The rest of the URL is not looked at.
///
/// # Errors
/// There is a colon after the host, and no port behind it.
pub fn check(url: &str) -> Result<(), PortError> {
    let rest = match url.split_once("://") {
        Some((_, rest)) => rest,
        None => url.split_once(':').map_or("", |(_, rest)| rest),
    };
    // Of these schemes a backslash is read as a slash (WHATWG URL, "special scheme"); in others it may be part of a password.
    let scheme = url.split(':').next().unwrap_or_default();
    let special = ["http", "https", "ws", "wss"]
        .iter()
        .any(|special| scheme.eq_ignore_ascii_case(special));
    let ends = |c| matches!(c, '/' | '?' | '#') || (special && c == '\\');
    let authority = rest.split(ends).next().unwrap_or_default();
    let host = authority
        .rsplit_once('@')
        .map_or(authority, |(_, host)| host);
    // Colons within brackets are those of an IPv6 address.
    let after = match host.rsplit_once(']') {
        Some((_, after)) => after,
        None => host,
    };
    let Some((_, port)) = after.split_once(':') else {
        return Ok(());
    };
    // With an @ behind it, this is no port but a password's beginning.
    let cut = !authority.contains('@') && rest.contains('@');
    let digits = port.bytes().all(|byte| byte.is_ascii_digit());
    match port.trim_start_matches('0').parse::<u16>() {
        Ok(_) if digits => Ok(()),
        _ if digits && !cut => Err(PortError::Number(port.chars().take(QUOTED).collect())),
        _ => Err(PortError::Other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_has_no_port_or_one_from_1_to_65535() {
        for good in [
            "ws://h",
            "ws://h/",
            "wss://h:1/v1",
            "wss://h:65535?x=a:b",
            "http://h:080/",
            "http://h/a:99999",
            "http://h#:0",
            "http://me:secret@h",
            "http://me:secret@h:80",
            "http://[::1]",
            "http://[fd00::1]:5080/",
            "turn:h",
            "turn:h:3478?transport=udp",
            "stun:[2001:db8::1]:3478",
            "no URL at all",
            "redis://:pa\\ss@cache:6379",
            "http://h\\:99999",
        ] {
            assert_eq!(check(good), Ok(()), "{good}");
        }
        for (bad, port) in [
            ("ws://h:", ""),
            ("ws://h:/", ""),
            ("ws://h:0", "0"),
            ("ws://h:000/v1", "000"),
            ("ws://h:65536", "65536"),
            ("ws://h:99999/", "99999"),
            ("ws://h:184467440737095516170/", "18446744073709551617"),
            ("ws://[::1]:?x", ""),
            ("ws://[::1]:99999", "99999"),
            ("turn:h:99999?transport=udp", "99999"),
        ] {
            let number = PortError::Number(port.to_owned());
            assert_eq!(check(bad), Err(number), "{bad}");
        }
        for bad in [
            "ws://h:+80",
            "ws://h:-1",
            "ws://h:8 0",
            "ws://h:80:81/",
            "ws://me:1@h:http",
            "ws://::1",
            "ws://h:1\u{1b}",
            // Whoever left a character of a password as it is does not find it in a log.
            "wss://me:pass/word@h",
            "wss://me:pass?word@h:443",
            "redis://:98765432/abc@h",
            "rediss://me:98765432?abc@h:6379",
        ] {
            assert_eq!(check(bad), Err(PortError::Other), "{bad}");
        }
    }
}
