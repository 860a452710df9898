//! Set-ups on a line while other calls are up: what users meet, who are neither on the server's machine nor alone.
//!
//! Calls that are up are on the server: the line's one thread could not move their packets and be on time for those that are measured. They go
//! the way that is measured, by the relay or past it, and so do the set-ups, in alternating passes.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::beside_results::{Beside, Pass};
use super::caller::{Caller, CallerPlan};
use super::results::{Channel, Connection, Phase, Quantiles, Subject};
use super::subject::Callee;
use super::world::World;
use crate::call::air::Way;
use crate::call::identity::Identity;
use crate::call::load::{self, LoadPlan};
use crate::call::manner::{Manner, Sharing};
use crate::call::model::{Format, ModelServer};
use crate::call::recording::{Codec, Recording};
use crate::call::stack::{Backend, Stack, StackPlan};
use crate::call::trial;

/// For how long calls stay up after the last set-up began.
const AFTER: Duration = Duration::from_secs(1);

/// What to measure.
#[derive(Clone, Debug)]
pub struct BesidePlan {
    /// The folder with Firsthop's programs.
    pub programs: PathBuf,
    /// Where files and logs go.
    pub directory: PathBuf,
    /// The processor that the programs run on.
    pub processor: usize,
    /// Calls that are up.
    pub calls: u32,
    /// Why so many, in words.
    pub why: String,
    /// The line's round-trip time.
    pub round_trip: Duration,
    /// How long calls settle after the last one was placed, before set-ups begin.
    pub settle: Duration,
    /// For how long set-ups are placed, one after another, in each pass of each way.
    pub counted: Duration,
    /// How often both ways are measured.
    pub passes: u32,
}

/// Measures, and tells of each pass of each way.
///
/// # Errors
/// The network cannot be made, or a program does not start. What becomes of single calls is in the results.
pub fn measure(plan: &BesidePlan, mut tell: impl FnMut(&Pass)) -> io::Result<Beside> {
    let mut world = World::make()?;
    world.set(plan.round_trip, 0.0)?;
    let (_model, mut stack) = world.server.within(|| serve(plan))?;
    let caller = CallerPlan {
        callee: Callee {
            desk: stack.signaling_desk(),
            way: Way::Relay,
        },
        connection: Connection::Warm,
        // It has the fewest round trips, beside which what programs take weighs most.
        channel: Channel::Without,
        identity: Identity::new().map_err(io::Error::other)?,
        recording: Recording::new(Codec::Pcmu).map_err(io::Error::other)?,
    };
    let passes = compare(&mut world, &stack, plan, &caller, &mut tell);
    let failed = |passes: &Vec<[Pass; 2]>| passes.iter().flatten().any(Pass::has_failures);
    if passes.as_ref().map_or(true, failed) {
        stack.keep_logs();
    }
    Ok(Beside {
        calls: plan.calls,
        why: plan.why.clone(),
        rtt_ms: 1e3 * plan.round_trip.as_secs_f64(),
        passes: passes?,
    })
}

/// Both ways, in alternating passes.
fn compare(
    world: &mut World,
    stack: &Stack,
    plan: &BesidePlan,
    caller: &CallerPlan,
    tell: &mut dyn FnMut(&Pass),
) -> io::Result<Vec<[Pass; 2]>> {
    let mut passes = Vec::new();
    for number in 0..plan.passes {
        let mut one = |subject, way| -> io::Result<Pass> {
            let mut caller = caller.clone();
            caller.callee.way = way;
            let pass = pass(world, stack, plan, subject, &caller)?;
            tell(&pass);
            Ok(pass)
        };
        let (relay, direct) = match number % 2 {
            0 => {
                let relay = one(Subject::Relay, Way::Relay)?;
                (relay, one(Subject::Direct, stack.direct())?)
            }
            _ => {
                let direct = one(Subject::Direct, stack.direct())?;
                (one(Subject::Relay, Way::Relay)?, direct)
            }
        };
        passes.push([relay, direct]);
    }
    Ok(passes)
}

/// Programs before a model server that speaks, in the namespace of this thread.
fn serve(plan: &BesidePlan) -> io::Result<(ModelServer, Stack)> {
    let format = Format::Pcmu;
    let address = (*World::place().internal.ip(), 0);
    let model = ModelServer::start(address.into(), format)?;
    let stack = StackPlan {
        programs: plan.programs.clone(),
        directory: plan.directory.clone(),
        number: 0,
        processor: plan.processor,
        backend: Backend::Realtime {
            url: model.url().to_owned(),
            format,
        },
        whole: true,
    };
    let stack = Stack::start_at(stack, World::place())?;
    Ok((model, stack))
}

/// One way, once.
fn pass(
    world: &mut World,
    stack: &Stack,
    plan: &BesidePlan,
    subject: Subject,
    caller: &CallerPlan,
) -> io::Result<Pass> {
    let here = *World::place().public.ip();
    let held = trial::held(
        stack.signaling_desk(),
        caller.callee.way.clone(),
        Codec::Pcmu,
        plan.calls,
        plan.settle,
        plan.counted + AFTER,
    );
    let load = LoadPlan {
        watch: stack.processes(),
        manner: Manner {
            // Clients that share sockets are on loopback addresses, where these programs are not.
            sockets: Sharing::Own {
                from: here,
                bind: here,
            },
            ..held.manner
        },
        ..held
    };
    let mut placed = None;
    let report = world.server.within(|| {
        load::run_beside(&load, &Default::default(), || {
            placed = Some(world.client.within(|| place(caller, plan.counted)));
        })
        .map_err(io::Error::other)
    })?;
    let (times, failed) = placed.transpose()?.unwrap_or_default();
    Ok(Pass {
        subject,
        set_up: Quantiles::of(times),
        failed,
        load_failed: report.lost_calls(),
        busy: report.watched.iter().map(|one| one.busy).sum(),
        generator_busy: report.generator_busy,
        generator_lost: report.generator_lost,
        // Nothing but the set-ups was on the line.
        late_us: world.late()?,
    })
}

/// Places calls one after another for a while: how long each took until DTLS was up, in milliseconds, and why others did not get there.
fn place(plan: &CallerPlan, counted: Duration) -> io::Result<(Vec<f64>, BTreeMap<String, u32>)> {
    let mut caller = Caller::new(plan.clone())?;
    // It warms the connection.
    let _ = caller.call();
    let (mut times, mut failed) = (Vec::new(), BTreeMap::new());
    let until = Instant::now() + counted;
    while Instant::now() < until {
        match caller.call() {
            Ok(sample) => times.extend(sample.phases.get(&Phase::Dtls)),
            Err(why) => *failed.entry(why).or_default() += 1,
        }
    }
    Ok((times, failed))
}
