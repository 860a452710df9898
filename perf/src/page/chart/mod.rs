//! Charts in a page: SVG that takes its colours from the page's style, each with its figures as a table for whoever does not see it.
//!
//! A chart is [`WIDTH`] units wide whatever it shows, and as wide as its place on the screen: on a telephone its text is three quarters as
//! large as that of the page. So nothing in it lies side by side that could lie one above the other.

use maud::{Markup, html};

mod axis;
mod bars;
mod dots;
mod lines;
mod quantiles;

pub(super) use axis::{Axis, Scale};
pub(super) use bars::{Bar, Baseline, Part, bars, stacks};
pub(super) use dots::{Row, dots};
pub(super) use lines::{Drawn, Limit, Series, lines};
pub(super) use quantiles::{COLUMNS, Delays, Quantiles};

/// How wide a drawing is, in its own units, which are the page's pixels or a little less.
const WIDTH: f64 = 480.0;

/// How many series can be told apart, by colour and by shape.
const SERIES: usize = 6;

/// Rows of text beside what a chart draws.
pub(super) struct Table {
    /// What stands above each column.
    pub(super) head: Vec<String>,
    /// The rows. The first column names them.
    pub(super) rows: Vec<Vec<String>>,
}

impl Table {
    pub(super) fn new<const N: usize>(head: [&str; N]) -> Self {
        Self {
            head: head.map(str::to_owned).to_vec(),
            rows: Vec::new(),
        }
    }

    pub(super) fn row<const N: usize>(&mut self, row: [String; N]) {
        self.rows.push(row.to_vec());
    }

    pub(super) fn markup(&self, caption: &str) -> Markup {
        html! {
            // Wide ones are moved under the finger, or by the keys once they are reached by Tab.
            div.scroll role="region" aria-label=(caption) tabindex="0" {
                table {
                    thead { tr { @for cell in &self.head { th scope="col" { (cell) } } } }
                    tbody {
                        @for row in &self.rows {
                            tr {
                                @for (at, cell) in row.iter().enumerate() {
                                    @if at == 0 { th scope="row" { (cell) } } @else { td { (cell) } }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Names of series, in their order.
pub(super) enum Legend {
    /// There is one series, or each bar has its name.
    None,
    /// Beside the marks of points.
    Marks(Vec<String>),
    /// Beside the colours of bars' parts.
    Colours(Vec<String>),
}

impl Legend {
    fn markup(&self) -> Markup {
        let (names, sign): (&[String], fn(usize) -> Markup) = match self {
            Self::None => return html! {},
            Self::Marks(names) => (names, |series| mark(series, 8.0, 8.0)),
            Self::Colours(names) => (names, |series| {
                html! { rect.bar.(class(series)) x="1" y="2" width="14" height="12" {} }
            }),
        };
        html! {
            ul.legend {
                @for (series, name) in names.iter().enumerate() {
                    li { svg viewBox="0 0 16 16" width="16" height="16" aria-hidden="true" { (sign(series)) } (name) }
                }
            }
        }
    }
}

/// What stands around a drawing.
pub(super) struct Figure<'a> {
    /// What it shows.
    pub(super) title: &'a str,
    /// What to see in it, in a sentence or two.
    pub(super) says: &'a str,
    /// What its series are called.
    pub(super) legend: Legend,
    /// The drawing.
    pub(super) drawing: Markup,
    /// Its figures.
    pub(super) table: Table,
}

impl Figure<'_> {
    pub(super) fn markup(&self) -> Markup {
        html! {
            figure.card {
                figcaption { h3 { (self.title) } p { (self.says) } }
                (self.legend.markup())
                div role="img" aria-label={ (self.title) ". " (self.says) " The figures are in the table below." } { (self.drawing) }
                details { summary { "Figures" } (self.table.markup(self.title)) }
            }
        }
    }
}

/// A drawing of a height. What stands around it says it in words.
fn drawing(height: f64, inner: &Markup) -> Markup {
    html! {
        svg.chart viewBox={ "0 0 " (WIDTH) " " (round(height)) } aria-hidden="true" {
            (inner)
        }
    }
}

/// The mark of a series: told apart by shape as well as by colour.
fn mark(series: usize, x: f64, y: f64) -> Markup {
    let class = class(series);
    let (x, y) = (round(x), round(y));
    html! {
        @match series % SERIES {
            0 => circle.mark.(class) cx=(x) cy=(y) r="4.5" {},
            1 => rect.mark.(class) x=(round(x - 5.5)) y=(round(y - 5.5)) width="11" height="11" {},
            2 => path.mark.(class) d={ "M" (x) " " (round(y - 5.5)) "l5 9h-10z" } {},
            3 => path.mark.(class) d={ "M" (x) " " (round(y - 6.0)) "l6 6l-6 6l-6-6z" } {},
            4 => path.mark.(class) d={ "M" (x) " " (round(y + 5.5)) "l5-9h-10z" } {},
            _ => path.stroke.(class) d={ "M" (round(x - 4.0)) " " (round(y - 4.0)) "l8 8m0-8l-8 8" } {},
        }
    }
}

fn class(series: usize) -> String {
    format!("s{}", series % SERIES)
}

/// A coordinate, with no more digits than can be seen.
fn round(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}
