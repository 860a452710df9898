//! Packing: records wait per owner worker until a datagram is full or its oldest record has waited long enough.
//!
//! The kernel's cost is per datagram, so packets for one (owner, shard) share one. Between relays it is packets for one core and
//! shard, whichever owner they are for: a trunk to an owner in another cluster has no datagrams of its own, its records travel
//! with those of its lane. Which relay a lane leads to is looked up when a datagram is opened, so that a fail-over costs
//! nothing. Nothing is copied: a waiting record is a few numbers that say where its bytes lie in a receive buffer. The tag is
//! computed while records arrive, and the sequence number is taken when a datagram is opened, because the tag covers it;
//! datagrams of different trunks may therefore leave in another order than their numbers, by far less than the receiver's
//! replay window.
//!
//! Trunks are counted by the claims that name them, and a free one is given to the next owner; an id carries a generation,
//! so that a stale one is noticed. Open datagrams stand in a queue by age, and closed ones in a queue of their own: no call
//! looks at all the trunks. All memory is taken at the start.

mod datagram;
mod id;
mod sender;
mod slots;
mod target;

use std::collections::VecDeque;

use firsthop_shared::address::{BootId, ClusterId, OwnerAddr};
use firsthop_shared::fleet::RelayEntry;
use firsthop_shared::keyring::DataKeyring;
use firsthop_shared::limits::FLEET_RELAYS_MAX;
use firsthop_shared::trunk::{
    DATAGRAM_HEADER_LEN, DatagramHeader, RECORD_HEADER_MIN, TAGGED_LEN, Tagger,
};
use siphasher::sip::SipHasher13;

use crate::fifo::Fifo;
use crate::index::Index;
use crate::limits::RECORDS_PER_DATAGRAM;
use crate::owners::Owners;
use crate::peers::Lane;
use crate::reason::{Counters, Reason};
use crate::time::Micros;

pub use datagram::{BufferId, Datagram, Piece, Span};
pub use id::TrunkId;
use sender::Sender;
pub(crate) use target::{Lead, Origin, Target};

/// The number of no node.
const NONE: u32 = u32::MAX;

#[derive(Clone, Copy)]
struct Node {
    piece: Piece,
    next: u32,
}

/// A datagram that still takes records.
struct Open {
    header: [u8; TAGGED_LEN],
    tagger: Tagger,
    first_node: u32,
    last_node: u32,
    len: u16,
    records: u16,
    since: Micros,
}

/// Which datagrams a trunk's records travel in.
#[derive(Clone, Copy)]
enum Ride {
    /// Its own, which go to the address of this number among [`Owners`].
    Own(u16),
    /// Those of the trunk in this slot: of its lane.
    With(u16),
}

struct Trunk {
    target: Target,
    ride: Ride,
    generation: u16,
    /// How many claims name it, and trunks that ride with it.
    claims: u32,
    hash: u32,
    open: Option<Open>,
}

/// All the trunks of one core.
pub(crate) struct Trunks {
    trunks: Vec<Trunk>,
    free: Vec<u16>,
    capacity: u16,
    index: Index,
    hasher: SipHasher13,
    nodes: Box<[Node]>,
    free_node: u32,
    /// Open datagrams by age.
    waiting: Fifo,
    ready: VecDeque<Datagram>,
    owners: Owners,
    linger: Micros,
    /// Numbers what goes up.
    up: Sender,
    /// Numbers what goes back to relays of clients.
    down: Sender,
    /// The relay that leads to each other cluster.
    leaders: Vec<(ClusterId, RelayEntry)>,
}

/// What [`Trunks::new`] needs to know.
pub(crate) struct TrunksConfig {
    pub(crate) trunks: u16,
    pub(crate) pending: u32,
    pub(crate) datagram_limit: u16,
    pub(crate) linger: Micros,
    pub(crate) hash: [u64; 2],
    pub(crate) boot: u64,
}

impl Trunks {
    /// Allocates everything.
    pub(crate) fn new(config: &TrunksConfig) -> Self {
        let nodes = (0..config.pending)
            .map(|i| Node {
                piece: Piece::default(),
                next: if i + 1 < config.pending { i + 1 } else { NONE },
            })
            .collect();
        Self {
            trunks: Vec::with_capacity(usize::from(config.trunks)),
            free: Vec::with_capacity(usize::from(config.trunks)),
            capacity: config.trunks,
            index: Index::new(u32::from(config.trunks)),
            hasher: SipHasher13::new_with_keys(config.hash[0], config.hash[1]),
            nodes,
            free_node: if config.pending > 0 { 0 } else { NONE },
            waiting: Fifo::new(u32::from(config.trunks), u32::from(config.trunks)),
            ready: VecDeque::with_capacity(config.pending as usize),
            owners: Owners::new(config.trunks, config.hash, config.datagram_limit),
            linger: config.linger,
            up: Sender::up(config.boot),
            down: Sender::down(config.boot),
            leaders: Vec::with_capacity(FLEET_RELAYS_MAX),
        }
    }

    /// Says which relay leads to each other cluster from now on. Records that wait already go where they were to go.
    pub(crate) fn set_leaders(&mut self, leaders: impl Iterator<Item = (ClusterId, RelayEntry)>) {
        self.leaders.clear();
        self.leaders.extend(leaders);
    }

    /// The boot id and sequence number of a datagram that is made elsewhere; `down` when it goes to the relay of clients.
    pub(crate) fn stamp(&mut self, down: bool) -> (BootId, u32) {
        if down {
            self.down.next()
        } else {
            self.up.next()
        }
    }

    /// Whether a boot id is the one that this core sends under.
    pub(crate) fn is_own(&self, boot: BootId) -> bool {
        boot == self.up.boot() || boot == self.down.boot()
    }

    /// Whether any trunk leads to an owner, or to a relay at this address.
    pub(crate) fn lead_to(&self, owner: OwnerAddr) -> bool {
        self.owners.contains(owner)
    }

    /// Sets the largest datagram, in bytes of UDP payload, that the path to an owner takes in one piece.
    ///
    /// It holds until no trunk leads to the owner; a trunk that is then made anew says so by [`Datagram::first`].
    pub(crate) fn set_datagram_limit(&mut self, owner: OwnerAddr, limit: u16) {
        self.owners.set_limit(owner, limit);
    }

    /// Adds one record: its encoded header, for the tag, and where its bytes lie.
    ///
    /// A record that does not fit beside the others closes their datagram; one that fits none leaves alone, and in fragments.
    ///
    /// # Errors
    /// [`Reason::TrunkFull`] when no more records may wait, [`Reason::TrunkGone`] when the id is stale, [`Reason::RelayGone`] when
    /// no relay leads to the owner's cluster any more.
    pub(crate) fn append(
        &mut self,
        now: Micros,
        keyring: &DataKeyring,
        id: TrunkId,
        header: &[u8],
        piece: Piece,
        counters: &mut Counters,
    ) -> Result<(), Reason> {
        let len = piece.side.len + piece.body.len;
        let trunk = &self.trunks[usize::from(id.slot)];
        if trunk.generation != id.generation {
            return Err(Reason::TrunkGone);
        }
        if self.free_node == NONE {
            return Err(Reason::TrunkFull);
        }
        let straight = matches!(trunk.target.lead, Lead::Straight);
        let (slot, hop) = match trunk.ride {
            Ride::Own(hop) if straight => (id.slot, hop),
            ride => self.ride(id.slot, ride, counters)?,
        };
        let mut limit = self.owners.limit(hop);
        if let Some(open) = &self.trunks[usize::from(slot)].open
            && (open.len + len > limit || open.records == RECORDS_PER_DATAGRAM)
        {
            // The trunk is needed on, even if its last claim has just ended.
            self.seal(slot, counters);
            // What is opened now goes where the lane leads now. A lane is held by the trunks that ride with it: it stays.
            let hop = self.hop(slot)?;
            limit = self.owners.limit(hop);
        }
        let node = self.free_node;
        self.free_node = self.nodes[node as usize].next;
        self.nodes[node as usize] = Node { piece, next: NONE };

        let trunk = &mut self.trunks[usize::from(slot)];
        counters.uplink_records += u64::from(straight);
        let open = match &mut trunk.open {
            Some(open) => {
                self.nodes[open.last_node as usize].next = node;
                open
            }
            closed => {
                let sender = match trunk.target.lead {
                    Lead::Back => &mut self.down,
                    _ => &mut self.up,
                };
                let (boot, sequence) = sender.next();
                let key = keyring.active();
                let first16 = DatagramHeader {
                    shard: trunk.target.shard,
                    key: key.id(),
                    boot,
                    sequence,
                }
                .to_bytes();
                self.waiting.push(u32::from(slot));
                closed.insert(Open {
                    header: first16,
                    tagger: Tagger::new(key, &first16),
                    first_node: node,
                    last_node: node,
                    len: DATAGRAM_HEADER_LEN as u16,
                    records: 0,
                    since: now,
                })
            }
        };
        open.last_node = node;
        open.records += 1;
        open.len += len;
        open.tagger.record(header);
        if open.len + RECORD_HEADER_MIN as u16 > limit {
            self.close(slot, counters);
        }
        Ok(())
    }

    /// Closes the datagrams whose oldest record has waited for the linger; all of them when the core is `idle`.
    pub(crate) fn flush(&mut self, now: Micros, idle: bool, counters: &mut Counters) {
        while let Some(slot) = self.waiting.oldest() {
            if !idle && self.due(slot) > now {
                break;
            }
            self.close(slot as u16, counters);
        }
    }

    /// When the oldest waiting record has waited for the linger.
    pub(crate) fn next_linger(&self) -> Option<Micros> {
        self.waiting.oldest().map(|slot| self.due(slot))
    }

    /// The next closed datagram, in the order of closing.
    pub(crate) fn take_ready(&mut self) -> Option<Datagram> {
        self.ready.pop_front()
    }

    /// The records of a datagram, in their order on the wire.
    pub(crate) fn pieces(&self, datagram: &Datagram) -> impl Iterator<Item = Piece> + '_ {
        let mut next = datagram.first_node;
        std::iter::from_fn(move || {
            let node = self.nodes.get(next as usize)?;
            next = node.next;
            Some(node.piece)
        })
    }

    /// Takes back what a datagram's records occupied here. The receive buffers are the pump's own.
    pub(crate) fn release(&mut self, datagram: Datagram) {
        self.nodes[datagram.last_node as usize].next = self.free_node;
        self.free_node = datagram.first_node;
    }

    /// Where datagrams of a lane go now.
    fn leader(&self, lane: Lane) -> Option<OwnerAddr> {
        let leader = self.leaders.iter().find(|(id, _)| *id == lane.cluster);
        leader.map(|(_, relay)| OwnerAddr::new(relay.core(lane.core).get()))
    }

    /// The trunk in whose datagrams a record between relays travels, and the number of the address that they go to.
    #[cold]
    fn ride(
        &mut self,
        slot: u16,
        ride: Ride,
        counters: &mut Counters,
    ) -> Result<(u16, u16), Reason> {
        let slot = match ride {
            Ride::Own(_) => slot,
            Ride::With(lane) => lane,
        };
        let hop = self.hop(slot)?;
        if let Lead::Lane(_) = self.trunks[usize::from(slot)].target.lead {
            counters.uplink_records += 1;
            counters.beyond_records += 1;
        } else {
            counters.back_records += 1;
        }
        Ok((slot, hop))
    }

    /// The number of the address that a trunk's datagrams go to. A lane that has none open turns to the relay that leads now.
    fn hop(&mut self, slot: u16) -> Result<u16, Reason> {
        let trunk = &self.trunks[usize::from(slot)];
        let Ride::Own(hop) = trunk.ride else {
            unreachable!("what others ride with has datagrams of its own");
        };
        let Lead::Lane(lane) = trunk.target.lead else {
            return Ok(hop);
        };
        let leader = self.leader(lane).ok_or(Reason::RelayGone)?;
        if trunk.open.is_some() || self.owners.address(hop) == leader {
            return Ok(hop);
        }
        self.owners.release(hop);
        let hop = self.owners.acquire(leader);
        self.trunks[usize::from(slot)].ride = Ride::Own(hop);
        Ok(hop)
    }

    fn due(&self, slot: u32) -> Micros {
        match &self.trunks[slot as usize].open {
            Some(open) => open.since.after(self.linger),
            None => unreachable!("a trunk waits only while its datagram is open"),
        }
    }

    /// Closes an open datagram, and with it a trunk that no claim names.
    fn close(&mut self, slot: u16, counters: &mut Counters) {
        self.seal(slot, counters);
        self.free_if_unused(slot);
    }

    /// Closes an open datagram; its trunk stays.
    fn seal(&mut self, slot: u16, counters: &mut Counters) {
        let trunk = &mut self.trunks[usize::from(slot)];
        let Some(open) = trunk.open.take() else {
            unreachable!("only an open datagram is closed");
        };
        let mut header = [0; DATAGRAM_HEADER_LEN];
        header[..TAGGED_LEN].copy_from_slice(&open.header);
        header[TAGGED_LEN..].copy_from_slice(&open.tagger.finish());
        let Ride::Own(hop) = trunk.ride else {
            unreachable!("only a trunk with datagrams of its own opens one");
        };
        let limit = self.owners.limit(hop);
        match trunk.target.lead {
            Lead::Back => counters.back_datagrams += 1,
            _ => counters.uplink_datagrams += 1,
        }
        counters.uplink_oversize += u64::from(open.len > limit);
        // Each datagram holds a node, and there are no more nodes than room in the queue: it does not grow.
        self.ready.push_back(Datagram {
            destination: self.owners.address(hop),
            header,
            len: open.len,
            records: open.records,
            first: self.owners.use_first(hop),
            first_node: open.first_node,
            last_node: open.last_node,
        });
        self.waiting.remove(u32::from(slot));
    }
}
