//! Stand-ins for transceivers: they speak what the program under test speaks, check each client's address as ICE does, and
//! send packets down.
//!
//! They hold no WebRTC session, so that a measurement shows the relay and not the codec. What a relay can see of them is
//! what transceivers do: answers to checks, checks of their own, proof marked on the next record, packed downlink. All owners
//! of a run share one socket; each has an address, a boot id and a sequence of its own.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::sync::Arc;

use firsthop_shared::address::{BootId, ClientAddr, ShardId};
use firsthop_shared::keyring::DataKeyring;
use firsthop_shared::limits::TRUNK_DATAGRAM_MAX;
use firsthop_shared::stun::{Class, Stun};
use firsthop_shared::stun_write::{Role, binding_request, binding_success};
use firsthop_shared::token;
use firsthop_shared::trunk::{self, DatagramBuilder, RecordHeader, RecordKind};
use rand::RngExt as _;

use crate::crowd::{CLIENT_PASSWORD, CLIENT_UFRAG, flow_of, open_socket, transaction_of};
use crate::mmsg::{Inbox, Outbox, copy_of};
use crate::packet::{MEDIA_MIN, Stamp};
use crate::place;
use crate::wire::{Wire, record};

/// What the owners counted.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct OwnerCounts {
    /// Datagrams that were valid.
    pub datagrams: u64,
    /// Records in them.
    pub records: u64,
    /// Datagrams that did not verify, and records of sessions that nobody here owns.
    pub refused: u64,
    /// Checks for a session from another address than its client's.
    pub strangers: u64,
    /// Datagrams that the kernel did not take.
    pub unsent: u64,
}

/// One session, as its owner knows it.
#[derive(Clone, Copy)]
struct Session {
    /// Where its packets come from and go to: a core of the relay, or a port of the proxy for this client alone.
    hop: SocketAddrV4,
    /// What its next record says.
    header: RecordHeader,
    known: bool,
}

struct Sender {
    boot: BootId,
    sequence: u32,
    hop: SocketAddrV4,
    builder: DatagramBuilder,
}

/// All owners of one run.
pub struct Owners {
    wire: Wire,
    socket: UdpSocket,
    port: u16,
    keyring: Arc<DataKeyring>,
    sessions: Vec<Session>,
    senders: Vec<Sender>,
    known: u32,
    secret: u64,
    inbox: Inbox,
    outbox: Outbox,
    counts: OwnerCounts,
    scratch: Vec<u8>,
}

const NOWHERE: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0);

impl Owners {
    /// Opens the owners' socket. Their trunk datagrams are at most `datagram_len` bytes long.
    ///
    /// # Errors
    /// The socket cannot be had.
    pub fn open(
        wire: Wire,
        owners: u16,
        flows: u32,
        datagram_len: usize,
        keyring: Arc<DataKeyring>,
    ) -> io::Result<Self> {
        let (socket, port) = open_socket()?;
        let mut rng = rand::rng();
        let nobody = ClientAddr::new(SocketAddr::V4(NOWHERE));
        Ok(Self {
            wire,
            socket,
            port,
            keyring,
            sessions: (0..flows)
                .map(|flow| Session {
                    hop: NOWHERE,
                    header: record(nobody, flow + 1, 0),
                    known: false,
                })
                .collect(),
            senders: (0..owners)
                .map(|_| Sender {
                    boot: BootId::of_owner(rng.random()),
                    sequence: 0,
                    hop: NOWHERE,
                    builder: DatagramBuilder::new(datagram_len),
                })
                .collect(),
            known: 0,
            secret: rng.random(),
            inbox: Inbox::new(TRUNK_DATAGRAM_MAX + 1),
            outbox: Outbox::new(TRUNK_DATAGRAM_MAX),
            counts: OwnerCounts::default(),
            scratch: Vec::new(),
        })
    }

    /// The port that all owners share.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The socket that all owners share.
    #[must_use]
    pub fn socket(&self) -> &UdpSocket {
        &self.socket
    }

    /// How many sessions have a client: one that answered the owner's check, where owners check.
    #[must_use]
    pub fn known(&self) -> u32 {
        self.known
    }

    /// Whether a flow's session has a client.
    #[must_use]
    pub fn knows(&self, flow: u32) -> bool {
        self.sessions[flow as usize].known
    }

    /// What was counted so far.
    #[must_use]
    pub fn counts(&self) -> OwnerCounts {
        self.counts
    }

    /// Takes a session over without a check: the next record makes the relay restore its flow.
    ///
    /// This is what happens after a relay was restarted, and the fast way to a table of a million flows.
    pub fn adopt(&mut self, flow: u32, client: SocketAddrV4, hop: SocketAddrV4, proven: bool) {
        let session = &mut self.sessions[flow as usize];
        session.hop = hop;
        session.header = record(ClientAddr::new(SocketAddr::V4(client)), flow + 1, 0);
        session.header.proven = proven;
        self.known += u32::from(!session.known);
        session.known = true;
    }

    /// Takes one batch of datagrams, and hands the stamp of each media packet to `media`. Returns how many datagrams came.
    ///
    /// # Errors
    /// What the socket says.
    pub fn receive(&mut self, mut media: impl FnMut(Stamp)) -> io::Result<usize> {
        let mut inbox = std::mem::replace(&mut self.inbox, Inbox::new(0));
        let result = self.take(&mut inbox, &mut media);
        self.inbox = inbox;
        self.flush()?;
        result
    }

    fn take(&mut self, inbox: &mut Inbox, media: &mut impl FnMut(Stamp)) -> io::Result<usize> {
        let count = inbox.receive(&self.socket, false)?;
        let keyring = Arc::clone(&self.keyring);
        for (bytes, from) in inbox.packets() {
            match self.wire {
                Wire::Trunk => {
                    let Ok(datagram) = trunk::open(&keyring, bytes) else {
                        self.counts.refused += 1;
                        continue;
                    };
                    self.counts.datagrams += 1;
                    for record in datagram.records() {
                        self.counts.records += 1;
                        self.record(from, &record.header, record.payload, media)?;
                    }
                }
                Wire::Record => match RecordHeader::parse(bytes) {
                    Ok((header, used)) => {
                        self.counts.datagrams += 1;
                        self.counts.records += 1;
                        self.record(from, &header, &bytes[used..], media)?;
                    }
                    Err(_) => self.counts.refused += 1,
                },
                Wire::Plain | Wire::Channel => {
                    self.counts.datagrams += 1;
                    self.counts.records += 1;
                    match Stamp::read(bytes) {
                        Some(stamp) => self.plain(from, stamp, media),
                        None => self.counts.refused += 1,
                    }
                }
            }
        }
        Ok(count)
    }

    fn plain(&mut self, from: SocketAddrV4, stamp: Stamp, media: &mut impl FnMut(Stamp)) {
        let Some(session) = self.sessions.get_mut(stamp.flow as usize) else {
            self.counts.refused += 1;
            return;
        };
        session.hop = from;
        self.known += u32::from(!session.known);
        session.known = true;
        media(stamp);
    }

    fn record(
        &mut self,
        from: SocketAddrV4,
        header: &RecordHeader,
        payload: &[u8],
        media: &mut impl FnMut(Stamp),
    ) -> io::Result<()> {
        if header.kind != RecordKind::Packet {
            return Ok(());
        }
        let flow = header.session.0.wrapping_sub(1);
        let Some(session) = self.sessions.get_mut(flow as usize) else {
            self.counts.refused += 1;
            return Ok(());
        };
        if let Some(stamp) = Stamp::read(payload) {
            media(stamp);
            return Ok(());
        }
        let Ok(message) = Stun::parse(payload) else {
            return Ok(());
        };
        if session.known && session.header.client != header.client {
            // A session has one client here. Whoever else shows its request has copied it.
            self.counts.strangers += 1;
            return Ok(());
        }
        session.hop = from;
        session.header = *header;
        if self.wire == Wire::Record {
            self.known += u32::from(!session.known);
            session.known = true;
            return Ok(());
        }
        let mut answer = std::mem::take(&mut self.scratch);
        if message.class == Class::Request {
            self.answer_check(flow, &message, &mut answer)?;
        } else if message.class == Class::Success
            && message.transaction() == transaction_of(flow, self.secret)
            && message.verify_integrity(CLIENT_PASSWORD)
        {
            let session = &mut self.sessions[flow as usize];
            self.known += u32::from(!session.known);
            session.known = true;
            // Fresh proof goes out at once, with a packet that the client does not answer.
            session.header.proven = true;
            binding_success(
                &mut answer,
                message.transaction(),
                header.client.get(),
                CLIENT_PASSWORD,
            );
            self.push(flow, copy_of(&answer))?;
        }
        self.scratch = answer;
        Ok(())
    }

    fn answer_check(
        &mut self,
        flow: u32,
        message: &Stun<'_>,
        answer: &mut Vec<u8>,
    ) -> io::Result<()> {
        let Some(ufrag) = message.local_ufrag() else {
            return Ok(());
        };
        let Ok(password) = token::ice_password(&self.keyring, ufrag) else {
            return Ok(());
        };
        let session = self.sessions[flow as usize];
        binding_success(
            answer,
            message.transaction(),
            session.header.client.get(),
            password.as_bytes(),
        );
        self.push(flow, copy_of(answer))?;
        if session.known {
            return Ok(());
        }
        let name = format!("{CLIENT_UFRAG}:{}", String::from_utf8_lossy(ufrag));
        let check = transaction_of(flow, self.secret);
        debug_assert_eq!(flow_of(&check), flow);
        let role = Role::Controlled(2);
        binding_request(answer, check, &name, CLIENT_PASSWORD, 1, role);
        self.push(flow, copy_of(answer))
    }

    /// Sends a media packet to a flow's client, once its datagram is full or [`Owners::flush`] is called.
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
        self.push(flow, |out| stamp.write(out, size.max(MEDIA_MIN)))
    }

    fn push(&mut self, flow: u32, write: impl FnOnce(&mut [u8]) -> usize) -> io::Result<()> {
        let owner = (flow as usize % self.senders.len()) as u16;
        let session = &mut self.sessions[flow as usize];
        let header = session.header;
        session.header.proven = false;
        let hop = session.hop;
        match self.wire {
            Wire::Trunk => {
                let mut payload = [0; 2_048];
                let len = write(&mut payload);
                if self.senders[usize::from(owner)].hop != hop {
                    self.close(owner)?;
                    self.senders[usize::from(owner)].hop = hop;
                }
                if !self.senders[usize::from(owner)]
                    .builder
                    .push(&header, &payload[..len])
                {
                    self.close(owner)?;
                    self.senders[usize::from(owner)]
                        .builder
                        .push(&header, &payload[..len]);
                }
            }
            Wire::Record => self.outbox.push(hop, Some(place::owner(owner)), |out| {
                let at = header.encoded_len();
                let len = write(&mut out[at..]);
                let payload_len = len as u16;
                RecordHeader {
                    payload_len,
                    ..header
                }
                .write(out)
                    + len
            }),
            Wire::Plain | Wire::Channel => self.outbox.push(hop, Some(place::owner(owner)), write),
        }
        self.send_if_full()
    }

    /// Closes an owner's datagram.
    fn close(&mut self, owner: u16) -> io::Result<()> {
        let sender = &mut self.senders[usize::from(owner)];
        if sender.builder.is_empty() {
            return Ok(());
        }
        sender.sequence += 1;
        let bytes = sender.builder.finish(
            self.keyring.active(),
            ShardId(0),
            sender.boot,
            sender.sequence,
        );
        self.outbox
            .push(sender.hop, Some(place::owner(owner)), copy_of(bytes));
        sender.builder.clear();
        self.send_if_full()
    }

    fn send_if_full(&mut self) -> io::Result<()> {
        if self.outbox.is_full() {
            self.send()?;
        }
        Ok(())
    }

    fn send(&mut self) -> io::Result<()> {
        self.counts.unsent += self.outbox.send_all(&self.socket)?;
        Ok(())
    }

    /// Sends everything that waits for company.
    ///
    /// # Errors
    /// What the socket says.
    pub fn flush(&mut self) -> io::Result<()> {
        if self.wire == Wire::Trunk {
            for owner in 0..self.senders.len() as u16 {
                self.close(owner)?;
            }
        }
        self.send()
    }
}
