//! Master secrets, from which both keyrings derive: what the `keys` tool keeps, and no service ever reads.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::Deserialize;
use zeroize::{ZeroizeOnDrop, Zeroizing};

use crate::address::KeyId;
use crate::keyring::{KeyringError, derive, from_toml, sub_key};

/// The master secrets: what the `keys` tool keeps, and no service ever reads.
///
/// Shape of the file: `active = <id>` and `newest = <id>`, then `[[master]]` tables with `id` and `secret` (base64 of 32
/// bytes).
pub struct Masters {
    active: u16,
    /// The id that was given last, also when its key is gone: an id is not given twice before all were.
    newest: u16,
    masters: Vec<(KeyId, Zeroizing<[u8; 32]>)>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MastersFile {
    active: u16,
    newest: u16,
    #[serde(default)]
    master: Vec<MasterEntry>,
}

#[derive(Deserialize, ZeroizeOnDrop)]
#[serde(deny_unknown_fields)]
struct MasterEntry {
    #[zeroize(skip)]
    id: u16,
    secret: String,
}

/// A change to the master secrets that would leave them unusable.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum MastersError {
    /// There is no such key.
    #[error("there is no key {0}: `keys show` lists them")]
    Unknown(u16),
    /// The active key cannot be removed.
    #[error("key {0} is active: activate another one first")]
    Active(u16),
    /// All 511 ids are taken.
    #[error("all key ids are taken: remove old keys first")]
    Full,
}

impl Masters {
    /// Starts with one master secret, id 1, which is active.
    #[must_use]
    pub fn new(secret: [u8; 32]) -> Self {
        Self {
            active: 1,
            newest: 1,
            masters: vec![(KeyId::FIRST, Zeroizing::new(secret))],
        }
    }

    /// Reads the TOML of a masters file.
    ///
    /// # Errors
    /// What is wrong with it, without any key material.
    pub fn parse(text: &str) -> Result<Self, KeyringError> {
        let file: MastersFile = from_toml(text, "masters")?;
        let mut masters: Vec<(KeyId, Zeroizing<[u8; 32]>)> = Vec::with_capacity(file.master.len());
        for entry in &file.master {
            let id = KeyId::new(entry.id).ok_or(KeyringError::Id(entry.id))?;
            if masters.iter().any(|(known, _)| *known == id) {
                return Err(KeyringError::Duplicate(entry.id));
            }
            let secret = sub_key(&entry.secret, "secret", entry.id)?;
            masters.push((id, Zeroizing::new(secret)));
        }
        if !masters.iter().any(|(id, _)| id.get() == file.active) {
            return Err(KeyringError::NoActive(file.active));
        }
        Ok(Self {
            active: file.active,
            newest: KeyId::new(file.newest)
                .ok_or(KeyringError::Id(file.newest))?
                .get(),
            masters,
        })
    }

    /// Adds a master secret under the next free id after the one given last, and returns that id. It is not active yet.
    ///
    /// # Errors
    /// [`MastersError::Full`] when every id is taken.
    pub fn add(&mut self, secret: [u8; 32]) -> Result<KeyId, MastersError> {
        let count = KeyId::COUNT as u16;
        let id = (1..=count)
            .filter_map(|step| KeyId::new((self.newest + step) % count))
            .find(|id| !self.masters.iter().any(|(known, _)| known == id))
            .ok_or(MastersError::Full)?;
        self.newest = id.get();
        self.masters.push((id, Zeroizing::new(secret)));
        Ok(id)
    }

    /// Makes a key the active one.
    ///
    /// # Errors
    /// [`MastersError::Unknown`].
    pub fn activate(&mut self, id: u16) -> Result<(), MastersError> {
        if !self.masters.iter().any(|(known, _)| known.get() == id) {
            return Err(MastersError::Unknown(id));
        }
        self.active = id;
        Ok(())
    }

    /// Removes a key: what was made with it is refused from then on.
    ///
    /// # Errors
    /// [`MastersError::Active`] for the active key, [`MastersError::Unknown`].
    pub fn remove(&mut self, id: u16) -> Result<(), MastersError> {
        if id == self.active {
            return Err(MastersError::Active(id));
        }
        let before = self.masters.len();
        self.masters.retain(|(known, _)| known.get() != id);
        if self.masters.len() == before {
            return Err(MastersError::Unknown(id));
        }
        Ok(())
    }

    /// The ids, oldest first, and whether each is active.
    pub fn ids(&self) -> impl Iterator<Item = (KeyId, bool)> + '_ {
        self.masters
            .iter()
            .map(|(id, _)| (*id, id.get() == self.active))
    }

    /// The text of the masters file.
    #[must_use]
    pub fn to_toml(&self) -> Zeroizing<String> {
        let mut text = self.head("Master secrets. Keep this file away from every service");
        let _ = writeln!(text, "newest = {}", self.newest);
        for (id, secret) in &self.masters {
            let encoded = Zeroizing::new(BASE64.encode(secret.as_slice()));
            let _ = write!(text, "\n[[master]]\nid = {id}\nsecret = \"{}\"\n", *encoded);
        }
        text
    }

    /// The text of the data keyring that derives from these masters.
    #[must_use]
    pub fn data_toml(&self) -> Zeroizing<String> {
        let mut text = self.head("Data keyring: for relays, transceivers and signaling");
        for (id, secret) in &self.masters {
            let _ = write!(text, "\n[[key]]\nid = {id}\n");
            push_sub_key::<32>(&mut text, secret, "ufrag", *id);
            push_sub_key::<32>(&mut text, secret, "ice", *id);
            push_sub_key::<16>(&mut text, secret, "trunk", *id);
        }
        text
    }

    /// The text of the API keyring that derives from these masters.
    #[must_use]
    pub fn api_toml(&self) -> Zeroizing<String> {
        let mut text = self.head("API keyring: for signaling alone");
        for (id, secret) in &self.masters {
            let _ = write!(text, "\n[[key]]\nid = {id}\n");
            push_sub_key::<32>(&mut text, secret, "call", *id);
            push_sub_key::<32>(&mut text, secret, "secret", *id);
        }
        text
    }

    fn head(&self, what: &str) -> Zeroizing<String> {
        Zeroizing::new(format!("# {what}.\nactive = {}\n", self.active))
    }
}

fn push_sub_key<const N: usize>(text: &mut String, master: &[u8; 32], label: &str, id: KeyId) {
    let key = Zeroizing::new(derive::<N>(master, label, id));
    let encoded = Zeroizing::new(BASE64.encode(key.as_slice()));
    let _ = writeln!(text, "{label} = \"{}\"", *encoded);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keyring::{ApiKey, ApiKeyring, DataKeyring};

    fn masters() -> Masters {
        Masters::new([7; 32])
    }

    #[test]
    fn keyrings_written_by_the_tool_are_read_back() {
        let mut masters = masters();
        let second = masters.add([8; 32]).expect("room");
        let data = DataKeyring::parse(&masters.data_toml()).expect("valid");
        let api = ApiKeyring::parse(&masters.api_toml()).expect("valid");
        assert_eq!(data.len(), 2);
        assert_eq!(data.active().id().get(), 1);
        assert_eq!(api.get(second).map(ApiKey::id), Some(second));
        let again = Masters::parse(&masters.to_toml()).expect("valid");
        assert_eq!(*again.data_toml(), *masters.data_toml());
    }

    #[test]
    fn rotation_adds_then_activates_then_removes() {
        let mut masters = masters();
        let second = masters.add([8; 32]).expect("room").get();
        assert_eq!(masters.remove(1), Err(MastersError::Active(1)));
        masters.activate(second).expect("known");
        masters.remove(1).expect("no longer active");
        let data = DataKeyring::parse(&masters.data_toml()).expect("valid");
        assert_eq!(data.active().id().get(), second);
        assert!(data.get(KeyId::FIRST).is_none());
        assert_eq!(masters.activate(1), Err(MastersError::Unknown(1)));
    }

    #[test]
    fn ids_wrap_below_511_and_end_when_all_are_taken() {
        let mut masters = masters();
        for _ in 0..KeyId::COUNT - 1 {
            masters.add([1; 32]).expect("room");
        }
        assert_eq!(masters.add([1; 32]), Err(MastersError::Full));
        assert!(masters.ids().all(|(id, _)| id.get() < 511));
    }

    #[test]
    fn a_removed_id_is_not_given_again_before_all_were() {
        let mut masters = masters();
        let second = masters.add([8; 32]).expect("room");
        masters.remove(second.get()).expect("not active");
        let mut masters = Masters::parse(&masters.to_toml()).expect("valid");
        assert_eq!(masters.add([9; 32]).expect("room").get(), 3);
    }
}
