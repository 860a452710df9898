//! The naive model of a relay core: maps and lists, scanned whole, written from the rules and not from the code.

use std::collections::{BTreeSet, HashMap};

use firsthop_relay_core::Transport;
use firsthop_relay_core::limits::{
    FLOW_IDLE_TICKS, PROVISIONAL_SHARE, TRUNK_EVICTIONS, WHEEL_TICK_BITS,
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

/// Flow table and trunks of one relay core.
pub(crate) struct Model {
    flows: HashMap<Key, Flow>,
    /// Provisional claims of all flows, oldest first.
    queue: Vec<(Key, Who)>,
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
        self.waiting.clear();
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

    /// Has the oldest provisional claims give way until there is a trunk. False when there is none after so many.
    fn make_room_for(&mut self, who: Who) -> bool {
        for _ in 0..TRUNK_EVICTIONS {
            if self.has_trunk_for(who) {
                return true;
            }
            let Some((key, oldest)) = self.queue.first().copied() else {
                return false;
            };
            self.drop_claim(key, oldest);
        }
        self.has_trunk_for(who)
    }

    /// A verified request. False when no trunk was left.
    pub(crate) fn request(&mut self, now: u32, key: Key, who: Who) -> bool {
        if !self.make_room_for(who) {
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
            if !self.make_room_for(who) {
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
            self.queue.retain(|entry| *entry != (key, who));
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
        let flows = &self.flows;
        self.queue.retain(|(key, _)| flows.contains_key(key));
    }

    fn add_provisional(&mut self, now: u32, key: Key, who: Who) {
        if self.queue.len() == self.provisional_max {
            let (key, who) = self.queue[0];
            self.drop_claim(key, who);
        }
        let flow = self.flows.entry(key).or_insert(Flow {
            claims: Vec::new(),
            proven: None,
            last_seen: now,
        });
        flow.claims.push(who);
        self.queue.push((key, who));
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
        self.queue.retain(|entry| *entry != (key, who));
    }
}
