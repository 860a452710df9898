//! The sidebands of one session: whoever watches and controls the call beside its client.
//!
//! A sideband gets copies of what the client's channel gets, by a bounded queue of its own that nobody waits for: one that does not
//! take them is cut off. What it sends is judged as the client's own messages are.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Instant;

use tokio::sync::{mpsc, watch};

use crate::channel::{Gate, Incoming};
use crate::life::EndReason;
use crate::limits;

/// Which sideband of its session it is: the numbers are not used again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SidebandId(u64);

/// Why a sideband ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SidebandEnd {
    /// The session has ended.
    Session(EndReason),
    /// It did not take what it was sent.
    TooSlow,
}

/// The far side of a sideband: what a connection is fed with.
#[derive(Debug)]
pub struct Sideband {
    /// Its name in the session.
    pub id: SidebandId,
    /// The events. When they end, [`Sideband::end`] says why.
    pub events: mpsc::Receiver<Arc<str>>,
    /// Why it ends, once that is known: before the events end.
    pub end: watch::Receiver<Option<SidebandEnd>>,
    waiting: Arc<AtomicUsize>,
}

impl Sideband {
    /// An event has left the queue.
    pub fn taken(&self, event: &str) {
        self.waiting.fetch_sub(event.len(), Relaxed);
    }
}

#[derive(Debug)]
struct Member {
    id: SidebandId,
    events: mpsc::Sender<Arc<str>>,
    waiting: Arc<AtomicUsize>,
    end: watch::Sender<Option<SidebandEnd>>,
    gate: Gate,
}

impl Member {
    /// Queues an event; returns false when there is no room.
    fn push(&self, event: Arc<str>) -> bool {
        let length = event.len();
        // One that is alone always fits, however large.
        let before = self.waiting.fetch_add(length, Relaxed);
        let fits = before == 0 || before + length <= limits::SIDEBAND_BYTES_WAITING;
        fits && self.events.try_send(event).is_ok()
    }
}

/// All of a session's.
#[derive(Debug, Default)]
pub(crate) struct Sidebands {
    members: Vec<Member>,
    next: u64,
}

impl Sidebands {
    /// Whether nobody looks on.
    pub(crate) fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Takes one more, which gets the snapshot first; `None` when there are too many.
    pub(crate) fn join(
        &mut self,
        snapshot: impl Iterator<Item = Arc<str>>,
        now: Instant,
    ) -> Option<Sideband> {
        self.forget_gone();
        if self.members.len() >= limits::SIDEBANDS_PER_SESSION {
            return None;
        }
        let id = SidebandId(self.next);
        self.next += 1;
        let (events, queue) = mpsc::channel(limits::SIDEBAND_EVENTS_WAITING);
        let (end, ended) = watch::channel(None);
        let waiting = Arc::<AtomicUsize>::default();
        let member = Member {
            id,
            events,
            waiting: Arc::clone(&waiting),
            end,
            gate: Gate::new(now),
        };
        for event in snapshot {
            member.push(event);
        }
        self.members.push(member);
        Some(Sideband {
            id,
            events: queue,
            end: ended,
            waiting,
        })
    }

    /// Passes an event on to all; returns how many were cut off because they had no room for it.
    pub(crate) fn pass(&mut self, event: &Arc<str>) -> usize {
        self.forget_gone();
        self.cut(|member| !member.push(Arc::clone(event)))
    }

    /// Events were lost on the way here: nobody has all of them. Returns how many were cut off.
    pub(crate) fn cut_all(&mut self) -> usize {
        self.cut(|_| true)
    }

    fn cut(&mut self, slow: impl Fn(&Member) -> bool) -> usize {
        let cut: Vec<Member> = self.members.extract_if(.., |m| slow(m)).collect();
        let count = cut.len();
        for member in cut {
            member.end.send_replace(Some(SidebandEnd::TooSlow));
        }
        count
    }

    /// The session has ended.
    pub(crate) fn end(&mut self, reason: EndReason) {
        for member in self.members.drain(..) {
            member.end.send_replace(Some(SidebandEnd::Session(reason)));
        }
    }

    /// Judges a message of a sideband's; it is told itself why one is refused.
    pub(crate) fn judge<'a>(
        &mut self,
        id: SidebandId,
        binary: bool,
        data: &'a [u8],
        now: Instant,
    ) -> Option<&'a str> {
        let member = self.members.iter_mut().find(|member| member.id == id)?;
        match member.gate.judge(binary, data, now) {
            Incoming::Event(text) => Some(text),
            Incoming::Refused(notice) => {
                // One that has no room for it is cut off with the next event.
                member.push(notice.into());
                None
            }
            Incoming::Dropped => None,
        }
    }

    fn forget_gone(&mut self) {
        self.members.retain(|member| !member.events.is_closed());
    }
}

#[cfg(test)]
mod tests {
    use std::iter::empty;

    use super::*;

    fn event(text: &str) -> Arc<str> {
        text.into()
    }

    #[test]
    fn a_sideband_gets_the_snapshot_and_then_every_event_until_the_session_ends() {
        let mut all = Sidebands::default();
        let mut one = all
            .join([event("s")].into_iter(), Instant::now())
            .expect("joined");
        assert_eq!(all.pass(&event("a")), 0);
        all.end(EndReason::HungUp);
        let received: Vec<_> = std::iter::from_fn(|| one.events.try_recv().ok()).collect();
        assert_eq!(received, [event("s"), event("a")]);
        let end = *one.end.borrow();
        assert_eq!(end, Some(SidebandEnd::Session(EndReason::HungUp)));
        assert!(all.is_empty());
    }

    #[test]
    fn one_that_does_not_take_its_events_is_cut_off_and_the_others_are_not() {
        let mut all = Sidebands::default();
        let now = Instant::now();
        let slow = all.join(empty(), now).expect("joined");
        let mut quick = all.join(empty(), now).expect("joined");
        let mut cut = 0;
        for _ in 0..=limits::SIDEBAND_EVENTS_WAITING {
            cut += all.pass(&event("e"));
            let taken = quick.events.try_recv().expect("an event");
            quick.taken(&taken);
        }
        assert_eq!(cut, 1);
        assert_eq!(*slow.end.borrow(), Some(SidebandEnd::TooSlow));
        assert_eq!(*quick.end.borrow(), None);

        // By bytes as well as by number; but the largest event alone is no reason.
        let large = event(&"x".repeat(limits::SIDEBAND_BYTES_WAITING + 1));
        assert_eq!(all.pass(&large), 0);
        assert_eq!(all.pass(&event("e")), 1);
        assert_eq!(*quick.end.borrow(), Some(SidebandEnd::TooSlow));
    }

    #[test]
    fn there_are_only_so_many_and_one_that_has_gone_makes_room() {
        let mut all = Sidebands::default();
        let now = Instant::now();
        let mut joined: Vec<_> = (0..limits::SIDEBANDS_PER_SESSION)
            .map(|_| all.join(empty(), now).expect("joined"))
            .collect();
        assert!(all.join(empty(), now).is_none());
        joined.pop();
        assert!(all.join(empty(), now).is_some());
    }

    #[test]
    fn a_sideband_that_floods_is_told_so_itself() {
        let mut all = Sidebands::default();
        let now = Instant::now();
        let mut loud = all.join(empty(), now).expect("joined");
        let mut other = all.join(empty(), now).expect("joined");
        let passed = (0..=limits::CHANNEL_MESSAGES_BURST)
            .filter(|_| all.judge(loud.id, false, b"{}", now).is_some())
            .count();
        assert_eq!(passed, limits::CHANNEL_MESSAGES_BURST as usize);
        let notice = loud.events.try_recv().expect("told");
        assert!(notice.contains("rate_limit_exceeded"), "{notice}");
        assert!(other.events.try_recv().is_err());
        assert_eq!(all.judge(other.id, false, b"{}", now), Some("{}"));
        assert_eq!(all.judge(other.id, false, &[0xff], now), None);
    }
}
