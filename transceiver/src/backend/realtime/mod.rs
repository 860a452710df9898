//! OpenAI's Realtime protocol over a WebSocket, sans-IO.
//!
//! Events pass through in both directions as they are, except for what a WebRTC call does differently (interfaces page, section 3): audio
//! goes by the track, `output_audio_buffer.*` are made here from what the playout tells, and the user's interruption is carried out here,
//! because the server does not know what has been heard. Servers may speak the beta's names; clients are told today's.
//!
//! A connection begins with the server's `session.created`; the session's configuration follows as one `session.update`, then what the
//! client said meanwhile. A new connection after a loss begins the same way, with everything that the client has configured since; what
//! was said on the old one is gone, and the client is told so: responses that it had announced end, and a response that the client asked for
//! is refused.

mod event;
mod format;
mod session;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

use self::event::{AudioDelta, ClientEvent, Event, Meaning};
use self::format::{Packer, Rate, Unpacker};
use self::session::Told;
use super::ahead::Glance;
use super::outputs::{Names, Outputs, Refusal};
use super::speech::Truncation;
use super::translator::{FromServer, Loss, Message, Translator, TranslatorCounters};
use super::unreadable::Peer;
use super::upstream::Upstream;
use crate::audio::{Format as Form, Input, ItemId, Law, Output, QueueState, event_id};
use crate::limits;

pub use self::format::Format;
pub use self::session::merge;

/// What there is behind the session.
const NAMES: Names = Names {
    server: "model server",
    mind: "model",
};

/// What a session of this protocol is told at its beginning.
#[derive(Debug, Clone, Default)]
pub struct RealtimeSettings {
    /// The session's configuration, in the GA shape.
    pub session: Map<String, Value>,
    /// The audio format that the application fixes; otherwise the server's word counts.
    pub format: Option<Format>,
    /// The law of G.711 whose samples cross the seam to the session; nothing for PCM at 24 kHz.
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
    outputs: Outputs,
    passed: Option<Law>,
    rate: Rate,
    up: Upstream,
    packer: Packer,
    unpacker: Unpacker,
    /// Whose audio the unpacker has.
    unpacking: Option<ItemId>,
    /// Audio is not to be played: an interruption follows.
    skips: bool,
    interrupts: bool,
    /// When a server that says nothing is taken to be ready.
    hello_by: Option<Instant>,
    /// The server has said that the session's time is over.
    expired: bool,
    /// The server of this connection speaks the beta.
    beta: bool,
    /// The `event_id` of each `response.create` that the server may not have seen, the oldest first.
    wanted: VecDeque<String>,
    /// The connection is lost, and not all of what it said is taken: these are what `wanted` was until then.
    unanswered: Option<VecDeque<String>>,
    /// When the user's turn ended that the model has not answered yet.
    asked: Option<Instant>,
    latency: Option<Duration>,
    counters: TranslatorCounters,
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
        Self {
            remembered: 0,
            session: settings.session,
            format: settings.format,
            outputs: Outputs::new(settings.seed, NAMES),
            passed: settings.passed,
            rate,
            up: Upstream::new(rate.frame()),
            packer: Packer::new(format, rate),
            unpacker: Unpacker::new(format, rate),
            unpacking: None,
            skips: false,
            interrupts: true,
            hello_by: None,
            expired: false,
            beta: false,
            wanted: VecDeque::new(),
            unanswered: None,
            asked: None,
            latency: None,
            counters: TranslatorCounters::default(),
        }
    }

    /// Names this session and its server, for the log.
    pub(super) fn named(mut self, peer: Peer) -> Self {
        self.outputs.name(peer);
        self
    }

    fn hear(&mut self, pcm: &[i16]) {
        let packer = &mut self.packer;
        self.up.hear(pcm, |piece| {
            // Base64 needs no escapes; the event needs no id, because no error will name one.
            let (before, behind) = (r#"{"type":"input_audio_buffer.append","audio":""#, r#""}"#);
            Message::Text(packer.pack(before, piece, behind))
        });
    }

    fn client_event(&mut self, text: &str, now: Instant) {
        let Some((event, id)) = event::read_client(text) else {
            return self.outputs.refuse(Refusal::NotJson, &Value::Null);
        };
        match event {
            ClientEvent::Untyped => self.outputs.refuse(Refusal::Untyped, &id),
            ClientEvent::Append => self.outputs.refuse(Refusal::Audio, &id),
            ClientEvent::Clear => {
                let cut = self.outputs.clear(now);
                self.truncate(cut);
            }
            _ if self.outputs.is_ending() => self.outputs.refuse(Refusal::Over, &id),
            ClientEvent::Pass | ClientEvent::Update(_) | ClientEvent::Respond => {
                // What is held until there is a server is put into its names then.
                let told = if self.beta && self.up.is_open() {
                    event::to_beta(text)
                } else {
                    None
                };
                let told = told.unwrap_or_else(|| text.to_owned());
                if !self.up.push_event(Message::Text(told)) {
                    return self.outputs.refuse(Refusal::Busy, &id);
                }
                match event {
                    ClientEvent::Update(session) => self.remember(&session, text.len()),
                    ClientEvent::Respond => {
                        self.asked = Some(now);
                        self.want(&id);
                    }
                    _ => {}
                }
            }
        }
    }

    /// The client waits for a response that it asked for by the event of this id.
    fn want(&mut self, id: &Value) {
        let Some(id) = event_id(id) else {
            return;
        };
        if self.wanted.len() >= limits::BACKEND_HELD_EVENTS {
            self.wanted.pop_front();
        }
        self.wanted.push_back(id.to_owned());
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

    /// The server is told how much was sent of what was cut off.
    fn truncate(&mut self, cut: impl IntoIterator<Item = Truncation>) {
        for Truncation {
            item,
            part,
            sent_ms,
        } in cut
        {
            if self.up.is_open() {
                let text = json!({
                    "type": "conversation.item.truncate",
                    "event_id": self.outputs.ids.make("event"),
                    "item_id": item,
                    "content_index": part,
                    "audio_end_ms": sent_ms,
                });
                self.up.push(Message::Text(text.to_string()));
            }
        }
    }

    fn unreadable(&mut self) {
        self.counters.malformed += 1;
        self.outputs.unreadable(
            "a message that is no event of the Realtime API, a JSON object with a type",
        );
    }

    fn message(&mut self, text: String, came: Instant) {
        let (meaning, renamed) = match event::read(&text) {
            Some(Event::Audio(delta)) => return self.audio(&delta, came),
            Some(Event::Told(meaning, renamed)) => (meaning, renamed),
            None => return self.unreadable(),
        };
        self.outputs.pass(renamed.unwrap_or(text));
        match meaning {
            Meaning::AudioDone { item, part } => self.outputs.complete(&item, part),
            Meaning::ResponseCreated(response) => {
                self.asked_there().pop_front();
                self.outputs.response_created(response.as_deref());
            }
            Meaning::ResponseDone(response) => self.outputs.response_done(response.as_deref()),
            Meaning::Session { created, session } => {
                if created {
                    self.beta = session::is_beta(&session);
                }
                self.follow(&session::told(&session));
            }
            Meaning::SpeechStarted => {
                self.asked = None;
                if self.interrupts {
                    let cut = self.outputs.interrupt(came);
                    self.truncate(cut);
                }
            }
            Meaning::TurnEnded => self.asked = Some(came),
            Meaning::Error { expired, about } => {
                self.counters.errors += 1;
                self.expired |= expired;
                self.asked_there().retain(|id| Some(id) != about.as_ref());
            }
            Meaning::Other => {}
        }
        // A server that has spoken is ready, also one that begins with another event; but not one that is gone meanwhile.
        if !self.up.is_open() && self.unanswered.is_none() {
            self.open();
        }
    }

    fn audio(&mut self, delta: &AudioDelta<'_>, came: Instant) {
        if let Some(asked) = self.asked.take() {
            self.latency = Some(came.saturating_duration_since(asked));
        }
        if delta.delta.is_empty() {
            return;
        }
        let response = delta.response_id.as_deref();
        let piece = self
            .outputs
            .audio(response, &delta.item_id, delta.content_index);
        let piece = match piece {
            Ok(piece) => piece,
            Err(unheard) => return self.truncate(unheard),
        };
        if self.unpacking != Some(piece) {
            self.unpacking = Some(piece);
            self.unpacker.begin();
        }
        // Of what is never played it matters only that it was said.
        let pcm = if self.skips {
            Some(vec![0])
        } else {
            self.unpacker.unpack(&delta.delta)
        };
        match pcm {
            Some(pcm) => self.outputs.play(piece, pcm),
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
    fn open(&mut self) {
        self.hello_by = None;
        self.outputs.restored();
        if let Some(session) = session::update(&self.session, self.format) {
            // What follows is in the format that is asked for here.
            self.follow(&session::told(&session));
            let session = if self.beta {
                session::to_beta(session)
            } else {
                session
            };
            let update = json!({
                "type": "session.update",
                "event_id": self.outputs.ids.make("event"),
                "session": session,
            });
            self.up.push(Message::Text(update.to_string()));
        }
        let beta = self.beta;
        let held = self.up.open(|held| match held {
            Message::Text(text) if beta => Message::Text(event::to_beta(&text).unwrap_or(text)),
            held => held,
        });
        self.hear(&held);
    }

    /// What waits for the answer of a connection whose words are being taken.
    fn asked_there(&mut self) -> &mut VecDeque<String> {
        self.unanswered.as_mut().unwrap_or(&mut self.wanted)
    }

    fn lost(&mut self, loss: &Loss, now: Instant) {
        self.gone();
        self.beta = false;
        self.asked = None;
        self.outputs.lost(loss, self.expired, now);
        let unanswered = self.unanswered.take().into_iter().flatten();
        // Where it is not tried again the client knows that, and the session ends.
        for id in unanswered.filter(|_| loss.retry.is_some()) {
            self.outputs.unanswered(&id);
        }
    }
}

impl Translator for Realtime {
    fn form(&self) -> Form {
        self.passed.map_or(Form::Pcm, Form::Narrow)
    }

    fn handle(&mut self, input: Input<'_>, now: Instant) {
        match input {
            Input::Audio(pcm) => self.hear(pcm),
            Input::Event(text) => self.client_event(text, now),
            Input::Playout(event) => {
                let cut = self.outputs.played(event);
                self.truncate(cut);
            }
        }
    }

    fn server(&mut self, event: FromServer, came: Instant, now: Instant) {
        match event {
            FromServer::Connected => {
                self.outputs.connected();
                self.hello_by = Some(now + limits::BACKEND_HELLO);
            }
            FromServer::Message(Message::Text(text)) => self.message(text, came),
            // Some servers send their JSON as binary messages.
            FromServer::Message(Message::Binary(bytes)) => match String::from_utf8(bytes) {
                Ok(text) => self.message(text, came),
                Err(_) => self.unreadable(),
            },
            FromServer::Lost(loss) => self.lost(&loss, now),
        }
    }

    fn gone(&mut self) {
        if self.unanswered.is_none() {
            // What is held until there is a connection still is.
            let went = if self.up.is_open() {
                std::mem::take(&mut self.wanted)
            } else {
                VecDeque::new()
            };
            self.unanswered = Some(went);
        }
        self.hello_by = None;
        self.up.close();
    }

    fn glance(&self, message: &Message) -> Glance {
        let text = match message {
            Message::Text(text) => Some(text.as_str()),
            Message::Binary(bytes) => std::str::from_utf8(bytes).ok(),
        };
        let Some(text) = text else {
            return Glance::Plain;
        };
        match event::glance(text) {
            Glance::Interruption if !self.interrupts => Glance::Plain,
            // Nothing behind it means something else when it says what was said before.
            Glance::Opaque if !event::turns(text, self.interrupts) => Glance::Plain,
            glance => glance,
        }
    }

    fn skip(&mut self, message: Message, came: Instant, now: Instant) {
        self.skips = true;
        self.server(FromServer::Message(message), came, now);
        self.skips = false;
    }

    fn tick(&mut self, now: Instant) {
        if self.hello_by.is_some_and(|by| now >= by) {
            self.open();
        }
    }

    fn poll(&mut self, queue: QueueState, now: Instant) -> Option<Output<'_>> {
        self.outputs.poll(queue.room, now)
    }

    fn poll_clear(&mut self) -> Option<Instant> {
        self.outputs.poll_clear()
    }

    fn is_idle(&self) -> bool {
        self.outputs.is_empty()
    }

    fn poll_server(&mut self) -> Option<Message> {
        self.up.pop()
    }

    fn deadline(&self) -> Option<Instant> {
        let all = [self.outputs.deadline(), self.hello_by];
        all.into_iter().flatten().min()
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
