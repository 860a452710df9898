//! The protobuf frames of a bot of Pipecat's, and what the client says meanwhile. Each piece is a frame of the bot's; one that begins with `>`
//! is the client's, `#` a text message, `!` the connection breaks and comes back, `w` time passes.
//!
//! A frame that is read is the same after it was written; what the client is told is JSON with a type; what one frame makes is taken in
//! bounded time; the bot is sent frames of the kinds that it knows.

#![no_main]

use firsthop_fuzz::{Stage, pieces};
use firsthop_transceiver::backend::{Message, Pipecat, PipecatSettings, wire};
use libfuzzer_sys::fuzz_target;

/// Pieces of one input that are played.
const PIECES: usize = 64;

fuzz_target!(|data: &[u8]| {
    let mut stage = Stage::new(Pipecat::new(PipecatSettings::default()), sent);
    for piece in pieces(data).take(PIECES) {
        if let Some(kind) = wire::read(piece).and_then(|frame| frame.frame) {
            let again = wire::read(&wire::write(kind.clone()));
            assert_eq!(again.and_then(|frame| frame.frame), Some(kind));
        }
        stage.play(piece, read);
    }
});

fn read(piece: &[u8]) -> Option<Message> {
    match piece.split_first() {
        Some((b'#', text)) => String::from_utf8(text.to_vec()).ok().map(Message::Text),
        _ => Some(Message::Binary(piece.to_vec())),
    }
}

fn sent(message: &Message) {
    let Message::Binary(bytes) = message else {
        panic!("a bot is sent frames alone");
    };
    let kind = wire::read(bytes).expect("a frame").frame;
    assert!(kind.is_some(), "of a kind that it knows");
}
