//! WHIP sessions, and ICE restarts by the client's new credentials alone.

use std::time::Duration;

use firsthop_shared::address::ClientAddr;
use firsthop_shared::packet::{PacketClass, classify};
use firsthop_transceiver::life::State;
use str0m::media::Direction;

use crate::peer::{Call, addr, credentials};

fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// Whether a packet for the client is media: RTP, and no RTCP (RFC 5761 section 4).
fn is_voice(payload: &[u8]) -> bool {
    classify(payload) == PacketClass::Rtp && !(192..224).contains(&payload[1])
}

#[test]
fn a_whip_client_is_heard_and_never_spoken_to() {
    for (id, direction) in [(70, Direction::SendOnly), (71, Direction::SendRecv)] {
        let mut call = Call::whip(id, direction);
        assert!(call.answer.contains("a=recvonly\r\n"), "{}", call.answer);
        call.until(secs(5), |call| call.session.state() == State::Live);
        call.speak(true);
        call.run(secs(3));
        call.speak(false);
        call.run(secs(40));
        assert_eq!(call.session.state(), State::Live, "past consent expiry");
        let audio = call.session.summary(call.now).audio;
        assert!(audio.uplink.received > 2_000, "{audio:?}");
        assert_eq!(audio.uplink.reorder.missing, 0);
        let sent = call.sent.iter().filter(|(_, o)| is_voice(&o.payload));
        assert_eq!(sent.count(), 0);
        assert_eq!(call.client.heard.packets, 0);
    }
}

#[test]
fn new_credentials_alone_restart_ice_and_the_call_goes_on() {
    let mut calls = [Call::live(72), Call::whip(73, Direction::SendOnly)];
    for call in &mut calls {
        call.until(secs(5), |call| call.session.state() == State::Live);
        call.speak(true);
        call.run(secs(1));
        let connected = call.client.heard.connected;
        let first = call.answer.clone();
        let answer = call.restart_ice(1).expect("an answer");
        let minted = credentials(call.id, 1);
        for line in [
            format!("a=ice-ufrag:{}\r\n", minted.ufrag),
            format!("a=ice-pwd:{}\r\n", minted.password.as_str()),
        ] {
            assert!(answer.contains(&line), "{answer}");
        }
        // Candidates, sections, codec and certificate are told as before.
        let unchanged = |sdp: &str| -> Vec<String> {
            let lines = sdp
                .lines()
                .filter(|l| !l.starts_with("a=ice-") && !l.starts_with("o="));
            lines.map(str::to_owned).collect()
        };
        assert_eq!(unchanged(&answer), unchanged(&first));
        let before = call.session.summary(call.now).audio.uplink.received;
        call.client.public = ClientAddr::new(addr("198.51.100.7:62222"));
        call.run(secs(40));
        assert_eq!(call.session.state(), State::Live, "past consent expiry");
        let heard = call.session.summary(call.now).audio.uplink.received - before;
        assert!(heard > 1_900, "{heard} packets in 40 s");
        assert_eq!(call.client.heard.connected, connected, "DTLS went on");
        assert_eq!(call.session.summary(call.now).restarts, 1);
        assert_eq!(call.session.ufrag(), minted.ufrag);
        // And once more, then by a whole offer.
        call.restart_ice(2).expect("an answer");
        call.run(secs(2));
        call.restart(3).expect("an answer");
        call.run(secs(40));
        assert_eq!(call.session.state(), State::Live);
        assert_eq!(call.session.ufrag(), credentials(call.id, 3).ufrag);
    }
}
