//! What becomes of a client's packet.
//!
//! Every STUN request is routed by its own ufrag and verified in full, whatever the flow table says: a cached address may
//! belong to a session of yesterday, and an address alone proves nothing. The table serves the packets that carry no ufrag:
//! DTLS, RTP, RTCP, and STUN responses and indications. Nothing is ever answered from here.

use firsthop_shared::address::{ClientAddr, FlowHandle, IngressId, SessionId};
use firsthop_shared::limits::CLIENT_PACKET_MAX;
use firsthop_shared::packet::{PacketClass, classify};
use firsthop_shared::stun::{self, Class, Stun};
use firsthop_shared::token::{self, TokenError};
use firsthop_shared::trunk::{RecordHeader, RecordKind};

use crate::cache::FlowId;
use crate::flows::{Claim, FlowKey, Found, HashedKey, Transport};
use crate::limits::CLAIMS_PER_FLOW;
use crate::peers::Lane;
use crate::reason::Reason;
use crate::router::Router;
use crate::time::Micros;
use crate::trunks::{Origin, Target, TrunkId};

/// Where a client's packet came from, made by [`Router::source`] before the packet is decided.
///
/// A pump that has several packets in hand makes all their sources first, and has the table [look ahead](Router::look_ahead).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Source {
    pub(crate) ingress: IngressId,
    pub(crate) transport: Transport,
    pub(crate) client: ClientAddr,
    pub(crate) key: HashedKey,
}

/// What becomes of a client's packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It goes to one owner, or to two while two sessions claim the address: [pack](Router::pack) it.
    Forward(Forward),
    /// It goes nowhere; already counted.
    Drop(Reason),
    /// Nothing is known of its sender, but the flow cache may know: [recall](Router::recall) it, or count this reason. Only of a
    /// router with a [cache](crate::RouterConfig::cache).
    Unknown(Reason),
}

/// Where an accepted packet goes, and what its records say.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Forward {
    ingress: IngressId,
    transport: Transport,
    client: ClientAddr,
    handle: FlowHandle,
    routes: [Option<RouteTo>; CLAIMS_PER_FLOW],
}

/// One receiver of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RouteTo {
    /// The trunk to the owner's worker, straight or by relays of its cluster.
    pub trunk: TrunkId,
    /// The session there.
    pub session: SessionId,
}

impl Forward {
    /// The receivers: one or two.
    pub fn routes(&self) -> impl Iterator<Item = RouteTo> + '_ {
        self.routes.iter().flatten().copied()
    }

    /// The record header for one receiver of a payload of this length, but for what a relay must be told.
    #[must_use]
    pub fn record(&self, to: RouteTo, payload_len: u16) -> RecordHeader {
        RecordHeader {
            kind: RecordKind::Packet,
            client: self.client,
            tcp: self.transport == Transport::Tcp,
            proven: false,
            ingress: self.ingress,
            session: to.session,
            handle: self.handle,
            owner: None,
            payload_len,
        }
    }
}

impl Source {
    /// The flow that it belongs to.
    #[must_use]
    pub fn flow(&self) -> FlowId {
        FlowId {
            ingress: self.ingress,
            transport: self.transport,
            client: self.client,
        }
    }
}

impl Router {
    /// The source of a packet.
    #[must_use]
    pub fn source(&self, ingress: IngressId, transport: Transport, client: ClientAddr) -> Source {
        let key = FlowKey::new(ingress, transport, &client);
        Source {
            ingress,
            transport,
            client,
            key: self.flows.hashed(key),
        }
    }

    /// Loads what the decisions about a batch of packets will look at, and changes nothing.
    ///
    /// A table of many flows does not fit the cache, nor does a small one stay there while the kernel works; so each decision
    /// would wait for memory twice. Here nothing stands between the loads of a batch, and the processor overlaps them.
    pub fn look_ahead<'a>(&self, sources: impl Iterator<Item = &'a Source> + Clone) {
        for source in sources.clone() {
            self.flows.warm_index(&source.key);
        }
        for source in sources {
            self.flows.warm_flow(&source.key);
        }
    }

    /// Decides a client's packet. `packet` is the UDP payload, or one unframed TCP message.
    pub fn uplink(&mut self, now: Micros, source: &Source, packet: &[u8]) -> Verdict {
        let routed = match classify(packet) {
            _ if packet.len() > CLIENT_PACKET_MAX => Err(Reason::Oversize),
            PacketClass::Empty => Err(Reason::Empty),
            PacketClass::Other => Err(Reason::UnknownClass),
            PacketClass::Dtls => self.by_flow(now, source, Reason::NoFlowDtls),
            PacketClass::Rtp => self.by_flow(now, source, Reason::NoFlowRtp),
            PacketClass::Stun => self.stun(now, source, packet),
        };
        match routed {
            Ok(forward) => {
                self.counters.uplink_packets += 1;
                self.counters.uplink_bytes += packet.len() as u64;
                Verdict::Forward(forward)
            }
            Err(reason) if self.may_recall(reason) => Verdict::Unknown(reason),
            Err(reason) => {
                self.counters.drop(reason);
                Verdict::Drop(reason)
            }
        }
    }

    /// Apart, so that the packets that are no STUN carry nothing of it.
    #[inline(never)]
    fn stun(&mut self, now: Micros, source: &Source, packet: &[u8]) -> Result<Forward, Reason> {
        let message = Stun::parse(packet).map_err(|_| Reason::StunMalformed)?;
        if message.method != stun::BINDING {
            return Err(Reason::StunMethod);
        }
        if message.class != Class::Request {
            return self.by_flow(now, source, Reason::NoFlowStun);
        }
        let ufrag = message.local_ufrag().ok_or(Reason::StunNoUfrag)?;
        let route = self.verify(now, &message, ufrag, source)?;
        let trunk = if route.cluster == self.cluster {
            let target = Target::owner(route.owner, route.shard);
            self.acquire(now, target).ok_or(Reason::TrunkTableFull)?
        } else {
            self.acquire_beyond(now, &route, source)?
        };
        let claim = Claim {
            session: route.session,
            trunk,
        };
        let mark = self.flows.mark(ufrag);
        let seen = (mark, route.restart);
        let bound = self.flows.bind(now.ticks(), &source.key, claim, seen);
        self.counters.requests_verified += 1;
        if bound.added {
            self.counters.claims_bound += 1;
        } else {
            // The claim that was there holds the trunk already.
            self.trunks.release_claim(trunk);
        }
        self.count_removed(bound.removed);
        Ok(Forward {
            ingress: source.ingress,
            transport: source.transport,
            client: source.client,
            handle: bound.handle,
            routes: [
                Some(RouteTo {
                    trunk,
                    session: route.session,
                }),
                None,
            ],
        })
    }

    /// Verifies a request in full, the cheap checks first.
    fn verify(
        &mut self,
        now: Micros,
        request: &Stun<'_>,
        ufrag: &[u8],
        source: &Source,
    ) -> Result<token::Route, Reason> {
        if !request.has_integrity() {
            return Err(Reason::StunNoIntegrity);
        }
        if request.fingerprint_ok() == Some(false) {
            return Err(Reason::StunFingerprint);
        }
        let found = self.flows.find(&source.key);
        let free = found.is_some_and(|found| self.flows.take_free_check(found, ufrag, now.ticks()));
        if !free && !self.verifications.take() {
            return Err(Reason::VerifyBudget);
        }
        let route = token::open(&self.keyring, ufrag).map_err(token_reason)?;
        if route.cluster == self.cluster {
            if !self.internal.contains(route.owner.ip()) {
                return Err(Reason::OwnerOutside);
            }
        } else if !self.relays_away || !self.peers.lead_to(route.cluster) {
            // Where its owner is, the cluster's relay has to know.
            return Err(Reason::ForeignCluster);
        }
        if !self.serves(source.client) {
            return Err(Reason::ClientInside);
        }
        if source.client.port() == 0 {
            return Err(Reason::ClientPort);
        }
        let password = token::ice_password(&self.keyring, ufrag).map_err(token_reason)?;
        if !request.verify_integrity(password.as_bytes()) {
            return Err(Reason::StunIntegrity);
        }
        Ok(route)
    }

    /// The trunk to an owner of another cluster, by the core of a relay there that the client's address selects.
    #[cold]
    fn acquire_beyond(
        &mut self,
        now: Micros,
        route: &token::Route,
        source: &Source,
    ) -> Result<TrunkId, Reason> {
        let lane = self.peers.lane(route.cluster, &source.client);
        let lane = lane.ok_or(Reason::RelayGone)?;
        let target = Target::beyond(lane, route.owner, route.shard);
        let trunk = self.acquire(now, target).ok_or(Reason::TrunkTableFull)?;
        self.follow_lane(lane, route, trunk, source);
        Ok(trunk)
    }

    /// Moves a claim of the same session that takes another lane: since it was made, another relay leads to its cluster, and the
    /// client's address selects another core there.
    fn follow_lane(&mut self, lane: Lane, route: &token::Route, trunk: TrunkId, source: &Source) {
        let trunks = &self.trunks;
        let origin = Origin {
            owner: route.owner,
            shard: route.shard,
            beyond: Some(lane.cluster),
        };
        let moves = |claim: &Claim| {
            claim.session == route.session
                && claim.trunk != trunk
                && trunks.leads_to(claim.trunk, &origin)
        };
        let before = self
            .flows
            .find(&source.key)
            .and_then(|found| self.flows.take_trunk(found, trunk, moves));
        if let Some(before) = before {
            // The claim holds the new one now, besides what the request holds.
            self.trunks.hold(trunk);
            self.trunks.release_claim(before);
        }
    }

    /// Routes a packet without a ufrag by what is known of its sender.
    pub(crate) fn by_flow(
        &mut self,
        now: Micros,
        source: &Source,
        unknown: Reason,
    ) -> Result<Forward, Reason> {
        let found = self.flows.find(&source.key).ok_or(unknown)?;
        self.flows.touch(found, now.ticks());
        if self.flows.is_relayed(found) {
            self.bring_home(found);
        }
        let routes = self.flows.live(found).map(|claim| {
            claim.map(|claim| RouteTo {
                trunk: claim.trunk,
                session: claim.session,
            })
        });
        Ok(Forward {
            ingress: source.ingress,
            transport: source.transport,
            client: source.client,
            handle: self.flows.handle(found),
            routes,
        })
    }

    /// The client of a flow that another relay had brought sends its packets here now: records go to it straight.
    #[cold]
    fn bring_home(&mut self, found: Found) {
        for back in self.flows.take_backs(found).into_iter().flatten() {
            self.trunks.release_claim(back.trunk);
        }
    }
}

fn token_reason(error: TokenError) -> Reason {
    match error {
        TokenError::Length => Reason::UfragLength,
        TokenError::Alphabet => Reason::UfragAlphabet,
        TokenError::Format => Reason::UfragFormat,
        TokenError::UnknownKey => Reason::UfragUnknownKey,
        TokenError::Forged => Reason::UfragForged,
    }
}
