//! What owners send: records of the moment, late ones, and datagrams that no owner of the fleet would send.

use firsthop_relay_core::limits::{FLOW_IDLE_TICKS, WHEEL_TICK_BITS};
use firsthop_relay_core::{DownVerdict, Reason, Transport};
use firsthop_shared::address::{FlowHandle, Hop, IngressId, OwnerAddr};
use firsthop_shared::trunk::{RecordHeader, RecordKind};
use rand::RngExt as _;

use crate::Simulation;
use crate::model::Key;
use crate::world::{self, Who, record};

impl Simulation<'_> {
    /// A claim that exists, mostly, or any session at any address.
    fn session_somewhere(&mut self) -> (Key, Who) {
        let key = self.key();
        let claims = self.model.claims(&key);
        if !claims.is_empty() && self.rng.random_bool(0.8) {
            return (key, claims[self.rng.random_range(0..claims.len())].0);
        }
        (key, self.call().who)
    }

    fn handle(&mut self, key: &Key) -> FlowHandle {
        match self.handles.get(key) {
            Some(handle) if self.rng.random_bool(0.7) => *handle,
            _ => {
                // One that another flow had, or any number.
                let other = self.key();
                let known = self.handles.get(&other).copied();
                known.unwrap_or_else(|| FlowHandle(self.rng.random()))
            }
        }
    }

    pub(crate) fn downlink_packet(&mut self) {
        let (key, who) = self.session_somewhere();
        let proven = self.rng.random_bool(0.3);
        let handle = self.handle(&key);
        let mut header = record(
            RecordKind::Packet,
            who,
            key.ingress,
            key.client,
            proven,
            handle,
        );
        header.tcp = key.transport == Transport::Tcp;
        self.down(who, header);
    }

    pub(crate) fn downlink_end(&mut self) {
        let (key, who) = self.session_somewhere();
        let kind = [RecordKind::Close, RecordKind::UnknownSession][self.rng.random_range(0..2)];
        self.end(key, who, kind);
    }

    pub(crate) fn end(&mut self, key: Key, who: Who, kind: RecordKind) {
        let handle = self.handle(&key);
        let mut header = record(kind, who, key.ingress, key.client, false, handle);
        header.tcp = key.transport == Transport::Tcp;
        self.down(who, header);
    }

    /// A record that an owner sent long ago, when the address was perhaps somebody else's.
    pub(crate) fn late_record(&mut self) {
        if !self.history.is_empty() {
            let at = self.rng.random_range(0..self.history.len());
            let (who, header) = self.history.swap_remove(at);
            self.down(who, header);
        }
    }

    fn down(&mut self, from: Who, header: RecordHeader) {
        if from.owner.ip().to_string().starts_with("192.") {
            return;
        }
        if self.history.len() < 64 && self.rng.random_bool(0.3) {
            self.history.push((from, header));
        }
        let key = Key {
            ingress: header.ingress.0,
            transport: if header.tcp {
                Transport::Tcp
            } else {
                Transport::Udp
            },
            client: header.client,
        };
        let packet = header.kind == RecordKind::Packet;
        let elsewhere = self.elsewhere(&key);
        let expected = if packet && Self::is_inside(&key.client) {
            *self.dropped.entry(Reason::RecordClientInside).or_default() += 1;
            DownVerdict::Drop(Reason::RecordClientInside)
        } else {
            match elsewhere {
                Some(core) if packet => DownVerdict::SendAndNote(core),
                Some(core) => DownVerdict::Note(core),
                None if packet => DownVerdict::Send,
                None => DownVerdict::Done,
            }
        };
        if self.rng.random_bool(0.1) {
            // The same from another core of this relay, which has nothing to send any more.
            let source = Hop::new(from.owner.get());
            let mut header = header;
            header.payload_len = if packet { 8 } else { 0 };
            self.relay
                .router
                .note(self.relay.now, source, from.shard, &header);
            if let DownVerdict::Drop(reason) = expected {
                *self.dropped.entry(reason).or_default() -= 1;
            }
        } else {
            assert_eq!(self.relay.down(from, &header), expected);
        }
        if !matches!(expected, DownVerdict::Drop(_)) {
            match elsewhere {
                Some(_) => self.totals.noted += 1,
                None if packet => self.learned(key, from, header.proven),
                None => {
                    self.model.close(key, from);
                    if self.live.get(&key).is_some_and(|(who, _)| *who == from) {
                        self.live.remove(&key);
                    }
                }
            }
        }
        self.compare(&key);
    }

    fn learned(&mut self, key: Key, from: Who, proven: bool) {
        let empty = !self.model.has_flow(&key);
        let learned = self.model.record(self.ticks(), key, from, proven);
        let claims = self.relay.claims_at(key.ingress, key.transport, key.client);
        if learned && empty {
            self.ever.entry(key).or_default().insert(from);
        }
        self.touch_live(&key, from);
        if proven && claims == vec![(from, true)] {
            self.live.insert(key, (from, self.ticks()));
        }
    }

    /// A packet of either direction keeps a flow, whichever of its sessions it is for.
    pub(crate) fn touch_live(&mut self, key: &Key, from: Who) {
        let now = self.ticks();
        let here = self.model.claims(key).iter().any(|(who, _)| *who == from);
        if let Some((_, last_seen)) = self.live.get_mut(key).filter(|_| here) {
            if (*last_seen + FLOW_IDLE_TICKS) >> WHEEL_TICK_BITS >= now >> WHEEL_TICK_BITS {
                *last_seen = now;
            } else {
                self.live.remove(key);
            }
        }
    }

    fn elsewhere(&self, key: &Key) -> Option<u16> {
        let placement = self.config.placement?;
        let core = placement.steering.core_for(&key.client);
        (!self.model.has_flow(key) && core != placement.core).then_some(core)
    }

    /// Datagrams that no owner of the fleet would send now.
    pub(crate) fn bad_datagram(&mut self) {
        let (key, who) = self.session_somewhere();
        let mut header = record(
            RecordKind::Packet,
            who,
            key.ingress,
            key.client,
            true,
            FlowHandle(0),
        );
        header.tcp = key.transport == Transport::Tcp;
        let (ids, ring) = &self.population.rings[self.rng.random_range(0..4)];
        let known = self.population.rings[self.ring]
            .0
            .contains(ids.last().expect("an active key"));
        let unknown_or = |reason| {
            if known {
                reason
            } else {
                Reason::TrunkUnknownKey
            }
        };
        let inside = OwnerAddr::new(world::socket("10.0.0.1:5000"));
        let mut from = inside;
        let kind = self.rng.random_range(0..9);
        match kind {
            0 => header.ingress = IngressId(9),
            1 => header.owner = Some(inside),
            2 => header.kind = RecordKind::Keepalive,
            _ => {}
        }
        let mut bytes = self.relay.datagram(who.shard, &header, b"bad", ring);
        let reason = match kind {
            0 => unknown_or(Reason::RecordIngress),
            1 => unknown_or(Reason::RecordRelayed),
            2 => unknown_or(Reason::RecordKeepalive),
            3 => {
                from = OwnerAddr::new(world::socket("192.0.2.1:5000"));
                Reason::TrunkSource
            }
            4 => {
                bytes[30] ^= 1 << self.rng.random_range(0..8);
                unknown_or(Reason::TrunkTag)
            }
            5 => {
                bytes[2] = 2;
                Reason::TrunkMagic
            }
            6 => {
                bytes.pop();
                unknown_or(Reason::RecordMalformed)
            }
            7 => {
                bytes.truncate(30);
                Reason::TrunkLength
            }
            _ => match self.last_datagram.clone() {
                Some((owner, again)) => {
                    from = owner;
                    bytes = again;
                    Reason::TrunkReplay
                }
                None => return,
            },
        };
        match self.relay.down_bytes(from, &bytes) {
            Err(found) | Ok(DownVerdict::Drop(found)) => {
                // The replayed datagram's key may have gone in the meantime.
                if !(kind == 8 && found == Reason::TrunkUnknownKey) {
                    assert_eq!(found, reason);
                }
                *self.dropped.entry(found).or_default() += 1;
            }
            Ok(verdict) => panic!("accepted: {verdict:?}"),
        }
        if kind < 3 && known {
            self.last_datagram = Some((from, bytes));
        }
        self.compare(&key);
    }
}
