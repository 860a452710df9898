//! Every bound of one relay core, each written once.
//!
//! Full means a defined, counted refusal or eviction, never growth. What two programs share stands in
//! [`firsthop_shared::limits`].

use firsthop_shared::limits::{
    CLIENT_PACKET_MAX, FLOW_IDLE_SECS, TRUNK_DATAGRAM_ETHERNET, TRUNK_DATAGRAM_MAX,
    TRUNK_RECORDS_MAX,
};
use firsthop_shared::trunk::{DATAGRAM_HEADER_LEN, RECORD_HEADER_MAX};

use crate::time::Micros;

/// How many bits of a flow handle name the slot; the rest is the slot's generation.
pub const FLOW_SLOT_BITS: u32 = 20;

/// The most flows that one core can hold: what the handle can name.
pub const FLOWS_MAX: u32 = 1 << FLOW_SLOT_BITS;

/// Flows per core unless set.
pub const FLOWS_DEFAULT: u32 = 65_536;

/// One flow in this many may be provisional. The rest of the table is kept for proven ones, so that no number of valid
/// requests with borrowed source addresses can fill it.
pub const PROVISIONAL_SHARE: u32 = 4;

/// How many claims one flow can hold: the sessions that a packet without a ufrag is sent to.
pub const CLAIMS_PER_FLOW: usize = 2;

/// Owner workers (owner, shard) that one core can send to at a time, unless set. Of another cluster's workers each takes as many
/// as the cluster's relay has cores, because a client's address selects the core there: 1,000 workers behind a relay of 8 cores
/// are 8,000. The lanes to relays of other clusters and the ways back to relays of clients count, too: one for each of their
/// cores and each number that a worker has.
pub const TRUNKS_DEFAULT: u16 = 8_192;

/// How many provisional claims a new one that finds no free trunk looks at, for one that has its trunk for itself and gives way.
/// Claims whose owner others use as well free none, and stay.
pub const EVICTION_LOOKS: u32 = 32;

/// How long a provisional claim keeps its trunk at the least, in [ticks](crate::time::Micros::ticks): some round trips of the owner's
/// own check, which proves it.
pub const PROOF_TICKS: u32 = Micros(1_000_000).ticks();

/// Records that wait in open and ready datagrams, unless set. Whoever has the receive buffers sets what these can hold: records
/// of clients' packets, one for each claim of their flow, and all that the datagrams of other relays and owners carry.
pub const PENDING_DEFAULT: u32 = 16_384;

/// Records in one trunk datagram at the most, and so pieces per datagram.
pub const RECORDS_PER_DATAGRAM: u16 = TRUNK_RECORDS_MAX as u16;

/// The trunk datagram of a destination whose path MTU nobody has learned yet, in bytes of UDP payload.
pub const DATAGRAM_LIMIT_DEFAULT: u16 = TRUNK_DATAGRAM_ETHERNET as u16;

/// The smallest datagram limit that a path can set: the IPv6 minimum MTU of 1,280 less headers. Less is a lie of the path.
pub const DATAGRAM_LIMIT_MIN: u16 = 1_232;

/// How long the oldest record of a trunk may wait for company while the core is never idle, unless set.
pub const LINGER_DEFAULT: Micros = Micros(200);

/// How many entries of the expiry wheel one call looks at, unless the caller says otherwise.
pub const EXPIRY_BUDGET: u32 = 256;

/// Idle time after which a flow is forgotten, in [ticks](crate::time::Micros::ticks).
pub const FLOW_IDLE_TICKS: u32 = Micros(FLOW_IDLE_SECS as u64 * 1_000_000).ticks();

/// How many ticks one bucket of the expiry wheel spans, as a power of two: 16 ticks, 1.05 s.
pub const WHEEL_TICK_BITS: u32 = 4;

/// Requests from addresses without a proven flow that a core verifies in a millisecond, in the long run; the rest is dropped.
///
/// To verify a request costs as much as to forward several packets. This bounds what a flood of them takes from the calls
/// that are up, whose own checks are not counted (one per flow and tick): at 2 to 3 µs each, a fifth of the core.
pub const VERIFICATIONS_PER_MS: u32 = 64;

/// So many at once: what many clients that connect in one moment send.
pub const VERIFICATIONS_BURST: u32 = 1_024;

/// The pieces in which a file of flows is written and read, in bytes.
pub const HANDOVER_BUFFER: usize = 256 * 1_024;

/// Questions to the flow cache in any second, of all cores of a relay together, unless set.
pub const QUESTIONS_DEFAULT: u32 = 10_000;

/// The most that can be set: a Redis answers a few hundred thousand.
pub const QUESTIONS_MAX: u32 = 1_000_000;

/// The least that one core may have.
pub const QUESTIONS_PER_CORE_MIN: u32 = 10;

/// One in this many of a second's questions may be asked at once: the clients of a relay that has just been started all come
/// in the same moment. The rest is spread over the second.
pub const QUESTIONS_BURST_SHARE: u32 = 4;

/// How long a packet waits for the flow cache's answer. A core that sleeps looks a little later: together at most 200 ms.
pub const RECALL_WAIT: Micros = Micros(190_000);

/// How long a core remembers that the cache had nothing for a client, or did not answer in time.
pub const RECALL_DENIED: Micros = Micros(1_000_000);

/// Packets of one client that wait for its answer: 160 ms of voice.
pub const RECALL_PACKETS_PER_CLIENT: u8 = 8;

/// Packets of all clients of a core that wait. Each holds a receive buffer.
pub const RECALL_PACKETS: u16 = 128;

/// Clients that a core has asked about and remembers, at the least and at the most. Between them, twice as many as it can ask
/// about in a second, so that whom it has asked about is still there when the second is over.
pub const RECALL_CLIENTS: [u32; 2] = [256, 65_536];

/// Changes for the flow cache that wait until the pump takes them: after each internal datagram, and once a turn.
pub const CHANGES_MAX: usize = 512;

/// How often a relay of another cluster is asked whether it answers.
pub const PEER_INTERVAL: Micros = Micros(1_000_000);

/// A relay that left so many questions in a row without an answer may be down.
pub const PEER_UNANSWERED: u64 = 3;

/// It is down when no answer has come for so long, too: then the last of these answers is late.
pub const PEER_SILENCE: Micros = Micros(PEER_UNANSWERED * PEER_INTERVAL.0 + PEER_INTERVAL.0 / 10);

/// When a silent relay was not asked so often, because its asker was busy, it is looked at again after this time.
pub const PEER_RECHECK: Micros = Micros(PEER_INTERVAL.0 / 100);

/// So many answers in a row bring it back.
pub const PEER_ANSWERS_BACK: u32 = 3;

/// The payload of a keepalive that is answered, in bytes at the most. Ours have eight.
pub const KEEPALIVE_PAYLOAD_MAX: usize = 16;

/// Buckets of the expiry wheel.
pub const WHEEL_BUCKETS: u32 = 32;

const _: () = {
    // A deadline never reaches around the wheel onto the bucket that is being swept.
    assert!((FLOW_IDLE_TICKS >> WHEEL_TICK_BITS) + 2 < WHEEL_BUCKETS);
    assert!(WHEEL_BUCKETS.is_power_of_two());
    // A slot number and the end-of-list marks of the intrusive lists share 32 bits with two claims per slot.
    assert!(FLOWS_MAX as u64 * CLAIMS_PER_FLOW as u64 + (WHEEL_BUCKETS as u64) < u32::MAX as u64);
    assert!(PROVISIONAL_SHARE >= 2);
    // Each of a datagram's records may bring a change, and each flow that the expiry of a turn looks at.
    assert!(TRUNK_RECORDS_MAX <= CHANGES_MAX && EXPIRY_BUDGET as usize <= CHANGES_MAX);
    assert!(QUESTIONS_BURST_SHARE >= 2 && QUESTIONS_PER_CORE_MIN >= QUESTIONS_BURST_SHARE);
    assert!(RECALL_WAIT.0 < RECALL_DENIED.0 && RECALL_CLIENTS[0] <= RECALL_CLIENTS[1]);
    // The largest client packet alone may exceed an Ethernet datagram (it is sent in fragments), never the largest.
    assert!(DATAGRAM_HEADER_LEN + RECORD_HEADER_MAX + CLIENT_PACKET_MAX <= TRUNK_DATAGRAM_MAX);
    assert!(DATAGRAM_LIMIT_MIN <= DATAGRAM_LIMIT_DEFAULT);
    // Lengths of datagrams and counts of records are 16 bits.
    assert!(TRUNK_DATAGRAM_MAX <= u16::MAX as usize);
    assert!(TRUNK_RECORDS_MAX <= TRUNK_DATAGRAM_MAX);
};
