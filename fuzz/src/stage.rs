//! A model server that says what it likes, a client, and the translator between them: what the targets of the servers' protocols share.

use std::time::{Duration, Instant};

use firsthop_transceiver::audio::{Input, Output, Playout, PlayoutSettings, QueueState};
use firsthop_transceiver::backend::{FromServer, Loss, LossCause, Message, Translator};
use serde_json::Value;

/// Outputs that one message can make, far above what one does.
const OUTPUTS: usize = 10_000;

/// A session of one translator, with a playout that plays.
///
/// What the client is told is JSON with a type, what one message makes is taken in bounded time, and no more audio comes than there is room
/// for; of what goes to the server `sent` judges.
pub struct Stage<T> {
    translator: T,
    sent: fn(&Message),
    playout: Playout,
    now: Instant,
}

impl<T: Translator> Stage<T> {
    /// A session that has just connected.
    pub fn new(translator: T, sent: fn(&Message)) -> Self {
        let mut stage = Self {
            translator,
            sent,
            playout: Playout::new(PlayoutSettings::default(), 48_000, 0),
            now: Instant::now(),
        };
        stage.server(FromServer::Connected);
        stage
    }

    /// Plays a piece of an input: one that begins with `>` is said by the client, `!` breaks the connection and brings it back, `w` lets time
    /// pass. Of any other `read` makes what the server says.
    pub fn play(&mut self, piece: &[u8], read: fn(&[u8]) -> Option<Message>) {
        match piece.split_first() {
            Some((b'>', said)) => {
                let Ok(said) = std::str::from_utf8(said) else {
                    return;
                };
                self.translator.handle(Input::Event(said), self.now);
                self.settle();
            }
            Some((b'!', _)) => {
                self.server(FromServer::Lost(Loss {
                    cause: LossCause::Closed(None),
                    retry: Some(Duration::ZERO),
                }));
                self.server(FromServer::Connected);
            }
            Some((b'w', frames)) => {
                for _ in 0..frames.first().map_or(1, |n| n % 64) {
                    self.pass();
                }
            }
            _ => {
                if let Some(message) = read(piece) {
                    self.server(FromServer::Message(message));
                }
            }
        }
    }

    /// 20 ms pass, in which the client says nothing.
    fn pass(&mut self) {
        self.now += Duration::from_millis(20);
        while self.playout.poll(self.now).is_some() {
            self.report();
        }
        self.translator.handle(Input::Audio(&[0; 480]), self.now);
        self.translator.tick(self.now);
        self.settle();
    }

    fn server(&mut self, event: FromServer) {
        self.translator.server(event, self.now, self.now);
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
                        (self.sent)(&message);
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
                Some(Output::Clear { .. }) => self.playout.clear(),
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
