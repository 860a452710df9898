//! The pump of one core: turns that receive, decide, and send, until it is told to stop.
//!
//! A turn costs one system call and no allocation. Its steps are numbered as in the architecture page. What becomes of a
//! packet is the router's decision ([`firsthop_relay_core`]); how bytes move is the ring's business ([`crate::ring`]); this
//! file only carries one to the other.
//!
//! Yielding to glommio 0.9 wants care. An executor whose preemption timer fires before it has looked at its first task queue
//! (its thread lost the processor for a millisecond, say) takes that for "nothing to run" and parks, although the pump is
//! runnable; and packets come to another ring, so nothing wakes it. Therefore the preemption timer is out of reach, and the
//! pump yields by its own clock, with a timer: then nothing is runnable indeed, and that timer brings the executor back.

mod handover;
mod recalling;
mod relaying;
mod train;

use std::sync::Arc;
use std::time::{Duration, Instant};

use firsthop_relay_core::limits::EXPIRY_BUDGET;
use firsthop_relay_core::{
    BufferId as RouterBuffer, DownVerdict, Micros, Reason, Router, Source, Transport, Verdict,
};
use firsthop_service::paths::PathSizes;
use firsthop_shared::address::{ClientAddr, Hop, IngressId, OwnerAddr};
use firsthop_shared::limits::TRUNK_RECORDS_MAX;
use firsthop_shared::trunk::RecordKind;

use crate::cache::CoreCache;
use crate::control::{CoreControl, Mailbox, Note};
use crate::counters::{Published, Snapshot};
use crate::limits;
use crate::pause::pause;
use crate::ring::{BufferId, HEADROOM, Piece, Received, Ring, RingError};
use crate::waiting::{Wait, Waiting};
use relaying::Relaying;
use train::{Outgoing, train_len};

/// A public socket, as the pump knows it: which ingress its address is, and for which family.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PublicPath {
    /// The ingress that advertises the socket's address.
    pub ingress: IngressId,
    /// Whether it is an IPv6 socket; else IPv4.
    pub ipv6: bool,
}

/// Everything that a core's pump works with, made before its first turn.
pub struct Shard {
    router: Router,
    ring: Ring,
    mailbox: Mailbox,
    /// The controls of all cores, this one's too, by number.
    cores: Vec<Arc<CoreControl>>,
    /// Its end of the flow cache, if there is one.
    cache: Option<CoreCache>,
    published: Arc<Published>,
    waiting: Waiting,
    path_sizes: PathSizes,
    /// By socket: its ingress.
    public: Vec<PublicPath>,
    /// By ingress and family: the socket.
    sockets: Box<[[Option<u8>; 2]; 256]>,
    /// The zero of the core's time.
    start: Instant,
    /// What came in and is not handled yet.
    received: Vec<Received>,
    /// The client packets of one internal datagram.
    outgoing: Vec<Outgoing>,
    /// What else it has.
    relaying: Relaying,
    /// The turn's time.
    clock: Micros,
    next_yield: Micros,
    next_publish: Micros,
    turns: u64,
    sleeps: u64,
}

/// What a [`Shard`] is made of.
pub struct ShardParts {
    /// The core's decisions.
    pub router: Router,
    /// The core's packets.
    pub ring: Ring,
    /// What others tell it.
    pub mailbox: Mailbox,
    /// How it tells others.
    pub cores: Vec<Arc<CoreControl>>,
    /// Its end of the flow cache, when the router has one.
    pub cache: Option<CoreCache>,
    /// Where its counters are seen.
    pub published: Arc<Published>,
    /// What its public sockets are, in the ring's order.
    pub public: Vec<PublicPath>,
    /// How large trunk datagrams may be.
    pub path_sizes: PathSizes,
    /// Whether it polls before it sleeps.
    pub spin: bool,
    /// The zero of its time.
    pub start: Instant,
}

impl Shard {
    /// Puts a core together.
    #[must_use]
    pub fn new(parts: ShardParts) -> Self {
        let mut sockets = Box::new([[None; 2]; 256]);
        for (socket, path) in parts.public.iter().enumerate() {
            sockets[usize::from(path.ingress.0)][usize::from(path.ipv6)] = Some(socket as u8);
        }
        Self {
            router: parts.router,
            ring: parts.ring,
            mailbox: parts.mailbox,
            cores: parts.cores,
            cache: parts.cache,
            published: parts.published,
            waiting: Waiting::new(parts.spin, Micros(0)),
            path_sizes: parts.path_sizes,
            public: parts.public,
            sockets,
            start: parts.start,
            received: Vec::with_capacity(limits::RECEIVED_MAX),
            outgoing: Vec::with_capacity(TRUNK_RECORDS_MAX),
            relaying: Relaying::new(),
            clock: Micros(0),
            next_yield: Micros(0),
            next_publish: Micros(0),
            turns: 0,
            sleeps: 0,
        }
    }

    /// Runs turns until the control says stop. `armed` is called once, when the core receives on all of its sockets.
    ///
    /// # Errors
    /// The ring does not work any more. The core is lost, and with it the numbering of its group.
    pub async fn run(mut self, armed: impl FnOnce()) -> Result<(), RingError> {
        let mut armed = Some(armed);
        let mut wait = Wait::No;
        self.ring.arm();
        while !self.mailbox.stopped() {
            wait = self.turn(wait)?;
            if self.ring.all_armed()
                && let Some(armed) = armed.take()
            {
                self.published.set_armed(true);
                armed();
            }
            if let Some(reply) = self.mailbox.standing_order() {
                self.stand_still(&reply).await?;
                wait = Wait::No;
            }
            // 6. Yield to the executor: its timers and other tasks get their share every millisecond.
            if self.clock.0 >= self.next_yield.0 {
                pause(limits::YIELD).await;
                self.next_yield = self.now().after(micros(limits::YIELD_INTERVAL));
            }
        }
        self.published.set_armed(false);
        if self.ring.receiving() {
            // What the ring has taken off the sockets already would be lost with it.
            self.settle()?;
        }
        self.publish();
        Ok(())
    }

    /// One turn. Returns how the next may wait for packets.
    fn turn(&mut self, wait: Wait) -> Result<Wait, RingError> {
        self.turns += 1;
        self.sleeps += u64::from(wait != Wait::No);

        // 1. One system call: submits the last turn's sends, runs the receives, and waits if there is nothing to do.
        self.ring.enter(wait)?;

        // 2. Drain the completion queue. Sends give their buffers back at once; receives are listed.
        let before = self.received.len();
        self.ring.reap(&mut self.received);
        let count = self.received.len() - before;
        let now = self.now();
        self.clock = now;

        // 3. Receives: decide, write record headers in place, append to trunks; records from owners go to their clients.
        self.handle_received(now);

        // 4. Ask other relays, before trunks take the last slots; queue the trunks that are due; arm receives that ended. A turn
        //    that found little was all there is, unless a receive ended in it (as an empty datagram ends it): then nothing is
        //    gained by waiting for more. Nor may waiting records hold the buffers that receives need. Nor does a core wait for
        //    company that receives no more.
        let idle = !self.ring.receiving()
            || (count < limits::BUSY_RECEIVES && self.ring.all_armed())
            || self.ring.public_buffers_free() < limits::BUFFERS_LOW_PERCENT
            || self.ring.internal_buffers_free() < limits::BUFFERS_LOW_PERCENT;
        self.router.flush(now, idle);
        self.ask_peers(now);
        let unsent = self.send_trunks(now);
        self.ring.arm();

        // 5. Timers, the control channel, the flow cache, counters.
        let expiring = self.router.expire(now, EXPIRY_BUDGET);
        let notes = self.take_control(now);
        let answers = self.speak_with_cache(now);
        if now.0 >= self.next_publish.0 {
            self.next_publish = now.after(micros(limits::PUBLISH_INTERVAL));
            self.publish();
            let in_use = |to| self.router.sends_to(OwnerAddr::new(to));
            if let Some((to, bytes)) = self.path_sizes.refresh(since_start(now), in_use) {
                self.router.set_datagram_limit(OwnerAddr::new(to), bytes);
            }
        }

        // 6. When little arrived: poll for a moment, gather, or sleep in the packet ring.
        let unfinished = unsent
            || expiring
            || notes
            || answers
            || !self.received.is_empty()
            || self.router.next_linger().is_some();
        Ok(self.waiting.next(now, count, unfinished))
    }

    fn now(&self) -> Micros {
        Micros(self.start.elapsed().as_micros() as u64)
    }

    /// Handles what was received. Owners' datagrams that find no room for what they bring wait, in order, for the next turn;
    /// clients' packets pass them.
    fn handle_received(&mut self, now: Micros) {
        let mut received = std::mem::take(&mut self.received);
        let mut waiting = 0;
        let mut at = 0;
        while at < received.len() {
            let batch = at..received.len().min(at + limits::LOOK_AHEAD);
            let sources = self.look_ahead(&received[batch.clone()]);
            for (source, i) in sources.into_iter().zip(batch.clone()) {
                let one = received[i];
                if one.socket != self.ring.internal_socket() {
                    self.uplink(now, source.as_ref(), &one);
                } else if waiting == 0
                    && self.ring.room() >= TRUNK_RECORDS_MAX + limits::MESSAGE_RESERVE
                {
                    self.downlink(now, &one);
                } else {
                    received[waiting] = one;
                    waiting += 1;
                }
            }
            at = batch.end;
        }
        received.truncate(waiting);
        self.received = received;
    }

    /// Makes the sources of a batch of packets, and has the flow table loaded that they will need; nothing for what is not a
    /// client's packet as a whole.
    fn look_ahead(&self, batch: &[Received]) -> [Option<Source>; limits::LOOK_AHEAD] {
        let mut sources = [None; limits::LOOK_AHEAD];
        for (source, one) in sources.iter_mut().zip(batch) {
            if let (Some(path), Some(from), false) = (
                self.public.get(usize::from(one.socket)),
                one.from,
                one.truncated,
            ) {
                let client = ClientAddr::new(from);
                *source = Some(self.router.source(path.ingress, Transport::Udp, client));
            }
        }
        self.router.look_ahead(sources.iter().flatten());
        sources
    }

    /// A client's packet.
    fn uplink(&mut self, now: Micros, source: Option<&Source>, received: &Received) {
        let buffer = received.buffer;
        let payload = HEADROOM..HEADROOM + received.len;
        let records = match source {
            Some(source) => {
                let packet = &self.ring.bytes(buffer)[payload.clone()];
                match self.router.uplink(now, source, packet) {
                    Verdict::Forward(forward) => {
                        let frame = self.ring.bytes_mut(buffer);
                        let name = RouterBuffer(buffer.to_raw());
                        self.router.pack(now, &forward, name, frame, payload)
                    }
                    Verdict::Drop(_) => 0,
                    Verdict::Unknown(reason) => {
                        if self.recall(now, source, reason, received) {
                            // It keeps its reader as long as it waits.
                            return;
                        }
                        0
                    }
                }
            }
            None => {
                self.router.count(match received.from {
                    Some(_) => Reason::Oversize,
                    None => Reason::ReceiveError,
                });
                0
            }
        };
        self.share(buffer, records);
    }

    /// Leaves a buffer to its records. It has one reader already; each record is one, until its datagram's send has ended.
    fn share(&mut self, buffer: BufferId, records: u8) {
        match records {
            0 => self.ring.release(buffer),
            records => (1..records).for_each(|_| self.ring.retain(buffer)),
        }
    }

    /// A datagram of an owner or of another relay.
    fn downlink(&mut self, now: Micros, received: &Received) {
        self.decide_downlink(now, received);
        self.give_changes();
        let buffer = received.buffer;
        self.pass_on(now, buffer, received.len);
        let mut rest = &self.outgoing[..];
        while let Some(first) = rest.first() {
            let (train, behind) = rest.split_at(train_len(rest));
            rest = behind;
            let ranges = train.iter().map(|packet| packet.range.clone());
            if train.len() > 1
                && self
                    .ring
                    .send_train(first.socket, first.client, buffer, ranges)
            {
                continue;
            }
            for packet in train {
                let range = packet.range.clone();
                // A refusal is counted by the ring. It cannot happen: there is room for every record of a datagram.
                let _ = self
                    .ring
                    .send_packet(packet.socket, packet.client, buffer, range);
            }
        }
        self.outgoing.clear();
        self.ring.release(buffer);
    }

    /// Lists in `outgoing` what a datagram brings for clients, in `relaying` what it brings for others.
    fn decide_downlink(&mut self, now: Micros, received: &Received) {
        let Some(from) = received.from.filter(|_| !received.truncated) else {
            self.router.count(Reason::TrunkLength);
            return;
        };
        let source = Hop::new(from);
        let bytes = &self.ring.bytes(received.buffer)[HEADROOM..HEADROOM + received.len];
        let Ok(datagram) = self.router.open(now, source, bytes) else {
            return;
        };
        if !datagram.header.boot.is_owner() {
            self.relaying
                .inbound(&mut self.router, now, source, &datagram);
            return;
        }
        let shard = datagram.header.shard;
        for record in datagram.records() {
            if record.header.kind == RecordKind::Keepalive {
                self.router.heard(now, source, record.payload);
                continue;
            }
            let (send, elsewhere) = match self.router.downlink(now, source, shard, &record.header) {
                DownVerdict::Send => (true, None),
                DownVerdict::SendAndNote(core) => (true, Some(core)),
                DownVerdict::Done => (false, None),
                DownVerdict::Note(core) => (false, Some(core)),
                DownVerdict::Pass(way) => {
                    self.relaying.pass(way, source, &record);
                    continue;
                }
                DownVerdict::Drop(_) => continue,
            };
            if let Some(core) = elsewhere {
                let note = Note {
                    source,
                    shard,
                    record: record.header,
                };
                if !self.cores[usize::from(core)].note(note) {
                    self.router.count(Reason::NoteRefused);
                }
            }
            let client = record.header.client;
            let family = usize::from(client.is_ipv6());
            if send && let Some(socket) = self.sockets[usize::from(record.header.ingress.0)][family]
            {
                let start = HEADROOM + record.offset;
                self.outgoing.push(Outgoing {
                    socket,
                    client: client.get(),
                    range: start..start + record.payload.len(),
                });
            }
        }
    }

    /// Queues closed trunk datagrams while there is room. Returns whether some are left.
    fn send_trunks(&mut self, now: Micros) -> bool {
        while self.ring.message_room() > 0 {
            let Some(datagram) = self.router.take_ready() else {
                return false;
            };
            let pieces = self.router.pieces(&datagram).map(|piece| {
                let range = |span: firsthop_relay_core::Span| {
                    let start = usize::from(span.start);
                    start..start + usize::from(span.len)
                };
                Piece {
                    buffer: BufferId::from_raw(piece.buffer.0),
                    side: range(piece.side),
                    body: range(piece.body),
                }
            });
            // A refusal is counted by the ring, which then has released the buffers.
            let _ = self
                .ring
                .send_message(datagram.destination.get(), &datagram.header, pieces);
            if datagram.first
                && let Some(bytes) = self
                    .path_sizes
                    .learn(datagram.destination.get(), since_start(now))
            {
                self.router.set_datagram_limit(datagram.destination, bytes);
            }
            self.router.release(datagram);
        }
        true
    }

    /// Takes a new keyring, a new list of other clusters' relays, and other cores' notes. Returns whether more notes may be waiting.
    ///
    /// The wake-up is answered first, and the stop flag is looked at after this and before the core sleeps.
    fn take_control(&mut self, now: Micros) -> bool {
        self.mailbox.answer();
        if let Some(keyring) = self.mailbox.keyring() {
            self.router.set_keyring(keyring);
        }
        if let Some(peers) = self.mailbox.peers() {
            self.router.set_peers(now, peers);
        }
        for _ in 0..limits::NOTES_PER_TURN {
            let Some(note) = self.mailbox.note() else {
                return false;
            };
            self.router.note(now, note.source, note.shard, &note.record);
        }
        true
    }

    fn publish(&self) {
        if let (Some(cache), Some(counters)) = (&self.cache, self.router.recall_counters()) {
            cache.publish(&counters);
        }
        self.published.publish(&Snapshot {
            router: self.router.counters(),
            ring: self.ring.counters(),
            flows: self.router.flow_counts(),
            trunks: self.router.trunk_count(),
            turns: self.turns,
            sleeps: self.sleeps,
        });
        self.published.peers.publish(&self.router);
    }
}

fn micros(duration: Duration) -> Micros {
    Micros(duration.as_micros() as u64)
}

fn since_start(now: Micros) -> Duration {
    Duration::from_micros(now.0)
}
