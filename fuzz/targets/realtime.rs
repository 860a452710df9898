//! The messages of a model server that speaks the Realtime protocol, and what the client says meanwhile. Each piece is a text of the server's;
//! one that begins with `>` is the client's, `#` a binary message, `!` the connection breaks and comes back, `w` time passes.
//!
//! What the client is told is JSON with a type; what one message makes is taken in bounded time; the server is sent text alone.

#![no_main]

use std::time::{Duration, Instant};

use firsthop_fuzz::pieces;
use firsthop_transceiver::audio::{Input, Output, Playout, PlayoutSettings, QueueState};
use firsthop_transceiver::backend::{
    FromServer, Loss, LossCause, Message, Realtime, RealtimeSettings, Translator,
};
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

/// Pieces of one input that are played.
const PIECES: usize = 64;

/// Outputs that one message can make, far above what one does.
const OUTPUTS: usize = 10_000;

fuzz_target!(|data: &[u8]| {
    let mut stage = Stage {
        translator: Realtime::new(RealtimeSettings::default()),
        playout: Playout::new(PlayoutSettings::default(), 48_000, 0),
        now: Instant::now(),
    };
    stage.server(FromServer::Connected);
    for piece in pieces(data).take(PIECES) {
        stage.play(piece);
    }
});

struct Stage {
    translator: Realtime,
    playout: Playout,
    now: Instant,
}

impl Stage {
    fn play(&mut self, piece: &[u8]) {
        let text = |bytes: &[u8]| std::str::from_utf8(bytes).map(str::to_owned).ok();
        match piece.split_first() {
            Some((b'#', bytes)) => {
                self.server(FromServer::Message(Message::Binary(bytes.to_vec())));
            }
            Some((b'!', _)) => {
                self.server(FromServer::Lost(Loss {
                    cause: LossCause::Closed(None),
                    retry: Some(Duration::ZERO),
                }));
                self.server(FromServer::Connected);
            }
            Some((b'>', said)) => {
                let Some(said) = text(said) else { return };
                self.translator.handle(Input::Event(&said), self.now);
                self.settle();
            }
            Some((b'w', frames)) => {
                for _ in 0..frames.first().map_or(1, |n| n % 64) {
                    self.now += Duration::from_millis(20);
                    while self.playout.poll(self.now).is_some() {
                        self.report();
                    }
                    self.translator.handle(Input::Audio(&[0; 480]), self.now);
                    self.translator.tick(self.now);
                    self.settle();
                }
            }
            _ => {
                let Some(said) = text(piece) else { return };
                self.server(FromServer::Message(Message::Text(said)));
            }
        }
    }

    fn server(&mut self, event: FromServer) {
        self.translator.server(event, self.now);
        self.settle();
    }

    fn settle(&mut self) {
        for _ in 0..OUTPUTS {
            let queue = QueueState {
                queued: self.playout.queued(),
                room: self.playout.room(),
            };
            match self.translator.poll(queue, self.now) {
                None => {
                    while let Some(message) = self.translator.poll_server() {
                        assert!(matches!(message, Message::Text(_)));
                    }
                    return;
                }
                Some(Output::Event(text)) => {
                    let event: Value = serde_json::from_str(&text).expect("JSON");
                    assert!(event["type"].is_string(), "{text}");
                }
                Some(Output::Audio { item, pcm }) => {
                    assert!(pcm.len() <= queue.room, "more than there is room for");
                    self.playout.push(item, pcm, self.now);
                }
                Some(Output::Finished(item)) => self.playout.finish(item),
                Some(Output::Clear) => self.playout.clear(),
                Some(Output::Encoded { .. }) => panic!("nothing is passed through here"),
                Some(Output::End(_)) => return,
            }
            self.report();
        }
        panic!("one message makes outputs without an end");
    }

    fn report(&mut self) {
        while let Some(event) = self.playout.poll_event() {
            self.translator.handle(Input::Playout(event), self.now);
        }
    }
}
