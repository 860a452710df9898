//! The seam between a protocol and the connection that carries it.

use std::time::{Duration, Instant};

use super::ahead::Glance;
use super::outage::is_refusal;
use crate::audio::{Format as Form, Input, Output, QueueState};

/// One message of a WebSocket, either way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message {
    /// A text message.
    Text(String),
    /// A binary message.
    Binary(Vec<u8>),
}

impl Message {
    /// Its length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Binary(bytes) => bytes.len(),
        }
    }

    /// Whether it says nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// What a connection tells a translator, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FromServer {
    /// The handshake is done: this is a new connection, and the server knows nothing of an earlier one.
    Connected,
    /// The server sent this.
    Message(Message),
    /// There is no connection.
    Lost(Loss),
}

/// A connection that could not be made, or has broken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loss {
    /// What happened.
    pub cause: LossCause,
    /// After how long it is tried again; `None` when it is not.
    pub retry: Option<Duration>,
}

/// What became of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LossCause {
    /// No answer: no route, no name, no TLS, or no WebSocket there.
    Unreachable,
    /// Nothing was answered in time.
    TimedOut,
    /// The handshake was answered with this HTTP status.
    Status(u16),
    /// The server closed with this code, and without one when there is none (RFC 6455 section 7.4).
    Closed(Option<u16>),
    /// The server has reached the longest time that it gives a session.
    Expired,
    /// The server broke the protocol, or its message was too large.
    Violation,
    /// A fault of ours.
    Fault,
}

impl std::fmt::Display for LossCause {
    /// In words for the developer of a client: nothing about where the server is.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unreachable => f.write_str("it could not be reached"),
            Self::TimedOut => f.write_str("it did not answer in time"),
            Self::Status(status) if is_refusal(*status) => {
                write!(f, "it wants a key that it accepts (HTTP status {status})")
            }
            Self::Status(status) => write!(f, "it answered with HTTP status {status}"),
            Self::Closed(Some(code)) => write!(f, "it closed the connection with code {code}"),
            Self::Closed(None) => f.write_str("the connection broke"),
            Self::Expired => f.write_str("it has reached the longest time that it gives a session"),
            Self::Violation => f.write_str("it sent what cannot be read"),
            Self::Fault => f.write_str("the connection failed here"),
        }
    }
}

/// What a translator counts of one session.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct TranslatorCounters {
    /// Errors that the server reported.
    pub errors: u64,
    /// Messages that are none of the protocol.
    pub malformed: u64,
    /// Samples of the client's that were dropped because the server did not take them, or was not there.
    pub unsent_samples: u64,
    /// Events of the client's that were refused for the same reason.
    pub refused_events: u64,
    /// Audio of the server's that could not be read, in messages.
    pub undecoded: u64,
}

/// A protocol, sans-IO: what the session says and what the server says go in; what each is told comes out.
///
/// [`Linked`](super::Linked) makes a [`Backend`](crate::audio::Backend) of it and a connection. A server's message is given only when
/// nothing waits to be polled, so that what waits here is at most what one message makes: what a server says faster than it is played waits
/// in the link. But an [interruption](Glance::Interruption), and all that was said before it, is given at once where there is no room for audio, or
/// for events: then the clear that it makes is asked for alone, and the rest is polled when there is room.
pub trait Translator: Send {
    /// In which form audio crosses the seam to the session; see [`Backend::format`](crate::audio::Backend::format).
    fn form(&self) -> Form {
        Form::Pcm
    }

    /// Takes what the session says at `now`.
    fn handle(&mut self, input: Input<'_>, now: Instant);

    /// Takes what the connection says at `now`. It came at `came`, and may have waited since.
    fn server(&mut self, event: FromServer, came: Instant, now: Instant);

    /// The connection is lost, which [`server`](Self::server) says in its turn: what the client says from here on is for the next one.
    fn gone(&mut self);

    /// What a message is to those that wait in front of it. It is not taken.
    fn glance(&self, _message: &Message) -> Glance {
        Glance::Plain
    }

    /// Takes a message in front of an interruption, which follows before the next poll: audio in it is not to be played, but it was said.
    fn skip(&mut self, message: Message, came: Instant, now: Instant) {
        self.server(FromServer::Message(message), came, now);
    }

    /// Does what is due at `now`: called before the polls.
    fn tick(&mut self, now: Instant);

    /// The next output for the session; see [`Backend::poll`](crate::audio::Backend::poll).
    fn poll(&mut self, queue: QueueState, now: Instant) -> Option<Output<'_>>;

    /// Takes an interruption out of its turn; see [`Backend::poll_clear`](crate::audio::Backend::poll_clear).
    fn poll_clear(&mut self) -> Option<Instant>;

    /// Whether nothing waits to be polled, also nothing for which there is no room.
    fn is_idle(&self) -> bool;

    /// The next message for the server. Whatever waited when a connection is lost is not for the next one.
    fn poll_server(&mut self) -> Option<Message>;

    /// When to poll although nothing was handled.
    fn deadline(&self) -> Option<Instant>;

    /// How long the server took to its first audio of a turn, from the end of the user's turn; each is told once.
    fn take_latency(&mut self) -> Option<Duration>;

    /// What happened since the session began.
    fn counters(&self) -> TranslatorCounters;
}
