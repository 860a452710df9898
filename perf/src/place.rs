//! Who stands where on loopback: every client, owner and program under test has an address of its own within 127.0.0.0/8.
//!
//! | block | who |
//! |---|---|
//! | 127.1.0.0/17 | owners, numbered from 127.1.0.1 |
//! | 127.1.128.0/17 | internal addresses of programs under test |
//! | 127.2.0.0/16 | their public addresses |
//! | 127.64.0.0/10 | clients |
//!
//! Addresses of programs under test follow from this process's id, so that two measurements do not meet.

use std::net::{Ipv4Addr, SocketAddrV4};

/// What programs under test must regard as internal.
pub const INTERNAL_NETWORK: &str = "127.1.0.0/16";

/// The most owners that have addresses.
pub const OWNERS_MAX: u16 = 1 << 14;

/// The address of owner number `n`.
#[must_use]
pub fn owner(n: u16) -> Ipv4Addr {
    Ipv4Addr::from(u32::from(Ipv4Addr::new(127, 1, 0, 1)) + u32::from(n))
}

/// The source address of the clients with number `n`; one per socket.
#[must_use]
pub fn client(n: u32) -> Ipv4Addr {
    Ipv4Addr::from(u32::from(Ipv4Addr::new(127, 64, 0, 1)) + n % (1 << 22))
}

/// The number of the clients whose address this is, if it is one.
#[must_use]
pub fn number_of_client(address: Ipv4Addr) -> Option<u32> {
    u32::from(address)
        .checked_sub(u32::from(client(0)))
        .filter(|n| *n < 1 << 22)
}

/// Where a program under test listens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// For clients.
    pub public: SocketAddrV4,
    /// For owners.
    pub internal: SocketAddrV4,
    /// For whoever asks for metrics.
    pub admin: SocketAddrV4,
}

impl Place {
    /// The place of this process's `number`th program.
    #[must_use]
    pub fn of_this_process(number: u8) -> Self {
        let block = std::process::id() % 127;
        let internal = Ipv4Addr::new(127, 1, 128 + block as u8, number);
        Self {
            public: SocketAddrV4::new(Ipv4Addr::new(127, 2, block as u8, number), 3478),
            internal: SocketAddrV4::new(internal, 4000),
            admin: SocketAddrV4::new(internal, 9101),
        }
    }
}
