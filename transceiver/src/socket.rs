//! The trunk sockets: one per worker on one address and port, steered by the shard byte, read and written in batches.
//!
//! A classic BPF program on the SO_REUSEPORT group returns byte 3 of the UDP payload, the trunk header's shard, and the
//! kernel delivers to the socket of that index. Index order is bind order, so all sockets are bound in one place, in order, and
//! live as long as the process. A shard without a socket falls to any of them, which drops and counts it.
//!
//! No datagram is fragmented unnoticed: the kernel refuses one that is larger than its path takes, which is counted, and sent once more in fragments.
//!
//! `unsafe` is confined to this file: system calls that std and socket2 do not offer.
#![allow(
    unsafe_code,
    reason = "setsockopt with BPF and of MTU discovery, recvmmsg, sendmmsg and SO_MEMINFO have no safe wrapper"
)]

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsRawFd, RawFd};

use firsthop_shared::limits::TRUNK_DATAGRAM_MAX;
use socket2::{Domain, Protocol, Socket, Type};

use crate::limits;

/// Where the trunk header keeps the shard.
const SHARD_OFFSET: u32 = 3;

/// What the kernel granted of the buffers that were asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferSizes {
    /// Receive buffer, in bytes as the kernel counts.
    pub receive: usize,
    /// Send buffer, in bytes as the kernel counts.
    pub send: usize,
}

impl BufferSizes {
    /// Whether the kernel gave less than was asked for (`net.core.rmem_max`, `wmem_max`). It doubles what it grants.
    #[must_use]
    pub fn capped(&self) -> bool {
        self.receive.min(self.send) < 2 * limits::SOCKET_BUFFER
    }
}

/// Binds `count` sockets to one address, and steers them by shard.
///
/// # Errors
/// What the system said: an address in use, or not of this machine.
pub fn bind_group(address: SocketAddr, count: usize) -> io::Result<(Vec<UdpSocket>, BufferSizes)> {
    let mut sockets = Vec::with_capacity(count);
    let mut sizes = BufferSizes {
        receive: usize::MAX,
        send: usize::MAX,
    };
    let mut bound = address;
    for index in 0..count {
        let socket = Socket::new(
            Domain::for_address(address),
            Type::DGRAM,
            Some(Protocol::UDP),
        )?;
        socket.set_nonblocking(true)?;
        socket.set_reuse_port(true)?;
        set_fragments(socket.as_raw_fd(), address, false)?;
        // Refused sizes are capped, not failed: the caller reports.
        let _ = socket.set_recv_buffer_size(limits::SOCKET_BUFFER);
        let _ = socket.set_send_buffer_size(limits::SOCKET_BUFFER);
        sizes.receive = sizes.receive.min(socket.recv_buffer_size()?);
        sizes.send = sizes.send.min(socket.send_buffer_size()?);
        if index == 0 {
            bound = free_address(address)?;
        }
        socket.bind(&bound.into())?;
        sockets.push(UdpSocket::from(socket));
    }
    if let Some(first) = sockets.first() {
        steer_by_shard(first.as_raw_fd())?;
    }
    Ok((sockets, sizes))
}

/// Binds alone and lets go again: a port of another process is so noticed, and not joined. Port 0 becomes a real one.
fn free_address(address: SocketAddr) -> io::Result<SocketAddr> {
    UdpSocket::bind(address)?.local_addr()
}

/// Whether datagrams that are larger than their path takes are sent in fragments, or refused.
fn set_fragments(fd: RawFd, address: SocketAddr, fragments: bool) -> io::Result<()> {
    let (level, name, value) = match (address.is_ipv6(), fragments) {
        (false, true) => (
            libc::IPPROTO_IP,
            libc::IP_MTU_DISCOVER,
            libc::IP_PMTUDISC_WANT,
        ),
        (false, false) => (
            libc::IPPROTO_IP,
            libc::IP_MTU_DISCOVER,
            libc::IP_PMTUDISC_DO,
        ),
        (true, true) => (
            libc::IPPROTO_IPV6,
            libc::IPV6_MTU_DISCOVER,
            libc::IPV6_PMTUDISC_WANT,
        ),
        (true, false) => (
            libc::IPPROTO_IPV6,
            libc::IPV6_MTU_DISCOVER,
            libc::IPV6_PMTUDISC_DO,
        ),
    };
    // SAFETY: `fd` is an open socket; the option's value is an integer of the given length, which the call copies.
    let result = unsafe {
        libc::setsockopt(
            fd,
            level,
            name,
            (&raw const value).cast(),
            size_of_val(&value) as libc::socklen_t,
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

fn steer_by_shard(fd: RawFd) -> io::Result<()> {
    let mut program = [
        // A = payload[SHARD_OFFSET]; return A
        libc::sock_filter {
            code: (libc::BPF_LD | libc::BPF_B | libc::BPF_ABS) as u16,
            jt: 0,
            jf: 0,
            k: SHARD_OFFSET,
        },
        libc::sock_filter {
            code: (libc::BPF_RET | libc::BPF_A) as u16,
            jt: 0,
            jf: 0,
            k: 0,
        },
    ];
    let filter = libc::sock_fprog {
        len: program.len() as u16,
        filter: program.as_mut_ptr(),
    };
    // SAFETY: `fd` is an open socket; the option's value is a sock_fprog of the given length that points to `program`, and
    // both outlive the call, which copies them.
    let result = unsafe {
        libc::setsockopt(
            fd,
            libc::SOL_SOCKET,
            libc::SO_ATTACH_REUSEPORT_CBPF,
            (&raw const filter).cast(),
            size_of::<libc::sock_fprog>() as libc::socklen_t,
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// How many datagrams the kernel has dropped at this socket because its buffer was full.
///
/// Returns nothing on kernels that do not tell (before 4.12).
#[must_use]
pub fn kernel_drops(fd: RawFd) -> Option<u32> {
    /// Index of the drop counter (`SK_MEMINFO_DROPS`).
    const DROPS: usize = 8;
    const VARIABLES: usize = 9;
    let mut values = [0u32; VARIABLES];
    let mut length = size_of_val(&values) as libc::socklen_t;
    // SAFETY: `fd` is an open socket; `values` is writable for `length` bytes, and the kernel writes no more than that.
    let result = unsafe {
        libc::getsockopt(
            fd,
            libc::SOL_SOCKET,
            libc::SO_MEMINFO,
            values.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    (result == 0 && length as usize == size_of_val(&values)).then_some(values[DROPS])
}

/// Buffers for one batch of received datagrams.
pub struct ReceiveBatch {
    buffers: Vec<u8>,
    received: Vec<(SocketAddr, usize)>,
}

impl Default for ReceiveBatch {
    fn default() -> Self {
        Self {
            buffers: vec![0; limits::DATAGRAMS_PER_TURN * Self::ROOM],
            received: Vec::with_capacity(limits::DATAGRAMS_PER_TURN),
        }
    }
}

impl ReceiveBatch {
    /// One byte more than a datagram may have, so that a longer one is seen to be longer.
    const ROOM: usize = TRUNK_DATAGRAM_MAX + 1;

    /// Receives what is there, up to [`limits::DATAGRAMS_PER_TURN`]; returns how many datagrams came.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] when there is none, and what else the system says.
    pub fn receive(&mut self, fd: RawFd) -> io::Result<usize> {
        const COUNT: usize = limits::DATAGRAMS_PER_TURN;
        self.received.clear();
        // SAFETY: all-zero is a valid value of these plain C structures.
        let (mut names, mut vectors, mut headers): (
            [libc::sockaddr_storage; COUNT],
            [libc::iovec; COUNT],
            [libc::mmsghdr; COUNT],
        ) = unsafe { std::mem::zeroed() };
        for (index, buffer) in self.buffers.chunks_exact_mut(Self::ROOM).enumerate() {
            vectors[index] = libc::iovec {
                iov_base: buffer.as_mut_ptr().cast(),
                iov_len: buffer.len(),
            };
            let header = &mut headers[index].msg_hdr;
            header.msg_name = (&raw mut names[index]).cast();
            header.msg_namelen = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
            header.msg_iov = &raw mut vectors[index];
            header.msg_iovlen = 1;
        }
        // SAFETY: `fd` is an open socket; each of the COUNT headers points to a name and one iovec, each iovec to its own
        // chunk of `buffers`, and all of them live and are not touched otherwise until the call returns. No timeout.
        let count = unsafe {
            libc::recvmmsg(
                fd,
                headers.as_mut_ptr(),
                COUNT as libc::c_uint,
                libc::MSG_DONTWAIT,
                std::ptr::null_mut(),
            )
        };
        let count = usize::try_from(count).map_err(|_| io::Error::last_os_error())?;
        for (name, header) in names.iter().zip(&headers).take(count) {
            let from = address(name).unwrap_or(SocketAddr::from(([0, 0, 0, 0], 0)));
            self.received.push((from, header.msg_len as usize));
        }
        Ok(count)
    }

    /// Gives the datagrams of the last batch, with their senders, once: a turn that looks at no socket finds none of the turn before.
    pub fn take(&mut self) -> impl Iterator<Item = (SocketAddr, &[u8])> {
        let Self { buffers, received } = self;
        received
            .drain(..)
            .zip(buffers.chunks_exact(Self::ROOM))
            .map(|((from, length), buffer)| (from, &buffer[..length.min(buffer.len())]))
    }
}

/// What became of the datagrams given to [`send_batch`]; the first three sum up to them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Taken by the system.
    pub taken: usize,
    /// Refused one by one, each for a fault of its own: an address that cannot be sent to.
    pub failed: usize,
    /// Left over, because the socket was full.
    pub left: usize,
    /// Where those went that are larger than the path takes; they left in fragments, or failed.
    pub oversize: Vec<SocketAddr>,
}

/// Sends datagrams in their order, with as few system calls as the system allows.
///
/// One that the system refuses is skipped and costs no other its turn: a worker's batch goes to many hops, and one hop that
/// cannot be reached is no reason to drop the packets of the others.
pub fn send_batch(fd: RawFd, datagrams: &[(SocketAddr, &[u8])]) -> Sent {
    let mut sent = Sent::default();
    let mut rest = datagrams;
    // Each turn takes one datagram off `rest` at least.
    while !rest.is_empty() {
        match send_some(fd, rest) {
            // The call stops at the first datagram that fails and then tells only how many went before it: the next call
            // begins there, and tells why.
            Ok(count) => {
                sent.taken += count;
                rest = &rest[count..];
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                sent.left = rest.len();
                break;
            }
            Err(error) => {
                let taken = error.raw_os_error() == Some(libc::EMSGSIZE) && {
                    sent.oversize.push(rest[0].0);
                    send_in_fragments(fd, rest[0]).is_ok()
                };
                sent.taken += usize::from(taken);
                sent.failed += usize::from(!taken);
                rest = &rest[1..];
            }
        }
    }
    sent
}

/// Sends one that is larger than its path takes.
fn send_in_fragments(fd: RawFd, datagram: (SocketAddr, &[u8])) -> io::Result<usize> {
    set_fragments(fd, datagram.0, true)?;
    let sent = send_some(fd, &[datagram]);
    set_fragments(fd, datagram.0, false)?;
    sent
}

/// One system call: sends the beginning of `datagrams`, and returns how many were taken, at least one.
fn send_some(fd: RawFd, datagrams: &[(SocketAddr, &[u8])]) -> io::Result<usize> {
    const COUNT: usize = 64;
    let chunk = &datagrams[..datagrams.len().min(COUNT)];
    // SAFETY: all-zero is a valid value of these plain C structures.
    let (mut vectors, mut headers): ([libc::iovec; COUNT], [libc::mmsghdr; COUNT]) =
        unsafe { std::mem::zeroed() };
    let names: Vec<socket2::SockAddr> = chunk.iter().map(|(to, _)| (*to).into()).collect();
    for (index, ((_, bytes), name)) in chunk.iter().zip(&names).enumerate() {
        vectors[index] = libc::iovec {
            iov_base: bytes.as_ptr().cast_mut().cast(),
            iov_len: bytes.len(),
        };
        let header = &mut headers[index].msg_hdr;
        header.msg_name = name.as_ptr().cast_mut().cast();
        header.msg_namelen = name.len();
        header.msg_iov = &raw mut vectors[index];
        header.msg_iovlen = 1;
    }
    // SAFETY: `fd` is an open socket; each header points to a name and one iovec that points to a datagram, all of which
    // outlive the call; the kernel only reads through them.
    let count = unsafe {
        libc::sendmmsg(
            fd,
            headers.as_mut_ptr(),
            chunk.len() as libc::c_uint,
            libc::MSG_DONTWAIT,
        )
    };
    match usize::try_from(count) {
        Ok(count) if count > 0 => Ok(count),
        // The kernel gives no zero for a batch that is not empty; were it so, the first datagram counts as refused.
        Ok(_) => Err(io::ErrorKind::WriteZero.into()),
        Err(_) => Err(io::Error::last_os_error()),
    }
}

fn address(name: &libc::sockaddr_storage) -> Option<SocketAddr> {
    match libc::c_int::from(name.ss_family) {
        libc::AF_INET => {
            // SAFETY: the kernel filled the storage with an address of this family; it is large enough and aligned for it.
            let v4 = unsafe { &*(&raw const *name).cast::<libc::sockaddr_in>() };
            let ip = Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr));
            Some(SocketAddr::from((ip, u16::from_be(v4.sin_port))))
        }
        libc::AF_INET6 => {
            // SAFETY: as above.
            let v6 = unsafe { &*(&raw const *name).cast::<libc::sockaddr_in6>() };
            let ip = Ipv6Addr::from(v6.sin6_addr.s6_addr);
            Some(SocketAddr::from((ip, u16::from_be(v6.sin6_port))))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    fn loopback() -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, 0))
    }

    /// Waits for a batch by blocking in the kernel until the socket is readable.
    fn receive(socket: &UdpSocket, batch: &mut ReceiveBatch) -> usize {
        let mut poll = libc::pollfd {
            fd: socket.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: one valid pollfd.
        let ready = unsafe { libc::poll(&raw mut poll, 1, 5_000) };
        assert_eq!(ready, 1, "nothing came within 5 s");
        batch.receive(socket.as_raw_fd()).expect("a batch")
    }

    #[test]
    fn a_datagram_reaches_the_socket_of_its_shard() {
        let (sockets, _) = bind_group(loopback(), 4).expect("a group");
        let to = sockets[0].local_addr().expect("an address");
        let sender = UdpSocket::bind(loopback()).expect("a socket");
        let mut sent = HashMap::new();
        for n in 0..200u32 {
            let shard = (n % 4) as u8;
            let mut datagram = vec![b'F', b'H', 1, shard];
            datagram.extend_from_slice(&n.to_be_bytes());
            sender.send_to(&datagram, to).expect("sent");
            *sent.entry(shard).or_insert(0) += 1;
        }
        let mut batch = ReceiveBatch::default();
        for (shard, socket) in sockets.iter().enumerate() {
            let mut count = 0;
            while count < 50 {
                count += receive(socket, &mut batch);
                for (from, datagram) in batch.take() {
                    assert_eq!(usize::from(datagram[3]), shard);
                    assert_eq!(from, sender.local_addr().expect("an address"));
                }
            }
            assert_eq!(count, sent[&(shard as u8)]);
        }
    }

    #[test]
    fn a_batch_leaves_in_order_and_whole() {
        let (sockets, _) = bind_group(loopback(), 1).expect("a group");
        let to = sockets[0].local_addr().expect("an address");
        let (senders, _) = bind_group(loopback(), 1).expect("a group");
        let datagrams: Vec<Vec<u8>> = (0..150u8).map(|n| vec![n; 100 + usize::from(n)]).collect();
        let batch: Vec<(SocketAddr, &[u8])> = datagrams.iter().map(|d| (to, &d[..])).collect();
        let sent = send_batch(senders[0].as_raw_fd(), &batch);
        assert_eq!((sent.taken, sent.failed, sent.left), (150, 0, 0));
        let mut received = Vec::new();
        let mut batch = ReceiveBatch::default();
        while received.len() < 150 {
            receive(&sockets[0], &mut batch);
            received.extend(batch.take().map(|(_, bytes)| bytes.to_vec()));
        }
        assert_eq!(received, datagrams);
        assert_eq!(kernel_drops(sockets[0].as_raw_fd()), Some(0));
    }

    #[test]
    fn a_hop_that_cannot_be_sent_to_costs_the_others_nothing() {
        let (sockets, _) = bind_group(loopback(), 1).expect("a group");
        let to = sockets[0].local_addr().expect("an address");
        // Port 0 is nobody's: the system refuses it, first in a batch, in its middle, and twice in a row.
        let nobody = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let (senders, _) = bind_group(loopback(), 1).expect("a group");
        let datagrams: Vec<[u8; 4]> = (0..150u32).map(u32::to_be_bytes).collect();
        let bad = |n: usize| n.is_multiple_of(7) || n == 8;
        let batch: Vec<(SocketAddr, &[u8])> = datagrams
            .iter()
            .enumerate()
            .map(|(n, bytes)| (if bad(n) { nobody } else { to }, &bytes[..]))
            .collect();
        let healthy: Vec<u32> = (0..150).filter(|n| !bad(*n as usize)).collect();
        let sent = send_batch(senders[0].as_raw_fd(), &batch);
        assert_eq!(
            (sent.taken, sent.failed, sent.left),
            (healthy.len(), 150 - healthy.len(), 0)
        );
        let mut received = Vec::new();
        let mut batch = ReceiveBatch::default();
        while received.len() < healthy.len() {
            receive(&sockets[0], &mut batch);
            received.extend(
                batch
                    .take()
                    .map(|(_, bytes)| u32::from_be_bytes(bytes.try_into().expect("four bytes"))),
            );
        }
        assert_eq!(received, healthy, "each once, in order");
    }

    #[test]
    fn a_port_that_is_taken_is_an_error_and_not_shared() {
        let (sockets, _) = bind_group(loopback(), 2).expect("a group");
        let taken = sockets[0].local_addr().expect("an address");
        assert_eq!(
            bind_group(taken, 1).expect_err("taken").kind(),
            io::ErrorKind::AddrInUse
        );
    }

    #[test]
    fn ipv6_senders_are_told() {
        let any = SocketAddr::from((Ipv6Addr::LOCALHOST, 0));
        let (sockets, _) = bind_group(any, 1).expect("a group");
        let sender = UdpSocket::bind(any).expect("a socket");
        let to = sockets[0].local_addr().expect("an address");
        sender.send_to(b"FH\x01\x00", to).expect("sent");
        let mut batch = ReceiveBatch::default();
        receive(&sockets[0], &mut batch);
        let (from, bytes) = batch.take().next().expect("one");
        assert_eq!(
            (from, bytes),
            (sender.local_addr().expect("an address"), &b"FH\x01\x00"[..])
        );
    }
}
