//! Properties of the wire formats: they round-trip, any one change is refused, and no bytes make a parser panic.

use std::net::SocketAddr;

use firsthop_shared::address::{
    BootId, ClientAddr, ClusterId, FlowHandle, IngressId, OwnerAddr, Restart, SessionId, ShardId,
};
use firsthop_shared::keyring::{DataKeyring, Masters};
use firsthop_shared::packet::classify;
use firsthop_shared::stun::Stun;
use firsthop_shared::stun_write::{Role, binding_request};
use firsthop_shared::token::{self, Route, Ufrag};
use firsthop_shared::trunk::{
    self, DATAGRAM_HEADER_LEN, DatagramBuilder, RecordHeader, RecordKind,
};
use proptest::prelude::*;

fn keyring() -> DataKeyring {
    let mut masters = Masters::new([1; 32]);
    masters.add([2; 32]).expect("room");
    DataKeyring::parse(&masters.data_toml()).expect("valid")
}

fn socket() -> impl Strategy<Value = SocketAddr> {
    prop_oneof![
        (any::<[u8; 4]>(), any::<u16>()).prop_map(SocketAddr::from),
        (any::<[u8; 16]>(), any::<u16>()).prop_map(SocketAddr::from),
    ]
}

fn route() -> impl Strategy<Value = Route> {
    (
        any::<u16>(),
        socket(),
        any::<u8>(),
        any::<u8>(),
        any::<u32>(),
    )
        .prop_map(|(cluster, owner, shard, restart, session)| Route {
            cluster: ClusterId(cluster),
            owner: OwnerAddr::new(owner),
            shard: ShardId(shard),
            restart: Restart(restart),
            session: SessionId(session),
        })
}

fn kind() -> impl Strategy<Value = RecordKind> {
    prop_oneof![
        Just(RecordKind::Packet),
        Just(RecordKind::Close),
        Just(RecordKind::UnknownSession),
        Just(RecordKind::Keepalive),
    ]
}

fn record() -> impl Strategy<Value = (RecordHeader, Vec<u8>)> {
    (
        kind(),
        socket(),
        any::<[bool; 2]>(),
        any::<u8>(),
        any::<[u32; 2]>(),
        proptest::option::of(socket()),
        proptest::collection::vec(any::<u8>(), 0..200),
    )
        .prop_map(
            |(kind, client, [tcp, proven], ingress, [session, handle], owner, payload)| {
                let header = RecordHeader {
                    kind,
                    client: ClientAddr::new(client),
                    tcp,
                    proven,
                    ingress: IngressId(ingress),
                    session: SessionId(session),
                    handle: FlowHandle(handle),
                    owner: owner.map(OwnerAddr::new),
                    payload_len: payload.len() as u16,
                };
                (header, payload)
            },
        )
}

/// The datagram, and which of its bytes the tag covers.
fn build(ring: &DataKeyring, records: &[(RecordHeader, Vec<u8>)]) -> (Vec<u8>, Vec<bool>) {
    let mut builder = DatagramBuilder::new(8_960);
    let mut covered = vec![true; DATAGRAM_HEADER_LEN];
    for (header, payload) in records {
        assert!(builder.push(header, payload));
        covered.extend(vec![true; header.encoded_len()]);
        covered.extend(vec![false; payload.len()]);
    }
    let bytes = builder
        .finish(ring.active(), ShardId(1), BootId(9), 3)
        .to_vec();
    (bytes, covered)
}

proptest! {
    #[test]
    fn a_ufrag_opens_to_its_route(route in route()) {
        let ring = keyring();
        let ufrag = token::mint(ring.active(), &route);
        prop_assert_eq!(token::open(&ring, ufrag.as_bytes()), Ok(route));
        prop_assert_eq!(Ufrag::parse(ufrag.as_str()), Ok(ufrag));
        prop_assert_eq!(ufrag.as_bytes().len(), if route.owner.is_ipv6() { 58 } else { 42 });
    }

    #[test]
    fn a_ufrag_with_any_one_character_changed_is_refused(
        route in route(), at in any::<prop::sample::Index>(), to in any::<u8>()
    ) {
        let ring = keyring();
        let mut ufrag = token::mint(ring.active(), &route).as_bytes().to_vec();
        let at = at.index(ufrag.len());
        prop_assume!(ufrag[at] != to);
        ufrag[at] = to;
        prop_assert!(token::open(&ring, &ufrag).is_err());
    }

    #[test]
    fn opening_any_bytes_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
        let ring = keyring();
        prop_assert!(token::open(&ring, &bytes).is_err());
        let _ = token::ice_password(&ring, &bytes);
    }

    #[test]
    fn opening_any_text_of_the_right_length_is_refused(text in "[A-Za-z0-9+/]{42}|[A-Za-z0-9+/]{58}") {
        prop_assert!(token::open(&keyring(), text.as_bytes()).is_err());
    }

    #[test]
    fn passwords_differ_with_the_ufrag(a in route(), b in route()) {
        prop_assume!(a != b);
        let ring = keyring();
        let password = |route| {
            let ufrag = token::mint(ring.active(), route);
            token::ice_password(&ring, ufrag.as_bytes()).map(|p| p.as_str().to_owned())
        };
        prop_assert_ne!(password(&a), password(&b));
    }

    #[test]
    fn a_datagram_returns_its_records(records in proptest::collection::vec(record(), 1..12)) {
        let ring = keyring();
        let (bytes, _) = build(&ring, &records);
        let datagram = trunk::open(&ring, &bytes).expect("valid");
        let read: Vec<_> = datagram.records().map(|r| {
            assert_eq!(&bytes[r.offset..r.offset + r.payload.len()], r.payload);
            (r.header, r.payload.to_vec())
        }).collect();
        prop_assert_eq!(read, records);
    }

    #[test]
    fn a_datagram_with_any_one_covered_byte_changed_is_refused(
        records in proptest::collection::vec(record(), 1..5),
        at in any::<prop::sample::Index>(),
        bit in 0u32..8
    ) {
        let ring = keyring();
        let (mut bytes, covered) = build(&ring, &records);
        let places: Vec<_> = (0..bytes.len()).filter(|at| covered[*at]).collect();
        bytes[places[at.index(places.len())]] ^= 1 << bit;
        prop_assert!(trunk::open(&ring, &bytes).is_err());
    }

    #[test]
    fn a_datagram_cut_anywhere_is_refused(
        records in proptest::collection::vec(record(), 1..5), at in any::<prop::sample::Index>()
    ) {
        let ring = keyring();
        let (bytes, _) = build(&ring, &records);
        prop_assert!(trunk::open(&ring, &bytes[..at.index(bytes.len())]).is_err());
    }

    #[test]
    fn a_builder_never_exceeds_its_limit_and_keeps_what_it_took(
        records in proptest::collection::vec(record(), 1..40), limit in 300usize..2_000
    ) {
        let ring = keyring();
        let mut builder = DatagramBuilder::new(limit);
        let mut taken = Vec::new();
        for (header, payload) in &records {
            if builder.push(header, payload) {
                taken.push((*header, payload.clone()));
            } else {
                break;
            }
        }
        prop_assert!(!taken.is_empty());
        let bytes = builder.finish(ring.active(), ShardId(0), BootId(0), 0).to_vec();
        prop_assert!(bytes.len() <= limit);
        let datagram = trunk::open(&ring, &bytes).expect("valid");
        prop_assert_eq!(datagram.records().count(), taken.len());
        builder.clear();
        prop_assert!(builder.is_empty());
    }

    #[test]
    fn parsers_never_panic_on_any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let ring = keyring();
        let _ = classify(&bytes);
        let _ = RecordHeader::parse(&bytes);
        prop_assert!(trunk::open(&ring, &bytes).is_err());
        if let Ok(message) = Stun::parse(&bytes) {
            let _ = (message.local_ufrag(), message.verify_integrity(b"x"), message.fingerprint_ok());
        }
    }

    #[test]
    fn parsers_never_panic_on_damaged_messages(
        cut in 0usize..200, flips in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6)
    ) {
        let mut message = Vec::new();
        binding_request(&mut message, [5; 12], "local:remote", b"password", 1, Role::Controlling(1, true));
        message.truncate(message.len().saturating_sub(cut));
        for (at, value) in flips {
            if !message.is_empty() {
                let at = at.index(message.len());
                message[at] = value;
            }
        }
        if let Ok(view) = Stun::parse(&message) {
            let _ = (view.username(), view.remote_ufrag(), view.verify_integrity(b"password"), view.fingerprint_ok());
        }
    }

    #[test]
    fn a_check_with_any_one_byte_before_the_integrity_changed_fails_it(
        at in any::<prop::sample::Index>(), bit in 0u32..8
    ) {
        let mut message = Vec::new();
        binding_request(&mut message, [5; 12], "local:remote", b"password", 1, Role::Controlled(1));
        let end = message.len() - 8 - 24;
        let at = at.index(end);
        message[at] ^= 1 << bit;
        let verified = Stun::parse(&message).is_ok_and(|view| view.verify_integrity(b"password"));
        prop_assert!(!verified);
    }
}
