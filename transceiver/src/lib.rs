//! The transceiver: it terminates WebRTC, and owns each session from birth to death.
//!
//! A transceiver sits behind relays and never sees a client's socket: packets come and go in trunk records that name the
//! client, so each session behaves as if it sat on the public address itself.
//!
//! ```text
//! relays ══ trunk ══► socket ─► worker::Core ─► session::Session ─► str0m
//!                        ▲          │                  │  ▲
//!                        └─ egress ◄┘                  ▼  │
//! signaling ─ HTTP ─► control ─ commands ─►     audio::Conversation ◄─► backend
//! ```
//!
//! Pure, with time and randomness passed in: [`session`] and what it is made of ([`sdp`], [`proof`], [`hops`], [`hello`], [`life`], [`idle`],
//! [`channel`], [`audio`], which reads the clock for how long its codecs take, and for nothing else), the worker's [`worker::Core`], and
//! [`descriptors`]. Acting: [`worker::spawn`], [`socket`], [`control`].

pub mod audio;
pub mod backend;
mod bucket;
pub mod channel;
pub mod config;
pub mod control;
mod debug;
pub mod descriptors;
pub mod dtls;
pub mod hello;
pub mod hops;
pub mod idle;
pub mod life;
pub mod lifetimes;
pub mod limits;
pub mod metrics;
pub mod proof;
pub mod reason;
pub mod sdp;
pub mod session;
mod sideband;
pub mod socket;
mod srtp;
pub mod times;
pub mod traces;
pub mod worker;
