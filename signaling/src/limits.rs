//! Every bound that signaling alone has, each written once; bounds it shares with others stand in `firsthop_shared::limits`.

use std::time::Duration;

use firsthop_shared::limits::SDP_MAX;

/// The largest request body, in bytes: an offer.
pub const BODY_MAX: usize = SDP_MAX;

/// How long a client may take to send its request head: a slow sender must not hold a connection for ever.
pub const HEAD_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a client may take to send its request body.
pub const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// How many client connections are served at once; more wait in the kernel's accept queue.
pub const CONNECTIONS_MAX: usize = 8_192;

/// How long open requests may go on after a stop was asked for.
pub const STOP_GRACE: Duration = Duration::from_secs(10);

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

/// The largest response of a transceiver that is read, in bytes: an answer, or the status of 256 shards.
pub const OWNER_RESPONSE_MAX: usize = 2 * SDP_MAX;

/// How many transceivers are polled at the most; more addresses than that are left out, and said so.
pub const TRANSCEIVERS_MAX: usize = 1_024;

/// How many ufrags are minted for one call at the most, when owners answer that a session id is taken or a shard unknown.
pub const MINTS_MAX: usize = 4;

/// What `Retry-After` says when no transceiver is free, in seconds: by then there is a new status.
pub const RETRY_AFTER_SECS: u64 = 2;

/// The longest API key that is looked at, in bytes.
pub const API_KEY_MAX: usize = 512;

/// How many API keys a file may hold: each request is compared with every one.
pub const API_KEYS_MAX: usize = 10_000;

/// The longest name of an API key, in bytes: it stands in logs.
pub const KEY_NAME_MAX: usize = 64;

/// The longest request id that is taken over from a client, in bytes.
pub const REQUEST_ID_MAX: usize = 128;

const _: () = {
    assert!(STATUS_TIMEOUT.as_millis() < POLL_INTERVAL.as_millis());
    assert!(STATUS_FRESH.as_millis() > 3 * POLL_INTERVAL.as_millis());
    assert!(OWNER_CONNECT_TIMEOUT.as_millis() < CREATE_TIMEOUT.as_millis());
    assert!(OWNER_RESPONSE_MAX > SDP_MAX);
    // A call that is tried twice may still finish after a stop was asked for.
    assert!(STOP_GRACE.as_millis() > 2 * CREATE_TIMEOUT.as_millis());
};
