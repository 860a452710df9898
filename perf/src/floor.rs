//! The floors: the least that any program on sockets pays the kernel per packet. Each runs as a process of its own, so that
//! it is measured exactly as the relay is.

use std::io;
use std::net::{SocketAddrV4, UdpSocket};

use rand::SeedableRng as _;
use rand::rngs::StdRng;
use rand::seq::SliceRandom as _;

use crate::crowd::{SOCKET_BUFFER, SOCKETS};
use crate::mmsg::{Inbox, Outbox};
use crate::packet::{Sizes, Stamp};
use crate::place;

/// Receives packets with `recvmmsg`, with their senders' addresses, and throws them away. Never returns.
///
/// # Errors
/// What the socket says.
pub fn receive(listen: SocketAddrV4) -> io::Result<()> {
    let socket = UdpSocket::bind(listen)?;
    socket2::SockRef::from(&socket).set_recv_buffer_size(SOCKET_BUFFER)?;
    let mut inbox = Inbox::new(2_048);
    loop {
        inbox.receive(&socket, true)?;
        for (packet, from) in inbox.packets() {
            std::hint::black_box((packet.len(), from));
        }
    }
}

/// Sends packets to clients with bare `sendmmsg`, as many as each command on its socket says. Never returns.
///
/// A command is a number of packets as four bytes. The clients are those of a [crowd](crate::crowd) on these ports.
///
/// # Errors
/// What the socket says.
pub fn send(listen: SocketAddrV4, ports: &[u16], flows: u32, sizes: Sizes) -> io::Result<()> {
    let socket = UdpSocket::bind(listen)?;
    let mut order: Vec<u32> = (0..flows).collect();
    order.shuffle(&mut StdRng::seed_from_u64(1));
    let mut outbox = Outbox::new(2_048);
    let mut sequence = 0;
    let mut command = [0; 4];
    loop {
        socket.recv(&mut command)?;
        for _ in 0..u32::from_be_bytes(command) {
            let flow = order[sequence as usize % order.len()];
            let to = SocketAddrV4::new(
                place::client(flow / SOCKETS),
                ports[(flow % SOCKETS) as usize % ports.len()],
            );
            let stamp = Stamp {
                flow,
                sequence,
                due_nanos: 0,
            };
            outbox.push(to, None, |out| stamp.write(out, sizes.of(sequence)));
            sequence += 1;
            if outbox.is_full() {
                outbox.send(&socket)?;
            }
        }
        outbox.send(&socket)?;
    }
}
