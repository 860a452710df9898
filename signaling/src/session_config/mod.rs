//! The configuration of a session: checked before a call is made, so that a slip is told to who made it, by field.
//!
//! Fields and ranges are those of OpenAI's Realtime API (the object `session` of `session.update`, GA names). What is known is
//! checked; a field that is not known passes, since backends have fields of their own. [`from_beta`] translates the flat names of the
//! beta, which older clients send. [`merge`] joins what a client secret fixes with what a request adds.
//!
//! Pure: nothing here reads anything but its arguments.

mod beta;
mod field;

use serde_json::{Map, Value};

use crate::limits::{SESSION_CONFIG_DEPTH_MAX, SESSION_CONFIG_MAX, TOOLS_MAX};

pub use beta::from_beta;
pub use field::{FieldError, whole};

use field::{Checked, Field};

/// How deeply objects and arrays are nested in a value. Whatever parsed it has bounded that, so this ends.
fn depth(value: &Value) -> usize {
    let deepest = |inner: &mut dyn Iterator<Item = &Value>| 1 + inner.map(depth).max().unwrap_or(0);
    match value {
        Value::Array(items) => deepest(&mut items.iter()),
        Value::Object(fields) => deepest(&mut fields.values()),
        _ => 0,
    }
}

/// The name that paths begin with.
pub const ROOT: &str = "session";

/// Checks a configuration and returns it as the object it is.
///
/// # Errors
/// The first field that cannot be used.
pub fn check(config: Value) -> Result<Map<String, Value>, FieldError> {
    let root = Field::new(ROOT, &config);
    let size = config.to_string().len();
    if size > SESSION_CONFIG_MAX {
        return root.fail(format!(
            "has {size} bytes as JSON; at most {SESSION_CONFIG_MAX} are taken"
        ));
    }
    if depth(&config) > SESSION_CONFIG_DEPTH_MAX {
        return root.fail(format!(
            "is nested too deeply: at most {SESSION_CONFIG_DEPTH_MAX} levels are taken"
        ));
    }
    root.object()?;
    root.opt("type", |f| f.one_of(&["realtime", "transcription"]))?;
    root.opt("model", |f| f.text(1, 256))?;
    root.opt("instructions", |f| f.text(0, SESSION_CONFIG_MAX))?;
    root.opt("output_modalities", |f| {
        f.each(1, 2, |f| f.one_of(&["text", "audio"]))
    })?;
    root.opt("max_output_tokens", Field::token_count)?;
    root.opt("audio", |f| {
        f.object()?;
        f.opt("input", audio_input)?;
        f.opt("output", audio_output)
    })?;
    root.opt("tools", |f| f.each(0, TOOLS_MAX, tool))?;
    root.opt("tool_choice", |f| f.text_or_object())?;
    root.opt("tracing", |f| f.nullable(|f| f.text_or_object()))?;
    root.opt("truncation", |f| f.text_or_object())?;
    root.opt("prompt", |f| {
        f.nullable(|f| {
            f.object()?;
            f.need("id", |f| f.text(1, 256))
        })
    })?;
    root.opt("include", |f| {
        f.nullable(|f| f.each(0, 32, |f| f.text(1, 256)))
    })?;
    match config {
        Value::Object(fields) => Ok(fields),
        _ => Ok(Map::new()),
    }
}

fn audio_input(field: &Field<'_>) -> Checked {
    field.object()?;
    field.opt("format", format)?;
    field.opt("noise_reduction", |f| {
        f.nullable(|f| {
            f.object()?;
            f.need("type", |f| f.one_of(&["near_field", "far_field"]))
        })
    })?;
    field.opt("transcription", |f| {
        f.nullable(|f| {
            f.object()?;
            f.opt("model", |f| f.text(1, 256))?;
            f.opt("language", |f| f.text(1, 64))?;
            f.opt("prompt", |f| f.text(0, SESSION_CONFIG_MAX))
        })
    })?;
    field.opt("turn_detection", |f| f.nullable(turn_detection))
}

fn audio_output(field: &Field<'_>) -> Checked {
    field.object()?;
    field.opt("format", format)?;
    field.opt("voice", |f| match f.value {
        Value::Object(_) => f.need("id", |f| f.text(1, 256)),
        _ => f.text(1, 256),
    })?;
    field.opt("speed", |f| f.number(0.25, 1.5))
}

fn format(field: &Field<'_>) -> Checked {
    field.object()?;
    field.need("type", |f| {
        f.one_of(&["audio/pcm", "audio/pcmu", "audio/pcma"])
    })?;
    let pcm = field.value["type"] == "audio/pcm";
    field.opt("rate", |f| {
        if pcm {
            f.whole(24_000, 24_000)
        } else {
            f.whole(8_000, 8_000)
        }
    })
}

fn turn_detection(field: &Field<'_>) -> Checked {
    field.object()?;
    field.need("type", |f| f.one_of(&["server_vad", "semantic_vad"]))?;
    field.opt("threshold", |f| f.number(0.0, 1.0))?;
    for name in ["prefix_padding_ms", "silence_duration_ms"] {
        field.opt(name, |f| f.whole(0, 60_000))?;
    }
    field.opt("idle_timeout_ms", |f| f.nullable(|f| f.whole(1, 3_600_000)))?;
    for name in ["create_response", "interrupt_response"] {
        field.opt(name, |f| match f.value {
            Value::Bool(_) => Ok(()),
            _ => f.fail("has to be true or false"),
        })?;
    }
    field.opt("eagerness", |f| {
        f.one_of(&["low", "medium", "high", "auto"])
    })
}

fn tool(field: &Field<'_>) -> Checked {
    field.object()?;
    field.need("type", |f| f.text(1, 64))?;
    if field.value["type"] == "function" {
        field.need("name", |f| f.text(1, 128))?;
        field.opt("description", |f| f.text(0, SESSION_CONFIG_MAX))?;
        field.opt("parameters", Field::object)?;
    }
    Ok(())
}

/// Joins two configurations: what `fixed` says stays, `added` fills what it left open, object by object.
#[must_use]
pub fn merge(fixed: Map<String, Value>, added: Map<String, Value>) -> Map<String, Value> {
    let mut merged = added;
    for (name, value) in fixed {
        let joined = match (value, merged.remove(&name)) {
            (Value::Object(fixed), Some(Value::Object(added))) => {
                Value::Object(merge(fixed, added))
            }
            (value, _) => value,
        };
        merged.insert(name, joined);
    }
    merged
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(value: Value) -> Map<String, Value> {
        value.as_object().expect("an object").clone()
    }

    #[test]
    fn what_would_be_too_deep_for_those_that_it_is_handed_to_is_refused_here() {
        let nested = |levels: usize| {
            let inner = (1..levels).fold(json!({}), |inner, _| json!([inner]));
            json!({ "own": inner })
        };
        assert!(check(nested(SESSION_CONFIG_DEPTH_MAX - 1)).is_ok());
        for levels in [SESSION_CONFIG_DEPTH_MAX, 120] {
            let error = check(nested(levels)).expect_err("too deep");
            assert_eq!(error.path, "session");
            assert!(error.problem.contains("nested"), "{error}");
        }
    }

    #[test]
    fn a_whole_configuration_passes_unchanged() {
        let config = json!({
            "type": "realtime",
            "model": "gpt-realtime",
            "instructions": "Speak briefly.",
            "output_modalities": ["audio"],
            "max_output_tokens": "inf",
            "audio": {
                "input": {
                    "format": { "type": "audio/pcm", "rate": 24000 },
                    "noise_reduction": null,
                    "transcription": { "model": "whisper-1", "language": "de" },
                    "turn_detection": {
                        "type": "server_vad", "threshold": 0.5, "prefix_padding_ms": 300,
                        "silence_duration_ms": 200, "create_response": true, "interrupt_response": false
                    }
                },
                "output": { "format": { "type": "audio/pcmu" }, "voice": "marin", "speed": 1.1 }
            },
            "tools": [{ "type": "function", "name": "weather", "parameters": { "type": "object" } }],
            "tool_choice": "auto",
            "tracing": null,
            "truncation": { "type": "retention_ratio", "retention_ratio": 0.8 },
            "prompt": { "id": "pmpt_1" },
            "include": ["item.input_audio_transcription.logprobs"],
            "a_field_of_some_backend": [1, 2]
        });
        assert_eq!(check(config.clone()), Ok(object(config)));
        assert_eq!(check(json!({})), Ok(Map::new()));
    }

    #[test]
    fn every_slip_is_told_by_its_field() {
        let long = "x".repeat(SESSION_CONFIG_MAX);
        for (config, path) in [
            (json!([]), "session"),
            (json!({ "instructions": long }), "session"),
            (json!({ "type": "chat" }), "session.type"),
            (json!({ "model": "" }), "session.model"),
            (json!({ "model": 7 }), "session.model"),
            (
                json!({ "output_modalities": [] }),
                "session.output_modalities",
            ),
            (
                json!({ "output_modalities": ["video"] }),
                "session.output_modalities[0]",
            ),
            (
                json!({ "max_output_tokens": 0 }),
                "session.max_output_tokens",
            ),
            (
                json!({ "max_output_tokens": 9_007_199_254_740_992_u64 }),
                "session.max_output_tokens",
            ),
            (json!({ "audio": 1 }), "session.audio"),
            (
                json!({ "audio": { "input": { "format": "pcm16" } } }),
                "session.audio.input.format",
            ),
            (
                json!({ "audio": { "input": { "format": {} } } }),
                "session.audio.input.format.type",
            ),
            (
                json!({ "audio": { "input": { "format": { "type": "audio/pcm", "rate": 16000 } } } }),
                "session.audio.input.format.rate",
            ),
            (
                json!({ "audio": { "input": { "turn_detection": { "type": "server_vad", "threshold": 1.5 } } } }),
                "session.audio.input.turn_detection.threshold",
            ),
            (
                json!({ "audio": { "output": { "speed": 3 } } }),
                "session.audio.output.speed",
            ),
            (
                json!({ "audio": { "output": { "voice": {} } } }),
                "session.audio.output.voice.id",
            ),
            (
                json!({ "tools": [{ "type": "function" }] }),
                "session.tools[0].name",
            ),
            (json!({ "tools": "all" }), "session.tools"),
            (json!({ "tool_choice": 1 }), "session.tool_choice"),
            (json!({ "prompt": {} }), "session.prompt.id"),
        ] {
            let error = check(config.clone()).expect_err(path);
            assert_eq!(error.path, path, "{config}");
        }
    }

    #[test]
    fn what_a_secret_fixes_stays_and_requests_fill_the_rest() {
        let fixed = object(json!({ "model": "a", "audio": { "output": { "voice": "v" } } }));
        let added = object(
            json!({ "model": "b", "instructions": "i", "audio": { "output": { "voice": "w", "speed": 1 } } }),
        );
        assert_eq!(
            Value::Object(merge(fixed, added)),
            json!({ "model": "a", "instructions": "i", "audio": { "output": { "voice": "v", "speed": 1 } } })
        );
    }

    proptest::proptest! {
        #[test]
        fn any_json_is_taken_or_refused_without_a_panic(text in "[\\[\\]{}:,\"a-z0-9 ]{0,60}") {
            if let Ok(value) = serde_json::from_str::<Value>(&text) {
                let _ = check(value.clone());
                if let Value::Object(fields) = value {
                    let _ = from_beta(fields);
                }
            }
        }
    }
}
