//! The events of the Realtime API that Firsthop makes for a bot, which knows none.

use serde_json::{Map, Value, json};

use crate::audio::{SAMPLE_RATE, disconnected, response_of};
use crate::backend::outputs::Outputs;

/// The session as clients are told of it: what they and the application have configured, in the place of what a model would say.
pub(super) fn session(config: &Map<String, Value>, id: &str) -> Value {
    let mut session = config.clone();
    let pcm = json!({"format": {"type": "audio/pcm", "rate": SAMPLE_RATE}});
    let mut made = Map::new();
    made.insert("audio".into(), json!({"input": pcm, "output": pcm}));
    crate::backend::merge(&mut made, &std::mem::take(&mut session));
    made.insert("type".into(), "realtime".into());
    made.insert("object".into(), "realtime.session".into());
    made.insert("id".into(), id.into());
    made.entry("output_modalities").or_insert(json!(["audio"]));
    Value::Object(made)
}

/// An item that the user said.
pub(super) fn user_item(id: &str, part: Value) -> Value {
    json!({
        "id": id, "object": "realtime.item", "type": "message", "status": "completed", "role": "user",
        "content": [part],
    })
}

/// How a response ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    /// The bot has said all.
    Completed,
    /// It was interrupted.
    Interrupted,
    /// The connection broke.
    Lost,
}

/// What the bot says in one response, as one item.
#[derive(Debug)]
pub(super) struct Said {
    pub(super) response: String,
    pub(super) item: String,
    pub(super) transcript: String,
}

impl Said {
    /// Its item.
    fn item(&self, status: &str, content: Value) -> Value {
        json!({
            "id": self.item, "object": "realtime.item", "type": "message", "status": status, "role": "assistant",
            "content": content,
        })
    }

    fn response(&self, status: &str, details: Value, output: Value) -> Value {
        response_of(&self.response, status, details, output)
    }

    fn place(&self) -> Value {
        json!({"response_id": self.response, "item_id": self.item, "output_index": 0, "content_index": 0})
    }

    /// Tells that it begins.
    pub(super) fn begun(&self, outputs: &mut Outputs) {
        let item = self.item("in_progress", json!([]));
        let mut part = self.place();
        part["part"] = json!({"type": "audio", "transcript": ""});
        let created = self.response("in_progress", Value::Null, json!([]));
        let output = json!({"response_id": self.response, "output_index": 0, "item": item});
        let conversation = json!({"previous_item_id": null, "item": item});
        outputs.tell("response.created", created);
        outputs.tell("response.output_item.added", output);
        outputs.tell("conversation.item.added", conversation);
        outputs.tell("response.content_part.added", part);
    }

    /// Tells more of what is said.
    pub(super) fn delta(&self, outputs: &mut Outputs, text: &str) {
        let mut members = self.place();
        members["delta"] = text.into();
        outputs.tell("response.output_audio_transcript.delta", members);
    }

    /// Tells that it ends.
    pub(super) fn done(&self, outputs: &mut Outputs, how: Ending) {
        let (status, item, details) = match how {
            Ending::Completed => ("completed", "completed", Value::Null),
            Ending::Interrupted => {
                let details = json!({"type": "cancelled", "reason": "turn_detected"});
                ("cancelled", "incomplete", details)
            }
            Ending::Lost => ("failed", "incomplete", disconnected()),
        };
        let transcript = json!({"type": "output_audio", "transcript": self.transcript});
        let item = self.item(item, json!([transcript]));
        let mut told = self.place();
        told["transcript"] = self.transcript.as_str().into();
        let mut part = self.place();
        part["part"] = json!({"type": "audio", "transcript": self.transcript});
        let output = json!({"response_id": self.response, "output_index": 0, "item": item});
        let conversation = json!({"previous_item_id": null, "item": item});
        let done = self.response(status, details, json!([item]));
        outputs.tell("response.output_audio.done", self.place());
        outputs.tell("response.output_audio_transcript.done", told);
        outputs.tell("response.content_part.done", part);
        outputs.tell("response.output_item.done", output);
        outputs.tell("conversation.item.done", conversation);
        outputs.tell("response.done", done);
    }
}
