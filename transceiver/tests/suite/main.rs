//! The transceiver from outside: sessions with a real client, in memory and over loopback. One program, because each one more links all dependencies once more.

mod audio;
mod backend;
mod binary;
mod calls;
mod channel;
mod codecs;
mod control_port;
mod cost;
mod debug;
mod draining;
mod golden;
mod hostile;
mod lifetimes;
mod loopback;
mod moving;
mod offers;
mod peer;
mod quality;
mod round_trips;
mod sidebands;
mod strict;
mod whip;
