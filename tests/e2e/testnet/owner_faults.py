"""What befalls what is behind the relays, and what must hold then: transceivers and Redis."""

import signal

from firsthop.launching import READY_SECONDS
from firsthop.waiting import until

from .calls import FRAME_MS, Calls, Group
from .limits import ENDS_SECONDS, RETURN_SECONDS, UNNOTICED_MS
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


def kill_redis(trial: Trial) -> None:
    """Redis dies."""
    assert trial.world.redis is not None
    trial.world.redis.kill()
    until("relays notice", lambda: not trial.world.has_redis("A"), RETURN_SECONDS)


def redis_is_back(trial: Trial) -> None:
    """Redis starts again, and relay A finds it."""
    trial.world.start_redis()
    until("relay A has its Redis again", lambda: trial.world.has_redis("A"), RETURN_SECONDS)


def flush_redis(trial: Trial) -> None:
    """Redis forgets everything."""
    trial.note(entries_before=trial.world.flows_in_redis())
    trial.check("Redis takes the order", trial.world.ask_redis("FLUSHALL") == "+OK")


def redis_is_full_again(trial: Trial) -> None:
    """The relays have written their flows anew."""
    entries = trial.world.flows_in_redis()
    trial.note(entries_after=entries)
    trial.check(f"each call has its entry again ({entries})", entries >= trial.calls.number)


def pause_redis(trial: Trial) -> None:
    """Redis hangs."""
    assert trial.world.redis is not None
    trial.world.redis.signal(signal.SIGSTOP)


def resume_redis(trial: Trial) -> None:
    """Relay A noticed, and has its Redis again when that goes on."""
    assert trial.world.redis is not None
    trial.check("relay A says that Redis does not answer", not trial.world.has_redis("A"))
    trial.world.redis.signal(signal.SIGCONT)
    until("relay A has its Redis again", lambda: trial.world.has_redis("A"), RETURN_SECONDS)
