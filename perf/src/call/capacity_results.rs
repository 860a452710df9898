//! What `perf capacity` writes to `capacity.json`: how many calls each service carries, what they cost, and what the project asks of itself.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use super::capacity::Capacity;
use super::comparison::left_out;
use super::cost::{Cost, Kind};
use super::handled::Handled;
use super::tolerance::Tolerance;
use super::trial::Service;
use crate::findings::or_none;
use crate::measured::Measured;

/// Everything in the file.
#[derive(Clone, Default, PartialEq, Debug, Serialize, Deserialize)]
pub struct CapacityResults {
    /// Where, of what and when.
    #[serde(flatten)]
    pub measured: Measured,
    /// Whether it was the short form.
    pub quick: bool,
    /// What calls had to keep to.
    pub tolerance: Tolerance,
    /// The most calls, by service and work.
    pub carried: Vec<Carried>,
    /// What calls and set-ups cost, by program and kind of load.
    pub costs: Vec<Cost>,
    /// What the project asks of itself, beside what was found.
    pub targets: Vec<Target>,
    /// What could not be measured, or not as one would like, and why.
    pub notes: Vec<String>,
}

/// How many calls a service carries on one processor.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Carried {
    /// `transceiver`, `relay`, `signaling`, or `all` of them on one processor.
    pub service: String,
    /// What it does for each: `passthrough`, `transcoding`, `echo`, `forwarding` or `set_up`.
    pub work: String,
    /// The most that went well: calls at once, or set-ups a second where the work is `set_up`.
    pub per_core: f64,
    /// What gave first when there were more; nothing when the search ended before something did.
    pub gives_first: Option<String>,
    /// Processor time of all programs in it per call and second, or per set-up, in microseconds, at that number; no number where it was not
    /// measured.
    #[serde(deserialize_with = "or_none")]
    pub micros: f64,
    /// Memory of all programs in it per call, in bytes; nothing where calls do not stay.
    pub bytes_per_call: Option<f64>,
    /// Everything that was tried, in order.
    pub tried: Vec<Tried>,
}

/// One size that was tried.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Tried {
    /// Calls, or set-ups a second.
    pub load: f64,
    /// What was beyond its limit, if anything.
    pub beyond: Option<String>,
    /// What was measured, by name and unit.
    pub figures: BTreeMap<String, f64>,
}

impl Tried {
    /// Puts figures under their names; those that are no numbers are left out.
    #[must_use]
    pub fn of<const N: usize>(load: u32, beyond: Option<&str>, figures: [(&str, f64); N]) -> Self {
        let figures = figures.into_iter().filter(|(_, figure)| figure.is_finite());
        Self {
            load: load.into(),
            beyond: beyond.map(str::to_owned),
            figures: figures
                .map(|(name, figure)| (name.to_owned(), figure))
                .collect(),
        }
    }
}

/// What the project asks of itself.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Target {
    /// What is compared.
    pub name: String,
    /// What was found: the median over the passes; nothing when it could not be measured.
    pub found: Option<f64>,
    /// At most.
    pub must: f64,
    /// Whether it was met; nothing when it could not be measured.
    pub met: Option<bool>,
    /// What each side did, and at what load.
    pub how: String,
    /// What each pass found.
    pub passes: Vec<f64>,
    /// Why nothing was found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing: Option<String>,
    /// Where the time goes that was compared, if it was processor time: medians over the passes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub handled: Vec<Handled>,
}

impl Carried {
    /// Whether there may be more: the search ended, or the clients gave first.
    #[must_use]
    pub fn is_open(&self) -> bool {
        matches!(self.gives_first.as_deref(), None | Some("the generator"))
    }
}

impl Target {
    /// Holds what was found against what is asked, at most. Passes that are no numbers are left out.
    #[must_use]
    pub fn of(
        name: &str,
        found: Option<f64>,
        must: f64,
        mut passes: Vec<f64>,
        how: String,
    ) -> Self {
        passes.retain(|pass| pass.is_finite());
        Self {
            name: name.to_owned(),
            found,
            must,
            met: found.map(|found| found <= must),
            how,
            passes,
            missing: None,
            handled: Vec::new(),
        }
    }

    /// Says which passes are left out, by why each is, if any are.
    #[must_use]
    pub fn left_out(mut self, why: &[String]) -> Self {
        if self.found.is_none() && !why.is_empty() {
            self.missing = Some(format!("no pass counts: {}", why.join("; ")));
        }
        self.how += &left_out(why);
        self
    }

    /// Says where the time goes.
    #[must_use]
    pub fn with(mut self, handled: Vec<Handled>) -> Self {
        self.handled = handled;
        self
    }
}

impl From<&Capacity> for Carried {
    fn from(found: &Capacity) -> Self {
        let best = found.best();
        let tried = found.steps.iter().map(|step| {
            let programs = step.programs.iter();
            let mut tried = Tried::of(
                step.calls,
                step.beyond,
                [
                    (
                        "mouth_to_ear_p99_ms",
                        step.mouth_to_ear_p99_ms.unwrap_or(f64::NAN),
                    ),
                    ("set_up_p99_ms", step.set_up_p99_ms.unwrap_or(f64::NAN)),
                    ("lateness_p99_ms", step.lateness_p99_ms),
                    ("gaps", step.gaps as f64),
                    ("lost", step.lost),
                    ("failed", step.failed as f64),
                    ("busy", step.busy),
                    ("generator_busy", step.generator_busy),
                ],
            );
            tried
                .figures
                .extend(programs.map(|used| (format!("{}_busy", used.name), used.busy)));
            tried
        });
        Self {
            service: match found.service {
                Service::Transceiver => "transceiver",
                Service::All => "all",
            }
            .to_owned(),
            work: found.work.name().to_owned(),
            per_core: found.calls.into(),
            gives_first: found.limit.map(str::to_owned),
            micros: best.map_or(found.micros_per_call_second, |best| {
                best.micros_per_call_second
            }),
            bytes_per_call: best.map(|best| best.bytes_per_call),
            tried: tried.collect(),
        }
    }
}

impl CapacityResults {
    /// The most calls, or set-ups a second, that a service carries with a kind of work, if that was measured.
    #[must_use]
    pub fn per_core(&self, service: &str, work: &str) -> Option<f64> {
        let mut carried = self.carried.iter();
        let found = carried.find(|one| one.service == service && one.work == work);
        found.map(|found| found.per_core)
    }

    /// What to say where fewer than 1,000 calls were measured of a kind of work, since `most` went well on one processor; nothing where more did.
    #[must_use]
    pub fn short_of_a_thousand(&self, work: &str, most: u32) -> Option<String> {
        let mut carried = self.carried.iter();
        let whole = carried.find(|one| one.service == "all" && one.work == work)?;
        if most > 1_000 || whole.per_core == 0.0 {
            return None;
        }
        let fit = if whole.is_open() {
            format!("At least {most} calls of {work} fit on one core, and no more were tried")
        } else {
            format!("1,000 calls of {work} do not fit on one core, {most} do")
        };
        Some(format!(
            "{fit}: what 1,000 calls cost was measured of silent ones alone."
        ))
    }

    /// The results as tables for people.
    #[must_use]
    pub fn table(&self) -> String {
        let mut out = String::new();
        // Writing to a string cannot fail.
        let _ = self.write(&mut out);
        out
    }

    fn write(&self, out: &mut String) -> std::fmt::Result {
        if !self.carried.is_empty() {
            write!(out, "\n{}", self.tolerance)?;
            writeln!(
                out,
                "\n{:<14}{:<14}{:>12}{:>14}{:>12}  gives first",
                "on one core", "work", "the most", "µs for each", "KiB each"
            )?;
        }
        for one in &self.carried {
            let bytes = one
                .bytes_per_call
                .map(|bytes| format!("{:.0}", bytes / 1_024.0));
            writeln!(
                out,
                "{:<14}{:<14}{:>12.0}{:>14.0}{:>12}  {}",
                one.service,
                one.work,
                one.per_core,
                one.micros,
                bytes.as_deref().unwrap_or("-"),
                one.gives_first.as_deref().unwrap_or("the number of steps")
            )?;
        }
        if !self.costs.is_empty() {
            writeln!(
                out,
                "\n{:<16}{:<14}{:>12}{:>12}{:>12}{:>14}{:>12}  sizes: above the line by",
                "processor time",
                "load",
                "µs/s fixed",
                "µs/s each",
                "explained",
                "KiB fixed",
                "KiB each"
            )?;
        }
        for cost in &self.costs {
            let sizes: Vec<String> = cost
                .samples
                .iter()
                .zip(&cost.processor.residuals)
                .map(|(sample, residual)| {
                    let share = 100.0 * residual / sample.micros_per_second.max(1.0);
                    format!("{:.0}: {share:+.1} %", sample.load)
                })
                .collect();
            writeln!(
                out,
                "{:<16}{:<14}{:>12.0}{:>12.1}{:>12.4}{:>14.0}{:>12.1}  {}",
                cost.program.name(),
                match cost.kind {
                    Kind::Silent => "silent",
                    Kind::Passthrough => "passthrough",
                    Kind::Transcoding => "transcoding",
                    Kind::SetUps => "set-ups",
                },
                cost.processor.fixed,
                cost.processor.each,
                cost.processor.explained,
                cost.memory.fixed / 1_024.0,
                cost.memory.each / 1_024.0,
                sizes.join(", ")
            )?;
        }
        if !self.targets.is_empty() {
            writeln!(
                out,
                "\n{:<44}{:>10}{:>10}",
                "asked of itself", "found", "at most"
            )?;
        }
        for target in &self.targets {
            let found = target.found.map(|found| format!("{found:.3}"));
            writeln!(
                out,
                "{:<44}{:>10}{:>10}  {}\n  {}",
                target.name,
                found.as_deref().unwrap_or("-"),
                target.must,
                match target.met {
                    Some(true) => "met",
                    Some(false) => "missed",
                    None => "not measured",
                },
                target.how
            )?;
            for handled in &target.handled {
                writeln!(out, "  {handled}")?;
            }
        }
        for note in &self.notes {
            writeln!(out, "{note}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::cost::{Kind, Program, Sample};
    use super::*;

    #[test]
    fn calls_that_were_not_tried_are_not_said_not_to_fit() {
        let found = |per_core, gives_first: Option<&str>| CapacityResults {
            carried: vec![Carried {
                service: "all".to_owned(),
                work: "passthrough".to_owned(),
                per_core,
                gives_first: gives_first.map(str::to_owned),
                micros: 2_900.0,
                bytes_per_call: None,
                tried: Vec::new(),
            }],
            ..CapacityResults::default()
        };
        let note = |per_core, gives_first| {
            let found = found(per_core, gives_first);
            found.short_of_a_thousand("passthrough", per_core as u32)
        };
        for ended in [None, Some("the generator")] {
            let words = note(60.0, ended).expect("a note");
            assert!(
                words.starts_with("At least 60 calls of passthrough fit on one core"),
                "{words}"
            );
        }
        let words = note(587.0, Some("gaps")).expect("a note");
        assert!(
            words.starts_with("1,000 calls of passthrough do not fit on one core, 587 do"),
            "{words}"
        );
        assert_eq!(note(1_200.0, None), None);
        assert_eq!(note(0.0, Some("gaps")), None);
    }

    #[test]
    fn a_target_of_which_nothing_was_found_says_why_no_pass_counts() {
        let target = |found, failed: &[&str]| {
            let failed: Vec<String> = failed.iter().map(|&words| words.to_owned()).collect();
            Target::of("ratio", found, 0.5, Vec::new(), "as it is".to_owned()).left_out(&failed)
        };
        assert_eq!(target(Some(0.7), &[]).how, "as it is");
        let some = target(Some(0.7), &["janus: 1 of 42 calls failed"]);
        assert_eq!(
            some.how,
            "as it is; 1 pass is left out (janus: 1 of 42 calls failed)"
        );
        assert_eq!(some.missing, None);
        let none = target(None, &["janus: 1 of 42 calls failed"]);
        assert_eq!(
            none.missing.as_deref(),
            Some("no pass counts: janus: 1 of 42 calls failed")
        );
        // Where no call failed, none is said to have.
        let silent = target(None, &["too little was heard to tell"; 2]);
        assert_eq!(
            silent.missing.as_deref(),
            Some("no pass counts: too little was heard to tell; too little was heard to tell")
        );
        assert!(
            silent.how.starts_with("as it is; 2 passes are left out (")
                && !silent.how.contains("failed"),
            "{}",
            silent.how
        );
        let text = serde_json::to_string(&none).expect("JSON");
        assert_eq!(serde_json::from_str::<Target>(&text).expect("read"), none);
    }

    #[test]
    fn results_are_read_back_as_they_were_written_and_shown_in_tables() {
        let sample = |load: f64, micros_per_second: f64| Sample {
            load,
            micros_per_second,
            resident_bytes: 2e6,
        };
        let samples = vec![sample(10.0, 1_100.0), sample(100.0, 2_000.0)];
        let results = CapacityResults {
            carried: vec![Carried {
                service: "all".to_owned(),
                work: "passthrough".to_owned(),
                per_core: 300.0,
                gives_first: Some("gaps".to_owned()),
                micros: 2_900.0,
                bytes_per_call: Some(2e5),
                tried: vec![Tried::of(
                    400,
                    Some("gaps"),
                    [("busy", 0.99), ("none", f64::NAN)],
                )],
            }],
            costs: Cost::of(Program::Relay, Kind::Passthrough, samples)
                .into_iter()
                .collect(),
            targets: vec![
                Target::of(
                    "server_time_vs_janus",
                    Some(0.7),
                    0.5,
                    vec![0.7, f64::NAN],
                    "as it is".to_owned(),
                )
                .with(vec![Handled {
                    program: "relay".to_owned(),
                    micros: 312.0,
                    counts: vec![("system calls".to_owned(), 40.0)],
                }]),
            ],
            notes: vec!["1,000 calls did not fit".to_owned()],
            ..CapacityResults::default()
        };
        assert_eq!(results.per_core("all", "passthrough"), Some(300.0));
        assert_eq!(results.per_core("relay", "passthrough"), None);
        assert_eq!(results.targets[0].passes, [0.7]);
        assert_eq!(results.carried[0].tried[0].figures.len(), 1);
        let text = serde_json::to_string(&results).expect("JSON");
        let read: CapacityResults = serde_json::from_str(&text).expect("read");
        assert_eq!(read, results);
        // As files were before they said where the time goes.
        let text = text.replace("\"handled\"", "\"other\"");
        let read: CapacityResults = serde_json::from_str(&text).expect("read");
        assert_eq!(read.targets[0].handled, []);
        let table = results.table();
        for part in [
            "mouth-to-ear 200 ms",
            "300",
            "gaps",
            "10.0",
            "missed",
            "relay 312 µs per call and second, for 40.0 system calls",
            "1,000 calls did not fit",
        ] {
            assert!(table.contains(part), "{part}: {table}");
        }
    }
}
