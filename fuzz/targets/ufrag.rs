//! Routable ufrags: what opens has one spelling; any route that an input spells is sealed and opens to itself, and with one character
//! changed to nothing.

#![no_main]

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use firsthop_fuzz::data_keyring;
use firsthop_shared::address::{ClusterId, KeyId, OwnerAddr, Restart, SessionId, ShardId};
use firsthop_shared::token::{self, Route, Ufrag};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let ring = data_keyring();
    let _ = token::ice_password(ring, data);
    if let Ok(text) = std::str::from_utf8(data)
        && let Ok(ufrag) = Ufrag::parse(text)
    {
        assert_eq!(ufrag.as_str(), text);
    }
    if let Ok(route) = token::open(ring, data) {
        let mut keys = [1, 300]
            .map(|id| KeyId::new(id).and_then(|id| ring.get(id)))
            .into_iter();
        let spelled = |key| token::mint(key, &route).as_bytes() == data;
        assert!(keys.any(|key| key.is_some_and(spelled)), "one spelling");
    }
    let Some(bytes) = data.first_chunk::<28>() else {
        return;
    };
    let number = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
    let ip = match bytes[0] & 1 {
        0 => IpAddr::from([bytes[8], bytes[9], bytes[10], bytes[11]]),
        _ => {
            let mut octets = [0; 16];
            octets.copy_from_slice(&bytes[8..24]);
            Ipv6Addr::from(octets).into()
        }
    };
    let route = Route {
        cluster: ClusterId(number(2)),
        owner: OwnerAddr::new(SocketAddr::from((ip, number(4)))),
        shard: ShardId(bytes[6]),
        restart: Restart(bytes[7]),
        session: SessionId(u32::from(number(24)) << 16 | u32::from(number(26))),
    };
    let ufrag = token::mint(ring.active(), &route);
    assert_eq!(token::open(ring, ufrag.as_bytes()), Ok(route));
    let mut changed = ufrag.as_bytes().to_vec();
    let at = usize::from(bytes[1]) % changed.len();
    changed[at] ^= 1 + bytes[0] / 2;
    assert!(token::open(ring, &changed).is_err());
});
