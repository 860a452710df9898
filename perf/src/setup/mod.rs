//! How long a call takes to begin, on lines of every length: a ladder of round-trip times and losses, and the round trips that each phase takes.
//!
//! ```text
//!   client ── line ── server        two network namespaces, joined by a line of this program's own (see [`crate::impair`])
//!     │                 │
//!   caller            signaling, relay, transceiver; or a peer
//! ```
//!
//! HTTP crosses the same line as everything else. A call's clock starts with its POST, and stops when audio comes back from an echo, whose own
//! delay is left out: what Firsthop's waits on purpose, and of peers what is measured where the line takes no time. What a phase takes in round trips is the slope of its time
//! over the length of the line.
//!
//! Last, set-ups by the relay and past it are compared on one line while other calls are up.
//!
//! Pure: [`fit`], [`opening`] (a client, sans-IO), [`results`], [`beside_results`], [`kept`], [`targets`]. Acting: [`world`], [`subject`], [`caller`], [`ladder`],
//! [`beside`].

pub mod beside;
pub mod beside_results;
pub mod caller;
pub mod fit;
pub mod kept;
pub mod ladder;
pub mod opening;
pub mod results;
pub mod subject;
pub mod table;
pub mod targets;
pub mod world;
