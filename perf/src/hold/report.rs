//! What all clients together have heard since the mark.

use std::net::SocketAddr;

use serde::Serialize;

use crate::clock::millis;
use crate::pauses::Window;

/// Calls that a report names, the worst first.
const NAMED: usize = 5;

/// What one client has heard.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Heard {
    /// Its number.
    pub call: u32,
    /// Where its socket is.
    pub local: SocketAddr,
    /// It hears something now.
    pub up: bool,
    /// DTLS handshakes since it began: one a call.
    pub handshakes: u32,
    /// Calls of its that ended since the mark, other than by its own wish.
    pub cut: u32,
    /// Frames that it sent since the mark.
    pub sent: u64,
    /// What came since the mark.
    pub window: Window,
}

/// One client's part of a report. Times are from the mark.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Call {
    /// Its number.
    pub call: u32,
    /// Where its socket is.
    pub local: SocketAddr,
    /// It hears something now.
    pub up: bool,
    /// The worst pause, the open one included.
    pub gap_ms: f64,
    /// When that began.
    pub from_ms: f64,
    /// When it ended; nothing while it is open.
    pub until_ms: Option<f64>,
    /// When the first packet came.
    pub first_after_ms: Option<f64>,
    /// Packets that came.
    pub packets: u64,
    /// Packets that did not.
    pub lost: u64,
    /// Frames that it sent.
    pub sent: u64,
    /// DTLS handshakes since it began.
    pub handshakes: u32,
    /// Calls that ended.
    pub cut: u32,
}

/// What all clients have heard since the mark.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Measure {
    /// Clients.
    pub calls: usize,
    /// Those that hear something now.
    pub up: usize,
    /// The worst pause of all, the open ones included.
    pub worst_gap_ms: f64,
    /// Packets that did not come, by their sequence numbers.
    pub packets_lost: u64,
    /// Packets that came.
    pub packets: u64,
    /// Frames that were sent.
    pub sent: u64,
    /// DTLS handshakes since the calls began: of the client with the most.
    pub handshakes: u32,
    /// Of all clients.
    pub handshakes_sum: u32,
    /// When the client that waited longest got its first packet; nothing when one has got none.
    pub first_after_ms: Option<f64>,
    /// Calls that ended other than by their clients' wish.
    pub cut: u32,
    /// How much later than due this program did something at worst: a pause of that length may be its own.
    pub stalled_ms: f64,
    /// Since when.
    pub since_mark_ms: f64,
    /// The clients with the worst pauses.
    pub worst: Vec<Call>,
}

impl Heard {
    /// As it is told.
    #[must_use]
    pub fn told(&self) -> Call {
        let window = &self.window;
        let from_mark = |at: u64| millis(at.saturating_sub(window.since));
        Call {
            call: self.call,
            local: self.local,
            up: self.up,
            gap_ms: millis(window.worst.nanos()),
            from_ms: from_mark(window.worst.from),
            until_ms: (!window.open).then(|| from_mark(window.worst.until)),
            first_after_ms: window.first.map(from_mark),
            packets: window.packets + window.late,
            // One that is late was taken for lost.
            lost: window.lost.saturating_sub(window.late),
            sent: self.sent,
            handshakes: self.handshakes,
            cut: self.cut,
        }
    }
}

/// Every client's part, the worst pause first.
#[must_use]
pub fn calls(heard: &[Heard]) -> Vec<Call> {
    let mut calls: Vec<Call> = heard.iter().map(Heard::told).collect();
    calls.sort_by(|a, b| b.gap_ms.total_cmp(&a.gap_ms));
    calls
}

impl Measure {
    /// Sums up, at `now`, in nanoseconds since the Unix epoch; the holder's own worst stall is in nanoseconds.
    #[must_use]
    pub fn of(heard: &[Heard], stalled: u64, now: u64) -> Self {
        let mut calls = calls(heard);
        let since = heard.iter().map(|heard| heard.window.since).min();
        Self {
            calls: calls.len(),
            up: calls.iter().filter(|call| call.up).count(),
            worst_gap_ms: calls.first().map_or(0.0, |worst| worst.gap_ms),
            packets_lost: calls.iter().map(|call| call.lost).sum(),
            packets: calls.iter().map(|call| call.packets).sum(),
            sent: calls.iter().map(|call| call.sent).sum(),
            handshakes: calls.iter().map(|call| call.handshakes).max().unwrap_or(0),
            handshakes_sum: calls.iter().map(|call| call.handshakes).sum(),
            first_after_ms: calls
                .iter()
                .map(|call| call.first_after_ms)
                .try_fold(0.0, |worst, after| Some(f64::max(worst, after?))),
            cut: calls.iter().map(|call| call.cut).sum(),
            stalled_ms: millis(stalled),
            since_mark_ms: millis(now.saturating_sub(since.unwrap_or(now))),
            worst: {
                calls.truncate(NAMED);
                calls
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pauses::Pause;

    const MS: u64 = 1_000_000;

    fn heard(call: u32, gap: u64) -> Heard {
        Heard {
            call,
            local: SocketAddr::from(([10, 0, 0, 1], 5_000)),
            up: true,
            handshakes: 1,
            cut: 0,
            sent: 50,
            window: Window {
                since: 1_000 * MS,
                packets: 40,
                lost: 10,
                late: 0,
                worst: Pause {
                    from: 1_500 * MS,
                    until: (1_500 + gap) * MS,
                },
                open: false,
                first: Some(1_010 * MS),
            },
        }
    }

    #[test]
    fn the_worst_call_is_named_and_the_rest_summed_up() {
        let mut calls: Vec<Heard> = (0..8).map(|n| heard(n, 20 + u64::from(n))).collect();
        calls[3].window.worst.until = 4_000 * MS;
        calls[3].window.open = true;
        calls[3].up = false;
        calls[3].cut = 1;
        calls[5].handshakes = 2;
        calls[6].window.late = 4;
        let measure = Measure::of(&calls, 3 * MS, 4_000 * MS);
        assert_eq!((measure.calls, measure.up, measure.cut), (8, 7, 1));
        assert_eq!(measure.worst_gap_ms, 2_500.0);
        assert_eq!((measure.packets_lost, measure.packets), (76, 324));
        assert_eq!((measure.handshakes, measure.handshakes_sum), (2, 9));
        assert_eq!(measure.first_after_ms, Some(10.0));
        assert_eq!((measure.stalled_ms, measure.since_mark_ms), (3.0, 3_000.0));
        let worst = &measure.worst[0];
        assert_eq!(
            (worst.call, worst.from_ms, worst.until_ms),
            (3, 500.0, None)
        );
        assert_eq!(measure.worst.len(), NAMED);
        assert_eq!(measure.worst[1].call, 7);
    }

    #[test]
    fn there_is_no_first_packet_of_all_while_one_has_none() {
        let mut calls = [heard(0, 20), heard(1, 20)];
        calls[1].window.first = None;
        assert_eq!(Measure::of(&calls, 0, 0).first_after_ms, None);
        assert_eq!(Measure::of(&[], 0, 0).worst_gap_ms, 0.0);
    }
}
