//! What the relay's ratios are called.

/// What ratios are called for people, in the order of the page, and which of them come first of all.
pub(super) const NAMES: &[(&str, &str, bool)] = &[
    (
        "uplink_vs_floor_1500",
        "Relay, a packet up, to one receive of the kernel",
        true,
    ),
    (
        "uplink_vs_floor_9000",
        "Up, with an internal MTU of 9,000",
        false,
    ),
    ("uplink_vs_floor_8dest", "Up, with 8 owners", false),
    ("uplink_vs_floor_64dest", "Up, with 64 owners", false),
    (
        "uplink_vs_floor_64dest_9000",
        "Up, with 64 owners and an MTU of 9,000",
        false,
    ),
    ("uplink_vs_floor_512dest", "Up, with 512 owners", false),
    (
        "uplink_vs_floor_1500_asleep",
        "Up, when receivers sleep",
        false,
    ),
    (
        "downlink_vs_floor",
        "Relay, a packet down, to one send of the kernel",
        true,
    ),
    (
        "downlink_vs_floor_9000",
        "Down, with an internal MTU of 9,000",
        false,
    ),
    ("downlink_vs_floor_64dest", "Down, with 64 owners", false),
    (
        "downlink_vs_floor_asleep",
        "Down, when receivers sleep",
        false,
    ),
    ("vs_go", "Relay both ways, to a relay in Go", true),
    (
        "vs_go_at_load",
        "To Go, at a rate that one packet per call half bears",
        false,
    ),
    ("vs_go_200_calls", "To Go, with 200 calls", false),
    ("vs_go_asleep", "To Go, when receivers sleep", false),
    ("vs_nginx", "Relay both ways, to nginx", true),
    (
        "vs_nginx_at_load",
        "To nginx, at a rate that one packet per call half bears",
        false,
    ),
    ("vs_nginx_200_calls", "To nginx, with 200 calls", false),
    ("vs_nginx_asleep", "To nginx, when receivers sleep", false),
    ("vs_coturn", "Relay both ways, to coturn", true),
    ("vs_single", "To one packet per call", false),
    (
        "vs_single_at_load",
        "To one packet per call, at half of what that bears",
        false,
    ),
    (
        "vs_single_asleep",
        "To one packet per call, when receivers sleep",
        false,
    ),
    ("vs_batched", "To batches by recvmmsg and sendmmsg", false),
    (
        "floors_vs_go",
        "One receive and one send alone, to Go: no relay can be below",
        false,
    ),
    (
        "floors_vs_nginx",
        "One receive and one send alone, to nginx",
        false,
    ),
    (
        "million_flows_vs_thousand",
        "Relay with a million flows, to a thousand",
        true,
    ),
    (
        "latency_p99_vs_single",
        "Relay's delay, p99, to one packet per call",
        true,
    ),
    ("bytes_per_flow", "Memory of a flow", false),
    (
        "latency_p50_saturated_vs_single",
        "Relay's delay, p50, to one packet per call where that is saturated",
        false,
    ),
    (
        "latency_p99_saturated_ms",
        "Relay's delay, p99, at more than it can carry",
        false,
    ),
    (
        "latency_p99_expiring_vs_not",
        "Relay's delay, p99, while a table is forgotten, to while it is not",
        false,
    ),
    (
        "timer_lateness_p999_ms",
        "Timers late under full load, p99.9",
        false,
    ),
    (
        "flood_live_loss",
        "Live packets lost in the worst flood",
        true,
    ),
    (
        "junk_random_vs_forwarding",
        "Random bytes, each to a forwarded packet",
        false,
    ),
    (
        "junk_empty_vs_forwarding",
        "Empty datagrams, each to a forwarded packet",
        false,
    ),
    (
        "junk_forged_ufrag_vs_forwarding",
        "Forged ufrags, each to a forwarded packet",
        false,
    ),
    (
        "junk_wrong_integrity_vs_forwarding",
        "Checks with wrong integrity, each to a forwarded packet (a budget bounds them)",
        false,
    ),
    (
        "junk_replayed_vs_forwarding",
        "Replayed checks, each to a forwarded packet",
        false,
    ),
];
