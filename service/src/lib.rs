//! What each program is as a service: how it takes its settings, logs, serves HTTP, reads changed files, and refuses.
//!
//! - [`settings`]: the command line and the environment, errors in one line, the log, the exit status;
//! - [`server`]: listening, serving connections within limits, stopping; [`body`]: request bodies within theirs; [`gate`]: how
//!   many of one client; `room`: who makes room when there are too many of all; [`refusals`]: what is closed before it was a request;
//! - [`files`]: files that are read again when they change; [`secret_files`]: those that everybody can read; [`open_files`]: how many may be open; [`file_size`]: how long they may be;
//! - [`paths`]: how large datagrams to another program may be;
//! - [`about`]: what a program says of itself among its metrics; [`usage`]: what it uses of the machine;
//! - `traces`, with the feature of that name: spans of a call's set-up, on their way to a collector;
//! - [`limits`]: the bounds that all servers have in common.
//!
//! It decides nothing about calls or packets, and depends on no other member of the workspace than `firsthop-shared`, which stays
//! without a runtime. The relay uses it on its admin thread alone, never on a packet core, but for [`paths`].

pub mod about;
pub mod body;
pub mod file_size;
pub mod files;
pub mod gate;
pub mod limits;
mod log;
pub mod open_files;
pub mod paths;
pub mod refusals;
mod room;
pub mod secret_files;
pub mod server;
pub mod settings;
#[cfg(feature = "traces")]
pub mod traces;
pub mod usage;
