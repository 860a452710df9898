//! How a thread's calls change while they last: ICE restarts and other addresses, as [`trouble`](super::trouble) has them.

use std::time::Instant;

use super::caller::Caller;
use super::placing::{Answered, PlacingError};
use super::trouble::Trouble;

impl Caller {
    /// Has befall a call what is due.
    pub(super) fn befall(&mut self, n: u32, now: Instant) {
        let Some(call) = self.calls.get_mut(&n) else {
            return;
        };
        let Some(trouble) = call
            .troubles
            .as_mut()
            .and_then(|troubles| troubles.take(now))
        else {
            return;
        };
        let busy = call.restarting || call.closing.is_some();
        if busy || call.client.times().connected.is_none() {
            // One thing after the other.
            return;
        }
        match trouble {
            Trouble::Rebind => match self.air.seat(n) {
                Ok(_) => self.part.rebinds += 1,
                Err(error) => self.part.fail(&format!("another port: {error}")),
            },
            Trouble::Restart => self.restart(n, false),
            Trouble::Move => self.restart(n, true),
        }
    }

    /// Restarts the ICE of a call, from another address or where it is.
    fn restart(&mut self, n: u32, elsewhere: bool) {
        let Some(call) = self.calls.get_mut(&n) else {
            return;
        };
        let (Some(name), Some(etag)) = (call.name.clone(), call.etag.clone()) else {
            return;
        };
        let local = if elsewhere {
            match self.air.seat(n) {
                Ok(local) => local,
                Err(error) => return self.part.fail(&format!("another address: {error}")),
            }
        } else {
            call.client.local
        };
        match call.client.restart(local) {
            Ok(offer) => {
                call.restarting = true;
                self.placer.restart(n, name, etag, offer);
                if elsewhere {
                    self.part.moves += 1;
                } else {
                    self.part.restarts += 1;
                }
            }
            Err(error) => self.part.fail(&error.to_string()),
        }
    }

    /// An offer to restart ICE was answered, or refused: then the call is over, since its client waits for the answer.
    pub(super) fn restarted(
        &mut self,
        n: u32,
        result: Result<Answered, PlacingError>,
        now: Instant,
    ) {
        let Some(call) = self.calls.get_mut(&n) else {
            // It has ended meanwhile.
            return;
        };
        call.restarting = false;
        let outgoing = &mut self.outgoing;
        let mut send = |to, packet: &[u8]| outgoing.push(n, to, packet);
        let taken = match result {
            Ok(answered) => {
                call.etag = answered.etag;
                let taken = call.client.accept(&answered.sdp, now, &mut send);
                taken.map_err(|error| error.to_string())
            }
            // It was hung up meanwhile, and what was asked is for a call that is no more.
            Err(_) if call.closing.is_some() => return,
            Err(error) => {
                call.client.leave(now, &mut send);
                Err(format!("ICE restart: {error}"))
            }
        };
        match taken {
            Ok(()) => self.settle(n, Ok(())),
            Err(why) => {
                self.part.restarts_failed += 1;
                self.fail(n, &why);
            }
        }
    }
}
