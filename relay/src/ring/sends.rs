//! What the kernel reads while a send is under way: message headers, vectors, addresses.
//!
//! All of it lives in slots of fixed number, made at the start and never moved. A slot is taken when a send is queued and
//! freed when its completion has been seen, so nothing that the kernel may still read is reused early. With the slot go
//! the receive buffers that the send reads: they are released by whoever frees the slot.

#![allow(unsafe_code)] // Holds pointers into its own slots and into receive buffers, for the kernel to follow.

use std::net::SocketAddr;
use std::ptr;

use firsthop_relay_core::keepalive::KEEPALIVE_LEN_MAX;
use firsthop_shared::limits::TRUNK_RECORDS_MAX;
use firsthop_shared::trunk::DATAGRAM_HEADER_LEN;

use super::BufferId;
use super::address::RawAddress;

/// Vectors of one message: the datagram header, and for each record its header and its payload when they are apart.
pub(super) const VECTORS_MAX: usize = 1 + 2 * TRUNK_RECORDS_MAX;

/// The longest prefix of a message: a datagram header, or a whole keepalive.
const PREFIX_MAX: usize = KEEPALIVE_LEN_MAX;

const _: () = assert!(DATAGRAM_HEADER_LEN <= PREFIX_MAX);

/// A trunk datagram under way: a `SENDMSG` over one datagram header and pieces of receive buffers.
pub(super) struct Message {
    header: libc::msghdr,
    address: RawAddress,
    prefix: [u8; PREFIX_MAX],
    vectors: [libc::iovec; VECTORS_MAX],
    /// One entry for each reader that this message is to a buffer; `held` of them count.
    buffers: [BufferId; TRUNK_RECORDS_MAX],
    vector_count: usize,
    held: usize,
    /// Bytes of UDP payload.
    len: usize,
}

impl Message {
    fn new() -> Self {
        Self {
            // SAFETY: `msghdr` is integers and pointers, for which all zeroes is a valid value.
            header: unsafe { std::mem::zeroed() },
            address: RawAddress::EMPTY,
            prefix: [0; PREFIX_MAX],
            vectors: [libc::iovec {
                iov_base: ptr::null_mut(),
                iov_len: 0,
            }; VECTORS_MAX],
            buffers: [BufferId::NONE; TRUNK_RECORDS_MAX],
            vector_count: 0,
            held: 0,
            len: 0,
        }
    }

    /// Starts a datagram: forgets the last one and takes the datagram header over, with what else is in no receive buffer.
    ///
    /// # Panics
    /// With more than a whole keepalive.
    pub(super) fn begin(&mut self, prefix: &[u8]) {
        self.prefix[..prefix.len()].copy_from_slice(prefix);
        self.vectors[0] = libc::iovec {
            iov_base: self.prefix.as_mut_ptr().cast(),
            iov_len: prefix.len(),
        };
        self.vector_count = 1;
        self.held = 0;
        self.len = prefix.len();
    }

    /// Adds bytes of a receive buffer, which the caller keeps held (see [`Message::hold`]) until the send is done.
    ///
    /// # Panics
    /// With more than two pieces for each of `TRUNK_RECORDS_MAX` records: the trunk's own bound is broken.
    pub(super) fn add(&mut self, bytes: &[u8]) {
        self.vectors[self.vector_count] = libc::iovec {
            iov_base: bytes.as_ptr().cast_mut().cast(),
            iov_len: bytes.len(),
        };
        self.vector_count += 1;
        self.len += bytes.len();
    }

    /// Notes that this message is a reader of `buffer`.
    pub(super) fn hold(&mut self, buffer: BufferId) {
        self.buffers[self.held] = buffer;
        self.held += 1;
    }

    /// Ends the datagram, and returns the header for `SENDMSG`; valid until the slot's next `begin`.
    pub(super) fn finish(&mut self, to: SocketAddr) -> *const libc::msghdr {
        self.header.msg_namelen = self.address.set(to);
        self.header.msg_name = ptr::from_mut(&mut self.address).cast();
        self.header.msg_iov = self.vectors.as_mut_ptr();
        self.header.msg_iovlen = self.vector_count as _;
        ptr::from_ref(&self.header)
    }

    /// The buffers that this message reads, once for each time it does.
    pub(super) fn buffers(&self) -> &[BufferId] {
        &self.buffers[..self.held]
    }

    /// Bytes of UDP payload.
    pub(super) fn len(&self) -> usize {
        self.len
    }
}

/// A client packet under way: a `SEND` with an address, over a piece of one receive buffer.
pub(super) struct Packet {
    address: RawAddress,
    buffer: BufferId,
}

impl Packet {
    /// Fills the slot, and returns the address and its length for `SEND`; valid until the slot is filled again.
    pub(super) fn fill(
        &mut self,
        to: SocketAddr,
        buffer: BufferId,
    ) -> (*const libc::sockaddr, libc::socklen_t) {
        self.buffer = buffer;
        let len = self.address.set(to);
        (ptr::from_ref(&self.address).cast(), len)
    }

    /// The buffer that this packet reads.
    pub(super) fn buffer(&self) -> BufferId {
        self.buffer
    }
}

/// A train under way: packets of one length to one client, the last of them perhaps shorter, as one `SENDMSG` that the
/// kernel cuts (`UDP_SEGMENT`). It walks the network stack once for all of them.
pub(super) struct Train {
    header: libc::msghdr,
    address: RawAddress,
    control: SegmentControl,
    vectors: [libc::iovec; TRUNK_RECORDS_MAX],
    buffer: BufferId,
    packets: usize,
}

/// The control message `UDP_SEGMENT`: a header, and the length of a segment.
#[repr(C)]
struct SegmentControl {
    header: libc::cmsghdr,
    segment: u16,
    padding: [u8; size_of::<libc::cmsghdr>() - size_of::<u16>()],
}

const _: () = {
    // SAFETY: computes with lengths alone.
    let (space, end) = unsafe { (libc::CMSG_SPACE(2), libc::CMSG_LEN(2)) };
    assert!(space as usize <= size_of::<SegmentControl>());
    assert!(end as usize == std::mem::offset_of!(SegmentControl, segment) + 2);
};

impl Train {
    fn new() -> Self {
        // SAFETY: both are integers and pointers, for which all zeroes is a valid value.
        let (header, control) = unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
        Self {
            header,
            address: RawAddress::EMPTY,
            control,
            vectors: [libc::iovec {
                iov_base: ptr::null_mut(),
                iov_len: 0,
            }; TRUNK_RECORDS_MAX],
            buffer: BufferId::NONE,
            packets: 0,
        }
    }

    /// Fills the slot with packets that all lie in `buffer`, and returns the header for `SENDMSG`; valid until the slot is
    /// filled again.
    ///
    /// # Panics
    /// With more than `TRUNK_RECORDS_MAX` packets: the trunk's own bound is broken.
    pub(super) fn fill<'a>(
        &mut self,
        to: SocketAddr,
        buffer: BufferId,
        packets: impl Iterator<Item = &'a [u8]>,
    ) -> *const libc::msghdr {
        self.packets = 0;
        for packet in packets {
            self.vectors[self.packets] = libc::iovec {
                iov_base: packet.as_ptr().cast_mut().cast(),
                iov_len: packet.len(),
            };
            self.packets += 1;
        }
        self.buffer = buffer;
        self.control.header = libc::cmsghdr {
            // SAFETY: computes with a length alone.
            cmsg_len: unsafe { libc::CMSG_LEN(2) } as _,
            cmsg_level: libc::SOL_UDP,
            cmsg_type: libc::UDP_SEGMENT,
        };
        self.control.segment = self.vectors[0].iov_len as u16;
        self.header.msg_namelen = self.address.set(to);
        self.header.msg_name = ptr::from_mut(&mut self.address).cast();
        self.header.msg_iov = self.vectors.as_mut_ptr();
        self.header.msg_iovlen = self.packets as _;
        self.header.msg_control = ptr::from_mut(&mut self.control).cast();
        // SAFETY: computes with a length alone.
        self.header.msg_controllen = unsafe { libc::CMSG_SPACE(2) } as _;
        ptr::from_ref(&self.header)
    }

    /// The buffer that this train reads.
    pub(super) fn buffer(&self) -> BufferId {
        self.buffer
    }

    /// How many packets it is.
    pub(super) fn packets(&self) -> usize {
        self.packets
    }
}

/// A fixed number of slots that never move, and the list of the free ones (last freed, first used: it is warm).
pub(super) struct Slots<T> {
    slots: Box<[T]>,
    free: Vec<u16>,
}

impl<T> Slots<T> {
    fn filled(count: u16, make: impl Fn() -> T) -> Self {
        Self {
            slots: (0..count).map(|_| make()).collect(),
            free: (0..count).rev().collect(),
        }
    }

    /// How many slots are free.
    pub(super) fn free(&self) -> usize {
        self.free.len()
    }

    /// Takes a slot; nothing when all are under way.
    pub(super) fn take(&mut self) -> Option<(u16, &mut T)> {
        let index = self.free.pop()?;
        Some((index, &mut self.slots[usize::from(index)]))
    }

    /// A slot by its index.
    pub(super) fn get(&self, index: u16) -> &T {
        &self.slots[usize::from(index)]
    }

    /// Gives a slot back, whose send the kernel has completed or never seen.
    pub(super) fn put(&mut self, index: u16) {
        debug_assert!(!self.free.contains(&index), "a slot is freed once");
        self.free.push(index);
    }
}

impl Slots<Message> {
    /// Slots for trunk datagrams.
    pub(super) fn messages(count: u16) -> Self {
        Self::filled(count, Message::new)
    }
}

impl Slots<Train> {
    /// Slots for packet trains.
    pub(super) fn trains(count: u16) -> Self {
        Self::filled(count, Train::new)
    }
}

impl Slots<Packet> {
    /// Slots for client packets.
    pub(super) fn packets(count: u16) -> Self {
        Self::filled(count, || Packet {
            address: RawAddress::EMPTY,
            buffer: BufferId::NONE,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_end_and_come_back() {
        let mut slots = Slots::packets(2);
        let first = slots.take().expect("free").0;
        let second = slots.take().expect("free").0;
        assert_ne!(first, second);
        assert!(slots.take().is_none());
        slots.put(first);
        assert_eq!(slots.take().expect("free again").0, first);
    }

    #[test]
    fn a_message_counts_its_bytes_and_readers() {
        let mut slots = Slots::messages(1);
        let (_, message) = slots.take().expect("free");
        message.begin(&[7; DATAGRAM_HEADER_LEN]);
        message.add(&[1; 18]);
        message.add(&[2; 100]);
        message.hold(BufferId::NONE);
        assert_eq!(message.len(), DATAGRAM_HEADER_LEN + 118);
        assert_eq!(message.buffers().len(), 1);
        message.begin(&[8; DATAGRAM_HEADER_LEN]);
        assert_eq!(message.len(), DATAGRAM_HEADER_LEN);
        assert!(message.buffers().is_empty());
    }
}
