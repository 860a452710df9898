//! The command that climbs the ladder of line lengths and losses.

use std::fs;
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use firsthop_perf::call::capacity_results::CapacityResults;
use firsthop_perf::call::{janus, stack};
use firsthop_perf::setup::beside::{self, BesidePlan};
use firsthop_perf::setup::beside_results::Pass;
use firsthop_perf::setup::kept::Again;
use firsthop_perf::setup::ladder::{self, LadderPlan};
use firsthop_perf::setup::results::{BESIDE_MISSING, SetupResults, Subject};
use firsthop_perf::setup::subject::SubjectPlan;
use firsthop_perf::setup::table;
use firsthop_perf::setup::targets::TARGET_RTT_MS;

use crate::measuring::Measuring;
use crate::parts;

/// Calls that are up beside set-ups where nothing says what the programs carry: half of what all of them did on one processor, a virtual AMD EPYC.
const BESIDE: u32 = 290;

/// The same in the short form, of a build for development too.
const BESIDE_QUICK: u32 = 30;

#[derive(clap::Args)]
pub(crate) struct SetupArgs {
    /// The folder with the programs; that of this one when not given.
    #[arg(long)]
    programs: Option<PathBuf>,
    /// A Python that has aiortc and aiohttp, for an answerer to compare with.
    #[arg(long)]
    aiortc: Option<PathBuf>,
    /// Round-trip times of the line, in milliseconds. The first is 0.
    #[arg(long, value_delimiter = ',', default_value = "0,20,80,200")]
    rtt: Vec<u32>,
    /// Shares of packets that the line loses each way, in percent. The first is 0.
    #[arg(long, value_delimiter = ',', default_value = "0,2,5")]
    loss: Vec<f64>,
    /// Calls of every kind on every line.
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    calls: u32,
    /// Leave Janus out, which has to be installed.
    #[arg(long)]
    no_janus: bool,
    /// Calls of G.711 that are up in the programs while set-ups by the relay and past it are compared, last of all: half of what all programs carry
    /// by capacity.json in --results when not given, or 290; --quick has 30.
    #[arg(long, value_name = "CALLS", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    beside: Option<u32>,
    /// Only these. What setup.json in --results has of others stays, if it is of the same commit, kind of machine, --rtt, --loss and --calls; else
    /// another folder has to be named. Relay and direct are compared: one alone goes into no file that has the other.
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Called>,
    /// Lines of 0, 20 and 80 ms without loss, and of every kind ten calls, or as many as three seconds hold: for a look.
    #[arg(long, conflicts_with_all = ["rtt", "loss", "calls"])]
    quick: bool,
    /// Where setup.json goes.
    #[arg(long)]
    results: Option<PathBuf>,
    #[command(flatten)]
    measuring: Measuring,
}

/// Whom calls are placed at.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
enum Called {
    Relay,
    Direct,
    Janus,
    Aiortc,
    /// The relay and past it, while other calls are up: see --beside.
    Beside,
}

impl Called {
    /// Who is called on the ladder.
    fn subject(self) -> Option<Subject> {
        match self {
            Self::Relay => Some(Subject::Relay),
            Self::Direct => Some(Subject::Direct),
            Self::Janus => Some(Subject::Janus),
            Self::Aiortc => Some(Subject::Aiortc),
            Self::Beside => None,
        }
    }
}

impl SetupArgs {
    fn plan(&self) -> anyhow::Result<LadderPlan> {
        let (rtt, loss, calls, longest) = match self.quick {
            true => (&[0, 20, 80][..], &[0.0][..], 10, Duration::from_secs(3)),
            false => (&self.rtt[..], &self.loss[..], self.calls, Duration::MAX),
        };
        ensure!(
            rtt.first() == Some(&0) && rtt.iter().all(|ms| *ms <= 2_000),
            "--rtt begins with 0, where it is measured what an echo holds, and ends at 2000 at most: --rtt 0,20,80"
        );
        ensure!(
            loss.first() == Some(&0.0) && loss.iter().all(|share| (0.0..=50.0).contains(share)),
            "--loss begins with 0, and ends at 50 at most: --loss 0,2"
        );
        let wanted = ["relay", "signaling", "transceiver"];
        let programs = stack::programs(self.programs.as_deref(), &wanted).context("--programs")?;
        let only = match self.only.is_empty() {
            true => vec![
                Subject::Relay,
                Subject::Direct,
                Subject::Janus,
                Subject::Aiortc,
            ],
            false => self.only.iter().filter_map(|one| one.subject()).collect(),
        };
        let directory = std::env::temp_dir().join(format!("firsthop-setup-{}", std::process::id()));
        Ok(LadderPlan {
            subjects: SubjectPlan {
                programs,
                directory,
                processor: self.measuring.processor,
                aiortc: self
                    .aiortc
                    .clone()
                    .filter(|_| only.contains(&Subject::Aiortc)),
                janus: only.contains(&Subject::Janus) && !self.no_janus && janus::program().is_ok(),
            },
            round_trips: rtt
                .iter()
                .map(|ms| Duration::from_millis((*ms).into()))
                .collect(),
            losses: loss.iter().map(|share| share / 100.0).collect(),
            calls,
            longest,
            only,
        })
    }

    /// What to compare while calls are up, with the programs of the ladder; nothing when that is not asked for.
    fn beside(&self, ladder: &SubjectPlan) -> anyhow::Result<Option<BesidePlan>> {
        if !self.only.is_empty() && !self.only.contains(&Called::Beside) {
            ensure!(
                self.beside.is_none(),
                "--beside is of set-ups beside calls that are up, which --only leaves out: add beside to --only, or leave --beside out"
            );
            return Ok(None);
        }
        let (calls, why) = match (self.beside, self.quick) {
            (Some(calls), _) => (calls, "as --beside says".to_owned()),
            (None, true) => (BESIDE_QUICK, "the short form".to_owned()),
            (None, false) => match self.carried()? {
                Some(carried) => (
                    (carried / 2.0).max(1.0) as u32,
                    format!("half of the {carried:.0} that all programs on one processor carry"),
                ),
                None => (BESIDE, "no capacity.json says what fits".to_owned()),
            },
        };
        let seconds = Duration::from_secs;
        let (settle, counted, passes) = match self.quick {
            true => (seconds(1), seconds(2), 1),
            false => (seconds(2), seconds(20), 5),
        };
        Ok(Some(BesidePlan {
            programs: ladder.programs.clone(),
            directory: ladder.directory.join("beside"),
            processor: ladder.processor,
            calls,
            why,
            round_trip: Duration::from_secs_f64(TARGET_RTT_MS / 1e3),
            settle,
            counted,
            passes,
        }))
    }

    /// How many calls of G.711 all programs on one processor carry, by the file of capacities beside the one to be written.
    fn carried(&self) -> anyhow::Result<Option<f64>> {
        let Some(folder) = &self.results else {
            return Ok(None);
        };
        let path = folder.join("capacity.json");
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).with_context(|| format!("{}", path.display())),
        };
        let found: CapacityResults = serde_json::from_str(&text)
            .with_context(|| format!("{}: --beside names a number of calls", path.display()))?;
        // What the short form found is no more than a look.
        let carried = found.per_core("all", "passthrough");
        Ok(carried.filter(|carried| *carried > 0.0 && !found.quick))
    }
}

/// Climbs.
pub(crate) fn setup(args: &SetupArgs) -> anyhow::Result<()> {
    let plan = args.plan()?;
    let beside = args.beside(&plan.subjects)?;
    let measured = args.measuring.begin()?;
    let path = args
        .results
        .as_deref()
        .map(|folder| folder.join("setup.json"));
    let again = Again {
        subjects: plan.only.clone(),
        beside: beside.is_some(),
    };
    let earlier = match &path {
        Some(path) if !args.only.is_empty() => {
            let others = |earlier: &SetupResults| again.leaves_some_of(earlier);
            parts::earlier(path, &measured, args.quick, others)?
        }
        _ => None,
    };
    if let (Some(earlier), Some(path)) = (&earlier, &path) {
        again
            .goes_with(earlier, &plan.ladder())
            .map_err(anyhow::Error::msg)
            .with_context(|| {
                format!(
                    "--only: {} has parts that this run does not measure; --results names another folder",
                    path.display()
                )
            })?;
    }
    let mut err = std::io::stderr().lock();
    let climbed = match plan.only.is_empty() {
        true => Ok(Vec::new()),
        false => {
            writeln!(err, "{}", table::head())?;
            ladder::climb(&plan, |climbed| {
                let found = SetupResults::of(measured.clone(), args.quick, climbed, Vec::new());
                if let Some(rung) = found.rungs.last() {
                    let _ = writeln!(err, "{}", table::line(rung));
                }
            })
        }
    };
    // Logs are of use only when something failed.
    let climbed = match climbed {
        Ok(climbed) => climbed,
        Err(error) => {
            return Err(error)
                .with_context(|| format!("logs are in {}", plan.subjects.directory.display()));
        }
    };
    let beside = beside.map(|beside| {
        beside::measure(&beside, |pass| {
            let _ = writeln!(err, "{pass}");
        })
    });
    let beside_failed = beside.as_ref().is_some_and(|beside| match beside {
        Ok(beside) => beside.passes.iter().flatten().any(Pass::has_failures),
        Err(_) => true,
    });
    let logs = plan.subjects.directory.display();
    if matches!(beside, Some(Err(_))) {
        writeln!(
            err,
            "Set-ups beside calls that are up could not be measured: logs of what was started are in {logs}."
        )?;
    } else if beside_failed || ladder::has_failures(&climbed) {
        writeln!(
            err,
            "Calls failed where no packets are lost on purpose: the programs' logs are in {logs}."
        )?;
    } else {
        let _ = fs::remove_dir_all(&plan.subjects.directory);
    }
    let mut missing = Vec::new();
    if plan.only.contains(&Subject::Aiortc) && plan.subjects.aiortc.is_none() {
        missing.push("aiortc: --aiortc names a Python that has it".to_owned());
    }
    if plan.only.contains(&Subject::Janus) && !plan.subjects.janus {
        let why = janus::program().err();
        let why = why.map_or_else(|| "left out".to_owned(), |error| error.to_string());
        missing.push(format!("Janus: {why}"));
    }
    let mut failed = None;
    let mut found = SetupResults::of(measured, args.quick, &climbed, missing)
        .on((!plan.only.is_empty()).then(|| plan.ladder()));
    match beside {
        Some(Ok(beside)) => found = found.with(beside),
        // What the ladder took half an hour to find is not lost with it.
        Some(Err(error)) => {
            found.missing.push(format!("{BESIDE_MISSING}: {error}"));
            failed = Some(error);
        }
        None => {}
    }
    write!(std::io::stdout().lock(), "{}", found.table())?;
    let began = found.rungs.iter().any(|rung| !rung.phases.is_empty());
    if let Some(path) = &path {
        let whole = match earlier {
            Some(earlier) => found.beside_earlier(earlier, &again),
            None => found,
        };
        write_results(path, &whole)?;
    }
    if let Some(error) = failed {
        return Err(error)
            .context("set-up beside calls that are up; the other results are complete");
    }
    ensure!(
        plan.only.is_empty() || began,
        "no call began; see the table for why"
    );
    Ok(())
}

fn write_results(path: &Path, found: &SetupResults) -> anyhow::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    }
    let text = serde_json::to_string_pretty(found)?;
    fs::write(path, text + "\n").with_context(|| path.display().to_string())
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use firsthop_perf::call::capacity_results::Carried;

    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        setup: SetupArgs,
    }

    #[test]
    fn a_ladder_begins_at_the_ground() {
        for (words, expected) in [
            (&["--rtt", "20,80"][..], "--rtt begins with 0"),
            (&["--rtt", "0,2001"], "2000 at most"),
            (&["--loss", "2"], "--loss begins with 0"),
            (&["--loss", "0,51"], "50 at most"),
        ] {
            let line = Line::try_parse_from(["setup"].iter().chain(words)).expect("a line");
            let error = line.setup.plan().expect_err("refused").to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    fn beside(words: &[&str]) -> anyhow::Result<Option<(u32, String)>> {
        let line = Line::try_parse_from(["setup"].iter().chain(words)).expect("a line");
        let subjects = SubjectPlan {
            programs: PathBuf::new(),
            directory: PathBuf::new(),
            processor: 1,
            aiortc: None,
            janus: false,
        };
        let plan = line.setup.beside(&subjects)?;
        Ok(plan.map(|plan| (plan.calls, plan.why)))
    }

    #[test]
    fn half_of_what_programs_carry_is_up_beside_set_ups_unless_a_number_is_given() {
        let calls = |words: &[&str]| beside(words).expect("a plan").map(|(calls, _)| calls);
        assert_eq!(calls(&[]), Some(BESIDE));
        assert_eq!(calls(&["--quick"]), Some(BESIDE_QUICK));
        assert_eq!(calls(&["--only", "relay,beside", "--beside", "7"]), Some(7));
        assert_eq!(calls(&["--only", "relay,direct"]), None);
        let error = beside(&["--only", "relay", "--beside", "7"]).expect_err("refused");
        assert!(
            error.to_string().contains("add beside to --only"),
            "{error}"
        );

        let folder = std::env::temp_dir().join(format!("firsthop-beside-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        let results = ["--results", folder.to_str().expect("a name")];
        assert_eq!(calls(&results), Some(BESIDE));
        let file = folder.join("capacity.json");
        fs::write(&file, "[]").expect("written");
        let error = format!("{:#}", beside(&results).expect_err("no such file"));
        assert!(error.contains("--beside names a number"), "{error}");
        let carried = Carried {
            service: "all".to_owned(),
            work: "passthrough".to_owned(),
            per_core: 587.0,
            gives_first: None,
            micros: 1_686.0,
            bytes_per_call: None,
            tried: Vec::new(),
        };
        for (quick, expected) in [(false, 293), (true, BESIDE)] {
            let found = CapacityResults {
                quick,
                carried: vec![carried.clone()],
                ..CapacityResults::default()
            };
            fs::write(&file, serde_json::to_string(&found).expect("JSON")).expect("written");
            assert_eq!(calls(&results), Some(expected));
        }
        fs::remove_dir_all(&folder).expect("removed");
    }
}
