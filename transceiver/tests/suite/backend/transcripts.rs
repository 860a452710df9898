//! Golden transcripts: whole conversations as data, one JSON object a line, in `tests/transcripts`.
//!
//! | line | means |
//! |---|---|
//! | `settings` | how the session begins: its configuration, the fixed format, the client's max-message-size |
//! | `connected`, `lost` | the connection comes and goes |
//! | `server`, `server_audio` | the server says an event; an audio delta of so many milliseconds, or so many `deltas` |
//! | `client`, `client_text`, `client_audio_ms` | the client sends an event, a text, sound of so many milliseconds |
//! | `wait` | nothing happens until then |
//! | **out:** `to_client`, `to_server` | an event |
//! | `to_server_audio_ms` | sound, added up |
//! | `silent_after_frames` | so many frames of sound have been sent, and the first one without |
//! | `ended` | the backend ends the session |
//!
//! `at` is in milliseconds. What goes in is taken from the file and played against a whole conversation on a virtual clock; what comes out
//! has to be what the file says, in its place. With `UPDATE_TRANSCRIPTS=1` the files are written anew: look at the difference then.

mod interruptions;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use firsthop_shared::address::SessionId;
use firsthop_transceiver::audio::{
    Codec, Conversation, ConversationSettings, Encoder, EncoderSettings, MAX_PAYLOAD,
    PlayoutSettings, RtpIn,
};
use firsthop_transceiver::backend::{
    BackendStats, FromServer, Glance, Line, Linked, Loss, LossCause, Message, Realtime,
    RealtimeSettings, Translator as _, Waker,
};
use firsthop_transceiver::channel::Channel;
use serde_json::{Value, json};
use tokio::sync::mpsc;

struct Stage {
    conversation: Conversation,
    line: Line,
    channel: Channel,
    start: Instant,
    now: u64,
    encoder: Encoder,
    packets: u32,
    /// Frames of sound sent, and whether the last frame was one.
    frames: u64,
    sounding: bool,
    ended: bool,
    out: Vec<Value>,
}

fn bytes_per_ms(format: &str) -> usize {
    if format == "pcm" { 48 } else { 8 }
}

impl Stage {
    fn new(settings: &Value) -> Self {
        let start = Instant::now();
        let format = settings.get("format").cloned();
        let realtime = Realtime::new(RealtimeSettings {
            session: settings["session"].as_object().cloned().unwrap_or_default(),
            format: format.map(|format| serde_json::from_value(format).expect("a format")),
            passed: None,
            seed: 5,
        });
        let (wakes, _) = mpsc::unbounded_channel();
        let waker = Waker::new(SessionId(1), wakes);
        let (linked, line) = Linked::new(realtime, waker, Arc::new(BackendStats::default()), start);
        let call = ConversationSettings {
            codec: Codec::Opus,
            encoder: EncoderSettings::default(),
            playout: PlayoutSettings::default(),
        };
        let mut conversation = Conversation::new(Box::new(linked), call, 5_000).expect("codecs");
        conversation.start_playing();
        let max = settings["max_message"].as_u64().unwrap_or(262_144);
        Self {
            conversation,
            line,
            channel: Channel::new(Some(max as usize), start),
            start,
            now: 0,
            encoder: Encoder::new(Codec::Opus, EncoderSettings::default()).expect("an encoder"),
            packets: 0,
            frames: 0,
            sounding: false,
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

    fn drain(&mut self) {
        let now = self.instant();
        while self.conversation.poll_packet(now).is_some() {
            let playout = self.conversation.counters().playout;
            let frames = playout.frames - playout.silent_frames;
            let sounding = frames > self.frames;
            self.frames = frames;
            if self.sounding && !sounding {
                self.note("silent_after_frames", frames.into());
            }
            self.sounding = sounding;
        }
        while let Some(mut text) = self.conversation.poll_event() {
            if !self.channel.fits(text.len()) {
                text = self.channel.shortened(&text);
            }
            let event = serde_json::from_str(&text).expect("an event is JSON");
            self.note("to_client", event);
        }
        while let Ok(outgoing) = self.line.messages.try_recv() {
            let Message::Text(text) = outgoing.message else {
                panic!("only text");
            };
            let event: Value = serde_json::from_str(&text).expect("an event is JSON");
            match event["audio"].as_str() {
                Some(audio) => self.heard(audio),
                None => self.note("to_server", event),
            }
        }
        if !self.ended && self.conversation.ended().is_some() {
            self.ended = true;
            let why = format!("{:?}", self.conversation.ended().expect("ended"));
            self.note("ended", why.into());
        }
        // Otherwise a driver would spin.
        let deadline = self.conversation.deadline();
        assert!(deadline.is_none_or(|at| at > now), "due after all was done");
    }

    fn heard(&mut self, audio: &str) {
        let ms = STANDARD.decode(audio).expect("base64").len() / 48;
        if let Some(last) = self.out.last_mut()
            && let Some(sum) = last["to_server_audio_ms"].as_u64()
        {
            last["to_server_audio_ms"] = (sum + ms as u64).into();
        } else {
            self.note("to_server_audio_ms", ms.into());
        }
    }

    fn tell(&mut self, event: FromServer) {
        let told = self.line.teller.tell(event);
        // There is room: nobody waits here.
        let told = futures_util::FutureExt::now_or_never(told);
        assert_eq!(told, Some(true));
        self.drain();
    }

    fn wait_until(&mut self, at: u64) {
        while self.now < at {
            self.now += 1;
            let now = self.instant();
            if self.conversation.deadline().is_some_and(|due| due <= now) {
                self.drain();
            }
        }
    }

    fn say(&mut self, ms: u64) {
        for n in 0..ms / 20 {
            let tone = |i: usize| (6_000.0 * ((n as usize * 480 + i) as f32 * 0.05).sin()) as i16;
            let frame: [i16; 480] = std::array::from_fn(tone);
            let mut payload = [0; MAX_PAYLOAD];
            let length = self.encoder.encode(&frame, &mut payload).expect("encoded");
            self.packets += 1;
            let packet = RtpIn {
                ssrc: 9,
                sequence: self.packets as u16,
                timestamp: self.packets * 960,
                payload: Arc::from(&payload[..length]),
            };
            let now = self.instant();
            let _ = self.conversation.received(packet, now);
            self.drain();
            self.wait_until(self.now + 20);
        }
    }

    /// Plays one line of the file; returns whether it is one that goes in.
    fn play(&mut self, line: &Value) -> bool {
        let object = line.as_object().expect("an object");
        let at = line["at"].as_u64().expect("a time");
        let (name, value) = object
            .iter()
            .find(|(name, _)| *name != "at")
            .expect("a member");
        let goes_in = matches!(
            name.as_str(),
            "settings"
                | "connected"
                | "lost"
                | "server"
                | "server_audio"
                | "client"
                | "client_text"
                | "client_audio_ms"
                | "wait"
        );
        if !goes_in {
            return false;
        }
        self.wait_until(at);
        assert_eq!(self.now, at, "lines are in order of time: {line}");
        self.out.push(line.clone());
        match name.as_str() {
            "connected" => self.tell(FromServer::Connected),
            "lost" => {
                let cause = match value["code"].as_u64() {
                    Some(code) => LossCause::Closed(Some(code as u16)),
                    None => LossCause::Closed(None),
                };
                let cause = if value["expired"] == true {
                    LossCause::Expired
                } else {
                    cause
                };
                let retry = value["retry_ms"].as_u64().map(Duration::from_millis);
                self.tell(FromServer::Lost(Loss { cause, retry }));
            }
            "server" => self.tell(FromServer::Message(Message::Text(value.to_string()))),
            "server_audio" => {
                let ms = value["ms"].as_u64().expect("ms") as usize;
                let format = value["format"].as_str().unwrap_or("pcm");
                let audio = STANDARD.encode(vec![1; ms * bytes_per_ms(format)]);
                let beta = value["beta"] == true;
                let mut event = json!({
                    "type": if beta { "response.audio.delta" } else { "response.output_audio.delta" },
                    "event_id": "event_audio",
                    "item_id": value["item"],
                    "output_index": 0,
                    "content_index": 0,
                    "delta": audio,
                });
                if let Some(response) = value.get("response") {
                    event["response_id"] = response.clone();
                }
                for _ in 0..value["deltas"].as_u64().unwrap_or(1) {
                    self.tell(FromServer::Message(Message::Text(event.to_string())));
                }
            }
            "client" | "client_text" => {
                let text = value
                    .as_str()
                    .map_or_else(|| value.to_string(), str::to_owned);
                let now = self.instant();
                self.conversation.client_event(&text, now);
                self.drain();
            }
            "client_audio_ms" => self.say(value.as_u64().expect("ms")),
            _ => {}
        }
        true
    }
}

fn path(name: &str) -> PathBuf {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/transcripts");
    PathBuf::from(folder).join(format!("{name}.jsonl"))
}

fn check(name: &str) -> Vec<Value> {
    let file = std::fs::read_to_string(path(name)).expect("the transcript");
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
        std::fs::write(path(name), played.join("\n") + "\n").expect("written");
    } else {
        for (n, (expected, got)) in lines.iter().zip(&stage.out).enumerate() {
            assert_eq!(
                got,
                expected,
                "{name}, line {}; all of it:\n{}",
                n + 1,
                played.join("\n")
            );
        }
        assert_eq!(lines.len(), played.len(), "{name}:\n{}", played.join("\n"));
    }
    stage.out
}

/// The values of a member, with their times.
fn all<'a>(lines: &'a [Value], name: &str) -> Vec<(u64, &'a Value)> {
    lines
        .iter()
        .filter_map(|line| Some((line["at"].as_u64()?, line.get(name)?)))
        .collect()
}

fn of_type<'a>(lines: &'a [Value], name: &str, kind: &str) -> Vec<(u64, &'a Value)> {
    let mut found = all(lines, name);
    found.retain(|(_, event)| event["type"] == kind);
    found
}

/// The responses of which the client was told `output_audio_buffer.` and this, in order.
fn buffers(lines: &[Value], what: &str) -> Vec<Value> {
    let told = of_type(lines, "to_client", &format!("output_audio_buffer.{what}"));
    let responses = told.iter().map(|(_, event)| event["response_id"].clone());
    responses.collect()
}

/// The client's events that errors told it of, with their times.
fn refused(lines: &[Value]) -> Vec<(u64, &str)> {
    let told = of_type(lines, "to_client", "error").into_iter();
    let about = told.filter_map(|(at, event)| Some((at, event["error"]["event_id"].as_str()?)));
    about.collect()
}

#[test]
fn a_plain_turn() {
    let lines = check("plain-turn");
    let kinds: Vec<_> = all(&lines, "to_client")
        .iter()
        .map(|(_, e)| e["type"].as_str())
        .collect();
    assert_eq!(kinds[0], Some("session.created"), "first");
    assert!(
        !kinds.contains(&Some("response.output_audio.delta")),
        "audio goes by the track"
    );
    let started = of_type(&lines, "to_client", "output_audio_buffer.started");
    let stopped = of_type(&lines, "to_client", "output_audio_buffer.stopped");
    assert_eq!((started.len(), stopped.len()), (1, 1));
    // A second of audio came at once, and is played in a second.
    assert!((980..=1_000).contains(&(stopped[0].0 - started[0].0)));
}

#[test]
fn names_of_the_beta() {
    let lines = check("beta-names");
    for (_, event) in all(&lines, "to_client") {
        let kind = event["type"].as_str().expect("a type");
        assert!(
            !kind.starts_with("response.audio") && !kind.starts_with("response.text"),
            "{kind}"
        );
    }
}

#[test]
fn a_server_whose_audio_names_no_response() {
    let lines = check("no-response-id");
    let of = |what| buffers(&lines, what);
    assert_eq!(of("started"), ["resp_1", "resp_2", "resp_3"]);
    assert_eq!(
        of("stopped"),
        ["resp_1", "resp_3"],
        "each that was heard out"
    );
    assert_eq!(
        of("cleared"),
        ["resp_2"],
        "and the one that was interrupted"
    );
    let truncates = of_type(&lines, "to_server", "conversation.item.truncate");
    assert_eq!(truncates.len(), 1);
    assert_eq!(truncates[0].1["item_id"], "item_a2");
}

#[test]
fn a_client_that_clears_and_what_it_may_not_send() {
    let lines = check("client-events");
    let up = all(&lines, "to_server");
    assert!(
        up.iter()
            .all(|(_, e)| e["type"] != "output_audio_buffer.clear")
    );
    assert_eq!(
        of_type(&lines, "to_client", "output_audio_buffer.cleared").len(),
        2
    );
}

#[test]
fn a_tool_call() {
    check("tool-call");
}

#[test]
fn an_error_of_the_servers() {
    check("error");
}

#[test]
fn a_connection_that_is_made_again() {
    let lines = check("reconnect");
    let updates = of_type(&lines, "to_server", "session.update");
    let last = &updates.last().expect("an update").1["session"];
    assert_eq!(
        last["instructions"], "Be long.",
        "the client's word outlives the connection"
    );
    let lost = of_type(&lines, "to_client", "error");
    // Before the first session and after it, each once, however many attempts fail, and whether or not they get as far as a handshake.
    assert_eq!(lost.iter().map(|(at, _)| *at).collect::<Vec<_>>(), [0, 600]);
    assert!(of_type(&lines, "to_server", "conversation.item.truncate").is_empty());
}

/// The stock SDK asks for nothing more while a response has no end, or a `response.create` no answer.
#[test]
fn what_was_open_when_the_connection_broke_is_ended_in_the_servers_place() {
    let lines = check("reconnect-open-responses");
    let done = of_type(&lines, "to_client", "response.done");
    let done: Vec<_> = done
        .iter()
        .map(|(at, e)| (*at, &e["response"]["id"], &e["response"]["status"]))
        .collect();
    assert_eq!(
        done,
        [
            (600, &json!("resp_1"), &json!("failed")),
            (760, &json!("resp_2"), &json!("completed"))
        ]
    );
    let stopped = of_type(&lines, "to_client", "output_audio_buffer.stopped");
    assert_eq!(stopped.len(), 1);
    // What was held until there was a connection has had its response, and the server itself has refused the second.
    assert_eq!(refused(&lines), [(820, "c1"), (1_000, "c2")]);
}

#[test]
fn a_server_that_names_its_responses_anew_with_each_connection() {
    let lines = check("reconnect-same-names");
    let of = |what| buffers(&lines, what);
    assert_eq!(of("started"), ["resp_1", "resp_2", "resp_1", "resp_2"]);
    assert_eq!(of("stopped"), ["resp_1", "resp_1", "resp_2"]);
    assert_eq!(of("cleared"), ["resp_2"]);
}

#[test]
fn what_is_said_while_a_loss_waits_behind_audio_is_for_the_next_connection() {
    let lines = check("reconnect-far-ahead");
    let created = of_type(&lines, "to_client", "session.created");
    let (again, _) = created[1];
    assert!(again >= 1_000, "it waited until there was room: {again}");
    let (heard, ms) = all(&lines, "to_server_audio_ms")[0];
    assert_eq!((heard, ms.as_u64()), (again, Some(100)));
    let item = of_type(&lines, "to_server", "conversation.item.create");
    assert_eq!((item.len(), item[0].0), (1, again));
    // Of two responses that were asked for the first had begun: the word of that waited, too.
    assert_eq!(refused(&lines), [(again, "c9")]);
    assert_eq!(of_type(&lines, "to_client", "response.done").len(), 2);
}

#[test]
fn a_client_of_today_at_a_server_of_the_beta() {
    let lines = check("beta-client");
    let beta: Vec<_> = all(&lines, "to_server")
        .into_iter()
        .filter(|(at, _)| *at < 300)
        .map(|(_, event)| event.to_string())
        .collect();
    assert_eq!(beta.len(), 6);
    for event in beta {
        for name in ["output_modalities", "\"audio\":", "max_output_tokens\""] {
            assert!(!event.contains(name), "{event}");
        }
    }
}

#[test]
fn a_server_that_ends_the_session_is_heard_to_its_end() {
    let lines = check("closed");
    let (ended, why) = all(&lines, "ended")[0];
    assert_eq!(why, "Closed");
    let stopped = of_type(&lines, "to_client", "output_audio_buffer.stopped");
    // An item of which no sound could be read is not waited for.
    assert!((15_000..15_200).contains(&ended), "{ended}");
    assert!(ended >= stopped[0].0, "{ended}");
    let errors = of_type(&lines, "to_client", "error");
    let told = errors
        .iter()
        .map(|(_, e)| (&e["error"]["code"], &e["error"]["event_id"]));
    assert_eq!(
        told.collect::<Vec<_>>(),
        [
            (&json!("backend_closed"), &json!(null)),
            (&json!("backend_closed"), &json!("c1"))
        ]
    );
}

#[test]
fn a_server_that_says_what_cannot_be_read() {
    let lines = check("unreadable");
    let told = of_type(&lines, "to_client", "error");
    assert_eq!(told.len(), 1, "told once");
    assert_eq!(told[0].1["error"]["code"], "backend_message_unreadable");
}

#[test]
fn a_server_whose_hour_is_over() {
    let lines = check("expired");
    let (ended, why) = all(&lines, "ended")[0];
    assert_eq!(why, "Expired");
    let stopped = of_type(&lines, "to_client", "output_audio_buffer.stopped")[0].0;
    assert!(ended >= stopped, "what it has said is played");
}

#[test]
fn an_event_that_is_too_large_for_the_client() {
    check("oversized");
}

#[test]
fn a_server_that_takes_g711() {
    check("g711");
}
