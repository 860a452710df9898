//! What a client says on its channel, and the payloads of its RTP, to an echo. The first byte is the codec; each piece is an event, or after
//! a `~` a payload. All that the client is told is JSON with a type and an id, and no driver would spin.

#![no_main]

use std::time::{Duration, Instant};

use firsthop_fuzz::pieces;
use firsthop_transceiver::audio::{
    Codec, Conversation, ConversationSettings, Echo, EncoderSettings, RtpIn,
};
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

/// Pieces of one input that are played.
const PIECES: usize = 64;

fuzz_target!(|data: &[u8]| {
    let Some((codec, rest)) = data.split_first() else {
        return;
    };
    let settings = ConversationSettings {
        codec: [Codec::Opus, Codec::Pcmu, Codec::Pcma][usize::from(codec % 3)],
        encoder: EncoderSettings::default(),
        playout: Echo::playout_settings(),
    };
    let echo = Box::new(Echo::new(42));
    let mut conversation = Conversation::new(echo, settings, 5_000).expect("codecs");
    conversation.start_playing();
    let mut now = Instant::now();
    for (index, piece) in (0u16..).zip(pieces(rest).take(PIECES)) {
        match piece.split_first() {
            Some((b'~', payload)) => {
                let packet = RtpIn {
                    ssrc: 1,
                    sequence: index,
                    timestamp: u32::from(index) * settings.codec.clock_rate() / 50,
                    payload: payload.into(),
                };
                let _ = conversation.received(packet, now);
            }
            _ => {
                if let Ok(text) = std::str::from_utf8(piece) {
                    conversation.client_event(text, now);
                }
            }
        }
        while conversation.poll_packet(now).is_some() {}
        while let Some(text) = conversation.poll_event() {
            let event: Value = serde_json::from_str(&text).expect("JSON");
            assert!(event["type"].is_string(), "{text}");
            assert!(event["event_id"].is_string(), "{text}");
        }
        assert!(
            conversation.deadline().is_none_or(|at| at > now),
            "due after all was done"
        );
        now += Duration::from_millis(20);
    }
});
