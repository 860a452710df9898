//! What an interruption is, and how long it took: a cut of sound that is being played, from when it was asked for until the fade.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use firsthop_transceiver::audio::{
    Backend, Codec, Conversation, ConversationSettings, EncoderSettings, FRAME, Input, ItemId,
    Output, PlayoutSettings, QueueState, Turns,
};

/// A backend that says what its client tells it to: "answer", "end" and "stop".
struct Obeys {
    say: VecDeque<Say>,
    item: ItemId,
}

#[derive(Clone, Copy)]
enum Say {
    /// A tenth of a second of sound.
    Sound(ItemId),
    End(ItemId),
    Stop(Instant),
}

const SOUND: [i16; 5 * FRAME] = [9_000; 5 * FRAME];

impl Backend for Obeys {
    fn handle(&mut self, input: Input<'_>, now: Instant) {
        let Input::Event(text) = input else { return };
        self.say.push_back(match text {
            "answer" => Say::Sound(self.item),
            "end" => {
                let over = self.item;
                self.item.0 += 1;
                Say::End(over)
            }
            _ => {
                self.item.0 += 1;
                Say::Stop(now)
            }
        });
    }

    fn poll(&mut self, _: QueueState, _: Instant) -> Option<Output<'_>> {
        Some(match self.say.pop_front()? {
            Say::Sound(item) => Output::Audio {
                item: Some(item),
                pcm: &SOUND,
            },
            Say::End(item) => Output::Finished(item),
            Say::Stop(asked) => Output::Clear { asked },
        })
    }

    fn deadline(&self) -> Option<Instant> {
        None
    }
}

struct Call {
    conversation: Conversation,
    now: Instant,
    sent: usize,
}

impl Call {
    fn with_tail(silence_tail: Duration) -> Self {
        let backend = Box::new(Obeys {
            say: VecDeque::new(),
            item: ItemId(1),
        });
        let settings = ConversationSettings {
            codec: Codec::Pcmu,
            encoder: EncoderSettings::default(),
            playout: PlayoutSettings {
                silence_tail,
                ..PlayoutSettings::default()
            },
        };
        let mut conversation = Conversation::new(backend, settings, 5_000).unwrap();
        conversation.start_playing();
        Self {
            conversation,
            now: Instant::now(),
            sent: 0,
        }
    }

    fn new() -> Self {
        Self::with_tail(PlayoutSettings::default().silence_tail)
    }

    fn say(&mut self, what: &[&str]) {
        for text in what {
            self.conversation.client_event(text, self.now);
        }
    }

    fn wait(&mut self, ms: u64) {
        for _ in 0..ms {
            while self.conversation.poll_packet(self.now).is_some() {
                self.sent += 1;
            }
            self.now += Duration::from_millis(1);
        }
    }

    fn turns(&self) -> Turns {
        self.conversation.counters().turns
    }
}

#[test]
fn an_answer_is_interrupted_whether_or_not_it_has_come_whole() {
    for said in [&["answer", "answer"][..], &["answer", "answer", "end"]] {
        let mut call = Call::new();
        call.say(said);
        call.wait(50);
        assert!(call.conversation.tap().take_active(), "it is heard");
        call.say(&["stop"]);
        call.wait(500);
        let turns = call.turns();
        assert_eq!(turns.barge_ins.count(), 1, "{said:?}");
        assert!(turns.barge_in_max_us <= 20_000, "{said:?}: {turns:?}");
    }
}

#[test]
fn an_answer_is_heard_up_to_its_last_frame() {
    let mut call = Call::new();
    call.say(&["answer", "end"]);
    for frame in 0..5 {
        assert!(call.conversation.poll_packet(call.now).is_some());
        assert!(call.conversation.tap().take_active(), "frame {frame}");
        call.now += Duration::from_millis(20);
    }
    call.wait(500);
    assert!(!call.conversation.tap().take_active(), "nor is silence");
}

#[test]
fn where_nothing_sounds_nothing_is_interrupted_however_long_the_next_answer_takes() {
    // The answer is over; it ran dry, and silence is sent, or nothing is any more; or it was stopped before.
    for (said, heard) in [
        (&["answer", "end"][..], 150),
        (&["answer"], 150),
        (&["answer"], 2_000),
        (&[], 0),
    ] {
        let mut call = Call::new();
        call.say(said);
        call.wait(heard);
        call.say(&["stop", "stop"]);
        call.wait(10_000);
        call.say(&["answer", "end"]);
        call.wait(500);
        let turns = call.turns();
        assert_eq!(
            turns.barge_ins.count(),
            0,
            "{said:?}, {heard} ms: {turns:?}"
        );
    }
}

#[test]
fn a_cut_behind_which_nothing_is_sent_ends_with_the_sound() {
    // The last frame has left, and no silence would follow it.
    let mut call = Call::with_tail(Duration::ZERO);
    call.say(&["answer"]);
    call.wait(90);
    call.say(&["stop"]);
    let sent = call.sent;
    call.wait(10_000);
    assert_eq!((sent, call.sent), (5, 5), "there is no fade");
    call.say(&["answer", "end"]);
    call.wait(500);
    let turns = call.turns();
    assert_eq!(turns.barge_ins.count(), 1);
    assert!(turns.barge_in_max_us <= 20_000, "{turns:?}");
}
