//! In what manner calls are made, beyond how many, how fast and how long: what has an ordinary value for every load.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use super::ear::PATIENCE;
use super::embedded_echo::FROM_MOUTH;
use super::schedule::{Arrivals, Lengths};
use super::trouble::Rates;
use super::wav::Speech;

/// See the module.
#[derive(Clone, Debug)]
pub struct Manner {
    /// Decides what is random: the same seed makes the same calls.
    pub seed: u64,
    /// What calls of the ramp have between them.
    pub arrivals: Arrivals,
    /// How the lengths of calls are distributed.
    pub lengths: Lengths,
    /// For how long after the ramp further calls arrive, as many as end.
    pub churn: Duration,
    /// The share of calls that end without a word, however the others do.
    pub vanish: f64,
    /// What befalls calls while they last.
    pub trouble: Rates,
    /// What clients say; or talk spurts that are made up.
    pub speech: Option<Arc<Speech>>,
    /// What answers is an echo that waits so long on purpose, and marks are listened for; or it is none.
    pub echo: Option<Duration>,
    /// How long each mark is listened for, at most [`PATIENCE`].
    pub patience: Duration,
    /// Clients begin to speak when their channel is open, and not before: an echo has nothing to hold back then, which it would go on lagging behind.
    pub after_channel: bool,
    /// The clients' sockets.
    pub sockets: Sharing,
}

/// How many clients a socket serves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sharing {
    /// Many, each with a loopback address of its own: for servers on this machine.
    Shared,
    /// One: for servers anywhere.
    Own {
        /// The address that clients offer.
        from: Ipv4Addr,
        /// The address that their sockets are bound to: the same, or any.
        bind: Ipv4Addr,
    },
}

impl Default for Manner {
    /// Talk spurts through the embedded echo, from loopback, one call after the other, and nothing befalls them. A client that never hears a mark stops listening by
    /// itself.
    fn default() -> Self {
        Self {
            seed: 1,
            arrivals: Arrivals::default(),
            lengths: Lengths::default(),
            churn: Duration::ZERO,
            vanish: 0.0,
            trouble: Rates::default(),
            speech: None,
            echo: Some(FROM_MOUTH),
            patience: PATIENCE,
            after_channel: false,
            sockets: Sharing::Shared,
        }
    }
}
