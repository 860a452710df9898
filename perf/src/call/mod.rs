//! Whole calls: clients with ICE, DTLS and SRTP of their own, placed as an app places them, that speak and listen.
//!
//! ```text
//! load ──► client (str0m, sans-IO) ──► air ──► a relay, or the trunk of a transceiver
//!  │          hearing: loss, lateness, jitter; listening: mouth-to-ear delay, barge-in
//!  └─► placing: HTTP to signaling, or to a transceiver's control API
//! ```
//!
//! Pure: [`client`] (and [`moving`], how it changes its address; [`speaking`], what it says; [`listening`], with [`ear`] and [`interruption`], what it makes of what it gets),
//! `browser` (what it does as browsers do), [`hearing`], [`mark`], [`recording`], [`wav`], [`schedule`], [`trouble`], [`stamp`], [`judge`], [`verdicts`]. Acting: [`load`], whose threads are [`caller`]s, with [`air`] and
//! [`placing`], and [`watch`], which asks the kernel what the programs under test have used. [`capacity`], [`alone`], [`costs`], [`comparison`], [`beside_janus`], [`memory`] and [`churn`] put
//! programs and loads together to measurements; [`trial`], [`model`], [`janus`], [`profile`] and [`stack`] are what they need for it, and of that [`between`], [`tolerance`],
//! [`cost`], [`embedded_echo`], [`handled`] and [`echoing`] are pure.

pub mod air;
pub mod alone;
pub mod beside_janus;
pub mod between;
pub(crate) mod browser;
pub mod caller;
pub mod capacity;
pub mod capacity_results;
mod changing;
pub mod churn;
mod clerk;
pub mod client;
pub mod comparison;
pub mod cost;
pub mod costs;
mod decoding;
pub mod ear;
pub mod echoing;
pub mod embedded_echo;
mod failing;
mod frames;
pub mod handled;
pub mod hearing;
pub mod identity;
pub mod interruption;
pub mod janus;
mod janus_api;
pub mod judge;
pub mod listening;
pub mod load;
pub mod manner;
pub mod mark;
pub mod memory;
pub mod model;
pub mod moving;
mod outgoing;
mod own_sockets;
pub mod placing;
pub mod profile;
pub mod recording;
pub mod report;
pub mod results;
pub mod schedule;
pub mod speaking;
pub mod stack;
pub mod stamp;
mod tail;
pub mod tolerance;
pub mod trial;
pub mod trouble;
mod trunk;
pub mod verdicts;
pub mod watch;
pub mod wav;
