//! The audio path, part by part and as a whole, in virtual time.

mod codec;
mod conversation;
mod cost;
mod playout;
mod reorder;
mod signals;
mod uplink;
mod voice;
