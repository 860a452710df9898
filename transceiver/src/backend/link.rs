//! Joins a translator to its connection: bounded queues both ways, and a wake for the worker.
//!
//! ```text
//! Linked (in the worker's turn)                     connection (a task)
//!   translator ── (epoch, message) ─► 256 messages ─► socket
//!   translator ◄─ FromServer ◄─ events, 12 MiB ◄───── socket, not read while the queue is full
//!              ◄─ session id ◄─ wakes, one per session at the most
//! ```
//!
//! A message for the server names the connection that it was made for: what was on its way when that broke does not reach the next.
//!
//! The queue of events holds minutes of audio, so that the socket is read, and its pings are answered, while a model is far ahead of what is
//! heard; an interruption that comes behind such audio is found in it ([`Ahead`]).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use firsthop_shared::address::SessionId;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use super::ahead::{Ahead, Glance};
use super::stats::BackendStats;
use super::translator::{FromServer, Loss, LossCause, Message, Translator};
use crate::audio::{
    Backend, BackendReport, BackendState, Format as Form, Input, Output, QueueState,
};
use crate::limits;

/// Wakes a worker for one session, whose backend has something to say.
///
/// At most one wake per session waits, so the queue is bounded by the worker's sessions.
#[derive(Debug, Clone)]
pub struct Waker {
    session: SessionId,
    pending: Arc<AtomicBool>,
    wakes: mpsc::UnboundedSender<SessionId>,
}

impl Waker {
    /// A waker that has not woken yet.
    #[must_use]
    pub fn new(session: SessionId, wakes: mpsc::UnboundedSender<SessionId>) -> Self {
        Self {
            session,
            pending: Arc::default(),
            wakes,
        }
    }

    fn wake(&self) {
        if !self.pending.swap(true, Ordering::AcqRel) {
            // The worker has ended: so will the task.
            let _ = self.wakes.send(self.session);
        }
    }

    fn seen(&self) {
        self.pending.store(false, Ordering::Release);
    }
}

/// The connection's end of a link.
#[derive(Debug)]
pub struct Line {
    /// Tells the session.
    pub teller: Teller,
    /// Messages for the server, each for one connection. It ends with the session.
    pub messages: mpsc::Receiver<Outgoing>,
}

/// Tells a session what its connection does.
#[derive(Debug)]
pub struct Teller {
    /// Bounded by `bytes`.
    events: mpsc::UnboundedSender<Incoming>,
    bytes: Arc<Semaphore>,
    waker: Waker,
}

/// A message for the server.
#[derive(Debug)]
pub struct Outgoing {
    /// The connection that it was made for, counted from 1.
    pub epoch: u32,
    /// What it says.
    pub message: Message,
}

#[derive(Debug)]
struct Incoming {
    event: FromServer,
    came: Instant,
    /// Its share of the bytes that may wait.
    share: Option<OwnedSemaphorePermit>,
}

/// What the session takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Takes {
    /// Everything.
    All,
    /// Everything but audio, for which there is no room.
    NoAudio,
    /// Nothing but an end of what is played.
    Clears,
}

impl Teller {
    /// Gives an event to the session, as soon as there is room for it; returns false when the session has ended.
    pub async fn tell(&self, event: FromServer) -> bool {
        let came = Instant::now();
        let length = match &event {
            FromServer::Message(message) => message.len(),
            FromServer::Connected | FromServer::Lost(_) => 0,
        };
        let cost = length + limits::BACKEND_EVENT_COST;
        let wanted = u32::try_from(cost.min(limits::BACKEND_BYTES_WAITING)).unwrap_or(u32::MAX);
        let share = Arc::clone(&self.bytes).acquire_many_owned(wanted);
        let share = tokio::select! {
            share = share => share.ok(),
            () = self.events.closed() => return false,
        };
        let incoming = Incoming { event, came, share };
        let told = self.events.send(incoming).is_ok();
        self.waker.wake();
        told
    }

    /// Ends when the session has.
    pub async fn session_ended(&self) {
        self.events.closed().await;
    }
}

impl Drop for Teller {
    /// A task that ended, or panicked, must not leave its session waiting.
    fn drop(&mut self) {
        self.waker.wake();
    }
}

/// A translator with its end of a link: the backend of a session.
pub struct Linked<T> {
    translator: T,
    events: mpsc::UnboundedReceiver<Incoming>,
    /// What has come of these, and keeps its share of the bytes.
    ahead: Ahead<Incoming>,
    /// The shares of what was taken before its turn: it counts as waiting until the session has taken what came of it.
    early: Option<OwnedSemaphorePermit>,
    messages: mpsc::Sender<Outgoing>,
    waker: Waker,
    stats: Arc<BackendStats>,
    epoch: u32,
    /// The first message that the queue had no room for.
    blocked: Option<Message>,
    retry: Option<Instant>,
    /// The last poll took as many events as one may: there may be more.
    more: Option<Instant>,
    /// The connection's task has ended, and the translator knows.
    over: bool,
    report: BackendReport,
    began: Instant,
}

impl<T: Translator> Linked<T> {
    /// A backend, and the end of the link that a connection serves. `now` is when the session begins.
    #[must_use]
    pub fn new(
        translator: T,
        waker: Waker,
        stats: Arc<BackendStats>,
        now: Instant,
    ) -> (Self, Line) {
        let (to_session, events) = mpsc::unbounded_channel();
        let (messages, to_server) = mpsc::channel(limits::BACKEND_MESSAGES_WAITING);
        let teller = Teller {
            events: to_session,
            bytes: Arc::new(Semaphore::new(limits::BACKEND_BYTES_WAITING)),
            waker: waker.clone(),
        };
        let line = Line {
            teller,
            messages: to_server,
        };
        let linked = Self {
            translator,
            events,
            ahead: Ahead::default(),
            early: None,
            messages,
            waker,
            stats,
            epoch: 0,
            blocked: None,
            retry: None,
            more: None,
            over: false,
            report: BackendReport {
                state: BackendState::Connecting,
                ..BackendReport::default()
            },
            began: now,
        };
        (linked, line)
    }

    /// Takes one event of the connection's; returns whether there was one whose turn it is.
    fn take_event(&mut self, takes: Takes, now: Instant) -> bool {
        // Ends: the bytes are bounded, and nothing fills the queue meanwhile.
        let ended = loop {
            match self.events.try_recv() {
                Ok(incoming) => {
                    if let FromServer::Lost(_) = incoming.event {
                        self.translator.gone();
                    }
                    self.ahead.push(incoming);
                }
                Err(error) => break error == mpsc::error::TryRecvError::Disconnected,
            }
        };
        let idle = self.translator.is_idle();
        if idle {
            self.early = None;
        }
        if takes == Takes::Clears || (takes == Takes::NoAudio && !idle) {
            let translator = &self.translator;
            self.ahead.look(|incoming| match &incoming.event {
                FromServer::Message(message) => translator.glance(message),
                FromServer::Connected | FromServer::Lost(_) => Glance::Plain,
            });
        }
        let turn = idle && takes != Takes::Clears;
        let (event, came, void) = match self.ahead.take(turn) {
            Some((incoming, void)) => {
                if !turn {
                    self.keep(incoming.share);
                }
                (incoming.event, incoming.came, void)
            }
            // The task ended without a last word: it panicked.
            None if turn && ended && !self.over => {
                let cause = LossCause::Fault;
                (FromServer::Lost(Loss { cause, retry: None }), now, false)
            }
            None => return false,
        };
        match &event {
            FromServer::Connected => {
                self.epoch += 1;
                self.blocked = None;
                self.report.state = BackendState::Connected;
                if self.epoch == 1 {
                    let took = now.saturating_duration_since(self.began);
                    self.report.connect_ms = Some(millis(took));
                    self.stats.connected(took);
                } else {
                    self.report.reconnects += 1;
                    self.stats.reconnected();
                }
            }
            FromServer::Lost(loss) => {
                self.report.losses += 1;
                self.over = loss.retry.is_none();
                self.report.state = match (self.over, self.epoch) {
                    (true, _) => BackendState::Over,
                    (false, 0) => BackendState::Connecting,
                    (false, _) => BackendState::Lost,
                };
                self.blocked = None;
                self.stats.lost(loss);
            }
            FromServer::Message(_) => {}
        }
        match event {
            FromServer::Message(message) if void => self.translator.skip(message, came, now),
            event => self.translator.server(event, came, now),
        }
        self.measure();
        true
    }

    /// Has the bytes of what was taken before its turn count until its turn has come: else a server that is interrupted over and over fills
    /// the memory of a session whose client takes nothing.
    fn keep(&mut self, share: Option<OwnedSemaphorePermit>) {
        match (&mut self.early, share) {
            (Some(early), Some(share)) => early.merge(share),
            (early @ None, share) => *early = share,
            (Some(_), None) => {}
        }
    }

    fn measure(&mut self) {
        while let Some(took) = self.translator.take_latency() {
            self.report.first_audio_ms.get_or_insert(millis(took));
            self.stats.answered(took);
        }
    }

    /// Moves what there is for the server into the queue; what does not fit stays with the translator.
    fn pump(&mut self, now: Instant) {
        self.retry = None;
        // Ends: the queue is bounded, and so is what a translator keeps.
        while let Some(message) = self
            .blocked
            .take()
            .or_else(|| self.translator.poll_server())
        {
            let outgoing = Outgoing {
                epoch: self.epoch,
                message,
            };
            match self.messages.try_send(outgoing) {
                Ok(()) => {}
                Err(mpsc::error::TrySendError::Full(outgoing)) => {
                    self.blocked = Some(outgoing.message);
                    self.retry = Some(now + limits::BACKEND_RETRY);
                    return;
                }
                // The task has ended, which comes up as the end of the events.
                Err(mpsc::error::TrySendError::Closed(_)) => {}
            }
        }
    }
}

impl<T: Translator> Backend for Linked<T> {
    fn format(&self) -> Form {
        self.translator.form()
    }

    fn handle(&mut self, input: Input<'_>, now: Instant) {
        self.translator.handle(input, now);
        self.pump(now);
    }

    fn poll(&mut self, queue: QueueState, now: Instant) -> Option<Output<'_>> {
        self.waker.seen();
        self.translator.tick(now);
        let mut left = limits::BACKEND_EVENTS_PER_TURN;
        // What an interruption makes void is taken whole: none of it is to be polled before that.
        let takes = match queue.room {
            0 => Takes::NoAudio,
            _ => Takes::All,
        };
        while (left > 0 || self.ahead.hurries()) && self.take_event(takes, now) {
            left = left.saturating_sub(1);
        }
        self.more = (left == 0).then_some(now);
        self.pump(now);
        self.translator.poll(queue, now)
    }

    fn poll_clear(&mut self, now: Instant) -> Option<Instant> {
        self.waker.seen();
        // Takes nothing but what an interruption hurries.
        while self.take_event(Takes::Clears, now) {}
        self.pump(now);
        self.translator.poll_clear()
    }

    fn deadline(&self) -> Option<Instant> {
        let waits = [self.translator.deadline(), self.retry, self.more];
        waits.into_iter().flatten().min()
    }

    fn report(&self) -> BackendReport {
        let counters = self.translator.counters();
        BackendReport {
            errors: counters.errors,
            malformed: counters.malformed,
            unsent_samples: counters.unsent_samples,
            refused_events: counters.refused_events,
            undecoded: counters.undecoded,
            ..self.report
        }
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
