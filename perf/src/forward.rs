//! Forwarders to compare with: what a relay is when written the obvious way, and with batched system calls alone.
//!
//! Both keep a table from client address to session, filled by a client's first STUN check, and put every packet into a
//! datagram of its own behind the trunk's record header. They open no token, verify nothing and expire nothing, which is in
//! their favour.

use std::collections::HashMap;
use std::io;
use std::net::{SocketAddr, SocketAddrV4, UdpSocket};

use firsthop_shared::address::ClientAddr;
use firsthop_shared::stun::Stun;
use firsthop_shared::trunk::RecordHeader;

use crate::crowd::SOCKET_BUFFER;
use crate::mmsg::{Inbox, Outbox, copy_of};
use crate::place;
use crate::wire::record;

/// What a forwarder is told.
#[derive(Clone, Debug)]
pub struct ForwardPlan {
    /// Where clients send to.
    pub listen: SocketAddrV4,
    /// Where owners send to.
    pub internal: SocketAddrV4,
    /// How many owners there are.
    pub owners: u16,
    /// The owners' port.
    pub owner_port: u16,
}

/// Client addresses and their sessions.
#[derive(Default)]
struct Table(HashMap<SocketAddrV4, u32>);

impl Table {
    /// The session of a client's packet; a STUN check that names one makes the entry.
    fn session(&mut self, from: SocketAddrV4, packet: &[u8]) -> Option<u32> {
        if packet.first().is_some_and(|first| *first < 4) {
            let message = Stun::parse(packet).ok()?;
            if let Some(ufrag) = message.local_ufrag() {
                let session = u32::from_str_radix(std::str::from_utf8(ufrag).ok()?, 16).ok()?;
                self.0.insert(from, session);
                return Some(session);
            }
        }
        self.0.get(&from).copied()
    }
}

impl ForwardPlan {
    fn owner(&self, session: u32) -> SocketAddrV4 {
        let number = session.wrapping_sub(1) % u32::from(self.owners.max(1));
        SocketAddrV4::new(place::owner(number as u16), self.owner_port)
    }

    fn sockets(&self) -> io::Result<(UdpSocket, UdpSocket)> {
        let public = UdpSocket::bind(self.listen)?;
        let internal = UdpSocket::bind(self.internal)?;
        for socket in [&public, &internal] {
            socket2::SockRef::from(socket).set_recv_buffer_size(SOCKET_BUFFER)?;
        }
        Ok((public, internal))
    }
}

fn write_record(out: &mut [u8], from: SocketAddrV4, session: u32, packet: &[u8]) -> usize {
    let header = record(ClientAddr::new(SocketAddr::V4(from)), session, packet.len());
    let at = header.write(out);
    out[at..at + packet.len()].copy_from_slice(packet);
    at + packet.len()
}

/// The client and the packet of a record.
fn read_record(bytes: &[u8]) -> Option<(SocketAddrV4, &[u8])> {
    let (header, used) = RecordHeader::parse(bytes).ok()?;
    match header.client.get() {
        SocketAddr::V4(client) => Some((client, &bytes[used..])),
        SocketAddr::V6(_) => None,
    }
}

/// One `recv_from` and one `send_to` per packet, a thread for each direction. Never returns.
///
/// # Errors
/// What a socket says.
pub fn single(plan: &ForwardPlan) -> io::Result<()> {
    let (public, internal) = plan.sockets()?;
    on_a_thread(public.try_clone()?, internal.try_clone()?, single_down);
    let mut table = Table::default();
    let mut buffer = [0; 2_048];
    let mut out = [0; 4_096];
    loop {
        let (len, SocketAddr::V4(from)) = public.recv_from(&mut buffer)? else {
            continue;
        };
        if let Some(session) = table.session(from, &buffer[..len]) {
            let len = write_record(&mut out, from, session, &buffer[..len]);
            internal.send_to(&out[..len], plan.owner(session))?;
        }
    }
}

fn single_down(public: &UdpSocket, internal: &UdpSocket) -> io::Result<()> {
    let mut buffer = [0; 4_096];
    loop {
        let len = internal.recv(&mut buffer)?;
        if let Some((client, packet)) = read_record(&buffer[..len]) {
            public.send_to(packet, client)?;
        }
    }
}

/// `recvmmsg` and `sendmmsg`, still one datagram per packet, a thread for each direction. Never returns.
///
/// # Errors
/// What a socket says.
pub fn batched(plan: &ForwardPlan) -> io::Result<()> {
    let (public, internal) = plan.sockets()?;
    on_a_thread(public.try_clone()?, internal.try_clone()?, batched_down);
    let mut table = Table::default();
    let mut inbox = Inbox::new(2_048);
    let mut outbox = Outbox::new(4_096);
    loop {
        inbox.receive(&public, true)?;
        for (packet, from) in inbox.packets() {
            if let Some(session) = table.session(from, packet) {
                outbox.push(plan.owner(session), None, |out| {
                    write_record(out, from, session, packet)
                });
            }
        }
        outbox.send(&internal)?;
    }
}

fn batched_down(public: &UdpSocket, internal: &UdpSocket) -> io::Result<()> {
    let mut inbox = Inbox::new(4_096);
    let mut outbox = Outbox::new(4_096);
    loop {
        inbox.receive(internal, true)?;
        for (bytes, _) in inbox.packets() {
            if let Some((client, packet)) = read_record(bytes) {
                outbox.push(client, None, copy_of(packet));
            }
        }
        outbox.send(public)?;
    }
}

/// Runs one direction beside the other. A direction that fails ends the program.
fn on_a_thread(
    public: UdpSocket,
    internal: UdpSocket,
    direction: fn(&UdpSocket, &UdpSocket) -> io::Result<()>,
) {
    std::thread::spawn(move || {
        if let Err(error) = direction(&public, &internal) {
            eprintln!("perf: down: {error}");
            std::process::exit(1);
        }
    });
}
