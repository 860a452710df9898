//! Room: how many connections a server holds at once, and which of them makes room for another.
//!
//! When all places are taken, the connection goes that has waited longest for its client, whether that never asked, was answered before, or does not take
//! its answer. One whose request is worked on keeps its place. Otherwise as many silent connections as there are places would keep everybody out,
//! a health probe too.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use axum::body::HttpBody;
use hyper::body::{Frame, SizeHint};

use tokio::sync::{self, AcquireError, Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep_until};

use crate::limits::{ANSWER_RESPITE, HANDSHAKE_RESPITE};

/// Since when a connection can make room, and its turn among those of the same moment.
type Turn = (Instant, u64);

/// The places of one server.
#[derive(Debug)]
pub(crate) struct Room {
    places: Arc<Semaphore>,
    idle: Mutex<Idle>,
    /// Held by the one that room is made for: of several listeners, the others wait behind it.
    making: sync::Mutex<()>,
    /// Another connection is idle.
    another: Notify,
    /// One that was asked to leave has got a request in the meantime.
    stays: Notify,
}

/// What holds a place, until it is dropped.
pub(crate) type Place = OwnedSemaphorePermit;

#[derive(Debug, Default)]
struct Idle {
    turns: u64,
    /// No more of them than places.
    seats: BTreeMap<Turn, Arc<Notify>>,
}

impl Room {
    pub(crate) fn new(places: usize) -> Arc<Self> {
        Arc::new(Self {
            places: Arc::new(Semaphore::new(places)),
            idle: Mutex::default(),
            making: sync::Mutex::default(),
            another: Notify::new(),
            stays: Notify::new(),
        })
    }

    /// Takes a place, when there is one or one can be made. The last value says whether another connection was asked to leave for it.
    ///
    /// # Errors
    /// Never: the semaphore is not closed.
    pub(crate) async fn enter(self: &Arc<Self>) -> Result<(Place, Seat, bool), AcquireError> {
        let mut displaced = false;
        let _making = self.making.lock().await;
        let place = loop {
            if let Ok(place) = Arc::clone(&self.places).try_acquire_owned() {
                break place;
            }
            let next = self.displace(Instant::now());
            displaced |= matches!(next, Next::Leaves);
            let changed = async {
                match next {
                    Next::Leaves => self.stays.notified().await,
                    Next::Nobody => self.another.notified().await,
                    Next::Later(ripe) => tokio::select! {
                        () = self.another.notified() => {}
                        () = sleep_until(ripe) => {}
                    },
                }
            };
            tokio::select! {
                place = Arc::clone(&self.places).acquire_owned() => break place?,
                () = changed => {}
            }
        };
        let seat = Seat {
            room: Arc::clone(self),
            asked: Arc::new(Notify::new()),
            state: Mutex::new(State::Answering),
            told: AtomicBool::new(false),
        };
        seat.wait_from(Instant::now() + HANDSHAKE_RESPITE);
        Ok((place, seat, displaced))
    }

    /// Returns when nobody is left.
    pub(crate) async fn empty(&self, places: usize) {
        // Every connection holds a place: when all can be had, all are closed.
        let all = u32::try_from(places).unwrap_or(u32::MAX);
        let _ = self.places.acquire_many(all).await;
    }

    /// Asks the connection to leave that has been idle longest.
    fn displace(&self, now: Instant) -> Next {
        let mut idle = self.idle();
        match idle.seats.first_entry() {
            None => Next::Nobody,
            Some(first) if first.key().0 > now => Next::Later(first.key().0),
            Some(first) => {
                first.remove().notify_one();
                Next::Leaves
            }
        }
    }

    fn idle(&self) -> MutexGuard<'_, Idle> {
        // Every change is complete in itself, so a panic elsewhere leaves nothing half done.
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Who leaves for another.
enum Next {
    /// Somebody does, and was told.
    Leaves,
    /// Nobody does before then.
    Later(Instant),
    /// Nobody is idle.
    Nobody,
}

/// How one connection stands.
#[derive(Debug)]
pub(crate) struct Seat {
    room: Arc<Room>,
    asked: Arc<Notify>,
    state: Mutex<State>,
    /// Whether the answer has been handed to the connection whole.
    told: AtomicBool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// Idle, at this turn.
    Idle(Turn),
    /// A request is worked on.
    Answering,
    /// It has ended, or is another protocol's.
    Ending,
}

impl Seat {
    /// Its handshake is done: it can make room from now on.
    pub(crate) fn shaken(&self) {
        self.leave_turn();
        self.wait_from(Instant::now());
    }

    /// The head of a request has come whole.
    pub(crate) fn answering(&self) {
        self.leave_turn();
        self.told.store(false, Relaxed);
        self.set(State::Answering);
    }

    /// There is an answer to its request. How long it takes to leave is up to the client.
    pub(crate) fn answered(&self) {
        self.leave_turn();
        self.wait_from(Instant::now() + ANSWER_RESPITE);
    }

    /// It has ended, or is no longer the server's.
    pub(crate) fn ending(&self) {
        self.leave_turn();
        self.set(State::Ending);
    }

    /// What was handed to the connection has been written.
    pub(crate) fn flushed(&self) {
        if self.told.swap(false, Relaxed) && matches!(self.state(), State::Idle(_)) {
            self.leave_turn();
            self.wait_from(Instant::now());
        }
    }

    /// Returns when the connection is to make room.
    pub(crate) async fn wanted(&self) {
        self.asked.notified().await;
    }

    /// Whether it is to stay after all, because it is no longer idle: then another goes in its stead.
    pub(crate) fn stays(&self) -> bool {
        let stays = !matches!(self.state(), State::Idle(_));
        if stays {
            self.room.stays.notify_one();
        }
        stays
    }

    fn wait_from(&self, from: Instant) {
        let mut idle = self.room.idle();
        idle.turns += 1;
        let turn = (from, idle.turns);
        idle.seats.insert(turn, Arc::clone(&self.asked));
        drop(idle);
        self.set(State::Idle(turn));
        self.room.another.notify_one();
    }

    fn leave_turn(&self) {
        if let State::Idle(turn) = self.state() {
            self.room.idle().seats.remove(&turn);
        }
    }

    fn state(&self) -> State {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, state: State) {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) = state;
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.leave_turn();
    }
}

/// The body of an answer, which tells its connection's seat when nothing more comes.
pub(crate) struct Answer<B> {
    body: B,
    seat: Arc<Seat>,
}

impl<B> Answer<B> {
    pub(crate) fn new(body: B, seat: Arc<Seat>) -> Self {
        Self { body, seat }
    }
}

impl<B> Drop for Answer<B> {
    fn drop(&mut self) {
        self.seat.told.store(true, Relaxed);
    }
}

impl<B: HttpBody + Unpin> HttpBody for Answer<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
