//! The command that measures what whole calls take on this machine, and how many of them it carries.

use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use firsthop_perf::call::alone::{self, AlonePlan};
use firsthop_perf::call::beside_janus;
use firsthop_perf::call::capacity::{self, CapacityPlan};
use firsthop_perf::call::capacity_results::{CapacityResults, Tried};
use firsthop_perf::call::churn::{self, ChurnPlan};
use firsthop_perf::call::comparison::{self, ComparisonPlan};
use firsthop_perf::call::costs::{self, CostPlan};
use firsthop_perf::call::janus;
use firsthop_perf::call::memory::{self, MemoryPlan};
use firsthop_perf::call::report::CallReport;
use firsthop_perf::call::results::{self, CallResults};
use firsthop_perf::call::stack::{self, Backend, Stack, StackPlan};
use firsthop_perf::call::tolerance::Tolerance;
use firsthop_perf::call::trial::{Bench, Service, Work};
use firsthop_perf::measured::Measured;
use serde::Deserialize as _;
use serde_json::Value;

use crate::capacity_parts::{self, NONE_KEPT, WITHOUT_JANUS};
use crate::measures::{Effort, Measure};
use crate::measuring::Measuring;
use crate::parts;

#[derive(clap::Args)]
pub(crate) struct CapacityArgs {
    /// The folder with the programs; that of this one when not given.
    #[arg(long)]
    programs: Option<PathBuf>,
    /// Only these; all of them when not given. What files in --results have of others stays, if it is of the same commit and kind of machine; else
    /// another folder has to be named. Costs and targets of earlier runs go when whole is measured, which they rest on.
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Measure>,
    /// Fewer steps and calls: for a look.
    #[arg(long)]
    quick: bool,
    /// Leave the profile out, which needs Linux's perf.
    #[arg(long)]
    no_profile: bool,
    /// Calls of G.711 that the servers' time is compared with Janus's at; never more than seven tenths of what fits.
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    janus_calls: u32,
    /// Where calls.json and capacity.json go.
    #[arg(long)]
    results: Option<PathBuf>,
    #[command(flatten)]
    tolerance: Tolerance,
    #[command(flatten)]
    measuring: Measuring,
}

/// What has been measured so far, and how the rest is to be.
struct Survey<'a> {
    args: &'a CapacityArgs,
    bench: Bench,
    effort: Effort,
    calls: CallResults,
    /// What an earlier run has in that file, and this one has not measured.
    calls_kept: Option<Value>,
    /// With what an earlier run has, and this one has not measured.
    found: CapacityResults,
    /// What this run has measured.
    done: Vec<Measure>,
}

/// Measures.
pub(crate) fn capacity(args: &CapacityArgs) -> anyhow::Result<()> {
    let measured = args.measuring.begin()?;
    // In their order: some rest on what those before them find.
    let is_asked = |measure: &Measure| args.only.is_empty() || args.only.contains(measure);
    let only: Vec<Measure> = Measure::ALL.into_iter().filter(is_asked).collect();
    let mut wanted = vec!["transceiver"];
    if only.iter().any(|measure| measure.needs_all()) {
        wanted.extend(["relay", "signaling"]);
    }
    if only.contains(&Measure::Relay) {
        wanted.push("relay");
    }
    if only.contains(&Measure::Signaling) {
        wanted.push("signaling");
    }
    let programs = stack::programs(args.programs.as_deref(), &wanted).context("--programs")?;
    let directory = std::env::temp_dir().join(format!("firsthop-capacity-{}", std::process::id()));
    let effort = Effort::new(args.quick);
    let (calls_kept, found_kept) = kept(args, &measured)?;
    let calls_measured = match &calls_kept {
        Some(kept) => measured.clone().beside(&Measured::deserialize(kept)?),
        None => measured.clone(),
    };
    let found_measured = match &found_kept {
        Some(kept) => measured.beside(&kept.measured),
        None => measured,
    };
    let mut survey = Survey {
        args,
        bench: Bench {
            programs,
            directory,
            processor: args.measuring.processor,
            settle: effort.settle,
        },
        effort,
        calls: CallResults {
            measured: calls_measured,
            quick: args.quick,
            tolerance: args.tolerance,
            ..CallResults::default()
        },
        calls_kept,
        found: CapacityResults {
            measured: found_measured,
            quick: args.quick,
            tolerance: args.tolerance,
            ..found_kept.unwrap_or_default()
        },
        done: Vec::new(),
    };
    let mut failed = Vec::new();
    for measure in only {
        writeln!(std::io::stderr(), "{measure:?} ...")?;
        // What others took an hour to find is not lost with it.
        if let Err(error) = survey.replace(measure, Survey::measure) {
            tell(&error);
            failed.push(format!("{measure:?}"));
        }
        survey.write()?;
    }
    write!(
        std::io::stdout().lock(),
        "{}{}{}",
        survey.calls.table(),
        survey.found.table(),
        capacity_parts::told(&survey.found, &survey.done).unwrap_or_default()
    )?;
    ensure!(
        failed.is_empty(),
        "{} failed, for the reasons above; the others' results are complete",
        failed.join(", ")
    );
    Ok(())
}

/// Files in --results that have something that is not measured now: `calls.json` and `capacity.json`.
fn kept(
    args: &CapacityArgs,
    measured: &Measured,
) -> anyhow::Result<(Option<Value>, Option<CapacityResults>)> {
    let (Some(folder), false) = (&args.results, args.only.is_empty()) else {
        return Ok((None, None));
    };
    let only = &args.only;
    let path = |name: &str, is_of: fn(Measure) -> bool| {
        let adds = only.iter().any(|measure| is_of(*measure));
        adds.then(|| folder.join(name))
    };
    let calls = match path("calls.json", Measure::is_of_calls) {
        Some(path) => parts::earlier(&path, measured, args.quick, |file: &Value| {
            capacity_parts::is_any_call(&capacity_parts::of_calls(file.clone(), only))
        })?,
        None => None,
    };
    let found = match path("capacity.json", Measure::is_of_capacity) {
        Some(path) => parts::earlier(&path, measured, args.quick, |file: &CapacityResults| {
            capacity_parts::is_something(&capacity_parts::of_capacity(file.clone(), only))
        })?,
        None => None,
    };
    let limits = serde_json::to_value(args.tolerance)?;
    let calls_limits = calls.as_ref().map(|file| &file["tolerance"]);
    let found_limits = found.as_ref().map(|file| file.tolerance);
    ensure!(
        calls_limits.is_none_or(|of_file| *of_file == limits)
            && found_limits.is_none_or(|of_file| of_file == args.tolerance),
        "--only: what is in {} had to keep to other limits; --results names another folder",
        folder.display()
    );
    Ok((calls, found))
}

impl Survey<'_> {
    /// Measures, and puts what is found in the place of what an earlier run has of it, which stays when that fails.
    ///
    /// # Errors
    /// What the results say of it then.
    fn replace(
        &mut self,
        measure: Measure,
        how: impl FnOnce(&mut Self, Measure) -> anyhow::Result<()>,
    ) -> Result<(), String> {
        let earlier = self.found.clone();
        self.found = capacity_parts::without(earlier.clone(), measure);
        let Err(error) = how(self, measure) else {
            let kept = self.calls_kept.take();
            self.calls_kept = kept.map(|file| capacity_parts::of_calls(file, &[measure]));
            self.done.push(measure);
            return Ok(());
        };
        let begins = capacity_parts::failed(measure);
        let mut words = format!("{begins}: {error:#}.");
        if capacity_parts::has(&earlier, measure) {
            words.push_str(" What is here of it was measured earlier.");
            self.found = earlier;
        }
        self.found.notes.retain(|note| !note.starts_with(&begins));
        self.found.notes.push(words.clone());
        Err(words)
    }

    fn measure(&mut self, measure: Measure) -> anyhow::Result<()> {
        match measure {
            Measure::Passthrough => self.search(Service::Transceiver, Work::Passthrough),
            Measure::Transcoding => self.search(Service::Transceiver, Work::Transcoding),
            Measure::Echo => self.search(Service::Transceiver, Work::Echo),
            Measure::Relay => {
                let carried = alone::relay(&self.alone(), tell_tried)?;
                self.found.carried.push(carried);
                Ok(())
            }
            Measure::Signaling => {
                let carried = alone::signaling(&self.alone(), tell_tried)?;
                self.found.carried.push(carried);
                Ok(())
            }
            Measure::Whole => {
                self.most(Work::Passthrough)?;
                self.most(Work::Transcoding)?;
                Ok(())
            }
            Measure::Costs => self.costs(),
            Measure::Targets => self.targets(),
            Measure::Memory => self.memory(),
            Measure::Churn => self.churn(),
        }
    }

    fn search(&mut self, service: Service, work: Work) -> anyhow::Result<()> {
        let plan = CapacityPlan {
            bench: self.bench.clone(),
            tolerance: self.args.tolerance,
            counted: self.effort.counted,
            steps: self.effort.steps,
            again: self.effort.again,
            profile: !self.args.no_profile && service == Service::Transceiver,
        };
        tell(&results::head());
        let found = capacity::search(&plan, service, work, |step| tell(&results::line(step)))?;
        self.found.carried.push((&found).into());
        // That file is of a worker alone; how all programs together did is in the other.
        if service == Service::Transceiver {
            self.calls.capacity.push(found);
        }
        Ok(())
    }

    /// The most calls that all programs on one processor carry; searched for where that has not been done.
    fn most(&mut self, work: Work) -> anyhow::Result<u32> {
        if self.found.per_core("all", work.name()).is_none() {
            self.search(Service::All, work)?;
        }
        let most = self.found.per_core("all", work.name()).unwrap_or_default();
        if most > 0.0 {
            return Ok(most as u32);
        }
        let few = work.few() / 4;
        let words = format!(
            "{NONE_KEPT} of {} kept to the limits; costs and comparisons are of {few} and fewer.",
            work.name()
        );
        if !self.found.notes.contains(&words) {
            self.found.notes.push(words);
        }
        Ok(few)
    }

    fn alone(&self) -> AlonePlan {
        AlonePlan {
            bench: self.bench.clone(),
            tolerance: self.args.tolerance,
            counted: self.effort.counted,
            steps: self.effort.steps,
        }
    }

    fn costs(&mut self) -> anyhow::Result<()> {
        let mut calls = vec![(Work::Silent, self.effort.silent.to_vec())];
        for work in [Work::Passthrough, Work::Transcoding] {
            let most = self.most(work)?;
            self.found
                .notes
                .extend(self.found.short_of_a_thousand(work.name(), most));
            let mut sizes = costs::sizes(most);
            if self.args.quick {
                // Two make a line.
                sizes = vec![sizes[0] / 2, sizes[0]];
            }
            calls.push((work, sizes));
        }
        let plan = CostPlan {
            bench: self.bench.clone(),
            counted: self.effort.cost_counted,
            calls,
            rates: self.effort.rates.to_vec(),
        };
        let measured = costs::measure(&plan, |kind, size, report| {
            tell_report(&format!("{kind:?} {size:.0}"), report);
        })?;
        self.found.costs = measured.costs;
        self.found.notes.extend(measured.notes);
        Ok(())
    }

    fn targets(&mut self) -> anyhow::Result<()> {
        let passthrough = self.most(Work::Passthrough)?;
        let transcoding = self.most(Work::Transcoding)?;
        let share = |of: u32, percent: u32| (of * percent / 100).max(1);
        let plan = ComparisonPlan {
            bench: self.bench.clone(),
            counted: self.effort.cost_counted,
            passes: self.effort.passes,
        };
        let targets = &mut self.found.targets;
        targets.extend(comparison::relay_against_direct(
            &plan,
            share(passthrough, 50),
            tell_report,
        )?);
        for (work, most) in [
            (Work::Passthrough, passthrough),
            (Work::Transcoding, transcoding),
        ] {
            let calls = share(most, 70);
            targets.push(comparison::gaps(&plan, work, calls, tell_report)?);
        }
        match janus::program().and_then(|_| janus::own_address()) {
            Ok(_) => {
                let calls = self.args.janus_calls.min(share(passthrough, 70));
                targets.extend(beside_janus::measure(&plan, calls, tell_report)?);
            }
            Err(error) => self.found.notes.push(format!("{WITHOUT_JANUS}: {error}.")),
        }
        Ok(())
    }

    fn memory(&mut self) -> anyhow::Result<()> {
        let sessions = self.effort.sessions;
        let plan = MemoryPlan {
            programs: self.bench.programs.clone(),
            directory: self.bench.directory.clone(),
            processor: self.bench.processor,
            sessions,
        };
        self.calls.memory = Some(memory::transceiver(&plan, engine_bytes(sessions)?)?);
        Ok(())
    }

    fn churn(&mut self) -> anyhow::Result<()> {
        let stack = Stack::start(StackPlan {
            programs: self.bench.programs.clone(),
            directory: self.bench.directory.clone(),
            number: 22,
            processor: self.bench.processor,
            backend: Backend::Echo,
            whole: true,
        })?;
        let (warm, calls) = self.effort.churn;
        let plan = ChurnPlan {
            warm,
            calls,
            ramp: 100.0,
            hold: Duration::from_millis(1_500),
            silent: false,
            ending: self.effort.ending,
        };
        self.calls.churn = Some(churn::run(&stack, &plan)?);
        Ok(())
    }

    /// Writes the files that have something in them.
    fn write(&self) -> anyhow::Result<()> {
        let Some(folder) = &self.args.results else {
            return Ok(());
        };
        fs::create_dir_all(folder).with_context(|| format!("--results {}", folder.display()))?;
        let write = |name: &str, json: String| {
            let path = folder.join(name);
            fs::write(&path, json + "\n").with_context(|| format!("{}", path.display()))
        };
        let (calls, found) = (&self.calls, &self.found);
        if !calls.capacity.is_empty() || calls.memory.is_some() || calls.churn.is_some() {
            let json = match &self.calls_kept {
                Some(kept) => serde_json::to_string_pretty(&capacity_parts::beside(
                    serde_json::to_value(calls)?,
                    kept,
                ))?,
                None => serde_json::to_string_pretty(calls)?,
            };
            write("calls.json", json)?;
        }
        if !found.carried.is_empty() {
            write("capacity.json", serde_json::to_string_pretty(found)?)?;
        }
        Ok(())
    }
}

/// Says how far it is; that nobody can read it stops nothing.
fn tell(words: &str) {
    let _ = writeln!(std::io::stderr(), "{words}");
}

fn tell_tried(tried: &Tried) {
    let figures: Vec<String> = tried
        .figures
        .iter()
        .map(|(name, figure)| format!("{name} {figure:.3}"))
        .collect();
    let beyond = tried.beyond.as_deref().unwrap_or("");
    tell(&format!(
        "{:>7.0}  {}  {beyond}",
        tried.load,
        figures.join("  ")
    ));
}

fn tell_report(what: &str, report: &CallReport) {
    let used: Vec<String> = report
        .watched
        .iter()
        .map(|one| format!("{} {:.0}", one.name, one.micros_per_call_second))
        .collect();
    tell(&format!(
        "{what:<44}{:>6} calls, {} failed, {} gaps; µs per call and second: {}",
        report.calls,
        report.failed(),
        report.gaps,
        used.join(", ")
    ));
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

#[cfg(test)]
mod tests;
