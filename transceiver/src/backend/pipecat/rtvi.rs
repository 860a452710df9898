//! RTVI, the messages that Pipecat's pipelines exchange with their clients by default, as far as they mean something here.

use serde_json::{Value, json};

/// What marks a message as RTVI's.
const LABEL: &str = "rtvi-ai";

/// What a message of the bot's means here. All but errors reach the client, too.
#[derive(Debug, PartialEq)]
pub(super) enum Meaning {
    /// The user began to speak.
    UserStarted,
    /// The user's turn ended.
    UserStopped,
    /// The bot has said all that it had to say.
    BotStopped,
    /// The user said this; the last word on it.
    UserSaid(String),
    /// The bot is saying this; the words come as they are spoken.
    BotSays(String),
    /// The pipeline has failed.
    Error(String),
    /// Nothing that matters here.
    Other,
}

/// What this message means; one that is not RTVI's is [`Meaning::Other`].
pub(super) fn read(message: &Value) -> Meaning {
    if message["label"] != LABEL {
        return Meaning::Other;
    }
    let data = &message["data"];
    let text = |name: &str| data[name].as_str().unwrap_or_default().to_owned();
    match message["type"].as_str() {
        Some("user-started-speaking") => Meaning::UserStarted,
        Some("user-stopped-speaking") => Meaning::UserStopped,
        Some("bot-stopped-speaking") => Meaning::BotStopped,
        Some("user-transcription") if data["final"] == true => Meaning::UserSaid(text("text")),
        Some("bot-tts-text") => Meaning::BotSays(text("text")),
        Some("error") => Meaning::Error(text("error")),
        _ => Meaning::Other,
    }
}

/// What tells a bot that its client is there; many wait for it before they speak. A bot without RTVI does not mind it.
pub(super) fn client_ready(id: &str) -> String {
    let about = json!({"library": "firsthop", "library_version": env!("CARGO_PKG_VERSION")});
    let data = json!({"version": "1.2.0", "about": about});
    json!({"label": LABEL, "type": "client-ready", "id": id, "data": data}).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_messages_with_the_label_mean_something() {
        let message = json!({"label": "rtvi-ai", "type": "user-transcription", "data": {"text": "hi", "final": true}});
        assert_eq!(read(&message), Meaning::UserSaid("hi".into()));
        let mut interim = message.clone();
        interim["data"]["final"] = false.into();
        assert_eq!(read(&interim), Meaning::Other);
        let mut other = message;
        other["label"] = "mine".into();
        assert_eq!(read(&other), Meaning::Other);
        assert_eq!(read(&json!([1])), Meaning::Other);
    }
}
