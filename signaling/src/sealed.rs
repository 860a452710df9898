//! Sealed JSON: values that signaling hands out and believes when they come back, without keeping them.
//!
//! ```text
//! token  := prefix K C
//! K      := 2 characters of base64url, 12 bits: version (3 bits, 0), key id (9 bits; 511 = never)
//! C      := base64url without padding of AES-SIV-CMAC-256 (RFC 5297) under the API keyring's sub-key `secret`,
//!           associated data = the prefix and the two characters of K together
//! plain  := JSON (RFC 8259)
//! ```
//!
//! The prefix tells kinds apart, and is sealed in: a token of one kind never opens as another. A token that opens was made by this fleet.
//! Unlike call ids, these have any length, so the last character may have unused bits; they must be zero, so that a token has one spelling.

use aes_siv::KeyInit as _;
use aes_siv::siv::Aes128Siv;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use firsthop_shared::address::KeyId;
use firsthop_shared::keyring::{ApiKey, ApiKeyring};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Length of `K` in characters.
const KEY_LEN: usize = 2;
/// Length of the AES-SIV tag in bytes: a shorter token holds nothing.
const TAG_LEN: usize = 16;

/// Why a token does not open.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SealError {
    /// It does not begin with the prefix of its kind.
    #[error("it does not begin with the prefix of its kind")]
    Prefix,
    /// Too short to hold anything.
    #[error("it is too short")]
    Length,
    /// A character outside of the URL alphabet, or unused bits that are not zero.
    #[error("it holds characters that do not belong there")]
    Alphabet,
    /// A version that this program does not know.
    #[error("it has an unknown version")]
    Version,
    /// The key id is not in the keyring.
    #[error("it names a key that is not in the keyring")]
    UnknownKey,
    /// The seal does not verify: not made by this fleet, or altered.
    #[error("it was not made by this fleet, or was altered")]
    Forged,
}

/// Seals a value. The same value, prefix and key give the same token.
///
/// `prefix` is ASCII that needs no escaping in a header.
pub fn seal<T: Serialize>(key: &ApiKey, prefix: &str, value: &T) -> String {
    let mut token = String::from(prefix);
    let [high, low] = (key.id().get() << 4).to_be_bytes();
    URL_SAFE_NO_PAD.encode_string([high, low, 0], &mut token);
    // Three bytes are four characters; the two that hold the twelve bits stay.
    token.truncate(prefix.len() + KEY_LEN);
    let Ok(plain) = serde_json::to_vec(value) else {
        unreachable!("what is sealed has text keys only, and writes to memory");
    };
    match Aes128Siv::new(key.secret().into()).encrypt([token.as_bytes()], &plain) {
        Ok(sealed) => URL_SAFE_NO_PAD.encode_string(sealed, &mut token),
        Err(_) => unreachable!("AES-SIV fails only above 126 associated inputs"),
    }
    token
}

/// Opens a token of a kind.
///
/// # Errors
/// The first check that failed. What opens and is not of the expected shape counts as forged.
pub fn open<T: DeserializeOwned>(
    keyring: &ApiKeyring,
    prefix: &str,
    token: &str,
) -> Result<T, SealError> {
    let rest = token.strip_prefix(prefix).ok_or(SealError::Prefix)?;
    if !rest
        .bytes()
        .all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
    {
        return Err(SealError::Alphabet);
    }
    let (head, sealed) = token
        .split_at_checked(prefix.len() + KEY_LEN)
        .ok_or(SealError::Length)?;
    let bits = URL_SAFE_NO_PAD
        .decode(format!("{}AA", &head[prefix.len()..]))
        .ok()
        .and_then(|bytes| Some(u16::from_be_bytes(bytes.get(..2)?.try_into().ok()?) >> 4))
        .ok_or(SealError::Alphabet)?;
    if bits >> 9 != 0 {
        return Err(SealError::Version);
    }
    let key = KeyId::new(bits & KeyId::MASK)
        .and_then(|id| keyring.get(id))
        .ok_or(SealError::UnknownKey)?;
    let sealed = URL_SAFE_NO_PAD
        .decode(sealed)
        .map_err(|_| SealError::Alphabet)?;
    if sealed.len() < TAG_LEN {
        return Err(SealError::Length);
    }
    let plain = Aes128Siv::new(key.secret().into())
        .decrypt([head.as_bytes()], &sealed)
        .map_err(|_| SealError::Forged)?;
    serde_json::from_slice(&plain).map_err(|_| SealError::Forged)
}

#[cfg(test)]
mod tests {
    use super::*;
    use firsthop_shared::keyring::Masters;
    use proptest::prelude::*;

    fn keyring() -> ApiKeyring {
        ApiKeyring::parse(&Masters::new([7; 32]).api_toml()).expect("valid")
    }

    #[test]
    fn a_token_opens_as_its_own_kind_alone() {
        let keyring = keyring();
        let token = seal(keyring.active(), "ek_", &"text");
        assert_eq!(open::<String>(&keyring, "ek_", &token), Ok("text".into()));
        let disguised = token.replace("ek_", "xy_");
        assert_eq!(
            open::<String>(&keyring, "xy_", &disguised),
            Err(SealError::Forged)
        );
        assert_eq!(
            open::<String>(&keyring, "xy_", &token),
            Err(SealError::Prefix)
        );
        assert_eq!(open::<u8>(&keyring, "ek_", &token), Err(SealError::Forged));
    }

    proptest! {
        #[test]
        fn any_one_altered_character_is_refused(
            text in "[ -~]{0,80}",
            at in any::<prop::sample::Index>(),
            new in "[A-Za-z0-9_-]",
        ) {
            let keyring = keyring();
            let token = seal(keyring.active(), "ek_", &text);
            let at = at.index(token.len());
            let mut altered = token.clone();
            altered.replace_range(at..=at, &new);
            prop_assert_eq!(open::<String>(&keyring, "ek_", &token), Ok(text));
            if altered != token {
                prop_assert!(open::<String>(&keyring, "ek_", &altered).is_err());
            }
        }

        #[test]
        fn any_text_is_refused_without_a_panic(text in "\\PC{0,60}") {
            let keyring = keyring();
            prop_assert!(open::<String>(&keyring, "ek_", &text).is_err());
            let prefixed = format!("ek_{text}");
            prop_assert!(open::<String>(&keyring, "ek_", &prefixed).is_err());
        }
    }
}
