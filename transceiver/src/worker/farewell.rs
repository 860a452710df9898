//! The end of a session at its worker, whatever state a panic has left it in.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use firsthop_shared::address::SessionId;
use firsthop_shared::trunk::RecordKind;

use super::core::{Core, record_to};
use super::endings::{CallReport, Ended};
use crate::life::EndReason;

/// Does one step that a fault of ours may make panic; nothing when it does.
///
/// What a panic leaves half done is the session, which is given up then, and whole packets in the outbox.
pub(super) fn guarded<T>(step: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(step)).ok()
}

impl Core {
    /// Keeps what support may ask of a session that has ended, less where its client was.
    fn note_end(&self, id: SessionId, reason: EndReason, report: Option<CallReport>, now: Instant) {
        let call = report.map(|mut call| {
            call.session.paths.clear();
            Box::new(call)
        });
        let reason = reason.label();
        self.settings.endings.note(id, Ended { reason, call }, now);
    }

    /// Takes a session out: relays and whoever looks on are told, and it is counted and logged.
    ///
    /// What a panic has left half done may panic again at each step here. So each is guarded for itself: what a step does not give is
    /// missing in the line of the log, and the others are done all the same.
    pub(super) fn finish(&mut self, id: SessionId, reason: EndReason, now: Instant) {
        let Some(mut slot) = self.sessions.remove(&id) else {
            return;
        };
        let report = guarded(|| slot.session.report(now));
        let report = report.map(|report| slot.report(self.settings.shard, report));
        let mut session = slot.session;
        let destinations = guarded(|| session.destinations().collect::<Vec<_>>());
        for to in destinations.iter().flatten() {
            let header = record_to(id, RecordKind::Close, to);
            self.push(to.hop, &header, &[]);
        }
        let passed = guarded(|| session.pass_to_sidebands());
        let left = guarded(|| session.leave_sidebands(reason));
        let summary = guarded(|| session.summary(now));
        let created = session.created();
        let dropped = guarded(|| drop(session));
        let whole = report.is_some() && destinations.is_some() && summary.is_some();
        let whole = whole && [passed, left, dropped].iter().all(Option::is_some);
        let reason = if whole {
            reason
        } else {
            tracing::error!(session = id.0, "a session panicked while it was put away");
            EndReason::Panicked
        };
        // Before it leaves the directory, so that whoever asks finds it here or there; and once it is known how it ended.
        self.note_end(id, reason, report, now);
        self.settings.directory.release(id);
        self.counters.states[slot.state as usize] -= 1;
        self.counters.ended[reason as usize] += 1;
        let summary = summary.unwrap_or_default();
        let (audio, backend) = (&summary.audio, &summary.backend);
        for (sum, count) in self.counters.audio.iter_mut().zip(audio.faults()) {
            *sum += count;
        }
        self.counters.times.take(&summary);
        for (sum, addend) in self.counters.coding.iter_mut().zip(audio.coding.addends()) {
            *sum += addend;
        }
        let quality = &summary.quality;
        for (sum, addend) in self.counters.quality.iter_mut().zip(quality.addends()) {
            *sum += addend;
        }
        tracing::info!(
            session = id.0,
            created,
            client = slot.client.as_deref().unwrap_or("-"),
            reason = reason.label(),
            duration_ms = summary.life.duration_ms,
            setup = %summary.life.setup,
            interruptions = summary.life.interruptions,
            moves = summary.moves,
            restarts = summary.restarts,
            drops = summary.drops,
            packets_in = audio.uplink.received,
            frames_out = audio.playout.frames,
            underruns = audio.playout.underruns,
            late = audio.uplink.reorder.late,
            missing = audio.uplink.reorder.missing,
            stray = audio.uplink.reorder.stray,
            excess = audio.uplink.excess,
            malformed = audio.uplink.malformed,
            concealed_samples = audio.uplink.concealed,
            overrun_samples = audio.overrun,
            dropped_events = audio.dropped_events,
            turns = %format_args!("{} {}", audio.turns, audio.coding),
            recovered = audio.uplink.recovered,
            rtt_ms = quality.rtt_ms,
            jitter_down_ms = quality.jitter_down_ms,
            jitter_up_ms = quality.jitter_up_ms,
            packets_out = quality.sent,
            lost_down = quality.lost_down,
            expected_loss = summary.expected_loss,
            // The library takes 32 fields in all.
            backend = %backend,
            "session ended"
        );
    }
}
