//! A client that sends far more than it should: packets that a relay has to take for its call's.

use std::net::UdpSocket;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use super::command::Attack;
use super::seat::Captured;

/// Packets that one turn sends at most.
const PER_TURN: u64 = 256;

/// How often it sends: some packets at a time.
const TURN: Duration = Duration::from_millis(1);

/// One packet in so many is a check, whose integrity a relay verifies; the others look like media.
const CHECKS: u64 = 16;

/// A flood that goes on.
#[derive(Debug)]
pub(super) struct Flood {
    attack: Attack,
    begin: Instant,
    sent: u64,
    tell: mpsc::Sender<u64>,
}

impl Flood {
    /// Begins now. How many packets were sent is told at the end.
    pub(super) fn new(attack: Attack, begin: Instant, tell: mpsc::Sender<u64>) -> Self {
        Self {
            attack,
            begin,
            sent: 0,
            tell,
        }
    }

    /// Sends what is due, made from a media packet and a check that the client has sent; returns when more is, or nothing at the end.
    pub(super) fn turn(
        &mut self,
        now: Instant,
        socket: &UdpSocket,
        media: Option<&Captured>,
        check: Option<&Captured>,
    ) -> Option<Instant> {
        let due = self.due(now);
        let mut packet = Vec::new();
        for number in self.sent..due.min(self.sent + PER_TURN) {
            let captured = if number % CHECKS == 0 { check } else { media };
            if let Some(captured) = captured {
                packet.clear();
                packet.extend_from_slice(&captured.packet);
                if number % CHECKS != 0 {
                    renumber(&mut packet, number);
                }
                // What finds no room is part of the flood all the same.
                let _ = socket.send_to(&packet, captured.to);
            }
            self.sent = number + 1;
        }
        if now.duration_since(self.begin) >= self.attack.time && self.sent >= due {
            // Whoever asked may have gone.
            let _ = self.tell.send(self.sent);
            return None;
        }
        Some(if self.sent < due { now } else { now + TURN })
    }

    /// How many packets should have been sent.
    fn due(&self, now: Instant) -> u64 {
        let time = now.duration_since(self.begin).min(self.attack.time);
        (time.as_secs_f64() * self.attack.rate) as u64
    }
}

/// Makes another packet of a media packet: it has a sequence number of its own, and its tag is wrong.
fn renumber(packet: &mut [u8], number: u64) {
    if let Some(sequence) = packet.get_mut(2..4) {
        sequence.copy_from_slice(&(number as u16).to_be_bytes());
    }
    if let Some(last) = packet.last_mut() {
        *last ^= 0x55;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_keeps_its_rate_and_ends_in_time() {
        let target = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        target.set_nonblocking(true).expect("set");
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        let captured = |first: u8| Captured {
            to: target.local_addr().expect("an address"),
            packet: vec![first; 100],
        };
        let (media, check) = (captured(0x80), captured(0));
        let (tell, told) = mpsc::channel();
        let begin = Instant::now();
        let attack = Attack {
            time: Duration::from_millis(500),
            rate: 2_000.0,
        };
        let mut flood = Flood::new(attack, begin, tell);
        let (mut now, mut kinds) = (begin, [0; 2]);
        let mut buffer = [0; 200];
        while let Some(next) = flood.turn(now, &socket, Some(&media), Some(&check)) {
            assert!(next > now || flood.sent < flood.due(now));
            while let Ok(length) = target.recv(&mut buffer) {
                assert_eq!(length, 100);
                kinds[usize::from(buffer[0] >> 7)] += 1;
            }
            now = next.max(now + TURN);
        }
        assert_eq!(told.recv(), Ok(1_000));
        assert_eq!(now.duration_since(begin), attack.time);
        // What came in the last turn may still be there.
        while target.recv(&mut buffer).is_ok() {
            kinds[usize::from(buffer[0] >> 7)] += 1;
        }
        assert_eq!(kinds, [63, 937]);
    }
}
