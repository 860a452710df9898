//! A report as text for people.

use std::fmt;

use super::{CallReport, PHASES, PHASES_IN_WORDS, Spread};

fn row(f: &mut fmt::Formatter<'_>, name: &str, spread: Option<&Spread>) -> fmt::Result {
    let Some(spread) = spread else {
        return writeln!(f, "{name:<28}        -");
    };
    writeln!(
        f,
        "{name:<28}{:>9.1} ms p50 {:>9.1} p99 {:>9.1} p99.9 {:>9.1} max",
        spread.p50, spread.p99, spread.p999, spread.max
    )
}

impl fmt::Display for CallReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "calls                       {:>9} placed, {} connected, {} heard audio, {} cut, {} unclosed, {} broken",
            self.calls, self.connected, self.audible, self.cut, self.unclosed, self.broken
        )?;
        for (why, count) in &self.failures {
            writeln!(f, "  failed                    {count:>9} × {why}")?;
        }
        if self.restarts + self.moves + self.rebinds > 0 {
            writeln!(
                f,
                "troubles                    {:>9} ICE restarts, {} moves, {} rebinds, {} restarts refused",
                self.restarts, self.moves, self.rebinds, self.restarts_failed
            )?;
        }
        for (phase, name) in PHASES.into_iter().zip(PHASES_IN_WORDS) {
            // Calls without audio count there with all of their time: with no others, that is no figure, nor that nothing was lost.
            let heard = phase != "total" || self.connected > 0;
            row(f, name, self.set_up.get(phase).filter(|_| heard))?;
        }
        row(f, "mouth to ear", self.mouth_to_ear.as_ref())?;
        if let Some(echo) = self.echo_delay_ms {
            writeln!(
                f,
                "  subtracted                {echo:>9.1} ms, what the echo waits on purpose"
            )?;
        }
        if self.barge_ins > 0 {
            row(f, "barge-in after voice", self.barge_in.as_ref())?;
            row(
                f,
                "barge-in after its event",
                self.barge_in_from_event.as_ref(),
            )?;
        }
        row(f, "lateness of packets", self.lateness.as_ref())?;
        row(f, "jitter of calls", self.jitter.as_ref())?;
        row(f, "longest pause of calls", self.longest_gap.as_ref())?;
        if self.connected > 0 {
            self.write_heard(f)?;
        } else {
            writeln!(
                f,
                "nothing was measured of what calls hear: none of {} was connected",
                self.calls
            )?;
        }
        // Why none was connected, these may tell.
        writeln!(
            f,
            "generator                   {:>8.0} % of a processor, {} packets lost by its own sockets",
            100.0 * self.generator_busy,
            self.generator_lost
        )?;
        for program in &self.watched {
            writeln!(
                f,
                "{:<16}{:>8} {:>11.0} % of a processor, {:.0} µs per call and second, {:+.1} MiB and {:+} descriptors while calls were up, \
                 {:+.1} MiB and {:+} after",
                program.name,
                program.pid,
                100.0 * program.busy,
                program.micros_per_call_second,
                mebibytes(program.during.resident, program.before.resident),
                program.during.descriptors as i64 - program.before.descriptors as i64,
                mebibytes(program.after.resident, program.before.resident),
                program.after.descriptors as i64 - program.before.descriptors as i64,
            )?;
        }
        Ok(())
    }
}

impl CallReport {
    fn write_heard(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "packets                     {:>9} received in {:.1} s, {:.4} % lost, {} gaps above 60 ms in {} calls",
            self.received,
            self.counted_seconds,
            100.0 * self.lost,
            self.gaps,
            self.calls_with_gaps
        )?;
        writeln!(
            f,
            "marks                       {:>9} came back, {} did not, {} left out by the generator",
            self.marks_heard, self.marks_missed, self.marks_left_out
        )?;
        if self.marks_early > 0 {
            writeln!(
                f,
                "  too early                 {:>9} sooner than the echo is said to wait: it waits less, and they are not in mouth to ear",
                self.marks_early
            )?;
        }
        Ok(())
    }
}

fn mebibytes(now: u64, before: u64) -> f64 {
    (now as f64 - before as f64) / f64::from(1 << 20)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::Part;
    use super::*;
    use crate::call::recording::Codec;

    #[test]
    fn what_the_generator_did_is_said_though_no_call_connected() {
        let part = Part {
            placed: 3,
            refused: 7,
            busy: 0.97,
            ..Part::default()
        };
        let second = Duration::from_secs(1);
        let text = CallReport::new(&part, Codec::Opus, 10.0, second, second).to_string();
        for words in [
            "none of 3 was connected",
            "97 % of a processor, 7 packets lost by its own sockets",
        ] {
            assert!(text.contains(words), "{words}: {text}");
        }
        assert!(!text.contains("gaps above"), "{text}");
    }
}
