//! API keys: who may do what, how often, and for how long.
//!
//! The file holds names and SHA-256 hashes, never a key: who steals it can read who has access, and cannot call. A plain hash
//! is enough because keys are random and long; nobody guesses 128 bits, however cheap a guess is. A presented key is hashed and
//! compared with every entry in constant time, without an early exit, so that no timing tells how near a guess came.
//!
//! ```toml
//! [[key]]
//! name = "dev"
//! sha256 = "…"    # 64 hexadecimal digits: printf %s "$KEY" | sha256sum
//! # All of these may be left out:
//! scopes = ["calls", "secrets", "sideband"]    # what the key may do; "admin" is never meant by default. Client secrets make calls,
//!                                              # also those of a key that has "secrets" alone
//! rate = { per_second = 50, burst = 200 }      # calls and secrets together
//! max_seconds = 3600                           # after how long its calls end
//! tenant = "shop"                              # whose calls it places and reaches: its name, when left out
//! ```
//!
//! Neither keys nor hashes appear in a log, an error or a `Debug` form.

use std::fmt;
use std::num::NonZeroU32;
use std::path::Path;
use std::sync::Arc;

use firsthop_shared::reload::{ReadError, read_small_file};
use serde::Deserialize;
use sha2::{Digest as _, Sha256};
use subtle::{Choice, ConditionallySelectable as _, ConstantTimeEq as _};

use crate::limits::{API_KEYS_MAX, BEARER_MAX, KEY_NAME_MAX};

/// A file of API keys that cannot be used. No message holds a key or a hash.
#[derive(Debug, thiserror::Error)]
pub enum CredentialsError {
    /// The file could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The text is not TOML of the expected shape.
    #[error(
        "line {line} is not what a file of API keys holds: [[key]] tables with name = \"…\" and sha256 = \"…\", and if you like \
        scopes = [\"calls\", \"secrets\", \"sideband\", \"admin\"], rate = {{ per_second = …, burst = … }}, max_seconds = …, tenant = \"…\""
    )]
    Syntax {
        /// Line of the first fault, from 1.
        line: usize,
    },
    /// The file says nothing about keys: somebody is just writing it, or it is another file.
    #[error("it holds no [[key]]: write key = [] to let nobody in")]
    Empty,
    /// The file holds more keys than are compared per request.
    #[error("it holds more than {API_KEYS_MAX} keys")]
    TooMany,
    /// A name is empty, too long, or holds characters that do not belong into a log.
    #[error(
        "key number {0} needs a name of 1 to {KEY_NAME_MAX} letters, digits, '-', '_', '.' or '@'"
    )]
    Name(usize),
    /// A tenant's name is empty, too long, or holds characters that do not belong into a log.
    #[error(
        "the tenant of key '{0}' needs 1 to {KEY_NAME_MAX} letters, digits, '-', '_', '.' or '@'"
    )]
    Tenant(KeyName),
    /// Two keys have one name.
    #[error("two keys are named '{0}'")]
    Duplicate(KeyName),
    /// One key under two names: the first in the file would win, whatever the second may do.
    #[error("keys '{0}' and '{1}' have the same sha256: give each client a key of its own")]
    Same(KeyName, KeyName),
    /// A hash is not 64 hexadecimal digits.
    #[error("the sha256 of key '{0}' is not 64 hexadecimal digits")]
    Hash(KeyName),
    /// A rate or a time limit of zero would shut the key out without saying so.
    #[error("key '{0}' has a rate or max_seconds of 0: take the key out of the file instead")]
    Zero(KeyName),
}

/// Something that a key may be allowed to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// Create calls, restart and end them.
    Calls,
    /// Mint client secrets, which create, restart and end calls.
    Secrets,
    /// Join the sideband of a call.
    Sideband,
    /// See how the fleet stands.
    Admin,
}

impl Scope {
    /// What a key without a list may do.
    pub const DEFAULT: [Self; 3] = [Self::Calls, Self::Secrets, Self::Sideband];

    /// The word for files and messages.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Calls => "calls",
            Self::Secrets => "secrets",
            Self::Sideband => "sideband",
            Self::Admin => "admin",
        }
    }
}

/// How often something may happen: a bucket of `burst`, refilled at `per_second`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rate {
    /// How often in the long run.
    pub per_second: NonZeroU32,
    /// How often at once.
    pub burst: NonZeroU32,
}

/// What the file says about one key, but for its hash.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Grant {
    /// Its name.
    pub name: KeyName,
    /// Whose calls it places and reaches: keys of one tenant reach each other's. Its own name, unless the file says another.
    pub tenant: KeyName,
    /// What it may do.
    pub scopes: Vec<Scope>,
    /// How often it may create a call or mint a secret; nothing means no limit of its own.
    pub rate: Option<Rate>,
    /// After how many seconds its calls end; nothing means the owner's limit alone.
    pub max_seconds: Option<u32>,
}

impl Grant {
    /// Whether the key may do this.
    #[must_use]
    pub fn allows(&self, scope: Scope) -> bool {
        self.scopes.contains(&scope)
    }

    /// Whether a client secret of the key may do this: calls alone, whatever the key may do besides. A key that may mint is one that may let
    /// others call.
    #[must_use]
    pub fn allows_secret(&self, scope: Scope) -> bool {
        scope == Scope::Calls && (self.allows(Scope::Calls) || self.allows(Scope::Secrets))
    }
}

/// The name of an API key, as logs and metrics may show it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct KeyName(Arc<str>);

impl KeyName {
    /// The characters.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for KeyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Why a request is not let in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Denied {
    /// No `Authorization` header.
    Missing,
    /// An `Authorization` header that is not `Bearer <key>`.
    Scheme,
    /// A key that is not in the file.
    Unknown,
}

/// The API keys of one reading of the file.
pub struct ApiKeys {
    entries: Vec<(Arc<Grant>, [u8; 32])>,
}

impl fmt::Debug for ApiKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ApiKeys({})", self.entries.len())
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct KeysFile {
    /// Nothing is half a file, an empty list is what somebody meant.
    key: Option<Vec<KeyEntry>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct KeyEntry {
    name: String,
    sha256: String,
    #[serde(default)]
    scopes: Option<Vec<Scope>>,
    #[serde(default)]
    rate: Option<FileRate>,
    #[serde(default)]
    max_seconds: Option<u32>,
    #[serde(default)]
    tenant: Option<String>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileRate {
    per_second: u32,
    burst: u32,
}

impl ApiKeys {
    /// Reads the TOML of a file of API keys. `key = []` revokes all; a file without any `key` is taken for a half-written one.
    ///
    /// # Errors
    /// What is wrong with it, without any key or hash.
    pub fn parse(text: &str) -> Result<Self, CredentialsError> {
        let file: KeysFile = toml::from_str(text).map_err(|error| CredentialsError::Syntax {
            line: line_of(text, error.span().map_or(0, |span| span.start)),
        })?;
        let keys = file.key.ok_or(CredentialsError::Empty)?;
        if keys.len() > API_KEYS_MAX {
            return Err(CredentialsError::TooMany);
        }
        let mut entries = Vec::with_capacity(keys.len());
        let mut names = std::collections::HashSet::with_capacity(keys.len());
        let mut hashes = std::collections::HashMap::with_capacity(keys.len());
        for (index, entry) in keys.into_iter().enumerate() {
            let name = key_name(&entry.name).ok_or(CredentialsError::Name(index + 1))?;
            let hash =
                read_hash(&entry.sha256).ok_or_else(|| CredentialsError::Hash(name.clone()))?;
            if !names.insert(name.clone()) {
                return Err(CredentialsError::Duplicate(name));
            }
            if let Some(other) = hashes.insert(hash, name.clone()) {
                return Err(CredentialsError::Same(other, name));
            }
            let zero = || CredentialsError::Zero(name.clone());
            let rate = entry
                .rate
                .map(|rate| {
                    Ok::<_, CredentialsError>(Rate {
                        per_second: NonZeroU32::new(rate.per_second).ok_or_else(zero)?,
                        burst: NonZeroU32::new(rate.burst).ok_or_else(zero)?,
                    })
                })
                .transpose()?;
            if entry.max_seconds == Some(0) {
                return Err(zero());
            }
            let tenant = match &entry.tenant {
                Some(text) => {
                    key_name(text).ok_or_else(|| CredentialsError::Tenant(name.clone()))?
                }
                None => name.clone(),
            };
            let grant = Grant {
                name,
                tenant,
                scopes: entry.scopes.unwrap_or_else(|| Scope::DEFAULT.to_vec()),
                rate,
                max_seconds: entry.max_seconds,
            };
            entries.push((Arc::new(grant), hash));
        }
        Ok(Self { entries })
    }

    /// Reads API keys from a file.
    ///
    /// # Errors
    /// As [`ApiKeys::parse`], and when the file cannot be read.
    pub fn load(path: &Path) -> Result<Self, CredentialsError> {
        Self::parse(&read_small_file(path)?)
    }

    /// How many keys there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether nobody is let in.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Says whose key a bearer token is.
    ///
    /// # Errors
    /// [`Denied::Unknown`] when it is nobody's.
    pub fn authorize(&self, key: &[u8]) -> Result<Arc<Grant>, Denied> {
        self.find(key).ok_or(Denied::Unknown)
    }

    /// What a key of that name may do: client secrets name the key that they were minted with.
    #[must_use]
    pub fn named(&self, name: &str) -> Option<Arc<Grant>> {
        self.grants()
            .find(|grant| grant.name.as_str() == name)
            .cloned()
    }

    /// All keys, in file order.
    pub fn grants(&self) -> impl Iterator<Item = &Arc<Grant>> {
        self.entries.iter().map(|(grant, _)| grant)
    }

    fn find(&self, key: &[u8]) -> Option<Arc<Grant>> {
        let presented: [u8; 32] = Sha256::digest(key).into();
        let mut found = Choice::from(0);
        let mut position = 0_u64;
        for (index, (_, hash)) in self.entries.iter().enumerate() {
            let same = presented.ct_eq(hash);
            position.conditional_assign(&(index as u64), same);
            found |= same;
        }
        if bool::from(found) {
            self.entries
                .get(position as usize)
                .map(|(grant, _)| Arc::clone(grant))
        } else {
            None
        }
    }
}

/// The token in the value of an `Authorization` header (RFC 6750 section 2.1).
///
/// # Errors
/// [`Denied::Missing`] without a header, [`Denied::Scheme`] when it is not of the form `Bearer <key>`.
pub fn bearer(header: Option<&[u8]>) -> Result<&[u8], Denied> {
    let header = header.ok_or(Denied::Missing)?;
    let (scheme, key) = header
        .split_at_checked("Bearer ".len())
        .ok_or(Denied::Scheme)?;
    let key = key.trim_ascii();
    if scheme.eq_ignore_ascii_case(b"Bearer ") && (1..=BEARER_MAX).contains(&key.len()) {
        Ok(key)
    } else {
        Err(Denied::Scheme)
    }
}

fn key_name(text: &str) -> Option<KeyName> {
    let fits = !text.is_empty() && text.len() <= KEY_NAME_MAX;
    let plain = text
        .bytes()
        .all(|b| b.is_ascii_alphanumeric() || b"-_.@".contains(&b));
    (fits && plain).then(|| KeyName(text.into()))
}

fn read_hash(text: &str) -> Option<[u8; 32]> {
    if text.len() != 64 || !text.is_ascii() {
        return None;
    }
    let mut hash = [0; 32];
    for (byte, pair) in hash.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        let high = char::from(pair[0]).to_digit(16)?;
        let low = char::from(pair[1]).to_digit(16)?;
        *byte = u8::try_from(high << 4 | low).ok()?;
    }
    Some(hash)
}

fn line_of(text: &str, offset: usize) -> usize {
    let before = text.as_bytes().get(..offset).unwrap_or_default();
    1 + before.iter().filter(|b| **b == b'\n').count()
}

#[cfg(test)]
mod tests {
    use super::*;

    // SHA-256 of "dev" and of "other".
    const DEV: &str = "ef260e9aa3c673af240d17a2660480361a8e081d1ffeca2a5ed0e3219fc18567";
    const OTHER: &str = "d9298a10d1b0735837dc4bd85dac641b0f3cef27a47e5d53a54f2f3f5b2fcffa";

    fn keys() -> ApiKeys {
        ApiKeys::parse(&format!(
            "[[key]]\nname = \"dev\"\nsha256 = \"{DEV}\"\n[[key]]\nname = \"ops\"\nsha256 = \"{}\"\n",
            OTHER.to_uppercase()
        ))
        .expect("valid")
    }

    fn name_of(header: &str) -> Result<String, Denied> {
        let key = bearer(Some(header.as_bytes()))?;
        keys().authorize(key).map(|grant| grant.name.to_string())
    }

    #[test]
    fn a_listed_key_is_let_in_under_its_name() {
        assert_eq!(name_of("Bearer dev"), Ok("dev".into()));
        assert_eq!(name_of("bearer  other "), Ok("ops".into()));
    }

    #[test]
    fn everything_else_is_denied_with_its_reason() {
        assert_eq!(bearer(None), Err(Denied::Missing));
        for header in ["", "dev", "Bearer", "Bearer ", "Basic ZGV2", "Bearerdev"] {
            assert_eq!(name_of(header), Err(Denied::Scheme), "{header:?}");
        }
        for header in ["Bearer de", "Bearer devs", "Bearer Dev", "Bearer ef260e"] {
            assert_eq!(name_of(header), Err(Denied::Unknown), "{header:?}");
        }
        let long = format!("Bearer {}", "x".repeat(BEARER_MAX + 1));
        assert_eq!(name_of(&long), Err(Denied::Scheme));
    }

    #[test]
    fn a_hash_is_not_a_key() {
        assert_eq!(name_of(&format!("Bearer {DEV}")), Err(Denied::Unknown));
    }

    #[test]
    fn a_bad_file_is_refused_without_its_hashes_in_the_error() {
        let cases = [
            (String::new(), "no [[key]]"),
            ("[[key]]\nname = 7\n".into(), "line 2"),
            (
                format!("[[key]]\nname = \"\"\nsha256 = \"{DEV}\""),
                "number 1",
            ),
            (
                format!("[[key]]\nname = \"a b\"\nsha256 = \"{DEV}\""),
                "number 1",
            ),
            (
                format!("[[key]]\nname = \"a\"\nsha256 = \"{}\"", &DEV[1..]),
                "'a'",
            ),
            (
                format!("[[key]]\nname = \"a\"\nsha256 = \"z{}\"", &DEV[1..]),
                "'a'",
            ),
            (format!("[[key]]\nname = \"a\"\nkey = \"{DEV}\""), "line 3"),
            (
                format!("[[key]]\nname = \"a\"\nsha256 = \"{DEV}\"\nscopes = [\"all\"]"),
                "line 4",
            ),
            (
                format!(
                    "[[key]]\nname = \"a\"\nsha256 = \"{DEV}\"\nrate = {{ per_second = 0, burst = 1 }}"
                ),
                "'a' has a rate",
            ),
            (
                format!("[[key]]\nname = \"a\"\nsha256 = \"{DEV}\"\n").repeat(2),
                "two keys are named 'a'",
            ),
            (
                format!("[[key]]\nname = \"a\"\nsha256 = \"{DEV}\"\ntenant = \"a b\""),
                "the tenant of key 'a'",
            ),
            (
                format!(
                    "[[key]]\nname = \"a\"\nsha256 = \"{DEV}\"\n[[key]]\nname = \"b\"\nsha256 = \"{}\"\n",
                    DEV.to_uppercase()
                ),
                "keys 'a' and 'b' have the same sha256",
            ),
        ];
        for (text, expected) in cases {
            let error = ApiKeys::parse(&text).expect_err(&text);
            let said = format!("{error} {error:?}");
            assert!(said.contains(expected), "{said}");
            assert!(!said.contains(&DEV[1..]), "{said}");
        }
    }

    #[test]
    fn a_key_may_do_what_its_scopes_say_and_admin_only_when_named() {
        let keys = ApiKeys::parse(&format!(
            "[[key]]\nname = \"a\"\nsha256 = \"{DEV}\"\n[[key]]\nname = \"b\"\nsha256 = \"{OTHER}\"\n\
             scopes = [\"admin\"]\nrate = {{ per_second = 5, burst = 10 }}\nmax_seconds = 60\n"
        ))
        .expect("valid");
        let (a, b) = (
            keys.named("a").expect("listed"),
            keys.named("b").expect("listed"),
        );
        assert!(Scope::DEFAULT.iter().all(|scope| a.allows(*scope)));
        assert!(!a.allows(Scope::Admin) && b.allows(Scope::Admin) && !b.allows(Scope::Calls));
        assert_eq!(b.rate.map(|rate| rate.burst.get()), Some(10));
        assert_eq!(b.max_seconds, Some(60));
        assert!(keys.named("c").is_none());
    }

    #[test]
    fn debug_forms_show_no_hash() {
        assert_eq!(format!("{:?}", keys()), "ApiKeys(2)");
    }
}
