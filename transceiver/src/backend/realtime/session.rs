//! The configuration of a session: what the server is told of it, and what is read from what it says.

use serde_json::{Map, Value, json};

use super::format::Format;

/// The members of a session that group others; every other member is one thing, also when it is an object.
const GROUPS: [&str; 3] = ["audio", "input", "output"];

/// Adds what `added` says to `base`; where both say something, `added` wins.
pub fn merge(base: &mut Map<String, Value>, added: &Map<String, Value>) {
    for (name, value) in added {
        match (base.get_mut(name), value) {
            (Some(Value::Object(base)), Value::Object(added)) if GROUPS.contains(&&**name) => {
                merge(base, added);
            }
            _ => {
                base.insert(name.clone(), value.clone());
            }
        }
    }
}

/// The session as a `session.update` has to say it; nothing when there is nothing to say.
///
/// `fixed` is the audio format that the application fixes. The model is chosen by the URL, and a server refuses to change it.
pub(super) fn update(config: &Map<String, Value>, fixed: Option<Format>) -> Option<Value> {
    let mut session = config.clone();
    session.remove("model");
    if let Some(format) = fixed {
        let format = format.to_json();
        let mut audio = Map::new();
        audio.insert("input".into(), json!({ "format": format }));
        // A session that only transcribes has no output.
        if session.get("type").is_none_or(|kind| kind == "realtime") {
            audio.insert("output".into(), json!({ "format": format }));
        }
        let mut added = Map::new();
        added.insert("audio".into(), Value::Object(audio));
        merge(&mut session, &added);
    }
    let says_something = session.keys().any(|name| name != "type");
    if !says_something {
        return None;
    }
    session
        .entry("type")
        .or_insert_with(|| Value::from("realtime"));
    Some(Value::Object(session))
}

/// Whether a session that a server describes is in the shape of the beta: flat, and without a type.
pub(super) fn is_beta(session: &Value) -> bool {
    session.get("audio").is_none()
        && (session.get("modalities").is_some() || session.get("input_audio_format").is_some())
}

/// The same session in the names of the beta.
pub(super) fn to_beta(session: Value) -> Value {
    let Value::Object(session) = session else {
        return session;
    };
    let mut beta = Map::new();
    for (name, value) in session {
        match name.as_str() {
            "type" => {}
            "output_modalities" => {
                // The beta knows no audio without text.
                let audio = value
                    .as_array()
                    .is_some_and(|all| all.iter().any(|one| one == "audio"));
                let both = json!(["audio", "text"]);
                beta.insert("modalities".into(), if audio { both } else { value });
            }
            "max_output_tokens" => {
                beta.insert("max_response_output_tokens".into(), value);
            }
            "audio" => flatten(&value, &mut beta),
            _ => {
                beta.insert(name, value);
            }
        }
    }
    Value::Object(beta)
}

fn flatten(audio: &Value, beta: &mut Map<String, Value>) {
    const INPUT: [(&str, &str); 3] = [
        ("transcription", "input_audio_transcription"),
        ("noise_reduction", "input_audio_noise_reduction"),
        ("turn_detection", "turn_detection"),
    ];
    const OUTPUT: [(&str, &str); 2] = [("voice", "voice"), ("speed", "speed")];
    let mut take = |part: &str, format: &str, names: &[(&str, &str)]| {
        let part = &audio[part];
        for (from, to) in names {
            if let Some(value) = part.get(from) {
                beta.insert((*to).to_owned(), value.clone());
            }
        }
        if let Some(known) = Format::of(&part["format"]) {
            beta.insert(format.to_owned(), known.beta_name().into());
        }
    };
    take("input", "input_audio_format", &INPUT);
    take("output", "output_audio_format", &OUTPUT);
}

/// What a server's `session.created` and `session.updated` say that matters here; nothing where they are silent.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Told {
    /// The format of the client's audio.
    pub(super) input: Option<Format>,
    /// The format of the model's audio.
    pub(super) output: Option<Format>,
    /// Whether the user's speech interrupts the model.
    pub(super) interrupts: Option<bool>,
}

pub(super) fn told(session: &Value) -> Told {
    let format = |ga: &Value, beta: &str| Format::of(ga).or_else(|| Format::of(&session[beta]));
    let audio = &session["audio"];
    let detection = match &audio["input"]["turn_detection"] {
        Value::Object(detection) => Some(detection),
        _ => session["turn_detection"].as_object(),
    };
    Told {
        input: format(&audio["input"]["format"], "input_audio_format"),
        output: format(&audio["output"]["format"], "output_audio_format"),
        // Detection that says nothing of it interrupts.
        interrupts: detection
            .map(|detection| detection.get("interrupt_response") != Some(&Value::Bool(false))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(value: Value) -> Map<String, Value> {
        value.as_object().expect("an object").clone()
    }

    #[test]
    fn an_update_says_what_was_asked_and_the_fixed_format_but_no_model() {
        let config = object(json!({
            "type": "realtime", "model": "m", "instructions": "Be brief.",
            "audio": {"input": {"format": {"type": "audio/pcm", "rate": 24000}}, "output": {"voice": "marin"}},
        }));
        assert_eq!(
            update(&config, Some(Format::Pcmu)),
            Some(json!({
                "type": "realtime", "instructions": "Be brief.",
                "audio": {
                    "input": {"format": {"type": "audio/pcmu"}},
                    "output": {"format": {"type": "audio/pcmu"}, "voice": "marin"},
                },
            }))
        );
        assert_eq!(
            update(&object(json!({"type": "realtime", "model": "m"})), None),
            None
        );
        assert_eq!(
            update(
                &object(json!({"type": "transcription"})),
                Some(Format::Pcma)
            ),
            Some(
                json!({"type": "transcription", "audio": {"input": {"format": {"type": "audio/pcma"}}}})
            )
        );
    }

    #[test]
    fn a_session_is_told_to_a_beta_server_in_its_names() {
        let session = json!({
            "type": "realtime", "output_modalities": ["audio"], "max_output_tokens": 100, "instructions": "i",
            "audio": {
                "input": {"format": {"type": "audio/pcma"}, "turn_detection": null, "transcription": {"model": "w"}},
                "output": {"format": {"type": "audio/pcm", "rate": 24000}, "voice": "alloy"},
            },
        });
        assert_eq!(
            to_beta(session),
            json!({
                "modalities": ["audio", "text"], "max_response_output_tokens": 100, "instructions": "i",
                "input_audio_format": "g711_alaw", "turn_detection": null, "input_audio_transcription": {"model": "w"},
                "output_audio_format": "pcm16", "voice": "alloy",
            })
        );
    }

    #[test]
    fn formats_and_interruption_are_read_from_either_shape() {
        let ga = json!({"audio": {
            "input": {"format": {"type": "audio/pcmu"}, "turn_detection": {"type": "server_vad", "interrupt_response": false}},
            "output": {"format": {"type": "audio/pcm", "rate": 24000}},
        }});
        let expected = Told {
            input: Some(Format::Pcmu),
            output: Some(Format::Pcm),
            interrupts: Some(false),
        };
        assert_eq!(told(&ga), expected);
        let beta = json!({
            "input_audio_format": "g711_ulaw", "output_audio_format": "pcm16",
            "turn_detection": {"type": "server_vad"}, "modalities": ["text"],
        });
        assert_eq!(
            told(&beta),
            Told {
                interrupts: Some(true),
                ..expected
            }
        );
        assert!(is_beta(&beta) && !is_beta(&ga));
        assert_eq!(told(&json!({"turn_detection": null})), Told::default());
    }
}
