//! A cluster's relays, as other sites reach them: where their cores are, and which core serves a client.

use std::net::{IpAddr, SocketAddr};

use serde::Deserialize;

use crate::address::{ClusterId, Hop, canonical};
use crate::limits::{CORES_MAX, FLEET_RELAYS_MAX};

/// A cluster's relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RelayEntry {
    /// Its internal address.
    pub address: IpAddr,
    /// The internal port of its first core; those of the others follow. 4000 unless set.
    #[serde(default = "first_port")]
    pub port: u16,
    /// How many cores it runs, 1 to 256, each with an internal port of its own.
    pub cores: u16,
    /// The seed by which it spreads clients over its cores. 0 unless set.
    #[serde(default)]
    pub seed: u32,
}

fn first_port() -> u16 {
    4000
}

impl RelayEntry {
    /// Where a core receives what other relays send it. Beyond the last core, they are counted anew from the first.
    #[must_use]
    pub fn core(&self, core: u16) -> Hop {
        Hop::new(SocketAddr::new(
            self.address,
            self.port.wrapping_add(core % self.cores.max(1)),
        ))
    }

    /// Whether an internal address is one of its cores'.
    #[must_use]
    pub fn has(&self, hop: Hop) -> bool {
        let core = hop.port().checked_sub(self.port);
        hop.ip() == self.address && core.is_some_and(|core| core < self.cores)
    }
}

/// A relay in a fleet file that cannot be one. Each message names the cluster, the relay and the field.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum RelayEntryError {
    /// No core, or more than any relay has.
    #[error("cluster {cluster}: relay {address}: cores is {cores}: give 1 to {CORES_MAX}")]
    Cores {
        /// The cluster.
        cluster: ClusterId,
        /// The relay.
        address: IpAddr,
        /// The number given.
        cores: u16,
    },
    /// An address that no datagram goes to.
    #[error(
        "cluster {cluster}: relay {address}: address is none that other relays reach: give the one of its --internal"
    )]
    Address {
        /// The cluster.
        cluster: ClusterId,
        /// What stands there.
        address: IpAddr,
    },
    /// Ports that do not exist.
    #[error(
        "cluster {cluster}: relay {address}: port is {port}: from there on its {cores} cores find no port each in 1 to 65535"
    )]
    Port {
        /// The cluster.
        cluster: ClusterId,
        /// The relay.
        address: IpAddr,
        /// The first port.
        port: u16,
        /// How many follow.
        cores: u16,
    },
    /// Two relays with one internal port.
    #[error(
        "cluster {cluster}: relay {address}: port {port} belongs to another relay of this file too: give each its own address or ports"
    )]
    Overlap {
        /// The cluster of the second of them.
        cluster: ClusterId,
        /// The address that both have.
        address: IpAddr,
        /// The first port of the second one.
        port: u16,
    },
    /// More relays than any program keeps track of.
    #[error("cluster {cluster}: relays: a fleet has {FLEET_RELAYS_MAX} of them at the most")]
    TooMany {
        /// The cluster that goes beyond.
        cluster: ClusterId,
    },
}

/// Checks the relays of all clusters, in file order.
pub(super) fn check<'a>(
    clusters: impl Iterator<Item = (ClusterId, &'a [RelayEntry])>,
) -> Result<(), RelayEntryError> {
    let mut before: Vec<RelayEntry> = Vec::new();
    for (cluster, relays) in clusters {
        for relay in relays {
            check_one(cluster, relay)?;
            let RelayEntry { address, port, .. } = *relay;
            // Two runs of ports meet where one of them begins.
            let meets = |other: &RelayEntry| other.has(relay.core(0)) || relay.has(other.core(0));
            if before.iter().any(meets) {
                return Err(RelayEntryError::Overlap {
                    cluster,
                    address,
                    port,
                });
            }
            if before.len() == FLEET_RELAYS_MAX {
                return Err(RelayEntryError::TooMany { cluster });
            }
            before.push(*relay);
        }
    }
    Ok(())
}

fn check_one(cluster: ClusterId, relay: &RelayEntry) -> Result<(), RelayEntryError> {
    let RelayEntry {
        address,
        port,
        cores,
        ..
    } = *relay;
    if !(1..=CORES_MAX).contains(&cores) {
        return Err(RelayEntryError::Cores {
            cluster,
            address,
            cores,
        });
    }
    let broadcast = matches!(address, IpAddr::V4(v4) if v4.is_broadcast());
    let plain = canonical(SocketAddr::new(address, 1)).ip() == address;
    if address.is_unspecified() || address.is_multicast() || broadcast || !plain {
        return Err(RelayEntryError::Address { cluster, address });
    }
    if port == 0 || u32::from(port) + u32::from(cores) > 1 << 16 {
        return Err(RelayEntryError::Port {
            cluster,
            address,
            port,
            cores,
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn relay(address: &str, port: u16, cores: u16) -> RelayEntry {
        RelayEntry {
            address: address.parse().expect("an address"),
            port,
            cores,
            seed: 0,
        }
    }

    fn refused(clusters: &[(u16, &[RelayEntry])]) -> String {
        check(
            clusters
                .iter()
                .map(|(id, relays)| (ClusterId(*id), *relays)),
        )
        .expect_err("refused")
        .to_string()
    }

    #[test]
    fn each_fault_names_its_cluster_its_relay_and_its_field() {
        for (bad, parts) in [
            (relay("10.0.0.1", 4000, 0), "relay 10.0.0.1: cores is 0"),
            (relay("10.0.0.1", 4000, 257), "relay 10.0.0.1: cores is 257"),
            (relay("0.0.0.0", 4000, 1), "relay 0.0.0.0: address"),
            (relay("ff02::1", 4000, 1), "relay ff02::1: address"),
            (
                relay("255.255.255.255", 4000, 1),
                "255.255.255.255: address",
            ),
            (relay("::ffff:10.0.0.1", 4000, 1), "10.0.0.1: address"),
            (relay("10.0.0.1", 0, 1), "relay 10.0.0.1: port is 0"),
            (
                relay("10.0.0.1", 65_535, 2),
                "relay 10.0.0.1: port is 65535",
            ),
        ] {
            let message = refused(&[(1, &[]), (7, &[bad])]);
            assert!(message.starts_with("cluster 7: "), "{message}");
            assert!(message.contains(parts), "{message}");
        }
        let twice = [
            (1, &[relay("10.0.0.1", 4000, 4)][..]),
            (2, &[relay("10.0.0.1", 4003, 1)]),
        ];
        let message = refused(&twice);
        assert!(
            message.contains("cluster 2: relay 10.0.0.1: port 4003"),
            "{message}"
        );
        let many: Vec<RelayEntry> = (0..=FLEET_RELAYS_MAX as u16)
            .map(|i| relay("10.0.0.1", 4000 + i, 1))
            .collect();
        assert!(refused(&[(9, &many)]).starts_with("cluster 9: relays: "));
    }

    #[test]
    fn the_last_port_there_is_can_be_a_core() {
        let last = relay("10.0.0.1", 65_535, 1);
        assert_eq!(check_one(ClusterId(1), &last), Ok(()));
        assert!(last.has(last.core(0)));
    }

    proptest! {
        /// Overlap is what a look at each port of both finds.
        #[test]
        fn two_relays_are_refused_exactly_when_they_share_a_port(
            first in (0u16..3, 4000u16..4012, 1u16..6), second in (0u16..3, 4000u16..4012, 1u16..6),
        ) {
            let make = |(host, port, cores): (u16, u16, u16)| relay(&format!("10.0.0.{host}"), port, cores);
            prop_assume!(first.0 > 0 && second.0 > 0);
            let (a, b) = (make(first), make(second));
            let shared = (0..a.cores).any(|core| b.has(a.core(core)));
            let relays = [a, b];
            let checked = check([(ClusterId(1), &relays[..])].into_iter());
            prop_assert_eq!(checked.is_err(), shared);
        }

        #[test]
        fn a_relay_has_its_cores_and_nobody_else(port in 1u16..=65_000, cores in 1u16..=256, other: u16) {
            let one = relay("10.0.0.1", port, cores);
            prop_assert!((0..cores).all(|core| one.has(one.core(core))));
            let hop = Hop::new(SocketAddr::new(one.address, other));
            prop_assert_eq!(one.has(hop), (0..cores).any(|core| one.core(core) == hop));
            prop_assert!(!one.has(Hop::new(([10, 0, 0, 2], port).into())));
            prop_assert_eq!(one.core(cores), one.core(0));
        }
    }
}
