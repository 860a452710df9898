//! What a router does with a flow cache: it says what changes, asks about clients that it does not know, and takes the
//! answers for what they are.
//!
//! A router without a cache has none of this. One with a cache does it away from the packets that it can route: a change
//! comes of a proof, of an end, and of the expiry wheel's look at a flow about twice a minute; a question of a packet that
//! would be dropped otherwise.

use std::collections::VecDeque;

use firsthop_shared::address::Restart;
use firsthop_shared::trunk::RecordHeader;

use crate::cache::{Change, ChangeKind, Entry, FlowId, Found};
use crate::config::CacheConfig;
use crate::downlink::transport_of;
use crate::flows::{Claim, FlowKey, Removed};
use crate::limits::{CHANGES_MAX, EXPIRY_BUDGET};
use crate::reason::Reason;
use crate::recall::{Held, Recall};
use crate::router::{Router, path_bit};
use crate::time::Micros;
use crate::trunks::{BufferId, Origin, Target};
use crate::uplink::{Source, Verdict};

/// What a core has done with the flow cache, since its start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RecallCounters {
    /// Clients asked about.
    pub questions: u64,
    /// Clients not asked about because as many were as may be.
    pub withheld: u64,
    /// Answers in time by which a client is known.
    pub hits: u64,
    /// Answers in time that there is no entry.
    pub misses: u64,
    /// Answers in time that cannot be used: nonsense, a cluster that no relay leads to, an owner outside of the internal networks, no trunk
    /// left.
    pub refused: u64,
    /// Questions without an answer in time, whether one came later or not.
    pub late: u64,
    /// Packets that waited for an answer.
    pub waited: u64,
    /// Changes that found no room on their way to the cache.
    pub changes_lost: u64,
}

/// What became of a packet that the cache may know where to send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Recalled {
    /// Ask the cache about the packet's flow, and give its answer to [`Router::answer`].
    pub ask: bool,
    /// The packet waits: its buffer stays taken until [`Router::take_recalled`] returns it. Else it is dropped, and counted.
    pub held: bool,
}

/// A router's side of the cache.
pub(crate) struct Cached {
    recall: Recall,
    changes: VecDeque<Change>,
    hits: u64,
    misses: u64,
    refused: u64,
    changes_lost: u64,
}

impl Cached {
    pub(crate) fn new(config: CacheConfig, now: Micros) -> Self {
        Self {
            recall: Recall::new(config.questions, now),
            changes: VecDeque::with_capacity(CHANGES_MAX),
            hits: 0,
            misses: 0,
            refused: 0,
            changes_lost: 0,
        }
    }

    /// Notes a change for the cache.
    pub(crate) fn change(&mut self, flow: FlowId, entry: Entry, kind: ChangeKind) {
        if self.changes.len() < CHANGES_MAX {
            self.changes.push_back(Change { flow, entry, kind });
        } else {
            self.changes_lost += 1;
        }
    }
}

impl Router {
    /// Whether a packet that would be dropped for this reason is one that the cache may know where to send.
    pub(crate) fn may_recall(&self, reason: Reason) -> bool {
        self.cached.is_some()
            && matches!(
                reason,
                Reason::NoFlowDtls | Reason::NoFlowRtp | Reason::NoFlowStun
            )
    }

    /// Decides a packet of which [`Router::uplink`] has said [`Verdict::Unknown`]: `buffer` holds its `len` bytes.
    pub fn recall(
        &mut self,
        now: Micros,
        source: &Source,
        unknown: Reason,
        buffer: BufferId,
        len: u16,
    ) -> Recalled {
        let served = self.serves(source.client);
        let Some(cached) = self.cached.as_mut().filter(|_| served) else {
            self.counters.drop(unknown);
            return Recalled {
                ask: false,
                held: false,
            };
        };
        let held = Held {
            source: *source,
            buffer,
            len,
        };
        let outcome = cached.recall.packet(now, held, unknown);
        if let Some(reason) = outcome.dropped {
            self.counters.drop(reason);
        }
        Recalled {
            ask: outcome.ask,
            held: outcome.dropped.is_none(),
        }
    }

    /// Takes back that a flow is asked about: the question found no room. Its packet goes on with the
    /// [next ones](Router::take_recalled), to be dropped for this reason.
    pub fn withdraw(&mut self, source: &Source, unknown: Reason) {
        if let Some(cached) = &mut self.cached {
            cached.recall.withdraw(&source.key, unknown);
        }
    }

    /// Takes the cache's answer about a flow, which is a hint: it makes a provisional claim at an address that has none.
    ///
    /// Proof once made it, but of yesterday, and by way of a server that others may write to. So it obeys what a record must
    /// obey (an owner inside of the internal networks, a client outside), never touches a flow that is there, and is
    /// proven by nobody but its owner. A late answer is as good as one in time.
    pub fn answer(&mut self, now: Micros, flow: FlowId, found: Found) {
        let key = FlowKey::new(flow.ingress, flow.transport, &flow.client);
        let key = self.flows.hashed(key);
        let refusal = match found {
            _ if self.flows.find(&key).is_some() => None,
            Found::Nothing => Some(Reason::CacheMiss),
            Found::Nonsense => Some(Reason::CacheRefused),
            Found::Entry(entry) if self.claim(now, flow, &entry) => None,
            Found::Entry(_) => Some(Reason::CacheRefused),
        };
        let Some(cached) = &mut self.cached else {
            return;
        };
        if !cached.recall.answer(now, &key, refusal) {
            return;
        }
        match found {
            Found::Nothing => cached.misses += 1,
            Found::Entry(_) if refusal.is_none() => cached.hits += 1,
            Found::Nonsense | Found::Entry(_) => cached.refused += 1,
        }
    }

    /// Makes the claim that an entry tells of, at an address without any. Returns whether it could.
    ///
    /// When all trunks are taken, nobody gives way for a hint, as for the client's next check: whoever writes to the cache could name
    /// owners without end.
    fn claim(&mut self, now: Micros, flow: FlowId, entry: &Entry) -> bool {
        if !self.serves(flow.client) {
            return false;
        }
        let Some(target) = self.recalled_target(flow, entry) else {
            return false;
        };
        let Some(trunk) = self.trunks.acquire(target) else {
            self.counters.restores_refused += 1;
            return false;
        };
        let claim = Claim {
            session: entry.session,
            trunk,
        };
        let key = FlowKey::new(flow.ingress, flow.transport, &flow.client);
        let key = self.flows.hashed(key);
        let proven = false;
        let restored = self
            .flows
            .restore(now.ticks(), &key, claim, entry.restart, proven);
        self.counters.claims_recalled += 1;
        self.count_removed(Removed {
            evicted: restored.evicted,
            ..Removed::default()
        });
        true
    }

    /// Where an entry may send its client's packets: as a verified request might, to an owner inside of the internal networks, or
    /// to a relay of the other cluster, which knows better where its owners are.
    fn recalled_target(&self, flow: FlowId, entry: &Entry) -> Option<Target> {
        if entry.cluster == self.cluster {
            let inside = self.internal.contains(entry.owner.ip());
            return inside.then(|| Target::owner(entry.owner, entry.shard));
        }
        if !self.relays_away {
            return None;
        }
        let lane = self.peers.lane(entry.cluster, &flow.client)?;
        Some(Target::beyond(lane, entry.owner, entry.shard))
    }

    /// Ends waits whose time is up. Call it in every turn, and then [take](Router::take_recalled) the packets.
    pub fn end_waits(&mut self, now: Micros) {
        if let Some(cached) = &mut self.cached {
            cached.recall.tick(now, EXPIRY_BUDGET);
        }
    }

    /// Ends all waits, whether their time is up or not. [Take](Router::take_recalled) the packets then.
    pub fn end_all_waits(&mut self, now: Micros) {
        if let Some(cached) = &mut self.cached {
            cached.recall.end_all(now);
        }
    }

    /// Whether an answer is awaited, or packets are left to [take](Router::take_recalled).
    #[must_use]
    pub fn is_recalling(&self) -> bool {
        let cached = self.cached.as_ref();
        cached.is_some_and(|cached| cached.recall.is_busy())
    }

    /// The next packet whose wait is over: its buffer, its length, and what becomes of it now.
    pub fn take_recalled(&mut self, now: Micros) -> Option<(BufferId, u16, Verdict)> {
        let (held, reason) = self.cached.as_mut()?.recall.take_ready()?;
        let verdict = match self.by_flow(now, &held.source, reason) {
            Ok(forward) => {
                self.counters.uplink_packets += 1;
                self.counters.uplink_bytes += u64::from(held.len);
                Verdict::Forward(forward)
            }
            Err(reason) => {
                self.counters.drop(reason);
                Verdict::Drop(reason)
            }
        };
        Some((held.buffer, held.len, verdict))
    }

    /// The next change for the cache. Take them all after each datagram from an owner and in each turn, of which
    /// [`Router::expire`] and [`Router::note`] bring some: who waits longer loses some.
    pub fn take_change(&mut self) -> Option<Change> {
        self.cached.as_mut()?.changes.pop_front()
    }

    /// What the core has done with the flow cache; nothing when it has none.
    #[must_use]
    pub fn recall_counters(&self) -> Option<RecallCounters> {
        let cached = self.cached.as_ref()?;
        let counts = cached.recall.counts();
        Some(RecallCounters {
            questions: counts.questions,
            withheld: counts.withheld,
            hits: cached.hits,
            misses: cached.misses,
            refused: cached.refused,
            late: counts.late,
            waited: counts.waited,
            changes_lost: cached.changes_lost,
        })
    }

    /// Notes what a record says of a session at an own client's address. The ways of other relays' clients are not in the cache:
    /// those relays know them, and bring every packet with its owner.
    pub(crate) fn remember(
        &mut self,
        origin: &Origin,
        record: &RecordHeader,
        restart: Restart,
        kind: ChangeKind,
    ) {
        let transport = transport_of(record);
        let path = path_bit(transport, record.client.is_ipv6());
        if self.paths[usize::from(record.ingress.0)] & path == 0 {
            return;
        }
        if let Some(cached) = &mut self.cached {
            let flow = FlowId {
                ingress: record.ingress,
                transport,
                client: record.client,
            };
            let entry = Entry {
                cluster: origin.beyond.unwrap_or(self.cluster),
                owner: origin.owner,
                shard: origin.shard,
                session: record.session,
                restart,
            };
            cached.change(flow, entry, kind);
        }
    }
}
