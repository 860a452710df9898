//! Keyrings: the keys of the wire formats, by key id, and how they are derived and rotated.
//!
//! There are two, because two kinds of machine hold them. The **data keyring** goes to relays, transceivers and signaling:
//! sub-keys `ufrag` (AES-SIV, 32 bytes), `ice` (HMAC-SHA256, 32 bytes) and `trunk` (SipHash-2-4, 16 bytes). The **API
//! keyring** goes to signaling alone: sub-keys `call` and `secret` (32 bytes each). A stolen edge node can therefore mint
//! neither call ids nor client secrets.
//!
//! Both derive from master secrets that no service holds ([`Masters`]): HKDF-SHA256 (RFC 5869), salt `firsthop/1`, info
//! `<label> <key id>`. One key of a ring is *active*: new tokens and trunk datagrams use it; every key of the ring is
//! accepted. To rotate, add a key everywhere, then activate it, then remove the old one after the longest session.

use std::fmt;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use hkdf::Hkdf;
use hmac::{Hmac, KeyInit as _};
use serde::Deserialize;
use sha2::Sha256;
use zeroize::{Zeroize as _, ZeroizeOnDrop, Zeroizing};

use crate::address::KeyId;
use crate::reload::{ReadError, read_small_file};

pub use crate::masters::{Masters, MastersError};

/// The salt of every derivation: it names the project and the version of the key schedule.
const SALT: &[u8] = b"firsthop/1";

/// A keyring that cannot be used. No message holds key material.
#[derive(Debug, thiserror::Error)]
pub enum KeyringError {
    /// The file could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The text is not TOML of the expected shape.
    #[error("line {line} is not what the {kind} keyring holds")]
    Syntax {
        /// `data`, `API` or `masters`.
        kind: &'static str,
        /// Line of the first fault, from 1.
        line: usize,
    },
    /// A key id is above 510.
    #[error("key id {0} is not valid: ids go from 0 to 510")]
    Id(u16),
    /// Two keys have one id.
    #[error("key id {0} stands twice in the keyring")]
    Duplicate(u16),
    /// The active key is not in the ring.
    #[error(
        "the active key {0} is not in the keyring: add it, or name another with `keys activate`"
    )]
    NoActive(u16),
    /// A sub-key is not base64 of the right length.
    #[error("sub-key '{label}' of key {id} is not base64 of {bytes} bytes")]
    SubKey {
        /// The name of the sub-key.
        label: &'static str,
        /// The id of its key.
        id: u16,
        /// The length that is expected, in bytes.
        bytes: usize,
    },
}

/// One key of the data keyring, with its ciphers made ready.
#[derive(ZeroizeOnDrop)]
pub struct DataKey {
    #[zeroize(skip)]
    id: KeyId,
    ufrag: [u8; 32],
    #[zeroize(skip)]
    ice: Hmac<Sha256>,
    trunk: [u8; 16],
}

impl DataKey {
    fn new(id: KeyId, ufrag: [u8; 32], ice: [u8; 32], trunk: [u8; 16]) -> Self {
        Self {
            id,
            ufrag,
            ice: hmac(&ice),
            trunk,
        }
    }

    /// The id under which tokens and datagrams name this key.
    #[must_use]
    pub fn id(&self) -> KeyId {
        self.id
    }

    pub(crate) fn ufrag(&self) -> &[u8; 32] {
        &self.ufrag
    }

    /// A keyed HMAC, its key schedule already done.
    pub(crate) fn ice(&self) -> Hmac<Sha256> {
        self.ice.clone()
    }

    pub(crate) fn trunk(&self) -> &[u8; 16] {
        &self.trunk
    }
}

impl fmt::Debug for DataKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DataKey({})", self.id)
    }
}

/// One key of the API keyring.
#[derive(ZeroizeOnDrop)]
pub struct ApiKey {
    #[zeroize(skip)]
    id: KeyId,
    call: [u8; 32],
    secret: [u8; 32],
}

impl ApiKey {
    /// The id under which call ids and client secrets name this key.
    #[must_use]
    pub fn id(&self) -> KeyId {
        self.id
    }

    /// Key of sealed call ids: AES-SIV-CMAC-256, 32 bytes.
    #[must_use]
    pub fn call(&self) -> &[u8; 32] {
        &self.call
    }

    /// Key of client secrets: AES-SIV-CMAC-256, 32 bytes.
    #[must_use]
    pub fn secret(&self) -> &[u8; 32] {
        &self.secret
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ApiKey({})", self.id)
    }
}

/// Keys by id, one of them active. Look-ups are one array access.
#[derive(Debug)]
pub struct Ring<K> {
    active: usize,
    keys: Vec<K>,
    /// Position in `keys` by key id; `u16::MAX` where there is none.
    by_id: Box<[u16]>,
}

/// The keys of ufrags, ICE passwords and the trunk.
pub type DataKeyring = Ring<DataKey>;

/// The keys of call ids and client secrets.
pub type ApiKeyring = Ring<ApiKey>;

impl<K> Ring<K> {
    fn build(active: u16, keys: Vec<(KeyId, K)>) -> Result<Self, KeyringError> {
        let mut by_id = vec![u16::MAX; KeyId::COUNT].into_boxed_slice();
        let mut list = Vec::with_capacity(keys.len());
        for (id, key) in keys {
            let slot = &mut by_id[usize::from(id.get())];
            if *slot != u16::MAX {
                return Err(KeyringError::Duplicate(id.get()));
            }
            *slot = u16::try_from(list.len()).map_err(|_| KeyringError::Duplicate(id.get()))?;
            list.push(key);
        }
        let active_at = KeyId::new(active)
            .map(|id| by_id[usize::from(id.get())])
            .filter(|at| *at != u16::MAX)
            .ok_or(KeyringError::NoActive(active))?;
        Ok(Self {
            active: usize::from(active_at),
            keys: list,
            by_id,
        })
    }

    /// The key that new tokens and datagrams use.
    #[must_use]
    pub fn active(&self) -> &K {
        &self.keys[self.active]
    }

    /// The key of that id, when the ring has it.
    #[must_use]
    pub fn get(&self, id: KeyId) -> Option<&K> {
        self.keys
            .get(usize::from(self.by_id[usize::from(id.get())]))
    }

    /// How many keys the ring holds.
    #[must_use]
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Never true: a ring has an active key.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DataFile {
    active: u16,
    #[serde(default)]
    key: Vec<DataEntry>,
}

#[derive(Deserialize, ZeroizeOnDrop)]
#[serde(deny_unknown_fields)]
struct DataEntry {
    #[zeroize(skip)]
    id: u16,
    ufrag: String,
    ice: String,
    trunk: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ApiFile {
    active: u16,
    #[serde(default)]
    key: Vec<ApiEntry>,
}

#[derive(Deserialize, ZeroizeOnDrop)]
#[serde(deny_unknown_fields)]
struct ApiEntry {
    #[zeroize(skip)]
    id: u16,
    call: String,
    secret: String,
}

impl DataKeyring {
    /// Reads the TOML of a data keyring.
    ///
    /// # Errors
    /// What is wrong with it, without any key material.
    pub fn parse(text: &str) -> Result<Self, KeyringError> {
        let file: DataFile = from_toml(text, "data")?;
        let mut keys = Vec::with_capacity(file.key.len());
        for entry in &file.key {
            let id = KeyId::new(entry.id).ok_or(KeyringError::Id(entry.id))?;
            let key = DataKey::new(
                id,
                sub_key(&entry.ufrag, "ufrag", entry.id)?,
                sub_key(&entry.ice, "ice", entry.id)?,
                sub_key(&entry.trunk, "trunk", entry.id)?,
            );
            keys.push((id, key));
        }
        Self::build(file.active, keys)
    }

    /// Reads a data keyring from a file.
    ///
    /// # Errors
    /// As [`DataKeyring::parse`], and when the file cannot be read.
    pub fn load(path: &Path) -> Result<Self, KeyringError> {
        Self::parse(&Zeroizing::new(read_small_file(path)?))
    }
}

impl ApiKeyring {
    /// Reads the TOML of an API keyring.
    ///
    /// # Errors
    /// What is wrong with it, without any key material.
    pub fn parse(text: &str) -> Result<Self, KeyringError> {
        let file: ApiFile = from_toml(text, "API")?;
        let mut keys = Vec::with_capacity(file.key.len());
        for entry in &file.key {
            let id = KeyId::new(entry.id).ok_or(KeyringError::Id(entry.id))?;
            let key = ApiKey {
                id,
                call: sub_key(&entry.call, "call", entry.id)?,
                secret: sub_key(&entry.secret, "secret", entry.id)?,
            };
            keys.push((id, key));
        }
        Self::build(file.active, keys)
    }

    /// Reads an API keyring from a file.
    ///
    /// # Errors
    /// As [`ApiKeyring::parse`], and when the file cannot be read.
    pub fn load(path: &Path) -> Result<Self, KeyringError> {
        Self::parse(&Zeroizing::new(read_small_file(path)?))
    }
}

/// Derives one sub-key of `N` bytes (at most 8,160) from a master secret.
#[must_use]
pub fn derive<const N: usize>(master: &[u8; 32], label: &str, id: KeyId) -> [u8; N] {
    let mut out = [0; N];
    let info = format!("{label} {id}");
    // HKDF fails only above 255 blocks of output, far over any key of ours.
    if Hkdf::<Sha256>::new(Some(SALT), master)
        .expand(info.as_bytes(), &mut out)
        .is_err()
    {
        unreachable!("a sub-key is shorter than 8,160 bytes");
    }
    out
}

fn hmac(key: &[u8; 32]) -> Hmac<Sha256> {
    match Hmac::new_from_slice(key) {
        Ok(mac) => mac,
        Err(_) => unreachable!("HMAC takes keys of any length"),
    }
}

pub(crate) fn from_toml<'a, T: Deserialize<'a>>(
    text: &'a str,
    kind: &'static str,
) -> Result<T, KeyringError> {
    // The parser's own message quotes the line it stumbled over, which may be a key: only the position is passed on.
    toml::from_str(text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start.min(text.len()));
        let line = text.as_bytes()[..at]
            .iter()
            .filter(|b| **b == b'\n')
            .count()
            + 1;
        KeyringError::Syntax { kind, line }
    })
}

pub(crate) fn sub_key<const N: usize>(
    text: &str,
    label: &'static str,
    id: u16,
) -> Result<[u8; N], KeyringError> {
    let wrong = || KeyringError::SubKey {
        label,
        id,
        bytes: N,
    };
    let mut bytes = BASE64.decode(text).map_err(|_| wrong())?;
    let key = bytes.as_slice().try_into().map_err(|_| wrong());
    bytes.zeroize();
    key
}

#[cfg(test)]
mod tests {
    use super::*;

    fn masters() -> Masters {
        Masters::new([7; 32])
    }

    #[test]
    fn labels_and_ids_give_different_keys() {
        let one = KeyId::FIRST;
        let keys = [
            derive::<32>(&[7; 32], "ufrag", one),
            derive::<32>(&[7; 32], "ice", one),
            derive::<32>(&[7; 32], "call", one),
            derive::<32>(&[7; 32], "ufrag", KeyId::new(2).expect("valid")),
            derive::<32>(&[8; 32], "ufrag", one),
        ];
        for (i, a) in keys.iter().enumerate() {
            assert!(keys[i + 1..].iter().all(|b| a != b));
        }
    }

    #[test]
    fn faults_are_named_and_no_key_is_quoted() {
        let good = masters().data_toml();
        let secret = good
            .lines()
            .find_map(|l| l.strip_prefix("ufrag = "))
            .expect("a sub-key")
            .trim_matches('"')
            .to_owned();
        let cases = [
            (good.replace("active = 1", "active = 2"), "active key 2"),
            (good.replace("id = 1", "id = 511"), "511"),
            (good.replace("trunk = \"", "trunk = \"AAAA"), "'trunk'"),
            (good.replace("ufrag = \"", "ufrag = \"\"\""), "line"),
            (good.replace("[[key]]", "[[keys]]"), "line"),
            (
                format!("{}{}", *good, &good[good.find("[[key]]").expect("a key")..]),
                "twice",
            ),
        ];
        for (text, part) in cases {
            let message = DataKeyring::parse(&text).expect_err("refused").to_string();
            assert!(message.contains(part), "{message}");
            assert!(!message.contains(&secret), "{message}");
        }
    }

    #[test]
    fn debug_output_shows_ids_only() {
        let ring = DataKeyring::parse(&masters().data_toml()).expect("valid");
        assert_eq!(format!("{:?}", ring.active()), "DataKey(1)");
    }
}
