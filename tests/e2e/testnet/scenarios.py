"""What goes wrong in the test world, one scenario after another."""

from dataclasses import replace

from .calls import GROUPS
from .client_faults import (
    all_are_elsewhere,
    change_network,
    home_is_elsewhere,
    move_ingress,
    nothing_at_a,
    offer_both,
    rebind,
    spoof,
    storm,
)
from .limits import (
    CHECK_MS,
    CHECKED_MS,
    CUT_MS,
    CUT_SECONDS,
    FAIL_OVER_MS,
    LISTENING_MS,
    LOSS,
    NEXT_CHECK_MS,
    RESTART,
    RESTART_MS,
    STORM_RATE,
    UNNOTICED,
    UNNOTICED_MS,
)
from .owner_faults import drain_owner, drained_ends, kill_owner, only_its_calls_are_anew
from .redis_faults import flush_redis, kill_redis, pause_redis, redis_is_back, redis_is_full_again, resume_redis
from .region_faults import (
    cut_line,
    kill_cluster_relay,
    lossy_lines,
    lost_as_the_lines_did,
    others_did_not_notice,
    preferred_relay_returns,
)
from .relay_faults import (
    all_at_b,
    ends_by_itself,
    heals_soon_after_listening,
    hot_restart,
    restart_a,
    restart_with_two_cores,
    spread_flows,
    stop_gracefully,
    take_over,
)
from .trial import Limits, Scenario

_RESTARTED = Scenario(
    "relay-restart-redis",
    "ingress relay killed and started again, with Redis",
    f"{RESTART_MS:.0f} ms, {LISTENING_MS:.0f} of them after it listens",
    RESTART,
    restart_a,
    heals_soon_after_listening,
)

ALL: tuple[Scenario, ...] = (
    _RESTARTED,
    replace(
        _RESTARTED,
        name="relay-restart-no-redis",
        what="the same without Redis",
        target=f"{RESTART_MS:.0f} ms, {LISTENING_MS:.0f} of them after it listens: healed by the downlink",
        with_redis=False,
    ),
    replace(
        _RESTARTED,
        name="relay-restart-other-cores",
        what="the same with Redis, and two cores where there was one",
        strike=restart_with_two_cores,
        complaints=("the fleet lists this relay with another",),
    ),
    Scenario(
        "hot-restart",
        "ingress relay hands over to a successor",
        "nothing lost",
        UNNOTICED,
        hot_restart,
        # A cache could stand in for what was not handed over.
        with_redis=False,
    ),
    Scenario(
        "graceful-stop",
        "ingress relay stops, another takes the address when it is not ready",
        f"{UNNOTICED_MS:.0f} ms, nothing lost",
        UNNOTICED,
        stop_gracefully,
        ends_by_itself,
        settings={"A": {"drain": "600"}},
    ),
    Scenario(
        "take-over",
        "ingress relay killed, another takes the address, with Redis",
        "100 ms",
        Limits(100.0, 100.0),
        take_over,
        all_at_b,
    ),
    Scenario(
        "ecmp",
        "half of the flows move to another relay, then the rest",
        "100 ms",
        Limits(100.0, 100.0),
        spread_flows,
        all_at_b,
    ),
    Scenario(
        "nat-rebinding",
        "clients' ports change in mid-call",
        f"the client's next check: {CHECK_MS / 1_000:g} s, and {CHECKED_MS:.0f} ms to answer it",
        Limits(NEXT_CHECK_MS, NEXT_CHECK_MS),
        rebind,
        all_are_elsewhere,
    ),
    Scenario(
        "network-change",
        "clients' addresses change, ICE restart",
        "2 s",
        Limits(2_000.0, 2_000.0),
        change_network,
        home_is_elsewhere,
    ),
    Scenario(
        "ingress-move",
        "clients move to another ingress relay's own address",
        "1 s",
        Limits(1_000.0, 1_000.0),
        move_ingress,
        nothing_at_a,
        arrange=offer_both,
        groups=GROUPS[:2],
    ),
    Scenario(
        "transceiver-killed",
        "an owner dies; its clients place new calls",
        "10 s, others nothing",
        Limits(10_000.0, 10_000.0, handshakes=2),
        kill_owner,
        only_its_calls_are_anew,
        reconnect=True,
    ),
    Scenario(
        "transceiver-drained",
        "an owner drains: its calls go on, new ones go elsewhere",
        "nothing",
        UNNOTICED,
        drain_owner,
        drained_ends,
        settings={"1x": {"drain": "600"}},
    ),
    Scenario(
        "redis-killed",
        "Redis dies",
        "nothing",
        UNNOTICED,
        kill_redis,
        redis_is_back,
        complaints=("flow cache",),
    ),
    Scenario("redis-flushed", "Redis is emptied", "nothing", UNNOTICED, flush_redis, redis_is_full_again),
    Scenario(
        "redis-paused",
        "Redis hangs",
        "nothing",
        UNNOTICED,
        pause_redis,
        resume_redis,
        complaints=("flow cache",),
    ),
    Scenario(
        "cluster-relay-killed",
        "a cluster's relay dies, its next one takes over",
        f"{FAIL_OVER_MS / 1_000:g} s, other cluster nothing",
        Limits(FAIL_OVER_MS, FAIL_OVER_MS),
        kill_cluster_relay,
        preferred_relay_returns,
    ),
    Scenario(
        "region-cut",
        f"the line to a region is cut for {CUT_SECONDS:g} s",
        f"{CUT_MS / 1_000:g} s, other region nothing",
        Limits(CUT_MS, CUT_MS),
        cut_line,
        others_did_not_notice,
    ),
    Scenario(
        "lossy-link",
        f"lines between regions lose {LOSS:.0%} and take 40 ms",
        "300 ms",
        Limits(300.0, 300.0),
        lossy_lines,
        lost_as_the_lines_did,
    ),
    Scenario(
        "storm",
        f"a client sends {STORM_RATE} packets a second",
        "nothing",
        UNNOTICED,
        storm,
    ),
    Scenario(
        "spoofed",
        "live calls' requests replayed and forged",
        "nothing",
        UNNOTICED,
        spoof,
    ),
)

BY_NAME = {scenario.name: scenario for scenario in ALL}
