//! A core's counters, as others see them: copied into atomics now and then, read by the admin thread.
//!
//! The packet path adds to plain integers. Ten times a second the core stores them here; nobody else writes. Each value is
//! one row of [`COUNTERS`] or [`GAUGES`], so that a new metric is one line.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use firsthop_relay_core::{Counters, FlowCounts, Reason};

use crate::lateness::{BUCKETS, Lateness};
use crate::peers::PublishedPeers;
use crate::ring::RingCounters;

/// Everything that a core publishes, at one moment.
#[derive(Clone, Copy, Debug)]
pub struct Snapshot<'a> {
    /// The router's counters.
    pub router: &'a Counters,
    /// The ring's counters.
    pub ring: &'a RingCounters,
    /// How full the flow table is.
    pub flows: FlowCounts,
    /// Owner workers that the core can send to.
    pub trunks: u32,
    /// Turns of the pump.
    pub turns: u64,
    /// Turns that slept.
    pub sleeps: u64,
}

/// One value: its metric name without the program's prefix, what it says, and where it comes from.
pub struct Value {
    /// Name. Prometheus appends `_total` to counters.
    pub name: &'static str,
    /// One sentence.
    pub help: &'static str,
    read: fn(&Snapshot<'_>) -> u64,
}

macro_rules! values {
    ($($name:literal, $help:literal, $read:expr;)*) => {
        &[$(Value { name: $name, help: $help, read: $read },)*]
    };
}

/// What only ever grows.
pub const COUNTERS: &[Value] = values! {
    "uplink_packets", "Client packets accepted for at least one owner", |s| s.router.uplink_packets;
    "uplink_bytes", "Bytes of client packets accepted", |s| s.router.uplink_bytes;
    "requests_verified", "STUN requests whose token and integrity verified", |s| s.router.requests_verified;
    "uplink_records", "Records packed for owners", |s| s.router.uplink_records;
    "uplink_datagrams", "Trunk datagrams closed for owners; records per datagram is the packing factor", |s| s.router.uplink_datagrams;
    "uplink_datagrams_oversize", "Trunk datagrams larger than the path takes, sent as fragments", |s| s.router.uplink_oversize;
    "trunk_datagrams_sent", "Trunk datagrams that the kernel took", |s| s.ring.messages_sent;
    "trunk_records_sent", "Records in the trunk datagrams that the kernel took", |s| s.ring.records_sent;
    "trunk_sent_bytes", "Bytes of UDP payload in the trunk datagrams that the kernel took", |s| s.ring.message_bytes_sent;
    "trunk_records_lost", "Records in trunk datagrams that were refused or failed", |s| s.ring.records_lost;
    "downlink_datagrams", "Trunk datagrams accepted from owners", |s| s.router.downlink_datagrams;
    "downlink_records", "Records read from them", |s| s.router.downlink_records;
    "downlink_packets", "Packets accepted for clients", |s| s.router.downlink_packets;
    "downlink_bytes", "Bytes of packets accepted for clients", |s| s.router.downlink_bytes;
    "client_packets_sent", "Packets to clients that the kernel took", |s| s.ring.packets_sent;
    "client_sent_bytes", "Bytes of packets to clients that the kernel took", |s| s.ring.packet_bytes_sent;
    "client_trains_sent", "Sends of several packets of one length to one client at once", |s| s.ring.trains_sent;
    "claims_bound", "Claims on an address made by a verified request", |s| s.router.claims_bound;
    "claims_restored", "Claims on an address restored from a downlink record", |s| s.router.claims_restored;
    "claims_recalled", "Claims on an address made by an entry of the flow cache", |s| s.router.claims_recalled;
    "claims_proven", "Provisional claims that an owner proved", |s| s.router.claims_proven;
    "claims_displaced", "Claims that gave way to a third session or to a fresh proof", |s| s.router.claims_displaced;
    "claims_evicted", "Provisional claims that made room in their full queue, or for a trunk", |s| s.router.claims_evicted;
    "claims_closed", "Claims that their owner ended or did not know", |s| s.router.claims_closed;
    "proofs_refused", "Proofs not kept because the table holds as many proven flows as it may", |s| s.router.proofs_refused;
    "restores_refused", "Flows not restored because no trunk was left", |s| s.router.restores_refused;
    "flows_expired", "Flows forgotten after their idle time", |s| s.router.flows_expired;
    "beyond_records", "Records packed for relays of other clusters; uplink_records counts them too", |s| s.router.beyond_records;
    "beyond_downlink_records", "Records accepted from relays of other clusters; downlink_records counts them too", |s| s.router.beyond_downlink_records;
    "relayed_datagrams", "Trunk datagrams accepted from relays of clients elsewhere", |s| s.router.relayed_datagrams;
    "relayed_packets", "Packets of clients elsewhere accepted for this cluster's owners", |s| s.router.relayed_packets;
    "back_records", "Records packed for the relays that clients elsewhere are at", |s| s.router.back_records;
    "back_datagrams", "Trunk datagrams closed for these relays", |s| s.router.back_datagrams;
    "claims_relayed", "Claims on an address made by another relay's record", |s| s.router.claims_relayed;
    "peers_asked", "Keepalives sent to relays of other clusters", |s| s.router.peers_asked;
    "peers_answered", "Answers to them", |s| s.router.peers_answered;
    "keepalives_answered", "Answers made to keepalives of other relays", |s| s.router.keepalives_answered;
    "fail_overs", "Times that a relay took over from another, or the preferred one came back", |s| s.router.fail_overs;
    "receive_buffers_exhausted", "Times that a receive ended because no buffer was free: packets then wait in the socket; socket_receive_drops counts those lost", |s| s.ring.buffers_exhausted;
    "receives_armed", "Multishot receives armed, the first time and again", |s| s.ring.arms;
    "completion_queue_overflows", "Turns that found the completion queue overflown", |s| s.ring.overflows;
    "system_calls", "io_uring_enter calls of the packet ring", |s| s.ring.enters;
    "turns", "Turns of the pump", |s| s.turns;
    "sleeps", "Turns that waited for a packet", |s| s.sleeps;
};

/// The row of [`GAUGES`] that holds the number of flows.
const FLOWS: usize = 0;

/// What goes up and down.
pub const GAUGES: &[Value] = values! {
    "flows", "Flows in the table", |s| u64::from(s.flows.flows);
    "flows_proven", "Flows whose address an owner has proven", |s| u64::from(s.flows.proven);
    "claims_provisional", "Claims on an address that no owner has proven yet", |s| u64::from(s.flows.provisional);
    "trunks", "Owner workers that the core can send to", |s| u64::from(s.trunks);
};

/// The drops that the ring counts, in the router's terms.
fn ring_drops(reason: Reason, ring: &RingCounters) -> u64 {
    match reason {
        Reason::SendRefusedClient => ring.packets_send_full,
        Reason::SendErrorClient => ring.packets_failed,
        Reason::SendRefusedTrunk => ring.messages_send_full,
        Reason::SendErrorTrunk => ring.messages_failed,
        Reason::SendQueueFull => ring.queue_full,
        Reason::ReceiveError => ring.receive_errors,
        _ => 0,
    }
}

/// One core's published counters.
#[derive(Debug)]
pub struct Published {
    armed: AtomicBool,
    counters: Box<[AtomicU64]>,
    gauges: Box<[AtomicU64]>,
    drops: Box<[AtomicU64]>,
    lateness: [AtomicU64; BUCKETS],
    lateness_sum: AtomicU64,
    /// What it knows of other clusters' relays.
    pub peers: PublishedPeers,
}

impl Published {
    /// All zero, and not armed.
    #[must_use]
    pub fn new() -> Self {
        let zeros = |count| (0..count).map(|_| AtomicU64::new(0)).collect();
        Self {
            armed: AtomicBool::new(false),
            counters: zeros(COUNTERS.len()),
            gauges: zeros(GAUGES.len()),
            drops: zeros(Reason::COUNT),
            lateness: [const { AtomicU64::new(0) }; BUCKETS],
            lateness_sum: AtomicU64::new(0),
            peers: PublishedPeers::default(),
        }
    }

    /// Stores what the core has counted.
    pub fn publish(&self, snapshot: &Snapshot<'_>) {
        for (cell, value) in self.counters.iter().zip(COUNTERS) {
            cell.store((value.read)(snapshot), Ordering::Relaxed);
        }
        for (cell, value) in self.gauges.iter().zip(GAUGES) {
            cell.store((value.read)(snapshot), Ordering::Relaxed);
        }
        for (cell, &reason) in self.drops.iter().zip(Reason::ALL) {
            let dropped = snapshot.router.drops(reason) + ring_drops(reason, snapshot.ring);
            cell.store(dropped, Ordering::Relaxed);
        }
    }

    /// Stores how late the core's timers have been.
    pub fn publish_lateness(&self, lateness: &Lateness) {
        for (cell, &count) in self.lateness.iter().zip(&lateness.buckets) {
            cell.store(count, Ordering::Relaxed);
        }
        self.lateness_sum.store(lateness.sum, Ordering::Relaxed);
    }

    /// How late the core's timers have been.
    #[must_use]
    pub fn lateness(&self) -> Lateness {
        Lateness {
            buckets: std::array::from_fn(|bucket| self.lateness[bucket].load(Ordering::Relaxed)),
            sum: self.lateness_sum.load(Ordering::Relaxed),
        }
    }

    /// Says whether the core receives on all of its sockets.
    pub fn set_armed(&self, armed: bool) {
        self.armed.store(armed, Ordering::Release);
    }

    /// Whether the core receives on all of its sockets.
    #[must_use]
    pub fn armed(&self) -> bool {
        self.armed.load(Ordering::Acquire)
    }

    /// The published value of a row of [`COUNTERS`].
    #[must_use]
    pub fn counter(&self, row: usize) -> u64 {
        self.counters[row].load(Ordering::Relaxed)
    }

    /// The published value of a row of [`GAUGES`].
    #[must_use]
    pub fn gauge(&self, row: usize) -> u64 {
        self.gauges[row].load(Ordering::Relaxed)
    }

    /// The published number of flows.
    #[must_use]
    pub fn flows(&self) -> u64 {
        self.gauge(FLOWS)
    }

    /// How often something was dropped for a reason.
    #[must_use]
    pub fn drops(&self, reason: Reason) -> u64 {
        self.drops[reason.index()].load(Ordering::Relaxed)
    }
}

impl Default for Published {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn names_are_unique() {
        let names: HashSet<_> = COUNTERS.iter().chain(GAUGES).map(|v| v.name).collect();
        assert_eq!(names.len(), COUNTERS.len() + GAUGES.len());
    }

    #[test]
    fn lateness_is_read_as_it_was_published() {
        let mut lateness = Lateness::default();
        for millis in [0, 3, 3, 40, 5_000] {
            lateness.record(std::time::Duration::from_millis(millis));
        }
        let published = Published::new();
        published.publish_lateness(&lateness);
        assert_eq!(published.lateness(), lateness);
    }

    #[test]
    fn a_drop_that_the_ring_counts_shows_under_its_reason() {
        let mut router = Counters::new();
        router.drop(Reason::SendQueueFull);
        let ring = RingCounters {
            queue_full: 2,
            packets_sent: 5,
            ..RingCounters::default()
        };
        let published = Published::new();
        published.publish(&Snapshot {
            router: &router,
            ring: &ring,
            flows: FlowCounts {
                flows: 7,
                ..FlowCounts::default()
            },
            trunks: 3,
            turns: 0,
            sleeps: 0,
        });
        assert_eq!(published.drops(Reason::SendQueueFull), 3);
        assert_eq!(published.flows(), 7);
        let row = COUNTERS
            .iter()
            .position(|v| v.name == "client_packets_sent")
            .expect("a row");
        assert_eq!(published.counter(row), 5);
    }
}
