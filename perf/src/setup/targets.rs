//! What is asked of Firsthop's set-up, held against what a ladder found. Pure.

use serde::{Deserialize, Serialize};

use super::results::{Case, Channel, Connection, Phase, RoundTrips, Rung, Subject};

/// Round trips from the POST to first audio back, at most, with a channel in the offer.
pub const ROUND_TRIPS: f64 = 5.0;

/// The same without one.
pub const ROUND_TRIPS_NO_CHANNEL: f64 = 4.0;

/// What set-up through the relay may take of what it takes past it.
pub const RELAY_OVER_DIRECT: f64 = 1.05;

/// The line on which these are asked for, in milliseconds of round-trip time.
pub const TARGET_RTT_MS: f64 = 20.0;

/// What a target is of, for programs: its name is for people.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "of", rename_all = "snake_case")]
pub enum Key {
    /// The time from the POST to first audio back through the relay, over the round-trip time of the line.
    Audio {
        /// Of the line, in milliseconds.
        rtt_ms: f64,
        /// Of the offer.
        channel: Channel,
    },
    /// The time until a call is up through the relay, over that past it, while no other call is up.
    RelayOverDirect {
        /// Of the line, in milliseconds.
        rtt_ms: f64,
        /// Of the offer.
        channel: Channel,
    },
    /// The same while other calls are up, without a channel.
    RelayOverDirectLoaded {
        /// Of the line, in milliseconds.
        rtt_ms: f64,
        /// Which figure of the times.
        figure: Figure,
    },
}

/// A figure of many times.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Figure {
    /// The median.
    Median,
    /// The 99th percentile.
    P99,
}

impl Figure {
    /// As targets have it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Median => "median",
            Self::P99 => "p99",
        }
    }
}

impl Key {
    /// As tables and files have it.
    #[must_use]
    pub fn name(self) -> String {
        let over = "set-up through the relay / direct";
        match self {
            Self::Audio { rtt_ms, channel } => format!(
                "time from POST to first audio back, to the round-trip time of a line of {rtt_ms:.0} ms, {}",
                channel.name()
            ),
            Self::RelayOverDirect { rtt_ms, channel } => {
                format!("{over}, {rtt_ms:.0} ms, {}", channel.name())
            }
            Self::RelayOverDirectLoaded { rtt_ms, figure } => format!(
                "{over}, {rtt_ms:.0} ms, beside calls that are up, {}",
                figure.name()
            ),
        }
    }
}

/// Something that was asked for.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Target {
    /// What, for people.
    pub name: String,
    /// What, for programs. Older files do not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<Key>,
    /// What was found.
    pub found: f64,
    /// What it may be at most.
    pub must: f64,
    /// Whether it is. The page says the same of `found` and `must`.
    pub met: bool,
    /// What each side did, where the name does not say it all.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub how: String,
}

impl Target {
    /// Holds what was found against what it may be at most.
    pub(super) fn new(key: Key, found: f64, must: f64) -> Self {
        Self {
            name: key.name(),
            key: Some(key),
            found,
            must,
            met: found <= must,
            how: String::new(),
        }
    }

    /// Says what each side did.
    pub(super) fn how(self, how: String) -> Self {
        Self { how, ..self }
    }
}

/// All that the rungs tell of.
pub(super) fn targets(rungs: &[Rung], round_trips: &[RoundTrips]) -> Vec<Target> {
    let mut targets = Vec::new();
    let asked = rungs.iter().filter(|rung| {
        (rung.case.subject, rung.case.connection) == (Subject::Relay, Connection::Warm)
            && (rung.loss, rung.rtt_ms) == (0.0, TARGET_RTT_MS)
    });
    for rung in asked {
        let Some(audio) = rung.phases.get(&Phase::Audio) else {
            continue;
        };
        let channel = rung.case.channel;
        let must = match channel {
            Channel::Without => ROUND_TRIPS_NO_CHANNEL,
            Channel::Handshake | Channel::Snap => ROUND_TRIPS,
        };
        let rtt_ms = TARGET_RTT_MS;
        let mut how = format!(
            "the median time of {:.1} ms over the line's round-trip time of {rtt_ms:.0} ms: what both ends compute counts as round trips",
            audio.p50
        );
        // It is told, and not held against anything.
        let fits = round_trips
            .iter()
            .map(|found| (found.case, found.phase, found.fit));
        for (_, _, fit) in fits.filter(|(case, phase, fit)| {
            (*case, *phase) == (rung.case, Phase::Audio) && fit.is_straight()
        }) {
            how += &format!(
                "; the line through the medians on lines of {} lengths: {fit}",
                fit.points
            );
        }
        let key = Key::Audio { rtt_ms, channel };
        targets.push(Target::new(key, audio.p50 / rtt_ms, must).how(how));
    }
    for rung in rungs.iter().filter(|rung| rung.loss == 0.0) {
        let direct = Case {
            subject: Subject::Direct,
            ..rung.case
        };
        let beside = rungs
            .iter()
            .find(|other| other.case == direct && other.loss == 0.0 && other.rtt_ms == rung.rtt_ms);
        // On a line of no length both take what the programs take, which the capacity of the relay tells of.
        if rung.case.subject == Subject::Relay
            && rung.rtt_ms > 0.0
            && let (Some(through), Some(past)) = (ready(rung), beside.and_then(ready))
        {
            let key = Key::RelayOverDirect {
                rtt_ms: rung.rtt_ms,
                channel: rung.case.channel,
            };
            targets.push(Target::new(key, through / past, RELAY_OVER_DIRECT));
        }
    }
    targets
}

/// The median time until a call is up: DTLS, and the channel where one was offered.
fn ready(rung: &Rung) -> Option<f64> {
    let last = match rung.case.channel {
        Channel::Without => Phase::Dtls,
        Channel::Handshake | Channel::Snap => Phase::Channel,
    };
    Some(rung.phases.get(&last)?.p50)
}

#[cfg(test)]
mod tests {
    use super::super::results::tests::ladder;
    use super::super::results::{Climbed, SetupResults};
    use super::*;
    use crate::measured::Measured;

    /// What is met when set-up takes so many round trips through the relay, where it takes three past it, and audio so many.
    fn met(dtls: f64, audio: f64) -> Vec<bool> {
        let mut climbed = ladder(Subject::Relay, Channel::Without, dtls, audio);
        climbed.extend(ladder(Subject::Direct, Channel::Without, 3.0, audio));
        let results = SetupResults::of(Measured::default(), true, &climbed, Vec::new());
        results.targets.iter().map(|target| target.met).collect()
    }

    #[test]
    fn the_time_on_a_short_line_is_asked_for_with_all_that_is_in_it() {
        // With 3.9 round trips and 9 ms on top, on a line of 20 ms, it is 4.35 of them.
        assert_eq!(met(3.0, 3.9), [false, true, true, true]);
        assert_eq!(met(3.0, 3.5), [true; 4]);
    }

    #[test]
    fn a_line_is_told_beside_what_was_found_where_there_is_one() {
        let mut climbed = ladder(Subject::Relay, Channel::Without, 3.0, 3.9);
        let target = |climbed: &[Climbed]| {
            let results = SetupResults::of(Measured::default(), true, climbed, Vec::new());
            let [target] = &results.targets[..] else {
                panic!("{:?}", results.targets);
            };
            target.clone()
        };
        let straight = target(&climbed);
        assert!((straight.found - 4.35).abs() < 1e-9, "{straight:?}");
        for words in [
            "median time of 87.0 ms",
            "on lines of 4 lengths: slope 3.90, intercept 9.0 ms, to within 0.0 ms",
        ] {
            assert!(straight.how.contains(words), "{straight:?}");
        }
        // Two points have a line always, and so do not tell of one.
        let two = target(&climbed[..2]);
        assert_eq!(two.found, straight.found);
        assert!(!two.how.contains("slope"), "{two:?}");
        for sample in &mut climbed[3].samples {
            sample.phases.insert(Phase::FirstAudio, 949.0);
        }
        let bent = target(&climbed);
        assert_eq!(bent.found, straight.found);
        assert!(!bent.how.contains("slope"), "{bent:?}");
    }

    #[test]
    fn a_target_is_known_by_more_than_its_words() {
        let climbed = ladder(Subject::Relay, Channel::Snap, 3.0, 3.9);
        let results = SetupResults::of(Measured::default(), true, &climbed, Vec::new());
        let text = serde_json::to_string(&results.targets[0]).expect("JSON");
        let expected = r#""key":{"of":"audio","rtt_ms":20.0,"channel":"snap"}"#;
        assert!(text.contains(expected), "{text}");
        let read: Target = serde_json::from_str(&text).expect("read");
        assert_eq!(read.key, results.targets[0].key);
    }

    #[test]
    fn a_relay_that_adds_more_than_a_twentieth_misses_its_target_by_however_little() {
        assert_eq!(met(3.13, 3.9)[1..], [true, true, true]);
        // On a line of 20 ms the 5 ms that no line changes dilute what the relay adds.
        assert_eq!(met(3.16, 3.9)[1..], [true, false, false]);
        assert_eq!(met(3.22, 3.9)[1..], [false, false, false]);
    }
}
