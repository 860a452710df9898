//! Every bound that signaling alone has, each written once; bounds it shares with others stand in `firsthop_shared::limits`.

use std::num::NonZeroUsize;
use std::time::Duration;

use firsthop_service::limits::{HEAD_BYTES_PARSED, HEADERS_PARSED};
use firsthop_service::server::Limits;
use firsthop_shared::limits::{CONTROL_IDLE_SECS, SDP_MAX};

/// The largest request body, in bytes: an offer and a session configuration, with what JSON or a form adds.
pub const BODY_MAX: usize = SDP_MAX + 2 * SESSION_CONFIG_MAX + 16 * 1_024;

/// The longest URL of a request, in bytes; those of this API have some hundred. Above 65,534 it is refused before this bound is looked at.
pub const URL_MAX: usize = 8 * 1_024;

/// How many headers a request may have. Proxies and a CDN add a dozen each.
pub const HEADERS_MAX: usize = 100;

/// How large the headers of a request may be together, in bytes as they are sent: the longest bearer token, and as much beside it.
pub const HEADERS_BYTES_MAX: usize = 64 * 1_024;

/// What the API allows: a slow sender must not hold a connection for ever.
pub const API: Limits = Limits {
    connections: 8_192,
    head: Duration::from_secs(10),
    body: Duration::from_secs(10),
    stop: Duration::from_secs(10),
};

/// How many connections of the API one client address may hold when no setting says otherwise: as many as [`ADDRESS_RATE_DEFAULT`] lets it
/// make requests at once, and so far from all of them that a few addresses do not shut out the others.
pub const ADDRESS_CONNECTIONS_DEFAULT: NonZeroUsize = NonZeroUsize::new(2_048).unwrap();

/// How many requests one client address may make when no setting says otherwise, a second and at once.
pub const ADDRESS_RATE_DEFAULT: &str = "200/2000";

/// What the metrics port allows: scrapers, and a person's browser.
pub const METRICS: Limits = Limits {
    connections: 64,
    body: Duration::from_secs(5),
    stop: Duration::from_secs(1),
    ..API
};

/// The largest request body that the metrics port takes, in bytes: there is nothing to send.
pub const METRICS_BODY_MAX: usize = 0;

/// How long an idle connection to a transceiver or to another cluster's signaling is kept: they close theirs later than that, so no
/// request meets a connection that is just being closed.
pub const IDLE_MAX: Duration = Duration::from_secs(5);

/// How often each transceiver is asked for its status, and each file is looked at.
pub const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// How long one status request may take: less than the interval, so that rounds do not overlap.
pub const STATUS_TIMEOUT: Duration = Duration::from_millis(900);

/// How long a good status counts as recent: one lost poll is no verdict, three are.
pub const STATUS_FRESH: Duration = Duration::from_millis(3_500);

/// How long a connection to a transceiver's control port may take to open.
pub const OWNER_CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// How long a transceiver may take to make an answer: two tries must fit into what a person waits for.
pub const CREATE_TIMEOUT: Duration = Duration::from_secs(4);

/// How long a transceiver may take to end a session.
pub const HANG_UP_TIMEOUT: Duration = Duration::from_secs(3);

/// The largest response of a transceiver that is read, in bytes: an answer, which repeats parts of the offer and each byte of which JSON may
/// write as six, or the status of 256 shards.
pub const OWNER_RESPONSE_MAX: usize = 8 * SDP_MAX;

/// How many transceivers are polled at the most; more addresses than that are left out, and said so.
pub const TRANSCEIVERS_MAX: usize = 1_024;

/// How many ufrags are minted for one call at the most, when owners answer that a session id is taken.
pub const MINTS_MAX: usize = 4;

/// How many are minted for one at the most when owners answer that a shard is unknown: each such answer takes that one and all behind it out of the
/// choice, about half of those of a transceiver that came back with few of many.
pub const SHARDS_TRIED_MAX: usize = 16;

/// What `Retry-After` says when no transceiver is free, in seconds: by then there is a new status.
pub const RETRY_AFTER_SECS: u64 = 2;

/// The largest session configuration, in bytes of JSON: it travels in client secrets, and those in a header.
pub const SESSION_CONFIG_MAX: usize = 16 * 1_024;

/// How deeply the objects and arrays of a session configuration may be nested. Parsers stop at 128, and the configuration travels within
/// other objects.
pub const SESSION_CONFIG_DEPTH_MAX: usize = 64;

/// How many tools a session configuration may hold.
pub const TOOLS_MAX: usize = 128;

/// The longest bearer token that is looked at, in bytes: a client secret with the largest session configuration, and its other claims.
pub const BEARER_MAX: usize = (SESSION_CONFIG_MAX + 4 * 1_024) / 3 * 4;

/// How many seconds a client secret may be good for, at the least and at the most (OpenAI's bounds).
pub const SECRET_SECONDS: std::ops::RangeInclusive<u64> = 10..=7_200;

/// How many seconds a client secret is good for when the request does not say.
pub const SECRET_SECONDS_DEFAULT: u64 = 600;

/// How many web origins a client secret may name.
pub const ORIGINS_MAX: usize = 16;

/// The longest web origin, in bytes.
pub const ORIGIN_MAX: usize = 256;

/// How many client addresses have a rate limit of their own at once; those above share one.
pub const RATED_ADDRESSES_MAX: usize = 65_536;

/// How many sidebands one replica carries at once.
pub const SIDEBANDS_MAX: usize = 16_384;

/// How long the handshake of a sideband with the owner may take, and how long one side may go on after the other has ended.
pub const SIDEBAND_TIMEOUT: Duration = Duration::from_secs(5);

/// How long another cluster's signaling may take to answer: its own two tries, and the way there.
pub const PEER_TIMEOUT: Duration = Duration::from_secs(12);

/// How often other clusters and ingress points are asked whether they are well.
pub const HEALTH_INTERVAL: Duration = Duration::from_secs(2);

/// How long one such question may take.
pub const HEALTH_TIMEOUT: Duration = Duration::from_millis(1_500);

/// After how many failed questions in a row an ingress point or a cluster counts as ill.
pub const HEALTH_FAILURES: u8 = 2;

/// How long a request that another cluster forwarded is believed, in seconds: clocks differ.
pub const FORWARD_FRESH_SECS: u64 = 60;

/// How many ingress points an answer names when it is known where the client is: the nearest, and one to fall back on.
pub const NEAREST_INGRESSES: usize = 2;

/// How many API keys a file may hold: each request is compared with every one.
pub const API_KEYS_MAX: usize = 10_000;

/// The longest name of an API key, in bytes: it stands in logs.
pub const KEY_NAME_MAX: usize = 64;

/// The longest request id that is taken over from a client, in bytes.
pub const REQUEST_ID_MAX: usize = 128;

const _: () = {
    assert!(HEADERS_MAX < HEADERS_PARSED && URL_MAX + HEADERS_BYTES_MAX < HEAD_BYTES_PARSED);
    assert!(HEADERS_BYTES_MAX > 2 * BEARER_MAX);
    assert!(ADDRESS_CONNECTIONS_DEFAULT.get() <= API.connections / 4);
    assert!(PEER_TIMEOUT.as_millis() > 2 * CREATE_TIMEOUT.as_millis());
    assert!(HEALTH_TIMEOUT.as_millis() < HEALTH_INTERVAL.as_millis());
    assert!(STATUS_TIMEOUT.as_millis() < POLL_INTERVAL.as_millis());
    assert!(STATUS_FRESH.as_millis() > 3 * POLL_INTERVAL.as_millis());
    assert!(OWNER_CONNECT_TIMEOUT.as_millis() < CREATE_TIMEOUT.as_millis());
    assert!(OWNER_RESPONSE_MAX > 7 * SDP_MAX);
    // A call that is tried twice may still finish after a stop was asked for.
    assert!(API.stop.as_millis() > 2 * CREATE_TIMEOUT.as_millis());
    assert!(IDLE_MAX.as_secs() < CONTROL_IDLE_SECS && IDLE_MAX.as_secs() < API.head.as_secs());
};
