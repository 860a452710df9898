//! What a client of the Realtime API says, and what a bot can make of it.

use serde_json::{Map, Value};

/// Whose words an item of the client's holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// The user says it.
    User,
    /// The bot is to say it.
    Assistant,
}

/// What an event of the client's means here.
#[derive(Debug, PartialEq)]
pub(super) enum Event {
    /// The session is to be configured so; the bot is not told.
    Update(Map<String, Value>),
    /// An item of text.
    Say { role: Role, text: String },
    /// The bot answers by itself.
    Respond,
    /// The bot is to be interrupted.
    Cancel,
    /// What waits to be played is to be dropped.
    Clear,
    /// Audio does not come by the channel.
    Append,
    /// The Realtime API has it, but no bot does.
    Unsupported,
    /// It has no type.
    Untyped,
    /// A message for the bot, as it is.
    Message,
}

/// What the Realtime API's own events begin with.
const FAMILIES: [&str; 6] = [
    "session.",
    "transcription_session.",
    "input_audio_buffer.",
    "output_audio_buffer.",
    "conversation.",
    "response.",
];

/// Reads an event of the client's, and its `event_id`; `None` when it is no JSON object.
pub(super) fn read(text: &str) -> Option<(Event, Value)> {
    let mut event: Value = serde_json::from_str(text).ok()?;
    let fields = event.as_object_mut()?;
    let id = fields.get("event_id").cloned().unwrap_or_default();
    let Some(kind) = fields.get("type").and_then(Value::as_str) else {
        return Some((Event::Untyped, id));
    };
    let meaning = match kind {
        "session.update" => match fields.remove("session") {
            Some(Value::Object(session)) => Event::Update(session),
            _ => Event::Update(Map::new()),
        },
        "conversation.item.create" => said(&event["item"]).unwrap_or(Event::Unsupported),
        "response.create" => Event::Respond,
        "response.cancel" => Event::Cancel,
        "output_audio_buffer.clear" => Event::Clear,
        "input_audio_buffer.append" => Event::Append,
        kind if FAMILIES.iter().any(|family| kind.starts_with(family)) => Event::Unsupported,
        _ => Event::Message,
    };
    Some((meaning, id))
}

/// A message of text alone.
fn said(item: &Value) -> Option<Event> {
    let role = match item["role"].as_str()? {
        "user" => Role::User,
        "assistant" => Role::Assistant,
        _ => return None,
    };
    let mut text = String::new();
    for part in item["content"].as_array()? {
        match part["type"].as_str()? {
            "input_text" | "output_text" | "text" => text.push_str(part["text"].as_str()?),
            _ => return None,
        }
    }
    (item["type"] == "message" && !text.is_empty()).then_some(Event::Say { role, text })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meaning(text: &str) -> Event {
        read(text).expect("an object").0
    }

    #[test]
    fn text_of_the_users_and_for_the_bot_is_told_apart_and_nothing_else_is_text() {
        let item = |role: &str, part: &str| {
            meaning(&format!(
                r#"{{"type":"conversation.item.create","item":{{"type":"message","role":"{role}","content":[{part}]}}}}"#
            ))
        };
        let hi = r#"{"type":"input_text","text":"hi"}"#;
        for (word, role) in [("user", Role::User), ("assistant", Role::Assistant)] {
            let expected = Event::Say {
                role,
                text: "hi".into(),
            };
            assert_eq!(item(word, hi), expected);
        }
        assert_eq!(item("system", hi), Event::Unsupported);
        assert_eq!(
            item("user", r#"{"type":"input_audio","audio":""}"#),
            Event::Unsupported
        );
        assert_eq!(item("user", ""), Event::Unsupported);
    }

    #[test]
    fn what_the_api_has_and_a_bot_has_not_is_no_message() {
        assert_eq!(
            meaning(r#"{"type":"input_audio_buffer.commit"}"#),
            Event::Unsupported
        );
        assert_eq!(
            meaning(r#"{"type":"client-message","label":"rtvi-ai"}"#),
            Event::Message
        );
        assert_eq!(meaning(r#"{"x":1}"#), Event::Untyped);
        assert_eq!(read("[]"), None);
        assert_eq!(read("no"), None);
    }
}
