//! What other threads may tell a core, and what cores tell each other: never on the packet path, looked at once a turn.
//!
//! A core shares nothing with another while it moves packets. Here is the little that it must share all the same: a stop
//! flag, a new keyring, a new list of relays, and notes about clients whose downlink came to the wrong core (after a restart
//! with another number of cores, until the next uplink packet). A turn reads a few words of memory that hardly ever change.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use firsthop_relay_core::PeerList;
use firsthop_shared::address::{Hop, ShardId};
use firsthop_shared::keyring::DataKeyring;
use firsthop_shared::trunk::RecordHeader;

use crate::handover::order::{Left, Order};
use crate::latest::Latest;
use crate::limits::NOTES_MAX;
use crate::wake::Wake;

/// A record whose client's packets reach another core than the one that received it: its flow belongs there.
#[derive(Clone, Copy, Debug)]
pub struct Note {
    /// Where the record came from.
    pub source: Hop,
    /// The worker that sent it.
    pub shard: ShardId,
    /// The record.
    pub record: RecordHeader,
}

/// The end that others hold of a core's control.
#[derive(Debug)]
pub struct CoreControl {
    stop: AtomicBool,
    keyring: Latest<DataKeyring>,
    peers: Latest<PeerList>,
    notes: SyncSender<Note>,
    order: Order,
    wake: Wake,
}

/// The end that a core keeps.
#[derive(Debug)]
pub struct Mailbox {
    control: Arc<CoreControl>,
    notes: Receiver<Note>,
    keyring_seen: u64,
    peers_seen: u64,
}

impl CoreControl {
    /// Makes both ends.
    #[must_use]
    pub fn new(keyring: Arc<DataKeyring>, wake: Wake) -> (Arc<Self>, Mailbox) {
        let (notes, inbox) = sync_channel(NOTES_MAX);
        let control = Arc::new(Self {
            stop: AtomicBool::new(false),
            keyring: Latest::new(keyring),
            peers: Latest::new(Arc::default()),
            notes,
            order: Order::default(),
            wake,
        });
        let mailbox = Mailbox {
            control: Arc::clone(&control),
            notes: inbox,
            keyring_seen: 0,
            peers_seen: 0,
        };
        (control, mailbox)
    }

    /// Asks the core to stop after its turn.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.wake.wake();
    }

    /// Has the core stand still after its turn, for a hand-over. It answers once.
    pub fn stand_still(&self) -> Receiver<Left> {
        let left = self.order.stand_still();
        self.wake.wake();
        left
    }

    /// Lets a core go on that stands still.
    pub fn go_on(&self) {
        self.order.go_on();
        self.wake.wake();
    }

    /// Gives the core a reloaded keyring.
    pub fn set_keyring(&self, keyring: Arc<DataKeyring>) {
        self.keyring.set(keyring);
        self.wake.wake();
    }

    /// Gives the core a reloaded list of other clusters' relays.
    pub fn set_peers(&self, peers: Arc<PeerList>) {
        self.peers.set(peers);
        self.wake.wake();
    }

    /// Wakes the core to look at what was left for it elsewhere.
    pub fn nudge(&self) {
        self.wake.wake();
    }

    /// Leaves a note for the core; `false` when too many wait already.
    pub fn note(&self, note: Note) -> bool {
        let left = self.notes.try_send(note).is_ok();
        self.wake.wake();
        left
    }
}

impl Mailbox {
    /// Answers the wake-up. Call it before looking at anything here, and sleep only after having looked at everything: what
    /// is left from now on wakes the core again.
    pub fn answer(&self) {
        self.control.wake.answer();
    }

    /// Whether the core shall stop.
    #[must_use]
    pub fn stopped(&self) -> bool {
        self.control.stop.load(Ordering::Acquire)
    }

    /// Whether the core shall stand still.
    #[must_use]
    pub fn stands_still(&self) -> bool {
        self.control.order.stands()
    }

    /// Where the core answers that it stands still, once for each time that it is told to.
    #[must_use]
    pub fn standing_order(&self) -> Option<SyncSender<Left>> {
        self.control.order.reply()
    }

    /// The new keyring, once for each.
    pub fn keyring(&mut self) -> Option<Arc<DataKeyring>> {
        self.control.keyring.newer(&mut self.keyring_seen)
    }

    /// The new list of other clusters' relays, once for each.
    pub fn peers(&mut self) -> Option<Arc<PeerList>> {
        self.control.peers.newer(&mut self.peers_seen)
    }

    /// The next note from another core.
    pub fn note(&self) -> Option<Note> {
        self.notes.try_recv().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::Read as _;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    #[test]
    fn what_is_left_after_the_look_wakes_the_core_again() {
        let (wake, event) = Wake::new().expect("an eventfd");
        let keys = firsthop_shared::keyring::Masters::new([7; 32]).data_toml();
        let keyring = Arc::new(DataKeyring::parse(&keys).expect("a keyring"));
        let (control, mut mailbox) = CoreControl::new(Arc::clone(&keyring), wake);
        let (report, wakeups) = channel();
        std::thread::spawn(move || {
            let (mut event, mut count) = (File::from(event), [0; 8]);
            while event.read_exact(&mut count).is_ok() && report.send(()).is_ok() {}
        });
        let woken = || {
            wakeups
                .recv_timeout(Duration::from_secs(10))
                .expect("a wake-up");
        };

        control.set_keyring(Arc::clone(&keyring));
        woken();
        // A turn looks at what it was woken for.
        mailbox.answer();
        assert!(mailbox.keyring().is_some());
        // Something comes between that and the sleep.
        control.set_keyring(keyring);
        assert!(!mailbox.stopped());
        woken();
        mailbox.answer();
        assert!(mailbox.keyring().is_some());
        control.stop();
        woken();
        assert!(mailbox.stopped());
    }
}
