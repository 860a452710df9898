//! A worker: one thread, one runtime, one trunk socket, and the sessions of one shard.
//!
//! [`Core`] decides everything and touches no socket and no clock; `run` feeds it in turns. Sessions need no lock, because
//! the kernel delivers a shard's datagrams to its own worker.

mod call_times;
mod carry;
mod command;
mod core;
mod egress;
mod endings;
mod farewell;
mod paths;
mod run;
mod stats;
mod unknown;
mod wait;

pub use call_times::{CallTimes, SharedCallTimes, encode as encode_call_times};
pub use command::{Command, CreateSpec, Directory, RestartBy, RestartSpec};
pub use core::{Core, CoreSettings, Shared};
pub use egress::Egress;
pub use endings::{CallReport, Ended, Endings};
pub use run::{Worker, spawn};
pub use stats::WorkerStats;
