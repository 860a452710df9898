//! The times of calls that have ended, counted once each: how long their set-up took, and how their paths and answers were.

use std::fmt;
use std::time::Duration;

use prometheus_client::encoding::DescriptorEncoder;

use crate::life::Phase;
use crate::session::Summary;
use crate::times::{self, SharedTimes, Times};

/// How many histograms there are.
const COUNT: usize = Phase::ALL.len() + 5;

/// What a worker counts of its ended calls: by phase of the set-up, then round trip, jitter down and up, interruptions, and the most
/// audio that waited.
#[derive(Clone, Debug, Default)]
pub struct CallTimes([Times; COUNT]);

/// The same, as another thread may read them.
#[derive(Debug, Default)]
pub struct SharedCallTimes([SharedTimes; COUNT]);

impl CallTimes {
    /// Counts a call that has ended.
    pub fn take(&mut self, call: &Summary) {
        let (setup, rest) = self.0.split_at_mut(Phase::ALL.len());
        for (times, ms) in setup.iter_mut().zip(call.life.setup.0) {
            add(times, ms);
        }
        let [rtt, jitter_down, jitter_up, barge_ins, queue_peak] = rest else {
            return;
        };
        add(rtt, call.quality.rtt_ms);
        add(jitter_down, call.quality.jitter_down_ms);
        add(jitter_up, call.quality.jitter_up_ms);
        barge_ins.join(&call.audio.turns.barge_ins);
        add(queue_peak, Some(call.audio.turns.queue_peak_ms));
    }
}

fn add(times: &mut Times, ms: Option<u64>) {
    if let Some(ms) = ms {
        times.add(Duration::from_millis(ms));
    }
}

impl SharedCallTimes {
    /// Makes the times visible.
    pub fn publish(&self, times: &CallTimes) {
        for (to, from) in self.0.iter().zip(&times.0) {
            to.publish(from);
        }
    }
}

/// Writes the times of all workers together on the metrics page.
///
/// # Errors
/// What the page itself says.
pub fn encode<'a>(
    encoder: &mut DescriptorEncoder<'_>,
    workers: impl Iterator<Item = &'a SharedCallTimes>,
) -> fmt::Result {
    let mut all = [Times::default(); COUNT];
    for worker in workers {
        for (sum, times) in all.iter_mut().zip(&worker.0) {
            sum.join(&times.read());
        }
    }
    let (setup, rest) = all.split_at(Phase::ALL.len());
    let phases: Vec<_> = Phase::ALL
        .into_iter()
        .zip(setup)
        .map(|(phase, times)| (Some(("phase", phase.label())), *times))
        .collect();
    let help = "From a call's answer until it reached this phase of its set-up, of ended calls";
    times::encode(encoder, "setup", help, &phases)?;
    let &[rtt, jitter_down, jitter_up, barge_ins, queue_peak] = rest else {
        return Ok(());
    };
    let help =
        "Mean round trip of an ended call, by RTCP; calls that measured none are not counted";
    times::encode(encoder, "call_rtt", help, &[(None, rtt)])?;
    let help = "Mean jitter of an ended call: down as its client reported, up as received from it";
    let jitter = [("down", jitter_down), ("up", jitter_up)];
    let jitter = jitter.map(|(way, times)| (Some(("direction", way)), times));
    times::encode(encoder, "call_jitter", help, &jitter)?;
    let help = "From the arrival of the model server's word that the user interrupts, or of the client's, to the frame with which the sound fades, in ended calls";
    times::encode(encoder, "barge_in", help, &[(None, barge_ins)])?;
    let help = "The most audio that ever waited to be played in an ended call";
    times::encode(encoder, "playout_queue_peak", help, &[(None, queue_peak)])
}
