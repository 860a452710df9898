//! The embedded backend: everything that the user says comes back, with the events that a voice turn has.
//!
//! The echo is continuous: each piece of the client's audio is given to the playout as it comes, which holds [`DELAY`] of it against
//! jitter. The voice detector only decides what is a turn: its audio is an item, between `speech_started` and `speech_stopped`, and
//! the item's response. So, in this order, a turn makes `input_audio_buffer.speech_started`, `output_audio_buffer.started` when the
//! first packet of its echo leaves, `input_audio_buffer.speech_stopped` and `.committed`, and `output_audio_buffer.stopped` when the
//! last has left. (A model answers only after the turn; an echo with a short delay has begun by then.)
//!
//! The client's clock is not ours: left alone, the delay would grow or the playout run dry. So in silence a piece is left out when the
//! delay is [`SLACK`] too long, or repeated when it has shrunk to half; past [`MAX_DELAY`] pieces are left out also in speech.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::backend::{Backend, Input, Output, QueueState};
use super::events::{self, Ids, OutputBuffer, ResponseStatus};
use super::ledger::{ItemId, PlayoutEvent};
use super::playout::PlayoutSettings;
use super::voice::{VoiceDetector, VoiceEvent, VoiceSettings};
use super::{FRAME, SAMPLE_RATE};

/// How much of the client's audio waits before its echo begins: a lost packet's wait, a late one, and a frame in hand.
const DELAY: Duration = Duration::from_millis(80);

/// How much longer than [`DELAY`] the echo may lag before silence is left out.
const SLACK: Duration = Duration::from_millis(40);

/// How long the echo may lag at all: what a client may say before its channel is open, and a long stall.
const MAX_DELAY: Duration = Duration::from_secs(3);

/// The loudest sample of a piece that may be left out or repeated unheard: -50 dB of full scale.
const QUIET: u16 = 100;

/// Outputs waiting to be polled. They are polled after each input; whatever comes on top is dropped and counted.
const MAX_OUTPUTS: usize = 64;

/// Turns whose echo has not ended: the shortest takes 164 ms, so more do not fit into [`MAX_DELAY`].
const MAX_ECHOES: usize = 32;

/// What the echo did to hold its delay, in samples, and what it lost.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct EchoCounters {
    /// Silence left out.
    pub skipped: u64,
    /// Silence inserted.
    pub inserted: u64,
    /// Audio left out because the delay was at its bound.
    pub dropped: u64,
    /// Outputs dropped because nobody polled them.
    pub unpolled: u64,
}

/// The echo backend of one session.
pub struct Echo {
    ids: Ids,
    session_id: String,
    voice: VoiceDetector,
    outputs: VecDeque<Waiting>,
    /// What the last poll gave: its memory serves the next piece.
    given: Vec<i16>,
    /// The turn being spoken.
    turn: Option<Turn>,
    turns: u64,
    /// The item id of the turn before.
    previous: Option<String>,
    /// Turns whose echo has not ended, oldest first, with their response ids: at most [`MAX_ECHOES`].
    echoes: VecDeque<(ItemId, String)>,
    counters: EchoCounters,
}

struct Turn {
    item: ItemId,
    item_id: String,
    /// Its echo was cleared: the rest of it is played without an item, and makes no event.
    cleared: bool,
}

enum Waiting {
    Event(String),
    Audio {
        item: Option<ItemId>,
        pcm: Vec<i16>,
        /// It may be left out or repeated unheard.
        quiet: bool,
    },
    Finished(ItemId),
    Clear {
        asked: Instant,
    },
}

impl Echo {
    /// An echo with its `session.created` waiting. Ids follow from `seed`, which should be random.
    pub fn new(seed: u64) -> Self {
        let mut ids = Ids::new(seed);
        let session_id = ids.make("sess");
        let mut echo = Self {
            ids,
            session_id,
            voice: VoiceDetector::new(VoiceSettings::default()),
            outputs: VecDeque::new(),
            given: Vec::new(),
            turn: None,
            turns: 0,
            previous: None,
            echoes: VecDeque::new(),
            counters: EchoCounters::default(),
        };
        echo.say_session("session.created");
        echo
    }

    /// The playout that an echo needs: its delay as prebuffer, and room for `MAX_DELAY` and the piece that exceeds it.
    pub fn playout_settings() -> PlayoutSettings {
        PlayoutSettings {
            capacity: MAX_DELAY + Duration::from_secs(1),
            prebuffer: DELAY,
            ..PlayoutSettings::default()
        }
    }

    /// What happened since the session began.
    pub fn counters(&self) -> EchoCounters {
        self.counters
    }

    fn hear(&mut self, pcm: &[i16]) {
        self.voice.push(pcm);
        let mut stopped = None;
        // A turn takes this piece from its beginning, and gives it up only with the next one: pieces are not cut.
        while let Some(event) = self.voice.poll_event() {
            match event {
                VoiceEvent::Started { start_ms } => self.begin_turn(start_ms),
                VoiceEvent::Stopped { end_ms } => stopped = Some(end_ms),
            }
        }
        let quiet = self.turn.is_none() && pcm.iter().all(|s| s.unsigned_abs() <= QUIET);
        let item = self.turn.as_ref().filter(|t| !t.cleared).map(|t| t.item);
        let mut buffer = std::mem::take(&mut self.given);
        buffer.clear();
        buffer.extend_from_slice(pcm);
        self.offer(Waiting::Audio {
            item,
            pcm: buffer,
            quiet,
        });
        if let Some(end_ms) = stopped {
            self.end_turn(end_ms);
        }
    }

    fn begin_turn(&mut self, start_ms: u64) {
        self.turns += 1;
        let item = ItemId(self.turns);
        let item_id = self.ids.make("item");
        let response = self.ids.make("resp");
        let text = events::speech_started(&mut self.ids, &item_id, start_ms);
        self.offer(Waiting::Event(text));
        if self.echoes.len() >= MAX_ECHOES {
            self.echoes.pop_front();
        }
        self.echoes.push_back((item, response));
        self.turn = Some(Turn {
            item,
            item_id,
            cleared: false,
        });
    }

    fn end_turn(&mut self, end_ms: u64) {
        let Some(turn) = self.turn.take() else {
            return;
        };
        self.offer(Waiting::Finished(turn.item));
        let ids = &mut self.ids;
        let stopped = events::speech_stopped(ids, &turn.item_id, end_ms);
        let committed = events::committed(ids, &turn.item_id, self.previous.as_deref());
        self.offer(Waiting::Event(stopped));
        self.offer(Waiting::Event(committed));
        self.previous = Some(turn.item_id);
    }

    fn progress(&mut self, event: PlayoutEvent) {
        let (item, what) = match event {
            PlayoutEvent::Started(item) => (item, Some(OutputBuffer::Started)),
            PlayoutEvent::Finished(item) => (item, Some(OutputBuffer::Stopped)),
            // The client was told when it asked for it.
            PlayoutEvent::Cleared { item, .. } => (item, None),
        };
        let Some(at) = self.echoes.iter().position(|(i, _)| *i == item) else {
            return;
        };
        if let Some(what) = what {
            let response = Some(self.echoes[at].1.as_str());
            let text = events::output_audio_buffer(&mut self.ids, what, response);
            self.offer(Waiting::Event(text));
        }
        if what != Some(OutputBuffer::Started) {
            self.echoes.remove(at);
        }
    }

    fn client_event(&mut self, text: &str, now: Instant) {
        let Ok(event) = serde_json::from_str::<Value>(text) else {
            return self.refuse(
                "invalid_json",
                "The message is not JSON.",
                None,
                &Value::Null,
            );
        };
        match event["type"].as_str() {
            Some("session.update") => self.update(&event),
            Some("output_audio_buffer.clear") => self.clear(now),
            Some("response.create") => self.respond(),
            // A response is done as soon as it was created, so none is ever active. The code is the API's own: clients that cancel
            // to be sure know it.
            Some("response.cancel") => self.refuse(
                "response_cancel_not_active",
                "Cancellation failed: no active response found.",
                None,
                &event,
            ),
            Some("input_audio_buffer.append") => self.refuse(
                "unsupported_event",
                "On a WebRTC call audio comes by the track, not by input_audio_buffer.append.",
                Some("type"),
                &event,
            ),
            Some(kind) => {
                let kind: String = kind.chars().take(64).collect();
                let message = format!("The echo backend takes no event of type '{kind}'.");
                self.refuse("unsupported_event", &message, Some("type"), &event);
            }
            None => self.refuse(
                "missing_required_parameter",
                "The event has no type.",
                Some("type"),
                &event,
            ),
        }
    }

    /// Takes the settings of turn detection, where the GA and the beta API have them; everything else means nothing to an echo.
    fn update(&mut self, event: &Value) {
        let session = match &event["session"] {
            session @ Value::Object(_) => session,
            other => {
                let (code, message) = match other {
                    Value::Null => ("missing_required_parameter", "session is missing."),
                    _ => ("invalid_type", "session has to be an object."),
                };
                return self.refuse(code, message, Some("session"), event);
            }
        };
        let ga = &session["audio"]["input"]["turn_detection"];
        let detection = if ga.is_object() {
            ga
        } else {
            &session["turn_detection"]
        };
        let mut settings = self.voice.settings();
        if let Some(threshold) = detection["threshold"].as_f64() {
            settings.threshold = threshold as f32;
        }
        if let Some(padding) = detection["prefix_padding_ms"].as_u64() {
            settings.prefix_padding_ms = padding;
        }
        if let Some(silence) = detection["silence_duration_ms"].as_u64() {
            settings.silence_duration_ms = silence;
        }
        self.voice.configure(settings);
        self.say_session("session.updated");
    }

    /// Drops what waits to be played. Answered also when nothing does.
    fn clear(&mut self, now: Instant) {
        if let Some(turn) = &mut self.turn {
            turn.cleared = true;
        }
        let response = self.echoes.front().map(|(_, response)| response.as_str());
        let text = events::output_audio_buffer(&mut self.ids, OutputBuffer::Cleared, response);
        self.echoes.clear();
        self.offer(Waiting::Clear { asked: now });
        self.offer(Waiting::Event(text));
    }

    /// What was said has been echoed already, so a response that is asked for has nothing to say: it is done at once, and whoever
    /// waits for its end goes on.
    fn respond(&mut self) {
        let response = self.ids.make("resp");
        for status in [ResponseStatus::InProgress, ResponseStatus::Completed] {
            let text = events::response(&mut self.ids, &response, status);
            self.offer(Waiting::Event(text));
        }
    }

    fn refuse(&mut self, code: &str, message: &str, param: Option<&str>, event: &Value) {
        let about = events::event_id(&event["event_id"]);
        let text = events::client_error(&mut self.ids, code, message, param, about);
        self.offer(Waiting::Event(text));
    }

    fn say_session(&mut self, kind: &str) {
        let settings = self.voice.settings();
        let threshold = (f64::from(settings.threshold) * 1_000.0).round() / 1_000.0;
        let format = json!({"type": "audio/pcm", "rate": SAMPLE_RATE});
        let session = json!({
            "type": "realtime",
            "object": "realtime.session",
            "id": self.session_id,
            "model": "echo",
            "output_modalities": ["audio"],
            "instructions": "",
            "tools": [],
            "tool_choice": "auto",
            "audio": {
                "input": {
                    "format": format,
                    "turn_detection": {
                        "type": "server_vad",
                        "threshold": threshold,
                        "prefix_padding_ms": settings.prefix_padding_ms,
                        "silence_duration_ms": settings.silence_duration_ms,
                        "create_response": true,
                        "interrupt_response": false,
                    },
                },
                "output": {"format": format, "voice": "echo", "speed": 1.0},
            },
        });
        let text = events::session(&mut self.ids, kind, session);
        self.offer(Waiting::Event(text));
    }

    fn offer(&mut self, output: Waiting) {
        if self.outputs.len() < MAX_OUTPUTS {
            self.outputs.push_back(output);
        } else {
            self.counters.unpolled += 1;
        }
    }
}

impl Backend for Echo {
    fn handle(&mut self, input: Input<'_>, now: Instant) {
        match input {
            Input::Audio(pcm) => self.hear(pcm),
            Input::Event(text) => self.client_event(text, now),
            Input::Playout(event) => self.progress(event),
        }
    }

    fn poll(&mut self, queue: QueueState, _now: Instant) -> Option<Output<'_>> {
        // Each turn takes one of at most MAX_OUTPUTS.
        loop {
            let room = match self.outputs.front()? {
                Waiting::Audio { pcm, .. } => 2 * pcm.len(),
                _ => 0,
            };
            if room > queue.room {
                return None;
            }
            match self.outputs.pop_front()? {
                Waiting::Event(text) => return Some(Output::Event(text)),
                Waiting::Finished(item) => return Some(Output::Finished(item)),
                Waiting::Clear { asked } => return Some(Output::Clear { asked }),
                Waiting::Audio { item, pcm, quiet } => {
                    let lag = queue.queued;
                    let length = pcm.len();
                    self.given = pcm;
                    if lag > samples(MAX_DELAY) {
                        self.counters.dropped += length as u64;
                    } else if quiet && lag > samples(DELAY + SLACK) {
                        self.counters.skipped += length as u64;
                    } else {
                        if quiet && lag < samples(DELAY / 2) {
                            self.counters.inserted += length as u64;
                            self.given.extend_from_within(..);
                        }
                        let pcm = &self.given;
                        return Some(Output::Audio { item, pcm });
                    }
                }
            }
        }
    }

    fn poll_clear(&mut self, _now: Instant) -> Option<Instant> {
        let waiting = self.outputs.iter();
        let (at, asked) = waiting.enumerate().find_map(|(at, output)| match output {
            Waiting::Clear { asked } => Some((at, *asked)),
            _ => None,
        })?;
        // Sound that waits in front of it is not to be played after it.
        let mut left = at + 1;
        self.outputs.retain(|output| {
            let before = left > 0;
            left = left.saturating_sub(1);
            !before || matches!(output, Waiting::Event(_) | Waiting::Finished(_))
        });
        Some(asked)
    }

    fn deadline(&self) -> Option<Instant> {
        None
    }
}

fn samples(time: Duration) -> usize {
    (time.as_millis() as usize) * FRAME / 20
}
