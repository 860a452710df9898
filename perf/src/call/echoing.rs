//! What a model server says that gives a caller's audio back as it came: so callers can find marks in it, and how long these took.
//!
//! The first half second is not given back: it may have waited for the server, and what follows would be as late for ever. Then the server
//! begins with [`IN_HAND`] of silence, and each message of the caller's follows as soon as it comes. So the caller hears what it said later by
//! that much and by what the way there and back takes, in frames that are never short of audio for want of [`IN_HAND`]; a pause on the way
//! there that is longer stays in the delay from then on, as it does in any jitter buffer that grows and does not shrink.

use std::cmp::Ordering;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::frames::frame;
use super::judge::appended;
use super::model::Format;

/// How much later than it came audio is played: the server's own delay, to be subtracted.
pub const IN_HAND: Duration = Duration::from_millis(60);

/// Messages with audio, each of a frame, that are not given back at the beginning: half a second.
const PASSED_OVER: u32 = 25;

/// What the audio of a delta stands between.
const HEAD: &str = r#"{"type":"response.output_audio.delta","event_id":"e3","response_id":"resp_1","item_id":"item_1","output_index":0,"content_index":0,"delta":""#;
const TAIL: &str = r#""}"#;

/// A delta with this audio, in base64, as a whole frame.
pub(super) fn delta(audio: &str) -> Vec<u8> {
    frame(1, [HEAD, audio, TAIL].concat().as_bytes())
}

/// One conversation's echo.
pub(super) struct Echo {
    format: Format,
    /// Messages with audio that came, the first that is given back included.
    came: u32,
}

impl Echo {
    pub(super) fn new(format: Format) -> Self {
        Self { format, came: 0 }
    }

    /// What is said to a message of the caller's: its audio, if it has any.
    pub(super) fn reply(&mut self, message: &[u8], out: &mut Vec<u8>) {
        let Some(audio) = appended(message) else {
            return;
        };
        match self.came.cmp(&PASSED_OVER) {
            Ordering::Less => {
                self.came += 1;
                return;
            }
            Ordering::Equal => {
                self.came += 1;
                out.extend(delta(&STANDARD.encode(self.format.silence(IN_HAND))));
            }
            Ordering::Greater => {}
        }
        out.extend(delta(&audio));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The deltas in some frames.
    fn said(mut frames: &[u8]) -> Vec<Vec<u8>> {
        let mut found = Vec::new();
        while let [0x81, 126, a, b, rest @ ..] = frames {
            let (text, rest) = rest.split_at(usize::from(u16::from_be_bytes([*a, *b])));
            let event: serde_json::Value = serde_json::from_slice(text).expect("JSON");
            assert_eq!(event["type"], "response.output_audio.delta");
            let audio = event["delta"].as_str().expect("audio");
            found.push(STANDARD.decode(audio).expect("base64"));
            frames = rest;
        }
        assert!(frames.is_empty());
        found
    }

    #[test]
    fn audio_comes_back_as_it_was_after_some_silence_once() {
        for (format, silence) in [
            (Format::Pcmu, vec![0xff; 480]),
            (Format::Pcm, vec![0; 2_880]),
        ] {
            let mut echo = Echo::new(format);
            let mut out = Vec::new();
            let words: Vec<u8> = (0..160).collect();
            let append = format!(
                r#"{{"type":"input_audio_buffer.append","audio":"{}"}}"#,
                STANDARD.encode(&words)
            );
            echo.reply(br#"{"type":"session.update","session":{}}"#, &mut out);
            assert!(out.is_empty(), "nothing was said");
            for _ in 0..PASSED_OVER {
                echo.reply(append.as_bytes(), &mut out);
            }
            assert!(out.is_empty(), "it may have waited");
            echo.reply(append.as_bytes(), &mut out);
            echo.reply(append.as_bytes(), &mut out);
            assert_eq!(said(&out), [silence, words.clone(), words]);
        }
    }
}
