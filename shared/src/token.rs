//! The routable ICE ufrag: a sealed route that a client carries in its very first packet, and the password that goes with it.
//!
//! A relay has to know from one STUN request which transceiver owns the session. The one field of that request which the
//! server chose is the server's ufrag (RFC 8839 section 5.4: 4 to 256 characters out of ALPHA, DIGIT, `+`, `/`), so the
//! route is sealed into it:
//!
//! ```text
//! ufrag  := K C
//! K      := 2 characters of base64, 12 bits: format (3 bits: 0 = IPv4 owner, 1 = IPv6 owner), key id (9 bits)
//! C      := base64 without padding of AES-SIV-CMAC-256 (RFC 5297), associated data = the two characters of K
//! plain  := cluster u16, owner port u16, shard u8, restart u8, session u32, owner address (4 or 16 bytes), big-endian
//! ```
//!
//! 42 characters for an IPv4 owner, 58 for an IPv6 one, with no slack bits: a token has exactly one spelling. One that
//! opens was minted by the fleet. The ICE password is derived from the ufrag (HMAC-SHA256 under the key's `ice` sub-key, as
//! base64, the first 24 characters), so that a relay can verify the integrity of a request without any state.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use aes_siv::KeyInit as _;
use aes_siv::siv::Aes128Siv;
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use hmac::Mac as _;

use crate::address::{ClusterId, KeyId, OwnerAddr, Restart, SessionId, ShardId};
use crate::keyring::{DataKey, DataKeyring};
use crate::limits::{ICE_PASSWORD_LEN, UFRAG_LEN_IPV4, UFRAG_LEN_IPV6};

const TAG_LEN: usize = 16;
const PLAIN_LEN_IPV4: usize = 14;
const PLAIN_LEN_IPV6: usize = 26;
const SEALED_MAX: usize = TAG_LEN + PLAIN_LEN_IPV6;

const _: () = {
    assert!((TAG_LEN + PLAIN_LEN_IPV4) / 3 * 4 + 2 == UFRAG_LEN_IPV4);
    assert!((TAG_LEN + PLAIN_LEN_IPV6) / 3 * 4 + 2 == UFRAG_LEN_IPV6);
};

/// Where a session lives: the content of a routable ufrag.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Route {
    /// The cluster of the owner.
    pub cluster: ClusterId,
    /// The trunk address of the transceiver that owns the session.
    pub owner: OwnerAddr,
    /// The owner's worker.
    pub shard: ShardId,
    /// How many ICE restarts came before this ufrag.
    pub restart: Restart,
    /// The session at its owner.
    pub session: SessionId,
}

/// Why a ufrag does not open. Each is a drop reason of its own at the relay.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TokenError {
    /// Neither 42 nor 58 characters.
    #[error("a routable ufrag has 42 or 58 characters")]
    Length,
    /// A character outside of ALPHA, DIGIT, `+`, `/`.
    #[error("a ufrag holds only letters, digits, '+' and '/'")]
    Alphabet,
    /// The format bits are unknown, or do not fit the length.
    #[error("the ufrag has an unknown format")]
    Format,
    /// The key id is not in the keyring.
    #[error("the ufrag names a key that is not in the keyring")]
    UnknownKey,
    /// The seal does not verify: not minted by this fleet, or altered.
    #[error("the ufrag was not minted by this fleet")]
    Forged,
}

/// A routable ufrag in its text form, without an allocation.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Ufrag {
    bytes: [u8; UFRAG_LEN_IPV6],
    len: u8,
}

impl Ufrag {
    /// Takes a text of the right length and alphabet; whether it opens is another question.
    ///
    /// # Errors
    /// [`TokenError::Length`] and [`TokenError::Alphabet`].
    pub fn parse(text: &str) -> Result<Self, TokenError> {
        let source = text.as_bytes();
        if source.len() != UFRAG_LEN_IPV4 && source.len() != UFRAG_LEN_IPV6 {
            return Err(TokenError::Length);
        }
        if !source
            .iter()
            .all(|b| b.is_ascii_alphanumeric() || *b == b'+' || *b == b'/')
        {
            return Err(TokenError::Alphabet);
        }
        let mut bytes = [0; UFRAG_LEN_IPV6];
        bytes[..source.len()].copy_from_slice(source);
        Ok(Self {
            bytes,
            len: source.len() as u8,
        })
    }

    /// The characters as bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }

    /// The characters.
    #[must_use]
    pub fn as_str(&self) -> &str {
        // Only base64 characters are ever stored.
        std::str::from_utf8(self.as_bytes()).unwrap_or_default()
    }
}

impl fmt::Display for Ufrag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for Ufrag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Ufrag({})", self.as_str())
    }
}

/// An ICE password as the server's side of a session uses it: 24 ASCII characters.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct IcePassword([u8; ICE_PASSWORD_LEN]);

impl IcePassword {
    /// The characters as bytes: the key of MESSAGE-INTEGRITY.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The characters, for the SDP.
    #[must_use]
    pub fn as_str(&self) -> &str {
        // Only base64 characters are ever stored.
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

impl fmt::Debug for IcePassword {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("IcePassword(hidden)")
    }
}

/// Seals a route into a ufrag. The same route and key give the same ufrag.
#[must_use]
pub fn mint(key: &DataKey, route: &Route) -> Ufrag {
    let mut plain = [0; PLAIN_LEN_IPV6];
    let len = write_plain(route, &mut plain);
    let format = u16::from(route.owner.is_ipv6());
    let prefix = key_characters(format << 9 | key.id().get());
    let mut sealed = [0; SEALED_MAX];
    let (tag_room, text_room) = sealed.split_at_mut(TAG_LEN);
    text_room[..len].copy_from_slice(&plain[..len]);
    match Aes128Siv::new(key.ufrag().into())
        .encrypt_inout_detached([prefix], (&mut text_room[..len]).into())
    {
        Ok(tag) => tag_room.copy_from_slice(&tag),
        Err(_) => unreachable!("AES-SIV fails only above 126 associated inputs"),
    }
    let mut bytes = [0; UFRAG_LEN_IPV6];
    bytes[..2].copy_from_slice(&prefix);
    let written = STANDARD_NO_PAD
        .encode_slice(&sealed[..TAG_LEN + len], &mut bytes[2..])
        .unwrap_or_default();
    Ufrag {
        bytes,
        len: (2 + written) as u8,
    }
}

/// Opens a ufrag as it stands in a USERNAME: the cheapest checks first, no allocation.
///
/// # Errors
/// The first check that failed.
pub fn open(keyring: &DataKeyring, ufrag: &[u8]) -> Result<Route, TokenError> {
    let (key, ipv6) = find_key(keyring, ufrag)?;
    let mut sealed = [0; SEALED_MAX];
    let len = STANDARD_NO_PAD
        .decode_slice(&ufrag[2..], &mut sealed)
        .map_err(|_| TokenError::Alphabet)?;
    let (tag, plain) = sealed[..len].split_at_mut(TAG_LEN);
    let tag = <[u8; TAG_LEN]>::try_from(&*tag).map_err(|_| TokenError::Length)?;
    Aes128Siv::new(key.ufrag().into())
        .decrypt_inout_detached([&ufrag[..2]], (&mut *plain).into(), &tag.into())
        .map_err(|_| TokenError::Forged)?;
    read_plain(plain, ipv6).ok_or(TokenError::Forged)
}

/// Derives the ICE password of a ufrag. It does not check that the ufrag opens.
///
/// # Errors
/// When the ufrag's key is not to be found: length, format or unknown key.
pub fn ice_password(keyring: &DataKeyring, ufrag: &[u8]) -> Result<IcePassword, TokenError> {
    let (key, _) = find_key(keyring, ufrag)?;
    let mut mac = key.ice();
    mac.update(ufrag);
    let code = mac.finalize().into_bytes();
    // 18 bytes are exactly 24 characters.
    let mut password = [0; ICE_PASSWORD_LEN];
    STANDARD
        .encode_slice(&code[..ICE_PASSWORD_LEN / 4 * 3], &mut password)
        .map_err(|_| TokenError::Length)?;
    Ok(IcePassword(password))
}

fn find_key<'a>(keyring: &'a DataKeyring, ufrag: &[u8]) -> Result<(&'a DataKey, bool), TokenError> {
    let ipv6 = match ufrag.len() {
        UFRAG_LEN_IPV4 => false,
        UFRAG_LEN_IPV6 => true,
        _ => return Err(TokenError::Length),
    };
    let bits = sextet(ufrag[0])
        .zip(sextet(ufrag[1]))
        .map(|(high, low)| high << 6 | low)
        .ok_or(TokenError::Alphabet)?;
    if bits >> 9 != u16::from(ipv6) {
        return Err(TokenError::Format);
    }
    let id = KeyId::new(bits & KeyId::MASK).ok_or(TokenError::UnknownKey)?;
    let key = keyring.get(id).ok_or(TokenError::UnknownKey)?;
    Ok((key, ipv6))
}

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

fn key_characters(bits: u16) -> [u8; 2] {
    [
        ALPHABET[usize::from(bits >> 6 & 63)],
        ALPHABET[usize::from(bits & 63)],
    ]
}

fn sextet(character: u8) -> Option<u16> {
    let value = match character {
        b'A'..=b'Z' => character - b'A',
        b'a'..=b'z' => character - b'a' + 26,
        b'0'..=b'9' => character - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => return None,
    };
    Some(u16::from(value))
}

fn write_plain(route: &Route, out: &mut [u8; PLAIN_LEN_IPV6]) -> usize {
    out[0..2].copy_from_slice(&route.cluster.0.to_be_bytes());
    out[2..4].copy_from_slice(&route.owner.port().to_be_bytes());
    out[4] = route.shard.0;
    out[5] = route.restart.0;
    out[6..10].copy_from_slice(&route.session.0.to_be_bytes());
    match route.owner.ip() {
        IpAddr::V4(ip) => {
            out[10..14].copy_from_slice(&ip.octets());
            PLAIN_LEN_IPV4
        }
        IpAddr::V6(ip) => {
            out[10..26].copy_from_slice(&ip.octets());
            PLAIN_LEN_IPV6
        }
    }
}

fn read_plain(plain: &[u8], ipv6: bool) -> Option<Route> {
    let ip: IpAddr = if ipv6 {
        Ipv6Addr::from(<[u8; 16]>::try_from(plain.get(10..26)?).ok()?).into()
    } else {
        Ipv4Addr::from(<[u8; 4]>::try_from(plain.get(10..14)?).ok()?).into()
    };
    let port = u16::from_be_bytes(plain[2..4].try_into().ok()?);
    Some(Route {
        cluster: ClusterId(u16::from_be_bytes(plain[0..2].try_into().ok()?)),
        owner: OwnerAddr::new(SocketAddr::from((ip, port))),
        shard: ShardId(plain[4]),
        restart: Restart(plain[5]),
        session: SessionId(u32::from_be_bytes(plain[6..10].try_into().ok()?)),
    })
}
