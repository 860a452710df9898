//! The golden vectors in `vectors/`, which an independent implementation wrote, hold for this one.

use std::net::{IpAddr, SocketAddr};

use firsthop_shared::address::{
    BootId, ClientAddr, ClusterId, FlowHandle, IngressId, KeyId, OwnerAddr, Restart, SessionId,
    ShardId,
};
use firsthop_shared::keyring::{ApiKeyring, DataKeyring, derive};
use firsthop_shared::stun::{Class, Stun};
use firsthop_shared::token::{self, Route, TokenError};
use firsthop_shared::trunk::{self, DatagramBuilder, RecordHeader, RecordKind, TrunkError};
use serde_json::Value;

fn vectors(name: &str) -> Value {
    let path = format!("{}/vectors/{name}.json", env!("CARGO_MANIFEST_DIR"));
    serde_json::from_str(&std::fs::read_to_string(path).expect("the vectors")).expect("JSON")
}

fn keyring() -> DataKeyring {
    let keys = vectors("keys");
    DataKeyring::parse(keys["data_keyring"].as_str().expect("text")).expect("valid")
}

fn hex(value: &Value) -> Vec<u8> {
    let text = value.as_str().expect("hexadecimal");
    (0..text.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&text[at..at + 2], 16).expect("a hexadecimal digit"))
        .collect()
}

fn number<T: TryFrom<u64>>(value: &Value) -> T
where
    T::Error: std::fmt::Debug,
{
    T::try_from(value.as_u64().expect("a number")).expect("in range")
}

fn list(value: &Value) -> &[Value] {
    value.as_array().expect("a list")
}

fn socket(ip: &Value, port: &Value) -> SocketAddr {
    let ip: IpAddr = ip.as_str().expect("text").parse().expect("an address");
    SocketAddr::from((ip, number::<u16>(port)))
}

#[test]
fn sub_keys_derive_as_in_the_vectors() {
    let keys = vectors("keys");
    let master = |id: u64| -> [u8; 32] {
        use base64::Engine as _;
        let entry = list(&keys["masters"])
            .iter()
            .find(|m| m["id"] == id)
            .expect("a master");
        base64::engine::general_purpose::STANDARD
            .decode(entry["secret"].as_str().expect("text"))
            .expect("base64")
            .try_into()
            .expect("32 bytes")
    };
    for entry in list(&keys["derived"]) {
        let id = KeyId::new(number(&entry["id"])).expect("valid");
        let label = entry["label"].as_str().expect("text");
        let expected = hex(&entry["key"]);
        let secret = master(u64::from(id.get()));
        if expected.len() == 16 {
            assert_eq!(derive::<16>(&secret, label, id).as_slice(), expected);
        } else {
            assert_eq!(derive::<32>(&secret, label, id).as_slice(), expected);
        }
    }
    let api = ApiKeyring::parse(keys["api_keyring"].as_str().expect("text")).expect("valid");
    assert_eq!(api.len(), 2);
}

#[test]
fn valid_ufrags_are_minted_and_opened() {
    let ring = keyring();
    for entry in list(&vectors("ufrag")["valid"]) {
        let fields = &entry["route"];
        let route = Route {
            cluster: ClusterId(number(&fields["cluster"])),
            owner: OwnerAddr::new(socket(&fields["owner_ip"], &fields["owner_port"])),
            shard: ShardId(number(&fields["shard"])),
            restart: Restart(number(&fields["restart"])),
            session: SessionId(number(&fields["session"])),
        };
        let ufrag = entry["ufrag"].as_str().expect("text");
        let key = KeyId::new(number(&entry["key"])).expect("valid");
        let minted = token::mint(ring.get(key).expect("known"), &route);
        assert_eq!(minted.as_str(), ufrag);
        assert_eq!(token::open(&ring, ufrag.as_bytes()), Ok(route));
        let password = token::ice_password(&ring, ufrag.as_bytes()).expect("known key");
        assert_eq!(password.as_str(), entry["password"].as_str().expect("text"));
    }
}

#[test]
fn invalid_ufrags_are_refused_for_the_stated_reason() {
    let ring = keyring();
    for entry in list(&vectors("ufrag")["invalid"]) {
        let expected = match entry["error"].as_str().expect("text") {
            "length" => TokenError::Length,
            "alphabet" => TokenError::Alphabet,
            "format" => TokenError::Format,
            "unknown_key" => TokenError::UnknownKey,
            "forged" => TokenError::Forged,
            other => panic!("unknown error {other}"),
        };
        let ufrag = entry["ufrag"].as_str().expect("text");
        let result = token::open(&ring, ufrag.as_bytes());
        assert_eq!(result, Err(expected), "{}", entry["name"]);
    }
}

fn record(entry: &Value) -> (RecordHeader, Vec<u8>) {
    let payload = hex(&entry["payload"]);
    let owner = entry["owner_ip"]
        .is_string()
        .then(|| OwnerAddr::new(socket(&entry["owner_ip"], &entry["owner_port"])));
    let header = RecordHeader {
        kind: match entry["kind"].as_str().expect("text") {
            "packet" => RecordKind::Packet,
            "close" => RecordKind::Close,
            "unknown_session" => RecordKind::UnknownSession,
            "keepalive" => RecordKind::Keepalive,
            other => panic!("unknown kind {other}"),
        },
        client: ClientAddr::new(socket(&entry["client_ip"], &entry["client_port"])),
        tcp: entry["tcp"].as_bool().expect("a bool"),
        proven: entry["proven"].as_bool().expect("a bool"),
        ingress: IngressId(number(&entry["ingress"])),
        session: SessionId(number(&entry["session"])),
        handle: FlowHandle(number(&entry["handle"])),
        owner,
        payload_len: payload.len() as u16,
    };
    (header, payload)
}

#[test]
fn valid_datagrams_are_built_and_parsed() {
    let ring = keyring();
    for entry in list(&vectors("trunk")["valid"]) {
        let head = &entry["header"];
        let key = KeyId::new(number(&head["key"])).expect("valid");
        let shard = ShardId(number(&head["shard"]));
        let boot = BootId(number(&head["boot"]));
        let sequence: u32 = number(&head["sequence"]);
        let expected = hex(&entry["datagram"]);
        let mut builder = DatagramBuilder::new(8_960);
        for entry in list(&entry["records"]) {
            let (header, payload) = record(entry);
            assert!(builder.push(&header, &payload));
        }
        let built = builder.finish(ring.get(key).expect("known"), shard, boot, sequence);
        assert_eq!(built, expected, "{}", entry["name"]);

        let datagram = trunk::open(&ring, &expected).expect("valid");
        assert_eq!(datagram.header.shard, shard);
        assert_eq!(datagram.header.boot, boot);
        assert_eq!(datagram.header.sequence, sequence);
        let read: Vec<_> = datagram
            .records()
            .map(|r| (r.header, r.payload.to_vec()))
            .collect();
        let wanted: Vec<_> = list(&entry["records"]).iter().map(record).collect();
        assert_eq!(read, wanted, "{}", entry["name"]);
    }
}

#[test]
fn invalid_datagrams_are_refused_for_the_stated_reason() {
    let ring = keyring();
    for entry in list(&vectors("trunk")["invalid"]) {
        let expected = match entry["error"].as_str().expect("text") {
            "length" => TrunkError::Length,
            "magic" => TrunkError::Magic,
            "unknown_key" => TrunkError::UnknownKey,
            "tag" => TrunkError::Tag,
            "record" => TrunkError::Record,
            other => panic!("unknown error {other}"),
        };
        let result = trunk::open(&ring, &hex(&entry["datagram"])).map(|d| d.header);
        assert_eq!(result, Err(expected), "{}", entry["name"]);
    }
}

#[test]
fn valid_stun_messages_are_read() {
    let all = vectors("stun");
    let password = all["password"].as_str().expect("text").as_bytes();
    for entry in list(&all["valid"]) {
        let name = &entry["name"];
        let bytes = hex(&entry["message"]);
        let message = Stun::parse(&bytes).unwrap_or_else(|_| panic!("{name} is well-formed"));
        let class = match entry["stun_class"].as_str().expect("text") {
            "request" => Class::Request,
            "indication" => Class::Indication,
            "success" => Class::Success,
            "error" => Class::Error,
            other => panic!("unknown class {other}"),
        };
        assert_eq!(message.class, class, "{name}");
        assert_eq!(message.method, number::<u16>(&entry["method"]), "{name}");
        assert_eq!(message.transaction().to_vec(), hex(&all["transaction"]));
        let username = message.username().map(|u| String::from_utf8_lossy(u));
        assert_eq!(username.as_deref(), entry["username"].as_str(), "{name}");
        assert_eq!(
            message.use_candidate(),
            entry["use_candidate"] == true,
            "{name}"
        );
        assert_eq!(
            message.verify_integrity(password),
            entry["integrity"] == true,
            "{name}"
        );
        assert_eq!(
            message.fingerprint_ok(),
            entry["fingerprint"].as_bool(),
            "{name}"
        );
    }
}

#[test]
fn invalid_stun_messages_are_refused() {
    for entry in list(&vectors("stun")["invalid"]) {
        assert!(
            Stun::parse(&hex(&entry["message"])).is_err(),
            "{}",
            entry["name"]
        );
    }
}
