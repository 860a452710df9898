//! What a model server says reaches its client: whatever its size, and however much at once.

use std::cell::Cell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use firsthop_shared::packet::{PacketClass, classify};
use firsthop_transceiver::audio::{Backend, Input, MAX_EVENTS, Output, QueueState};
use firsthop_transceiver::life::{EndReason, State};
use firsthop_transceiver::limits;
use firsthop_transceiver::reason::Reason;
use serde_json::{Value, json};

use crate::peer::{Call, Client};

fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// A backend that has all this to say, and says it as fast as it is asked.
struct Says {
    events: VecDeque<String>,
    left: Arc<AtomicUsize>,
}

impl Says {
    fn all(events: impl IntoIterator<Item = Value>) -> (Box<dyn Backend>, Arc<AtomicUsize>) {
        let created = json!({"type": "session.created"}).to_string();
        let events = events.into_iter().map(|event| event.to_string());
        let events: VecDeque<String> = std::iter::once(created).chain(events).collect();
        let left = Arc::new(AtomicUsize::new(events.len()));
        let says = Self {
            events,
            left: Arc::clone(&left),
        };
        (Box::new(says), left)
    }
}

impl Backend for Says {
    fn handle(&mut self, _: Input<'_>, _: Instant) {}

    fn poll(&mut self, _: QueueState, _: Instant) -> Option<Output<'_>> {
        let event = self.events.pop_front()?;
        self.left.store(self.events.len(), Relaxed);
        Some(Output::Event(event))
    }

    fn deadline(&self) -> Option<Instant> {
        None
    }
}

/// What the client has received, less the beginning.
fn received(call: &Call) -> Vec<Value> {
    let events = call.client.heard.events.iter().skip(1);
    events
        .map(|(_, text)| serde_json::from_str(text).expect("JSON"))
        .collect()
}

fn numbers(events: &[Value]) -> Vec<u64> {
    events
        .iter()
        .filter_map(|event| event["n"].as_u64())
        .collect()
}

/// How many events this one says are missing.
fn lost(event: &Value) -> Option<u64> {
    if event["error"]["code"] != "events_lost" {
        return None;
    }
    let message = event["error"]["message"].as_str().expect("a message");
    let (_, count) = message
        .trim_end_matches('.')
        .rsplit_once(' ')
        .expect("words");
    Some(count.parse().expect("a number"))
}

#[test]
fn an_event_of_any_size_arrives_or_is_replaced_and_the_next_one_follows() {
    let sizes = [
        100_000, 130_000, 200_000, 262_000, 263_000, 600_000, 5_000_000,
    ];
    let now = Instant::now();
    let other = || Client::new(now);
    // Clients that take little, that take any size, that say so by a number, and one that does as browsers do.
    for (id, client, announced, takes) in [
        (1, other(), "65536", 65_536),
        (2, other(), "0", limits::CHANNEL_SEND_MAX),
        (3, other(), "1073741823", limits::CHANNEL_SEND_MAX),
        (
            6,
            Client::libwebrtc(now),
            "262144",
            limits::CHANNEL_SEND_MAX,
        ),
    ] {
        let item = |audio: usize| {
            let content =
                json!([{"type": "output_audio", "transcript": "Hi.", "audio": "A".repeat(audio)}]);
            json!({"type": "conversation.item.retrieved", "item": {"id": "i", "content": content}})
        };
        let events = sizes.iter().enumerate().flat_map(|(n, size)| {
            let large = json!({"type": "large", "x": "x".repeat(*size)});
            [large, item(*size), json!({"type": "after", "n": n})]
        });
        let (backend, _) = Says::all(events);
        let edit = |offer: String| {
            offer.replace(
                "a=max-message-size:262144",
                &format!("a=max-message-size:{announced}"),
            )
        };
        let mut call = Call::between(id, client, backend, edit, now);
        call.until(secs(120), |call| {
            call.client.heard.events.len() == 1 + 3 * sizes.len()
        });
        let received = received(&call);
        for (n, three) in received.chunks(3).enumerate() {
            let [large, item, after] = three else {
                panic!("{} events", received.len());
            };
            let fits = sizes[n] + 50 <= takes;
            let whole = large["x"].as_str().map(str::len) == Some(sizes[n]);
            assert_eq!(
                whole, fits,
                "{} bytes to one that takes {announced}",
                sizes[n]
            );
            assert_eq!(fits, large["error"]["code"] != "message_too_large");
            let part = &item["item"]["content"][0];
            assert_eq!(part["transcript"], "Hi.");
            if sizes[n] > takes {
                assert!(part["audio"].is_null(), "{} bytes", sizes[n]);
            }
            assert_eq!(after["n"], n);
        }
        assert!(
            received
                .iter()
                .all(|event| event.to_string().len() <= takes)
        );
        // Counted, also those that came while the session was made.
        assert!(call.session.summary(call.now).drops > 0);
        assert_eq!(call.out.drops[Reason::ChannelMessage], 0);
    }
}

#[test]
fn a_burst_of_events_makes_its_backend_wait_and_loses_none() {
    let small = (0..3_000).map(|n| json!({"type": "delta", "n": n, "delta": "y".repeat(200)}));
    let large =
        (3_000..3_090).map(|n| json!({"type": "delta", "n": n, "delta": "y".repeat(60_000)}));
    let (backend, left) = Says::all(small.chain(large));
    let mut call = Call::to(4, backend, |offer| offer);
    // Nothing can have been sent yet: what waits is bounded.
    call.run(Duration::from_millis(5));
    assert!(left.load(Relaxed) >= 3_091 - MAX_EVENTS);
    call.until(secs(120), |call| call.client.heard.events.len() == 3_091);
    assert!(numbers(&received(&call)).into_iter().eq(0..3_090));
    assert_eq!(call.session.summary(call.now).audio.dropped_events, 0);
}

#[test]
fn a_client_that_acknowledges_nothing_holds_its_backend_up_for_a_while_and_is_told_what_it_missed()
{
    let total = 5_000;
    let (backend, left) =
        Says::all((0..total).map(|n| json!({"type": "delta", "n": n, "delta": "y".repeat(500)})));
    let mut call = Call::to(5, backend, |offer| offer);
    let deaf = Rc::new(Cell::new(false));
    let hears_not = Rc::clone(&deaf);
    call.lose_up =
        Box::new(move |_, packet| hears_not.get() && classify(packet) == PacketClass::Dtls);
    call.until(secs(5), |call| !call.client.heard.events.is_empty());
    deaf.set(true);
    call.speak(false);
    call.run(limits::CHANNEL_STALL / 2);
    let waiting = left.load(Relaxed);
    assert!(waiting > 0, "the backend waits");
    call.run(limits::CHANNEL_STALL / 4);
    assert_eq!(left.load(Relaxed), waiting);
    // The call is alive, and must have its audio: events go on, and are lost.
    call.until(limits::CHANNEL_STALL, |_| left.load(Relaxed) == 0);
    assert_eq!(call.session.state(), State::Live);
    assert_eq!(call.out.drops[Reason::ChannelStalled], 1);
    let dropped = call.session.summary(call.now).audio.dropped_events;
    assert!(dropped > 1_000, "{dropped}");

    deaf.set(false);
    // Each time that events are missing, the client is told how many.
    let accounted = |call: &Call| {
        let received = received(call);
        let told = received.iter().filter_map(lost);
        numbers(&received).len() as u64 + told.sum::<u64>()
    };
    // SCTP may have to wait for a minute until it tries again.
    call.until(secs(180), |call| {
        call.client.heard.events.len() > MAX_EVENTS && accounted(call) == total
    });
    let received = received(&call);
    let dropped = call.session.summary(call.now).audio.dropped_events;
    assert_eq!(received.iter().filter_map(lost).sum::<u64>(), dropped);
    assert!(numbers(&received).is_sorted());
}

#[test]
fn nothing_that_leaves_is_larger_than_any_path_takes() {
    // Clients that begin DTLS, and that leave it to us; what is said once, and what is said again because it was lost.
    for (id, setup, lossy) in [
        (31, "actpass", false),
        (32, "active", false),
        (33, "actpass", true),
        (34, "active", true),
    ] {
        let large = |n: usize| json!({"type": "large", "n": n, "x": "x".repeat(n * 10_000)});
        let (backend, _) = Says::all((1..=20).map(large));
        let edit = |offer: String| offer.replace("a=setup:actpass", &format!("a=setup:{setup}"));
        let mut call = Call::to(id, backend, edit);
        let mut count = 0;
        call.lose_down = Box::new(move |outgoing| {
            count += 1;
            lossy && classify(&outgoing.payload) == PacketClass::Dtls && count % 10 == 3
        });
        call.until(secs(120), |call| call.client.heard.events.len() == 21);
        assert_eq!(numbers(&received(&call)), (1..=20).collect::<Vec<_>>());
        call.session.end(EndReason::HungUp, call.now, &mut call.out);
        call.run(secs(1));
        let mut largest = 0;
        for (_, outgoing) in &call.sent {
            let size = outgoing.payload.len();
            assert!(size <= 1_200, "{:?}: {size}", classify(&outgoing.payload));
            largest = largest.max(size);
        }
        assert!(largest > 1_100, "{largest}: its packets are filled");
    }
}
