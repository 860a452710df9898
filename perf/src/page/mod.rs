//! Results as one page for people: `perf/results/report.html`.
//!
//! A reader decides whether to run Firsthop, or looks whether it got slower. So figures with their targets come first, then charts, then how
//! they changed, and at last where they come from. The page is one file: its style and its charts are in it, it loads nothing and runs
//! nothing (its policy forbids both), and every chart has its figures beside it as a table.
//!
//! Whatever stands in a file of results is text to it: `maud` escapes all that is not markup here.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::findings::{Findings, FindingsError, Kind};

mod calls;
mod capacity;
mod chart;
mod churn;
mod failures;
pub(crate) mod figures;
mod history;
pub mod markdown;
mod metric;
mod ratios;
mod relay;
mod sections;
mod setup;
mod signaling;

use metric::{Metric, Verdict};

/// Its style, light and dark.
const STYLE: &str = include_str!("style.css");

/// The page.
///
/// # Errors
/// A file has something else than what is shown of it: the error names the field.
pub fn page(findings: &Findings) -> Result<String, FindingsError> {
    let mut metrics = Vec::new();
    let mut bodies = Vec::new();
    for kind in Kind::ALL {
        if let Some(source) = findings.latest(kind) {
            metrics.extend(sections::metrics(source)?);
        }
        bodies.push((kind, sections::body(findings, kind)?));
    }
    let history = history::body(findings)?;
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'";
                title { "Firsthop, measured" }
                style { (PreEscaped(STYLE)) }
            }
            body {
                header {
                    h1 { "Firsthop, measured" }
                    p { "A WebRTC front door for voice AI: what it costs, how many calls it carries, how soon they start, and what they feel when something fails." }
                    (origins(findings))
                }
                main {
                    (headlines(&metrics))
                    nav aria-label="Sections" {
                        ul {
                            @for kind in Kind::ALL { li { a href={ "#" (kind.stem()) } { (sections::title(kind)) } } }
                            li { a href="#history" { "History" } }
                            li { a href="#method" { "Machine and method" } }
                        }
                    }
                    @for (kind, body) in &bodies {
                        section id=(kind.stem()) { h2 { (sections::title(*kind)) } (body) }
                    }
                    section #history { h2 { "History" } (history) }
                    section #method { h2 { "Machine and method" } (method(findings)) }
                }
            }
        }
    };
    Ok(page.into_string())
}

/// Where the figures come from, in a line where that is one place.
fn origins(findings: &Findings) -> Markup {
    let mut machines: Vec<&str> = Vec::new();
    let mut commits: Vec<&str> = Vec::new();
    let mut days: Vec<&str> = Vec::new();
    for source in findings.newest() {
        days.extend(source.origin.days());
        for (list, one) in [
            (&mut machines, source.origin.machine.as_str()),
            (&mut commits, source.origin.commit.as_str()),
        ] {
            if !list.contains(&one) {
                list.push(one);
            }
        }
    }
    days.sort_unstable();
    let quick = findings.newest().any(|source| source.quick);
    let busy: Vec<&str> = findings
        .newest()
        .filter(|source| source.origin.busy)
        .map(|source| source.kind.stem())
        .collect();
    let dirty = findings
        .newest()
        .any(|source| source.origin.commit.contains("-dirty"));
    html! {
        dl.origins {
            div { dt { (if machines.len() == 1 { "Machine" } else { "Machines" }) } dd { (machines.join("; ")) } }
            div { dt { (if commits.len() == 1 { "Commit" } else { "Commits" }) } dd { (commits.join(", ")) } }
            div { dt { "Measured" } dd {
                @match (days.first(), days.last()) {
                    (Some(first), Some(last)) if first != last => { (first) " to " (last) },
                    (Some(day), _) => (day),
                    _ => "never",
                }
            } }
        }
        @if machines.len() > 1 {
            p.notice { "These results come from different machines. Ratios compare, other figures do not." }
        }
        @if dirty {
            p.notice { "Some of these results are of no commit: what was measured had changes that are in none (" code { "-dirty" } "), and nobody else can build it." }
        }
        @if !busy.is_empty() {
            p.notice { "The machine had other work when some of these were measured (" (busy.join(", ")) "): figures are worse than the programs are. Measure again when it has nothing else to do." }
        }
        @if quick {
            p.notice { "Some of these results are of the short form: they show that everything works, and no more than roughly how well." }
        }
    }
}

/// The first figures, and what became of all that have a target.
fn headlines(metrics: &[Metric]) -> Markup {
    let asked: Vec<&Metric> = metrics
        .iter()
        .filter(|metric| metric.verdict().is_some())
        .collect();
    let unknown: Vec<&Metric> = metrics
        .iter()
        .filter(|metric| metric.target.is_some() && metric.verdict().is_none())
        .collect();
    let missed: Vec<&&Metric> = asked
        .iter()
        .filter(|metric| metric.verdict() == Some(Verdict::Missed))
        .collect();
    html! {
        section.headlines aria-label="The figures that matter most" {
            @if !asked.is_empty() {
                p.summary {
                    strong { (asked.len() - missed.len()) " of " (asked.len()) " targets are met." }
                    @if !missed.is_empty() {
                        " Missed: "
                        @for (at, metric) in missed.iter().enumerate() {
                            @if at > 0 { "; " }
                            (metric.what) " (" (metric.figure()) ", must be " (metric.asks().unwrap_or_default()) ")"
                        }
                        "."
                    }
                    @if !unknown.is_empty() {
                        " Not measured: "
                        @for (at, metric) in unknown.iter().enumerate() {
                            @if at > 0 { "; " }
                            (metric.what)
                        }
                        "."
                    }
                }
            }
            ul.cards {
                @for metric in metrics.iter().filter(|metric| metric.headline) {
                    li.card {
                        span.what { (metric.what) }
                        span.big { (metric.figure()) span.times { (metric.sign()) } }
                        @if let Some(besides) = &metric.besides { span.asks { (besides) } }
                        span.asks {
                            @if let Some(asks) = metric.asks() { "must be " (asks) " " }
                            @if let Some(verdict) = metric.verdict() { span.verdict.(verdict.class()) { (verdict.word()) } }
                        }
                    }
                }
            }
        }
    }
}

/// Which file each section shows, and how measuring is done.
fn method(findings: &Findings) -> Markup {
    html! {
        div.scroll role="region" aria-label="Files of results" tabindex="0" {
            table.left {
                thead { tr { @for head in ["Section", "file", "commit", "day", "machine", "made by"] { th scope="col" { (head) } } } }
                tbody {
                    @for source in findings.newest() {
                        tr {
                            th scope="row" { (sections::title(source.kind)) }
                            td { code { (source.file) } }
                            td { code { (source.origin.commit) } }
                            td { (source.origin.days().join(", ")) }
                            td { (source.origin.machine) }
                            td { code { (source.kind.command()) } @if source.quick { " (short form)" } }
                        }
                    }
                }
            }
        }
        ul {
            li { "Programs under test have a processor of their own, clients and all that they serve another. Time is what the kernel accounts to a program's threads." }
            li { "Peers and floors are measured in the same run, case after case, pass after pass. A ratio is taken within a pass; the median over the passes counts." }
            li { "A packet's delay is counted from when it was due, not from when a busy generator got to send it; a call's time likewise. Generators say when they were the slower side." }
            li { "All of it is on one machine: the network between programs is the kernel's loopback, or namespaces. What a network card adds is not in these figures." }
            li { "A commit that ends in " code { "-dirty" } " had changes that are not in it. " code { "scripts/bench" } " makes all files but that of the failures anew, " code { "scripts/testnet" } " that one." }
        }
    }
}

#[cfg(test)]
mod tests;
