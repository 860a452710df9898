//! How figures changed from file to file.

use maud::{Markup, html};

use super::figures::change;
use super::metric::{Better, Metric};
use super::sections;
use crate::findings::{Findings, FindingsError, Kind, Source};

/// A change that is smaller is none: measured twice, a figure differs by as much.
const NOISE: f64 = 0.05;

/// One file, with its figures.
struct Column<'a> {
    source: &'a Source,
    metrics: Vec<Metric>,
    /// Which of the machines it was.
    machine: usize,
}

/// Tables of all kinds of results that there is more than one file of.
pub(super) fn body(findings: &Findings) -> Result<Markup, FindingsError> {
    let machines = machines(findings.all());
    let mut tables = Vec::new();
    for kind in Kind::ALL {
        let mut columns = Vec::new();
        for source in findings.of_kind(kind) {
            columns.push(Column {
                source,
                metrics: sections::metrics(source)?,
                machine: machines
                    .iter()
                    .position(|machine| *machine == source.origin.machine)
                    .unwrap_or(0),
            });
        }
        if columns.len() > 1 {
            tables.push((kind, columns));
        }
    }
    let compared = |tables: &[(Kind, Vec<Column<'_>>)]| {
        let used = |at: &usize| {
            tables
                .iter()
                .flat_map(|(_, columns)| columns)
                .any(|column| column.machine == *at)
        };
        (0..machines.len()).filter(used).collect::<Vec<_>>()
    };
    let used = compared(&tables);
    Ok(html! {
        @if tables.is_empty() {
            p {
                "There is one file of each kind of results. With older ones beside them (" code { "perf report OLDER perf/results" } ", files or folders), it is shown here how figures "
                "changed."
            }
        } @else {
            p {
                "Each column is a file, those of the short form first, the newest last; the change is from the one before it. Less than " (format!("{:.0}", 100.0 * NOISE)) " % is not told from chance; of what may be nothing or less, the change is told in its own unit, and not judged. "
                @if used.len() > 1 {
                    strong { "Machines differ: " }
                    "between them only ratios compare, so no change is told of other figures."
                } @else {
                    "All of them are of the same kind of machine."
                }
            }
            @if used.len() > 1 {
                ul { @for at in &used { li { "Machine " (letter(*at)) ": " (machines[*at]) } } }
            }
            @for (kind, columns) in &tables { (table(*kind, columns, used.len() > 1)) }
        }
    })
}

/// The machines, each once, in the order of the files.
fn machines(sources: &[Source]) -> Vec<&str> {
    let mut machines: Vec<&str> = Vec::new();
    for source in sources {
        if !machines.contains(&source.origin.machine.as_str()) {
            machines.push(&source.origin.machine);
        }
    }
    machines
}

fn letter(machine: usize) -> String {
    u8::try_from(machine)
        .ok()
        .filter(|machine| *machine < 26)
        .map_or_else(
            || (machine + 1).to_string(),
            |machine| char::from(b'A' + machine).to_string(),
        )
}

fn table(kind: Kind, columns: &[Column<'_>], letters: bool) -> Markup {
    let title = format!("{}, from file to file", sections::title(kind));
    // What a figure is called, the newest file that has it says.
    let mut rows: Vec<&Metric> = Vec::new();
    for metric in columns.iter().rev().flat_map(|column| &column.metrics) {
        if rows.iter().all(|row| row.name != metric.name) {
            rows.push(metric);
        }
    }
    html! {
        div.card {
            h3 { (title) }
            div.scroll role="region" aria-label=(title) tabindex="0" {
                table.history {
                    thead { tr {
                        th scope="col" { "Figure" }
                        th scope="col" { "course" }
                        @for column in columns {
                            th scope="col" title=(column.source.file) {
                                (column.source.origin.day())
                                br; code { (column.source.origin.commit) }
                                @if column.source.quick { br; "short form" }
                                @if letters { br; "machine " (letter(column.machine)) }
                            }
                        }
                        th scope="col" { "change" }
                    } }
                    tbody {
                        @for metric in rows {
                            @let figures: Vec<Option<&Metric>> = columns.iter().map(|column| known(column, &metric.name)).collect();
                            @let values: Vec<Option<f64>> = figures.iter().map(|figure| figure.map(|figure| figure.value)).collect();
                            tr {
                                th scope="row" { (metric.what) }
                                td { (course(&values)) }
                                @for figure in &figures { td { (figure.map_or_else(|| "–".to_owned(), Metric::figure)) } }
                                td { (told(metric, columns)) }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// A figure of a file, where that has it and it was measured.
fn known<'a>(column: &'a Column<'_>, name: &str) -> Option<&'a Metric> {
    let named = column.metrics.iter().find(|metric| metric.name == name);
    named.filter(|metric| metric.value.is_finite())
}

fn value(column: &Column<'_>, name: &str) -> Option<f64> {
    known(column, name).map(|metric| metric.value)
}

/// What became of a figure from the last but one file that has it to the last.
fn told(metric: &Metric, columns: &[Column<'_>]) -> Markup {
    let mut having = columns
        .iter()
        .rev()
        .filter_map(|column| Some((column.machine, value(column, &metric.name)?)));
    let Some((now, before)) = having.next().zip(having.next()) else {
        return html! { "–" };
    };
    if now.0 != before.0 && !metric.unit.compares() {
        return html! { "another machine" };
    }
    // Of what may be nothing, or below, no share says anything: how far the two lie apart does, and not whether that is chance.
    if metric.difference || before.1 <= 0.0 || now.1 <= 0.0 {
        return apart(metric, before.1, now.1);
    }
    let Some(change) = change(before.1, now.1) else {
        return html! { @if now.1 == before.1 { "the same" } @else { "–" } };
    };
    let better = match metric.better {
        Better::Lower => now.1 < before.1,
        Better::Higher => now.1 > before.1,
    };
    html! {
        @if (now.1 / before.1 - 1.0).abs() < NOISE { (change) }
        @else if better { span.verdict.met { (change) ", better" } }
        @else { span.verdict.missed { (change) ", worse" } }
    }
}

/// By how much two figures differ, in their own unit.
fn apart(metric: &Metric, before: f64, now: f64) -> Markup {
    let sign = if now < before { '−' } else { '+' };
    let size = metric.unit.write((now - before).abs());
    html! { @if now == before { "the same" } @else { (sign) (size) } }
}

/// A small line of the figure's course. The figures stand beside it.
fn course(values: &[Option<f64>]) -> Markup {
    let known: Vec<(usize, f64)> = values
        .iter()
        .enumerate()
        .filter_map(|(at, value)| Some((at, (*value)?)))
        .collect();
    let most = known
        .iter()
        .map(|(_, value)| *value)
        .fold(f64::MIN, f64::max);
    let least = known
        .iter()
        .map(|(_, value)| *value)
        .fold(f64::MAX, f64::min);
    let (steps, spread) = (
        (values.len() - 1).max(1) as f64,
        (most - least).max(f64::MIN_POSITIVE),
    );
    let place = |(at, value): &(usize, f64)| {
        let y = if most > least {
            19.0 - 14.0 * (value - least) / spread
        } else {
            12.0
        };
        (4.0 + 72.0 * *at as f64 / steps, y)
    };
    let points: Vec<(f64, f64)> = known.iter().map(place).collect();
    let line: Vec<String> = points
        .iter()
        .map(|(x, y)| format!("{x:.1},{y:.1}"))
        .collect();
    html! {
        svg.course viewBox="0 0 80 24" width="80" height="24" aria-hidden="true" {
            polyline.stroke.s0 points=(line.join(" ")) {}
            @if let Some((x, y)) = points.last() { circle.mark.s0 cx=(format!("{x:.1}")) cy=(format!("{y:.1}")) r="3" {} }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signaling(date: &str, cores: u32, calls: f64) -> Source {
        let text = format!(
            r#"{{"machine": {{"processor": "P", "processors": {cores}, "kernel": "6"}}, "commit": "c", "date": "{date}", "calls_per_core": {calls}}}"#
        );
        Source::parse(format!("{date}.json"), Kind::Signaling, &text).expect("good")
    }

    fn shown(sources: Vec<Source>) -> String {
        body(&Findings::of(sources))
            .expect("readable")
            .into_string()
    }

    #[test]
    fn one_file_has_no_history_and_the_page_says_how_to_get_one() {
        let shown = shown(vec![signaling("1", 2, 100.0)]);
        assert!(shown.contains("perf report OLDER"), "{shown}");
    }

    #[test]
    fn a_change_is_told_from_the_file_before_whatever_order_they_come_in() {
        let shown = shown(vec![signaling("2", 2, 150.0), signaling("1", 2, 100.0)]);
        assert!(shown.contains("+50\u{a0}%, better"), "{shown}");
        assert!(shown.contains("the same kind of machine"), "{shown}");
    }

    #[test]
    fn a_ratio_that_is_whole_has_its_decimals_here_too() {
        let setup = |date: &str, found: f64| {
            let text = format!(
                r#"{{"machine": {{"processor": "P", "processors": 2, "kernel": "6"}}, "commit": "c", "date": "{date}",
                "targets": [{{"name": "a / b", "found": {found}, "must": 1.05}}]}}"#
            );
            Source::parse(format!("{date}.json"), Kind::Setup, &text).expect("good")
        };
        let shown = shown(vec![setup("1", 1.0), setup("2", 1.04)]);
        assert!(shown.contains("<td>1.00</td><td>1.04</td>"), "{shown}");
    }

    #[test]
    fn what_may_be_below_nothing_is_told_by_how_much_it_changed_and_not_in_percent() {
        let capacity = |date: &str, found: f64| {
            let text = format!(
                r#"{{"machine": {{"processor": "P", "processors": 2, "kernel": "6"}}, "commit": "c", "date": "{date}",
                "targets": [{{"name": "mouth_to_ear_p99_added_by_relay_ms", "found": {found}, "must": 1}}]}}"#
            );
            Source::parse(format!("{date}.json"), Kind::Capacity, &text).expect("good")
        };
        for (before, now, told) in [
            (-0.13, 5.79, "<td>+5.92\u{a0}ms</td>"),
            (0.02, 0.14, "<td>+0.12\u{a0}ms</td>"),
            (5.79, 0.5, "<td>−5.29\u{a0}ms</td>"),
        ] {
            let shown = shown(vec![capacity("1", before), capacity("2", now)]);
            assert!(shown.contains(told), "{told}: {shown}");
        }
    }

    #[test]
    fn of_another_machine_only_ratios_compare() {
        let shown = shown(vec![signaling("1", 2, 100.0), signaling("2", 64, 150.0)]);
        assert!(shown.contains("Machines differ"), "{shown}");
        assert!(
            shown.contains("another machine") && !shown.contains("better"),
            "{shown}"
        );
        assert!(shown.contains("Machine B: 64 x P, Linux 6"), "{shown}");
    }

    #[test]
    fn what_is_as_good_as_the_same_is_no_change() {
        let shown = shown(vec![signaling("1", 2, 100.0), signaling("2", 2, 102.0)]);
        assert!(
            shown.contains("+2\u{a0}%") && !shown.contains("better"),
            "{shown}"
        );
    }
}
