//! Proof of address: whose checks we sent where, and which answers count.
//!
//! A legitimate client can put a victim's address on its own valid request, so a verified request proves a token and not an
//! address. What proves the address is a STUN success response that comes back *from* there (client address and ingress both)
//! to a request that we sent *to* there, signed with the client's password (RFC 8445 section 7.2.5.2.1: symmetric addresses).
//! The engine checks transaction and signature, but not the source of what it is given; this module does.

use std::collections::VecDeque;

use firsthop_shared::stun::{BINDING, Class, Stun};

use crate::hops::PathKey;
use crate::limits;
use crate::reason::Reason;

/// The checks that we sent and that wait for an answer, bounded; the oldest is forgotten first.
#[derive(Debug, Default)]
pub struct Checks {
    pending: VecDeque<([u8; 12], PathKey)>,
}

/// What a STUN message of a client is to the session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Meaning {
    /// A verified check of the client's.
    Request {
        /// Whether it carries USE-CANDIDATE.
        nominates: bool,
    },
    /// The answer to a check of ours, from where we sent it, signed: the client is there.
    Proof,
    /// An error response to a check of ours: a role conflict is for the engine to solve.
    Refusal,
}

impl Checks {
    /// Notes a packet that the engine sends, when it is a check; returns whether it is one.
    pub fn sent(&mut self, packet: &[u8], to: PathKey) -> bool {
        // A Binding request begins 00 01; whatever else the engine sends is an answer or no STUN.
        let (Some([0, 1]), Some(Ok(transaction))) = (
            packet.first_chunk::<2>(),
            packet.get(8..20).map(TryInto::try_into),
        ) else {
            return false;
        };
        if self.pending.len() == limits::CHECKS_IN_FLIGHT {
            self.pending.pop_front();
        }
        self.pending.push_back((transaction, to));
        true
    }

    /// Judges a STUN message from `from`.
    ///
    /// `local` and `remote` are ufrag and password of each side. An answer counts once.
    ///
    /// # Errors
    /// Why the message goes no further.
    pub fn judge(
        &mut self,
        packet: &[u8],
        from: &PathKey,
        local: (&[u8], &[u8]),
        remote: (&[u8], &[u8]),
    ) -> Result<Meaning, Reason> {
        let stun = Stun::parse(packet).map_err(|_| Reason::StunOther)?;
        if stun.method != BINDING {
            return Err(Reason::StunOther);
        }
        match stun.class {
            Class::Request => {
                let ours = stun.local_ufrag() == Some(local.0)
                    && stun.remote_ufrag() == Some(remote.0)
                    && stun.verify_integrity(local.1);
                if ours {
                    Ok(Meaning::Request {
                        nominates: stun.use_candidate(),
                    })
                } else {
                    Err(Reason::StunUnverified)
                }
            }
            Class::Success | Class::Error => {
                let transaction = stun.transaction();
                let place = self
                    .pending
                    .iter()
                    .position(|(id, to)| *id == transaction && to == from)
                    .filter(|_| stun.verify_integrity(remote.1))
                    .ok_or(Reason::StunUnmatched)?;
                self.pending.remove(place);
                Ok(if stun.class == Class::Success {
                    Meaning::Proof
                } else {
                    Meaning::Refusal
                })
            }
            Class::Indication => Err(Reason::StunOther),
        }
    }

    /// An ICE restart: answers to earlier checks no longer count.
    pub fn restarted(&mut self) {
        self.pending.clear();
    }
}

#[cfg(test)]
mod tests {
    use firsthop_shared::address::{ClientAddr, IngressId};
    use firsthop_shared::stun_write::{Role, binding_request, binding_success};

    use super::*;

    const LOCAL: (&[u8], &[u8]) = (b"ours", b"our-password-our-password");
    const REMOTE: (&[u8], &[u8]) = (b"them", b"their-password-their-password");

    fn key(port: u16, ingress: u8) -> PathKey {
        PathKey {
            client: ClientAddr::new(([198, 51, 100, 7], port).into()),
            ingress: IngressId(ingress),
            tcp: false,
        }
    }

    fn check(transaction: [u8; 12]) -> Vec<u8> {
        let mut out = Vec::new();
        let role = Role::Controlled(1);
        binding_request(&mut out, transaction, "them:ours", REMOTE.1, 1, role);
        out
    }

    fn answer(transaction: [u8; 12], password: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        binding_success(
            &mut out,
            transaction,
            ([203, 0, 113, 1], 3478).into(),
            password,
        );
        out
    }

    #[test]
    fn an_answer_is_proof_once_and_only_from_where_the_check_went() {
        let mut checks = Checks::default();
        checks.sent(&check([1; 12]), key(1, 0));
        let packet = answer([1; 12], REMOTE.1);
        for elsewhere in [key(2, 0), key(1, 1)] {
            let judged = checks.judge(&packet, &elsewhere, LOCAL, REMOTE);
            assert_eq!(judged, Err(Reason::StunUnmatched));
        }
        assert_eq!(
            checks.judge(&packet, &key(1, 0), LOCAL, REMOTE),
            Ok(Meaning::Proof)
        );
        assert_eq!(
            checks.judge(&packet, &key(1, 0), LOCAL, REMOTE),
            Err(Reason::StunUnmatched)
        );
    }

    #[test]
    fn an_answer_that_is_not_signed_by_the_client_proves_nothing() {
        let mut checks = Checks::default();
        checks.sent(&check([1; 12]), key(1, 0));
        let forged = answer([1; 12], b"guessed-password-guessed");
        assert_eq!(
            checks.judge(&forged, &key(1, 0), LOCAL, REMOTE),
            Err(Reason::StunUnmatched)
        );
        let genuine = answer([1; 12], REMOTE.1);
        assert_eq!(
            checks.judge(&genuine, &key(1, 0), LOCAL, REMOTE),
            Ok(Meaning::Proof),
            "the forgery did not use the check up"
        );
    }

    #[test]
    fn a_request_needs_both_names_and_our_password() {
        let mut checks = Checks::default();
        let request = |user: &str, password: &[u8]| {
            let mut out = Vec::new();
            binding_request(&mut out, [3; 12], user, password, 1, Role::Controlled(1));
            out
        };
        let mut judge = |packet: &[u8]| checks.judge(packet, &key(1, 0), LOCAL, REMOTE);
        assert_eq!(
            judge(&request("ours:them", LOCAL.1)),
            Ok(Meaning::Request { nominates: false })
        );
        for (user, password) in [
            ("ours:them", REMOTE.1),
            ("them:ours", LOCAL.1),
            ("ours:other", LOCAL.1),
        ] {
            assert_eq!(
                judge(&request(user, password)),
                Err(Reason::StunUnverified),
                "{user}"
            );
        }
        assert_eq!(judge(b"\x00\x01garbage"), Err(Reason::StunOther));
    }

    #[test]
    fn the_list_of_checks_is_bounded_and_forgets_the_oldest() {
        let mut checks = Checks::default();
        for n in 0..=limits::CHECKS_IN_FLIGHT as u8 {
            checks.sent(&check([n; 12]), key(1, 0));
        }
        let mut judge = |n: u8| checks.judge(&answer([n; 12], REMOTE.1), &key(1, 0), LOCAL, REMOTE);
        assert_eq!(judge(0), Err(Reason::StunUnmatched));
        assert_eq!(judge(1), Ok(Meaning::Proof));
    }
}
