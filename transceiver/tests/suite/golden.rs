//! The whole answer to each offer in `tests/offers`, as `tests/answers` has it. Those of Chromium 156, Firefox 153 and aiortc are
//! captured from these programs; the embedded client's has what such devices send: SAVP, passive, a textual mid, no BUNDLE, an mDNS
//! candidate.
//!
//! `FIRSTHOP_BLESS=1 cargo nextest run -p firsthop-transceiver golden` writes the answers anew; the difference is then to be read.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use firsthop_shared::address::SessionId;
use firsthop_shared::control::CallKind;

use crate::peer::{make_session_with, two_ingresses};

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests")
        .join(name)
}

/// The names of all files there are, without their ending.
fn names(of: &str) -> BTreeSet<String> {
    let files = fs::read_dir(folder(of)).expect("a folder");
    files
        .map(|file| {
            let path = file.expect("a file").path();
            let stem = path.file_stem().expect("a name").to_str().expect("UTF-8");
            stem.to_owned()
        })
        .collect()
}

fn answer(name: &str) -> String {
    let offer = fs::read_to_string(folder("offers").join(format!("{name}.sdp"))).expect("an offer");
    let offer = offer.replace('\n', "\r\n");
    let now = Instant::now();
    let made = make_session_with(SessionId(1), &offer, &two_ingresses(), now, |new| {
        if name == "whip" {
            new.kind = CallKind::Whip;
        }
    });
    let (_, answer) = made.unwrap_or_else(|error| panic!("{name}: {error}"));
    answer.lines().map(without_chance).collect()
}

/// A line, less what each process or session has of its own.
fn without_chance(line: &str) -> String {
    let cut = |prefix: &str| line.strip_prefix(prefix).map(|_| format!("{prefix}*\n"));
    [
        "o=",
        "a=fingerprint:sha-256 ",
        "a=ssrc:",
        "a=msid:",
        "a=msid-semantic:",
    ]
    .into_iter()
    .find_map(cut)
    .unwrap_or_else(|| format!("{line}\n"))
}

#[test]
fn every_offer_is_answered_as_it_always_was() {
    let offers = names("offers");
    let bless = std::env::var_os("FIRSTHOP_BLESS").is_some();
    for name in &offers {
        let path = folder("answers").join(format!("{name}.sdp"));
        let answer = answer(name);
        if bless {
            fs::write(path, answer).expect("written");
        } else {
            let expected = fs::read_to_string(path).unwrap_or_default();
            assert_eq!(answer, expected, "the answer to {name}.sdp");
        }
    }
    assert_eq!(names("answers"), offers, "an answer for each offer");
}
