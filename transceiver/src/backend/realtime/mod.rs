//! OpenAI's Realtime protocol over a WebSocket, sans-IO.
//!
//! Events pass through in both directions as they are, except for what a WebRTC call does differently (interfaces page, section 3): audio
//! goes by the track, `output_audio_buffer.*` are made here from what the playout tells, and the user's interruption is carried out here,
//! because the server does not know what has been heard. Servers may speak the beta's names; clients are told today's.
//!
//! A connection begins with the server's `session.created`; the session's configuration follows as one `session.update`, then what the
//! client said meanwhile. A new connection after a loss begins the same way, with everything that the client has configured since; what
//! was said on the old one is gone, and the client is told so.

mod event;
mod format;
mod session;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

use self::event::{AudioDelta, ClientEvent, Event, Meaning};
use self::format::{Packer, Rate, Unpacker};
use self::session::Told;
use super::speech::{Effect, Speech};
use super::translator::{FromServer, Loss, LossCause, Message, Translator, TranslatorCounters};
use super::upstream::Upstream;
use crate::audio::{
    BackendEnd, Format as Form, Ids, Input, ItemId, Law, Output, OutputBuffer, PlayoutEvent,
    QueueState, client_error, output_audio_buffer, server_error,
};
use crate::limits;

pub use self::format::Format;
pub use self::session::merge;

/// The most audio that one `input_audio_buffer.append` carries, in frames of 20 ms.
const APPEND_MAX: usize = 5;

/// The longest `event_id` of a client that an error names.
const MAX_CLIENT_ID: usize = 512;

/// What a session of this protocol is told at its beginning.
#[derive(Debug, Clone, Default)]
pub struct RealtimeSettings {
    /// The session's configuration, in the GA shape.
    pub session: Map<String, Value>,
    /// The audio format that the application fixes; otherwise the server's word counts.
    pub format: Option<Format>,
    /// The law of G.711 in which audio crosses the seam to the session, unchanged; nothing for PCM.
    pub passed: Option<Law>,
    /// Event ids follow from it; it should be random.
    pub seed: u64,
}

/// The Realtime protocol of one session.
pub struct Realtime {
    /// What the server is told when a connection begins: grows with what the client configures.
    session: Map<String, Value>,
    /// The length of what has been merged into it since it was last measured.
    remembered: usize,
    format: Option<Format>,
    ids: Ids,
    /// What one message of the server's made.
    outputs: VecDeque<Waiting>,
    /// What the playout and the client made: it does not wait behind audio.
    urgent: VecDeque<Waiting>,
    /// What the last poll gave.
    given: Vec<i16>,
    /// The same in the law that is passed through.
    encoded: Vec<u8>,
    passed: Option<Law>,
    rate: Rate,
    up: Upstream,
    /// Samples of less than a frame that wait for the rest of it.
    partial: Vec<i16>,
    packer: Packer,
    unpacker: Unpacker,
    /// Whose audio the unpacker has.
    unpacking: Option<ItemId>,
    speech: Speech,
    interrupts: bool,
    /// When a server that says nothing is taken to be ready.
    hello_by: Option<Instant>,
    /// There has been a connection, and the client does not know yet that it is lost. (Before the first one there is no session to speak
    /// of: `session.created` comes first.)
    connected: bool,
    /// The server has said that the session's time is over.
    expired: bool,
    ending: Option<(BackendEnd, Instant)>,
    /// When the user's turn ended that the model has not answered yet.
    asked: Option<Instant>,
    latency: Option<Duration>,
    counters: TranslatorCounters,
}

enum Waiting {
    Event(String),
    Audio {
        item: ItemId,
        pcm: Vec<i16>,
        given: usize,
        /// Nothing of the item was given before.
        first: bool,
    },
    Finished(ItemId),
    Clear,
}

impl Realtime {
    /// A session before its connection.
    #[must_use]
    pub fn new(settings: RealtimeSettings) -> Self {
        let format = settings.format.unwrap_or_default();
        let rate = match settings.passed {
            Some(_) => Rate::Narrow,
            None => Rate::Wide,
        };
        let frames = limits::BACKEND_HELD.as_millis() as usize / 20;
        Self {
            remembered: 0,
            session: settings.session,
            format: settings.format,
            ids: Ids::new(settings.seed),
            outputs: VecDeque::new(),
            urgent: VecDeque::new(),
            given: Vec::new(),
            encoded: Vec::new(),
            passed: settings.passed,
            rate,
            up: Upstream::new(frames * rate.frame()),
            partial: Vec::new(),
            packer: Packer::new(format, rate),
            unpacker: Unpacker::new(format, rate),
            unpacking: None,
            speech: Speech::default(),
            interrupts: true,
            hello_by: None,
            connected: false,
            expired: false,
            ending: None,
            asked: None,
            latency: None,
            counters: TranslatorCounters::default(),
        }
    }

    fn hear(&mut self, pcm: &[i16]) {
        if !self.up.is_open() {
            return self.up.hold(pcm);
        }
        self.partial.extend(pcm);
        if self.partial.len() < self.rate.frame() {
            return;
        }
        let mut partial = std::mem::take(&mut self.partial);
        for piece in partial.chunks(APPEND_MAX * self.rate.frame()) {
            let audio = self.packer.pack(piece);
            // Base64 needs no escapes; the event needs no id, because no error will name one.
            let text = format!(r#"{{"type":"input_audio_buffer.append","audio":"{audio}"}}"#);
            self.up.push_audio(Message::Text(text), piece.len());
        }
        partial.clear();
        self.partial = partial;
    }

    fn client_event(&mut self, text: &str, now: Instant) {
        let Some((event, id)) = event::read_client(text) else {
            let message = "The message is not a JSON object.";
            return self.refuse("invalid_json", message, None, &Value::Null);
        };
        match event {
            ClientEvent::Untyped => {
                let message = "The event has no type.";
                self.refuse("missing_required_parameter", message, Some("type"), &id);
            }
            ClientEvent::Append => self.refuse(
                "unsupported_event",
                "On a WebRTC call audio comes by the track, not by input_audio_buffer.append.",
                Some("type"),
                &id,
            ),
            ClientEvent::Clear => self.clear(),
            ClientEvent::Pass | ClientEvent::Update(_) | ClientEvent::Respond => {
                if !self.up.push_event(Message::Text(text.to_owned())) {
                    let message = "The model server does not take events at the moment; this one was dropped. Send it again later.";
                    return self.refuse("backend_busy", message, None, &id);
                }
                match event {
                    ClientEvent::Update(session) => self.remember(&session, text.len()),
                    ClientEvent::Respond => self.asked = Some(now),
                    _ => {}
                }
            }
        }
    }

    /// Adds what the client configures to what a new connection will be told.
    fn remember(&mut self, session: &Value, length: usize) {
        let Value::Object(session) = session else {
            return;
        };
        let mut merged = self.session.clone();
        session::merge(&mut merged, session);
        self.remembered += length;
        if self.remembered > limits::BACKEND_SESSION_MAX {
            let measured = Value::Object(merged.clone()).to_string().len();
            if measured > limits::BACKEND_SESSION_MAX {
                return;
            }
            self.remembered = measured;
        }
        self.session = merged;
    }

    /// The client wants silence. Answered also when there is.
    fn clear(&mut self) {
        let hit = self.speech.cut();
        for waiting in std::mem::take(&mut self.outputs) {
            match waiting {
                Waiting::Audio {
                    item,
                    given: 0,
                    first: true,
                    ..
                } => {
                    // The playout has never heard of it.
                    let event = PlayoutEvent::Cleared { item, sent_ms: 0 };
                    self.played(event);
                }
                Waiting::Audio { .. } => {}
                other => self.outputs.push_back(other),
            }
        }
        self.urgent.push_back(Waiting::Clear);
        let told = if hit.is_empty() { vec![None] } else { hit };
        for response in told {
            let text = self.cleared(response.as_deref());
            self.urgent.push_back(Waiting::Event(text));
        }
    }

    /// The user speaks: the model is to be silent.
    fn interrupt(&mut self) {
        let hit = self.speech.cut();
        if hit.is_empty() {
            return;
        }
        self.outputs.push_back(Waiting::Clear);
        for response in hit {
            let text = self.cleared(response.as_deref());
            self.outputs.push_back(Waiting::Event(text));
        }
    }

    fn cleared(&mut self, response: Option<&str>) -> String {
        output_audio_buffer(&mut self.ids, OutputBuffer::Cleared, response)
    }

    fn played(&mut self, event: PlayoutEvent) {
        if let Some(effect) = self.speech.played(event) {
            self.effect(effect);
        }
    }

    fn effect(&mut self, effect: Effect) {
        let (what, response) = match effect {
            Effect::Started(response) => (OutputBuffer::Started, response),
            Effect::Stopped(response) => (OutputBuffer::Stopped, response),
            Effect::Truncate {
                item,
                part,
                sent_ms,
            } => {
                if self.up.is_open() {
                    let text = json!({
                        "type": "conversation.item.truncate",
                        "event_id": self.ids.make("event"),
                        "item_id": item,
                        "content_index": part,
                        "audio_end_ms": sent_ms,
                    });
                    self.up.push(Message::Text(text.to_string()));
                }
                return;
            }
        };
        let text = output_audio_buffer(&mut self.ids, what, response.as_deref());
        self.urgent.push_back(Waiting::Event(text));
    }

    fn message(&mut self, text: String, now: Instant) {
        let (meaning, renamed) = match event::read(&text) {
            Some(Event::Audio(delta)) => return self.audio(&delta, now),
            Some(Event::Told(meaning, renamed)) => (meaning, renamed),
            None => {
                self.counters.malformed += 1;
                return;
            }
        };
        self.outputs
            .push_back(Waiting::Event(renamed.unwrap_or(text)));
        let mut beta = false;
        match meaning {
            Meaning::AudioDone { item, part } => {
                let piece = self.speech.complete(&item, part);
                self.outputs.extend(piece.map(Waiting::Finished));
            }
            Meaning::ResponseDone(response) => {
                let (pieces, stopped) = self.speech.response_done(response.as_deref());
                self.outputs
                    .extend(pieces.into_iter().map(Waiting::Finished));
                if let Some(stopped) = stopped {
                    self.effect(stopped);
                }
            }
            Meaning::Session { created, session } => {
                beta = created && session::is_beta(&session);
                self.follow(&session::told(&session));
            }
            Meaning::SpeechStarted => {
                self.asked = None;
                if self.interrupts {
                    self.interrupt();
                }
            }
            Meaning::TurnEnded => self.asked = Some(now),
            Meaning::Error { expired } => {
                self.counters.errors += 1;
                self.expired |= expired;
            }
            Meaning::Other => {}
        }
        // A server that has spoken is ready, also one that begins with another event.
        if !self.up.is_open() {
            self.open(beta);
        }
    }

    fn audio(&mut self, delta: &AudioDelta<'_>, now: Instant) {
        if let Some(asked) = self.asked.take() {
            self.latency = Some(now.saturating_duration_since(asked));
        }
        if delta.delta.is_empty() {
            return;
        }
        let response = delta.response_id.as_deref();
        let Some((item, first)) = self
            .speech
            .audio(response, &delta.item_id, delta.content_index)
        else {
            return;
        };
        if self.unpacking != Some(item) {
            self.unpacking = Some(item);
            self.unpacker.begin();
        }
        match self.unpacker.unpack(&delta.delta) {
            Some(pcm) if pcm.is_empty() => {}
            Some(pcm) => self.outputs.push_back(Waiting::Audio {
                item,
                pcm,
                given: 0,
                first,
            }),
            None => self.counters.undecoded += 1,
        }
    }

    /// Takes what the server says of the session.
    fn follow(&mut self, told: &Told) {
        if let Some(format) = told.input
            && format != self.packer.format()
        {
            self.packer = Packer::new(format, self.rate);
        }
        if let Some(format) = told.output
            && format != self.unpacker.format()
        {
            self.unpacker = Unpacker::new(format, self.rate);
        }
        self.interrupts = told.interrupts.unwrap_or(self.interrupts);
    }

    /// The server is ready: it is told the session, and then everything that waited.
    fn open(&mut self, beta: bool) {
        self.hello_by = None;
        if let Some(session) = session::update(&self.session, self.format) {
            // What follows is in the format that is asked for here.
            self.follow(&session::told(&session));
            let session = if beta {
                session::to_beta(session)
            } else {
                session
            };
            let update = json!({
                "type": "session.update",
                "event_id": self.ids.make("event"),
                "session": session,
            });
            self.up.push(Message::Text(update.to_string()));
        }
        let held = self.up.open();
        self.hear(&held);
    }

    fn lost(&mut self, loss: &Loss, now: Instant) {
        self.up.close();
        self.hello_by = None;
        self.asked = None;
        self.partial.clear();
        let pieces = self.speech.server_gone();
        self.outputs
            .extend(pieces.into_iter().map(Waiting::Finished));
        let expired = self.expired || loss.cause == LossCause::Expired;
        if loss.retry.is_some() && !expired {
            if std::mem::take(&mut self.connected) {
                let message = format!(
                    "There is no connection to the model server: {}. It is tried again; what was said before may be lost to the model.",
                    loss.cause
                );
                let text = server_error(&mut self.ids, "backend_disconnected", &message);
                self.outputs.push_back(Waiting::Event(text));
            }
            return;
        }
        let (why, code) = match loss.cause {
            _ if expired => (BackendEnd::Expired, "session_expired"),
            LossCause::Closed(Some(1_000)) => (BackendEnd::Closed, "backend_closed"),
            _ => (BackendEnd::Failed, "backend_failed"),
        };
        // A server that has said so itself was passed on.
        if !self.expired {
            let message = format!("The model server has ended the session: {}.", loss.cause);
            let text = server_error(&mut self.ids, code, &message);
            self.outputs.push_back(Waiting::Event(text));
        }
        self.ending = Some((why, now + limits::BACKEND_LAST_WORDS));
    }

    fn refuse(&mut self, code: &str, message: &str, param: Option<&str>, id: &Value) {
        let about = id.as_str().filter(|id| id.len() <= MAX_CLIENT_ID);
        let text = client_error(&mut self.ids, code, message, param, about);
        self.urgent.push_back(Waiting::Event(text));
    }
}

impl Translator for Realtime {
    fn form(&self) -> Form {
        self.passed
            .map_or(Form::Pcm, |law| Form::Encoded(law.into()))
    }

    fn handle(&mut self, input: Input<'_>, now: Instant) {
        match input {
            Input::Audio(pcm) => self.hear(pcm),
            Input::Encoded(bytes) => {
                if let Some(law) = self.passed {
                    let pcm: Vec<i16> = bytes.iter().map(|code| law.expand(*code)).collect();
                    self.hear(&pcm);
                }
            }
            Input::Event(text) => self.client_event(text, now),
            Input::Playout(event) => self.played(event),
        }
    }

    fn server(&mut self, event: FromServer, now: Instant) {
        match event {
            FromServer::Connected => {
                self.connected = true;
                self.hello_by = Some(now + limits::BACKEND_HELLO);
            }
            FromServer::Message(Message::Text(text)) => self.message(text, now),
            // Some servers send their JSON as binary messages.
            FromServer::Message(Message::Binary(bytes)) => match String::from_utf8(bytes) {
                Ok(text) => self.message(text, now),
                Err(_) => self.counters.malformed += 1,
            },
            FromServer::Lost(loss) => self.lost(&loss, now),
        }
    }

    fn tick(&mut self, now: Instant) {
        if self.hello_by.is_some_and(|by| now >= by) {
            self.open(false);
        }
    }

    fn poll(&mut self, queue: QueueState, now: Instant) -> Option<Output<'_>> {
        if self.urgent.is_empty()
            && let Some(Waiting::Audio { .. }) = self.outputs.front()
        {
            return self.give(queue.room);
        }
        let waiting = self.urgent.pop_front();
        let Some(waiting) = waiting.or_else(|| self.outputs.pop_front()) else {
            return self.end(now);
        };
        match waiting {
            Waiting::Event(text) => Some(Output::Event(text)),
            Waiting::Finished(item) => Some(Output::Finished(item)),
            Waiting::Clear => Some(Output::Clear),
            // Audio is never urgent, and not at the front.
            Waiting::Audio { .. } => None,
        }
    }

    fn is_idle(&self) -> bool {
        self.urgent.is_empty() && self.outputs.is_empty()
    }

    fn poll_server(&mut self) -> Option<Message> {
        self.up.pop()
    }

    fn deadline(&self) -> Option<Instant> {
        let ending = self.ending.map(|(_, by)| by);
        [ending, self.hello_by].into_iter().flatten().min()
    }

    fn take_latency(&mut self) -> Option<Duration> {
        self.latency.take()
    }

    fn counters(&self) -> TranslatorCounters {
        TranslatorCounters {
            unsent_samples: self.up.unsent,
            refused_events: self.up.refused,
            ..self.counters
        }
    }
}

impl Realtime {
    /// As much of the audio at the front as there is room for.
    fn give(&mut self, room: usize) -> Option<Output<'_>> {
        let Some(Waiting::Audio {
            item, pcm, given, ..
        }) = self.outputs.front_mut()
        else {
            return None;
        };
        let (item, part) = (Some(*item), room.min(pcm.len() - *given));
        if part == 0 {
            return None;
        }
        self.given.clear();
        self.given.extend(&pcm[*given..*given + part]);
        *given += part;
        if *given == pcm.len() {
            self.outputs.pop_front();
        }
        let Some(law) = self.passed else {
            let pcm = &self.given;
            return Some(Output::Audio { item, pcm });
        };
        self.encoded.clear();
        self.encoded
            .extend(self.given.iter().map(|sample| law.compress(*sample)));
        let payload = &self.encoded;
        Some(Output::Encoded { item, payload })
    }

    /// The end of the session, once everything that the model said has been played, or has had its time.
    fn end(&mut self, now: Instant) -> Option<Output<'_>> {
        let (why, by) = self.ending?;
        if !self.speech.is_over() && now < by {
            return None;
        }
        self.ending = None;
        Some(Output::End(why))
    }
}
