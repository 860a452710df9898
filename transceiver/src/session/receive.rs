//! A packet's way in: what may reach the engine, and from where.

use std::net::SocketAddr;
use std::time::Instant;

use firsthop_shared::packet::{PacketClass, classify};
use str0m::Input;
use str0m::net::{Protocol, Receive};

use super::early::alert_in_the_clear;
use super::{Arrival, Outbox, Session};
use crate::hops::{PathIndex, PathKey};
use crate::life::State;
use crate::proof::Meaning;
use crate::reason::Reason;
use crate::srtp;

impl Session {
    /// Takes a packet of the client's.
    pub fn receive(&mut self, from: Arrival, packet: &[u8], now: Instant, out: &mut Outbox) {
        #[cfg(test)]
        self.fault("receive");
        if let Err(reason) = self.try_receive(from, packet, now, out) {
            self.drop_one(reason, out);
        }
    }

    fn try_receive(
        &mut self,
        from: Arrival,
        packet: &[u8],
        now: Instant,
        out: &mut Outbox,
    ) -> Result<(), Reason> {
        if self.life.state() == State::Ended {
            return Err(Reason::Ended);
        }
        let destination = self
            .advertised
            .iter()
            .find(|a| a.ingress == from.ingress && a.address.is_ipv6() == from.client.is_ipv6())
            .map(|a| a.address)
            .ok_or(Reason::UnknownIngress)?;
        let key = PathKey {
            client: from.client,
            ingress: from.ingress,
            tcp: from.tcp,
        };
        let known = self.paths.arrived(&key, from.hop, from.handle);
        let class = classify(packet);
        let path = match class {
            PacketClass::Stun => {
                let path = self.receive_stun(known, &key, from, packet, now)?;
                out.closes.extend(self.paths.take_evicted());
                path
            }
            PacketClass::Dtls | PacketClass::Rtp => {
                let path = known.ok_or(Reason::Unvalidated)?;
                let connecting = self.life.connected_at().is_none();
                if connecting && class == PacketClass::Dtls && alert_in_the_clear(packet) {
                    return Err(Reason::ClearAlert);
                }
                if !self.paths.is_validated(path) {
                    return match class {
                        PacketClass::Dtls if connecting => self.early.hold(key, packet),
                        _ => Err(Reason::Unvalidated),
                    };
                }
                if class == PacketClass::Rtp {
                    // The engine keeps each report until it sums them up, and does that only once we have sent something.
                    if is_rtcp(packet) && !(self.voice.takes_reports() && self.rtcp.take(1, now)) {
                        return Err(Reason::RtcpRate);
                    }
                    self.voice.announce(&mut self.rtc, packet);
                }
                path
            }
            PacketClass::Empty | PacketClass::Other => return Err(Reason::NotWebrtc),
        };
        let opened = srtp::opened();
        self.input(path, &key, destination, packet, now, out)?;
        if class == PacketClass::Rtp && srtp::opened() == opened {
            return Err(Reason::MediaRefused);
        }
        if self.paths.is_validated(path) {
            for held in self.early.release(&key) {
                self.input(path, &key, destination, &held, now, out)?;
            }
        }
        Ok(())
    }

    /// Gives the engine a packet that has passed every check.
    fn input(
        &mut self,
        path: PathIndex,
        key: &PathKey,
        destination: SocketAddr,
        packet: &[u8],
        now: Instant,
        out: &mut Outbox,
    ) -> Result<(), Reason> {
        let protocol = if key.tcp {
            Protocol::Tcp
        } else {
            Protocol::Udp
        };
        let received = Receive::new(protocol, key.client.get(), destination, packet)
            .map_err(|_| Reason::Unparsable)?;
        self.feed(Input::Receive(now, received), Some(path), now, out);
        Ok(())
    }

    /// Judges a STUN message, and keeps what it proves.
    fn receive_stun(
        &mut self,
        known: Option<PathIndex>,
        key: &PathKey,
        from: Arrival,
        packet: &[u8],
        now: Instant,
    ) -> Result<PathIndex, Reason> {
        let local = (
            self.credentials.ufrag.as_bytes(),
            self.credentials.password.as_bytes(),
        );
        let remote = (self.remote.0.as_bytes(), self.remote.1.as_bytes());
        match self.checks.judge(packet, key, local, remote)? {
            Meaning::Request { nominates } => {
                let path = match known {
                    Some(path) => path,
                    None => self
                        .paths
                        .admit(*key, from.hop, from.handle, now)
                        .ok_or(Reason::TooManyPaths)?,
                };
                self.life.checked(now);
                self.paths.requested(path, nominates, now);
                if self.hello.begin(now) {
                    self.hello_to = Some(*key);
                }
                Ok(path)
            }
            Meaning::Proof => {
                // A path may have made room between the check and its answer.
                let path = known.ok_or(Reason::StunUnmatched)?;
                self.life.answered(now);
                self.paths.answered(path, now);
                // What is repeated goes where the client is known to be.
                if self.hello_to.is_some() {
                    self.hello_to = Some(*key);
                }
                Ok(path)
            }
            Meaning::Refusal => known.ok_or(Reason::StunUnmatched),
        }
    }
}

/// Tells RTCP from RTP on one port (RFC 5761 section 4).
fn is_rtcp(packet: &[u8]) -> bool {
    matches!(packet, [_, 192..=223, ..])
}
