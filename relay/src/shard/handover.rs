//! A core that stands still, so that another process can take its place or it can go on, and no packet is lost either way.

use std::io::ErrorKind;
use std::sync::mpsc::SyncSender;
use std::time::Instant;

use super::Shard;
use crate::handover::memory;
use crate::handover::order::Left;
use crate::limits;
use crate::pause::pause;
use crate::ring::RingError;
use crate::waiting::Wait;

impl Shard {
    /// Ends the receives, forwards all that they brought, leaves the flows to whoever ordered this, and waits for the next
    /// order: to go on, or to stop. What clients and owners send meanwhile waits in the sockets.
    ///
    /// # Errors
    /// The ring does not work any more.
    pub(super) async fn stand_still(&mut self, reply: &SyncSender<Left>) -> Result<(), RingError> {
        let left = if self.settle()? {
            self.leave_flows()
        } else {
            Err("did not finish what it had".to_owned())
        };
        // Whoever ordered it may have given up: then the order is gone too.
        let _ = reply.send(left);
        self.publish();
        loop {
            self.mailbox.answer();
            if self.mailbox.stopped() {
                // Others receive on these sockets. A receive that is armed now would take what is theirs, even if it were
                // only cancelled with the ring.
                return Ok(());
            }
            if !self.mailbox.stands_still() {
                break;
            }
            self.ring.arm();
            self.ring.enter(Wait::Sleep(limits::SLEEP_MAX))?;
            self.ring.reap(&mut self.received);
            pause(limits::YIELD).await;
        }
        self.ring.resume_receiving();
        self.ring.arm();
        Ok(())
    }

    /// Takes turns without receives until nothing is left. Returns whether it came to that in time.
    ///
    /// Packets that wait for the flow cache go on when it answers, or are dropped by name: a Redis that hangs must not
    /// let a core stand still for as long as a packet may wait.
    pub(super) fn settle(&mut self) -> Result<bool, RingError> {
        let start = Instant::now();
        let end = start + limits::STAND_STILL;
        let mut turns = 0;
        loop {
            self.ring.stop_receiving();
            if start.elapsed() >= limits::STAND_STILL_ANSWERS {
                self.router.end_all_waits(self.now());
            }
            self.turn(Wait::No)?;
            let waits = !self.received.is_empty()
                || self.router.next_linger().is_some()
                || self.router.is_recalling();
            if self.ring.is_quiet() && !waits {
                break;
            }
            turns += 1;
            // A core that has lost its processor meanwhile has not tried yet.
            if turns >= limits::RING_STOP_ROUNDS && Instant::now() >= end {
                return Ok(false);
            }
        }
        // What other cores have told of its clients belongs to the flows.
        while self.take_control(self.clock) {}
        Ok(true)
    }

    fn leave_flows(&self) -> Left {
        let write = || {
            let mut file = memory::file()?;
            self.router.export(self.now(), &mut file)?;
            Ok::<_, std::io::Error>(file)
        };
        write().map_err(|error| {
            let fix = match error.kind() {
                ErrorKind::FileTooLarge => {
                    " (raise the limit of file sizes: ulimit -f, LimitFSIZE=)"
                }
                _ => "",
            };
            format!("cannot write its flows: {error}{fix}")
        })
    }
}
