//! The trunk: the one UDP format of the internal hop, relay ↔ transceiver and relay ↔ relay.
//!
//! Voice packets are small and the kernel's cost is per datagram, so a trunk datagram packs several client packets. Each
//! travels in a record that names its client, so that a transceiver behaves as if it sat on the public address itself.
//!
//! ```text
//! datagram header, 24 bytes            record header, 18 bytes (IPv4 client) or 30 (IPv6 client)
//! 0  2  magic "FH"                     0  2  payload length
//! 2  1  version = 1                    2  1  flags: 1 IPv6 client, 2 TCP client, 4 owner follows, 8 IPv6 owner, 16 proven;
//! 3  1  shard (steers the receiver)          record type in the top three bits
//! 4  2  key id                         3  1  ingress id
//! 6  2  zero                           4  4  session
//! 8  4  sender's boot id (1)           8  4  flow handle
//! 12 4  sequence (per boot id)         12 2  client port
//! 16 8  tag                            14 4|16 client address, then owner port and address (2 + 4|16) when flag 4 is set
//! ```
//!
//! (1) Its top bit is set on the way down, from an owner or from a relay that passes an owner's records on. Both ways share a
//! key: without it, whoever can read the internal network could send an owner's datagrams back to the owner, and be taken for
//! a relay.
//!
//! Between relays each record names its owner, both ways, and the shard in the datagram header is the one of these owners'
//! workers. A keepalive names no client (0.0.0.0, port 0) and no session; it goes up, and its answer comes down.
//!
//! All integers are big-endian, all addresses canonical. The tag is SipHash-2-4 over header bytes 0 to 16 and every record
//! header with its owner extension. Payloads are not covered: they are protected end to end.
//!
//! The relay writes headers in place with [`RecordHeader::write`] and a [`Tagger`]; who may copy uses a [`DatagramBuilder`].

use std::hash::Hasher as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use siphasher::sip::SipHasher24;
use subtle::ConstantTimeEq as _;

use crate::address::{
    BootId, ClientAddr, FlowHandle, IngressId, KeyId, OwnerAddr, SessionId, ShardId,
};
use crate::keyring::{DataKey, DataKeyring};
use crate::limits::{TRUNK_DATAGRAM_MAX, TRUNK_RECORDS_MAX};

/// Length of the datagram header, in bytes.
pub const DATAGRAM_HEADER_LEN: usize = 24;

/// How many bytes of the datagram header the tag covers.
pub const TAGGED_LEN: usize = 16;

/// The shortest record header: an IPv4 client, no owner.
pub const RECORD_HEADER_MIN: usize = 18;

/// The longest record header: an IPv6 client and an IPv6 owner.
pub const RECORD_HEADER_MAX: usize = 48;

const MAGIC: [u8; 2] = *b"FH";
const VERSION: u8 = 1;

const FLAG_IPV6_CLIENT: u8 = 1;
const FLAG_TCP: u8 = 2;
const FLAG_OWNER: u8 = 4;
const FLAG_IPV6_OWNER: u8 = 8;
const FLAG_PROVEN: u8 = 16;
const KIND_SHIFT: u32 = 5;

/// Why a trunk datagram is refused. Each is a drop reason of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TrunkError {
    /// Shorter than the header, or longer than any datagram of ours.
    #[error("not the length of a trunk datagram")]
    Length,
    /// Not a trunk datagram of this version.
    #[error("not a trunk datagram of version 1")]
    Magic,
    /// The key is not in the keyring.
    #[error("the datagram names a key that is not in the keyring")]
    UnknownKey,
    /// The tag is wrong: altered, or not from this fleet.
    #[error("the tag does not verify")]
    Tag,
    /// A record is malformed, there is none, or there are more than [`TRUNK_RECORDS_MAX`].
    #[error("a record is malformed")]
    Record,
}

/// What a record is for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum RecordKind {
    /// A packet of a client, up or down.
    Packet,
    /// The owner ended the session: forget it at this address.
    Close,
    /// The owner does not have the session.
    UnknownSession,
    /// Relay ↔ relay: the payload is echoed.
    Keepalive,
}

/// The fields of a datagram header but for its tag.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DatagramHeader {
    /// The receiver's worker.
    pub shard: ShardId,
    /// The key of the tag.
    pub key: KeyId,
    /// The sender's boot id.
    pub boot: BootId,
    /// Sequence number within the boot id.
    pub sequence: u32,
}

impl DatagramHeader {
    /// The bytes that the tag covers and that precede it.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; TAGGED_LEN] {
        let mut out = [0; TAGGED_LEN];
        out[0..2].copy_from_slice(&MAGIC);
        out[2] = VERSION;
        out[3] = self.shard.0;
        out[4..6].copy_from_slice(&self.key.get().to_be_bytes());
        out[8..12].copy_from_slice(&self.boot.0.to_be_bytes());
        out[12..16].copy_from_slice(&self.sequence.to_be_bytes());
        out
    }

    fn parse(bytes: &[u8; TAGGED_LEN]) -> Result<Self, TrunkError> {
        if bytes[0..2] != MAGIC || bytes[2] != VERSION || bytes[6..8] != [0, 0] {
            return Err(TrunkError::Magic);
        }
        let [_, _, _, shard, k0, k1, _, _, b0, b1, b2, b3, s0, s1, s2, s3] = *bytes;
        Ok(Self {
            shard: ShardId(shard),
            key: KeyId::new(u16::from_be_bytes([k0, k1])).ok_or(TrunkError::UnknownKey)?,
            boot: BootId(u32::from_be_bytes([b0, b1, b2, b3])),
            sequence: u32::from_be_bytes([s0, s1, s2, s3]),
        })
    }
}

/// The header of one record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecordHeader {
    /// What the record is for.
    pub kind: RecordKind,
    /// The client's canonical address.
    pub client: ClientAddr,
    /// Whether the client speaks TCP (RFC 4571 framing ends at the relay).
    pub tcp: bool,
    /// Fresh proof that the client is at this address (owner → relay).
    pub proven: bool,
    /// Which advertised address the client used.
    pub ingress: IngressId,
    /// The session.
    pub session: SessionId,
    /// The relay's flow handle.
    pub handle: FlowHandle,
    /// The owner, on the hop from relay to relay.
    pub owner: Option<OwnerAddr>,
    /// Length of the payload that follows, in bytes.
    pub payload_len: u16,
}

impl RecordHeader {
    /// Length of the encoded header, 18 to 48 bytes.
    #[must_use]
    pub fn encoded_len(&self) -> usize {
        let client = if self.client.is_ipv6() { 30 } else { 18 };
        client
            + match self.owner {
                None => 0,
                Some(owner) if owner.is_ipv6() => 18,
                Some(_) => 6,
            }
    }

    /// Writes the header to the start of `out`, and returns its length.
    ///
    /// # Panics
    /// When `out` is shorter than [`RecordHeader::encoded_len`].
    pub fn write(&self, out: &mut [u8]) -> usize {
        let mut flags = match self.kind {
            RecordKind::Packet => 0,
            RecordKind::Close => 1,
            RecordKind::UnknownSession => 2,
            RecordKind::Keepalive => 3u8,
        } << KIND_SHIFT;
        flags |= if self.client.is_ipv6() {
            FLAG_IPV6_CLIENT
        } else {
            0
        };
        flags |= if self.tcp { FLAG_TCP } else { 0 };
        flags |= if self.proven { FLAG_PROVEN } else { 0 };
        if let Some(owner) = self.owner {
            flags |= FLAG_OWNER;
            flags |= if owner.is_ipv6() { FLAG_IPV6_OWNER } else { 0 };
        }
        out[0..2].copy_from_slice(&self.payload_len.to_be_bytes());
        out[2] = flags;
        out[3] = self.ingress.0;
        out[4..8].copy_from_slice(&self.session.0.to_be_bytes());
        out[8..12].copy_from_slice(&self.handle.0.to_be_bytes());
        let mut at = 12;
        at += write_address(&mut out[at..], self.client.get());
        if let Some(owner) = self.owner {
            at += write_address(&mut out[at..], owner.get());
        }
        at
    }

    /// Reads a header from the start of `bytes`, and returns it with its length.
    ///
    /// # Errors
    /// [`TrunkError::Record`] when it is cut short, of an unknown type, or holds an address that is not canonical.
    pub fn parse(bytes: &[u8]) -> Result<(Self, usize), TrunkError> {
        let Some(fixed) = bytes.first_chunk::<12>() else {
            return Err(TrunkError::Record);
        };
        let flags = fixed[2];
        let kind = match flags >> KIND_SHIFT {
            0 => RecordKind::Packet,
            1 => RecordKind::Close,
            2 => RecordKind::UnknownSession,
            3 => RecordKind::Keepalive,
            _ => return Err(TrunkError::Record),
        };
        let (client, used) = read_address(&bytes[12..], flags & FLAG_IPV6_CLIENT != 0)?;
        let mut at = 12 + used;
        let owner = if flags & FLAG_OWNER != 0 {
            let (owner, used) = read_address(&bytes[at..], flags & FLAG_IPV6_OWNER != 0)?;
            at += used;
            Some(OwnerAddr::new(owner))
        } else if flags & FLAG_IPV6_OWNER != 0 {
            return Err(TrunkError::Record);
        } else {
            None
        };
        let header = Self {
            kind,
            client: ClientAddr::new(client),
            tcp: flags & FLAG_TCP != 0,
            proven: flags & FLAG_PROVEN != 0,
            ingress: IngressId(fixed[3]),
            session: SessionId(u32::from_be_bytes([fixed[4], fixed[5], fixed[6], fixed[7]])),
            handle: FlowHandle(u32::from_be_bytes([
                fixed[8], fixed[9], fixed[10], fixed[11],
            ])),
            owner,
            payload_len: u16::from_be_bytes([fixed[0], fixed[1]]),
        };
        Ok((header, at))
    }
}

fn write_address(out: &mut [u8], address: SocketAddr) -> usize {
    out[0..2].copy_from_slice(&address.port().to_be_bytes());
    match address.ip() {
        IpAddr::V4(ip) => {
            out[2..6].copy_from_slice(&ip.octets());
            6
        }
        IpAddr::V6(ip) => {
            out[2..18].copy_from_slice(&ip.octets());
            18
        }
    }
}

fn read_address(bytes: &[u8], ipv6: bool) -> Result<(SocketAddr, usize), TrunkError> {
    let Some((port, rest)) = bytes.split_first_chunk::<2>() else {
        return Err(TrunkError::Record);
    };
    let port = u16::from_be_bytes(*port);
    if !ipv6 {
        let ip = rest.first_chunk::<4>().ok_or(TrunkError::Record)?;
        return Ok((SocketAddr::from((Ipv4Addr::from(*ip), port)), 6));
    }
    let ip = Ipv6Addr::from(*rest.first_chunk::<16>().ok_or(TrunkError::Record)?);
    if ip.to_ipv4_mapped().is_some() {
        return Err(TrunkError::Record);
    }
    Ok((SocketAddr::from((ip, port)), 18))
}

/// Computes a datagram's tag while its record headers are written, in their order on the wire.
#[derive(Clone)]
pub struct Tagger(SipHasher24);

impl Tagger {
    /// Starts with the datagram header.
    #[must_use]
    pub fn new(key: &DataKey, header: &[u8; TAGGED_LEN]) -> Self {
        let mut hasher = SipHasher24::new_with_key(key.trunk());
        hasher.write(header);
        Self(hasher)
    }

    /// Adds one encoded record header, with its owner extension and without its payload.
    pub fn record(&mut self, header: &[u8]) {
        self.0.write(header);
    }

    /// The tag as it stands in header bytes 16 to 24.
    #[must_use]
    pub fn finish(&self) -> [u8; 8] {
        self.0.finish().to_be_bytes()
    }
}

/// A datagram whose structure and tag have been verified. Whether it is a replay is the receiver's next question.
#[derive(Clone, Copy, Debug)]
pub struct Datagram<'a> {
    /// The header's fields.
    pub header: DatagramHeader,
    bytes: &'a [u8],
}

/// One record of a verified datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record<'a> {
    /// The record's header.
    pub header: RecordHeader,
    /// The client's packet.
    pub payload: &'a [u8],
    /// Where the payload starts in the datagram, in bytes.
    pub offset: usize,
}

/// Verifies a datagram: cheap structure first, then the tag.
///
/// # Errors
/// The first check that failed.
pub fn open<'a>(keyring: &DataKeyring, bytes: &'a [u8]) -> Result<Datagram<'a>, TrunkError> {
    if bytes.len() < DATAGRAM_HEADER_LEN + RECORD_HEADER_MIN || bytes.len() > TRUNK_DATAGRAM_MAX {
        return Err(TrunkError::Length);
    }
    let Some((head, rest)) = bytes.split_first_chunk::<TAGGED_LEN>() else {
        return Err(TrunkError::Length);
    };
    let header = DatagramHeader::parse(head)?;
    let key = keyring.get(header.key).ok_or(TrunkError::UnknownKey)?;
    let mut tagger = Tagger::new(key, head);
    let mut at = DATAGRAM_HEADER_LEN;
    for _ in 0..TRUNK_RECORDS_MAX {
        let (record, used) = RecordHeader::parse(&bytes[at..])?;
        tagger.record(&bytes[at..at + used]);
        at += used + usize::from(record.payload_len);
        if at >= bytes.len() {
            break;
        }
    }
    if at != bytes.len() {
        return Err(TrunkError::Record);
    }
    if !bool::from(tagger.finish().as_slice().ct_eq(&rest[..8])) {
        return Err(TrunkError::Tag);
    }
    Ok(Datagram { header, bytes })
}

impl<'a> Datagram<'a> {
    /// The records, in their order on the wire; at least one, at most [`TRUNK_RECORDS_MAX`].
    pub fn records(&self) -> impl Iterator<Item = Record<'a>> + use<'a> {
        let bytes = self.bytes;
        let mut at = DATAGRAM_HEADER_LEN;
        std::iter::from_fn(move || {
            let (header, used) = RecordHeader::parse(bytes.get(at..)?).ok()?;
            let offset = at + used;
            at = offset + usize::from(header.payload_len);
            Some(Record {
                header,
                payload: bytes.get(offset..at)?,
                offset,
            })
        })
    }
}

/// Packs records by copy into one datagram that is reused.
pub struct DatagramBuilder {
    bytes: Vec<u8>,
    limit: usize,
    records: usize,
    /// Where each record's header starts and ends: what the tag covers.
    headers: Vec<(u16, u16)>,
}

impl DatagramBuilder {
    /// Makes room for a datagram of at most `limit` bytes; more than [`TRUNK_DATAGRAM_MAX`] is cut to that.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        let limit = limit.min(TRUNK_DATAGRAM_MAX);
        let mut bytes = Vec::with_capacity(TRUNK_DATAGRAM_MAX);
        bytes.resize(DATAGRAM_HEADER_LEN, 0);
        Self {
            bytes,
            limit,
            records: 0,
            headers: Vec::with_capacity(TRUNK_RECORDS_MAX),
        }
    }

    /// Appends a record; its length field is set from `payload`.
    ///
    /// Returns false, and changes nothing, when it does not fit beside what is there. A record that is too large for a
    /// datagram of its own under the limit is taken into an empty one all the same, up to [`TRUNK_DATAGRAM_MAX`] (it
    /// leaves as a fragmented IP packet).
    pub fn push(&mut self, header: &RecordHeader, payload: &[u8]) -> bool {
        let Ok(payload_len) = u16::try_from(payload.len()) else {
            return false;
        };
        let header = RecordHeader {
            payload_len,
            ..*header
        };
        let start = self.bytes.len();
        let end = start + header.encoded_len() + payload.len();
        let limit = if self.records == 0 {
            TRUNK_DATAGRAM_MAX
        } else {
            self.limit
        };
        if end > limit || self.records == TRUNK_RECORDS_MAX {
            return false;
        }
        self.bytes.resize(start + header.encoded_len(), 0);
        let used = header.write(&mut self.bytes[start..]);
        self.bytes.extend_from_slice(payload);
        self.headers.push((start as u16, (start + used) as u16));
        self.records += 1;
        true
    }

    /// How many records are in the datagram.
    #[must_use]
    pub fn records(&self) -> usize {
        self.records
    }

    /// Whether there is nothing to send.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.records == 0
    }

    /// Writes header and tag, and returns the whole datagram. Call [`DatagramBuilder::clear`] before the next one.
    pub fn finish(&mut self, key: &DataKey, shard: ShardId, boot: BootId, sequence: u32) -> &[u8] {
        let head = DatagramHeader {
            shard,
            key: key.id(),
            boot,
            sequence,
        }
        .to_bytes();
        let mut tagger = Tagger::new(key, &head);
        for &(start, end) in &self.headers {
            tagger.record(&self.bytes[usize::from(start)..usize::from(end)]);
        }
        self.bytes[..TAGGED_LEN].copy_from_slice(&head);
        self.bytes[TAGGED_LEN..DATAGRAM_HEADER_LEN].copy_from_slice(&tagger.finish());
        &self.bytes
    }

    /// Empties the datagram and keeps its memory.
    pub fn clear(&mut self) {
        self.bytes.truncate(DATAGRAM_HEADER_LEN);
        self.headers.clear();
        self.records = 0;
    }
}

const _: () = assert!(TRUNK_DATAGRAM_MAX <= u16::MAX as usize);
