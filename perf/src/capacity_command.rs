//! The command that measures whole calls on this machine.

use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use firsthop_perf::call::capacity::{self, CapacityPlan, Work};
use firsthop_perf::call::churn::{self, ChurnPlan};
use firsthop_perf::call::load::Ending;
use firsthop_perf::call::memory::{self, MemoryPlan};
use firsthop_perf::call::results::{self, CallResults};
use firsthop_perf::call::stack::{self, Backend, Stack, StackPlan};

use crate::measuring::Measuring;

/// What is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
enum Measure {
    /// Calls per worker with G.711 through to a model server.
    Passthrough,
    /// Calls per worker with Opus decoded for a model server, and encoded from it.
    Transcoding,
    /// Calls per worker with the echo, which has a voice detector beside.
    Echo,
    /// Memory of a silent session.
    Memory,
    /// What many short calls leave behind.
    Churn,
}

impl Measure {
    const ALL: [Self; 5] = [
        Self::Passthrough,
        Self::Transcoding,
        Self::Echo,
        Self::Memory,
        Self::Churn,
    ];
}

#[derive(clap::Args)]
pub(crate) struct CapacityArgs {
    /// The folder with the programs; that of this one when not given.
    #[arg(long)]
    programs: Option<PathBuf>,
    /// Only these; all of them when not given.
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Measure>,
    /// Fewer steps and calls: for a look.
    #[arg(long)]
    quick: bool,
    /// Leave the profile out, which needs Linux's perf.
    #[arg(long)]
    no_profile: bool,
    /// Where calls.json goes.
    #[arg(long)]
    results: Option<PathBuf>,
    #[command(flatten)]
    measuring: Measuring,
}

/// Measures.
pub(crate) fn capacity(args: &CapacityArgs) -> anyhow::Result<()> {
    let measured = args.measuring.begin()?;
    let processor = args.measuring.processor;
    let only = if args.only.is_empty() {
        &Measure::ALL[..]
    } else {
        &args.only
    };
    let mut wanted = vec!["transceiver"];
    if only.contains(&Measure::Churn) {
        wanted.extend(["relay", "signaling"]);
    }
    let programs = stack::programs(args.programs.as_deref(), &wanted).context("--programs")?;
    let directory = std::env::temp_dir().join(format!("firsthop-capacity-{}", std::process::id()));
    let mut found = CallResults {
        measured,
        quick: args.quick,
        ..CallResults::default()
    };
    let quick = |short: u32, long: u32| if args.quick { short } else { long };
    for measure in only {
        let mut err = std::io::stderr().lock();
        writeln!(err, "{measure:?} ...")?;
        match measure {
            Measure::Passthrough | Measure::Transcoding | Measure::Echo => {
                let work = match measure {
                    Measure::Passthrough => Work::Passthrough,
                    Measure::Transcoding => Work::Transcoding,
                    _ => Work::Echo,
                };
                let plan = CapacityPlan {
                    programs: programs.clone(),
                    directory: directory.clone(),
                    processor,
                    counted: Duration::from_secs(quick(4, 10).into()),
                    steps: quick(2, 7),
                    profile: !args.no_profile,
                };
                writeln!(err, "{}", results::head())?;
                let capacity = capacity::search(&plan, work, |step| {
                    let _ = writeln!(err, "{}", results::line(step));
                })?;
                found.capacity.push(capacity);
            }
            Measure::Memory => {
                let sessions = quick(200, 1_000);
                let plan = MemoryPlan {
                    programs: programs.clone(),
                    directory: directory.clone(),
                    processor,
                    sessions,
                };
                found.memory = Some(memory::transceiver(&plan, engine_bytes(sessions)?)?);
            }
            Measure::Churn => {
                let stack = Stack::start(StackPlan {
                    programs: programs.clone(),
                    directory: directory.clone(),
                    number: 22,
                    processor,
                    backend: Backend::Echo,
                    whole: true,
                })?;
                let plan = ChurnPlan {
                    // Until as many are up at once as ever will be: clients that vanish hold their session for a while.
                    warm: quick(300, 4_000),
                    calls: quick(500, 10_000),
                    ramp: 100.0,
                    hold: Duration::from_millis(1_500),
                    silent: false,
                    ending: Ending::Mixed,
                };
                found.churn = Some(churn::run(&stack, &plan)?);
            }
        }
    }
    write!(std::io::stdout().lock(), "{}", found.table())?;
    if let Some(folder) = &args.results {
        fs::create_dir_all(folder)?;
        let path = folder.join("calls.json");
        let text = serde_json::to_string_pretty(&found)?;
        fs::write(&path, text + "\n").with_context(|| format!("{}", path.display()))?;
    }
    Ok(())
}

/// What engines alone take, measured in a process of its own: in this one, memory has been used before.
fn engine_bytes(sessions: u32) -> anyhow::Result<f64> {
    let output = Command::new(std::env::current_exe()?)
        .args(["engines", "--sessions", &sessions.to_string()])
        .output()?;
    ensure!(output.status.success(), "perf engines failed");
    let text = String::from_utf8_lossy(&output.stdout);
    text.trim().parse().context("perf engines says no number")
}

/// Says how many bytes an engine takes.
pub(crate) fn engines(sessions: u32) -> anyhow::Result<()> {
    writeln!(std::io::stdout().lock(), "{}", memory::engines(sessions)?)?;
    Ok(())
}
