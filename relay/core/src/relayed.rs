//! Between relays: what becomes of packets that another relay took from its clients, and of what their owners answer.
//!
//! A relay that serves clients sends what belongs to another cluster to that cluster's relay, each record with its owner's
//! address; there it goes on to the owner like a client's own packet, and the flow remembers which relay's core brought it.
//! Records of the owner go back there, with the handle of the flow as that relay knows it, and the owner's address again:
//! so a relay that was restarted restores such flows from the downlink as it does others.
//!
//! - A relayed record makes a claim as a verified request does, and no better one: provisional until its owner proves it.
//! - The newest packet of a claim says where its records go back to, be it another relay or this one's own socket.
//! - What another relay brought goes to an owner and never to a third relay; what it asks of us is never more than it sent.

use std::ops::Range;
use std::sync::Arc;

use firsthop_shared::address::{FlowHandle, Hop, OwnerAddr, ShardId};
use firsthop_shared::limits::CLIENT_PACKET_MAX;
use firsthop_shared::trunk::{DatagramHeader, RecordHeader, RecordKind};

use crate::downlink::transport_of;
use crate::flows::{Back, Claim, FlowKey};
use crate::keepalive::Keepalive;
use crate::peers::{PEER_WORDS, PeerList, Turned};
use crate::reason::Reason;
use crate::router::Router;
use crate::time::Micros;
use crate::trunks::{BufferId, Origin, Span, Target, TrunkId};

/// Where a record goes on to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Way {
    trunk: TrunkId,
    /// The flow's handle there.
    handle: FlowHandle,
    /// Whether it goes back to the relay that its client is at; else to its owner.
    back: bool,
    /// Whether the trunk was this record's own: its claim has just ended.
    last: bool,
}

/// A record that goes on: [pack](Router::pack_onward) it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Onward {
    trunk: TrunkId,
    header: RecordHeader,
    last: bool,
}

impl Way {
    /// The way back to a client of another relay.
    pub(crate) fn back(back: Back, last: bool) -> Self {
        Self {
            trunk: back.trunk,
            handle: back.handle,
            back: true,
            last,
        }
    }

    /// The way to an owner.
    fn up(trunk: TrunkId, handle: FlowHandle) -> Self {
        Self {
            trunk,
            handle,
            back: false,
            last: false,
        }
    }

    /// The record as it goes on that came in a datagram from `source`.
    #[must_use]
    pub fn onward(self, source: Hop, record: &RecordHeader) -> Onward {
        let owner = record.owner.unwrap_or(OwnerAddr::new(source.get()));
        Onward {
            trunk: self.trunk,
            header: RecordHeader {
                handle: self.handle,
                owner: self.back.then_some(owner),
                proven: self.back && record.proven,
                ..*record
            },
            last: self.last,
        }
    }
}

/// What becomes of another relay's record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Inbound {
    /// It goes on to its owner.
    Pass(Way),
    /// It is a keepalive, to be [answered](Router::answer_keepalive) with its payload.
    Answer,
    /// It goes nowhere; already counted.
    Drop(Reason),
}

impl Router {
    /// Takes a reloaded list of other clusters' relays. Flows stay; what they send goes to the relays of the new list.
    pub fn set_peers(&mut self, now: Micros, peers: Arc<PeerList>) {
        self.peers.set_list(peers, now);
        self.trunks.set_leaders(self.peers.leaders());
    }

    /// The list that is in use.
    #[must_use]
    pub fn peers(&self) -> &Arc<PeerList> {
        self.peers.list()
    }

    /// Which relays of the list are up, and which lead to their clusters: one bit each, in the order of the list.
    #[must_use]
    pub fn peer_bits(&self) -> [[u64; PEER_WORDS]; 2] {
        self.peers.bits()
    }

    /// Looks whether a relay has fallen silent. Call it once a turn.
    pub fn watch_peers(&mut self, now: Micros) {
        let turned = self.peers.watch(now);
        self.turn_to_leaders(turned);
    }

    /// The next keepalive that is due. Send it, and ask again until there is none.
    pub fn next_question(&mut self, now: Micros) -> Option<Keepalive> {
        let question = self.peers.question(now)?;
        let stamp = self.trunks.stamp(false);
        self.counters.peers_asked += 1;
        let payload = question.number.to_be_bytes();
        Keepalive::new(&self.keyring, stamp, question.to, &payload)
    }

    /// A keepalive record of an accepted datagram that went down: the answer to a question of ours, if there was one.
    pub fn heard(&mut self, now: Micros, source: Hop, payload: &[u8]) {
        let number = payload.try_into().map(u64::from_be_bytes).ok();
        match number.and_then(|number| self.peers.answer(now, source, number)) {
            Some(turned) => {
                self.counters.peers_answered += 1;
                self.turn_to_leaders(turned);
            }
            None => self.counters.drop(Reason::RecordKeepalive),
        }
    }

    /// The answer to a keepalive that [`Router::inbound`] accepted.
    pub fn answer_keepalive(&mut self, source: Hop, payload: &[u8]) -> Option<Keepalive> {
        let stamp = self.trunks.stamp(true);
        let answer = Keepalive::new(&self.keyring, stamp, source, payload);
        match answer {
            Some(_) => self.counters.keepalives_answered += 1,
            None => self.counters.drop(Reason::RecordMalformed),
        }
        answer
    }

    /// Decides one record of an accepted datagram that another relay sent up. `shard` is the datagram's: the owner's worker.
    pub fn inbound(
        &mut self,
        now: Micros,
        source: Hop,
        shard: ShardId,
        record: &RecordHeader,
    ) -> Inbound {
        let passed = match record.kind {
            RecordKind::Keepalive => return Inbound::Answer,
            RecordKind::Packet if record.payload_len > 0 => {
                self.take_relayed(now, source, shard, record)
            }
            RecordKind::Packet | RecordKind::Close | RecordKind::UnknownSession => {
                Err(Reason::RecordMalformed)
            }
        };
        match passed {
            Ok(way) => {
                self.counters.relayed_packets += 1;
                Inbound::Pass(way)
            }
            Err(reason) => {
                self.counters.drop(reason);
                Inbound::Drop(reason)
            }
        }
    }

    /// Puts a record that goes on on its trunk.
    ///
    /// All records of a datagram may be decided first and packed then, in their order, before anything else changes the
    /// router. A record's claim may have ended in between, by a later record of the same datagram: if that took the trunk
    /// along, the record is dropped and counted, as [`Reason::TrunkGone`].
    ///
    /// `frame` is the receive buffer and `payload` the record's in it. A header for an owner is written in place, where a longer
    /// one stood. One for a relay is longer than what stands before the payload, and goes to `side`, which is moved behind it:
    /// it begins behind the datagram, and the buffer has room there for the headers of as many records as a datagram holds.
    /// Returns whether a record now refers to the buffer; what found no room is counted.
    ///
    /// # Panics
    /// When the header does not fit where it shall stand, or the frame is longer than 65,535 bytes.
    pub fn pack_onward(
        &mut self,
        now: Micros,
        onward: &Onward,
        buffer: BufferId,
        frame: &mut [u8],
        payload: Range<usize>,
        side: &mut usize,
    ) -> bool {
        let record = &onward.header;
        let len = record.encoded_len();
        let at = if record.owner.is_none() {
            payload.start - len
        } else {
            *side += len;
            *side - len
        };
        let body = Span::of(&payload);
        let put = self.put(now, (onward.trunk, record), buffer, frame, at, body);
        if onward.last {
            self.trunks.release_claim(onward.trunk);
        }
        put
    }

    /// Whether a datagram that a relay wrote may come in at all.
    pub(crate) fn admit_relay(&self, source: Hop, header: &DatagramHeader) -> Result<(), Reason> {
        if self.trunks.is_own(header.boot) {
            Err(Reason::TrunkReflected)
        } else if self.peers.cluster_of(source).is_none() {
            Err(Reason::PeerUnknown)
        } else if !self.takes_relayed {
            Err(Reason::PeerRole)
        } else {
            Ok(())
        }
    }

    fn take_relayed(
        &mut self,
        now: Micros,
        source: Hop,
        shard: ShardId,
        record: &RecordHeader,
    ) -> Result<Way, Reason> {
        let owner = record.owner.ok_or(Reason::RecordNoOwner)?;
        if usize::from(record.payload_len) > CLIENT_PACKET_MAX {
            return Err(Reason::Oversize);
        }
        if !self.internal.contains(owner.ip()) {
            return Err(Reason::RecordOwnerOutside);
        }
        if self.peers.is_relay(owner) {
            return Err(Reason::RecordLoop);
        }
        if !self.serves(record.client) {
            return Err(Reason::RecordClientInside);
        }
        let key = FlowKey::new(record.ingress, transport_of(record), &record.client);
        let key = self.flows.hashed(key);
        let origin = Origin {
            owner,
            shard,
            beyond: None,
        };
        if let Some(found) = self.flows.find(&key) {
            let trunks = &self.trunks;
            let ours = |claim: &Claim| claim.session == record.session;
            let known = self.flows.claim(found, |claim| {
                ours(claim) && trunks.leads_to(claim.trunk, &origin)
            });
            if let Some((claim, Some(back))) = known
                && *trunks.target(back.trunk) == Target::back(source, shard)
            {
                let handle = record.handle;
                let back = Back { handle, ..back };
                self.flows.renew_back(found, now.ticks(), &claim, back);
                return Ok(Way::up(claim.trunk, self.flows.handle(found)));
            }
            let away = |claim: &Claim| ours(claim) && trunks.names(claim.trunk).is_some();
            if known.is_none() && self.flows.claim(found, away).is_some() {
                return Err(Reason::RecordLoop);
            }
        }
        let trunk = self
            .acquire(now, Target::owner(owner, shard))
            .ok_or(Reason::TrunkTableFull)?;
        let Some(way) = self.acquire(now, Target::back(source, shard)) else {
            self.trunks.release_claim(trunk);
            return Err(Reason::TrunkTableFull);
        };
        let claim = Claim {
            session: record.session,
            trunk,
        };
        let back = Back {
            trunk: way,
            handle: record.handle,
        };
        let bound = self.flows.bind_relayed(now.ticks(), &key, claim, back);
        if bound.added {
            self.counters.claims_relayed += 1;
        } else {
            // The claim that was there holds the trunk already.
            self.trunks.release_claim(trunk);
        }
        self.count_removed(bound.removed);
        Ok(Way::up(trunk, bound.handle))
    }

    fn turn_to_leaders(&mut self, turned: Turned) {
        if turned.leaders {
            self.counters.fail_overs += turned.fail_overs;
            self.trunks.set_leaders(self.peers.leaders());
        }
    }
}
