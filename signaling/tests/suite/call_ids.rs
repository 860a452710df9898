//! Call ids: the golden vectors that an independent implementation wrote, and properties of every id.

use std::net::{IpAddr, SocketAddr};

use firsthop_shared::address::{ClusterId, KeyId, SessionId, canonical};
use firsthop_shared::keyring::{ApiKeyring, Masters};
use firsthop_signaling::call_id::{
    CALL_ID_LEN_IPV4, CALL_ID_LEN_IPV6, CallIdError, CallRef, Placed, Tenant, open, seal,
};
use proptest::prelude::*;
use serde_json::Value;

fn vectors() -> Value {
    let path = format!("{}/vectors/call_id.json", env!("CARGO_MANIFEST_DIR"));
    serde_json::from_str(&std::fs::read_to_string(path).expect("the vectors")).expect("JSON")
}

fn keyring_of(vectors: &Value) -> ApiKeyring {
    ApiKeyring::parse(text(&vectors["api_keyring"])).expect("valid")
}

fn text(value: &Value) -> &str {
    value.as_str().expect("text")
}

fn list(value: &Value) -> &[Value] {
    value.as_array().expect("a list")
}

fn number<T: TryFrom<u64>>(value: &Value) -> T {
    let number = value.as_u64().expect("a number");
    T::try_from(number).ok().expect("in range")
}

#[test]
fn ids_are_sealed_and_opened_as_in_the_vectors() {
    let vectors = vectors();
    let keyring = keyring_of(&vectors);
    for entry in list(&vectors["valid"]) {
        let fields = &entry["call"];
        let ip: IpAddr = text(&fields["control_ip"]).parse().expect("an address");
        let call = CallRef {
            cluster: ClusterId(number(&fields["cluster"])),
            control: SocketAddr::from((ip, number(&fields["control_port"]))),
            session: SessionId(number(&fields["session"])),
            created: number(&fields["created"]),
            placed: Placed {
                tenant: Tenant::named(text(&fields["tenant"])),
                secret: number(&fields["secret"]),
            },
        };
        let id = text(&entry["id"]);
        let key = KeyId::new(number(&entry["key"])).and_then(|key| keyring.get(key));
        assert_eq!(seal(key.expect("known"), &call).as_str(), id);
        assert_eq!(open(&keyring, id), Ok(call));
    }
}

#[test]
fn invalid_ids_are_refused_for_the_reason_in_the_vectors() {
    let vectors = vectors();
    let keyring = keyring_of(&vectors);
    for entry in list(&vectors["invalid"]) {
        let expected = match text(&entry["error"]) {
            "prefix" => CallIdError::Prefix,
            "length" => CallIdError::Length,
            "alphabet" => CallIdError::Alphabet,
            "format" => CallIdError::Format,
            "unknown_key" => CallIdError::UnknownKey,
            "forged" => CallIdError::Forged,
            other => panic!("the vectors name an unknown error {other}"),
        };
        let opened = open(&keyring, text(&entry["id"]));
        assert_eq!(opened, Err(expected), "{}", entry["name"]);
    }
}

#[test]
fn an_id_does_not_print() {
    let vectors = vectors();
    let keyring = keyring_of(&vectors);
    let id = text(&vectors["valid"][0]["id"]);
    let call = open(&keyring, id).expect("valid");
    let again = seal(keyring.active(), &call);
    assert_eq!(again.as_str(), id);
    assert!(!format!("{again:?}").contains(&id[6..]));
}

fn calls() -> impl Strategy<Value = CallRef> {
    (
        any::<u16>(),
        any::<SocketAddr>(),
        any::<u32>(),
        any::<u64>(),
        any::<[u8; 10]>(),
        any::<u64>(),
    )
        .prop_map(
            |(cluster, control, session, created, tenant, secret)| CallRef {
                cluster: ClusterId(cluster),
                control: canonical(control),
                session: SessionId(session),
                created,
                placed: Placed {
                    tenant: Tenant(tenant),
                    secret,
                },
            },
        )
}

fn ring() -> ApiKeyring {
    ApiKeyring::parse(&Masters::new([9; 32]).api_toml()).expect("valid")
}

proptest! {
    #[test]
    fn every_call_comes_back_from_its_id(call in calls()) {
        let ring = ring();
        let id = seal(ring.active(), &call);
        let length = if call.control.is_ipv6() { CALL_ID_LEN_IPV6 } else { CALL_ID_LEN_IPV4 };
        prop_assert_eq!(id.as_str().len(), length);
        prop_assert!(id.as_str().starts_with("rtc_"));
        prop_assert_eq!(open(&ring, id.as_str()), Ok(call));
    }

    #[test]
    fn one_altered_character_is_refused(
        call in calls(),
        at in any::<prop::sample::Index>(),
        to in "[ -~]",
    ) {
        let ring = ring();
        let id = seal(ring.active(), &call);
        let at = at.index(id.as_str().len());
        let mut altered = id.as_str().to_owned();
        altered.replace_range(at..=at, &to);
        prop_assume!(altered != id.as_str());
        prop_assert!(open(&ring, &altered).is_err());
    }

    #[test]
    fn any_text_opens_or_is_refused_without_a_panic(id in "(rtc_)?\\PC{0,80}", key in 0_u16..2) {
        let ring = ring();
        prop_assert!(open(&ring, &id).is_err());
        let sized = format!("rtc_A{}{:x<72}", if key == 0 { 'A' } else { 'B' }, id.replace(|c: char| !c.is_ascii(), ""));
        prop_assert!(open(&ring, &sized[..78]).is_err());
    }
}
