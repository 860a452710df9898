//! DTLS before its time: packets that come before their address is validated, and alerts that nobody has signed.

use crate::hops::PathKey;
use crate::limits;
use crate::reason::Reason;

/// DTLS packets that wait for their address to be validated, bounded.
///
/// Networks reorder, and a client may begin DTLS before it answers our check; without this its first flight would be lost, and
/// many clients repeat it only after a second. Only a path that a verified request opened may hold packets, and the engine
/// sees none of them before the proof.
#[derive(Debug, Default)]
pub(super) struct Early(Vec<(PathKey, Vec<u8>)>);

impl Early {
    /// Keeps a packet; the oldest makes room for it, so that nobody can fill the places once and for all.
    ///
    /// # Errors
    /// [`Reason::Unvalidated`] when [`limits::EARLY_PACKETS`] waited already: the oldest is dropped.
    pub(super) fn hold(&mut self, from: PathKey, packet: &[u8]) -> Result<(), Reason> {
        let full = self.0.len() == limits::EARLY_PACKETS;
        if full {
            self.0.remove(0);
        }
        self.0.push((from, packet.to_vec()));
        if full {
            Err(Reason::Unvalidated)
        } else {
            Ok(())
        }
    }

    /// DTLS is up: what still waits is for nobody.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Gives out what waited for this path, in order.
    pub(super) fn release(&mut self, path: &PathKey) -> Vec<Vec<u8>> {
        if self.0.is_empty() {
            return Vec::new();
        }
        let (held, rest) = std::mem::take(&mut self.0)
            .into_iter()
            .partition(|(from, _)| from == path);
        self.0 = rest;
        let held: Vec<(PathKey, Vec<u8>)> = held;
        held.into_iter().map(|(_, packet)| packet).collect()
    }
}

/// Whether a datagram has a DTLS alert that is not encrypted (RFC 6347 section 4.1, epoch 0).
///
/// Anybody who knows the client's address can send one, and a fatal one would end the handshake. RFC 6347 section 4.1.2.7
/// advises against acting on it; a client that really gave up is reaped.
pub(super) fn alert_in_the_clear(datagram: &[u8]) -> bool {
    const ALERT: u8 = 21;
    let mut rest = datagram;
    // Each turn takes a record header of 13 bytes at least.
    while let Some(
        &[
            kind,
            _,
            _,
            epoch_high,
            epoch_low,
            _,
            _,
            _,
            _,
            _,
            _,
            high,
            low,
        ],
    ) = rest.first_chunk::<13>()
    {
        if kind == ALERT && epoch_high == 0 && epoch_low == 0 {
            return true;
        }
        let next = 13 + usize::from(u16::from_be_bytes([high, low]));
        rest = rest.get(next..).unwrap_or_default();
    }
    false
}

#[cfg(test)]
mod tests {
    use firsthop_shared::address::{ClientAddr, IngressId};

    use super::*;

    fn key(port: u16) -> PathKey {
        PathKey {
            client: ClientAddr::new(([198, 51, 100, 7], port).into()),
            ingress: IngressId(0),
            tcp: false,
        }
    }

    #[test]
    fn the_oldest_packet_makes_room() {
        let mut early = Early::default();
        for n in 0..limits::EARLY_PACKETS as u8 {
            assert_eq!(early.hold(key(1), &[n]), Ok(()));
        }
        assert_eq!(early.hold(key(2), &[99]), Err(Reason::Unvalidated));
        assert_eq!(early.release(&key(2)), [[99]]);
        assert_eq!(early.release(&key(1)), [[1], [2], [3]]);
        assert_eq!(early.hold(key(1), &[5]), Ok(()));
        early.clear();
        assert!(early.release(&key(1)).is_empty());
    }
}
