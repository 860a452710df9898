//! A borrowed view of a STUN message (RFC 8489): just what routing and proof of address need.
//!
//! Parsing allocates nothing, accepts nothing that is not a whole well-formed message, and never panics. Attributes behind
//! MESSAGE-INTEGRITY are ignored but for FINGERPRINT (section 14.5), and of a repeated attribute the first counts
//! (section 14).

use crc32fast::Hasher as Crc32;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha1::Sha1;

/// Length of the message header, in bytes.
pub const HEADER_LEN: usize = 20;

/// The Binding method.
pub const BINDING: u16 = 1;

/// How many attributes a message may have: an ICE check has about eight.
pub const ATTRIBUTES_MAX: usize = 32;

pub(crate) const MAGIC_COOKIE: [u8; 4] = [0x21, 0x12, 0xa4, 0x42];
pub(crate) const FINGERPRINT_XOR: u32 = 0x5354_554e;
pub(crate) const INTEGRITY_LEN: usize = 20;

pub(crate) mod attribute {
    pub(crate) const USERNAME: u16 = 0x0006;
    pub(crate) const MESSAGE_INTEGRITY: u16 = 0x0008;
    pub(crate) const XOR_MAPPED_ADDRESS: u16 = 0x0020;
    pub(crate) const PRIORITY: u16 = 0x0024;
    pub(crate) const USE_CANDIDATE: u16 = 0x0025;
    pub(crate) const FINGERPRINT: u16 = 0x8028;
    pub(crate) const ICE_CONTROLLED: u16 = 0x8029;
    pub(crate) const ICE_CONTROLLING: u16 = 0x802a;
}

/// The class of a message (RFC 8489 section 5).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Class {
    /// Asks for an answer.
    Request,
    /// Wants none.
    Indication,
    /// A success response.
    Success,
    /// An error response.
    Error,
}

/// Bytes that are not one whole STUN message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("not a well-formed STUN message")]
pub struct StunError;

/// A well-formed STUN message, borrowed from its packet.
#[derive(Clone, Copy, Debug)]
pub struct Stun<'a> {
    /// Request, indication or response.
    pub class: Class,
    /// The method, 12 bits; [`BINDING`] for ICE.
    pub method: u16,
    bytes: &'a [u8],
    username: Option<&'a [u8]>,
    use_candidate: bool,
    /// Where the MESSAGE-INTEGRITY attribute starts.
    integrity_at: Option<usize>,
    /// Where the FINGERPRINT attribute starts.
    fingerprint_at: Option<usize>,
}

impl<'a> Stun<'a> {
    /// Reads a packet that holds one message and nothing else.
    ///
    /// # Errors
    /// [`StunError`] for anything that is not a whole message of RFC 8489, or has more than [`ATTRIBUTES_MAX`] attributes.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, StunError> {
        let header = bytes.first_chunk::<HEADER_LEN>().ok_or(StunError)?;
        let kind = u16::from_be_bytes([header[0], header[1]]);
        let length = usize::from(u16::from_be_bytes([header[2], header[3]]));
        if kind & 0xc000 != 0
            || header[4..8] != MAGIC_COOKIE
            || !length.is_multiple_of(4)
            || bytes.len() != HEADER_LEN + length
        {
            return Err(StunError);
        }
        let mut message = Self {
            class: match (kind >> 7 & 2) | (kind >> 4 & 1) {
                0 => Class::Request,
                1 => Class::Indication,
                2 => Class::Success,
                _ => Class::Error,
            },
            method: (kind & 0xf) | (kind >> 1 & 0x70) | (kind >> 2 & 0xf80),
            bytes,
            username: None,
            use_candidate: false,
            integrity_at: None,
            fingerprint_at: None,
        };
        message.read_attributes()?;
        Ok(message)
    }

    fn read_attributes(&mut self) -> Result<(), StunError> {
        let mut at = HEADER_LEN;
        for _ in 0..ATTRIBUTES_MAX {
            if at == self.bytes.len() {
                return Ok(());
            }
            let head = self.bytes[at..].first_chunk::<4>().ok_or(StunError)?;
            let kind = u16::from_be_bytes([head[0], head[1]]);
            let length = usize::from(u16::from_be_bytes([head[2], head[3]]));
            let value = self.bytes.get(at + 4..at + 4 + length).ok_or(StunError)?;
            let next = at + 4 + length.next_multiple_of(4);
            if next > self.bytes.len() {
                return Err(StunError);
            }
            let covered = self.integrity_at.is_none();
            match kind {
                attribute::USERNAME if covered && self.username.is_none() => {
                    self.username = Some(value);
                }
                attribute::USE_CANDIDATE if covered => self.use_candidate = true,
                attribute::MESSAGE_INTEGRITY if covered => {
                    if length != INTEGRITY_LEN {
                        return Err(StunError);
                    }
                    self.integrity_at = Some(at);
                }
                attribute::FINGERPRINT => {
                    // It is the last attribute, or the message is not whole.
                    if length != 4 || next != self.bytes.len() {
                        return Err(StunError);
                    }
                    self.fingerprint_at = Some(at);
                }
                _ => {}
            }
            at = next;
        }
        if at == self.bytes.len() {
            Ok(())
        } else {
            Err(StunError)
        }
    }

    /// The transaction id, 12 bytes.
    #[must_use]
    pub fn transaction(&self) -> [u8; 12] {
        let mut id = [0; 12];
        id.copy_from_slice(&self.bytes[8..HEADER_LEN]);
        id
    }

    /// The USERNAME attribute.
    #[must_use]
    pub fn username(&self) -> Option<&'a [u8]> {
        self.username
    }

    /// The receiver's ufrag: USERNAME before the first colon (RFC 8445 section 7.2.2). Nothing without a colon.
    #[must_use]
    pub fn local_ufrag(&self) -> Option<&'a [u8]> {
        self.split_username().map(|(local, _)| local)
    }

    /// The sender's ufrag: USERNAME after the first colon.
    #[must_use]
    pub fn remote_ufrag(&self) -> Option<&'a [u8]> {
        self.split_username().map(|(_, remote)| remote)
    }

    fn split_username(&self) -> Option<(&'a [u8], &'a [u8])> {
        let username = self.username?;
        let colon = username.iter().position(|b| *b == b':')?;
        Some((&username[..colon], &username[colon + 1..]))
    }

    /// Whether the sender nominates the pair.
    #[must_use]
    pub fn use_candidate(&self) -> bool {
        self.use_candidate
    }

    /// Whether there is a MESSAGE-INTEGRITY attribute.
    #[must_use]
    pub fn has_integrity(&self) -> bool {
        self.integrity_at.is_some()
    }

    /// Verifies MESSAGE-INTEGRITY (HMAC-SHA1, RFC 8489 section 14.5) in constant time; false when there is none.
    #[must_use]
    pub fn verify_integrity(&self, password: &[u8]) -> bool {
        let Some(at) = self.integrity_at else {
            return false;
        };
        let value = &self.bytes[at + 4..at + 4 + INTEGRITY_LEN];
        integrity(&self.bytes[..at], password).is_some_and(|mac| mac.verify_slice(value).is_ok())
    }

    /// Checks FINGERPRINT (RFC 8489 section 14.7); nothing when there is none.
    #[must_use]
    pub fn fingerprint_ok(&self) -> Option<bool> {
        let at = self.fingerprint_at?;
        let value = self.bytes[at + 4..].first_chunk::<4>()?;
        Some(u32::from_be_bytes(*value) == fingerprint(&self.bytes[..at]))
    }
}

/// Starts the HMAC of a message whose first `before.len()` bytes precede MESSAGE-INTEGRITY, as if that were the last
/// attribute.
pub(crate) fn integrity(before: &[u8], password: &[u8]) -> Option<Hmac<Sha1>> {
    let mut mac = Hmac::<Sha1>::new_from_slice(password).ok()?;
    let length = u16::try_from(before.len() - HEADER_LEN + 4 + INTEGRITY_LEN).ok()?;
    mac.update(&before[..2]);
    mac.update(&length.to_be_bytes());
    mac.update(&before[4..]);
    Some(mac)
}

/// The value of FINGERPRINT for a message whose first `before.len()` bytes precede it.
pub(crate) fn fingerprint(before: &[u8]) -> u32 {
    let length = (before.len() - HEADER_LEN + 8) as u16;
    let mut crc = Crc32::new();
    crc.update(&before[..2]);
    crc.update(&length.to_be_bytes());
    crc.update(&before[4..]);
    crc.finalize() ^ FINGERPRINT_XOR
}
