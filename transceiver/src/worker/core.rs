//! What a worker decides: datagrams, commands and the time go in; packed datagrams, results and counters come out.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use firsthop_shared::address::{BootId, Hop, Networks, Restart, SessionId, ShardId};
use firsthop_shared::fleet::Fleet;
use firsthop_shared::keyring::DataKeyring;
use firsthop_shared::replay::ReplayFilter;
use firsthop_shared::trunk::{self, Record, RecordHeader, RecordKind};

use super::command::Directory;
use super::egress::Egress;
use super::endings::{CallReport, Endings};
use super::farewell::guarded;
use super::stats::Counters;
use super::unknown::Told;
use crate::audio::OpusMode;
use crate::backend::{Backends, Echoes, Kind};
use crate::dtls::Identity;
use crate::hops::Destination;
use crate::life::{EndReason, State};
use crate::lifetimes::Lifetimes;
use crate::limits;
use crate::reason::{Drops, Reason};
use crate::session::{Arrival, Outbox, Session, SessionReport};
use crate::traces::CallTrace;

/// What all workers share and what changes when a file does.
#[derive(Clone, Debug)]
pub struct Shared {
    /// The keys of ufrags and trunks.
    pub keyring: Arc<DataKeyring>,
    /// The ingress points.
    pub fleet: Arc<Fleet>,
}

/// What a worker is told at its start.
#[derive(Clone, Debug)]
pub struct CoreSettings {
    /// Its shard.
    pub shard: ShardId,
    /// How many sessions it takes.
    pub capacity: usize,
    /// Who may send trunk datagrams.
    pub networks: Networks,
    /// How long its sessions may take.
    pub lifetimes: Lifetimes,
    /// How Opus is encoded.
    pub opus: OpusMode,
    /// Where sessions are looked up by the control server.
    pub directory: Directory,
    /// Where those that have ended are told of.
    pub endings: Endings,
    /// The grid of audio deadlines begins here, and so do seconds.
    pub epoch: Instant,
}

pub(super) struct Slot {
    pub(super) session: Session,
    pub(super) client: Option<String>,
    /// The application that the call names.
    pub(super) app: Option<String>,
    pub(super) backend: Kind,
    /// Its trace, as long as its set-up goes on.
    pub(super) trace: Option<Box<CallTrace>>,
    /// The restart of the ufrag in use.
    pub(super) restart: Restart,
    /// The deadline that stands in the heap for this session.
    pub(super) armed: Option<Instant>,
    pub(super) state: State,
}

impl Slot {
    /// Tells the spans of a traced set-up when it is over.
    pub(super) fn tell_set_up(&mut self, now: Instant) {
        let Some(trace) = &self.trace else {
            return;
        };
        let times = self.session.set_up_times();
        if times.is_over(now) {
            trace.set_up(self.session.id().0, self.backend.label(), &times, now);
            self.trace = None;
        }
    }

    /// What there is to tell of the call, whose session has told this.
    pub(super) fn report(&self, shard: ShardId, session: SessionReport) -> CallReport {
        CallReport {
            client: self.client.clone(),
            app: self.app.clone(),
            backend_kind: self.backend.label(),
            shard: shard.0,
            session,
        }
    }
}

/// A worker without its socket.
pub struct Core {
    pub(super) settings: CoreSettings,
    shared: Shared,
    pub(super) identity: &'static Identity,
    pub(super) sessions: HashMap<SessionId, Slot>,
    timers: BinaryHeap<Reverse<(Instant, SessionId)>>,
    replay: ReplayFilter,
    pub(super) outbox: Outbox,
    egress: Egress,
    pub(super) counters: Counters,
    pub(super) random: fn() -> u64,
    unknown: Told,
    pub(super) backends: Box<dyn Backends>,
    /// When the process stops, once it is known.
    pub(super) draining: Option<Instant>,
}

impl Core {
    /// A worker without sessions. `random` gives random numbers: ids, seeds and boot ids are made of them.
    #[must_use]
    pub fn new(
        settings: CoreSettings,
        shared: Shared,
        identity: &'static Identity,
        random: fn() -> u64,
    ) -> Self {
        let egress = Egress::new(settings.shard, BootId::of_owner(random() as u32));
        Self {
            settings,
            shared,
            identity,
            sessions: HashMap::new(),
            timers: BinaryHeap::new(),
            replay: ReplayFilter::default(),
            outbox: Outbox::default(),
            egress,
            counters: Counters::default(),
            random,
            unknown: Told::default(),
            backends: Box::new(Echoes),
            draining: None,
        }
    }

    /// The same worker, with other backends than echoes.
    #[must_use]
    pub fn with_backends(mut self, backends: Box<dyn Backends>) -> Self {
        self.backends = backends;
        self
    }

    /// Takes new keys and a new fleet.
    pub fn reload(&mut self, shared: Shared) {
        self.shared = shared;
    }

    /// Takes one trunk datagram from the socket.
    pub fn datagram(&mut self, from: SocketAddr, bytes: &[u8], now: Instant) {
        self.counters.datagrams_in += 1;
        let hop = Hop::new(from);
        if !self.settings.networks.contains(hop.ip()) {
            return self.outbox.drops.count(Reason::ForeignSender);
        }
        let keyring = Arc::clone(&self.shared.keyring);
        let datagram = match trunk::open(&keyring, bytes) {
            Ok(datagram) => datagram,
            Err(error) => return self.outbox.drops.count(error.into()),
        };
        if datagram.header.boot.is_owner() {
            return self.outbox.drops.count(Reason::Reflected);
        }
        let secs = self.seconds(now);
        if !self
            .replay
            .accept(datagram.header.boot, datagram.header.sequence, secs)
        {
            return self.outbox.drops.count(Reason::Replay);
        }
        let foreign = datagram.header.shard != self.settings.shard;
        for record in datagram.records() {
            self.counters.records_in += 1;
            if foreign {
                self.outbox.drops.count(Reason::ForeignShard);
            } else if record.header.kind != RecordKind::Packet {
                self.outbox.drops.count(Reason::RecordKind);
            } else if record.header.owner.is_some() {
                // Relays write these for each other, and this worker's replay window does not know them. Whoever brings one
                // here would become the hop of its session.
                self.outbox.drops.count(Reason::RecordOwner);
            } else {
                self.record(hop, &record, now);
            }
        }
    }

    fn record(&mut self, hop: Hop, record: &Record<'_>, now: Instant) {
        let header = &record.header;
        let arrival = Arrival {
            client: header.client,
            ingress: header.ingress,
            tcp: header.tcp,
            hop,
            handle: header.handle,
        };
        let received = self.enter(header.session, now, |session, out| {
            session.receive(arrival, record.payload, now, out);
        });
        if received.is_none() {
            self.outbox.drops.count(Reason::UnknownSession);
            // The relay that sent this stops when told so; where too many are told in a second, a little later.
            let second = self.seconds(now);
            if (self.unknown).tell(hop, header.handle, header.session, second) {
                let reply = RecordHeader {
                    kind: RecordKind::UnknownSession,
                    proven: false,
                    owner: None,
                    payload_len: 0,
                    ..*header
                };
                self.push(hop, &reply, &[]);
            }
        }
    }

    /// Serves timers that are due, up to [`limits::TIMERS_PER_TURN`] and as long as the trunks have room; returns whether more
    /// are due.
    pub fn timers(&mut self, now: Instant) -> bool {
        for _ in 0..limits::TIMERS_PER_TURN {
            if self.egress.is_full() {
                break;
            }
            match self.timers.peek() {
                Some(Reverse((at, _))) if *at <= now => {}
                _ => return false,
            }
            let Some(Reverse((at, id))) = self.timers.pop() else {
                return false;
            };
            let Some(slot) = self.sessions.get_mut(&id) else {
                continue;
            };
            if slot.armed != Some(at) {
                continue;
            }
            slot.armed = None;
            self.counters.timers += 1;
            let late = u64::try_from(now.duration_since(at).as_micros()).unwrap_or(u64::MAX);
            self.counters.timer_late_us = self.counters.timer_late_us.max(late);
            self.with(id, now, |session, out| session.timeout(now, out));
        }
        true
    }

    /// The backend of a session has something to say.
    pub fn wake(&mut self, id: SessionId, now: Instant) {
        self.with(id, now, |session, out| session.timeout(now, out));
    }

    /// When [`Core::timers`] is due.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.timers.peek().map(|Reverse((at, _))| *at)
    }

    /// The process is going to stop at `end`: there are no new sessions, and those that are there may go on until then.
    ///
    /// Looks at every session, once in the life of a process.
    pub fn drain(&mut self, end: Instant, now: Instant) {
        self.draining = Some(end);
        let ids: Vec<SessionId> = self.sessions.keys().copied().collect();
        for id in ids {
            self.with(id, now, |session, _| session.end_by(end, now));
        }
    }

    /// Ends every session, as long as the trunks have room; returns whether some are left: flush, and call again.
    pub fn stop(&mut self, now: Instant) -> bool {
        let ids: Vec<SessionId> = self.sessions.keys().copied().collect();
        for id in ids {
            if self.egress.is_full() {
                return true;
            }
            self.with(id, now, |session, out| {
                session.end(EndReason::Stopped, now, out);
            });
        }
        false
    }

    /// Calls into one session. A panic ends that session and no other.
    pub(super) fn with<T>(
        &mut self,
        id: SessionId,
        now: Instant,
        call: impl FnOnce(&mut Session, &mut Outbox) -> T,
    ) -> Option<T> {
        self.enter(id, now, call).flatten()
    }

    /// The same, and tells a session that is not there (nothing) from one that has panicked (nothing inside).
    fn enter<T>(
        &mut self,
        id: SessionId,
        now: Instant,
        call: impl FnOnce(&mut Session, &mut Outbox) -> T,
    ) -> Option<Option<T>> {
        let slot = self.sessions.get_mut(&id)?;
        let outbox = &mut self.outbox;
        // What a panic leaves half done is the session, which is given up, and whole packets in the outbox.
        let result = guarded(|| call(&mut slot.session, outbox));
        match result {
            Some(_) => self.settle(id, now),
            None => {
                self.forward(id);
                self.give_up(id, now);
            }
        }
        Some(result)
    }

    fn give_up(&mut self, id: SessionId, now: Instant) {
        tracing::error!(session = id.0, "a session panicked and is given up");
        self.finish(id, EndReason::Panicked, now);
    }

    /// After a call into a session: packets go to the trunk, the timer is set, an ended session leaves.
    pub(super) fn settle(&mut self, id: SessionId, now: Instant) {
        self.forward(id);
        let Some(slot) = self.sessions.get_mut(&id) else {
            return;
        };
        let state = slot.session.state();
        if state != slot.state {
            self.counters.states[slot.state as usize] -= 1;
            self.counters.states[state as usize] += 1;
            if state == State::Live && slot.state != State::Interrupted {
                self.counters.connected += 1;
            }
            slot.state = state;
        }
        if slot.trace.is_some() {
            slot.tell_set_up(now);
        }
        if let Some(reason) = slot.session.end_reason() {
            self.finish(id, reason, now);
            return;
        }
        let epoch = self.settings.epoch;
        let due = guarded(|| slot.session.deadline(|at| on_grid(epoch, at)));
        let Some(due) = due else {
            return self.give_up(id, now);
        };
        if let Some(due) = due
            && slot.armed.is_none_or(|armed| due < armed)
        {
            slot.armed = Some(due);
            self.timers.push(Reverse((due, id)));
            self.bound_timers();
        }
    }

    /// Entries of earlier deadlines stay in the heap until they come up; too many of them are swept at once.
    ///
    /// The sweep looks at every session, but only after seven times as many entries were pushed: a constant cost each.
    fn bound_timers(&mut self) {
        if self.timers.len() > 64 + 8 * self.sessions.len() {
            let sessions = &self.sessions;
            self.timers = sessions
                .iter()
                .filter_map(|(id, slot)| Some(Reverse((slot.armed?, *id))))
                .collect();
        }
    }

    /// Moves what the session sent from the outbox to its trunks.
    fn forward(&mut self, id: SessionId) {
        let sends = std::mem::take(&mut self.outbox.sends);
        for outgoing in &sends {
            let header = record_to(id, RecordKind::Packet, &outgoing.to);
            self.push(outgoing.to.hop, &header, &outgoing.payload);
        }
        // The vector's memory is used again.
        self.outbox.sends = sends;
        self.outbox.sends.clear();
        while let Some(to) = self.outbox.closes.pop() {
            self.push(to.hop, &record_to(id, RecordKind::Close, &to), &[]);
        }
    }

    pub(super) fn push(&mut self, hop: Hop, header: &RecordHeader, payload: &[u8]) {
        if !self.egress.push(hop, header, payload) {
            self.outbox.drops.count(Reason::TooLarge);
        }
    }

    /// The packed datagrams, to be flushed once a turn, or when they are full.
    pub fn egress(&mut self) -> &mut Egress {
        &mut self.egress
    }

    /// Signs and sends what is there; see [`Egress::flush`].
    pub fn flush(&mut self, send: impl FnOnce(&[(Hop, &[u8])])) {
        let key = self.shared.keyring.active();
        let random = self.random;
        let (datagrams, records) =
            self.egress
                .flush(key, || BootId::of_owner(random() as u32), send);
        self.counters.datagrams_out += datagrams;
        self.counters.records_out += records;
    }

    /// The counters, for the loop to add its own.
    pub fn counters(&mut self) -> &mut Counters {
        &mut self.counters
    }

    /// The drops, for the loop to add its own.
    pub fn drops(&mut self) -> &mut Drops {
        &mut self.outbox.drops
    }

    /// How many sessions there are.
    #[must_use]
    pub fn sessions(&self) -> usize {
        self.sessions.len()
    }

    fn seconds(&self, now: Instant) -> u32 {
        let secs = now.saturating_duration_since(self.settings.epoch).as_secs();
        u32::try_from(secs).unwrap_or(u32::MAX)
    }
}

pub(super) fn record_to(session: SessionId, kind: RecordKind, to: &Destination) -> RecordHeader {
    RecordHeader {
        kind,
        client: to.key.client,
        tcp: to.key.tcp,
        proven: to.proven,
        ingress: to.key.ingress,
        session,
        handle: to.handle,
        owner: None,
        payload_len: 0,
    }
}

/// The next point of the audio grid at or after `at`.
fn on_grid(epoch: Instant, at: Instant) -> Instant {
    const STEP: u64 = limits::AUDIO_GRID.as_nanos() as u64;
    let past = at.saturating_duration_since(epoch).as_nanos();
    let past = u64::try_from(past).unwrap_or(u64::MAX);
    epoch + Duration::from_nanos(past.div_ceil(STEP).saturating_mul(STEP))
}

#[cfg(test)]
#[path = "core_tests.rs"]
mod tests;
