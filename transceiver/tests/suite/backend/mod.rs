//! Model servers: whole conversations in virtual time, and connections over loopback.

mod connection;
mod interruptions;
mod pipecat;
mod properties;
mod transcripts;
