//! Waiting, looked at by hand: what wakes, when, and how often. Wakes are counted, and times compared with those of other timers: how slow the
//! machine is does not matter.

use std::net::UdpSocket;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Waker};
use std::time::Duration;

use firsthop_shared::fleet::Fleet;
use firsthop_shared::keyring::{DataKeyring, Masters};
use tokio::sync::{Notify, oneshot};
use tokio::time::sleep_until;

use super::*;

/// Long enough to be waited for, short enough for a test.
const SOON: Duration = Duration::from_millis(20);
/// Never comes.
const FAR: Duration = Duration::from_secs(3_600);

/// The waker of what is looked at.
#[derive(Default)]
pub(in crate::worker) struct Woken {
    count: AtomicUsize,
    first: OnceLock<Instant>,
    pub(in crate::worker) told: Notify,
}

impl std::task::Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.count.fetch_add(1, Relaxed);
        self.first.get_or_init(Instant::now);
        self.told.notify_one();
    }
}

impl Woken {
    pub(in crate::worker) fn look<F: Future>(
        self: &Arc<Self>,
        waiting: Pin<&mut F>,
    ) -> Poll<F::Output> {
        let waker = Waker::from(Arc::clone(self));
        waiting.poll(&mut Context::from_waker(&waker))
    }

    pub(in crate::worker) fn count(&self) -> usize {
        self.count.load(Relaxed)
    }
}

/// What a worker waits with.
struct Rig {
    sleep: Pin<Box<Sleep>>,
    socket: tokio::net::UdpSocket,
    changes: mpsc::Receiver<()>,
    commands: mpsc::Receiver<Command>,
    wakes: mpsc::UnboundedReceiver<SessionId>,
    seen: Seen,
}

/// What [`look`] looks at.
struct Seen {
    keys: watch::Receiver<Shared>,
    drain: watch::Receiver<Option<Instant>>,
    stop: watch::Receiver<bool>,
}

impl Seen {
    fn look(&self) -> Wake {
        look(&self.keys, &self.drain, &self.stop)
    }
}

/// Who wakes it.
struct Others {
    commands: mpsc::Sender<Command>,
    wakes: mpsc::UnboundedSender<SessionId>,
    keys: watch::Sender<Shared>,
    drain: watch::Sender<Option<Instant>>,
    stop: watch::Sender<bool>,
}

impl Rig {
    async fn new() -> (Self, Others) {
        let (to_commands, commands) = mpsc::channel(4);
        let (to_wakes, wakes) = mpsc::unbounded_channel();
        let (keys, seen, (drain, stop)) = changing();
        let socket = tokio::net::UdpSocket::bind("127.0.0.1:0").await;
        let rig = Self {
            sleep: Box::pin(tokio::time::sleep(Duration::ZERO)),
            socket: socket.expect("a socket"),
            changes: changes(seen.keys.clone(), seen.drain.clone(), seen.stop.clone()),
            commands,
            wakes,
            seen,
        };
        let others = Others {
            commands: to_commands,
            wakes: to_wakes,
            keys,
            drain,
            stop,
        };
        (rig, others)
    }

    async fn wait(&mut self, deadline: Option<Instant>) -> Wake {
        let inputs = (&mut self.changes, &mut self.commands, &mut self.wakes);
        wait(deadline, self.sleep.as_mut(), &self.socket, inputs).await
    }

    /// What a turn begins with.
    async fn next(&mut self) -> Wake {
        match self.wait(None).await {
            Wake::Change => self.seen.look(),
            wake => wake,
        }
    }
}

type Changing = (
    watch::Sender<Shared>,
    Seen,
    (watch::Sender<Option<Instant>>, watch::Sender<bool>),
);

fn changing() -> Changing {
    let (to_keys, keys) = watch::channel(shared());
    let (to_drain, drain) = watch::channel(None);
    let (to_stop, stop) = watch::channel(false);
    (to_keys, Seen { keys, drain, stop }, (to_drain, to_stop))
}

pub(in crate::worker) fn shared() -> Shared {
    let keyring = DataKeyring::parse(&Masters::new([1; 32]).data_toml());
    let fleet = Fleet::parse(
        "[[cluster]]\nid=1\nname=\"dev\"\n[[ingress]]\nid=0\nipv4=\"203.0.113.10:3478\"\n",
    );
    Shared {
        keyring: Arc::new(keyring.expect("a keyring")),
        fleet: Arc::new(fleet.expect("a fleet")),
    }
}

fn a_command() -> Command {
    Command::Report {
        id: SessionId(7),
        reply: oneshot::channel().0,
    }
}

/// The runtime goes round: whoever has been woken runs, sockets and timers are looked at.
pub(in crate::worker) async fn rounds() {
    for _ in 0..1_000 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_deadline_wakes_once_and_not_before_it_has_come() {
    let (mut rig, _others) = Rig::new().await;
    let at = Instant::now() + SOON;
    let woken = Arc::new(Woken::default());
    let mut waiting = pin!(rig.wait(Some(at)));
    assert!(woken.look(waiting.as_mut()).is_pending());
    // A timer for later comes after it, on however slow a machine.
    sleep_until((at + SOON).into()).await;
    assert_eq!(woken.count(), 1);
    assert!(*woken.first.get().expect("woken") >= at, "before its time");
    assert!(matches!(woken.look(waiting), Poll::Ready(Wake::Timer)));
}

#[tokio::test]
async fn a_deadline_that_has_come_nearer_is_kept() {
    let (mut rig, _others) = Rig::new().await;
    let far = Instant::now() + FAR;
    let woken = Arc::new(Woken::default());
    assert!(woken.look(pin!(rig.wait(Some(far)))).is_pending());

    let near = Instant::now() + SOON;
    let mut waiting = pin!(rig.wait(Some(near)));
    assert!(woken.look(waiting.as_mut()).is_pending());
    sleep_until((near + SOON).into()).await;
    assert_eq!(woken.count(), 1);
    assert!(*woken.first.get().expect("woken") >= near);
    assert!(matches!(woken.look(waiting), Poll::Ready(Wake::Timer)));
}

#[tokio::test]
async fn a_deadline_that_was_moved_away_or_dropped_does_not_wake() {
    let (mut rig, _others) = Rig::new().await;
    let woken = Arc::new(Woken::default());
    let early = Instant::now() + SOON;
    assert!(woken.look(pin!(rig.wait(Some(early)))).is_pending());
    let later = early + SOON;
    let mut waiting = Box::pin(rig.wait(Some(later)));
    assert!(woken.look(waiting.as_mut()).is_pending());
    sleep_until((later + SOON).into()).await;
    assert_eq!(woken.count(), 1);
    assert!(*woken.first.get().expect("woken") >= later, "by the first");
    drop(waiting);

    // The timer has come, but nobody has asked for it any more.
    let mut waiting = pin!(rig.wait(None));
    assert!(woken.look(waiting.as_mut()).is_pending());
}

#[tokio::test]
async fn a_deadline_that_has_passed_ends_the_wait_at_the_first_look() {
    let (mut rig, _others) = Rig::new().await;
    // The engine's, which may lie in the past, before the timer was ever set, and after.
    for _ in 0..2 {
        let past = Instant::now();
        sleep_until((past + SOON).into()).await;
        let woken = Arc::new(Woken::default());
        let first = woken.look(pin!(rig.wait(Some(past))));
        assert!(matches!(first, Poll::Ready(Wake::Timer)));
    }
}

#[tokio::test]
async fn commands_and_backends_wake_at_once() {
    let (mut rig, others) = Rig::new().await;
    let far = Instant::now() + FAR;
    let woken = Arc::new(Woken::default());

    let mut waiting = Box::pin(rig.wait(Some(far)));
    assert!(woken.look(waiting.as_mut()).is_pending());
    others.commands.try_send(a_command()).expect("room");
    assert_eq!(woken.count(), 1, "nobody else had to run");
    let wake = woken.look(waiting.as_mut());
    assert!(matches!(wake, Poll::Ready(Wake::Command(Some(_)))));
    drop(waiting);

    let mut waiting = Box::pin(rig.wait(Some(far)));
    assert!(woken.look(waiting.as_mut()).is_pending());
    others.wakes.send(SessionId(7)).expect("taken");
    assert_eq!(woken.count(), 2);
    let wake = woken.look(waiting.as_mut());
    assert!(matches!(wake, Poll::Ready(Wake::Backend(SessionId(7)))));
    drop(waiting);

    // What came during a turn ends the next wait before it has begun.
    others.commands.try_send(a_command()).expect("room");
    others.wakes.send(SessionId(8)).expect("taken");
    let wake = woken.look(pin!(rig.wait(Some(far))));
    assert!(matches!(wake, Poll::Ready(Wake::Command(Some(_)))));
    let wake = woken.look(pin!(rig.wait(Some(far))));
    assert!(matches!(wake, Poll::Ready(Wake::Backend(SessionId(8)))));
}

#[tokio::test]
async fn a_datagram_wakes() {
    let (mut rig, _others) = Rig::new().await;
    let to = rig.socket.local_addr().expect("an address");
    let woken = Arc::new(Woken::default());
    let mut waiting = pin!(rig.wait(Some(Instant::now() + FAR)));
    assert!(woken.look(waiting.as_mut()).is_pending());
    rounds().await;
    assert_eq!(woken.count(), 0, "the socket is empty");
    let sender = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    sender.send_to(b"x", to).expect("sent");
    woken.told.notified().await;
    assert!(matches!(woken.look(waiting), Poll::Ready(Wake::Socket)));
}

#[tokio::test]
async fn new_keys_a_drain_and_the_stop_wake_and_none_hides_another() {
    let (mut rig, others) = Rig::new().await;
    others.keys.send_replace(shared());
    assert!(matches!(rig.next().await, Wake::Shared));
    rig.seen.keys.borrow_and_update();
    others.drain.send_replace(Some(Instant::now()));
    assert!(matches!(rig.next().await, Wake::Drain));
    rig.seen.drain.borrow_and_update();

    // Two at once are two turns.
    others.keys.send_replace(shared());
    others.drain.send_replace(Some(Instant::now()));
    assert!(matches!(rig.next().await, Wake::Shared));
    rig.seen.keys.borrow_and_update();
    assert!(matches!(rig.next().await, Wake::Drain));
    rig.seen.drain.borrow_and_update();

    others.stop.send_replace(true);
    assert!(matches!(rig.next().await, Wake::Stop));
}

#[tokio::test]
async fn the_main_thread_s_end_wakes_and_stops() {
    let (mut rig, others) = Rig::new().await;
    let woken = Arc::new(Woken::default());
    let mut waiting = Box::pin(rig.next());
    assert!(woken.look(waiting.as_mut()).is_pending());
    drop(others.stop);
    woken.told.notified().await;
    assert!(matches!(
        woken.look(waiting.as_mut()),
        Poll::Ready(Wake::Stop)
    ));
}

#[tokio::test]
async fn nothing_wakes_a_worker_that_has_nothing_to_do() {
    let (mut rig, _others) = Rig::new().await;
    let woken = Arc::new(Woken::default());
    let mut waiting = pin!(rig.wait(Some(Instant::now() + FAR)));
    assert!(woken.look(waiting.as_mut()).is_pending());
    rounds().await;
    assert_eq!(woken.count(), 0);
    assert!(woken.look(waiting).is_pending());
}

#[tokio::test]
async fn channels_whose_other_end_has_gone_do_not_keep_a_worker_awake() {
    let (mut rig, others) = Rig::new().await;
    let woken = Arc::new(Woken::default());
    let mut waiting = Box::pin(rig.next());
    assert!(woken.look(waiting.as_mut()).is_pending());
    drop((others.commands, others.wakes, others.keys, others.drain));
    // As many looks as there are wakes: each end may wake once.
    let mut looks = 0;
    for _ in 0..1_000 {
        tokio::task::yield_now().await;
        if woken.count() > looks {
            looks = woken.count();
            assert!(woken.look(waiting.as_mut()).is_pending());
        }
    }
    assert!(looks <= 2, "{looks} looks at what has gone");
    others.stop.send_replace(true);
    // It may have been told of the others' ends.
    let wake = loop {
        woken.told.notified().await;
        if let Poll::Ready(wake) = woken.look(waiting.as_mut()) {
            break wake;
        }
    };
    assert!(matches!(wake, Wake::Stop));
}

#[test]
fn a_worker_that_never_waits_sees_new_keys_a_drain_and_the_stop() {
    let (keys, mut seen, (drain, stop)) = changing();
    assert!(matches!(seen.look(), Wake::Socket));
    drain.send_replace(Some(Instant::now()));
    assert!(matches!(seen.look(), Wake::Drain));
    seen.drain.borrow_and_update();
    keys.send_replace(shared());
    assert!(matches!(seen.look(), Wake::Shared));
    stop.send_replace(true);
    assert!(matches!(seen.look(), Wake::Stop));
}

#[test]
fn a_worker_that_never_waits_stops_when_the_main_thread_has_gone() {
    let (_keys, seen, (_drain, stop)) = changing();
    drop(stop);
    assert!(matches!(seen.look(), Wake::Stop));
}
