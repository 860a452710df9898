//! The commands that people run: a load on a relay that is up, the whole comparison, and signaling alone.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::net::SocketAddrV4;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use firsthop_perf::asking_report::{CALLS_PER_CORE, CallBench, CallReport};
use firsthop_perf::bench::{self, Case, Effort, FLOWS, FLOWS_MANY};
use firsthop_perf::counters::{Counter, Event};
use firsthop_perf::expiry::Aside;
use firsthop_perf::flood::FloodPlan;
use firsthop_perf::load::{self, LoadPlan, LoadReport, STRAGGLERS};
use firsthop_perf::packet::Sizes;
use firsthop_perf::report::{
    ALL_OF_RELAY, ALL_OF_SINGLE, BESIDE_EXPIRY, BESIDE_MANY, FEW_CALLS, FEW_CALLS_RATE, FLAT_OUT,
    HALF_OF_RELAY, HALF_OF_SINGLE, IDLE, NamedLoad, Pass, Report,
};
use firsthop_perf::rig::{Direction, Rig, RigPlan};
use firsthop_perf::subject::{Lab, Program, RelayOptions};
use firsthop_perf::wire::Wire;
use firsthop_shared::address::ClusterId;
use firsthop_shared::keyring::DataKeyring;
use firsthop_shared::limits::TRUNK_DATAGRAM_ETHERNET;

use crate::measuring::Measuring;
use crate::parts;

#[derive(clap::Args)]
pub(crate) struct RelayArgs {
    /// The relay's public address, on this machine's loopback.
    #[arg(long, default_value = "127.0.0.1:3478")]
    relay: SocketAddrV4,
    /// The fleet's data keyring.
    #[arg(long, env = "FIRSTHOP_KEYRING")]
    keyring: PathBuf,
    /// The relay's cluster.
    #[arg(long, env = "FIRSTHOP_CLUSTER", default_value_t = 1)]
    cluster: u16,
    /// How many owners: the number of destinations that a relay core packs for.
    #[arg(long, default_value_t = 1)]
    owners: u16,
    /// How many flows.
    #[arg(long, default_value_t = FLOWS)]
    flows: u32,
    /// Packets per second and flow.
    #[arg(long, default_value_t = 50.0)]
    rate: f64,
    /// How long to send, in seconds.
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    /// Bytes of each packet; without it sizes as in a voice call.
    #[arg(long)]
    size: Option<usize>,
    /// Owners send as much to their clients.
    #[arg(long)]
    both_ways: bool,
    /// Print JSON instead of a table.
    #[arg(long)]
    json: bool,
}

/// Loads a relay that is up.
pub(crate) fn relay(args: &RelayArgs) -> anyhow::Result<()> {
    ensure!(
        args.relay.ip().is_loopback(),
        "--relay {}: clients here have loopback addresses, and reach only a relay on one",
        args.relay
    );
    ensure!(
        args.rate > 0.0,
        "--rate is a positive number of packets per second"
    );
    let keyring = DataKeyring::load(&args.keyring).context("--keyring")?;
    let mut rig = Rig::open(&RigPlan {
        wire: Wire::Trunk,
        target: args.relay,
        keyring: Arc::new(keyring),
        cluster: ClusterId(args.cluster),
        flows: args.flows,
        owners: args.owners,
        datagram_len: TRUNK_DATAGRAM_ETHERNET,
        sizes: args.size.map_or(Sizes::Voice, Sizes::Fixed),
    })?;
    let set_up = rig.set_up(Duration::from_secs(20))?;
    let plan = LoadPlan {
        direction: if args.both_ways {
            Direction::Both
        } else {
            Direction::Up
        },
        rate: args.rate * f64::from(args.flows),
        duration: Duration::try_from_secs_f64(args.seconds).context("--seconds")?,
        stragglers: STRAGGLERS,
    };
    let report = load::run(&mut rig, None, &plan)?;
    let mut out = std::io::stdout().lock();
    if args.json {
        writeln!(out, "{}", serde_json::to_string_pretty(&report)?)?;
    } else {
        print_load(&mut out, args.flows, set_up, &report)?;
    }
    Ok(())
}

fn print_load(
    out: &mut impl std::io::Write,
    flows: u32,
    set_up: Duration,
    report: &LoadReport,
) -> std::io::Result<()> {
    let set_up = set_up.as_secs_f64() * 1e3;
    writeln!(
        out,
        "flows                {flows:>12}, all proven after {set_up:.0} ms"
    )?;
    writeln!(out, "packets per second   {:>12.0} each way", report.rate)?;
    writeln!(
        out,
        "records per datagram {:>12.2} on the way up",
        report.packing
    )?;
    let rows = [
        ("up", report.up.map(|way| (way.latency, way.lost()))),
        ("down", report.down.map(|way| (way.latency, way.lost()))),
        ("generator late", Some((report.generator, 0.0))),
    ];
    for (name, row) in rows {
        let Some((latency, lost)) = row else { continue };
        writeln!(
            out,
            "{name:<20}{:>9.0} µs p50 {:>9.0} p99 {:>9.0} p99.9 {:>9.0} max {:>8.3} % lost",
            latency.p50,
            latency.p99,
            latency.p999,
            latency.max,
            100.0 * lost
        )?;
    }
    Ok(())
}

#[derive(clap::Args)]
pub(crate) struct BenchArgs {
    /// The relay program.
    #[arg(long)]
    relay: PathBuf,
    /// The relay in Go, built; without it that peer is left out.
    #[arg(long)]
    go: Option<PathBuf>,
    /// Where results go: relay.json.
    #[arg(long)]
    results: Option<PathBuf>,
    /// A minute and a quarter, or less than one without programs of others, instead of ten: for a look.
    #[arg(long)]
    quick: bool,
    /// Only cases whose name contains this; no ratios then, and relay.json in --results is not replaced.
    #[arg(long)]
    only: Option<String>,
    /// Leave out everything but costs per packet; relay.json in --results is not replaced.
    #[arg(long)]
    costs_alone: bool,
    /// Leave out programs of others (Go, nginx, coturn) and where time goes, which Linux's perf tells: nothing has to be installed.
    #[arg(long)]
    without_peers: bool,
    /// Passes, when others than usual.
    #[arg(long)]
    passes: Option<u32>,
    #[command(flatten)]
    measuring: Measuring,
}

/// Compares everything in turn.
pub(crate) fn bench(args: BenchArgs) -> anyhow::Result<()> {
    let path = args
        .results
        .as_deref()
        .map(|folder| folder.join("relay.json"));
    if let Some(path) = path
        .as_deref()
        .filter(|_| args.costs_alone || args.only.is_some())
    {
        parts::apart(path)?;
    }
    let measured = args.measuring.begin()?;
    let mut effort = if args.quick {
        Effort::QUICK
    } else {
        Effort::FULL
    };
    effort.passes = args.passes.unwrap_or(effort.passes);
    let mut report = Report {
        measured,
        quick: args.quick,
        counters: counters(),
        ..Report::default()
    };
    let directory = std::env::temp_dir().join(format!("firsthop-perf-{}", std::process::id()));
    let data = directory.join("perf.data");
    let lab =
        Lab::new(args.measuring.processor, directory, args.relay, args.go).context("files")?;
    let wanted = |program: &Program| !args.without_peers || !program.is_foreign();
    let named = |id: &str| args.only.as_deref().is_none_or(|only| id.contains(only));
    let mut cases = bench::cases();
    cases.retain(|case| named(case.id) && wanted(&case.program));
    costs(&lab, &effort, &cases, &mut report);
    if !args.costs_alone && args.only.is_none() {
        if !args.without_peers {
            look_into(&lab, &effort, &data, &mut report);
        }
        let mut aside = flow_costs(&lab, &effort, &mut report);
        latencies(&lab, &effort, wanted, &mut aside, &mut report);
        floods(&lab, &effort, &mut aside, &mut report);
        if let Some(aside) = aside {
            expiry(aside, &effort, &mut report);
        }
    }
    report.finish();
    writeln!(std::io::stdout(), "{}", report.table())?;
    if let Some(results) = &args.results {
        fs::create_dir_all(results).context("--results")?;
        let mut json = serde_json::to_string_pretty(&report)?;
        json.push('\n');
        fs::write(results.join("relay.json"), json).context("--results")?;
    }
    Ok(())
}

#[derive(clap::Args)]
pub(crate) struct SignalingArgs {
    /// The signaling program.
    #[arg(long)]
    signaling: PathBuf,
    /// How many clients.
    #[arg(long, default_value_t = 32)]
    clients: u32,
    /// Calls per second of the open loop.
    #[arg(long, default_value_t = CALLS_PER_CORE)]
    rate: f64,
    /// How long each of the three loads takes, in seconds.
    #[arg(long, default_value_t = 10.0)]
    seconds: f64,
    /// Print JSON instead of a table.
    #[arg(long)]
    json: bool,
    /// Where results go: signaling.json.
    #[arg(long)]
    results: Option<PathBuf>,
    #[command(flatten)]
    measuring: Measuring,
}

/// Makes calls on signaling alone.
pub(crate) fn signaling(args: SignalingArgs) -> anyhow::Result<()> {
    let measured = args.measuring.begin()?;
    ensure!(
        args.rate > 0.0,
        "--rate is a positive number of calls per second"
    );
    ensure!(args.clients > 0, "--clients is at least one");
    let bench = CallBench {
        signaling: args.signaling,
        processor: args.measuring.processor,
        clients: args.clients,
        rate: args.rate,
        duration: Duration::try_from_secs_f64(args.seconds).context("--seconds")?,
    };
    let directory = std::env::temp_dir().join(format!("firsthop-calls-{}", std::process::id()));
    let report = CallReport::measure(measured, &bench, &directory)?;
    let mut json = serde_json::to_string_pretty(&report)?;
    json.push('\n');
    let mut out = std::io::stdout().lock();
    if args.json {
        write!(out, "{json}")?;
    } else {
        write!(out, "{}", report.table())?;
    }
    if let Some(results) = &args.results {
        fs::create_dir_all(results).context("--results")?;
        fs::write(results.join("signaling.json"), json).context("--results")?;
    }
    Ok(())
}

/// What can be counted here.
fn counters() -> String {
    let time = "Time is the kernel's accounting of each program's threads";
    match Counter::open(std::process::id(), Event::Cycles) {
        Ok(_) => format!("{time}; cycles and instructions are in the file."),
        Err(_) => format!("{time}; this machine counts no cycles or instructions."),
    }
}

fn costs(lab: &Lab, effort: &Effort, cases: &[Case], report: &mut Report) {
    let mut passes = Vec::new();
    let mut failed = BTreeMap::new();
    for pass in 1..=effort.passes {
        let mut costs = Pass::new();
        for case in cases {
            if failed.contains_key(case.id) {
                continue;
            }
            match bench::cost(lab, case, effort) {
                Ok(cost) => {
                    eprintln!(
                        "{pass}/{}  {:<24}{:>9.0} ns",
                        effort.passes, case.id, cost.nanos
                    );
                    costs.insert(case.id, (case.program.name(), cost));
                }
                Err(error) => {
                    eprintln!("{pass}/{}  {:<24} {error}", effort.passes, case.id);
                    failed.insert(case.id, error.to_string());
                }
            }
        }
        passes.push(costs);
    }
    report.set_passes(&passes);
    let missing = failed.iter().map(|(id, error)| format!("{id}: {error}"));
    report.missing.extend(missing);
}

fn look_into(lab: &Lab, effort: &Effort, data: &Path, report: &mut Report) {
    for case in bench::cases() {
        if !effort.looked_into.contains(&case.id) || !report.costs.contains_key(case.id) {
            continue;
        }
        match bench::spent(lab, &case, effort, data) {
            Ok(spent) => {
                eprintln!(
                    "{:<24}{:>9.1} % in the kernel",
                    case.id,
                    100.0 * (1.0 - spent.program)
                );
                report.spent.insert(case.id, spent);
            }
            Err(error) => {
                report
                    .missing
                    .push(format!("where the time of {} goes: {error}", case.id));
            }
        }
    }
    let _ = fs::remove_file(data);
}

/// Returns the relay with the most flows, which will soon be forgotten, put aside.
fn flow_costs(lab: &Lab, effort: &Effort, report: &mut Report) -> Option<Aside> {
    let mut aside = None;
    for flows in [10, 100, 1_000, 10_000, 100_000, FLOWS_MANY] {
        let began = Instant::now();
        match bench::flow_cost(lab, &bench::flow_case(flows), effort) {
            Ok((cost, ready)) => {
                eprintln!("{flows:>10} flows {:>15.0} ns", cost.cost.nanos);
                report.flows.push(cost);
                if flows == FLOWS_MANY {
                    aside = Aside::put(ready, began).ok();
                }
            }
            Err(error) => {
                eprintln!("{flows:>10} flows {error}");
                report.missing.push(format!("{flows} flows: {error}"));
            }
        }
    }
    if aside.is_none() {
        let missing = format!("delay while flows are forgotten: without {FLOWS_MANY} of them");
        report.missing.push(missing);
    }
    aside
}

/// What live calls notice while the flows of the relay that was put aside are forgotten.
fn expiry(aside: Aside, effort: &Effort, report: &mut Report) {
    match aside.measure(effort) {
        Ok((expiry, loads)) => {
            eprintln!("{:>10} flows forgotten", expiry.expired);
            for (at, load) in [(BESIDE_MANY, loads.before), (BESIDE_EXPIRY, loads.during)] {
                let named = NamedLoad::new("relay", at, load, None);
                report.latency.push(named);
            }
            report.expiry = Some(expiry);
        }
        Err(error) => {
            let missing = format!("delay while flows are forgotten: {error}");
            report.missing.push(missing);
        }
    }
}

/// What a load takes besides its time: a program is started, and its flows are set up.
const AROUND_A_LOAD: Duration = Duration::from_millis(700);

/// The same of a flood, beside which backlogs are worked off.
const AROUND_A_FLOOD: Duration = Duration::from_secs(4);

/// Does so if there is no time left for something else first that takes so long.
fn expiry_if_due(aside: &mut Option<Aside>, effort: &Effort, report: &mut Report, other: Duration) {
    if let Some(due) = aside.take_if(|aside| aside.is_time(effort, other)) {
        expiry(due, effort, report);
    }
}

fn latencies(
    lab: &Lab,
    effort: &Effort,
    wanted: impl Fn(&Program) -> bool,
    aside: &mut Option<Aside>,
    report: &mut Report,
) {
    let capacity = |id| report.costs.get(id).map(|case| 1e9 / case.nanos);
    let relay = |spin| {
        Program::Relay(RelayOptions {
            spin,
            ..RelayOptions::default()
        })
    };
    let mut plan = Vec::new();
    // Half of the capacity, which is shared by both ways.
    if let Some(packets) = capacity("single_both") {
        for program in [
            relay(true),
            relay(false),
            Program::Single,
            Program::Go,
            Program::Nginx,
        ] {
            plan.push((program, HALF_OF_SINGLE, packets / 4.0));
        }
    }
    if let Some(packets) = capacity("relay_both_1500") {
        plan.push((relay(true), HALF_OF_RELAY, packets / 4.0));
        plan.push((relay(true), ALL_OF_RELAY, packets / 2.0));
    }
    if let Some(packets) = capacity("single_both") {
        plan.push((relay(true), ALL_OF_SINGLE, packets / 2.0));
        plan.push((Program::Single, ALL_OF_SINGLE, packets / 2.0));
    }
    for program in [relay(true), relay(false), Program::Go, Program::Nginx] {
        plan.push((program, FEW_CALLS, FEW_CALLS_RATE));
    }
    for program in [relay(true), relay(false)] {
        plan.push((program, IDLE, 1.0));
    }
    // Without polling the share of its processor that the relay uses says whether it was saturated.
    for program in [relay(false), Program::Single, Program::Go] {
        plan.push((program, FLAT_OUT, f64::INFINITY));
    }
    // The short form is over before what idles has had something to do.
    plan.retain(|(program, _, rate)| wanted(program) && effort.load_plan(*rate).lasts());
    let each = effort.load * 11 / 10 + AROUND_A_LOAD;
    for (program, at, rate) in plan {
        expiry_if_due(aside, effort, report, each);
        match bench::latency(lab, &program, rate, effort) {
            Ok((load, lateness)) => {
                let rate_told = if rate.is_infinite() {
                    "as much as can be sent".to_owned()
                } else {
                    format!("{rate:.0} a second")
                };
                eprintln!("load on {:<22} {rate_told} each way", program.name());
                let named = NamedLoad::new(program.name(), at, load, lateness);
                report.latency.push(named);
            }
            Err(error) => report
                .missing
                .push(format!("load on {}: {error}", program.name())),
        }
    }
}

fn floods(lab: &Lab, effort: &Effort, aside: &mut Option<Aside>, report: &mut Report) {
    let each = effort.flood * 11 / 10 + AROUND_A_FLOOD;
    expiry_if_due(aside, effort, report, each);
    let plan = FloodPlan {
        sources: 1_000_000,
        junk_rate: f64::INFINITY,
        live_rate: 50.0,
        duration: effort.flood,
        rounds: effort.rounds,
    };
    let said = |flood: &firsthop_perf::flood::FloodReport| {
        eprintln!("flood of {:<18}{:>9.0} ns", flood.junk.name(), flood.nanos);
        expiry_if_due(aside, effort, report, each);
    };
    match bench::floods(lab, FLOWS, &plan, said) {
        Ok(floods) => report.floods = floods,
        Err(error) => report.missing.push(format!("floods: {error}")),
    }
}
