//! Horizontal bars, each below its name: alone, or in parts.

use maud::{Markup, html};

use super::{WIDTH, class, drawing, round};

/// What is kept free to the right, for the figure.
const FIGURE: f64 = 84.0;
const ROW: f64 = 38.0;
const HEIGHT: f64 = 14.0;

/// One bar.
pub(in super::super) struct Bar {
    /// What it is.
    pub(in super::super) name: String,
    /// How long it is.
    pub(in super::super) value: f64,
    /// The same in writing.
    pub(in super::super) figure: String,
    /// Whether it is ours.
    pub(in super::super) ours: bool,
}

/// What bars are held against.
pub(in super::super) struct Baseline {
    /// What it is, with its figure.
    pub(in super::super) name: String,
    /// How much.
    pub(in super::super) value: f64,
}

/// Bars, and what they are held against.
pub(in super::super) fn bars(bars: &[Bar], baseline: Option<&Baseline>) -> Markup {
    let values = bars.iter().map(|bar| bar.value);
    let most = values
        .chain(baseline.map(|line| line.value))
        .filter(|value| value.is_finite())
        .fold(f64::MIN_POSITIVE, f64::max);
    let length = |value: f64| round(((WIDTH - FIGURE) * value / most).clamp(0.0, WIDTH - FIGURE));
    let top = if baseline.is_some() { 22.0 } else { 4.0 };
    let height = top + ROW * bars.len() as f64 + 4.0;
    drawing(
        height,
        &html! {
            @for (at, bar) in bars.iter().enumerate() {
                @let y = top + ROW * at as f64;
                @let class = if bar.ours { "ours" } else { "peer" };
                text.name.(class) x="0" y=(y + 13.0) { (bar.name) }
                rect.bar.(class) x="0" y=(y + 18.0) width=(length(bar.value)) height=(HEIGHT) rx="2" {}
                @if let Some(line) = baseline {
                    @let across = format!("M{} {}v20", length(line.value), y + 15.0);
                    path.halo d=(across) {}
                    path.baseline d=(across) {}
                }
                text.figure x=(length(bar.value) + 7.0) y=(y + 30.0) { (bar.figure) }
            }
            @if let Some(line) = baseline {
                @let x = length(line.value);
                // On the side where there is room.
                @if x > WIDTH / 2.0 {
                    text.baseline x=(x) y="12" text-anchor="end" { (line.name) }
                } @else {
                    text.baseline x=(x) y="12" { (line.name) }
                }
            }
        },
    )
}

/// One part of a bar.
pub(in super::super) struct Part {
    /// Which series it belongs to: its colour.
    pub(in super::super) series: usize,
    /// How much of the bar.
    pub(in super::super) value: f64,
}

/// Bars that are as long as their parts together, each with its name and a figure for the whole.
pub(in super::super) fn stacks(bars: &[(String, String, Vec<Part>)]) -> Markup {
    let sum = |parts: &[Part]| parts.iter().map(|part| part.value.max(0.0)).sum::<f64>();
    let most = bars
        .iter()
        .map(|(_, _, parts)| sum(parts))
        .filter(|sum| sum.is_finite())
        .fold(f64::MIN_POSITIVE, f64::max);
    let unit = (WIDTH - FIGURE) / most;
    drawing(
        ROW * bars.len() as f64 + 8.0,
        &html! {
            @for (at, (name, figure, parts)) in bars.iter().enumerate() {
                @let y = 4.0 + ROW * at as f64;
                text.name x="0" y=(y + 13.0) { (name) }
                @for (from, part) in placed(parts) {
                    rect.bar.(class(part.series)) x=(round(from * unit)) y=(y + 18.0)
                        width=(round((part.value.max(0.0) * unit - 1.0).max(0.0))) height=(HEIGHT) {}
                }
                text.figure x=(round(sum(parts) * unit) + 7.0) y=(y + 30.0) { (figure) }
            }
        },
    )
}

/// Parts, each with what lies before it.
fn placed(parts: &[Part]) -> impl Iterator<Item = (f64, &Part)> {
    parts.iter().scan(0.0, |from, part| {
        let at = *from;
        *from += part.value.max(0.0);
        Some((at, part))
    })
}
