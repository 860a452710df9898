//! What a flow is known by.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use firsthop_shared::address::{ClientAddr, IngressId};
use siphasher::sip::SipHasher13;

/// How a client's packets travel.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Transport {
    /// Over UDP.
    Udp,
    /// Over TCP (RFC 6544), framed.
    Tcp,
}

/// The key of a flow: ingress, transport and client address, in 20 comparable and hashable bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct FlowKey {
    ip: [u64; 2],
    /// Port, ingress, and one bit each for IPv6 and TCP.
    tail: u32,
}

impl FlowKey {
    /// Makes the key of a client at an ingress.
    #[must_use]
    pub(crate) fn new(ingress: IngressId, transport: Transport, client: &ClientAddr) -> Self {
        let (ip, family) = match client.ip() {
            IpAddr::V4(v4) => ([u64::from(v4.to_bits()), 0], 0),
            IpAddr::V6(v6) => {
                let bits = v6.to_bits();
                ([(bits >> 64) as u64, bits as u64], 1)
            }
        };
        let tcp = u32::from(transport == Transport::Tcp);
        Self {
            ip,
            tail: u32::from(client.port()) << 16 | u32::from(ingress.0) << 8 | tcp << 1 | family,
        }
    }

    /// The key in 20 bytes, for a successor.
    pub(crate) fn to_bytes(self) -> [u8; 20] {
        let mut bytes = [0; 20];
        bytes[..8].copy_from_slice(&self.ip[0].to_be_bytes());
        bytes[8..16].copy_from_slice(&self.ip[1].to_be_bytes());
        bytes[16..].copy_from_slice(&self.tail.to_be_bytes());
        bytes
    }

    /// The key that was written so; nothing when no key is.
    pub(crate) fn from_bytes(bytes: [u8; 20]) -> Option<Self> {
        let half = |at: usize| u64::from_be_bytes(std::array::from_fn(|i| bytes[at + i]));
        let tail = u32::from_be_bytes(std::array::from_fn(|i| bytes[16 + i]));
        let key = Self {
            ip: [half(0), half(8)],
            tail,
        };
        // An address has one key, and every bit of a key a meaning.
        let again = Self::new(key.ingress(), key.transport(), &key.client());
        (key == again).then_some(key)
    }

    /// The client.
    pub(crate) fn client(&self) -> ClientAddr {
        let [high, low] = self.ip;
        let ip = if self.tail & 1 == 0 {
            IpAddr::V4(Ipv4Addr::from_bits(high as u32))
        } else {
            IpAddr::V6(Ipv6Addr::from_bits(
                u128::from(high) << 64 | u128::from(low),
            ))
        };
        ClientAddr::new(SocketAddr::new(ip, (self.tail >> 16) as u16))
    }

    /// The ingress.
    pub(crate) fn ingress(&self) -> IngressId {
        IngressId((self.tail >> 8) as u8)
    }

    /// UDP or TCP.
    pub(crate) fn transport(&self) -> Transport {
        if self.tail & 2 == 0 {
            Transport::Udp
        } else {
            Transport::Tcp
        }
    }

    /// The key with its hash, which is made once for all that is done with it.
    pub(super) fn hashed(self, hasher: &SipHasher13) -> HashedKey {
        let mut bytes = [0; 20];
        bytes[..8].copy_from_slice(&self.ip[0].to_ne_bytes());
        bytes[8..16].copy_from_slice(&self.ip[1].to_ne_bytes());
        bytes[16..].copy_from_slice(&self.tail.to_ne_bytes());
        HashedKey {
            key: self,
            hash: hasher.hash(&bytes) as u32,
        }
    }
}

/// A key and its hash under the secret of one core's table: see `Flows::hashed`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct HashedKey {
    pub(super) key: FlowKey,
    pub(super) hash: u32,
}
