//! A stand-in for a transceiver: it speaks the trunk, checks each client's address as ICE does, and returns media packets.
//!
//! It holds no WebRTC session, so that a measurement shows the relay and not the codec. What a relay can see of it is
//! what a transceiver does: answers to checks, checks of its own, proof marked on the next record, packed downlink.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;

use firsthop_shared::address::{BootId, ClientAddr, Hop, IngressId, SessionId, ShardId};
use firsthop_shared::keyring::DataKeyring;
use firsthop_shared::limits::TRUNK_DATAGRAM_MAX;
use firsthop_shared::stun::{Class, Stun};
use firsthop_shared::stun_write::{Role, binding_request, binding_success};
use firsthop_shared::token;
use firsthop_shared::trunk::{self, DatagramBuilder, RecordHeader, RecordKind};
use mio::net::UdpSocket;
use rand::RngExt as _;

use crate::flow::{CLIENT_PASSWORD, CLIENT_UFRAG, Stamp};

/// What an owner counted.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct OwnerCounts {
    /// Trunk datagrams that verified.
    pub datagrams: u64,
    /// Records in them.
    pub records: u64,
    /// Datagrams that did not verify, and records of sessions that are not this owner's.
    pub refused: u64,
}

struct Session {
    /// The transaction of our own check, until it is answered.
    check: Option<[u8; 12]>,
    proven: bool,
}

/// One owner with one shard on one UDP socket.
pub struct Owner {
    socket: UdpSocket,
    shard: ShardId,
    boot: BootId,
    sequence: u32,
    sessions: HashMap<SessionId, Session>,
    builder: DatagramBuilder,
    returns_media: bool,
    datagram_len: usize,
    scratch: Vec<u8>,
    counts: OwnerCounts,
    proven: usize,
}

impl Owner {
    /// Opens the owner's trunk socket on `address`.
    ///
    /// `returns_media` sends each media packet back to its client; `datagram_len` is the largest trunk datagram it writes.
    ///
    /// # Errors
    /// When the address cannot be bound.
    pub fn open(
        address: SocketAddr,
        shard: ShardId,
        returns_media: bool,
        datagram_len: usize,
    ) -> io::Result<Self> {
        let socket = socket2::Socket::new(
            socket2::Domain::for_address(address),
            socket2::Type::DGRAM,
            Some(socket2::Protocol::UDP),
        )?;
        // The kernel caps it at net.core.rmem_max; a measurement reports losses either way.
        socket.set_recv_buffer_size(8 << 20)?;
        socket.set_nonblocking(true)?;
        socket.bind(&address.into())?;
        Ok(Self {
            socket: UdpSocket::from_std(socket.into()),
            shard,
            boot: BootId(rand::rng().random()),
            sequence: 0,
            sessions: HashMap::new(),
            builder: DatagramBuilder::new(datagram_len),
            returns_media,
            datagram_len,
            scratch: Vec::new(),
            counts: OwnerCounts::default(),
            proven: 0,
        })
    }

    /// The address to mint into tokens.
    ///
    /// # Errors
    /// What the socket says.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// The socket, to be registered with a poll.
    pub fn socket(&mut self) -> &mut UdpSocket {
        &mut self.socket
    }

    /// Takes a session as a transceiver does when signaling creates one.
    pub fn create(&mut self, session: SessionId) {
        self.sessions.insert(
            session,
            Session {
                check: None,
                proven: false,
            },
        );
    }

    /// How many of its sessions have answered the owner's check.
    #[must_use]
    pub fn proven(&self) -> usize {
        self.proven
    }

    /// What it counted so far.
    #[must_use]
    pub fn counts(&self) -> OwnerCounts {
        self.counts
    }

    /// Receives datagrams until there are none, and hands the stamp of each media packet to `media`.
    ///
    /// # Errors
    /// What the socket says, but for `WouldBlock`.
    pub fn receive(
        &mut self,
        keyring: &DataKeyring,
        mut media: impl FnMut(Stamp),
    ) -> io::Result<()> {
        let mut buffer = [0; TRUNK_DATAGRAM_MAX + 1];
        loop {
            let (len, from) = match self.socket.recv_from(&mut buffer) {
                Ok(received) => received,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(e) => return Err(e),
            };
            let Ok(datagram) = trunk::open(keyring, &buffer[..len]) else {
                self.counts.refused += 1;
                continue;
            };
            self.counts.datagrams += 1;
            let hop = Hop::new(from);
            for record in datagram.records() {
                self.counts.records += 1;
                if record.header.kind == RecordKind::Packet {
                    self.record(keyring, hop, &record, &mut media)?;
                }
            }
            self.flush(keyring, hop)?;
        }
    }

    fn record(
        &mut self,
        keyring: &DataKeyring,
        hop: Hop,
        record: &trunk::Record<'_>,
        media: &mut impl FnMut(Stamp),
    ) -> io::Result<()> {
        let header = record.header;
        let Some(session) = self.sessions.get_mut(&header.session) else {
            self.counts.refused += 1;
            return Ok(());
        };
        if let Some(stamp) = Stamp::read(record.payload) {
            media(stamp);
            if self.returns_media {
                self.push(keyring, hop, &header, false, record.payload)?;
            }
            return Ok(());
        }
        let Ok(message) = Stun::parse(record.payload) else {
            return Ok(());
        };
        match message.class {
            Class::Request => {
                let Some(ufrag) = message.local_ufrag() else {
                    return Ok(());
                };
                let Ok(password) = token::ice_password(keyring, ufrag) else {
                    return Ok(());
                };
                let username = format!("{CLIENT_UFRAG}:{}", String::from_utf8_lossy(ufrag));
                let check = *session.check.get_or_insert_with(|| rand::rng().random());
                let already = session.proven;
                let mut scratch = std::mem::take(&mut self.scratch);
                binding_success(
                    &mut scratch,
                    message.transaction(),
                    header.client.get(),
                    password.as_bytes(),
                );
                self.push(keyring, hop, &header, false, &scratch)?;
                if !already {
                    let role = Role::Controlled(2);
                    binding_request(&mut scratch, check, &username, CLIENT_PASSWORD, 1, role);
                    self.push(keyring, hop, &header, false, &scratch)?;
                }
                self.scratch = scratch;
            }
            Class::Success
                if session.check == Some(message.transaction())
                    && message.verify_integrity(CLIENT_PASSWORD) =>
            {
                if !session.proven {
                    session.proven = true;
                    self.proven += 1;
                }
                // Fresh proof goes out with a record of its own: an indication that the client ignores.
                let mut scratch = std::mem::take(&mut self.scratch);
                binding_success(
                    &mut scratch,
                    message.transaction(),
                    header.client.get(),
                    CLIENT_PASSWORD,
                );
                self.push(keyring, hop, &header, true, &scratch)?;
                self.scratch = scratch;
            }
            _ => {}
        }
        Ok(())
    }

    fn push(
        &mut self,
        keyring: &DataKeyring,
        hop: Hop,
        up: &RecordHeader,
        proven: bool,
        payload: &[u8],
    ) -> io::Result<()> {
        let down = RecordHeader {
            kind: RecordKind::Packet,
            proven,
            owner: None,
            ..*up
        };
        if !self.builder.push(&down, payload) {
            self.flush(keyring, hop)?;
            self.builder.push(&down, payload);
        }
        Ok(())
    }

    fn flush(&mut self, keyring: &DataKeyring, hop: Hop) -> io::Result<()> {
        if self.builder.is_empty() {
            return Ok(());
        }
        self.sequence += 1;
        let bytes = self
            .builder
            .finish(keyring.active(), self.shard, self.boot, self.sequence);
        debug_assert!(bytes.len() <= self.datagram_len.max(TRUNK_DATAGRAM_MAX));
        let sent = self.socket.send_to(bytes, hop.get());
        self.builder.clear();
        match sent {
            // A full buffer is a loss that the measurement shows.
            Err(e) if e.kind() != io::ErrorKind::WouldBlock => Err(e),
            _ => Ok(()),
        }
    }

    /// Ends a session: the relay is told to forget it at this client's address.
    ///
    /// # Errors
    /// What the socket says.
    pub fn close(
        &mut self,
        keyring: &DataKeyring,
        hop: Hop,
        session: SessionId,
        client: ClientAddr,
        ingress: IngressId,
    ) -> io::Result<()> {
        self.sessions.remove(&session);
        let header = RecordHeader {
            kind: RecordKind::Close,
            client,
            tcp: false,
            proven: false,
            ingress,
            session,
            handle: firsthop_shared::address::FlowHandle(0),
            owner: None,
            payload_len: 0,
        };
        self.builder.push(&header, &[]);
        self.flush(keyring, hop)
    }
}
