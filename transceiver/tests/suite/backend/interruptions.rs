//! A user who interrupts is heard at once, whatever waits: for the client's channel, or for the worker's turn.

use std::time::{Duration, Instant};

use firsthop_shared::address::SessionId;
use firsthop_transceiver::audio::{
    Codec, Conversation, ConversationSettings, EncoderSettings, MAX_EVENTS, Output,
    PlayoutSettings, QueueState,
};
use firsthop_transceiver::backend::{
    FromServer, Line, Linked, Message, Outgoing, Pipecat, PipecatSettings, Realtime,
    RealtimeSettings, Teller, Translator, Waker, wire,
};
use firsthop_transceiver::limits;
use futures_util::FutureExt as _;
use serde_json::{Value, json};
use tokio::sync::mpsc;

/// A call with a model server, whose connection is the test.
struct Call {
    conversation: Conversation,
    teller: Teller,
    messages: mpsc::Receiver<Outgoing>,
    now: Instant,
}

impl Call {
    fn of(translator: impl Translator + 'static) -> Self {
        let now = Instant::now();
        let (wakes, _) = mpsc::unbounded_channel();
        let waker = Waker::new(SessionId(7), wakes);
        let (linked, Line { teller, messages }) =
            Linked::new(translator, waker, std::sync::Arc::default(), now);
        let settings = ConversationSettings {
            codec: Codec::Pcmu,
            encoder: EncoderSettings::default(),
            playout: PlayoutSettings::default(),
        };
        let mut conversation =
            Conversation::new(Box::new(linked), settings, 0).expect("a conversation");
        conversation.start_playing();
        conversation.events_flow(true);
        let mut call = Self {
            conversation,
            teller,
            messages,
            now,
        };
        assert!(call.tell(FromServer::Connected));
        call
    }

    fn realtime() -> Self {
        let mut call = Self::of(Realtime::new(RealtimeSettings::default()));
        call.say(json!({"type": "session.created", "session": {}}));
        call
    }

    /// One whose client hears the first 200 ms of an answer, while so many events wait for its channel.
    fn with_a_full_channel(count: usize, bytes: usize) -> Self {
        let mut call = Self::realtime();
        call.answer("r1", 5);
        call.wait(100);
        call.words(count, bytes);
        call.wait(100);
        assert!(!call.is_silent());
        call
    }

    /// The server says something; returns whether there was room for it.
    fn tell(&mut self, event: FromServer) -> bool {
        self.teller.tell(event).now_or_never() == Some(true)
    }

    fn say(&mut self, event: Value) {
        let message = Message::Text(event.to_string());
        assert!(self.tell(FromServer::Message(message)));
    }

    /// An answer of so many seconds, by PCM that is silence.
    fn answer(&mut self, response: &str, seconds: usize) {
        for _ in 0..seconds {
            self.say(json!({
                "type": "response.output_audio.delta",
                "response_id": response,
                "item_id": format!("item of {response}"),
                "content_index": 0,
                "delta": "AAAA".repeat(16_000),
            }));
        }
    }

    /// So many events, together of so many bytes at least.
    fn words(&mut self, count: usize, bytes: usize) {
        for n in 0..count {
            self.say(json!({
                "type": "response.output_text.delta",
                "n": n,
                "delta": "x".repeat(bytes / count),
            }));
        }
    }

    fn user_speaks(&mut self) {
        self.say(json!({"type": "input_audio_buffer.speech_started", "item_id": "u"}));
    }

    /// Lets time pass in which the channel takes nothing.
    fn wait(&mut self, ms: u64) {
        for _ in 0..ms {
            while self.conversation.poll_packet(self.now).is_some() {}
            self.now += Duration::from_millis(1);
        }
    }

    fn is_silent(&self) -> bool {
        self.conversation.queued_time() == Duration::ZERO
    }

    /// The channel takes everything.
    fn events(&mut self) -> Vec<Value> {
        let mut events = Vec::new();
        loop {
            let before = events.len();
            while let Some(text) = self.conversation.poll_event() {
                events.push(serde_json::from_str(&text).expect("JSON"));
            }
            self.wait(1);
            if events.len() == before {
                return events;
            }
        }
    }

    fn sent_to_server(&mut self, kind: &str) -> Vec<Value> {
        let sent = std::iter::from_fn(|| self.messages.try_recv().ok());
        let texts = sent.filter_map(|outgoing| match outgoing.message {
            Message::Text(text) => serde_json::from_str::<Value>(&text).ok(),
            Message::Binary(_) => None,
        });
        texts.filter(|event| event["type"] == kind).collect()
    }
}

/// By their number, and by their bytes.
const FULL: [(usize, usize); 2] = [(MAX_EVENTS + 50, 0), (10, 6_000_000)];

#[test]
fn an_interruption_does_not_wait_for_the_channel() {
    for (count, bytes) in FULL {
        let mut call = Call::with_a_full_channel(count, bytes);
        // More of the answer waits in front of it.
        call.answer("r1", 5);
        call.user_speaks();
        call.wait(1);
        assert!(call.is_silent(), "{count} events");
        let cut = call.sent_to_server("conversation.item.truncate");
        let heard: Vec<_> = cut.iter().map(|e| e["audio_end_ms"].as_u64()).collect();
        assert_eq!(heard, [Some(200)]);
        call.wait(1_000);
        let turns = call.conversation.counters().turns;
        assert_eq!(turns.barge_ins.count(), 1);

        // The next answer is heard in its turn, and no event is lost or out of order.
        call.answer("r2", 1);
        call.wait(1_000);
        assert!(call.is_silent());
        let events = call.events();
        assert!(!call.is_silent());
        assert_eq!(call.conversation.counters().dropped_events, 0);
        let numbers = events.iter().filter_map(|e| e["n"].as_u64());
        assert!(numbers.eq(0..count as u64), "{count} events");
        let at = |kind: &str| events.iter().position(|e| e["type"] == kind);
        let order = [
            Some(0),
            events.iter().rposition(|e| e["n"].is_u64()),
            at("input_audio_buffer.speech_started"),
            at("output_audio_buffer.cleared"),
        ];
        assert!(
            order.is_sorted() && order.iter().all(Option::is_some),
            "{order:?}"
        );
    }
}

#[test]
fn a_client_that_wants_silence_does_not_wait_for_its_channel() {
    for (count, bytes) in FULL {
        let mut call = Call::with_a_full_channel(count, bytes);
        let stop = r#"{"type":"output_audio_buffer.clear"}"#;
        call.conversation.client_event(stop, call.now);
        assert!(call.is_silent(), "{count} events");
        call.wait(100);
        let turns = call.conversation.counters().turns;
        assert_eq!(turns.barge_ins.count(), 1);
        assert!(turns.barge_in_max_us <= 20_000, "{turns:?}");
    }
}

#[test]
fn a_server_that_is_interrupted_over_and_over_meets_the_same_bound() {
    let mut call = Call::realtime();
    call.words(MAX_EVENTS + 50, 0);
    call.wait(10);
    let large = json!({"type": "response.output_text.delta", "delta": "x".repeat(1_000_000)});
    let large = || FromServer::Message(Message::Text(large.to_string()));
    let mut taken = 0;
    while call.tell(large()) {
        taken += 1;
        assert!(taken * 1_000_000 <= limits::BACKEND_BYTES_WAITING);
        call.user_speaks();
        call.wait(1);
    }
    assert!(taken > 5, "{taken} are far below the bound");
    let events = call.events();
    let came = events
        .iter()
        .filter(|e| e["delta"].as_str().is_some_and(|x| x.len() > 1_000));
    assert_eq!(came.count(), taken);
    assert!(call.tell(large()), "there is room again");
}

#[test]
fn an_interruption_is_measured_from_when_its_word_came() {
    let pipecat = |kind| FromServer::Message(Message::Binary(wire::write(kind)));
    let second = wire::Kind::Audio(wire::Audio {
        audio: vec![0; 48_000],
        sample_rate: 24_000,
        num_channels: 1,
        ..wire::Audio::default()
    });
    let mut bot = Call::of(Pipecat::new(PipecatSettings::default()));
    assert!(bot.tell(pipecat(second)));
    let mut model = Call::realtime();
    model.answer("r", 1);
    for (mut call, is_bot) in [(model, false), (bot, true)] {
        call.wait(100);
        assert!(!call.is_silent());
        if is_bot {
            let stop = wire::Kind::Interruption(wire::Interruption::default());
            assert!(call.tell(pipecat(stop)));
        } else {
            call.user_speaks();
        }
        // The worker's turn comes late.
        let late = Duration::from_millis(700);
        call.now = call.now.max(Instant::now()) + late;
        call.wait(100);
        let turns = call.conversation.counters().turns;
        assert_eq!(turns.barge_ins.count(), 1, "a bot: {is_bot}");
        assert!(
            turns.barge_in_max_us >= late.as_micros() as u64,
            "{turns:?}, a bot: {is_bot}"
        );
    }
}

#[test]
fn the_time_to_the_first_audio_is_the_server_s_and_not_that_of_its_queue() {
    let mut realtime = Realtime::new(RealtimeSettings::default());
    let start = Instant::now();
    let at = |ms| start + Duration::from_millis(ms);
    let mut say = |event: Value, came, now| {
        let message = Message::Text(event.to_string());
        realtime.server(FromServer::Message(message), came, now);
        let queue = QueueState {
            queued: 0,
            room: 1_000_000,
        };
        while let Some(output) = realtime.poll(queue, now) {
            assert!(!matches!(output, Output::Clear { .. }));
        }
        realtime.take_latency()
    };
    let created = json!({"type": "session.created", "session": {}});
    let stopped = json!({"type": "input_audio_buffer.speech_stopped", "item_id": "u"});
    let audio = json!({"type": "response.output_audio.delta", "response_id": "r", "item_id": "i",
        "content_index": 0, "delta": "AAAA"});
    assert_eq!(say(created, at(0), at(0)), None);
    assert_eq!(say(stopped, at(100), at(5_000)), None);
    let took = say(audio, at(400), at(9_000));
    assert_eq!(took, Some(Duration::from_millis(300)));
}
