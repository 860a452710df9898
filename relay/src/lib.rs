//! The relay's acting part: sockets, rings and threads around the decisions of `firsthop-relay-core`.
//!
//! A relay stands on the public address and routes packets between clients and the transceivers that own their sessions. It
//! holds no WebRTC state and answers nobody. Its cost is the kernel's cost per datagram, so everything here serves two
//! ends: one kernel receive per client packet and one kernel send per packet to a client, with nothing beside them that
//! matters; and several client packets in each datagram of the internal hop.
//!
//! One core, one world: each core is a glommio executor pinned to a processor, with its own sockets, [`ring`], buffers, flow
//! table and counters. Cores meet only in [`control`], off the packet path. Reading order:
//!
//! - [`config`]: settings, checked before anything starts; [`site`]: the relay's place in the fleet; [`system`]: what the
//!   machine must give;
//! - [`relay`]: starts and stops everything; `group`: the cores; [`rebuilds`]: how often they start anew after a loss;
//!   [`drain`]: how a graceful stop goes;
//! - [`handover`]: another process takes the place of this one, and no packet is lost; [`bystander`]: what is left of this one;
//! - [`preflight`]: what the machine gives, told before a relay starts;
//! - [`sockets`]: groups, steering, buffer sizes;
//! - [`shard`]: the pump, turn by turn; [`ring`]: io_uring, buffers, sends (unsafe lives there); [`waiting`]: a small
//!   decision of a turn;
//! - [`control`], [`wake`], `latest`: what other threads may tell a core; [`cache`]: the flow cache, on a thread of its own;
//! - [`counters`], [`lateness`], [`peers`], [`roster`], [`admin`]: what others see; [`limits`]: the bounds.

pub mod admin;
pub mod bystander;
pub mod cache;
pub mod config;
pub mod control;
pub mod counters;
pub mod drain;
mod group;
pub mod handover;
pub mod lateness;
mod latest;
pub mod limits;
mod pause;
pub mod peers;
pub mod preflight;
pub mod rebuilds;
pub mod relay;
pub mod ring;
pub mod roster;
pub mod shard;
mod signals;
pub mod site;
pub mod sockets;
pub mod system;
pub mod waiting;
pub mod wake;
