"""Calls in the test world outlive one fault after another: some of the scenarios of `scripts/testnet`, with few calls.

What is tested here is that calls heal by themselves: none ends, and none needs another handshake. How soon they do, a
machine that builds and tests at the same time cannot say; `scripts/testnet` measures that.
"""

import time

import pytest

from testnet import results
from testnet.calls import Calls
from testnet.scenarios import BY_NAME
from testnet.trial import HEAL_SECONDS, WATCH_SECONDS, Row, Trial, suffer
from testnet.world import World

#: One for each group of callers, and one more at home.
CALLS = 4

#: What the limits of time are multiplied by, since this machine may be busy: that calls heal at all is waited for.
PATIENCE = 20.0

#: How long a busy machine may hold calls up when nothing is wrong.
STALL_MS = 10_000.0

#: After the last, relay B serves in place of A.
ONE_AFTER_ANOTHER = ("nat-rebinding", "hot-restart", "relay-restart-redis", "cluster-relay-killed", "take-over")


@pytest.mark.timeout(300)
def test_calls_outlive_one_fault_after_another(world: World) -> None:
    # A Redis that gets no time is warned of.
    world.expected_complaints.append("flow cache")
    calls = Calls(world, CALLS)
    trial = Trial(world, calls, PATIENCE)
    rows = []
    for name in ONE_AFTER_ANOTHER:
        row = Row(BY_NAME[name], faults=trial.faults)
        rows.append(row)
        suffer(BY_NAME[name], trial, row, watch=0)
        assert trial.faults == [], results.table(rows)
    # Paths that only look healed would be given up by then.
    calls.mark()
    time.sleep(WATCH_SECONDS)
    calls.wait_until_heard(HEAL_SECONDS)
    reading, up = calls.all()
    assert (reading.up, reading.cut, reading.handshakes) == (calls.number, 0, 1), results.table(rows)
    assert max(reading.down.gap_ms, up.gap_ms) <= STALL_MS, results.table(rows)
    assert up.gone == 0
    calls.hang_up()
