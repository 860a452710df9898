//! Receivers that sleep: one thread per socket, blocked until something comes, as the receivers of real programs are.
//!
//! On loopback a sender pays for waking its receiver. A program that sends one datagram per packet pays that per packet,
//! one that packs pays it per datagram. On a network the receiver's machine pays. So it matters which is measured, and both are.

use std::io;
use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use firsthop_shared::limits::TRUNK_DATAGRAM_MAX;
use firsthop_shared::trunk::{DATAGRAM_HEADER_LEN, RecordHeader};

use crate::mmsg::Inbox;
use crate::packet::Stamp;
use crate::rig::Rig;
use crate::turn;
use crate::wire::Wire;

/// How often a sleeping thread looks whether it shall end.
const LOOK: Duration = Duration::from_millis(20);

/// How often the waiting thread looks at the counts. It must not keep the receivers from their processor.
const WAIT: Duration = Duration::from_micros(200);

#[derive(Default)]
struct Counts {
    stop: AtomicBool,
    up: AtomicU64,
    down: AtomicU64,
    datagrams: AtomicU64,
    records: AtomicU64,
}

/// Threads that receive what owners and clients get, and count it.
pub struct Sinks {
    counts: Arc<Counts>,
    threads: Vec<JoinHandle<()>>,
}

/// What the sinks received since they were started.
#[derive(Clone, Copy, Default, Debug)]
pub struct Received {
    /// Media packets at owners.
    pub up: u64,
    /// Media packets at clients.
    pub down: u64,
    /// Datagrams at owners.
    pub datagrams: u64,
    /// Records in them.
    pub records: u64,
}

impl Sinks {
    /// Starts a thread for every socket of the rig, which must not [poll](Rig::poll) meanwhile.
    ///
    /// # Errors
    /// A socket cannot be shared with a thread.
    pub fn start(rig: &Rig, wire: Wire) -> io::Result<Self> {
        let counts = Arc::new(Counts::default());
        let mut threads = Vec::new();
        let mut spawn = |socket: &UdpSocket, owner: bool| -> io::Result<()> {
            let socket = socket.try_clone()?;
            socket.set_read_timeout(Some(LOOK))?;
            let counts = Arc::clone(&counts);
            threads.push(std::thread::spawn(move || {
                let len = if owner { TRUNK_DATAGRAM_MAX + 1 } else { 2_048 };
                let mut inbox = Inbox::new(len);
                while !counts.stop.load(Ordering::Relaxed) {
                    // An error ends the thread; the count then shows a loss.
                    if inbox.receive(&socket, true).is_err() {
                        return;
                    }
                    for (bytes, _) in inbox.packets() {
                        if owner {
                            count_up(&counts, wire, bytes);
                        } else {
                            count_down(&counts, wire, bytes);
                        }
                    }
                }
            }));
            Ok(())
        };
        spawn(rig.owners.socket(), true)?;
        for socket in rig.crowd.sockets() {
            spawn(socket, false)?;
        }
        Ok(Self { counts, threads })
    }

    /// What was received so far.
    #[must_use]
    pub fn received(&self) -> Received {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Received {
            up: of(&self.counts.up),
            down: of(&self.counts.down),
            datagrams: of(&self.counts.datagrams),
            records: of(&self.counts.records),
        }
    }

    /// Waits until `total` media packets were received, or none is for `lost_after`; at most `most`.
    #[must_use]
    pub fn wait(&self, total: u64, lost_after: Duration, most: Duration) -> Received {
        let begin = Instant::now();
        let mut last = begin;
        let mut seen = 0;
        loop {
            let received = self.received();
            let count = received.up + received.down;
            if count != seen {
                seen = count;
                last = Instant::now();
            }
            if count >= total || last.elapsed() > lost_after || begin.elapsed() > most {
                return received;
            }
            std::thread::sleep(WAIT);
        }
    }
}

impl Drop for Sinks {
    fn drop(&mut self) {
        self.counts.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn count_up(counts: &Counts, wire: Wire, bytes: &[u8]) {
    let (mut records, mut media) = (0, 0);
    let mut at = match wire {
        Wire::Trunk => DATAGRAM_HEADER_LEN,
        Wire::Record => 0,
        Wire::Plain | Wire::Channel => {
            records = 1;
            media = u64::from(Stamp::read(bytes).is_some());
            bytes.len()
        }
    };
    while let Some(Ok((header, used))) = bytes.get(at..).map(RecordHeader::parse) {
        let payload = at + used;
        at = payload + usize::from(header.payload_len);
        records += 1;
        media += u64::from(bytes.get(payload..at).and_then(Stamp::read).is_some());
    }
    counts.datagrams.fetch_add(1, Ordering::Relaxed);
    counts.records.fetch_add(records, Ordering::Relaxed);
    counts.up.fetch_add(media, Ordering::Relaxed);
}

fn count_down(counts: &Counts, wire: Wire, bytes: &[u8]) {
    let packet = match wire {
        Wire::Channel => turn::unwrap(bytes).unwrap_or(bytes),
        _ => bytes,
    };
    let media = Stamp::read(packet).is_some();
    counts.down.fetch_add(u64::from(media), Ordering::Relaxed);
}
