//! A worker's counters: plain integers on the packet path, published now and then for the metrics page.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::call_times::{CallTimes, SharedCallTimes};
use crate::audio::{Coding, ConversationCounters};
use crate::backend::BackendStats;
use crate::life::{EndReason, State};
use crate::reason::{Drops, SharedDrops};
use crate::session::QualitySummary;

/// What a worker counts, as plain integers of its own.
#[derive(Clone, Debug, Default)]
pub struct Counters {
    /// Sessions made.
    pub created: u64,
    /// Offers refused.
    pub refused: u64,
    /// ICE restarts.
    pub restarts: u64,
    /// Sessions that became live.
    pub connected: u64,
    /// Sessions ended, by reason.
    pub ended: [u64; EndReason::ALL.len()],
    /// What went wrong with the audio of calls that have ended, in the order of [`ConversationCounters::FAULTS`].
    pub audio: [u64; ConversationCounters::FAULTS.len()],
    /// What RTCP said of calls that have ended, in the order of [`QualitySummary::SUMS`].
    pub quality: [u64; QualitySummary::SUMS.len()],
    /// The times of calls that have ended.
    pub times: CallTimes,
    /// What codecs did in calls that have ended, in the order of [`Coding::SUMS`].
    pub coding: [u64; Coding::SUMS.len()],
    /// Sessions now, by state.
    pub states: [u64; State::ALL.len()],
    /// Trunk datagrams received.
    pub datagrams_in: u64,
    /// Records received.
    pub records_in: u64,
    /// Trunk datagrams sent.
    pub datagrams_out: u64,
    /// Records sent.
    pub records_out: u64,
    /// Timers served.
    pub timers: u64,
    /// The largest lateness of a timer, in microseconds.
    pub timer_late_us: u64,
    /// Datagrams that the kernel dropped because the socket's buffer was full.
    pub kernel_drops: u64,
    /// Sends that the system refused for another reason than a full socket.
    pub send_errors: u64,
    /// Trunk datagrams that were larger than their path takes.
    pub oversize: u64,
    /// Receives that failed for another reason than an empty socket: ICMP answers, mostly.
    pub receive_errors: u64,
}

fn store(to: &[AtomicU64], from: &[u64]) {
    for (to, from) in to.iter().zip(from) {
        to.store(*from, Relaxed);
    }
}

macro_rules! published {
    ($($name:ident),* $(,)?) => {
        /// The same counters, as another thread may read them.
        #[derive(Debug, Default)]
        pub struct WorkerStats {
            $(
                #[doc = concat!("The worker's `", stringify!($name), "`.")]
                pub $name: AtomicU64,
            )*
            /// The worker's `ended`.
            pub ended: [AtomicU64; EndReason::ALL.len()],
            /// The worker's `audio`.
            pub audio: [AtomicU64; ConversationCounters::FAULTS.len()],
            /// The worker's `quality`.
            pub quality: [AtomicU64; QualitySummary::SUMS.len()],
            /// The worker's `times`.
            pub times: SharedCallTimes,
            /// The worker's `coding`.
            pub coding: [AtomicU64; Coding::SUMS.len()],
            /// The worker's `states`.
            pub states: [AtomicU64; State::ALL.len()],
            /// Drops, by reason.
            pub drops: SharedDrops,
            /// What connections to model servers did: they count here themselves.
            pub backend: Arc<BackendStats>,
        }

        impl WorkerStats {
            /// Makes the counters visible.
            pub fn publish(&self, counters: &Counters, drops: &Drops) {
                $(self.$name.store(counters.$name, Relaxed);)*
                store(&self.states, &counters.states);
                // Most turns end no call, and these are most of the counters.
                let known = self.ended.iter().map(|count| count.load(Relaxed));
                if known.ne(counters.ended) {
                    self.publish_ended(counters);
                }
                self.drops.publish(drops);
            }

            /// Makes visible what changes when a call ends, and only then.
            fn publish_ended(&self, counters: &Counters) {
                self.times.publish(&counters.times);
                store(&self.ended, &counters.ended);
                store(&self.audio, &counters.audio);
                store(&self.quality, &counters.quality);
                store(&self.coding, &counters.coding);
            }
        }
    };
}

published!(
    created,
    refused,
    restarts,
    connected,
    datagrams_in,
    records_in,
    datagrams_out,
    records_out,
    timers,
    timer_late_us,
    kernel_drops,
    send_errors,
    oversize,
    receive_errors,
);

impl WorkerStats {
    /// Sessions that have not ended.
    #[must_use]
    pub fn sessions(&self) -> u32 {
        let sum: u64 = self.states.iter().map(|state| state.load(Relaxed)).sum();
        u32::try_from(sum).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_call_leaves_behind_is_visible_when_it_has_ended() {
        let stats = WorkerStats::default();
        let mut counters = Counters::default();
        let drops = Drops::default();
        let ended = |stats: &WorkerStats| stats.ended[EndReason::HungUp as usize].load(Relaxed);
        for calls in 1..=3 {
            counters.records_in += 50;
            counters.states[State::Live as usize] = 1;
            stats.publish(&counters, &drops);
            assert_eq!(ended(&stats), calls - 1);
            assert_eq!(stats.sessions(), 1);
            // As a call's end leaves them.
            counters.states[State::Live as usize] = 0;
            counters.ended[EndReason::HungUp as usize] += 1;
            for counts in [
                &mut counters.audio[..],
                &mut counters.quality,
                &mut counters.coding,
            ] {
                counts.iter_mut().for_each(|count| *count += 7);
            }
            stats.publish(&counters, &drops);
            assert_eq!(ended(&stats), calls);
            assert_eq!(stats.sessions(), 0);
            assert_eq!(stats.records_in.load(Relaxed), 50 * calls);
            for count in stats
                .audio
                .iter()
                .chain(&stats.quality)
                .chain(&stats.coding)
            {
                assert_eq!(count.load(Relaxed), 7 * calls);
            }
        }
    }
}
