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

/// Something that was asked for.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Target {
    /// What.
    pub name: String,
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
    pub(super) fn new(name: String, found: f64, must: f64) -> Self {
        Self {
            name,
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
    for found in round_trips {
        let Case {
            subject,
            connection,
            channel,
        } = found.case;
        if (subject, connection, found.phase) != (Subject::Relay, Connection::Warm, Phase::Audio) {
            continue;
        }
        let (words, must) = match channel {
            Channel::Without => ("no channel", ROUND_TRIPS_NO_CHANNEL),
            Channel::Handshake => ("channel", ROUND_TRIPS),
            Channel::Snap => ("channel, SNAP", ROUND_TRIPS),
        };
        let name = format!("round trips from POST to first audio back, {words}");
        let how = format!(
            "waits for the far end, apart from what both ends compute: {}. That is the straight line through the medians on lines of all lengths without loss: its \
             slope, its foot, and how far the worst median is from it",
            found.fit
        );
        targets.push(Target::new(name, found.fit.round_trips, must).how(how));
        let on_target = rungs.iter().find(|rung| {
            rung.case == found.case && rung.loss == 0.0 && rung.rtt_ms == TARGET_RTT_MS
        });
        if let Some(audio) = on_target.and_then(|rung| rung.phases.get(&Phase::Audio)) {
            let name = format!("the same on a line of {TARGET_RTT_MS:.0} ms, in all, {words}");
            let how = format!(
                "the median time of {:.1} ms over the line's round-trip time of {TARGET_RTT_MS:.0} ms: what both ends compute counts as round trips here",
                audio.p50
            );
            targets.push(Target::new(name, audio.p50 / TARGET_RTT_MS, must).how(how));
        }
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
            let name = format!(
                "set-up through the relay / direct, {:.0} ms, {}",
                rung.rtt_ms,
                match rung.case.channel {
                    Channel::Without => "no channel",
                    Channel::Handshake => "channel",
                    Channel::Snap => "channel, SNAP",
                }
            );
            targets.push(Target::new(name, through / past, RELAY_OVER_DIRECT));
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
    use super::super::results::SetupResults;
    use super::super::results::tests::ladder;
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
    fn round_trips_are_asked_for_and_what_comes_on_top_on_a_short_line() {
        // Of 3.9 round trips nothing is amiss; with 9 ms on top, on a line of 20 ms, they are 4.35.
        assert_eq!(met(3.0, 3.9), [true, false, true, true, true]);
        assert!(!met(3.0, 4.02)[0]);
    }

    #[test]
    fn waits_are_told_from_computing() {
        let climbed = ladder(Subject::Relay, Channel::Without, 3.0, 3.9);
        let results = SetupResults::of(Measured::default(), true, &climbed, Vec::new());
        let [waits, in_all] = &results.targets[..] else {
            panic!("{:?}", results.targets);
        };
        assert!((waits.found - 3.9).abs() < 1e-9, "{waits:?}");
        let words = "3.90 round trips + 9.0 ms, to within 0.0 ms";
        assert!(waits.how.contains(words), "{waits:?}");
        assert!((in_all.found - 4.35).abs() < 1e-9, "{in_all:?}");
        assert!(in_all.how.contains("median time of 87.0 ms"), "{in_all:?}");
    }

    #[test]
    fn a_relay_that_adds_more_than_a_twentieth_misses_its_target_by_however_little() {
        assert_eq!(met(3.13, 3.9)[2..], [true, true, true]);
        // On a line of 20 ms the 5 ms that no line changes dilute what the relay adds.
        assert_eq!(met(3.16, 3.9)[2..], [true, false, false]);
        assert_eq!(met(3.22, 3.9)[2..], [false, false, false]);
    }
}
