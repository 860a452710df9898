//! Addresses and identifiers as distinct types, canonical from the socket boundary on.
//!
//! An IPv4 client that reaches an IPv6 socket shows up as `::ffff:a.b.c.d`. If one place keeps that form and another the
//! plain one, they are two keys for one client. So every address newtype here canonicalises when it is made, and there is
//! no other way to make one.

use std::fmt;
use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::str::FromStr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

/// Returns the one form of an address that tables, records and keys use.
///
/// IPv4-mapped IPv6 becomes IPv4; the flow label and the scope of an IPv6 address are dropped (the trunk carries neither).
#[must_use]
pub fn canonical(address: SocketAddr) -> SocketAddr {
    match address {
        SocketAddr::V4(_) => address,
        SocketAddr::V6(v6) => match v6.ip().to_ipv4_mapped() {
            Some(v4) => SocketAddr::from((v4, v6.port())),
            None => SocketAddr::V6(SocketAddrV6::new(*v6.ip(), v6.port(), 0, 0)),
        },
    }
}

macro_rules! address_type {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(from = "SocketAddr", into = "SocketAddr")]
        pub struct $name(SocketAddr);

        impl $name {
            /// Takes an address as a socket or a peer gave it, and canonicalises it.
            #[must_use]
            pub fn new(address: SocketAddr) -> Self {
                Self(canonical(address))
            }

            /// The canonical address, for a socket call.
            #[must_use]
            pub fn get(&self) -> SocketAddr {
                self.0
            }

            /// The canonical IP address.
            #[must_use]
            pub fn ip(&self) -> IpAddr {
                self.0.ip()
            }

            /// The UDP or TCP port.
            #[must_use]
            pub fn port(&self) -> u16 {
                self.0.port()
            }

            /// Whether the canonical address is IPv6.
            #[must_use]
            pub fn is_ipv6(&self) -> bool {
                self.0.is_ipv6()
            }
        }

        impl From<SocketAddr> for $name {
            fn from(address: SocketAddr) -> Self {
                Self::new(address)
            }
        }

        impl From<$name> for SocketAddr {
            fn from(address: $name) -> Self {
                address.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self.0)
            }
        }
    };
}

address_type! {
    /// The address of a client, as it reached a public socket.
    ClientAddr
}
address_type! {
    /// The trunk address of a transceiver, as minted into a ufrag.
    OwnerAddr
}
address_type! {
    /// The internal address of the neighbour on a trunk: where a datagram came from, where the answer goes.
    Hop
}

macro_rules! id_type {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

id_type! {
    /// A session, unique at its owner; random, minted by signaling.
    SessionId(u32)
}
id_type! {
    /// A worker of an owner: steers a datagram to the thread that holds the session.
    ShardId(u8)
}
id_type! {
    /// A cluster of the fleet: one region's transceivers and their relays.
    ClusterId(u16)
}
id_type! {
    /// An ingress point: which advertised address a client used.
    IngressId(u8)
}
id_type! {
    /// The number of ICE restarts that a session has seen; a restart changes the ufrag and keeps the owner.
    Restart(u8)
}
id_type! {
    /// A relay's own name for a flow (slot and generation); opaque to everybody else, and echoed on the way down.
    FlowHandle(u32)
}
id_type! {
    /// A name that a trunk sender takes when it starts: random but for the top bit, which tells the way down from the way up.
    /// Sequence numbers belong to it.
    BootId(u32)
}

impl BootId {
    /// The bit that says which way a datagram goes. The tag covers it, so one that is sent back the way it came is refused.
    const OWNER: u32 = 1 << 31;

    /// The boot id of a relay's core, from a random number: its datagrams go to owners, or to relays that lead there.
    #[must_use]
    pub fn of_relay(random: u32) -> Self {
        Self(random & !Self::OWNER)
    }

    /// The boot id of an owner's worker, from a random number: its datagrams go to relays. A relay that passes an owner's
    /// records on to another one speaks for the owner, under such a boot id of its own.
    #[must_use]
    pub fn of_owner(random: u32) -> Self {
        Self(random | Self::OWNER)
    }

    /// Whether the sender is an owner's worker, or speaks for one: its datagrams go down. Else it is a relay's core.
    #[must_use]
    pub fn is_owner(self) -> bool {
        self.0 & Self::OWNER != 0
    }
}

/// The id of a key in a keyring: 0 to 510.
///
/// The ufrag has nine bits for it, and 511 is never valid.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct KeyId(u16);

impl KeyId {
    /// One more than the largest valid id.
    pub const COUNT: usize = 511;

    /// The bits that an id takes in the two characters that lead what a key has sealed: the ufrag's, a call id's, a client secret's.
    pub const MASK: u16 = 0x1ff;

    /// The id of a new keyring's first key.
    pub const FIRST: Self = Self(1);

    /// Returns the id, or nothing when `id` is 511 or more.
    #[must_use]
    pub fn new(id: u16) -> Option<Self> {
        (usize::from(id) < Self::COUNT).then_some(Self(id))
    }

    /// The number, 0 to 510.
    #[must_use]
    pub fn get(self) -> u16 {
        self.0
    }
}

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A list of IP networks, written as comma-separated CIDR blocks.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Networks(Vec<IpNet>);

/// A network that is not CIDR notation.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("'{0}' is not a network in CIDR notation, such as 10.0.0.0/8 or fd00::/8")]
pub struct NetworksError(String);

impl Networks {
    /// Reads comma-separated CIDR blocks; blanks around them are ignored, an empty text is the empty list.
    ///
    /// # Errors
    /// The first part that is no CIDR block (a bare address counts as a block of one).
    pub fn parse(text: &str) -> Result<Self, NetworksError> {
        text.split(',')
            .map(str::trim)
            .filter(|part| !part.is_empty())
            .map(|part| {
                part.parse::<IpNet>()
                    .or_else(|_| part.parse::<IpAddr>().map(IpNet::from))
                    .map_err(|_| NetworksError(part.to_owned()))
            })
            .collect::<Result<Vec<_>, _>>()
            .map(Self)
    }

    /// Whether one of the networks holds the address.
    #[must_use]
    pub fn contains(&self, ip: IpAddr) -> bool {
        self.0.iter().any(|net| net.contains(&ip))
    }

    /// Whether the list holds no network, and so no address.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl FromStr for Networks {
    type Err = NetworksError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse(text)
    }
}

impl fmt::Display for Networks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, net) in self.0.iter().enumerate() {
            if i > 0 {
                f.write_str(",")?;
            }
            net.fmt(f)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn socket(text: &str) -> SocketAddr {
        text.parse().expect("a socket address")
    }

    #[test]
    fn mapped_and_plain_ipv4_are_one_client() {
        let mapped = ClientAddr::new(socket("[::ffff:203.0.113.9]:5000"));
        let plain = ClientAddr::new(socket("203.0.113.9:5000"));
        assert_eq!(mapped, plain);
        assert!(!mapped.is_ipv6());
        assert_eq!(mapped.to_string(), "203.0.113.9:5000");
    }

    #[test]
    fn scope_and_flow_label_do_not_make_two_clients() {
        let scoped = ClientAddr::new(SocketAddr::V6(SocketAddrV6::new(
            "fe80::1".parse().expect("an address"),
            7,
            99,
            3,
        )));
        assert_eq!(scoped, ClientAddr::new(socket("[fe80::1]:7")));
    }

    #[test]
    fn a_boot_id_says_who_sends_whatever_the_random_number() {
        for random in [0, 7, u32::MAX, 1 << 31] {
            assert!(BootId::of_owner(random).is_owner());
            assert!(!BootId::of_relay(random).is_owner());
        }
    }

    #[test]
    fn key_ids_end_before_511() {
        assert_eq!(KeyId::new(510).map(KeyId::get), Some(510));
        assert_eq!(KeyId::new(511), None);
    }

    #[test]
    fn networks_take_blocks_and_bare_addresses_of_both_families() {
        let nets = Networks::parse(" 10.0.0.0/8, fd00::/8,192.0.2.7 ").expect("valid");
        assert!(nets.contains("10.9.8.7".parse().expect("ip")));
        assert!(nets.contains("fd12::1".parse().expect("ip")));
        assert!(nets.contains("192.0.2.7".parse().expect("ip")));
        assert!(!nets.contains("192.0.2.8".parse().expect("ip")));
        assert!(Networks::parse("").expect("valid").is_empty());
    }

    #[test]
    fn a_bad_network_is_named_in_the_error() {
        let error = Networks::parse("10.0.0.0/8,10.0.0.0/33").expect_err("refused");
        assert!(error.to_string().contains("'10.0.0.0/33'"));
    }
}
