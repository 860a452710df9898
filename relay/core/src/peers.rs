//! The relays of other clusters: which of them answer, and which one leads to each cluster.
//!
//! Each is asked once a second. It is up until no answer has come for three seconds and a tenth, to three questions in a row:
//! so long, however long the way there is, and a core that had no time to ask takes nobody for dead. One that was down is up
//! again after three answers in a row. A cluster is reached by the first of its relays that is up; else by the first that has not
//! had the time to answer yet; and when none answers, by the first of the list: it may hear what we do not, and nothing better
//! is known.
//!
//! Every core asks for itself, and so shares nothing. A relay is asked at its first core, since a core that is lost takes the
//! others with it; and whatever number of cores the file gives it while it is changed, it has a first one. Nothing here scans
//! more than the fleet's relays, and that only when one has fallen silent.

mod list;

use std::sync::Arc;

use firsthop_shared::address::{ClientAddr, ClusterId, Hop, OwnerAddr};
use firsthop_shared::fleet::RelayEntry;
use firsthop_shared::limits::FLEET_RELAYS_MAX;

use crate::limits::{
    PEER_ANSWERS_BACK, PEER_INTERVAL, PEER_RECHECK, PEER_SILENCE, PEER_UNANSWERED,
};
use crate::time::Micros;

pub use list::{PeerList, PeerRelay};

/// Words of a set of relays: one bit each.
pub const PEER_WORDS: usize = FLEET_RELAYS_MAX.div_ceil(64);

/// A core of whichever relay leads to a cluster: what records of the same lane share a datagram by.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Lane {
    /// The cluster.
    pub(crate) cluster: ClusterId,
    /// The core. A relay that has not so many counts them anew from its first.
    pub(crate) core: u16,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// Nothing has been heard yet, and there was not enough time to tell.
    Untried,
    Up,
    /// Silent too long; since then so many answers in a row.
    Down {
        answers: u32,
    },
}

#[derive(Clone, Copy, Debug)]
struct Health {
    state: State,
    /// When the last answer came; at first, when it was asked for the first time.
    heard: Micros,
    /// Questions asked.
    asked: u64,
    /// The newest question that was answered.
    answered: u64,
}

/// A question to a relay, due now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Question {
    /// The relay's first core.
    pub(crate) to: Hop,
    /// Its number, by which the answer is known.
    pub(crate) number: u64,
}

/// What an answer or a silence changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Turned {
    /// Whether another relay leads to any cluster now.
    pub(crate) leaders: bool,
    /// For how many clusters a relay took over from one that had answered. At the start whoever answers first leads: none has
    /// failed then.
    pub(crate) fail_overs: u64,
}

/// The peers of one core.
#[derive(Debug)]
pub(crate) struct Peers {
    list: Arc<PeerList>,
    /// By relay.
    health: Vec<Health>,
    /// The same of the list before: its memory is used again.
    known: Vec<Health>,
    /// By relay: whether it leads to its cluster.
    leads: Vec<bool>,
    /// Whether they are asked at all: a relay without clients of its own sends nothing to other clusters.
    asks: bool,
    /// The next to be asked, and when.
    next: usize,
    next_at: Micros,
    /// No relay falls silent before.
    silent_at: Micros,
    /// When [`Peers::watch`] last looked.
    watched: Micros,
}

impl Peers {
    /// Starts with a list of relays, of which nothing is known. `asks` is whether this relay sends to them.
    pub(crate) fn new(list: Arc<PeerList>, asks: bool, now: Micros) -> Self {
        let mut peers = Self {
            list: Arc::default(),
            health: Vec::with_capacity(FLEET_RELAYS_MAX),
            known: Vec::with_capacity(FLEET_RELAYS_MAX),
            leads: Vec::with_capacity(FLEET_RELAYS_MAX),
            asks,
            next: 0,
            next_at: now,
            silent_at: now,
            watched: now,
        };
        peers.set_list(list, now);
        peers
    }

    /// Takes a reloaded list. What is known of relays that stay is kept.
    pub(crate) fn set_list(&mut self, list: Arc<PeerList>, now: Micros) {
        let before = std::mem::replace(&mut self.list, list);
        std::mem::swap(&mut self.health, &mut self.known);
        let known = &self.known;
        self.health.clear();
        self.health.extend(self.list.relays().iter().map(|relay| {
            let stays = before.relays().iter().position(|other| other == relay);
            stays.map_or(
                Health {
                    state: State::Untried,
                    heard: now,
                    asked: 0,
                    answered: 0,
                },
                |at| known[at],
            )
        }));
        self.leads.clear();
        self.leads.resize(self.health.len(), false);
        for at in 0..self.health.len() {
            self.choose(self.list.relays()[at].cluster, &mut Turned::default());
        }
        (self.next, self.next_at) = (0, now);
        self.silent_at = now;
    }

    /// The list that is in use.
    pub(crate) fn list(&self) -> &Arc<PeerList> {
        &self.list
    }

    /// The cluster of the relay at an internal address, if it is one of another cluster.
    pub(crate) fn cluster_of(&self, hop: Hop) -> Option<ClusterId> {
        Some(self.list.relays()[self.list.find(hop)?].cluster)
    }

    /// Whether what a record calls an owner is a relay of the fleet.
    pub(crate) fn is_relay(&self, owner: OwnerAddr) -> bool {
        self.list.is_relay(owner)
    }

    /// Whether any relay leads to a cluster.
    pub(crate) fn lead_to(&self, cluster: ClusterId) -> bool {
        !self.list.of_cluster(cluster).is_empty()
    }

    /// The lane of a client to a cluster: the core that its address selects at the relay which leads there.
    pub(crate) fn lane(&self, cluster: ClusterId, client: &ClientAddr) -> Option<Lane> {
        let relay = self.leading(cluster)?;
        let core = self.list.relays()[relay].core_for(client);
        Some(Lane { cluster, core })
    }

    /// The relay that leads to each cluster.
    pub(crate) fn leaders(&self) -> impl Iterator<Item = (ClusterId, RelayEntry)> + '_ {
        let all = self.list.relays().iter().zip(&self.leads);
        all.filter(|(_, leads)| **leads)
            .map(|(relay, _)| (relay.cluster, relay.entry))
    }

    /// The next question that is due. Ask until there is none.
    pub(crate) fn question(&mut self, now: Micros) -> Option<Question> {
        let count = self.health.len();
        if !self.asks || count == 0 || now < self.next_at {
            return None;
        }
        // All are asked within one interval, evenly; a core that was away asks none twice at once.
        let step = Micros(PEER_INTERVAL.0 / count as u64);
        let late = now.0 - self.next_at.0 > PEER_INTERVAL.0;
        self.next_at = if late { now } else { self.next_at }.after(step);
        let at = self.next;
        self.next = (at + 1) % count;
        let health = &mut self.health[at];
        if health.asked == 0 && health.state == State::Untried {
            // Its time to answer begins now.
            health.heard = now;
        }
        health.asked += 1;
        Some(Question {
            to: self.list.relays()[at].entry.core(0),
            number: health.asked,
        })
    }

    /// An answer came. Returns what it changed, if it is one to a question that had none yet.
    pub(crate) fn answer(&mut self, now: Micros, from: Hop, number: u64) -> Option<Turned> {
        let at = self.list.find(from)?;
        let health = &mut self.health[at];
        if !(health.answered + 1..=health.asked).contains(&number) {
            return None;
        }
        let first = health.answered == 0;
        // More than an interval and a half since the last one: an answer is missing between.
        let missed = now.0.saturating_sub(health.heard.0) > PEER_INTERVAL.0 * 3 / 2;
        health.answered = number;
        health.heard = now;
        health.state = match health.state {
            State::Down { answers } => {
                let answers = if missed { 1 } else { answers + 1 };
                if answers < PEER_ANSWERS_BACK {
                    State::Down { answers }
                } else {
                    State::Up
                }
            }
            State::Untried | State::Up => State::Up,
        };
        let mut turned = Turned::default();
        self.choose(self.list.relays()[at].cluster, &mut turned);
        if first {
            // It takes its place. Nobody has failed, and nobody has come back.
            turned.fail_overs = 0;
        }
        Some(turned)
    }

    /// Looks for relays that have fallen silent, and returns what that changed. Call it every turn.
    pub(crate) fn watch(&mut self, now: Micros) -> Turned {
        let away = now.0.saturating_sub(self.watched.0);
        self.watched = now;
        if away >= PEER_INTERVAL.0 {
            // This core did not run: what it did not hear says nothing about others.
            for health in &mut self.health {
                health.heard = now;
            }
        }
        if !self.asks || now < self.silent_at {
            return Turned::default();
        }
        let mut turned = Turned::default();
        let mut next = now.after(PEER_SILENCE);
        for at in 0..self.health.len() {
            let health = &mut self.health[at];
            let silent_at = health.heard.after(PEER_SILENCE);
            if matches!(health.state, State::Down { .. }) {
                continue;
            }
            if silent_at > now {
                next = next.min(silent_at);
            } else if health.asked - health.answered < PEER_UNANSWERED {
                // It was hardly asked: what it did not say means nothing.
                next = next.min(now.after(PEER_RECHECK));
            } else {
                health.state = State::Down { answers: 0 };
                self.choose(self.list.relays()[at].cluster, &mut turned);
            }
        }
        self.silent_at = next;
        turned
    }

    /// The relays that are up, and those that lead to their clusters, one bit each.
    pub(crate) fn bits(&self) -> [[u64; PEER_WORDS]; 2] {
        let mut bits = [[0; PEER_WORDS]; 2];
        for (at, (health, leads)) in self.health.iter().zip(&self.leads).enumerate() {
            let bit = 1 << (at % 64);
            bits[0][at / 64] |= if health.state == State::Up { bit } else { 0 };
            bits[1][at / 64] |= if *leads { bit } else { 0 };
        }
        bits
    }

    fn leading(&self, cluster: ClusterId) -> Option<usize> {
        self.list.of_cluster(cluster).find(|at| self.leads[*at])
    }

    /// Chooses the relay that leads to a cluster, and notes when it is another one than before.
    fn choose(&mut self, cluster: ClusterId, turned: &mut Turned) {
        let relays = self.list.of_cluster(cluster);
        let first = |state| relays.clone().find(|at| self.health[*at].state == state);
        let Some(best) = first(State::Up)
            .or_else(|| first(State::Untried))
            .or_else(|| relays.clone().next())
        else {
            return;
        };
        let before = self.leading(cluster).filter(|before| *before != best);
        for at in relays {
            self.leads[at] = at == best;
        }
        if let Some(before) = before {
            turned.leaders = true;
            turned.fail_overs += u64::from(self.health[before].answered > 0);
        }
    }
}

#[cfg(test)]
mod tests;
