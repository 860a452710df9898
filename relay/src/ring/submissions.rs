//! What the kernel shall do: trunk datagrams from the internal socket, packets to clients from the public ones.

#![allow(unsafe_code)] // Requests hold pointers; each says why they are valid for as long as the kernel follows them.

use std::net::SocketAddr;
use std::ops::Range;

use io_uring::types::Fixed;
use io_uring::{opcode, squeue};

use super::{BufferId, Kind, Piece, QueueFull, Ring};

impl Ring {
    /// How many more sends this turn can queue.
    #[must_use]
    pub fn room(&mut self) -> usize {
        self.queue_room().min(self.packets.free())
    }

    /// How many more requests the submission queue takes, besides those that arm every receive and the wake-up.
    pub(super) fn queue_room(&mut self) -> usize {
        let uring = self.uring.as_mut().expect("only drop takes the ring");
        let queue = uring.submission();
        (queue.capacity() - queue.len()).saturating_sub(self.armed.len() + 1)
    }

    /// How many more trunk datagrams this turn can queue.
    #[must_use]
    pub fn message_room(&mut self) -> usize {
        self.room().min(self.messages.free())
    }

    /// Queues a trunk datagram from the internal socket: a header and records, or a whole keepalive as `prefix`.
    ///
    /// Each piece's buffer has a reader for it, which passes to the send; a refused send releases it.
    ///
    /// # Errors
    /// The submission queue or the slots are full; counted.
    pub fn send_message(
        &mut self,
        to: SocketAddr,
        prefix: &[u8],
        pieces: impl Iterator<Item = Piece>,
    ) -> Result<(), QueueFull> {
        let socket = self.internal_socket();
        let Some((slot, message)) = self.messages.take() else {
            let mut records = 0;
            for piece in pieces {
                records += 1;
                self.release(piece.buffer);
            }
            self.counters.records_lost += records;
            self.counters.queue_full += 1;
            return Err(QueueFull);
        };
        message.begin(prefix);
        for piece in pieces {
            let pool = if piece.buffer.internal() {
                &self.internal
            } else {
                &self.public
            };
            let bytes = pool.bytes(piece.buffer.index());
            if !piece.side.is_empty() {
                message.add(&bytes[piece.side]);
            }
            message.add(&bytes[piece.body]);
            message.hold(piece.buffer);
        }
        let header = message.finish(to);
        let request = opcode::SendMsg::new(Fixed(u32::from(socket)), header)
            .flags(libc::MSG_DONTWAIT as u32)
            .build()
            .user_data(Kind::Message.data(slot));
        // SAFETY: the header, its address and its vectors lie in the slot, which never moves and is not filled again before
        // the completion; the vectors point into buffers that the message holds until then.
        if unsafe { self.push(&request) } {
            self.at_once += 1;
            return Ok(());
        }
        self.counters.records_lost += self.messages.get(slot).buffers().len() as u64;
        self.counters.queue_full += 1;
        self.free_message(slot);
        Err(QueueFull)
    }

    /// Queues a packet to a client from a public socket: `range` of a buffer that the caller holds.
    ///
    /// The send becomes a reader of its own; the caller keeps its own.
    ///
    /// # Errors
    /// The submission queue is full; counted.
    pub fn send_packet(
        &mut self,
        socket: u8,
        to: SocketAddr,
        buffer: BufferId,
        range: Range<usize>,
    ) -> Result<(), QueueFull> {
        assert!(
            socket < self.internal_socket(),
            "client packets leave from public sockets"
        );
        let Some((slot, packet)) = self.packets.take() else {
            self.counters.queue_full += 1;
            return Err(QueueFull);
        };
        let (address, address_len) = packet.fill(to, buffer);
        self.retain(buffer);
        let bytes = &self.bytes(buffer)[range];
        let request =
            opcode::Send::new(Fixed(u32::from(socket)), bytes.as_ptr(), bytes.len() as u32)
                .flags(libc::MSG_DONTWAIT)
                .dest_addr(address)
                .dest_addr_len(address_len)
                .build()
                .user_data(Kind::Packet.data(slot));
        // SAFETY: the address lies in the slot, which never moves and is not filled again before the completion; the bytes
        // lie in a buffer that the packet holds until then.
        if unsafe { self.push(&request) } {
            self.at_once += 1;
            return Ok(());
        }
        self.counters.queue_full += 1;
        self.free_packet(slot);
        Err(QueueFull)
    }

    /// Queues a train of packets to a client from a public socket: `ranges` of a buffer that the caller holds, all as long as
    /// the first but for the last, which may be shorter. Returns whether it did; if not, send them one by one.
    ///
    /// It does not when trains cannot be cut here, or all slots are under way. The send becomes a reader of the buffer.
    pub fn send_train(
        &mut self,
        socket: u8,
        to: SocketAddr,
        buffer: BufferId,
        ranges: impl Iterator<Item = Range<usize>>,
    ) -> bool {
        assert!(
            socket < self.internal_socket(),
            "client packets leave from public sockets"
        );
        if !self.segments {
            return false;
        }
        let Some((slot, train)) = self.trains.take() else {
            return false;
        };
        let pool = if buffer.internal() {
            &self.internal
        } else {
            &self.public
        };
        let bytes = pool.bytes(buffer.index());
        let header = train.fill(to, buffer, ranges.map(|range| &bytes[range]));
        self.retain(buffer);
        let request = opcode::SendMsg::new(Fixed(u32::from(socket)), header)
            .flags(libc::MSG_DONTWAIT as u32)
            .build()
            .user_data(Kind::Train.data(slot));
        // SAFETY: the header, and the address, control message and vectors that it points to, lie in the slot, which never
        // moves and is not filled again before the completion; the bytes lie in a buffer that the train holds until then.
        let queued = unsafe { self.push(&request) };
        if queued {
            self.at_once += 1;
        } else {
            self.free_train(slot);
        }
        queued
    }

    /// Queues a request; `false` when the submission queue is full.
    ///
    /// # Safety
    /// Everything that the request points to stays valid and unchanged until its last completion.
    pub(super) unsafe fn push(&mut self, request: &squeue::Entry) -> bool {
        let uring = self.uring.as_mut().expect("only drop takes the ring");
        // SAFETY: passed on to the caller.
        let pushed = unsafe { uring.submission().push(request) }.is_ok();
        self.under_way += usize::from(pushed);
        pushed
    }
}
