//! What a model server makes of the audio that it gets: whose it is, the pauses in it, and what of it is missing.
//!
//! Clients mark their frames (see [`stamp`](super::stamp)); a client that places another call goes on with its numbers, and so does the pause that it was
//! in. A frame counts when its number is above all before: what a transceiver makes up for a lost frame does not.

use std::borrow::Cow;
use std::collections::HashMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use super::stamp::Stamp;
use crate::clock::millis;
use crate::pauses::Pauses;

/// Clients that are told apart at most; the audio of others is counted and not judged.
const CLIENTS_MAX: usize = 65_536;

/// Clients that a judgement names, the worst first.
const NAMED: usize = 5;

/// Frames that come within a millisecond have come together, as one message or as some that have waited for the same: that is no cadence.
const TOGETHER_MICROS: u64 = 1_000;

/// Which client: of which program, and its number there.
type Client = (u32, u32);

/// What one connection has to remember.
#[derive(Debug, Default)]
pub struct Listener {
    /// Who speaks on it.
    client: Option<Client>,
}

#[derive(Debug, Default)]
struct Heard {
    pauses: Pauses,
    connections: u32,
}

/// What one client's audio was like since the mark.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ClientJudged {
    /// The program that the client is of.
    pub run: u32,
    /// The client's number there.
    pub call: u32,
    /// Connections on which it speaks: none when its session has ended.
    pub connections: u32,
    /// The worst pause, the open one included unless its session has ended.
    pub gap_ms: f64,
    /// When that began, from the mark.
    pub from_ms: f64,
    /// When it ended, from the mark; nothing while it is open.
    pub until_ms: Option<f64>,
    /// New frames that came.
    pub frames: u64,
    /// Frames that did not come, though later ones did.
    pub lost: u64,
    /// When the last new frame came, in milliseconds since the Unix epoch.
    pub last_unix_ms: Option<f64>,
}

/// What the audio of all clients was like since the mark.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Judgement {
    /// Clients that were heard since the mark, or were connected then.
    pub calls: usize,
    /// Those of them whose sessions have ended.
    pub ended: usize,
    /// Connections, those too on which nobody has spoken.
    pub connections: u32,
    /// The worst pause of all.
    pub worst_gap_ms: f64,
    /// The usual pause between arrivals (their median, but for those within a millisecond): nothing is missing when the worst is this.
    pub cadence_ms: f64,
    /// New frames that came.
    pub frames: u64,
    /// Frames that did not come, though later ones did.
    pub frames_lost: u64,
    /// Frames with a number that had come before: made up, or late.
    pub frames_repeated: u64,
    /// Messages that were too long or too many to be judged.
    pub unread: u64,
    /// The clients with the worst pauses.
    pub worst: Vec<ClientJudged>,
}

/// Listens to all clients.
#[derive(Debug)]
pub struct Judge {
    clients: HashMap<Client, Heard>,
    connections: u32,
    since: u64,
    cadence: Histogram<u64>,
    unread: u64,
}

#[derive(Deserialize)]
struct Append<'a> {
    #[serde(rename = "type", borrow)]
    kind: Cow<'a, str>,
    #[serde(default, borrow)]
    audio: Cow<'a, str>,
}

/// The audio that a message brings, in base64; nothing when it is another message.
pub(super) fn appended(message: &[u8]) -> Option<Cow<'_, str>> {
    serde_json::from_slice::<Append<'_>>(message)
        .ok()
        .filter(|append| append.kind == "input_audio_buffer.append")
        .map(|append| append.audio)
}

fn cadence() -> Histogram<u64> {
    // In microseconds, up to an hour.
    Histogram::new_with_bounds(1, 3_600_000_000, 3)
        .unwrap_or_else(|_| unreachable!("the bounds are valid"))
}

impl Judge {
    /// Nothing heard yet; the window begins `now`.
    #[must_use]
    pub fn new(now: u64) -> Self {
        Self {
            clients: HashMap::new(),
            connections: 0,
            since: now,
            cadence: cadence(),
            unread: 0,
        }
    }

    /// Somebody has connected.
    pub fn connected(&mut self) {
        self.connections += 1;
    }

    /// Takes a message of a connection's; what is no audio is passed over.
    pub fn message(&mut self, listener: &mut Listener, message: &[u8], at: u64) {
        let audio = appended(message).and_then(|audio| STANDARD.decode(audio.as_bytes()).ok());
        Stamp::all(&audio.unwrap_or_default(), |stamp| {
            self.frame(listener, stamp, at);
        });
    }

    /// A message was too long to be looked at.
    pub fn unread(&mut self) {
        self.unread += 1;
    }

    fn frame(&mut self, listener: &mut Listener, stamp: Stamp, at: u64) {
        let client = (stamp.run, stamp.call);
        if self.clients.len() >= CLIENTS_MAX && !self.clients.contains_key(&client) {
            self.unread += 1;
            return;
        }
        let since = self.since;
        let heard = self.clients.entry(client).or_insert_with(|| {
            // A client that comes in the middle has not been silent before.
            let mut pauses = Pauses::default();
            pauses.mark(at.max(since));
            Heard {
                pauses,
                connections: 0,
            }
        });
        if listener.client != Some(client) {
            heard.connections += 1;
            let before = listener.client.replace(client);
            self.left(before);
        }
        if let Some(heard) = self.clients.get_mut(&client)
            && let Some(pause) = heard.pauses.packet(stamp.count.into(), at)
        {
            let micros = pause.nanos() / 1_000;
            if micros >= TOGETHER_MICROS {
                self.cadence.saturating_record(micros);
            }
        }
    }

    fn left(&mut self, client: Option<Client>) {
        if let Some(heard) = client.and_then(|client| self.clients.get_mut(&client)) {
            heard.connections = heard.connections.saturating_sub(1);
        }
    }

    /// A connection has ended.
    pub fn ended(&mut self, listener: &Listener) {
        self.connections = self.connections.saturating_sub(1);
        self.left(listener.client);
    }

    /// Begins a window. Clients whose sessions have ended are forgotten.
    pub fn mark(&mut self, now: u64) {
        self.since = now;
        self.clients.retain(|_, heard| heard.connections > 0);
        for heard in self.clients.values_mut() {
            heard.pauses.mark(now);
        }
        self.cadence.reset();
        self.unread = 0;
    }

    /// What the window has shown of each client, the worst pause first.
    #[must_use]
    pub fn clients(&self, now: u64) -> Vec<ClientJudged> {
        let mut judged: Vec<ClientJudged> = self
            .clients
            .iter()
            .map(|((run, call), heard)| {
                let last = heard.pauses.last();
                // A session that has ended is silent by right.
                let until = match heard.connections {
                    0 => last.unwrap_or(now),
                    _ => now,
                };
                let window = heard.pauses.window(until);
                let from_mark = |at: u64| millis(at.saturating_sub(self.since));
                ClientJudged {
                    run: *run,
                    call: *call,
                    connections: heard.connections,
                    gap_ms: millis(window.worst.nanos()),
                    from_ms: from_mark(window.worst.from),
                    until_ms: (!window.open).then(|| from_mark(window.worst.until)),
                    frames: window.packets,
                    lost: window.lost,
                    last_unix_ms: last.map(millis),
                }
            })
            .collect();
        judged.sort_by(|a, b| b.gap_ms.total_cmp(&a.gap_ms));
        judged
    }

    /// What the window has shown.
    #[must_use]
    pub fn measure(&self, now: u64) -> Judgement {
        let mut clients = self.clients(now);
        let windows = self.clients.values().map(|heard| heard.pauses.window(now));
        Judgement {
            calls: clients.len(),
            ended: clients.iter().filter(|c| c.connections == 0).count(),
            connections: self.connections,
            worst_gap_ms: clients.first().map_or(0.0, |worst| worst.gap_ms),
            cadence_ms: self.cadence.value_at_quantile(0.5) as f64 / 1_000.0,
            frames: clients.iter().map(|client| client.frames).sum(),
            frames_lost: clients.iter().map(|client| client.lost).sum(),
            frames_repeated: windows.map(|window| window.late).sum(),
            unread: self.unread,
            worst: {
                clients.truncate(NAMED);
                clients
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::stamp::FRAME;
    use super::*;

    const MS: u64 = 1_000_000;

    /// What a transceiver sends: some frames of a client's in one message.
    fn append(call: u32, counts: &[u32]) -> Vec<u8> {
        let mut audio = Vec::new();
        for count in counts {
            let mut frame = [0xff; FRAME];
            let stamp = Stamp {
                run: 7,
                call,
                count: *count,
            };
            stamp.write(&mut frame);
            audio.extend(frame);
        }
        let audio = STANDARD.encode(audio);
        format!(r#"{{"type":"input_audio_buffer.append","audio":"{audio}"}}"#).into_bytes()
    }

    /// Frames of one client every 20 ms, from one number to before another; the time is the number.
    fn play(judge: &mut Judge, listener: &mut Listener, call: u32, counts: std::ops::Range<u32>) {
        for count in counts {
            judge.message(
                listener,
                &append(call, &[count]),
                u64::from(count) * 20 * MS,
            );
        }
    }

    #[test]
    fn the_worst_client_is_found_and_its_losses_are_counted() {
        let mut judge = Judge::new(0);
        let (mut one, mut two) = (Listener::default(), Listener::default());
        judge.connected();
        judge.connected();
        play(&mut judge, &mut one, 1, 0..100);
        play(&mut judge, &mut two, 2, 0..100);
        judge.mark(2_000 * MS);
        play(&mut judge, &mut one, 1, 100..200);
        play(&mut judge, &mut two, 2, 100..150);
        // What is made up for the lost ones repeats the last.
        for at in [3_000, 3_020] {
            judge.message(&mut two, &append(2, &[149]), at * MS);
        }
        play(&mut judge, &mut two, 2, 160..200);
        let judged = judge.measure(4_000 * MS);
        assert_eq!((judged.calls, judged.ended, judged.connections), (2, 0, 2));
        assert_eq!(judged.worst_gap_ms, 220.0);
        assert!((19.9..20.1).contains(&judged.cadence_ms), "{judged:?}");
        assert_eq!((judged.frames, judged.frames_lost), (190, 10));
        assert_eq!((judged.frames_repeated, judged.unread), (2, 0));
        let worst = &judged.worst[0];
        assert_eq!((worst.run, worst.call, worst.lost), (7, 2, 10));
        assert_eq!((worst.from_ms, worst.until_ms), (980.0, Some(1_200.0)));
    }

    #[test]
    fn a_client_that_comes_back_on_another_connection_was_in_one_pause() {
        let mut judge = Judge::new(0);
        let mut listener = Listener::default();
        judge.connected();
        play(&mut judge, &mut listener, 1, 0..50);
        judge.ended(&listener);
        let judged = judge.measure(9_000 * MS);
        assert_eq!((judged.calls, judged.ended, judged.connections), (1, 1, 0));
        assert_eq!(judged.worst_gap_ms, 20.0);
        let mut listener = Listener::default();
        judge.connected();
        // It numbers on, though the time has passed.
        judge.message(&mut listener, &append(1, &[50]), 4_000 * MS);
        let judged = judge.measure(4_010 * MS);
        assert_eq!((judged.ended, judged.frames_lost), (0, 0));
        assert_eq!(judged.worst_gap_ms, 3_020.0);
    }

    #[test]
    fn the_pause_of_one_that_is_silent_now_is_open() {
        let mut judge = Judge::new(0);
        let mut listener = Listener::default();
        judge.connected();
        play(&mut judge, &mut listener, 1, 0..50);
        let judged = judge.measure(1_980 * MS);
        assert_eq!(
            (judged.worst_gap_ms, judged.worst[0].until_ms),
            (1_000.0, None)
        );
    }

    #[test]
    fn a_client_that_is_new_has_not_been_silent_and_one_that_is_gone_is_forgotten() {
        let mut judge = Judge::new(0);
        let (mut one, mut two) = (Listener::default(), Listener::default());
        judge.connected();
        play(&mut judge, &mut one, 1, 500..510);
        assert_eq!(judge.measure(10_190 * MS).worst_gap_ms, 20.0);
        judge.ended(&one);
        judge.mark(11_000 * MS);
        judge.connected();
        play(&mut judge, &mut two, 2, 600..610);
        let judged = judge.measure(12_190 * MS);
        assert_eq!((judged.calls, judged.worst_gap_ms), (1, 20.0));
    }

    #[test]
    fn several_frames_of_one_message_come_together_and_other_messages_are_passed_over() {
        let mut judge = Judge::new(0);
        let mut listener = Listener::default();
        judge.connected();
        for message in [
            &b"{\"type\":\"session.update\",\"session\":{\"audio\":{}}}"[..],
            b"{\"type\":\"input_audio_buffer.append\",\"audio\":\"!\"}",
            b"{",
            b"\xff",
        ] {
            judge.message(&mut listener, message, MS);
        }
        assert_eq!(judge.measure(MS).calls, 0);
        judge.message(&mut listener, &append(1, &[0, 1, 2]), 20 * MS);
        judge.message(&mut listener, &append(1, &[3, 4, 5]), 80 * MS);
        let judged = judge.measure(80 * MS);
        assert_eq!((judged.frames, judged.worst_gap_ms), (6, 60.0));
        assert!((59.9..60.1).contains(&judged.cadence_ms), "{judged:?}");
    }
}
