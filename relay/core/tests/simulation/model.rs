//! The naive model of a relay core: maps and lists, scanned whole, written from the rules and not from the code.

use std::collections::{BTreeSet, HashMap, HashSet};

use firsthop_relay_core::Transport;
use firsthop_relay_core::limits::{
    EVICTION_LOOKS, FLOW_IDLE_TICKS, PROOF_TICKS, PROVISIONAL_SHARE, WHEEL_TICK_BITS,
};
use firsthop_shared::address::{ClientAddr, OwnerAddr, ShardId};

use crate::world::Who;

/// A client at an ingress.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Key {
    pub(crate) ingress: u8,
    pub(crate) transport: Transport,
    pub(crate) client: ClientAddr,
}

struct Flow {
    /// Oldest first.
    claims: Vec<Who>,
    proven: Option<Who>,
    last_seen: u32,
}

/// A provisional claim in their queue.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Queued {
    key: Key,
    who: Who,
    since: u32,
}

/// Flow table and trunks of one relay core.
pub(crate) struct Model {
    flows: HashMap<Key, Flow>,
    /// Provisional claims of all flows, oldest first.
    queue: Vec<Queued>,
    /// Where the next look for a claim that holds a trunk alone begins; the oldest when it is none.
    next: Option<Queued>,
    provisional_max: usize,
    proven_max: usize,
    trunks_max: usize,
    /// Trunks with waiting records: they stay although nobody claims them any more.
    pub(crate) waiting: BTreeSet<(OwnerAddr, ShardId)>,
}

impl Model {
    pub(crate) fn new(capacity: u32, trunks: u16) -> Self {
        let provisional = capacity / PROVISIONAL_SHARE;
        Self {
            flows: HashMap::new(),
            queue: Vec::new(),
            next: None,
            provisional_max: provisional as usize,
            proven_max: (capacity - provisional) as usize,
            trunks_max: usize::from(trunks),
            waiting: BTreeSet::new(),
        }
    }

    /// A relay that was restarted knows nothing.
    pub(crate) fn forget(&mut self) {
        self.flows.clear();
        self.queue.clear();
        self.next = None;
        self.waiting.clear();
    }

    /// A successor knows what the relay knew, and not how long claims have been provisional.
    pub(crate) fn hand_over(&mut self, now: u32) {
        for queued in &mut self.queue {
            queued.since = now;
        }
        self.next = None;
    }

    pub(crate) fn claims(&self, key: &Key) -> Vec<(Who, bool)> {
        let mut claims: Vec<_> = self.flows.get(key).map_or(Vec::new(), |flow| {
            let proven = |who: &Who| flow.proven == Some(*who);
            flow.claims.iter().map(|who| (*who, proven(who))).collect()
        });
        claims.sort();
        claims
    }

    pub(crate) fn has_flow(&self, key: &Key) -> bool {
        self.flows.contains_key(key)
    }

    pub(crate) fn flows(&self) -> usize {
        self.flows.len()
    }

    pub(crate) fn provisional(&self) -> usize {
        self.queue.len()
    }

    pub(crate) fn proven(&self) -> usize {
        self.flows.values().filter(|f| f.proven.is_some()).count()
    }

    pub(crate) fn trunks(&self) -> BTreeSet<(OwnerAddr, ShardId)> {
        let claimed = self.flows.values().flat_map(|flow| &flow.claims);
        let mut trunks: BTreeSet<_> = claimed.map(|who| (who.owner, who.shard)).collect();
        trunks.extend(&self.waiting);
        trunks
    }

    fn has_trunk_for(&self, who: Who) -> bool {
        let trunks = self.trunks();
        trunks.contains(&(who.owner, who.shard)) || trunks.len() < self.trunks_max
    }

    /// Whether nobody but one claim keeps this trunk.
    fn is_held_once(&self, who: Who) -> bool {
        let claims = self.flows.values().flat_map(|flow| &flow.claims);
        let claims = claims.filter(|claim| (claim.owner, claim.shard) == (who.owner, who.shard));
        claims.count() == 1 && !self.waiting.contains(&(who.owner, who.shard))
    }

    /// Has a provisional claim give way that holds its trunk alone and has had its time to be proven: the next one in the queue after
    /// where the last look ended. False when there is no trunk after so many looks.
    fn make_room_for(&mut self, now: u32, who: Who) -> bool {
        if self.has_trunk_for(who) {
            return true;
        }
        for _ in 0..EVICTION_LOOKS {
            let from_oldest = self.next.is_none();
            let Some(looked_at) = self.next.or(self.queue.first().copied()) else {
                return false;
            };
            if now - looked_at.since < PROOF_TICKS {
                self.next = None;
                if from_oldest {
                    return false;
                }
                continue;
            }
            let at = self.queue.iter().position(|queued| *queued == looked_at);
            let at = at.expect("it is in the queue");
            self.next = self.queue.get(at + 1).copied();
            if self.is_held_once(looked_at.who) {
                self.drop_claim(looked_at.key, looked_at.who);
                return true;
            }
        }
        false
    }

    /// Takes provisional claims out of their queue.
    fn leave_queue(&mut self, gone: impl Fn(&Queued) -> bool) {
        if let Some(next) = self.next {
            let from_next = self.queue.iter().skip_while(|queued| **queued != next);
            self.next = from_next.copied().find(|queued| !gone(queued));
        }
        self.queue.retain(|queued| !gone(queued));
    }

    /// A verified request. False when no trunk was left.
    pub(crate) fn request(&mut self, now: u32, key: Key, who: Who) -> bool {
        if !self.make_room_for(now, who) {
            return false;
        }
        if let Some(flow) = self.flows.get_mut(&key) {
            flow.last_seen = now;
            if flow.claims.contains(&who) {
                return true;
            }
            if flow.claims.len() == 2 {
                let older = *flow
                    .claims
                    .iter()
                    .find(|claim| flow.proven != Some(**claim))
                    .expect("at most one is proven");
                self.drop_claim(key, older);
            }
        }
        self.add_provisional(now, key, who);
        true
    }

    /// A packet without a ufrag: its receivers.
    pub(crate) fn packet(&mut self, now: u32, key: &Key) -> Vec<Who> {
        let Some(flow) = self.flows.get_mut(key) else {
            return Vec::new();
        };
        flow.last_seen = now;
        let mut claims = flow.claims.clone();
        claims.sort();
        claims
    }

    /// A packet record of an owner's for a client. False when a flow was to be restored and no trunk was left.
    pub(crate) fn record(&mut self, now: u32, key: Key, who: Who, proven: bool) -> bool {
        let Some(flow) = self.flows.get_mut(&key) else {
            if !self.make_room_for(now, who) {
                return false;
            }
            if proven && self.proven() < self.proven_max {
                let flow = Flow {
                    claims: vec![who],
                    proven: Some(who),
                    last_seen: now,
                };
                self.flows.insert(key, flow);
            } else {
                self.add_provisional(now, key, who);
            }
            return true;
        };
        if !flow.claims.contains(&who) {
            return true;
        }
        flow.last_seen = now;
        if !proven {
            return true;
        }
        for other in flow.claims.clone() {
            if other != who {
                self.drop_claim(key, other);
            }
        }
        if self.proven() < self.proven_max || self.flows[&key].proven == Some(who) {
            self.leave_queue(|queued| (queued.key, queued.who) == (key, who));
            self.flows.get_mut(&key).expect("it has a claim").proven = Some(who);
        }
        true
    }

    /// A close or unknown-session record.
    pub(crate) fn close(&mut self, key: Key, who: Who) {
        if self
            .flows
            .get(&key)
            .is_some_and(|flow| flow.claims.contains(&who))
        {
            self.drop_claim(key, who);
        }
    }

    pub(crate) fn expire(&mut self, now: u32) {
        let over = |flow: &Flow| {
            (flow.last_seen + FLOW_IDLE_TICKS) >> WHEEL_TICK_BITS < now >> WHEEL_TICK_BITS
        };
        self.flows.retain(|_, flow| !over(flow));
        let here: HashSet<_> = self.flows.keys().copied().collect();
        self.leave_queue(|queued| !here.contains(&queued.key));
    }

    fn add_provisional(&mut self, now: u32, key: Key, who: Who) {
        if self.queue.len() == self.provisional_max {
            let oldest = self.queue[0];
            self.drop_claim(oldest.key, oldest.who);
        }
        let flow = self.flows.entry(key).or_insert(Flow {
            claims: Vec::new(),
            proven: None,
            last_seen: now,
        });
        flow.claims.push(who);
        let since = now;
        self.queue.push(Queued { key, who, since });
    }

    fn drop_claim(&mut self, key: Key, who: Who) {
        let flow = self.flows.get_mut(&key).expect("the flow of a claim");
        flow.claims.retain(|claim| *claim != who);
        if flow.proven == Some(who) {
            flow.proven = None;
        }
        if flow.claims.is_empty() {
            self.flows.remove(&key);
        }
        self.leave_queue(|queued| (queued.key, queued.who) == (key, who));
    }
}
