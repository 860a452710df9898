//! The flow cache: a Redis that remembers proven flows, for the next start of this relay and for the others of its site.
//!
//! It is off the packet path, and it is optional. A core leaves questions and changes in bounded queues and goes on; one thread
//! (`connection`) carries them to Redis, and brings answers back through the core's waker. Nothing of a core waits for that thread: a full
//! queue is a counted drop, and while Redis is out of reach cores do not even ask. What a question, an answer and a change mean,
//! and what waits for how long, is decided in [`firsthop_relay_core`].
//!
//! Without `--redis` there is no thread, no queue and no metric of it.

mod connection;
mod metrics;
mod reply;
mod settings;
mod tls;
mod way;
mod words;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use firsthop_relay_core::limits::RECALL_WAIT;
use firsthop_relay_core::{Change, FlowId, Found, RecallCounters};
use tokio::sync::Notify;
use tracing::error;

use crate::control::CoreControl;
use crate::limits::{CACHE_ANSWERS, CACHE_CHANGES, CACHE_QUESTIONS};

use connection::Connection;
use metrics::Cells;
pub(crate) use metrics::encode;
pub use settings::{CacheSettings, RedisUrl, Target};

/// A core asks about a flow.
#[derive(Clone, Copy, Debug)]
struct Question {
    core: u16,
    flow: FlowId,
    /// When the core asked.
    since: Instant,
}

impl Question {
    /// Whether its packets may still wait. When not, the core has counted it as late.
    fn is_of_use(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.since) < Duration::from_micros(RECALL_WAIT.0)
    }
}

/// What the cache says of a flow.
#[derive(Clone, Copy, Debug)]
pub struct Answer {
    /// The flow that was asked about.
    pub flow: FlowId,
    /// What the cache has.
    pub found: Found,
}

/// The cache's thread, and the cores' ways to it and back.
#[derive(Debug)]
pub struct FlowCache {
    shared: Arc<Shared>,
    questions: SyncSender<Question>,
    changes: SyncSender<Change>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// What the cores and the thread both see.
#[derive(Debug)]
struct Shared {
    /// Whether it is worth while to ask. True from the start until the first attempt has failed: a relay that starts would lose
    /// what comes while it connects.
    reachable: AtomicBool,
    /// Whether Redis has answered.
    up: AtomicBool,
    /// Something lies in the queues.
    work: Notify,
    stop: Notify,
    /// The cores that run now, by number.
    cores: Mutex<Vec<CoreEnd>>,
    totals: Totals,
}

/// What the thread has counted.
#[derive(Debug, Default)]
struct Totals {
    /// Changes that Redis took.
    writes: AtomicU64,
    /// Changes dropped because Redis was out of reach.
    unreachable: AtomicU64,
    /// Changes that Redis refused.
    refused: AtomicU64,
    /// Answers that a core had no room for.
    answers_lost: AtomicU64,
}

impl Totals {
    fn add(cell: &AtomicU64, count: usize) {
        cell.fetch_add(count as u64, Ordering::Relaxed);
    }
}

/// How the thread reaches a core.
#[derive(Debug)]
struct CoreEnd {
    answers: SyncSender<Answer>,
    control: Arc<CoreControl>,
    cells: Arc<Cells>,
}

/// A core's end of the cache.
#[derive(Debug)]
pub struct CoreCache {
    core: u16,
    shared: Arc<Shared>,
    questions: SyncSender<Question>,
    changes: SyncSender<Change>,
    answers: Receiver<Answer>,
    cells: Arc<Cells>,
    /// Whether something was left since the thread was woken.
    left: bool,
    questions_lost: u64,
    changes_lost: u64,
}

impl FlowCache {
    /// Starts the thread, which connects and goes on connecting.
    ///
    /// # Errors
    /// No thread could be made.
    pub fn start(target: Target) -> std::io::Result<Arc<Self>> {
        let (questions, question_queue) = sync_channel(CACHE_QUESTIONS);
        let (changes, change_queue) = sync_channel(CACHE_CHANGES);
        let shared = Arc::new(Shared {
            reachable: AtomicBool::new(true),
            up: AtomicBool::new(false),
            work: Notify::new(),
            stop: Notify::new(),
            cores: Mutex::default(),
            totals: Totals::default(),
        });
        let connection = Connection::new(target, Arc::clone(&shared), question_queue, change_queue);
        let seen = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("relay-cache".to_owned())
            .spawn(move || {
                let ended = catch_unwind(AssertUnwindSafe(|| connection.run()));
                // Calls go on without it, and nobody waits for answers that will not come.
                seen.set_up(false);
                match ended {
                    Ok(Ok(())) => {}
                    Ok(Err(cause)) => error!(%cause, "the flow cache's thread ended"),
                    Err(_) => error!("the flow cache's thread ended: it panicked"),
                }
            })?;
        Ok(Arc::new(Self {
            shared,
            questions,
            changes,
            thread: Mutex::new(Some(thread)),
        }))
    }

    /// The ends for the cores of a group, by number. They take the place of those of the group before.
    #[must_use]
    pub fn enter(&self, controls: &[Arc<CoreControl>]) -> Vec<CoreCache> {
        let mut ends = Vec::new();
        let mut cores = Vec::new();
        for (core, control) in controls.iter().enumerate() {
            let (answers_in, answers) = sync_channel(CACHE_ANSWERS);
            let cells = Arc::new(Cells::default());
            ends.push(CoreEnd {
                answers: answers_in,
                control: Arc::clone(control),
                cells: Arc::clone(&cells),
            });
            cores.push(CoreCache {
                core: core as u16,
                shared: Arc::clone(&self.shared),
                questions: self.questions.clone(),
                changes: self.changes.clone(),
                answers,
                cells,
                left: false,
                questions_lost: 0,
                changes_lost: 0,
            });
        }
        *self.shared.cores() = ends;
        cores
    }

    /// Stops the thread, and waits until it has ended. What lies in the queues is lost.
    pub fn stop(&self) {
        self.shared.stop.notify_one();
        let thread = self
            .thread
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(thread) = thread {
            // Its panics have been caught.
            let _ = thread.join();
        }
    }
}

impl Drop for FlowCache {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Shared {
    fn set_up(&self, up: bool) {
        self.reachable.store(up, Ordering::Relaxed);
        self.up.store(up, Ordering::Relaxed);
    }

    fn cores(&self) -> MutexGuard<'_, Vec<CoreEnd>> {
        self.cores.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives answers to the cores that asked, and wakes each once.
    fn give(&self, answers: impl Iterator<Item = (Question, Found)>) {
        let cores = self.cores();
        let mut given = vec![false; cores.len()];
        for (question, found) in answers {
            let number = usize::from(question.core);
            // A core of a group that is gone.
            let Some(core) = cores.get(number) else {
                continue;
            };
            let answer = Answer {
                flow: question.flow,
                found,
            };
            match core.answers.try_send(answer) {
                Ok(()) => given[number] = true,
                Err(_) => Totals::add(&self.totals.answers_lost, 1),
            }
        }
        for (core, given) in cores.iter().zip(given) {
            if given {
                core.control.nudge();
            }
        }
    }
}

impl CoreCache {
    /// Whether it is worth while to ask.
    #[must_use]
    pub fn reachable(&self) -> bool {
        self.shared.reachable.load(Ordering::Relaxed)
    }

    /// Asks about a flow. The answer comes by [`CoreCache::answer`], with the core's waker, or not at all. Returns whether there was
    /// room for the question.
    pub fn ask(&mut self, flow: FlowId) -> bool {
        let question = Question {
            core: self.core,
            flow,
            since: Instant::now(),
        };
        let left = self.questions.try_send(question).is_ok();
        self.left |= left;
        self.questions_lost += u64::from(!left);
        left
    }

    /// Leaves a change.
    pub fn change(&mut self, change: Change) {
        match self.changes.try_send(change) {
            Ok(()) => self.left = true,
            Err(_) => self.changes_lost += 1,
        }
    }

    /// Wakes the thread if anything was left. Once a turn is enough.
    pub fn flush(&mut self) {
        if std::mem::take(&mut self.left) {
            self.shared.work.notify_one();
        }
    }

    /// The next answer.
    #[must_use]
    pub fn answer(&self) -> Option<Answer> {
        self.answers.try_recv().ok()
    }

    /// Publishes what the core has counted.
    pub fn publish(&self, counters: &RecallCounters) {
        self.cells
            .publish(counters, self.questions_lost, self.changes_lost);
    }
}
