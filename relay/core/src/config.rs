//! What a router is started with.

use std::sync::Arc;

use firsthop_shared::address::{ClusterId, IngressId, Networks};
use firsthop_shared::limits::TRUNK_DATAGRAM_MAX;

use crate::flows::Transport;
use crate::limits::{
    DATAGRAM_LIMIT_DEFAULT, DATAGRAM_LIMIT_MIN, FLOWS_DEFAULT, FLOWS_MAX, LINGER_DEFAULT,
    PENDING_DEFAULT, PROVISIONAL_SHARE, QUESTIONS_PER_CORE_MIN, TRUNKS_DEFAULT,
};
use crate::peers::PeerList;
use crate::steering::Steering;
use crate::time::Micros;

/// A way to clients: an ingress over one transport and address family, for which this core has a socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IngressPath {
    /// The ingress.
    pub ingress: IngressId,
    /// UDP or TCP.
    pub transport: Transport,
    /// Whether it carries IPv6 clients; else IPv4.
    pub ipv6: bool,
}

/// How the relay's cores share the clients, and which core this is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Placement {
    /// The rule that the kernel steers by.
    pub steering: Steering,
    /// This core's number under that rule.
    pub core: u16,
}

/// How a core uses the flow cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CacheConfig {
    /// How many questions it may ask in any second: its share of what the cache shall see,
    /// [`QUESTIONS_PER_CORE_MIN`] or more.
    pub questions: u32,
}

/// Random values, drawn by the caller when the core starts.
#[derive(Clone, Copy, Debug)]
pub struct Seeds {
    /// Keys the hash tables: clients must not be able to guess which of their ports collide.
    pub hash: [u64; 2],
    /// Where flow generations start, so that handles of a former process do not fit by accident.
    pub generation: u16,
    /// Makes the boot ids of the trunk.
    pub boot: u64,
}

/// Everything that one core's router is started with.
#[derive(Clone, Debug)]
pub struct RouterConfig {
    /// The relay's own cluster. Tokens of others are refused, but for those that a relay leads to.
    pub cluster: ClusterId,
    /// Where owners are, and clients are not.
    pub internal: Networks,
    /// Serve clients inside the internal networks all the same, for development.
    pub allow_internal_clients: bool,
    /// What records may be sent to.
    pub paths: Vec<IngressPath>,
    /// Flows, 4 to [`FLOWS_MAX`]; a quarter of them may be provisional.
    pub flows: u32,
    /// Owner workers, 1 or more.
    pub trunks: u16,
    /// Records that may wait in open and ready datagrams, 1 or more; twice the receive buffers never run out.
    pub pending: u32,
    /// Largest trunk datagram while a path's MTU is unknown, in bytes of UDP payload.
    pub datagram_limit: u16,
    /// How long a record may wait for company while the core is never idle.
    pub linger: Micros,
    /// Nothing when no steering program runs: every client is then this core's own.
    pub placement: Option<Placement>,
    /// Nothing when there is no flow cache.
    pub cache: Option<CacheConfig>,
    /// The relays of other clusters.
    pub peers: Arc<PeerList>,
    /// Whether clients' packets are sent to them; then they are asked whether they answer.
    pub relays_away: bool,
    /// Whether packets of their clients are taken.
    pub takes_relayed: bool,
    /// Random values.
    pub seeds: Seeds,
}

impl RouterConfig {
    /// The defaults of [`limits`](crate::limits), without any ingress and without other relays.
    #[must_use]
    pub fn new(cluster: ClusterId, internal: Networks, seeds: Seeds) -> Self {
        Self {
            cluster,
            internal,
            allow_internal_clients: false,
            paths: Vec::new(),
            flows: FLOWS_DEFAULT,
            trunks: TRUNKS_DEFAULT,
            pending: PENDING_DEFAULT,
            datagram_limit: DATAGRAM_LIMIT_DEFAULT,
            linger: LINGER_DEFAULT,
            placement: None,
            cache: None,
            peers: Arc::default(),
            relays_away: true,
            takes_relayed: true,
            seeds,
        }
    }

    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        let limits = usize::from(DATAGRAM_LIMIT_MIN)..=TRUNK_DATAGRAM_MAX;
        if !(PROVISIONAL_SHARE..=FLOWS_MAX).contains(&self.flows) {
            Err(ConfigError::Flows)
        } else if self.trunks == 0 || self.pending == 0 {
            Err(ConfigError::Trunks)
        } else if !limits.contains(&usize::from(self.datagram_limit)) {
            Err(ConfigError::DatagramLimit)
        } else if self
            .cache
            .is_some_and(|cache| cache.questions < QUESTIONS_PER_CORE_MIN)
        {
            Err(ConfigError::Questions)
        } else if self.placement.is_some_and(|p| p.core >= p.steering.cores()) {
            Err(ConfigError::Placement)
        } else {
            Ok(())
        }
    }
}

/// A value that no router can be started with.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ConfigError {
    /// Too few or too many flows.
    #[error("a core holds {PROVISIONAL_SHARE} to {FLOWS_MAX} flows")]
    Flows,
    /// No room for any trunk or record.
    #[error("a core needs room for at least one trunk and one waiting record")]
    Trunks,
    /// A datagram size out of range.
    #[error("a trunk datagram holds {DATAGRAM_LIMIT_MIN} to {TRUNK_DATAGRAM_MAX} bytes")]
    DatagramLimit,
    /// Too few questions to the flow cache.
    #[error("a core asks the flow cache {QUESTIONS_PER_CORE_MIN} questions a second or more")]
    Questions,
    /// A core number that the steering rule never gives.
    #[error("the core's number is not below the number of cores")]
    Placement,
}
