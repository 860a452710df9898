//! What the kernel has done: sends give their buffers back, receives come in.

use io_uring::cqueue;

use super::{BufferId, HEADROOM, Kind, NAME_LEN, RECEIVE_HEADER_LEN, Received, Ring, address};
#[cfg(doc)]
use crate::limits;

impl Ring {
    /// Takes every completion: sends give their buffers back, receives are put into `received`.
    ///
    /// Nothing is left for the next turn: sends complete behind receives, and free what the handling of those may wait for.
    /// `received` needs room for one entry per receive buffer ([`limits::RECEIVED_MAX`]); then it never grows.
    pub fn reap(&mut self, received: &mut Vec<Received>) {
        // The queue is walked by hand, because handling a completion needs the rest of the ring. It does not get longer
        // meanwhile: this kind of ring makes completions only while its thread enters it.
        while let Some(entry) = self
            .uring
            .as_mut()
            .and_then(|uring| uring.completion().next())
        {
            self.complete(&entry, received);
        }
    }

    fn complete(&mut self, entry: &cqueue::Entry, received: &mut Vec<Received>) {
        let more = cqueue::more(entry.flags());
        if !more {
            self.under_way -= 1;
        }
        match Kind::of(entry.user_data()) {
            (Some(Kind::Receive), socket) => {
                if !more {
                    self.armed[usize::from(socket)] = false;
                }
                // Not where a glance finds none: the receive behind it finds none either, and they are one lack.
                self.counters.buffers_exhausted += u64::from(-entry.result() == libc::ENOBUFS);
                received.extend(self.complete_receive(socket as u8, entry));
            }
            (Some(Kind::Glance), socket) => {
                received.extend(self.complete_receive(socket as u8, entry));
            }
            (Some(Kind::Message), slot) => {
                let (records, len) = (
                    self.messages.get(slot).buffers().len() as u64,
                    self.messages.get(slot).len(),
                );
                match -entry.result() {
                    ..=0 => {
                        self.counters.messages_sent += 1;
                        self.counters.records_sent += records;
                        self.counters.message_bytes_sent += len as u64;
                    }
                    errno => {
                        self.counters.records_lost += records;
                        match errno {
                            libc::EAGAIN | libc::ENOBUFS => self.counters.messages_send_full += 1,
                            _ => self.counters.messages_failed += 1,
                        }
                    }
                }
                self.free_message(slot);
            }
            (Some(Kind::Packet), slot) => {
                match -entry.result() {
                    sent @ ..=0 => {
                        self.counters.packets_sent += 1;
                        self.counters.packet_bytes_sent += u64::from(sent.unsigned_abs());
                    }
                    libc::EAGAIN | libc::ENOBUFS => self.counters.packets_send_full += 1,
                    _ => self.counters.packets_failed += 1,
                }
                self.free_packet(slot);
            }
            (Some(Kind::Train), slot) => {
                let packets = self.trains.get(slot).packets() as u64;
                match -entry.result() {
                    sent @ ..=0 => {
                        self.counters.trains_sent += 1;
                        self.counters.packets_sent += packets;
                        self.counters.packet_bytes_sent += u64::from(sent.unsigned_abs());
                    }
                    libc::EAGAIN | libc::ENOBUFS => self.counters.packets_send_full += packets,
                    errno => {
                        self.counters.packets_failed += packets;
                        // The device cannot, and will not learn it.
                        self.segments &= errno != libc::EIO;
                    }
                }
                self.free_train(slot);
            }
            (Some(Kind::Wake), _) => self.wake_armed = false,
            // What a cancellation is for, the receive that it ends says.
            (Some(Kind::Cancel) | None, _) => {}
        }
    }

    fn complete_receive(&mut self, socket: u8, entry: &cqueue::Entry) -> Option<Received> {
        let internal = socket == self.internal_socket();
        let buffer = cqueue::buffer_select(entry.flags()).map(|id| {
            self.pool(internal).taken(id);
            BufferId::new(internal, id)
        });
        let Ok(filled) = usize::try_from(entry.result()) else {
            if let Some(buffer) = buffer {
                self.release(buffer);
            }
            match -entry.result() {
                // No buffer, which is counted already; or a glance that found nothing more.
                libc::ENOBUFS | libc::ECANCELED | libc::EAGAIN => {}
                // Arming again would fail again, for ever.
                errno @ (libc::EBADF
                | libc::EINVAL
                | libc::ENOTSOCK
                | libc::EOPNOTSUPP
                | libc::EFAULT) => {
                    self.broken = Some((socket, errno));
                }
                _ => self.counters.receive_errors += 1,
            }
            return None;
        };
        let buffer = buffer?;
        if filled <= HEADROOM && !cqueue::more(entry.flags()) {
            self.empties[usize::from(socket)].ended();
        }
        let bytes = self.bytes(buffer);
        let word = |at: usize| {
            u32::from_ne_bytes(
                *bytes[at..]
                    .first_chunk::<4>()
                    .expect("buffers are 2 KiB or more"),
            )
        };
        // struct io_uring_recvmsg_out: namelen, controllen, payloadlen, flags.
        let name_len = (word(0) as usize).min(NAME_LEN);
        let truncated = word(12) & libc::MSG_TRUNC as u32 != 0;
        Some(Received {
            socket,
            buffer,
            len: filled.saturating_sub(HEADROOM).min(bytes.len() - HEADROOM),
            truncated,
            from: address::parse(&bytes[RECEIVE_HEADER_LEN..RECEIVE_HEADER_LEN + name_len]),
        })
    }

    pub(super) fn free_message(&mut self, slot: u16) {
        for &buffer in self.messages.get(slot).buffers() {
            let pool = if buffer.internal() {
                &mut self.internal
            } else {
                &mut self.public
            };
            pool.release(buffer.index());
        }
        self.messages.put(slot);
    }

    pub(super) fn free_train(&mut self, slot: u16) {
        let buffer = self.trains.get(slot).buffer();
        self.release(buffer);
        self.trains.put(slot);
    }

    pub(super) fn free_packet(&mut self, slot: u16) {
        let buffer = self.packets.get(slot).buffer();
        self.release(buffer);
        self.packets.put(slot);
    }
}
