//! The owners that a core's trunks lead to, other relays among them, and how large a datagram the path to each takes.
//!
//! A path belongs to an owner and not to one of its workers: so a limit is set once for all the owner's trunks, and holds
//! for those that are made later too. An owner is here as long as any trunk leads to it.

use std::net::IpAddr;

use firsthop_shared::address::OwnerAddr;
use siphasher::sip::SipHasher13;

use crate::index::Index;

struct Owner {
    address: OwnerAddr,
    /// Largest datagram that the path takes in one piece, in bytes of UDP payload.
    limit: u16,
    /// Whether a datagram has left since the owner came in.
    used: bool,
    /// How many trunks lead to it.
    trunks: u16,
    hash: u32,
}

/// The owners of all trunks of one core.
pub(crate) struct Owners {
    owners: Vec<Owner>,
    free: Vec<u16>,
    index: Index,
    hasher: SipHasher13,
    limit: u16,
}

impl Owners {
    /// Allocates room for as many owners as there may be trunks. `limit` holds for an owner until another is set.
    pub(crate) fn new(trunks: u16, hash: [u64; 2], limit: u16) -> Self {
        Self {
            owners: Vec::with_capacity(usize::from(trunks)),
            free: Vec::with_capacity(usize::from(trunks)),
            index: Index::new(u32::from(trunks)),
            hasher: SipHasher13::new_with_keys(hash[0], hash[1]),
            limit,
        }
    }

    /// Counts one trunk more to an owner, and returns the owner's number.
    pub(crate) fn acquire(&mut self, address: OwnerAddr) -> u16 {
        let number = match self.find(address) {
            Some(number) => number,
            None => self.add(address),
        };
        self.owners[usize::from(number)].trunks += 1;
        number
    }

    /// Counts one trunk less; with its last trunk the owner is forgotten.
    pub(crate) fn release(&mut self, number: u16) {
        let owner = &mut self.owners[usize::from(number)];
        owner.trunks -= 1;
        if owner.trunks == 0 {
            let hash = owner.hash;
            self.index.remove(hash, u32::from(number));
            self.free.push(number);
        }
    }

    /// The address of a number.
    pub(crate) fn address(&self, number: u16) -> OwnerAddr {
        self.owners[usize::from(number)].address
    }

    /// Whether any trunk leads to the owner.
    pub(crate) fn contains(&self, address: OwnerAddr) -> bool {
        self.find(address).is_some()
    }

    /// The largest datagram for an owner, in bytes of UDP payload.
    pub(crate) fn limit(&self, number: u16) -> u16 {
        self.owners[usize::from(number)].limit
    }

    /// Sets it, if any trunk leads to the owner.
    pub(crate) fn set_limit(&mut self, address: OwnerAddr, limit: u16) {
        if let Some(number) = self.find(address) {
            self.owners[usize::from(number)].limit = limit;
        }
    }

    /// Whether this is the first datagram that leaves for the owner since it came in.
    pub(crate) fn use_first(&mut self, number: u16) -> bool {
        !std::mem::replace(&mut self.owners[usize::from(number)].used, true)
    }

    fn find(&self, address: OwnerAddr) -> Option<u16> {
        let is_it = |number| self.owners[number as usize].address == address;
        let number = self.index.find(self.hash(address), is_it)?;
        Some(number as u16)
    }

    fn add(&mut self, address: OwnerAddr) -> u16 {
        let owner = Owner {
            address,
            limit: self.limit,
            used: false,
            trunks: 0,
            hash: self.hash(address),
        };
        let hash = owner.hash;
        let number = match self.free.pop() {
            Some(number) => {
                self.owners[usize::from(number)] = owner;
                number
            }
            // No more owners than trunks: the table does not grow.
            None => {
                self.owners.push(owner);
                (self.owners.len() - 1) as u16
            }
        };
        self.index.insert(hash, u32::from(number));
        number
    }

    fn hash(&self, address: OwnerAddr) -> u32 {
        let mut bytes = [0; 18];
        match address.ip() {
            IpAddr::V4(ip) => bytes[..4].copy_from_slice(&ip.octets()),
            IpAddr::V6(ip) => bytes[..16].copy_from_slice(&ip.octets()),
        }
        bytes[16..].copy_from_slice(&address.port().to_be_bytes());
        self.hasher.hash(&bytes) as u32
    }
}
