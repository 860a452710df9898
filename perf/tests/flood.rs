//! Floods against a real relay, at a scale that any machine bears: live calls lose nothing, and each kind of junk is dropped
//! for the reason that it should be.

mod beside;

use std::time::Duration;

use firsthop_perf::bench::floods;
use firsthop_perf::flood::{FloodPlan, FloodReport, Junk};
use firsthop_shared::limits::TRUNK_RECORDS_MAX;

use beside::lab;

/// Why the relay dropped what it read.
fn reasons(report: &FloodReport) -> Vec<&str> {
    let reasons = report.drops.keys().map(String::as_str);
    reasons.filter(|reason| !is_of_kernel(reason)).collect()
}

fn is_of_kernel(reason: &str) -> bool {
    reason.starts_with("kernel_")
}

/// The most packets of live calls that sockets may have lost while a program stood still: none where none was without room.
fn lost_by_sockets(report: &FloodReport) -> u64 {
    let of_relay = report.drops.iter().filter(|drop| is_of_kernel(drop.0));
    let datagrams = of_relay.map(|(_, count)| count).sum::<u64>() + report.own_drops;
    datagrams * TRUNK_RECORDS_MAX as u64
}

#[test]
fn live_calls_lose_nothing_to_any_kind_of_junk() {
    let plan = FloodPlan {
        sources: 20_000,
        junk_rate: 5_000.0,
        live_rate: 10.0,
        duration: Duration::from_secs(1),
        rounds: 1,
    };
    let lab = lab("flood");
    let reports = floods(&lab, 100, &plan, |_| {}).expect("five floods");
    assert_eq!(reports.len(), Junk::ALL.len());
    for report in &reports {
        let name = report.junk.name();
        assert!(report.rate > 500.0, "{name}: {report:?}");
        // What a socket has no room for while the machine stands still is no fault of the relay's; nothing else is lost.
        assert!(report.lost <= lost_by_sockets(report), "{name}: {report:?}");
        // A table that grew with its sources would be larger by much more.
        assert!(report.memory_growth < 4 << 20, "{name}: {report:?}");
        let mut reasons = reasons(report);
        // A turn that is full of requests from strangers does not verify them all.
        let verified = reasons.len();
        reasons.retain(|reason| *reason != "verify_budget");
        let request = !matches!(report.junk, Junk::Random | Junk::Empty);
        assert!(request || reasons.len() == verified, "{name}: {report:?}");
        match report.junk {
            Junk::Random => assert!(reasons.contains(&"unknown_class"), "{reasons:?}"),
            Junk::Empty => assert_eq!(reasons, ["empty"]),
            Junk::ForgedUfrag => assert_eq!(reasons, ["ufrag_forged"]),
            Junk::WrongIntegrity => assert_eq!(reasons, ["stun_integrity"]),
            // Each is valid, and binds its address for a while, in a bounded queue.
            Junk::Replayed => assert!(reasons.is_empty(), "{reasons:?}"),
        }
    }
}
