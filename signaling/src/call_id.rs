//! Call ids: sealed tokens by which any replica finds the transceiver that owns a call.
//!
//! Signaling keeps no table of calls, so the id in `Location: /v1/realtime/calls/rtc_…` carries what a later request needs:
//! where the owner's control port is, which session there is meant, and who placed it. It is laid out like the routable ufrag (wire format 1),
//! in the URL alphabet and under a key that only signaling holds:
//!
//! ```text
//! id     := "rtc_" K C
//! K      := 2 characters of base64url, 12 bits: format (3 bits: 0 = IPv4 owner, 1 = IPv6 owner), key id (9 bits; 511 = never)
//! C      := base64url without padding of AES-SIV-CMAC-256 (RFC 5297) under the API keyring's sub-key `call`,
//!           associated data = "rtc_" and the two characters of K, six characters together
//! plain  := cluster u16, control port u16, session u32, created u64 (Unix time in ms), tenant (10 bytes), secret u64,
//!           control address (4 or 16 bytes), big-endian
//! tenant := the first 10 bytes of the SHA-256 of the tenant's name
//! secret := the nonce of the client secret that placed the call, 0 when an API key did
//! ```
//!
//! 78 characters for an IPv4 owner, 94 for an IPv6 one, without slack bits: an id has exactly one spelling, and one altered
//! character is refused. Signaling connects only to addresses that it sealed itself: an id that does not open leads nowhere.
//! `created` tells a session from a later one that took the same number at the same owner. Who placed the call is in the id because ids
//! stand in URLs, and URLs in logs: knowing one must not be enough to join or end the call ([`Caller::reaches`](crate::auth::Caller::reaches)).
//! It depends on names in the file of API keys alone, so that every replica of the fleet comes to the same verdict.
//!
//! The alphabet is base64url (RFC 4648 section 5) because the id stands in a path; the prefix is what existing clients look for.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use aes_siv::KeyInit as _;
use aes_siv::siv::Aes128Siv;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use firsthop_shared::address::{ClusterId, KeyId, SessionId, canonical};
use firsthop_shared::keyring::{ApiKey, ApiKeyring};
use sha2::{Digest as _, Sha256};

/// What every call id begins with: clients look for this segment in `Location`.
pub const PREFIX: &str = "rtc_";

/// Length of a call id whose owner has an IPv4 control address, in characters.
pub const CALL_ID_LEN_IPV4: usize = HEAD_LEN + (TAG_LEN + PLAIN_LEN_IPV4) / 3 * 4;

/// Length of a call id whose owner has an IPv6 control address, in characters.
pub const CALL_ID_LEN_IPV6: usize = HEAD_LEN + (TAG_LEN + PLAIN_LEN_IPV6) / 3 * 4;

const TAG_LEN: usize = 16;
/// Length of what stands before the control address, in bytes.
const FIXED_LEN: usize = 16 + TENANT_LEN + 8;
const TENANT_LEN: usize = 10;
const PLAIN_LEN_IPV4: usize = FIXED_LEN + 4;
const PLAIN_LEN_IPV6: usize = FIXED_LEN + 16;
const HEAD_LEN: usize = PREFIX.len() + 2;

const _: () = {
    assert!((TAG_LEN + PLAIN_LEN_IPV4).is_multiple_of(3));
    assert!((TAG_LEN + PLAIN_LEN_IPV6).is_multiple_of(3));
    assert!(CALL_ID_LEN_IPV4 == 78 && CALL_ID_LEN_IPV6 == 94);
};

/// What a call id names: a session, and where its owner takes orders.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct CallRef {
    /// The cluster of the owner: only its signaling can reach the control address.
    pub cluster: ClusterId,
    /// The owner's control address, canonical.
    pub control: SocketAddr,
    /// The session at its owner.
    pub session: SessionId,
    /// When signaling minted the session, as Unix time in milliseconds.
    pub created: u64,
    /// Who placed it.
    pub placed: Placed,
}

/// Who placed a call.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Placed {
    /// The tenant of the API key, or of the one that the client secret was minted with.
    pub tenant: Tenant,
    /// The nonce of the client secret; 0 when an API key placed the call itself.
    pub secret: u64,
}

/// The name of a tenant, cut down to what a call id has room for: 80 bits of its SHA-256.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Tenant(pub [u8; TENANT_LEN]);

impl Tenant {
    /// The tenant of that name.
    #[must_use]
    pub fn named(name: &str) -> Self {
        let mut short = [0; TENANT_LEN];
        short.copy_from_slice(&Sha256::digest(name)[..TENANT_LEN]);
        Self(short)
    }
}

/// Why a call id does not open. Clients are told no more than that the call is unknown.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CallIdError {
    /// It does not begin with `rtc_`.
    #[error("a call id begins with rtc_")]
    Prefix,
    /// Neither 78 nor 94 characters.
    #[error("a call id has 78 or 94 characters")]
    Length,
    /// A character outside of the URL alphabet.
    #[error("a call id holds only letters, digits, '-' and '_'")]
    Alphabet,
    /// The format bits are unknown, or do not fit the length.
    #[error("the call id has an unknown format")]
    Format,
    /// The key id is not in the keyring.
    #[error("the call id names a key that is not in the keyring")]
    UnknownKey,
    /// The seal does not verify: not minted by this fleet, or altered.
    #[error("the call id was not minted by this fleet")]
    Forged,
}

/// A call id in its text form.
///
/// Whoever holds it and a key of its tenant can control the call, so it prints as its prefix only.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct CallId(String);

impl CallId {
    /// The characters, for a `Location`.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for CallId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CallId(rtc_…)")
    }
}

/// Seals a call. The same call and key give the same id.
#[must_use]
pub fn seal(key: &ApiKey, call: &CallRef) -> CallId {
    let control = canonical(call.control);
    let format = u16::from(control.is_ipv6());
    let mut text = String::with_capacity(CALL_ID_LEN_IPV6);
    text.push_str(PREFIX);
    URL_SAFE_NO_PAD.encode_string(key_bytes(format << 9 | key.id().get()), &mut text);
    // Three bytes are four characters; the two that hold the twelve bits stay.
    text.truncate(HEAD_LEN);

    let mut plain = Vec::with_capacity(PLAIN_LEN_IPV6);
    plain.extend_from_slice(&call.cluster.0.to_be_bytes());
    plain.extend_from_slice(&control.port().to_be_bytes());
    plain.extend_from_slice(&call.session.0.to_be_bytes());
    plain.extend_from_slice(&call.created.to_be_bytes());
    plain.extend_from_slice(&call.placed.tenant.0);
    plain.extend_from_slice(&call.placed.secret.to_be_bytes());
    match control.ip() {
        IpAddr::V4(ip) => plain.extend_from_slice(&ip.octets()),
        IpAddr::V6(ip) => plain.extend_from_slice(&ip.octets()),
    }
    match Aes128Siv::new(key.call().into()).encrypt([text.as_bytes()], &plain) {
        Ok(sealed) => URL_SAFE_NO_PAD.encode_string(sealed, &mut text),
        Err(_) => unreachable!("AES-SIV fails only above 126 associated inputs"),
    }
    CallId(text)
}

/// Opens a call id as it stands in a path.
///
/// # Errors
/// The first check that failed; none of them depends on whether the call still lives.
pub fn open(keyring: &ApiKeyring, id: &str) -> Result<CallRef, CallIdError> {
    let rest = id.strip_prefix(PREFIX).ok_or(CallIdError::Prefix)?;
    let ipv6 = match id.len() {
        CALL_ID_LEN_IPV4 => false,
        CALL_ID_LEN_IPV6 => true,
        _ => return Err(CallIdError::Length),
    };
    if !rest
        .bytes()
        .all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
    {
        return Err(CallIdError::Alphabet);
    }
    let (head, sealed) = id.split_at(HEAD_LEN);
    let bits = read_key_bits(&head[PREFIX.len()..]).ok_or(CallIdError::Alphabet)?;
    if bits >> 9 != u16::from(ipv6) {
        return Err(CallIdError::Format);
    }
    let key = KeyId::new(bits & KeyId::MASK)
        .and_then(|id| keyring.get(id))
        .ok_or(CallIdError::UnknownKey)?;
    let sealed = URL_SAFE_NO_PAD
        .decode(sealed)
        .map_err(|_| CallIdError::Alphabet)?;
    let plain = Aes128Siv::new(key.call().into())
        .decrypt([head.as_bytes()], &sealed)
        .map_err(|_| CallIdError::Forged)?;
    read_plain(&plain, ipv6).ok_or(CallIdError::Forged)
}

/// The twelve bits of `K` at the front of three bytes, which base64 writes as two characters and two that are cut off.
fn key_bytes(bits: u16) -> [u8; 3] {
    let [high, low] = (bits << 4).to_be_bytes();
    [high, low, 0]
}

fn read_key_bits(characters: &str) -> Option<u16> {
    let padded = format!("{characters}AA");
    let bytes = URL_SAFE_NO_PAD.decode(padded).ok()?;
    let pair: [u8; 2] = bytes.get(..2)?.try_into().ok()?;
    Some(u16::from_be_bytes(pair) >> 4)
}

fn read_plain(plain: &[u8], ipv6: bool) -> Option<CallRef> {
    let ip: IpAddr = if ipv6 {
        Ipv6Addr::from(<[u8; 16]>::try_from(plain.get(FIXED_LEN..PLAIN_LEN_IPV6)?).ok()?).into()
    } else {
        Ipv4Addr::from(<[u8; 4]>::try_from(plain.get(FIXED_LEN..PLAIN_LEN_IPV4)?).ok()?).into()
    };
    let port = u16::from_be_bytes(plain.get(2..4)?.try_into().ok()?);
    Some(CallRef {
        cluster: ClusterId(u16::from_be_bytes(plain.get(0..2)?.try_into().ok()?)),
        control: SocketAddr::from((ip, port)),
        session: SessionId(u32::from_be_bytes(plain.get(4..8)?.try_into().ok()?)),
        created: u64::from_be_bytes(plain.get(8..16)?.try_into().ok()?),
        placed: Placed {
            tenant: Tenant(plain.get(16..16 + TENANT_LEN)?.try_into().ok()?),
            secret: u64::from_be_bytes(plain.get(16 + TENANT_LEN..FIXED_LEN)?.try_into().ok()?),
        },
    })
}
