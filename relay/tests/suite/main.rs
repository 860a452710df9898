//! The relay from outside: its program and its pump over loopback sockets. One program, because each one more links all dependencies once more.

mod admin;
mod allocations;
mod backlog;
mod cache;
mod cores;
mod cost;
mod drops;
mod global;
mod handover;
mod healing;
mod log;
mod open_files;
mod rebuild;
mod ring;
mod routing;
mod saturated;
mod settings;
mod steering;
mod stopping;
mod syscalls;
mod testbed;
