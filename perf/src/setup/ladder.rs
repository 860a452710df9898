//! Climbs the ladder: every kind of call on every line, in one run.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::caller::{Caller, CallerPlan};
use super::kept::Ladder;
use super::results::{Case, Channel, Climbed, Connection, Sample, Subject};
use super::subject::{SubjectPlan, Subjects};
use super::world::World;
use crate::call::identity::Identity;
use crate::call::recording::{Codec, Recording};

/// Callers at once, at most.
const CALLERS_MAX: u32 = 8;

/// A call takes some milliseconds of each side's processor. One caller more for so much of a line's length keeps processors mostly idle.
const LENGTH_PER_CALLER: Duration = Duration::from_millis(20);

/// What to climb.
#[derive(Clone, Debug)]
pub struct LadderPlan {
    /// What to start.
    pub subjects: SubjectPlan,
    /// Round-trip times. The first is none: there it is measured what an echo holds.
    pub round_trips: Vec<Duration>,
    /// Shares of frames that are lost each way. The first is none.
    pub losses: Vec<f64>,
    /// Calls of every kind on every line.
    pub calls: u32,
    /// For how long a caller places calls of one kind on a line: those that take seconds are fewer then.
    pub longest: Duration,
    /// Only these subjects.
    pub only: Vec<Subject>,
}

impl LadderPlan {
    /// The ladder, as results have it.
    #[must_use]
    pub fn ladder(&self) -> Ladder {
        let times = self.round_trips.iter();
        Ladder {
            rtt_ms: times.map(|time| time.as_secs_f64() * 1e3).collect(),
            loss: self.losses.clone(),
            calls: self.calls,
        }
    }
}

/// The kinds of calls that are placed at a subject.
#[must_use]
pub fn cases(subject: Subject) -> Vec<Case> {
    let case = |connection, channel| Case {
        subject,
        connection,
        channel,
    };
    let warm = |channel| case(Connection::Warm, channel);
    match subject {
        Subject::Relay => vec![
            warm(Channel::Without),
            warm(Channel::Handshake),
            warm(Channel::Snap),
            case(Connection::Cold, Channel::Handshake),
        ],
        Subject::Direct => vec![
            warm(Channel::Without),
            warm(Channel::Handshake),
            warm(Channel::Snap),
        ],
        Subject::Janus => vec![warm(Channel::Without)],
        Subject::Aiortc => vec![warm(Channel::Without), warm(Channel::Handshake)],
    }
}

/// Climbs, and tells of all rungs so far whenever one is done.
///
/// # Errors
/// The network cannot be made, or a program does not start. What becomes of single calls is in the results.
pub fn climb(plan: &LadderPlan, mut tell: impl FnMut(&[Climbed])) -> io::Result<Vec<Climbed>> {
    let identity = Identity::new().map_err(io::Error::other)?;
    let recording = Recording::new(Codec::Opus).map_err(io::Error::other)?;
    let mut world = World::make()?;
    let mut subjects = Subjects::start(&world, &plan.subjects)?;
    let climbed = climb_on(
        &mut world,
        &subjects,
        plan,
        (&identity, &recording),
        &mut tell,
    );
    if climbed.as_ref().map_or(true, |all| has_failures(all)) {
        subjects.keep_logs();
    }
    climbed
}

/// Whether calls failed on lines that lose nothing, where none should, at programs whose logs stay: those of Janus go with it.
#[must_use]
pub fn has_failures(climbed: &[Climbed]) -> bool {
    let failed = |rung: &Climbed| {
        rung.loss == 0.0 && rung.case.subject != Subject::Janus && !rung.failures.is_empty()
    };
    climbed.iter().any(failed)
}

fn climb_on(
    world: &mut World,
    subjects: &Subjects,
    plan: &LadderPlan,
    (identity, recording): (&Identity, &Recording),
    tell: &mut dyn FnMut(&[Climbed]),
) -> io::Result<Vec<Climbed>> {
    let mut climbed = Vec::new();
    for loss in &plan.losses {
        for round_trip in &plan.round_trips {
            world.set(*round_trip, *loss)?;
            for subject in &plan.only {
                let Some(callee) = subjects.callee(*subject) else {
                    continue;
                };
                for case in cases(*subject) {
                    // What a connection costs on a lossy line, TCP alone says.
                    if case.connection == Connection::Cold && *loss > 0.0 {
                        continue;
                    }
                    let caller = CallerPlan {
                        callee: callee.clone(),
                        connection: case.connection,
                        channel: case.channel,
                        identity: identity.clone(),
                        recording: recording.clone(),
                    };
                    let (samples, failures) = rung(world, &caller, plan, *round_trip)?;
                    let rung = Climbed {
                        case,
                        rtt_ms: round_trip.as_secs_f64() * 1_000.0,
                        loss: *loss,
                        samples,
                        failures,
                    };
                    climbed.push(rung);
                    tell(&climbed);
                }
            }
        }
    }
    Ok(climbed)
}

type Outcomes = (Vec<Sample>, BTreeMap<String, u32>);

/// Places calls of one kind, by as many callers as the line's length keeps waiting.
fn rung(
    world: &World,
    caller: &CallerPlan,
    plan: &LadderPlan,
    round_trip: Duration,
) -> io::Result<Outcomes> {
    let calls = plan.calls;
    let callers = (round_trip.as_millis() / LENGTH_PER_CALLER.as_millis()) as u32;
    let callers = callers.clamp(1, CALLERS_MAX).min(calls);
    let placed = AtomicU32::new(0);
    let outcomes = Mutex::new(Outcomes::default());
    std::thread::scope(|scope| {
        let all: Vec<_> = (0..callers)
            .map(|_| {
                scope.spawn(|| {
                    world.client.within(|| {
                        let mut caller = Caller::new(caller.clone())?;
                        // It warms the connection, and whatever else is cold.
                        let _ = caller.call();
                        let began = Instant::now();
                        while began.elapsed() < plan.longest && placed.fetch_add(1, Relaxed) < calls
                        {
                            let outcome = caller.call();
                            let mut outcomes =
                                outcomes.lock().unwrap_or_else(PoisonError::into_inner);
                            match outcome {
                                Ok(sample) => outcomes.0.push(sample),
                                Err(why) => *outcomes.1.entry(why).or_default() += 1,
                            }
                        }
                        Ok(())
                    })
                })
            })
            .collect();
        all.into_iter().try_for_each(|caller| {
            caller
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    })?;
    Ok(outcomes
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner))
}

#[cfg(test)]
mod tests {
    use super::super::results::tests;
    use super::*;

    #[test]
    fn calls_failed_where_logs_tell_why() {
        for (subject, loss, expected) in [
            (Subject::Relay, 0.0, true),
            (Subject::Aiortc, 0.0, true),
            (Subject::Relay, 0.02, false),
            (Subject::Janus, 0.0, false),
        ] {
            let mut climbed = tests::ladder(subject, Channel::Without, 3.0, 4.0);
            assert!(!has_failures(&climbed));
            climbed[1].loss = loss;
            climbed[1].failures.insert("no audio".to_owned(), 1);
            assert_eq!(has_failures(&climbed), expected, "{subject:?}");
        }
    }
}
