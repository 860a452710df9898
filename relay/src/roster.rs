//! The cores that run now, as the admin thread sees them: a group comes and goes, the admin pages stay.
//!
//! A group that is built anew has new sockets, controls and counters. What others hold of them is kept here and nowhere
//! else, because a descriptor that somebody kept would hold the group's addresses.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use firsthop_relay_core::PeerList;
use firsthop_shared::keyring::DataKeyring;

use crate::cache::FlowCache;
use crate::control::CoreControl;
use crate::counters::Published;
use crate::sockets::GrantedBuffers;

/// One core, as the admin thread sees it.
#[derive(Debug)]
pub struct CoreView {
    /// What it publishes.
    pub published: Arc<Published>,
    /// Its public sockets, to ask the kernel how much they dropped.
    pub public: Vec<OwnedFd>,
    /// Its internal socket, for the same.
    pub internal: OwnedFd,
    /// What others may tell it.
    pub control: Arc<CoreControl>,
}

/// A group of cores; empty while there is none.
#[derive(Debug, Default)]
pub struct GroupView {
    /// By core.
    pub cores: Vec<CoreView>,
    /// The buffers that their sockets were granted; nothing before the first group.
    pub granted: Option<GrantedBuffers>,
}

/// Who runs now, and what every core must know.
#[derive(Debug)]
pub struct Roster {
    expected: usize,
    flows_per_core: u32,
    stopping: AtomicBool,
    rebuilds: AtomicU64,
    /// Nothing when the relay has no flow cache.
    cache: Option<Arc<FlowCache>>,
    present: Mutex<Present>,
}

#[derive(Debug)]
struct Present {
    keyring: Arc<DataKeyring>,
    peers: Arc<PeerList>,
    group: Arc<GroupView>,
}

impl Roster {
    /// No core runs yet; `expected` shall, with room for so many flows each.
    #[must_use]
    pub fn new(expected: usize, flows_per_core: u32, keyring: Arc<DataKeyring>) -> Self {
        Self {
            expected,
            flows_per_core,
            stopping: AtomicBool::new(false),
            rebuilds: AtomicU64::new(0),
            cache: None,
            present: Mutex::new(Present {
                keyring,
                peers: Arc::default(),
                group: Arc::default(),
            }),
        }
    }

    /// The same, with a flow cache for all groups.
    #[must_use]
    pub fn with_cache(self, cache: Option<Arc<FlowCache>>) -> Self {
        Self { cache, ..self }
    }

    /// The flow cache, if there is one.
    #[must_use]
    pub fn cache(&self) -> Option<&Arc<FlowCache>> {
        self.cache.as_ref()
    }

    /// How many cores shall run.
    #[must_use]
    pub fn expected(&self) -> usize {
        self.expected
    }

    /// How many flows each core can know.
    #[must_use]
    pub fn flows_per_core(&self) -> u32 {
        self.flows_per_core
    }

    /// How many cores receive on all of their sockets.
    #[must_use]
    pub fn armed(&self) -> usize {
        let group = self.group();
        group.cores.iter().filter(|c| c.published.armed()).count()
    }

    /// The relay is about to end: whoever asks whether it is ready hears no from now on.
    pub fn set_stopping(&self) {
        self.stopping.store(true, Ordering::Release);
    }

    /// Whether the relay is about to end.
    #[must_use]
    pub fn stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// How many flows all cores have together, as they published last.
    #[must_use]
    pub fn flows(&self) -> u64 {
        let group = self.group();
        group.cores.iter().map(|core| core.published.flows()).sum()
    }

    /// How often the group has been built anew.
    #[must_use]
    pub fn rebuilds(&self) -> u64 {
        self.rebuilds.load(Ordering::Relaxed)
    }

    /// The group that runs now. Let go of it soon: as long as it is held, its addresses are not free.
    #[must_use]
    pub fn group(&self) -> Arc<GroupView> {
        Arc::clone(&self.lock().group)
    }

    /// The newest keyring.
    #[must_use]
    pub fn keyring(&self) -> Arc<DataKeyring> {
        Arc::clone(&self.lock().keyring)
    }

    /// Gives a reloaded keyring to every core, and to those that come later.
    pub fn set_keyring(&self, keyring: Arc<DataKeyring>) {
        let mut present = self.lock();
        for core in &present.group.cores {
            core.control.set_keyring(Arc::clone(&keyring));
        }
        present.keyring = keyring;
    }

    /// The newest list of other clusters' relays.
    #[must_use]
    pub fn peers(&self) -> Arc<PeerList> {
        Arc::clone(&self.lock().peers)
    }

    /// Gives a reloaded list of other clusters' relays to every core, and to those that come later.
    pub fn set_peers(&self, peers: Arc<PeerList>) {
        let mut present = self.lock();
        for core in &present.group.cores {
            core.control.set_peers(Arc::clone(&peers));
        }
        present.peers = peers;
    }

    /// A group has started. It is given the newest keyring and relays, which may have come since it was told of some.
    pub fn enter(&self, group: GroupView) {
        let mut present = self.lock();
        for core in &group.cores {
            core.control.set_keyring(Arc::clone(&present.keyring));
            core.control.set_peers(Arc::clone(&present.peers));
        }
        present.group = Arc::new(group);
    }

    /// The group ends, and another one is on its way.
    pub fn leave(&self) {
        let mut present = self.lock();
        let granted = present.group.granted;
        present.group = Arc::new(GroupView {
            cores: Vec::new(),
            granted,
        });
        self.rebuilds.fetch_add(1, Ordering::Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, Present> {
        self.present.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;

    use firsthop_shared::keyring::Masters;

    use crate::control::Mailbox;
    use crate::wake::Wake;

    fn keyring(secret: u8) -> Arc<DataKeyring> {
        let text = Masters::new([secret; 32]).data_toml();
        Arc::new(DataKeyring::parse(&text).expect("a keyring"))
    }

    /// A core that was told of `keyring` when it started, and has a socket at the address that is returned.
    fn core(keyring: &Arc<DataKeyring>) -> (CoreView, Mailbox, std::net::SocketAddr) {
        let (wake, _) = Wake::new().expect("an eventfd");
        let (control, mailbox) = CoreControl::new(Arc::clone(keyring), wake);
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        let address = socket.local_addr().expect("its address");
        let view = CoreView {
            published: Arc::new(Published::new()),
            public: Vec::new(),
            internal: socket.into(),
            control,
        };
        (view, mailbox, address)
    }

    fn group(core: CoreView) -> GroupView {
        GroupView {
            cores: vec![core],
            granted: None,
        }
    }

    #[test]
    fn a_keyring_that_comes_while_there_is_no_group_reaches_the_next_one() {
        let (old, new) = (keyring(1), keyring(2));
        let roster = Roster::new(1, 64, Arc::clone(&old));
        let (view, mut mailbox, _) = core(&old);
        roster.set_keyring(Arc::clone(&new));
        roster.enter(group(view));
        let told = mailbox.keyring().expect("the newest");
        assert!(Arc::ptr_eq(&told, &new));
        assert!(Arc::ptr_eq(&roster.keyring(), &new));
    }

    #[test]
    fn a_group_that_leaves_gives_its_addresses_back_and_is_not_ready() {
        let keys = keyring(1);
        let roster = Roster::new(1, 64, Arc::clone(&keys));
        let (view, _mailbox, address) = core(&keys);
        view.published.set_armed(true);
        roster.enter(group(view));
        assert_eq!((roster.armed(), roster.rebuilds()), (1, 0));
        UdpSocket::bind(address).expect_err("taken");
        roster.leave();
        assert_eq!((roster.armed(), roster.rebuilds()), (0, 1));
        UdpSocket::bind(address).expect("free");
    }
}
