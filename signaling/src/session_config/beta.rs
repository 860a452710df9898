//! The flat names of the beta, which older clients send, in the shape that is checked.

use serde_json::{Map, Value, json};

use super::merge;

/// Translates the flat names of the beta into the GA shape; what has no counterpart passes as it is.
#[must_use]
pub fn from_beta(beta: Map<String, Value>) -> Map<String, Value> {
    let mut config = Map::new();
    let mut input = Map::new();
    let mut output = Map::new();
    for (name, value) in beta {
        match name.as_str() {
            "modalities" => config.insert("output_modalities".into(), beta_modalities(value)),
            "max_response_output_tokens" => config.insert("max_output_tokens".into(), value),
            "voice" => output.insert("voice".into(), value),
            "speed" => output.insert("speed".into(), value),
            "output_audio_format" => output.insert("format".into(), beta_format(value)),
            "input_audio_format" => input.insert("format".into(), beta_format(value)),
            "input_audio_transcription" => input.insert("transcription".into(), value),
            "input_audio_noise_reduction" => input.insert("noise_reduction".into(), value),
            "turn_detection" => input.insert("turn_detection".into(), value),
            // They speak of the secret, and are read by who mints it.
            "client_secret" | "expires_after" => None,
            _ => config.insert(name, value),
        };
    }
    let mut audio = Map::new();
    for (name, part) in [("input", input), ("output", output)] {
        if !part.is_empty() {
            audio.insert(name.into(), Value::Object(part));
        }
    }
    if audio.is_empty() {
        return config;
    }
    // What was sent under GA names wins.
    match config.remove("audio") {
        Some(Value::Object(sent)) => audio = merge(sent, audio),
        Some(other) => {
            config.insert("audio".into(), other);
            return config;
        }
        None => {}
    }
    config.insert("audio".into(), Value::Object(audio));
    config
}

/// In the beta, audio always came with its text; in GA, `audio` alone says that.
fn beta_modalities(value: Value) -> Value {
    match value.as_array() {
        Some(words) if words.iter().any(|word| word == "audio") => json!(["audio"]),
        _ => value,
    }
}

fn beta_format(value: Value) -> Value {
    match value.as_str() {
        Some("pcm16") => json!({ "type": "audio/pcm", "rate": 24_000 }),
        Some("g711_ulaw") => json!({ "type": "audio/pcmu" }),
        Some("g711_alaw") => json!({ "type": "audio/pcma" }),
        _ => value,
    }
}

#[cfg(test)]
mod tests {
    use super::super::check;
    use super::*;

    fn object(value: Value) -> Map<String, Value> {
        value.as_object().expect("an object").clone()
    }

    #[test]
    fn beta_names_become_ga_names() {
        let beta = object(json!({
            "model": "m", "modalities": ["text", "audio"], "voice": "alloy", "input_audio_format": "pcm16",
            "output_audio_format": "g711_ulaw", "turn_detection": null, "input_audio_transcription": { "model": "w" },
            "max_response_output_tokens": 7, "temperature": 0.8
        }));
        let config = Value::Object(from_beta(beta));
        assert_eq!(
            config,
            json!({
                "model": "m", "output_modalities": ["audio"], "max_output_tokens": 7, "temperature": 0.8,
                "audio": {
                    "input": {
                        "format": { "type": "audio/pcm", "rate": 24000 }, "turn_detection": null,
                        "transcription": { "model": "w" }
                    },
                    "output": { "voice": "alloy", "format": { "type": "audio/pcmu" } }
                }
            })
        );
        assert!(check(config).is_ok());
    }
}
