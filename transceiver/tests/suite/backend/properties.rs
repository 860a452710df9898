//! What holds in every conversation, whatever the server and the client say and whenever.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use firsthop_transceiver::audio::{Input, Output, Playout, PlayoutSettings, QueueState};
use firsthop_transceiver::backend::{
    FromServer, Loss, LossCause, Message, Realtime, RealtimeSettings, Translator,
};
use proptest::prelude::*;
use serde_json::{Value, json};

#[derive(Debug, Clone)]
enum Step {
    /// Audio of an item, in milliseconds; the response has the item's number.
    Audio(u8, u16),
    AudioDone(u8),
    ResponseDone(u8),
    SpeechStarted,
    Clear,
    Lost,
    Server(String),
    Client(String),
    /// Time passes, in milliseconds.
    Wait(u16),
}

fn step() -> impl Strategy<Value = Step> {
    let text = prop_oneof![
        Just(r#"{"type":"response.output_audio.delta","item_id":"i1","delta":"%%"}"#.to_owned()),
        Just(r#"{"type":"response.output_audio.delta","item_id":7}"#.to_owned()),
        Just(r#"{"type":"session.updated","session":{"audio":{"output":{"format":{"type":"audio/pcmu"}}}}}"#.to_owned()),
        Just(r#"{"type":"session.updated","session":[]}"#.to_owned()),
        Just(r#"{"type":"error","error":null}"#.to_owned()),
        Just(r#"{"type":"session.update","session":{"audio":{"input":null}}}"#.to_owned()),
        "[ -~]{0,40}",
    ];
    prop_oneof![
        4 => (0..4_u8, 1..400_u16).prop_map(|(item, ms)| Step::Audio(item, ms)),
        2 => (0..4_u8).prop_map(Step::AudioDone),
        2 => (0..4_u8).prop_map(Step::ResponseDone),
        2 => Just(Step::SpeechStarted),
        1 => Just(Step::Clear),
        1 => Just(Step::Lost),
        1 => text.clone().prop_map(Step::Server),
        1 => text.prop_map(Step::Client),
        4 => (1..600_u16).prop_map(Step::Wait),
    ]
}

struct Stage {
    translator: Realtime,
    playout: Playout,
    now: Instant,
    /// Per item: milliseconds that the server gave.
    given: HashMap<String, u64>,
    truncated: HashMap<String, u64>,
    connections: u32,
    /// Events to the client about the playout, by response.
    told: HashMap<String, Vec<String>>,
}

impl Stage {
    fn new() -> Self {
        let mut stage = Self {
            translator: Realtime::new(RealtimeSettings::default()),
            playout: Playout::new(PlayoutSettings::default(), 48_000, 0),
            now: Instant::now(),
            given: HashMap::new(),
            truncated: HashMap::new(),
            connections: 0,
            told: HashMap::new(),
        };
        stage.connect();
        stage
    }

    fn connect(&mut self) {
        self.connections += 1;
        self.translator
            .server(FromServer::Connected, self.now, self.now);
        self.settle();
        self.say(&json!({"type": "session.created", "session": {}}));
    }

    fn say(&mut self, event: &Value) {
        self.text(event.to_string());
    }

    fn text(&mut self, text: String) {
        self.translator
            .server(FromServer::Message(Message::Text(text)), self.now, self.now);
        self.settle();
    }

    fn settle(&mut self) {
        for _ in 0..10_000 {
            let queue = QueueState {
                queued: self.playout.queued(),
                room: self.playout.room(),
            };
            match self.translator.poll(queue, self.now) {
                None => {
                    assert!(self.translator.is_idle(), "two minutes are never full here");
                    return self.upstream();
                }
                Some(Output::Event(text)) => {
                    let event: Value = serde_json::from_str(&text).expect("JSON");
                    let kind = event["type"].as_str().expect("a type").to_owned();
                    if let (Some(kind), Some(response)) = (
                        kind.strip_prefix("output_audio_buffer."),
                        event["response_id"].as_str(),
                    ) {
                        let told = self.told.entry(response.to_owned()).or_default();
                        told.push(kind.to_owned());
                    }
                }
                Some(Output::Audio { item, pcm }) => {
                    assert_eq!(self.playout.push(item, pcm, self.now), pcm.len());
                }
                Some(Output::Finished(item)) => self.playout.finish(item),
                Some(Output::Clear { .. }) => self.playout.clear(),
                Some(Output::End(_)) => panic!("not here"),
            }
            self.report();
        }
        panic!("it never ends");
    }

    fn report(&mut self) {
        while let Some(event) = self.playout.poll_event() {
            self.translator.handle(Input::Playout(event), self.now);
        }
    }

    fn upstream(&mut self) {
        while let Some(message) = self.translator.poll_server() {
            let Message::Text(text) = message else {
                panic!("text");
            };
            let event: Value = serde_json::from_str(&text).unwrap_or_default();
            if event["type"] == "conversation.item.truncate" {
                let item = event["item_id"].as_str().expect("an item").to_owned();
                let ms = event["audio_end_ms"].as_u64().expect("a time");
                assert!(self.truncated.insert(item, ms).is_none(), "cut twice");
            }
        }
    }

    fn wait(&mut self, ms: u16) {
        for _ in 0..ms.div_ceil(20) {
            self.now += Duration::from_millis(20);
            while self.playout.poll(self.now).is_some() {
                self.report();
            }
            self.translator.tick(self.now);
            self.settle();
        }
    }

    fn step(&mut self, step: Step, turn: usize) {
        // A server uses no id again while its connection lasts: each stretch of four items has its own names. Here no other does either, so
        // that what is told of one can be told from the other.
        let name = |n: u8| format!("{}-{}-{n}", self.connections, turn / 12);
        match step {
            Step::Audio(n, ms) => {
                let item = name(n);
                *self.given.entry(item.clone()).or_default() += u64::from(ms);
                let delta = STANDARD.encode(vec![0; usize::from(ms) * 48]);
                self.say(&json!({
                    "type": "response.output_audio.delta", "response_id": item, "item_id": item,
                    "content_index": 0, "delta": delta,
                }));
            }
            Step::AudioDone(n) => self.say(&json!({
                "type": "response.output_audio.done", "item_id": name(n), "content_index": 0,
            })),
            Step::ResponseDone(n) => {
                self.say(&json!({"type": "response.done", "response": {"id": name(n)}}));
            }
            Step::SpeechStarted => {
                self.say(&json!({"type": "input_audio_buffer.speech_started"}));
                assert!(self.playout.queued() == 0, "silence at once");
            }
            Step::Clear => {
                let text = r#"{"type":"output_audio_buffer.clear"}"#;
                self.translator.handle(Input::Event(text), self.now);
                self.settle();
                assert!(self.playout.queued() == 0, "silence at once");
            }
            Step::Lost => {
                let loss = Loss {
                    cause: LossCause::Closed(None),
                    retry: Some(Duration::ZERO),
                };
                self.translator
                    .server(FromServer::Lost(loss), self.now, self.now);
                self.settle();
                self.connect();
            }
            Step::Server(text) => self.text(text),
            Step::Client(text) => {
                self.translator.handle(Input::Event(&text), self.now);
                self.settle();
            }
            Step::Wait(ms) => self.wait(ms),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn what_is_told_of_an_item_is_true_and_told_once(steps in prop::collection::vec(step(), 1..60)) {
        let mut stage = Stage::new();
        let law = steps.iter().any(|step| matches!(step, Step::Server(text) if text.contains("pcmu")));
        for (turn, step) in steps.into_iter().enumerate() {
            stage.step(step, turn);
        }
        // The last connection is lost, too: whatever began has an end, once it has been played.
        stage.step(Step::Lost, 60);
        stage.wait(60 * 400);
        for (item, ms) in &stage.truncated {
            let given = stage.given.get(item).copied().unwrap_or_default();
            // Bytes of PCM taken for G.711 would last longer: three of six for each.
            let given = if law { 6 * given } else { given };
            prop_assert!(*ms <= given, "{item} cut at {ms} of {given} ms");
        }
        for (response, told) in &stage.told {
            let count = |kind: &str| told.iter().filter(|k| *k == kind).count();
            prop_assert!(count("started") <= 1, "{response}: {told:?}");
            prop_assert!(count("stopped") + count("cleared") == 1, "{response}: {told:?}");
            prop_assert!(count("stopped") <= count("started"), "{response}: {told:?}");
        }
    }

    #[test]
    fn no_message_of_a_server_is_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), text in "\\PC{0,200}") {
        let mut stage = Stage::new();
        let now = stage.now;
        stage.translator.server(FromServer::Message(Message::Binary(bytes)), now, now);
        stage.settle();
        stage.text(text);
    }
}
