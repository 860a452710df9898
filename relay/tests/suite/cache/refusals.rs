//! Settings of the cache that cannot be used: each stops the start with one line, which holds no password.

use std::fs;
use std::process::{Command, Output};

use crate::settings::assert_refused;
use crate::testbed::{Testbed, process};

fn run(testbed: &Testbed, settings: &[(&'static str, &str)]) -> Output {
    let mut all = testbed.settings();
    all.extend(
        settings
            .iter()
            .map(|(name, value)| (*name, (*value).to_owned())),
    );
    process::run(&all)
}

const GOOD: (&str, &str) = ("--redis", "redis://127.0.0.1:6379");

#[test]
fn a_redis_url_that_is_none() {
    let testbed = Testbed::new();
    for url in [
        "",
        "127.0.0.1:6379",
        "http://127.0.0.1:6379",
        "redis://",
        "redis://:horse@",
        "redis://user:horse@0.0.0.0:6379",
        "redis://user:horse@127.0.0.1:99999",
        "redis://user:horse@127.0.0.1:0",
        "redis://user:horse@127.0.0.1:",
        "redis://user:horse@127.0.0.1:6379/one",
        "redis://user:horse@127.0.0.1:6379/?protocol=9",
        "redis://user:hor se@[::1",
        "rediss://user:horse@127.0.0.1:6379/#horse",
    ] {
        let output = run(&testbed, &[("--redis", url)]);
        assert_refused(&output, &["--redis: ", "redis://10.0.0.5:6379"]);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(!error.contains("hor"), "{url}: {error}");
    }
}

#[test]
fn a_redis_whose_certificate_is_not_to_be_checked() {
    let testbed = Testbed::new();
    let url = "rediss://user:horse@127.0.0.1:6379/#insecure";
    let output = run(&testbed, &[("--redis", url)]);
    assert_refused(&output, &["--redis: ", "#insecure", "--redis-ca-file"]);
    assert!(!String::from_utf8_lossy(&output.stderr).contains("horse"));
}

#[test]
fn a_password_or_certificates_for_no_redis() {
    let testbed = Testbed::new();
    for setting in ["--redis-password-file", "--redis-ca-file"] {
        let output = run(&testbed, &[(setting, "/nowhere")]);
        assert_refused(&output, &[setting, "there is no --redis"]);
    }
}

#[test]
fn a_password_file_that_holds_none() {
    let testbed = Testbed::new();
    let file = testbed.file("password").display().to_string();
    let setting = ("--redis-password-file", file.as_str());
    let parts = ["--redis-password-file", "password", "on one line"];
    assert_refused(&run(&testbed, &[GOOD, setting]), &parts);
    for text in ["", "\n", "horse\nhorse\n"] {
        fs::write(&file, text).expect("written");
        let output = run(&testbed, &[GOOD, setting]);
        assert_refused(&output, &parts);
        assert!(!String::from_utf8_lossy(&output.stderr).contains("horse"));
    }
}

#[test]
fn two_passwords() {
    let testbed = Testbed::new();
    let file = testbed.file("password").display().to_string();
    fs::write(&file, "horse").expect("written");
    let output = run(
        &testbed,
        &[
            ("--redis", "redis://:horse@127.0.0.1:6379"),
            ("--redis-password-file", &file),
        ],
    );
    assert_refused(&output, &["--redis-password-file", "one of the two"]);
    assert!(!String::from_utf8_lossy(&output.stderr).contains("horse"));
}

#[test]
fn certificates_that_are_none_or_for_nothing() {
    let testbed = Testbed::new();
    let file = testbed.file("ca.pem").display().to_string();
    let setting = ("--redis-ca-file", file.as_str());
    let tls = ("--redis", "rediss://127.0.0.1:6380");
    let parts = ["--redis-ca-file", "ca.pem", "PEM"];
    assert_refused(&run(&testbed, &[tls, setting]), &parts);
    for text in [
        "nonsense",
        "-----BEGIN CERTIFICATE-----\nnonsense\n-----END CERTIFICATE-----\n",
    ] {
        fs::write(&file, text).expect("written");
        assert_refused(&run(&testbed, &[tls, setting]), &parts);
    }
    let output = run(&testbed, &[GOOD, setting]);
    assert_refused(&output, &["--redis-ca-file", "without TLS", "rediss://"]);
}

#[test]
fn questions_out_of_range() {
    let testbed = Testbed::new();
    for number in ["0", "9", "1000001"] {
        let output = run(&testbed, &[GOOD, ("--redis-questions", number)]);
        assert_refused(&output, &["--redis-questions", "choose 10 to 1000000"]);
    }
    let output = run(&testbed, &[GOOD, ("--redis-questions", "many")]);
    assert_refused(&output, &["--redis-questions", "many"]);
}

/// Help shows the values of the environment, but not this one.
#[test]
fn help_does_not_tell_a_url_of_the_environment() {
    let output = Command::new(env!("CARGO_BIN_EXE_relay"))
        .arg("--help")
        .env_clear()
        .env("FIRSTHOP_REDIS", "redis://user:horse@127.0.0.1:6379")
        .output()
        .expect("the relay runs");
    assert!(output.status.success());
    let help = String::from_utf8_lossy(&output.stdout);
    assert!(
        help.contains("FIRSTHOP_REDIS") && !help.contains("horse"),
        "{help}"
    );
}
