//! The life of a session: created → connecting → live ⇄ interrupted → ended, each end with a reason.
//!
//! Pure: it is told what was proven and when, and says when it wants to be asked again. The engine's own idea of being
//! connected is not used: it keeps to the pair it has selected, while a session lives as long as its client is heard on any
//! proven path.

mod phase;
mod steps;

use std::fmt;
use std::time::{Duration, Instant};

use crate::limits;

pub use phase::{Phase, SetUp};
pub use steps::Step;
use steps::Steps;

/// Where a session stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// The answer is made; nothing has come yet.
    Created,
    /// A verified check has come.
    Connecting,
    /// DTLS is up and the client is heard.
    Live,
    /// The client has not been heard for [`limits::SILENCE_BEFORE_INTERRUPTED`].
    Interrupted,
    /// It is over.
    Ended,
}

impl State {
    /// Every state, for metrics.
    pub const ALL: [Self; 5] = [
        Self::Created,
        Self::Connecting,
        Self::Live,
        Self::Interrupted,
        Self::Ended,
    ];

    /// The name under which metrics and logs show it.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Connecting => "connecting",
            Self::Live => "live",
            Self::Interrupted => "interrupted",
            Self::Ended => "ended",
        }
    }
}

/// Why a session ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EndReason {
    /// Signaling hung up.
    HungUp,
    /// The client closed DTLS.
    ClientClosed,
    /// It did not connect in time.
    Reaped,
    /// The client vanished, and did not come back within the grace period.
    ClientLost,
    /// The engine gave up: DTLS failed, or worse.
    EngineFailed,
    /// The audio codec could not be made.
    CodecFailed,
    /// A fault of ours; the session was given up, its neighbours live.
    Panicked,
    /// It was still there at the end of a drain.
    Drained,
    /// Nothing was said or sent for as long as the settings allow.
    Idle,
    /// The process stops.
    Stopped,
    /// It reached the longest time that it may take.
    Expired,
    /// The model server ended it in good order.
    BackendClosed,
    /// The model server could not be reached, or refused, or failed for good.
    BackendFailed,
}

impl EndReason {
    /// Every reason, for metrics.
    pub const ALL: [Self; 13] = [
        Self::HungUp,
        Self::ClientClosed,
        Self::Reaped,
        Self::ClientLost,
        Self::EngineFailed,
        Self::CodecFailed,
        Self::Panicked,
        Self::Drained,
        Self::Idle,
        Self::Stopped,
        Self::Expired,
        Self::BackendClosed,
        Self::BackendFailed,
    ];

    /// The name under which metrics and logs show it.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::HungUp => "hung_up",
            Self::ClientClosed => "client_closed",
            Self::Reaped => "reaped",
            Self::ClientLost => "client_lost",
            Self::EngineFailed => "engine_failed",
            Self::CodecFailed => "codec_failed",
            Self::Panicked => "panicked",
            Self::Drained => "drained",
            Self::Idle => "idle",
            Self::Stopped => "stopped",
            Self::Expired => "expired",
            Self::BackendClosed => "backend_closed",
            Self::BackendFailed => "backend_failed",
        }
    }
}

impl fmt::Display for EndReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.label())
    }
}

/// The clock of one session's life.
#[derive(Clone, Debug)]
pub struct Life {
    created: Instant,
    steps: Steps,
    phases: [Option<Instant>; Phase::ALL.len()],
    heard: Instant,
    interrupted: Option<Instant>,
    interruptions: u32,
    ended: Option<(EndReason, Instant)>,
}

impl Life {
    /// A session whose answer was made at `now`.
    #[must_use]
    pub fn new(now: Instant) -> Self {
        Self {
            created: now,
            steps: Steps::default(),
            phases: [None; Phase::ALL.len()],
            heard: now,
            interrupted: None,
            interruptions: 0,
            ended: None,
        }
    }

    /// A verified check of the client's came.
    pub fn checked(&mut self, now: Instant) {
        if self.phases[Phase::FirstCheck as usize].is_none() {
            self.reached(Phase::FirstCheck, now);
            self.steps.note(self.state(), now);
        }
    }

    /// The call has reached a phase; only the first time counts.
    pub fn reached(&mut self, phase: Phase, now: Instant) {
        self.phases[phase as usize].get_or_insert(now);
    }

    /// An answer to a check of ours came.
    pub fn answered(&mut self, now: Instant) {
        self.reached(Phase::Ice, now);
        self.proven(now);
    }

    /// DTLS is up.
    pub fn connected(&mut self, now: Instant) {
        self.reached(Phase::Dtls, now);
        self.proven(now);
        self.steps.note(self.state(), now);
    }

    /// The client was heard, provably.
    pub fn proven(&mut self, now: Instant) {
        self.heard = now;
        if self.interrupted.take().is_some() {
            self.steps.note(self.state(), now);
        }
    }

    /// It is over; the first reason stays.
    pub fn end(&mut self, reason: EndReason, now: Instant) {
        self.ended.get_or_insert((reason, now));
        self.steps.note(self.state(), now);
    }

    /// The first step of the life and the last ones, in order, and what brought each.
    #[must_use]
    pub fn steps(&self) -> Vec<Step> {
        self.steps.list(self.created, self.end_reason())
    }

    /// Where the session stands.
    #[must_use]
    pub fn state(&self) -> State {
        if self.ended.is_some() {
            State::Ended
        } else if self.interrupted.is_some() {
            State::Interrupted
        } else if self.connected_at().is_some() {
            State::Live
        } else if self.phases[Phase::FirstCheck as usize].is_some() {
            State::Connecting
        } else {
            State::Created
        }
    }

    /// Why it ended, if it has.
    #[must_use]
    pub fn end_reason(&self) -> Option<EndReason> {
        self.ended.map(|(reason, _)| reason)
    }

    /// When [`Life::poll`] has something to do at the latest.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        match self.state() {
            State::Ended => None,
            State::Created | State::Connecting => Some(self.created + limits::CONNECT_TIMEOUT),
            State::Live => Some(self.heard + limits::SILENCE_BEFORE_INTERRUPTED),
            State::Interrupted => self.interrupted.map(|at| at + limits::INTERRUPTED_GRACE),
        }
    }

    /// Moves on when a deadline has passed.
    pub fn poll(&mut self, now: Instant) {
        if self.deadline().is_none_or(|deadline| now < deadline) {
            return;
        }
        match self.state() {
            State::Created | State::Connecting => self.end(EndReason::Reaped, now),
            State::Live => {
                self.interrupted = Some(now);
                self.interruptions += 1;
                self.steps.note(self.state(), now);
            }
            State::Interrupted => self.end(EndReason::ClientLost, now),
            State::Ended => {}
        }
    }

    /// When its answer was made.
    #[must_use]
    pub fn answered_at(&self) -> Instant {
        self.created
    }

    /// When the call reached each phase, in the order of [`Phase::ALL`].
    #[must_use]
    pub fn phases(&self) -> [Option<Instant>; Phase::ALL.len()] {
        self.phases
    }

    /// When DTLS came up, if it has.
    #[must_use]
    pub fn connected_at(&self) -> Option<Instant> {
        self.phases[Phase::Dtls as usize]
    }

    /// How long it lived.
    #[must_use]
    pub fn duration(&self, now: Instant) -> Duration {
        let end = self.ended.map_or(now, |(_, at)| at);
        end.saturating_duration_since(self.created)
    }

    /// When the call reached each phase.
    #[must_use]
    pub fn setup(&self) -> SetUp {
        let passed = |at: Instant| at.saturating_duration_since(self.created).as_millis();
        let ms = |at| u64::try_from(passed(at)).unwrap_or(u64::MAX);
        SetUp(self.phases.map(|at| at.map(ms)))
    }

    /// How often the client was lost for a while.
    #[must_use]
    pub fn interruptions(&self) -> u32 {
        self.interruptions
    }
}

/// What a session's length calls for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LimitStep {
    /// Tell the client that the session ends in this many seconds.
    Warn(u64),
    /// Tell the client that the session is over.
    Expire,
    /// End it: the client has had [`limits::EXPIRY_GRACE`] to take the message.
    End,
}

/// How long a session may take; each step comes once.
#[derive(Clone, Debug)]
pub struct Limit {
    steps: [(Instant, LimitStep); 3],
    done: usize,
    reason: EndReason,
}

impl Limit {
    /// A session whose answer was made at `now`, and that lasts `length`.
    ///
    /// The warning comes [`limits::EXPIRY_WARNING`] before the end, and in the middle of a session shorter than twice that.
    #[must_use]
    pub fn new(length: Duration, now: Instant) -> Self {
        Self::ending(now + length, EndReason::Expired, now)
    }

    /// A session that ends at `end` for this reason, as seen at `now`.
    #[must_use]
    pub fn ending(end: Instant, reason: EndReason, now: Instant) -> Self {
        let length = end.saturating_duration_since(now);
        let left = limits::EXPIRY_WARNING.min(length / 2);
        let seconds = u64::try_from(left.as_millis().div_ceil(1_000)).unwrap_or(u64::MAX);
        Self {
            steps: [
                (end - left, LimitStep::Warn(seconds)),
                (end, LimitStep::Expire),
                (end + limits::EXPIRY_GRACE, LimitStep::End),
            ],
            done: 0,
            reason,
        }
    }

    /// Brings the end forward, with a new warning; an earlier end stays, and so does one that the client has been told of.
    pub fn shorten(&mut self, end: Instant, reason: EndReason, now: Instant) {
        if !self.is_told() && end < self.steps[1].0 {
            *self = Self::ending(end, reason, now);
        }
    }

    /// Whether the client has been told that it is over.
    #[must_use]
    pub fn is_told(&self) -> bool {
        self.done > 1
    }

    /// Why the session ends with the last step.
    #[must_use]
    pub fn reason(&self) -> EndReason {
        self.reason
    }

    /// When [`Limit::poll`] has the next step.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.steps.get(self.done).map(|(at, _)| *at)
    }

    /// The next step that is due; call until there is none.
    pub fn poll(&mut self, now: Instant) -> Option<LimitStep> {
        let (at, step) = self.steps.get(self.done)?;
        if now < *at {
            return None;
        }
        self.done += 1;
        Some(*step)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_warned_then_told_and_then_ended_each_once() {
        let start = Instant::now();
        let at = |secs| start + Duration::from_secs(secs);
        let mut limit = Limit::new(Duration::from_secs(600), start);
        assert_eq!(limit.poll(at(539)), None);
        assert_eq!(limit.poll(at(540)), Some(LimitStep::Warn(60)));
        assert_eq!(limit.poll(at(541)), None);
        assert_eq!(limit.poll(at(600)), Some(LimitStep::Expire));
        assert_eq!(limit.deadline(), Some(at(600) + limits::EXPIRY_GRACE));
        assert_eq!(limit.poll(at(700)), Some(LimitStep::End));
        assert_eq!((limit.poll(at(700)), limit.deadline()), (None, None));
        let mut short = Limit::new(Duration::from_secs(10), start);
        assert_eq!(short.poll(at(5)), Some(LimitStep::Warn(5)));
    }

    #[test]
    fn a_drain_brings_the_end_forward_and_never_puts_it_off() {
        let start = Instant::now();
        let at = |secs| start + Duration::from_secs(secs);
        let mut limit = Limit::new(Duration::from_secs(3_600), start);
        limit.shorten(at(700), EndReason::Drained, at(100));
        assert_eq!(limit.poll(at(639)), None);
        assert_eq!(limit.poll(at(640)), Some(LimitStep::Warn(60)));
        assert_eq!(limit.poll(at(700)), Some(LimitStep::Expire));
        assert_eq!(limit.reason(), EndReason::Drained);
        let told = limit.deadline();
        limit.shorten(at(650), EndReason::Idle, at(600));
        assert_eq!(limit.deadline(), told, "who was told is not told again");

        let mut nearly_over = Limit::new(Duration::from_secs(300), start);
        nearly_over.shorten(at(700), EndReason::Drained, at(100));
        assert_eq!(nearly_over.deadline(), Some(at(240)));
        assert_eq!(nearly_over.reason(), EndReason::Expired);

        // Warned of its length already, and then of an end that is nearer.
        let mut warned = Limit::new(Duration::from_secs(300), start);
        assert_eq!(warned.poll(at(240)), Some(LimitStep::Warn(60)));
        warned.shorten(at(260), EndReason::Drained, at(240));
        assert_eq!(warned.poll(at(250)), Some(LimitStep::Warn(10)));
    }

    #[test]
    fn a_call_that_never_connects_is_reaped_after_thirty_seconds() {
        let start = Instant::now();
        let mut life = Life::new(start);
        life.checked(start + Duration::from_secs(1));
        assert_eq!(life.state(), State::Connecting);
        let deadline = life.deadline().expect("a deadline");
        assert_eq!(deadline, start + Duration::from_secs(30));
        life.poll(deadline - Duration::from_millis(1));
        assert_eq!(life.state(), State::Connecting);
        life.poll(deadline);
        assert_eq!(life.end_reason(), Some(EndReason::Reaped));
    }

    #[test]
    fn a_short_network_drop_does_not_end_the_call() {
        let start = Instant::now();
        let mut life = Life::new(start);
        life.connected(start);
        life.poll(start + limits::SILENCE_BEFORE_INTERRUPTED);
        assert_eq!(life.state(), State::Interrupted);
        life.proven(start + Duration::from_secs(20));
        assert_eq!(life.state(), State::Live);
        assert_eq!(life.interruptions(), 1);
    }

    #[test]
    fn a_client_that_stays_away_is_lost_after_the_grace_period() {
        let start = Instant::now();
        let mut life = Life::new(start);
        life.connected(start);
        life.poll(life.deadline().expect("a deadline"));
        let deadline = life.deadline().expect("a deadline");
        life.poll(deadline);
        assert_eq!(life.end_reason(), Some(EndReason::ClientLost));
        assert_eq!(
            deadline - start,
            limits::SILENCE_BEFORE_INTERRUPTED + limits::INTERRUPTED_GRACE
        );
        life.end(EndReason::HungUp, deadline);
        assert_eq!(life.end_reason(), Some(EndReason::ClientLost));
    }
}
