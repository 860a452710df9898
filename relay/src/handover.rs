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

/// Why sockets and flows were not handed over: the cause alone, for the log and for the other end. What to do about it
/// [`HandoverError::told`] says.
#[derive(Debug, thiserror::Error)]
pub enum HandoverError {
    /// A setting, of one end or the other, must be changed.
    #[error(transparent)]
    Setting(#[from] SettingError),
    /// The other end went away, or closed the connection.
    #[error("the other end was gone {0}")]
    Gone(&'static str),
    /// The other end did not answer in time.
    #[error("the other end did not answer in time {0}")]
    Late(&'static str),
    /// The other end said something else than what was due.
    #[error("the other end said {said} {step}")]
    Unexpected {
        /// What it said, or that it made no sense.
        said: String,
        /// When.
        step: &'static str,
    },
    /// The other end gave up.
    #[error("the other end gave up: {why}")]
    GivenUp {
        /// Why.
        why: String,
        /// Whether it is the serving relay, and ends.
        ends: bool,
    },
    /// The serving relay has lost a core, and builds its group anew.
    #[error("the serving relay had to do something else")]
    Interrupted,
    /// The serving relay was told to end.
    #[error("the serving relay was told to end")]
    Ending,
    /// The flows of a core cannot be used.
    #[error("core {core}: {error}")]
    Flows {
        /// The core.
        core: u16,
        /// What is wrong with them.
        error: ImportError,
    },
    /// A core did not do its part.
    #[error("core {core} {problem}")]
    Core {
        /// The core.
        core: u16,
        /// What it did not do.
        problem: String,
    },
    /// The successor's admin pages are not served.
    #[error("the successor's admin thread did not start: {0}")]
    Admin(String),
    /// A descriptor is not what it should be.
    #[error("{0} is not the socket that it should be")]
    Socket(String),
    /// A system call failed.
    #[error("{what}: {error}")]
    System {
        /// What was wanted.
        what: &'static str,
        /// What the system said.
        error: io::Error,
    },
}

impl HandoverError {
    /// Whether a setting is what must be changed.
    #[must_use]
    pub fn is_setting(&self) -> bool {
        matches!(self, Self::Setting(_))
    }

    /// Whether the serving relay is the one that gave up, and ends.
    #[must_use]
    pub fn is_end(&self) -> bool {
        matches!(self, Self::Ending | Self::GivenUp { ends: true, .. })
    }

    /// What an operator is told who has started a successor: the cause, who serves now, and what to do.
    #[must_use]
    pub fn told(&self) -> String {
        const AGAIN: &str = "try again, or stop it and start without --takeover (calls heal)";
        let now = match self {
            Self::Setting(error) => return error.to_string(),
            _ if self.is_end() => "nobody serves then: start again (calls heal)".to_owned(),
            Self::Gone(_) => format!("if the serving relay still runs, it goes on: {AGAIN}"),
            _ => format!("the serving relay goes on: {AGAIN}"),
        };
        format!("--takeover: {self}; {now}")
    }

    pub(crate) fn system(what: &'static str) -> impl Fn(io::Error) -> Self {
        move |error| Self::System { what, error }
    }

    /// The hand-over's socket cannot be opened.
    pub(crate) fn cannot_listen(path: &Path, error: &io::Error) -> Self {
        let place = path.display();
        let (problem, fix) = match error.kind() {
            io::ErrorKind::AddrInUse => (
                format!("{place} is in use"),
                "take over from the relay that serves it (--takeover), stop it, or give another path",
            ),
            io::ErrorKind::AlreadyExists => (
                format!("{place} is there, and is no socket"),
                "remove it, or give another path",
            ),
            _ => (format!("cannot listen on {place} ({error})"), GOOD_PATH),
        };
        Self::Setting(SettingError::new("--handover", problem, fix))
    }

    /// The hand-over's socket is there, it seems, and cannot be connected to.
    pub(crate) fn cannot_connect(path: &Path, error: &io::Error) -> Self {
        let fix = match error.kind() {
            io::ErrorKind::InvalidInput => GOOD_PATH,
            io::ErrorKind::PermissionDenied => "run as the serving relay's user",
            _ => "give the path that the serving relay has",
        };
        let problem = format!("cannot connect to {} ({error})", path.display());
        Self::Setting(SettingError::new("--handover", problem, fix))
    }
}

const GOOD_PATH: &str =
    "give a path of at most 107 bytes in a directory that this relay may write to";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operator_hears_who_serves_and_what_to_do_once() {
        let why = "core 0 did not come to stand still in time".to_owned();
        let goes_on = HandoverError::GivenUp {
            why: why.clone(),
            ends: false,
        };
        assert_eq!(
            goes_on.told(),
            "--takeover: the other end gave up: core 0 did not come to stand still in time; the serving relay goes on: \
             try again, or stop it and start without --takeover (calls heal)"
        );
        for ended in [
            HandoverError::GivenUp { why, ends: true },
            HandoverError::Ending,
        ] {
            let told = ended.told();
            assert!(
                told.contains("nobody serves") && !told.contains("goes on"),
                "{told}"
            );
        }
        let gone = HandoverError::Gone("before it accepted").told();
        assert!(gone.contains("if the serving relay still runs"), "{gone}");
        // What the other end hears, and makes a message of its own of.
        assert_eq!(
            HandoverError::Ending.to_string(),
            "the serving relay was told to end"
        );
    }
}
