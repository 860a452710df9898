//! A plan as people read it.

use std::fmt::{self, Write as _};

use super::{Place, Plan};
use crate::findings::cost::told_by;
use crate::page::figures::grouped;

impl Plan {
    /// The plan as text: machines by region, what was measured, how it was fitted, and what was taken for granted.
    #[must_use]
    pub fn text(&self) -> String {
        let mut out = String::new();
        // Writing to a string cannot fail.
        let _ = self.write(&mut out);
        out
    }

    fn write(&self, out: &mut String) -> fmt::Result {
        let total = &self.total;
        writeln!(
            out,
            "{} calls at once, {} set-ups a second at the worst moment, in {} region{}\n",
            grouped(total.calls),
            grouped(total.set_ups),
            self.regions.len(),
            if self.regions.len() == 1 { "" } else { "s" }
        )?;
        self.write_machines(out)?;
        self.write_network(out)?;
        for caution in &self.cautions {
            writeln!(out, "\nnote: {caution}")?;
        }
        self.write_measured(out)?;
        self.write_fits(out)?;
        writeln!(out, "\nassumed (each is a flag; * is no default)")?;
        for one in &self.assumed {
            let mark = if one.default { ' ' } else { '*' };
            writeln!(
                out,
                "{mark} {:<20} {:<12} {}",
                one.flag, one.value, one.meaning
            )?;
        }
        Ok(())
    }

    /// The regions, and all of them together where that is something else.
    fn rows(&self) -> impl Iterator<Item = &Place> {
        self.regions
            .iter()
            .chain((self.regions.len() > 1).then_some(&self.total))
    }

    fn write_machines(&self, out: &mut String) -> fmt::Result {
        writeln!(
            out,
            "{:<12}{:>14}{:>11}{:>9}{:>14}{:>11}{:>12}{:>12}",
            "machines",
            "calls",
            "set-ups/s",
            "relays",
            "transceivers",
            "signaling",
            "cores",
            "busy cores"
        )?;
        for place in self.rows() {
            let kinds = [&place.relays, &place.transceivers, &place.signaling];
            writeln!(
                out,
                "{:<12}{:>14}{:>11}{:>9}{:>14}{:>11}{:>12}{:>12}",
                place.name,
                grouped(place.calls),
                grouped(place.set_ups),
                grouped(place.relays.machines),
                grouped(place.transceivers.machines),
                grouped(place.signaling.machines),
                grouped(kinds.iter().map(|kind| kind.cores).sum()),
                grouped(kinds.iter().map(|kind| kind.busy_cores).sum()),
            )?;
        }
        let [relay, transceiver] = self.micros_per_call.map(grouped);
        writeln!(
            out,
            "a call takes {relay} µs a second of relays and {transceiver} of transceivers, its set-up apart; relays are as many as {} need",
            match self.total.relays.needed_for {
                "link" => "their links",
                _ => "their cores",
            }
        )
    }

    fn write_network(&self, out: &mut String) -> fmt::Result {
        writeln!(
            out,
            "\n{:<12}{:>14}{:>14}{:>14}{:>13}{:>15}{:>11}{:>14}{:>16}",
            "Gbit/s, each way",
            "clients",
            "relays inside",
            "models",
            "Redis ops/s",
            "at a failure",
            "Redis MiB",
            "MiB a relay",
            "a transceiver"
        )?;
        for place in self.rows() {
            let mebibytes = |bytes: f64| grouped(bytes / f64::from(1 << 20));
            let each = |bytes: Option<f64>| bytes.map_or_else(String::new, mebibytes);
            writeln!(
                out,
                "{:<16}{:>10}{:>14}{:>14}{:>13}{:>15}{:>11}{:>14}{:>16}",
                place.name,
                gigabits(place.bandwidth.public),
                gigabits(place.bandwidth.internal),
                gigabits(place.bandwidth.models),
                grouped(place.redis.writes),
                grouped(place.redis.questions),
                mebibytes(place.redis.bytes),
                each(place.relays.bytes_each),
                each(place.transceivers.bytes_each),
            )?;
        }
        Ok(())
    }

    fn write_measured(&self, out: &mut String) -> fmt::Result {
        writeln!(out, "\nmeasured")?;
        for one in &self.measured {
            let value = match one.value {
                value if value < 100.0 => format!("{value:.2}"),
                value => grouped(value),
            };
            let quick = if one.quick { ", short form" } else { "" };
            writeln!(
                out,
                "  {:<64}{value:>10} {:<11} {}, commit {}{quick}",
                one.what, one.unit, one.file, one.commit
            )?;
        }
        let mut machines: Vec<&str> = Vec::new();
        for one in &self.measured {
            if !machines.contains(&one.machine.as_str()) {
                machines.push(&one.machine);
            }
        }
        writeln!(out, "  on {}", machines.join("; "))
    }

    fn write_fits(&self, out: &mut String) -> fmt::Result {
        if self.fitted.is_empty() {
            return Ok(());
        }
        writeln!(
            out,
            "\nfitted: processor time in a second = fixed + each × calls (or set-ups a second)"
        )?;
        for one in &self.fitted {
            writeln!(
                out,
                "  {:<26}{:>9} ms fixed,{:>10} µs each, {}",
                format!("{}, {}", one.program, one.kind.replace('_', "-")),
                format!("{:.2}", one.fixed / 1e3),
                // A line that falls found nothing that a call costs: no cost is below nothing. What is added takes the sign off a zero.
                format!("{:.1}", one.each.max(0.0) + 0.0),
                told_by(one.points.len(), one.explained, |share| format!(
                    "{:.1} % explained",
                    100.0 * share
                ))
            )?;
            for (load, measured, line) in &one.points {
                writeln!(
                    out,
                    "  {:>14} {:>20} ms measured,{:>9} by the line",
                    grouped(*load),
                    format!("{:.2}", measured / 1e3),
                    format!("{:.2}", line / 1e3)
                )?;
            }
        }
        Ok(())
    }
}

fn gigabits(bits: f64) -> String {
    match bits / 1e9 {
        small if small < 10.0 => format!("{small:.2}"),
        large => grouped(large),
    }
}
