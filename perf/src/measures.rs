//! What `perf capacity` measures, and how much of it.

use std::time::Duration;

use firsthop_perf::call::load::Ending;

/// What is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub(crate) enum Measure {
    /// Calls of a transceiver alone with G.711 through to a model server.
    Passthrough,
    /// Calls of a transceiver alone with Opus decoded for a model server, and encoded from it.
    Transcoding,
    /// Calls of a transceiver alone with the echo, which has a voice detector beside.
    Echo,
    /// Calls that a relay alone forwards.
    Relay,
    /// Set-ups a second of signaling alone.
    Signaling,
    /// Calls of relay, transceiver and signaling on one processor, passed through and transcoded.
    Whole,
    /// What calls and set-ups cost each program, at several sizes, and lines through that.
    Costs,
    /// What the project asks of itself: the relay against the way past it, gaps, and the servers' time beside Janus's.
    Targets,
    /// Memory of a silent session.
    Memory,
    /// What many short calls leave behind.
    Churn,
}

impl Measure {
    /// All of them, in their order.
    pub(crate) const ALL: [Self; 10] = [
        Self::Passthrough,
        Self::Transcoding,
        Self::Echo,
        Self::Relay,
        Self::Signaling,
        Self::Whole,
        Self::Costs,
        Self::Targets,
        Self::Memory,
        Self::Churn,
    ];

    /// Whether what it finds goes into `calls.json`.
    pub(crate) fn is_of_calls(self) -> bool {
        matches!(
            self,
            Self::Passthrough | Self::Transcoding | Self::Echo | Self::Memory | Self::Churn
        )
    }

    /// Whether what it finds goes into `capacity.json`.
    pub(crate) fn is_of_capacity(self) -> bool {
        !matches!(self, Self::Memory | Self::Churn)
    }

    /// Whether it runs calls through all programs.
    pub(crate) fn needs_all(self) -> bool {
        matches!(
            self,
            Self::Whole | Self::Costs | Self::Targets | Self::Churn
        )
    }
}

/// How much is done.
pub(crate) struct Effort {
    /// For how long each step of a search counts.
    pub(crate) counted: Duration,
    /// How many numbers a search tries after the first.
    pub(crate) steps: u32,
    /// Whether a number that was not good is tried once more.
    pub(crate) again: bool,
    /// Silent calls whose costs are measured.
    pub(crate) silent: &'static [u32],
    /// Set-ups a second whose costs are measured.
    pub(crate) rates: &'static [u32],
    /// For how long each size of a cost, and each comparison, counts.
    pub(crate) cost_counted: Duration,
    /// How often comparisons are made.
    pub(crate) passes: u32,
    /// Silent sessions whose memory is measured.
    pub(crate) sessions: u32,
    /// Short calls, before and while it counts.
    pub(crate) churn: (u32, u32),
    /// How short calls end.
    pub(crate) ending: Ending,
    /// How long calls settle before they count.
    pub(crate) settle: Duration,
}

impl Effort {
    pub(crate) fn new(quick: bool) -> Self {
        if quick {
            Self {
                counted: Duration::from_secs(3),
                steps: 0,
                again: false,
                silent: &[5, 30],
                rates: &[5, 15],
                cost_counted: Duration::from_millis(1_500),
                passes: 1,
                sessions: 200,
                churn: (0, 200),
                // A client that vanishes is given up after half a minute.
                ending: Ending::Told,
                settle: Duration::from_secs(1),
            }
        } else {
            Self {
                counted: Duration::from_secs(10),
                steps: 7,
                again: true,
                silent: &[10, 100, 1_000, 3_000],
                rates: &[10, 50, 100, 200],
                cost_counted: Duration::from_secs(20),
                passes: 5,
                sessions: 1_000,
                // Until as many are up at once as ever will be: clients that vanish hold their session for a while.
                churn: (4_000, 10_000),
                ending: Ending::Mixed,
                settle: Duration::from_secs(2),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_is_measured_in_an_order_in_which_what_needs_the_most_calls_comes_after_they_are_known() {
        let at = |wanted| Measure::ALL.iter().position(|measure| *measure == wanted);
        for later in [Measure::Costs, Measure::Targets] {
            assert!(at(later) > at(Measure::Whole));
        }
        assert!(Measure::ALL.iter().all(|measure| at(*measure).is_some()));
        // None is without a file.
        assert!(
            Measure::ALL
                .iter()
                .all(|measure| measure.is_of_calls() || measure.is_of_capacity())
        );
    }
}
