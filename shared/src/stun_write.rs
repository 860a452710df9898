//! Writes ICE connectivity checks and their answers (RFC 8445 section 7, RFC 8489).
//!
//! The services never need these: a relay answers nothing, and the transceiver's ICE agent writes its own. Load generators
//! and tests are the ones that speak for a client here.

use std::net::{IpAddr, SocketAddr};

use hmac::Mac as _;

use crate::stun::{HEADER_LEN, MAGIC_COOKIE, attribute, fingerprint, integrity};

const BINDING_REQUEST: u16 = 0x0001;
const BINDING_SUCCESS: u16 = 0x0101;

/// Which ICE role the sender of a check has, with its tie breaker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// The sender nominates; `true` puts USE-CANDIDATE on the check.
    Controlling(u64, bool),
    /// The peer nominates.
    Controlled(u64),
}

/// Replaces `out` by a Binding request with MESSAGE-INTEGRITY and FINGERPRINT.
///
/// `username` is `<receiver's ufrag>:<sender's ufrag>`, `password` the receiver's.
pub fn binding_request(
    out: &mut Vec<u8>,
    transaction: [u8; 12],
    username: &str,
    password: &[u8],
    priority: u32,
    role: Role,
) {
    start(out, BINDING_REQUEST, transaction);
    push(out, attribute::USERNAME, username.as_bytes());
    push(out, attribute::PRIORITY, &priority.to_be_bytes());
    match role {
        Role::Controlling(tie_breaker, nominate) => {
            push(out, attribute::ICE_CONTROLLING, &tie_breaker.to_be_bytes());
            if nominate {
                push(out, attribute::USE_CANDIDATE, &[]);
            }
        }
        Role::Controlled(tie_breaker) => {
            push(out, attribute::ICE_CONTROLLED, &tie_breaker.to_be_bytes());
        }
    }
    finish(out, password);
}

/// Replaces `out` by a Binding success response with XOR-MAPPED-ADDRESS, MESSAGE-INTEGRITY and FINGERPRINT.
///
/// `password` is the one of the agent that sends the response (its own).
pub fn binding_success(
    out: &mut Vec<u8>,
    transaction: [u8; 12],
    mapped: SocketAddr,
    password: &[u8],
) {
    start(out, BINDING_SUCCESS, transaction);
    let port = mapped.port() ^ u16::from_be_bytes([MAGIC_COOKIE[0], MAGIC_COOKIE[1]]);
    let mut value = vec![0, if mapped.is_ipv4() { 1 } else { 2 }];
    value.extend_from_slice(&port.to_be_bytes());
    let mask = MAGIC_COOKIE.iter().chain(&transaction);
    match mapped.ip() {
        IpAddr::V4(ip) => value.extend(ip.octets().iter().zip(mask).map(|(a, b)| a ^ b)),
        IpAddr::V6(ip) => value.extend(ip.octets().iter().zip(mask).map(|(a, b)| a ^ b)),
    }
    push(out, attribute::XOR_MAPPED_ADDRESS, &value);
    finish(out, password);
}

fn start(out: &mut Vec<u8>, kind: u16, transaction: [u8; 12]) {
    out.clear();
    out.extend_from_slice(&kind.to_be_bytes());
    out.extend_from_slice(&[0, 0]);
    out.extend_from_slice(&MAGIC_COOKIE);
    out.extend_from_slice(&transaction);
}

fn push(out: &mut Vec<u8>, kind: u16, value: &[u8]) {
    out.extend_from_slice(&kind.to_be_bytes());
    out.extend_from_slice(&(value.len() as u16).to_be_bytes());
    out.extend_from_slice(value);
    out.resize(out.len().next_multiple_of(4), 0);
}

fn finish(out: &mut Vec<u8>, password: &[u8]) {
    if let Some(mac) = integrity(out, password) {
        push(
            out,
            attribute::MESSAGE_INTEGRITY,
            &mac.finalize().into_bytes(),
        );
    }
    push(out, attribute::FINGERPRINT, &fingerprint(out).to_be_bytes());
    let length = (out.len() - HEADER_LEN) as u16;
    out[2..4].copy_from_slice(&length.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stun::{BINDING, Class, Stun};

    #[test]
    fn a_written_check_verifies_with_its_password_only() {
        let mut out = Vec::new();
        binding_request(
            &mut out,
            [3; 12],
            "server:client",
            b"password of the server",
            1,
            Role::Controlling(9, true),
        );
        let message = Stun::parse(&out).expect("well-formed");
        assert_eq!((message.class, message.method), (Class::Request, BINDING));
        assert_eq!(message.transaction(), [3; 12]);
        assert_eq!(message.local_ufrag(), Some(&b"server"[..]));
        assert_eq!(message.remote_ufrag(), Some(&b"client"[..]));
        assert!(message.use_candidate() && message.has_integrity());
        assert!(message.verify_integrity(b"password of the server"));
        assert!(!message.verify_integrity(b"password of another"));
        assert_eq!(message.fingerprint_ok(), Some(true));
    }

    #[test]
    fn a_written_response_verifies_for_both_families() {
        for mapped in ["203.0.113.7:4000", "[2001:db8::7]:4000"] {
            let mut out = Vec::new();
            binding_success(
                &mut out,
                [4; 12],
                mapped.parse().expect("an address"),
                b"own password",
            );
            let message = Stun::parse(&out).expect("well-formed");
            assert_eq!(message.class, Class::Success);
            assert!(message.verify_integrity(b"own password"));
            assert_eq!(message.fingerprint_ok(), Some(true));
        }
    }
}
