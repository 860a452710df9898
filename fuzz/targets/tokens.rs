//! Call ids and client secrets: as they come, and around whatever an input says that a fleet may have sealed.

#![no_main]

use firsthop_fuzz::{api_keyring, is_exact};
use firsthop_shared::address::KeyId;
use firsthop_signaling::{call_id, client_secret, sealed};
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

/// Before any of the seeds expires.
const NOW: u64 = 1_790_000_000;

fuzz_target!(|data: &str| {
    let ring = api_keyring();
    let keys = || {
        [1, 300]
            .into_iter()
            .filter_map(|id| ring.get(KeyId::new(id)?))
    };
    if let Ok(call) = call_id::open(ring, data) {
        assert!(
            keys().any(|key| call_id::seal(key, &call).as_str() == data),
            "one spelling"
        );
    }
    let _ = client_secret::is_one(data);
    if let Ok(claims) = client_secret::open(ring, data, NOW) {
        assert!(NOW < claims.expires);
        let _ = claims.allow_origin(Some("https://shop.example"));
    }
    // No fuzzer forges a seal: what is inside of one is tried apart.
    let Ok(value) = serde_json::from_str::<Value>(data) else {
        return;
    };
    let token = sealed::seal(ring.active(), client_secret::PREFIX, &value);
    if let Ok(claims) = client_secret::open(ring, &token, NOW) {
        let again = client_secret::mint(ring.active(), &claims);
        let again = client_secret::open(ring, &again, NOW);
        assert!(again == Ok(claims) || (again.is_ok() && !is_exact(&value)));
    }
    let opened: Value = sealed::open(ring, client_secret::PREFIX, &token).expect("our own token");
    assert!(opened == value || !is_exact(&value));
    assert!(call_id::open(ring, &token).is_err());
});
