//! The owner's end: who the sessions of tests are, and how they are made.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use firsthop_shared::address::{ClusterId, IngressId, OwnerAddr, Restart, SessionId, ShardId};
use firsthop_shared::control::CallKind;
use firsthop_shared::keyring::{DataKeyring, Masters};
use firsthop_shared::token::{self, Route};
use firsthop_transceiver::audio::OpusMode;
use firsthop_transceiver::backend::Opened;
use firsthop_transceiver::dtls::Identity;
use firsthop_transceiver::limits;
use firsthop_transceiver::sdp::OfferError;
use firsthop_transceiver::session::{Advertised, Credentials, NewSession, Outbox, Session};

pub(crate) const CREATED: u64 = 1_700_000_000_000;

pub(crate) fn addr(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}

fn keyring() -> DataKeyring {
    let masters = Masters::new([7; 32]);
    DataKeyring::parse(&masters.data_toml()).expect("a keyring")
}

fn owner() -> OwnerAddr {
    OwnerAddr::new(addr("127.0.0.1:5000"))
}

fn route(session: SessionId, restart: u8) -> Route {
    Route {
        cluster: ClusterId(1),
        owner: owner(),
        shard: ShardId(0),
        restart: Restart(restart),
        session,
    }
}

pub(crate) fn credentials(session: SessionId, restart: u8) -> Credentials {
    let keyring = keyring();
    let ufrag = token::mint(keyring.active(), &route(session, restart));
    let password = token::ice_password(&keyring, ufrag.as_bytes()).expect("a password");
    Credentials { ufrag, password }
}

pub(crate) fn two_ingresses() -> Vec<Advertised> {
    vec![
        Advertised {
            ingress: IngressId(0),
            address: addr("203.0.113.10:3478"),
        },
        Advertised {
            ingress: IngressId(1),
            address: addr("203.0.113.20:3478"),
        },
    ]
}

pub(crate) fn make_session(
    id: SessionId,
    offer: &str,
    ingresses: &[Advertised],
    longest: Duration,
    now: Instant,
) -> Result<(Session, String), OfferError> {
    make_session_with(id, offer, ingresses, now, |new| new.longest = longest)
}

/// The same with what a test has to say about the session.
pub(crate) fn make_session_with(
    id: SessionId,
    offer: &str,
    ingresses: &[Advertised],
    now: Instant,
    edit: impl FnOnce(&mut NewSession<'_>),
) -> Result<(Session, String), OfferError> {
    make_session_to(id, offer, ingresses, now, edit, Opened::echo(7))
}

pub(super) fn make_session_to(
    id: SessionId,
    offer: &str,
    ingresses: &[Advertised],
    now: Instant,
    edit: impl FnOnce(&mut NewSession<'_>),
    opened: Opened,
) -> Result<(Session, String), OfferError> {
    let mut new = NewSession {
        id,
        created: CREATED,
        credentials: credentials(id, 0),
        offer,
        advertised: ingresses.to_vec(),
        seed: 0x1234_5678_9abc_def0,
        longest: limits::SESSION_MAX,
        idle: None,
        kind: CallKind::Realtime,
        codec: None,
        opus: OpusMode::default(),
    };
    edit(&mut new);
    let mut out = Outbox::default();
    let made = Session::create(
        Identity::process().expect("identity"),
        new,
        |_| opened,
        now,
        &mut out,
    )?;
    assert!(out.sends.is_empty(), "nothing leaves before a check came");
    Ok(made)
}
