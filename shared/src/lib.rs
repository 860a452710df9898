//! What two Firsthop programs must agree on: wire formats, keys, addresses, bounds and messages.
//!
//! The relay, the transceiver and signaling are separate processes, written for two different runtimes, that meet only in
//! bytes. Everything they must read alike stands here once, so that a format has one writer and one reader in the project:
//!
//! - [`token`]: the routable ICE ufrag and the password derived from it;
//! - [`trunk`]: the datagrams of the internal hop, and the replay filter in [`replay`];
//! - [`stun`] and [`stun_write`]: the few parts of STUN that routing needs;
//! - [`packet`]: the RFC 7983 classes;
//! - [`keyring`], [`masters`], [`fleet`], [`reload`]: the files that operators hand out;
//! - [`control`]: the messages from signaling to a transceiver, and [`control_secret`], which they carry;
//! - [`url_port`]: what the port of a URL in a setting may be;
//! - [`address`], [`limits`]: newtypes that cannot be mixed up, and the bounds that two programs share.
//!
//! The library has no runtime, no socket and no `unsafe`; it reads no clock and no random source: time and randomness are
//! arguments.

pub mod address;
pub mod control;
pub mod control_secret;
pub mod fleet;
pub mod keyring;
pub mod limits;
pub mod masters;
pub mod packet;
pub mod reload;
pub mod replay;
pub mod stun;
pub mod stun_write;
pub mod token;
pub mod trunk;
pub mod url_port;
