"""What befalls transceivers, which own calls, and what must hold then."""

import signal

from firsthop.launching import READY_SECONDS

from .calls import FRAME_MS, Calls, Group
from .limits import ENDS_SECONDS, UNNOTICED_MS
from .topology import HOME
from .trial import Trial


def kill_owner(trial: Trial) -> None:
    """A transceiver with calls dies."""
    trial.note(calls_there=trial.world.sessions("1x"))
    trial.check("the owner has calls", trial.facts["calls_there"] > 0)
    trial.world.transceivers["1x"].kill()


def only_its_calls_are_anew(trial: Trial) -> None:
    """Calls of others have shaken hands once, and those of the dead one once more."""
    readings = trial.calls.read().values()
    sum_of_handshakes = sum(one.handshakes_sum for one in readings)
    expected = trial.calls.number + trial.facts["calls_there"]
    trial.check(
        f"only calls of the dead one were placed anew ({sum_of_handshakes} handshakes, {expected} expected)",
        sum_of_handshakes == expected,
    )
    spared = [call for call in trial.calls.each() if call["handshakes"] == 1]
    worst = max((call["gap_ms"] - FRAME_MS for call in spared), default=0.0)
    trial.note(others_gap_ms=round(worst, 1))
    trial.within("blackout of other owners' calls", worst, UNNOTICED_MS)


def drain_owner(trial: Trial) -> None:
    """1x is told to stop. Its calls go on; calls that are placed now go elsewhere."""
    world = trial.world
    draining = world.transceivers["1x"]
    draining.signal(signal.SIGTERM)
    draining.wait_for_line("draining", READY_SECONDS)
    before = {name: world.sessions(name) for name in ("1x", "1y")}
    new = Calls(world, 2, (Group("more", "home", HOME, 1, 1),), label="new ")
    trial.note(calls_there=before["1x"], calls_placed_meanwhile=new.number)
    trial.check("the owner has calls", before["1x"] > 0)
    trial.check("no call was placed at the one that drains", world.sessions("1x") == before["1x"])
    trial.check("new calls are at the other", world.sessions("1y") == before["1y"] + new.number)
    new.hang_up()


def drained_ends(trial: Trial) -> None:
    """The one that drains keeps its calls until they end, and ends with them."""
    trial.check("the one that drains has its calls still", trial.world.sessions("1x") == trial.facts["calls_there"])
    trial.calls.hang_up()
    trial.calls.groups.clear()
    status = trial.world.transceivers["1x"].wait(ENDS_SECONDS)
    trial.check("it ends after its last call, with status 0", status == 0)
