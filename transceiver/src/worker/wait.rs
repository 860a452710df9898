//! What a worker's thread waits for, all at once, between its turns.

use std::future::{Future as _, poll_fn};
use std::pin::Pin;
use std::task::Poll;
use std::time::Instant;

use firsthop_shared::address::SessionId;
use tokio::sync::{mpsc, watch};
use tokio::time::Sleep;

use super::command::Command;
use super::core::Shared;

/// What woke the worker.
#[derive(Debug)]
pub(super) enum Wake {
    Socket,
    Timer,
    /// One of the three that [`look`] tells apart.
    Change,
    Command(Option<Command>),
    Shared,
    Backend(SessionId),
    Drain,
    Stop,
}

/// Waits until there is something to do.
///
/// What it waits with lives as long as the worker: a turn may be for one packet, and to make and register all this anew costs more.
pub(super) async fn wait(
    deadline: Option<Instant>,
    mut sleep: Pin<&mut Sleep>,
    socket: &tokio::net::UdpSocket,
    (changes, commands, wakes): (
        &mut mpsc::Receiver<()>,
        &mut mpsc::Receiver<Command>,
        &mut mpsc::UnboundedReceiver<SessionId>,
    ),
) -> Wake {
    poll_fn(|cx| {
        if changes.poll_recv(cx).is_ready() {
            return Poll::Ready(Wake::Change);
        }
        if let Some(at) = deadline.map(Into::into) {
            if sleep.deadline() != at {
                sleep.as_mut().reset(at);
            }
            if sleep.as_mut().poll(cx).is_ready() {
                return Poll::Ready(Wake::Timer);
            }
        }
        if !commands.is_closed()
            && let Poll::Ready(command) = commands.poll_recv(cx)
        {
            return Poll::Ready(Wake::Command(command));
        }
        if let Poll::Ready(Some(session)) = wakes.poll_recv(cx) {
            return Poll::Ready(Wake::Backend(session));
        }
        socket.poll_recv_ready(cx).map(|_| Wake::Socket)
    })
    .await
}

/// Tells of new keys and fleets, of a drain and of the end, by an empty message: [`look`] says which it was.
///
/// They are rare, and to look for each in every turn is not cheap: a task of its own waits for them.
pub(super) fn changes(
    mut shared: watch::Receiver<Shared>,
    mut drain: watch::Receiver<Option<Instant>>,
    mut stop: watch::Receiver<bool>,
) -> mpsc::Receiver<()> {
    let (tell, changes) = mpsc::channel(1);
    tokio::spawn(async move {
        let mut stops = false;
        while !stops {
            tokio::select! {
                // A closed channel means that the main thread has gone.
                _ = stop.wait_for(|stop| *stop) => stops = true,
                Ok(()) = shared.changed() => {}
                Ok(()) = drain.changed() => {}
            }
            if tell.send(()).await.is_err() {
                return;
            }
        }
    });
    changes
}

/// What a worker that never waits has to see all the same: the end, a drain, and new keys.
pub(super) fn look(
    shared: &watch::Receiver<Shared>,
    drain: &watch::Receiver<Option<Instant>>,
    stop: &watch::Receiver<bool>,
) -> Wake {
    // A closed channel means that the main thread has gone.
    if *stop.borrow() || stop.has_changed().is_err() {
        Wake::Stop
    } else if shared.has_changed().unwrap_or(false) {
        Wake::Shared
    } else if drain.has_changed().unwrap_or(false) {
        Wake::Drain
    } else {
        Wake::Socket
    }
}

#[cfg(test)]
#[path = "wait_tests.rs"]
pub(super) mod tests;
