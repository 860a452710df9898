//! A call's ufrag, and the packets that its client can send, right or wrong.

use super::*;

/// The packets that a client of a call can send with this ufrag: one good, the others each wrong in one way.
pub(crate) struct Requests {
    pub(crate) good: Vec<u8>,
    pub(crate) wrong_integrity: Vec<u8>,
    pub(crate) no_integrity: Vec<u8>,
    pub(crate) wrong_fingerprint: Vec<u8>,
    pub(crate) forged: Vec<u8>,
    pub(crate) wrong_length: Vec<u8>,
    pub(crate) wrong_format: Vec<u8>,
    pub(crate) no_colon: Vec<u8>,
}

/// A call's ufrag and what can be sent with it.
pub(crate) struct Call {
    pub(crate) who: Who,
    pub(crate) cluster: ClusterId,
    pub(crate) key: KeyId,
    pub(crate) requests: Requests,
}

impl Call {
    pub(crate) fn new(who: Who, cluster: ClusterId, key: u16, restart: u8) -> Self {
        let keys = keyring(&[3 - key, key]);
        let route = Route {
            cluster,
            owner: who.owner,
            shard: who.shard,
            restart: Restart(restart),
            session: who.session,
        };
        let ufrag = token::mint(keys.active(), &route);
        let password = token::ice_password(&keys, ufrag.as_bytes()).expect("a key of ours");
        let good = request(ufrag.as_str(), password.as_bytes());
        let mut wrong_fingerprint = good.clone();
        *wrong_fingerprint.last_mut().expect("a fingerprint") ^= 1;
        // A well-spelled ufrag with another seal, and the password that would belong to it: only the seal can tell.
        let mut forged = ufrag.as_str().to_owned().into_bytes();
        forged[20] = if forged[20] == b'A' { b'B' } else { b'A' };
        let forged = String::from_utf8(forged).expect("base64");
        let forged_password = token::ice_password(&keys, forged.as_bytes()).expect("a key of ours");
        let no_integrity = {
            // Up to MESSAGE-INTEGRITY (24 bytes) and FINGERPRINT (8), with the length set to match.
            let mut bytes = good[..good.len() - 32].to_vec();
            let length = (bytes.len() - 20) as u16;
            bytes[2..4].copy_from_slice(&length.to_be_bytes());
            bytes
        };
        let requests = Requests {
            wrong_integrity: request(ufrag.as_str(), b"another password of 24 b"),
            no_integrity,
            wrong_fingerprint,
            forged: request(&forged, forged_password.as_bytes()),
            wrong_length: request(&ufrag.as_str()[1..], password.as_bytes()),
            wrong_format: request(&format!("/{}", &ufrag.as_str()[1..]), password.as_bytes()),
            no_colon: raw_request("nocolon", password.as_bytes()),
            good,
        };
        Self {
            who,
            cluster,
            key: keys.active().id(),
            requests,
        }
    }

    /// A call of this cluster under key 1.
    pub(crate) fn plain(who: Who) -> Self {
        Self::new(who, CLUSTER, 1, 0)
    }
}

fn request(ufrag: &str, password: &[u8]) -> Vec<u8> {
    raw_request(&format!("{ufrag}:peer"), password)
}

fn raw_request(username: &str, password: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let role = Role::Controlling(7, false);
    binding_request(&mut out, [9; 12], username, password, 1, role);
    out
}

/// A client's answer to a check: it carries no USERNAME.
pub(crate) fn stun_response() -> Vec<u8> {
    let mut out = Vec::new();
    binding_success(
        &mut out,
        [3; 12],
        socket("203.0.113.1:3478"),
        b"the client's own password",
    );
    out
}

/// A Binding indication, as some clients send to keep the path alive.
pub(crate) fn stun_indication() -> Vec<u8> {
    let mut out = vec![0, 0x11, 0, 0, 0x21, 0x12, 0xa4, 0x42];
    out.extend_from_slice(&[5; 12]);
    out
}

/// A TURN Allocate request: STUN of another method.
pub(crate) fn turn_allocate() -> Vec<u8> {
    let mut out = vec![0, 3, 0, 0, 0x21, 0x12, 0xa4, 0x42];
    out.extend_from_slice(&[5; 12]);
    out
}

pub(crate) fn rtp(fill: u8) -> Vec<u8> {
    let mut out = vec![fill; 40];
    out[0] = 0x80;
    out
}

pub(crate) fn dtls(fill: u8) -> Vec<u8> {
    let mut out = vec![fill; 60];
    out[0] = 22;
    out
}
