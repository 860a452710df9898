//! Marks on one axis, a row for each name: for values that lie decades apart, where the length of a bar would say nothing.

use maud::{Markup, html};

use super::axis::Axis;
use super::{WIDTH, drawing, mark, round};

const ROW: f64 = 36.0;
const LEFT: f64 = 8.0;
const RIGHT: f64 = WIDTH - 24.0;

/// A row.
pub(in super::super) struct Row {
    /// What it is.
    pub(in super::super) name: String,
    /// A value for each series, where there is one.
    pub(in super::super) values: Vec<Option<f64>>,
}

/// Rows of marks.
pub(in super::super) fn dots(rows: &[Row], axis: &Axis) -> Markup {
    let values = rows.iter().flat_map(|row| row.values.iter().flatten());
    let laid = axis.over(values.copied(), LEFT, RIGHT);
    let bottom = ROW * rows.len() as f64 + 4.0;
    drawing(
        bottom + 40.0,
        &html! {
            @for (value, text) in &laid.ticks {
                @if let Some(x) = laid.at(*value) {
                    path.grid d={ "M" (round(x)) " 4V" (bottom) } {}
                    text.tick x=(round(x)) y=(bottom + 16.0) text-anchor="middle" { (text) }
                }
            }
            text.tick x=(RIGHT + 20.0) y=(bottom + 34.0) text-anchor="end" { (axis.title) }
            @for (at, row) in rows.iter().enumerate() {
                @let y = ROW * at as f64 + 4.0;
                text.name x="0" y=(y + 13.0) { (row.name) }
                path.grid d={ "M" (LEFT) " " (y + 24.0) "H" (RIGHT) } {}
                // The first series last: it lies on top.
                @for (series, value) in row.values.iter().enumerate().rev() {
                    @if let Some(x) = value.and_then(|value| laid.at(value)) { (mark(series, x, y + 24.0)) }
                }
            }
        },
    )
}
