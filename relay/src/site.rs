//! Which part a relay plays in the fleet: what it does for whom, and what the fleet file should say of it.

use std::sync::Arc;

use clap::ValueEnum;
use firsthop_relay_core::PeerList;
use firsthop_shared::address::{ClusterId, Networks};
use firsthop_shared::fleet::{Fleet, RelayEntry};
use tracing::warn;

/// What a relay does.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Role {
    /// Both of the others, as far as the fleet file gives it others to work with.
    Both,
    /// Serves clients; what belongs to another cluster goes to a relay of that. Takes nothing from other relays.
    Ingress,
    /// Takes what relays of other clusters send, and passes it to this cluster's owners. Serves no clients.
    Cluster,
}

impl Role {
    /// Whether it has clients of its own, and sends their packets to other clusters.
    #[must_use]
    pub fn serves_clients(self) -> bool {
        self != Self::Cluster
    }

    /// Whether it takes packets of other relays' clients.
    #[must_use]
    pub fn takes_relayed(self) -> bool {
        self != Self::Ingress
    }
}

/// A relay's place in the fleet.
#[derive(Clone, Debug)]
pub struct Site {
    /// What it does.
    pub role: Role,
    /// Its cluster.
    pub cluster: ClusterId,
    /// Where the internal network is.
    pub networks: Networks,
    /// How a fleet file should list it.
    pub entry: RelayEntry,
}

impl Site {
    /// The relays that it works with, by a fleet file. Logs what in that file makes no sense from here.
    #[must_use]
    pub fn peers(&self, fleet: &Fleet) -> Arc<PeerList> {
        let (peers, outside) = PeerList::new(fleet, self.cluster, &self.networks);
        for relay in outside {
            warn!(cluster = %relay.cluster, relay = %relay.entry.address,
                  "this relay of the fleet is outside of --internal-networks: nothing is sent to it or taken from it");
        }
        // Only relays of other clusters go by that list.
        let read = !peers.relays().is_empty();
        match self.listed(fleet) {
            Listed::Otherwise(listed) if read => {
                warn!(cluster = %self.cluster, relay = %self.entry.address,
                      listed = ?(listed.port, listed.cores, listed.seed),
                      actual = ?(self.entry.port, self.entry.cores, self.entry.seed),
                      "the fleet lists this relay with another port, number of cores or seed: \
                       correct it, or relays of other clusters miss it");
            }
            Listed::Nowhere if read => {
                warn!(cluster = %self.cluster, relay = %self.entry.core(0),
                      "the fleet does not list this relay in its cluster: \
                       those of other clusters send nothing to it, and take nothing from it");
            }
            Listed::Otherwise(_) | Listed::Nowhere | Listed::Right => {}
        }
        Arc::new(peers)
    }

    /// What the fleet says of this very relay.
    fn listed(&self, fleet: &Fleet) -> Listed {
        let first = self.entry.core(0);
        let own = fleet
            .cluster(self.cluster)
            .map_or(&[][..], |own| &own.relays[..]);
        // Of several relays on one machine each has ports of its own.
        match own.iter().find(|listed| listed.has(first)) {
            Some(listed) if *listed == self.entry => Listed::Right,
            Some(listed) => Listed::Otherwise(*listed),
            None => Listed::Nowhere,
        }
    }
}

/// How a fleet file lists this relay.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Listed {
    Right,
    Otherwise(RelayEntry),
    Nowhere,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(address: &str, port: u16, cores: u16, seed: u32) -> RelayEntry {
        RelayEntry {
            address: address.parse().expect("an address"),
            port,
            cores,
            seed,
        }
    }

    fn site(entry: RelayEntry) -> Site {
        Site {
            role: Role::Both,
            cluster: ClusterId(1),
            networks: Networks::parse("10.0.0.0/8").expect("networks"),
            entry,
        }
    }

    #[test]
    fn a_relay_that_the_fleet_lists_otherwise_is_noticed_and_no_other() {
        let fleet = Fleet::parse(
            "[[cluster]]\nid = 1\nname = \"a\"
             relays = [{ address = \"10.0.0.1\", cores = 2 }, { address = \"10.0.0.1\", port = 4100, cores = 2 }]
             [[ingress]]\nid = 0\nipv4 = \"203.0.113.1:3478\"\n",
        )
        .expect("a fleet");
        let [first, second] = fleet.clusters()[0].relays[..] else {
            panic!("two relays");
        };
        for (own, listed) in [
            (entry("10.0.0.1", 4000, 2, 0), Listed::Right),
            (entry("10.0.0.1", 4000, 4, 0), Listed::Otherwise(first)),
            (entry("10.0.0.1", 4000, 2, 7), Listed::Otherwise(first)),
            (entry("10.0.0.1", 4100, 1, 0), Listed::Otherwise(second)),
            // On the same machine, and in no list.
            (entry("10.0.0.1", 4200, 2, 0), Listed::Nowhere),
            (entry("10.0.0.9", 4000, 2, 0), Listed::Nowhere),
        ] {
            assert_eq!(site(own).listed(&fleet), listed, "{own:?}");
        }
    }
}
