//! The JSON texts of the events that Firsthop itself makes, in the shapes of OpenAI's Realtime API (GA names), and their ids.

use serde_json::{Value, json};

use crate::limits;

/// Makes the ids of one session: unique in it, and different from another session's as far as their seeds are random.
///
/// They look like the API's own (`event_`, `item_`, `resp_`, `sess_` and a random word), because clients treat them as opaque.
#[derive(Debug, Clone)]
pub struct Ids {
    seed: u64,
    made: u64,
}

impl Ids {
    /// The ids that follow from a random seed.
    pub fn new(seed: u64) -> Self {
        Self { seed, made: 0 }
    }

    /// A new id with this prefix.
    pub fn make(&mut self, prefix: &str) -> String {
        self.made += 1;
        let (high, low) = (mix(self.seed ^ mix(self.made)), mix(self.seed) ^ self.made);
        format!("{prefix}_{high:016x}{:05x}", low & 0xf_ffff)
    }
}

/// SplitMix64's finaliser: a bijection, so that counted numbers look random and never meet.
fn mix(mut x: u64) -> u64 {
    x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}

/// `input_audio_buffer.speech_started`: the user began to speak, `start_ms` into the audio received, padding included.
pub(super) fn speech_started(ids: &mut Ids, item: &str, start_ms: u64) -> String {
    event(
        ids,
        "input_audio_buffer.speech_started",
        json!({"audio_start_ms": start_ms, "item_id": item}),
    )
}

/// `input_audio_buffer.speech_stopped`: the user's turn ended, `end_ms` into the audio received, silence included.
pub(super) fn speech_stopped(ids: &mut Ids, item: &str, end_ms: u64) -> String {
    event(
        ids,
        "input_audio_buffer.speech_stopped",
        json!({"audio_end_ms": end_ms, "item_id": item}),
    )
}

/// `input_audio_buffer.committed`: the turn has become an item of the conversation, after `previous`.
pub(super) fn committed(ids: &mut Ids, item: &str, previous: Option<&str>) -> String {
    event(
        ids,
        "input_audio_buffer.committed",
        json!({"item_id": item, "previous_item_id": previous}),
    )
}

/// What the playout does with a response's audio.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OutputBuffer {
    /// Its first packet is sent.
    Started,
    /// Its last packet is sent.
    Stopped,
    /// It was cut off.
    Cleared,
}

/// `output_audio_buffer.started`, `.stopped` or `.cleared` of a response (`null` when there is none to clear).
pub(crate) fn output_audio_buffer(
    ids: &mut Ids,
    what: OutputBuffer,
    response: Option<&str>,
) -> String {
    let kind = match what {
        OutputBuffer::Started => "output_audio_buffer.started",
        OutputBuffer::Stopped => "output_audio_buffer.stopped",
        OutputBuffer::Cleared => "output_audio_buffer.cleared",
    };
    event(ids, kind, json!({"response_id": response}))
}

/// How far a response is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ResponseStatus {
    /// It begins.
    InProgress,
    /// It came to its end.
    Completed,
}

/// `response.created` or `response.done` of a response without output.
pub(super) fn response(ids: &mut Ids, id: &str, status: ResponseStatus) -> String {
    let (kind, status) = match status {
        ResponseStatus::InProgress => ("response.created", "in_progress"),
        ResponseStatus::Completed => ("response.done", "completed"),
    };
    event(ids, kind, response_of(id, status, Value::Null, json!([])))
}

/// The members of an event about a response.
pub(crate) fn response_of(id: &str, status: &str, details: Value, output: Value) -> Value {
    json!({"response": {
        "object": "realtime.response",
        "id": id,
        "status": status,
        "status_details": details,
        "output": output,
    }})
}

/// Why a response has failed whose backend is gone: its `status_details`.
pub(crate) fn disconnected() -> Value {
    json!({"type": "failed", "error": {"code": "backend_disconnected"}})
}

/// The `event_id` of an event of the client's, as far as an error names it: not when it is no text, or too long.
pub(crate) fn event_id(id: &Value) -> Option<&str> {
    let id = id.as_str()?;
    (id.len() <= limits::CLIENT_EVENT_ID_MAX).then_some(id)
}

/// `session.created` or `session.updated` with the whole session.
pub(super) fn session(ids: &mut Ids, kind: &str, session: Value) -> String {
    event(ids, kind, json!({"session": session}))
}

/// `error` about a client event: its `event_id` is named if it had one.
pub(crate) fn client_error(
    ids: &mut Ids,
    code: &str,
    message: &str,
    param: Option<&str>,
    about: Option<&str>,
) -> String {
    event(
        ids,
        "error",
        json!({"error": {
            "type": "invalid_request_error",
            "code": code,
            "message": message,
            "param": param,
            "event_id": about,
        }}),
    )
}

/// `error` about what went wrong on this side; `event_id` is that of the client's event that it is about, if it is about one.
pub(crate) fn server_error(
    ids: &mut Ids,
    code: &str,
    message: &str,
    event_id: Option<&str>,
) -> String {
    event(
        ids,
        "error",
        json!({"error": {
            "type": "server_error",
            "code": code,
            "message": message,
            "param": null,
            "event_id": event_id,
        }}),
    )
}

/// `error` about events that the client has missed, the `nth` of a session. Its id never meets those that [`Ids`] makes.
pub(super) fn events_lost(nth: u64, count: u64) -> String {
    let message = format!("The channel took nothing for too long; events missing here: {count}.");
    json!({
        "type": "error",
        "event_id": format!("event_channel_l{nth}"),
        "error": {
            "type": "server_error",
            "code": "events_lost",
            "message": message,
            "param": null,
            "event_id": null,
        },
    })
    .to_string()
}

/// An event of this type with a new id and these members.
pub(crate) fn event(ids: &mut Ids, kind: &str, mut members: Value) -> String {
    members["type"] = kind.into();
    members["event_id"] = ids.make("event").into();
    members.to_string()
}
