//! A whole conversation with the echo, on a virtual clock.

mod client_events;

use std::sync::Arc;
use std::time::{Duration, Instant};

use firsthop_transceiver::audio::{
    Codec, Conversation, ConversationSettings, Decoder, Echo, Encoder, EncoderSettings, MAX_EVENTS,
    MAX_PAYLOAD, RtpIn, RtpOut,
};
use serde_json::{Value, json};

use crate::audio::signals::{Noise, aligned, frames, ms, rms, speech};

/// A client and an echo conversation that share a virtual clock of one millisecond.
struct Call {
    conversation: Conversation,
    start: Instant,
    now: u64,
    encoder: Encoder,
    /// Client packets so far.
    packets: u32,
    heard: Decoder,
    pcm: Vec<i16>,
    sent: Vec<(u64, RtpOut)>,
    events: Vec<(u64, Value)>,
}

impl Call {
    fn new() -> Self {
        let settings = ConversationSettings {
            codec: Codec::Opus,
            encoder: EncoderSettings::default(),
            playout: Echo::playout_settings(),
        };
        let echo = Box::new(Echo::new(42));
        Self {
            conversation: Conversation::new(echo, settings, 5_000).unwrap(),
            start: Instant::now(),
            now: 0,
            encoder: Encoder::new(Codec::Opus, EncoderSettings::default()).unwrap(),
            packets: 0,
            heard: Decoder::new(Codec::Opus).unwrap(),
            pcm: Vec::new(),
            sent: Vec::new(),
            events: Vec::new(),
        }
    }

    fn playing() -> Self {
        let mut call = Self::new();
        call.conversation.start_playing();
        call
    }

    fn instant(&self) -> Instant {
        self.start + Duration::from_millis(self.now)
    }

    fn drain(&mut self) {
        let now = self.instant();
        while let Some(packet) = self.conversation.poll_packet(now) {
            self.heard.decode(&packet.payload, &mut self.pcm).unwrap();
            self.sent.push((self.now, packet));
        }
        while let Some(text) = self.conversation.poll_event() {
            self.events
                .push((self.now, serde_json::from_str(&text).unwrap()));
        }
        // Otherwise a driver would spin.
        let deadline = self.conversation.deadline();
        assert!(deadline.is_none_or(|at| at > now), "due after all was done");
    }

    /// Lets time pass; reads the clock only when asked to.
    fn wait(&mut self, milliseconds: u64) {
        for _ in 0..milliseconds {
            self.now += 1;
            let now = self.instant();
            if self.conversation.deadline().is_some_and(|at| at <= now) {
                self.drain();
            }
        }
    }

    fn packet(&mut self, frame: &[i16; 480]) -> RtpIn {
        let mut payload = [0; MAX_PAYLOAD];
        let length = self.encoder.encode(frame, &mut payload).unwrap();
        self.packets += 1;
        RtpIn {
            ssrc: 9,
            sequence: self.packets as u16,
            timestamp: self.packets * 960,
            payload: Arc::from(&payload[..length]),
        }
    }

    /// The client says this, one packet each 20 ms.
    fn say(&mut self, pcm: &[i16]) {
        for frame in frames(pcm) {
            let packet = self.packet(&frame);
            let now = self.instant();
            self.conversation.received(packet, now);
            self.drain();
            self.wait(20);
        }
    }

    fn send(&mut self, event: &Value) {
        let now = self.instant();
        self.conversation.client_event(&event.to_string(), now);
        self.drain();
    }

    fn kinds(&self) -> Vec<&str> {
        self.events
            .iter()
            .map(|(_, e)| e["type"].as_str().unwrap())
            .collect()
    }

    fn event(&self, kind: &str) -> &Value {
        let found = self.events.iter().find(|(_, e)| e["type"] == kind);
        &found
            .unwrap_or_else(|| panic!("no {kind} in {:?}", self.kinds()))
            .1
    }
}

/// Half a second of silence, two seconds of speech, two of silence.
fn utterance() -> Vec<i16> {
    let mut pcm = vec![0; ms(500)];
    pcm.extend(speech(ms(2_000)));
    pcm.extend(vec![0; ms(2_000)]);
    pcm
}

#[test]
fn what_the_client_says_comes_back_after_a_small_delay() {
    let mut call = Call::playing();
    let said = utterance();
    call.say(&said);
    let (alike, lag) = aligned(&said[ms(500)..ms(2_500)], &call.pcm[ms(500)..], ms(400));
    assert!(alike > 0.8, "correlation {alike}");
    // Packets began to leave after the delay, so the lag within what was heard is the two codecs', and a piece of silence
    // that was repeated at the beginning.
    assert!(lag < ms(60), "{lag} samples");
    assert!(
        call.sent[0].0 <= 100,
        "first packet after {} ms",
        call.sent[0].0
    );
    let counters = call.conversation.counters();
    assert_eq!(
        (
            counters.overrun,
            counters.dropped_events,
            counters.unencoded
        ),
        (0, 0, 0)
    );
}

#[test]
fn what_is_no_speech_comes_back_too() {
    let mut call = Call::playing();
    let mut noise = Noise::new(3);
    let hiss: Vec<i16> = (0..ms(2_000)).map(|_| noise.next() / 128).collect();
    call.say(&hiss);
    assert_eq!(call.kinds(), ["session.created"]);
    assert!(rms(&call.pcm[ms(500)..]) > rms(&hiss) / 4.0);
}

#[test]
fn a_turn_has_its_events_in_order_and_in_shape() {
    let mut call = Call::playing();
    call.say(&utterance());
    assert_eq!(
        call.kinds(),
        [
            "session.created",
            "input_audio_buffer.speech_started",
            "output_audio_buffer.started",
            "input_audio_buffer.speech_stopped",
            "input_audio_buffer.committed",
            "output_audio_buffer.stopped",
        ]
    );
    let session = &call.event("session.created")["session"];
    assert!(session["id"].as_str().unwrap().starts_with("sess_"));
    assert_eq!(session["type"], "realtime");
    let started = call.event("input_audio_buffer.speech_started");
    let stopped = call.event("input_audio_buffer.speech_stopped");
    let committed = call.event("input_audio_buffer.committed");
    let item = started["item_id"].as_str().unwrap();
    assert!(item.starts_with("item_"));
    assert_eq!(
        (&stopped["item_id"], &committed["item_id"]),
        (&json!(item), &json!(item))
    );
    assert_eq!(committed["previous_item_id"], Value::Null);
    let (start, end) = (&started["audio_start_ms"], &stopped["audio_end_ms"]);
    assert!((100..=400).contains(&start.as_u64().unwrap()), "{start}");
    assert!((2_800..=3_200).contains(&end.as_u64().unwrap()), "{end}");
    let playing = call.event("output_audio_buffer.started");
    assert!(
        playing["response_id"]
            .as_str()
            .unwrap()
            .starts_with("resp_")
    );
    assert_eq!(
        playing["response_id"],
        call.event("output_audio_buffer.stopped")["response_id"]
    );
    let mut ids: Vec<_> = call
        .events
        .iter()
        .map(|(_, e)| e["event_id"].to_string())
        .collect();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), call.events.len());
}

#[test]
fn output_events_come_with_the_first_and_the_last_packet_of_the_echo() {
    let mut call = Call::playing();
    call.say(&utterance());
    let time = |kind: &str| {
        call.events
            .iter()
            .find(|(_, e)| e["type"] == kind)
            .unwrap()
            .0
    };
    for (input, output) in [
        (
            "input_audio_buffer.speech_started",
            "output_audio_buffer.started",
        ),
        (
            "input_audio_buffer.speech_stopped",
            "output_audio_buffer.stopped",
        ),
    ] {
        let delay = time(output) - time(input);
        assert!(
            (40..=140).contains(&delay),
            "{output} {delay} ms after {input}"
        );
    }
}

#[test]
fn the_next_turn_names_the_one_before() {
    let mut call = Call::playing();
    call.say(&utterance());
    call.say(&utterance());
    let committed: Vec<&Value> = call
        .events
        .iter()
        .map(|(_, e)| e)
        .filter(|e| e["type"] == "input_audio_buffer.committed")
        .collect();
    assert_eq!(committed.len(), 2);
    assert_eq!(committed[1]["previous_item_id"], committed[0]["item_id"]);
}

#[test]
fn a_client_that_stops_sending_in_the_middle_of_a_word_ends_its_turn() {
    let mut call = Call::playing();
    call.say(&speech(ms(1_500)));
    call.wait(3_000);
    assert_eq!(call.kinds().last(), Some(&"output_audio_buffer.stopped"));
    call.wait(10_000);
    assert_eq!(
        call.conversation.deadline(),
        None,
        "an idle call asks for no clock"
    );
}

#[test]
fn after_silence_the_first_packet_has_the_marker_and_the_time_that_passed() {
    let mut call = Call::playing();
    call.say(&speech(ms(400)));
    call.wait(20_000);
    let before = call.sent.len();
    // The client's timestamps went on.
    call.packets += 1_000;
    call.say(&speech(ms(400)));
    let markers: Vec<usize> = (0..call.sent.len())
        .filter(|n| call.sent[*n].1.marker)
        .collect();
    // The second is the silence that is filled in for a client that stopped without a word.
    assert_eq!((markers.len(), markers[0], markers[2]), (3, 0, before));
    let (first, again) = (&call.sent[0], &call.sent[before]);
    let passed = again.1.timestamp.wrapping_sub(first.1.timestamp);
    assert_eq!(u64::from(passed), (again.0 - first.0) * 48);
}

#[test]
fn nothing_is_sent_before_media_may_be_and_nothing_said_is_lost() {
    let mut call = Call::new();
    let said = speech(ms(1_500));
    call.say(&said[..ms(1_000)]);
    assert!(call.sent.is_empty());
    call.conversation.start_playing();
    call.say(&said[ms(1_000)..]);
    call.say(&vec![0; ms(2_500)]);
    let (alike, _) = aligned(&said[..ms(1_400)], &call.pcm, ms(100));
    assert!(alike > 0.8, "correlation {alike}");
    // And the delay has shrunk back in the silence.
    assert!(call.pcm.len() < ms(4_000));
}

#[test]
fn a_drifting_client_clock_neither_grows_the_delay_nor_starves_the_echo() {
    // Packets each 19.9 and each 20.1 ms: 5,000 ppm, far more than any crystal. A minute of speech and pauses.
    for step in [19_900_u64, 20_100] {
        let mut call = Call::playing();
        let mut said = speech(ms(2_000));
        said.extend(vec![0; ms(1_500)]);
        let turn = frames(&said);
        let mut micros = 0;
        let mut worst = 0;
        for n in 0..3_000 {
            let packet = call.packet(&turn[n % turn.len()]);
            micros += step;
            call.wait(micros / 1_000 - call.now);
            let now = call.instant();
            call.conversation.received(packet, now);
            call.drain();
            if n > 200 {
                let behind = (n + 1) as i64 * step as i64 / 20_000 - call.sent.len() as i64;
                worst = worst.max(behind.abs());
            }
        }
        let counters = call.conversation.counters();
        assert!(counters.playout.underruns <= 2, "{step}: {counters:?}");
        assert_eq!(counters.overrun, 0);
        // In frames, relative to real time: the delay of 80 ms and its slack.
        assert!(worst <= 10, "{step}: {worst} frames behind");
        let turns = call
            .kinds()
            .iter()
            .filter(|k| k.ends_with("committed"))
            .count();
        assert!(turns >= 16, "{turns} turns");
    }
}

#[test]
fn losses_jitter_and_doubles_on_the_way_leave_the_echo_whole() {
    let mut call = Call::playing();
    let said = utterance();
    let mut noise = Noise::new(11);
    let mut arrivals: Vec<(u64, RtpIn)> = Vec::new();
    for (n, frame) in frames(&said).iter().enumerate() {
        let packet = call.packet(frame);
        let at = 20 * n as u64 + u64::from(noise.next().unsigned_abs()) % 30;
        match noise.next().unsigned_abs() % 33 {
            0 => {}
            1 => arrivals.extend([(at, packet.clone()), (at + 5, packet)]),
            _ => arrivals.push((at, packet)),
        }
    }
    arrivals.sort_by_key(|(at, _)| *at);
    for (at, packet) in arrivals {
        call.wait(at - call.now);
        let now = call.instant();
        call.conversation.received(packet, now);
        call.drain();
    }
    call.wait(200);
    assert!(call.conversation.counters().uplink.reorder.missing > 0);
    let (alike, _) = aligned(&said[ms(500)..ms(2_500)], &call.pcm, ms(1_500));
    assert!(alike > 0.6, "correlation {alike}");
    assert_eq!(call.kinds().last(), Some(&"output_audio_buffer.stopped"));
}
