//! Bounds of the transceiver alone that more than one part of it, or an operator, has to know; what two programs share stands in
//! [`firsthop_shared::limits`].
//!
//! Full means a defined, counted refusal or drop, never growth.

use std::time::Duration;

use firsthop_service::server::Limits;
use firsthop_shared::limits::{CONNECT_SECS, CONTROL_IDLE_SECS, INTERRUPTED_SECS};

/// How long a call may take from its offer to DTLS being up; then it is reaped and counted.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(CONNECT_SECS);

/// How long a live session may hear nothing provable from its client before it counts as interrupted.
///
/// Browsers refresh consent every 2.5 to 5 s and we check every 3 s, so three lost rounds in a row make an interruption.
pub const SILENCE_BEFORE_INTERRUPTED: Duration = Duration::from_secs(10);

/// How long an interrupted session waits for its client before it ends.
pub const INTERRUPTED_GRACE: Duration = Duration::from_secs(INTERRUPTED_SECS);

/// How long a session may take at most, whatever signaling asks: as long as OpenAI's own.
pub const SESSION_MAX: Duration = Duration::from_secs(60 * 60);

/// How long running sessions may go on after SIGTERM, unless the settings say so: most calls are over by then.
pub const DRAIN_DEFAULT: Duration = Duration::from_secs(10 * 60);

/// How long before its end a session's client is warned.
pub const EXPIRY_WARNING: Duration = Duration::from_secs(60);

/// How long a session that has reached its length stays, so that its client receives the event that says so.
pub const EXPIRY_GRACE: Duration = Duration::from_millis(500);

/// How long an answered check of ours lets us send to a path (RFC 7675 section 5.1).
pub const CONSENT: Duration = Duration::from_secs(30);

/// How many different addresses a session's answers may advertise in its life.
pub const ADDRESSES_PER_SESSION: usize = 32;

/// How many (client address, ingress) pairs a session remembers. A phone has a few; the oldest unproven one makes room.
pub const PATHS_PER_SESSION: usize = 24;

/// How many paths a session may bring up between two ICE restarts.
///
/// The ICE agent keeps an entry of some 200 bytes for each remote address that it ever saw, until the next restart.
pub const PATHS_PER_GENERATION: usize = 512;

/// How many unanswered connectivity checks are remembered per session; an answer to an older one proves nothing.
pub const CHECKS_IN_FLIGHT: usize = 64;

/// How many DTLS packets wait for the check that validates their address: a ClientHello, and its repetitions.
pub const EARLY_PACKETS: usize = 4;

/// How many SSRCs that no SDP announced a session accepts (embedded clients announce none).
pub const UNANNOUNCED_SSRCS: usize = 4;

/// The largest message that a client may send on the channel, in bytes: what Chrome accepts itself.
pub const CHANNEL_MESSAGE_MAX: u32 = 256 * 1_024;

/// The largest message that the engine takes from a client, in bytes: more than is announced, because one above this ends the association, and
/// with it the call, without a word. As much as the engine holds of unfinished messages anyway.
pub const CHANNEL_TAKEN_MAX: u32 = 1_024 * 1_024;

/// What a client may receive when its offer does not say, in bytes (RFC 8841 section 6.1).
pub const CHANNEL_REMOTE_MESSAGE_DEFAULT: usize = 64 * 1_024;

/// The largest event that is sent to a client, in bytes, whatever more the client would take: no event of a call needs more.
pub const CHANNEL_SEND_MAX: usize = 256 * 1_024;

/// How much the engine holds of what was written to the channels of a session and is not acknowledged, in bytes; its own bookkeeping adds a
/// quarter. It takes nothing larger than what is left of this, so the largest event has to fit, and beside it some small ones on their way.
pub const CHANNEL_BUFFER: usize = CHANNEL_SEND_MAX + 64 * 1_024;

/// How long the engine may have no room for an event, and no byte be acknowledged, before that event is given up. It is longer than a live
/// session is without its client, so nobody's events are lost by a change of networks.
pub const CHANNEL_STALL: Duration = Duration::from_secs(30);

/// How long audio waits for SCTP, or for the channel that the offer announced; then it is sent without.
pub const CHANNEL_WAIT: Duration = Duration::from_secs(2);

/// How soon a full channel is tried again.
pub const CHANNEL_RETRY: Duration = Duration::from_millis(100);

/// RTCP packets per second of a client: browsers send a few. Each may hold 31 reports, which the engine keeps for some seconds.
pub const RTCP_PER_SEC: u32 = 50;

/// How many may come at once before the rate counts.
pub const RTCP_BURST: u32 = 100;

/// Client messages per second on the channel, as a token bucket's refill.
pub const CHANNEL_MESSAGES_PER_SEC: u32 = 50;

/// How many client messages may come at once before the rate counts.
pub const CHANNEL_MESSAGES_BURST: u32 = 200;

/// Bytes of client messages per second on the channel, as a token bucket's refill: what is refused is not parsed.
pub const CHANNEL_BYTES_PER_SEC: u32 = 128 * 1_024;

/// How many bytes of client messages may come at once before the rate counts: two of the largest.
pub const CHANNEL_BYTES_BURST: u32 = 2 * CHANNEL_MESSAGE_MAX;

/// The longest `event_id` of a client that an error names, in bytes.
pub const CLIENT_EVENT_ID_MAX: usize = 512;

/// How many sidebands a session has at most.
pub const SIDEBANDS_PER_SESSION: usize = 4;

/// How many sidebands the process carries at once.
pub const SIDEBANDS_MAX: usize = 4_096;

/// How many events wait for a sideband; one that does not take them is cut off.
pub const SIDEBAND_EVENTS_WAITING: usize = 1_024;

/// How many bytes of events wait for a sideband, beside one event that is larger.
pub const SIDEBAND_BYTES_WAITING: usize = 4 * 1_024 * 1_024;

/// How often a sideband is pinged.
pub const SIDEBAND_PING: Duration = Duration::from_secs(15);

/// How long a sideband may send nothing, not even the answer to a ping, and how long it may take for one event.
pub const SIDEBAND_SILENCE: Duration = Duration::from_secs(45);

/// How long the end of a sideband may take.
pub const SIDEBAND_GOODBYE: Duration = Duration::from_secs(2);

/// How many media sections an offer may have.
pub const SDP_SECTIONS_MAX: usize = 32;

/// The grid on which a worker wakes for audio.
///
/// Sessions whose frames fall between two points leave together, packed. A coarser grid would pack more, but encode all of
/// a worker's sessions in one burst and delay each frame by half a step.
pub const AUDIO_GRID: Duration = Duration::from_millis(5);

/// How often what RTCP said is looked at: about as often as browsers report.
pub const STATS_INTERVAL: Duration = Duration::from_secs(5);

/// How many trunk datagrams a worker takes from its socket in one turn.
pub const DATAGRAMS_PER_TURN: usize = 64;

/// How many due timers a worker serves in one turn.
pub const TIMERS_PER_TURN: usize = 256;

/// How many control commands wait for a worker; then signaling is told 503.
pub const COMMANDS_WAITING: usize = 256;

/// How many commands a worker takes in one turn: an offer costs up to a millisecond.
pub const COMMANDS_PER_TURN: usize = 8;

/// How many sessions whose model server has spoken a worker serves in one turn.
pub const WAKES_PER_TURN: usize = 64;

/// How many neighbours (relay cores) a worker packs for at once in one turn; the oldest trunk is sent early to make room.
pub const HOPS_PER_TURN: usize = 256;

/// How many neighbours a worker remembers the paths to.
pub const HOPS_KNOWN: u16 = 1_024;

/// How often a worker looks whether what it knows of a path is old.
pub const PATHS_REFRESH: Duration = Duration::from_secs(1);

/// How many paths it asks the kernel about then, at the most.
pub const PATHS_PER_REFRESH: usize = 8;

/// How many flows a worker tells relays of per second whose sessions are not here. Where more come, as when all sessions of a worker end at
/// once, the others are told of when their clients send in a later second; those that do not stand until they have been idle.
pub const UNKNOWN_PER_SEC: usize = 1_000;

/// Receive and send buffer of the trunk socket, in bytes. A burst of 500 connects with 3 KiB each fits.
pub const SOCKET_BUFFER: usize = 4 * 1_024 * 1_024;

/// The first DTLS retransmission. RFC 6347 says 1 s for the open internet; ICE has just measured that the path lives.
pub const DTLS_FIRST_RETRANSMIT: Duration = Duration::from_millis(100);

/// How often a DTLS flight is repeated: with doubling from 100 ms this reaches past the connect timeout.
pub const DTLS_RETRANSMITS: usize = 8;

/// How many files a worker has open beside its sessions' connections: the trunk's socket, and what its runtime waits with.
pub const FILES_PER_WORKER: usize = 8;

/// How many files a session has open whose backend is a model server: its connection.
pub const FILES_PER_SESSION: usize = 1;

/// How many bytes of what a model server said wait for their session; then its socket is not read. The largest message, and half of that
/// again: with the playout's two minutes a server may be five ahead of what is heard.
pub const BACKEND_BYTES_WAITING: usize = BACKEND_MESSAGE_MAX * 3 / 2;

/// What each thing that a server said counts there beside its own bytes: the memory that keeps it. So it also bounds their number.
pub const BACKEND_EVENT_COST: usize = 128;

/// How many of them a session takes in one turn, when nothing comes of them that has to be played or told first.
pub const BACKEND_EVENTS_PER_TURN: usize = 1_024;

/// The largest message that is taken from a model server, in bytes: a minute and a half of audio in an item that was asked for.
pub const BACKEND_MESSAGE_MAX: usize = 8 * 1_024 * 1_024;

/// How many messages for a model server wait in its connection's queue: five seconds of audio.
pub const BACKEND_MESSAGES_WAITING: usize = 256;

/// How soon a full queue to a model server is tried again.
pub const BACKEND_RETRY: Duration = Duration::from_millis(50);

/// How many messages for a model server wait behind that queue; then audio is dropped, and events are refused.
pub const BACKEND_UNSENT_MESSAGES: usize = 256;

/// How many bytes of them wait.
pub const BACKEND_UNSENT_BYTES: usize = 2 * 1_024 * 1_024;

/// How much of what the client says is kept while there is no connection to a model server: the newest.
pub const BACKEND_HELD: Duration = Duration::from_secs(10);

/// How many events of the client's are kept meanwhile.
pub const BACKEND_HELD_EVENTS: usize = 64;

/// How many bytes of them are kept.
pub const BACKEND_HELD_BYTES: usize = 1_024 * 1_024;

/// How long one attempt to connect to a model server may take: name, TCP, TLS and handshake.
pub const BACKEND_CONNECT: Duration = Duration::from_secs(5);

/// How often in a row a connection to a model server is made again, before its session ends.
pub const BACKEND_ATTEMPTS: u32 = 6;

/// Model servers whose outage the log has told of; of any more it tells call by call.
pub const BACKEND_OUTAGES: usize = 256;

/// How long the log says nothing of another outage of a server, or of a key that it refuses, after a warning.
pub const BACKEND_OUTAGE_PAUSE: Duration = Duration::from_secs(60);

/// How long a session waits before the first of these.
pub const BACKEND_BACKOFF_FIRST: Duration = Duration::from_millis(250);

/// How long it waits at most.
pub const BACKEND_BACKOFF_MAX: Duration = Duration::from_secs(8);

/// After how long a connection counts as stable: the attempts before it are forgotten.
pub const BACKEND_STABLE: Duration = Duration::from_secs(30);

/// A server that goes away after this long gives its session no more time: they do so after an hour.
pub const BACKEND_LIFE: Duration = Duration::from_secs(55 * 60);

/// How often a model server is pinged.
pub const BACKEND_PING: Duration = Duration::from_secs(15);

/// How long a model server may send nothing at all, not even the answer to a ping.
pub const BACKEND_SILENCE: Duration = Duration::from_secs(45);

/// How long a model server may take no message.
pub const BACKEND_STALL: Duration = Duration::from_secs(15);

/// How long the last frame to a model server may take.
pub const BACKEND_GOODBYE: Duration = Duration::from_secs(1);

/// The largest configuration of a session that is remembered for a new connection, in bytes as JSON.
pub const BACKEND_SESSION_MAX: usize = 512 * 1_024;

/// How long a model server may be silent after its handshake, before it is taken to be ready all the same.
pub const BACKEND_HELLO: Duration = Duration::from_secs(2);

/// How long a bot that does not say when it has ended may say nothing, before its response is taken to be over.
pub const BACKEND_QUIET: Duration = Duration::from_millis(1_500);

/// How much of what a bot says in one response is told again at its end, in bytes.
pub const BACKEND_TRANSCRIPT_MAX: usize = 64 * 1_024;

/// How long a session whose model server has gone for good may play what that has said.
pub const BACKEND_LAST_WORDS: Duration = Duration::from_secs(10);

/// The same when the server itself has ended the session: longer than what a playout holds, and one message beside it.
pub const BACKEND_FAREWELL: Duration = Duration::from_secs(180);

/// The largest body of a control request, in bytes: an offer, escaped as JSON, and some fields.
pub const CONTROL_BODY_MAX: usize = 160 * 1_024;

/// What the control port allows. Signaling's replicas hold a few connections each; a scraper and a probe add theirs.
pub const CONTROL: Limits = Limits {
    connections: 1_024,
    head: Duration::from_secs(CONTROL_IDLE_SECS),
    body: Duration::from_secs(5),
    stop: STOP_TIMEOUT,
};

/// How long a control request waits for its worker.
pub const CONTROL_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a question of support's about a call waits for its worker: one that has no time for it has calls to serve.
pub const REPORT_TIMEOUT: Duration = Duration::from_secs(1);

/// How many of the last steps of a session's life are kept.
pub const STEPS_KEPT: usize = 16;

/// How many sessions that have ended are still told of, about a kilobyte each.
pub const ENDINGS_KEPT: usize = 256;

/// How long a stopping process lets its workers close their sessions.
pub const STOP_TIMEOUT: Duration = Duration::from_secs(3);

const _: () = {
    assert!(SIDEBAND_GOODBYE.as_millis() < STOP_TIMEOUT.as_millis());
    assert!(PATHS_PER_SESSION <= PATHS_PER_GENERATION);
    // The ICE agent gives up pairs above 100, the worst first.
    assert!(PATHS_PER_SESSION < 100);
    assert!(SILENCE_BEFORE_INTERRUPTED.as_secs() + INTERRUPTED_GRACE.as_secs() < CONSENT.as_secs());
    assert!(
        SILENCE_BEFORE_INTERRUPTED.as_secs() + INTERRUPTED_GRACE.as_secs()
            < CHANNEL_STALL.as_secs()
    );
    assert!(CHANNEL_SEND_MAX <= CHANNEL_BUFFER);
    assert!(CHANNEL_MESSAGE_MAX < CHANNEL_TAKEN_MAX);
    // A message is never larger than what the queue takes, and what a client may send is.
    assert!(
        BACKEND_MESSAGE_MAX + BACKEND_EVENT_COST <= BACKEND_BYTES_WAITING
            && BACKEND_BYTES_WAITING < u32::MAX as usize
    );
    // Three minutes of PCM at 24 kHz in base64, ten events a second with 300 bytes of JSON about each.
    assert!(BACKEND_BYTES_WAITING >= 3 * 60 * (64_000 + 10 * (300 + BACKEND_EVENT_COST)));
    assert!(
        CHANNEL_MESSAGE_MAX as usize <= BACKEND_HELD_BYTES
            && BACKEND_HELD_BYTES <= BACKEND_UNSENT_BYTES
    );
    assert!(CONTROL_BODY_MAX > 2 * firsthop_shared::limits::SDP_MAX);
};
