//! Every bound that two programs share, each written once.
//!
//! Full means a defined, counted refusal, never growth. Bounds of one program alone stand in that program's own `limits`.

/// The longest ICE ufrag that RFC 8839 section 5.4 allows, in characters.
pub const ICE_UFRAG_MAX: usize = 256;

/// Length of a routable ufrag that names an IPv4 owner, in characters.
pub const UFRAG_LEN_IPV4: usize = 42;

/// Length of a routable ufrag that names an IPv6 owner, in characters.
pub const UFRAG_LEN_IPV6: usize = 58;

/// Length of a derived ICE password, in characters (RFC 8839 asks for 22 or more).
pub const ICE_PASSWORD_LEN: usize = 24;

/// The largest trunk datagram, in bytes of UDP payload: a 9,000-byte path MTU less IP and UDP headers.
pub const TRUNK_DATAGRAM_MAX: usize = 8_960;

/// The trunk datagram for a 1,500-byte path MTU: less 40 bytes of IPv6 and 8 of UDP, so that it fits either family.
pub const TRUNK_DATAGRAM_ETHERNET: usize = 1_452;

/// The largest client packet that a record carries, in bytes. WebRTC keeps under 1,200; DTLS and IP allow 1,500.
pub const CLIENT_PACKET_MAX: usize = 1_900;

/// How many records one trunk datagram holds at the most. The largest datagram has room for 114 voice packets of 60 bytes.
pub const TRUNK_RECORDS_MAX: usize = 128;

/// How far back a replay window reaches, in sequence numbers.
pub const REPLAY_WINDOW: u32 = 1_024;

/// How many trunk senders (boot ids) a receiver remembers: every owner's worker that a relay core may serve, with room for
/// those that restarted. One that has been silent makes room.
///
/// Relays of other clusters count, too. Their cores ask a relay's first core, and each of them that sends it records is a
/// sender at the core that these reach; what answers, and what passes an owner's records on, is a second one. So it is enough
/// for 1,024 cores of other clusters beside 6,144 workers of owners, restarts included; with more, windows of silent ones go.
pub const REPLAY_SENDERS: usize = 8_192;

/// How long a flow without packets is kept, in seconds.
pub const FLOW_IDLE_SECS: u32 = 30;

/// How long a call may take to connect, in seconds, before it is reaped.
pub const CONNECT_SECS: u64 = 30;

/// How long an interrupted session waits for its client, in seconds.
pub const INTERRUPTED_SECS: u64 = 15;

/// How long a connection to a control port may be idle, in seconds, until the transceiver closes it. Signaling gives it up earlier, so
/// that no request meets a connection that is just being closed.
pub const CONTROL_IDLE_SECS: u64 = 10;

/// The largest SDP offer, in bytes. A browser's audio offer has about 3 KiB, one with video about 8 KiB.
pub const SDP_MAX: usize = 64 * 1_024;

/// The longest name of a WHIP application, in bytes.
pub const APP_NAME_MAX: usize = 64;

/// How many ingress addresses an answer may advertise.
pub const INGRESSES_PER_ANSWER_MAX: usize = 8;

/// How many workers an owner may have: a shard is one byte.
pub const SHARDS_MAX: usize = 256;

/// How many cores a relay may run: each has an internal port of its own.
pub const CORES_MAX: u16 = 256;

/// How many relays a fleet lists, over all its clusters.
pub const FLEET_RELAYS_MAX: usize = 256;

/// The largest file (keyring, fleet, API keys) that is read, in bytes.
pub const CONFIG_FILE_MAX: u64 = 4 * 1_024 * 1_024;

const _: () = {
    assert!(UFRAG_LEN_IPV4 <= UFRAG_LEN_IPV6 && UFRAG_LEN_IPV6 <= ICE_UFRAG_MAX);
    assert!(TRUNK_DATAGRAM_ETHERNET <= TRUNK_DATAGRAM_MAX);
    assert!(CLIENT_PACKET_MAX < TRUNK_DATAGRAM_MAX);
    assert!(REPLAY_WINDOW.is_power_of_two() && REPLAY_WINDOW.is_multiple_of(64));
};
