//! The command that climbs the ladder of line lengths and losses.

use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use firsthop_perf::call::{janus, stack};
use firsthop_perf::setup::ladder::{self, LadderPlan};
use firsthop_perf::setup::results::{SetupResults, Subject};
use firsthop_perf::setup::subject::SubjectPlan;
use firsthop_perf::setup::table;

use crate::measuring::Measuring;

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
    /// Only these.
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
}

impl From<Called> for Subject {
    fn from(called: Called) -> Self {
        match called {
            Called::Relay => Self::Relay,
            Called::Direct => Self::Direct,
            Called::Janus => Self::Janus,
            Called::Aiortc => Self::Aiortc,
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
            false => self.only.iter().map(|called| (*called).into()).collect(),
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
}

/// Climbs.
pub(crate) fn setup(args: &SetupArgs) -> anyhow::Result<()> {
    let plan = args.plan()?;
    let measured = args.measuring.begin()?;
    let mut err = std::io::stderr().lock();
    writeln!(err, "{}", table::head())?;
    let climbed = ladder::climb(&plan, |climbed| {
        let found = SetupResults::of(measured.clone(), args.quick, climbed, Vec::new());
        if let Some(rung) = found.rungs.last() {
            let _ = writeln!(err, "{}", table::line(rung));
        }
    });
    // Logs are of use only when something failed.
    let climbed = match climbed {
        Ok(climbed) => climbed,
        Err(error) => {
            return Err(error)
                .with_context(|| format!("logs are in {}", plan.subjects.directory.display()));
        }
    };
    let _ = fs::remove_dir_all(&plan.subjects.directory);
    let mut missing = Vec::new();
    if plan.only.contains(&Subject::Aiortc) && plan.subjects.aiortc.is_none() {
        missing.push("aiortc: --aiortc names a Python that has it".to_owned());
    }
    if plan.only.contains(&Subject::Janus) && !plan.subjects.janus {
        let why = janus::program().err();
        let why = why.map_or_else(|| "left out".to_owned(), |error| error.to_string());
        missing.push(format!("Janus: {why}"));
    }
    let found = SetupResults::of(measured, args.quick, &climbed, missing);
    write!(std::io::stdout().lock(), "{}", found.table())?;
    if let Some(folder) = &args.results {
        fs::create_dir_all(folder)?;
        let path = folder.join("setup.json");
        let text = serde_json::to_string_pretty(&found)?;
        fs::write(&path, text + "\n").with_context(|| format!("{}", path.display()))?;
    }
    ensure!(
        found.rungs.iter().any(|rung| !rung.phases.is_empty()),
        "no call began; see the table for why"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

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
}
