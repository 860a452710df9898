//! Between clients and servers: the sockets of one thread's clients, or a trunk on which the generator is the relay.
//!
//! - **By a relay.** Clients have loopback addresses of their own behind a few shared sockets (see [`place`]): a relay cannot
//!   tell them from clients with a socket each, and one system call moves the packets of 64 of them.
//! - **By a relay anywhere.** Clients have a socket each (`OwnSockets`).
//! - **Direct.** The generator plays a relay core: clients' packets travel in records to the owner that their ufrag names. What a relay
//!   costs and adds is then left out.

use std::collections::HashMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::os::fd::{AsRawFd as _, RawFd};
use std::sync::Arc;

use firsthop_shared::address::IngressId;
use firsthop_shared::keyring::DataKeyring;
use firsthop_shared::limits::CLIENT_PACKET_MAX;

use super::manner::Sharing;
use super::own_sockets::OwnSockets;
use super::trunk::Trunk;
use crate::crowd::{SOCKETS, open_socket};
use crate::mmsg::{Inbox, Outbox, copy_of, tell_details};
use crate::place;

/// A packet for a client.
#[derive(Clone, Copy, Debug)]
pub struct Arrived<'a> {
    /// Which of the thread's clients.
    pub client: u32,
    /// Whom it is from, as the client sees it.
    pub from: SocketAddr,
    /// The packet.
    pub packet: &'a [u8],
    /// When it reached this machine, in nanoseconds since the Unix epoch.
    pub at_nanos: u64,
}

/// Which way clients reach their servers.
#[derive(Clone, Debug)]
pub enum Way {
    /// By the addresses in the answer: a relay's.
    Relay,
    /// Past the relay, over the trunk.
    Direct {
        /// The fleet's keys.
        keyring: Arc<DataKeyring>,
        /// The ingress point whose address the answer has first.
        ingress: IngressId,
    },
}

/// The network of one thread's clients.
pub enum Air {
    /// See [`Way::Relay`].
    Sockets(Box<Sockets>),
    /// See [`Sharing::Own`].
    Own(Box<OwnSockets>),
    /// See [`Way::Direct`].
    Trunk(Box<Trunk>),
}

impl Air {
    /// Opens what `way` needs.
    ///
    /// # Errors
    /// A socket cannot be had.
    pub fn open(way: &Way, sharing: Sharing) -> io::Result<Self> {
        Ok(match (way, sharing) {
            (Way::Relay, Sharing::Shared) => Self::Sockets(Box::new(Sockets::open()?)),
            (Way::Relay, Sharing::Own { from, bind }) => {
                Self::Own(Box::new(OwnSockets::open(from, bind)?))
            }
            (Way::Direct { keyring, ingress }, _) => {
                Self::Trunk(Box::new(Trunk::open(Arc::clone(keyring), *ingress)?))
            }
        })
    }

    /// Gives client number `n` an address, as it sees itself; another one when it has one.
    ///
    /// # Errors
    /// There is no socket for it. On the direct way a client has only one address.
    pub fn seat(&mut self, n: u32) -> io::Result<SocketAddr> {
        Ok(SocketAddr::V4(match self {
            Self::Sockets(sockets) => sockets.seat(n),
            Self::Own(own) => own.seat(n)?,
            Self::Trunk(_) => Trunk::address(n),
        }))
    }

    /// Learns from the answer where client number `n` sends to.
    ///
    /// # Errors
    /// What is wrong with the answer, in words.
    pub fn join(&mut self, n: u32, answer: &str) -> Result<(), String> {
        match self {
            Self::Sockets(_) => {
                let mut candidates = candidates(answer).filter_map(Result::ok);
                if candidates.any(|candidate| candidate.ip().is_loopback()) {
                    Ok(())
                } else {
                    Err(
                        "the answer has no candidate on loopback, and clients that share sockets reach no other (--sockets own)"
                            .to_owned(),
                    )
                }
            }
            // Whether one of them can be reached ICE finds out.
            Self::Own(_) => Ok(()),
            Self::Trunk(trunk) => trunk.join(n, answer),
        }
    }

    /// Forgets client number `n`.
    pub fn leave(&mut self, n: u32) {
        match self {
            Self::Sockets(sockets) => sockets.leave(n),
            Self::Own(own) => own.leave(n),
            Self::Trunk(trunk) => trunk.leave(n),
        }
    }

    /// Sends a packet of client number `n`, once its batch is full or [`Air::flush`] is called.
    ///
    /// # Errors
    /// What a socket says.
    pub fn send(&mut self, n: u32, to: SocketAddr, packet: &[u8]) -> io::Result<()> {
        match self {
            Self::Sockets(sockets) => sockets.send(n, to, packet),
            Self::Own(own) => {
                own.send(n, to, packet);
                Ok(())
            }
            Self::Trunk(trunk) => trunk.send(n, packet),
        }
    }

    /// Sends what waits.
    ///
    /// # Errors
    /// What a socket says.
    pub fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Sockets(sockets) => sockets.flush(),
            // Each packet has left already.
            Self::Own(_) => Ok(()),
            Self::Trunk(trunk) => trunk.flush(),
        }
    }

    /// Takes what has come, a bounded number, and hands it on; returns whether there may be more.
    ///
    /// # Errors
    /// What a socket says.
    pub fn receive(&mut self, take: &mut dyn FnMut(Arrived<'_>)) -> io::Result<bool> {
        match self {
            Self::Sockets(sockets) => sockets.receive(take),
            Self::Own(own) => own.receive(take),
            Self::Trunk(trunk) => trunk.receive(take),
        }
    }

    /// What to wait for packets on.
    #[must_use]
    pub fn descriptors(&self) -> Vec<RawFd> {
        match self {
            Self::Sockets(sockets) => sockets.sockets.iter().map(|s| s.as_raw_fd()).collect(),
            Self::Own(own) => vec![own.descriptor()],
            Self::Trunk(trunk) => vec![trunk.socket().as_raw_fd()],
        }
    }

    /// Packets that this machine's kernel did not take, and datagrams that nobody here could read.
    #[must_use]
    pub fn refused(&self) -> u64 {
        match self {
            Self::Sockets(sockets) => sockets.refused,
            Self::Own(own) => own.refused(),
            Self::Trunk(trunk) => trunk.refused(),
        }
    }

    /// The UDP ports whose drops the kernel's table tells.
    ///
    /// # Errors
    /// What a socket says.
    pub fn ports(&self) -> io::Result<Vec<u16>> {
        match self {
            Self::Sockets(sockets) => Ok(sockets.ports.clone()),
            // What is dropped there each socket tells itself, in `refused`.
            Self::Own(_) => Ok(Vec::new()),
            Self::Trunk(trunk) => Ok(vec![trunk.socket().local_addr()?.port()]),
        }
    }
}

/// The candidates of an answer.
pub(super) fn candidates(
    answer: &str,
) -> impl Iterator<Item = Result<SocketAddr, std::net::AddrParseError>> {
    answer
        .lines()
        .filter_map(|line| line.strip_prefix("a=candidate:"))
        .filter_map(|candidate| {
            let mut fields = candidate.split_whitespace().skip(4);
            let (ip, port) = (fields.next()?, fields.next()?);
            Some(
                ip.parse().map(|ip: std::net::IpAddr| {
                    SocketAddr::new(ip, port.parse().unwrap_or_default())
                }),
            )
        })
}

/// Where the blocks of addresses begin that clients move to; see [`place::client`].
const MOVED: u32 = 1 << 21;

/// A few sockets on every local address, for clients with an address each.
pub struct Sockets {
    sockets: Vec<UdpSocket>,
    ports: Vec<u16>,
    outboxes: Vec<Outbox>,
    inbox: Inbox,
    refused: u64,
    /// Clients that have an address, and the block of those that have moved.
    seated: HashMap<u32, Option<u32>>,
    /// Who has moved to which block.
    moved: HashMap<u32, u32>,
    moves: u32,
}

impl Sockets {
    fn open() -> io::Result<Self> {
        let opened: io::Result<Vec<_>> = (0..SOCKETS).map(|_| open_socket()).collect();
        let (sockets, ports): (Vec<UdpSocket>, Vec<u16>) = opened?.into_iter().unzip();
        for socket in &sockets {
            tell_details(socket)?;
        }
        Ok(Self {
            sockets,
            ports,
            outboxes: (0..SOCKETS)
                .map(|_| Outbox::new(CLIENT_PACKET_MAX))
                .collect(),
            inbox: Inbox::with_details(CLIENT_PACKET_MAX),
            refused: 0,
            seated: HashMap::new(),
            moved: HashMap::new(),
            moves: 0,
        })
    }

    /// The address of a client: its own, or if it has one already the next that nobody has had.
    fn seat(&mut self, n: u32) -> SocketAddrV4 {
        if self.seated.contains_key(&n) {
            self.leave(n);
            let block = MOVED + self.moves % MOVED;
            self.moves += 1;
            self.moved.insert(block, n);
            self.seated.insert(n, Some(block));
        } else {
            self.seated.insert(n, None);
        }
        let port = self.ports[(n % SOCKETS) as usize];
        SocketAddrV4::new(self.ip(n), port)
    }

    fn ip(&self, n: u32) -> Ipv4Addr {
        let moved = self.seated.get(&n).copied().flatten();
        place::client(moved.unwrap_or(n / SOCKETS))
    }

    fn leave(&mut self, n: u32) {
        if let Some(Some(block)) = self.seated.remove(&n) {
            self.moved.remove(&block);
        }
    }

    fn send(&mut self, n: u32, to: SocketAddr, packet: &[u8]) -> io::Result<()> {
        // A candidate of a relay's on another machine: packets from loopback do not leave this one.
        let (SocketAddr::V4(to), true) = (to, to.ip().is_loopback()) else {
            return Ok(());
        };
        if packet.len() > CLIENT_PACKET_MAX {
            self.refused += 1;
            return Ok(());
        }
        let (at, from) = ((n % SOCKETS) as usize, self.ip(n));
        let outbox = &mut self.outboxes[at];
        outbox.push(to, Some(from), copy_of(packet));
        if outbox.is_full() {
            self.refused += outbox.send_all(&self.sockets[at])?;
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        for (outbox, socket) in self.outboxes.iter_mut().zip(&self.sockets) {
            self.refused += outbox.send_all(socket)?;
        }
        Ok(())
    }

    fn receive(&mut self, take: &mut dyn FnMut(Arrived<'_>)) -> io::Result<bool> {
        let mut more = false;
        for (at, socket) in self.sockets.iter().enumerate() {
            let count = self.inbox.receive(socket, false)?;
            more |= count == crate::mmsg::BATCH;
            for ((packet, from), details) in self.inbox.packets().zip(self.inbox.details()) {
                let Some((details, block)) =
                    details.and_then(|d| Some((d, place::number_of_client(d.to)?)))
                else {
                    self.refused += 1;
                    continue;
                };
                let client = match self.moved.get(&block) {
                    Some(moved) => *moved,
                    // It has moved on, or has gone.
                    None if block >= MOVED => continue,
                    None => block * SOCKETS + at as u32,
                };
                take(Arrived {
                    client,
                    from: SocketAddr::V4(from),
                    packet,
                    at_nanos: details.at_nanos,
                });
            }
        }
        Ok(more)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn candidates_are_read_from_an_answer() {
        let answer = "v=0\r\na=candidate:1 1 udp 2130706431 127.0.0.1 3478 typ host\r\n\
                      a=candidate:2 1 udp 2130706175 ::1 3478 typ host\r\n\
                      a=candidate:3 1 udp 1 name.local 3478 typ host\r\n";
        let found: Vec<_> = candidates(answer).filter_map(Result::ok).collect();
        assert_eq!(
            found,
            ["127.0.0.1:3478", "[::1]:3478"].map(|a| a.parse().expect("an address"))
        );
    }

    #[test]
    fn every_client_has_an_address_of_its_own_and_is_found_by_it() {
        let mut air = Air::open(&Way::Relay, Sharing::Shared).expect("sockets");
        let echo = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        let to = echo.local_addr().expect("an address");
        let mut addresses = HashMap::new();
        for n in [0, 7, 8, 1_000, 65_537] {
            addresses.insert(n, air.seat(n).expect("an address"));
        }
        // One of them moves.
        let before = addresses.insert(8, air.seat(8).expect("an address"));
        assert_ne!(before, addresses.get(&8).copied());
        for n in [0, 7, 8, 1_000, 65_537] {
            air.send(n, to, &n.to_be_bytes()).expect("sent");
        }
        air.flush().expect("flushed");
        let mut buffer = [0; 64];
        for _ in 0..5 {
            let (length, from) = echo.recv_from(&mut buffer).expect("a packet");
            let n = u32::from_be_bytes(buffer[..length].try_into().expect("four bytes"));
            assert_eq!(from, addresses[&n]);
            echo.send_to(&buffer[..length], from).expect("sent back");
        }
        let mut seen = Vec::new();
        while seen.len() < 5 {
            crate::readable::wait(&air.descriptors(), std::time::Duration::from_secs(5))
                .expect("waited");
            air.receive(&mut |arrived| {
                assert_eq!(arrived.from, to);
                assert_eq!(arrived.packet, arrived.client.to_be_bytes());
                assert!(arrived.at_nanos > 0);
                seen.push(arrived.client);
            })
            .expect("received");
        }
        seen.sort_unstable();
        assert_eq!(seen, [0, 7, 8, 1_000, 65_537]);
        assert_eq!(air.refused(), 0);
    }
}
