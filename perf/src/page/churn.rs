//! What short calls show that come and go: set-up meanwhile, and what they leave behind.

use std::collections::BTreeMap;

use maud::{Markup, html};
use serde::Deserialize;

use super::chart::{COLUMNS, Delays, Quantiles, Table};
use super::figures::{grouped, number};
use super::metric::{Better, Metric, Unit};
use crate::findings::or_none;

/// Many short calls.
#[derive(Deserialize)]
pub(super) struct Churn {
    report: Churned,
    programs: Vec<Program>,
    left: (f64, f64),
}

#[derive(Deserialize)]
struct Churned {
    calls: f64,
    connected: f64,
    ramp: f64,
    /// In milliseconds.
    #[serde(default)]
    set_up: BTreeMap<String, Quantiles>,
}

#[derive(Deserialize)]
struct Program {
    name: String,
    before: Usage,
    after: Usage,
    #[serde(deserialize_with = "or_none")]
    bytes_per_call: f64,
}

#[derive(Deserialize)]
struct Usage {
    descriptors: f64,
    threads: f64,
}

impl Churn {
    /// What was left over.
    pub(super) fn metric(&self) -> Metric {
        let left = self.left.0 + self.left.1;
        let what = format!(
            "Sessions and flows left over after {} short calls",
            grouped(self.report.calls)
        );
        Metric::new("left_over", &what, left, Unit::Count, Better::Lower).target(0.0, None)
    }

    /// How long set-up takes meanwhile.
    pub(super) fn set_up(&self) -> Markup {
        // The chart has those that count from the same moment.
        let phases = [
            ("answer", "answer, from the request", true),
            ("connected", "connected, from the answer", false),
            ("channel", "channel open, from the answer", false),
            ("first_audio", "first audio, from connected", false),
            ("total", "first audio, from the request", true),
        ];
        let [p50, p99, p999, max] = COLUMNS;
        let mut table = Table::new(["Until what, and from when", p50, p99, p999, max]);
        let mut lines = Vec::new();
        for (key, name, charted) in phases {
            let Some(quantiles) = self.report.set_up.get(key) else {
                continue;
            };
            let [p50, p99, p999, max] = quantiles.cells();
            table.row([name.to_owned(), p50, p99, p999, max]);
            if charted {
                lines.push((name.to_owned(), *quantiles));
            }
        }
        Delays {
            title: "Set-up while calls come and go",
            says: &format!(
                "{} short calls at {} a second, all programs on one core: how long after the request the answer and the first audio are there. The table has the phases in between, each counted from what it names.",
                grouped(self.report.calls),
                grouped(self.report.ramp)
            ),
            of: "calls",
            lines,
            table,
        }
        .markup()
    }

    /// What they leave behind.
    pub(super) fn left_over(&self) -> Markup {
        let signed = |now: f64, then: f64| match now - then {
            0.0 => "0".to_owned(),
            more => format!("{}{}", if more > 0.0 { "+" } else { "" }, number(more)),
        };
        let mut table = Table::new(["Program", "memory per call", "descriptors", "threads"]);
        for program in &self.programs {
            table.row([
                program.name.clone(),
                format!("{} bytes", grouped(program.bytes_per_call)),
                signed(program.after.descriptors, program.before.descriptors),
                signed(program.after.threads, program.before.threads),
            ]);
        }
        html! {
            h3 { "What short calls leave behind" }
            p {
                "Of " (grouped(self.report.calls)) " short calls " (grouped(self.report.connected)) " were connected. Afterwards "
                (grouped(self.left.0)) " sessions and " (grouped(self.left.1)) " flows were left; what each program had grown by:"
            }
            (table.markup("What short calls leave behind"))
        }
    }
}
