//! One thread's calls: places them when they are due, moves their packets, serves their timers, and ends them.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd as _;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use super::air::Air;
use super::client::{Client, ClientError};
use super::ear::Ear;
use super::hearing::Hearing;
use super::identity::Identity;
use super::listening::Listening;
use super::load::{Ending, LoadPlan, Progress};
use super::outgoing::Outgoing;
use super::placing::{Answered, CallName, Placer};
use super::recording::Recording;
use super::report::Part;
use super::schedule::{Planned, Schedule};
use super::trouble::Troubles;
use super::watch;
use crate::clock::wall_nanos;

/// How long a client that was hung up waits for word of it.
const CLOSE_PATIENCE: Duration = Duration::from_secs(5);

/// Calls that one turn begins at most: making an offer takes a moment, and media waits meanwhile.
const STARTS_PER_TURN: u32 = 8;

/// Timers that one turn serves at most, before packets are looked at again.
const TIMERS_PER_TURN: usize = 256;

/// The longest sleep.
const LONGEST_WAIT: Duration = Duration::from_millis(100);

/// One call of a thread's.
pub(super) struct Call {
    pub(super) client: Client,
    hearing: Hearing,
    pub(super) name: Option<CallName>,
    /// What its next ICE restart names.
    pub(super) etag: Option<String>,
    due: Instant,
    ends: Instant,
    ending: Ending,
    pub(super) troubles: Option<Box<Troubles>>,
    /// An offer to restart ICE has not been answered.
    pub(super) restarting: bool,
    /// Hung up: by when the client should have heard.
    pub(super) closing: Option<Instant>,
    armed: Option<Instant>,
    was_connected: bool,
}

/// What the threads of a load have in common.
#[derive(Clone)]
pub struct Shared {
    /// The load.
    pub plan: LoadPlan,
    /// Its calls.
    pub schedule: Arc<Schedule>,
    /// What clients show in DTLS.
    pub identity: Identity,
    /// What they say, if anything.
    pub recording: Option<Recording>,
    /// Told how far the load is.
    pub progress: Arc<Progress>,
    /// When the first call is due.
    pub start: Instant,
}

/// One thread's calls.
pub struct Caller {
    shared: Shared,
    thread: u32,
    pub(super) air: Air,
    pub(super) placer: Placer,
    /// The thread's next call to place.
    next: u32,
    pub(super) calls: HashMap<u32, Call>,
    timers: BinaryHeap<Reverse<(Instant, u32)>>,
    pub(super) outgoing: Outgoing,
    /// Calls that are over, and whose last packets may wait in `outgoing`: the air forgets them when these have left.
    over: Vec<u32>,
    pub(super) part: Part,
    /// When the times that clients are told begin.
    epoch: Instant,
    /// From when to when what is heard counts.
    counted: (Instant, Instant),
    /// What had come by then has been taken.
    taken: Instant,
}

impl Caller {
    /// Opens the sockets of thread number `thread`.
    ///
    /// # Errors
    /// The system has no socket or no thread for it.
    pub fn new(shared: &Shared, thread: u32) -> io::Result<Self> {
        let (from, to) = shared.schedule.window();
        Ok(Self {
            air: Air::open(&shared.plan.way, shared.plan.manner.sockets)?,
            placer: Placer::start(shared.plan.desk.clone())?,
            shared: shared.clone(),
            thread,
            next: 0,
            calls: HashMap::new(),
            timers: BinaryHeap::new(),
            outgoing: Outgoing::default(),
            over: Vec::new(),
            part: Part::default(),
            epoch: Instant::now(),
            counted: (shared.start + from, shared.start + to),
            taken: shared.start,
        })
    }

    /// Places the thread's calls, and returns what became of them when the last is over.
    ///
    /// # Errors
    /// A socket fails.
    pub fn run(mut self) -> io::Result<Part> {
        let (from, to) = self.counted;
        let mut used = None;
        loop {
            let now = Instant::now();
            if now >= from && used.is_none() {
                used = Some((now, watch::this_thread()));
            }
            if let Some((since, cpu)) = used
                && now >= to
                && self.part.busy == 0.0
            {
                let used = watch::this_thread().saturating_sub(cpu) as f64;
                self.part.busy = used / (now - since).as_nanos() as f64;
            }
            // 1. Calls that are due are offered, and answers taken.
            let starting = self.start_due(now);
            self.take_answers(now);
            // 2. Packets for clients.
            let more = self.receive()?;
            // 3. Frames, the engines' timers, and calls whose time has come.
            let busy = self.serve_timers(Instant::now());
            // 4. What all that made leaves.
            self.outgoing.leave(&mut self.air)?;
            self.air.flush()?;
            for n in self.over.drain(..) {
                self.air.leave(n);
            }
            // An answer that comes too late still is a call, to be hung up.
            let over = self.calls.is_empty() && self.due(self.next).is_none();
            if over && self.placer.waiting() == 0 {
                break;
            }
            if !(more || busy || starting) {
                self.wait()?;
            }
        }
        self.part.refused += self.air.refused() + watch::dropped_at(&self.air.ports()?)?;
        Ok(self.part)
    }

    /// The thread's call number `n`, if there is one, and when it is due.
    fn planned(&self, n: u32) -> Option<(Planned, Instant)> {
        let all = u64::from(n) * u64::from(self.shared.plan.threads) + u64::from(self.thread);
        let planned = self.shared.schedule.calls().get(all as usize)?;
        Some((*planned, self.shared.start + planned.due))
    }

    /// When that is.
    fn due(&self, n: u32) -> Option<Instant> {
        self.planned(n).map(|(_, due)| due)
    }

    /// Offers calls that are due; returns whether more are.
    fn start_due(&mut self, now: Instant) -> bool {
        for _ in 0..STARTS_PER_TURN {
            let n = self.next;
            let Some((planned, due)) = self.planned(n).filter(|(_, due)| *due <= now) else {
                return false;
            };
            self.next += 1;
            self.part.placed += 1;
            self.shared.progress.placed.fetch_add(1, Relaxed);
            let address = match self.air.seat(n) {
                Ok(address) => address,
                Err(error) => {
                    self.part.fail(&format!("a client's socket: {error}"));
                    continue;
                }
            };
            let offer = Client::offer(
                &self.shared.identity,
                self.shared.plan.codec,
                self.shared.recording.clone(),
                address,
                now,
            );
            match offer {
                Ok((mut client, offer)) => {
                    let (plan, manner) = (&self.shared.plan, &self.shared.plan.manner);
                    let same = self.shared.recording.as_ref();
                    let same = same.map_or(Duration::MAX, Recording::until_same_mark);
                    let patience = manner.patience.min(same);
                    let ear = manner
                        .echo
                        .map(|delay| Ear::new(plan.codec, delay).patient_for(patience));
                    client.listen(Listening::new(plan.codec, ear, self.epoch));
                    if manner.after_channel {
                        client.speak_after_channel();
                    }
                    // Threads share a seed, and no call's number.
                    let all = n * plan.threads + self.thread;
                    let troubles = Troubles::new(manner.trouble, manner.seed, all, now);
                    self.placer.place(n, offer);
                    let call = Call {
                        client,
                        hearing: Hearing::default(),
                        name: None,
                        etag: None,
                        troubles: troubles.map(Box::new),
                        restarting: false,
                        due,
                        ends: due + planned.length,
                        ending: plan.ending_of(n, planned),
                        closing: None,
                        armed: None,
                        was_connected: false,
                    };
                    self.calls.insert(n, call);
                    self.arm(n);
                }
                Err(error) => self.part.fail(&error.to_string()),
            }
        }
        self.due(self.next).is_some_and(|due| due <= now)
    }

    fn take_answers(&mut self, now: Instant) {
        while let Some(placed) = self.placer.take() {
            let n = placed.client;
            if placed.restarted {
                self.restarted(n, placed.result, now);
                continue;
            }
            let (answer, name, etag) = match placed.result {
                Ok(Answered { sdp, name, etag }) => (sdp, name, etag),
                Err(error) => {
                    self.fail(n, &error.to_string());
                    continue;
                }
            };
            self.part.answered += 1;
            let Some(call) = self.calls.get_mut(&n) else {
                // Its time was over before it had begun.
                let planned = self.planned(n);
                let plan = &self.shared.plan;
                if planned.is_none_or(|(of, _)| plan.ending_of(n, of) != Ending::Vanish) {
                    self.placer.hang_up(name);
                }
                continue;
            };
            (call.name, call.etag) = (Some(name), etag);
            let taken = match self.air.join(n, &answer) {
                Ok(()) => {
                    let outgoing = &mut self.outgoing;
                    call.client
                        .accept(&answer, now, &mut |to, packet| outgoing.push(n, to, packet))
                        .map_err(|error| error.to_string())
                }
                Err(error) => Err(error),
            };
            self.settle(n, taken);
        }
    }

    /// Whether what is heard at a moment counts.
    fn counts(&self, at: Instant) -> bool {
        let (from, to) = self.counted;
        from <= at && at < to
    }

    fn receive(&mut self) -> io::Result<bool> {
        let now = Instant::now();
        let counts = self.counts(now);
        // The kernel stamps packets by the wall clock, and what is due is by the steady one.
        let (wall, since) = (
            wall_nanos(),
            now.duration_since(self.epoch).as_nanos() as u64,
        );
        let (calls, outgoing, part) = (&mut self.calls, &mut self.outgoing, &mut self.part);
        let mut failed: Vec<(u32, ClientError)> = Vec::new();
        let mut touched: Vec<u32> = Vec::new();
        let more = self.air.receive(&mut |arrived| {
            let n = arrived.client;
            let Some(call) = calls.get_mut(&n) else {
                return;
            };
            let hearing = &mut call.hearing;
            let mut hear = |packet| hearing.packet(packet, counts.then_some(&mut part.heard));
            let mut send = |to: SocketAddr, packet: &[u8]| outgoing.push(n, to, packet);
            let taken = call.client.receive(
                arrived.from,
                arrived.packet,
                since.saturating_sub(wall.saturating_sub(arrived.at_nanos)),
                now,
                &mut hear,
                &mut send,
            );
            while let Some(news) = call.client.news() {
                if counts {
                    part.heard.news(news);
                }
            }
            match taken {
                Ok(()) => touched.push(n),
                Err(error) => failed.push((n, error)),
            }
        })?;
        if !more {
            self.taken = now;
        }
        for n in touched {
            self.settle(n, Ok(()));
        }
        for (n, error) in failed {
            self.settle(n, Err(error.to_string()));
        }
        Ok(more)
    }

    /// Serves what is due; returns whether more is.
    fn serve_timers(&mut self, now: Instant) -> bool {
        for _ in 0..TIMERS_PER_TURN {
            match self.timers.peek() {
                Some(Reverse((at, _))) if *at <= now => {}
                _ => return false,
            }
            let Some(Reverse((at, n))) = self.timers.pop() else {
                return false;
            };
            let counts = self.counts(now);
            let Some(call) = self.calls.get_mut(&n).filter(|call| call.armed == Some(at)) else {
                continue;
            };
            call.armed = None;
            let outgoing = &mut self.outgoing;
            let mut send = |to: SocketAddr, packet: &[u8]| outgoing.push(n, to, packet);
            if call.ends <= now && call.closing.is_none() {
                match call.ending {
                    Ending::HangUp if call.client.times().connected.is_some() => {
                        call.closing = Some(now + CLOSE_PATIENCE);
                        if let Some(name) = call.name.take() {
                            self.placer.hang_up(name);
                        }
                    }
                    Ending::Vanish => {
                        self.end(n);
                        continue;
                    }
                    _ => {
                        call.client.leave(now, &mut send);
                        if call.client.times().connected.is_none() {
                            // Without DTLS there is no goodbye that a server could hear: it would hold the session until it gives the client up.
                            self.hang_up(n);
                        }
                        self.end(n);
                        continue;
                    }
                }
            }
            if call.closing.is_some_and(|at| at <= now) {
                self.part.unclosed += 1;
                self.end(n);
                continue;
            }
            let polled = call.client.poll(now, &mut send);
            while let Some(news) = call.client.news() {
                if counts {
                    self.part.heard.news(news);
                }
            }
            self.befall(n, now);
            self.settle(n, polled.map_err(|error| error.to_string()));
        }
        true
    }

    /// After a call into a client: what it has come to is noted, and its timer set.
    pub(super) fn settle(&mut self, n: u32, result: Result<(), String>) {
        let Some(call) = self.calls.get_mut(&n) else {
            return;
        };
        if let Err(error) = result {
            self.part.broken += u64::from(call.client.times().connected.is_some());
            return self.fail(n, &error);
        }
        if !call.was_connected && call.client.times().connected.is_some() {
            call.was_connected = true;
            self.shared.progress.connected.fetch_add(1, Relaxed);
        }
        if call.client.is_closed() {
            if call.closing.is_none() {
                self.part.cut += 1;
            }
            return self.end(n);
        }
        self.arm(n);
    }

    /// A call is over that cannot go on: its client cannot say so.
    pub(super) fn fail(&mut self, n: u32, why: &str) {
        self.part.fail(why);
        // One that is to vanish says nothing, whatever becomes of it.
        if self
            .calls
            .get(&n)
            .is_some_and(|call| call.ending != Ending::Vanish)
        {
            self.hang_up(n);
        }
        self.end(n);
    }

    /// Asks the server over HTTP to end a call, if it was answered and that was not asked before.
    fn hang_up(&mut self, n: u32) {
        if let Some(name) = self.calls.get_mut(&n).and_then(|call| call.name.take()) {
            self.placer.hang_up(name);
        }
    }

    fn arm(&mut self, n: u32) {
        let Some(call) = self.calls.get_mut(&n) else {
            return;
        };
        let end = call.closing.unwrap_or(call.ends);
        let trouble = call.troubles.as_ref().map_or(end, |t| t.next().min(end));
        let at = if call.client.times().answered.is_some() {
            call.client.deadline().min(trouble)
        } else {
            end
        };
        if call.armed.is_none_or(|armed| at < armed) {
            call.armed = Some(at);
            self.timers.push(Reverse((at, n)));
        }
    }

    /// A call is over.
    fn end(&mut self, n: u32) {
        let Some(mut call) = self.calls.remove(&n) else {
            return;
        };
        // Its goodbye goes by the way that it had.
        self.over.push(n);
        self.shared.progress.ended.fetch_add(1, Relaxed);
        let times = call.client.times();
        let part = &mut self.part;
        part.sent += call.client.sent();
        part.connected += u64::from(times.connected.is_some());
        part.channels += u64::from(times.channel.is_some());
        part.audible += u64::from(times.first_audio.is_some());
        // What lies in the sockets has come, and after its time nothing need come.
        let (from, to) = self.counted;
        let until = self.taken.min(call.ends).min(to);
        let expected = (until > from)
            .then(|| call.client.over(from..until))
            .flatten();
        while let Some(news) = call.client.news() {
            if until > from {
                part.heard.news(news);
            }
        }
        call.hearing.end(expected, &mut part.heard);
        let speaks = !self.shared.plan.silent;
        part.set_up
            .record(call.due, &times, speaks.then_some(call.ends));
    }

    fn wait(&self) -> io::Result<()> {
        let now = Instant::now();
        let timer = self.timers.peek().map(|Reverse((at, _))| *at);
        let next = [timer, self.due(self.next)].into_iter().flatten().min();
        let longest = next.map_or(LONGEST_WAIT, |at| at.saturating_duration_since(now));
        if longest.is_zero() {
            return Ok(());
        }
        let mut descriptors = self.air.descriptors();
        descriptors.push(self.placer.socket().as_raw_fd());
        crate::readable::wait(&descriptors, longest.min(LONGEST_WAIT))
    }
}
