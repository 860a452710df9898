//! The way past relays: the generator plays a relay core, and its clients' packets travel in records of the trunk.

use std::collections::HashMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::sync::Arc;

use firsthop_shared::address::{
    BootId, ClientAddr, FlowHandle, IngressId, OwnerAddr, SessionId, ShardId,
};
use firsthop_shared::keyring::DataKeyring;
use firsthop_shared::limits::TRUNK_DATAGRAM_MAX;
use firsthop_shared::token;
use firsthop_shared::trunk::{self, DatagramBuilder, RecordHeader, RecordKind};

use super::air::{Arrived, candidates};
use crate::crowd::open_socket;
use crate::mmsg::{Inbox, tell_details};

/// Where the direct way's clients are said to be: a block for measurements (RFC 2544), which nobody routes.
const DIRECT_CLIENTS: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);

/// The port of each of them.
const DIRECT_PORT: u16 = 40_000;

/// How many datagrams are taken in one turn at most: media that is due must not wait for a flood.
const BATCHES_PER_TURN: usize = 4;

/// Where a client's session lives, and how its records are labelled.
struct Home {
    owner: SocketAddrV4,
    shard: ShardId,
    session: SessionId,
    /// What the client sees packets come from.
    server: SocketAddr,
}

struct Sender {
    builder: DatagramBuilder,
    boot: BootId,
    sequence: u32,
}

/// A relay core's end of the trunk.
pub struct Trunk {
    socket: UdpSocket,
    keyring: Arc<DataKeyring>,
    ingress: IngressId,
    homes: HashMap<u32, Home>,
    /// One per owner and worker.
    senders: HashMap<(SocketAddrV4, ShardId), Sender>,
    inbox: Inbox,
    refused: u64,
}

impl Trunk {
    /// Opens the socket.
    ///
    /// # Errors
    /// There is none.
    pub(super) fn open(keyring: Arc<DataKeyring>, ingress: IngressId) -> io::Result<Self> {
        let (socket, _) = open_socket()?;
        tell_details(&socket)?;
        socket.set_nonblocking(true)?;
        Ok(Self {
            socket,
            keyring,
            ingress,
            homes: HashMap::new(),
            senders: HashMap::new(),
            inbox: Inbox::with_details(TRUNK_DATAGRAM_MAX),
            refused: 0,
        })
    }

    /// The address of client number `n`.
    pub(super) fn address(n: u32) -> SocketAddrV4 {
        // The block has 2^17 addresses.
        let ip = Ipv4Addr::from(u32::from(DIRECT_CLIENTS) + n % (1 << 16));
        SocketAddrV4::new(ip, DIRECT_PORT + (n >> 16) as u16)
    }

    /// Learns from the answer whose session client number `n` has.
    ///
    /// # Errors
    /// What is wrong with the answer, in words.
    pub(super) fn join(&mut self, n: u32, answer: &str) -> Result<(), String> {
        let ufrag = answer
            .lines()
            .find_map(|line| line.strip_prefix("a=ice-ufrag:"))
            .ok_or("the answer has no ufrag")?;
        let route = token::open(&self.keyring, ufrag.trim().as_bytes()).map_err(|error| {
            format!("the answer's ufrag was not minted under this keyring: {error}")
        })?;
        let SocketAddr::V4(owner) = OwnerAddr::get(&route.owner) else {
            return Err("the direct way is IPv4 alone".to_owned());
        };
        let server = candidates(answer)
            .filter_map(Result::ok)
            .find(SocketAddr::is_ipv4)
            .ok_or("the answer has no IPv4 candidate")?;
        self.homes.insert(
            n,
            Home {
                owner,
                shard: route.shard,
                session: route.session,
                server,
            },
        );
        Ok(())
    }

    /// Packs a packet of client number `n`.
    ///
    /// # Errors
    /// What the socket says.
    pub(super) fn send(&mut self, n: u32, packet: &[u8]) -> io::Result<()> {
        let Some(home) = self.homes.get(&n) else {
            return Ok(());
        };
        let header = RecordHeader {
            kind: RecordKind::Packet,
            client: ClientAddr::new(SocketAddr::V4(Self::address(n))),
            tcp: false,
            proven: false,
            ingress: self.ingress,
            session: home.session,
            handle: FlowHandle(n),
            owner: None,
            payload_len: 0,
        };
        let to = (home.owner, home.shard);
        let sender = self.senders.entry(to).or_insert_with(|| Sender {
            builder: DatagramBuilder::new(TRUNK_DATAGRAM_MAX),
            boot: BootId::of_relay(rand::random()),
            sequence: 0,
        });
        if !sender.builder.push(&header, packet) {
            self.refused += sender.leave(&self.socket, &self.keyring, to)?;
            self.refused += u64::from(!sender.builder.push(&header, packet));
        }
        Ok(())
    }

    /// Forgets client number `n`.
    pub(super) fn leave(&mut self, n: u32) {
        self.homes.remove(&n);
    }

    /// The socket.
    pub(super) fn socket(&self) -> &UdpSocket {
        &self.socket
    }

    /// Records that the kernel did not take, and datagrams that could not be read.
    pub(super) fn refused(&self) -> u64 {
        self.refused
    }

    /// Sends what was packed.
    ///
    /// # Errors
    /// What the socket says.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        for (to, sender) in &mut self.senders {
            self.refused += sender.leave(&self.socket, &self.keyring, *to)?;
        }
        Ok(())
    }

    /// Takes what has come, a bounded number; returns whether there may be more.
    ///
    /// # Errors
    /// What the socket says.
    pub(super) fn receive(&mut self, take: &mut dyn FnMut(Arrived<'_>)) -> io::Result<bool> {
        for _ in 0..BATCHES_PER_TURN {
            let count = match self.inbox.receive(&self.socket, false) {
                // An owner that has gone answers with ICMP: the socket is well.
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => continue,
                other => other?,
            };
            for ((bytes, _), details) in self.inbox.packets().zip(self.inbox.details()) {
                let (Ok(datagram), Some(details)) = (trunk::open(&self.keyring, bytes), details)
                else {
                    self.refused += 1;
                    continue;
                };
                for record in datagram.records() {
                    let client = record.header.handle.0;
                    let Some(home) = self.homes.get(&client) else {
                        continue;
                    };
                    if record.header.kind == RecordKind::Packet
                        && record.header.session == home.session
                    {
                        take(Arrived {
                            client,
                            from: home.server,
                            packet: record.payload,
                            at_nanos: details.at_nanos,
                        });
                    }
                }
            }
            if count < crate::mmsg::BATCH {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

impl Sender {
    /// Sends what was packed; returns how many records the kernel did not take.
    fn leave(
        &mut self,
        socket: &UdpSocket,
        keyring: &DataKeyring,
        (owner, shard): (SocketAddrV4, ShardId),
    ) -> io::Result<u64> {
        let records = self.builder.records() as u64;
        if records == 0 {
            return Ok(0);
        }
        self.sequence = self.sequence.wrapping_add(1);
        let bytes = self
            .builder
            .finish(keyring.active(), shard, self.boot, self.sequence);
        let sent = socket.send_to(bytes, owner);
        self.builder.clear();
        match sent {
            Ok(_) => Ok(0),
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::ConnectionRefused
                ) =>
            {
                Ok(records)
            }
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_of_another_fleet_is_refused_in_words() {
        use firsthop_shared::keyring::Masters;
        let keyring = |seed| {
            Arc::new(DataKeyring::parse(&Masters::new([seed; 32]).data_toml()).expect("a keyring"))
        };
        let mut trunk = Trunk::open(keyring(1), IngressId(0)).expect("a socket");
        let route = token::Route {
            cluster: firsthop_shared::address::ClusterId(1),
            owner: OwnerAddr::new("127.0.0.1:5000".parse().expect("an address")),
            shard: ShardId(0),
            restart: firsthop_shared::address::Restart(0),
            session: SessionId(1),
        };
        let answer = |keyring: &DataKeyring| {
            format!(
                "a=ice-ufrag:{}\r\na=candidate:1 1 udp 1 192.0.2.1 3478 typ host\r\n",
                token::mint(keyring.active(), &route)
            )
        };
        assert_eq!(trunk.join(1, &answer(&keyring(1))), Ok(()));
        let refused = trunk.join(2, &answer(&keyring(2))).expect_err("a stranger");
        assert!(refused.contains("keyring"), "{refused}");
        assert!(trunk.join(3, "v=0\r\n").is_err());
    }
}
