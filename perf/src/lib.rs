//! Load generators that measure Firsthop from outside, with the formats of [`firsthop_shared`].
//!
//! - [`flow`]: a client as a relay sees it: one socket, one valid token, checks and voice-sized packets;
//! - [`owner`]: a stand-in for a transceiver on the trunk, which proves addresses and sends packets back;
//! - [`load`]: both together in an open loop, with latency counted from the moment a packet was due, so that a stall of
//!   the relay cannot hide the packets it delayed (coordinated omission).

pub mod flow;
pub mod load;
pub mod owner;
