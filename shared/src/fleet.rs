//! `fleet.toml`: the clusters, and the ingress points with their advertised addresses.
//!
//! Relays, transceivers and signaling read the same file. A record on the trunk names its ingress by id only, so an id must
//! mean the same address to all three.
//!
//! ```toml
//! [[cluster]]
//! id = 1
//! name = "frankfurt"
//! signaling = "https://fra.example.com"
//! relays = [{ address = "10.1.0.4", cores = 4 }, { address = "10.1.0.5", port = 4000, cores = 8, seed = 7 }]
//! position = [50.1, 8.7]
//!
//! [[ingress]]
//! id = 0
//! name = "fra-1"
//! ipv4 = "203.0.113.10:3478"
//! ipv6 = "[2001:db8::10]:3478"
//! position = [50.1, 8.7]
//! health = "http://10.1.0.4:9101/readyz"
//! ```
//!
//! A cluster's `relays` are those that take what clients of its sessions send to ingress points elsewhere, the preferred one
//! first. A site that has relays and no transceivers is a cluster, too, without `signaling` and `position`: so its relays are
//! known to the others.

mod relays;

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::path::Path;

use serde::Deserialize;

use crate::address::{ClusterId, IngressId, canonical};
use crate::reload::{ReadError, read_small_file};
use crate::url_port::{self, PortError};

pub use relays::{RelayEntry, RelayEntryError};

/// A fleet file that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FleetError {
    /// The file could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// Not TOML of the expected shape.
    #[error("not a fleet file: {0}")]
    Syntax(String),
    /// An id is used twice.
    #[error("{kind} id {id} stands twice")]
    DuplicateId {
        /// `cluster` or `ingress`.
        kind: &'static str,
        /// The id.
        id: u16,
    },
    /// Two ingress points advertise one address.
    #[error("ingress points {first} and {second} advertise the same address {address}")]
    DuplicateAddress {
        /// The address.
        address: SocketAddr,
        /// The ingress that had it first.
        first: u8,
        /// The other one.
        second: u8,
    },
    /// An advertised address that no client can use.
    #[error(
        "ingress {id}: {address} cannot be advertised: give the address and port that clients reach"
    )]
    Unusable {
        /// The ingress.
        id: u8,
        /// Its address.
        address: SocketAddr,
    },
    /// An ingress without an address.
    #[error("ingress {0} has no address: set ipv4 or ipv6")]
    NoAddress(u8),
    /// A position that is not on Earth.
    #[error("{kind} {id}: position is [latitude -90..90, longitude -180..180] in degrees")]
    Position {
        /// `cluster` or `ingress`.
        kind: &'static str,
        /// The id.
        id: u16,
    },
    /// A URL that is none.
    #[error("{kind} {id}: {field} '{url}' is not an http or https URL")]
    Url {
        /// `cluster` or `ingress`.
        kind: &'static str,
        /// The id.
        id: u16,
        /// Which setting of it.
        field: &'static str,
        /// What stands there.
        url: String,
    },
    /// A URL with a port that is none.
    #[error("{kind} {id}: {field}: {error}; give one from 1 to 65535, or leave the colon out")]
    Port {
        /// `cluster` or `ingress`.
        kind: &'static str,
        /// The id.
        id: u16,
        /// Which setting of it.
        field: &'static str,
        /// What is wrong with the port.
        error: PortError,
    },
    /// A relay that cannot be one.
    #[error(transparent)]
    Relay(#[from] RelayEntryError),
    /// No ingress or no cluster at all.
    #[error("the fleet needs at least one [[cluster]] and one [[ingress]]")]
    Empty,
}

/// One region's transceivers, with the relays that lead to them.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cluster {
    /// Its id, as tokens name it.
    pub id: ClusterId,
    /// Its name, for people.
    pub name: String,
    /// Base URL of its signaling, as other clusters and clients reach it.
    pub signaling: Option<String>,
    /// Its relays, as other sites reach them over the trunk.
    #[serde(default)]
    pub relays: Vec<RelayEntry>,
    /// Latitude and longitude in degrees: signaling sends a client to the nearest cluster. One without a position gets no clients of others.
    pub position: Option<(f64, f64)>,
}

/// A public address, or a pair of one per family, under which relays are reached.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ingress {
    /// Its id, as records name it.
    pub id: IngressId,
    /// Its name, for people.
    #[serde(default)]
    pub name: String,
    /// The advertised IPv4 address and port.
    pub ipv4: Option<SocketAddrV4>,
    /// The advertised IPv6 address and port.
    pub ipv6: Option<SocketAddrV6>,
    /// Latitude and longitude in degrees.
    pub position: Option<(f64, f64)>,
    /// URL that answers 200 while the ingress can be used, such as its relay's `/readyz`: signaling polls it.
    pub health: Option<String>,
}

impl Ingress {
    /// The advertised addresses, IPv4 first.
    pub fn addresses(&self) -> impl Iterator<Item = SocketAddr> {
        self.ipv4
            .map(SocketAddr::V4)
            .into_iter()
            .chain(self.ipv6.map(SocketAddr::V6))
    }
}

/// The whole fleet, checked.
#[derive(Clone, Debug)]
pub struct Fleet {
    clusters: Vec<Cluster>,
    ingresses: Vec<Ingress>,
    by_address: HashMap<SocketAddr, IngressId>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FleetFile {
    #[serde(default)]
    cluster: Vec<Cluster>,
    #[serde(default)]
    ingress: Vec<Ingress>,
}

impl Fleet {
    /// Reads and checks the TOML of a fleet file.
    ///
    /// # Errors
    /// The first fault, with the id it belongs to.
    pub fn parse(text: &str) -> Result<Self, FleetError> {
        let file: FleetFile = toml::from_str(text)
            .map_err(|e| FleetError::Syntax(e.to_string().trim().to_owned()))?;
        if file.cluster.is_empty() || file.ingress.is_empty() {
            return Err(FleetError::Empty);
        }
        for (i, cluster) in file.cluster.iter().enumerate() {
            if file.cluster[..i].iter().any(|c| c.id == cluster.id) {
                return Err(FleetError::DuplicateId {
                    kind: "cluster",
                    id: cluster.id.0,
                });
            }
            check_position("cluster", cluster.id.0, cluster.position)?;
            check_url(
                ("cluster", cluster.id.0, "signaling"),
                cluster.signaling.as_deref(),
            )?;
        }
        relays::check(file.cluster.iter().map(|c| (c.id, &c.relays[..])))?;
        let mut by_address = HashMap::new();
        for (i, ingress) in file.ingress.iter().enumerate() {
            let id = ingress.id;
            if file.ingress[..i].iter().any(|other| other.id == id) {
                return Err(FleetError::DuplicateId {
                    kind: "ingress",
                    id: u16::from(id.0),
                });
            }
            if ingress.ipv4.is_none() && ingress.ipv6.is_none() {
                return Err(FleetError::NoAddress(id.0));
            }
            check_position("ingress", u16::from(id.0), ingress.position)?;
            check_url(
                ("ingress", u16::from(id.0), "health"),
                ingress.health.as_deref(),
            )?;
            for address in ingress.addresses() {
                if !advertisable(address) {
                    return Err(FleetError::Unusable { id: id.0, address });
                }
                if let Some(first) = by_address.insert(address, id) {
                    return Err(FleetError::DuplicateAddress {
                        address,
                        first: first.0,
                        second: id.0,
                    });
                }
            }
        }
        Ok(Self {
            clusters: file.cluster,
            ingresses: file.ingress,
            by_address,
        })
    }

    /// Reads a fleet file.
    ///
    /// # Errors
    /// As [`Fleet::parse`], and when the file cannot be read.
    pub fn load(path: &Path) -> Result<Self, FleetError> {
        Self::parse(&read_small_file(path)?)
    }

    /// The clusters, in file order.
    #[must_use]
    pub fn clusters(&self) -> &[Cluster] {
        &self.clusters
    }

    /// The ingress points, in file order.
    #[must_use]
    pub fn ingresses(&self) -> &[Ingress] {
        &self.ingresses
    }

    /// The cluster of that id.
    #[must_use]
    pub fn cluster(&self, id: ClusterId) -> Option<&Cluster> {
        self.clusters.iter().find(|cluster| cluster.id == id)
    }

    /// The ingress of that id.
    #[must_use]
    pub fn ingress(&self, id: IngressId) -> Option<&Ingress> {
        self.ingresses.iter().find(|ingress| ingress.id == id)
    }

    /// The ingress that advertises an address.
    #[must_use]
    pub fn ingress_by_address(&self, address: SocketAddr) -> Option<IngressId> {
        self.by_address.get(&canonical(address)).copied()
    }
}

fn check_position(
    kind: &'static str,
    id: u16,
    position: Option<(f64, f64)>,
) -> Result<(), FleetError> {
    match position {
        Some((latitude, longitude))
            if !((-90.0..=90.0).contains(&latitude) && (-180.0..=180.0).contains(&longitude)) =>
        {
            Err(FleetError::Position { kind, id })
        }
        _ => Ok(()),
    }
}

/// Checks the form alone: who uses a URL parses it.
fn check_url(
    (kind, id, field): (&'static str, u16, &'static str),
    url: Option<&str>,
) -> Result<(), FleetError> {
    let Some(url) = url else {
        return Ok(());
    };
    let rest = url
        .strip_prefix("http://")
        .or_else(|| url.strip_prefix("https://"));
    let good = rest.is_some_and(|rest| {
        !rest.is_empty()
            && !rest.starts_with('/')
            && rest.bytes().all(|byte| byte.is_ascii_graphic())
    });
    if !good {
        return Err(FleetError::Url {
            kind,
            id,
            field,
            url: url.to_owned(),
        });
    }
    url_port::check(url).map_err(|error| FleetError::Port {
        kind,
        id,
        field,
        error,
    })
}

/// Whether a client could ever send to the address.
fn advertisable(address: SocketAddr) -> bool {
    let ip = address.ip();
    let mapped = matches!(ip, IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some());
    let broadcast = matches!(ip, IpAddr::V4(v4) if v4.is_broadcast());
    address.port() != 0 && !ip.is_unspecified() && !ip.is_multicast() && !mapped && !broadcast
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"
        [[cluster]]
        id = 1
        name = "dev"
        signaling = "http://localhost:8080"
        relays = [{ address = "127.0.0.1", cores = 2 }]

        [[ingress]]
        id = 0
        ipv4 = "127.0.0.1:3478"

        [[ingress]]
        id = 7
        name = "fra"
        ipv4 = "203.0.113.10:3478"
        ipv6 = "[2001:db8::10]:3478"
        position = [50.1, 8.7]
    "#;

    #[test]
    fn a_fleet_is_read_whole() {
        let fleet = Fleet::parse(GOOD).expect("valid");
        let relay = fleet.cluster(ClusterId(1)).expect("known").relays[0];
        assert_eq!((relay.port, relay.cores, relay.seed), (4000, 2, 0));
        let ingress = fleet.ingress(IngressId(7)).expect("known");
        let addresses: Vec<_> = ingress.addresses().map(|a| a.to_string()).collect();
        assert_eq!(addresses, ["203.0.113.10:3478", "[2001:db8::10]:3478"]);
        let mapped = "[::ffff:203.0.113.10]:3478".parse().expect("an address");
        assert_eq!(fleet.ingress_by_address(mapped), Some(IngressId(7)));
    }

    #[test]
    fn an_unusable_advertised_address_is_refused() {
        for bad in [
            "0.0.0.0:3478",
            "127.0.0.1:0",
            "224.0.0.1:3478",
            "255.255.255.255:3478",
        ] {
            let text = GOOD.replace("127.0.0.1:3478", bad);
            assert!(
                matches!(Fleet::parse(&text), Err(FleetError::Unusable { id: 0, .. })),
                "{bad}"
            );
        }
        let text = GOOD.replace("[2001:db8::10]", "[::ffff:192.0.2.1]");
        assert!(matches!(
            Fleet::parse(&text),
            Err(FleetError::Unusable { id: 7, .. })
        ));
    }

    #[test]
    fn what_stands_twice_is_refused() {
        let twice = GOOD.replace("id = 7", "id = 0");
        assert!(matches!(
            Fleet::parse(&twice),
            Err(FleetError::DuplicateId { .. })
        ));
        let same = GOOD.replace("203.0.113.10", "127.0.0.1");
        assert!(matches!(
            Fleet::parse(&same),
            Err(FleetError::DuplicateAddress { .. })
        ));
    }

    #[test]
    fn other_faults_are_named() {
        let cases = [
            ("", "at least one"),
            ("[[cluster]]\nid = 1", "missing field"),
            (&GOOD.replace("8.7", "181.0"), "ingress 7: position"),
            (
                &GOOD.replace("http://localhost:8080", "localhost:8080"),
                "cluster 1: signaling 'localhost:8080'",
            ),
            (
                &GOOD.replace("name = \"dev\"", "name = \"dev\"\nposition = [91.0, 0.0]"),
                "cluster 1: position",
            ),
            (
                &GOOD.replace("name = \"fra\"", "health = \"http:///readyz\""),
                "ingress 7: health 'http:///readyz'",
            ),
            (
                &GOOD.replace("localhost:8080", "localhost:99999"),
                "cluster 1: signaling: ':99999' in it is no port",
            ),
            (
                &GOOD.replace("name = \"fra\"", "health = \"http://10.1.0.4:0/readyz\""),
                "ingress 7: health: ':0' in it is no port",
            ),
            (
                &GOOD.replace("name = \"fra\"", "health = \"http://me:98765/4@10.1.0.4/\""),
                "ingress 7: health: what stands behind a colon in it is no port",
            ),
            (
                &GOOD.replace("cores = 2", "cores = 0"),
                "relay 127.0.0.1: cores",
            ),
            (&GOOD.replace("cores = 2", "core = 2"), "core"),
            (&GOOD.replace("ipv4 = \"127.0.0.1:3478\"", ""), "no address"),
            (&GOOD.replace("name = \"fra\"", "nam = \"fra\""), "nam"),
        ];
        for (text, part) in cases {
            let message = Fleet::parse(text).expect_err("refused").to_string();
            assert!(message.contains(part), "{message}");
        }
    }
}
