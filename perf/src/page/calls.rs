//! How many calls a transceiver carries on a core, and what a session holds.

use std::collections::BTreeMap;

use maud::{Markup, html};
use serde::Deserialize;

use super::chart::{
    Axis, Bar, Drawn, Figure, Legend, Limit, Part, Scale, Series, Table, bars, lines, stacks,
};
use super::churn::Churn;
use super::figures::{grouped, millis, number, percent};
use super::metric::{Better, Metric, Unit, counted};
use crate::call::results::{BEYOND_ENGINE, WANTED_SHARE};
use crate::call::tolerance::Tolerance;
use crate::findings::{FindingsError, Source, or_none};

/// Of a file of whole calls, what the page shows.
#[derive(Deserialize)]
struct Calls {
    /// Older files do not have it.
    tolerance: Option<Tolerance>,
    #[serde(default)]
    capacity: Vec<Capacity>,
    memory: Option<Memory>,
    churn: Option<Churn>,
}

#[derive(Deserialize)]
struct Capacity {
    /// `transceiver` alone, or `all` programs on one core. Older files have the first only, and do not say so.
    #[serde(default = "alone")]
    service: String,
    work: String,
    calls: f64,
    limit: Option<String>,
    #[serde(default)]
    steps: Vec<Step>,
    profile: Option<Profile>,
}

fn alone() -> String {
    "transceiver".to_owned()
}

#[derive(Deserialize)]
struct Step {
    calls: f64,
    #[serde(deserialize_with = "or_none")]
    lateness_p99_ms: f64,
    #[serde(deserialize_with = "or_none")]
    micros_per_call_second: f64,
    #[serde(deserialize_with = "or_none")]
    busy: f64,
}

#[derive(Deserialize)]
struct Profile {
    shares: BTreeMap<String, f64>,
}

#[derive(Deserialize)]
struct Memory {
    sessions: f64,
    bytes_per_session: f64,
    engine_bytes: f64,
}

/// A frame, in milliseconds: what lateness is shown against where a file has no limit.
const FRAME_MS: f64 = 20.0;

/// Parts of a profile in the order of their colours; the first three are what a call needs whoever carries it.
const PARTS: [(&str, &str); 6] = [
    ("kernel", "kernel"),
    ("srtp", "SRTP"),
    ("opus", "Opus"),
    ("engine", "WebRTC engine"),
    ("firsthop", "Firsthop"),
    ("other", "the rest"),
];

impl Capacity {
    /// The work as people call it.
    fn name(&self) -> String {
        let work = match self.work.as_str() {
            "passthrough" => "G.711 passed through",
            "transcoding" => "Opus decoded and encoded",
            "echo" => "Echo, with its voice detector",
            other => other,
        };
        if self.is_alone() {
            work.to_owned()
        } else {
            format!("{work}, all programs on the core")
        }
    }

    fn is_alone(&self) -> bool {
        self.service == alone()
    }

    /// The last step that went well: what a call costs when the core carries as many as it can.
    fn full(&self) -> Option<&Step> {
        self.steps.iter().find(|step| step.calls == self.calls)
    }
}

impl Profile {
    /// In the order of [`PARTS`]; what has no part of its own there is the rest.
    fn parts(&self) -> [f64; PARTS.len()] {
        let mut parts = [0.0; PARTS.len()];
        for (name, share) in &self.shares {
            let at = PARTS.iter().position(|(part, _)| part == name);
            parts[at.unwrap_or(PARTS.len() - 1)] += share;
        }
        parts
    }

    fn wanted(&self) -> f64 {
        self.parts()[..3].iter().sum()
    }
}

/// Its figures.
pub(super) fn metrics(source: &Source) -> Result<Vec<Metric>, FindingsError> {
    let calls: Calls = source.read()?;
    let mut metrics = Vec::new();
    for found in calls.capacity.iter().filter(|one| one.is_alone()) {
        let work = &found.work;
        let what = format!("Calls on one core of a transceiver: {}", found.name());
        let count = Metric::new(
            &format!("{work}_calls"),
            &what,
            found.calls,
            Unit::Count,
            Better::Higher,
        )
        .open(found.limit.is_none());
        metrics.push(if work == "echo" {
            count
        } else {
            count.headline()
        });
        if let Some(step) = found.full() {
            let what = format!("Time of such a call in a second: {}", found.name());
            let value = step.micros_per_call_second / 1e3;
            metrics.push(Metric::new(
                &format!("{work}_millis"),
                &what,
                value,
                Unit::Millis,
                Better::Lower,
            ));
        }
        if let Some(profile) = &found.profile {
            let what = format!(
                "Share of SRTP, Opus and the kernel in a call's time: {}",
                found.name()
            );
            metrics.push(
                Metric::new(
                    &format!("{work}_wanted"),
                    &what,
                    profile.wanted(),
                    Unit::Share,
                    Better::Higher,
                )
                .target(WANTED_SHARE.0, Some(WANTED_SHARE.1)),
            );
        }
    }
    if let Some(memory) = &calls.memory {
        let beyond = memory.bytes_per_session - memory.engine_bytes;
        metrics.push(
            Metric::new(
                "beyond_engine",
                "Memory of a silent session beyond the WebRTC engine's",
                beyond,
                Unit::Bytes,
                Better::Lower,
            )
            .target(BEYOND_ENGINE.0, Some(BEYOND_ENGINE.1))
            .headline(),
        );
    }
    metrics.extend(calls.churn.as_ref().map(Churn::metric));
    Ok(metrics)
}

/// Its charts and tables.
pub(super) fn body(source: &Source) -> Result<Markup, FindingsError> {
    let calls: Calls = source.read()?;
    Ok(html! {
        p {
            "Calls with ICE, DTLS and SRTP of their own, on one transceiver worker with a processor to itself. Clients and model server have the other. What a number of "
            "calls has to keep to so that it counts as carried: "
            @match &calls.tolerance {
                Some(tolerance) => { (kept(tolerance)) }
                None => { "this file is older, and does not say." }
            }
        }
        div.figures {
            (capacity(&calls.capacity))
            (lateness(&calls.capacity, calls.tolerance.as_ref()))
            (profiles(&calls.capacity))
            @if let Some(memory) = &calls.memory { (memory_of(memory)) }
            @if let Some(churn) = &calls.churn { (churn.set_up()) }
        }
        @if let Some(churn) = &calls.churn { (churn.left_over()) }
    })
}

fn capacity(found: &[Capacity]) -> Markup {
    if found.is_empty() {
        return html! {};
    }
    let mut table = Table::new([
        "Work",
        "calls on a core",
        "ms of a call in a second",
        "what kept more from it",
    ]);
    let mut rows = Vec::new();
    for one in found {
        let millis = one.full().map_or_else(String::new, |step| {
            number(step.micros_per_call_second / 1e3)
        });
        let limit = one
            .limit
            .as_deref()
            .unwrap_or("the search ended")
            .replace('_', " ");
        let calls = counted(&grouped(one.calls), one.limit.is_none());
        table.row([one.name(), calls, millis, limit]);
        rows.push(Bar {
            name: one.name(),
            value: one.calls,
            figure: format!(
                "{} calls",
                counted(&grouped(one.calls), one.limit.is_none())
            ),
            ours: true,
        });
    }
    Figure {
        title: "Calls on one core",
        says: "The most that went well, by what has to be done for each.",
        legend: Legend::None,
        drawing: bars(&rows, None),
        table,
    }
    .markup()
}

/// The limits that hold for calls.
fn kept(tolerance: &Tolerance) -> String {
    let Tolerance {
        mouth_to_ear_p99_ms,
        lateness_p99_ms,
        set_up_p99_ms,
        answer_p99_ms: _,
        gaps_per_hundred,
        lost,
        failed,
    } = tolerance;
    format!(
        "mouth-to-ear delay of {} where callers hear themselves, lateness of {} and set-up of {} (99th percentiles), {} above 60 ms in a hundred calls, \
         {} of packets lost, and {} of calls failed, at most.",
        millis(*mouth_to_ear_p99_ms),
        millis(*lateness_p99_ms),
        millis(*set_up_p99_ms),
        if *gaps_per_hundred == 1.0 {
            "1 gap".to_owned()
        } else {
            format!("{} gaps", number(*gaps_per_hundred))
        },
        percent(*lost),
        percent(*failed)
    )
}

fn lateness(found: &[Capacity], tolerance: Option<&Tolerance>) -> Markup {
    let mut series = Vec::new();
    let mut legend = Vec::new();
    let mut table = Table::new(["Work", "calls", "late, p99", "busy"]);
    for one in found.iter().filter(|one| !one.steps.is_empty()) {
        let mut points: Vec<(f64, f64)> = one
            .steps
            .iter()
            .map(|step| (step.calls, step.lateness_p99_ms))
            .collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        for step in &one.steps {
            table.row([
                one.name(),
                grouped(step.calls),
                millis(step.lateness_p99_ms),
                percent(step.busy),
            ]);
        }
        series.push(Series {
            points,
            look: series.len(),
            drawn: Drawn::Joined,
        });
        legend.push(one.name());
    }
    if series.is_empty() {
        return html! {};
    }
    let limit = tolerance.map_or_else(
        || Limit {
            name: format!("a frame: {}", millis(FRAME_MS)),
            value: FRAME_MS,
        },
        |tolerance| Limit {
            name: format!("the limit: {}", millis(tolerance.lateness_p99_ms)),
            value: tolerance.lateness_p99_ms,
        },
    );
    Figure {
        title: "How late, against how many",
        says: "What a client's jitter buffer would have to hold, the 99th percentile, in every step of the search.",
        legend: Legend::Marks(legend),
        drawing: lines(
            &series,
            &Axis::new("calls", Scale::Logarithmic),
            &Axis::new("ms late", Scale::Logarithmic),
            Some(&limit),
        ),
        table,
    }
    .markup()
}

fn profiles(found: &[Capacity]) -> Markup {
    let names = PARTS.map(|(_, name)| name);
    let mut table = Table::new([
        "Work", names[0], names[1], names[2], names[3], names[4], names[5],
    ]);
    let mut rows = Vec::new();
    for one in found {
        let Some(profile) = &one.profile else {
            continue;
        };
        let parts = profile.parts();
        let mut row = vec![one.name()];
        row.extend(parts.map(percent));
        table.rows.push(row);
        let parts = parts.into_iter().enumerate();
        rows.push((
            one.name(),
            percent(profile.wanted()),
            parts
                .map(|(series, value)| Part { series, value })
                .collect(),
        ));
    }
    if rows.is_empty() {
        return html! {};
    }
    Figure {
        title: "Where a call's time goes",
        says: "The figure is the share of kernel, SRTP and Opus together, which whoever carries calls has to pay.",
        legend: Legend::Colours(names.map(str::to_owned).to_vec()),
        drawing: stacks(&rows),
        table,
    }
    .markup()
}

fn memory_of(memory: &Memory) -> Markup {
    let beyond = memory.bytes_per_session - memory.engine_bytes;
    let kib = |bytes: f64| format!("{} KiB", number(bytes / 1_024.0));
    let mut table = Table::new(["Part", "per session"]);
    table.row(["the WebRTC engine".to_owned(), kib(memory.engine_bytes)]);
    table.row(["the rest of the session".to_owned(), kib(beyond)]);
    let parts = [memory.engine_bytes, beyond].into_iter().enumerate();
    let parts = parts
        .map(|(series, value)| Part { series, value })
        .collect();
    Figure {
        title: "Memory of a silent session",
        says: &format!(
            "The growth of the process over {} live calls, and of a process of engines alone.",
            grouped(memory.sessions)
        ),
        legend: Legend::Colours(vec![
            "the WebRTC engine".to_owned(),
            "the rest of the session".to_owned(),
        ]),
        drawing: stacks(&[("a session".to_owned(), kib(memory.bytes_per_session), parts)]),
        table,
    }
    .markup()
}
