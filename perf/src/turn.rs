//! The little of TURN (RFC 8656) that puts clients through a TURN server without authentication: allocate, bind a channel,
//! wrap packets as ChannelData.

use std::net::SocketAddrV4;

/// What every STUN message has behind its length (RFC 8489 section 5).
const MAGIC_COOKIE: [u8; 4] = [0x21, 0x12, 0xa4, 0x42];

/// The one channel that every client here binds.
pub const CHANNEL: u16 = 0x4000;

/// Length of the header of ChannelData.
pub const CHANNEL_HEADER: usize = 4;

const ALLOCATE: u16 = 0x0003;
const CHANNEL_BIND: u16 = 0x0009;
const SUCCESS: u16 = 0x0100;

const CHANNEL_NUMBER: u16 = 0x000c;
const XOR_PEER_ADDRESS: u16 = 0x0012;
const REQUESTED_TRANSPORT: u16 = 0x0019;

/// What a server granted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Granted {
    /// An allocation.
    Allocation,
    /// The channel.
    Channel,
}

/// Writes an Allocate request for UDP, and returns its length.
pub fn allocate(out: &mut [u8], flow: u32) -> usize {
    let at = start(out, ALLOCATE, flow);
    let at = attribute(out, at, REQUESTED_TRANSPORT, &[17, 0, 0, 0]);
    finish(out, at)
}

/// Writes a ChannelBind request for a peer, and returns its length.
pub fn channel_bind(out: &mut [u8], flow: u32, peer: SocketAddrV4) -> usize {
    let at = start(out, CHANNEL_BIND, flow);
    let [high, low] = CHANNEL.to_be_bytes();
    let at = attribute(out, at, CHANNEL_NUMBER, &[high, low, 0, 0]);
    let mut value = [0, 1, 0, 0, 0, 0, 0, 0];
    value[2..4].copy_from_slice(&peer.port().to_be_bytes());
    value[4..8].copy_from_slice(&peer.ip().octets());
    let mask = [0, 0].iter().chain(&MAGIC_COOKIE[..2]).chain(&MAGIC_COOKIE);
    value.iter_mut().zip(mask).for_each(|(byte, m)| *byte ^= m);
    let at = attribute(out, at, XOR_PEER_ADDRESS, &value);
    finish(out, at)
}

/// Reads a success response: what was granted, and the flow whose request it answers.
#[must_use]
pub fn granted(packet: &[u8]) -> Option<(Granted, u32)> {
    let kind = u16::from_be_bytes(*packet.first_chunk()?);
    let granted = match kind.checked_sub(SUCCESS)? {
        ALLOCATE => Granted::Allocation,
        CHANNEL_BIND => Granted::Channel,
        _ => return None,
    };
    Some((
        granted,
        u32::from_be_bytes(packet.get(8..12)?.try_into().ok()?),
    ))
}

/// Wraps what `write` puts behind the header as ChannelData, and returns the whole length. UDP needs no padding.
pub fn channel_data(out: &mut [u8], write: impl FnOnce(&mut [u8]) -> usize) -> usize {
    let len = write(&mut out[CHANNEL_HEADER..]);
    out[0..2].copy_from_slice(&CHANNEL.to_be_bytes());
    out[2..4].copy_from_slice(&(len as u16).to_be_bytes());
    CHANNEL_HEADER + len
}

/// The packet in ChannelData.
#[must_use]
pub fn unwrap(packet: &[u8]) -> Option<&[u8]> {
    let header: [u8; CHANNEL_HEADER] = *packet.first_chunk()?;
    let [c0, c1, l0, l1] = header;
    let len = usize::from(u16::from_be_bytes([l0, l1]));
    (u16::from_be_bytes([c0, c1]) == CHANNEL)
        .then(|| packet.get(CHANNEL_HEADER..CHANNEL_HEADER + len))
        .flatten()
}

/// Header of a request; the transaction id begins with the flow's number.
fn start(out: &mut [u8], method: u16, flow: u32) -> usize {
    out[0..2].copy_from_slice(&method.to_be_bytes());
    out[4..8].copy_from_slice(&MAGIC_COOKIE);
    out[8..12].copy_from_slice(&flow.to_be_bytes());
    out[12..20].fill(method as u8);
    20
}

fn attribute(out: &mut [u8], at: usize, kind: u16, value: &[u8]) -> usize {
    out[at..at + 2].copy_from_slice(&kind.to_be_bytes());
    out[at + 2..at + 4].copy_from_slice(&(value.len() as u16).to_be_bytes());
    out[at + 4..at + 4 + value.len()].copy_from_slice(value);
    at + 4 + value.len()
}

fn finish(out: &mut [u8], len: usize) -> usize {
    out[2..4].copy_from_slice(&((len - 20) as u16).to_be_bytes());
    len
}

#[cfg(test)]
mod tests {
    use super::*;
    use firsthop_shared::stun::Stun;

    #[test]
    fn requests_are_stun_and_name_their_flow() {
        let mut out = [0; 128];
        let len = allocate(&mut out, 77);
        assert_eq!(Stun::parse(&out[..len]).expect("STUN").method, ALLOCATE);
        let peer = "127.1.0.1:5000".parse().expect("an address");
        let len = channel_bind(&mut out, 77, peer);
        assert_eq!(Stun::parse(&out[..len]).expect("STUN").method, CHANNEL_BIND);
        out[0] = 1;
        assert_eq!(granted(&out[..len]), Some((Granted::Channel, 77)));
    }

    #[test]
    fn channel_data_holds_its_packet() {
        let mut out = [0; 64];
        let len = channel_data(&mut out, |inner| {
            inner[..3].copy_from_slice(b"abc");
            3
        });
        assert_eq!(unwrap(&out[..len]), Some(&b"abc"[..]));
        assert_eq!(unwrap(&out[..len - 1]), None);
    }
}
