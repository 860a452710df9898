//! Packing: records wait per owner worker until a datagram is full or its oldest record has waited long enough.
//!
//! The kernel's cost is per datagram, so packets for one (owner, shard) share one. Nothing is copied: a waiting record is a
//! few numbers that say where its bytes lie in a receive buffer. The tag is computed while records arrive, and the sequence
//! number is taken when a datagram is opened, because the tag covers it; datagrams of different trunks may therefore leave
//! in another order than their numbers, by far less than the receiver's replay window.
//!
//! Trunks are counted by the claims that name them, and a free one is given to the next owner; an id carries a generation,
//! so that a stale one is noticed. Open datagrams stand in a queue by age, and closed ones in a queue of their own: no call
//! looks at all the trunks. All memory is taken at the start.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::ops::Range;

use firsthop_shared::address::{BootId, OwnerAddr, ShardId};
use firsthop_shared::keyring::DataKeyring;
use firsthop_shared::trunk::{
    DATAGRAM_HEADER_LEN, DatagramHeader, RECORD_HEADER_MIN, TAGGED_LEN, Tagger,
};
use siphasher::sip::SipHasher13;

use crate::fifo::Fifo;
use crate::index::Index;
use crate::limits::RECORDS_PER_DATAGRAM;
use crate::owners::Owners;
use crate::reason::{Counters, Reason};
use crate::time::Micros;

/// A trunk: an owner's worker. Valid while a claim that names it lives.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct TrunkId {
    slot: u16,
    generation: u16,
}

/// The pump's own name for a receive buffer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct BufferId(pub u32);

/// A run of bytes in a receive buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Span {
    /// Offset of the first byte in the frame.
    pub start: u16,
    /// How many bytes.
    pub len: u16,
}

impl Span {
    /// The run as a range of offsets.
    #[must_use]
    pub fn range(self) -> Range<usize> {
        let start = usize::from(self.start);
        start..start + usize::from(self.len)
    }
}

/// One record of a datagram: where its bytes lie.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Piece {
    /// The receive buffer.
    pub buffer: BufferId,
    /// A record header apart from its payload, to be sent before `body`. Empty (`len` 0) when the header stands in `body`.
    pub side: Span,
    /// The record header and the payload, or the payload alone.
    pub body: Span,
}

/// A closed datagram, for the pump to send: its header and then the pieces that
/// [`Router::pieces`](crate::Router::pieces) lists.
#[derive(Debug)]
#[must_use = "its records stay taken until it is released"]
pub struct Datagram {
    /// Where it goes.
    pub destination: OwnerAddr,
    /// The header, tag included.
    pub header: [u8; DATAGRAM_HEADER_LEN],
    /// Length of the UDP payload, header included.
    pub len: u16,
    /// How many records, 1 to [`RECORDS_PER_DATAGRAM`].
    pub records: u16,
    /// The first to its owner since a trunk leads there: the pump may ask for the path's MTU now.
    pub first: bool,
    first_node: u32,
    last_node: u32,
}

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

struct Trunk {
    owner: OwnerAddr,
    /// The owner's number among [`Owners`].
    owner_number: u16,
    shard: ShardId,
    generation: u16,
    /// How many claims name it.
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
    sender: Sender,
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
            sender: Sender::new(config.boot),
        }
    }

    /// How many trunks are in use.
    pub(crate) fn len(&self) -> u32 {
        (self.trunks.len() - self.free.len()) as u32
    }

    /// How many trunks there can be.
    pub(crate) fn capacity(&self) -> u16 {
        self.capacity
    }

    /// The trunks that claims name: each slot, and where it leads.
    pub(crate) fn claimed(&self) -> impl Iterator<Item = (usize, OwnerAddr, ShardId)> + '_ {
        let trunks = self.trunks.iter().enumerate();
        trunks
            .filter(|(_, trunk)| trunk.claims > 0)
            .map(|(slot, trunk)| (slot, trunk.owner, trunk.shard))
    }

    /// The slot of a claim's trunk.
    pub(crate) fn slot_of(&self, id: TrunkId) -> usize {
        usize::from(id.slot)
    }

    /// Finds or makes the trunk of an owner's worker, and counts one claim on it. Nothing when all are taken.
    pub(crate) fn acquire(&mut self, owner: OwnerAddr, shard: ShardId) -> Option<TrunkId> {
        let slot = match self.find(owner, shard) {
            Some(slot) => slot,
            None => self.make(owner, shard)?,
        };
        let trunk = &mut self.trunks[usize::from(slot)];
        trunk.claims += 1;
        Some(TrunkId {
            slot,
            generation: trunk.generation,
        })
    }

    /// Gives one claim on a trunk back.
    pub(crate) fn release_claim(&mut self, id: TrunkId) {
        let trunk = &mut self.trunks[usize::from(id.slot)];
        assert!(
            trunk.generation == id.generation && trunk.claims > 0,
            "a claim outlived its trunk"
        );
        trunk.claims -= 1;
        self.free_if_unused(id.slot);
    }

    /// Whether a trunk leads to this owner's worker.
    pub(crate) fn leads_to(&self, id: TrunkId, owner: OwnerAddr, shard: ShardId) -> bool {
        let trunk = &self.trunks[usize::from(id.slot)];
        trunk.generation == id.generation && trunk.owner == owner && trunk.shard == shard
    }

    /// The owner's worker that a claim's trunk leads to.
    pub(crate) fn destination(&self, id: TrunkId) -> (OwnerAddr, ShardId) {
        let trunk = &self.trunks[usize::from(id.slot)];
        (trunk.owner, trunk.shard)
    }

    /// Whether any trunk leads to an owner.
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
    /// [`Reason::TrunkFull`] when no more records may wait, [`Reason::TrunkGone`] when the id is stale.
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
        let limit = self.owners.limit(trunk.owner_number);
        if let Some(open) = &trunk.open
            && (open.len + len > limit || open.records == RECORDS_PER_DATAGRAM)
        {
            // The trunk is needed on, even if its last claim has just ended.
            self.seal(id.slot, counters);
        }
        let node = self.free_node;
        self.free_node = self.nodes[node as usize].next;
        self.nodes[node as usize] = Node { piece, next: NONE };

        let trunk = &mut self.trunks[usize::from(id.slot)];
        let open = match &mut trunk.open {
            Some(open) => {
                self.nodes[open.last_node as usize].next = node;
                open
            }
            closed => {
                let (boot, sequence) = self.sender.next();
                let key = keyring.active();
                let first16 = DatagramHeader {
                    shard: trunk.shard,
                    key: key.id(),
                    boot,
                    sequence,
                }
                .to_bytes();
                self.waiting.push(u32::from(id.slot));
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
        counters.uplink_records += 1;
        if open.len + RECORD_HEADER_MIN as u16 > limit {
            self.close(id.slot, counters);
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

    fn find(&self, owner: OwnerAddr, shard: ShardId) -> Option<u16> {
        let hash = self.hash(owner, shard);
        let slot = self.index.find(hash, |slot| {
            let trunk = &self.trunks[slot as usize];
            trunk.owner == owner && trunk.shard == shard
        })?;
        Some(slot as u16)
    }

    fn make(&mut self, owner: OwnerAddr, shard: ShardId) -> Option<u16> {
        if self.free.is_empty() && self.trunks.len() >= usize::from(self.capacity) {
            return None;
        }
        let hash = self.hash(owner, shard);
        let owner_number = self.owners.acquire(owner);
        let fresh = |generation| Trunk {
            owner,
            owner_number,
            shard,
            generation,
            claims: 0,
            hash,
            open: None,
        };
        let slot = match self.free.pop() {
            Some(slot) => {
                let trunk = &mut self.trunks[usize::from(slot)];
                *trunk = fresh(trunk.generation);
                slot
            }
            None => {
                self.trunks.push(fresh(0));
                (self.trunks.len() - 1) as u16
            }
        };
        self.index.insert(hash, u32::from(slot));
        Some(slot)
    }

    /// A trunk that no claim names goes when nothing waits on it any more.
    fn free_if_unused(&mut self, slot: u16) {
        let trunk = &mut self.trunks[usize::from(slot)];
        if trunk.claims == 0 && trunk.open.is_none() {
            trunk.generation = trunk.generation.wrapping_add(1);
            let hash = trunk.hash;
            self.owners.release(trunk.owner_number);
            self.index.remove(hash, u32::from(slot));
            self.free.push(slot);
        }
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
        let limit = self.owners.limit(trunk.owner_number);
        counters.uplink_datagrams += 1;
        counters.uplink_oversize += u64::from(open.len > limit);
        // Each datagram holds a node, and there are no more nodes than room in the queue: it does not grow.
        self.ready.push_back(Datagram {
            destination: trunk.owner,
            header,
            len: open.len,
            records: open.records,
            first: self.owners.use_first(trunk.owner_number),
            first_node: open.first_node,
            last_node: open.last_node,
        });
        self.waiting.remove(u32::from(slot));
    }

    fn hash(&self, owner: OwnerAddr, shard: ShardId) -> u32 {
        let mut bytes = [0; 19];
        match owner.ip() {
            IpAddr::V4(ip) => bytes[..4].copy_from_slice(&ip.octets()),
            IpAddr::V6(ip) => bytes[..16].copy_from_slice(&ip.octets()),
        }
        bytes[16..18].copy_from_slice(&owner.port().to_be_bytes());
        bytes[18] = shard.0;
        self.hasher.hash(&bytes) as u32
    }
}

/// The boot id and the sequence numbers of one core.
struct Sender {
    seed: SipHasher13,
    boots: u64,
    boot: BootId,
    sequence: u32,
}

impl Sender {
    fn new(seed: u64) -> Self {
        let mut sender = Self {
            seed: SipHasher13::new_with_keys(seed, 0),
            boots: 0,
            boot: BootId(0),
            sequence: 0,
        };
        sender.reboot();
        sender
    }

    fn next(&mut self) -> (BootId, u32) {
        let number = self.sequence;
        let boot = self.boot;
        match number.checked_add(1) {
            Some(next) => self.sequence = next,
            // A number is never used twice under one boot id: receivers would take it for a replay.
            None => self.reboot(),
        }
        (boot, number)
    }

    fn reboot(&mut self) {
        self.boot = BootId::of_relay(self.seed.hash(&self.boots.to_be_bytes()) as u32);
        self.boots += 1;
        self.sequence = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sequence_that_would_wrap_takes_a_new_boot_id() {
        let mut sender = Sender::new(7);
        let (first_boot, number) = sender.next();
        assert_eq!(number, 0);
        sender.sequence = u32::MAX;
        assert_eq!(sender.next(), (first_boot, u32::MAX));
        let (second_boot, number) = sender.next();
        assert_eq!(number, 0);
        assert_ne!(first_boot, second_boot);
    }

    #[test]
    fn another_seed_is_another_sender() {
        assert_ne!(Sender::new(1).next().0, Sender::new(2).next().0);
    }
}
