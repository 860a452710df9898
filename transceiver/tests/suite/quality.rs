//! What RTCP tells of a call, and what follows from it.

use std::time::Duration;

use firsthop_shared::address::IngressId;
use firsthop_shared::packet::{PacketClass, classify};
use firsthop_transceiver::limits;
use firsthop_transceiver::reason::Reason;
use firsthop_transceiver::session::Outgoing;

use crate::peer::{Call, LATENCY, two_ingresses};

fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// Loses one voice packet of ten on the way down.
fn one_of_ten() -> Box<dyn FnMut(&Outgoing) -> bool> {
    let mut sent = 0_u32;
    Box::new(move |outgoing| {
        let voice = classify(&outgoing.payload) == PacketClass::Rtp
            && !(192..224).contains(&outgoing.payload[1]);
        sent += u32::from(voice);
        voice && sent.is_multiple_of(10)
    })
}

#[test]
fn redundancy_follows_the_loss_that_the_client_reports() {
    let mut call = Call::live(80);
    call.speak(true);
    call.run(secs(20));
    let before = call.session.summary(call.now);
    assert_eq!((before.expected_loss, call.client.heard.redundant), (0, 0));
    assert_eq!(before.quality.lost_down, 0);

    call.lose_down = one_of_ten();
    call.run(secs(40));
    let lossy = call.session.summary(call.now);
    assert_eq!(lossy.expected_loss, 10);
    assert!(
        call.client.heard.redundant > 100,
        "{}",
        call.client.heard.redundant
    );
    assert!(lossy.quality.lost_down > 100, "{:?}", lossy.quality);

    call.lose_down = Box::new(|_| false);
    call.run(secs(90));
    assert_eq!(call.session.summary(call.now).expected_loss, 0);
    let redundant = call.client.heard.redundant;
    call.run(secs(5));
    assert_eq!(call.client.heard.redundant, redundant);
}

/// The engine keeps reports until it sums them up, which it does only for audio that was sent.
#[test]
fn reports_are_refused_before_there_is_sound_and_above_a_rate_after() {
    let mut call = Call::live(82);
    let report = [&[0x9f, 201, 0, 199][..], &[7; 796]].concat();
    let from = call.arrival(IngressId(0));
    for _ in 0..1_000 {
        call.inject(from, &report);
    }
    assert_eq!(call.out.drops[Reason::RtcpRate], 1_000);
    call.speak(true);
    call.until(secs(10), |call| call.client.heard.packets > 0);
    call.run(secs(3));
    let before = call.out.drops[Reason::RtcpRate];
    for _ in 0..1_000 {
        call.inject(from, &report);
    }
    let refused = call.out.drops[Reason::RtcpRate] - before;
    assert_eq!(refused, 1_000 - u64::from(limits::RTCP_BURST));
}

#[test]
fn a_client_that_cannot_use_redundancy_is_sent_none() {
    let mut call = Call::with(81, true, &two_ingresses(), |offer| {
        assert!(offer.contains("useinbandfec=1"), "{offer}");
        offer.replace("useinbandfec=1", "useinbandfec=0")
    });
    call.lose_down = one_of_ten();
    call.speak(true);
    call.run(secs(40));
    let summary = call.session.summary(call.now);
    assert!(summary.quality.lost_down > 100, "{:?}", summary.quality);
    assert_eq!((summary.expected_loss, call.client.heard.redundant), (0, 0));
}

#[test]
fn round_trip_jitter_and_loss_are_in_the_summary() {
    let mut call = Call::live(82);
    call.speak(true);
    call.run(secs(30));
    let quality = call.session.summary(call.now).quality;
    let round_trip = 2 * LATENCY.as_millis() as u64;
    let measured = quality.rtt_ms.expect("a round trip");
    assert!(
        (round_trip..round_trip + 5).contains(&measured),
        "{quality:?}"
    );
    assert!(
        quality.jitter_down_ms.is_some_and(|ms| ms < 10),
        "{quality:?}"
    );
    assert!(
        quality.jitter_up_ms.is_some_and(|ms| ms < 10),
        "{quality:?}"
    );
    assert!(quality.sent > 1_000, "{quality:?}");
    assert_eq!(quality.lost_down, 0);
}
