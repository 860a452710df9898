//! Many datagrams per system call: `recvmmsg` and `sendmmsg` on IPv4 sockets, into and out of buffers that are reused.
//!
//! A batch to send may name a source address per packet (`IP_PKTINFO`), so that one socket speaks for as many clients as
//! there are loopback addresses. That is what lets a single thread out-send the relay: one call for 64 packets of 64 clients.

#![allow(unsafe_code)] // The calls have no safe wrapper; every pointer leads into a buffer of the batch that owns it.

use std::io;
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::os::fd::AsRawFd as _;
use std::ptr;

/// How many datagrams one call moves at the most.
pub const BATCH: usize = 64;

/// Length of the control message that carries one `in_pktinfo`: header and payload, aligned.
const CONTROL_LEN: usize = 32;

const _: () = {
    // SAFETY: pure arithmetic on a length.
    let space = unsafe { libc::CMSG_SPACE(size_of::<libc::in_pktinfo>() as u32) };
    assert!(space as usize == CONTROL_LEN && align_of::<Control>() >= align_of::<libc::cmsghdr>());
};

#[repr(C, align(8))]
#[derive(Clone, Copy)]
struct Control([u8; CONTROL_LEN]);

fn empty_message() -> libc::mmsghdr {
    // SAFETY: integers and pointers, for which all zeroes is a valid value.
    unsafe { MaybeUninit::zeroed().assume_init() }
}

fn empty_name() -> libc::sockaddr_in {
    libc::sockaddr_in {
        sin_family: libc::AF_INET as u16,
        sin_port: 0,
        sin_addr: libc::in_addr { s_addr: 0 },
        sin_zero: [0; 8],
    }
}

fn to_name(address: SocketAddrV4) -> libc::sockaddr_in {
    libc::sockaddr_in {
        sin_port: address.port().to_be(),
        sin_addr: libc::in_addr {
            s_addr: u32::from(*address.ip()).to_be(),
        },
        ..empty_name()
    }
}

/// Room for the control messages of one datagram received: an `in_pktinfo` and a `timespec`, with their headers, and some.
const DETAILS_LEN: usize = 128;

#[repr(C, align(8))]
#[derive(Clone, Copy)]
struct DetailsRoom([u8; DETAILS_LEN]);

/// What the kernel says about a datagram beside its sender, on a socket that was [asked to](tell_details).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Details {
    /// The address that it was sent to.
    pub to: Ipv4Addr,
    /// When it reached this machine, in nanoseconds since the Unix epoch: it does not matter when the program looks.
    pub at_nanos: u64,
}

/// Lets the kernel tell [`Details`] of what a socket receives.
///
/// # Errors
/// The kernel refuses.
pub fn tell_details(socket: &UdpSocket) -> io::Result<()> {
    let on: libc::c_int = 1;
    for (level, name) in [
        (libc::IPPROTO_IP, libc::IP_PKTINFO),
        (libc::SOL_SOCKET, libc::SO_TIMESTAMPNS),
    ] {
        // SAFETY: the socket is open; the value is an int of the length given, and outlives the call.
        let result = unsafe {
            libc::setsockopt(
                socket.as_raw_fd(),
                level,
                name,
                (&raw const on).cast(),
                size_of::<libc::c_int>() as libc::socklen_t,
            )
        };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Buffers to receive up to [`BATCH`] datagrams at a time.
pub struct Inbox {
    len: usize,
    buffers: Vec<u8>,
    names: Vec<libc::sockaddr_in>,
    vectors: Vec<libc::iovec>,
    messages: Vec<libc::mmsghdr>,
    /// One per message, where details are asked for; else empty.
    details: Vec<DetailsRoom>,
    count: usize,
}

// SAFETY: the raw pointers lead into vectors that the value itself owns and never resizes.
unsafe impl Send for Inbox {}

impl Inbox {
    /// Makes room for datagrams of at most `len` bytes; longer ones are cut.
    #[must_use]
    pub fn new(len: usize) -> Self {
        Self {
            len,
            buffers: vec![0; len * BATCH],
            names: vec![empty_name(); BATCH],
            vectors: (0..BATCH)
                .map(|_| libc::iovec {
                    iov_base: ptr::null_mut(),
                    iov_len: 0,
                })
                .collect(),
            messages: (0..BATCH).map(|_| empty_message()).collect(),
            details: Vec::new(),
            count: 0,
        }
    }

    /// The same with room for [`Details`].
    #[must_use]
    pub fn with_details(len: usize) -> Self {
        Self {
            details: vec![DetailsRoom([0; DETAILS_LEN]); BATCH],
            ..Self::new(len)
        }
    }

    /// Takes what the socket has. With `wait`, sleeps until there is at least one datagram (on a blocking socket).
    ///
    /// Returns how many there are: 0 when a non-blocking socket has none.
    ///
    /// # Errors
    /// What the socket says, but for `WouldBlock`.
    pub fn receive(&mut self, socket: &UdpSocket, wait: bool) -> io::Result<usize> {
        self.count = 0;
        for (i, message) in self.messages.iter_mut().enumerate() {
            self.vectors[i] = libc::iovec {
                iov_base: self.buffers[i * self.len..].as_mut_ptr().cast(),
                iov_len: self.len,
            };
            message.msg_hdr.msg_iov = &raw mut self.vectors[i];
            message.msg_hdr.msg_iovlen = 1;
            message.msg_hdr.msg_name = (&raw mut self.names[i]).cast();
            message.msg_hdr.msg_namelen = size_of::<libc::sockaddr_in>() as u32;
            if let Some(room) = self.details.get_mut(i) {
                message.msg_hdr.msg_control = (&raw mut *room).cast();
                message.msg_hdr.msg_controllen = DETAILS_LEN;
            }
        }
        let flags = if wait {
            libc::MSG_WAITFORONE
        } else {
            libc::MSG_DONTWAIT
        };
        // SAFETY: each message points to a vector, a name and a buffer of `self`, which outlive the call.
        let count = unsafe {
            libc::recvmmsg(
                socket.as_raw_fd(),
                self.messages.as_mut_ptr(),
                BATCH as u32,
                flags,
                ptr::null_mut(),
            )
        };
        self.count = checked(count)?;
        Ok(self.count)
    }

    /// The datagrams of the last [`Inbox::receive`], with their senders.
    pub fn packets(&self) -> impl Iterator<Item = (&[u8], SocketAddrV4)> + '_ {
        (0..self.count).map(|i| {
            let start = i * self.len;
            let name = &self.names[i];
            let from = SocketAddrV4::new(
                Ipv4Addr::from(u32::from_be(name.sin_addr.s_addr)),
                u16::from_be(name.sin_port),
            );
            let len = (self.messages[i].msg_len as usize).min(self.len);
            (&self.buffers[start..start + len], from)
        })
    }

    /// What the kernel told of the last [`Inbox::receive`], in the order of [`Inbox::packets`]; nothing where it told nothing.
    pub fn details(&self) -> impl Iterator<Item = Option<Details>> + '_ {
        (0..self.count).map(|i| {
            self.details
                .get(i)
                .and_then(|_| read_details(&self.messages[i].msg_hdr))
        })
    }
}

/// Reads the control messages that the kernel wrote.
fn read_details(header: &libc::msghdr) -> Option<Details> {
    let (mut to, mut at_nanos) = (None, None);
    // SAFETY: the header is one that `recvmmsg` has filled: its control pointer leads into a live, aligned buffer of the length it gives,
    // and the macros stay within that.
    let mut next = unsafe { libc::CMSG_FIRSTHDR(header) };
    while !next.is_null() {
        // SAFETY: not null, so it points to a whole header within the buffer.
        let control = unsafe { &*next };
        // SAFETY: the payload of a message of this kind is of this type; it may not be aligned for it.
        unsafe {
            let data = libc::CMSG_DATA(next);
            match (control.cmsg_level, control.cmsg_type) {
                (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                    let info = data.cast::<libc::in_pktinfo>().read_unaligned();
                    to = Some(Ipv4Addr::from(u32::from_be(info.ipi_addr.s_addr)));
                }
                (libc::SOL_SOCKET, libc::SO_TIMESTAMPNS) => {
                    let time = data.cast::<libc::timespec>().read_unaligned();
                    at_nanos = Some(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64);
                }
                _ => {}
            }
            next = libc::CMSG_NXTHDR(header, next);
        }
    }
    Some(Details {
        to: to?,
        at_nanos: at_nanos?,
    })
}

/// Up to [`BATCH`] datagrams to send at a time.
pub struct Outbox {
    len: usize,
    buffers: Vec<u8>,
    lens: [usize; BATCH],
    names: Vec<libc::sockaddr_in>,
    controls: Vec<Control>,
    named: [bool; BATCH],
    vectors: Vec<libc::iovec>,
    messages: Vec<libc::mmsghdr>,
    count: usize,
}

// SAFETY: the raw pointers lead into vectors that the value itself owns and never resizes.
unsafe impl Send for Outbox {}

/// What [`Outbox::push`] writes when the datagram is there already.
pub fn copy_of(datagram: &[u8]) -> impl FnOnce(&mut [u8]) -> usize {
    move |out| {
        out[..datagram.len()].copy_from_slice(datagram);
        datagram.len()
    }
}

impl Outbox {
    /// Makes room for datagrams of at most `len` bytes.
    #[must_use]
    pub fn new(len: usize) -> Self {
        Self {
            len,
            buffers: vec![0; len * BATCH],
            lens: [0; BATCH],
            names: vec![empty_name(); BATCH],
            controls: vec![Control([0; CONTROL_LEN]); BATCH],
            named: [false; BATCH],
            vectors: (0..BATCH)
                .map(|_| libc::iovec {
                    iov_base: ptr::null_mut(),
                    iov_len: 0,
                })
                .collect(),
            messages: (0..BATCH).map(|_| empty_message()).collect(),
            count: 0,
        }
    }

    /// How many datagrams wait.
    #[must_use]
    pub fn count(&self) -> usize {
        self.count
    }

    /// Whether the next push needs a [`Outbox::send`] first.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.count == BATCH
    }

    /// Adds a datagram that `write` puts into the buffer it is given; `write` returns its length.
    ///
    /// `from` is the source address, one of this machine's; without it the socket's own.
    ///
    /// # Panics
    /// When the batch [is full](Outbox::is_full), or `write` returns more than the buffer holds.
    pub fn push(
        &mut self,
        to: SocketAddrV4,
        from: Option<Ipv4Addr>,
        write: impl FnOnce(&mut [u8]) -> usize,
    ) {
        assert!(self.count < BATCH, "send before pushing more");
        let i = self.count;
        let len = write(&mut self.buffers[i * self.len..(i + 1) * self.len]);
        assert!(len <= self.len, "a datagram larger than its buffer");
        self.lens[i] = len;
        self.names[i] = to_name(to);
        self.named[i] = from.is_some();
        if let Some(from) = from {
            self.controls[i] = packet_info(from);
        }
        self.count += 1;
    }

    /// The same as [`Outbox::send`]; returns how many the kernel did not take.
    ///
    /// # Errors
    /// What the socket says about the first datagram, but for `WouldBlock`.
    pub fn send_all(&mut self, socket: &UdpSocket) -> io::Result<u64> {
        let count = self.count;
        Ok((count - self.send(socket)?) as u64)
    }

    /// Sends what was pushed, in order, and empties the batch. Returns how many the kernel took: it stops at the first
    /// that finds no room on a non-blocking socket, and the rest is lost, as the caller then counts.
    ///
    /// # Errors
    /// What the socket says about the first datagram, but for `WouldBlock`.
    pub fn send(&mut self, socket: &UdpSocket) -> io::Result<usize> {
        let count = std::mem::take(&mut self.count);
        if count == 0 {
            return Ok(0);
        }
        for i in 0..count {
            self.vectors[i] = libc::iovec {
                iov_base: self.buffers[i * self.len..].as_mut_ptr().cast(),
                iov_len: self.lens[i],
            };
            let header = &mut self.messages[i].msg_hdr;
            header.msg_iov = &raw mut self.vectors[i];
            header.msg_iovlen = 1;
            header.msg_name = (&raw mut self.names[i]).cast();
            header.msg_namelen = size_of::<libc::sockaddr_in>() as u32;
            header.msg_control = if self.named[i] {
                (&raw mut self.controls[i]).cast()
            } else {
                ptr::null_mut()
            };
            header.msg_controllen = if self.named[i] { CONTROL_LEN } else { 0 };
        }
        // SAFETY: each message points to a vector, a name, a control message and a buffer of `self`, which outlive the call.
        let sent = unsafe {
            libc::sendmmsg(
                socket.as_raw_fd(),
                self.messages.as_mut_ptr(),
                count as u32,
                0,
            )
        };
        checked(sent)
    }
}

/// The control message that sets a packet's source address.
fn packet_info(from: Ipv4Addr) -> Control {
    let mut control = Control([0; CONTROL_LEN]);
    let header = libc::cmsghdr {
        // SAFETY: pure arithmetic on a length.
        cmsg_len: unsafe { libc::CMSG_LEN(size_of::<libc::in_pktinfo>() as u32) } as usize,
        cmsg_level: libc::IPPROTO_IP,
        cmsg_type: libc::IP_PKTINFO,
    };
    let info = libc::in_pktinfo {
        ipi_ifindex: 0,
        ipi_spec_dst: libc::in_addr {
            s_addr: u32::from(from).to_be(),
        },
        ipi_addr: libc::in_addr { s_addr: 0 },
    };
    let start = control.0.as_mut_ptr();
    // SAFETY: the control buffer is aligned for a `cmsghdr` and holds it and an `in_pktinfo` right behind it, as the
    // compile-time check above says.
    unsafe {
        start.cast::<libc::cmsghdr>().write(header);
        start
            .add(size_of::<libc::cmsghdr>())
            .cast::<libc::in_pktinfo>()
            .write(info);
    }
    control
}

fn checked(count: i32) -> io::Result<usize> {
    if let Ok(count) = usize::try_from(count) {
        return Ok(count);
    }
    let error = io::Error::last_os_error();
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(0),
        _ => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::SocketAddr;
    use std::time::Duration;

    use crate::readable::wait;

    #[test]
    fn one_socket_speaks_for_many_addresses() {
        let receiver = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        let sender = UdpSocket::bind("0.0.0.0:0").expect("a socket");
        let SocketAddr::V4(to) = receiver.local_addr().expect("an address") else {
            panic!("IPv4");
        };
        let port = sender.local_addr().expect("an address").port();
        let mut out = Outbox::new(64);
        for i in 0..BATCH as u8 {
            out.push(to, Some(Ipv4Addr::new(127, 77, 0, i)), |buffer| {
                buffer[0] = i;
                usize::from(i)
            });
        }
        assert!(out.is_full());
        assert_eq!(out.send(&sender).expect("sent"), BATCH);
        let mut inbox = Inbox::new(64);
        let mut seen = 0u8;
        while usize::from(seen) < BATCH {
            inbox.receive(&receiver, true).expect("received");
            for (packet, from) in inbox.packets() {
                assert_eq!(packet.len(), usize::from(seen));
                assert_eq!(
                    from,
                    SocketAddrV4::new(Ipv4Addr::new(127, 77, 0, seen), port)
                );
                seen += 1;
            }
        }
        assert_eq!(inbox.receive(&receiver, false).expect("nothing left"), 0);
    }

    #[test]
    fn a_socket_for_many_addresses_is_told_which_was_meant_and_when() {
        let receiver = UdpSocket::bind("0.0.0.0:0").expect("a socket");
        tell_details(&receiver).expect("asked");
        let port = receiver.local_addr().expect("an address").port();
        let sender = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        let to = |last: u8| Ipv4Addr::new(127, 77, 1, last);
        for last in 1..=3 {
            sender.send_to(&[last], (to(last), port)).expect("sent");
        }
        let mut inbox = Inbox::with_details(64);
        let mut seen = Vec::new();
        while seen.len() < 3 {
            wait(&[receiver.as_raw_fd()], Duration::from_secs(5)).expect("waited");
            assert!(inbox.receive(&receiver, false).expect("received") > 0);
            for ((packet, _), details) in inbox.packets().zip(inbox.details()) {
                seen.push((packet[0], details.expect("told")));
            }
        }
        for (last, details) in &seen {
            assert_eq!(details.to, to(*last));
        }
        assert!(seen.is_sorted_by_key(|(_, details)| details.at_nanos));
        // What was not asked for is not made up.
        sender.send_to(&[9], (to(9), port)).expect("sent");
        let mut plain = Inbox::new(64);
        wait(&[receiver.as_raw_fd()], Duration::from_secs(5)).expect("waited");
        assert_eq!(plain.receive(&receiver, false).expect("received"), 1);
        assert_eq!(plain.details().next(), Some(None));
    }
}
