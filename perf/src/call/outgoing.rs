//! What a thread's clients have sent, until its sockets take it.

use std::io;
use std::net::SocketAddr;

use super::air::Air;

/// What clients have sent and no socket has taken yet.
#[derive(Default)]
pub(super) struct Outgoing {
    bytes: Vec<u8>,
    packets: Vec<(u32, SocketAddr, usize)>,
}

impl Outgoing {
    pub(super) fn push(&mut self, client: u32, to: SocketAddr, packet: &[u8]) {
        self.bytes.extend_from_slice(packet);
        self.packets.push((client, to, self.bytes.len()));
    }

    pub(super) fn leave(&mut self, air: &mut Air) -> io::Result<()> {
        let mut begin = 0;
        for (client, to, end) in self.packets.drain(..) {
            air.send(client, to, &self.bytes[begin..end])?;
            begin = end;
        }
        self.bytes.clear();
        Ok(())
    }
}
