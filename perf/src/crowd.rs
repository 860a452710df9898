//! The clients: thousands of flows with valid tokens, played by a handful of sockets.
//!
//! Each flow has an address of its own (see [`place`]): a program under test cannot tell it from a client with
//! a socket of its own, and one system call sends for 64 of them.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::sync::Arc;

use firsthop_shared::address::{ClusterId, OwnerAddr, Restart, SessionId, ShardId};
use firsthop_shared::keyring::DataKeyring;
use firsthop_shared::limits::CLIENT_PACKET_MAX;
use firsthop_shared::stun::{Class, Stun};
use firsthop_shared::stun_write::{Role, binding_request, binding_success};
use firsthop_shared::token::{self, Route};

use crate::mmsg::{Inbox, Outbox, copy_of};
use crate::packet::{MEDIA_MIN, Stamp};
use crate::place;
use crate::turn::{self, Granted};
use crate::wire::Wire;

/// The ICE password of every client here; an owner of ours knows it, as a real one knows it from the offer.
pub const CLIENT_PASSWORD: &[u8] = b"password of the perf client";

/// The ICE ufrag of every client here.
pub const CLIENT_UFRAG: &str = "perf";

/// Sockets that play the clients.
pub const SOCKETS: u32 = 8;

/// The receive buffer that every socket here asks for, in bytes; the kernel caps it at `net.core.rmem_max`.
pub const SOCKET_BUFFER: usize = 8 << 20;

/// The sequence number of a media packet that only introduces its flow.
pub const HELLO: u32 = u32::MAX;

/// All clients of one run.
pub struct Crowd {
    wire: Wire,
    flows: u32,
    owners: u16,
    owner_port: u16,
    target: SocketAddrV4,
    keyring: Arc<DataKeyring>,
    cluster: ClusterId,
    sockets: Vec<UdpSocket>,
    ports: Vec<u16>,
    outboxes: Vec<Outbox>,
    inbox: Inbox,
    /// What a TURN server has granted, by flow.
    granted: Vec<Option<Granted>>,
    /// Packets that the kernel did not take.
    pub refused: u64,
    scratch: Vec<u8>,
}

/// Where the clients' packets go and what their tokens say.
pub struct CrowdPlan {
    /// What they speak.
    pub wire: Wire,
    /// How many flows.
    pub flows: u32,
    /// Owners, to which flows belong in turn.
    pub owners: u16,
    /// The owners' port.
    pub owner_port: u16,
    /// The program under test, as clients see it.
    pub target: SocketAddrV4,
    /// The fleet's keys.
    pub keyring: Arc<DataKeyring>,
    /// The relay's cluster.
    pub cluster: ClusterId,
}

/// A UDP socket on a port of its own, on every local address, with a large receive buffer.
pub(crate) fn open_socket() -> io::Result<(UdpSocket, u16)> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    socket2::SockRef::from(&socket).set_recv_buffer_size(SOCKET_BUFFER)?;
    let port = socket.local_addr()?.port();
    Ok((socket, port))
}

impl Crowd {
    /// Opens the sockets. Nothing is sent yet.
    ///
    /// # Errors
    /// A socket cannot be had.
    pub fn open(plan: CrowdPlan) -> io::Result<Self> {
        let opened: io::Result<Vec<_>> = (0..SOCKETS).map(|_| open_socket()).collect();
        let (sockets, ports) = opened?.into_iter().unzip();
        Ok(Self {
            wire: plan.wire,
            flows: plan.flows,
            owners: plan.owners,
            owner_port: plan.owner_port,
            target: plan.target,
            keyring: plan.keyring,
            cluster: plan.cluster,
            sockets,
            ports,
            outboxes: (0..SOCKETS)
                .map(|_| Outbox::new(CLIENT_PACKET_MAX + turn::CHANNEL_HEADER))
                .collect(),
            inbox: Inbox::new(2_048),
            granted: match plan.wire {
                Wire::Channel => vec![None; plan.flows as usize],
                _ => Vec::new(),
            },
            refused: 0,
            scratch: Vec::new(),
        })
    }

    /// How many flows there are.
    #[must_use]
    pub fn flows(&self) -> u32 {
        self.flows
    }

    /// The ports of the sockets that play the clients.
    #[must_use]
    pub fn ports(&self) -> &[u16] {
        &self.ports
    }

    /// The sockets that play the clients.
    pub fn sockets(&self) -> impl Iterator<Item = &UdpSocket> {
        self.sockets.iter()
    }

    /// The address of a flow's client.
    #[must_use]
    pub fn address(&self, flow: u32) -> SocketAddrV4 {
        SocketAddrV4::new(
            place::client(flow / SOCKETS),
            self.ports[(flow % SOCKETS) as usize],
        )
    }

    /// The flow's token, and the password that goes with it.
    #[must_use]
    pub fn credentials(&self, flow: u32) -> (token::Ufrag, token::IcePassword) {
        let owner = SocketAddrV4::new(
            place::owner((flow % u32::from(self.owners)) as u16),
            self.owner_port,
        );
        let route = Route {
            cluster: self.cluster,
            owner: OwnerAddr::new(SocketAddr::V4(owner)),
            shard: ShardId(0),
            restart: Restart(0),
            session: SessionId(flow + 1),
        };
        let ufrag = token::mint(self.keyring.active(), &route);
        let password = token::ice_password(&self.keyring, ufrag.as_bytes())
            .unwrap_or_else(|_| unreachable!("minted under a key of this keyring"));
        (ufrag, password)
    }

    /// Replaces `out` by a connectivity check of a flow that nominates.
    pub fn check(&self, flow: u32, out: &mut Vec<u8>) {
        let (ufrag, password) = self.credentials(flow);
        let mut transaction = *b"perf........";
        transaction[4..8].copy_from_slice(&flow.to_be_bytes());
        binding_request(
            out,
            transaction,
            &format!("{ufrag}:{CLIENT_UFRAG}"),
            password.as_bytes(),
            0x6e00_01ff,
            Role::Controlling(1, true),
        );
    }

    /// Sends what a flow begins with; again for as long as its owner does not know it.
    ///
    /// # Errors
    /// What the socket says.
    pub fn hello(&mut self, flow: u32) -> io::Result<()> {
        match self.wire {
            Wire::Trunk => {
                let mut check = std::mem::take(&mut self.scratch);
                self.check(flow, &mut check);
                let done = self.push(flow, copy_of(&check));
                self.scratch = check;
                done
            }
            Wire::Record => {
                // A relay that holds no keys is told the session in the open.
                let mut check = std::mem::take(&mut self.scratch);
                let name = format!("{:08x}:{CLIENT_UFRAG}", flow + 1);
                let role = Role::Controlling(1, true);
                binding_request(&mut check, [7; 12], &name, CLIENT_PASSWORD, 1, role);
                let done = self.push(flow, copy_of(&check));
                self.scratch = check;
                done
            }
            Wire::Plain => self.media(flow, HELLO, 0, MEDIA_MIN),
            Wire::Channel => match self.granted[flow as usize] {
                None => self.push(flow, |out| turn::allocate(out, flow)),
                Some(Granted::Allocation) => {
                    let peer = SocketAddrV4::new(
                        place::owner((flow % u32::from(self.owners)) as u16),
                        self.owner_port,
                    );
                    self.push(flow, |out| turn::channel_bind(out, flow, peer))
                }
                Some(Granted::Channel) => self.media(flow, HELLO, 0, MEDIA_MIN),
            },
        }
    }

    /// Sends a media packet, once its batch is full or [`Crowd::flush`] is called.
    ///
    /// # Errors
    /// What the socket says.
    pub fn media(
        &mut self,
        flow: u32,
        sequence: u32,
        due_nanos: u64,
        size: usize,
    ) -> io::Result<()> {
        let stamp = Stamp {
            flow,
            sequence,
            due_nanos,
        };
        let channel = self.wire == Wire::Channel;
        self.push(flow, |out| {
            if channel {
                turn::channel_data(out, |inner| stamp.write(inner, size))
            } else {
                stamp.write(out, size)
            }
        })
    }

    fn push(&mut self, flow: u32, write: impl FnOnce(&mut [u8]) -> usize) -> io::Result<()> {
        let from = place::client(flow / SOCKETS);
        self.push_from((flow % SOCKETS) as usize, from, write)
    }

    /// Sends a packet from any address, through socket number `socket`.
    ///
    /// # Errors
    /// What the socket says.
    pub fn push_from(
        &mut self,
        socket: usize,
        from: Ipv4Addr,
        write: impl FnOnce(&mut [u8]) -> usize,
    ) -> io::Result<()> {
        let outbox = &mut self.outboxes[socket];
        outbox.push(self.target, Some(from), write);
        if outbox.is_full() {
            self.refused += outbox.send_all(&self.sockets[socket])?;
        }
        Ok(())
    }

    /// Sends what waits for a full batch.
    ///
    /// # Errors
    /// What a socket says.
    pub fn flush(&mut self) -> io::Result<()> {
        for (outbox, socket) in self.outboxes.iter_mut().zip(&self.sockets) {
            self.refused += outbox.send_all(socket)?;
        }
        Ok(())
    }

    /// Takes what came for clients, once around all sockets: answers checks, and hands stamps of media to `media`.
    ///
    /// Returns how many packets came.
    ///
    /// # Errors
    /// What a socket says.
    pub fn receive(&mut self, mut media: impl FnMut(Stamp)) -> io::Result<usize> {
        let mut count = 0;
        for (socket, outbox) in self.sockets.iter().zip(&mut self.outboxes) {
            count += self.inbox.receive(socket, false)?;
            for (packet, from) in self.inbox.packets() {
                let packet = match self.wire {
                    Wire::Channel => turn::unwrap(packet).unwrap_or(packet),
                    _ => packet,
                };
                if let Some(stamp) = Stamp::read(packet) {
                    media(stamp);
                } else if self.wire == Wire::Channel {
                    if let Some((granted, flow)) = turn::granted(packet)
                        && let Some(slot) = self.granted.get_mut(flow as usize)
                    {
                        *slot = Some(granted);
                    }
                } else if let Ok(message) = Stun::parse(packet)
                    && message.class == Class::Request
                    && message.verify_integrity(CLIENT_PASSWORD)
                {
                    // The owner's check names the flow, because the packet's own target address is not looked at here.
                    let transaction = message.transaction();
                    let flow = flow_of(&transaction);
                    let mut answer = std::mem::take(&mut self.scratch);
                    binding_success(
                        &mut answer,
                        transaction,
                        SocketAddr::V4(from),
                        CLIENT_PASSWORD,
                    );
                    let client = place::client(flow / SOCKETS);
                    outbox.push(self.target, Some(client), copy_of(&answer));
                    self.scratch = answer;
                    if outbox.is_full() {
                        self.refused += outbox.send_all(socket)?;
                    }
                }
            }
        }
        Ok(count)
    }
}

/// The transaction id of an owner's check: the flow's number, and what cannot be guessed.
pub(crate) fn transaction_of(flow: u32, secret: u64) -> [u8; 12] {
    let mut transaction = [0; 12];
    transaction[..4].copy_from_slice(&flow.to_be_bytes());
    transaction[4..].copy_from_slice(&secret.to_be_bytes());
    transaction
}

pub(crate) fn flow_of(transaction: &[u8; 12]) -> u32 {
    let [a, b, c, d, ..] = *transaction;
    u32::from_be_bytes([a, b, c, d])
}
