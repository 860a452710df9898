//! Where a trunk leads, which is what it is known by.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use firsthop_shared::address::{ClusterId, Hop, OwnerAddr, ShardId};
use siphasher::sip::SipHasher13;

use crate::peers::Lane;

/// A trunk's other end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Target {
    /// The owner; the relay's core for [`Lead::Back`]; nobody for [`Lead::Lane`], whose relay may change.
    pub(crate) address: OwnerAddr,
    /// The owner's worker.
    pub(crate) shard: ShardId,
    /// How it gets there.
    pub(crate) lead: Lead,
}

/// How a trunk's records reach the other end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Lead {
    /// In datagrams to the owner.
    Straight,
    /// To an owner of another cluster: in the datagrams of this lane, each record with the owner's address.
    Beyond(Lane),
    /// In datagrams to a core of the relay that leads to another cluster.
    Lane(Lane),
    /// In datagrams to the relay's core that a client's packets came by, each record with the owner's address.
    Back,
}

impl Target {
    /// An owner's worker in this cluster.
    pub(crate) fn owner(address: OwnerAddr, shard: ShardId) -> Self {
        Self {
            address,
            shard,
            lead: Lead::Straight,
        }
    }

    /// The other cluster whose owner this is.
    pub(crate) fn cluster(&self) -> Option<ClusterId> {
        match self.lead {
            Lead::Beyond(lane) => Some(lane.cluster),
            Lead::Straight | Lead::Lane(_) | Lead::Back => None,
        }
    }

    /// An owner's worker in another cluster.
    pub(crate) fn beyond(lane: Lane, address: OwnerAddr, shard: ShardId) -> Self {
        Self {
            address,
            shard,
            lead: Lead::Beyond(lane),
        }
    }

    /// The relay's core that a client's packets came by, for records of workers of this number.
    pub(crate) fn back(hop: Hop, shard: ShardId) -> Self {
        Self {
            address: OwnerAddr::new(hop.get()),
            shard,
            lead: Lead::Back,
        }
    }

    /// What records for workers of this number on a lane share.
    pub(super) fn lane(lane: Lane, shard: ShardId) -> Self {
        Self {
            address: OwnerAddr::new(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0))),
            shard,
            lead: Lead::Lane(lane),
        }
    }

    pub(super) fn hash(&self, hasher: &SipHasher13) -> u32 {
        let mut bytes = [0; 24];
        match self.address.ip() {
            IpAddr::V4(ip) => bytes[..4].copy_from_slice(&ip.octets()),
            IpAddr::V6(ip) => bytes[..16].copy_from_slice(&ip.octets()),
        }
        bytes[16..18].copy_from_slice(&self.address.port().to_be_bytes());
        bytes[18] = self.shard.0;
        let (kind, lane) = match self.lead {
            Lead::Straight => return hasher.hash(&bytes[..19]) as u32,
            Lead::Back => (1, None),
            Lead::Beyond(lane) => (2, Some(lane)),
            Lead::Lane(lane) => (3, Some(lane)),
        };
        bytes[19] = kind;
        if let Some(Lane { cluster, core }) = lane {
            bytes[20..22].copy_from_slice(&cluster.0.to_be_bytes());
            bytes[22..].copy_from_slice(&core.to_be_bytes());
        }
        hasher.hash(&bytes) as u32
    }
}

/// Who wrote a record for a client: an owner's worker, of this cluster or of another one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Origin {
    /// The owner.
    pub(crate) owner: OwnerAddr,
    /// Its worker.
    pub(crate) shard: ShardId,
    /// The other cluster, when a relay of that passed the record on.
    pub(crate) beyond: Option<ClusterId>,
}

impl Origin {
    /// Whether a trunk leads to it, whichever lane it takes.
    pub(super) fn is_at(&self, target: &Target) -> bool {
        let way = match target.lead {
            Lead::Straight => self.beyond.is_none(),
            Lead::Beyond(lane) => self.beyond == Some(lane.cluster),
            Lead::Lane(_) | Lead::Back => false,
        };
        target.address == self.owner && target.shard == self.shard && way
    }
}
