//! Keepalives between relays: a question goes up and its answer, with the same payload, comes down.
//!
//! A datagram of its own, made from nothing that was received, so that it waits for no company and holds no buffer. The way is
//! part of the boot id: an answer is never taken for a question, and nobody is made to answer answers.

use std::net::{Ipv4Addr, SocketAddr};

use firsthop_shared::address::{
    BootId, ClientAddr, FlowHandle, Hop, IngressId, SessionId, ShardId,
};
use firsthop_shared::keyring::DataKeyring;
use firsthop_shared::trunk::{
    DATAGRAM_HEADER_LEN, DatagramHeader, RECORD_HEADER_MIN, RecordHeader, RecordKind, TAGGED_LEN,
    Tagger,
};

use crate::limits::KEEPALIVE_PAYLOAD_MAX;

/// The longest keepalive datagram, in bytes of UDP payload.
pub const KEEPALIVE_LEN_MAX: usize =
    DATAGRAM_HEADER_LEN + RECORD_HEADER_MIN + KEEPALIVE_PAYLOAD_MAX;

/// A keepalive datagram, ready to be sent.
#[derive(Clone, Copy, Debug)]
pub struct Keepalive {
    /// Where it goes: a core of another relay.
    pub to: Hop,
    bytes: [u8; KEEPALIVE_LEN_MAX],
    len: usize,
}

impl Keepalive {
    /// The datagram.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// Makes one under a boot id and a sequence number. Nothing for a payload that is too long.
    pub(crate) fn new(
        keyring: &DataKeyring,
        (boot, sequence): (BootId, u32),
        to: Hop,
        payload: &[u8],
    ) -> Option<Self> {
        let nobody = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
        let record = RecordHeader {
            kind: RecordKind::Keepalive,
            client: ClientAddr::new(nobody),
            tcp: false,
            proven: false,
            ingress: IngressId(0),
            session: SessionId(0),
            handle: FlowHandle(0),
            owner: None,
            payload_len: payload.len() as u16,
        };
        let key = keyring.active();
        let head = DatagramHeader {
            shard: ShardId(0),
            key: key.id(),
            boot,
            sequence,
        }
        .to_bytes();
        let mut bytes = [0; KEEPALIVE_LEN_MAX];
        let start = DATAGRAM_HEADER_LEN + record.encoded_len();
        let len = start + payload.len();
        bytes.get_mut(start..len)?.copy_from_slice(payload);
        record.write(&mut bytes[DATAGRAM_HEADER_LEN..start]);
        let mut tagger = Tagger::new(key, &head);
        tagger.record(&bytes[DATAGRAM_HEADER_LEN..start]);
        bytes[..TAGGED_LEN].copy_from_slice(&head);
        bytes[TAGGED_LEN..DATAGRAM_HEADER_LEN].copy_from_slice(&tagger.finish());
        Some(Self { to, bytes, len })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firsthop_shared::keyring::Masters;
    use firsthop_shared::trunk;

    #[test]
    fn a_keepalive_is_a_trunk_datagram_of_one_record_that_names_nobody() {
        let keys = DataKeyring::parse(&Masters::new([5; 32]).data_toml()).expect("a keyring");
        let to = Hop::new(([10, 0, 0, 1], 4000).into());
        let stamp = (BootId::of_relay(9), 77);
        for payload in [&b""[..], b"12345678", &[7; KEEPALIVE_PAYLOAD_MAX]] {
            let made = Keepalive::new(&keys, stamp, to, payload).expect("it fits");
            let opened = trunk::open(&keys, made.bytes()).expect("valid");
            assert_eq!((opened.header.boot, opened.header.sequence), stamp);
            let records: Vec<_> = opened.records().collect();
            assert_eq!(records.len(), 1);
            assert_eq!(records[0].header.kind, RecordKind::Keepalive);
            assert_eq!(records[0].payload, payload);
            assert_eq!(records[0].header.client.port(), 0);
        }
        assert!(Keepalive::new(&keys, stamp, to, &[0; KEEPALIVE_PAYLOAD_MAX + 1]).is_none());
    }
}
