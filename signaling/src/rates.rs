//! How often a key and a client address may ask: token buckets in memory, by the crate `governor`.
//!
//! Each replica counts for itself, since replicas share nothing: with N of them behind a balancer, a limit is N times as wide.
//! Addresses are counted before anything else, so that guessing keys is slow; keys are counted when they create a call or mint a secret.
//! An IPv6 address stands for its /64: a single host has that many.

use std::collections::HashMap;
use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use firsthop_service::gate::network;
use governor::clock::{Clock as _, DefaultClock};
use governor::state::keyed::HashMapStateStore;
use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};

use crate::credentials::{ApiKeys, Grant, KeyName, Rate};
use crate::limits::RATED_ADDRESSES_MAX;

type AddressLimiter = RateLimiter<IpAddr, HashMapStateStore<IpAddr>, DefaultClock>;

/// The bucket of all addresses that found no room for one of their own.
const SHARED: IpAddr = IpAddr::V6(Ipv6Addr::UNSPECIFIED);

/// The buckets.
pub struct Rates {
    clock: DefaultClock,
    addresses: Option<AddressLimiter>,
    keys: Mutex<HashMap<KeyName, (Rate, Arc<DefaultDirectRateLimiter>)>>,
}

impl fmt::Debug for Rates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Rates")
    }
}

fn quota(rate: Rate) -> Quota {
    Quota::per_second(rate.per_second).allow_burst(rate.burst)
}

impl Rates {
    /// Full buckets; `None` leaves addresses without a limit.
    #[must_use]
    pub fn new(per_address: Option<Rate>) -> Self {
        Self {
            clock: DefaultClock::default(),
            addresses: per_address.map(|rate| RateLimiter::hashmap(quota(rate))),
            keys: Mutex::default(),
        }
    }

    /// Counts a request of a client address.
    ///
    /// # Errors
    /// How long to wait, when it is one too many.
    pub fn address(&self, ip: IpAddr) -> Result<(), Duration> {
        let Some(limiter) = &self.addresses else {
            return Ok(());
        };
        let key = if limiter.len() >= RATED_ADDRESSES_MAX {
            SHARED
        } else {
            network(ip)
        };
        limiter
            .check_key(&key)
            .map_err(|until| until.wait_time_from(self.clock.now()))
    }

    /// Counts a call or a secret of a key.
    ///
    /// # Errors
    /// How long to wait, when it is one too many.
    pub fn key(&self, grant: &Grant) -> Result<(), Duration> {
        let Some(rate) = grant.rate else {
            return Ok(());
        };
        let limiter = {
            let mut keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
            let fresh = || (rate, Arc::new(RateLimiter::direct(quota(rate))));
            let known = keys.entry(grant.name.clone()).or_insert_with(fresh);
            if known.0 != rate {
                *known = fresh();
            }
            Arc::clone(&known.1)
        };
        limiter
            .check()
            .map_err(|until| until.wait_time_from(self.clock.now()))
    }

    /// Forgets addresses whose buckets are full again, and keys that are no longer listed. To be called now and then.
    pub fn tidy(&self, listed: &ApiKeys) {
        if let Some(limiter) = &self.addresses {
            limiter.retain_recent();
        }
        let mut keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        keys.retain(|name, _| listed.grants().any(|grant| grant.name == *name));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::credentials::Scope;
    use std::num::NonZeroU32;

    fn rate(per_second: u32, burst: u32) -> Rate {
        Rate {
            per_second: NonZeroU32::new(per_second).expect("not zero"),
            burst: NonZeroU32::new(burst).expect("not zero"),
        }
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    fn keys() -> ApiKeys {
        let hash = "0".repeat(64);
        ApiKeys::parse(&format!("[[key]]\nname = \"a\"\nsha256 = \"{hash}\"")).expect("valid")
    }

    #[test]
    fn an_address_has_its_burst_and_then_hears_how_long_to_wait() {
        let rates = Rates::new(Some(rate(1, 3)));
        let burst: Vec<bool> = (0..4)
            .map(|_| rates.address(ip("192.0.2.1")).is_ok())
            .collect();
        assert_eq!(burst, [true, true, true, false]);
        let wait = rates.address(ip("192.0.2.1")).expect_err("too many");
        assert!(wait <= Duration::from_secs(1), "{wait:?}");
        assert!(rates.address(ip("192.0.2.2")).is_ok());
    }

    #[test]
    fn the_addresses_of_one_ipv6_network_share() {
        let rates = Rates::new(Some(rate(1, 1)));
        assert!(rates.address(ip("2001:db8::1")).is_ok());
        assert!(rates.address(ip("2001:db8::ffff:2")).is_err());
        assert!(rates.address(ip("2001:db8:0:1::1")).is_ok());
    }

    #[test]
    fn a_key_has_the_rate_that_the_file_now_says() {
        let rates = Rates::new(None);
        let listed = keys().named("a").expect("listed");
        let mut grant = Grant {
            rate: Some(rate(1, 1)),
            scopes: vec![Scope::Calls],
            ..Grant::clone(&listed)
        };
        assert!(rates.key(&grant).is_ok());
        assert!(rates.key(&grant).is_err());
        rates.tidy(&keys());
        assert!(rates.key(&grant).is_err());
        grant.rate = Some(rate(1, 2));
        assert!(rates.key(&grant).is_ok());
        grant.rate = None;
        assert!((0..10).all(|_| rates.key(&grant).is_ok()));
        assert!((0..10).all(|_| rates.address(ip("192.0.2.1")).is_ok()));
    }
}
