//! The control secret: what signaling shows on a transceiver's control port, read from a file of its own on both sides.
//!
//! One check for both: what one side took and the other refused, or could not send, was found only when calls failed.

/// The shortest control secret, in characters.
pub const CONTROL_SECRET_MIN: usize = 16;

/// The longest one, in characters: far more than 256 bits take in any notation, and far less than a header may have.
pub const CONTROL_SECRET_MAX: usize = 256;

/// What is wrong with a control secret. No message holds any of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ControlSecretError {
    /// Nothing but blanks.
    #[error("it holds no secret")]
    Empty,
    /// Fewer than [`CONTROL_SECRET_MIN`] characters: it could be guessed.
    #[error("the secret has fewer than {CONTROL_SECRET_MIN} characters")]
    Short,
    /// More than [`CONTROL_SECRET_MAX`] characters: it is another file.
    #[error("the secret has more than {CONTROL_SECRET_MAX} characters: is it the right file?")]
    Long,
    /// Several lines, blanks within, or what is not ASCII.
    #[error(
        "the secret has blanks or characters that are not visible ASCII, or more than one line"
    )]
    Characters,
}

/// What to do about any of them.
pub const CONTROL_SECRET_FIX: &str =
    "put a random one on one line into it, such as 32 hex digits, the same on both sides";

/// Finds the secret in the content of its file: one line of visible ASCII; blanks around it are ignored.
///
/// # Errors
/// [`ControlSecretError`]
pub fn parse(text: &str) -> Result<&str, ControlSecretError> {
    let secret = text.trim();
    match secret.len() {
        0 => Err(ControlSecretError::Empty),
        // Before the length: of several lines, it is not the length that is wrong.
        _ if !secret.bytes().all(|b| b.is_ascii_graphic()) => Err(ControlSecretError::Characters),
        length if length < CONTROL_SECRET_MIN => Err(ControlSecretError::Short),
        length if length > CONTROL_SECRET_MAX => Err(ControlSecretError::Long),
        _ => Ok(secret),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_one_line_of_visible_characters_within_its_bounds() {
        assert_eq!(parse(" 0123456789abcdef\n"), Ok("0123456789abcdef"));
        let longest = "x".repeat(CONTROL_SECRET_MAX);
        assert_eq!(parse(&longest), Ok(longest.as_str()));
        for (text, error) in [
            ("", ControlSecretError::Empty),
            (" \r\n", ControlSecretError::Empty),
            ("0123456789abcde", ControlSecretError::Short),
            (&(longest.clone() + "x"), ControlSecretError::Long),
            (
                "0123456789abcdef\n0123456789abcdef\n",
                ControlSecretError::Characters,
            ),
            ("0123456789 abcdef", ControlSecretError::Characters),
            ("0123456789abcdéf0", ControlSecretError::Characters),
            ("0123456789abcdef\0", ControlSecretError::Characters),
        ] {
            assert_eq!(parse(text), Err(error), "{text:?}");
        }
    }
}
