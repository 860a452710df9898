//! A client that has proven who it is, and then says what it likes behind DTLS: RTP, RTCP, chunks of SCTP, and messages on streams and by protocols
//! of its choice. See [`Caller::play`] for what the pieces of an input mean.

#![no_main]

use firsthop_fuzz::{Caller, pieces};
use libfuzzer_sys::fuzz_target;

/// Pieces of one input that are played.
const PIECES: usize = 48;

fuzz_target!(|data: &[u8]| {
    let mut caller = Caller::connected();
    for piece in pieces(data).take(PIECES) {
        caller.play(piece);
    }
    caller.end();
});
