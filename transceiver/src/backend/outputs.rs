//! What waits for the session: what the server said, in its order; and what the playout and the client made, which does not wait behind audio.
//!
//! Every protocol speaks to its session by one of these. It knows the model's speech, and so turns what becomes of audio into what the client
//! is told of it: `output_audio_buffer.*`, the errors that every client may meet, and the end. What the server is told of a cut is the
//! protocol's own affair: a [`Truncation`] is handed back.

use std::collections::VecDeque;
use std::time::Instant;

use serde_json::{Value, json};

use super::outage::is_refusal;
use super::speech::{Effect, Speech, Truncation};
use super::translator::{Loss, LossCause};
use super::unreadable::Peer;
use crate::audio::{
    BackendEnd, Ids, ItemId, Output, OutputBuffer, PlayoutEvent, client_error, disconnected, event,
    event_id, output_audio_buffer, response_of, server_error,
};
use crate::limits;

/// What clients are told that there is behind their session.
#[derive(Debug, Clone, Copy)]
pub(super) struct Names {
    /// What there is a connection to.
    pub(super) server: &'static str,
    /// What remembers what was said.
    pub(super) mind: &'static str,
}

/// Why an event of the client's is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    /// It is no JSON object.
    NotJson,
    /// It has no type.
    Untyped,
    /// It carries audio.
    Audio,
    /// The server does not take events now.
    Busy,
    /// The session that it asks for is larger than one may be.
    TooLarge,
    /// The server has ended the session, or is gone for good.
    Over,
    /// The server behind the session cannot do this; in words.
    Unsupported(&'static str),
}

/// The queue towards a session.
///
/// It holds what one message of the server's made, which is bounded as messages are, and no other is read until it is empty; and besides a
/// few events for each thing that the client or the playout has done.
pub(super) struct Outputs {
    pub(super) ids: Ids,
    speech: Speech,
    names: Names,
    ordered: VecDeque<Waiting>,
    urgent: VecDeque<Waiting>,
    /// How many of both are [`Waiting::Clear`].
    clears: usize,
    /// What the last poll gave.
    given: Vec<i16>,
    /// The client knows of the outage: it is told once that there is no connection, and again when there has been a session meanwhile.
    told: bool,
    /// There has been a connection.
    connected: bool,
    /// The client knows that the server says what cannot be read.
    garbled: bool,
    peer: Peer,
    ending: Option<(BackendEnd, Instant)>,
}

enum Waiting {
    Event(String),
    Audio {
        item: ItemId,
        pcm: Vec<i16>,
        given: usize,
    },
    Finished(ItemId),
    Clear {
        asked: Instant,
    },
}

impl Outputs {
    /// The queue of a session before its connection. `seed` should be random: event ids follow from it.
    pub(super) fn new(seed: u64, names: Names) -> Self {
        Self {
            ids: Ids::new(seed),
            speech: Speech::default(),
            names,
            ordered: VecDeque::new(),
            urgent: VecDeque::new(),
            clears: 0,
            given: Vec::new(),
            told: false,
            connected: false,
            garbled: false,
            peer: Peer::default(),
            ending: None,
        }
    }

    /// Whom the log names when this server says what cannot be read.
    pub(super) fn name(&mut self, peer: Peer) {
        self.peer = peer;
    }

    /// There is a connection. That alone ends no outage: a server that fails at once takes connections, too.
    pub(super) fn connected(&mut self) {
        self.connected = true;
    }

    /// There is a session behind the connection: the outage is over.
    pub(super) fn restored(&mut self) {
        self.told = false;
    }

    /// Passes an event of the server's on.
    pub(super) fn pass(&mut self, text: String) {
        self.ordered.push_back(Waiting::Event(text));
    }

    /// Tells an event of our own, after all that the server has said.
    pub(super) fn tell(&mut self, kind: &str, members: Value) {
        let text = event(&mut self.ids, kind, members);
        self.pass(text);
    }

    /// Tells an event of our own at once.
    pub(super) fn tell_now(&mut self, kind: &str, members: Value) {
        let text = event(&mut self.ids, kind, members);
        self.answer(text);
    }

    /// Gives an event at once.
    pub(super) fn answer(&mut self, text: String) {
        self.urgent.push_back(Waiting::Event(text));
    }

    /// Tells, after all that the server has said, that something is wrong on this side.
    pub(super) fn complain(&mut self, code: &str, message: &str) {
        let text = server_error(&mut self.ids, code, message, None);
        self.pass(text);
    }

    /// Tells, after all that the server has said, that this event of the client's has no answer, and will have none.
    pub(super) fn unanswered(&mut self, event_id: &str) {
        let message = format!(
            "There is no answer: the connection to the {} was lost. Send this event again.",
            self.names.server
        );
        let text = server_error(
            &mut self.ids,
            "backend_disconnected",
            &message,
            Some(event_id),
        );
        self.pass(text);
    }

    /// The server has sent what is none of its protocol: the client is told the first time, and the log is warned.
    pub(super) fn unreadable(&mut self, sent: &str) {
        if !std::mem::replace(&mut self.garbled, true) {
            let message = format!("The {} sent {sent}.", self.names.server);
            self.complain("backend_message_unreadable", &message);
            self.peer.warn(&message);
        }
    }

    /// Refuses an event of the client's, whose `event_id` is `id`.
    pub(super) fn refuse(&mut self, why: Refusal, id: &Value) {
        let busy;
        let (code, message, param) = match why {
            Refusal::NotJson => ("invalid_json", "The message is not a JSON object.", None),
            Refusal::Untyped => (
                "missing_required_parameter",
                "The event has no type.",
                Some("type"),
            ),
            Refusal::Audio => (
                "unsupported_event",
                "On a WebRTC call audio comes by the track, not by input_audio_buffer.append.",
                Some("type"),
            ),
            Refusal::Busy => {
                busy = format!(
                    "The {} does not take events at the moment; this one was dropped. Send it again later.",
                    self.names.server
                );
                ("backend_busy", busy.as_str(), None)
            }
            Refusal::Over => {
                busy = format!(
                    "The {} takes no more events: the session ends.",
                    self.names.server
                );
                ("backend_closed", busy.as_str(), None)
            }
            Refusal::TooLarge => (
                "session_too_large",
                "The session's configuration is too large.",
                Some("session"),
            ),
            Refusal::Unsupported(message) => ("unsupported_event", message, Some("type")),
        };
        let text = client_error(&mut self.ids, code, message, param, event_id(id));
        self.answer(text);
    }

    /// Audio of a content part has come: the name under which it is to be played. [`play`](Self::play) takes the audio itself.
    ///
    /// # Errors
    /// It is not to be played any more; the server does not know yet that nothing of it was heard.
    pub(super) fn audio(
        &mut self,
        response: Option<&str>,
        item: &str,
        part: u64,
    ) -> Result<ItemId, Option<Truncation>> {
        self.speech.audio(response, item, part)
    }

    /// Plays audio of a piece, after all that the server has said.
    pub(super) fn play(&mut self, item: ItemId, pcm: Vec<i16>) {
        if !pcm.is_empty() {
            self.ordered.push_back(Waiting::Audio {
                item,
                pcm,
                given: 0,
            });
        }
    }

    /// All audio of a content part has come.
    pub(super) fn complete(&mut self, item: &str, part: u64) {
        let piece = self.speech.complete(item, part);
        self.finish(piece);
    }

    /// A response has begun: until it ends, it is the one of audio that names none.
    pub(super) fn response_created(&mut self, response: Option<&str>) {
        self.speech.response_created(response);
    }

    /// A response has ended.
    pub(super) fn response_done(&mut self, response: Option<&str>) {
        let (pieces, stopped) = self.speech.response_done(response);
        self.finish(pieces);
        if let Some(effect) = stopped {
            self.effect(effect);
        }
    }

    fn finish(&mut self, pieces: impl IntoIterator<Item = ItemId>) {
        self.ordered
            .extend(pieces.into_iter().map(Waiting::Finished));
    }

    /// The client wants silence, as came at `asked`. It is answered also when there is.
    #[must_use = "the server does not know what has been heard"]
    pub(super) fn clear(&mut self, asked: Instant) -> Vec<Truncation> {
        let (hit, unheard) = self.cut();
        self.urgent.push_back(Waiting::Clear { asked });
        self.clears += 1;
        let told = if hit.is_empty() { vec![None] } else { hit };
        for response in told {
            let text = self.cleared(response.as_deref());
            self.answer(text);
        }
        unheard
    }

    /// The user has interrupted, says the server by what came at `asked`: what is being said ends here.
    #[must_use = "the server does not know what has been heard"]
    pub(super) fn interrupt(&mut self, asked: Instant) -> Vec<Truncation> {
        let (hit, unheard) = self.cut();
        self.speech.cut_announced();
        if !hit.is_empty() {
            self.ordered.push_back(Waiting::Clear { asked });
            self.clears += 1;
        }
        for response in hit {
            let text = self.cleared(response.as_deref());
            self.pass(text);
        }
        unheard
    }

    /// Cuts off what is being said: the responses that this hits, and what the playout has never heard of.
    fn cut(&mut self) -> (Vec<Option<String>>, Vec<Truncation>) {
        let hit = self.speech.cut();
        let mut unheard = Vec::new();
        for waiting in std::mem::take(&mut self.ordered) {
            match waiting {
                // It is told here, in the playout's place.
                Waiting::Audio { item, .. } if self.speech.give(item) => {
                    unheard.extend(self.played(PlayoutEvent::Cleared { item, sent_ms: 0 }));
                }
                Waiting::Audio { .. } => {}
                other => self.ordered.push_back(other),
            }
        }
        (hit, unheard)
    }

    fn cleared(&mut self, response: Option<&str>) -> String {
        output_audio_buffer(&mut self.ids, OutputBuffer::Cleared, response)
    }

    /// Something became of a piece: the client is told, and a cut is handed back for the server.
    #[must_use = "the server does not know what has been heard"]
    pub(super) fn played(&mut self, event: PlayoutEvent) -> Option<Truncation> {
        self.speech
            .played(event)
            .and_then(|effect| self.effect(effect))
    }

    fn effect(&mut self, effect: Effect) -> Option<Truncation> {
        let (what, response) = match effect {
            Effect::Started(response) => (OutputBuffer::Started, response),
            Effect::Stopped(response) => (OutputBuffer::Stopped, response),
            Effect::Truncate(truncation) => return Some(truncation),
        };
        let text = output_audio_buffer(&mut self.ids, what, response.as_deref());
        self.answer(text);
        None
    }

    /// There is no connection any more. What has come is still played; `expired`: the server itself has told the client that the session's
    /// time is over.
    pub(super) fn lost(&mut self, loss: &Loss, expired: bool, now: Instant) {
        let Names { server, mind } = self.names;
        let gone = self.speech.server_gone();
        self.finish(gone.finished);
        for effect in gone.effects {
            self.effect(effect);
        }
        for response in gone.open {
            // Clients ask for nothing more while a response has no end.
            let members = response_of(&response, "failed", disconnected(), json!([]));
            self.tell("response.done", members);
        }
        let over = expired || loss.cause == LossCause::Expired;
        if loss.retry.is_some() && !over {
            if !std::mem::replace(&mut self.told, true) {
                let past = if self.connected {
                    format!("; what was said before may be lost to the {mind}")
                } else {
                    String::new()
                };
                let message = format!(
                    "There is no connection to the {server}: {}. It is tried again{past}.",
                    loss.cause
                );
                self.complain("backend_disconnected", &message);
            }
            return;
        }
        let (why, code) = match loss.cause {
            _ if over => (BackendEnd::Expired, "session_expired"),
            LossCause::Closed(Some(1_000)) => (BackendEnd::Closed, "backend_closed"),
            LossCause::Unreachable | LossCause::TimedOut => {
                (BackendEnd::Failed, "backend_unreachable")
            }
            LossCause::Status(status) if is_refusal(status) => {
                (BackendEnd::Failed, "backend_refused")
            }
            _ => (BackendEnd::Failed, "backend_failed"),
        };
        if !expired {
            let what = match loss.cause {
                LossCause::Closed(Some(_)) | LossCause::Expired => {
                    format!("The {server} has ended the session")
                }
                _ => format!("There is no connection to the {server}"),
            };
            let message = format!("{what}: {}.", loss.cause);
            self.complain(code, &message);
        }
        // Whoever ends the session has said all that it wanted to, and none of it is left out.
        let words = match why {
            BackendEnd::Closed | BackendEnd::Expired => limits::BACKEND_FAREWELL,
            BackendEnd::Failed => limits::BACKEND_LAST_WORDS,
        };
        self.ending = Some((why, now + words));
    }

    /// Whether there will be no server any more: what was said is played, and then the session ends.
    pub(super) fn is_ending(&self) -> bool {
        self.ending.is_some()
    }

    /// Whether nothing waits, also nothing for which there is no room.
    pub(super) fn is_empty(&self) -> bool {
        self.urgent.is_empty() && !self.speaks()
    }

    /// Whether something of the server's waits.
    pub(super) fn speaks(&self) -> bool {
        !self.ordered.is_empty()
    }

    /// When to poll although nothing was given.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.ending.map(|(_, by)| by)
    }

    /// The next output: of audio as much as there is `room` for.
    pub(super) fn poll(&mut self, room: usize, now: Instant) -> Option<Output<'_>> {
        if self.urgent.is_empty()
            && let Some(Waiting::Audio { .. }) = self.ordered.front()
        {
            return self.give(room);
        }
        let waiting = self.urgent.pop_front();
        let Some(waiting) = waiting.or_else(|| self.ordered.pop_front()) else {
            return self.end(now);
        };
        match waiting {
            Waiting::Event(text) => Some(Output::Event(text)),
            Waiting::Finished(item) => {
                // Of what made no sound the playout has nothing to tell.
                if !self.speech.is_given(item) {
                    let cut = self.played(PlayoutEvent::Finished(item));
                    debug_assert!(cut.is_none(), "it is finished");
                }
                Some(Output::Finished(item))
            }
            Waiting::Clear { asked } => {
                self.clears -= 1;
                Some(Output::Clear { asked })
            }
            // Audio is never urgent, and not at the front.
            Waiting::Audio { .. } => None,
        }
    }

    /// Takes a clear out of its turn: when it was asked for. Nothing in front of it is audio, which was cut off when the clear was made, so
    /// what stays is in its order.
    pub(super) fn poll_clear(&mut self) -> Option<Instant> {
        if self.clears == 0 {
            return None;
        }
        for queue in [&mut self.urgent, &mut self.ordered] {
            let at = queue
                .iter()
                .position(|waiting| matches!(waiting, Waiting::Clear { .. }));
            if let Some(Waiting::Clear { asked }) = at.and_then(|at| queue.remove(at)) {
                self.clears -= 1;
                return Some(asked);
            }
        }
        None
    }

    /// As much of the audio at the front as there is room for.
    fn give(&mut self, room: usize) -> Option<Output<'_>> {
        let Some(Waiting::Audio { item, pcm, given }) = self.ordered.front_mut() else {
            return None;
        };
        let (item, part) = (*item, room.min(pcm.len() - *given));
        if part == 0 {
            return None;
        }
        self.speech.give(item);
        self.given.clear();
        self.given.extend(&pcm[*given..*given + part]);
        *given += part;
        if *given == pcm.len() {
            self.ordered.pop_front();
        }
        Some(Output::Audio {
            item: Some(item),
            pcm: &self.given,
        })
    }

    /// The end of the session, once everything that was said has been played, or has had its time.
    fn end(&mut self, now: Instant) -> Option<Output<'_>> {
        let (why, by) = self.ending?;
        if !self.speech.is_over() && now < by {
            return None;
        }
        self.ending = None;
        Some(Output::End(why))
    }
}

#[cfg(test)]
#[path = "outputs_tests.rs"]
mod tests;
