//! Signaling: the front door that clients speak HTTP to.
//!
//! A client posts its SDP offer, and gets the answer of the transceiver that will own the call. In between, signaling checks the
//! key, chooses the transceiver and its worker, mints the routable ufrag by which every relay finds them, and seals the call id by
//! which any replica of signaling does. It keeps no table of calls: replicas share keyrings, and nothing else.
//!
//! Pure, without I/O, clock or random source of their own:
//! - [`call_id`], [`sealed`], [`client_secret`]: tokens that replicas need no memory for; [`credentials`]: API keys;
//! - [`placement`]: which transceiver; [`steering`]: which cluster, which ingress points; [`countries`]: where countries lie;
//! - [`offer`], [`fragment`], [`session_config`]: the first look at what clients send; [`error`]: what they are told.
//!
//! Acting:
//! - [`routes`]: the HTTP API; around it [`access`] (ids, log, counts), [`head`] (its size), [`context`] (who and where), [`auth`],
//!   [`rates`], [`body`];
//! - [`realtime`], [`whip`], [`minting`], [`sideband`]: its handlers; [`calls`], [`resource`]: making a call, and changing it; [`support`], [`traces`]: asking how
//!   it went;
//!   [`page`]: the page at `/`;
//! - [`transceivers`]: polled, reserved; [`changes`]: what is logged of them; [`names`]: their addresses; [`owner`]: the client for their control port; [`neighbours`]: other clusters, ingress points;
//!   [`client`]: where clients are;
//! - [`tls`]; [`files`]: what is reloaded; [`config`]: the settings; [`metrics`]. Listening, serving and stopping are `firsthop_service`'s.

pub mod access;
pub mod auth;
pub mod body;
pub mod call_id;
pub mod calls;
pub mod changes;
pub mod client;
pub mod client_secret;
pub mod config;
pub mod context;
pub mod countries;
pub mod credentials;
pub mod error;
pub mod files;
pub mod fragment;
pub mod head;
pub mod limits;
pub mod metrics;
pub mod minting;
pub mod names;
pub mod neighbours;
pub mod offer;
pub mod owner;
pub mod page;
pub mod placement;
pub mod rates;
pub mod realtime;
pub mod resource;
pub mod routes;
pub mod sealed;
pub mod session_config;
pub mod sideband;
pub mod steering;
pub mod support;
pub mod tls;
pub mod traces;
pub mod transceivers;
pub mod whip;
