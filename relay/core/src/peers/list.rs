//! The relays of other clusters, as the fleet lists them: who may relay to this one, and to whom it may relay.

use std::net::IpAddr;

use firsthop_shared::address::{ClientAddr, ClusterId, Hop, Networks, OwnerAddr};
use firsthop_shared::fleet::{Fleet, RelayEntry};

use crate::steering::Steering;

/// A relay of another cluster.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PeerRelay {
    /// Its cluster.
    pub cluster: ClusterId,
    /// Where it is.
    pub entry: RelayEntry,
}

impl PeerRelay {
    /// The core that serves a client there.
    pub(super) fn core_for(&self, client: &ClientAddr) -> u16 {
        Steering::new(self.entry.seed, self.entry.cores).core_for(client)
    }
}

/// A run of internal ports that belong to a relay of the fleet.
#[derive(Clone, Copy, Debug)]
struct Place {
    entry: RelayEntry,
    /// Its place among the peers; none for a relay of the own cluster, or one that is out of reach.
    peer: Option<u16>,
}

/// The relays of other clusters. Made once from a fleet, and shared by all cores.
#[derive(Clone, Debug, Default)]
pub struct PeerList {
    /// Cluster by cluster, in ascending order, and in the order of the file within each.
    relays: Vec<PeerRelay>,
    /// Every relay of the fleet by address and port, to know one by its address.
    places: Vec<Place>,
}

impl PeerList {
    /// Takes the relays of all clusters but `own` from a fleet. Also returns those that are left out, because they are outside
    /// of the internal networks, where nothing is sent to and nothing taken from.
    #[must_use]
    pub fn new(fleet: &Fleet, own: ClusterId, internal: &Networks) -> (Self, Vec<PeerRelay>) {
        let all = fleet.clusters().iter().flat_map(|cluster| {
            let id = cluster.id;
            cluster
                .relays
                .iter()
                .map(move |&entry| PeerRelay { cluster: id, entry })
        });
        let (mut relays, outside): (Vec<PeerRelay>, Vec<PeerRelay>) = all
            .clone()
            .filter(|relay| relay.cluster != own)
            .partition(|relay| internal.contains(relay.entry.address));
        // Stable: the order of the file is the order of preference.
        relays.sort_by_key(|relay| relay.cluster);
        let mut places: Vec<Place> = all
            .map(|relay| Place {
                entry: relay.entry,
                peer: relays
                    .iter()
                    .position(|peer| *peer == relay)
                    .map(|at| at as u16),
            })
            .collect();
        places.sort_by_key(|place| key(place.entry.core(0)));
        (Self { relays, places }, outside)
    }

    /// The relays, those of a cluster side by side in the order of preference. There are no more than
    /// [`FLEET_RELAYS_MAX`](firsthop_shared::limits::FLEET_RELAYS_MAX).
    #[must_use]
    pub fn relays(&self) -> &[PeerRelay] {
        &self.relays
    }

    /// The number of the relay that an internal address belongs to.
    pub(super) fn find(&self, hop: Hop) -> Option<usize> {
        self.place(hop)?.peer.map(usize::from)
    }

    /// Whether a relay of the fleet, of whichever cluster, is at an address that a record calls an owner.
    pub(super) fn is_relay(&self, owner: OwnerAddr) -> bool {
        self.place(Hop::new(owner.get())).is_some()
    }

    /// The numbers of a cluster's relays.
    pub(super) fn of_cluster(&self, cluster: ClusterId) -> std::ops::Range<usize> {
        let first = self.relays.partition_point(|relay| relay.cluster < cluster);
        let count = self.relays[first..].partition_point(|relay| relay.cluster == cluster);
        first..first + count
    }

    fn place(&self, hop: Hop) -> Option<&Place> {
        // Runs do not overlap: the fleet was checked. So only the last that begins at or before the port can hold it.
        let behind = self
            .places
            .partition_point(|place| key(place.entry.core(0)) <= key(hop));
        let place = &self.places[behind.checked_sub(1)?];
        place.entry.has(hop).then_some(place)
    }
}

fn key(hop: Hop) -> (IpAddr, u16) {
    (hop.ip(), hop.port())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn fleet(relays: &str) -> Fleet {
        let text = format!(
            "[[cluster]]\nid = 1\nname = \"own\"\nrelays = [{{ address = \"10.0.0.1\", cores = 4 }}]\n{relays}
             [[ingress]]\nid = 0\nipv4 = \"203.0.113.1:3478\"\n"
        );
        Fleet::parse(&text).expect("a fleet")
    }

    fn hop(text: &str) -> Hop {
        Hop::new(text.parse().expect("an address"))
    }

    #[test]
    fn peers_are_the_relays_of_other_clusters_inside_the_internal_networks() {
        let fleet = fleet(
            "[[cluster]]\nid = 9\nname = \"c\"\nrelays = [{ address = \"10.9.0.1\", cores = 2 }, { address = \"192.0.2.1\", cores = 1 }]
             [[cluster]]\nid = 2\nname = \"b\"
             relays = [{ address = \"10.2.0.1\", cores = 2, port = 4100 }, { address = \"10.2.0.1\", cores = 2 }]\n",
        );
        let internal = Networks::parse("10.0.0.0/8").expect("networks");
        let (list, outside) = PeerList::new(&fleet, ClusterId(1), &internal);
        assert_eq!(outside.len(), 1);
        assert_eq!(outside[0].entry.address.to_string(), "192.0.2.1");
        assert_eq!(list.of_cluster(ClusterId(2)), 0..2);
        assert_eq!(list.of_cluster(ClusterId(9)), 2..3);
        assert!(
            list.of_cluster(ClusterId(1)).is_empty() && list.of_cluster(ClusterId(77)).is_empty()
        );
        assert_eq!(list.relays()[0].entry.port, 4100, "the order of the file");
        for (text, peer) in [
            ("10.2.0.1:4100", Some(0)),
            ("10.2.0.1:4101", Some(0)),
            ("10.2.0.1:4102", None),
            ("10.2.0.1:4001", Some(1)),
            ("10.2.0.1:3999", None),
            ("10.9.0.1:4001", Some(2)),
            ("10.0.0.1:4000", None),
            ("192.0.2.1:4000", None),
            ("10.1.0.1:4000", None),
        ] {
            assert_eq!(list.find(hop(text)), peer, "{text}");
        }
        for (text, relay) in [
            ("10.0.0.1:4003", true),
            ("192.0.2.1:4000", true),
            ("10.0.0.1:5000", false),
        ] {
            assert_eq!(
                list.is_relay(OwnerAddr::new(text.parse().expect("an address"))),
                relay
            );
        }
    }

    proptest! {
        #[test]
        fn a_relay_is_found_by_each_of_its_ports_and_by_no_other(
            runs in prop::collection::vec((0u8..3, 1u16..5), 1..8), host in 0u8..3, port in 3_990u16..4_060,
        ) {
            let mut text = String::from("[[cluster]]\nid = 2\nname = \"b\"\nrelays = [");
            let mut first = 4_000;
            for (host, cores) in &runs {
                text += &format!("{{ address = \"10.2.0.{host}\", port = {first}, cores = {cores} }},");
                first += cores + u16::from(*host);
            }
            text += "]\n";
            let internal = Networks::parse("10.0.0.0/8").expect("networks");
            let (list, _) = PeerList::new(&fleet(&text), ClusterId(1), &internal);
            let hop = Hop::new(([10, 2, 0, host], port).into());
            let scanned = list.relays().iter().position(|relay| relay.entry.has(hop));
            prop_assert_eq!(list.find(hop), scanned);
        }
    }
}
