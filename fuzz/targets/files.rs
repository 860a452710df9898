//! The files that operators hand out, and lists of networks. The first letter says which; what is written again is read alike.

#![no_main]

use firsthop_shared::address::Networks;
use firsthop_shared::fleet::Fleet;
use firsthop_shared::keyring::{ApiKeyring, DataKeyring, Masters};
use firsthop_signaling::credentials::ApiKeys;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &str| {
    let Some((kind, text)) = data.split_at_checked(1) else {
        return;
    };
    match kind {
        "f" => fleet(text),
        "m" => masters(text),
        "k" => {
            let Ok(keys) = ApiKeys::parse(text) else {
                return;
            };
            assert!(keys.grants().count() <= keys.len());
        }
        "n" => networks(text),
        "d" => {
            if let Ok(ring) = DataKeyring::parse(text) {
                assert!(ring.get(ring.active().id()).is_some());
            }
        }
        _ => {
            if let Ok(ring) = ApiKeyring::parse(text) {
                assert!(ring.get(ring.active().id()).is_some());
            }
        }
    }
});

fn fleet(text: &str) {
    let Ok(fleet) = Fleet::parse(text) else {
        return;
    };
    for cluster in fleet.clusters() {
        assert_eq!(fleet.cluster(cluster.id).map(|c| c.id), Some(cluster.id));
    }
    for ingress in fleet.ingresses() {
        assert!(ingress.addresses().count() > 0);
        for address in ingress.addresses() {
            assert_eq!(fleet.ingress_by_address(address), Some(ingress.id));
        }
    }
}

fn masters(text: &str) {
    let Ok(masters) = Masters::parse(text) else {
        return;
    };
    let again = Masters::parse(&masters.to_toml()).expect("our own file");
    assert!(again.ids().eq(masters.ids()));
    let data = DataKeyring::parse(&masters.data_toml()).expect("our own keyring");
    let api = ApiKeyring::parse(&masters.api_toml()).expect("our own keyring");
    assert_eq!(
        (data.len(), api.len()),
        (again.ids().count(), again.ids().count())
    );
}

fn networks(text: &str) {
    let Ok(networks) = Networks::parse(text) else {
        return;
    };
    let written = networks.to_string();
    let again = Networks::parse(&written).expect("our own list");
    assert_eq!(again.to_string(), written);
    assert_eq!(again.is_empty(), networks.is_empty());
}
