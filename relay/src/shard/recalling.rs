//! What a turn does with the flow cache, when there is one: packets that wait for it, answers, changes.

use firsthop_relay_core::{BufferId as RouterBuffer, Micros, Reason, Source, Verdict};

use super::Shard;
use crate::limits;
use crate::ring::{BufferId, HEADROOM, Received};

impl Shard {
    /// A packet of a client that is not known: asks the cache, where that helps. Returns whether the packet waits.
    ///
    /// A core that stops receiving starts no wait, which another process could not end.
    pub(super) fn recall(
        &mut self,
        now: Micros,
        source: &Source,
        unknown: Reason,
        received: &Received,
    ) -> bool {
        let cache = self.cache.as_mut();
        let Some(cache) = cache.filter(|cache| cache.reachable() && self.ring.receiving()) else {
            self.router.count(unknown);
            return false;
        };
        let buffer = RouterBuffer(received.buffer.to_raw());
        let len = received.len as u16;
        let recalled = self.router.recall(now, source, unknown, buffer, len);
        if recalled.ask && !cache.ask(source.flow()) {
            // Its packet is dropped when this turn looks for packets whose wait is over.
            self.router.withdraw(source, unknown);
        }
        recalled.held
    }

    /// Gives the cache what has changed, takes its answers, and lets the packets go on whose wait is over. Returns whether more
    /// answers may be waiting.
    pub(super) fn speak_with_cache(&mut self, now: Micros) -> bool {
        self.give_changes();
        let Some(cache) = &mut self.cache else {
            return false;
        };
        let mut taken = 0;
        while taken < limits::CACHE_ANSWERS_PER_TURN
            && let Some(answer) = cache.answer()
        {
            taken += 1;
            self.router.answer(now, answer.flow, answer.found);
        }
        cache.flush();
        self.router.end_waits(now);
        while let Some((buffer, len, verdict)) = self.router.take_recalled(now) {
            let id = BufferId::from_raw(buffer.0);
            let records = match verdict {
                Verdict::Forward(forward) => {
                    let payload = HEADROOM..HEADROOM + usize::from(len);
                    let frame = self.ring.bytes_mut(id);
                    self.router.pack(now, &forward, buffer, frame, payload)
                }
                Verdict::Drop(_) | Verdict::Unknown(_) => 0,
            };
            self.share(id, records);
        }
        taken == limits::CACHE_ANSWERS_PER_TURN
    }

    /// Gives the cache what has changed.
    pub(super) fn give_changes(&mut self) {
        let Some(cache) = &mut self.cache else {
            return;
        };
        while let Some(change) = self.router.take_change() {
            cache.change(change);
        }
    }
}
