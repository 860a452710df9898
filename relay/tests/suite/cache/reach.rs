//! How a relay reaches its Redis: passwords and TLS.

use std::fs;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

use firsthop_shared::trunk::{RecordHeader, RecordKind};

use crate::testbed::owner::{Owner, record};
use crate::testbed::redis::Redis;
use crate::testbed::{Testbed, until};

use super::{key, prove, start, value, wait_up};

const PASSWORD: &str = "correct/horse battery";

/// A relay with these settings reaches the Redis and writes to it.
fn writes(testbed: &Testbed, redis: &Redis, settings: &[(&'static str, String)]) {
    let relay = start(testbed, settings);
    let mut owner = Owner::bind(testbed.owner_address(0));
    let client = testbed.client(0);
    prove(testbed, &mut owner, &client, 1);
    redis.wait(&key(&client), Some(&value(&owner, 1)));
    // Its end is told by a script, which reads and removes.
    let end = RecordHeader {
        kind: RecordKind::UnknownSession,
        ..record(client.address(), 0, 1)
    };
    owner.send(testbed.relay_internal(0), &[(end, &[])]);
    redis.wait(&key(&client), None);
    let log = relay.stop_warned();
    assert!(!log.contains("horse"), "{log}");
    // Two seconds without processor time are an outage, which is none of the test's.
    let known = |line: &str| line.contains("out of reach") && line.contains("in time");
    let mut warnings = log.lines().filter(|line| line.contains(" WARN "));
    assert!(warnings.all(known), "{log}");
}

/// A relay with these settings says once why it cannot reach the Redis, and no password.
fn cannot(testbed: &Testbed, settings: &[(&'static str, String)], cause: &str) {
    let relay = testbed.relay(settings);
    until("it says so", || {
        relay.log().contains("out of reach").then_some(())
    });
    assert_eq!(relay.whole("redis_up"), Some(0));
    let log = relay.stop_warned();
    assert_eq!(log.matches(" WARN ").count(), 1, "{log}");
    assert!(log.contains(cause), "'{cause}' is missing in: {log}");
    for secret in ["horse", "wrong"] {
        assert!(!log.contains(secret), "{log}");
    }
}

#[test]
fn a_password_comes_with_the_url_or_in_a_file_and_never_shows() {
    let testbed = Testbed::new();
    let redis = Redis::start(&testbed, &["--requirepass", PASSWORD]);
    let address = testbed.redis();
    let in_url = format!("redis://:correct%2Fhorse%20battery@{address}");
    writes(&testbed, &redis, &[("--redis", in_url)]);
    let file = testbed.file("password");
    fs::write(&file, format!("{PASSWORD}\n")).expect("written");
    let in_file = [
        ("--redis", format!("redis://{address}")),
        ("--redis-password-file", file.display().to_string()),
    ];
    writes(&testbed, &redis, &in_file);
    let wrong = format!("redis://:wrong-horse@{address}");
    cannot(&testbed, &[("--redis", wrong)], "authentication failed");
    cannot(&testbed, &[("--redis", redis.url())], "NOAUTH");
}

/// A server without RESP3 repeats the password in its error when it is asked for that.
#[test]
fn a_password_does_not_show_whatever_protocol_the_url_asks_for() {
    let testbed = Testbed::new();
    let settings = ["--requirepass", PASSWORD, "--rename-command", "HELLO", ""];
    let redis = Redis::start(&testbed, &settings);
    let address = testbed.redis();
    let url = format!("redis://:correct%2Fhorse%20battery@{address}?protocol=resp3");
    writes(&testbed, &redis, &[("--redis", url)]);
}

fn pem(kind: &str, der: &[u8]) -> String {
    pem::encode(&pem::Pem::new(kind, der))
}

/// Makes a certification authority and a certificate for the Redis' address, and returns the settings of a Redis that uses it.
fn certificates(testbed: &Testbed) -> Vec<String> {
    let mut authority = CertificateParams::new(Vec::new()).expect("parameters");
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority_key = KeyPair::generate().expect("a key");
    let certificate = authority.self_signed(&authority_key).expect("signed");
    let issuer = Issuer::new(authority, authority_key);
    let names = vec![testbed.redis().ip().to_string()];
    let key = KeyPair::generate().expect("a key");
    let server = CertificateParams::new(names)
        .and_then(|parameters| parameters.signed_by(&key, &issuer))
        .expect("signed");
    let write = |name, text: String| {
        let file = testbed.file(name);
        fs::write(&file, text).expect("written");
        file.display().to_string()
    };
    [
        ("--tls-port", "6380".to_owned()),
        ("--tls-auth-clients", "no".to_owned()),
        (
            "--tls-ca-cert-file",
            write("ca.pem", pem("CERTIFICATE", certificate.der())),
        ),
        (
            "--tls-cert-file",
            write("server.pem", pem("CERTIFICATE", server.der())),
        ),
        (
            "--tls-key-file",
            write("key.pem", pem("PRIVATE KEY", &key.serialize_der())),
        ),
    ]
    .into_iter()
    .flat_map(|(name, value)| [name.to_owned(), value])
    .collect()
}

#[test]
fn a_redis_over_tls_is_reached_if_its_certificate_is_trusted() {
    let testbed = Testbed::new();
    let mut settings = certificates(&testbed);
    settings.extend(["--requirepass".to_owned(), PASSWORD.to_owned()]);
    let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
    let redis = Redis::start(&testbed, &settings);
    let host = testbed.redis().ip();
    let password = testbed.file("password");
    fs::write(&password, PASSWORD).expect("written");
    let reach = |ca: &str| {
        vec![
            ("--redis", format!("rediss://{host}:6380")),
            ("--redis-password-file", password.display().to_string()),
            ("--redis-ca-file", testbed.file(ca).display().to_string()),
        ]
    };
    writes(&testbed, &redis, &reach("ca.pem"));
    // Another authority has signed nothing of it.
    let other = KeyPair::generate().expect("a key");
    let mut stranger = CertificateParams::new(Vec::new()).expect("parameters");
    stranger.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let stranger = stranger.self_signed(&other).expect("signed");
    fs::write(
        testbed.file("other.pem"),
        pem("CERTIFICATE", stranger.der()),
    )
    .expect("written");
    cannot(&testbed, &reach("other.pem"), "certificate");
}

/// With the rights that docs/relay.md names, and no others.
#[test]
fn a_user_of_its_own_needs_few_rights() {
    let testbed = Testbed::new();
    let rights = "+ping +get +set +del +getrange +eval";
    let mut settings = vec!["--user", "relay", "on", ">horse", "~firsthop:flow:*"];
    settings.extend(rights.split(' '));
    let redis = Redis::start(&testbed, &settings);
    let url = |user: &str| format!("redis://{user}:horse@{}", testbed.redis());
    writes(&testbed, &redis, &[("--redis", url("relay"))]);
    cannot(
        &testbed,
        &[("--redis", url("nobody"))],
        "authentication failed",
    );
}

#[test]
fn a_redis_on_a_unix_socket_is_reached() {
    let testbed = Testbed::new();
    let socket = testbed.file("redis.sock").display().to_string();
    let redis = Redis::start(&testbed, &["--unixsocket", &socket]);
    writes(&testbed, &redis, &[("--redis", format!("unix://{socket}"))]);
    wait_up_again(&testbed, &socket);
}

/// The same with the scheme that Redis clients also know.
fn wait_up_again(testbed: &Testbed, socket: &str) {
    let relay = testbed.relay(&[("--redis", format!("redis+unix://{socket}"))]);
    wait_up(&relay, 1);
    relay.stop();
}
