//! Where a request really comes from: the client's address, and its place on Earth.
//!
//! A header that a client can write itself proves nothing. So `X-Forwarded-For` and the place headers of a CDN are read only when the
//! connection comes from one of the configured proxies.

use std::fmt;
use std::net::IpAddr;
use std::path::Path;

use axum::http::{HeaderMap, HeaderName};
use firsthop_shared::address::{Networks, canonical};
use maxminddb::{MaxMindDbError, Reader, geoip2};

use crate::countries;
use crate::steering::Position;

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// Whom to believe, and what they say it in.
#[derive(Clone, Debug)]
pub struct Proxies {
    /// Addresses of our own proxies and of the CDN.
    pub trusted: Networks,
    /// Header with the client's latitude in degrees.
    pub latitude: HeaderName,
    /// Header with the client's longitude in degrees.
    pub longitude: HeaderName,
    /// Header with the client's country, ISO 3166-1 alpha-2.
    pub country: HeaderName,
}

impl Proxies {
    /// The client's address: the last one in `X-Forwarded-For` that is not a trusted proxy's own.
    #[must_use]
    pub fn client(&self, peer: IpAddr, headers: &HeaderMap) -> IpAddr {
        let mut client = peer;
        let hops = headers.get_all(FORWARDED_FOR);
        let mut hops: Vec<&str> = hops
            .iter()
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(','))
            .collect();
        while self.trusted.contains(client) {
            let Some(before) = hops.pop().and_then(address) else {
                break;
            };
            client = before;
        }
        client
    }

    /// The client's place as the proxy tells it: coordinates, else the country's middle.
    #[must_use]
    pub fn place(&self, peer: IpAddr, headers: &HeaderMap) -> Option<Position> {
        if !self.trusted.contains(peer) {
            return None;
        }
        let text = |name: &HeaderName| headers.get(name)?.to_str().ok().map(str::trim);
        let degrees = |name| text(name)?.parse::<f64>().ok();
        let exact = degrees(&self.latitude)
            .zip(degrees(&self.longitude))
            .and_then(|(latitude, longitude)| Position::new(latitude, longitude));
        exact.or_else(|| countries::position(text(&self.country)?))
    }
}

/// Reads an entry of `X-Forwarded-For`: an address, with a port on some proxies.
fn address(text: &str) -> Option<IpAddr> {
    let text = text.trim();
    if let Ok(ip) = text.parse::<IpAddr>() {
        return Some(canonical((ip, 0).into()).ip());
    }
    let socket: std::net::SocketAddr = text.parse().ok()?;
    Some(canonical(socket).ip())
}

/// A MaxMind database of places (GeoLite2-City, GeoIP2-City, or one of countries).
pub struct Places(Reader<Vec<u8>>);

impl fmt::Debug for Places {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Places")
    }
}

impl Places {
    /// Reads a database file into memory.
    ///
    /// # Errors
    /// When it cannot be read, or is no MaxMind database.
    pub fn load(path: &Path) -> Result<Self, MaxMindDbError> {
        Reader::open_readfile(path).map(Self)
    }

    /// The place of an address, if the database knows it.
    #[must_use]
    pub fn find(&self, ip: IpAddr) -> Option<Position> {
        let entry = self.0.lookup(ip).ok()?;
        let city: geoip2::City<'_> = entry.decode().ok()??;
        let exact = city
            .location
            .latitude
            .zip(city.location.longitude)
            .and_then(|(latitude, longitude)| Position::new(latitude, longitude));
        exact.or_else(|| countries::position(city.country.iso_code?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proxies() -> Proxies {
        Proxies {
            trusted: Networks::parse("10.0.0.0/8,fd00::/8").expect("networks"),
            latitude: HeaderName::from_static("cf-iplatitude"),
            longitude: HeaderName::from_static("cf-iplongitude"),
            country: HeaderName::from_static("cf-ipcountry"),
        }
    }

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, value.parse().expect("a value"));
        }
        headers
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn forwarded_addresses_are_believed_up_to_the_first_stranger() {
        for (peer, forwarded, client) in [
            ("10.0.0.1", "198.51.100.7", "198.51.100.7"),
            ("10.0.0.1", "203.0.113.9, 198.51.100.7", "198.51.100.7"),
            ("10.0.0.1", "198.51.100.7, 10.2.2.2", "198.51.100.7"),
            ("10.0.0.1", "198.51.100.7:5123", "198.51.100.7"),
            ("10.0.0.1", "::ffff:198.51.100.7", "198.51.100.7"),
            ("10.0.0.1", "[2001:db8::9]:5123", "2001:db8::9"),
            ("10.0.0.1", "nonsense", "10.0.0.1"),
            ("192.0.2.66", "198.51.100.7", "192.0.2.66"),
        ] {
            let sent = headers(&[("x-forwarded-for", forwarded)]);
            assert_eq!(
                proxies().client(ip(peer), &sent),
                ip(client),
                "{peer} {forwarded}"
            );
        }
        assert_eq!(
            proxies().client(ip("10.0.0.1"), &HeaderMap::new()),
            ip("10.0.0.1")
        );
    }

    #[test]
    fn a_place_is_taken_from_trusted_proxies_alone() {
        let sent = headers(&[("cf-iplatitude", "52.5"), ("cf-iplongitude", "13.4")]);
        let berlin = Position::new(52.5, 13.4);
        assert_eq!(proxies().place(ip("10.0.0.1"), &sent), berlin);
        assert_eq!(proxies().place(ip("198.51.100.7"), &sent), None);
    }

    #[test]
    fn a_country_stands_in_for_missing_or_impossible_coordinates() {
        let peer = ip("10.0.0.1");
        let japan = countries::position("JP");
        for pairs in [
            vec![("cf-ipcountry", "JP")],
            vec![("cf-ipcountry", "jp"), ("cf-iplatitude", "52.5")],
            vec![
                ("cf-ipcountry", "JP"),
                ("cf-iplatitude", "NaN"),
                ("cf-iplongitude", "500"),
            ],
        ] {
            assert_eq!(proxies().place(peer, &headers(&pairs)), japan, "{pairs:?}");
        }
        assert_eq!(
            proxies().place(peer, &headers(&[("cf-ipcountry", "XX")])),
            None
        );
    }
}
