//! Signaling from outside: its HTTP interface against transceivers that the tests play. One program, because each one more links all dependencies once more.

mod bodies;
mod call_ids;
mod calls;
mod client_secrets;
mod http;
mod mmdb;
mod names;
mod operations;
mod page;
mod placement;
mod program;
mod reload;
mod secrets;
mod sideband;
mod stage;
mod steering;
mod support;
mod tenants;
mod traces;
mod whip;
