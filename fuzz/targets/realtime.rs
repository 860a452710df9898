//! The messages of a model server that speaks the Realtime protocol, and what the client says meanwhile. Each piece is a text of the server's;
//! one that begins with `>` is the client's, `#` a binary message, `!` the connection breaks and comes back, `w` time passes.
//!
//! What the client is told is JSON with a type; what one message makes is taken in bounded time; the server is sent text alone.

#![no_main]

use firsthop_fuzz::{Stage, pieces};
use firsthop_transceiver::backend::{Message, Realtime, RealtimeSettings};
use libfuzzer_sys::fuzz_target;

/// Pieces of one input that are played.
const PIECES: usize = 64;

fuzz_target!(|data: &[u8]| {
    let translator = Realtime::new(RealtimeSettings::default());
    let mut stage = Stage::new(translator, |message| {
        assert!(matches!(message, Message::Text(_)));
    });
    for piece in pieces(data).take(PIECES) {
        stage.play(piece, read);
    }
});

fn read(piece: &[u8]) -> Option<Message> {
    match piece.split_first() {
        Some((b'#', bytes)) => Some(Message::Binary(bytes.to_vec())),
        _ => String::from_utf8(piece.to_vec()).ok().map(Message::Text),
    }
}
