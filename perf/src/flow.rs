//! One client flow: a UDP socket of its own, a token, and the packets that a voice client sends.

use std::io;
use std::net::SocketAddr;

use firsthop_shared::address::{ClusterId, OwnerAddr, Restart, SessionId, ShardId};
use firsthop_shared::keyring::DataKeyring;
use firsthop_shared::packet::{PacketClass, classify};
use firsthop_shared::stun::{Class, Stun};
use firsthop_shared::stun_write::{Role, binding_request, binding_success};
use firsthop_shared::token::{self, IcePassword, Route, TokenError, Ufrag};
use mio::net::UdpSocket;
use rand::RngExt as _;

/// The ICE password of every client here; an owner of ours knows it, as a real one knows it from the offer.
pub const CLIENT_PASSWORD: &[u8] = b"password of the perf client";

/// The ICE ufrag of every client here.
pub const CLIENT_UFRAG: &str = "perf";

/// The shortest media packet: an RTP header, the flow's number, a sequence number and the time it was due.
pub const MEDIA_MIN: usize = 12 + 4 + 4 + 8;

/// What a media packet says of itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stamp {
    /// The flow's number.
    pub flow: u32,
    /// The packet's number within its flow.
    pub sequence: u32,
    /// When it was due, in nanoseconds since the load's start.
    pub due_nanos: u64,
}

impl Stamp {
    /// Writes an RTP-like packet of `size` bytes (at least [`MEDIA_MIN`]) to the start of `out`, and returns it.
    ///
    /// # Panics
    /// When `out` is shorter than `size`.
    pub fn write<'a>(&self, out: &'a mut [u8], size: usize) -> &'a [u8] {
        let out = &mut out[..size.max(MEDIA_MIN)];
        out[0] = 0x80;
        out[1] = 111;
        out[2..4].copy_from_slice(&(self.sequence as u16).to_be_bytes());
        out[12..16].copy_from_slice(&self.flow.to_be_bytes());
        out[16..20].copy_from_slice(&self.sequence.to_be_bytes());
        out[20..28].copy_from_slice(&self.due_nanos.to_be_bytes());
        out
    }

    /// Reads the stamp of a packet that [`Stamp::write`] made.
    #[must_use]
    pub fn read(packet: &[u8]) -> Option<Self> {
        if classify(packet) != PacketClass::Rtp {
            return None;
        }
        Some(Self {
            flow: u32::from_be_bytes(packet.get(12..16)?.try_into().ok()?),
            sequence: u32::from_be_bytes(packet.get(16..20)?.try_into().ok()?),
            due_nanos: u64::from_be_bytes(packet.get(20..28)?.try_into().ok()?),
        })
    }
}

/// A client's side of one session.
pub struct Flow {
    socket: UdpSocket,
    relay: SocketAddr,
    username: String,
    password: IcePassword,
    session: SessionId,
    /// How many media packets it sent.
    pub sent: u32,
}

impl Flow {
    /// Opens a socket on `local` (port 0) and mints a token for `owner` and `shard`.
    ///
    /// # Errors
    /// When no socket is to be had: raise the limit of open files.
    pub fn open(
        keyring: &DataKeyring,
        cluster: ClusterId,
        owner: OwnerAddr,
        shard: ShardId,
        session: SessionId,
        relay: SocketAddr,
    ) -> io::Result<Self> {
        let local = match relay {
            SocketAddr::V4(_) => SocketAddr::from(([0, 0, 0, 0], 0)),
            SocketAddr::V6(_) => SocketAddr::from(([0u16; 8], 0)),
        };
        let route = Route {
            cluster,
            owner,
            shard,
            restart: Restart(0),
            session,
        };
        let ufrag: Ufrag = token::mint(keyring.active(), &route);
        let password = token::ice_password(keyring, ufrag.as_bytes())
            .map_err(|e: TokenError| io::Error::other(e.to_string()))?;
        Ok(Self {
            socket: UdpSocket::bind(local)?,
            relay,
            username: format!("{ufrag}:{CLIENT_UFRAG}"),
            password,
            session,
            sent: 0,
        })
    }

    /// The session that the flow's token names.
    #[must_use]
    pub fn session(&self) -> SessionId {
        self.session
    }

    /// The socket, to be registered with a poll.
    pub fn socket(&mut self) -> &mut UdpSocket {
        &mut self.socket
    }

    /// Sends a connectivity check that nominates.
    ///
    /// # Errors
    /// What the socket says.
    pub fn send_check(&self, scratch: &mut Vec<u8>) -> io::Result<()> {
        binding_request(
            scratch,
            rand::rng().random(),
            &self.username,
            self.password.as_bytes(),
            0x6e00_01ff,
            Role::Controlling(1, true),
        );
        self.socket.send_to(scratch, self.relay).map(|_| ())
    }

    /// Sends a media packet of `size` bytes that was due at `due_nanos`.
    ///
    /// # Errors
    /// What the socket says; the packet counts as sent all the same, since it was due.
    pub fn send_media(
        &mut self,
        flow: u32,
        due_nanos: u64,
        out: &mut [u8],
        size: usize,
    ) -> io::Result<()> {
        let stamp = Stamp {
            flow,
            sequence: self.sent,
            due_nanos,
        };
        self.sent += 1;
        self.socket
            .send_to(stamp.write(out, size), self.relay)
            .map(|_| ())
    }

    /// Receives one packet; answers the owner's check, and returns the stamp of a media packet.
    ///
    /// # Errors
    /// `WouldBlock` when there is nothing more to read.
    pub fn receive(&self, buffer: &mut [u8], scratch: &mut Vec<u8>) -> io::Result<Option<Stamp>> {
        let (len, from) = self.socket.recv_from(buffer)?;
        let packet = &buffer[..len];
        if from != self.relay {
            return Ok(None);
        }
        if let Ok(message) = Stun::parse(packet)
            && message.class == Class::Request
            && message.verify_integrity(CLIENT_PASSWORD)
        {
            binding_success(scratch, message.transaction(), self.relay, CLIENT_PASSWORD);
            self.socket.send_to(scratch, self.relay)?;
        }
        Ok(Stamp::read(packet))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_is_read_back_from_its_packet() {
        let stamp = Stamp {
            flow: 70_000,
            sequence: 5,
            due_nanos: 123_456_789_012,
        };
        let mut out = [0; 200];
        assert_eq!(Stamp::read(stamp.write(&mut out, 172)), Some(stamp));
        assert_eq!(stamp.write(&mut out, 1).len(), MEDIA_MIN);
        assert_eq!(Stamp::read(&[0x80, 111]), None);
        assert_eq!(Stamp::read(&[22; 60]), None);
    }
}
