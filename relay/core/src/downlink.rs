//! What becomes of an owner's record.
//!
//! An authenticated record goes to the client that it names, whether the flow table knows that client or not: the owner
//! does. On the way it tells the table what it proves, restores or ends. A restored flow fills an empty place and nothing
//! else, because a record of a call that is over may arrive late, when its address is somebody else's.

use firsthop_shared::address::{ClientAddr, Hop, OwnerAddr, Restart, ShardId};
use firsthop_shared::trunk::{self, RecordHeader, RecordKind, TrunkError};

use crate::cache::ChangeKind;
use crate::flows::{Claim, FlowKey, Found, Transport};
use crate::reason::Reason;
use crate::router::{Router, path_bit};
use crate::time::Micros;

/// What becomes of a record that came over the trunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DownVerdict {
    /// Send the payload to the client that the record names, from the ingress that it names.
    Send,
    /// The same; and let the core of this number [note](Router::note) the record: the client's packets reach it there.
    SendAndNote(u16),
    /// Nothing to send; the flow table knows.
    Done,
    /// Nothing to send; let the core of this number note the record.
    Note(u16),
    /// It goes nowhere; already counted.
    Drop(Reason),
}

impl Router {
    /// Accepts a datagram from the internal socket: its source, structure and tag, that an owner wrote it, and that it is no
    /// replay.
    ///
    /// # Errors
    /// Why it is dropped; already counted.
    pub fn open<'a>(
        &mut self,
        now: Micros,
        source: Hop,
        bytes: &'a [u8],
    ) -> Result<trunk::Datagram<'a>, Reason> {
        let opened = if self.internal.contains(source.ip()) {
            trunk::open(&self.keyring, bytes).map_err(trunk_reason)
        } else {
            Err(Reason::TrunkSource)
        };
        let accepted = opened.and_then(|datagram| {
            let header = &datagram.header;
            if !header.boot.is_owner() {
                Err(Reason::TrunkReflected)
            } else if self.replay.accept(header.boot, header.sequence, now.secs()) {
                Ok(datagram)
            } else {
                Err(Reason::TrunkReplay)
            }
        });
        match accepted {
            Ok(_) => self.counters.downlink_datagrams += 1,
            Err(reason) => self.counters.drop(reason),
        }
        accepted
    }

    /// Decides one record of an accepted datagram. `shard` is the datagram's: the worker that sent it.
    pub fn downlink(
        &mut self,
        now: Micros,
        source: Hop,
        shard: ShardId,
        record: &RecordHeader,
    ) -> DownVerdict {
        self.counters.downlink_records += 1;
        if let Err(reason) = self.admit(record) {
            self.counters.drop(reason);
            return DownVerdict::Drop(reason);
        }
        let elsewhere = self.learn(now, source, shard, record);
        if record.kind != RecordKind::Packet {
            return elsewhere.map_or(DownVerdict::Done, DownVerdict::Note);
        }
        self.counters.downlink_packets += 1;
        self.counters.downlink_bytes += u64::from(record.payload_len);
        elsewhere.map_or(DownVerdict::Send, DownVerdict::SendAndNote)
    }

    /// Learns from a record that another core received what the flow table of this one should know.
    pub fn note(&mut self, now: Micros, source: Hop, shard: ShardId, record: &RecordHeader) {
        if self.admit(record).is_ok() {
            // A second core that disagrees about the steering passes nothing on: no note travels in circles.
            let _ = self.learn(now, source, shard, record);
        }
    }

    /// Whether a record is one that this relay serves.
    fn admit(&self, record: &RecordHeader) -> Result<(), Reason> {
        if record.owner.is_some() {
            return Err(Reason::RecordRelayed);
        }
        match record.kind {
            RecordKind::Keepalive => Err(Reason::RecordKeepalive),
            RecordKind::Close | RecordKind::UnknownSession => Ok(()),
            RecordKind::Packet if record.payload_len == 0 => Err(Reason::RecordMalformed),
            RecordKind::Packet => {
                let path = path_bit(transport_of(record), record.client.is_ipv6());
                if self.paths[usize::from(record.ingress.0)] & path == 0 {
                    Err(Reason::RecordIngress)
                } else if !self.serves(record.client) {
                    Err(Reason::RecordClientInside)
                } else {
                    Ok(())
                }
            }
        }
    }

    /// Brings the flow table up to what a record says. Returns another core that should learn it instead.
    fn learn(
        &mut self,
        now: Micros,
        source: Hop,
        shard: ShardId,
        record: &RecordHeader,
    ) -> Option<u16> {
        let owner = OwnerAddr::new(source.get());
        let key = FlowKey::new(record.ingress, transport_of(record), &record.client);
        let found = self
            .flows
            .find_handle(record.handle, &key, record.session)
            .or_else(|| self.flows.find(&self.flows.hashed(key)));
        match (found, record.kind) {
            (Some(found), RecordKind::Packet) => self.confirm(now, found, owner, shard, record),
            (Some(found), _) => self.close(found, owner, shard, record),
            (None, kind) => {
                if let Some(core) = self.other_core(&record.client) {
                    return Some(core);
                }
                if kind == RecordKind::Packet {
                    self.restore(now, key, owner, shard, record);
                } else {
                    self.remember(owner, shard, record, Restart(0), ChangeKind::Closed);
                }
            }
        }
        None
    }

    /// A packet record of a session at a flow that exists: keeps it, and proves it when the record does.
    ///
    /// A record of a session without a claim here changes nothing: it may be a late one of a call that is over.
    fn confirm(
        &mut self,
        now: Micros,
        found: Found,
        owner: OwnerAddr,
        shard: ShardId,
        record: &RecordHeader,
    ) {
        let trunks = &self.trunks;
        let same = |claim: &Claim| {
            claim.session == record.session && trunks.leads_to(claim.trunk, owner, shard)
        };
        if !self.flows.live(found).iter().flatten().any(same) {
            return;
        }
        self.flows.touch(found, now.ticks());
        if !record.proven {
            return;
        }
        if let Some(proof) = self.flows.prove(found, same) {
            self.counters.claims_proven += u64::from(proof.promoted);
            self.counters.proofs_refused += u64::from(proof.refused);
            self.count_removed(None, proof.displaced);
            if let (true, Some((_, restart))) = (proof.promoted, self.flows.proven(found)) {
                self.remember(owner, shard, record, restart, ChangeKind::Proven);
            }
        }
    }

    /// Ends the claim of one session at one address, and no other.
    fn close(&mut self, found: Found, owner: OwnerAddr, shard: ShardId, record: &RecordHeader) {
        let trunks = &self.trunks;
        let removed = self.flows.remove(found, |claim| {
            claim.session == record.session && trunks.leads_to(claim.trunk, owner, shard)
        });
        if let Some(claim) = removed {
            self.counters.claims_closed += 1;
            self.trunks.release_claim(claim.trunk);
        }
        self.remember(owner, shard, record, Restart(0), ChangeKind::Closed);
    }

    /// Fills an empty place with the flow that an authenticated record names.
    fn restore(
        &mut self,
        now: Micros,
        key: FlowKey,
        owner: OwnerAddr,
        shard: ShardId,
        record: &RecordHeader,
    ) {
        let Some(trunk) = self.trunks.acquire(owner, shard) else {
            self.counters.restores_refused += 1;
            return;
        };
        let claim = Claim {
            session: record.session,
            trunk,
        };
        let key = self.flows.hashed(key);
        let unseen = Restart(0);
        let restored = self
            .flows
            .restore(now.ticks(), &key, claim, unseen, record.proven);
        self.counters.claims_restored += 1;
        self.counters.proofs_refused += u64::from(restored.refused);
        self.count_removed(restored.evicted, None);
        if record.proven && !restored.refused {
            self.remember(owner, shard, record, unseen, ChangeKind::Proven);
        }
    }

    /// The core that the client's packets reach, when it is another one.
    fn other_core(&self, client: &ClientAddr) -> Option<u16> {
        let placement = self.placement?;
        let core = placement.steering.core_for(client);
        (core != placement.core).then_some(core)
    }
}

pub(crate) fn transport_of(record: &RecordHeader) -> Transport {
    if record.tcp {
        Transport::Tcp
    } else {
        Transport::Udp
    }
}

fn trunk_reason(error: TrunkError) -> Reason {
    match error {
        TrunkError::Length => Reason::TrunkLength,
        TrunkError::Magic => Reason::TrunkMagic,
        TrunkError::UnknownKey => Reason::TrunkUnknownKey,
        TrunkError::Tag => Reason::TrunkTag,
        TrunkError::Record => Reason::RecordMalformed,
    }
}
