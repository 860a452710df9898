//! What a load of calls showed: serialised, this is for machines; as text, for people.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use serde::Serialize;

use super::client::Times;
use super::hearing::Heard;
use super::recording::Codec;
use super::watch::Watched;

mod text;

/// How many different failures are told apart; the others are counted together.
const FAILURES: usize = 20;

/// Quantiles in milliseconds.
#[derive(Clone, Copy, Default, PartialEq, Debug, Serialize)]
pub struct Spread {
    /// Median.
    pub p50: f64,
    /// 99th percentile.
    pub p99: f64,
    /// 99.9th percentile.
    pub p999: f64,
    /// The largest.
    pub max: f64,
}

impl Spread {
    /// Of a histogram of microseconds; nothing when it is empty.
    #[must_use]
    pub fn of(micros: &Histogram<u64>) -> Option<Self> {
        let at = |quantile| micros.value_at_quantile(quantile) as f64 / 1e3;
        (!micros.is_empty()).then(|| Self {
            p50: at(0.5),
            p99: at(0.99),
            p999: at(0.999),
            max: micros.max() as f64 / 1e3,
        })
    }
}

/// Set-up times of all calls of one thread, in microseconds.
#[derive(Clone)]
pub struct SetUpTimes([Histogram<u64>; PHASES.len()]);

/// What is timed in a set-up, in order.
const PHASES: [&str; 7] = [
    "answer",
    "ice",
    "dtls",
    "connected",
    "channel",
    "first_audio",
    "total",
];

/// The same in words.
const PHASES_IN_WORDS: [&str; PHASES.len()] = [
    "answer after offer",
    "ICE after answer",
    "DTLS after ICE",
    "connected after answer",
    "channel after answer",
    "audio after connected",
    "audio after offer",
];

impl Default for SetUpTimes {
    fn default() -> Self {
        Self(std::array::from_fn(|_| {
            Histogram::new_with_bounds(1, 120_000_000, 3)
                .unwrap_or_else(|_| unreachable!("the bounds are valid"))
        }))
    }
}

impl SetUpTimes {
    /// Takes one call's, that was due then; nothing where it did not get so far. But where no audio came by when its time was over, at `ends`, the whole took until then
    /// at least, and is not left out.
    pub fn record(&mut self, due: Instant, times: &Times, ends: Option<Instant>) {
        let between =
            |from: Option<Instant>, to: Option<Instant>| Some(to?.saturating_duration_since(from?));
        let phases = [
            between(Some(due), times.answered),
            between(times.answered, times.ice),
            between(times.ice, times.connected),
            between(times.answered, times.connected),
            between(times.answered, times.channel),
            between(times.connected, times.first_audio),
            between(Some(due), times.first_audio.or(ends)),
        ];
        for (histogram, time) in self.0.iter_mut().zip(phases) {
            if let Some(time) = time {
                histogram.saturating_record((time.as_micros() as u64).max(1));
            }
        }
    }

    fn add(&mut self, other: &Self) {
        for (to, from) in self.0.iter_mut().zip(&other.0) {
            // The bounds are the same: it cannot fail.
            let _ = to.add(from);
        }
    }
}

/// What one thread of the generator has to tell.
#[derive(Clone, Default)]
pub struct Part {
    /// Calls that were offered.
    pub placed: u64,
    /// Calls whose offer was answered.
    pub answered: u64,
    /// Calls whose DTLS came up.
    pub connected: u64,
    /// Calls whose channel opened.
    pub channels: u64,
    /// Calls that heard audio.
    pub audible: u64,
    /// Calls that the server ended before their time.
    pub cut: u64,
    /// Calls that were hung up, and whose client did not hear of it in time.
    pub unclosed: u64,
    /// Calls whose engine failed after DTLS had come up, and not for a refused restart.
    pub broken: u64,
    /// ICE restarts where the client was.
    pub restarts: u64,
    /// Other addresses, with an ICE restart.
    pub moves: u64,
    /// Other ports, of which nobody was told.
    pub rebinds: u64,
    /// ICE restarts that were refused.
    pub restarts_failed: u64,
    /// Why calls failed, and how many.
    pub failures: BTreeMap<String, u64>,
    /// Packets of the recording that were sent, over all.
    pub sent: u64,
    /// Packets and datagrams that the generator's own sockets lost.
    pub refused: u64,
    /// What was heard while it counted.
    pub heard: Heard,
    /// Set-up times.
    pub set_up: SetUpTimes,
    /// Share of its processor that the thread used while it counted.
    pub busy: f64,
}

impl Part {
    /// Counts a failure.
    pub fn fail(&mut self, why: &str) {
        let known = self.failures.contains_key(why) || self.failures.len() < FAILURES;
        let why = if known { why } else { "other" };
        *self.failures.entry(why.to_owned()).or_default() += 1;
    }

    /// Takes in what another thread has to tell.
    pub fn add(&mut self, other: &Self) {
        self.placed += other.placed;
        self.answered += other.answered;
        self.connected += other.connected;
        self.channels += other.channels;
        self.audible += other.audible;
        self.cut += other.cut;
        self.unclosed += other.unclosed;
        self.broken += other.broken;
        self.restarts += other.restarts;
        self.moves += other.moves;
        self.rebinds += other.rebinds;
        self.restarts_failed += other.restarts_failed;
        for (why, count) in &other.failures {
            *self.failures.entry(why.clone()).or_default() += count;
        }
        self.sent += other.sent;
        self.refused += other.refused;
        self.heard.add(&other.heard);
        self.set_up.add(&other.set_up);
        self.busy = self.busy.max(other.busy);
    }
}

/// What a load of calls showed.
#[derive(Clone, Debug, Serialize)]
pub struct CallReport {
    /// Calls that were offered.
    pub calls: u64,
    /// Per second.
    pub ramp: f64,
    /// How long each lasted, in seconds.
    pub hold_seconds: f64,
    /// Their codec.
    pub codec: Codec,
    /// For how many seconds what was heard counted: while all calls were up, or all the time.
    pub counted_seconds: f64,
    /// Calls whose offer was answered.
    pub answered: u64,
    /// Calls whose DTLS came up.
    pub connected: u64,
    /// Calls whose channel opened.
    pub channels: u64,
    /// Calls that heard audio.
    pub audible: u64,
    /// Calls that the server ended before their time.
    pub cut: u64,
    /// Calls that were hung up, and whose client did not hear of it in time.
    pub unclosed: u64,
    /// Calls whose engine failed after DTLS had come up, and not for a refused restart.
    pub broken: u64,
    /// ICE restarts where the client was.
    pub restarts: u64,
    /// Other addresses, with an ICE restart.
    pub moves: u64,
    /// Other ports, of which nobody was told.
    pub rebinds: u64,
    /// ICE restarts, of either kind, that were refused: these calls are over.
    pub restarts_failed: u64,
    /// Why calls failed, and how many.
    pub failures: BTreeMap<String, u64>,
    /// Set-up times in milliseconds: `answer` from when the offer was due; `ice` from the answer and `dtls` from ICE; `connected` (both) and `channel` from the
    /// answer; `first_audio` from DTLS; `total`, the first audio from when the offer was due. Of those that got so far; but in `total` a call that never heard audio
    /// counts with all of its time, unless clients say nothing, to which nothing may be answered.
    pub set_up: BTreeMap<&'static str, Spread>,
    /// Packets that clients sent.
    pub sent: u64,
    /// Packets that clients got, while it counted.
    pub received: u64,
    /// The share of packets that did not come: by the sequence numbers of those that did, and one for each 20 ms from the last one until the call's end, where that is a gap.
    pub lost: f64,
    /// How much later than the earliest of the last seconds packets came, in milliseconds, by their timestamps.
    pub lateness: Option<Spread>,
    /// Jitter of calls at their end, in milliseconds.
    pub jitter: Option<Spread>,
    /// Gaps of more than 60 ms between packets, lost ones between them or not, or after the last one until the call's end; unless the sender was silent.
    pub gaps: u64,
    /// Calls that had such a gap.
    pub calls_with_gaps: u64,
    /// The longest pause between two packets of each call, lost ones between them or not, or after the last one, in milliseconds.
    pub longest_gap: Option<Spread>,
    /// How long it took what clients said to come back to them, by marks in the audio, in milliseconds; what the echo waits on purpose subtracted, and nothing
    /// when what answers is no echo. Counted from when the first sample was due to be spoken, a frame before its packet. A mark that was listened for in vain by a client
    /// that had heard some counts with as long as it was listened for.
    pub mouth_to_ear: Option<Spread>,
    /// What of that the echo waits on purpose and was subtracted, in milliseconds; nothing where no marks are listened for.
    pub echo_delay_ms: Option<f64>,
    /// Marks that came back, while it counted.
    pub marks_heard: u64,
    /// Marks that did not, or not while they were listened for.
    pub marks_missed: u64,
    /// Marks that came back sooner than the echo is said to wait: what was to be subtracted is too much, and they are not in `mouth_to_ear`.
    pub marks_early: u64,
    /// Marks that the generator stood still for, and did not say or not whole.
    pub marks_left_out: u64,
    /// How long a server spoke on that was interrupted, from when the client began to speak until its last packet with sound, in milliseconds; nothing when none was.
    pub barge_in: Option<Spread>,
    /// The same from when the server said that it hears the client.
    pub barge_in_from_event: Option<Spread>,
    /// Interruptions.
    pub barge_ins: u64,
    /// Share of its processor that the busiest thread of the generator used: near 1, the figures are the generator's own.
    pub generator_busy: f64,
    /// Packets and datagrams that the generator's own sockets lost.
    pub generator_lost: u64,
    /// The programs that were watched.
    pub watched: Vec<Watched>,
}

impl CallReport {
    /// Puts together what the threads have to tell of calls like these.
    #[must_use]
    pub fn new(part: &Part, codec: Codec, ramp: f64, hold: Duration, counted: Duration) -> Self {
        let set_up = PHASES
            .into_iter()
            .zip(&part.set_up.0)
            .filter_map(|(name, times)| Some((name, Spread::of(times)?)));
        Self {
            calls: part.placed,
            ramp,
            hold_seconds: hold.as_secs_f64(),
            codec,
            counted_seconds: counted.as_secs_f64(),
            answered: part.answered,
            connected: part.connected,
            channels: part.channels,
            audible: part.audible,
            cut: part.cut,
            unclosed: part.unclosed,
            broken: part.broken,
            restarts: part.restarts,
            moves: part.moves,
            rebinds: part.rebinds,
            restarts_failed: part.restarts_failed,
            failures: part.failures.clone(),
            set_up: set_up.collect(),
            sent: part.sent,
            received: part.heard.received,
            lost: part.heard.lost(),
            lateness: Spread::of(&part.heard.lateness),
            jitter: Spread::of(&part.heard.jitter),
            gaps: part.heard.gaps,
            calls_with_gaps: part.heard.calls_with_gaps,
            longest_gap: Spread::of(&part.heard.longest_gap),
            mouth_to_ear: Spread::of(&part.heard.mouth_to_ear),
            echo_delay_ms: None,
            marks_heard: part.heard.marks_heard,
            marks_missed: part.heard.marks_missed,
            marks_early: part.heard.marks_early,
            marks_left_out: part.heard.marks_left_out,
            barge_in: Spread::of(&part.heard.barge_in),
            barge_in_from_event: Spread::of(&part.heard.barge_in_from_event),
            barge_ins: part.heard.barge_in_from_event.len(),
            generator_busy: part.busy,
            generator_lost: part.refused,
            watched: Vec::new(),
        }
    }

    /// Calls that did not do all that they should: connect, stay, and hear of their end.
    #[must_use]
    pub fn failed(&self) -> u64 {
        self.calls - self.connected + self.cut + self.unclosed + self.broken + self.restarts_failed
    }

    /// Calls that failed, and of those that connected and should hear something, calls that never did: they are no load such as the others are.
    /// One that both heard nothing and broke later is two.
    #[must_use]
    pub fn lost_calls(&self) -> u64 {
        let silent = self.connected.saturating_sub(self.audible);
        (self.failed() + silent).min(self.calls)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_add_up_and_failures_are_bounded() {
        let mut part = Part {
            placed: 3,
            connected: 2,
            cut: 1,
            broken: 1,
            busy: 0.2,
            ..Part::default()
        };
        let mut other = Part {
            placed: 40,
            connected: 40,
            busy: 0.5,
            ..Part::default()
        };
        for n in 0..30 {
            other.fail(&format!("cause {n}"));
        }
        let due = Instant::now();
        let later = |ms| Some(due + Duration::from_millis(ms));
        other.set_up.record(
            due,
            &Times {
                answered: later(5),
                ice: later(7),
                connected: later(12),
                ..Times::default()
            },
            later(900),
        );
        part.add(&other);
        assert_eq!(part.failures.len(), FAILURES + 1);
        assert_eq!(part.failures["other"], 10);
        let second = Duration::from_secs(1);
        let report = CallReport::new(&part, Codec::Opus, 10.0, second, second);
        assert_eq!((report.calls, report.failed()), (43, 3));
        assert_eq!(report.generator_busy, 0.5);
        let medians: Vec<_> = report
            .set_up
            .iter()
            .map(|(phase, spread)| (*phase, spread.p50.round() as u64))
            .collect();
        assert_eq!(
            medians,
            [
                ("answer", 5),
                ("connected", 7),
                ("dtls", 5),
                ("ice", 2),
                ("total", 900)
            ],
            "no audio came until the end"
        );
        let text = report.to_string();
        assert!(
            text.contains("answer after offer") && text.contains("10 × other"),
            "{text}"
        );
        assert!(serde_json::to_string(&report).is_ok());
    }

    #[test]
    fn calls_that_connected_and_heard_nothing_are_lost_too() {
        let second = Duration::from_secs(1);
        let report = |placed, connected, audible| {
            let part = Part {
                placed,
                connected,
                audible,
                ..Part::default()
            };
            CallReport::new(&part, Codec::Pcmu, 1.0, second, second).lost_calls()
        };
        assert_eq!(report(9, 9, 9), 0);
        assert_eq!(report(9, 9, 7), 2);
        // One that failed heard nothing either, and is one.
        assert_eq!(report(9, 8, 8), 1);
    }
}
