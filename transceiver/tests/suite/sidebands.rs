//! Sidebands at the real binary: a WebSocket beside a call, with its events both ways.

use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{WebSocketStream, client_async};

use crate::loopback::{PATIENCE, Process, Relay, SECRET, Signaling, assert_quiet};
use crate::peer;

/// An app's server, blocking.
struct App<'a> {
    signaling: &'a Signaling,
    socket: WebSocketStream<TcpStream>,
    /// The subprotocol that was chosen.
    protocol: Option<String>,
}

impl<'a> App<'a> {
    /// Joins a call, or returns the status of the refusal.
    fn join(signaling: &'a Signaling, process: &Process, path: &str) -> Result<Self, u16> {
        Self::join_with(signaling, process, path, SECRET)
    }

    fn join_with(
        signaling: &'a Signaling,
        process: &Process,
        path: &str,
        secret: &str,
    ) -> Result<Self, u16> {
        let url = format!("ws://{}{path}", process.control);
        let mut request = url.into_client_request().expect("a request");
        let headers = request.headers_mut();
        let secret = format!("Bearer {secret}").parse().expect("a value");
        headers.insert("authorization", secret);
        let offered = "other, realtime".parse().expect("a value");
        headers.insert("sec-websocket-protocol", offered);
        let joined = signaling.runtime.block_on(async {
            let stream = TcpStream::connect(process.control).await.expect("a stream");
            client_async(request, stream).await
        });
        match joined {
            Ok((socket, response)) => Ok(Self {
                signaling,
                socket,
                protocol: response
                    .headers()
                    .get("sec-websocket-protocol")
                    .map(|value| value.to_str().expect("text").to_owned()),
            }),
            Err(Error::Http(response)) => Err(response.status().as_u16()),
            Err(error) => panic!("{error}"),
        }
    }

    fn next(&mut self) -> Message {
        let next = async { timeout(PATIENCE, self.socket.next()).await };
        let next = self.signaling.runtime.block_on(next).expect("in time");
        next.expect("not ended").expect("a message")
    }

    /// The next event.
    fn event(&mut self) -> Value {
        loop {
            match self.next() {
                Message::Text(text) => return serde_json::from_str(&text).expect("JSON"),
                Message::Ping(_) => {}
                other => panic!("{other:?}"),
            }
        }
    }

    /// Passes events over until one of this type.
    fn until(&mut self, kind: &str) -> Value {
        loop {
            let event = self.event();
            if event["type"] == kind {
                return event;
            }
        }
    }

    fn say(&mut self, event: &Value) {
        self.send(Message::text(event.to_string()));
    }

    fn send(&mut self, message: Message) {
        let sent = self.signaling.runtime.block_on(self.socket.send(message));
        sent.expect("sent");
    }

    /// The close frame that ends it, and the types of the events before.
    fn end(mut self) -> (CloseFrame, Vec<String>) {
        let mut types = Vec::new();
        loop {
            match self.next() {
                Message::Text(text) => {
                    let event: Value = serde_json::from_str(&text).expect("JSON");
                    types.push(event["type"].as_str().expect("a type").to_owned());
                }
                Message::Close(frame) => return (frame.expect("a frame"), types),
                _ => {}
            }
        }
    }
}

const APP: u64 = 601;
const CLIENT: u64 = 602;

/// Whose update a session is after.
fn silence(event: &Value) -> Option<u64> {
    event["session"]["audio"]["input"]["turn_detection"]["silence_duration_ms"].as_u64()
}

fn path(id: u32) -> String {
    format!("/v1/sessions/{id}/events?created={}", peer::CREATED)
}

/// An update by which one can tell who made it.
fn update(silence: u64) -> Value {
    let detection = json!({"type": "server_vad", "silence_duration_ms": silence});
    let session = json!({"type": "realtime", "audio": {"input": {"turn_detection": detection}}});
    json!({"type": "session.update", "session": session})
}

/// How many sidebands the metrics say are open.
fn open(signaling: &Signaling, process: &Process) -> String {
    let (_, page) = signaling.get(process, "/metrics");
    let mut lines = page.lines();
    let gauge = lines.find_map(|line| line.strip_prefix("firsthop_transceiver_sidebands "));
    gauge.expect("the gauge").to_owned()
}

#[test]
fn events_go_both_ways_between_an_app_and_the_call_until_that_ends() {
    let process = Process::start("sideband", &[]);
    let signaling = Signaling::new();
    let mut relay = Relay::call(&process, &signaling, 70, 1);

    // At once, before the client has connected.
    let mut app = App::join(&signaling, &process, &path(70)).expect("joined");
    assert_eq!(app.protocol.as_deref(), Some("realtime"));
    assert_eq!(app.event()["type"], "session.created");
    relay.connect();

    // What the app says the backend does, and both hear of it.
    app.say(&update(APP));
    let updated = app.until("session.updated");
    assert_eq!(silence(&updated), Some(APP));
    relay.until("the app's update", |relay| {
        relay
            .client
            .heard
            .types()
            .contains(&"session.updated".into())
    });
    // The same checks as on the channel.
    app.say(&json!({"type": "input_audio_buffer.append", "audio": "AAAA"}));
    assert_eq!(app.until("error")["error"]["type"], "invalid_request_error");
    app.send(Message::binary(vec![0xff]));
    assert_eq!(app.until("error")["error"]["code"], "invalid_json");

    // One that comes late knows the session as it is now.
    let mut late = App::join(&signaling, &process, &path(70)).expect("joined");
    assert_eq!(late.event()["type"], "session.created");
    let now = late.event();
    assert_eq!(now["type"], "session.updated");
    assert_eq!(silence(&now), Some(APP));
    assert_eq!(open(&signaling, &process), "2");

    // What the client says and hears, the app hears too.
    let channel = relay.client.channel.expect("a channel");
    let text = update(CLIENT).to_string();
    let mut writer = relay.client.rtc.channel(channel).expect("a channel");
    assert!(writer.write(false, text.as_bytes()).expect("written"));
    relay.until("the client's update", |relay| {
        // Not by the number alone: an id of an event's may have it too.
        relay.client.heard.events.iter().any(|(_, text)| {
            let event: Value = serde_json::from_str(text).expect("JSON");
            silence(&event) == Some(CLIENT)
        })
    });
    for app in [&mut app, &mut late] {
        let updated = app.until("session.updated");
        assert_eq!(silence(&updated), Some(CLIENT));
    }

    assert_eq!(signaling.hang_up(&process, 70), 200);
    for app in [app, late] {
        let (frame, _) = app.end();
        assert_eq!(u16::from(frame.code), 1_000);
        assert_eq!(frame.reason.as_str(), "hung_up");
    }
    let gone = App::join(&signaling, &process, &path(70)).err();
    assert_eq!(gone, Some(404));
    let (status, log) = process.stop();
    assert!(status.success(), "{status}: {log:#?}");
    assert_quiet(&log);
}

#[test]
fn an_app_hears_what_the_client_hears_in_the_same_order() {
    let process = Process::start("sideband-order", &[]);
    let signaling = Signaling::new();
    let mut relay = Relay::call(&process, &signaling, 71, 0);
    let app = App::join(&signaling, &process, &path(71)).expect("joined");
    relay.connect();
    relay.client.speaking = true;
    relay.client.next_frame = Some(std::time::Instant::now());
    relay.until("speech", |relay| relay.client.heard.types().len() > 2);
    relay.client.speaking = false;
    relay.until("a turn", |relay| {
        let types = relay.client.heard.types();
        types.contains(&"output_audio_buffer.stopped".into())
    });
    let heard = relay.client.heard.types();
    let (_, log) = process.stop();
    let (frame, types) = app.end();
    assert_eq!(frame.reason.as_str(), "stopped");
    assert_eq!(types[..heard.len()], heard[..]);
    assert_quiet(&log);
}

#[test]
fn what_is_no_handshake_of_a_living_call_is_refused_before_the_upgrade() {
    let process = Process::start("sideband-refusal", &[]);
    let signaling = Signaling::new();
    let _relay = Relay::call(&process, &signaling, 72, 0);
    let refusal = |path: &str, secret| App::join_with(&signaling, &process, path, secret).err();
    assert_eq!(refusal(&path(73), SECRET), Some(404));
    assert_eq!(
        refusal("/v1/sessions/72/events?created=1", SECRET),
        Some(404)
    );
    assert_eq!(refusal("/v1/sessions/72/events", SECRET), Some(400));
    assert_eq!(refusal(&path(72), "wrong"), Some(401));
    assert_eq!(signaling.get(&process, &path(72)).0, 400);

    let mut joined: Vec<_> = (0..4)
        .map(|_| App::join(&signaling, &process, &path(72)).expect("joined"))
        .collect();
    assert_eq!(refusal(&path(72), SECRET), Some(503));
    // A message that is too large ends its own sideband alone.
    let mut large = joined.remove(0);
    large.send(Message::text("x".repeat(300_000)));
    let (frame, _) = large.end();
    assert_eq!(u16::from(frame.code), 1_009);
    assert_eq!(joined[0].event()["type"], "session.created");
}
