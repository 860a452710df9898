//! A worker's thread: a single-threaded runtime, pinned, that feeds the core in bounded turns.

use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use firsthop_shared::address::{Hop, SessionId};
use tokio::io::Interest;
use tokio::sync::{mpsc, watch};

use super::command::Command;
use super::core::{Core, Shared};
use super::paths::Paths;
use super::stats::WorkerStats;
use super::wait::{Wake, changes, look, wait};
use crate::limits;
use crate::reason::Reason;
use crate::socket::{self, ReceiveBatch};

/// What a worker's thread is given.
pub struct Worker {
    /// Its sessions.
    pub core: Core,
    /// Its socket of the group, not blocking.
    pub socket: UdpSocket,
    /// Commands of the control server.
    pub commands: mpsc::Receiver<Command>,
    /// New keys and fleets.
    pub shared: watch::Receiver<Shared>,
    /// Sessions whose backend has something to say, each at most once.
    pub wakes: mpsc::UnboundedReceiver<SessionId>,
    /// Ends when every connection to a model server has said goodbye.
    pub connections: mpsc::Receiver<()>,
    /// When the process is going to stop, once that is known.
    pub drain: watch::Receiver<Option<Instant>>,
    /// True when the process stops.
    pub stop: watch::Receiver<bool>,
    /// Where its counters are published.
    pub stats: Arc<WorkerStats>,
    /// Upper bound for the MTU of the paths to relays.
    pub internal_mtu: Option<u16>,
    /// The processor that it is pinned to.
    pub cpu: Option<core_affinity::CoreId>,
}

/// Starts a worker's thread.
///
/// The thread ends after [`Worker::stop`] has become true and every session has been closed. `ended` is told of the end,
/// whatever its cause: an end before the stop is a fault, and the sessions of that shard are lost.
///
/// # Errors
/// The system gave no thread, or no files to wait with.
pub fn spawn(
    worker: Worker,
    name: String,
    ended: mpsc::UnboundedSender<std::io::Result<()>>,
) -> std::io::Result<()> {
    // Here and not in its thread, which may come late: by then clients may have taken every file that is left.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()?;
    watched(name, ended, move || {
        if let Some(cpu) = worker.cpu {
            // Refused in some containers: slower then, not wrong.
            core_affinity::set_for_current(cpu);
        }
        let result = runtime.block_on(run(worker));
        // A look-up of a model server's name goes on when nobody waits for it any more: it does not hold the worker's end.
        runtime.shutdown_background();
        result
    })
}

/// Runs `body` in a thread of its own, and tells `ended` how it ended; a panic is an error.
fn watched(
    name: String,
    ended: mpsc::UnboundedSender<std::io::Result<()>>,
    body: impl FnOnce() -> std::io::Result<()> + Send + 'static,
) -> std::io::Result<()> {
    let thread = std::thread::Builder::new().name(name.clone());
    thread.spawn(move || {
        // Nothing of what the panic broke is used again.
        let result = catch_unwind(AssertUnwindSafe(body))
            .unwrap_or_else(|_| Err(std::io::Error::other(format!("{name} panicked"))));
        // Nobody listens any more: the process is ending.
        let _ = ended.send(result);
    })?;
    Ok(())
}

async fn run(worker: Worker) -> std::io::Result<()> {
    let Worker {
        mut core,
        socket,
        mut commands,
        mut shared,
        mut wakes,
        mut connections,
        mut drain,
        stop,
        stats,
        internal_mtu,
        ..
    } = worker;
    let socket = tokio::net::UdpSocket::from_std(socket)?;
    let mut changes = changes(shared.clone(), drain.clone(), stop.clone());
    let mut sleep = pin!(tokio::time::sleep(Duration::ZERO));
    let mut batch = ReceiveBatch::default();
    let mut meminfo_at = Instant::now();
    let mut paths = Paths::new(internal_mtu, core.egress(), meminfo_at);
    let mut busy = false;

    loop {
        // 1. Wait for something to do; a turn that left work behind only looks.
        let wake = if busy {
            tokio::task::yield_now().await;
            look(&shared, &drain, &stop)
        } else {
            let inputs = (&mut changes, &mut commands, &mut wakes);
            match wait(core.deadline(), sleep.as_mut(), &socket, inputs).await {
                Wake::Change => look(&shared, &drain, &stop),
                wake => wake,
            }
        };
        busy = false;
        let now = Instant::now();

        // 2. What changes for all sessions.
        match wake {
            Wake::Stop => break,
            Wake::Shared => core.reload(shared.borrow_and_update().clone()),
            Wake::Drain => {
                if let Some(end) = *drain.borrow_and_update() {
                    core.drain(end, now);
                }
            }
            Wake::Command(Some(command)) => core.command(command, now),
            Wake::Backend(session) => core.wake(session, now),
            // The control server has gone: so will the stop signal come.
            Wake::Command(None) | Wake::Change | Wake::Socket | Wake::Timer => {}
        }
        for _ in 1..limits::COMMANDS_PER_TURN {
            match commands.try_recv() {
                Ok(command) => core.command(command, now),
                Err(_) => break,
            }
        }

        // 3. Timers first: what is due must not wait for a full socket.
        busy |= core.timers(now);

        // 4. What model servers have said.
        busy |= !take_wakes(&mut core, &mut wakes, &socket, now);

        // 5. One batch from the socket.
        let fd = socket.as_raw_fd();
        match receive(&socket, &mut batch) {
            Ok(count) => {
                let now = Instant::now();
                for (from, bytes) in batch.take() {
                    core.datagram(from, bytes, now);
                    if core.egress().is_full() {
                        flush(&mut core, &socket);
                    }
                }
                busy |= count == limits::DATAGRAMS_PER_TURN;
            }
            // A relay that is down answers with ICMP, which shows up here: nothing is wrong with the socket.
            Err(_) => core.counters().receive_errors += 1,
        }

        // 6. What the turn made leaves, packed per hop, as large as the paths take it.
        flush(&mut core, &socket);
        paths.look(core.egress(), now);

        // 7. Counters become visible.
        if now.duration_since(meminfo_at) >= Duration::from_secs(1) {
            meminfo_at = now;
            core.counters().kernel_drops = socket::kernel_drops(fd).unwrap_or(0).into();
        }
        publish(&mut core, &stats);
    }

    while core.stop(Instant::now()) {
        flush(&mut core, &socket);
    }
    flush(&mut core, &socket);
    publish(&mut core, &stats);
    // Their sessions have ended, and so do they, each within its own bound.
    drop(core);
    let _ = tokio::time::timeout(2 * limits::BACKEND_GOODBYE, connections.recv()).await;
    Ok(())
}

/// Takes a batch from the socket, and returns how many datagrams that is; nothing where there is none.
///
/// A batch that is not full has emptied the socket. The runtime is told so: it would have the next turn look again, for nothing, after
/// each batch. What arrives meanwhile makes the socket readable anew.
fn receive(socket: &tokio::net::UdpSocket, batch: &mut ReceiveBatch) -> std::io::Result<usize> {
    let mut received = Ok(0);
    // An error of the runtime's own is that the socket is not readable.
    let _ = socket.try_io(Interest::READABLE, || {
        received = batch.receive(socket.as_raw_fd());
        match &received {
            Ok(limits::DATAGRAMS_PER_TURN) => Ok(()),
            Err(error) if error.kind() != ErrorKind::WouldBlock => Ok(()),
            _ => Err(ErrorKind::WouldBlock.into()),
        }
    });
    match received {
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(0),
        received => received,
    }
}

/// Serves wakes, a bounded number; returns whether that were all.
fn take_wakes(
    core: &mut Core,
    wakes: &mut mpsc::UnboundedReceiver<SessionId>,
    socket: &tokio::net::UdpSocket,
    now: Instant,
) -> bool {
    for _ in 0..limits::WAKES_PER_TURN {
        let Ok(session) = wakes.try_recv() else {
            return true;
        };
        core.wake(session, now);
        if core.egress().is_full() {
            flush(core, socket);
        }
    }
    false
}

fn flush(core: &mut Core, socket: &tokio::net::UdpSocket) {
    let mut sent = socket::Sent::default();
    core.flush(|datagrams| {
        let list: Vec<(SocketAddr, &[u8])> = datagrams
            .iter()
            .map(|(hop, bytes)| (Hop::get(hop), *bytes))
            .collect();
        sent = socket::send_batch(socket.as_raw_fd(), &list);
    });
    core.counters().send_errors += sent.failed as u64;
    core.counters().oversize += sent.oversize.len() as u64;
    for hop in sent.oversize {
        core.egress().too_large(Hop::new(hop));
    }
    for _ in 0..sent.left {
        core.drops().count(Reason::SocketFull);
    }
}

fn publish(core: &mut Core, stats: &WorkerStats) {
    let drops = core.drops().clone();
    stats.publish(core.counters(), &drops);
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::Relaxed;
    use std::task::Poll;

    use firsthop_shared::address::{Networks, ShardId};

    use super::super::core::CoreSettings;
    use super::super::wait::tests::{Woken, rounds, shared};
    use super::*;
    use crate::dtls::Identity;

    /// Who speaks to a worker besides its socket.
    type Others = (
        mpsc::Sender<Command>,
        mpsc::UnboundedSender<SessionId>,
        watch::Sender<Shared>,
        watch::Sender<Option<Instant>>,
    );

    /// A worker without sessions, and who ends it.
    fn worker(socket: UdpSocket) -> (Worker, watch::Sender<bool>, Others) {
        socket.set_nonblocking(true).expect("not blocking");
        let settings = CoreSettings {
            shard: ShardId(0),
            capacity: 1,
            networks: Networks::parse("127.0.0.0/8").expect("networks"),
            lifetimes: Default::default(),
            opus: Default::default(),
            directory: Default::default(),
            endings: Default::default(),
            epoch: Instant::now(),
        };
        let identity = Identity::process().expect("an identity");
        let (to_commands, commands) = mpsc::channel(1);
        let (to_wakes, wakes) = mpsc::unbounded_channel();
        let (keys, shared_now) = watch::channel(shared());
        let (drain, drained) = watch::channel(None);
        let (stop, stopped) = watch::channel(false);
        let worker = Worker {
            core: Core::new(settings, shared(), identity, || 42),
            socket,
            commands,
            shared: shared_now,
            wakes,
            connections: mpsc::channel(1).1,
            drain: drained,
            stop: stopped,
            stats: Arc::default(),
            internal_mtu: None,
            cpu: None,
        };
        (worker, stop, (to_commands, to_wakes, keys, drain))
    }

    #[tokio::test]
    async fn a_worker_takes_a_turn_for_what_comes_and_none_for_nothing() {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        let to = socket.local_addr().expect("an address");
        let (worker, stop, _others) = worker(socket);
        let stats = Arc::clone(&worker.stats);
        let woken = Arc::new(Woken::default());
        let mut running = pin!(run(worker));
        assert!(woken.look(running.as_mut()).is_pending());
        rounds().await;
        assert_eq!(woken.count(), 0, "nothing has come");

        let sender = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        for sent in 1..=5 {
            sender.send_to(b"none of ours", to).expect("sent");
            while stats.datagrams_in.load(Relaxed) < sent {
                woken.told.notified().await;
                assert!(woken.look(running.as_mut()).is_pending());
            }
            // What the wake left to do is done: the worker waits.
            rounds().await;
            let wakes = woken.count();
            assert!(woken.look(running.as_mut()).is_pending());
            rounds().await;
            assert_eq!(woken.count(), wakes, "nothing more has come");
        }
        assert!(woken.count() <= 10, "{} wakes for five", woken.count());

        stop.send_replace(true);
        let ended = loop {
            woken.told.notified().await;
            if let Poll::Ready(ended) = woken.look(running.as_mut()) {
                break ended;
            }
        };
        ended.expect("a good end");
    }

    #[tokio::test]
    async fn a_datagram_is_handled_once_however_many_turns_follow() {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        let to = socket.local_addr().expect("an address");
        let (worker, _stop, (_commands, wakes, _keys, _drain)) = worker(socket);
        let stats = Arc::clone(&worker.stats);
        let woken = Arc::new(Woken::default());
        let mut running = pin!(run(worker));
        assert!(woken.look(running.as_mut()).is_pending());
        let sender = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        sender.send_to(b"none of ours", to).expect("sent");
        while stats.datagrams_in.load(Relaxed) == 0 {
            woken.told.notified().await;
            assert!(woken.look(running.as_mut()).is_pending());
        }
        for _ in 0..5 {
            // A turn that has nothing to do with the socket.
            wakes.send(SessionId(7)).expect("a worker");
            woken.told.notified().await;
            assert!(woken.look(running.as_mut()).is_pending());
        }
        assert_eq!(stats.datagrams_in.load(Relaxed), 1);
    }

    #[test]
    fn a_batch_that_empties_the_socket_says_so_and_what_comes_later_is_seen() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .build()
            .expect("a runtime");
        runtime.block_on(async {
            let socket = tokio::net::UdpSocket::bind("127.0.0.1:0").await;
            let socket = socket.expect("a socket");
            let to = socket.local_addr().expect("an address");
            let sender = UdpSocket::bind("127.0.0.1:0").expect("a socket");
            let mut batch = ReceiveBatch::default();
            for sent in [3, limits::DATAGRAMS_PER_TURN + 1] {
                for _ in 0..sent {
                    sender.send_to(b"x", to).expect("sent");
                }
                let mut received = 0;
                while received < sent {
                    socket.readable().await.expect("readable");
                    received += receive(&socket, &mut batch).expect("a batch");
                }
                // Were it still taken to be readable, this would be called.
                let looked = socket.try_io(Interest::READABLE, || Ok(()));
                let unread = looked.map_err(|error| error.kind());
                assert_eq!(unread, Err(ErrorKind::WouldBlock));
            }
        });
    }

    #[test]
    fn the_end_of_a_thread_is_told_whatever_its_cause() {
        let (told, mut ends) = mpsc::unbounded_channel();
        let end_of = |body: fn() -> std::io::Result<()>, ends: &mut mpsc::UnboundedReceiver<_>| {
            watched("worker-0".to_owned(), told.clone(), body).expect("a thread");
            let end: std::io::Result<()> = ends.blocking_recv().expect("told");
            end.map_err(|error| error.to_string())
        };
        assert_eq!(end_of(|| Ok(()), &mut ends), Ok(()));
        let failed = end_of(|| Err(std::io::Error::other("no runtime")), &mut ends);
        assert_eq!(failed, Err("no runtime".to_owned()));
        let panicked = end_of(|| panic!("a fault made by a test"), &mut ends);
        assert_eq!(panicked, Err("worker-0 panicked".to_owned()));
    }
}
