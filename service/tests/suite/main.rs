//! The server over loopback: what it does with clients that are slow, many, huge, or do not go.

mod room;
mod server;
#[cfg(feature = "traces")]
mod traces;
mod upgrade;
