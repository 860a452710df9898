//! What the tests play on: stub transceivers, key files in a folder of their own, and front doors on loopback.
//!
//! Nothing runs in the background but the servers: a test polls transceivers and files itself, so that it waits for no timer.

mod folder;
mod front;
mod stub;
mod told;

use std::time::Duration;

use firsthop_signaling::owner::Patience;

pub(crate) use folder::{Stage, certificate, key_file};
pub(crate) use front::Front;
pub(crate) use stub::{Reply, Stub};
pub(crate) use told::{Told, header, told};

/// How long anything that must happen may take. Only a failing test waits so long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// What a front door grants its transceivers: nothing runs out while a slow machine runs a test.
pub(crate) const PATIENT: Patience = Patience {
    status: PATIENCE,
    fresh: Duration::from_secs(600),
    create: PATIENCE,
    hang_up: PATIENCE,
};

pub(crate) const KEY: &str = "dev-key-8c1f60";
pub(crate) const SECRET: &str = "control-secret-51ab77";
pub(crate) const ANSWER: &str = "v=0\r\no=- 9 1 IN IP4 127.0.0.1\r\ns=-\r\nt=0 0\r\n";
pub(crate) const OFFER: &str = "v=0\r\no=- 1 2 IN IP4 127.0.0.1\r\ns=-\r\nt=0 0\r\nm=audio 9 UDP/TLS/RTP/SAVPF 111\r\n\
    a=ice-ufrag:clientufrag\r\na=ice-pwd:clientpassword0123456789\r\na=fingerprint:sha-256 AA:BB\r\n";
