//! The first flight of a handshake that we begin (`setup:active`): it leaves with our answer to the client's first check.
//!
//! The engine sends DTLS once its ICE has settled on a pair, which takes another round trip, or more where the client nominates late. Its first
//! flight waits for nothing that it says: so it is taken from the engine's DTLS here, and the session sends it itself. The handshake
//! begins then, too, and its timer with it: a clock that ran from the answer on would have it repeated before the client could reply.
//!
//! Until the client's first flight has come, all that we send goes this way: the engine may still have no pair.
//!
//! The engine begins SCTP when it begins DTLS, and then takes nobody else's beginning. Where the client begins SCTP the engine is
//! told that the client begins DTLS, too, and the handshake is taken over here. All that it could notice is whose half of the SRTP keys is
//! whose: so these change places.
//!
//! The engine says nothing of SCTP until the client has opened a channel, a round trip after the association is up. The association is known here by
//! our last word of its handshake.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use str0m::crypto::dtls::{
    DtlsImplError, DtlsInstance, DtlsOutput, KeyingMaterial, ProtocolVersion, SrtpProfile,
};

/// Longer than any session: when a handshake that has not begun has something to do.
const NEVER: Duration = Duration::from_secs(24 * 60 * 60);

/// Room for a packet of DTLS.
const PACKET_MAX: usize = 2_048;

/// Begins a handshake, and gives out its first flight. It has two holders: the session, and the DTLS of its engine.
#[derive(Clone, Debug, Default)]
pub struct Hello(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    /// Somebody will say when the handshake begins.
    held: bool,
    /// It is ours to begin, whatever the engine says.
    taken_over: bool,
    active: bool,
    /// It is ours to begin, and has not begun.
    waits: bool,
    begun: Option<Instant>,
    packets: Vec<Vec<u8>>,
    agreed: Option<SrtpProfile>,
    associated: bool,
}

impl Hello {
    /// The handshake begins at [`Hello::begin`], if it is ours to begin. To be called before the engine is given an offer.
    pub(crate) fn hold(&self) {
        self.state().held = true;
    }

    /// The handshake is ours to begin, also where the engine takes it for the client's. To be called before the engine is given an offer.
    pub(crate) fn take_over(&self) {
        self.state().taken_over = true;
    }

    /// Whether the handshake is, or was, ours to begin. Settled once the engine has been given an offer.
    pub(crate) fn is_active(&self) -> bool {
        self.state().active
    }

    /// Begins the handshake; returns whether it was waiting for that. The engine has to be given the time, or anything else, for the
    /// flight to be made.
    pub fn begin(&self, now: Instant) -> bool {
        let mut state = self.state();
        if std::mem::take(&mut state.waits) {
            state.begun = Some(now);
            return true;
        }
        false
    }

    /// Takes the packets that are to be sent.
    #[must_use]
    pub fn take(&self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.state().packets)
    }

    /// The SRTP profile that the handshake has agreed on, once it has ended. The engine keeps it to itself.
    #[must_use]
    pub fn agreed(&self) -> Option<SrtpProfile> {
        self.state().agreed
    }

    /// Whether SCTP is up, by a handshake that the client began.
    pub(crate) fn is_associated(&self) -> bool {
        self.state().associated
    }

    /// The engine's DTLS, with this in its way.
    pub(crate) fn instance(&self, dtls: dimpl::Dtls, now: Instant) -> Instance {
        Instance {
            dtls,
            hello: self.clone(),
            stage: Stage::Through,
            swaps: false,
            associated: false,
            never: now + NEVER,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing in here panics half-way.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How far a handshake of ours is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// It has not begun.
    Waits,
    /// The client has not replied: packets go by the session.
    First,
    /// Packets go by the engine.
    Through,
}

/// The DTLS of an engine.
pub(crate) struct Instance {
    dtls: dimpl::Dtls,
    hello: Hello,
    stage: Stage,
    /// The engine takes itself for the other side.
    swaps: bool,
    /// SCTP is up.
    associated: bool,
    never: Instant,
}

impl Instance {
    /// Does what the engine does with a handshake that it begins at once.
    fn start(&mut self, now: Instant) -> Result<(), DtlsImplError> {
        self.stage = Stage::First;
        self.dtls.handle_timeout(now)?;
        // Nothing makes it say hello, and is no packet.
        let _ = self.dtls.handle_packet(&[]);
        Ok(())
    }

    /// Hands the session what is to be sent.
    fn divert(&mut self) {
        let mut buffer = [0; PACKET_MAX];
        while let DtlsOutput::Packet(packet) = self.dtls.poll_output(&mut buffer) {
            self.hello.state().packets.push(packet.to_vec());
        }
    }
}

/// Whether an SCTP packet of ours begins with a COOKIE ACK: who sends that has the association up (RFC 9260 sections 3.3.12 and 5.1). It may
/// share a packet, but goes first.
fn accepts_association(packet: &[u8]) -> bool {
    // After a common header of 12 bytes.
    packet.get(12) == Some(&11)
}

/// Makes the client's half of SRTP's keys the server's, and the other way round: client's key, server's key, client's salt, server's salt
/// (RFC 5764 section 4.2). Nothing for a profile that nobody here has heard of.
fn swapped(material: &KeyingMaterial, profile: SrtpProfile) -> Option<KeyingMaterial> {
    let key = match profile {
        SrtpProfile::AES128_CM_SHA1_80 | SrtpProfile::AEAD_AES_128_GCM => 16,
        SrtpProfile::AEAD_AES_256_GCM => 32,
        _ => return None,
    };
    let (keys, salts) = material.split_at_checked(2 * key)?;
    let (client_key, server_key) = keys.split_at(key);
    let (client_salt, server_salt) = salts.split_at(salts.len() / 2);
    let swapped = [server_key, client_key, server_salt, client_salt].concat();
    Some(KeyingMaterial::new(&swapped))
}

impl fmt::Debug for Instance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Instance").field(&self.stage).finish()
    }
}

impl DtlsInstance for Instance {
    fn set_active(&mut self, active: bool) {
        let mut state = self.hello.state();
        let told = active;
        let active = told || state.taken_over;
        self.swaps = active != told;
        state.active = active;
        if active && state.held && state.begun.is_none() {
            state.waits = true;
            self.stage = Stage::Waits;
        }
        drop(state);
        self.dtls.set_active(active);
    }

    fn handle_packet(&mut self, packet: &[u8]) -> Result<(), DtlsImplError> {
        match self.stage {
            // There is nothing that it could be a reply to.
            Stage::Waits => return Ok(()),
            Stage::First if !packet.is_empty() => self.stage = Stage::Through,
            _ => {}
        }
        self.dtls.handle_packet(packet)
    }

    fn poll_output<'a>(&mut self, buf: &'a mut [u8]) -> DtlsOutput<'a> {
        if self.stage == Stage::Waits {
            let begun = self.hello.state().begun;
            // A start that fails is told when the engine serves the timer next.
            if begun.is_none_or(|now| self.start(now).is_err()) {
                return DtlsOutput::Timeout(self.never);
            }
        }
        if self.stage == Stage::First {
            self.divert();
        }
        let output = self.dtls.poll_output(buf);
        let DtlsOutput::KeyingMaterial(material, profile) = output else {
            return output;
        };
        self.hello.state().agreed = Some(profile);
        let material = if self.swaps {
            // The engine has no use for an unknown profile's keys either.
            swapped(&material, profile).unwrap_or(material)
        } else {
            material
        };
        DtlsOutput::KeyingMaterial(material, profile)
    }

    fn handle_timeout(&mut self, now: Instant) -> Result<(), DtlsImplError> {
        match self.stage {
            Stage::Waits => Ok(()),
            _ => self.dtls.handle_timeout(now),
        }
    }

    fn send_application_data(&mut self, data: &[u8]) -> Result<usize, DtlsImplError> {
        if !self.associated && accepts_association(data) {
            self.associated = true;
            self.hello.state().associated = true;
        }
        self.dtls.send_application_data(data)
    }

    fn is_active(&self) -> bool {
        self.dtls.is_active()
    }

    fn protocol_version(&self) -> Option<ProtocolVersion> {
        self.dtls.protocol_version()
    }

    fn is_closing(&self) -> bool {
        self.dtls.is_closing()
    }

    fn is_closed(&self) -> bool {
        self.dtls.is_closed()
    }

    fn close(&mut self) -> Result<(), DtlsImplError> {
        self.dtls.close()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_association_is_accepted_by_our_cookie_ack_alone() {
        let packet = |first: u8| [[0; 12].as_slice(), &[first, 0, 0, 4]].concat();
        for (chunk, accepts) in [(0, false), (1, false), (2, false), (10, false), (11, true)] {
            assert_eq!(accepts_association(&packet(chunk)), accepts, "{chunk}");
        }
        assert!(!accepts_association(&[11; 12]));
    }

    #[test]
    fn each_side_s_key_goes_with_its_salt() {
        for (profile, key, salt) in [
            (SrtpProfile::AES128_CM_SHA1_80, 16, 14),
            (SrtpProfile::AEAD_AES_128_GCM, 16, 12),
            (SrtpProfile::AEAD_AES_256_GCM, 32, 12),
        ] {
            let material = |[a, b, c, d]: [u8; 4]| {
                [vec![a; key], vec![b; key], vec![c; salt], vec![d; salt]].concat()
            };
            let before = KeyingMaterial::new(&material([1, 2, 3, 4]));
            assert_eq!(before.len(), profile.keying_material_len());
            let after = swapped(&before, profile).expect("a known profile");
            assert_eq!(*after, *material([2, 1, 4, 3]));
        }
    }
}
