//! Charts of a report, as SVG that stands alone.

use std::fmt::Write as _;

use crate::bench::FlowCost;
use crate::report::Report;

const WIDTH: f64 = 860.0;
const LABEL: f64 = 260.0;
const ROW: f64 = 22.0;

/// One bar.
#[derive(Clone, Debug)]
pub struct Bar {
    /// What it is.
    pub label: String,
    /// How long it is.
    pub value: f64,
    /// Whether it stands out.
    pub ours: bool,
}

/// The costs of a packet, as bars in the order of the cases.
#[must_use]
pub fn costs(report: &Report) -> String {
    let bars: Vec<Bar> = report
        .costs
        .iter()
        .map(|(id, case)| Bar {
            label: format!("{id} ({})", case.program),
            value: case.nanos,
            ours: id.starts_with("relay"),
        })
        .collect();
    self::bars("Processor time per packet, nanoseconds", &bars)
}

/// Horizontal bars, each with its value.
#[must_use]
pub fn bars(title: &str, bars: &[Bar]) -> String {
    let most = bars.iter().map(|bar| bar.value).fold(1.0, f64::max);
    let height = ROW * (bars.len() as f64 + 2.5);
    let mut svg = start(title, height);
    for (i, bar) in bars.iter().enumerate() {
        let y = ROW * (i as f64 + 2.0);
        let length = (WIDTH - LABEL - 90.0) * (bar.value / most).max(0.0);
        let colour = if bar.ours { "#0b7285" } else { "#adb5bd" };
        let _ = writeln!(
            svg,
            "<text x=\"{:.0}\" y=\"{:.0}\" text-anchor=\"end\">{}</text>\
             <rect x=\"{LABEL}\" y=\"{:.0}\" width=\"{length:.1}\" height=\"15\" fill=\"{colour}\"/>\
             <text x=\"{:.0}\" y=\"{:.0}\">{:.0}</text>",
            LABEL - 8.0,
            y + 12.0,
            escape(&bar.label),
            y,
            LABEL + length + 6.0,
            y + 12.0,
            bar.value
        );
    }
    svg + "</svg>\n"
}

/// The cost of a packet against the number of flows, which is on a logarithmic axis.
#[must_use]
pub fn flows(costs: &[FlowCost]) -> String {
    let (height, bottom, left) = (360.0, 310.0, 80.0);
    let mut svg = start(
        "Processor time per uplink packet, nanoseconds, against flows",
        height,
    );
    let most = costs.iter().map(|cost| cost.cost.nanos).fold(1.0, f64::max) * 1.1;
    let decades = costs
        .iter()
        .map(|cost| f64::from(cost.flows).log10())
        .fold(1.0, f64::max);
    let x = |flows: u32| left + (WIDTH - left - 60.0) * f64::from(flows).log10() / decades;
    let y = |nanos: f64| bottom - (bottom - 50.0) * nanos / most;
    let _ = writeln!(
        svg,
        "<path d=\"M{left} 50V{bottom}H{:.0}\" fill=\"none\" stroke=\"#495057\"/>",
        WIDTH - 40.0
    );
    let mut line = String::new();
    for cost in costs {
        let (x, y) = (x(cost.flows), y(cost.cost.nanos));
        let _ = write!(
            line,
            "{}{x:.1} {y:.1}",
            if line.is_empty() { "M" } else { "L" }
        );
        let _ = writeln!(
            svg,
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\" fill=\"#0b7285\"/>\
             <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{:.0}</text>\
             <text x=\"{x:.1}\" y=\"{:.0}\" text-anchor=\"middle\">{}</text>",
            y - 10.0,
            cost.cost.nanos,
            bottom + 20.0,
            cost.flows
        );
    }
    let _ = writeln!(svg, "<path d=\"{line}\" fill=\"none\" stroke=\"#0b7285\"/>");
    svg + "</svg>\n"
}

fn start(title: &str, height: f64) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height:.0}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n\
         <text x=\"16\" y=\"24\" font-size=\"15\" font-weight=\"bold\">{}</text>\n",
        escape(title)
    )
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chart_names_every_bar_and_closes() {
        let bar = |label: &str, value| Bar {
            label: label.to_owned(),
            value,
            ours: true,
        };
        let svg = bars("a < b", &[bar("one", 10.0), bar("two", 20.0)]);
        assert!(svg.contains("a &lt; b") && svg.contains(">one<") && svg.contains(">20<"));
        assert!(svg.ends_with("</svg>\n"));
    }
}
