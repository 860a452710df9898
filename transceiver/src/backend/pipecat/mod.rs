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

use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

use self::client::{Event, Role};
use self::events::{Ending, Said};
use self::rtvi::Meaning;
use self::sound::{Packer, Unpacker};
use self::wire::Kind;
use super::ahead::Glance;
use super::outputs::{Names, Outputs, Refusal};
use super::realtime::merge;
use super::speech::Truncation;
use super::translator::{FromServer, Loss, Message, Translator, TranslatorCounters};
use super::unreadable::Peer;
use super::upstream::Upstream;
use crate::audio::{FRAME, Input, Output, QueueState, SAMPLE_RATE, event};
use crate::limits;

pub use self::sound::Rate;

/// What there is behind the session.
const NAMES: Names = Names {
    server: "bot",
    mind: "bot",
};

/// What a bot cannot do.
const UNSUPPORTED: &str = "The bot behind this session cannot do this. It takes messages of text by conversation.item.create, response.cancel, and messages of its own types.";

/// What a bot sends that has another serializer.
const TEXT: &str = "a text message, and Pipecat's frames are binary: have its transport use ProtobufFrameSerializer";
/// What a bot sends that speaks another protocol, or another version of it.
const NO_FRAME: &str = "a binary message that is none of Pipecat's frames: have its transport use ProtobufFrameSerializer";
/// What a bot sends whose messages are not RTVI's, nor any other JSON.
const NO_JSON: &str = "a message frame whose data is not JSON";

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
    session: Map<String, Value>,
    session_id: String,
    /// The client has been told of the session.
    announced: bool,
    outputs: Outputs,
    up: Upstream,
    packer: Packer,
    unpacker: Unpacker,
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
    /// When the user's turn ended that the bot has not answered yet.
    asked: Option<Instant>,
    latency: Option<Duration>,
    counters: TranslatorCounters,
}

impl Pipecat {
    /// A session before its connection.
    #[must_use]
    pub fn new(settings: PipecatSettings) -> Self {
        let mut outputs = Outputs::new(settings.seed, NAMES);
        Self {
            session: settings.session,
            session_id: outputs.ids.make("sess"),
            announced: false,
            outputs,
            up: Upstream::new(FRAME),
            packer: Packer::new(settings.rate),
            unpacker: Unpacker::default(),
            said: None,
            quiet: None,
            turn: None,
            heard: 0,
            text_frames: false,
            transcription_frames: false,
            complained: false,
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
        self.up
            .hear(pcm, |piece| Message::Binary(packer.pack(piece)));
    }

    fn client_event(&mut self, text: &str, now: Instant) {
        let Some((event, id)) = client::read(text) else {
            return self.outputs.refuse(Refusal::NotJson, &Value::Null);
        };
        let frame = match event {
            Event::Untyped => return self.outputs.refuse(Refusal::Untyped, &id),
            Event::Append => return self.outputs.refuse(Refusal::Audio, &id),
            Event::Unsupported => {
                return self.outputs.refuse(Refusal::Unsupported(UNSUPPORTED), &id);
            }
            Event::Clear => {
                let cut = self.outputs.clear(now);
                return self.truncated(cut);
            }
            Event::Respond => return,
            _ if self.outputs.is_ending() => return self.outputs.refuse(Refusal::Over, &id),
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
            return self.outputs.refuse(Refusal::Busy, &id);
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
            item["id"] = self.outputs.ids.make("item").into();
        }
        item["object"] = "realtime.item".into();
        item["status"] = "completed".into();
        for kind in ["conversation.item.added", "conversation.item.done"] {
            let members = json!({"previous_item_id": null, "item": item});
            self.outputs.tell_now(kind, members);
        }
    }

    fn update(&mut self, session: &Map<String, Value>, id: &Value) {
        let mut merged = self.session.clone();
        merge(&mut merged, session);
        let told = events::session(&merged, &self.session_id);
        let members = json!({"session": told});
        let text = event(&mut self.outputs.ids, "session.updated", members);
        if text.len() > limits::BACKEND_SESSION_MAX {
            return self.outputs.refuse(Refusal::TooLarge, id);
        }
        self.session = merged;
        self.outputs.answer(text);
    }

    /// The bot was interrupted: it is to be silent.
    fn interrupt(&mut self, came: Instant) {
        let cut = self.outputs.interrupt(came);
        self.truncated(cut);
        self.finish(Ending::Interrupted);
    }

    /// The bot keeps its own account of what it has said; the client is told what a model would say.
    fn truncated(&mut self, cut: impl IntoIterator<Item = Truncation>) {
        for Truncation {
            item,
            part,
            sent_ms,
        } in cut
        {
            let members = json!({"item_id": item, "content_index": part, "audio_end_ms": sent_ms});
            self.outputs
                .tell_now("conversation.item.truncated", members);
        }
    }

    fn unreadable(&mut self, sent: &str) {
        self.counters.malformed += 1;
        self.outputs.unreadable(sent);
    }

    fn frame(&mut self, bytes: &[u8], came: Instant, now: Instant) {
        let Some(frame) = wire::read(bytes) else {
            return self.unreadable(NO_FRAME);
        };
        match frame.frame {
            Some(Kind::Audio(audio)) => self.audio(&audio, came, now),
            Some(Kind::Text(text)) => {
                self.text_frames = true;
                self.says(&text.text, false, now);
            }
            Some(Kind::Transcription(said)) => {
                self.transcription_frames = true;
                self.user_said(&said.text);
            }
            Some(Kind::Message(message)) => self.message(message.data, came, now),
            Some(Kind::Interruption(_)) => self.interrupt(came),
            // Of a later version.
            None => {}
        }
    }

    fn audio(&mut self, frame: &wire::Audio, came: Instant, now: Instant) {
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
                    self.outputs.complain("backend_audio_unsupported", &message);
                }
                return;
            }
        };
        if let Some(asked) = self.asked.take() {
            self.latency = Some(came.saturating_duration_since(asked));
        }
        let said = self.speaking(now);
        let (response, item) = (said.response.clone(), said.item.clone());
        if let Ok(piece) = self.outputs.audio(Some(&response), &item, 0) {
            self.outputs.play(piece, pcm);
        }
    }

    /// The bot says something: the response that it belongs to, begun if there is none.
    fn speaking(&mut self, now: Instant) -> &mut Said {
        self.quiet = Some(now + limits::BACKEND_QUIET);
        if self.said.is_none() {
            let said = Said {
                response: self.outputs.ids.make("resp"),
                item: self.outputs.ids.make("item"),
                transcript: String::new(),
            };
            said.begun(&mut self.outputs);
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
            said.delta(&mut self.outputs, &text);
        }
    }

    fn user_said(&mut self, text: &str) {
        let id = self.turn.take();
        let id = id.unwrap_or_else(|| self.outputs.ids.make("item"));
        let item = events::user_item(&id, json!({"type": "input_audio", "transcript": text}));
        let members = json!({"previous_item_id": null, "item": item});
        self.outputs
            .tell("conversation.item.added", members.clone());
        self.outputs.tell("conversation.item.done", members);
        self.outputs.tell(
            "conversation.item.input_audio_transcription.completed",
            json!({"item_id": id, "content_index": 0, "transcript": text}),
        );
    }

    fn message(&mut self, data: String, came: Instant, now: Instant) {
        let Ok(message) = serde_json::from_str::<Value>(&data) else {
            return self.unreadable(NO_JSON);
        };
        let meaning = rtvi::read(&message);
        if let Meaning::Error(why) = meaning {
            self.counters.errors += 1;
            return self.outputs.complain("backend_error", &why);
        }
        if message["type"].is_string() {
            self.outputs.pass(data);
        } else {
            self.outputs
                .tell("pipecat.message", json!({"message": message}));
        }
        let heard_ms = self.heard * 1_000 / u64::from(SAMPLE_RATE);
        match meaning {
            Meaning::UserStarted => {
                self.asked = None;
                let id = self.outputs.ids.make("item");
                let members = json!({"audio_start_ms": heard_ms, "item_id": id});
                self.outputs
                    .tell("input_audio_buffer.speech_started", members);
                self.turn = Some(id);
            }
            Meaning::UserStopped => {
                self.asked = Some(came);
                let id = self
                    .turn
                    .get_or_insert_with(|| self.outputs.ids.make("item"))
                    .clone();
                let members = json!({"audio_end_ms": heard_ms, "item_id": id});
                self.outputs
                    .tell("input_audio_buffer.speech_stopped", members);
                let members = json!({"item_id": id, "previous_item_id": null});
                self.outputs.tell("input_audio_buffer.committed", members);
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
        said.done(&mut self.outputs, how);
        self.outputs.response_done(Some(&said.response));
    }

    /// There is a connection: the bot is told that its client is there, and then everything that waited.
    fn open(&mut self) {
        self.outputs.connected();
        // The client is told so below: what it knows of the connection is what it was told last.
        self.outputs.restored();
        // Of a connection that is made again the client is told, too: a bot may have nothing to say before it is asked.
        let kind = if std::mem::replace(&mut self.announced, true) {
            "session.updated"
        } else {
            "session.created"
        };
        let session = events::session(&self.session, &self.session_id);
        self.outputs.tell(kind, json!({"session": session}));
        let ready = rtvi::client_ready(&self.outputs.ids.make("client"));
        let ready = wire::write(Kind::Message(wire::Note { data: ready }));
        self.up.push(Message::Binary(ready));
        let held = self.up.open(|event| event);
        self.hear(&held);
    }

    fn lost(&mut self, loss: &Loss, now: Instant) {
        self.up.close();
        self.asked = None;
        self.turn = None;
        self.finish(Ending::Lost);
        self.outputs.lost(loss, false, now);
    }
}

impl Translator for Pipecat {
    fn handle(&mut self, input: Input<'_>, now: Instant) {
        match input {
            Input::Audio(pcm) => {
                self.heard += pcm.len() as u64;
                self.hear(pcm);
            }
            Input::Event(text) => self.client_event(text, now),
            Input::Playout(event) => {
                let cut = self.outputs.played(event);
                self.truncated(cut);
            }
        }
    }

    fn server(&mut self, event: FromServer, came: Instant, now: Instant) {
        match event {
            FromServer::Connected => self.open(),
            FromServer::Message(Message::Binary(bytes)) => self.frame(&bytes, came, now),
            FromServer::Message(Message::Text(_)) => self.unreadable(TEXT),
            FromServer::Lost(loss) => self.lost(&loss, now),
        }
    }

    fn gone(&mut self) {
        self.up.close();
    }

    fn glance(&self, message: &Message) -> Glance {
        let frame = match message {
            Message::Binary(bytes) => wire::read(bytes).and_then(|frame| frame.frame),
            Message::Text(_) => None,
        };
        match frame {
            Some(Kind::Interruption(_)) => Glance::Interruption,
            _ => Glance::Plain,
        }
    }

    fn tick(&mut self, now: Instant) {
        // Sound for which there is no room has not been followed by silence.
        if !self.outputs.speaks() && self.quiet.is_some_and(|by| now >= by) {
            self.finish(Ending::Completed);
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
        let quiet = self.quiet.filter(|_| !self.outputs.speaks());
        let all = [self.outputs.deadline(), quiet];
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
