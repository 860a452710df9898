//! A ring that receives no more for a while, and loses nothing by it.
//!
//! A multishot receive is cancelled by a request of its own. All that it has taken from its socket stands in the completion
//! queue before its last completion; what comes later stays in the socket, for whoever receives there next: this ring, or
//! that of another process which has the same sockets.

#![allow(unsafe_code)] // Queues requests; each says why that is sound.

use io_uring::opcode;

use super::{Kind, Ring};

impl Ring {
    /// Ends the receives, and arms none until [`Ring::resume_receiving`]. Call it in every turn until the ring is
    /// [quiet](Ring::is_quiet): a full submission queue takes no request, and a receive may have to be asked twice.
    pub fn stop_receiving(&mut self) {
        self.receiving = false;
        for socket in 0..self.armed.len() {
            if !self.armed[socket] {
                continue;
            }
            let receive = Kind::Receive.data(socket as u16);
            let request = opcode::AsyncCancel::new(receive)
                .build()
                .user_data(Kind::Cancel.data(socket as u16));
            // SAFETY: the request names another by its number, and points to nothing.
            if !unsafe { self.push(&request) } {
                return;
            }
        }
    }

    /// Lets [`Ring::arm`] arm receives again.
    pub fn resume_receiving(&mut self) {
        self.receiving = true;
    }

    /// Whether receives are armed.
    #[must_use]
    pub fn receiving(&self) -> bool {
        self.receiving
    }

    /// Whether nothing is under way but the wait for a wake-up: every receive has ended, and every send.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        !self.armed.contains(&true) && self.under_way == usize::from(self.wake_armed)
    }
}
