//! A G.711 client and a backend that speaks the same law: each hears the other's own bytes.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use firsthop_transceiver::audio::{
    Backend, Codec, Conversation, ConversationSettings, EncoderSettings, Format, Input, ItemId,
    Law, Output, PlayoutEvent, PlayoutSettings, QueueState, RtpIn, RtpOut,
};

/// What a backend was told.
#[derive(Default)]
struct Told {
    heard: Vec<u8>,
    playout: Vec<PlayoutEvent>,
}

/// Gives what it was made with, as fast as it is taken.
struct Script {
    law: Law,
    told: Arc<Mutex<Told>>,
    say: VecDeque<Say>,
    /// Memory of what was given last.
    given: Say,
}

enum Say {
    Samples(Vec<i16>),
    Finished,
    Clear(Instant),
}

const ITEM: ItemId = ItemId(7);

impl Backend for Script {
    fn format(&self) -> Format {
        Format::Narrow(self.law)
    }

    fn handle(&mut self, input: Input<'_>, now: Instant) {
        let mut told = self.told.lock().unwrap();
        match input {
            Input::Audio(pcm) => told.heard.extend(pcm.iter().map(|s| self.law.compress(*s))),
            Input::Playout(event) => told.playout.push(event),
            // The client says "stop".
            Input::Event(_) => self.say.push_back(Say::Clear(now)),
        }
    }

    fn poll(&mut self, queue: QueueState, _now: Instant) -> Option<Output<'_>> {
        if let Some(Say::Samples(pcm)) = self.say.front()
            && pcm.len() > queue.room
        {
            return None;
        }
        self.given = self.say.pop_front()?;
        Some(match &self.given {
            Say::Samples(pcm) => Output::Audio {
                item: Some(ITEM),
                pcm,
            },
            Say::Finished => Output::Finished(ITEM),
            Say::Clear(asked) => Output::Clear { asked: *asked },
        })
    }

    fn deadline(&self) -> Option<Instant> {
        None
    }
}

fn settings(codec: Codec) -> ConversationSettings {
    ConversationSettings {
        codec,
        encoder: EncoderSettings::default(),
        playout: PlayoutSettings::default(),
    }
}

fn call(codec: Codec, say: Vec<Say>) -> (Conversation, Arc<Mutex<Told>>) {
    let told = Arc::new(Mutex::default());
    let script = Box::new(Script {
        law: codec.law().unwrap(),
        told: Arc::clone(&told),
        say: say.into(),
        given: Say::Finished,
    });
    let mut conversation = Conversation::new(script, settings(codec), 5_000).unwrap();
    conversation.start_playing();
    (conversation, told)
}

/// Lets time pass; returns what was sent, with its time in milliseconds.
fn listen(
    conversation: &mut Conversation,
    start: Instant,
    times: std::ops::Range<u64>,
) -> Vec<(u64, RtpOut)> {
    let mut sent = Vec::new();
    for ms in times {
        let now = start + Duration::from_millis(ms);
        while let Some(packet) = conversation.poll_packet(now) {
            sent.push((ms, packet));
        }
    }
    sent
}

/// What this codec makes of these bytes.
fn said(codec: Codec, bytes: &[u8]) -> Say {
    let law = codec.law().unwrap();
    Say::Samples(bytes.iter().map(|code| law.expand(*code)).collect())
}

fn every_code() -> Vec<u8> {
    (0..=255).cycle().take(960).collect()
}

#[test]
fn every_byte_reaches_the_backend_unchanged() {
    for codec in [Codec::Pcmu, Codec::Pcma] {
        let (mut conversation, told) = call(codec, Vec::new());
        let start = Instant::now();
        for (n, payload) in every_code().chunks(160).enumerate() {
            let packet = RtpIn {
                ssrc: 1,
                sequence: n as u16,
                timestamp: n as u32 * 160,
                payload: Arc::from(payload),
            };
            conversation.received(packet, start + Duration::from_millis(20 * n as u64));
        }
        let told = told.lock().unwrap();
        assert!(told.heard == every_code(), "{codec:?}");
    }
}

#[test]
fn every_byte_reaches_the_client_unchanged_in_paced_frames() {
    for codec in [Codec::Pcmu, Codec::Pcma] {
        let (mut conversation, told) = call(codec, vec![said(codec, &every_code()), Say::Finished]);
        let sent = listen(&mut conversation, Instant::now(), 0..120);
        assert_eq!(sent.len(), 6);
        let bytes: Vec<u8> = sent.iter().flat_map(|(_, p)| p.payload.to_vec()).collect();
        assert!(bytes == every_code(), "{codec:?}");
        for (n, (at, packet)) in sent.iter().enumerate() {
            assert_eq!(*at, 20 * n as u64);
            assert_eq!(packet.timestamp, 5_000 + 160 * n as u32);
            assert_eq!(packet.marker, n == 0);
        }
        let playout = &told.lock().unwrap().playout;
        assert_eq!(
            *playout,
            [PlayoutEvent::Started(ITEM), PlayoutEvent::Finished(ITEM)]
        );
    }
}

#[test]
fn what_is_cleared_fades_and_is_followed_by_the_silence_of_the_law() {
    for (codec, loud, silence) in [(Codec::Pcmu, 0x80, 0xff), (Codec::Pcma, 0xaa, 0xd5)] {
        let (mut conversation, told) = call(codec, vec![said(codec, &[loud; 8_000])]);
        let start = Instant::now();
        let before = listen(&mut conversation, start, 0..100);
        assert_eq!(before.len(), 5);
        conversation.client_event("stop", start + Duration::from_millis(100));
        let after = listen(&mut conversation, start, 100..2_000);
        let law = codec.law().unwrap();
        let fade: Vec<i16> = after[0].1.payload[..40]
            .iter()
            .map(|c| law.expand(*c))
            .collect();
        assert!(fade.is_sorted_by(|a, b| a >= b) && fade[0] > 30_000 && fade[39] < 2_000);
        assert!(after[0].1.payload[40..].iter().all(|code| *code == silence));
        assert!(after.len() > 5 && after[1..].iter().all(|(_, p)| *p.payload == [silence; 160]));
        let cleared = PlayoutEvent::Cleared {
            item: ITEM,
            sent_ms: 100,
        };
        assert_eq!(told.lock().unwrap().playout.last(), Some(&cleared));
    }
}

#[test]
fn room_is_told_in_samples_of_the_law_and_what_exceeds_it_is_dropped_and_counted() {
    // Two minutes fit.
    let (mut conversation, _) = call(
        Codec::Pcmu,
        vec![
            said(Codec::Pcmu, &[0; 960_000]),
            said(Codec::Pcmu, &[0; 160]),
        ],
    );
    let start = Instant::now();
    assert_eq!(listen(&mut conversation, start, 0..1).len(), 1);
    assert_eq!(conversation.counters().overrun, 0);
    assert!(listen(&mut conversation, start, 1..60).len() >= 2);
    assert_eq!(conversation.counters().overrun, 0);
}

#[test]
fn a_backend_of_another_codec_than_the_call_s_is_refused() {
    for (backend, client) in [
        (Law::Mu, Codec::Pcma),
        (Law::A, Codec::Pcmu),
        (Law::A, Codec::Opus),
    ] {
        let script = Box::new(Script {
            law: backend,
            told: Arc::default(),
            say: VecDeque::new(),
            given: Say::Finished,
        });
        let error = Conversation::new(script, settings(client), 0)
            .err()
            .unwrap();
        assert!(error.to_string().contains("pass audio through"), "{error}");
    }
}
