//! A stub owner: a transceiver as far as the relay can see, which is its trunk socket.

use std::io;
use std::net::{SocketAddr, UdpSocket};

use firsthop_shared::address::{BootId, ClientAddr, FlowHandle, IngressId, SessionId, ShardId};
use firsthop_shared::keyring::DataKeyring;
use firsthop_shared::limits::TRUNK_DATAGRAM_MAX;
use firsthop_shared::trunk::{self, DatagramBuilder, RecordHeader, RecordKind};

use super::{PATIENCE, keyring, receive_from};

/// One worker of an owner.
pub(crate) struct Owner {
    pub(crate) socket: UdpSocket,
    pub(crate) shard: ShardId,
    keyring: DataKeyring,
    boot: BootId,
    sequence: u32,
}

/// A trunk datagram as the owner got it.
#[derive(Debug)]
pub(crate) struct Arrived {
    pub(crate) from: SocketAddr,
    pub(crate) shard: ShardId,
    pub(crate) records: Vec<(RecordHeader, Vec<u8>)>,
}

impl Owner {
    pub(crate) fn bind(address: SocketAddr) -> Self {
        Self::with_socket(UdpSocket::bind(address).expect("the owner's address"), 0)
    }

    pub(crate) fn with_socket(socket: UdpSocket, shard: u8) -> Self {
        socket.set_read_timeout(Some(PATIENCE)).expect("a time-out");
        Self {
            socket,
            shard: ShardId(shard),
            keyring: keyring(7),
            boot: BootId::of_owner(0x5eed_0000 + u32::from(shard)),
            sequence: 0,
        }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.socket.local_addr().expect("the owner's address")
    }

    /// Sends under another boot id: one with the name of a relay's way, or of a second sender on the same socket.
    pub(crate) fn with_boot(self, boot: BootId) -> Self {
        Self { boot, ..self }
    }

    /// Uses another keyring for what it sends and opens.
    pub(crate) fn set_keyring(&mut self, keyring: DataKeyring) {
        self.keyring = keyring;
    }

    /// The next datagram, which must verify.
    pub(crate) fn receive(&self) -> Arrived {
        self.try_receive()
            .unwrap_or_else(|error| panic!("owner {} got nothing: {error}", self.address()))
    }

    /// The next datagram, or the error when the socket's time-out passes.
    pub(crate) fn try_receive(&self) -> io::Result<Arrived> {
        let mut buffer = vec![0; TRUNK_DATAGRAM_MAX + 1];
        let (len, from) = receive_from(&self.socket, &mut buffer)?;
        let datagram = trunk::open(&self.keyring, &buffer[..len]).expect("a valid trunk datagram");
        Ok(Arrived {
            from,
            shard: datagram.header.shard,
            records: datagram
                .records()
                .map(|record| (record.header, record.payload.to_vec()))
                .collect(),
        })
    }

    /// The next record, from a datagram of one.
    pub(crate) fn receive_one(&self) -> (SocketAddr, RecordHeader, Vec<u8>) {
        let mut arrived = self.receive();
        assert_eq!(arrived.records.len(), 1, "{arrived:?}");
        let (header, payload) = arrived.records.remove(0);
        (arrived.from, header, payload)
    }

    /// Whether nothing lies in the socket.
    pub(crate) fn is_empty(&self) -> bool {
        self.socket.set_nonblocking(true).expect("non-blocking");
        let nothing = self.try_receive().is_err();
        self.socket.set_nonblocking(false).expect("blocking");
        nothing
    }

    /// A datagram with records, not yet sent.
    pub(crate) fn datagram(&mut self, records: &[(RecordHeader, &[u8])]) -> Vec<u8> {
        let mut builder = DatagramBuilder::new(TRUNK_DATAGRAM_MAX);
        for (header, payload) in records {
            assert!(builder.push(header, payload), "the records fit");
        }
        let sequence = self.sequence;
        self.sequence += 1;
        builder
            .finish(self.keyring.active(), self.shard, self.boot, sequence)
            .to_vec()
    }

    /// Sends records to a relay in one datagram.
    pub(crate) fn send(&mut self, to: SocketAddr, records: &[(RecordHeader, &[u8])]) {
        let datagram = self.datagram(records);
        self.socket.send_to(&datagram, to).expect("sent");
    }
}

/// A record for a client, of which the owner knows nothing but the address.
pub(crate) fn record(client: SocketAddr, ingress: u8, session: u32) -> RecordHeader {
    RecordHeader {
        kind: RecordKind::Packet,
        client: ClientAddr::new(client),
        tcp: false,
        proven: false,
        ingress: IngressId(ingress),
        session: SessionId(session),
        handle: FlowHandle(0),
        owner: None,
        payload_len: 0,
    }
}
