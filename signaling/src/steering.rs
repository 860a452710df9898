//! Steering: which cluster gets a call, and which ingress points its client is told.
//!
//! Nearest first, by the great circle: the internet's detours are not known here, and between sites worth choosing between, distance
//! decides. A client whose place is not known stays in the cluster that it reached.
//!
//! Pure: the fleet, the client's place and who is well are arguments.

use firsthop_shared::address::{ClusterId, IngressId};
use firsthop_shared::fleet::{Fleet, Ingress};
use firsthop_shared::limits::INGRESSES_PER_ANSWER_MAX;

use crate::limits::NEAREST_INGRESSES;

/// A place on Earth, in degrees.
#[derive(Clone, Copy, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Position {
    /// North is positive.
    pub latitude: f64,
    /// East is positive.
    pub longitude: f64,
}

/// Mean radius of the Earth.
const EARTH_KM: f64 = 6_371.0;

impl Position {
    /// A place, if it is on Earth.
    #[must_use]
    pub fn new(latitude: f64, longitude: f64) -> Option<Self> {
        ((-90.0..=90.0).contains(&latitude) && (-180.0..=180.0).contains(&longitude)).then_some(
            Self {
                latitude,
                longitude,
            },
        )
    }

    /// The great-circle distance in kilometres (haversine).
    #[must_use]
    pub fn km_to(self, other: Self) -> f64 {
        let (a, b) = (self.latitude.to_radians(), other.latitude.to_radians());
        let across = (other.longitude - self.longitude).to_radians();
        let half = ((b - a) / 2.0).sin().powi(2) + a.cos() * b.cos() * (across / 2.0).sin().powi(2);
        2.0 * EARTH_KM * half.clamp(0.0, 1.0).sqrt().asin()
    }
}

fn position_of(pair: Option<(f64, f64)>) -> Option<Position> {
    pair.and_then(|(latitude, longitude)| Position::new(latitude, longitude))
}

/// The clusters that may serve a client, nearest first; `own` is always among them.
///
/// Others count when they have a position, a signaling URL, and are `well`. Without a place, or without a position of `own` to compare with,
/// it is `own` alone.
#[must_use]
pub fn clusters(
    fleet: &Fleet,
    own: ClusterId,
    client: Option<Position>,
    well: impl Fn(ClusterId) -> bool,
) -> Vec<ClusterId> {
    let home = fleet.cluster(own).and_then(|c| position_of(c.position));
    let (Some(client), Some(home)) = (client, home) else {
        return vec![own];
    };
    let mut ranked: Vec<(f64, bool, ClusterId)> = fleet
        .clusters()
        .iter()
        .filter(|c| c.id != own && c.signaling.is_some() && well(c.id))
        .filter_map(|c| Some((client.km_to(position_of(c.position)?), true, c.id)))
        .collect();
    ranked.push((client.km_to(home), false, own));
    // Of two equally near, our own: a call is not sent around for nothing.
    ranked.sort_by(|a, b| {
        a.0.total_cmp(&b.0)
            .then(a.1.cmp(&b.1))
            .then(a.2.0.cmp(&b.2.0))
    });
    ranked.into_iter().map(|(_, _, id)| id).collect()
}

/// The ingress points that an answer names, best first.
///
/// `allowed` restricts and orders them (nothing: all of the fleet in its order). Those that are not `well` are left out, unless none is: a
/// health check that fails everywhere says more about the check. A client with a known place gets the nearest and the next; another
/// one gets as many as an answer may hold.
#[must_use]
pub fn ingresses(
    fleet: &Fleet,
    allowed: Option<&[IngressId]>,
    client: Option<Position>,
    well: impl Fn(IngressId) -> bool,
) -> Vec<IngressId> {
    // The fleet file may have changed since the settings were checked against it.
    let all: Vec<&Ingress> = match allowed {
        Some(ids) => ids.iter().filter_map(|id| fleet.ingress(*id)).collect(),
        None => fleet.ingresses().iter().collect(),
    };
    let mut usable: Vec<&Ingress> = all.iter().copied().filter(|i| well(i.id)).collect();
    if usable.is_empty() {
        usable = all;
    }
    let mut most = usize::MAX;
    if let Some(client) = client
        && usable.iter().any(|i| i.position.is_some())
    {
        let distance = |ingress: &Ingress| {
            position_of(ingress.position).map_or(f64::INFINITY, |at| client.km_to(at))
        };
        // Stable: those without a position keep their order, at the end.
        usable.sort_by(|a, b| distance(a).total_cmp(&distance(b)));
        most = NEAREST_INGRESSES;
    }
    // The bound of an answer counts addresses, and an ingress may have two.
    let mut room = INGRESSES_PER_ANSWER_MAX;
    usable
        .into_iter()
        .take(most)
        .take_while(|ingress| {
            let needed = ingress.addresses().count();
            let fits = needed <= room;
            room = room.saturating_sub(needed);
            fits
        })
        .map(|ingress| ingress.id)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const FLEET: &str = r#"
        [[cluster]]
        id = 1
        name = "frankfurt"
        signaling = "https://fra.example"
        position = [50.1, 8.7]
        [[cluster]]
        id = 2
        name = "virginia"
        signaling = "https://iad.example"
        position = [39.0, -77.5]
        [[cluster]]
        id = 3
        name = "singapore"
        signaling = "https://sin.example"
        position = [1.3, 103.8]
        [[cluster]]
        id = 4
        name = "without a way there"
        position = [35.7, 139.7]

        [[ingress]]
        id = 10
        ipv4 = "203.0.113.10:3478"
        ipv6 = "[2001:db8::10]:3478"
        position = [50.1, 8.7]
        [[ingress]]
        id = 20
        ipv4 = "203.0.113.20:3478"
        position = [39.0, -77.5]
        [[ingress]]
        id = 30
        ipv4 = "203.0.113.30:3478"
        position = [1.3, 103.8]
        [[ingress]]
        id = 40
        ipv4 = "203.0.113.40:3478"
        position = [-23.5, -46.6]
        [[ingress]]
        id = 50
        ipv4 = "203.0.113.50:3478"
    "#;

    fn fleet() -> Fleet {
        Fleet::parse(FLEET).expect("valid")
    }

    fn at(latitude: f64, longitude: f64) -> Option<Position> {
        Position::new(latitude, longitude)
    }

    fn chosen(client: Option<Position>) -> (Vec<u16>, Vec<u8>) {
        let clusters = clusters(&fleet(), ClusterId(1), client, |_| true);
        let ingresses = ingresses(&fleet(), None, client, |_| true);
        (
            clusters.iter().map(|id| id.0).collect(),
            ingresses.iter().map(|id| id.0).collect(),
        )
    }

    #[test]
    fn ten_places_of_the_world_find_their_cluster_and_ingress() {
        for (city, latitude, longitude, cluster, first, second) in [
            ("Berlin", 52.5, 13.4, 1, 10, 20),
            ("London", 51.5, -0.1, 1, 10, 20),
            ("Lagos", 6.5, 3.4, 1, 10, 40),
            ("New York", 40.7, -74.0, 2, 20, 10),
            ("San Francisco", 37.8, -122.4, 2, 20, 10),
            ("Mexico City", 19.4, -99.1, 2, 20, 40),
            ("São Paulo", -23.5, -46.6, 2, 40, 20),
            ("Tokyo", 35.7, 139.7, 3, 30, 10),
            ("Sydney", -33.9, 151.2, 3, 30, 40),
            ("Mumbai", 19.1, 72.9, 3, 30, 10),
        ] {
            let (clusters, ingresses) = chosen(at(latitude, longitude));
            assert_eq!(clusters[0], cluster, "{city}");
            assert_eq!(ingresses, [first, second], "{city}");
            assert_eq!(clusters.len(), 3, "cluster 4 has no signaling URL");
        }
    }

    #[test]
    fn an_unknown_place_stays_here_and_gets_every_ingress() {
        assert_eq!(chosen(None), (vec![1], vec![10, 20, 30, 40, 50]));
    }

    #[test]
    fn ill_clusters_and_ingresses_are_left_out() {
        let tokyo = at(35.7, 139.7);
        let order = clusters(&fleet(), ClusterId(1), tokyo, |id| id != ClusterId(3));
        assert_eq!(order.first(), Some(&ClusterId(1)));
        let near = ingresses(&fleet(), None, tokyo, |id| id != IngressId(30));
        assert_eq!(near, [IngressId(10), IngressId(20)]);
        let none_well = ingresses(&fleet(), None, tokyo, |_| false);
        assert_eq!(none_well, [IngressId(30), IngressId(10)]);
    }

    #[test]
    fn allowed_ingresses_are_the_only_ones_and_in_that_order() {
        let allowed = [IngressId(40), IngressId(20), IngressId(99)];
        let all = ingresses(&fleet(), Some(&allowed), None, |_| true);
        assert_eq!(all, [IngressId(40), IngressId(20)]);
        let berlin = ingresses(&fleet(), Some(&allowed), at(52.5, 13.4), |_| true);
        assert_eq!(berlin, [IngressId(20), IngressId(40)]);
    }

    #[test]
    fn no_more_addresses_are_named_than_an_answer_holds() {
        let mut text = String::from("[[cluster]]\nid = 1\nname = \"c\"\n");
        for id in 0..6 {
            text += &format!(
                "[[ingress]]\nid = {id}\nipv4 = \"192.0.2.{}:1\"\nipv6 = \"[2001:db8::{id}]:1\"\n",
                id + 1
            );
        }
        let fleet = Fleet::parse(&text).expect("valid");
        assert_eq!(ingresses(&fleet, None, None, |_| true).len(), 4);
    }

    #[test]
    fn distances_are_those_of_the_globe() {
        let berlin = at(52.5, 13.4).expect("on Earth");
        let tokyo = at(35.7, 139.7).expect("on Earth");
        assert!((berlin.km_to(tokyo) - 8_920.0).abs() < 50.0);
        let (fiji, samoa) = (at(-17.0, 179.0), at(-14.0, -172.0));
        let (fiji, samoa) = (fiji.expect("on Earth"), samoa.expect("on Earth"));
        assert!(fiji.km_to(samoa) < 1_200.0, "over the date line");
    }

    proptest! {
        #[test]
        fn distance_is_a_distance(
            a in (-90.0..=90.0_f64, -180.0..=180.0_f64), b in (-90.0..=90.0_f64, -180.0..=180.0_f64),
        ) {
            let (a, b) = (at(a.0, a.1).expect("on Earth"), at(b.0, b.1).expect("on Earth"));
            prop_assert!((a.km_to(b) - b.km_to(a)).abs() < 1e-6);
            prop_assert!((0.0..=20_040.0).contains(&a.km_to(b)));
            prop_assert!(a.km_to(a) < 1e-6);
        }

        #[test]
        fn own_cluster_and_some_ingress_are_always_there(
            place in proptest::option::of((-90.0..=90.0_f64, -180.0..=180.0_f64)), ill in any::<u8>(),
        ) {
            let client = place.and_then(|(a, b)| at(a, b));
            let order = clusters(&fleet(), ClusterId(1), client, |id| ill >> id.0 & 1 == 0);
            prop_assert_eq!(order.iter().filter(|id| **id == ClusterId(1)).count(), 1);
            let named = ingresses(&fleet(), None, client, |id| ill >> (id.0 / 10) & 1 == 0);
            prop_assert!(!named.is_empty());
        }
    }
}
