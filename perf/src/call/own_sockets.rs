//! A socket for each client of a thread, as real clients have: for servers anywhere.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::os::fd::{AsRawFd as _, RawFd};
use std::time::Duration;

use firsthop_shared::limits::CLIENT_PACKET_MAX;
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};

use super::air::Arrived;
use crate::clock::wall_nanos;
use crate::drops;
use crate::mmsg::{BATCH, Inbox, tell_details};

/// The receive buffer of a client's socket, in bytes: some seconds of audio, while the program has no processor.
const SOCKET_BUFFER: usize = 256 << 10;

/// Sockets that are told readable at once.
const EVENTS: usize = 1_024;

/// Sockets that one turn reads at most.
const SOCKETS_PER_TURN: usize = 256;

/// The sockets of one thread's clients.
pub struct OwnSockets {
    from: Ipv4Addr,
    bind: Ipv4Addr,
    sockets: HashMap<u32, UdpSocket>,
    poll: Poll,
    events: Events,
    /// Clients whose sockets may have more. Each is told once, until nothing is left in it.
    readable: VecDeque<u32>,
    inbox: Inbox,
    refused: u64,
}

impl OwnSockets {
    /// None yet.
    ///
    /// # Errors
    /// The system gives no epoll.
    pub(super) fn open(from: Ipv4Addr, bind: Ipv4Addr) -> io::Result<Self> {
        Ok(Self {
            from,
            bind,
            sockets: HashMap::new(),
            poll: Poll::new()?,
            events: Events::with_capacity(EVENTS),
            readable: VecDeque::new(),
            inbox: Inbox::with_details(CLIENT_PACKET_MAX),
            refused: 0,
        })
    }

    /// Opens a socket for client number `n`, in place of the one it had; returns its address as the client offers it.
    pub(super) fn seat(&mut self, n: u32) -> io::Result<SocketAddrV4> {
        let socket = UdpSocket::bind((self.bind, 0))?;
        socket.set_nonblocking(true)?;
        socket2::SockRef::from(&socket).set_recv_buffer_size(SOCKET_BUFFER)?;
        tell_details(&socket)?;
        let descriptor = socket.as_raw_fd();
        self.poll.registry().register(
            &mut SourceFd(&descriptor),
            Token(n as usize),
            Interest::READABLE,
        )?;
        let port = socket.local_addr()?.port();
        // The one before is closed, and so not polled any more.
        self.leave(n);
        self.sockets.insert(n, socket);
        Ok(SocketAddrV4::new(self.from, port))
    }

    /// Closes the socket of client number `n`.
    pub(super) fn leave(&mut self, n: u32) {
        if let Some(socket) = self.sockets.remove(&n) {
            self.refused += drops::of(&socket).unwrap_or(0);
        }
    }

    /// Sends a packet of client number `n`.
    pub(super) fn send(&mut self, n: u32, to: SocketAddr, packet: &[u8]) {
        let Some(socket) = self.sockets.get(&n) else {
            return;
        };
        // An address that cannot be reached is a candidate that does not work; no room is a fault of this machine's.
        if let Err(error) = socket.send_to(packet, to) {
            let full = error.kind() == io::ErrorKind::WouldBlock
                || error.raw_os_error() == Some(libc::ENOBUFS);
            self.refused += u64::from(full);
        }
    }

    /// Takes what has come, a bounded number; returns whether there may be more.
    pub(super) fn receive(&mut self, take: &mut dyn FnMut(Arrived<'_>)) -> io::Result<bool> {
        match self.poll.poll(&mut self.events, Some(Duration::ZERO)) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
            _ => {}
        }
        let told = self.events.iter().map(|event| event.token().0 as u32);
        self.readable.extend(told);
        for _ in 0..SOCKETS_PER_TURN {
            let Some(n) = self.readable.pop_front() else {
                return Ok(false);
            };
            let Some(socket) = self.sockets.get(&n) else {
                continue;
            };
            // A socket's error says that something which was sent did not arrive; there may be packets behind it.
            let received = self.inbox.receive(socket, false);
            for ((packet, from), details) in self.inbox.packets().zip(self.inbox.details()) {
                take(Arrived {
                    client: n,
                    from: SocketAddr::V4(from),
                    packet,
                    at_nanos: details.map_or_else(wall_nanos, |details| details.at_nanos),
                });
            }
            if received.is_err() || received.is_ok_and(|count| count == BATCH) {
                self.readable.push_back(n);
            }
        }
        Ok(true)
    }

    /// What is readable when a socket is.
    pub(super) fn descriptor(&self) -> RawFd {
        self.poll.as_raw_fd()
    }

    /// Packets that the kernel did not take, and those that it dropped at sockets which are closed.
    pub(super) fn refused(&self) -> u64 {
        self.refused
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: Ipv4Addr = Ipv4Addr::LOCALHOST;

    fn open() -> OwnSockets {
        OwnSockets::open(HERE, HERE).expect("an epoll")
    }

    /// Receives until so many packets have come: of whom each was.
    fn until(own: &mut OwnSockets, count: usize) -> Vec<u32> {
        let mut seen = Vec::new();
        while seen.len() < count {
            crate::readable::wait(&[own.descriptor()], Duration::from_secs(5)).expect("waited");
            own.receive(&mut |arrived| seen.push(arrived.client))
                .expect("received");
        }
        seen
    }

    #[test]
    fn each_client_has_a_socket_and_more_than_a_batch_is_taken() {
        let mut own = open();
        let echo = UdpSocket::bind((HERE, 0)).expect("a socket");
        let to = echo.local_addr().expect("an address");
        let addresses: Vec<_> = (0..3).map(|n| own.seat(n).expect("a socket")).collect();
        let mut buffer = [0; 8];
        for n in 0..3 {
            own.send(n, to, &[n as u8]);
            let (_, from) = echo.recv_from(&mut buffer).expect("a packet");
            assert_eq!(from, SocketAddr::V4(addresses[n as usize]));
        }
        // All of it comes at once, and the sockets are told of once.
        let many = BATCH * 2 + 5;
        for _ in 0..many {
            echo.send_to(&[1], addresses[1]).expect("sent");
        }
        echo.send_to(&[2], addresses[2]).expect("sent");
        let seen = until(&mut own, many + 1);
        assert_eq!(seen.iter().filter(|n| **n == 1).count(), many);
        assert_eq!(own.refused(), 0);
    }

    #[test]
    fn a_client_that_moves_is_heard_at_its_new_address_alone() {
        let mut own = open();
        let echo = UdpSocket::bind((HERE, 0)).expect("a socket");
        let before = own.seat(7).expect("a socket");
        let after = own.seat(7).expect("a socket");
        assert_ne!(before, after);
        // Nobody is there any more; the echo's own socket may say so.
        let _ = echo.send_to(&[1], before);
        let again = UdpSocket::bind((HERE, 0)).expect("a socket");
        again.send_to(&[2], after).expect("sent");
        assert_eq!(until(&mut own, 1), [7]);
        own.leave(7);
        own.send(7, again.local_addr().expect("an address"), &[3]);
        again.set_nonblocking(true).expect("set");
        assert!(again.recv(&mut [0; 8]).is_err(), "it has left");
    }
}
