//! The seam between a session and what speaks to its user.
//!
//! A [`Backend`] is sans-IO: it takes the client's audio and events and the progress of its own audio, and is polled for events to the
//! client and audio to play. One that talks to a server keeps the connection elsewhere and joins the two by bounded queues; the
//! translation between that server's protocol and this seam is what lives behind the trait.
//!
//! Events are the JSON texts of OpenAI's Realtime API, passed through unchanged in both directions. Who makes which is in the
//! interfaces page: `output_audio_buffer.*` are made from [`Input::Playout`], whatever the backend, because only the playout
//! knows when audio is really sent.
//!
//! Both directions are bounded. What a backend takes it takes at once, so it must keep only a bounded part of it. What it gives is
//! pulled, with the room that there is: a backend may hold audio back as long as it likes, but never gives more than fits.

use std::fmt;
use std::time::Instant;

use super::g711::Law;
use super::ledger::{ItemId, PlayoutEvent};

/// In which form audio crosses the seam, both ways.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// 24,000 samples a second, decoded and encoded for the backend.
    Pcm,
    /// 8,000 samples a second, those of this law of G.711, passed through: [compressed](Law::compress), they are the client's own bytes, and
    /// the client gets the bytes of those that it is given. Possible when the call has the same law.
    Narrow(Law),
}

/// What a backend is told.
#[derive(Debug, Clone, Copy)]
pub enum Input<'a> {
    /// What the client says: mono, at the rate of the [`Format`], in pieces of 2.5 to 320 ms. It has no gaps in time: what was lost on the
    /// way is made up.
    Audio(&'a [i16]),
    /// An event that the client sent on the data channel: its text as it came, so possibly not even JSON.
    Event(&'a str),
    /// What became of audio that this backend gave. After an [`Output::Clear`], `Cleared` comes for each item that it cut off.
    Playout(PlayoutEvent),
}

/// What a backend wants done, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output<'a> {
    /// Send this event to the client: a whole JSON text.
    Event(String),
    /// Play this after all that was given before; at most [`QueueState::room`] samples.
    ///
    /// `item` names what it belongs to, for the ledger and for [`Input::Playout`]; audio of no item is just played.
    Audio {
        /// What it belongs to.
        item: Option<ItemId>,
        /// Mono, at the rate of the [`Format`].
        pcm: &'a [i16],
    },
    /// All audio of this item has been given.
    Finished(ItemId),
    /// Stop playing within one frame, and drop all that waits (barge-in).
    Clear {
        /// When that arrived which it follows from: the server's word, or the client's.
        asked: Instant,
    },
    /// The session has nobody to talk to any more; nothing follows.
    End(BackendEnd),
}

/// Why a backend ends its session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BackendEnd {
    /// Its server ended the session in good order.
    Closed,
    /// Its server's own limit of a session was reached.
    Expired,
    /// Its server could not be reached, or refused, or failed for good.
    Failed,
}

/// How a backend stands with its server.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum BackendState {
    /// It needs no server.
    #[default]
    Local,
    /// The first connection is not made yet.
    Connecting,
    /// There is a connection.
    Connected,
    /// The connection is lost, and is being made again.
    Lost,
    /// There is no connection any more, and none is tried.
    Over,
}

/// What a backend with a server has to tell of a session.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct BackendReport {
    /// How it stands now.
    pub state: BackendState,
    /// From the session's beginning to the server's answer to the handshake, in milliseconds.
    pub connect_ms: Option<u64>,
    /// From the end of the user's first turn to the first audio of its answer, in milliseconds.
    pub first_audio_ms: Option<u64>,
    /// Connections after the first one.
    pub reconnects: u64,
    /// Connections that broke or could not be made.
    pub losses: u64,
    /// Errors that the server reported.
    pub errors: u64,
    /// Messages of the server's that are none of its protocol.
    pub malformed: u64,
    /// Messages of the server's whose audio could not be read.
    pub undecoded: u64,
    /// Samples of the client's that the server did not take.
    pub unsent_samples: u64,
    /// Events of the client's that the server did not take.
    pub refused_events: u64,
}

/// How the playout queue stands, in samples at the rate of the [`Format`]: 24,000 per second, or 8,000.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueState {
    /// Samples waiting to be sent.
    pub queued: usize,
    /// Samples that may be given now.
    pub room: usize,
}

impl fmt::Display for BackendReport {
    /// For the log: the names and values of all, and a dash for a time that never came.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = |ms: Option<u64>| ms.map_or_else(|| "-".to_owned(), |ms| ms.to_string());
        let connect = time(self.connect_ms);
        let first_audio = time(self.first_audio_ms);
        write!(f, "connect_ms={connect} first_audio_ms={first_audio}")?;
        let counts = [
            ("reconnects", self.reconnects),
            ("losses", self.losses),
            ("errors", self.errors),
            ("malformed", self.malformed),
            ("undecoded", self.undecoded),
            ("unsent_samples", self.unsent_samples),
            ("refused_events", self.refused_events),
        ];
        counts
            .iter()
            .try_for_each(|(name, count)| write!(f, " {name}={count}"))
    }
}

/// What speaks to the user of one session.
pub trait Backend: Send {
    /// In which form it takes and gives audio, the same for its whole life. One that can pass the call's codec through was told of that codec
    /// when it was made.
    fn format(&self) -> Format {
        Format::Pcm
    }

    /// Takes one input at `now`.
    fn handle(&mut self, input: Input<'_>, now: Instant);

    /// The next output, or `None` until something is handled, the queue has more room, or the deadline has come.
    fn poll(&mut self, queue: QueueState, now: Instant) -> Option<Output<'_>>;

    /// Takes an [`Output::Clear`] that waits, out of its turn: what it was asked for at. Called in the place of [`poll`](Self::poll) while events
    /// wait for the client and no more are taken, until there is none: sound stops at once all the same. What is left keeps its order.
    fn poll_clear(&mut self, now: Instant) -> Option<Instant> {
        let _ = now;
        None
    }

    /// When to poll although nothing was handled. `None` when time alone changes nothing.
    fn deadline(&self) -> Option<Instant>;

    /// What there is to tell of the session so far; nothing for a backend without a server.
    fn report(&self) -> BackendReport {
        BackendReport::default()
    }
}
