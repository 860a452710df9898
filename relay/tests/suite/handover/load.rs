//! Packets both ways all the time, each of which is looked for: none may be lost, and none may come twice.

use std::collections::HashMap;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use firsthop_relay_core::Steering;
use firsthop_shared::address::ClientAddr;

use super::with_handover;
use crate::testbed::owner::{Owner, record};
use crate::testbed::process::Pages;
use crate::testbed::{Client, Testbed, rtp, rtp_number, until};

/// So many packets of a direction are under way at the most: they fit every buffer on the way, however long somebody stands
/// still, so that nothing but a fault loses one.
const WINDOW: u64 = 64;

/// A pause when there is nothing to do.
const PAUSE: Duration = Duration::from_micros(300);

/// The load that is under way.
pub(super) struct Load {
    stop: Arc<AtomicBool>,
    up: Arc<AtomicU64>,
    down: Arc<AtomicU64>,
    asked: Arc<AtomicU64>,
    threads: Vec<JoinHandle<()>>,
}

/// Which packets are under way, by session and number.
#[derive(Default)]
struct Expected(HashMap<(u32, u32), ()>);

impl Expected {
    fn send(&mut self, session: u32, number: u32) {
        assert!(self.0.insert((session, number), ()).is_none());
    }

    fn arrive(&mut self, session: u32, number: u32) {
        let due = self.0.remove(&(session, number));
        assert!(due.is_some(), "packet {number} of {session} came twice");
    }
}

impl Load {
    /// Starts it, over two cores: from each client to the owner, and from the owner to each client.
    pub(super) fn start(testbed: &Testbed, owner: Owner, clients: Vec<Client>) -> Self {
        let (stop, up, down, asked) = (
            Arc::new(AtomicBool::new(false)),
            Arc::new(AtomicU64::new(0)),
            Arc::new(AtomicU64::new(0)),
            Arc::new(AtomicU64::new(0)),
        );
        for client in &clients {
            client.socket.set_nonblocking(true).expect("non-blocking");
        }
        owner.socket.set_nonblocking(true).expect("non-blocking");
        let clients = Arc::new(clients);
        let steering = Steering::new(0, 2);
        let hops: Vec<SocketAddr> = clients
            .iter()
            .map(|client| {
                testbed.relay_internal(steering.core_for(&ClientAddr::new(client.address())))
            })
            .collect();
        // The owner goes on with its sequence numbers; who only receives has none.
        let receiver = Owner::with_socket(owner.socket.try_clone().expect("a copy"), 0);
        let uplink = {
            let (stop, up) = (Arc::clone(&stop), Arc::clone(&up));
            let (clients, public) = (Arc::clone(&clients), testbed.public(0));
            std::thread::spawn(move || uplink(&stop, &up, &clients, public, &receiver))
        };
        let downlink = {
            let (stop, down, clients) =
                (Arc::clone(&stop), Arc::clone(&down), Arc::clone(&clients));
            std::thread::spawn(move || downlink(&stop, &down, &clients, &hops, owner))
        };
        let probe = {
            let (stop, asked, pages) = (
                Arc::clone(&stop),
                Arc::clone(&asked),
                Pages(testbed.admin()),
            );
            std::thread::spawn(move || probe(&stop, &asked, pages))
        };
        Self {
            stop,
            up,
            down,
            asked,
            threads: vec![uplink, downlink, probe],
        }
    }

    /// Waits until some more packets have arrived both ways, and `/readyz` was answered.
    pub(super) fn wait_progress(&self) {
        let now = || [&self.up, &self.down, &self.asked].map(|count| count.load(Ordering::Relaxed));
        let before = now();
        until("packets arrive", || {
            assert!(
                self.threads.iter().all(|thread| !thread.is_finished()),
                "one failed"
            );
            let gone_on = now().into_iter().zip(before).zip([200, 200, 3]);
            let mut gone_on = gone_on.map(|((now, before), more)| now >= before + more);
            gone_on.all(|yes| yes).then_some(())
        });
    }

    /// Ends it, when everything has arrived.
    pub(super) fn finish(self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads {
            thread.join().expect("no packet was lost or came twice");
        }
    }
}

fn uplink(
    stop: &AtomicBool,
    arrived: &AtomicU64,
    clients: &[Client],
    public: SocketAddr,
    owner: &Owner,
) {
    let mut expected = Expected::default();
    let mut sent = 0u64;
    run(stop, |sending| {
        let mut idle = true;
        if sending && sent - arrived.load(Ordering::Relaxed) < WINDOW {
            let session = (sent % clients.len() as u64) as u32;
            let client = &clients[session as usize];
            if client.socket.send_to(&rtp(sent as u32), public).is_ok() {
                expected.send(session, sent as u32);
                sent += 1;
                idle = false;
            }
        }
        while let Some(datagram) = nonblocking(owner.try_receive()) {
            for (header, payload) in &datagram.records {
                expected.arrive(header.session.0, rtp_number(payload));
                arrived.fetch_add(1, Ordering::Relaxed);
            }
            idle = false;
        }
        (idle, expected.0.len())
    });
}

fn downlink(
    stop: &AtomicBool,
    arrived: &AtomicU64,
    clients: &[Client],
    hops: &[SocketAddr],
    mut owner: Owner,
) {
    let mut expected = Expected::default();
    let mut sent = 0u64;
    let mut buffer = [0; 2_048];
    run(stop, |sending| {
        let mut idle = true;
        if sending && sent - arrived.load(Ordering::Relaxed) < WINDOW {
            let session = (sent % clients.len() as u64) as u32;
            let header = record(clients[session as usize].address(), 0, session);
            owner.send(hops[session as usize], &[(header, &rtp(sent as u32))]);
            expected.send(session, sent as u32);
            sent += 1;
            idle = false;
        }
        for (session, client) in (0..).zip(clients) {
            while let Some((len, _)) = nonblocking(client.socket.recv_from(&mut buffer)) {
                expected.arrive(session, rtp_number(&buffer[..len]));
                arrived.fetch_add(1, Ordering::Relaxed);
                idle = false;
            }
        }
        (idle, expected.0.len())
    });
}

/// Takes turns until it shall stop and nothing is under way. A turn says whether it was idle, and how much is.
fn run(stop: &AtomicBool, mut turn: impl FnMut(bool) -> (bool, usize)) {
    let mut progress = Instant::now();
    loop {
        let sending = !stop.load(Ordering::Relaxed);
        let (idle, under_way) = turn(sending);
        if !sending && under_way == 0 {
            return;
        }
        if idle {
            let waited = progress.elapsed();
            assert!(
                waited < crate::testbed::PATIENCE,
                "{under_way} packets were lost"
            );
            std::thread::sleep(PAUSE);
        } else {
            progress = Instant::now();
        }
    }
}

/// Asks all the time whether a relay is ready: one must be, and say so.
///
/// Whoever has connected to a process and says nothing until its very end is cut, and asks again.
fn probe(stop: &AtomicBool, asked: &AtomicU64, pages: Pages) {
    while !stop.load(Ordering::Relaxed) {
        let ask = || pages.page_while_up("/readyz");
        let (status, _) = ask().or_else(ask).expect("somebody answers");
        assert_eq!(status, "HTTP/1.1 200 OK");
        asked.fetch_add(1, Ordering::Relaxed);
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn nonblocking<T>(result: std::io::Result<T>) -> Option<T> {
    match result {
        Ok(value) => Some(value),
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
            None
        }
        Err(error) => panic!("a socket of the test failed: {error}"),
    }
}

/// Flows of the measure, and packets of each a second.
const FLOWS: u32 = 1_000;
const RATE: u64 = 50;

/// A thousand flows at 50 packets a second each way, whatever becomes of them, across three hot restarts. Prints what was lost.
pub(super) fn measure(between: Duration) {
    let testbed = Testbed::new();
    let mut relay = with_handover(&testbed, false, 1);
    let owner = Owner::bind(testbed.owner_address(0));
    let sockets = |socket: &std::net::UdpSocket| {
        let socket = socket2::SockRef::from(socket);
        socket.set_recv_buffer_size(8 << 20).expect("sized");
    };
    sockets(&owner.socket);
    let clients: Vec<Client> = (0..FLOWS).map(|n| testbed.client(n as u8)).collect();
    for (session, client) in (0..).zip(&clients) {
        client.send(
            testbed.public(0),
            &testbed.check(owner.address(), 0, session),
        );
        owner.receive_one();
    }
    let stop = Arc::new(AtomicBool::new(false));
    let (clients, public) = (Arc::new(clients), testbed.public(0));
    let up = {
        let (stop, clients) = (Arc::clone(&stop), Arc::clone(&clients));
        std::thread::spawn(move || {
            paced(&stop, |number| {
                let client = &clients[(number % u64::from(FLOWS)) as usize];
                client.send(public, &rtp(number as u32));
            })
        })
    };
    let mut sender = Owner::with_socket(owner.socket.try_clone().expect("a copy"), 0);
    let down = {
        let (stop, clients) = (Arc::clone(&stop), Arc::clone(&clients));
        let hop = testbed.relay_internal(0);
        std::thread::spawn(move || {
            paced(&stop, |number| {
                let session = (number % u64::from(FLOWS)) as u32;
                let header = record(clients[session as usize].address(), 0, session);
                sender.send(hop, &[(header, &rtp(number as u32))]);
            })
        })
    };
    let ended = Arc::new(AtomicBool::new(false));
    let owner_got = {
        let ended = Arc::clone(&ended);
        owner
            .socket
            .set_read_timeout(Some(Duration::from_millis(100)))
            .expect("a time-out");
        std::thread::spawn(move || {
            let mut got = HashMap::new();
            while !ended.load(Ordering::Relaxed) {
                let Ok(datagram) = owner.try_receive() else {
                    continue;
                };
                for (_, payload) in datagram.records {
                    *got.entry(rtp_number(&payload)).or_insert(0u32) += 1;
                }
            }
            got
        })
    };
    let clients_got = {
        let (ended, clients) = (Arc::clone(&ended), Arc::clone(&clients));
        std::thread::spawn(move || {
            let mut got = HashMap::new();
            let mut buffer = [0; 2_048];
            for client in clients.iter() {
                client.socket.set_nonblocking(true).expect("non-blocking");
            }
            while !ended.load(Ordering::Relaxed) {
                for client in clients.iter() {
                    while let Some((len, _)) = nonblocking(client.socket.recv_from(&mut buffer)) {
                        *got.entry(rtp_number(&buffer[..len])).or_insert(0u32) += 1;
                    }
                }
            }
            got
        })
    };
    for _ in 0..3 {
        std::thread::sleep(between);
        let successor = with_handover(&testbed, true, 1);
        let log = successor.log();
        let took = log.lines().find(|line| line.contains("took over"));
        println!("{}", took.expect("it took over"));
        let _ = relay.ended_well();
        relay = successor;
    }
    std::thread::sleep(between);
    stop.store(true, Ordering::Relaxed);
    let (up, down) = (up.join().expect("sent"), down.join().expect("sent"));
    std::thread::sleep(Duration::from_secs(1));
    ended.store(true, Ordering::Relaxed);
    for (direction, sent, got) in [
        ("uplink", up, owner_got.join().expect("received")),
        ("downlink", down, clients_got.join().expect("received")),
    ] {
        let twice = got.values().filter(|&&count| count > 1).count();
        let rate = sent as f64 / (4.0 * between.as_secs_f64());
        println!(
            "{direction}: {sent} sent ({rate:.0} a second), {} lost, {twice} came twice",
            sent - got.len() as u64
        );
    }
    println!(
        "dropped by the kernel: {}",
        relay.metric("socket_receive_drops_total", None)
    );
    relay.stop();
}

/// Sends at the rate of all flows until it shall stop, making up for what the machine delayed. Returns how many.
fn paced(stop: &AtomicBool, mut send: impl FnMut(u64)) -> u64 {
    let start = Instant::now();
    let mut number = 0;
    while !stop.load(Ordering::Relaxed) {
        let due = start.elapsed().as_micros() as u64 * u64::from(FLOWS) * RATE / 1_000_000;
        if number >= due {
            std::thread::sleep(PAUSE);
        }
        while number < due {
            send(number);
            number += 1;
        }
    }
    number
}
