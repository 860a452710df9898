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

/// Hears signals from now on, and passes each on until nobody takes it. To be called in a runtime.
///
/// # Errors
/// The system has no room for what wakes the runtime.
pub(crate) fn report(events: Sender<Event>) -> io::Result<impl Future<Output = ()>> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(async move {
        loop {
            let signal = tokio::select! {
                _ = terminate.recv() => Signal::Terminate,
                _ = interrupt.recv() => Signal::Interrupt,
            };
            if events.send(Event::Signal(signal)).is_err() {
                return;
            }
        }
    })
}
