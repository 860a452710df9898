//! What has to be read of an event, either way; everything else passes unread.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::Value;

use super::session;
use crate::backend::ahead::Glance;

/// An event of the server's, as far as it matters here.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Event<'a> {
    /// Audio of the model's: the client is not told.
    Audio(AudioDelta<'a>),
    /// Anything else, and its text in today's names if it came in those of the beta.
    Told(Meaning, Option<String>),
}

/// What an event that the client is told means here.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    /// All audio of a content part has been sent.
    AudioDone { item: String, part: u64 },
    /// `session.created` or `session.updated`, with the session.
    Session { created: bool, session: Value },
    /// The user began to speak.
    SpeechStarted,
    /// The user's turn ended.
    TurnEnded,
    /// A response began.
    ResponseCreated(Option<String>),
    /// A response ended.
    ResponseDone(Option<String>),
    /// Something is wrong: whether the server says that the session has reached its longest time, and which event it is about.
    Error {
        expired: bool,
        about: Option<String>,
    },
    /// Nothing that matters here.
    Other,
}

/// `response.output_audio.delta`, or `response.audio.delta` of the beta.
#[derive(Debug, PartialEq, Eq, Deserialize)]
pub(super) struct AudioDelta<'a> {
    #[serde(borrow, default)]
    pub(super) response_id: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub(super) item_id: Cow<'a, str>,
    #[serde(default)]
    pub(super) content_index: u64,
    #[serde(borrow)]
    pub(super) delta: Cow<'a, str>,
}

#[derive(Deserialize)]
struct Head<'a> {
    #[serde(borrow)]
    r#type: Cow<'a, str>,
}

#[derive(Deserialize)]
struct Part<'a> {
    #[serde(borrow)]
    item_id: Cow<'a, str>,
    #[serde(default)]
    content_index: u64,
}

/// Events that the beta calls by another name.
const RENAMED: [(&str, &str); 6] = [
    ("response.audio.delta", "response.output_audio.delta"),
    ("response.audio.done", "response.output_audio.done"),
    (
        "response.audio_transcript.delta",
        "response.output_audio_transcript.delta",
    ),
    (
        "response.audio_transcript.done",
        "response.output_audio_transcript.done",
    ),
    ("response.text.delta", "response.output_text.delta"),
    ("response.text.done", "response.output_text.done"),
];

/// Reads an event of the server's; `None` when it is no JSON object with a type.
pub(super) fn read(text: &str) -> Option<Event<'_>> {
    let head: Head<'_> = serde_json::from_str(text).ok()?;
    let renamed = RENAMED.iter().find(|(beta, _)| *beta == head.r#type);
    let kind = renamed.map_or(&*head.r#type, |(_, ga)| ga);
    let meaning = match kind {
        "response.output_audio.delta" => {
            return Some(Event::Audio(serde_json::from_str(text).ok()?));
        }
        "response.output_audio.done" => {
            let part: Part<'_> = serde_json::from_str(text).ok()?;
            Meaning::AudioDone {
                item: part.item_id.into_owned(),
                part: part.content_index,
            }
        }
        "session.created" | "session.updated" => Meaning::Session {
            created: kind == "session.created",
            session: member(text, "session"),
        },
        "input_audio_buffer.speech_started" => Meaning::SpeechStarted,
        "input_audio_buffer.speech_stopped" | "input_audio_buffer.committed" => Meaning::TurnEnded,
        "response.created" | "response.done" => {
            let response = member(text, "response");
            let id = response["id"].as_str().map(str::to_owned);
            if kind == "response.created" {
                Meaning::ResponseCreated(id)
            } else {
                Meaning::ResponseDone(id)
            }
        }
        "error" => {
            let error = member(text, "error");
            Meaning::Error {
                expired: error["code"] == "session_expired",
                about: error["event_id"].as_str().map(str::to_owned),
            }
        }
        _ => Meaning::Other,
    };
    let told = renamed.and_then(|(_, ga)| rename(text, ga));
    Some(Event::Told(meaning, told))
}

/// What an event of the server's is to those before it.
pub(super) fn glance(text: &str) -> Glance {
    let head = serde_json::from_str::<Head<'_>>(text);
    match head.as_ref().map(|head| &*head.r#type) {
        Ok("input_audio_buffer.speech_started") => Glance::Interruption,
        // It may say that nothing interrupts any more.
        Ok("session.created" | "session.updated") => Glance::Opaque,
        _ => Glance::Plain,
    }
}

/// Whether an event that describes the session says of interruptions what is not so already.
pub(super) fn turns(text: &str, interrupts: bool) -> bool {
    let said = session::told(&member(text, "session")).interrupts;
    said.is_some_and(|said| said != interrupts)
}

/// An event of the client's in the beta's names; `None` when it is the same.
pub(super) fn to_beta(text: &str) -> Option<String> {
    let mut event: Value = serde_json::from_str(text).ok()?;
    let name = match event["type"].as_str()? {
        "session.update" => "session",
        "response.create" => "response",
        _ => return None,
    };
    let described = event.get_mut(name)?;
    *described = session::to_beta(described.take());
    Some(event.to_string())
}

fn member(text: &str, name: &str) -> Value {
    match serde_json::from_str::<Value>(text) {
        Ok(mut event) => event[name].take(),
        Err(_) => Value::Null,
    }
}

fn rename(text: &str, kind: &str) -> Option<String> {
    let mut event: Value = serde_json::from_str(text).ok()?;
    event["type"] = kind.into();
    Some(event.to_string())
}

/// What an event of the client's means here.
#[derive(Debug, PartialEq)]
pub(super) enum ClientEvent {
    /// It goes up as it is.
    Pass,
    /// So does this, and the session that it asks for is remembered.
    Update(Value),
    /// It goes up as it is, and the model is to answer.
    Respond,
    /// Audio does not come by the channel.
    Append,
    /// What waits to be played is to be dropped.
    Clear,
    /// It has no type.
    Untyped,
}

/// Reads an event of the client's, and its `event_id`; `None` when it is no JSON object.
pub(super) fn read_client(text: &str) -> Option<(ClientEvent, Value)> {
    let mut event: Value = serde_json::from_str(text).ok()?;
    let fields = event.as_object_mut()?;
    let id = fields.get("event_id").cloned().unwrap_or_default();
    let kind = match fields.get("type").and_then(Value::as_str) {
        None => ClientEvent::Untyped,
        Some("session.update") => ClientEvent::Update(fields.remove("session").unwrap_or_default()),
        Some("response.create") => ClientEvent::Respond,
        Some("input_audio_buffer.append") => ClientEvent::Append,
        Some("output_audio_buffer.clear") => ClientEvent::Clear,
        Some(_) => ClientEvent::Pass,
    };
    Some((kind, id))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn audio_is_read_under_either_name_wherever_its_members_stand() {
        for kind in ["response.output_audio.delta", "response.audio.delta"] {
            let text = format!(
                r#"{{"delta":"AAAA","content_index":1,"x":{{"type":"no"}},"item_id":"i","response_id":"r","type":"{kind}"}}"#
            );
            let Some(Event::Audio(delta)) = read(&text) else {
                panic!("{kind} is audio");
            };
            assert_eq!((&*delta.item_id, delta.content_index), ("i", 1));
            assert_eq!(
                (&*delta.delta, delta.response_id.as_deref()),
                ("AAAA", Some("r"))
            );
        }
    }

    #[test]
    fn an_interruption_is_told_from_what_only_speaks_of_one() {
        let cases = [
            (
                r#"{"type":"input_audio_buffer.speech_started","item_id":"i"}"#,
                Glance::Interruption,
            ),
            (r#"{"session":{},"type":"session.updated"}"#, Glance::Opaque),
            (
                r#"{"type":"response.output_text.delta","delta":"input_audio_buffer.speech_started"}"#,
                Glance::Plain,
            ),
            (
                r#"{"x":{"type":"input_audio_buffer.speech_started"},"type":"y"}"#,
                Glance::Plain,
            ),
            ("input_audio_buffer.speech_started", Glance::Plain),
        ];
        for (text, expected) in cases {
            assert_eq!(glance(text), expected, "{text}");
        }
    }

    #[test]
    fn names_of_the_beta_become_those_of_today() {
        let text = r#"{"type":"response.audio_transcript.delta","item_id":"i","delta":"hi"}"#;
        let Some(Event::Told(Meaning::Other, Some(told))) = read(text) else {
            panic!("renamed");
        };
        let told: Value = serde_json::from_str(&told).expect("JSON");
        assert_eq!(
            told,
            serde_json::json!({"type": "response.output_audio_transcript.delta", "item_id": "i", "delta": "hi"})
        );
    }

    #[test]
    fn what_is_not_known_passes_and_what_is_no_event_does_not() {
        assert_eq!(
            read(r#"{"type":"mcp_call.in_progress"}"#),
            Some(Event::Told(Meaning::Other, None))
        );
        for text in [
            "",
            "[]",
            "7",
            r#"{"event":"x"}"#,
            r#"{"type":7}"#,
            "{\"type\":\"x\"",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
        // Audio without an item cannot be played as anybody's.
        assert_eq!(
            read(r#"{"type":"response.audio.delta","delta":"AAAA"}"#),
            None
        );
    }
}
