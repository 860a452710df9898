//! An Ethernet interface, read and written frame by frame (packet(7)), as `mmsg` does datagrams.
//!
//! Each frame comes with the header of virtio (`PACKET_VNET_HDR`) that says what is left to be done to it: checksums that the sender's kernel left to
//! hardware, and segments that it left together. The frame goes out with the same header, so the next kernel does it. A frame with a VLAN tag loses it.

#![allow(unsafe_code)] // Packet sockets have no safe wrapper; every pointer leads to values that outlive the call.

use std::ffi::CString;
use std::io;
use std::mem::{MaybeUninit, size_of};
use std::os::fd::{AsRawFd as _, RawFd};
use std::ptr;

use socket2::{Domain, Socket, Type};

/// Frames that one call receives at most.
pub const BATCH: usize = 32;

/// The largest frame with its headers: segments that were left together are one of 64 KiB.
const FRAME_MAX: usize = 66_000;

/// The header of virtio before each frame.
pub const VIRTIO: usize = 10;

/// The receive buffer of each interface, in bytes: some thousand frames, while the program has no processor.
const BUFFER: libc::c_int = 16 << 20;

/// Room for a `timespec` with its header, and some.
const CONTROL_LEN: usize = 64;

#[repr(C, align(8))]
#[derive(Clone, Copy)]
struct Control([u8; CONTROL_LEN]);

const _: () = {
    // SAFETY: pure arithmetic on a length.
    let space = unsafe { libc::CMSG_SPACE(size_of::<libc::timespec>() as u32) };
    assert!(space as usize <= CONTROL_LEN && align_of::<Control>() >= align_of::<libc::cmsghdr>());
};

/// An interface of this network namespace.
#[derive(Debug)]
pub struct Link {
    socket: Socket,
    overrun: u64,
}

impl Link {
    /// Opens an interface by its name, and hears all frames on it but those that are sent here.
    ///
    /// # Errors
    /// There is no such interface, or the right `CAP_NET_RAW` is missing.
    pub fn open(name: &str) -> io::Result<Self> {
        let c_name = CString::new(name).map_err(io::Error::other)?;
        // SAFETY: a string that ends with a zero and outlives the call.
        let index = unsafe { libc::if_nametoindex(c_name.as_ptr()) };
        if index == 0 {
            return Err(io::Error::last_os_error());
        }
        // Without a protocol it hears nothing yet.
        let socket = Socket::new(Domain::PACKET, Type::RAW, None)?;
        socket.set_nonblocking(true)?;
        let on: libc::c_int = 1;
        set(&socket, libc::SOL_PACKET, libc::PACKET_VNET_HDR, &on)?;
        set(&socket, libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, &on)?;
        set(&socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, &on)?;
        set(&socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, &BUFFER)?;
        set(&socket, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &BUFFER)?;
        let promiscuous = libc::packet_mreq {
            mr_ifindex: index as libc::c_int,
            mr_type: libc::PACKET_MR_PROMISC as libc::c_ushort,
            mr_alen: 0,
            mr_address: [0; 8],
        };
        set(
            &socket,
            libc::SOL_PACKET,
            libc::PACKET_ADD_MEMBERSHIP,
            &promiscuous,
        )?;
        // SAFETY: integers and arrays of them, for which all zeroes is a valid value.
        let mut address: libc::sockaddr_ll = unsafe { MaybeUninit::zeroed().assume_init() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
        address.sll_ifindex = index as libc::c_int;
        // SAFETY: the socket is open; the address is of the length given, and outlives the call.
        let bound = unsafe {
            libc::bind(
                socket.as_raw_fd(),
                (&raw const address).cast(),
                size_of::<libc::sockaddr_ll>() as libc::socklen_t,
            )
        };
        match bound {
            0 => Ok(Self { socket, overrun: 0 }),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Sends a frame with its header of virtio; returns whether the kernel took it.
    ///
    /// # Errors
    /// The interface is gone.
    pub fn send(&self, frame: &[u8]) -> io::Result<bool> {
        match self.socket.send(frame) {
            Ok(_) => Ok(true),
            Err(error) if is_gone(&error) => Err(error),
            Err(_) => Ok(false),
        }
    }

    /// Frames that came and found no room, since it was opened.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn overrun(&mut self) -> io::Result<u64> {
        let mut told = libc::tpacket_stats {
            tp_packets: 0,
            tp_drops: 0,
        };
        let mut length = size_of::<libc::tpacket_stats>() as libc::socklen_t;
        // SAFETY: the socket is open; the value has room for the length given, and outlives the call.
        let result = unsafe {
            libc::getsockopt(
                self.socket.as_raw_fd(),
                libc::SOL_PACKET,
                libc::PACKET_STATISTICS,
                (&raw mut told).cast(),
                &raw mut length,
            )
        };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
        // The kernel counts from the last time that it was asked.
        self.overrun += u64::from(told.tp_drops);
        Ok(self.overrun)
    }

    /// What to wait for frames on.
    #[must_use]
    pub fn descriptor(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

/// An interface that is down takes and gives nothing until it is up again; one that is gone never will.
fn is_gone(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENXIO | libc::ENODEV))
}

fn set<T>(socket: &Socket, level: libc::c_int, name: libc::c_int, value: &T) -> io::Result<()> {
    // SAFETY: the socket is open; the value is of the length given, and outlives the call.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            (&raw const *value).cast(),
            size_of::<T>() as libc::socklen_t,
        )
    };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Buffers to receive up to [`BATCH`] frames at a time.
pub struct Frames {
    buffers: Vec<u8>,
    controls: Vec<Control>,
    vectors: Vec<libc::iovec>,
    messages: Vec<libc::mmsghdr>,
    count: usize,
}

// SAFETY: the raw pointers lead into vectors that the value itself owns and never resizes.
unsafe impl Send for Frames {}

impl Default for Frames {
    fn default() -> Self {
        let vector = libc::iovec {
            iov_base: ptr::null_mut(),
            iov_len: 0,
        };
        Self {
            buffers: vec![0; FRAME_MAX * BATCH],
            controls: vec![Control([0; CONTROL_LEN]); BATCH],
            vectors: vec![vector; BATCH],
            messages: (0..BATCH)
                // SAFETY: integers and pointers, for which all zeroes is a valid value.
                .map(|_| unsafe { MaybeUninit::zeroed().assume_init() })
                .collect(),
            count: 0,
        }
    }
}

impl Frames {
    /// Takes what the interface has, without waiting; returns how many frames that is.
    ///
    /// # Errors
    /// The interface is gone.
    pub fn receive(&mut self, link: &Link) -> io::Result<usize> {
        self.count = 0;
        for (i, message) in self.messages.iter_mut().enumerate() {
            self.vectors[i] = libc::iovec {
                iov_base: self.buffers[i * FRAME_MAX..].as_mut_ptr().cast(),
                iov_len: FRAME_MAX,
            };
            message.msg_hdr.msg_iov = &raw mut self.vectors[i];
            message.msg_hdr.msg_iovlen = 1;
            message.msg_hdr.msg_control = (&raw mut self.controls[i]).cast();
            message.msg_hdr.msg_controllen = CONTROL_LEN;
        }
        // SAFETY: each message points to a vector, a control buffer and a buffer of `self`, which outlive the call.
        let count = unsafe {
            libc::recvmmsg(
                link.descriptor(),
                self.messages.as_mut_ptr(),
                BATCH as u32,
                libc::MSG_DONTWAIT,
                ptr::null_mut(),
            )
        };
        if let Ok(count) = usize::try_from(count) {
            self.count = count;
        } else {
            let error = io::Error::last_os_error();
            if is_gone(&error) {
                return Err(error);
            }
        }
        Ok(self.count)
    }

    /// The frames of the last [`Frames::receive`] with their headers, and when each came, in nanoseconds since the Unix epoch, if the kernel
    /// told. One that was longer than any should be is left out.
    pub fn frames(&self) -> impl Iterator<Item = (&[u8], Option<u64>)> + '_ {
        self.messages[..self.count]
            .iter()
            .enumerate()
            .filter(|(_, message)| message.msg_hdr.msg_flags & libc::MSG_TRUNC == 0)
            .map(|(i, message)| {
                let start = i * FRAME_MAX;
                let length = (message.msg_len as usize).min(FRAME_MAX);
                let frame = &self.buffers[start..start + length];
                (frame, arrival(&message.msg_hdr))
            })
    }
}

/// Reads when the kernel says that a frame came.
fn arrival(header: &libc::msghdr) -> Option<u64> {
    // SAFETY: the header is one that `recvmmsg` has filled: its control pointer leads into a live, aligned buffer of the length it gives,
    // and the macros stay within that.
    let mut next = unsafe { libc::CMSG_FIRSTHDR(header) };
    while !next.is_null() {
        // SAFETY: not null, so it points to a whole header within the buffer.
        let control = unsafe { &*next };
        if (control.cmsg_level, control.cmsg_type) == (libc::SOL_SOCKET, libc::SO_TIMESTAMPNS) {
            // SAFETY: the payload of a message of this kind is a timespec; it may not be aligned for it.
            let time = unsafe {
                libc::CMSG_DATA(next)
                    .cast::<libc::timespec>()
                    .read_unaligned()
            };
            return Some(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64);
        }
        // SAFETY: as for the first.
        next = unsafe { libc::CMSG_NXTHDR(header, next) };
    }
    None
}
