//! What a router leaves to its successor, and what a successor makes of a file that nobody wrote so.
//!
//! That a successor decides on as its predecessor would have is what the simulation shows; here is the rest.

mod world;

use std::time::Instant;

use firsthop_relay_core::limits::FLOW_IDLE_TICKS;
use firsthop_relay_core::{
    ImportError, Inherited, Micros, Reason, Router, RouterConfig, Transport,
};
use firsthop_shared::address::{ClientAddr, FlowHandle, Hop, IngressId, Networks};
use firsthop_shared::trunk::RecordKind;
use proptest::prelude::*;

use world::{Call, Relay, client, config, keyring, record, rtp, who};

const ANY_HANDLE: FlowHandle = FlowHandle(0);
const HEADER_LEN: usize = 64;

fn successor(config: &RouterConfig, now: Micros) -> Router {
    Router::new(config, keyring(&[2, 1]), now).expect("a valid configuration")
}

fn other_seeds() -> RouterConfig {
    let mut config = config();
    config.seeds.hash = [77, 78];
    config.seeds.generation = 5;
    config.seeds.boot = 79;
    config
}

/// A relay with a proven flow, a provisional one, and one that two sessions claim; and its file.
fn relay_and_file() -> (Relay, Vec<u8>) {
    let mut relay = Relay::plain();
    let calls = [
        Call::plain(who(1, "10.0.0.1:5000", 0)),
        Call::plain(who(2, "10.0.0.2:5000", 3)),
        Call::plain(who(3, "[fd00::1]:5000", 1)),
    ];
    let [first, second, third] =
        ["203.0.113.1:1000", "203.0.113.2:1000", "[2001:db8::1]:1000"].map(client);
    for (address, call) in [(first, &calls[0]), (second, &calls[1]), (third, &calls[2])] {
        relay.deliver(0, address, &call.requests.good);
    }
    let proof = record(RecordKind::Packet, calls[0].who, 0, first, true, ANY_HANDLE);
    relay.down(calls[0].who, &proof);
    relay.deliver(0, first, &calls[1].requests.good);
    let mut file = Vec::new();
    relay.router.export(relay.now, &mut file).expect("written");
    (relay, file)
}

fn import(bytes: &[u8]) -> Result<Router, ImportError> {
    let mut router = successor(&other_seeds(), Micros(0));
    router.import(Micros(0), &mut &bytes[..])?;
    Ok(router)
}

#[test]
fn a_handle_that_an_owner_echoes_stays_valid() {
    let (mut relay, _) = relay_and_file();
    let address = client("203.0.113.2:1000");
    let handle = |relay: &mut Relay| {
        relay.receive(0, Transport::Udp, address, &rtp(1));
        relay.flush()[0].header.handle
    };
    let before = handle(&mut relay);
    relay.hand_over(&other_seeds(), keyring(&[2, 1]));
    assert_eq!(handle(&mut relay), before);
}

#[test]
fn a_datagram_that_the_predecessor_has_accepted_is_a_replay_to_the_successor() {
    let (mut relay, _) = relay_and_file();
    let session = who(2, "10.0.0.2:5000", 3);
    let address = client("203.0.113.2:1000");
    let header = record(RecordKind::Packet, session, 0, address, false, ANY_HANDLE);
    let keys = keyring(&[2, 1]);
    let bytes = relay.datagram(session.shard, &header, b"downlink", &keys);
    relay.down_bytes(session.owner, &bytes).expect("new");
    relay.hand_over(&other_seeds(), keys);
    let again = relay.down_bytes(session.owner, &bytes);
    assert_eq!(again, Err(Reason::TrunkReplay));
}

/// The clock of a process begins when it does.
#[test]
fn a_flow_is_forgotten_when_it_would_have_been_whatever_the_clocks() {
    const TICK: u64 = 1 << 16;
    let half = u64::from(FLOW_IDLE_TICKS) / 2 * TICK;
    for start in [0, half / 3, 2 * half, 1 << 40] {
        let (relay, _) = relay_and_file();
        let mut file = Vec::new();
        let now = Micros(half);
        relay.router.export(now, &mut file).expect("written");
        // A clock that has not run as long as a flow was silent lets it live longer, by what is missing at most.
        let missing = half.saturating_sub(start);
        let mut router = successor(&other_seeds(), Micros(start));
        router.import(Micros(start), &mut &file[..]).expect("read");
        assert!(!router.expire(Micros(start + half - TICK), 100));
        assert_eq!(router.flow_counts().flows, 3, "start {start}");
        let coarse = 40 * TICK;
        router.expire(Micros(start + half + missing + coarse), 100);
        assert_eq!(router.flow_counts().flows, 0, "start {start}");
    }
}

#[test]
fn a_larger_table_takes_all_and_a_smaller_one_refuses() {
    let (relay, file) = relay_and_file();
    let mut larger = other_seeds();
    larger.flows = 1_000;
    let mut router = successor(&larger, Micros(0));
    let inherited = router.import(Micros(0), &mut &file[..]).expect("room");
    assert_eq!(
        inherited,
        Inherited {
            flows: 3,
            left_out: 0
        }
    );
    assert_eq!(router.flow_counts(), relay.router.flow_counts());

    let mut smaller = other_seeds();
    smaller.flows = 63;
    let mut router = successor(&smaller, Micros(0));
    let error = router
        .import(Micros(0), &mut &file[..])
        .expect_err("no room");
    assert!(matches!(error, ImportError::Room("flows")), "{error}");
}

#[test]
fn flows_that_new_settings_forbid_are_left_out() {
    let (_, file) = relay_and_file();
    let mut narrower = other_seeds();
    // The owner of sessions 1 and 3, and not that of session 2.
    narrower.internal = Networks::parse("10.0.0.1/32,fd00::/8").expect("networks");
    let mut router = successor(&narrower, Micros(0));
    let inherited = router.import(Micros(0), &mut &file[..]).expect("read");
    // Session 2 claims two of the three addresses.
    assert_eq!(
        inherited,
        Inherited {
            flows: 1,
            left_out: 2
        }
    );
    let third = client("[2001:db8::1]:1000");
    assert_eq!(
        router.claims(IngressId(0), Transport::Udp, third).count(),
        1
    );

    // Every place is free that is not taken: the table fills up as any other.
    let mut relay = Relay::plain();
    relay.router = router;
    for port in 0..100 {
        let address = ClientAddr::new(([203, 0, 113, 7], 1_000 + port).into());
        let call = Call::plain(who(100 + u32::from(port), "10.0.0.1:5000", 0));
        assert_eq!(relay.deliver(0, address, &call.requests.good), [call.who]);
    }
    let counts = relay.router.flow_counts();
    assert_eq!(counts.flows, counts.provisional, "the oldest gave way");
}

#[test]
fn a_file_that_is_cut_anywhere_or_goes_on_is_refused() {
    let (_, file) = relay_and_file();
    import(&file).expect("whole");
    for len in 0..file.len() {
        let error = import(&file[..len]).err().expect("cut");
        assert!(matches!(error, ImportError::Truncated), "{len}: {error}");
    }
    let mut longer = file;
    longer.push(0);
    assert!(matches!(import(&longer), Err(ImportError::Excess)));
}

#[test]
fn an_altered_byte_of_the_header_is_refused() {
    let (_, mut file) = relay_and_file();
    for at in 0..HEADER_LEN {
        file[at] ^= 0x10;
        assert!(matches!(import(&file), Err(ImportError::Header)), "{at}");
        file[at] ^= 0x10;
    }
}

proptest! {
    /// Refused, or a table that keeps its own rules: it serves, expires and hands over.
    #[test]
    fn an_altered_byte_elsewhere_breaks_nothing(at: prop::sample::Index, by in 1u8..) {
        let (_, mut file) = relay_and_file();
        let at = HEADER_LEN + at.index(file.len() - HEADER_LEN);
        file[at] ^= by;
        if let Ok(router) = import(&file) {
            let mut relay = Relay::plain();
            relay.router = router;
            let call = Call::plain(who(9, "10.0.0.1:5000", 0));
            for port in 0..40u16 {
                let address = ClientAddr::new(([203, 0, 113, 1], 1_000 + port).into());
                relay.deliver(0, address, &call.requests.good);
            }
            let mut again = Vec::new();
            relay.router.export(relay.now, &mut again).expect("written");
            import(&again).expect("its own");
            while relay.router.expire(Micros(1 << 40), 100) {}
            prop_assert_eq!(relay.router.flow_counts().flows, 0);
            prop_assert_eq!(relay.router.trunk_count(), 0);
        }
    }

    #[test]
    fn any_bytes_are_answered(bytes in prop::collection::vec(any::<u8>(), 0..400), keep in 0usize..400) {
        let (_, file) = relay_and_file();
        prop_assert!(import(&bytes).is_err());
        // What follows a header that is whole.
        let keep = HEADER_LEN + keep.min(file.len() - HEADER_LEN);
        let mut file = file[..keep].to_vec();
        file.extend_from_slice(&bytes);
        let _ = import(&file);
    }
}

/// What a table costs to hand over: `cargo test --release -p firsthop-relay-core --test handover -- --ignored --nocapture`.
#[test]
#[ignore = "measures"]
fn cost_of_a_million_flows() {
    let mut config = other_seeds();
    config.flows = 1 << 20;
    config.trunks = 4_096;
    let mut router = successor(&config, Micros(0));
    let mut proven = 0;
    let mut number = 0u32;
    while proven < 780_000 {
        let [_, a, b, c] = (number >> 2).to_be_bytes();
        let address = ClientAddr::new(([100, a, b, c], 1_000 + (number & 3) as u16).into());
        let session = who(number, "10.0.0.1:5000", (number % 64) as u8);
        let mut header = record(RecordKind::Packet, session, 0, address, true, ANY_HANDLE);
        header.payload_len = 1;
        router.note(
            Micros(0),
            Hop::new(session.owner.get()),
            session.shard,
            &header,
        );
        number += 1;
        proven = router.flow_counts().proven;
    }
    let mut file = Vec::with_capacity(64 << 20);
    let began = Instant::now();
    router.export(Micros(0), &mut file).expect("written");
    let written = began.elapsed();
    config.seeds.hash = [1, 2];
    let mut next = successor(&config, Micros(0));
    let began = Instant::now();
    next.import(Micros(0), &mut &file[..]).expect("read");
    let read = began.elapsed();
    println!(
        "{proven} flows, {} MiB: written in {written:?}, read in {read:?}",
        file.len() >> 20
    );
}
