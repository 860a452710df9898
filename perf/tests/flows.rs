//! A table of many flows in a real relay: what is measured with them is measured with all of them there.

mod beside;

use std::net::SocketAddrV4;
use std::time::{Duration, Instant};

use firsthop_perf::bench::{Effort, Ready, flow_case, flow_cost, start};
use firsthop_perf::rig::RigError;
use firsthop_perf::signal::{Signal, send};
use firsthop_perf::subject::{Program, RelayOptions};

use beside::lab;

/// How many datagrams the socket at an address has had no room for.
fn drops(address: SocketAddrV4) -> u64 {
    let [a, b, c, d] = address.ip().octets();
    let local = format!("{d:02X}{c:02X}{b:02X}{a:02X}:{:04X}", address.port());
    let table = std::fs::read_to_string("/proc/net/udp").expect("Linux");
    let lines = table.lines().filter(|line| line.contains(&local));
    let dropped = lines.filter_map(|line| line.split_whitespace().last()?.parse::<u64>().ok());
    dropped.sum()
}

/// At a smaller scale than a million, with a relay that stands still while the records come.
#[test]
fn flows_whose_records_were_lost_are_restored_all_the_same() {
    // Their records find no room in the largest buffer that a relay asks for.
    const FLOWS: u32 = 200_000;
    let lab = lab("flows-restored");
    let Ready {
        mut rig,
        mut subject,
    } = start(&lab, &flow_case(FLOWS)).expect("a relay");
    subject.process.halt().expect("halted");
    let (id, internal) = (subject.process.id(), subject.place.internal);
    let goes_on = std::thread::spawn(move || {
        let end = Instant::now() + Duration::from_secs(120);
        while drops(internal) == 0 && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(5));
        }
        let lost = drops(internal);
        send(id, Signal::Continue).expect("it goes on");
        lost
    });
    rig.restore(internal, Duration::from_secs(240))
        .expect("every client hears of its owner");
    let lost = goes_on.join().expect("it goes on");
    assert!(lost > 0, "records find no room");
    let counted = subject.published().expect("counters");
    // On a machine that stood still the first of them may have been forgotten again, and made again.
    let known = counted.sum("flows") + counted.sum("flows_expired_total");
    assert!(known >= u64::from(FLOWS), "{known}");
}

/// Packets of flows that are not there are lost, for less than it costs to forward them.
#[test]
fn flows_that_find_no_room_in_the_table_are_not_measured() {
    const FLOWS: u32 = 30_000;
    const ROOM: u32 = 8_192;
    let effort = Effort {
        rounds: 1,
        backlog: 500,
        ..Effort::QUICK
    };
    let mut case = flow_case(FLOWS);
    let (cost, _) = flow_cost(&lab("flows-room"), &case, &effort).expect("all find room");
    assert_eq!(cost.there, u64::from(FLOWS));
    assert!(!cost.cost.drops.contains_key("no_flow_rtp"), "{cost:?}");

    case.program = Program::Relay(RelayOptions {
        flows: ROOM,
        ..RelayOptions::default()
    });
    let refused = flow_cost(&lab("flows-no-room"), &case, &effort).err();
    let error = refused.expect("most find none");
    assert!(
        matches!(error, RigError::Missing { there, flows: FLOWS } if there <= u64::from(ROOM)),
        "{error}"
    );
}
