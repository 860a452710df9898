//! Barge-in: how long a server goes on speaking when a client begins to speak over it. Pure: times are passed in, in nanoseconds since one moment.
//!
//! The server says on the channel `oai-events` that it speaks (`output_audio_buffer.started`), that it hears the client (`input_audio_buffer.speech_started`), and that it
//! has cut itself off (`output_audio_buffer.cleared`). What it said last is the last packet with sound in it, of those before it speaks again: after a cut some silence is
//! sent. A server that hears the client and speaks on, as the embedded echo does, has not been interrupted, and gives no figure.

use std::borrow::Cow;

use serde::Deserialize;

use super::decoding::{Decoder, loudness};
use super::recording::Codec;

/// How loud a packet with sound in it is at least, of 32,768: above what codecs make of silence.
pub(super) const SOUND: f32 = 100.0;

/// How long a server may take to be quiet, having heard the client; then it speaks on.
const PATIENCE_NANOS: u64 = 3_000_000_000;

/// A client that began so long before it was heard began something else.
const VOICE_NANOS: u64 = 3_000_000_000;

/// How long the server spoke on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Interrupted {
    /// From when the client began to speak; nothing when that was too long ago to be what was heard.
    pub from_voice: Option<u64>,
    /// From the event by which the server said that it hears the client; nothing when it was quiet before.
    pub from_event: u64,
}

/// What one client knows of who speaks.
pub struct Interruptions {
    codec: Codec,
    /// The server speaks.
    playing: bool,
    /// When the client began to speak last.
    voice: Option<u64>,
    open: Option<Open>,
    ended: Option<Interrupted>,
}

/// The client speaks over the server.
struct Open {
    voice: Option<u64>,
    event: u64,
    /// The last sound.
    last: u64,
    /// The server has said that it was cut off.
    cut: bool,
    decoder: Decoder,
    samples: Vec<f32>,
}

#[derive(Deserialize)]
struct Event<'a> {
    #[serde(rename = "type", borrow)]
    kind: Cow<'a, str>,
}

impl Interruptions {
    /// Nobody has said anything.
    #[must_use]
    pub fn new(codec: Codec) -> Self {
        Self {
            codec,
            playing: false,
            voice: None,
            open: None,
            ended: None,
        }
    }

    /// The client begins to speak.
    pub fn voice(&mut self, at_nanos: u64) {
        self.voice = Some(at_nanos);
    }

    /// An event of the server's.
    pub fn event(&mut self, text: &[u8], at_nanos: u64) {
        let Ok(event) = serde_json::from_slice::<Event<'_>>(text) else {
            return;
        };
        match &*event.kind {
            "output_audio_buffer.started" => {
                self.close();
                self.playing = true;
            }
            "output_audio_buffer.stopped" => {
                self.close();
                self.playing = false;
            }
            "output_audio_buffer.cleared" => {
                self.playing = false;
                if let Some(open) = &mut self.open {
                    open.cut = true;
                }
            }
            "input_audio_buffer.speech_started" if self.playing => {
                self.close();
                let recent = |at: &u64| *at <= at_nanos && at_nanos - *at <= VOICE_NANOS;
                let voice = self.voice.filter(recent);
                self.open = Decoder::new(self.codec).map(|decoder| Open {
                    voice,
                    event: at_nanos,
                    last: at_nanos,
                    cut: false,
                    decoder,
                    samples: Vec::new(),
                });
            }
            _ => {}
        }
    }

    /// A packet of the server's.
    pub fn packet(&mut self, payload: &[u8], at_nanos: u64) {
        let Some(open) = &mut self.open else {
            return;
        };
        open.samples.clear();
        open.decoder.decode(payload, &mut open.samples);
        if loudness(&open.samples) >= SOUND {
            open.last = at_nanos;
        } else if open.cut {
            return self.close();
        }
        if at_nanos > open.event + PATIENCE_NANOS {
            // It speaks on: that it was cut is of something else.
            self.open = None;
        }
    }

    /// The last interruption, once it is over.
    pub fn ended(&mut self) -> Option<Interrupted> {
        self.ended.take()
    }

    fn close(&mut self) {
        self.ended = self.ended.take().or_else(|| {
            let open = self.open.take().filter(|open| open.cut)?;
            Some(Interrupted {
                from_voice: open.voice.map(|voice| open.last - voice),
                from_event: open.last - open.event,
            })
        });
        self.open = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn said(kind: &str) -> Vec<u8> {
        format!(r#"{{"event_id": "event_1", "type": "{kind}"}}"#).into_bytes()
    }

    struct Talk(Interruptions);

    impl Talk {
        fn begin() -> Self {
            let mut talk = Self(Interruptions::new(Codec::Pcmu));
            talk.event("output_audio_buffer.started", 0);
            talk
        }

        fn event(&mut self, kind: &str, ms: u64) {
            self.0.event(&said(kind), ms * MS);
        }

        /// Packets, loud ones or silent ones, every 20 ms from then until then.
        fn packets(&mut self, loud: bool, ms: std::ops::Range<u64>) {
            let code = if loud { 0x10 } else { 0xff };
            for at in ms.step_by(20) {
                self.0.packet(&[code; 160], at * MS);
            }
        }
    }

    #[test]
    fn an_interruption_is_over_with_the_last_sound() {
        let mut talk = Talk::begin();
        talk.packets(true, 0..1_000);
        talk.0.voice(900 * MS);
        talk.event("input_audio_buffer.speech_started", 1_000);
        talk.packets(true, 1_000..1_060);
        talk.event("output_audio_buffer.cleared", 1_050);
        talk.packets(true, 1_060..1_080);
        assert_eq!(talk.0.ended(), None);
        talk.packets(false, 1_080..1_280);
        let expected = Interrupted {
            from_voice: Some(160 * MS),
            from_event: 60 * MS,
        };
        assert_eq!(talk.0.ended(), Some(expected));
        assert_eq!(talk.0.ended(), None);
        // The next one; nothing is sent after the cut, and the server speaks anew.
        talk.event("output_audio_buffer.started", 5_000);
        talk.event("input_audio_buffer.speech_started", 6_000);
        talk.packets(true, 6_000..6_100);
        talk.event("output_audio_buffer.cleared", 6_090);
        talk.event("output_audio_buffer.started", 7_000);
        let expected = Interrupted {
            from_voice: None,
            from_event: 80 * MS,
        };
        assert_eq!(talk.0.ended(), Some(expected));
    }

    #[test]
    fn a_server_that_speaks_on_was_not_interrupted() {
        let mut talk = Talk::begin();
        talk.event("input_audio_buffer.speech_started", 100);
        talk.packets(true, 100..5_000);
        talk.event("output_audio_buffer.cleared", 5_010);
        talk.packets(false, 5_020..5_100);
        assert_eq!(talk.0.ended(), None);
        // It had come to its end by itself.
        talk.event("output_audio_buffer.started", 6_000);
        talk.event("input_audio_buffer.speech_started", 6_100);
        talk.packets(true, 6_100..6_200);
        talk.event("output_audio_buffer.stopped", 6_200);
        talk.packets(false, 6_200..6_400);
        assert_eq!(talk.0.ended(), None);
    }

    #[test]
    fn who_speaks_while_nobody_else_does_interrupts_nobody() {
        let mut talk = Talk::begin();
        talk.event("output_audio_buffer.stopped", 100);
        talk.event("input_audio_buffer.speech_started", 200);
        talk.event("output_audio_buffer.cleared", 210);
        talk.packets(false, 220..400);
        assert_eq!(talk.0.ended(), None);
        talk.0.event(b"no JSON", 500 * MS);
        talk.0.event(b"{}", 500 * MS);
    }
}
