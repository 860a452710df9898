//! Calls that move: between ingress points, relays, addresses of the client's, and by ICE restarts.

use std::cell::RefCell;
use std::collections::HashSet;
use std::rc::Rc;
use std::time::Duration;

use firsthop_shared::address::{ClientAddr, FlowHandle, Hop, IngressId};
use firsthop_shared::stun::Stun;
use firsthop_shared::stun_write::{Role, binding_request};
use firsthop_transceiver::life::State;
use firsthop_transceiver::session::Advertised;

use crate::peer::{Call, addr, credentials, is_media, two_ingresses};

fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

#[test]
fn both_ingresses_of_a_call_work_and_replies_leave_by_the_one_that_was_hit() {
    let mut call = Call::live(10);
    for ingress in [IngressId(0), IngressId(1)] {
        let answered = call
            .sent
            .iter()
            .any(|(_, o)| o.to.key.ingress == ingress && o.payload[..2] == [1, 1]);
        assert!(answered, "a check on ingress {ingress} is answered there");
    }
    call.speak(true);
    call.run(secs(1));
    let media = |call: &Call| {
        let (_, o) = call
            .sent
            .iter()
            .rev()
            .find(|(_, o)| is_media(o))
            .expect("media");
        o.to.key.ingress
    };
    // The client's way to the ingress in use breaks; it goes on by the other one.
    let used = media(&call);
    call.lose_up = Box::new(move |from, _| from.ingress == used);
    call.lose_down = Box::new(move |o| o.to.key.ingress == used);
    let heard = call.client.heard.packets;
    call.until(secs(40), |call| {
        media(call) != used && call.client.heard.packets > heard + 100
    });
    assert_eq!(call.session.state(), State::Live);
}

/// Fault 15. The client's engine nominates with every check, Firefox with the first ones alone.
#[test]
fn a_client_that_nominates_once_has_every_later_check_answered() {
    let mut call = Call::live(33);
    let password = credentials(call.id, 0).password;
    let checks = Rc::new(RefCell::new(Vec::new()));
    let asked = Rc::clone(&checks);
    call.change_up = Box::new(move |packet| {
        let Ok(check) = Stun::parse(packet) else {
            return;
        };
        if !check.use_candidate() {
            return;
        }
        let transaction = check.transaction();
        let username = String::from_utf8(check.username().expect("a user").to_vec());
        let username = username.expect("text");
        let role = Role::Controlling(1, false);
        binding_request(packet, transaction, &username, password.as_bytes(), 1, role);
        asked.borrow_mut().push(transaction);
    });
    let before = call.sent.len();
    call.run(secs(90));
    call.change_up = Box::new(|_| {});
    // What is on its way is answered, too.
    call.run(ms(100));
    let answers: HashSet<_> = call.sent[before..]
        .iter()
        .filter(|(_, sent)| sent.payload[..2] == [1, 1])
        .map(|(_, sent)| Stun::parse(&sent.payload).expect("STUN").transaction())
        .collect();
    let asked = checks.borrow();
    assert!(asked.len() > 20, "{} checks in 90 s", asked.len());
    let answered = asked.iter().filter(|check| answers.contains(*check));
    assert_eq!(answered.count(), asked.len());
    assert_eq!(call.session.state(), State::Live, "past consent expiry");
    call.speak(true);
    let heard = call.client.heard.packets;
    call.run(secs(1));
    assert!(call.client.heard.packets > heard + 40);
}

#[test]
fn the_way_down_follows_the_relay_that_the_client_was_last_heard_by() {
    let mut call = Call::live(11);
    call.speak(true);
    call.run(ms(200));
    call.hop = Hop::new(addr("127.0.0.9:4001"));
    call.handle = FlowHandle(7);
    call.run(ms(100));
    let (_, last) = call.sent.last().expect("media");
    assert_eq!(last.to.hop, call.hop);
    assert_eq!(last.to.handle, FlowHandle(7));
}

#[test]
fn proof_is_marked_once_for_each_thing_that_proves() {
    let mut call = Call::live(12);
    call.speak(true);
    call.run(secs(1));
    assert!(call.sent.iter().any(|(_, o)| is_media(o) && o.to.proven));
    // The client falls silent: what leaves now carries no proof but once after each answered check.
    call.lose_up = Box::new(|_, _| true);
    call.run(ms(50));
    call.sent.clear();
    call.run(secs(2));
    assert!(
        call.sent.iter().all(|(_, o)| !is_media(o) || !o.to.proven),
        "no proof without hearing"
    );
}

#[test]
fn media_follows_a_nat_rebinding_at_once() {
    let mut call = Call::live(13);
    call.speak(true);
    call.run(secs(2));
    let old = call.client.public;
    call.client.public = ClientAddr::new(addr("198.51.100.7:61999"));
    let rebound = call.now;
    let fresh = call.client.public;
    call.until(secs(10), |call| {
        call.sent
            .iter()
            .any(|(_, o)| is_media(o) && o.to.key.client == fresh)
    });
    // From the first check that came from the new address: one round trip for our own check, and two voice packets.
    let first_check = call
        .sent
        .iter()
        .find(|(at, o)| *at > rebound && o.to.key.client == fresh)
        .map(|(at, _)| *at)
        .expect("the check is answered");
    let moved = call.now.duration_since(first_check);
    println!("media moved {moved:?} after the first check from the new address");
    assert!(moved <= ms(100), "{moved:?}");
    let heard = call.client.heard.packets;
    call.run(secs(1));
    assert!(call.client.heard.packets > heard + 45);
    assert!(
        call.sent
            .iter()
            .rev()
            .take(20)
            .all(|(_, o)| o.to.key.client != old || !is_media(o))
    );
    assert!(call.session.summary(call.now).moves >= 1);
}

#[test]
fn a_client_may_come_back_to_an_address_that_it_left() {
    let mut call = Call::live(14);
    call.speak(true);
    let addresses = ["198.51.100.7:61000", "198.51.100.7:61999"];
    for round in 0..6 {
        call.client.public = ClientAddr::new(addr(addresses[round % 2]));
        let here = call.client.public;
        call.until(secs(10), |call| {
            call.sent
                .last()
                .is_some_and(|(_, o)| is_media(o) && o.to.key.client == here)
        });
    }
    call.run(secs(30));
    assert_eq!(call.session.state(), State::Live);
}

#[test]
fn an_ice_restart_uses_the_minted_credentials_and_the_call_goes_on() {
    let mut call = Call::live(15);
    call.speak(true);
    call.run(secs(1));
    let answer = call.restart(1).expect("an answer");
    let minted = credentials(call.id, 1).ufrag;
    assert!(
        answer.contains(&format!("a=ice-ufrag:{minted}\r\n")),
        "{answer}"
    );
    call.client.public = ClientAddr::new(addr("198.51.100.7:62222"));
    let fresh = call.client.public;
    call.until(secs(10), |call| {
        call.sent
            .last()
            .is_some_and(|(_, o)| is_media(o) && o.to.key.client == fresh)
    });
    call.run(secs(40));
    assert_eq!(call.session.state(), State::Live, "past consent expiry");
    assert_eq!(call.session.summary(call.now).restarts, 1);
    let answer = call.restart(2).expect("an answer");
    assert!(answer.contains(credentials(call.id, 2).ufrag.as_str()));
    call.run(secs(40));
    assert_eq!(call.session.state(), State::Live);
}

#[test]
fn a_refused_restart_leaves_the_call_as_it_was() {
    let mut call = Call::live(27);
    call.speak(true);
    call.run(secs(1));
    let mid = call.client.mid.expect("an audio section").to_string();
    let renamed = |offer: String| {
        offer
            .replace(&format!("a=mid:{mid}\r\n"), "a=mid:other\r\n")
            .replace(&format!("BUNDLE {mid}"), "BUNDLE other")
    };
    let error = call.restart_with(1, renamed).expect_err("refused");
    assert!(error.to_string().contains("mid"), "{error}");
    let heard = call.client.heard.packets;
    call.run(secs(40));
    assert_eq!(call.session.state(), State::Live, "past consent expiry");
    assert!(call.client.heard.packets > heard + 1_500);
    call.restart(1).expect("the client may try again");
    call.run(secs(40));
    assert_eq!(call.session.state(), State::Live);
}

#[test]
fn a_restart_may_move_the_call_to_another_ingress() {
    let mut call = Call::live(26);
    call.speak(true);
    call.run(secs(1));
    call.ingresses = vec![Advertised {
        ingress: IngressId(2),
        address: addr("192.0.2.30:3478"),
    }];
    let answer = call.restart(1).expect("an answer");
    assert!(answer.contains("192.0.2.30 3478"), "{answer}");
    assert!(!answer.contains("203.0.113.10"), "{answer}");
    // Packets to the old ones still count, but the client's way there is gone.
    call.ingresses.extend(two_ingresses());
    call.lose_up = Box::new(|from, _| from.ingress != IngressId(2));
    call.lose_down = Box::new(|o| o.to.key.ingress != IngressId(2));
    call.until(secs(10), |call| {
        call.sent
            .last()
            .is_some_and(|(_, o)| is_media(o) && o.to.key.ingress == IngressId(2))
    });
    let heard = call.client.heard.packets;
    call.run(secs(1));
    assert!(call.client.heard.packets > heard + 40);
}
