//! The relay's decisions, as a pure library: what becomes of each packet, and nothing about how packets come and go.
//!
//! A relay stands between clients and the transceivers that own their sessions. It keeps no session, decrypts nothing and
//! answers nobody; it routes. What makes that possible is that a client's first packet, a STUN request, carries the owner's
//! address in its ufrag, sealed by the fleet. The relay verifies such a request in full, remembers for the packets without
//! a ufrag which session the sender's address stands for, and packs what goes to one owner's worker into few datagrams.
//!
//! One [`Router`] belongs to one core and shares nothing with another. It reads no clock and no random source, owns no
//! socket and no packet memory: time, seeds and frames are arguments, and every decision is a small value. So the glommio
//! pump, a load generator and a simulation drive the same code.
//!
//! - [`router`] holds the state of a core, [`uplink`] and [`downlink`] its decisions, [`relayed`] those about what passes
//!   between relays;
//! - [`flows`] knows which sessions an address stands for, and how sure that is; `index`, `fifo` and `wheel` are its parts;
//! - [`trunks`] packs, for the path sizes that `owners` remembers;
//! - [`steering`] says which core a client's packets reach;
//! - [`handover`] writes what a core leaves to its successor in another process, and reads it;
//! - [`cache`] spells what a flow cache holds, `cached` uses it, and `recall` holds the packets that wait for it;
//! - [`peers`] knows the relays of other clusters and which of them answer; [`keepalive`] asks them;
//! - `budget` bounds what strangers may cost;
//! - [`reason`] names why something was dropped, and counts;
//! - [`config`], [`limits`] and [`time`] are what it is started with, and every bound.
//!
//! After the start nothing allocates; every table is bounded, and full means a counted refusal. What one packet costs does
//! not depend on how much a table holds; expiry has a budget, and a flush costs what it closes.

mod budget;
pub mod cache;
mod cached;
pub mod config;
pub mod downlink;
mod fifo;
pub mod flows;
pub mod handover;
mod index;
pub mod keepalive;
pub mod limits;
mod owners;
pub mod peers;
pub mod reason;
mod recall;
pub mod relayed;
pub mod router;
pub mod steering;
pub mod time;
pub mod trunks;
pub mod uplink;
mod wheel;

pub use cache::{Change, ChangeKind, Entry, FlowId, Found};
pub use cached::{RecallCounters, Recalled};
pub use config::{CacheConfig, ConfigError, IngressPath, Placement, RouterConfig, Seeds};
pub use downlink::DownVerdict;
pub use flows::{FlowCounts, Transport};
pub use handover::{ImportError, Inherited};
pub use keepalive::Keepalive;
pub use peers::{PEER_WORDS, PeerList, PeerRelay};
pub use reason::{Counters, Reason};
pub use relayed::{Inbound, Onward, Way};
pub use router::Router;
pub use steering::{Instruction, Steering};
pub use time::Micros;
pub use trunks::{BufferId, Datagram, Piece, Span, TrunkId};
pub use uplink::{Forward, RouteTo, Source, Verdict};
