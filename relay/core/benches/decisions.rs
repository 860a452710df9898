//! Micro-benchmarks of what the relay does with a packet: `cargo bench -p firsthop-relay-core --features criterion`.

mod workload;

use std::hint::black_box;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use firsthop_shared::stun::Stun;
use firsthop_shared::token;
use firsthop_shared::trunk;

use workload::world::keyring;
use workload::{TURN, Workload};

fn tokens(c: &mut Criterion) {
    let keys = keyring(&[2, 1]);
    let workload = Workload::new(64, 1);
    let [good, ..] = &workload.checks;
    let message = Stun::parse(&good[0]).expect("STUN");
    let ufrag = message.local_ufrag().expect("a ufrag");
    let password = token::ice_password(&keys, ufrag).expect("ours");
    c.bench_function("token/open", |b| {
        b.iter(|| token::open(&keys, black_box(ufrag)));
    });
    c.bench_function("token/password", |b| {
        b.iter(|| token::ice_password(&keys, black_box(ufrag)));
    });
    c.bench_function("stun/parse", |b| {
        b.iter(|| Stun::parse(black_box(&good[0])));
    });
    c.bench_function("stun/verify", |b| {
        b.iter(|| message.verify_integrity(black_box(password.as_bytes())));
    });
    c.bench_function("stun/fingerprint", |b| b.iter(|| message.fingerprint_ok()));
}

fn flows(c: &mut Criterion) {
    let mut group = c.benchmark_group("flow");
    for flows in [1_000, 65_536, 780_000] {
        let mut workload = Workload::new(flows, 64);
        group.bench_function(format!("look-up/{flows}"), |b| {
            b.iter(|| workload.look_up())
        });
    }
    group.finish();
}

fn turns(c: &mut Criterion) {
    let mut group = c.benchmark_group("turn");
    group.throughput(Throughput::Elements(TURN as u64));
    for (flows, owners) in [(1_000, 1), (1_000, 64), (780_000, 64)] {
        let mut workload = Workload::new(flows, owners);
        group.bench_function(format!("media/{flows}/{owners}"), |b| {
            b.iter(|| workload.media_turn());
        });
    }
    let mut workload = Workload::new(1_000, 8);
    for (kind, name) in [(0, "check"), (1, "wrong-integrity"), (2, "forged")] {
        group.bench_function(name, |b| b.iter(|| workload.check_turn(kind)));
    }
    group.bench_function("random", |b| b.iter(|| workload.random_turn()));
    group.finish();
}

fn trunks(c: &mut Criterion) {
    let keys = keyring(&[2, 1]);
    let mut group = c.benchmark_group("trunk");
    for records in [7, 40] {
        group.throughput(Throughput::Elements(records as u64));
        let mut workload = Workload::new(1_000, 1);
        let mut writer = workload.writer();
        group.bench_function(format!("write/{records}"), |b| {
            b.iter(|| writer.datagram(records).len());
        });
        let bytes = writer.datagram(records).to_vec();
        group.bench_function(format!("parse/{records}"), |b| {
            b.iter(|| {
                let datagram = trunk::open(&keys, black_box(&bytes)).expect("valid");
                datagram.records().map(|r| r.payload.len()).sum::<usize>()
            });
        });
        group.bench_function(format!("downlink/{records}"), |b| {
            // Each is new to the replay window.
            b.iter_batched(
                || writer.datagram(records).to_vec(),
                |bytes| workload.downlink(&bytes),
                BatchSize::SmallInput,
            );
        });
    }
    group.finish();
}

criterion_group!(benches, tokens, flows, turns, trunks);
criterion_main!(benches);
