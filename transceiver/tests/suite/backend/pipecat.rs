//! Golden transcripts of conversations with a Pipecat bot, as `transcripts.rs` has them of model servers; in `tests/transcripts/pipecat`.
//!
//! | line | means |
//! |---|---|
//! | `settings` | the session's configuration and the bot's rate |
//! | `connected`, `lost` | the connection comes and goes |
//! | `bot_text`, `bot_transcription`, `bot_message`, `bot_interruption` | the bot sends such a frame |
//! | `bot_audio` | sound of so many milliseconds, with its rate and channels |
//! | `client` | the client sends an event |
//! | `client_audio_ms` | the client speaks |
//! | `wait` | nothing happens until then |
//! | **out:** `to_client` | an event |
//! | `to_bot`, `to_bot_audio` | a frame; sound, added up |
//! | `ended` | the session ends |

use std::time::{Duration, Instant};

use firsthop_transceiver::audio::{FRAME, Input, Output, Playout, PlayoutSettings, QueueState};
use firsthop_transceiver::backend::wire::{self, Kind};
use firsthop_transceiver::backend::{
    FromServer, Glance, Loss, LossCause, Message, Pipecat, PipecatSettings, Translator,
};
use proptest::prelude::*;
use serde_json::{Value, json};

struct Stage {
    pipecat: Pipecat,
    playout: Playout,
    start: Instant,
    now: u64,
    ended: bool,
    out: Vec<Value>,
}

impl Stage {
    fn new(settings: &Value) -> Self {
        let rate = settings.get("rate").cloned();
        Self {
            pipecat: Pipecat::new(PipecatSettings {
                session: settings["session"].as_object().cloned().unwrap_or_default(),
                rate: rate
                    .map(|rate| serde_json::from_value(rate).expect("a rate"))
                    .unwrap_or_default(),
                seed: 5,
            }),
            playout: Playout::new(PlayoutSettings::default(), 48_000, 0),
            start: Instant::now(),
            now: 0,
            ended: false,
            out: Vec::new(),
        }
    }

    fn instant(&self) -> Instant {
        self.start + Duration::from_millis(self.now)
    }

    fn note(&mut self, name: &str, value: Value) {
        self.out.push(json!({"at": self.now, name: value}));
    }

    fn settle(&mut self) {
        let now = self.instant();
        self.pipecat.tick(now);
        for _ in 0..10_000 {
            let queue = QueueState {
                queued: self.playout.queued(),
                room: self.playout.room(),
            };
            match self.pipecat.poll(queue, now) {
                None => {
                    self.upstream();
                    let due = self.pipecat.deadline();
                    assert!(due.is_none_or(|at| at > now), "due after all was done");
                    return;
                }
                Some(Output::Event(text)) => {
                    let event = serde_json::from_str(&text).expect("an event is JSON");
                    self.note("to_client", event);
                }
                Some(Output::Audio { item, pcm }) => {
                    assert_eq!(self.playout.push(item, pcm, now), pcm.len());
                }
                Some(Output::Finished(item)) => self.playout.finish(item),
                Some(Output::Clear { .. }) => self.playout.clear(),
                Some(Output::End(why)) => {
                    assert!(!std::mem::replace(&mut self.ended, true), "it ends once");
                    self.note("ended", format!("{why:?}").into());
                }
            }
            self.report();
        }
        panic!("it never ends");
    }

    fn report(&mut self) {
        let now = self.instant();
        while let Some(event) = self.playout.poll_event() {
            self.pipecat.handle(Input::Playout(event), now);
        }
    }

    fn upstream(&mut self) {
        while let Some(message) = self.pipecat.poll_server() {
            let Message::Binary(bytes) = message else {
                panic!("frames are binary");
            };
            let frame = wire::read(&bytes).expect("a frame");
            match frame.frame.expect("of a kind") {
                Kind::Audio(audio) => {
                    assert_eq!(audio.num_channels, 1);
                    let ms = audio.audio.len() as u64 * 500 / u64::from(audio.sample_rate);
                    let rate = audio.sample_rate;
                    match self.out.last_mut() {
                        Some(last) if last["to_bot_audio"]["rate"] == rate => {
                            let sum = last["to_bot_audio"]["ms"].as_u64().expect("ms");
                            last["to_bot_audio"]["ms"] = (sum + ms).into();
                        }
                        _ => self.note("to_bot_audio", json!({"ms": ms, "rate": rate})),
                    }
                }
                Kind::Text(text) => self.note("to_bot", json!({"text": text.text})),
                Kind::Transcription(said) => self.note(
                    "to_bot",
                    json!({"transcription": said.text, "user": said.user_id}),
                ),
                Kind::Message(message) => {
                    let data: Value = serde_json::from_str(&message.data).expect("JSON");
                    self.note("to_bot", json!({"message": data}));
                }
                Kind::Interruption(_) => self.note("to_bot", json!("interruption")),
            }
        }
    }

    fn wait_until(&mut self, at: u64) {
        while self.now < at {
            self.now += 1;
            let now = self.instant();
            let mut sent = false;
            while self.playout.poll(now).is_some() {
                self.report();
                sent = true;
            }
            if sent || self.pipecat.deadline().is_some_and(|due| due <= now) {
                self.settle();
            }
        }
    }

    fn tell(&mut self, event: FromServer) {
        let now = self.instant();
        self.pipecat.server(event, now, now);
        self.settle();
    }

    fn frame(&mut self, kind: Kind) {
        self.tell(FromServer::Message(Message::Binary(wire::write(kind))));
    }

    /// Plays one line of the file; returns whether it is one that goes in.
    fn play(&mut self, line: &Value) {
        let at = line["at"].as_u64().expect("a time");
        let object = line.as_object().expect("an object");
        let (name, value) = object
            .iter()
            .find(|(name, _)| *name != "at")
            .expect("a member");
        let words = || value.as_str().unwrap_or_default().to_owned();
        if name.starts_with("to_") || name == "ended" {
            return;
        }
        self.wait_until(at);
        self.out.push(line.clone());
        match name.as_str() {
            "connected" => self.tell(FromServer::Connected),
            "lost" => {
                let code = value["code"].as_u64().map(|code| code as u16);
                let retry = value["retry_ms"].as_u64().map(Duration::from_millis);
                let cause = LossCause::Closed(code);
                self.tell(FromServer::Lost(Loss { cause, retry }));
            }
            "bot_text" => self.frame(Kind::Text(wire::Text {
                text: words(),
                ..Default::default()
            })),
            "bot_transcription" => self.frame(Kind::Transcription(wire::Transcription {
                text: words(),
                ..Default::default()
            })),
            "bot_message" => {
                let data = value.to_string();
                self.frame(Kind::Message(wire::Note { data }));
            }
            "bot_interruption" => self.frame(Kind::Interruption(wire::Interruption::default())),
            "bot_audio" => {
                let number = |name: &str, otherwise| value[name].as_u64().unwrap_or(otherwise);
                let (rate, channels) = (number("rate", 24_000), number("channels", 1));
                let bytes = number("ms", 0) * rate / 1_000 * channels * 2;
                self.frame(Kind::Audio(wire::Audio {
                    audio: vec![1; bytes as usize],
                    sample_rate: rate as u32,
                    num_channels: channels as u32,
                    ..Default::default()
                }));
            }
            "client" => {
                let now = self.instant();
                self.pipecat.handle(Input::Event(&value.to_string()), now);
                self.settle();
            }
            "client_audio_ms" => {
                for _ in 0..value.as_u64().expect("ms") / 20 {
                    let now = self.instant();
                    self.pipecat.handle(Input::Audio(&[7; FRAME]), now);
                    self.settle();
                    self.wait_until(self.now + 20);
                }
            }
            "settings" | "wait" => {}
            other => panic!("no such line: {other}"),
        }
    }
}

fn check(name: &str) -> Vec<Value> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/transcripts/pipecat");
    let path = std::path::Path::new(folder).join(format!("{name}.jsonl"));
    let file = std::fs::read_to_string(&path).expect("the transcript");
    let lines: Vec<Value> = file
        .lines()
        .map(|line| serde_json::from_str(line).expect(line))
        .collect();
    let mut stage = Stage::new(&lines[0]["settings"]);
    for line in &lines {
        stage.play(line);
    }
    let played: Vec<String> = stage.out.iter().map(Value::to_string).collect();
    if std::env::var_os("UPDATE_TRANSCRIPTS").is_some() {
        std::fs::write(path, played.join("\n") + "\n").expect("written");
    } else {
        assert_eq!(lines, stage.out, "{name}:\n{}", played.join("\n"));
    }
    stage.out
}

fn of_type<'a>(lines: &'a [Value], kind: &str) -> Vec<(u64, &'a Value)> {
    let told = |line: &'a Value| Some((line["at"].as_u64()?, line.get("to_client")?));
    let mut found: Vec<_> = lines.iter().filter_map(told).collect();
    found.retain(|(_, event)| event["type"] == kind);
    found
}

#[test]
fn an_interruption_is_seen_before_its_turn() {
    let bot = Pipecat::new(PipecatSettings::default());
    let glance = |frame| bot.glance(&Message::Binary(wire::write(frame)));
    let interruption = Kind::Interruption(wire::Interruption::default());
    assert_eq!(glance(interruption), Glance::Interruption);
    assert_eq!(glance(Kind::Text(wire::Text::default())), Glance::Plain);
    assert_eq!(bot.glance(&Message::Binary(vec![0xff])), Glance::Plain);
    let text = Message::Text("interruption".to_owned());
    assert_eq!(bot.glance(&text), Glance::Plain);
}

#[test]
fn a_bot_that_says_when_it_speaks() {
    let lines = check("rtvi-turn");
    let first = lines.iter().find_map(|line| line.get("to_client"));
    assert_eq!(first.expect("an event")["type"], "session.created");
    let started = of_type(&lines, "output_audio_buffer.started");
    let stopped = of_type(&lines, "output_audio_buffer.stopped");
    assert_eq!((started.len(), stopped.len()), (1, 1));
    // A second of sound came in half of one, and is played in a second.
    assert!((980..=1_020).contains(&(stopped[0].0 - started[0].0)));
    let said = of_type(
        &lines,
        "conversation.item.input_audio_transcription.completed",
    );
    assert_eq!(said.len(), 1);
    assert_eq!(said[0].1["transcript"], "What time is it?");
    let done = of_type(&lines, "response.done");
    assert_eq!(done[0].1["response"]["status"], "completed");
    assert_eq!(
        of_type(&lines, "response.output_audio_transcript.done")[0].1["transcript"],
        "It is noon."
    );
}

#[test]
fn a_bot_of_frames_alone() {
    let lines = check("plain-frames");
    assert_eq!(of_type(&lines, "response.created").len(), 1);
    assert_eq!(of_type(&lines, "response.done").len(), 1);
    assert_eq!(of_type(&lines, "output_audio_buffer.stopped").len(), 1);
}

#[test]
fn an_interruption() {
    let lines = check("interruption");
    let at = lines
        .iter()
        .find(|line| line.get("bot_interruption").is_some())
        .and_then(|line| line["at"].as_u64())
        .expect("an interruption");
    let cleared = of_type(&lines, "output_audio_buffer.cleared");
    assert_eq!(cleared.len(), 1, "once, though it came twice");
    assert_eq!(cleared[0].0, at);
    let truncated = of_type(&lines, "conversation.item.truncated");
    let started = of_type(&lines, "output_audio_buffer.started")[0].0;
    let sent = truncated[0].1["audio_end_ms"].as_u64().expect("a time");
    assert!(sent.abs_diff(at - started) <= 40, "{sent} ms");
    assert_eq!(
        of_type(&lines, "response.done")[0].1["response"]["status"],
        "cancelled"
    );
    assert_eq!(of_type(&lines, "output_audio_buffer.started").len(), 2);
}

#[test]
fn what_a_client_may_say() {
    let lines = check("client-events");
    let codes: Vec<_> = of_type(&lines, "error")
        .iter()
        .map(|(_, event)| event["error"]["code"].as_str().expect("a code"))
        .collect();
    assert_eq!(codes, ["unsupported_event"; 3]);
    assert_eq!(of_type(&lines, "session.updated").len(), 1);
}

#[test]
fn sound_of_other_rates_and_sound_that_cannot_be_played() {
    let lines = check("rates");
    let errors = of_type(&lines, "error");
    assert_eq!(errors.len(), 1, "told once");
    assert_eq!(errors[0].1["error"]["code"], "backend_audio_unsupported");
    let started = of_type(&lines, "output_audio_buffer.started")[0].0;
    let stopped = of_type(&lines, "output_audio_buffer.stopped")[0].0;
    assert!(
        (1_460..=1_540).contains(&(stopped - started)),
        "three times half a second"
    );
}

#[test]
fn a_connection_that_is_made_again_and_one_that_is_not() {
    let lines = check("reconnect");
    assert_eq!(of_type(&lines, "session.created").len(), 1);
    let updated = of_type(&lines, "session.updated");
    assert_eq!((updated.len(), updated[0].0), (1, 350), "made again");
    let codes: Vec<_> = of_type(&lines, "error")
        .iter()
        .map(|(_, event)| event["error"]["code"].as_str().expect("a code"))
        .collect();
    assert_eq!(
        codes,
        ["backend_disconnected", "backend_error", "backend_closed"]
    );
    assert_eq!(
        of_type(&lines, "response.done")[0].1["response"]["status"],
        "failed"
    );
    assert_eq!(
        lines.last().expect("a line").get("wait"),
        Some(&json!(true))
    );
    assert_eq!(lines.iter().filter(|l| l.get("ended").is_some()).count(), 1);
}

#[test]
fn of_messages_that_cannot_be_read_the_client_is_told_once_and_why() {
    let not_json = || wire::write(Kind::Message(wire::Note { data: "{".into() }));
    for (message, expected) in [
        (Message::Text("hello".to_owned()), "a text message"),
        (
            Message::Binary(b"hello".to_vec()),
            "none of Pipecat's frames",
        ),
        (Message::Binary(not_json()), "not JSON"),
    ] {
        let mut stage = Stage::new(&json!({}));
        stage.tell(FromServer::Connected);
        for _ in 0..3 {
            stage.tell(FromServer::Message(message.clone()));
        }
        let told: Vec<_> = of_type(&stage.out, "error");
        assert_eq!(told.len(), 1, "{expected}");
        let error = &told[0].1["error"];
        assert_eq!(error["code"], "backend_message_unreadable");
        let text = error["message"].as_str().expect("a message");
        assert!(text.contains(expected), "{text}");
        assert_eq!(stage.pipecat.counters().malformed, 3);
        // What can be read is still told.
        stage.frame(Kind::Text(wire::Text {
            text: "Hi.".into(),
            ..Default::default()
        }));
        assert_eq!(of_type(&stage.out, "response.created").len(), 1);
    }
}

fn kind() -> impl Strategy<Value = Kind> {
    let data = prop_oneof![
        Just(r#"{"label":"rtvi-ai","type":"bot-stopped-speaking"}"#.to_owned()),
        Just(r#"{"label":"rtvi-ai","type":"user-started-speaking","data":7}"#.to_owned()),
        Just(r#"{"label":"rtvi-ai","type":"user-stopped-speaking"}"#.to_owned()),
        Just(r#"{"label":"rtvi-ai","type":"bot-tts-text","data":{"text":"w"}}"#.to_owned()),
        Just(r#"{"label":"rtvi-ai","type":"error","data":[]}"#.to_owned()),
        "[ -~]{0,40}",
    ];
    prop_oneof![
        4 => (prop::collection::vec(any::<u8>(), 0..4_000), prop::sample::select(vec![0_u32, 8_000, 16_000, 24_000, 44_100, 1 << 31]), 0..3_u32)
            .prop_map(|(audio, sample_rate, num_channels)| Kind::Audio(wire::Audio { audio, sample_rate, num_channels, ..Default::default() })),
        2 => "\\PC{0,20}".prop_map(|text| Kind::Text(wire::Text { text, ..Default::default() })),
        1 => "\\PC{0,20}".prop_map(|text| Kind::Transcription(wire::Transcription { text, ..Default::default() })),
        2 => data.prop_map(|data| Kind::Message(wire::Note { data })),
        2 => Just(Kind::Interruption(wire::Interruption::default())),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn no_bytes_of_a_bot_are_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), text in "\\PC{0,200}") {
        let mut stage = Stage::new(&json!({}));
        stage.tell(FromServer::Connected);
        stage.tell(FromServer::Message(Message::Binary(bytes)));
        stage.tell(FromServer::Message(Message::Text(text.clone())));
        stage.pipecat.handle(Input::Event(&text), stage.start);
        stage.settle();
    }

    #[test]
    fn what_is_told_of_a_response_is_told_once_and_in_order(frames in prop::collection::vec((kind(), 0..400_u64), 1..40)) {
        let mut stage = Stage::new(&json!({}));
        stage.tell(FromServer::Connected);
        for (kind, wait) in frames {
            stage.frame(kind);
            stage.wait_until(stage.now + wait);
        }
        stage.wait_until(stage.now + 5_000);
        let events: Vec<&Value> = stage.out.iter().filter_map(|line| line.get("to_client")).collect();
        for event in &events {
            let Some(response) = (event["type"] == "response.created").then(|| &event["response"]["id"]) else {
                continue;
            };
            let of_it = |kind: &str| {
                let found = events.iter().enumerate();
                found
                    .filter(|(_, e)| e["type"] == kind && (e["response_id"] == *response || e["response"]["id"] == *response))
                    .map(|(at, _)| at)
                    .collect::<Vec<_>>()
            };
            let count = |kind: &str| of_it(kind).len();
            prop_assert_eq!((count("response.created"), count("response.done")), (1, 1));
            prop_assert!(of_it("response.created") < of_it("response.done"));
            prop_assert!(count("output_audio_buffer.started") <= 1);
            prop_assert!(count("output_audio_buffer.stopped") <= count("output_audio_buffer.started"));
            prop_assert!(count("output_audio_buffer.stopped") + count("output_audio_buffer.cleared") <= 1);
        }
    }
}
