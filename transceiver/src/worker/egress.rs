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
    /// The largest datagram to a hop of which nothing is known.
    begin: usize,
    /// What is known of hops, at most [`limits::HOPS_KNOWN`] of them.
    known: HashMap<Hop, Known>,
    /// Hops whose path is to be looked up, and why.
    asks: Vec<(Hop, Ask)>,
}

/// What is known of the path to a hop.
struct Known {
    /// The largest datagram that it takes.
    limit: usize,
    /// Something went there since the last [`Egress::sends_to`].
    used: bool,
}

/// Why the path to a hop is to be looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// The first datagram goes there.
    New,
    /// It does not take what it was said to take.
    TooLarge,
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
            begin: TRUNK_DATAGRAM_ETHERNET,
            known: HashMap::new(),
            asks: Vec::new(),
        }
    }

    /// No path takes more than so many bytes of UDP payload, but for loopback.
    pub fn begin_with(&mut self, most: u16) {
        self.begin = usize::from(most).min(TRUNK_DATAGRAM_ETHERNET);
    }

    /// The hops whose paths are to be looked up; each is given once. Until [`Egress::set_limit`] says more, what Ethernet carries is taken to fit.
    pub fn take_asks(&mut self) -> Vec<(Hop, Ask)> {
        std::mem::take(&mut self.asks)
    }

    /// The path to a hop takes datagrams of so many bytes of UDP payload.
    pub fn set_limit(&mut self, hop: Hop, bytes: u16) {
        if let Some(known) = self.known.get_mut(&hop) {
            known.limit = usize::from(bytes).min(TRUNK_DATAGRAM_MAX);
        }
    }

    /// The system has refused a datagram to this hop as larger than the path takes.
    pub fn too_large(&mut self, hop: Hop) {
        // The next turn may have as many.
        if self.asks.len() < limits::HOPS_PER_TURN
            && !self.asks.iter().any(|(known, _)| *known == hop)
        {
            self.asks.push((hop, Ask::TooLarge));
        }
    }

    /// Whether anything went to a hop since this was last asked; one to which nothing did is forgotten.
    pub fn sends_to(&mut self, hop: Hop) -> bool {
        let used = self
            .known
            .get_mut(&hop)
            .is_some_and(|known| std::mem::take(&mut known.used));
        if !used {
            self.known.remove(&hop);
        }
        used
    }

    /// Adds a record; returns false when it is too large for any datagram.
    pub fn push(&mut self, hop: Hop, header: &RecordHeader, payload: &[u8]) -> bool {
        if let Some(&place) = self.open.get(&hop)
            && self.datagrams[place].builder.push(header, payload)
        {
            self.records += 1;
            return true;
        }
        let limit = self.limit(hop);
        let place = self.next_place(hop, limit);
        self.open.insert(hop, place);
        if !self.datagrams[place].builder.push(header, payload) {
            // The place stays, empty, for the hop's next record.
            return false;
        }
        self.records += 1;
        true
    }

    /// How large a datagram to a hop may be: as its path was learned; until then what Ethernet carries in one packet. All that the format
    /// allows on loopback.
    pub(super) fn limit(&mut self, hop: Hop) -> usize {
        if hop.ip().is_loopback() {
            return TRUNK_DATAGRAM_MAX;
        }
        if let Some(known) = self.known.get_mut(&hop) {
            known.used = true;
            return known.limit;
        }
        if self.known.len() >= usize::from(limits::HOPS_KNOWN) {
            // Those that are in use come back, and cost no system call where their answer is remembered.
            self.known.clear();
        }
        let limit = self.begin;
        self.known.insert(hop, Known { limit, used: true });
        if self.asks.len() < limits::HOPS_PER_TURN {
            self.asks.push((hop, Ask::New));
        } else {
            // Too many at once: it is new again with its next datagram.
            self.known.remove(&hop);
        }
        limit
    }

    fn next_place(&mut self, hop: Hop, limit: usize) -> usize {
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

    /// The sizes of the datagrams that so many records of 138 bytes make.
    fn sizes(egress: &mut Egress, hop: Hop, records: u32) -> Vec<usize> {
        for n in 0..records {
            assert!(egress.push(hop, &record(n), &[0; 120]));
        }
        flushed(egress)
    }

    fn flushed(egress: &mut Egress) -> Vec<usize> {
        let mut sizes = Vec::new();
        egress.flush(
            keyring().active(),
            || BootId(0),
            |ready| {
                sizes.extend(ready.iter().map(|(_, bytes)| bytes.len()));
            },
        );
        sizes
    }

    #[test]
    fn datagrams_are_as_large_as_the_path_of_their_hop_takes() {
        let mut egress = Egress::new(ShardId(3), BootId(9));
        let hop = Hop::new(([10, 0, 0, 1], 4_000).into());
        let other = Hop::new(([10, 0, 0, 2], 4_000).into());
        let near = Hop::new(([127, 0, 0, 1], 4_000).into());
        assert_eq!(sizes(&mut egress, hop, 40).len(), 4);
        assert_eq!(sizes(&mut egress, near, 40).len(), 1);
        // It is asked about once, and loopback never.
        assert_eq!(egress.take_asks(), [(hop, Ask::New)]);
        assert_eq!(sizes(&mut egress, hop, 40).len(), 4);
        assert_eq!(egress.take_asks(), []);
        for (bytes, datagrams) in [(8_960, 1), (u16::MAX, 1), (1_402, 5), (1_232, 5)] {
            egress.set_limit(hop, bytes);
            let sizes = sizes(&mut egress, hop, 40);
            assert_eq!(sizes.len(), datagrams, "{bytes}");
            assert!(sizes.iter().all(|size| *size <= usize::from(bytes)));
        }
        egress.set_limit(other, 200);
        assert_eq!(sizes(&mut egress, other, 40).len(), 4, "not known yet");
    }

    #[test]
    fn a_record_that_a_narrow_path_does_not_take_leaves_alone() {
        let mut egress = Egress::new(ShardId(3), BootId(9));
        let hop = Hop::new(([10, 0, 0, 1], 4_000).into());
        sizes(&mut egress, hop, 1);
        egress.set_limit(hop, 1_232);
        assert!(egress.push(hop, &record(1), &[0; 100]));
        assert!(egress.push(hop, &record(2), &[0; 1_250]));
        assert!(egress.push(hop, &record(3), &[0; 100]));
        let sizes = flushed(&mut egress);
        let large = sizes.iter().filter(|size| **size > 1_232).count();
        assert_eq!((sizes.len(), large), (3, 1), "{sizes:?}");
    }

    #[test]
    fn hops_that_are_gone_are_forgotten_and_what_is_known_is_bounded() {
        let mut egress = Egress::new(ShardId(3), BootId(9));
        let hop = Hop::new(([10, 0, 0, 1], 4_000).into());
        sizes(&mut egress, hop, 1);
        assert!(egress.sends_to(hop) && !egress.sends_to(hop));
        egress.take_asks();
        sizes(&mut egress, hop, 1);
        assert_eq!(egress.take_asks(), [(hop, Ask::New)], "it was forgotten");
        for n in 0..10_000u32 {
            let [.., a, b] = n.to_be_bytes();
            sizes(&mut egress, Hop::new(([10, 1, a, b], 4_000).into()), 1);
            assert!(egress.known.len() <= usize::from(limits::HOPS_KNOWN));
            assert!(egress.asks.len() <= limits::HOPS_PER_TURN);
        }
        egress.take_asks();
        for _ in 0..3 {
            egress.too_large(hop);
        }
        assert_eq!(egress.take_asks(), [(hop, Ask::TooLarge)]);
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
