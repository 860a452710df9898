//! Signaling: the front door that clients speak HTTP to.
//!
//! A client posts its SDP offer, and gets the answer of the transceiver that will own the call. In between, signaling checks the
//! key, chooses the transceiver and its worker, mints the routable ufrag by which every relay finds them, and seals the call id by
//! which any replica of signaling does. It keeps no table of calls: replicas share keyrings, and nothing else.
//!
//! Pure, without I/O, clock or random source of their own:
//! - [`call_id`]: sealed call ids; [`credentials`]: API keys; [`placement`]: who gets the next call; [`offer`]: the first look at an
//!   offer; [`error`]: what a client is told.
//!
//! Acting:
//! - [`routes`]: the HTTP API, and [`access`]: ids, log and counts around it; [`calls`]: making and ending a call;
//!   [`page`]: the page at `/`;
//! - [`transceivers`]: polled, reserved; [`owner`]: the client for their control port;
//! - [`server`]: listening and stopping; [`files`]: what is reloaded; [`config`]: the settings; [`metrics`].

pub mod access;
pub mod call_id;
pub mod calls;
pub mod config;
pub mod credentials;
pub mod error;
pub mod files;
pub mod limits;
pub mod metrics;
pub mod offer;
pub mod owner;
pub mod page;
pub mod placement;
pub mod routes;
pub mod server;
pub mod transceivers;
