//! What others send: packets from strangers, forged ones from the client's own address, checks with a victim's address.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use firsthop_shared::address::{ClientAddr, IngressId};
use firsthop_shared::packet::{PacketClass, classify};
use firsthop_transceiver::hops::PathKey;
use firsthop_transceiver::life::{Phase, State};
use firsthop_transceiver::reason::Reason;
use proptest::prelude::*;

use crate::peer::{Call, addr, is_media};

fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// DTLS that anyone can make up: garbage, records cut short, alerts in the clear, a hello out of season.
fn forged_dtls() -> Vec<Vec<u8>> {
    let record = |kind: u8, version: [u8; 2], epoch: u16, sequence: u64, body: &[u8]| {
        let mut packet = vec![kind, version[0], version[1]];
        packet.extend_from_slice(&epoch.to_be_bytes());
        packet.extend_from_slice(&sequence.to_be_bytes()[2..]);
        packet.extend_from_slice(&(body.len() as u16).to_be_bytes());
        packet.extend_from_slice(body);
        packet
    };
    let mut forged = Vec::new();
    for kind in 20..64u8 {
        forged.push(vec![kind]);
        forged.push(vec![kind; 13]);
        forged.push(vec![kind; 200]);
    }
    for version in [[254, 253], [254, 255], [3, 3], [0, 0]] {
        for epoch in [0u16, 1, 2, 65_535] {
            for kind in 20..27u8 {
                for body in [
                    &[][..],
                    &[1, 0],
                    &[2, 40],
                    &[0; 16],
                    &[255; 64],
                    &[1; 1_200],
                ] {
                    forged.push(record(kind, version, epoch, 7, body));
                }
            }
        }
    }
    // A handshake message whose lengths lie.
    for kind in 0..25u8 {
        forged.push(record(
            22,
            [254, 253],
            0,
            9,
            &[kind, 0, 255, 255, 0, 0, 0, 0, 0, 0, 0, 9, 1, 2, 3],
        ));
        forged.push(record(
            22,
            [254, 253],
            0,
            9,
            &[kind, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 3, 1, 2, 3],
        ));
    }
    forged
}

#[test]
fn forged_dtls_from_the_client_s_own_address_does_not_end_a_live_call() {
    for packet in forged_dtls() {
        let mut call = Call::live(30);
        let from = call.arrival(IngressId(0));
        call.inject(from, &packet);
        call.run(ms(50));
        assert_eq!(
            call.session.state(),
            State::Live,
            "{packet:?} ended it: {:?}",
            call.session.end_reason()
        );
    }
}

#[test]
fn forged_dtls_during_the_handshake_does_not_end_a_call() {
    let mut ended = Vec::new();
    for packet in forged_dtls() {
        let mut call = Call::new(31);
        call.until(secs(5), |call| {
            call.sent.iter().any(|(_, o)| o.payload[..2] == [0, 1])
                && call
                    .session
                    .summary(call.now)
                    .life
                    .setup
                    .of(Phase::Ice)
                    .is_some()
        });
        let from = call.arrival(IngressId(0));
        call.inject(from, &packet);
        let end = call.now + secs(8);
        while call.now < end && !matches!(call.session.state(), State::Live | State::Ended) {
            call.run(ms(20));
        }
        if call.session.state() != State::Live {
            ended.push((packet, call.session.end_reason()));
        }
    }
    assert!(
        ended.is_empty(),
        "{} packets: {:?}",
        ended.len(),
        &ended[..ended.len().min(20)]
    );
}

#[test]
fn dtls_and_rtp_from_an_address_that_ice_has_not_validated_have_no_effect() {
    let mut call = Call::new(8);
    let mut stranger = call.arrival(IngressId(0));
    stranger.client = ClientAddr::new(addr("198.51.100.66:1"));
    let hello = [22, 254, 253, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0];
    call.inject(stranger, &hello);
    call.inject(
        stranger,
        &[0x80, 111, 0, 1, 0, 0, 0, 0, 0, 0, 0, 9, 1, 2, 3],
    );
    assert_eq!(call.out.drops[Reason::Unvalidated], 2);
    assert!(call.sent.is_empty());
    assert_eq!(call.session.state(), State::Created);
    call.until(secs(5), |call| call.session.state() == State::Live);
    let before = call.sent.len();
    call.inject(stranger, &hello);
    assert_eq!(call.out.drops[Reason::Unvalidated], 3);
    assert_eq!(call.sent.len(), before);
    call.speak(true);
    let packets = call.client.heard.packets;
    call.run(secs(2));
    assert!(
        call.client.heard.packets > packets + 50,
        "the live call goes on"
    );
}

#[test]
fn a_valid_request_with_a_victim_s_address_gets_checks_and_never_media() {
    let mut call = Call::live(9);
    call.speak(true);
    call.run(secs(1));
    // The client's own next check, as if it came from the victim.
    let victim = ClientAddr::new(addr("198.51.100.99:53"));
    let captured = Rc::new(RefCell::new(Vec::new()));
    let tap = captured.clone();
    call.lose_up = Box::new(move |_, packet| {
        if packet[..2] == [0, 1] {
            tap.borrow_mut().push(packet.to_vec());
        }
        false
    });
    call.until(secs(10), |_| !captured.borrow().is_empty());
    let mut from = call.arrival(IngressId(0));
    from.client = victim;
    let check = captured.borrow()[0].clone();
    call.sent.clear();
    call.inject(from, &check);
    call.run(secs(25));
    let to_victim: Vec<_> = call
        .sent
        .iter()
        .filter(|(_, o)| o.to.key.client == victim)
        .collect();
    assert!(!to_victim.is_empty(), "the victim's address is checked");
    assert!(
        to_victim.len() < 20,
        "{} packets to the victim",
        to_victim.len()
    );
    assert!(
        to_victim
            .iter()
            .all(|(_, o)| classify(&o.payload) == PacketClass::Stun)
    );
    assert!(to_victim.iter().all(|(_, o)| !o.to.proven));
    let media = call
        .sent
        .iter()
        .filter(|(_, o)| is_media(o) && o.to.key.client == call.client.public);
    assert!(media.count() > 1_000, "the live call loses nothing");
}

#[test]
fn an_unknown_ingress_is_dropped() {
    let mut call = Call::live(24);
    let from = call.arrival(IngressId(9));
    call.inject(from, &[0; 20]);
    assert_eq!(call.out.drops[Reason::UnknownIngress], 1);
    let key = PathKey {
        client: from.client,
        ingress: from.ingress,
        tcp: false,
    };
    assert!(call.session.destinations().all(|d| d.key != key));
}

#[test]
fn media_that_the_engine_does_not_open_is_counted_and_the_client_s_own_is_not() {
    let recorded = Rc::new(RefCell::new(Vec::new()));
    let tap = Rc::clone(&recorded);
    let mut call = Call::live(25);
    call.lose_up = Box::new(move |_, packet| {
        if classify(packet) == PacketClass::Rtp {
            tap.borrow_mut().push(packet.to_vec());
        }
        false
    });
    call.speak(true);
    call.run(secs(5));
    assert_eq!(call.out.drops[Reason::MediaRefused], 0);
    let from = call.arrival(IngressId(0));
    let recorded = recorded.take();
    let is_report = |packet: &&Vec<u8>| (192..224).contains(&packet[1]);
    let forged = |mut packet: Vec<u8>| {
        *packet.last_mut().expect("a tag") ^= 1;
        packet
    };
    let voice = recorded.iter().rfind(|p| !is_report(p)).expect("voice");
    let report = recorded.iter().rfind(is_report).expect("a report");
    // As if it were the next one: what was taken already is refused without a look at its tag.
    let mut next = voice.clone();
    next[3] = next[3].wrapping_add(9);
    for (number, packet) in (1..).zip([next, forged(report.clone()), voice.clone()]) {
        call.inject(from, &packet);
        assert_eq!(call.out.drops[Reason::MediaRefused], number, "{packet:?}");
    }
    // Its sequence number is still free.
    call.run(secs(1));
    assert_eq!(call.out.drops[Reason::MediaRefused], 3);
    assert_eq!(call.session.state(), State::Live);
}

/// Everything that a client sent in a second of its call.
fn traffic() -> Vec<Vec<u8>> {
    let sent = Rc::new(RefCell::new(Vec::new()));
    let tap = Rc::clone(&sent);
    let mut call = Call::new(40);
    call.lose_up = Box::new(move |_, packet| {
        tap.borrow_mut().push(packet.to_vec());
        false
    });
    call.until(secs(5), |call| call.session.state() == State::Live);
    call.speak(true);
    call.run(secs(1));
    sent.take()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn damaged_packets_from_the_client_s_own_address_neither_panic_nor_end_the_call(
        picks in prop::collection::vec((any::<prop::sample::Index>(), any::<usize>(), any::<u8>(), 0usize..4), 1..80),
    ) {
        let packets = traffic();
        let mut call = Call::live(41);
        let from = call.arrival(IngressId(0));
        for (pick, place, value, how) in picks {
            let mut packet = pick.get(&packets).clone();
            let place = place % packet.len();
            match how {
                0 => packet[place] = value,
                1 => packet.truncate(place),
                2 => packet.insert(place, value),
                _ => {}
            }
            call.inject(from, &packet);
        }
        call.speak(true);
        let heard = call.client.heard.packets;
        call.run(secs(1));
        prop_assert_eq!(call.session.state(), State::Live);
        prop_assert!(call.client.heard.packets > heard + 30);
    }
}
