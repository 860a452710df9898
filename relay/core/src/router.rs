//! The router of one relay core: its state, and how packets that were accepted leave for their owners.
//!
//! What becomes of a client's packet is decided in [`uplink`](crate::uplink), what becomes of an owner's record in
//! [`downlink`](crate::downlink), what passes between relays in [`relayed`](crate::relayed).

use std::ops::Range;
use std::sync::Arc;

use firsthop_shared::address::{
    ClientAddr, ClusterId, IngressId, Networks, OwnerAddr, SessionId, ShardId,
};
use firsthop_shared::keyring::DataKeyring;
use firsthop_shared::limits::TRUNK_DATAGRAM_MAX;
use firsthop_shared::replay::ReplayFilter;
use firsthop_shared::trunk::RecordHeader;

use crate::budget::Budget;
use crate::cache::{ChangeKind, Entry};
use crate::cached::Cached;
use crate::config::{ConfigError, Placement, RouterConfig};
use crate::flows::{Claim, Ended, FlowCounts, FlowKey, Flows, Removed, Transport};
use crate::limits::{
    DATAGRAM_LIMIT_MIN, EVICTION_LOOKS, VERIFICATIONS_BURST, VERIFICATIONS_PER_MS,
};
use crate::peers::Peers;
use crate::reason::{Counters, Reason};
use crate::time::Micros;
use crate::trunks::{BufferId, Datagram, Piece, Span, Target, TrunkId, Trunks, TrunksConfig};
use crate::uplink::Forward;

/// The router of one core: flow table, trunks and counters behind it.
pub struct Router {
    pub(crate) cluster: ClusterId,
    pub(crate) internal: Networks,
    pub(crate) allow_internal_clients: bool,
    /// By ingress id: one bit per transport and family that it can send to.
    pub(crate) paths: [u8; 256],
    pub(crate) placement: Option<Placement>,
    pub(crate) keyring: Arc<DataKeyring>,
    pub(crate) flows: Flows,
    pub(crate) trunks: Trunks,
    pub(crate) replay: ReplayFilter,
    pub(crate) peers: Peers,
    pub(crate) relays_away: bool,
    pub(crate) takes_relayed: bool,
    /// How many requests from unproven addresses may still be verified.
    pub(crate) verifications: Budget,
    /// What it knows of a flow cache; nothing when there is none.
    pub(crate) cached: Option<Box<Cached>>,
    pub(crate) counters: Counters,
}

impl Router {
    /// Allocates everything that the core will ever use.
    ///
    /// # Errors
    /// A number in the configuration that is out of its bounds.
    pub fn new(
        config: &RouterConfig,
        keyring: Arc<DataKeyring>,
        now: Micros,
    ) -> Result<Self, ConfigError> {
        config.check()?;
        let mut paths = [0; 256];
        for path in &config.paths {
            paths[usize::from(path.ingress.0)] |= path_bit(path.transport, path.ipv6);
        }
        let peers = Peers::new(Arc::clone(&config.peers), config.relays_away, now);
        let mut router = Self {
            cluster: config.cluster,
            internal: config.internal.clone(),
            allow_internal_clients: config.allow_internal_clients,
            paths,
            placement: config.placement,
            keyring,
            flows: Flows::new(
                config.flows,
                config.seeds.hash,
                config.seeds.generation,
                now.ticks(),
                config.takes_relayed,
            ),
            trunks: Trunks::new(&TrunksConfig {
                trunks: config.trunks,
                pending: config.pending,
                datagram_limit: config.datagram_limit,
                linger: config.linger,
                hash: config.seeds.hash,
                boot: config.seeds.boot,
            }),
            replay: ReplayFilter::default(),
            peers,
            relays_away: config.relays_away,
            takes_relayed: config.takes_relayed,
            verifications: Budget::new(now, VERIFICATIONS_BURST, 1_000 * VERIFICATIONS_PER_MS),
            cached: config.cache.map(|cache| Box::new(Cached::new(cache, now))),
            counters: Counters::new(),
        };
        router.trunks.set_leaders(router.peers.leaders());
        Ok(router)
    }

    /// Takes a reloaded keyring. Flows stay; datagrams that are open keep the key they began with.
    pub fn set_keyring(&mut self, keyring: Arc<DataKeyring>) {
        self.keyring = keyring;
    }

    /// Puts an accepted packet on its trunks. Call it before anything else changes the router.
    ///
    /// `frame` is the receive buffer, `payload` the packet in it. The first record header is written in place, right before
    /// the payload; one for a second receiver right behind it. Returns how many records now refer to the buffer: 0 to 2.
    /// What found no room is counted.
    ///
    /// # Panics
    /// When there are fewer than [`RECORD_HEADER_MAX`](firsthop_shared::trunk::RECORD_HEADER_MAX) bytes before or behind
    /// the payload, or the frame is longer than 65,535 bytes.
    pub fn pack(
        &mut self,
        now: Micros,
        forward: &Forward,
        buffer: BufferId,
        frame: &mut [u8],
        payload: Range<usize>,
    ) -> u8 {
        let body = Span::of(&payload);
        let mut records = 0;
        for (i, to) in forward.routes().enumerate() {
            let mut record = forward.record(to, body.len);
            if let Some(owner) = self.trunks.names(to.trunk) {
                record.owner = Some(owner);
            }
            let at = if i == 0 {
                payload.start - record.encoded_len()
            } else {
                payload.end
            };
            let put = self.put(now, (to.trunk, &record), buffer, frame, at, body);
            records += u8::from(put);
        }
        records
    }

    /// Writes a record's header at an offset of the frame, right before its payload or apart from it, and puts the record on its
    /// trunk. Returns whether a record now refers to the buffer; what found no room is counted.
    #[inline]
    pub(crate) fn put(
        &mut self,
        now: Micros,
        (trunk, record): (TrunkId, &RecordHeader),
        buffer: BufferId,
        frame: &mut [u8],
        at: usize,
        payload: Span,
    ) -> bool {
        assert!(frame.len() <= usize::from(u16::MAX), "offsets are 16 bits");
        let len = record.encoded_len();
        let header = &mut frame[at..at + len];
        record.write(header);
        let place = Span {
            start: at as u16,
            len: len as u16,
        };
        let packed = self.trunks.append(
            now,
            &self.keyring,
            trunk,
            header,
            Piece::of(buffer, place, payload),
            &mut self.counters,
        );
        packed
            .inspect_err(|reason| self.counters.drop(*reason))
            .is_ok()
    }

    /// Ends a turn: closes the datagrams that are due; all of them when the core is `idle`, which then has nothing to wait for.
    pub fn flush(&mut self, now: Micros, idle: bool) {
        self.verifications.refill(now);
        self.trunks.flush(now, idle, &mut self.counters);
    }

    /// When [`Router::flush`] has something to close even though the core is busy.
    #[must_use]
    pub fn next_linger(&self) -> Option<Micros> {
        self.trunks.next_linger()
    }

    /// The next closed datagram. Take it when it can be sent; hand it to [`Router::release`] once its pieces are known.
    pub fn take_ready(&mut self) -> Option<Datagram> {
        self.trunks.take_ready()
    }

    /// The pieces that follow the header of a datagram, in order.
    pub fn pieces(&self, datagram: &Datagram) -> impl Iterator<Item = Piece> + '_ {
        self.trunks.pieces(datagram)
    }

    /// Takes a datagram's records back. The receive buffers stay the caller's to keep until the send has ended.
    pub fn release(&mut self, datagram: Datagram) {
        self.trunks.release(datagram);
    }

    /// Sets the largest datagram, in bytes of UDP payload, for the trunks to one owner, as its path MTU was learned.
    ///
    /// The value is kept between the limits of the format. It holds for the owner's trunks that are made later too, as long
    /// as one of them is there; then an owner starts with the default again.
    pub fn set_datagram_limit(&mut self, owner: OwnerAddr, bytes: u16) {
        let bytes = bytes.clamp(DATAGRAM_LIMIT_MIN, TRUNK_DATAGRAM_MAX as u16);
        self.trunks.set_datagram_limit(owner, bytes);
    }

    /// Whether any trunk leads to an owner, so that its path is of interest.
    #[must_use]
    pub fn sends_to(&self, owner: OwnerAddr) -> bool {
        self.trunks.lead_to(owner)
    }

    /// Forgets flows that were idle too long, looking at `budget` of them at the most.
    ///
    /// Returns whether the budget ran out: more may be due. Call it in every turn, and now and then when idle.
    pub fn expire(&mut self, now: Micros, mut budget: u32) -> bool {
        loop {
            let Self {
                flows,
                trunks,
                cached,
                cluster,
                ..
            } = self;
            let alive = |key: &FlowKey, claim: Claim, restart| {
                if let Some(cached) = cached {
                    let target = trunks.target(claim.trunk);
                    let entry = Entry {
                        cluster: target.cluster().unwrap_or(*cluster),
                        owner: target.address,
                        shard: target.shard,
                        session: claim.session,
                        restart,
                    };
                    cached.change(key.id(), entry, ChangeKind::Alive);
                }
            };
            let Some(claims) = flows.expire(now.ticks(), &mut budget, alive) else {
                return budget == 0;
            };
            self.counters.flows_expired += 1;
            for ended in claims.iter().flatten() {
                self.give_back(ended);
            }
        }
    }

    /// Counts a drop that happened outside of the router: a refused send, a cut packet.
    pub fn count(&mut self, reason: Reason) {
        self.counters.drop(reason);
    }

    /// What the core has done so far.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// How full the flow table is.
    #[must_use]
    pub fn flow_counts(&self) -> FlowCounts {
        self.flows.counts()
    }

    /// How many owner workers the core can send to right now.
    #[must_use]
    pub fn trunk_count(&self) -> u32 {
        self.trunks.len()
    }

    /// The claims at a client address: session, owner, shard, and whether it is proven. Not for the packet path.
    pub fn claims(
        &self,
        ingress: IngressId,
        transport: Transport,
        client: ClientAddr,
    ) -> impl Iterator<Item = (SessionId, OwnerAddr, ShardId, bool)> + '_ {
        let key = FlowKey::new(ingress, transport, &client);
        self.flows.claims(key).map(|(claim, proven)| {
            let target = self.trunks.target(claim.trunk);
            (claim.session, target.address, target.shard, proven)
        })
    }

    /// Whether packets of a client at this address are relayed.
    pub(crate) fn serves(&self, client: ClientAddr) -> bool {
        self.allow_internal_clients || !self.internal.contains(client.ip())
    }

    /// Counts claims that gave way, and gives back all that they held.
    pub(crate) fn count_removed(&mut self, removed: Removed) {
        if let Some(ended) = removed.evicted {
            self.counters.claims_evicted += 1;
            self.give_back(&ended);
        }
        if let Some(ended) = removed.displaced {
            self.counters.claims_displaced += 1;
            self.give_back(&ended);
        }
        if let Some(back) = removed.back {
            self.trunks.release_claim(back.trunk);
        }
    }

    /// The trunk to a target, with one claim more on it. When all are taken, old provisional claims give way.
    pub(crate) fn acquire(&mut self, now: Micros, target: Target) -> Option<TrunkId> {
        self.trunks
            .acquire(target)
            .or_else(|| self.make_room(now, target))
    }

    /// Evicts provisional claims that have had their time and a trunk for themselves, until there is a trunk to a target.
    ///
    /// Whoever has the fleet's keys can name owners without end, and each takes a trunk until its claim is idle; a call that is new
    /// needs one as well, and no proof tells the two apart. But it needs it for a moment only: until its owner has proven it. A
    /// table that is full of proven calls frees nothing so, and nobody's claim goes for it.
    #[cold]
    fn make_room(&mut self, now: Micros, target: Target) -> Option<TrunkId> {
        let mut looks = EVICTION_LOOKS;
        loop {
            if self.trunks.has_room() {
                // No relay leads there.
                return None;
            }
            let Self { flows, trunks, .. } = self;
            let ended = flows.evict_alone(now.ticks(), &mut looks, |claim, back| {
                trunks.is_held_once(claim.trunk)
                    || back.is_some_and(|back| trunks.is_held_once(back.trunk))
            })?;
            self.counters.claims_evicted += 1;
            self.give_back(&ended);
            if let Some(trunk) = self.trunks.acquire(target) {
                return Some(trunk);
            }
        }
    }

    fn give_back(&mut self, ended: &Ended) {
        self.trunks.release_claim(ended.claim.trunk);
        if let Some(back) = ended.back {
            self.trunks.release_claim(back.trunk);
        }
    }
}

/// The bit of a transport and family in an ingress's set of paths.
pub(crate) fn path_bit(transport: Transport, ipv6: bool) -> u8 {
    let tcp = u8::from(transport == Transport::Tcp);
    1 << (tcp << 1 | u8::from(ipv6))
}
