//! The whole comparison: every program in turn, pass after pass, and the ratios of what they cost.
//!
//! Figures of one machine are not those of another, and those of one hour not those of the next. So everything is measured
//! in one run, each pass goes through all cases, a ratio is taken within a pass, and the median over the passes is kept.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use firsthop_shared::address::ClusterId;
use firsthop_shared::limits::{TRUNK_DATAGRAM_ETHERNET, TRUNK_DATAGRAM_MAX};

use crate::burst::{self, BurstPlan, Cost, Work};
use crate::flood::{self, FloodPlan, FloodReport, Junk};
use crate::load::{self, LoadPlan, LoadReport, STRAGGLERS};
use crate::metrics::{Lateness, Metrics};
use crate::packet::Sizes;
use crate::rig::{Direction, Rig, RigError, RigPlan};
use crate::sampling::{Depth, Sampling};
use crate::spent::Spent;
use crate::subject::{Lab, Owned, Program, RelayOptions, Subject};
use crate::wire::Wire;

/// How much to measure.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Times that every case is measured.
    pub passes: u32,
    /// Backlogs per measurement.
    pub rounds: u32,
    /// Packets of a backlog, each way. They must fit the socket buffers.
    pub backlog: u32,
    /// How long a load in an open loop lasts.
    pub load: Duration,
    /// The cases whose time is looked into.
    pub looked_into: &'static [&'static str],
    /// How long that goes on.
    pub looking: Duration,
    /// How long each flood lasts.
    pub flood: Duration,
    /// How long calls are loaded beside a full table of which nothing is forgotten.
    pub expiry_before: Duration,
    /// How long while much of it is.
    pub expiry_during: Duration,
}

impl Effort {
    /// For a minute and some seconds.
    pub const QUICK: Self = Self {
        passes: 1,
        rounds: 5,
        backlog: 5_000,
        load: Duration::from_millis(500),
        // The relay and one of its peers, at the same work.
        looked_into: &["relay_both_1500", "go_both"],
        looking: Duration::from_millis(500),
        flood: Duration::from_millis(500),
        expiry_before: Duration::from_millis(800),
        expiry_during: Duration::from_millis(1_700),
    };

    /// For a report.
    pub const FULL: Self = Self {
        passes: 5,
        rounds: 40,
        backlog: 5_000,
        load: Duration::from_secs(10),
        // Those of the ratios that are hardest to meet.
        looked_into: &["relay_up_1500", "relay_both_1500", "go_both", "nginx_both"],
        looking: Duration::from_secs(10),
        flood: Duration::from_secs(10),
        expiry_before: Duration::from_secs(3),
        expiry_during: Duration::from_secs(5),
    };

    /// How a program is loaded with so many packets a second each way.
    #[must_use]
    pub fn load_plan(&self, rate: f64) -> LoadPlan {
        LoadPlan {
            direction: Direction::Both,
            rate,
            duration: self.load,
            stragglers: STRAGGLERS,
        }
    }
}

/// One thing to measure.
#[derive(Clone, Debug)]
pub struct Case {
    /// Short and unique: the key in reports.
    pub id: &'static str,
    /// The program.
    pub program: Program,
    /// Which way.
    pub direction: Direction,
    /// Flows.
    pub flows: u32,
    /// Destinations.
    pub owners: u16,
    /// Largest trunk datagram that owners write.
    pub datagram_len: usize,
    /// How large packets are.
    pub sizes: Sizes,
    /// Whether [receivers sleep](crate::sinks) until something comes.
    pub asleep: bool,
}

/// The sizes that figures are compared at, unless said: an Opus packet at its largest usual bit rate.
pub const SIZE: Sizes = Sizes::Fixed(172);

/// Flows, unless said.
pub const FLOWS: u32 = 1_000;

/// The largest number of flows.
pub const FLOWS_MANY: u32 = 1_000_000;

/// What may be lost of the packets that say what flows cost. A packet whose flow is not there is dropped, for less than it would cost
/// otherwise.
pub const FLOWS_LOST_MAX: f64 = 0.001;

/// How long flows may take to be restored: they are forgotten half a minute after that, and are measured before.
const RESTORE_MAX: Duration = Duration::from_secs(20);

/// How many flows are greeted one by one; more are restored as after a restart of the relay.
const GREETED_MAX: u32 = 20_000;

impl Case {
    fn new(id: &'static str, program: Program, direction: Direction) -> Self {
        Self {
            id,
            program,
            direction,
            flows: FLOWS,
            owners: 1,
            datagram_len: TRUNK_DATAGRAM_ETHERNET,
            sizes: SIZE,
            asleep: false,
        }
    }

    fn relay(id: &'static str, direction: Direction, owners: u16, mtu: u16) -> Self {
        Self {
            owners,
            datagram_len: if mtu > 1_500 {
                TRUNK_DATAGRAM_MAX
            } else {
                TRUNK_DATAGRAM_ETHERNET
            },
            ..Self::new(
                id,
                Program::Relay(RelayOptions {
                    mtu,
                    ..RelayOptions::default()
                }),
                direction,
            )
        }
    }

    fn asleep(self) -> Self {
        Self {
            asleep: true,
            ..self
        }
    }

    fn voice(self) -> Self {
        Self {
            sizes: Sizes::Voice,
            ..self
        }
    }

    /// With so many flows.
    #[must_use]
    pub fn with_flows(self, flows: u32) -> Self {
        let program = match self.program {
            Program::Relay(options) => Program::Relay(RelayOptions {
                flows: table_for(flows),
                ..options
            }),
            other => other,
        };
        Self {
            flows,
            program,
            ..self
        }
    }
}

/// The flow table for so many flows. A quarter of it is kept for provisional ones.
fn table_for(flows: u32) -> u32 {
    if flows > GREETED_MAX {
        (flows + flows / 64).min(1 << 20)
    } else {
        65_536
    }
}

/// All cases whose cost is compared, in the order of a pass.
#[must_use]
pub fn cases() -> Vec<Case> {
    use Direction::{Both, Down, Up};
    let send_floor = Program::FloorSend {
        ports: Vec::new(),
        flows: FLOWS,
        sizes: SIZE,
    };
    vec![
        Case::new("floor_up", Program::FloorReceive, Up),
        Case::relay("relay_up_1500", Up, 1, 1_500),
        Case::relay("relay_up_9000", Up, 1, 9_000),
        Case::relay("relay_up_1500_8dest", Up, 8, 1_500),
        Case::relay("relay_up_1500_64dest", Up, 64, 1_500),
        Case::relay("relay_up_1500_512dest", Up, 512, 1_500),
        Case::relay("relay_up_9000_64dest", Up, 64, 9_000),
        Case::relay("relay_up_1500_voice", Up, 1, 1_500).voice(),
        Case::new("floor_down", send_floor.clone(), Down),
        Case::relay("relay_down_1500", Down, 1, 1_500),
        Case::relay("relay_down_9000", Down, 1, 9_000),
        Case::relay("relay_down_1500_64dest", Down, 64, 1_500),
        Case::relay("relay_both_1500", Both, 1, 1_500),
        Case::new("single_up", Program::Single, Up),
        Case::new("single_down", Program::Single, Down),
        Case::new("single_both", Program::Single, Both),
        Case::new("batched_up", Program::Batched, Up),
        Case::new("batched_down", Program::Batched, Down),
        Case::new("batched_both", Program::Batched, Both),
        Case::new("go_up", Program::Go, Up),
        Case::new("go_down", Program::Go, Down),
        Case::new("go_both", Program::Go, Both),
        Case::new("nginx_up", Program::Nginx, Up),
        Case::new("nginx_down", Program::Nginx, Down),
        Case::new("nginx_both", Program::Nginx, Both),
        Case::new("coturn_up", Program::Coturn, Up),
        Case::new("coturn_down", Program::Coturn, Down),
        Case::new("coturn_both", Program::Coturn, Both),
        Case::relay("relay_up_1500_asleep", Up, 1, 1_500).asleep(),
        Case::new("floor_down_asleep", send_floor.clone(), Down).asleep(),
        Case::relay("relay_down_1500_asleep", Down, 1, 1_500).asleep(),
        Case::relay("relay_both_1500_asleep", Both, 1, 1_500).asleep(),
        Case::new("single_both_asleep", Program::Single, Both).asleep(),
        Case::new("go_both_asleep", Program::Go, Both).asleep(),
        Case::new("nginx_both_asleep", Program::Nginx, Both).asleep(),
    ]
}

/// A program with its clients and owners.
pub struct Ready {
    /// Clients and owners.
    pub rig: Rig,
    /// The program.
    pub subject: Subject,
}

/// Starts a case's program, and sets its flows up.
///
/// # Errors
/// The program does not start, or not every flow comes through.
pub fn prepare(lab: &Lab, case: &Case) -> Result<Ready, RigError> {
    let Ready { mut rig, subject } = start(lab, case)?;
    match case.program {
        Program::FloorReceive | Program::FloorSend { .. } => {}
        Program::Relay(_) if case.flows > GREETED_MAX => {
            rig.restore(subject.place.internal, RESTORE_MAX)?;
        }
        _ => {
            rig.set_up(Duration::from_secs(20))?;
        }
    }
    Ok(Ready { rig, subject })
}

/// Starts a case's program, which knows of no flow yet.
///
/// # Errors
/// The program does not start, or sockets cannot be had.
pub fn start(lab: &Lab, case: &Case) -> Result<Ready, RigError> {
    let rig = Rig::open(&RigPlan {
        wire: case.program.wire(),
        target: case.program.place().public,
        keyring: lab.keyring().clone(),
        cluster: ClusterId(1),
        flows: case.flows,
        owners: case.owners,
        datagram_len: case.datagram_len,
        sizes: case.sizes,
    })?;
    let mut program = case.program.clone();
    if let Program::FloorSend { ports, .. } = &mut program {
        *ports = rig.crowd.ports().to_vec();
    }
    let owned = Owned {
        owners: case.owners,
        port: rig.owners.port(),
    };
    let subject = lab.start(&program, owned)?;
    Ok(Ready { rig, subject })
}

/// What a packet costs in a case.
///
/// # Errors
/// The program does not start, ends, or does not let its flows through.
pub fn cost(lab: &Lab, case: &Case, effort: &Effort) -> Result<Cost, RigError> {
    let Ready {
        mut rig,
        mut subject,
    } = prepare(lab, case)?;
    let address = SocketAddr::V4(subject.place.public);
    // Proxies open a socket per client, and a TURN server has buffers that are not ours to set: their backlogs are smaller.
    let packets = match case.program {
        Program::Coturn => effort.backlog / 4,
        _ => effort.backlog,
    };
    let work = match case.program {
        Program::FloorReceive => Work::Receive(address),
        Program::FloorSend { .. } => Work::Send(address),
        _ => Work::Forward(case.direction),
    };
    let plan = BurstPlan {
        work,
        packets,
        rounds: effort.rounds,
        asleep: case.asleep,
    };
    burst_of(&mut rig, &mut subject, &plan)
}

/// Where the time of a case's program goes. Samples are kept in `data` meanwhile.
///
/// # Errors
/// As [`cost`]; `perf` is not there, or may not look.
pub fn spent(lab: &Lab, case: &Case, effort: &Effort, data: &Path) -> Result<Spent, RigError> {
    let Ready {
        mut rig,
        mut subject,
    } = prepare(lab, case)?;
    let plan = BurstPlan {
        work: Work::Forward(case.direction),
        packets: effort.backlog,
        rounds: 5,
        asleep: case.asleep,
    };
    let mut sampling = Sampling::start(subject.process.id(), effort.looking, data, Depth::Stack)?;
    while sampling.goes_on()? {
        burst::run(&mut rig, &mut subject.process, &plan)?;
    }
    Ok(Spent::of(&sampling.finish()?))
}

/// Works off backlogs, and asks the program what it dropped, if it is one that says.
fn burst_of(rig: &mut Rig, subject: &mut Subject, plan: &BurstPlan) -> Result<Cost, RigError> {
    let says = subject.wire == Wire::Trunk;
    let admin = subject.place.admin;
    let before = says.then(|| Metrics::read(admin)).transpose()?;
    let mut cost = burst::run(rig, &mut subject.process, plan)?;
    if let Some(before) = before {
        cost.drops = subject.published()?.drops_since(&before);
    }
    Ok(cost)
}

/// What a number of flows costs.
#[derive(Clone, Debug, serde::Serialize)]
pub struct FlowCost {
    /// How many flows.
    pub flows: u32,
    /// How many the relay said were in its table, before and after: the fewer.
    pub there: u64,
    /// What a packet costs then, on the way up.
    pub cost: Cost,
    /// The relay's resident memory with so many flows in its table, in bytes.
    pub resident: u64,
}

/// The relay with so many flows, whose packets go up. One with a million stays [aside](crate::expiry).
#[must_use]
pub fn flow_case(flows: u32) -> Case {
    let mut case = Case::relay("flows", Direction::Up, 1, 1_500).with_flows(flows);
    if let Program::Relay(options) = &mut case.program {
        options.apart = flows == FLOWS_MANY;
    }
    case
}

/// Measures the relay with few and with many flows. Returns it, too: all flows are in its table.
///
/// # Errors
/// As [`cost`]; not all flows are there before and after, or more than [`FLOWS_LOST_MAX`] was lost: then something else was measured.
pub fn flow_cost(lab: &Lab, case: &Case, effort: &Effort) -> Result<(FlowCost, Ready), RigError> {
    let flows = case.flows;
    let Ready {
        mut rig,
        mut subject,
    } = prepare(lab, case)?;
    let plan = BurstPlan {
        work: Work::Forward(Direction::Up),
        packets: effort.backlog,
        rounds: effort.rounds,
        asleep: false,
    };
    let there = |subject: &Subject| -> Result<u64, RigError> {
        let there = subject.published()?.sum("flows");
        if there < u64::from(flows) {
            return Err(RigError::Missing { there, flows });
        }
        Ok(there)
    };
    let before = there(&subject)?;
    let cost = burst_of(&mut rig, &mut subject, &plan)?;
    let resident = subject.process.usage()?.resident;
    if cost.lost > FLOWS_LOST_MAX {
        return Err(RigError::Lossy {
            lost: cost.lost,
            packets: cost.packets,
        });
    }
    let cost = FlowCost {
        flows,
        there: there(&subject)?.min(before),
        cost,
        resident,
    };
    Ok((cost, Ready { rig, subject }))
}

/// Latency and loss of a program at a rate, both ways, and how late its timers were if it says so.
///
/// # Errors
/// As [`cost`].
pub fn latency(
    lab: &Lab,
    program: &Program,
    rate: f64,
    effort: &Effort,
) -> Result<(LoadReport, Option<Lateness>), RigError> {
    let case = Case::new("latency", program.clone(), Direction::Both);
    let Ready {
        mut rig,
        mut subject,
    } = prepare(lab, &case)?;
    let plan = effort.load_plan(rate);
    let says = subject.wire == Wire::Trunk;
    let admin = subject.place.admin;
    let before = says.then(|| Metrics::read(admin)).transpose()?;
    let load = load::run(&mut rig, Some(&mut subject.process), &plan)?;
    let Some(before) = before else {
        return Ok((load, None));
    };
    let lateness = subject.published()?.lateness_since(&before);
    Ok((load, Some(lateness)))
}

/// Floods a relay with each kind of junk, beside `live` calls.
///
/// # Errors
/// As [`cost`].
pub fn floods(
    lab: &Lab,
    live: u32,
    plan: &FloodPlan,
    mut report: impl FnMut(&FloodReport),
) -> Result<Vec<FloodReport>, RigError> {
    let case = Case::relay("flood", Direction::Both, 1, 1_500).with_flows(live);
    let mut reports = Vec::new();
    for junk in Junk::ALL {
        let mut ready = prepare(lab, &case)?;
        let flood = flood::run(&mut ready.rig, &mut ready.subject, junk, plan)
            .map_err(|error| io::Error::other(format!("flood of {}: {error}", junk.name())))?;
        // Whoever hears of it may measure something else then.
        drop(ready);
        report(&flood);
        reports.push(flood);
    }
    Ok(reports)
}
