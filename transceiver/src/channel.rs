//! The data channel `oai-events`: which channel it is, and what may pass it. What the events say is the backend's matter.
//!
//! Clients open the channel. Its label is `oai-events`, but a client that opens just one under another name means the same.
//! Rates and sizes are bounded in both directions: a message above what the client announced is never sent whole
//! (RFC 8841 section 6), nor is one above [`limits::CHANNEL_SEND_MAX`], and a client that floods is told so.

use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::{Value, json};
use str0m::channel::ChannelId;

use crate::bucket::Bucket;
use crate::life::EndReason;
use crate::limits;

/// The label under which clients open the channel.
pub const LABEL: &str = "oai-events";

/// The longest type of an event that an error repeats, in bytes.
const KIND_MAX: usize = 128;

/// What becomes of a message from the client.
#[derive(Debug, PartialEq, Eq)]
pub enum Incoming<'a> {
    /// It goes to the backend.
    Event(&'a str),
    /// It is dropped, and the client is told why, by this event.
    Refused(String),
    /// It is dropped and counted.
    Dropped,
}

/// The state of the session's channel.
#[derive(Debug)]
pub struct Channel {
    /// The largest message that is sent; nothing when the client's offer has no channel.
    largest: Option<usize>,
    open: Option<(ChannelId, bool)>,
    /// There has been one, or it has been waited for long enough.
    settled: bool,
    /// The first event of the session, once it has left the queue: `session.created`.
    first: Option<First>,
    blocked: Option<Blocked>,
    stalled: bool,
    gate: Gate,
    /// How many errors of its own it has told, each under its number.
    told: u64,
}

/// What a channel begins with that opens late.
#[derive(Debug)]
struct First {
    event: String,
    /// It tells of something that went wrong before there was a session, and makes room for what comes next.
    error: bool,
}

/// The engine has no room for the next event.
#[derive(Clone, Copy, Debug)]
struct Blocked {
    /// Since when nothing has changed.
    since: Instant,
    /// How much the client had not acknowledged then, in bytes.
    unacknowledged: usize,
}

/// Judges what one sender gives: its rate, its size, and whether it is text.
#[derive(Debug)]
pub struct Gate {
    messages: Bucket,
    bytes: Bucket,
    refused: u64,
    told_at: Option<Instant>,
}

impl Channel {
    /// Begins with what the offer announced: see [`crate::sdp::Offer::channel_message_max`].
    #[must_use]
    pub fn new(remote_max: Option<usize>, now: Instant) -> Self {
        Self {
            largest: largest(remote_max),
            open: None,
            settled: false,
            first: None,
            blocked: None,
            stalled: false,
            gate: Gate::new(now),
            told: 0,
        }
    }

    /// Whether the channel should be waited for: the offer has one, and it is not open yet.
    #[must_use]
    pub fn is_awaited(&self) -> bool {
        self.largest.is_some() && !self.settled
    }

    /// The channel has been waited for long enough.
    pub fn settle(&mut self) {
        self.settled = true;
    }

    /// Whether the offer has a channel.
    #[must_use]
    pub fn is_offered(&self) -> bool {
        self.largest.is_some()
    }

    /// A restart's offer may announce another size, or a channel that was not there.
    pub fn renegotiated(&mut self, remote_max: Option<usize>) {
        self.largest = largest(remote_max).or(self.largest);
    }

    /// A channel opened. The first is taken, until one with the right label comes.
    ///
    /// Returns what has to be sent on it before anything else: the session's first event, when that went to another channel
    /// or was due before there was one.
    pub fn opened(&mut self, id: ChannelId, label: &str) -> Option<String> {
        let named = label == LABEL;
        match self.open {
            Some((_, true)) => return None,
            Some((_, false)) if !named => return None,
            _ => self.open = Some((id, named)),
        }
        self.settled = true;
        self.took();
        self.first.as_ref().map(|first| first.event.clone())
    }

    /// An event of the session left the queue, for whatever channel or none; the first that is no error is kept, or else the last error.
    pub fn left(&mut self, event: &str) {
        if self.first.as_ref().is_none_or(|first| first.error) {
            self.first = Some(First {
                event: event.to_owned(),
                error: is_error(event),
            });
        }
    }

    /// A channel closed.
    pub fn closed(&mut self, id: ChannelId) {
        if self.id() == Some(id) {
            self.open = None;
        }
    }

    /// The channel to write to, when it is open.
    #[must_use]
    pub fn id(&self) -> Option<ChannelId> {
        self.open.map(|(id, _)| id)
    }

    /// The largest event that is sent, in bytes; nothing without a channel in the offer.
    #[must_use]
    pub fn largest(&self) -> Option<usize> {
        self.largest
    }

    /// Whether an event of this length, in bytes, may be sent.
    #[must_use]
    pub fn fits(&self, length: usize) -> bool {
        self.largest.is_some_and(|max| length <= max)
    }

    /// Whether events that cannot be sent now will be: a channel is open, and the client has taken something lately.
    #[must_use]
    pub fn flows(&self) -> bool {
        self.open.is_some() && !self.stalled
    }

    /// The engine took an event.
    pub fn took(&mut self) {
        self.blocked = None;
        self.stalled = false;
    }

    /// The engine has no room for the next event: so many bytes are not acknowledged. Returns whether that has not changed for so long that
    /// the event has to be given up.
    pub fn blocked(&mut self, unacknowledged: usize, now: Instant) -> bool {
        let fresh = Blocked {
            since: now,
            unacknowledged,
        };
        let before = self.blocked.get_or_insert(fresh);
        if before.unacknowledged != unacknowledged {
            *before = fresh;
            self.stalled = false;
        }
        let over = now.saturating_duration_since(before.since) >= limits::CHANNEL_STALL;
        if over {
            *before = fresh;
            self.stalled = true;
        }
        over
    }

    /// What is sent in the place of an event that is larger than that.
    ///
    /// An item that was asked for can do without its audio, which the client has heard; anything else becomes an error.
    #[must_use]
    pub fn shortened(&mut self, event: &str) -> String {
        without_audio(event)
            .filter(|short| self.fits(short.len()))
            .unwrap_or_else(|| self.oversize_notice(event))
    }

    fn oversize_notice(&mut self, event: &str) -> String {
        let which = match kind(event) {
            Some(kind) => format!("An event '{kind}'"),
            None => "An event".to_owned(),
        };
        let message = format!(
            "{which} of {} bytes has been left out: the channel to this client carries {}.",
            event.len(),
            self.largest.unwrap_or_default()
        );
        self.tell("u", "server_error", "message_too_large", &message)
    }

    fn tell(&mut self, name: &str, kind: &str, code: &str, message: &str) -> String {
        self.told += 1;
        error_event(&format!("{name}{}", self.told), kind, code, message)
    }

    /// The event that warns of the session's end, in so many seconds, and why.
    #[must_use]
    pub fn expiry_warning(&mut self, why: EndReason, seconds: u64) -> String {
        let message = match why {
            EndReason::Drained => {
                format!("The server is going to stop; the session ends in {seconds} seconds.")
            }
            EndReason::Idle => format!(
                "Nothing has been said or sent for a while; unless that changes, the session ends in {seconds} seconds."
            ),
            _ => format!("The session reaches its maximum duration in {seconds} seconds."),
        };
        self.tell(
            "w",
            "invalid_request_error",
            "session_expires_soon",
            &message,
        )
    }

    /// The event that says why the session ends.
    #[must_use]
    pub fn expired(&mut self, why: EndReason) -> String {
        self.tell(
            "x",
            "invalid_request_error",
            "session_expired",
            match why {
                EndReason::Drained => "The server stops: call again.",
                EndReason::Idle => "Nothing has been said or sent for too long.",
                _ => "The session has reached its maximum duration.",
            },
        )
    }

    /// Judges a message that came in.
    pub fn incoming<'a>(
        &mut self,
        id: ChannelId,
        binary: bool,
        data: &'a [u8],
        now: Instant,
    ) -> Incoming<'a> {
        if self.id() != Some(id) {
            return Incoming::Dropped;
        }
        self.gate.judge(binary, data, now)
    }
}

impl Gate {
    /// For a sender that has sent nothing yet.
    #[must_use]
    pub fn new(now: Instant) -> Self {
        Self {
            messages: Bucket::full(
                limits::CHANNEL_MESSAGES_PER_SEC,
                limits::CHANNEL_MESSAGES_BURST,
                now,
            ),
            bytes: Bucket::full(
                limits::CHANNEL_BYTES_PER_SEC,
                limits::CHANNEL_BYTES_BURST,
                now,
            ),
            refused: 0,
            told_at: None,
        }
    }

    /// Judges a message.
    pub fn judge<'a>(&mut self, binary: bool, data: &'a [u8], now: Instant) -> Incoming<'a> {
        let length = u32::try_from(data.len()).unwrap_or(u32::MAX);
        let oversize = length > limits::CHANNEL_MESSAGE_MAX;
        // One that is too large costs as much as the largest that is not.
        let cost = length.min(limits::CHANNEL_MESSAGE_MAX);
        if !self.messages.take(1, now) || !self.bytes.take(cost, now) {
            self.refused += 1;
            // Told once a second at most: an answer to every message would double the flood.
            let due = self
                .told_at
                .is_none_or(|at| now.saturating_duration_since(at) >= Duration::from_secs(1));
            if !due {
                return Incoming::Dropped;
            }
            self.told_at = Some(now);
            return Incoming::Refused(error_event(
                &format!("r{}", self.refused),
                "invalid_request_error",
                "rate_limit_exceeded",
                "Too many messages on the channel; some were dropped.",
            ));
        }
        if oversize {
            self.refused += 1;
            return Incoming::Refused(error_event(
                &format!("r{}", self.refused),
                "invalid_request_error",
                "message_too_large",
                &format!(
                    "The message has {length} bytes, and was dropped; one may have {}.",
                    limits::CHANNEL_MESSAGE_MAX
                ),
            ));
        }
        // Some clients send JSON as binary messages; what counts is that it is text.
        match std::str::from_utf8(data) {
            Ok(text) => Incoming::Event(text),
            Err(_) => {
                self.refused += 1;
                Incoming::Refused(error_event(
                    &format!("r{}", self.refused),
                    "invalid_request_error",
                    "invalid_json",
                    if binary {
                        "A binary message on the channel; events are JSON text."
                    } else {
                        "The message is not UTF-8."
                    },
                ))
            }
        }
    }
}

/// The largest event for a client that takes messages up to this size.
fn largest(remote_max: Option<usize>) -> Option<usize> {
    remote_max.map(|max| max.min(limits::CHANNEL_SEND_MAX))
}

/// A `conversation.item.retrieved` without its audio; `None` for any other event.
fn without_audio(event: &str) -> Option<String> {
    let mut event: Value = serde_json::from_str(event).ok()?;
    if event["type"] != "conversation.item.retrieved" {
        return None;
    }
    for part in event["item"]["content"].as_array_mut()? {
        if let Some(part) = part.as_object_mut() {
            part.remove("audio");
        }
    }
    Some(event.to_string())
}

/// The type of an event, when it is such a word as types are made of: it comes from a model server, and a client's error repeats it.
fn kind(event: &str) -> Option<String> {
    #[derive(Deserialize)]
    struct Typed {
        r#type: String,
    }
    let word = |kind: &String| {
        let mut bytes = kind.bytes();
        (1..=KIND_MAX).contains(&kind.len())
            && bytes.all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
    };
    let typed = serde_json::from_str::<Typed>(event).ok();
    typed.map(|typed| typed.r#type).filter(word)
}

fn is_error(event: &str) -> bool {
    kind(event).as_deref() == Some("error")
}

/// An `error` event of the Realtime API. The channel's own ids end in `name`, and never meet the backend's random ones.
fn error_event(name: &str, kind: &str, code: &str, message: &str) -> String {
    json!({
        "type": "error",
        "event_id": format!("event_channel_{name}"),
        "error": {
            "type": kind,
            "code": code,
            "message": message,
            "param": null,
            "event_id": null,
        },
    })
    .to_string()
}

#[cfg(test)]
#[path = "channel_tests.rs"]
mod tests;
