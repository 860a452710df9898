//! Client secrets: what a server gives its browser page, so that the page can make calls without an API key.
//!
//! `POST /v1/realtime/client_secrets` makes one. It is a sealed token ([`sealed`], prefix `ek_`) that carries its own claims, so any replica can
//! verify it, and nobody keeps a list. It can be used again and again until it expires; a call may outlive it. There is no list to strike one
//! from either: taking its API key out of the file revokes all that were minted with it.
//!
//! ```json
//! { "key": "shop", "created": 1790000000, "expires": 1790000600, "nonce": 123,
//!   "session": { "type": "realtime", … }, "max_seconds": 900, "origins": ["https://shop.example"] }
//! ```

use std::fmt;

use firsthop_shared::keyring::{ApiKey, ApiKeyring};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::sealed::{self, SealError};

/// What every client secret begins with.
pub const PREFIX: &str = "ek_";

/// What a client secret says.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claims {
    /// Name of the API key that it was minted with.
    pub key: String,
    /// When it was minted, in seconds of Unix time.
    pub created: u64,
    /// From when on it is refused, in seconds of Unix time.
    pub expires: u64,
    /// A random number, so that no two secrets are alike.
    pub nonce: u64,
    /// The session's configuration.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub session: Map<String, Value>,
    /// After how many seconds a call made with it ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_seconds: Option<u32>,
    /// Which web origins (RFC 6454) may use it; none listed means any, and clients that are not browsers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub origins: Vec<String>,
}

impl fmt::Debug for Claims {
    /// Without the session: instructions are the app's own business.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Claims")
            .field("key", &self.key)
            .field("expires", &self.expires)
            .finish_non_exhaustive()
    }
}

/// Why a client secret is not good.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SecretError {
    /// It was altered, or never made by this fleet, or its key was taken out of service.
    Invalid(SealError),
    /// It was good until this time, in seconds of Unix time.
    Expired {
        /// When it expired.
        at: u64,
    },
}

/// Whether a bearer token claims to be a client secret.
#[must_use]
pub fn is_one(token: &str) -> bool {
    token.starts_with(PREFIX)
}

/// Makes a client secret.
#[must_use]
pub fn mint(key: &ApiKey, claims: &Claims) -> String {
    sealed::seal(key, PREFIX, claims)
}

/// Opens a client secret and checks that it is good at `now`, in seconds of Unix time.
///
/// # Errors
/// [`SecretError`]; an expired one is told from an altered one.
pub fn open(keyring: &ApiKeyring, secret: &str, now: u64) -> Result<Claims, SecretError> {
    let claims: Claims = sealed::open(keyring, PREFIX, secret).map_err(SecretError::Invalid)?;
    if now >= claims.expires {
        return Err(SecretError::Expired { at: claims.expires });
    }
    Ok(claims)
}

impl Claims {
    /// Whether a request from this web origin may use the secret; `None` is a request without an `Origin` header.
    #[must_use]
    pub fn allow_origin(&self, origin: Option<&str>) -> bool {
        self.origins.is_empty()
            || origin.is_some_and(|origin| {
                self.origins
                    .iter()
                    .any(|known| known.eq_ignore_ascii_case(origin))
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firsthop_shared::keyring::Masters;

    fn claims() -> Claims {
        Claims {
            key: "shop".into(),
            created: 1_000,
            expires: 1_600,
            nonce: 9,
            session: Map::new(),
            max_seconds: None,
            origins: Vec::new(),
        }
    }

    #[test]
    fn a_secret_is_good_until_the_second_it_expires() {
        let ring = ApiKeyring::parse(&Masters::new([7; 32]).api_toml()).expect("valid");
        let secret = mint(ring.active(), &claims());
        assert!(is_one(&secret));
        assert_eq!(open(&ring, &secret, 1_000), Ok(claims()));
        assert_eq!(open(&ring, &secret, 1_599), Ok(claims()));
        assert_eq!(
            open(&ring, &secret, 1_600),
            Err(SecretError::Expired { at: 1_600 })
        );
    }

    #[test]
    fn a_secret_outlives_the_rotation_of_its_key_until_that_is_removed() {
        let mut masters = Masters::new([7; 32]);
        let old = ApiKeyring::parse(&masters.api_toml()).expect("valid");
        let secret = mint(old.active(), &claims());
        let second = masters.add([8; 32]).expect("room").get();
        masters.activate(second).expect("known");
        let both = ApiKeyring::parse(&masters.api_toml()).expect("valid");
        assert_eq!(open(&both, &secret, 1_000), Ok(claims()));
        masters.remove(1).expect("not active");
        let new = ApiKeyring::parse(&masters.api_toml()).expect("valid");
        assert_eq!(
            open(&new, &secret, 1_000),
            Err(SecretError::Invalid(SealError::UnknownKey))
        );
    }

    #[test]
    fn listed_origins_alone_may_use_a_secret() {
        let any = claims();
        assert!(any.allow_origin(None) && any.allow_origin(Some("https://x.example")));
        let some = Claims {
            origins: vec!["https://shop.example".into()],
            ..claims()
        };
        assert!(some.allow_origin(Some("https://Shop.example")));
        for origin in [
            None,
            Some("https://shop.example.evil.example"),
            Some("http://shop.example"),
            Some("null"),
        ] {
            assert!(!some.allow_origin(origin), "{origin:?}");
        }
    }

    #[test]
    fn debug_forms_show_no_instructions() {
        let mut told = claims();
        told.session
            .insert("instructions".into(), "be discreet".into());
        assert!(!format!("{told:?}").contains("discreet"));
    }
}
