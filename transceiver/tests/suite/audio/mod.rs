//! The audio path, part by part and as a whole, in virtual time.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod codec;
mod conversation;
mod cost;
mod g711;
mod interruptions;
mod passthrough;
mod playout;
mod reorder;
mod signals;
mod uplink;
mod voice;
