//! One client of a holder: its socket, its call of the moment, and what it has heard in all of them.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use firsthop_shared::packet::{PacketClass, classify};

use super::report::Heard;
use crate::call::client::Client;
use crate::call::placing::CallName;
use crate::mmsg::tell_details;
use crate::pauses::Pauses;

/// The receive buffer of a client's socket, in bytes: some seconds of audio, while the program has no processor.
const SOCKET_BUFFER: usize = 1 << 20;

/// How long ago a client has heard something that hears something now.
const UP: Duration = Duration::from_secs(1);

/// A client that does not hear anything for so long, having heard something, gives its call up.
pub(super) const SILENCE: Duration = Duration::from_secs(3);

/// The same for a call that has only been placed.
const SET_UP: Duration = Duration::from_secs(10);

/// A request or a media packet of a client's, as it left, and where to.
#[derive(Clone, Debug)]
pub(super) struct Captured {
    /// The server's address.
    pub(super) to: SocketAddr,
    /// The packet.
    pub(super) packet: Vec<u8>,
}

/// How a client's call stands.
pub(super) enum Phase {
    /// It is placed then.
    Waiting(Instant),
    /// An offer has been made, under this ticket.
    Asking { client: Box<Client>, ticket: u32 },
    /// It was answered.
    Talking(Box<Talk>),
    /// There will be none any more.
    Over,
}

/// An offer to restart ICE.
pub(super) struct Restart {
    pub(super) ticket: u32,
    pub(super) offer: String,
    /// How often it has been made before.
    pub(super) tries: u32,
}

/// A call that was answered.
pub(super) struct Talk {
    pub(super) client: Client,
    pub(super) name: CallName,
    pub(super) etag: Option<String>,
    /// The offer that restarts ICE, until it is answered.
    pub(super) restart: Option<Restart>,
    pub(super) since: Instant,
    pub(super) heard: Option<Instant>,
    pub(super) connected: bool,
}

impl Talk {
    /// When the client gives up, unless it hears something.
    pub(super) fn patience(&self) -> Instant {
        match self.heard {
            Some(heard) => heard + SILENCE,
            None => self.since + SET_UP,
        }
    }
}

/// One client.
pub(super) struct Seat {
    pub(super) number: u32,
    pub(super) socket: UdpSocket,
    pub(super) phase: Phase,
    pub(super) pauses: Pauses,
    /// The last check, and the last media packet.
    pub(super) check: Option<Captured>,
    pub(super) media: Option<Captured>,
    pub(super) handshakes: u32,
    /// Calls that ended since the mark.
    pub(super) cut: u32,
    /// Frames that were sent in the calls before, and in all up to the mark.
    pub(super) said: u64,
    pub(super) said_at_mark: u64,
    pub(super) armed: Option<Instant>,
    /// It has heard something in one of its calls.
    pub(super) audible: bool,
}

/// Opens a client's socket, on a port of its own.
pub(super) fn open(ip: Ipv4Addr) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind((ip, 0))?;
    socket.set_nonblocking(true)?;
    socket2::SockRef::from(&socket).set_recv_buffer_size(SOCKET_BUFFER)?;
    tell_details(&socket)?;
    Ok(socket)
}

impl Seat {
    pub(super) fn new(number: u32, ip: Ipv4Addr, due: Instant) -> io::Result<Self> {
        Ok(Self {
            number,
            socket: open(ip)?,
            phase: Phase::Waiting(due),
            pauses: Pauses::default(),
            check: None,
            media: None,
            handshakes: 0,
            cut: 0,
            said: 0,
            said_at_mark: 0,
            armed: None,
            audible: false,
        })
    }

    /// Where its socket is.
    pub(super) fn local(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    pub(super) fn talk(&mut self) -> Option<&mut Talk> {
        match &mut self.phase {
            Phase::Talking(talk) => Some(talk),
            _ => None,
        }
    }

    /// Frames that it has sent in all its calls.
    pub(super) fn sent(&self) -> u64 {
        let now = match &self.phase {
            Phase::Asking { client, .. } => client.sent(),
            Phase::Talking(talk) => talk.client.sent(),
            Phase::Waiting(_) | Phase::Over => 0,
        };
        self.said + now
    }

    pub(super) fn mark(&mut self, now: u64) {
        self.pauses.mark(now);
        self.cut = 0;
        self.said_at_mark = self.sent();
    }

    /// What it has heard since the mark.
    pub(super) fn heard(&self, now: Instant, wall: u64) -> io::Result<Heard> {
        let up = match &self.phase {
            Phase::Talking(talk) => talk.heard.is_some_and(|heard| heard + UP > now),
            _ => false,
        };
        Ok(Heard {
            call: self.number,
            local: self.local()?,
            up,
            handshakes: self.handshakes,
            cut: self.cut,
            sent: self.sent() - self.said_at_mark,
            window: self.pauses.window(wall),
        })
    }
}

/// Keeps a packet that leaves, if it is one that an attacker would capture.
pub(super) fn note(
    check: &mut Option<Captured>,
    media: &mut Option<Captured>,
    to: SocketAddr,
    packet: &[u8],
) {
    let slot = match classify(packet) {
        PacketClass::Stun if packet.starts_with(&[0, 1]) => check,
        PacketClass::Rtp => media,
        _ => return,
    };
    // Called for every packet: the room of the one before is used again.
    let kept = slot.get_or_insert_with(|| Captured {
        to,
        packet: Vec::new(),
    });
    kept.to = to;
    kept.packet.clear();
    kept.packet.extend_from_slice(packet);
}
