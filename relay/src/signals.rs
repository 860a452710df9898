//! The signals that ask a relay to end.

use std::io;
use std::sync::mpsc::Sender;

use tokio::signal::unix::{SignalKind, signal};

use crate::relay::Event;

/// How the relay is asked to end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Signal {
    /// SIGTERM, by a supervisor: gracefully.
    Terminate,
    /// SIGINT, by a person: at once.
    Interrupt,
}

/// Passes each signal on.
pub(crate) async fn report(events: Sender<Event>) -> io::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    loop {
        let signal = tokio::select! {
            _ = terminate.recv() => Signal::Terminate,
            _ = interrupt.recv() => Signal::Interrupt,
        };
        let _ = events.send(Event::Signal(signal));
    }
}
