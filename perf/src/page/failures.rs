//! What each failure costs the calls that are up.

use maud::{Markup, html};
use serde::Deserialize;

use super::chart::{Axis, Figure, Legend, Row, Scale, Table, dots};
use super::figures::{grouped, millis};
use super::metric::{Better, Metric, Unit, Verdict};
use crate::findings::{FindingsError, Source};

/// Of a row of the test world's results, what the page shows.
#[derive(Deserialize)]
struct Scenario {
    scenario: String,
    what: String,
    calls: f64,
    packets_lost: Option<f64>,
    worst_gap_ms: Option<f64>,
    down: Option<Way>,
    up: Option<Way>,
    handshakes: Option<f64>,
    target: String,
    /// What silence down was judged by; older files do not say.
    down_most_ms: Option<f64>,
    /// The same up.
    up_most_ms: Option<f64>,
    verdict: String,
    #[serde(default)]
    why: Vec<String>,
}

#[derive(Deserialize)]
struct Way {
    worst_gap_ms: f64,
}

impl Scenario {
    fn verdict(&self) -> Verdict {
        if self.verdict == "pass" {
            Verdict::Met
        } else {
            Verdict::Missed
        }
    }

    /// What silence may last at most, as it was judged.
    fn most(&self) -> String {
        match (self.down_most_ms, self.up_most_ms) {
            (Some(down), Some(up)) if down != up => {
                format!("{} down, {} up", millis(down), millis(up))
            }
            (down, up) => written(down.or(up)),
        }
    }

    /// With a capital, as a sentence begins.
    fn what(&self) -> String {
        let mut letters = self.what.chars();
        letters.next().map_or_else(String::new, |first| {
            first.to_uppercase().chain(letters).collect()
        })
    }
}

/// Its figures.
pub(super) fn metrics(source: &Source) -> Result<Vec<Metric>, FindingsError> {
    let scenarios: Vec<Scenario> = source.read()?;
    let passed = scenarios
        .iter()
        .filter(|one| one.verdict() == Verdict::Met)
        .count();
    let what = format!(
        "Failures within their targets, of {} that were made",
        scenarios.len()
    );
    let mut metrics = vec![
        Metric::new("passed", &what, passed as f64, Unit::Count, Better::Higher)
            .target(scenarios.len() as f64, None)
            .headline(),
    ];
    for one in &scenarios {
        if let Some(gap) = one.worst_gap_ms {
            let what = format!("Worst silence: {}", one.what());
            metrics.push(Metric::new(
                &one.scenario,
                &what,
                gap,
                Unit::Millis,
                Better::Lower,
            ));
        }
    }
    Ok(metrics)
}

/// Its charts and tables.
pub(super) fn body(source: &Source) -> Result<Markup, FindingsError> {
    let scenarios: Vec<Scenario> = source.read()?;
    let calls = scenarios.iter().map(|one| one.calls).fold(0.0, f64::max);
    let mut table = Table::new(["Failure", "silence down", "silence up"]);
    let mut rows = Vec::new();
    for one in &scenarios {
        let gaps = [&one.down, &one.up].map(|way| Some(way.as_ref()?.worst_gap_ms));
        let [down, up] = gaps.map(written);
        table.row([one.what(), down, up]);
        // Nothing has no place on the axis: a millisecond is as good.
        let values = gaps.iter().map(|gap| gap.map(|gap| gap.max(1.0))).collect();
        rows.push(Row {
            name: one.what(),
            values,
        });
    }
    let figure = Figure {
        title: "The worst silence of any call",
        says: "Beyond the 20 ms of a packet. The axis has decades: a pause of 10 ms is no pause, one of a second is.",
        legend: Legend::Marks(vec![
            "down, at the client".to_owned(),
            "up, at the model server".to_owned(),
        ]),
        drawing: dots(&rows, &Axis::new("ms of silence", Scale::Logarithmic)),
        table,
    };
    Ok(html! {
        p {
            "A world of two regions, two ingress relays, a Redis and clients' networks in which one thing after the other fails under " (grouped(calls))
            " live calls. Times are those of the worst call."
        }
        (verdicts(&scenarios))
        div.figures { (figure.markup()) }
    })
}

fn verdicts(scenarios: &[Scenario]) -> Markup {
    html! {
        div.card {
            h3 { "Against their targets" }
            @if scenarios.iter().any(|one| one.down_most_ms.is_none()) {
                p.absent {
                    "Some of these results are older and do not name the times that they were judged by, only their targets in words: of a wait for a client's check those leave out how long its "
                    "answer may take."
                }
            }
            div.scroll role="region" aria-label="Failures and their targets" tabindex="0" {
                table.left {
                    thead { tr {
                        @for head in ["Failure", "worst silence", "judged by: at most", "packets lost", "handshakes", "target", "verdict"] { th scope="col" { (head) } }
                    } }
                    tbody {
                        @for one in scenarios {
                            tr {
                                th scope="row" { (one.what()) }
                                td { (written(one.worst_gap_ms)) }
                                td { (one.most()) }
                                td { (one.packets_lost.map_or_else(|| "–".to_owned(), grouped)) }
                                td { (one.handshakes.map_or_else(|| "–".to_owned(), grouped)) }
                                td { (one.target) }
                                td {
                                    span.verdict.(one.verdict().class()) { (one.verdict().word()) }
                                    @for why in &one.why { " " (why) }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn written(gap: Option<f64>) -> String {
    gap.map_or_else(|| "–".to_owned(), millis)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::findings::Kind;

    #[test]
    fn a_failure_is_shown_with_the_times_that_it_was_judged_by() {
        let shown = |judged: &str| {
            let text = format!(
                r#"[{{"machine": "m", "commit": "c", "date": "d", "scenario": "a", "what": "a", "calls": 1, "worst_gap_ms": 3062.0,
                "target": "the next check: 3 s", {judged} "verdict": "pass"}}]"#
            );
            let source = Source::parse("t.json".to_owned(), Kind::Testnet, &text).expect("good");
            body(&source).expect("readable").into_string()
        };
        let older = "do not name the times";
        let named = shown(r#""down_most_ms": 3500.0, "up_most_ms": 3500.0,"#);
        assert!(
            named.contains("<td>3,062\u{a0}ms</td><td>3,500\u{a0}ms</td>"),
            "{named}"
        );
        assert!(!named.contains(older));
        let apart = shown(r#""down_most_ms": 3500.0, "up_most_ms": 100.0,"#);
        assert!(
            apart.contains("3,500\u{a0}ms down, 100\u{a0}ms up"),
            "{apart}"
        );
        assert!(shown("").contains(older));
    }
}
