//! Receives that stay armed, and what is armed ahead of them.
//!
//! A multishot receive ends with an empty datagram, and is armed again by the next turn: so each of a flood of them would cost a
//! turn with its system call. A socket on which that happens is armed with several receives at once. All but the last only
//! *glance*: they take what is there, up to the next empty datagram, and fail with `EAGAIN` where another receive would wait
//! (`MSG_DONTWAIT`), or after as many packets as the kernel hands over at once. Each has ended when it is submitted, one after the other, so packets keep their order, and the last one stays.

#![allow(unsafe_code)] // Queues requests; each says why that is sound.

use io_uring::opcode;
use io_uring::types::Fixed;

use super::{Kind, Ring};

impl Ring {
    /// Gives freed buffers back to the kernel and queues the receives that are not armed.
    ///
    /// A socket whose pool is empty waits: its receive would end at once, with `ENOBUFS`.
    pub fn arm(&mut self) {
        self.public.publish();
        self.internal.publish();
        let last = self.armed.len() - 1;
        for socket in 0..=last {
            let pool = if socket == last {
                &self.internal
            } else {
                &self.public
            };
            let free = pool.free();
            if !self.receiving || self.armed[socket] || free == 0 {
                continue;
            }
            // Each takes a buffer, even where it finds nothing.
            let glances = usize::from(self.empties[socket].glances())
                .min(free - 1)
                .min(self.queue_room());
            for _ in 0..glances {
                let glance = self.queue_receive(socket, Kind::Glance);
                self.at_once += u32::from(glance);
            }
            self.armed[socket] = self.queue_receive(socket, Kind::Receive);
        }
        if !self.wake_armed {
            let count: *mut u64 = &raw mut **self.wake_count;
            let request = opcode::Read::new(
                Fixed(last as u32 + 1),
                count.cast(),
                size_of::<u64>() as u32,
            )
            .build()
            .user_data(Kind::Wake.data(0));
            // SAFETY: the count is boxed, eight bytes, and nobody touches it while the read is armed.
            self.wake_armed = unsafe { self.push(&request) };
        }
    }

    /// Queues a receive of a kind; `false` when the submission queue is full.
    fn queue_receive(&mut self, socket: usize, kind: Kind) -> bool {
        let internal = socket == self.armed.len() - 1;
        let group = self.pool(internal).group();
        let flags = match kind {
            Kind::Glance => libc::MSG_DONTWAIT as u32,
            _ => 0,
        };
        let request =
            opcode::RecvMsgMulti::new(Fixed(socket as u32), &raw const **self.receive, group)
                .flags(flags)
                .build()
                .user_data(kind.data(socket as u16));
        // SAFETY: the msghdr is boxed and never changed; it and the pool live as long as the ring.
        let queued = unsafe { self.push(&request) };
        self.counters.arms += u64::from(queued && kind == Kind::Receive);
        queued
    }
}
