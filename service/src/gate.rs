//! Who may connect: how many connections one client address may hold at once, and counts of what was turned away.
//!
//! An address above its bound is closed at once, unheard: to tell it more would take a connection, and with TLS a handshake. An
//! IPv6 address stands for its /64: a single host has that many. Where clients share an address, at a proxy that is known, there is no bound for
//! it. A connection that was upgraded is out of the server's hands, and holds nothing here.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::{IpAddr, Ipv6Addr};
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use firsthop_shared::address::Networks;

use crate::refusals::{Refusal, Refusals};

/// How many connections one client address may hold at once.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AddressBound {
    /// So many.
    pub connections: NonZeroUsize,
    /// But for these, whose connections are many clients'.
    pub but_for: Networks,
}

/// The gate of one server.
#[derive(Debug, Default)]
pub struct Gate {
    bound: Option<AddressBound>,
    /// No entry holds nothing, so there are no more of them than connections.
    held: Mutex<HashMap<IpAddr, usize>>,
    refusals: Arc<Refusals>,
}

impl Gate {
    /// A gate with this bound, or none, that counts here.
    #[must_use]
    pub fn new(bound: Option<AddressBound>, refusals: Arc<Refusals>) -> Arc<Self> {
        Arc::new(Self {
            bound,
            held: Mutex::default(),
            refusals,
        })
    }

    /// Where it counts.
    #[must_use]
    pub fn refusals(&self) -> &Refusals {
        &self.refusals
    }

    /// Lets a connection of this address in until what is returned is dropped; or counts the refusal.
    #[must_use]
    pub fn enter(self: &Arc<Self>, ip: IpAddr) -> Option<Held> {
        let bound = self
            .bound
            .as_ref()
            .filter(|bound| !bound.but_for.contains(ip));
        let Some(bound) = bound else {
            return Some(Held(None));
        };
        let whose = network(ip);
        let mut held = self.held();
        let count = held.entry(whose).or_default();
        if *count >= bound.connections.get() {
            self.refusals.count(Refusal::Address);
            return None;
        }
        *count += 1;
        drop(held);
        Some(Held(Some((Arc::clone(self), whose))))
    }

    fn held(&self) -> MutexGuard<'_, HashMap<IpAddr, usize>> {
        // Every change is complete in itself, so a panic elsewhere leaves nothing half done.
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connection that was let in.
#[derive(Debug)]
#[must_use]
pub struct Held(Option<(Arc<Gate>, IpAddr)>);

impl Drop for Held {
    fn drop(&mut self) {
        let Some((gate, whose)) = self.0.take() else {
            return;
        };
        if let Entry::Occupied(mut count) = gate.held().entry(whose) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }
}

/// What an address is counted as: itself, or its /64, which a single IPv6 host has to itself.
#[must_use]
pub fn network(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V4(_) => ip,
        IpAddr::V6(v6) => {
            let [a, b, c, d, ..] = v6.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 1).into()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gate(connections: usize, but_for: &str) -> Arc<Gate> {
        let bound = AddressBound {
            connections: NonZeroUsize::new(connections).expect("not zero"),
            but_for: Networks::parse(but_for).expect("networks"),
        };
        Gate::new(Some(bound), Arc::default())
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn an_address_gets_in_again_when_it_has_left_and_others_are_not_touched() {
        let gate = gate(2, "");
        let one = ip("198.51.100.1");
        let first = gate.enter(one).expect("room");
        let second = gate.enter(one).expect("room");
        assert!(gate.enter(one).is_none());
        assert_eq!(gate.refusals().of(Refusal::Address), 1);
        let other = gate.enter(ip("198.51.100.2")).expect("another's room");
        drop(first);
        let third = gate.enter(one).expect("room again");
        assert!(gate.enter(one).is_none());
        drop((second, third, other));
        assert!(gate.held().is_empty(), "who holds nothing is forgotten");
    }

    #[test]
    fn an_ipv6_host_is_its_64_and_a_neighbour_is_not() {
        let gate = gate(1, "");
        let _held = gate.enter(ip("2001:db8:0:1::1")).expect("room");
        assert!(gate.enter(ip("2001:db8:0:1:ffff::2")).is_none());
        let _other = gate.enter(ip("2001:db8:0:2::1")).expect("another's room");
    }

    #[test]
    fn known_proxies_have_no_bound_and_nobody_has_without_one() {
        let bounded = gate(1, "10.0.0.0/8");
        let open = Gate::new(None, Arc::default());
        let held: Vec<Held> = (0..100)
            .flat_map(|_| [bounded.enter(ip("10.1.2.3")), open.enter(ip("192.0.2.1"))])
            .map(|held| held.expect("room"))
            .collect();
        assert_eq!(held.len(), 200);
        assert_eq!(bounded.refusals().of(Refusal::Address), 0);
    }
}
