//! Model servers: whole conversations in virtual time, and connections over loopback.

mod connection;
mod properties;
mod transcripts;
