//! The pauses and the losses of one stream within a window: what a fault cost those who listen. Pure: times are passed in.
//!
//! Times are nanoseconds since the Unix epoch, as the kernel stamps arrivals. A window begins at a mark; the pause that is still open at its end counts.

/// From when to when nothing came.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Pause {
    /// When the packet before it came, or the window began.
    pub from: u64,
    /// When the packet after it came, or the window ended.
    pub until: u64,
}

impl Pause {
    /// Its length in nanoseconds.
    #[must_use]
    pub fn nanos(&self) -> u64 {
        self.until.saturating_sub(self.from)
    }
}

/// What a window has shown.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Window {
    /// When it began.
    pub since: u64,
    /// Packets with a number of their own that came, those out of order too.
    pub packets: u64,
    /// Numbers that were left out.
    pub lost: u64,
    /// Packets whose number was not above all before.
    pub late: u64,
    /// The worst pause, the open one included.
    pub worst: Pause,
    /// Whether the worst is still open.
    pub open: bool,
    /// When the first packet came.
    pub first: Option<u64>,
}

/// One stream of numbered packets.
#[derive(Clone, Default, Debug)]
pub struct Pauses {
    /// When the last new packet came.
    last: Option<u64>,
    /// The highest number.
    highest: Option<u64>,
    window: Window,
}

impl Pauses {
    /// Begins a window: what came before does not count, nor does the part of an open pause that has passed.
    pub fn mark(&mut self, now: u64) {
        let pause = Pause {
            from: now,
            until: now,
        };
        self.window = Window {
            since: now,
            worst: pause,
            ..Window::default()
        };
    }

    /// Takes a packet; returns the pause before it, if it is a new one and not the first.
    ///
    /// A packet whose number is not above all before has come late, or is a repetition: it ends no pause.
    pub fn packet(&mut self, number: u64, at: u64) -> Option<Pause> {
        let ahead = match self.highest {
            Some(highest) => number.saturating_sub(highest),
            None => 1,
        };
        let window = &mut self.window;
        if ahead == 0 {
            window.late += 1;
            return None;
        }
        self.highest = Some(number);
        window.packets += 1;
        window.lost += ahead - 1;
        window.first.get_or_insert(at);
        let pause = self.pause_until(at);
        let first = self.last.is_none();
        self.last = Some(at.max(self.last.unwrap_or(0)));
        if pause.nanos() > self.window.worst.nanos() {
            self.window.worst = pause;
        }
        (!first).then_some(pause)
    }

    /// The next packet is of another stream, whose numbers say nothing about those before. An open pause stays open.
    pub fn restart(&mut self) {
        self.highest = None;
    }

    /// When the last new packet came.
    #[must_use]
    pub fn last(&self) -> Option<u64> {
        self.last
    }

    /// What the window has shown up to `now`.
    #[must_use]
    pub fn window(&self, now: u64) -> Window {
        let mut window = self.window;
        let pause = self.pause_until(now);
        if pause.nanos() > window.worst.nanos() {
            window.worst = pause;
            window.open = true;
        }
        window
    }

    fn pause_until(&self, until: u64) -> Pause {
        let from = self.last.unwrap_or(0).max(self.window.since);
        Pause { from, until }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// A stream with a packet every 20 ms from `from` to before `to`, in milliseconds; the number is the time in frames.
    fn play(pauses: &mut Pauses, from: u64, to: u64) {
        for at in (from..to).step_by(20) {
            pauses.packet(at / 20, at * MS);
        }
    }

    #[test]
    fn the_worst_pause_and_what_was_lost_in_it_are_told() {
        let mut pauses = Pauses::default();
        play(&mut pauses, 1_000, 2_000);
        pauses.mark(2_000 * MS);
        play(&mut pauses, 2_000, 3_000);
        play(&mut pauses, 3_400, 4_000);
        play(&mut pauses, 4_100, 5_000);
        let window = pauses.window(4_990 * MS);
        let worst = Pause {
            from: 2_980 * MS,
            until: 3_400 * MS,
        };
        assert_eq!((window.worst, window.open), (worst, false));
        assert_eq!(window.worst.nanos(), 420 * MS);
        assert_eq!((window.packets, window.lost, window.late), (125, 25, 0));
        assert_eq!(window.first, Some(2_000 * MS));
    }

    #[test]
    fn a_pause_that_is_still_open_counts_and_only_from_the_mark() {
        let mut pauses = Pauses::default();
        play(&mut pauses, 0, 1_000);
        pauses.mark(5_000 * MS);
        let window = pauses.window(5_700 * MS);
        assert_eq!((window.worst.nanos(), window.open), (700 * MS, true));
        assert_eq!((window.packets, window.first), (0, None));
        pauses.packet(300, 6_000 * MS);
        let window = pauses.window(6_001 * MS);
        assert_eq!((window.worst.nanos(), window.open), (1_000 * MS, false));
    }

    #[test]
    fn a_stream_that_never_was_is_silent_since_the_mark() {
        let mut pauses = Pauses::default();
        pauses.mark(1_000 * MS);
        assert_eq!(pauses.window(1_300 * MS).worst.nanos(), 300 * MS);
        assert_eq!(pauses.last(), None);
    }

    #[test]
    fn repetitions_and_late_packets_end_no_pause() {
        let mut pauses = Pauses::default();
        pauses.mark(0);
        assert_eq!(pauses.packet(10, 20 * MS), None);
        let pause = pauses.packet(13, 40 * MS).expect("one before");
        assert_eq!(pause.nanos(), 20 * MS);
        for (number, at) in [(13, 60), (12, 80), (10, 100)] {
            assert_eq!(pauses.packet(number, at * MS), None);
        }
        let window = pauses.window(140 * MS);
        assert_eq!((window.worst.nanos(), window.open), (100 * MS, true));
        assert_eq!((window.packets, window.lost, window.late), (2, 2, 3));
    }

    #[test]
    fn a_new_stream_goes_on_with_the_pause_and_loses_nothing() {
        let mut pauses = Pauses::default();
        pauses.mark(0);
        play(&mut pauses, 0, 1_000);
        pauses.restart();
        pauses.packet(7, 3_980 * MS);
        pauses.packet(8, 4_000 * MS);
        let window = pauses.window(4_000 * MS);
        assert_eq!((window.worst.nanos(), window.lost), (3_000 * MS, 0));
        assert_eq!((window.packets, window.late), (52, 0));
    }
}
