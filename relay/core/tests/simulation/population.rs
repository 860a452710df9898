//! Who takes part in the simulation, and what a run must have seen of them.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use firsthop_relay_core::{Counters, Reason, Transport};
use firsthop_shared::address::ClusterId;
use firsthop_shared::keyring::DataKeyring;

use crate::model::Key;
use crate::world::{CLUSTER, Call, client, keyring, who};

/// Who takes part: the same in every run.
pub(crate) struct Population {
    pub(crate) keys: Vec<Key>,
    pub(crate) calls: Vec<Call>,
    pub(crate) rings: Vec<(Vec<u16>, Arc<DataKeyring>)>,
}

impl Population {
    pub(crate) fn new() -> Self {
        let clients = [
            "203.0.113.1:1000",
            "203.0.113.1:1001",
            "203.0.113.2:1000",
            "203.0.113.3:40000",
            "198.51.100.7:40000",
            "198.51.100.8:40000",
        ];
        let mut keys = Vec::new();
        for text in clients {
            for (ingress, transport) in [
                (0, Transport::Udp),
                (1, Transport::Udp),
                (0, Transport::Tcp),
                (2, Transport::Tcp),
            ] {
                keys.push(Key {
                    ingress,
                    transport,
                    client: client(text),
                });
            }
        }
        for text in [
            "[2001:db8::1]:1000",
            "[2001:db8::1]:1001",
            "[2001:db8::2]:1000",
            "10.3.3.3:1000",
        ] {
            keys.push(Key {
                ingress: 0,
                transport: Transport::Udp,
                client: client(text),
            });
        }
        let owners = ["10.0.0.1:5000", "10.0.0.1:5001", "[fd00::1]:5000"];
        let mut calls = Vec::new();
        for session in 0..12 {
            let owner = owners[session as usize % 3];
            let shard = (session % 4) as u8;
            let who = who(session, owner, shard);
            calls.push(Call::new(who, CLUSTER, 1 + (session % 2) as u16, 0));
            // After an ICE restart: another ufrag and password, the same session.
            calls.push(Call::new(who, CLUSTER, 1 + (session % 2) as u16, 1));
        }
        // The same session number at another owner and at another worker is another session.
        calls.push(Call::new(who(0, owners[1], 0), CLUSTER, 1, 0));
        calls.push(Call::new(who(1, owners[1], 2), CLUSTER, 1, 0));
        calls.push(Call::new(who(50, owners[0], 0), ClusterId(9), 1, 0));
        calls.push(Call::new(who(51, "192.0.2.1:5000", 0), CLUSTER, 1, 0));
        let rings = [&[1, 2][..], &[2, 1], &[1], &[2]]
            .map(|ids| (ids.to_vec(), keyring(ids)))
            .to_vec();
        Self { keys, calls, rings }
    }
}

/// What every run must have seen, or it has proved nothing.
#[derive(Debug, Default)]
pub(crate) struct Totals {
    pub(crate) drops: BTreeMap<&'static str, u64>,
    pub(crate) forwarded: u64,
    pub(crate) doubled: u64,
    pub(crate) live_checks: u64,
    pub(crate) restarts: u64,
    pub(crate) expired: u64,
    pub(crate) evicted: u64,
    pub(crate) displaced: u64,
    pub(crate) proofs_refused: u64,
    pub(crate) restored: u64,
    pub(crate) restores_refused: u64,
    pub(crate) oversize: u64,
    pub(crate) noted: u64,
    pub(crate) lost: u64,
    /// Flows.
    pub(crate) handed_over: u64,
}

impl Totals {
    pub(crate) fn add(&mut self, dropped: &HashMap<Reason, u64>, counters: &Counters) {
        for (reason, count) in dropped {
            *self.drops.entry(reason.name()).or_default() += count;
        }
        self.expired += counters.flows_expired;
        self.evicted += counters.claims_evicted;
        self.displaced += counters.claims_displaced;
        self.proofs_refused += counters.proofs_refused;
        self.restored += counters.claims_restored;
        self.restores_refused += counters.restores_refused;
        self.oversize += counters.uplink_oversize;
    }

    pub(crate) fn check(&self) {
        let seen = [
            self.forwarded,
            self.doubled,
            self.live_checks,
            self.restarts,
            self.expired,
            self.evicted,
            self.displaced,
            self.proofs_refused,
            self.restored,
            self.restores_refused,
            self.oversize,
            self.noted,
            self.lost,
            self.handed_over,
            self.dropped(Reason::TrunkFull),
            self.dropped(Reason::TrunkGone),
        ];
        assert!(
            seen.iter().all(|count| *count > 100),
            "a rare path was missed"
        );
        assert!(self.drops.len() >= 29, "some refusals never happened");
    }

    fn dropped(&self, reason: Reason) -> u64 {
        self.drops.get(reason.name()).copied().unwrap_or(0)
    }
}
