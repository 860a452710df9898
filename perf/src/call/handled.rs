//! What relay and transceiver handled for the processor time that they took: datagrams, packets and system calls, as they count them themselves.
//!
//! A sum of both programs' time says whether a target is met; this says where the time goes, and whether it goes for more work than one would think. Pure,
//! but for [`Reading::of`].

use std::fmt;
use std::io;
use std::time::Instant;

use serde::{Deserialize, Serialize};

use super::stack::Stack;
use super::watch::Watched;
use crate::metrics::Metrics;
use crate::report::median;

/// What a relay counts: as people read it, and the metric.
const RELAY: [(&str, &str); 5] = [
    ("packets from clients", "uplink_packets_total"),
    ("datagrams to the trunk", "trunk_datagrams_sent_total"),
    ("datagrams from the trunk", "downlink_datagrams_total"),
    ("packets to clients", "client_packets_sent_total"),
    ("system calls", "system_calls_total"),
];

/// The same of a transceiver, which does not count its system calls.
const TRANSCEIVER: [(&str, &str); 4] = [
    ("datagrams from the trunk", "trunk_datagrams_received_total"),
    ("packets in them", "trunk_records_received_total"),
    ("datagrams to the trunk", "trunk_datagrams_sent_total"),
    ("packets in them", "trunk_records_sent_total"),
];

/// One program of those that were compared. All of it is per call and second.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Handled {
    /// `relay` or `transceiver`.
    pub program: String,
    /// Its processor time, in microseconds.
    pub micros: f64,
    /// What it counted meanwhile, and how many.
    pub counts: Vec<(String, f64)>,
}

impl fmt::Display for Handled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            program, micros, ..
        } = self;
        write!(f, "{program} {micros:.0} µs per call and second")?;
        for (at, (what, count)) in self.counts.iter().enumerate() {
            let joint = if at == 0 { ", for" } else { "," };
            write!(f, "{joint} {count:.1} {what}")?;
        }
        Ok(())
    }
}

/// Both programs' counters at one moment.
pub struct Reading {
    at: Instant,
    relay: Metrics,
    transceiver: Metrics,
}

impl Reading {
    /// Asks the programs.
    ///
    /// # Errors
    /// One of them is not there, or does not answer.
    pub fn of(stack: &Stack) -> io::Result<Self> {
        Ok(Self {
            at: Instant::now(),
            relay: stack.relay_metrics()?,
            transceiver: stack.transceiver_metrics()?,
        })
    }

    /// What the programs, watched meanwhile, handled from this reading to a later one, with so many calls up.
    #[must_use]
    pub fn until(&self, later: &Self, calls: u32, watched: &[Watched]) -> Vec<Handled> {
        let seconds = later.at.saturating_duration_since(self.at).as_secs_f64();
        let handled = |program: &str, names: &[(&str, &str)], from: &Metrics, to: &Metrics| {
            let watched = watched.iter().find(|watched| watched.name == program)?;
            let counts = names.iter().map(|(what, name)| {
                let count = to.sum(name).saturating_sub(from.sum(name)) as f64;
                ((*what).to_owned(), count / seconds / f64::from(calls))
            });
            Some(Handled {
                program: program.to_owned(),
                micros: watched.micros_per_call_second,
                counts: counts.collect(),
            })
        };
        let (relay, transceiver) = (&self.relay, &self.transceiver);
        [
            handled("relay", &RELAY, relay, &later.relay),
            handled("transceiver", &TRANSCEIVER, transceiver, &later.transceiver),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}

/// The medians of what passes showed, figure by figure; each pass has the same programs.
#[must_use]
pub fn medians(passes: &[Vec<Handled>]) -> Vec<Handled> {
    let Some(first) = passes.first() else {
        return Vec::new();
    };
    let of = |at: usize, figure: &dyn Fn(&Handled) -> Option<f64>| {
        let figures = passes.iter().filter_map(|pass| figure(pass.get(at)?));
        median(figures.collect())
    };
    let programs = first.iter().enumerate().filter_map(|(at, one)| {
        let counts = one.counts.iter().enumerate().filter_map(|(i, (what, _))| {
            let count = of(at, &|handled| Some(handled.counts.get(i)?.1))?;
            Some((what.clone(), count))
        });
        Some(Handled {
            program: one.program.clone(),
            micros: of(at, &|handled| Some(handled.micros))?,
            counts: counts.collect(),
        })
    });
    programs.collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::watch::Held;
    use super::*;

    fn watched(name: &str, micros_per_call_second: f64) -> Watched {
        Watched {
            pid: 1,
            name: name.to_owned(),
            before: Held::default(),
            during: Held::default(),
            after: Held::default(),
            busy: 0.5,
            micros_per_call_second,
        }
    }

    #[test]
    fn counts_are_what_came_between_two_readings_for_each_call_and_second() {
        let now = Instant::now();
        let first = Reading {
            at: now,
            relay: Metrics::parse(
                "firsthop_relay_uplink_packets_total{core=\"0\"} 100\nfirsthop_relay_system_calls_total{core=\"0\"} 7\n",
            ),
            transceiver: Metrics::default(),
        };
        let last = Reading {
            at: now + Duration::from_secs(4),
            relay: Metrics::parse(
                "firsthop_relay_uplink_packets_total{core=\"0\"} 1100\nfirsthop_relay_uplink_packets_total{core=\"1\"} 1000\nfirsthop_relay_system_calls_total{core=\"0\"} 207\n",
            ),
            transceiver: Metrics::default(),
        };
        // Signaling is watched too, and no server of media.
        let watched = [watched("relay", 300.0), watched("signaling", 9.0)];
        let handled = first.until(&last, 10, &watched);
        let [relay] = &handled[..] else {
            panic!("{handled:?}");
        };
        assert_eq!((relay.program.as_str(), relay.micros), ("relay", 300.0));
        let count = |name: &str| relay.counts.iter().find(|(what, _)| what == name);
        assert_eq!(count("packets from clients").expect("counted").1, 50.0);
        assert_eq!(count("system calls").expect("counted").1, 5.0);
        let text = relay.to_string();
        assert!(
            text.starts_with("relay 300 µs per call and second, for 50.0 packets from clients, "),
            "{text}"
        );
        assert!(text.ends_with(", 5.0 system calls"), "{text}");
    }

    #[test]
    fn passes_are_summed_up_by_their_medians() {
        let pass = |micros: f64, count: f64| {
            vec![Handled {
                program: "relay".to_owned(),
                micros,
                counts: vec![("system calls".to_owned(), count)],
            }]
        };
        let found = medians(&[pass(300.0, 5.0), pass(900.0, 4.0), pass(310.0, 6.0)]);
        assert_eq!(found, pass(310.0, 5.0));
        assert_eq!(medians(&[]), []);
    }

    /// The programs' own words for what they count.
    #[test]
    fn every_metric_is_one_that_is_documented() {
        let documented = include_str!("../../../docs/metrics.md");
        let relay = RELAY.map(|(_, name)| format!("`firsthop_relay_{name}`"));
        let transceiver = TRANSCEIVER.map(|(_, name)| format!("`firsthop_transceiver_{name}`"));
        for name in relay.iter().chain(&transceiver) {
            assert!(documented.contains(name), "{name}");
        }
    }
}
