//! What a hand-over tells a core of the serving relay: to stand still and leave its flows, or to go on.

use std::fs::File;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Mutex, PoisonError};

/// What a core that stands still leaves: its flows in a memory file, or why it does not stand still.
pub type Left = Result<File, String>;

/// An order to a core, from another thread. A turn reads one word of memory.
#[derive(Debug, Default)]
pub struct Order {
    still: AtomicBool,
    reply: Mutex<Option<SyncSender<Left>>>,
}

impl Order {
    /// Has the core stand still from its next turn on. It answers once; wake it up.
    pub(crate) fn stand_still(&self) -> Receiver<Left> {
        let (reply, left) = sync_channel(1);
        *self.lock() = Some(reply);
        self.still.store(true, Ordering::Release);
        left
    }

    /// Lets the core go on; wake it up.
    pub(crate) fn go_on(&self) {
        self.still.store(false, Ordering::Release);
        *self.lock() = None;
    }

    /// Whether the core shall stand still.
    pub(crate) fn stands(&self) -> bool {
        self.still.load(Ordering::Acquire)
    }

    /// Where the core answers, once for each order.
    pub(crate) fn reply(&self) -> Option<SyncSender<Left>> {
        self.stands().then(|| self.lock().take()).flatten()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<SyncSender<Left>>> {
        self.reply.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_is_answered_once_and_stands_until_the_core_may_go_on() {
        let order = Order::default();
        assert!(order.reply().is_none());
        let left = order.stand_still();
        let reply = order.reply().expect("asked");
        assert!(order.reply().is_none() && order.stands());
        reply.send(Err("busy".to_owned())).expect("heard");
        assert_eq!(
            left.recv().expect("answered").err().as_deref(),
            Some("busy")
        );
        order.go_on();
        assert!(!order.stands() && order.reply().is_none());
        // A core that was never told hears nothing of an order that was taken back.
        let left = order.stand_still();
        order.go_on();
        assert!(order.reply().is_none());
        left.recv().expect_err("nobody will answer");
    }
}
