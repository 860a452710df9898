//! How a client changes its address, or the server's that it uses, in the middle of a call.
//!
//! - Another address of its own, as when a phone leaves a network: [`Client::restart`], and the answer to its offer, restart ICE. Until the answer has
//!   come nothing is sent: the old address is gone, and the server knows none of the new.
//! - Another of the server's addresses: [`Client::choose_server`].

use std::net::SocketAddr;
use std::time::Instant;

use str0m::{Candidate, Input};

use super::browser;
use super::client::{Client, ClientError, Send};

impl Client {
    /// The client restarts ICE; when `local` is another address than it has, it has that from now on, and sends nothing before the answer. Returns the offer, to be
    /// answered by way of [`Client::accept`].
    ///
    /// # Errors
    /// There is an offer that has not been answered.
    pub fn restart(&mut self, local: SocketAddr) -> Result<String, ClientError> {
        if self.pending.is_some() {
            let words = "the offer before has not been answered";
            return Err(ClientError::Answer(words.to_owned()));
        }
        self.moves = local != self.local;
        self.local = local;
        let mut changes = self.rtc.sdp_api();
        changes.ice_restart(!self.moves);
        let (offer, pending) = changes
            .apply()
            .unwrap_or_else(|| unreachable!("a restart is a change"));
        self.pending = Some(pending);
        Ok(browser::offer(&offer.to_sdp_string()))
    }

    /// The address has changed, and the server knows the new credentials: ICE begins from there.
    pub(super) fn arrive(&mut self) -> Result<(), ClientError> {
        if std::mem::take(&mut self.moves) {
            let candidate = Candidate::host(self.local, "udp")
                .map_err(|error| ClientError::Answer(error.to_string()))?;
            self.rtc.add_local_candidate(candidate);
        }
        Ok(())
    }

    /// Uses only this of the server's addresses, from the next answer on, or at once if there was one; or any, which takes the next answer.
    ///
    /// Nothing is sent to another. What comes from another is still heard: the server sends to where the client was, until it has seen it
    /// elsewhere.
    ///
    /// # Errors
    /// The server has no such address, or the engine failed.
    pub fn choose_server(
        &mut self,
        via: Option<SocketAddr>,
        now: Instant,
        send: Send<'_>,
    ) -> Result<(), ClientError> {
        let Some(address) = via.filter(|_| self.times().answered.is_some()) else {
            self.via = via;
            return Ok(());
        };
        let (chosen, others): (Vec<_>, Vec<_>) = self
            .remotes
            .iter()
            .cloned()
            .partition(|candidate| candidate.addr() == address);
        let [chosen, ..] = &chosen[..] else {
            return Err(no_such(address));
        };
        self.via = via;
        self.rtc.add_remote_candidate(chosen.clone());
        let mut direct = self.rtc.direct_api();
        for other in &others {
            direct.invalidate_candidate(other);
        }
        self.rtc.handle_input(Input::Timeout(now))?;
        self.drain(now, 0, &mut |_| {}, send)
    }

    /// Notes the candidates of an answer; returns the answer without those that are not to be used.
    pub(super) fn choose(&mut self, answer: &str) -> String {
        self.remotes = answer
            .lines()
            .filter_map(|line| line.strip_prefix("a="))
            .filter_map(|line| Candidate::from_sdp_string(line).ok())
            .collect();
        let via = self.via;
        let unused = |line: &&str| {
            line.strip_prefix("a=")
                .and_then(|line| Candidate::from_sdp_string(line).ok())
                .is_some_and(|candidate| via.is_some_and(|via| via != candidate.addr()))
        };
        let lines = answer.lines().filter(|line| !unused(line));
        lines.flat_map(|line| [line, "\r\n"]).collect()
    }

    /// Whether the server has the address that was chosen, or none was.
    ///
    /// # Errors
    /// It has not.
    pub(super) fn check_choice(&self) -> Result<(), ClientError> {
        match self.via {
            Some(via) if self.remotes.iter().all(|r| r.addr() != via) => Err(no_such(via)),
            _ => Ok(()),
        }
    }
}

fn no_such(address: SocketAddr) -> ClientError {
    ClientError::Answer(format!("it has no candidate {address}"))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use str0m::change::SdpOffer;
    use str0m::net::{Protocol, Receive};
    use str0m::{Event, Output, Rtc, RtcConfig};

    use super::super::identity::Identity;
    use super::super::recording::{Codec, Recording};
    use super::*;

    const STEP: Duration = Duration::from_millis(5);

    /// A client, and a server with two addresses, on a network that takes no time.
    struct Two {
        client: Client,
        server: Rtc,
        now: Instant,
        up: Vec<(SocketAddr, SocketAddr, Vec<u8>)>,
        /// Where the server last heard media, and from where.
        heard: Option<(SocketAddr, SocketAddr)>,
        connected: usize,
    }

    fn address(text: &str) -> SocketAddr {
        text.parse().expect("an address")
    }

    fn here() -> SocketAddr {
        address("127.64.0.1:4000")
    }

    fn server_addresses() -> [SocketAddr; 2] {
        ["127.2.0.1:3478", "127.2.0.2:3478"].map(address)
    }

    impl Two {
        fn start(via: Option<SocketAddr>) -> Self {
            let identity = Identity::new().expect("an identity");
            let now = Instant::now();
            let recording = Recording::new(Codec::Opus).expect("a recording");
            let (mut client, offer) =
                Client::offer(&identity, Codec::Opus, Some(recording), here(), now)
                    .expect("an offer");
            let mut server = RtcConfig::new()
                .set_crypto_provider(identity.provider())
                .set_dtls_cert(identity.certificate())
                .set_rtp_mode(true)
                .build(now);
            for local in server_addresses() {
                let candidate = Candidate::host(local, "udp").expect("a candidate");
                server.add_local_candidate(candidate);
            }
            client
                .choose_server(via, now, &mut |_, _| {})
                .expect("chosen");
            let mut two = Self {
                client,
                server,
                now,
                up: Vec::new(),
                heard: None,
                connected: 0,
            };
            two.answer(&offer);
            two
        }

        fn answer(&mut self, offer: &str) {
            let offer = SdpOffer::from_sdp_string(offer).expect("an offer");
            let answer = self.server.sdp_api().accept_offer(offer).expect("taken");
            let (local, up) = (self.client.local, &mut self.up);
            self.client
                .accept(&answer.to_sdp_string(), self.now, &mut |to, packet| {
                    up.push((local, to, packet.to_vec()));
                })
                .expect("accepted");
        }

        /// Lets time pass until the server has heard media by this way.
        fn until_heard(&mut self, from: SocketAddr, to: SocketAddr) {
            let end = self.now + Duration::from_secs(30);
            self.heard = None;
            while self.heard != Some((from, to)) {
                assert!(self.now < end, "heard by {:?}", self.heard);
                self.step();
            }
        }

        fn step(&mut self) {
            self.now += STEP;
            let mut down = Vec::new();
            self.serve(None, &mut down);
            for (from, to, packet) in std::mem::take(&mut self.up) {
                self.serve(Some((from, to, &packet)), &mut down);
            }
            let (local, up) = (self.client.local, &mut self.up);
            let mut send = |to: SocketAddr, packet: &[u8]| up.push((local, to, packet.to_vec()));
            for (from, to, packet) in down {
                // What goes to an address that the client has left arrives nowhere.
                if to == local {
                    self.client
                        .receive(from, &packet, 0, self.now, &mut |_| {}, &mut send)
                        .expect("received");
                }
            }
            self.client.poll(self.now, &mut send).expect("polled");
        }

        fn serve(
            &mut self,
            packet: Option<(SocketAddr, SocketAddr, &[u8])>,
            down: &mut Vec<(SocketAddr, SocketAddr, Vec<u8>)>,
        ) {
            let input = match packet {
                Some((from, to, packet)) => Input::Receive(
                    self.now,
                    Receive::new(Protocol::Udp, from, to, packet).expect("WebRTC"),
                ),
                None => Input::Timeout(self.now),
            };
            self.server.handle_input(input).expect("served");
            loop {
                match self.server.poll_output().expect("output") {
                    Output::Timeout(_) => return,
                    Output::Transmit(sent) => {
                        down.push((sent.source, sent.destination, sent.contents.to_vec()));
                    }
                    Output::Event(Event::RtpPacket(_)) => {
                        self.heard = packet.map(|(from, to, _)| (from, to));
                    }
                    Output::Event(Event::Connected) => self.connected += 1,
                    Output::Event(_) => {}
                }
            }
        }
    }

    #[test]
    fn a_client_that_moves_restarts_ice_and_keeps_its_session() {
        let [there, _] = server_addresses();
        let mut two = Two::start(Some(there));
        two.until_heard(here(), there);
        let moved = address("127.64.0.9:5000");
        let offer = two.client.restart(moved).expect("an offer");
        assert!(two.client.restart(moved).is_err(), "two at once");
        // Nothing leaves until the server has answered.
        two.step();
        two.step();
        assert!(two.up.is_empty());
        two.answer(&offer);
        two.until_heard(moved, there);
        assert_eq!(two.connected, 1);
        assert!(!two.client.is_closed());
    }

    #[test]
    fn a_client_that_restarts_ice_where_it_is_goes_on_speaking() {
        let [there, _] = server_addresses();
        let mut two = Two::start(Some(there));
        two.until_heard(here(), there);
        for _ in 0..2 {
            let offer = two.client.restart(here()).expect("an offer");
            // The answer takes a while, and the old way serves.
            two.until_heard(here(), there);
            two.answer(&offer);
            for _ in 0..200 {
                two.until_heard(here(), there);
            }
        }
        assert_eq!(two.connected, 1);
        assert!(!two.client.is_closed());
    }

    #[test]
    fn a_client_uses_only_the_server_address_that_was_chosen_and_can_choose_another() {
        let [one, other] = server_addresses();
        let mut two = Two::start(Some(other));
        two.until_heard(here(), other);
        let nowhere = address("127.2.0.3:3478");
        for (chosen, before) in [(one, other), (other, one)] {
            let (now, up) = (two.now, &mut two.up);
            let mut send = |to: SocketAddr, packet: &[u8]| up.push((here(), to, packet.to_vec()));
            let refused = two.client.choose_server(Some(nowhere), now, &mut send);
            let refused = refused.expect_err("there is none").to_string();
            assert!(refused.contains("no candidate 127.2.0.3"), "{refused}");
            two.client
                .choose_server(Some(chosen), now, &mut send)
                .expect("chosen");
            two.up.retain(|(_, to, _)| *to != before);
            two.until_heard(here(), chosen);
            for _ in 0..100 {
                two.step();
                assert!(two.up.iter().all(|(_, to, _)| *to == chosen));
            }
        }
        assert_eq!(two.connected, 1);
    }

    #[test]
    fn an_answer_without_the_chosen_address_is_refused() {
        let identity = Identity::new().expect("an identity");
        let now = Instant::now();
        let (mut client, _) =
            Client::offer(&identity, Codec::Opus, None, here(), now).expect("an offer");
        let via = Some(address("127.2.0.9:3478"));
        client
            .choose_server(via, now, &mut |_, _| {})
            .expect("chosen");
        let answer = "v=0\r\na=candidate:1 1 udp 2130706431 127.2.0.1 3478 typ host\r\n";
        let refused = client
            .accept(answer, now, &mut |_, _| {})
            .expect_err("refused");
        assert!(refused.to_string().contains("no candidate"), "{refused}");
    }
}
