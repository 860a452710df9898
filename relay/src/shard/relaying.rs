//! The part of the pump that speaks with other relays: records that go on, keepalives and their answers.

use std::ops::Range;

use firsthop_relay_core::{
    BufferId as RouterBuffer, Inbound, Keepalive, Micros, Onward, Reason, Router, Way,
};
use firsthop_shared::address::Hop;
use firsthop_shared::limits::TRUNK_RECORDS_MAX;
use firsthop_shared::trunk;

use super::Shard;
use crate::limits;
use crate::ring::{BufferId, HEADROOM};

/// What one internal datagram has for others than clients.
pub(super) struct Relaying {
    /// Records that go on, and where their payloads are in the receive buffer.
    passing: Vec<(Onward, Range<usize>)>,
    /// The answer to its keepalive.
    answer: Option<Keepalive>,
}

impl Relaying {
    /// Room for the records of the largest datagram.
    pub(super) fn new() -> Self {
        Self {
            passing: Vec::with_capacity(TRUNK_RECORDS_MAX),
            answer: None,
        }
    }

    /// Lists a record that goes on.
    pub(super) fn pass(&mut self, way: Way, source: Hop, record: &trunk::Record<'_>) {
        let start = HEADROOM + record.offset;
        let payload = start..start + record.payload.len();
        self.passing
            .push((way.onward(source, &record.header), payload));
    }

    /// Decides the records of a datagram that another relay sent up.
    pub(super) fn inbound(
        &mut self,
        router: &mut Router,
        now: Micros,
        source: Hop,
        datagram: &trunk::Datagram<'_>,
    ) {
        let shard = datagram.header.shard;
        for record in datagram.records() {
            match router.inbound(now, source, shard, &record.header) {
                Inbound::Pass(way) => self.pass(way, source, &record),
                // A relay asks once in a datagram. So nobody gets more datagrams than they sent.
                Inbound::Answer if self.answer.is_some() => router.count(Reason::RecordKeepalive),
                Inbound::Answer => self.answer = router.answer_keepalive(source, record.payload),
                Inbound::Drop(_) => {}
            }
        }
    }
}

impl Shard {
    /// Puts the records that go on onto their trunks, and queues the answer, after a datagram of `len` bytes has been decided.
    pub(super) fn pass_on(&mut self, now: Micros, buffer: BufferId, len: usize) {
        let mut side = HEADROOM + len;
        for (onward, payload) in self.relaying.passing.drain(..) {
            let name = RouterBuffer(buffer.to_raw());
            let frame = self.ring.bytes_mut(buffer);
            let packed = self
                .router
                .pack_onward(now, &onward, name, frame, payload, &mut side);
            if packed {
                // Each record is one reader, until its datagram's send has ended.
                self.ring.retain(buffer);
            }
        }
        if let Some(answer) = self.relaying.answer.take() {
            self.send_keepalive(&answer);
        }
    }

    /// Looks after the relays of other clusters: which have fallen silent, and which are to be asked.
    pub(super) fn ask_peers(&mut self, now: Micros) {
        self.router.watch_peers(now);
        for _ in 0..limits::QUESTIONS_PER_TURN {
            if self.ring.message_room() == 0 {
                return;
            }
            let Some(question) = self.router.next_question(now) else {
                return;
            };
            self.send_keepalive(&question);
        }
    }

    fn send_keepalive(&mut self, keepalive: &Keepalive) {
        // A refusal is counted by the ring; one that is lost costs as much as one that the network loses.
        let _ = self
            .ring
            .send_message(keepalive.to.get(), keepalive.bytes(), std::iter::empty());
    }
}
