//! How many calls services carry, and what a call costs by how many there are.

use maud::{Markup, html};
use serde::Deserialize;

use super::chart::{Axis, Bar, Drawn, Figure, Legend, Scale, Series, Table, bars, lines};
use super::figures::{grouped, number, percent};
use super::metric::{Better, Metric, Unit, counted};
use crate::call::handled::Handled;
use crate::findings::cost::{Cost, Line};
use crate::findings::{FindingsError, Source, or_none};

/// Of a file of capacities, what the page shows.
#[derive(Deserialize)]
struct Capacity {
    #[serde(default)]
    carried: Vec<Carried>,
    #[serde(default)]
    costs: Vec<Cost>,
    #[serde(default)]
    targets: Vec<Asked>,
    #[serde(default)]
    notes: Vec<String>,
}

#[derive(Deserialize)]
struct Carried {
    service: String,
    work: String,
    per_core: f64,
    gives_first: Option<String>,
    #[serde(deserialize_with = "or_none")]
    micros: f64,
    bytes_per_call: Option<f64>,
}

#[derive(Deserialize)]
struct Asked {
    name: String,
    found: Option<f64>,
    must: f64,
    #[serde(default)]
    how: String,
    /// Why nothing was found; older files do not say.
    missing: Option<String>,
    #[serde(default)]
    handled: Vec<Handled>,
}

/// The works whose number is set-ups a second, not calls at once.
const SET_UP: &str = "set_up";

impl Carried {
    /// Whether there may be more: the search ended, or the clients gave first.
    fn is_open(&self) -> bool {
        matches!(self.gives_first.as_deref(), None | Some("the generator"))
    }

    fn name(&self) -> String {
        let service = match self.service.as_str() {
            "all" => "all programs on one core",
            service => service,
        };
        match self.work.as_str() {
            SET_UP => service.to_owned(),
            work => format!("{service}: {}", words(work)),
        }
    }
}

/// A name of a file as people write it.
fn words(name: &str) -> String {
    match name {
        "passthrough" => "G.711 passed through".to_owned(),
        "transcoding" => "Opus decoded and encoded".to_owned(),
        "silent" => "silent calls".to_owned(),
        "set_ups" => "set-ups".to_owned(),
        "set_up_median_relay_vs_direct" => {
            "set-up through the relay / direct, median, at half load, on loopback".to_owned()
        }
        "set_up_p99_relay_vs_direct" => {
            "set-up through the relay / direct, p99, at half load, on loopback".to_owned()
        }
        "mouth_to_ear_p99_added_by_relay_ms" => {
            "mouth-to-ear delay that the relay adds, p99".to_owned()
        }
        "server_time_vs_janus" => {
            "time of a call at relay and transceiver, to Janus's echo test".to_owned()
        }
        "server_time_vs_janus_own_audio" => {
            "the same, with every caller's own audio back".to_owned()
        }
        "gaps_at_70_percent_passthrough" => {
            "gaps above 60 ms at 70 % of what fits, G.711 passed through".to_owned()
        }
        "gaps_at_70_percent_transcoding" => {
            "gaps above 60 ms at 70 % of what fits, Opus decoded and encoded".to_owned()
        }
        other => other.replace('_', " "),
    }
}

/// Its figures.
pub(super) fn metrics(source: &Source) -> Result<Vec<Metric>, FindingsError> {
    let capacity: Capacity = source.read()?;
    let mut metrics = Vec::new();
    for asked in &capacity.targets {
        let what = sentence(&words(&asked.name));
        let unit = match asked.name.as_str() {
            name if name.ends_with("_ms") => Unit::Millis,
            name if name.contains("_vs_") => Unit::Ratio,
            _ => Unit::Count,
        };
        let metric = Metric::new(
            &asked.name,
            &what,
            asked.found.unwrap_or(f64::NAN),
            unit,
            Better::Lower,
        )
        .target(asked.must, None)
        .difference(asked.name.contains("_added_by_"));
        let beside = [
            "set_up_p99_relay_vs_direct",
            "server_time_vs_janus_own_audio",
        ];
        metrics.push(if beside.contains(&asked.name.as_str()) {
            metric
        } else {
            metric.headline()
        });
    }
    for one in &capacity.carried {
        let what = match one.work.as_str() {
            SET_UP => format!("Set-ups a second on one core, {}", one.name()),
            _ => format!("Calls on one core, {}", one.name()),
        };
        let name = format!("{}_{}", one.service, one.work);
        let metric = Metric::new(&name, &what, one.per_core, Unit::Count, Better::Higher)
            .open(one.is_open());
        metrics.push(if one.service == "all" {
            metric.headline()
        } else {
            metric
        });
    }
    for cost in capacity.costs.iter().filter(|cost| cost.processor.tells()) {
        let what = format!(
            "Time of each in a second: {}, {}",
            cost.program,
            words(&cost.kind)
        );
        let name = format!("{}_{}_cost", cost.program, cost.kind);
        metrics.push(Metric::new(
            &name,
            &what,
            cost.processor.each / 1e3,
            Unit::Millis,
            Better::Lower,
        ));
    }
    Ok(metrics)
}

fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| {
        first.to_uppercase().chain(letters).collect()
    })
}

/// Its charts and tables.
pub(super) fn body(source: &Source) -> Result<Markup, FindingsError> {
    let capacity: Capacity = source.read()?;
    let (set_ups, calls): (Vec<&Carried>, Vec<&Carried>) =
        capacity.carried.iter().partition(|one| one.work == SET_UP);
    Ok(html! {
        p {
            "Each service with a processor to itself, and all of them on one. A number is found by search: it is good as long as delay, gaps, losses and set-ups keep to their limits."
        }
        div.figures {
            (carried("Calls at once on one core", "The most that went well, and what gave first with more.", "calls", &calls))
            (carried("Set-ups a second on one core", "The most that went well, and what gave first with more.", "a second", &set_ups))
            @for kind in ["passthrough", "transcoding", "silent", "set_ups"] { (fit(kind, &capacity.costs)) }
        }
        (fits(&capacity.costs))
        (targets(&capacity.targets))
        @for note in &capacity.notes { p.absent { (note) } }
    })
}

fn carried(title: &str, says: &str, unit: &str, carried: &[&Carried]) -> Markup {
    if carried.is_empty() {
        return html! {};
    }
    let mut table = Table::new([
        "Service",
        unit,
        "what gives first",
        "µs of CPU each",
        "memory each",
    ]);
    let mut rows = Vec::new();
    for one in carried {
        let first = one
            .gives_first
            .as_deref()
            .map_or_else(|| "the search ended".to_owned(), words);
        let memory = one
            .bytes_per_call
            .map_or_else(|| "–".to_owned(), |bytes| Unit::Bytes.write(bytes));
        table.row([
            one.name(),
            counted(&grouped(one.per_core), one.is_open()),
            first,
            grouped(one.micros),
            memory,
        ]);
        rows.push(Bar {
            name: one.name(),
            value: one.per_core,
            figure: counted(&grouped(one.per_core), one.is_open()),
            ours: true,
        });
    }
    Figure {
        title,
        says,
        legend: Legend::None,
        drawing: bars(&rows, None),
        table,
    }
    .markup()
}

/// What was measured at several sizes of a load, and the lines through it.
fn fit(kind: &str, costs: &[Cost]) -> Markup {
    let costs: Vec<&Cost> = costs.iter().filter(|cost| cost.kind == kind).collect();
    if costs.is_empty() {
        return html! {};
    }
    let load = if kind == "set_ups" {
        "set-ups a second"
    } else {
        "calls"
    };
    let mut table = Table::new(["Program", load, "ms of CPU in a second", "by the line"]);
    let mut series = Vec::new();
    let mut legend = Vec::new();
    for (look, cost) in costs.iter().enumerate() {
        for sample in &cost.samples {
            let line = cost.processor.fixed + cost.processor.each * sample.load;
            let line = if cost.processor.tells() {
                number(line / 1e3)
            } else {
                "–".to_owned()
            };
            table.row([
                cost.program.clone(),
                grouped(sample.load),
                number(sample.micros_per_second / 1e3),
                line,
            ]);
        }
        series.push(Series {
            points: cost
                .samples
                .iter()
                .map(|sample| (sample.load, sample.micros_per_second / 1e3))
                .collect(),
            look,
            drawn: Drawn::Marks,
        });
        if cost.processor.tells() {
            series.push(Series {
                points: cost.line(),
                look,
                drawn: Drawn::Line,
            });
        }
        legend.push(cost.program.clone());
    }
    Figure {
        title: &format!("Cost against how many: {}", words(kind)),
        says: "Marks are measured, lines are fitted: a fixed cost, and one for each. A line bends where its fixed cost counts, since both axes have decades.",
        legend: Legend::Marks(legend),
        drawing: lines(
            &series,
            &Axis::new(load, Scale::Logarithmic),
            &Axis::new("ms of CPU in a second", Scale::Logarithmic),
            None,
        ),
        table,
    }
    .markup()
}

impl Cost {
    /// The fitted line from the smallest to the largest load, in milliseconds; in small steps, since it is curved where axes have decades.
    fn line(&self) -> Vec<(f64, f64)> {
        let loads = || {
            self.samples
                .iter()
                .map(|sample| sample.load)
                .filter(|load| *load > 0.0)
        };
        let (least, most) = (
            loads().fold(f64::MAX, f64::min),
            loads().fold(0.0, f64::max),
        );
        if most <= 0.0 {
            return Vec::new();
        }
        let steps = 32;
        let load = |step: i32| least * (most / least).powf(f64::from(step) / f64::from(steps));
        let at = |load: f64| {
            (
                load,
                (self.processor.fixed + self.processor.each * load) / 1e3,
            )
        };
        (0..=steps).map(|step| at(load(step))).collect()
    }
}

/// A figure of a line, where the line tells something.
fn said(line: &Line, figure: String) -> String {
    if line.tells() {
        figure
    } else {
        "none found".to_owned()
    }
}

fn fits(costs: &[Cost]) -> Markup {
    if costs.is_empty() {
        return html! {};
    }
    let mut table = Table::new([
        "Program and load",
        "µs of CPU each",
        "fixed, ms in a second",
        "explained",
        "memory each",
        "explained",
    ]);
    for cost in costs {
        table.row([
            format!("{}, {}", cost.program, words(&cost.kind)),
            said(&cost.processor, number(cost.processor.each)),
            said(&cost.processor, number(cost.processor.fixed / 1e3)),
            cost.explained(&cost.processor, percent),
            said(&cost.memory, Unit::Bytes.write(cost.memory.each)),
            cost.explained(&cost.memory, percent),
        ]);
    }
    html! {
        h3 { "The fitted lines" }
        p {
            "Processor time in a second is the fixed part and that of each call (or, of set-ups, each set-up a second). " em { "Explained" }
            " is the share of the spread of what was measured that the line accounts for; a line through two points explains nothing. Where that is less than half, or the line falls, nothing that grows with the load was found, and no figure is told. " code { "perf plan" } " plans with these."
        }
        (table.markup("The fitted lines"))
    }
}

fn targets(targets: &[Asked]) -> Markup {
    html! {
        @for asked in targets {
            @if asked.found.is_none() {
                p.absent { "Not measured: " (sentence(&words(&asked.name))) ", which must be at most " (number(asked.must)) @if let Some(missing) = &asked.missing { ": " (missing) } }
            } @else if !asked.how.is_empty() {
                p { strong { (sentence(&words(&asked.name))) ": " } (asked.how) }
                @for handled in &asked.handled { p { (handled) } }
            }
        }
    }
}
