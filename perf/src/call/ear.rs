//! Hears the marks of one client's recording come back, and says how long each took: mouth-to-ear delay, by the audio itself.
//!
//! **From when to when.** From when the first sample of a mark would have been spoken, a frame before its packet was due to leave, until the packet
//! that has it came back; later than due is late, also where the generator was what was late. So the delay has everything that a user's would but for
//! the jitter buffer and the sound card: the frame itself, the network both ways, the server, both codecs. What the echo waits on purpose is subtracted.
//!
//! **At what cost.** What comes is decoded only while a mark may be in it: from just before it is said until it was found. Pure: all times are passed in, in
//! nanoseconds since one moment.

use std::collections::VecDeque;
use std::time::Duration;

use super::decoding::Decoder;
use super::mark::{FRAME, FRAMES, LENGTH, RATE, Search, Sweep};
use super::recording::Codec;

/// How long a mark is listened for at most: less than until the same one is said again, in the recording that is made up. For others see
/// [`Recording::until_same_mark`](super::recording::Recording::until_same_mark).
pub const PATIENCE: Duration = Duration::from_millis(3_500);

/// Marks missed by a client that has never heard one: nothing echoes here, and it stops listening.
const DEAF_AFTER: u32 = 3;

/// The longest pause that is filled with silence; after a longer one it begins to listen anew.
const FILL: u64 = RATE as u64;

/// Nanoseconds of a sample.
const SAMPLE_NANOS: u64 = 1_000_000_000 / RATE as u64;

/// What became of a mark.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// It came back after so many nanoseconds, the echo's own delay subtracted.
    Heard(u64),
    /// It came back sooner than the echo is said to wait on purpose: what is said of the echo is wrong, and how long the mark took cannot be told.
    Early,
    /// It did not while it was listened for, though marks had come back before: it took so many nanoseconds at least, the echo's own delay subtracted.
    Overdue(u64),
    /// It did not, and none had before.
    Missed,
    /// The generator stood still when it was due to be said, or had said part of it.
    LeftOut,
}

/// A mark that was said and has not come back yet.
#[derive(Debug)]
struct Awaited {
    spoken_nanos: u64,
    search: Search,
}

/// What came while something was listened for.
struct Stream {
    decoder: Decoder,
    /// The position of the first sample, in samples of the stream.
    begin: u64,
    samples: Vec<f32>,
    /// Where packets began, and when each came.
    arrivals: VecDeque<(u64, u64)>,
}

/// One client's ear.
pub struct Ear {
    codec: Codec,
    echo_nanos: u64,
    patience_nanos: u64,
    awaited: VecDeque<Awaited>,
    /// A mark is said in a moment.
    ready: bool,
    stream: Option<Stream>,
    outcomes: VecDeque<Outcome>,
    /// Marks missed, while none has been heard.
    missed: u32,
    has_heard: bool,
    deaf: bool,
}

impl Ear {
    /// An ear for a codec; `echo` is what an echo waits on purpose.
    #[must_use]
    pub fn new(codec: Codec, echo: Duration) -> Self {
        Self {
            codec,
            echo_nanos: echo.as_nanos() as u64,
            patience_nanos: PATIENCE.as_nanos() as u64,
            awaited: VecDeque::new(),
            ready: false,
            stream: None,
            outcomes: VecDeque::new(),
            missed: 0,
            has_heard: false,
            deaf: false,
        }
    }

    /// Listens for each mark no longer than this: among many callers of whom few are echoed, the others' listening costs the generator most.
    #[must_use]
    pub fn patient_for(mut self, patience: Duration) -> Self {
        self.patience_nanos = patience.min(PATIENCE).as_nanos() as u64;
        self
    }

    /// A mark will be said in a moment: decoders need a few frames to settle.
    pub fn get_ready(&mut self) {
        self.ready = true;
    }

    /// A mark is said: its first sample was due to be spoken then.
    pub fn said(&mut self, sweep: Sweep, spoken_nanos: u64) {
        self.ready = false;
        if self.deaf {
            return;
        }
        self.expire(spoken_nanos);
        // What came before cannot have it.
        let from = self.stream.as_ref().map_or(0, Stream::end);
        self.awaited.push_back(Awaited {
            spoken_nanos,
            search: Search::new(sweep, from),
        });
    }

    /// What was due to be spoken from then on was left out, with so many marks that begin in it; and one that had begun was not said to its end.
    pub fn left_out(&mut self, marks: usize, from_nanos: u64) {
        if self.deaf {
            return;
        }
        let length = (FRAMES * FRAME) as u64 * SAMPLE_NANOS;
        let is_cut = |awaited: &Awaited| awaited.spoken_nanos + length > from_nanos;
        let cut = self
            .awaited
            .pop_back_if(|awaited| is_cut(awaited))
            .is_some();
        let count = marks + usize::from(cut);
        self.outcomes
            .extend(std::iter::repeat_n(Outcome::LeftOut, count));
    }

    /// Whether a mark has ever come back: what answers is an echo.
    #[must_use]
    pub fn has_heard(&self) -> bool {
        self.has_heard
    }

    /// A packet came; `position` is its timestamp in samples of [`RATE`], extended.
    pub fn packet(&mut self, position: u64, payload: &[u8], at_nanos: u64) {
        self.expire(at_nanos);
        if self.deaf || (self.awaited.is_empty() && !self.ready) {
            self.stream = None;
            return;
        }
        let stream = match &mut self.stream {
            Some(stream) if stream.follows(position) => stream,
            other => match Stream::new(self.codec, position) {
                Some(stream) => other.insert(stream),
                None => {
                    self.deaf = true;
                    return;
                }
            },
        };
        if position < stream.end() {
            // It came after one that follows it, and its place is silent.
            return;
        }
        stream.take(position, payload, at_nanos);
        let echo_nanos = self.echo_nanos;
        let (outcomes, has_heard) = (&mut self.outcomes, &mut self.has_heard);
        self.awaited.retain_mut(|awaited| {
            let found = awaited.search.look(stream.begin, &stream.samples);
            let Some(heard) = found.and_then(|at| stream.heard_at(at)) else {
                return true;
            };
            *has_heard = true;
            let delay = heard.saturating_sub(awaited.spoken_nanos);
            outcomes.push_back(match delay.checked_sub(echo_nanos) {
                Some(delay) => Outcome::Heard(delay),
                None => Outcome::Early,
            });
            false
        });
        let needs = self.awaited.iter().map(|awaited| awaited.search.needs());
        stream.forget(needs.min());
    }

    /// What became of a mark, if there is news.
    pub fn outcome(&mut self) -> Option<Outcome> {
        self.outcomes.pop_front()
    }

    /// Gives up marks that were said too long ago, whether anything comes or not.
    pub fn expire(&mut self, now_nanos: u64) {
        while let Some(first) = self.awaited.front() {
            if now_nanos < first.spoken_nanos + self.patience_nanos {
                return;
            }
            self.awaited.pop_front();
            // Those that take longest must not be what is left out of the delays.
            self.outcomes.push_back(if self.has_heard {
                Outcome::Overdue(self.patience_nanos.saturating_sub(self.echo_nanos))
            } else {
                Outcome::Missed
            });
            self.missed += 1;
            if !self.has_heard && self.missed >= DEAF_AFTER {
                self.deaf = true;
                self.awaited.clear();
            }
        }
    }
}

impl Stream {
    fn new(codec: Codec, begin: u64) -> Option<Self> {
        Some(Self {
            decoder: Decoder::new(codec)?,
            begin,
            samples: Vec::new(),
            arrivals: VecDeque::new(),
        })
    }

    fn end(&self) -> u64 {
        self.begin + self.samples.len() as u64
    }

    /// Whether a packet with this position belongs to what came before it.
    fn follows(&self, position: u64) -> bool {
        position <= self.end() + FILL && position + FILL >= self.begin
    }

    /// Appends a packet, with silence where one before it is missing.
    fn take(&mut self, position: u64, payload: &[u8], at_nanos: u64) {
        self.samples.resize((position - self.begin) as usize, 0.0);
        self.arrivals.push_back((position, at_nanos));
        self.decoder.decode(payload, &mut self.samples);
    }

    /// When the sample at this position could be heard: by the packet that has it, or if that was lost by the next.
    fn heard_at(&self, position: u64) -> Option<u64> {
        let after = self
            .arrivals
            .partition_point(|(begin, _)| *begin <= position);
        let within = |begin: u64| position < begin + FRAME as u64;
        let at = match after.checked_sub(1).map(|at| self.arrivals[at]) {
            Some((begin, at_nanos)) if within(begin) => (begin, at_nanos),
            _ => *self.arrivals.get(after)?,
        };
        let (begin, at_nanos) = at;
        Some((at_nanos + position * SAMPLE_NANOS).saturating_sub(begin * SAMPLE_NANOS))
    }

    /// Keeps only what is still needed from a position on, or the last frames before the next mark.
    fn forget(&mut self, needs: Option<u64>) {
        let least = self.end().saturating_sub((LENGTH + FRAME) as u64);
        let needs = needs.map_or(least, |needs| {
            // A likely place is behind the search, and its packet is asked for.
            needs.saturating_sub(2 * FRAME as u64).min(least)
        });
        let gone = needs.saturating_sub(self.begin) as usize;
        // Seldom, and much at once: moving the rest costs as much as it is long.
        if gone >= LENGTH {
            self.samples.drain(..gone);
            self.begin = needs;
            while self.arrivals.get(1).is_some_and(|(at, _)| *at <= needs) {
                self.arrivals.pop_front();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::embedded_echo::FROM_MOUTH;
    use super::super::recording::Recording;
    use super::*;

    const MS: u64 = 1_000_000;
    const FRAME_NANOS: u64 = 20 * MS;

    /// A client that speaks a recording, and an echo that returns each packet so much later, or never: `echo` says of each frame.
    fn talk(
        codec: Codec,
        frames: u64,
        mut echo: impl FnMut(u64, &[u8]) -> Option<(u64, Vec<u8>)>,
    ) -> Vec<Outcome> {
        let recording = Recording::new(codec).expect("a recording");
        let mut ear = Ear::new(codec, Duration::ZERO);
        let mut coming: VecDeque<(u64, u64, Vec<u8>)> = VecDeque::new();
        let mut outcomes = Vec::new();
        for frame in 0..frames {
            let now = frame * FRAME_NANOS;
            while coming.front().is_some_and(|(at, ..)| *at <= now) {
                let (at, frame, payload) = coming.pop_front().expect("it was there");
                ear.packet(77_000 + frame * FRAME as u64, &payload, at);
            }
            recording.cue(frame, &mut ear, now.saturating_sub(FRAME_NANOS));
            if let Some((later, payload)) = echo(frame, &recording.frame(frame)) {
                coming.push_back((now + later, frame, payload));
            }
            outcomes.extend(std::iter::from_fn(|| ear.outcome()));
        }
        outcomes
    }

    fn delays(outcomes: &[Outcome]) -> Vec<f64> {
        let heard = outcomes.iter().filter_map(|outcome| match outcome {
            Outcome::Heard(nanos) => Some(*nanos as f64 / MS as f64),
            _ => None,
        });
        heard.collect()
    }

    /// What a mark takes by a plain echo: the frame, and what the codec itself delays.
    fn own(codec: Codec) -> std::ops::Range<f64> {
        match codec {
            Codec::Opus => 20.0..40.0,
            Codec::Pcmu => 19.8..20.2,
        }
    }

    #[test]
    fn a_delay_is_found_in_either_codec_however_long() {
        for codec in [Codec::Opus, Codec::Pcmu] {
            for later in [0, 7, 100, 1_990, 2_900] {
                let outcomes = talk(codec, 600, |_, payload| {
                    Some((later * MS, payload.to_vec()))
                });
                let delays = delays(&outcomes);
                assert!(delays.len() >= 4, "{codec:?} {later} {outcomes:?}");
                assert_eq!(delays.len(), outcomes.len(), "{codec:?} {later}");
                let own = own(codec);
                for delay in delays {
                    let found = delay - later as f64;
                    assert!(own.contains(&found), "{codec:?} {later}: {delay}");
                }
            }
        }
    }

    #[test]
    fn a_mark_survives_a_server_that_transcodes() {
        let mut decoder = opus::Decoder::new(24_000, opus::Channels::Mono).expect("a decoder");
        let mut encoder = opus::Encoder::new(24_000, opus::Channels::Mono, opus::Application::Voip)
            .expect("an encoder");
        encoder
            .set_bitrate(opus::Bitrate::Bits(16_000))
            .expect("a rate");
        let outcomes = talk(Codec::Opus, 1_000, |_, payload| {
            let mut pcm = [0; 480];
            decoder.decode(payload, &mut pcm, false).expect("decoded");
            let again = encoder.encode_vec(&pcm, 400).expect("encoded");
            Some((50 * MS, again))
        });
        let delays = delays(&outcomes);
        assert_eq!((delays.len(), outcomes.len()), (10, 10), "{outcomes:?}");
        for delay in delays {
            assert!((70.0..100.0).contains(&delay), "{delay}");
        }
    }

    #[test]
    fn a_lost_packet_does_not_hide_a_mark() {
        for codec in [Codec::Opus, Codec::Pcmu] {
            let outcomes = talk(codec, 1_500, |frame, payload| {
                (frame % 7 != 0).then(|| (60 * MS, payload.to_vec()))
            });
            let delays = delays(&outcomes);
            assert!(delays.len() >= 14, "{codec:?} {outcomes:?}");
            let own = own(codec);
            for delay in delays {
                let found = delay - 60.0;
                assert!(
                    (own.start - 1.0..own.end + 1.0).contains(&found),
                    "{codec:?} {delay}"
                );
            }
        }
    }

    #[test]
    fn each_mark_has_the_delay_of_its_own_moment() {
        // The echo is late by 300 ms, for the second half.
        let outcomes = talk(Codec::Pcmu, 1_000, |frame, payload| {
            let later = if frame < 500 { 40 } else { 340 };
            Some((later * MS, payload.to_vec()))
        });
        let delays = delays(&outcomes);
        assert_eq!(
            delays.iter().filter(|d| (59.0..61.0).contains(*d)).count(),
            5
        );
        let late = delays.iter().filter(|d| (359.0..361.0).contains(*d));
        assert!(late.count() >= 4, "{delays:?}");
    }

    #[test]
    fn marks_that_do_not_come_are_missed_and_a_client_that_hears_none_stops_listening() {
        let silent = talk(Codec::Pcmu, 3_000, |_, payload| {
            Some((40 * MS, vec![0xff; payload.len()]))
        });
        assert_eq!(silent, [Outcome::Missed; DEAF_AFTER as usize]);
        // An outage of 20 s, and after it all is as before.
        let outage = talk(Codec::Pcmu, 3_000, |frame, payload| {
            let lost = (1_000..2_000).contains(&frame);
            (!lost).then(|| (40 * MS, payload.to_vec()))
        });
        assert_eq!(delays(&outage).len(), 20, "{outage:?}");
        let overdue = Outcome::Overdue(PATIENCE.as_nanos() as u64);
        let missed = outage.iter().filter(|o| **o == overdue).count();
        assert_eq!(missed, 10, "{outage:?}");
    }

    #[test]
    fn a_mark_that_comes_later_than_an_ear_is_patient_is_missed() {
        let hear = |patience: Duration| {
            let mut ear = Ear::new(Codec::Pcmu, Duration::ZERO).patient_for(patience);
            ear.get_ready();
            ear.said(Sweep::Rising, 0);
            let silence = [0; 60 * FRAME];
            let samples: Vec<i16> = silence
                .into_iter()
                .chain(Sweep::Rising.samples(RATE))
                .collect();
            for (n, pcm) in (0u64..).zip(samples.chunks(FRAME)) {
                let payload: Vec<u8> = pcm
                    .iter()
                    .map(|sample| super::super::recording::mu_law(*sample))
                    .collect();
                ear.packet(n * FRAME as u64, &payload, n * FRAME_NANOS);
            }
            ear.packet(70 * FRAME as u64, &[0xff; FRAME], 70 * FRAME_NANOS);
            std::iter::from_fn(|| ear.outcome()).collect::<Vec<_>>()
        };
        // It comes after 1.2 s.
        assert_eq!(hear(Duration::from_secs(1)), [Outcome::Missed]);
        assert_eq!(hear(Duration::from_secs(2)), [Outcome::Heard(1_200 * MS)]);
        // There is no more patience than until the same mark is said again.
        assert_eq!(hear(Duration::MAX), [Outcome::Heard(1_200 * MS)]);
    }

    fn hear_after_150_ms(echo: Duration) -> Ear {
        let mut ear = Ear::new(Codec::Pcmu, echo);
        ear.get_ready();
        ear.packet(0, &[0xff; FRAME], 0);
        ear.said(Sweep::Rising, 0);
        let mark: Vec<i16> = Sweep::Rising.samples(RATE).chain([0; 2 * FRAME]).collect();
        for (n, pcm) in (1u64..).zip(mark.chunks(FRAME)) {
            let payload: Vec<u8> = pcm
                .iter()
                .map(|sample| super::super::recording::mu_law(*sample))
                .collect();
            let at = 130 * MS + n * FRAME_NANOS;
            ear.packet(n * FRAME as u64, &payload, at);
        }
        ear
    }

    #[test]
    fn what_an_echo_waits_on_purpose_is_subtracted_and_may_not_be_more_than_all() {
        // It comes back after 150 ms.
        let mut ear = hear_after_150_ms(FROM_MOUTH);
        assert_eq!(ear.outcome(), Some(Outcome::Heard(70 * MS)));
        let mut ear = hear_after_150_ms(Duration::from_millis(151));
        assert_eq!(ear.outcome(), Some(Outcome::Early));
    }

    #[test]
    fn a_mark_that_is_not_back_when_patience_is_over_took_that_long_at_least() {
        let mut ear = hear_after_150_ms(FROM_MOUTH);
        assert!(matches!(ear.outcome(), Some(Outcome::Heard(_))));
        ear.said(Sweep::Falling, 2_000 * MS);
        // Nothing comes any more.
        ear.expire(5_499 * MS);
        assert_eq!(ear.outcome(), None);
        ear.expire(5_500 * MS);
        assert_eq!(ear.outcome(), Some(Outcome::Overdue(3_420 * MS)));
    }

    #[test]
    fn what_the_generator_did_not_say_is_not_listened_for() {
        let mut ear = Ear::new(Codec::Pcmu, Duration::ZERO);
        ear.said(Sweep::Rising, 0);
        ear.said(Sweep::Falling, 2_000 * MS);
        // The first was said whole, of the second three frames of five.
        ear.left_out(1, 2_060 * MS);
        ear.left_out(0, 2_060 * MS);
        let outcomes: Vec<_> = std::iter::from_fn(|| ear.outcome()).collect();
        assert_eq!(outcomes, [Outcome::LeftOut; 2]);
        ear.expire(60_000 * MS);
        let outcomes: Vec<_> = std::iter::from_fn(|| ear.outcome()).collect();
        assert_eq!(outcomes, [Outcome::Missed]);
    }
}
