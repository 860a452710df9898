//! Lines over an axis.

use maud::{Markup, html};

use super::axis::{Axis, Laid};
use super::{WIDTH, class, drawing, mark, round};

const LEFT: f64 = 58.0;
const RIGHT: f64 = WIDTH - 24.0;
const TOP: f64 = 28.0;
const BOTTOM: f64 = 266.0;

/// How a series is drawn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in super::super) enum Drawn {
    /// A mark at each point, and a line through them.
    Joined,
    /// Marks alone: what was measured.
    Marks,
    /// A line alone: what was computed.
    Line,
}

/// Points that belong together. What has no place on the axes is left out.
pub(in super::super) struct Series {
    /// Points, in the order of the line.
    pub(in super::super) points: Vec<(f64, f64)>,
    /// Its colour and shape.
    pub(in super::super) look: usize,
    /// How it is drawn.
    pub(in super::super) drawn: Drawn,
}

/// A bound that values are held against.
pub(in super::super) struct Limit {
    /// What it is, with its figure.
    pub(in super::super) name: String,
    /// How much.
    pub(in super::super) value: f64,
}

/// Series over two axes, and a bound of what they may reach.
pub(in super::super) fn lines(
    series: &[Series],
    across: &Axis,
    up: &Axis,
    limit: Option<&Limit>,
) -> Markup {
    let points = || series.iter().flat_map(|series| &series.points);
    let x = across.over(points().map(|(x, _)| *x), LEFT, RIGHT);
    let bound = limit.map(|limit| limit.value);
    let y = up.over(points().map(|(_, y)| *y).chain(bound), BOTTOM, TOP);
    drawing(
        BOTTOM + 44.0,
        &html! {
            text.tick x="0" y="14" { (up.title) }
            text.tick x=(RIGHT + 20.0) y=(BOTTOM + 38.0) text-anchor="end" { (across.title) }
            @for (value, text) in &y.ticks {
                @if let Some(y) = y.at(*value) {
                    path.grid d={ "M" (LEFT) " " (round(y)) "H" (RIGHT) } {}
                    text.tick x=(LEFT - 8.0) y=(round(y + 4.0)) text-anchor="end" { (text) }
                }
            }
            @for (value, text) in &x.ticks {
                @if let Some(x) = x.at(*value) {
                    path.axis d={ "M" (round(x)) " " (BOTTOM) "v5" } {}
                    text.tick x=(round(x)) y=(BOTTOM + 19.0) text-anchor="middle" { (text) }
                }
            }
            path.axis d={ "M" (LEFT) " " (BOTTOM) "H" (RIGHT) } {}
            @if let Some((limit, at)) = limit.and_then(|limit| Some((limit, y.at(limit.value)?))) {
                path.baseline d={ "M" (LEFT) " " (round(at)) "H" (RIGHT) } {}
                text.baseline x=(LEFT + 4.0) y=(round(at - 5.0)) { (limit.name) }
            }
            // The first series last: it lies on top.
            @for series in series.iter().rev() {
                @if series.drawn != Drawn::Marks {
                    path.stroke.(class(series.look)) d=(path(series, &x, &y)) {}
                }
                @if series.drawn != Drawn::Line {
                    @for (across, up) in placed(series, &x, &y) { (mark(series.look, across, up)) }
                }
            }
        },
    )
}

fn placed(series: &Series, x: &Laid, y: &Laid) -> Vec<(f64, f64)> {
    let place = |(across, up): &(f64, f64)| Some((x.at(*across)?, y.at(*up)?));
    series.points.iter().filter_map(place).collect()
}

fn path(series: &Series, x: &Laid, y: &Laid) -> String {
    let mut path = String::new();
    for (x, y) in placed(series, x, y) {
        let command = if path.is_empty() { 'M' } else { 'L' };
        path.push_str(&format!("{command}{} {}", round(x), round(y)));
    }
    path
}
