//! Hot restart: a relay hands its sockets and its flows to a successor process, and no packet is lost.
//!
//! The serving relay listens on a Unix socket (`--handover`). A successor (`--takeover`) connects, and the two go through
//! these steps; `→` is what the successor says, `←` the serving relay:
//!
//! ```text
//! ← offer      who serves: protocol version, cluster, addresses, cores, seed, format and size of the flow tables
//! → accept     all of that fits the successor's own settings
//! ← sockets    one message per core: its public sockets and the internal one   (the serving relay still receives)
//! ← listeners  the admin port's and this hand-over's
//!              the successor makes its executors, rings and tables; its cores wait
//! for each core:
//! → take       the core ends its receives, forwards all that it has, and stands still
//! ← flows      its flow table, in a memory file
//! → imported   the successor's core knows these flows
//! ← yours      the commit: from here on the serving relay leaves this core alone
//! → armed      the successor's core receives: what came meanwhile has waited in the sockets
//! → serving    admin pages are served too: the old process closes the connection, which is its word for yes, and ends
//! ```
//!
//! **The numbering stays.** Sockets are passed on, not bound anew, so the SO_REUSEPORT group keeps its members and their order,
//! and the steering program stays valid. Owners see the same hop.
//!
//! **A hand-over that fails leaves a relay that serves.** Until `serving` the old process keeps its sockets and, core by core, the flows as it handed
//! them over. When the connection ends before, whatever the cause, every core that stands still goes on. A successor that
//! fails ends its own receives before it lets go of the connection; should both receive for a moment (a successor that was
//! stopped in its tracks), each datagram is still received once, by one of them, and both know the flow. What a core of the
//! successor learned in between is lost, and heals like after any restart. Every wait has a bound.
//!
//! **Nobody serves when the old process dies on the way**: killed before `serving`, it cannot go on, and the
//! successor, which has not all of its cores, ends too. Then the supervisor starts anew, and calls heal.
//!
//! **Both serve is impossible.** The old process may have given up while `serving` was under way: it says `give up` before it
//! closes. Therefore the successor goes on only once the connection has ended without that.
//!
//! **Who may.** The socket is for its owner (mode 0600), and each end asks the kernel who the other is: the same user, or root.
//!
//! - [`message`]: what is said, and what must fit; [`giving`]: the steps of the serving relay, as a state machine;
//! - [`channel`], `memory`: the Unix socket with descriptors, the memory file (unsafe lives there);
//! - `giver`: the serving relay's thread; [`order`]: what it tells a core;
//! - `taker`: the successor; `seat`: what it tells a core.

pub mod channel;
pub(crate) mod giver;
pub mod giving;
pub(crate) mod memory;
pub mod message;
pub mod order;
pub(crate) mod seat;
pub(crate) mod taker;

use std::io;
use std::path::Path;

use firsthop_relay_core::ImportError;
use firsthop_service::settings::SettingError;

/// Why sockets and flows were not handed over.
#[derive(Debug, thiserror::Error)]
pub enum HandoverError {
    /// A setting, of one end or the other, must be changed.
    #[error(transparent)]
    Setting(#[from] SettingError),
    /// The other end went away, or closed the connection.
    #[error("--takeover: the other end was gone {0}; {GOES_ON}")]
    Gone(&'static str),
    /// The other end did not answer in time.
    #[error("--takeover: the other end did not answer in time {0}; {GOES_ON}")]
    Late(&'static str),
    /// The other end said something else than what was due.
    #[error("--takeover: the other end said {said} {step}; {GOES_ON}")]
    Unexpected {
        /// What it said, or that it made no sense.
        said: String,
        /// When.
        step: &'static str,
    },
    /// The other end gave up.
    #[error("--takeover: the other end gave up: {0}; {GOES_ON}")]
    GivenUp(String),
    /// The serving relay was told something more important.
    #[error("--takeover: the serving relay had to do something else; {GOES_ON}")]
    Interrupted,
    /// The flows of a core cannot be used.
    #[error("--takeover: core {core}: {error}; {GOES_ON}")]
    Flows {
        /// The core.
        core: u16,
        /// What is wrong with them.
        error: ImportError,
    },
    /// A core did not do its part.
    #[error("--takeover: core {core} {problem}; {GOES_ON}")]
    Core {
        /// The core.
        core: u16,
        /// What it did not do.
        problem: String,
    },
    /// A descriptor is not what it should be.
    #[error("--takeover: {0} is not the socket that it should be; {GOES_ON}")]
    Socket(String),
    /// A system call failed.
    #[error("--takeover: {what}: {error}; {GOES_ON}")]
    System {
        /// What was wanted.
        what: &'static str,
        /// What the system said.
        error: io::Error,
    },
}

/// What an operator does about a hand-over that failed.
const GOES_ON: &str =
    "the serving relay goes on: try again, or stop it and start without --takeover (calls heal)";

impl HandoverError {
    /// Whether a setting is what must be changed.
    #[must_use]
    pub fn is_setting(&self) -> bool {
        matches!(self, Self::Setting(_))
    }

    pub(crate) fn system(what: &'static str) -> impl Fn(io::Error) -> Self {
        move |error| Self::System { what, error }
    }

    /// The hand-over's socket cannot be opened.
    pub(crate) fn cannot_listen(path: &Path, error: &io::Error) -> Self {
        let problem = format!("cannot listen on {} ({error})", path.display());
        Self::Setting(SettingError::new(
            "--handover",
            problem,
            "give a path of at most 107 bytes in a directory that this relay may write to",
        ))
    }
}
