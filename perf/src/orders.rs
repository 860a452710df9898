//! Orders to a thread that waits for its sockets: it wakes for one as it does for a packet.

use std::io;
use std::os::fd::{AsRawFd as _, RawFd};
use std::os::unix::net::UnixDatagram;
use std::sync::mpsc;

/// Where orders are given.
#[derive(Debug)]
pub struct Giver<O> {
    /// Always there but for the end.
    orders: Option<mpsc::SyncSender<O>>,
    wake: UnixDatagram,
}

/// Where they come out.
#[derive(Debug)]
pub struct Taker<O> {
    orders: mpsc::Receiver<O>,
    woken: UnixDatagram,
}

/// The thread that should obey has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the thread that does this has ended")]
pub struct Gone;

/// Orders that wait at most; who gives one more waits too.
const WAITING: usize = 16;

/// A way for orders.
///
/// # Errors
/// The system gives no sockets.
pub fn way<O>() -> io::Result<(Giver<O>, Taker<O>)> {
    let (give, take) = mpsc::sync_channel(WAITING);
    let (wake, woken) = UnixDatagram::pair()?;
    wake.set_nonblocking(true)?;
    woken.set_nonblocking(true)?;
    let giver = Giver {
        orders: Some(give),
        wake,
    };
    let taker = Taker {
        orders: take,
        woken,
    };
    Ok((giver, taker))
}

impl<O> Giver<O> {
    /// Gives an order.
    ///
    /// # Errors
    /// Nobody takes them any more.
    pub fn give(&self, order: O) -> Result<(), Gone> {
        let orders = self.orders.as_ref().ok_or(Gone)?;
        orders.send(order).map_err(|_| Gone)?;
        // A full socket means that enough was told.
        let _ = self.wake.send(&[1]);
        Ok(())
    }

    /// Gives an order that is answered, and waits for the answer.
    ///
    /// # Errors
    /// The thread has ended, or does before it answers.
    pub fn ask<A>(&self, order: impl FnOnce(mpsc::Sender<A>) -> O) -> Result<A, Gone> {
        let (tell, told) = mpsc::channel();
        self.give(order(tell))?;
        told.recv().map_err(|_| Gone)
    }
}

impl<O> Drop for Giver<O> {
    fn drop(&mut self) {
        // Whoever wakes now sees that there is nobody.
        self.orders = None;
        let _ = self.wake.send(&[1]);
    }
}

impl<O> Taker<O> {
    /// The next order, if there is one. [`Gone`] when there will be none any more.
    ///
    /// # Errors
    /// The giver has gone.
    pub fn take(&self) -> Result<Option<O>, Gone> {
        let mut told = [0; 1];
        // It only wakes: how often says nothing.
        let _ = self.woken.recv(&mut told);
        match self.orders.try_recv() {
            Ok(order) => Ok(Some(order)),
            Err(mpsc::TryRecvError::Empty) => Ok(None),
            Err(mpsc::TryRecvError::Disconnected) => Err(Gone),
        }
    }

    /// Readable when there is an order, or the giver has gone.
    #[must_use]
    pub fn descriptor(&self) -> RawFd {
        self.woken.as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::readable;
    use std::time::Duration;

    #[test]
    fn an_order_wakes_who_waits_and_is_answered() {
        let (giver, taker) = way::<(u32, mpsc::Sender<u32>)>().expect("a way");
        let thread = std::thread::spawn(move || {
            loop {
                readable::wait(&[taker.descriptor()], Duration::from_secs(20)).expect("waited");
                match taker.take() {
                    Ok(Some((number, tell))) => tell.send(number + 1).expect("told"),
                    Ok(None) => {}
                    Err(Gone) => return,
                }
            }
        });
        for number in [1, 41] {
            assert_eq!(giver.ask(|tell| (number, tell)), Ok(number + 1));
        }
        drop(giver);
        thread.join().expect("ended");
    }

    #[test]
    fn who_asks_a_thread_that_has_ended_is_told_so() {
        let (giver, taker) = way::<mpsc::Sender<u32>>().expect("a way");
        drop(taker);
        assert_eq!(giver.ask(|tell| tell), Err(Gone));
    }
}
