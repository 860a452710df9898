//! What the decisions cost, in nanoseconds: `cargo test --release -p firsthop-relay-core --test cost -- --ignored --nocapture`.
//!
//! Senders are shuffled, because long runs of one flow flatter every look-up. The figures are of this code alone: no socket,
//! no system call; CPU time of the thread. They are to compare with each other on one machine.

mod world;

use std::hint::black_box;

use firsthop_relay_core::{BufferId, Micros, Router, Transport, Verdict};
use firsthop_shared::address::{ClientAddr, IngressId};
use rand::rngs::StdRng;
use rand::seq::SliceRandom as _;
use rand::{RngExt as _, SeedableRng as _};

use world::{Call, client, config, keyring, rtp, who};

const UDP: Transport = Transport::Udp;

/// A router with `flows` flows, all proven by downlink records, spread over `owners` owners; and its clients, shuffled.
fn router_with(flows: u32, owners: u32, rng: &mut StdRng) -> (Router, Vec<ClientAddr>) {
    let mut config = config();
    config.flows = (flows * 4 / 3 + 4).min(1 << 20);
    config.trunks = 1_024;
    config.pending = 4_096;
    let mut router = Router::new(&config, keyring(&[2, 1]), Micros(0)).expect("valid");
    let mut clients = Vec::new();
    for i in 0..flows {
        let address = ClientAddr::new(
            (
                [198, 18, (i >> 14) as u8, (i >> 6) as u8],
                1_024 + (i & 63) as u16,
            )
                .into(),
        );
        let owner = who(i, &format!("10.0.{}.1:5000", i % owners), 0);
        let mut record = world::record(
            firsthop_shared::trunk::RecordKind::Packet,
            owner,
            0,
            address,
            true,
            firsthop_shared::address::FlowHandle(0),
        );
        record.payload_len = 1;
        let source = firsthop_shared::address::Hop::new(owner.owner.get());
        router.downlink(Micros(0), source, owner.shard, &record);
        clients.push(address);
    }
    clients.shuffle(rng);
    (router, clients)
}

/// Nanoseconds that this thread has been on a CPU: other work on the machine does not count.
fn cpu_time() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux");
    let first = text.split(' ').next().expect("three numbers");
    first.parse().expect("a number")
}

fn report(what: &str, count: usize, start: u64) {
    let nanoseconds = (cpu_time() - start) as f64 / count as f64;
    println!("{what}: {nanoseconds:.0} ns");
}

#[test]
#[ignore = "measures; it checks nothing"]
fn uplink_media() {
    let mut rng = StdRng::seed_from_u64(1);
    for (flows, owners) in [(1_000, 1), (1_000, 64), (65_536, 64), (780_000, 64)] {
        let (mut router, clients) = router_with(flows, owners, &mut rng);
        let packet = {
            let mut p = rtp(1);
            p.resize(172, 0);
            p
        };
        let mut frame = vec![0; 2_048];
        frame[80..252].copy_from_slice(&packet);
        let rounds = 2_000_000;
        let start = cpu_time();
        for i in 0..rounds {
            let from = clients[i % clients.len()];
            black_box(router.uplink(Micros(0), IngressId(0), UDP, from, &packet));
        }
        report(&format!("{flows} flows: decide"), rounds, start);

        for warm in [false, true] {
            let start = cpu_time();
            for turn in 0..rounds / 64 {
                let turn = (0..64).map(|i| clients[(turn * 64 + i) % clients.len()]);
                if warm {
                    turn.clone()
                        .for_each(|from| router.warm(IngressId(0), UDP, from));
                }
                for from in turn {
                    let verdict = router.uplink(Micros(0), IngressId(0), UDP, from, &packet);
                    let Verdict::Forward(forward) = verdict else {
                        panic!("every client has a flow: {verdict:?}");
                    };
                    router.pack(Micros(0), &forward, BufferId(0), &mut frame, 80..252);
                }
                router.flush(Micros(0), true);
                while let Some(datagram) = router.take_ready() {
                    router.pieces(&datagram).for_each(|piece| {
                        black_box(piece);
                    });
                    router.release(datagram);
                }
            }
            let warm = if warm { "warm, " } else { "" };
            let what = format!("{flows} flows, {owners} owners: {warm}decide, pack, flush per 64");
            report(&what, rounds, start);
        }
    }
}

#[test]
#[ignore = "measures; it checks nothing"]
fn requests() {
    let mut rng = StdRng::seed_from_u64(1);
    let (mut router, _) = router_with(1_000, 8, &mut rng);
    let calls: Vec<_> = (0..64)
        .map(|i| Call::plain(who(i, "10.0.0.1:5000", 0)))
        .collect();
    let from: Vec<_> = (0..64)
        .map(|i| client(&format!("203.0.113.9:{}", 1_000 + i)))
        .collect();
    let rounds = 200_000;
    let mut run = |what: &str, router: &mut Router, pick: fn(&Call) -> &Vec<u8>| {
        let start = cpu_time();
        for _ in 0..rounds {
            let i = rng.random_range(0..64);
            let packet = pick(&calls[i]);
            black_box(router.uplink(Micros(0), IngressId(0), UDP, from[i], packet));
        }
        report(what, rounds, start);
    };
    run("request, verified and bound", &mut router, |c| {
        &c.requests.good
    });
    run("request, integrity wrong", &mut router, |c| {
        &c.requests.wrong_integrity
    });
    run("request, ufrag forged", &mut router, |c| &c.requests.forged);
    run("request, fingerprint wrong", &mut router, |c| {
        &c.requests.wrong_fingerprint
    });
}

#[test]
#[ignore = "measures; it checks nothing"]
fn downlink_records() {
    let mut rng = StdRng::seed_from_u64(1);
    for flows in [1_000u32, 780_000] {
        let (mut router, _) = router_with(flows, 64, &mut rng);
        let records: Vec<_> = (0..flows)
            .map(|i| {
                let address = ClientAddr::new(
                    (
                        [198, 18, (i >> 14) as u8, (i >> 6) as u8],
                        1_024 + (i & 63) as u16,
                    )
                        .into(),
                );
                let owner = who(i, &format!("10.0.{}.1:5000", i % 64), 0);
                // The table was filled in order, so that slot and number are one; the generation started as configured.
                let handle = firsthop_shared::address::FlowHandle(4_090 << 20 | i);
                let mut record = world::record(
                    firsthop_shared::trunk::RecordKind::Packet,
                    owner,
                    0,
                    address,
                    i % 8 == 0,
                    handle,
                );
                record.payload_len = 172;
                (
                    firsthop_shared::address::Hop::new(owner.owner.get()),
                    record,
                )
            })
            .collect();
        let mut order: Vec<usize> = (0..records.len()).collect();
        order.shuffle(&mut rng);
        let rounds = 2_000_000;
        let start = cpu_time();
        for i in 0..rounds {
            let (source, record) = &records[order[i % order.len()]];
            black_box(router.downlink(
                Micros(0),
                *source,
                firsthop_shared::address::ShardId(0),
                record,
            ));
        }
        report(
            &format!("{flows} flows: downlink record by handle"),
            rounds,
            start,
        );
    }
}
