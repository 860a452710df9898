//! What calls that are live notice while a relay forgets most of a large table at once.
//!
//! Flows are forgotten half a minute after their last packet. So a relay whose table is full is put aside, halted, while others are
//! measured; a moment before its first flows are due it goes on, and carries a load of a few of them: first while nothing is
//! forgotten, then while hundreds of thousands are. Same relay, same calls, same table: only the expiry differs.

use std::time::{Duration, Instant};

use firsthop_shared::limits::FLOW_IDLE_SECS;
use serde::Serialize;

use crate::bench::{Effort, Ready};
use crate::load::{self, LoadPlan, LoadReport, STRAGGLERS};
use crate::rig::{Direction, RigError};

/// Calls that are live.
const LIVE: usize = 1_000;

/// Their packets a second, all together, each way.
const RATE: f64 = 50_000.0;

/// So many flows at the least must be forgotten, or something else was measured.
const EXPIRED_MIN: u64 = 100_000;

/// Flows are forgotten together that were last seen within this time.
const TOGETHER: Duration = Duration::from_millis(1_050);

/// What going on takes, besides the load before.
const MARGIN: Duration = Duration::from_millis(200);

/// How long after its first flows are due a relay forgets them at full rate.
const IN_FULL: Duration = Duration::from_millis(1_200);

/// A relay that will soon forget most of its flows.
pub struct Aside {
    ready: Ready,
    /// When its first flows are due.
    due: Instant,
}

/// What was forgotten beside live calls.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Expiry {
    /// Flows in the table before.
    pub flows: u64,
    /// Flows of calls that were live all the time.
    pub live: usize,
    /// Flows that the relay forgot while these calls' delay was measured.
    pub expired: u64,
}

/// The same load twice.
#[derive(Clone, Copy, Debug)]
pub struct Loads {
    /// While the relay forgot nothing.
    pub before: LoadReport,
    /// While it forgot flows.
    pub during: LoadReport,
}

impl Aside {
    /// Puts a relay aside whose flows were restored after `began`.
    ///
    /// # Errors
    /// It has ended.
    pub fn put(mut ready: Ready, began: Instant) -> Result<Self, RigError> {
        ready.subject.process.halt()?;
        let due = began + Duration::from_secs(u64::from(FLOW_IDLE_SECS));
        Ok(Self { ready, due })
    }

    /// Whether it is time to [`measure`](Self::measure): there is none for something else that takes so long.
    #[must_use]
    pub fn is_time(&self, effort: &Effort, other: Duration) -> bool {
        Instant::now() + other + effort.expiry_before + MARGIN > self.due
    }

    /// Loads it with live calls, before its flows are due and while they are forgotten.
    ///
    /// # Errors
    /// It was too late, or too few flows were forgotten; the relay has ended, or sockets fail.
    pub fn measure(mut self, effort: &Effort) -> Result<(Expiry, Loads), RigError> {
        let Ready { rig, subject } = &mut self.ready;
        subject.process.go_on()?;
        rig.order.truncate(LIVE);
        let plan = |duration| LoadPlan {
            direction: Direction::Both,
            rate: RATE,
            duration,
            stragglers: STRAGGLERS,
        };
        let before = load::run(rig, Some(&mut subject.process), &plan(effort.expiry_before))?;
        let counted = subject.published()?;
        let flows = counted.sum("flows");
        let early = counted.sum("flows_expired_total");
        if early > 0 {
            return Err(RigError::Forgotten {
                flows: early,
                when: "before they were due",
            });
        }
        let in_full = self.due + IN_FULL;
        std::thread::sleep(in_full.saturating_duration_since(Instant::now()));
        let earlier = subject.published()?.sum("flows_expired_total");
        // They are forgotten no faster than they were restored, which takes longer on a slow machine.
        let share = 2.0 * EXPIRED_MIN as f64 / flows.max(1) as f64;
        let enough = rig.restored_in.mul_f64(share) + TOGETHER;
        let during = plan(effort.expiry_during.max(enough));
        let during = load::run(rig, Some(&mut subject.process), &during)?;
        let expired = subject.published()?.sum("flows_expired_total") - earlier;
        if expired < EXPIRED_MIN {
            return Err(RigError::Forgotten {
                flows: expired,
                when: "meanwhile, which are too few",
            });
        }
        let expiry = Expiry {
            flows,
            live: LIVE,
            expired,
        };
        Ok((expiry, Loads { before, during }))
    }
}
