//! Socket addresses in the kernel's own form.

#![allow(unsafe_code)] // Reads and writes `sockaddr_in` and `sockaddr_in6` in place.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

/// Room for an IPv4 or an IPv6 address in the kernel's form.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) union RawAddress {
    v4: libc::sockaddr_in,
    v6: libc::sockaddr_in6,
}

impl RawAddress {
    /// An empty address, to be overwritten.
    pub(crate) const EMPTY: Self = Self {
        v6: libc::sockaddr_in6 {
            sin6_family: 0,
            sin6_port: 0,
            sin6_flowinfo: 0,
            sin6_addr: libc::in6_addr { s6_addr: [0; 16] },
            sin6_scope_id: 0,
        },
    };

    /// Writes an address, and returns its length for the kernel.
    pub(crate) fn set(&mut self, address: SocketAddr) -> libc::socklen_t {
        match address {
            SocketAddr::V4(v4) => {
                self.v4 = libc::sockaddr_in {
                    sin_family: libc::AF_INET as libc::sa_family_t,
                    sin_port: v4.port().to_be(),
                    sin_addr: libc::in_addr {
                        s_addr: u32::from(*v4.ip()).to_be(),
                    },
                    sin_zero: [0; 8],
                };
                size_of::<libc::sockaddr_in>() as libc::socklen_t
            }
            SocketAddr::V6(v6) => {
                self.v6 = libc::sockaddr_in6 {
                    sin6_family: libc::AF_INET6 as libc::sa_family_t,
                    sin6_port: v6.port().to_be(),
                    sin6_flowinfo: v6.flowinfo(),
                    sin6_addr: libc::in6_addr {
                        s6_addr: v6.ip().octets(),
                    },
                    sin6_scope_id: v6.scope_id(),
                };
                size_of::<libc::sockaddr_in6>() as libc::socklen_t
            }
        }
    }
}

/// Reads an address that the kernel wrote: `bytes` starts with the family. `None` for other families or too few bytes.
pub(crate) fn parse(bytes: &[u8]) -> Option<SocketAddr> {
    let family = libc::sa_family_t::from_ne_bytes(*bytes.first_chunk::<2>()?);
    let port = u16::from_be_bytes(*bytes.get(2..)?.first_chunk::<2>()?);
    match i32::from(family) {
        libc::AF_INET => {
            let ip = Ipv4Addr::from(*bytes.get(4..)?.first_chunk::<4>()?);
            Some(SocketAddr::V4(SocketAddrV4::new(ip, port)))
        }
        libc::AF_INET6 => {
            let flow = u32::from_ne_bytes(*bytes.get(4..)?.first_chunk::<4>()?);
            let ip = Ipv6Addr::from(*bytes.get(8..)?.first_chunk::<16>()?);
            let scope = u32::from_ne_bytes(*bytes.get(24..)?.first_chunk::<4>()?);
            Some(SocketAddr::V6(SocketAddrV6::new(ip, port, flow, scope)))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(raw: &RawAddress, len: libc::socklen_t) -> Vec<u8> {
        let start = std::ptr::from_ref(raw).cast::<u8>();
        // SAFETY: `len` is the size of the variant that was written, which lies inside the union.
        unsafe { std::slice::from_raw_parts(start, len as usize) }.to_vec()
    }

    #[test]
    fn both_families_come_back_as_they_went() {
        for text in ["203.0.113.9:3478", "[2001:db8::7]:65535"] {
            let address: SocketAddr = text.parse().expect("an address");
            let mut raw = RawAddress::EMPTY;
            let len = raw.set(address);
            assert_eq!(parse(&bytes(&raw, len)), Some(address));
        }
    }

    #[test]
    fn other_families_and_short_names_are_nothing() {
        assert_eq!(parse(&[]), None);
        assert_eq!(parse(&[2]), None);
        assert_eq!(parse(&[1, 0, 0, 0, 0, 0, 0, 0]), None);
        assert_eq!(parse(&[2, 0, 0, 0, 1]), None);
    }
}
