//! SDP at the edge: what clients really send becomes what the engine takes, and its answer becomes what they expect.
//!
//! The engine's parser is strict: a `BUNDLE` group, a `mid` and a direction in every section, one profile, no unknown
//! section. Embedded clients and odd browsers' offers lack some of these and are still perfectly servable. So [`Offer`]
//! reads the client's text, forgives what is missing and refuses what is wrong, picks the sections that this service speaks, and writes a
//! plain offer of just those; [`answer`](compose) puts the engine's answer back into the shape of the client's offer.

mod answer;
mod channel;
mod engine;
mod offer;
mod section;
mod strict;

pub use answer::{AnswerParts, compose};
pub use offer::{Offer, OfferError, Purpose};
pub use section::Role;
