//! What a flow is known by.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use firsthop_shared::address::{ClientAddr, IngressId};
use siphasher::sip::SipHasher13;

use crate::cache::FlowId;

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
    ip: [u32; 4],
    /// Port, ingress, and one bit each for IPv6 and TCP.
    tail: u32,
}

impl FlowKey {
    /// Makes the key of a client at an ingress.
    #[must_use]
    pub(crate) fn new(ingress: IngressId, transport: Transport, client: &ClientAddr) -> Self {
        let (ip, family) = match client.ip() {
            IpAddr::V4(v4) => ([v4.to_bits(), 0, 0, 0], 0),
            IpAddr::V6(v6) => {
                let bits = v6.to_bits();
                ([96, 64, 32, 0].map(|shift| (bits >> shift) as u32), 1)
            }
        };
        let tcp = u32::from(transport == Transport::Tcp);
        Self {
            ip,
            tail: u32::from(client.port()) << 16 | u32::from(ingress.0) << 8 | tcp << 1 | family,
        }
    }

    /// What the key was made of.
    pub(crate) fn id(&self) -> FlowId {
        let [a, b, c, d] = self.ip;
        let ip: IpAddr = if self.tail & 1 == 0 {
            Ipv4Addr::from_bits(a).into()
        } else {
            let bits = [b, c, d]
                .into_iter()
                .fold(u128::from(a), |bits, word| bits << 32 | u128::from(word));
            Ipv6Addr::from_bits(bits).into()
        };
        let transport = if self.tail & 2 == 0 {
            Transport::Udp
        } else {
            Transport::Tcp
        };
        FlowId {
            ingress: IngressId((self.tail >> 8) as u8),
            transport,
            client: ClientAddr::new((ip, (self.tail >> 16) as u16).into()),
        }
    }

    /// The key in 20 bytes, for a successor.
    pub(crate) fn to_bytes(self) -> [u8; 20] {
        let mut bytes = [0; 20];
        let words = self.ip.into_iter().chain([self.tail]);
        for (place, word) in bytes.chunks_exact_mut(4).zip(words) {
            place.copy_from_slice(&word.to_be_bytes());
        }
        bytes
    }

    /// The key that was written so; nothing when no key is.
    pub(crate) fn from_bytes(bytes: [u8; 20]) -> Option<Self> {
        let word = |at: usize| u32::from_be_bytes(std::array::from_fn(|i| bytes[4 * at + i]));
        let key = Self {
            ip: std::array::from_fn(word),
            tail: word(4),
        };
        // An address has one key, and every bit of a key a meaning.
        let id = key.id();
        (key == Self::new(id.ingress, id.transport, &id.client)).then_some(key)
    }

    /// The key with its hash, which is made once for all that is done with it.
    pub(super) fn hashed(self, hasher: &SipHasher13) -> HashedKey {
        let mut bytes = [0; 20];
        bytes[..4].copy_from_slice(&self.ip[0].to_ne_bytes());
        bytes[4..8].copy_from_slice(&self.ip[1].to_ne_bytes());
        bytes[8..12].copy_from_slice(&self.ip[2].to_ne_bytes());
        bytes[12..16].copy_from_slice(&self.ip[3].to_ne_bytes());
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
    pub(crate) key: FlowKey,
    pub(crate) hash: u32,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_key_says_what_it_was_made_of(
            v6: bool, tcp: bool, bits: u128, port: u16, ingress: u8,
        ) {
            let ip: IpAddr = if v6 { Ipv6Addr::from(bits).into() } else { Ipv4Addr::from(bits as u32).into() };
            let flow = FlowId {
                ingress: IngressId(ingress),
                transport: if tcp { Transport::Tcp } else { Transport::Udp },
                client: ClientAddr::new((ip, port).into()),
            };
            prop_assert_eq!(FlowKey::new(flow.ingress, flow.transport, &flow.client).id(), flow);
        }
    }
}
