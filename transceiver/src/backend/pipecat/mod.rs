//! Pipecat's protobuf frames over a WebSocket, sans-IO.
//!
//! A bot knows frames, and clients know the events of OpenAI's Realtime API; what becomes of each is in `docs/backends.md`. Sound goes by
//! the track. There is no session in the protocol, so its events are made here; nor are there responses: one begins with the first sound
//! or text of the bot's, and ends when the bot says so by RTVI, or has been quiet for a while. The bot decides on interruptions, and an
//! interruption frame is how it tells.

mod client;
mod events;
mod rtvi;
mod sound;
pub mod wire;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

use self::client::{Event, Role};
use self::events::{Ending, Said, event};
use self::rtvi::Meaning;
use self::sound::{Packer, Unpacker};
use self::wire::Kind;
use super::realtime::merge;
use super::speech::{Effect, Speech};
use super::translator::{FromServer, Loss, LossCause, Message, Translator, TranslatorCounters};
use super::upstream::Upstream;
use crate::audio::{
    BackendEnd, FRAME, Ids, Input, ItemId, Output, OutputBuffer, PlayoutEvent, QueueState,
    SAMPLE_RATE, client_error, output_audio_buffer, server_error,
};
use crate::limits;

pub use self::sound::Rate;

/// The most audio that one frame to the bot carries, in frames of 20 ms.
const FRAME_MAX: usize = 5;

/// The longest `event_id` of a client that an error names.
const MAX_CLIENT_ID: usize = 512;

/// How a client's words are signed.
const USER: &str = "user";

/// What a session of this protocol is told at its beginning.
#[derive(Debug, Clone, Default)]
pub struct PipecatSettings {
    /// The session's configuration, in the GA shape: for the client alone.
    pub session: Map<String, Value>,
    /// The rate at which the bot is sent sound.
    pub rate: Rate,
    /// Event ids follow from it; it should be random.
    pub seed: u64,
}

/// The protocol of one session.
pub struct Pipecat {
    ids: Ids,
    session: Map<String, Value>,
    session_id: String,
    /// The client has been told of the session.
    announced: bool,
    /// What one message of the bot's made.
    outputs: VecDeque<Waiting>,
    /// What the playout and the client made: it does not wait behind audio.
    urgent: VecDeque<Waiting>,
    /// What the last poll gave.
    given: Vec<i16>,
    up: Upstream,
    /// Samples of less than a frame that wait for the rest of it.
    partial: Vec<i16>,
    packer: Packer,
    unpacker: Unpacker,
    speech: Speech,
    said: Option<Said>,
    /// When the bot is taken to have said all.
    quiet: Option<Instant>,
    /// The item of what the user is saying, or has just said.
    turn: Option<String>,
    /// Samples of the user's.
    heard: u64,
    /// The bot says text by frames: the same words by RTVI are not told again.
    text_frames: bool,
    /// The same of what the user said.
    transcription_frames: bool,
    /// The client knows that sound of the bot's cannot be played.
    complained: bool,
    /// There is a connection, and the client does not know yet that it is lost.
    connected: bool,
    ending: Option<(BackendEnd, Instant)>,
    /// When the user's turn ended that the bot has not answered yet.
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

impl Pipecat {
    /// A session before its connection.
    #[must_use]
    pub fn new(settings: PipecatSettings) -> Self {
        let mut ids = Ids::new(settings.seed);
        let frames = limits::BACKEND_HELD.as_millis() as usize / 20;
        Self {
            session: settings.session,
            session_id: ids.make("sess"),
            ids,
            announced: false,
            outputs: VecDeque::new(),
            urgent: VecDeque::new(),
            given: Vec::new(),
            up: Upstream::new(frames * FRAME),
            partial: Vec::new(),
            packer: Packer::new(settings.rate),
            unpacker: Unpacker::default(),
            speech: Speech::default(),
            said: None,
            quiet: None,
            turn: None,
            heard: 0,
            text_frames: false,
            transcription_frames: false,
            complained: false,
            connected: false,
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
        if self.partial.len() < FRAME {
            return;
        }
        let mut partial = std::mem::take(&mut self.partial);
        for piece in partial.chunks(FRAME_MAX * FRAME) {
            let frame = Message::Binary(self.packer.pack(piece));
            self.up.push_audio(frame, piece.len());
        }
        partial.clear();
        self.partial = partial;
    }

    fn client_event(&mut self, text: &str) {
        let Some((event, id)) = client::read(text) else {
            let message = "The message is not a JSON object.";
            return self.refuse("invalid_json", message, None, &Value::Null);
        };
        let frame = match event {
            Event::Untyped => {
                let message = "The event has no type.";
                return self.refuse("missing_required_parameter", message, Some("type"), &id);
            }
            Event::Append => {
                let message =
                    "On a WebRTC call audio comes by the track, not by input_audio_buffer.append.";
                return self.refuse("unsupported_event", message, Some("type"), &id);
            }
            Event::Unsupported => {
                let message = "The bot behind this session cannot do this. It takes messages of text by conversation.item.create, response.cancel, and messages of its own types.";
                return self.refuse("unsupported_event", message, Some("type"), &id);
            }
            Event::Clear => return self.clear(),
            Event::Respond => return,
            Event::Update(session) => return self.update(&session, &id),
            Event::Cancel => Kind::Interruption(wire::Interruption::default()),
            Event::Message => Kind::Message(wire::Note { data: text.into() }),
            Event::Say {
                role: Role::Assistant,
                text,
            } => Kind::Text(wire::Text {
                text,
                ..wire::Text::default()
            }),
            Event::Say {
                role: Role::User,
                text,
            } => Kind::Transcription(wire::Transcription {
                text,
                user_id: USER.into(),
                ..wire::Transcription::default()
            }),
        };
        let said = matches!(frame, Kind::Transcription(_) | Kind::Text(_));
        if !self.up.push_event(Message::Binary(wire::write(frame))) {
            let message = "The bot does not take events at the moment; this one was dropped. Send it again later.";
            return self.refuse("backend_busy", message, None, &id);
        }
        if said {
            self.confirm(text);
        }
    }

    /// The item that the client has made is part of the conversation.
    fn confirm(&mut self, text: &str) {
        let Ok(mut made) = serde_json::from_str::<Value>(text) else {
            return;
        };
        let mut item = made["item"].take();
        if !item["id"].is_string() {
            item["id"] = self.ids.make("item").into();
        }
        item["object"] = "realtime.item".into();
        item["status"] = "completed".into();
        for kind in ["conversation.item.added", "conversation.item.done"] {
            let members = json!({"previous_item_id": null, "item": item});
            let text = event(&mut self.ids, kind, members);
            self.urgent.push_back(Waiting::Event(text));
        }
    }

    fn update(&mut self, session: &Map<String, Value>, id: &Value) {
        let mut merged = self.session.clone();
        merge(&mut merged, session);
        let told = events::session(&merged, &self.session_id);
        let text = event(&mut self.ids, "session.updated", json!({"session": told}));
        if text.len() > limits::BACKEND_SESSION_MAX {
            let message = "The session's configuration is too large.";
            return self.refuse("session_too_large", message, Some("session"), id);
        }
        self.session = merged;
        self.urgent.push_back(Waiting::Event(text));
    }

    /// The client wants silence. Answered also when there is.
    fn clear(&mut self) {
        let hit = self.cut();
        self.urgent.push_back(Waiting::Clear);
        let told = if hit.is_empty() { vec![None] } else { hit };
        for response in told {
            let text = self.cleared(response.as_deref());
            self.urgent.push_back(Waiting::Event(text));
        }
    }

    /// The bot was interrupted: it is to be silent.
    fn interrupt(&mut self) {
        let hit = self.cut();
        if !hit.is_empty() {
            self.outputs.push_back(Waiting::Clear);
        }
        for response in hit {
            let text = self.cleared(response.as_deref());
            self.outputs.push_back(Waiting::Event(text));
        }
        self.finish(Ending::Interrupted);
    }

    /// Cuts off what is being said; the responses that this hits.
    fn cut(&mut self) -> Vec<Option<String>> {
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
        hit
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
        let ids = &mut self.ids;
        let text = match effect {
            Effect::Started(response) => {
                output_audio_buffer(ids, OutputBuffer::Started, response.as_deref())
            }
            Effect::Stopped(response) => {
                output_audio_buffer(ids, OutputBuffer::Stopped, response.as_deref())
            }
            // The bot keeps its own account of what it has said; the client is told what a model would say.
            Effect::Truncate {
                item,
                part,
                sent_ms,
            } => {
                let members =
                    json!({"item_id": item, "content_index": part, "audio_end_ms": sent_ms});
                event(ids, "conversation.item.truncated", members)
            }
        };
        self.urgent.push_back(Waiting::Event(text));
    }

    fn tell(&mut self, kind: &str, members: Value) {
        let text = event(&mut self.ids, kind, members);
        self.outputs.push_back(Waiting::Event(text));
    }

    fn frame(&mut self, bytes: &[u8], now: Instant) {
        let Some(frame) = wire::read(bytes) else {
            self.counters.malformed += 1;
            return;
        };
        match frame.frame {
            Some(Kind::Audio(audio)) => self.audio(&audio, now),
            Some(Kind::Text(text)) => {
                self.text_frames = true;
                self.says(&text.text, false, now);
            }
            Some(Kind::Transcription(said)) => {
                self.transcription_frames = true;
                self.user_said(&said.text);
            }
            Some(Kind::Message(message)) => self.message(message.data, now),
            Some(Kind::Interruption(_)) => self.interrupt(),
            // Of a later version.
            None => {}
        }
    }

    fn audio(&mut self, frame: &wire::Audio, now: Instant) {
        if frame.audio.is_empty() {
            return;
        }
        if self.said.is_none() {
            self.unpacker.begin();
        }
        let pcm = match self.unpacker.unpack(frame) {
            Ok(pcm) => pcm,
            Err(why) => {
                self.counters.undecoded += 1;
                if !std::mem::replace(&mut self.complained, true) {
                    let message = format!("The bot's audio cannot be played: {why}.");
                    let text = server_error(&mut self.ids, "backend_audio_unsupported", &message);
                    self.outputs.push_back(Waiting::Event(text));
                }
                return;
            }
        };
        if let Some(asked) = self.asked.take() {
            self.latency = Some(now.saturating_duration_since(asked));
        }
        let said = self.speaking(now);
        let (response, item) = (said.response.clone(), said.item.clone());
        if let Some((item, first)) = self.speech.audio(Some(&response), &item, 0)
            && !pcm.is_empty()
        {
            self.outputs.push_back(Waiting::Audio {
                item,
                pcm,
                given: 0,
                first,
            });
        }
    }

    /// The bot says something: the response that it belongs to, begun if there is none.
    fn speaking(&mut self, now: Instant) -> &mut Said {
        self.quiet = Some(now + limits::BACKEND_QUIET);
        if self.said.is_none() {
            let said = Said {
                response: self.ids.make("resp"),
                item: self.ids.make("item"),
                transcript: String::new(),
            };
            let begun = said.begun(&mut self.ids);
            self.outputs.extend(begun.into_iter().map(Waiting::Event));
            self.said = Some(said);
        }
        self.said.get_or_insert_with(|| unreachable!("just made"))
    }

    /// Words of the bot's. `apart`: they have no spaces between them.
    fn says(&mut self, text: &str, apart: bool, now: Instant) {
        if text.is_empty() {
            return;
        }
        let said = self.speaking(now);
        let joins = apart
            && !said.transcript.is_empty()
            && !said.transcript.ends_with(char::is_whitespace)
            && text.starts_with(char::is_alphanumeric);
        let text = if joins {
            format!(" {text}")
        } else {
            text.to_owned()
        };
        if said.transcript.len() + text.len() <= limits::BACKEND_TRANSCRIPT_MAX {
            said.transcript.push_str(&text);
        }
        if let Some(said) = &self.said {
            let delta = said.delta(&mut self.ids, &text);
            self.outputs.push_back(Waiting::Event(delta));
        }
    }

    fn user_said(&mut self, text: &str) {
        let id = self.turn.take().unwrap_or_else(|| self.ids.make("item"));
        let item = events::user_item(&id, json!({"type": "input_audio", "transcript": text}));
        let members = json!({"previous_item_id": null, "item": item});
        self.tell("conversation.item.added", members.clone());
        self.tell("conversation.item.done", members);
        self.tell(
            "conversation.item.input_audio_transcription.completed",
            json!({"item_id": id, "content_index": 0, "transcript": text}),
        );
    }

    fn message(&mut self, data: String, now: Instant) {
        let Ok(message) = serde_json::from_str::<Value>(&data) else {
            self.counters.malformed += 1;
            return;
        };
        let meaning = rtvi::read(&message);
        if let Meaning::Error(why) = meaning {
            self.counters.errors += 1;
            let text = server_error(&mut self.ids, "backend_error", &why);
            self.outputs.push_back(Waiting::Event(text));
            return;
        }
        if message["type"].is_string() {
            self.outputs.push_back(Waiting::Event(data));
        } else {
            self.tell("pipecat.message", json!({"message": message}));
        }
        let heard_ms = self.heard * 1_000 / u64::from(SAMPLE_RATE);
        match meaning {
            Meaning::UserStarted => {
                self.asked = None;
                let id = self.ids.make("item");
                let members = json!({"audio_start_ms": heard_ms, "item_id": id});
                self.tell("input_audio_buffer.speech_started", members);
                self.turn = Some(id);
            }
            Meaning::UserStopped => {
                self.asked = Some(now);
                let id = self
                    .turn
                    .get_or_insert_with(|| self.ids.make("item"))
                    .clone();
                let members = json!({"audio_end_ms": heard_ms, "item_id": id});
                self.tell("input_audio_buffer.speech_stopped", members);
                let members = json!({"item_id": id, "previous_item_id": null});
                self.tell("input_audio_buffer.committed", members);
            }
            Meaning::BotStopped => self.finish(Ending::Completed),
            Meaning::UserSaid(text) if !self.transcription_frames => self.user_said(&text),
            Meaning::BotSays(text) if !self.text_frames => self.says(&text, true, now),
            _ => {}
        }
    }

    /// The bot's response is over.
    fn finish(&mut self, how: Ending) {
        self.quiet = None;
        let Some(said) = self.said.take() else {
            return;
        };
        let done = said.done(&mut self.ids, how);
        self.outputs.extend(done.into_iter().map(Waiting::Event));
        let (pieces, stopped) = self.speech.response_done(Some(&said.response));
        self.outputs
            .extend(pieces.into_iter().map(Waiting::Finished));
        if let Some(stopped) = stopped {
            self.effect(stopped);
        }
    }

    /// There is a connection: the bot is told that its client is there, and then everything that waited.
    fn open(&mut self) {
        self.connected = true;
        if !std::mem::replace(&mut self.announced, true) {
            let session = events::session(&self.session, &self.session_id);
            self.tell("session.created", json!({"session": session}));
        }
        let ready = rtvi::client_ready(&self.ids.make("client"));
        let ready = wire::write(Kind::Message(wire::Note { data: ready }));
        self.up.push(Message::Binary(ready));
        let held = self.up.open();
        self.hear(&held);
    }

    fn lost(&mut self, loss: &Loss, now: Instant) {
        self.up.close();
        self.asked = None;
        self.turn = None;
        self.partial.clear();
        self.finish(Ending::Lost);
        let pieces = self.speech.server_gone();
        self.outputs
            .extend(pieces.into_iter().map(Waiting::Finished));
        let expired = loss.cause == LossCause::Expired;
        if loss.retry.is_some() && !expired {
            if std::mem::take(&mut self.connected) {
                let message = format!(
                    "There is no connection to the bot: {}. It is tried again; what was said before may be lost to the bot.",
                    loss.cause
                );
                let text = server_error(&mut self.ids, "backend_disconnected", &message);
                self.outputs.push_back(Waiting::Event(text));
            }
            return;
        }
        let (why, code) = match loss.cause {
            LossCause::Expired => (BackendEnd::Expired, "session_expired"),
            LossCause::Closed(Some(1_000)) => (BackendEnd::Closed, "backend_closed"),
            _ => (BackendEnd::Failed, "backend_failed"),
        };
        let message = format!("The bot has ended the session: {}.", loss.cause);
        let text = server_error(&mut self.ids, code, &message);
        self.outputs.push_back(Waiting::Event(text));
        self.ending = Some((why, now + limits::BACKEND_LAST_WORDS));
    }

    fn refuse(&mut self, code: &str, message: &str, param: Option<&str>, id: &Value) {
        let about = id.as_str().filter(|id| id.len() <= MAX_CLIENT_ID);
        let text = client_error(&mut self.ids, code, message, param, about);
        self.urgent.push_back(Waiting::Event(text));
    }

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
        let pcm = &self.given;
        Some(Output::Audio { item, pcm })
    }

    /// The end of the session, once everything that the bot said has been played, or has had its time.
    fn end(&mut self, now: Instant) -> Option<Output<'_>> {
        let (why, by) = self.ending?;
        if !self.speech.is_over() && now < by {
            return None;
        }
        self.ending = None;
        Some(Output::End(why))
    }
}

impl Translator for Pipecat {
    fn handle(&mut self, input: Input<'_>, _now: Instant) {
        match input {
            Input::Audio(pcm) => {
                self.heard += pcm.len() as u64;
                self.hear(pcm);
            }
            // Not this backend's form.
            Input::Encoded(_) => {}
            Input::Event(text) => self.client_event(text),
            Input::Playout(event) => self.played(event),
        }
    }

    fn server(&mut self, event: FromServer, now: Instant) {
        match event {
            FromServer::Connected => self.open(),
            FromServer::Message(Message::Binary(bytes)) => self.frame(&bytes, now),
            FromServer::Message(Message::Text(_)) => self.counters.malformed += 1,
            FromServer::Lost(loss) => self.lost(&loss, now),
        }
    }

    fn tick(&mut self, now: Instant) {
        // Sound for which there is no room has not been followed by silence.
        if self.outputs.is_empty() && self.quiet.is_some_and(|by| now >= by) {
            self.finish(Ending::Completed);
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
        let quiet = self.quiet.filter(|_| self.outputs.is_empty());
        [ending, quiet].into_iter().flatten().min()
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
