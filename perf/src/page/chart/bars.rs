//! Horizontal bars, each below its name: alone, or in parts.

use maud::{Markup, html};

use super::{WIDTH, class, drawing, round};

/// What is kept free to the right for a figure, at least.
const FIGURE: f64 = 84.0;

/// How wide a letter of a figure is at most: on a telephone, where they are larger.
const LETTER: f64 = 9.5;
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
    let room = WIDTH - kept_free(bars.iter().map(|bar| bar.figure.as_str()));
    let length = |value: f64| round((room * value / most).clamp(0.0, room));
    // Beside the line where the figure would lie on it.
    let beside = |bar: &Bar| {
        let end = length(bar.value);
        let line = baseline.map(|line| length(line.value));
        let width = LETTER * bar.figure.chars().count() as f64;
        match line {
            Some(line) if line >= end && line < end + 10.0 + width => line + 9.0,
            _ => end + 7.0,
        }
    };
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
                text.figure x=(round(beside(bar))) y=(y + 30.0) { (bar.figure) }
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

/// What the longest of these figures takes, to the right of the longest bar.
fn kept_free<'a>(figures: impl Iterator<Item = &'a str>) -> f64 {
    let longest = figures.map(|figure| figure.chars().count()).max();
    (LETTER * longest.unwrap_or(0) as f64 + 12.0).clamp(FIGURE, WIDTH / 2.0)
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
    let unit = (WIDTH - kept_free(bars.iter().map(|(_, figure, _)| figure.as_str()))) / most;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_stands_beside_the_line_and_a_long_one_has_room() {
        let bar = |value, figure: &str| Bar {
            name: "a".to_owned(),
            value,
            figure: figure.to_owned(),
            ours: true,
        };
        let line = Baseline {
            name: "must".to_owned(),
            value: 5.0,
        };
        // Of 396 units: the bar ends at 374, the line is at 396.
        let drawn = bars(&[bar(4.72, "4.72")], Some(&line)).into_string();
        assert!(drawn.contains(r#"class="figure" x="405""#), "{drawn}");
        let alone = bars(&[bar(60.0, "at least 60 calls")], None).into_string();
        assert!(alone.contains(r#"width="306.5""#), "{alone}");
    }
}
