//! What a client makes of the packets that it gets: loss, lateness, jitter and gaps. Pure: the arrival's time is passed in.

use std::ops::Range;
use std::time::Duration;

use hdrhistogram::Histogram;

use super::ear::Outcome;
use super::interruption::Interrupted;
use super::listening::News;

/// A pause between two packets from which on it is a gap that users hear, whether those between them were lost or late, unless the sender was silent. What comes after the
/// last packet until the call's end is such a pause too.
pub const GAP: Duration = Duration::from_millis(60);

const GAP_NANOS: u64 = GAP.as_nanos() as u64;

/// For how long the earliest packet is what others are compared with, in nanoseconds. A client's jitter buffer adapts too, and the clocks of
/// the two sides drift.
const BASE_NANOS: u64 = 5_000_000_000;

/// Nanoseconds of audio in a packet.
const FRAME_NANOS: u64 = 20_000_000;

/// The longest that lateness is counted as, in microseconds.
const LONGEST_MICROS: u64 = 60_000_000;

/// What all clients of one thread heard, while that counted.
#[derive(Clone)]
pub struct Heard {
    /// Packets that came.
    pub received: u64,
    /// Packets that should have come: those that the sequence numbers say were sent, and what is missing at the end of calls, see [`Hearing::end`].
    pub expected: u64,
    /// Gaps longer than [`GAP`].
    pub gaps: u64,
    /// Calls that had such a gap.
    pub calls_with_gaps: u64,
    /// The longest pause between two packets of each call, lost ones between them or not, or after the last one, in microseconds.
    pub longest_gap: Histogram<u64>,
    /// How much later than the earliest of the last seconds each packet came, by its timestamp, in microseconds.
    pub lateness: Histogram<u64>,
    /// The jitter at each client's end (RFC 3550 section 6.4.1), in microseconds.
    pub jitter: Histogram<u64>,
    /// How long marks took from the mouth to the ear, in microseconds; see [`Ear`](super::ear::Ear).
    pub mouth_to_ear: Histogram<u64>,
    /// Marks that came back.
    pub marks_heard: u64,
    /// Marks that did not, or not while they were listened for.
    pub marks_missed: u64,
    /// Of those that came back, the ones that came sooner than the echo is said to wait on purpose.
    pub marks_early: u64,
    /// Marks that the generator did not say, or not whole, since it stood still.
    pub marks_left_out: u64,
    /// How long servers spoke on that were interrupted, from when the client began to speak, in microseconds.
    pub barge_in: Histogram<u64>,
    /// The same from the event by which they said that they hear it.
    pub barge_in_from_event: Histogram<u64>,
}

impl Default for Heard {
    fn default() -> Self {
        let histogram = || {
            Histogram::new_with_bounds(1, LONGEST_MICROS, 3)
                .unwrap_or_else(|_| unreachable!("the bounds are valid"))
        };
        Self {
            received: 0,
            expected: 0,
            gaps: 0,
            calls_with_gaps: 0,
            longest_gap: histogram(),
            lateness: histogram(),
            jitter: histogram(),
            mouth_to_ear: histogram(),
            marks_heard: 0,
            marks_missed: 0,
            marks_early: 0,
            marks_left_out: 0,
            barge_in: histogram(),
            barge_in_from_event: histogram(),
        }
    }
}

impl Heard {
    /// Takes in what another thread's clients heard.
    pub fn add(&mut self, other: &Self) {
        self.received += other.received;
        self.expected += other.expected;
        self.gaps += other.gaps;
        self.calls_with_gaps += other.calls_with_gaps;
        self.marks_heard += other.marks_heard;
        self.marks_missed += other.marks_missed;
        self.marks_early += other.marks_early;
        self.marks_left_out += other.marks_left_out;
        for (to, from) in [
            (&mut self.longest_gap, &other.longest_gap),
            (&mut self.lateness, &other.lateness),
            (&mut self.jitter, &other.jitter),
            (&mut self.mouth_to_ear, &other.mouth_to_ear),
            (&mut self.barge_in, &other.barge_in),
            (&mut self.barge_in_from_event, &other.barge_in_from_event),
        ] {
            // The bounds are the same: it cannot fail.
            let _ = to.add(from);
        }
    }

    /// Takes what a client has learnt.
    pub fn news(&mut self, news: News) {
        match news {
            News::Mark(Outcome::Heard(nanos)) => {
                self.marks_heard += 1;
                record(&mut self.mouth_to_ear, nanos);
            }
            News::Mark(Outcome::Early) => {
                self.marks_heard += 1;
                self.marks_early += 1;
            }
            News::Mark(Outcome::Overdue(nanos)) => {
                self.marks_missed += 1;
                record(&mut self.mouth_to_ear, nanos);
            }
            News::Mark(Outcome::Missed) => self.marks_missed += 1,
            News::Mark(Outcome::LeftOut) => self.marks_left_out += 1,
            News::Interrupted(Interrupted {
                from_voice,
                from_event,
            }) => {
                if let Some(from_voice) = from_voice {
                    record(&mut self.barge_in, from_voice);
                }
                record(&mut self.barge_in_from_event, from_event);
            }
        }
    }

    /// The share of packets that did not come.
    #[must_use]
    pub fn lost(&self) -> f64 {
        self.expected.saturating_sub(self.received) as f64 / self.expected.max(1) as f64
    }
}

/// A packet as a client gets it.
#[derive(Clone, Copy, Debug)]
pub struct Packet {
    /// Its sequence number, extended.
    pub sequence: u64,
    /// Its timestamp, extended, in nanoseconds.
    pub media_nanos: u64,
    /// Its sender was silent before it (RFC 3551, section 4.1).
    pub marker: bool,
    /// When it came, in nanoseconds since any moment before.
    pub at_nanos: u64,
}

/// What one client knows of the stream that it gets.
#[derive(Debug, Default)]
pub struct Hearing {
    /// The packet with the highest sequence number.
    last: Option<Packet>,
    /// Arrival less timestamp: of the packet before, and the smallest in this period and in the one before it.
    transit: i64,
    base: i64,
    base_before: i64,
    base_until: u64,
    jitter: f64,
    /// The longest pause so far that counts, in nanoseconds, and whether there was a gap.
    longest: Option<u64>,
    gap: bool,
}

impl Hearing {
    /// Takes a packet. What it shows goes into `heard` where it counts.
    pub fn packet(&mut self, packet: Packet, heard: Option<&mut Heard>) {
        let transit = packet.at_nanos as i64 - packet.media_nanos as i64;
        let Some(last) = self.last else {
            self.last = Some(packet);
            (self.transit, self.base, self.base_before) = (transit, transit, transit);
            self.base_until = packet.at_nanos + BASE_NANOS;
            if let Some(heard) = heard {
                heard.received += 1;
                heard.expected += 1;
            }
            return;
        };
        if packet.at_nanos >= self.base_until {
            self.base_until = packet.at_nanos + BASE_NANOS;
            self.base_before = self.base;
            self.base = transit;
        }
        self.base = self.base.min(transit);
        let late = transit - self.base.min(self.base_before);
        let moved = (transit - self.transit).unsigned_abs() as f64;
        self.jitter += (moved - self.jitter) / 16.0;
        self.transit = transit;
        let ahead = packet.sequence.saturating_sub(last.sequence);
        if let Some(heard) = heard {
            heard.received += 1;
            heard.expected += ahead;
            // After silence the timestamp jumps, and that is no gap; after a stall of the sender's it may jump as well, and only the marker tells which it was.
            let silence = packet.media_nanos.saturating_sub(last.media_nanos);
            let pause = packet.at_nanos.saturating_sub(last.at_nanos);
            let follows = ahead == 1 && !packet.marker;
            // Packets that were lost leave a hole as long as they are; one that was not even sent leaves none.
            if follows || (ahead > 1 && silence <= ahead * FRAME_NANOS) {
                let gap = pause > GAP_NANOS;
                heard.gaps += u64::from(gap);
                self.gap |= gap;
                self.longest = self.longest.max(Some(pause));
            }
            record(&mut heard.lateness, late as u64);
        }
        if ahead > 0 {
            self.last = Some(packet);
        }
    }

    /// Whether anything has come.
    #[must_use]
    pub fn has_heard(&self) -> bool {
        self.last.is_some()
    }

    /// The call is over: its jitter counts, if anything was heard. In `counted_nanos` more should have come; nothing where the sender was silent. If nothing came for longer
    /// than a [`GAP`] until its end, that is a gap, and a packet is missing for each frame of it that counted: no sequence number tells of those.
    pub fn end(&self, counted_nanos: Option<Range<u64>>, heard: &mut Heard) {
        let (mut gap, mut longest) = (self.gap, self.longest);
        if let Some(last) = self.last {
            record(&mut heard.jitter, self.jitter as u64);
            let counted = counted_nanos.unwrap_or_default();
            let pause = counted.end.saturating_sub(last.at_nanos);
            if pause > GAP_NANOS {
                let missing = counted.end - last.at_nanos.max(counted.start);
                heard.expected += missing / FRAME_NANOS;
                heard.gaps += 1;
                gap = true;
                longest = longest.max(Some(pause));
            }
        }
        heard.calls_with_gaps += u64::from(gap);
        if let Some(longest) = longest {
            record(&mut heard.longest_gap, longest);
        }
    }
}

/// Records nanoseconds in a histogram of microseconds.
fn record(histogram: &mut Histogram<u64>, nanos: u64) {
    histogram.saturating_record((nanos / 1_000).max(1));
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Hears packets given as sequence number and by how many milliseconds each is late.
    fn hear(packets: &[(u64, u64)]) -> (Hearing, Heard) {
        let (mut hearing, mut heard) = (Hearing::default(), Heard::default());
        for (sequence, late) in packets {
            let media_nanos = sequence * 20 * MS;
            let packet = Packet {
                sequence: *sequence,
                media_nanos,
                marker: false,
                at_nanos: 77 * MS + media_nanos + late * MS,
            };
            hearing.packet(packet, Some(&mut heard));
        }
        (hearing, heard)
    }

    #[test]
    fn a_steady_stream_has_nothing_to_complain_of() {
        let packets: Vec<_> = (10..510).map(|n| (n, 0)).collect();
        let (hearing, mut heard) = hear(&packets);
        assert_eq!((heard.received, heard.expected, heard.gaps), (500, 500, 0));
        assert_eq!(heard.lateness.max(), 1);
        hearing.end(None, &mut heard);
        assert_eq!(heard.jitter.max(), 1);
    }

    #[test]
    fn lost_packets_are_missed_and_those_out_of_order_are_not() {
        let (_, heard) = hear(&[(1, 0), (2, 0), (5, 0), (4, 25), (6, 0)]);
        assert_eq!((heard.received, heard.expected), (5, 6));
        assert!((heard.lost() - 1.0 / 6.0).abs() < 1e-9);
    }

    #[test]
    fn lateness_counts_from_the_earliest_packet() {
        let (_, heard) = hear(&[(1, 30), (2, 10), (3, 0), (4, 45), (5, 0)]);
        let late = |quantile| heard.lateness.value_at_quantile(quantile) / 1_000;
        assert_eq!(late(1.0), 45);
        // The first two were thought to be in time.
        assert_eq!(late(0.5), 0);
    }

    #[test]
    fn a_stream_that_has_moved_for_good_is_late_only_for_some_seconds() {
        let mut packets: Vec<_> = (0..100).map(|n| (n, 0)).collect();
        packets.extend((100..1_100).map(|n| (n, 50)));
        let (_, heard) = hear(&packets);
        let late = heard.lateness.count_between(40_000, 60_000);
        assert!((250..=500).contains(&late), "{late}");
    }

    #[test]
    fn a_gap_is_heard_where_packets_are_late_or_lost_and_nobody_was_silent() {
        let (hearing, mut heard) =
            hear(&[(1, 0), (2, 0), (3, 70), (4, 50), (5, 30), (6, 10), (8, 0)]);
        assert_eq!(heard.gaps, 1);
        hearing.end(None, &mut heard);
        assert_eq!(heard.calls_with_gaps, 1);
        // A frame and 70 ms.
        assert_eq!(heard.longest_gap.max() / 1_000, 90);
        let (hearing, mut heard) = hear(&[(1, 0), (2, 0), (8, 0), (9, 0)]);
        hearing.end(None, &mut heard);
        assert_eq!((heard.gaps, heard.calls_with_gaps), (1, 1));
        assert_eq!(heard.longest_gap.max() / 1_000, 120, "five were lost");
        // The sender was silent, and then it stood still: it says which.
        let (mut hearing, mut heard) = (Hearing::default(), Heard::default());
        for (sequence, media, marker) in [(1, 0, true), (2, 20, false), (3, 500, true)] {
            let packet = Packet {
                sequence,
                media_nanos: media * MS,
                marker,
                at_nanos: media * MS,
            };
            hearing.packet(packet, Some(&mut heard));
        }
        assert_eq!(heard.gaps, 0);
        let late = Packet {
            sequence: 4,
            media_nanos: 900 * MS,
            marker: false,
            at_nanos: 1_000 * MS,
        };
        hearing.packet(late, Some(&mut heard));
        assert_eq!(heard.gaps, 1);
        hearing.end(None, &mut heard);
        assert_eq!(heard.longest_gap.max() / 1_000, 500);
    }

    #[test]
    fn a_server_that_goes_silent_leaves_a_gap_until_the_end() {
        let packets: Vec<_> = (0..50).map(|n| (n, 0)).collect();
        let (hearing, heard) = hear(&packets);
        let last = (77 + 49 * 20) * MS;
        let ended = |until| {
            let mut heard = heard.clone();
            hearing.end(until, &mut heard);
            let longest = heard.longest_gap.max() / 1_000;
            let missing = heard.expected - heard.received;
            (heard.gaps, heard.calls_with_gaps, longest, missing)
        };
        assert_eq!(ended(None), (0, 0, 20, 0), "its sender was silent");
        assert_eq!(ended(Some(0..last + 60 * MS)), (0, 0, 20, 0));
        assert_eq!(ended(Some(0..last + 900 * MS)), (1, 1, 900, 45));
        // It was silent before that counted: then what counted is missing.
        let late = last + 500 * MS..last + 900 * MS;
        assert_eq!(ended(Some(late)), (1, 1, 900, 20));
        // What never spoke has not fallen silent.
        let mut heard = Heard::default();
        Hearing::default().end(Some(0..last), &mut heard);
        assert_eq!((heard.gaps, heard.calls_with_gaps), (0, 0));
        assert_eq!(heard.expected, 0);
    }

    #[test]
    fn jitter_is_that_of_the_standard() {
        // Every other packet 16 ms late: the difference is always 16 ms, and the estimate goes there.
        let packets: Vec<_> = (0..400).map(|n| (n, 16 * (n % 2))).collect();
        let (hearing, mut heard) = hear(&packets);
        hearing.end(None, &mut heard);
        assert!((15_900..=16_100).contains(&heard.jitter.max()));
    }

    #[test]
    fn what_does_not_count_is_still_known() {
        let (mut hearing, mut heard) = (Hearing::default(), Heard::default());
        let packet = |sequence| Packet {
            sequence,
            media_nanos: sequence * 20 * MS,
            marker: false,
            at_nanos: sequence * 20 * MS,
        };
        hearing.packet(packet(1), None);
        hearing.packet(packet(5), None);
        hearing.packet(packet(6), Some(&mut heard));
        assert_eq!((heard.received, heard.expected), (1, 1));
    }
}
