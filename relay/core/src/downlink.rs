//! What becomes of an owner's record.
//!
//! An authenticated record goes to the client that it names, whether the flow table knows that client or not: the owner
//! does. On the way it tells the table what it proves, restores or ends. A restored flow fills an empty place and nothing
//! else, because a record of a call that is over may arrive late, when its address is somebody else's.
//!
//! A record may come from an owner of another cluster, by a relay of that cluster, and names its owner then. And when another
//! relay brought the client's newest packet, its record goes back there instead of to the client.

use firsthop_shared::address::{ClientAddr, Hop, OwnerAddr, Restart, ShardId};
use firsthop_shared::limits::CLIENT_PACKET_MAX;
use firsthop_shared::trunk::{self, DatagramHeader, RecordHeader, RecordKind, TrunkError};

use crate::cache::ChangeKind;
use crate::flows::{Back, Claim, FlowKey, Found, Removed, Transport};
use crate::reason::Reason;
use crate::relayed::Way;
use crate::router::{Router, path_bit};
use crate::time::Micros;
use crate::trunks::{Origin, Target};

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
    /// It goes back to the relay that its client is at: [pack](Router::pack_onward) it on its way.
    Pass(Way),
    /// It goes nowhere; already counted.
    Drop(Reason),
}

/// What the flow table makes of a record.
enum Learned {
    /// A claim of this relay's own client.
    Here,
    /// A claim of another relay's client; a claim that the record ended takes its trunk along.
    Relayed(Back),
    /// No claim of the session is here.
    Unknown,
    /// Another core should learn it instead.
    Elsewhere(u16),
}

impl Router {
    /// Accepts a datagram from the internal socket: its source, structure and tag, that it goes down or comes from a relay that
    /// may send it, that it is none of ours, and that it is no replay.
    ///
    /// Its records are for [`Router::downlink`] when the boot id says that it [goes down](firsthop_shared::address::BootId::is_owner),
    /// else for [`Router::inbound`]. Keepalives that go down are for [`Router::heard`].
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
            self.admit_datagram(now, source, &datagram.header)?;
            Ok(datagram)
        });
        match &accepted {
            Ok(datagram) if datagram.header.boot.is_owner() => {
                self.counters.downlink_datagrams += 1;
            }
            Ok(_) => self.counters.relayed_datagrams += 1,
            Err(reason) => self.counters.drop(*reason),
        }
        accepted
    }

    fn admit_datagram(
        &mut self,
        now: Micros,
        source: Hop,
        header: &DatagramHeader,
    ) -> Result<(), Reason> {
        if !header.boot.is_owner() {
            self.admit_relay(source, header)?;
        } else if self.trunks.is_own(header.boot) {
            return Err(Reason::TrunkReflected);
        }
        if self.replay.accept(header.boot, header.sequence, now.secs()) {
            Ok(())
        } else {
            Err(Reason::TrunkReplay)
        }
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
        let verdict = match self.origin(source, shard, record) {
            Ok(origin) => self.decide(now, &origin, record),
            Err(reason) => DownVerdict::Drop(reason),
        };
        if let DownVerdict::Drop(reason) = verdict {
            self.counters.drop(reason);
        }
        verdict
    }

    #[inline]
    fn decide(&mut self, now: Micros, origin: &Origin, record: &RecordHeader) -> DownVerdict {
        self.counters.beyond_downlink_records += u64::from(origin.beyond.is_some());
        let refused = self.admit(record).err();
        // A client of another relay is reached by that relay alone.
        if let Some(reason) = refused
            && (reason != Reason::RecordIngress || !self.takes_relayed)
        {
            return DownVerdict::Drop(reason);
        }
        let packet = record.kind == RecordKind::Packet;
        let elsewhere = match self.learn(now, origin, record, refused.is_none()) {
            Learned::Relayed(back) => return self.pass_back(back, record),
            Learned::Elsewhere(core) => Some(core),
            Learned::Here | Learned::Unknown => None,
        };
        if let Some(reason) = refused {
            return DownVerdict::Drop(reason);
        }
        if !packet {
            return elsewhere.map_or(DownVerdict::Done, DownVerdict::Note);
        }
        self.counters.downlink_packets += 1;
        self.counters.downlink_bytes += u64::from(record.payload_len);
        elsewhere.map_or(DownVerdict::Send, DownVerdict::SendAndNote)
    }

    /// Sends a record back to the relay that its client is at. One that ended its claim has the claim's trunk to give back.
    fn pass_back(&mut self, back: Back, record: &RecordHeader) -> DownVerdict {
        let hop = Hop::new(self.trunks.target(back.trunk).address.get());
        let refused = if self.peers.cluster_of(hop).is_none() {
            // The fleet was reloaded since that relay brought the client's packets.
            Some(Reason::PeerUnknown)
        } else if usize::from(record.payload_len) > CLIENT_PACKET_MAX {
            // With its owner's address it might fit no datagram any more.
            Some(Reason::Oversize)
        } else {
            None
        };
        let last = record.kind != RecordKind::Packet;
        let Some(reason) = refused else {
            return DownVerdict::Pass(Way::back(back, last));
        };
        if last {
            self.trunks.release_claim(back.trunk);
        }
        DownVerdict::Drop(reason)
    }

    /// Learns from a record that another core received what the flow table of this one should know.
    pub fn note(&mut self, now: Micros, source: Hop, shard: ShardId, record: &RecordHeader) {
        if let Ok(origin) = self.origin(source, shard, record)
            && self.admit(record).is_ok()
        {
            // A second core that disagrees about the steering passes nothing on: no note travels in circles.
            let learned = self.learn(now, &origin, record, true);
            if let Learned::Relayed(back) = learned
                && record.kind != RecordKind::Packet
            {
                // The core that received it has told nobody either; the owner says it again.
                self.trunks.release_claim(back.trunk);
            }
        }
    }

    /// Who wrote a record: the sender of its datagram, or the owner for which a relay of another cluster speaks.
    fn origin(&self, source: Hop, shard: ShardId, record: &RecordHeader) -> Result<Origin, Reason> {
        let Some(owner) = record.owner else {
            return Ok(Origin {
                owner: OwnerAddr::new(source.get()),
                shard,
                beyond: None,
            });
        };
        let beyond = self.peers.cluster_of(source);
        beyond.ok_or(Reason::RecordRelayed)?;
        Ok(Origin {
            owner,
            shard,
            beyond,
        })
    }

    /// Whether a record is one that this relay serves.
    fn admit(&self, record: &RecordHeader) -> Result<(), Reason> {
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

    /// Brings the flow table up to what a record says; a flow that is not there only when its client is `served` here.
    fn learn(
        &mut self,
        now: Micros,
        origin: &Origin,
        record: &RecordHeader,
        served: bool,
    ) -> Learned {
        let key = FlowKey::new(record.ingress, transport_of(record), &record.client);
        let found = self
            .flows
            .find_handle(record.handle, &key, record.session)
            .or_else(|| self.flows.find(&self.flows.hashed(key)));
        match (found, record.kind) {
            (Some(found), RecordKind::Packet) => self.confirm(now, found, origin, record),
            (Some(found), _) => self.close(found, origin, record),
            (None, kind) if served => {
                if let Some(core) = self.other_core(&record.client) {
                    return Learned::Elsewhere(core);
                }
                if kind == RecordKind::Packet {
                    self.restore(now, key, origin, record);
                } else {
                    self.remember(origin, record, Restart(0), ChangeKind::Closed);
                }
                Learned::Unknown
            }
            (None, _) => Learned::Unknown,
        }
    }

    /// A packet record of a session at a flow that exists: keeps it, and proves it when the record does.
    ///
    /// A record of a session without a claim here changes nothing: it may be a late one of a call that is over.
    fn confirm(
        &mut self,
        now: Micros,
        found: Found,
        origin: &Origin,
        record: &RecordHeader,
    ) -> Learned {
        let trunks = &self.trunks;
        let same =
            |claim: &Claim| claim.session == record.session && trunks.leads_to(claim.trunk, origin);
        let Some(place) = self.flows.place(found, same) else {
            return Learned::Unknown;
        };
        self.flows.touch(found, now.ticks());
        if record.proven
            && let Some(proof) = self.flows.prove(found, same)
        {
            self.counters.claims_proven += u64::from(proof.promoted);
            self.counters.proofs_refused += u64::from(proof.refused);
            self.count_removed(Removed {
                displaced: proof.displaced,
                ..Removed::default()
            });
            if let (true, Some((_, restart))) = (proof.promoted, self.flows.proven_here(found)) {
                self.remember(origin, record, restart, ChangeKind::Proven);
            }
        }
        match self.flows.back_at(found, place) {
            None => Learned::Here,
            Some(back) => Learned::Relayed(back),
        }
    }

    /// Ends the claim of one session at one address, and no other. The way back that it had is the caller's to give back.
    fn close(&mut self, found: Found, origin: &Origin, record: &RecordHeader) -> Learned {
        let trunks = &self.trunks;
        let removed = self.flows.remove(found, |claim| {
            claim.session == record.session && trunks.leads_to(claim.trunk, origin)
        });
        let learned = match removed {
            None => Learned::Unknown,
            Some(ended) => {
                self.counters.claims_closed += 1;
                self.trunks.release_claim(ended.claim.trunk);
                ended.back.map_or(Learned::Here, Learned::Relayed)
            }
        };
        if !matches!(learned, Learned::Relayed(_)) {
            self.remember(origin, record, Restart(0), ChangeKind::Closed);
        }
        learned
    }

    /// Fills an empty place with the flow that an authenticated record names.
    fn restore(&mut self, now: Micros, key: FlowKey, origin: &Origin, record: &RecordHeader) {
        let target = match origin.beyond {
            None => Some(Target::owner(origin.owner, origin.shard)),
            Some(cluster) => self
                .peers
                .lane(cluster, &record.client)
                .map(|lane| Target::beyond(lane, origin.owner, origin.shard)),
        };
        let Some(trunk) = target.and_then(|target| self.acquire(now, target)) else {
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
        self.count_removed(Removed {
            evicted: restored.evicted,
            ..Removed::default()
        });
        if record.proven && !restored.refused {
            self.remember(origin, record, unseen, ChangeKind::Proven);
        }
    }

    /// The core that the client's packets reach, when it is another one.
    fn other_core(&self, client: &ClientAddr) -> Option<u16> {
        let placement = self.placement?;
        let core = placement.steering.core_for(client);
        (core != placement.core).then_some(core)
    }
}

/// How the client of a record speaks.
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
