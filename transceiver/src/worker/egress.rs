//! The way down: records for one hop share a datagram, as far as the path's MTU allows.

use std::collections::HashMap;

use firsthop_shared::address::{BootId, Hop, ShardId};
use firsthop_shared::keyring::DataKey;
use firsthop_shared::limits::{TRUNK_DATAGRAM_ETHERNET, TRUNK_DATAGRAM_MAX};
use firsthop_shared::trunk::{DatagramBuilder, RecordHeader};

use crate::limits;

/// What one turn sends, packed per hop. Memory is kept from turn to turn.
pub struct Egress {
    shard: ShardId,
    boot: BootId,
    sequence: u32,
    /// The datagram that each hop's next record goes into, as a place in `datagrams`.
    open: HashMap<Hop, usize>,
    datagrams: Vec<Place>,
    /// How many of `datagrams` are in use in this turn.
    used: usize,
    records: u64,
}

struct Place {
    hop: Hop,
    limit: usize,
    builder: DatagramBuilder,
}

impl Egress {
    /// Starts for a shard, with a random boot id.
    ///
    /// Datagrams name the sender's shard: with their source address it tells the relay which owner's worker they are from.
    #[must_use]
    pub fn new(shard: ShardId, boot: BootId) -> Self {
        Self {
            shard,
            boot,
            sequence: 0,
            open: HashMap::new(),
            datagrams: Vec::new(),
            used: 0,
            records: 0,
        }
    }

    /// Adds a record; returns false when it is too large for any datagram.
    pub fn push(&mut self, hop: Hop, header: &RecordHeader, payload: &[u8]) -> bool {
        if let Some(&place) = self.open.get(&hop)
            && self.datagrams[place].builder.push(header, payload)
        {
            self.records += 1;
            return true;
        }
        let place = self.next_place(hop);
        if !self.datagrams[place].builder.push(header, payload) {
            // The place stays, empty, for the hop's next record.
            self.open.insert(hop, place);
            return false;
        }
        self.open.insert(hop, place);
        self.records += 1;
        true
    }

    fn next_place(&mut self, hop: Hop) -> usize {
        let limit = datagram_limit(hop);
        match self.datagrams.get_mut(self.used) {
            Some(place) if place.limit == limit => place.hop = hop,
            free => {
                let fresh = Place {
                    hop,
                    limit,
                    builder: DatagramBuilder::new(limit),
                };
                match free {
                    Some(place) => *place = fresh,
                    None => self.datagrams.push(fresh),
                }
            }
        }
        self.used += 1;
        self.used - 1
    }

    /// Whether it is time to send, although the turn goes on: memory is bounded.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.used >= limits::HOPS_PER_TURN
    }

    /// Whether there is nothing to send.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// Signs what is there, and gives it to `send` in order; empty afterwards.
    ///
    /// Returns the number of datagrams and of records. `fresh` makes a boot id when the sequence numbers are used up.
    pub fn flush(
        &mut self,
        key: &DataKey,
        fresh: impl FnOnce() -> BootId,
        send: impl FnOnce(&[(Hop, &[u8])]),
    ) -> (u64, u64) {
        // One check for the whole turn.
        if u32::MAX - self.sequence < self.used as u32 {
            self.boot = fresh();
            self.sequence = 0;
        }
        let mut ready = Vec::with_capacity(self.used);
        for place in &mut self.datagrams[..self.used] {
            if place.builder.is_empty() {
                continue;
            }
            let bytes = place
                .builder
                .finish(key, self.shard, self.boot, self.sequence);
            self.sequence += 1;
            ready.push((place.hop, bytes));
        }
        let sent = (ready.len() as u64, self.records);
        if !ready.is_empty() {
            send(&ready);
        }
        drop(ready);
        for place in &mut self.datagrams[..self.used] {
            place.builder.clear();
        }
        self.open.clear();
        self.used = 0;
        self.records = 0;
        sent
    }
}

/// How large a datagram to a hop may be: what Ethernet carries in one packet, or all that the format allows on loopback.
fn datagram_limit(hop: Hop) -> usize {
    if hop.ip().is_loopback() {
        TRUNK_DATAGRAM_MAX
    } else {
        TRUNK_DATAGRAM_ETHERNET
    }
}

#[cfg(test)]
mod tests {
    use firsthop_shared::address::{ClientAddr, FlowHandle, IngressId, SessionId};
    use firsthop_shared::keyring::{DataKeyring, Masters};
    use firsthop_shared::trunk::{self, RecordKind};

    use super::*;

    fn record(session: u32) -> RecordHeader {
        RecordHeader {
            kind: RecordKind::Packet,
            client: ClientAddr::new(([198, 51, 100, 7], 4_000).into()),
            tcp: false,
            proven: false,
            ingress: IngressId(0),
            session: SessionId(session),
            handle: FlowHandle(1),
            owner: None,
            payload_len: 0,
        }
    }

    fn keyring() -> DataKeyring {
        DataKeyring::parse(&Masters::new([1; 32]).data_toml()).expect("a keyring")
    }

    #[test]
    fn records_of_one_hop_share_datagrams_that_fit_ethernet() {
        let keyring = keyring();
        let mut egress = Egress::new(ShardId(3), BootId(9));
        let hops = [
            Hop::new(([10, 0, 0, 1], 4_000).into()),
            Hop::new(([10, 0, 0, 2], 4_000).into()),
        ];
        for turn in 0..3 {
            for n in 0..40 {
                assert!(egress.push(hops[n as usize % 2], &record(n), &[0; 120]));
            }
            let mut seen = Vec::new();
            let (datagrams, records) = egress.flush(
                keyring.active(),
                || BootId(0),
                |ready| {
                    for (hop, bytes) in ready {
                        assert!(bytes.len() <= TRUNK_DATAGRAM_ETHERNET);
                        let opened = trunk::open(&keyring, bytes).expect("authentic");
                        assert_eq!(opened.header.boot, BootId(9));
                        assert_eq!(opened.header.shard, ShardId(3));
                        seen.push(opened.header.sequence);
                        for record in opened.records() {
                            assert_eq!(*hop, hops[record.header.session.0 as usize % 2]);
                        }
                    }
                },
            );
            assert_eq!(records, 40);
            assert_eq!(datagrams, 4, "10 records of 138 bytes each");
            assert_eq!(seen, (turn * 4..turn * 4 + 4).collect::<Vec<u32>>());
            assert!(egress.is_empty());
        }
    }

    #[test]
    fn a_packet_that_fits_no_datagram_is_refused_and_harms_no_other() {
        let keyring = keyring();
        let mut egress = Egress::new(ShardId(3), BootId(9));
        let hop = Hop::new(([10, 0, 0, 1], 4_000).into());
        assert!(egress.push(hop, &record(1), &[0; 100]));
        assert!(!egress.push(hop, &record(2), &[0; TRUNK_DATAGRAM_MAX]));
        assert!(egress.push(hop, &record(3), &[0; 100]));
        let (_, records) = egress.flush(keyring.active(), || BootId(0), |_| {});
        assert_eq!(records, 2);
    }

    #[test]
    fn a_new_boot_id_comes_before_the_sequence_wraps() {
        let keyring = keyring();
        let mut egress = Egress::new(ShardId(3), BootId(9));
        egress.sequence = u32::MAX;
        let hop = Hop::new(([10, 0, 0, 1], 4_000).into());
        egress.push(hop, &record(1), &[0; 100]);
        let mut header = None;
        egress.flush(
            keyring.active(),
            || BootId(10),
            |ready| header = trunk::open(&keyring, ready[0].1).ok().map(|d| d.header),
        );
        let header = header.expect("sent");
        assert_eq!((header.boot, header.sequence), (BootId(10), 0));
    }
}
