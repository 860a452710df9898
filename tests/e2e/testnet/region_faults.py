"""What befalls between regions, and what must hold then: a cluster's relay, and the lines."""

import time

from firsthop.waiting import until

from .limits import CUT_SECONDS, LOSS, RETURN_SECONDS, UNNOTICED_MS
from .trial import Trial


def kill_cluster_relay(trial: Trial) -> None:
    """The relay that leads to a cluster dies."""
    trial.check("the relay that is killed leads", trial.world.leads("A", "1a"))
    trial.world.relays["1a"].kill()


def preferred_relay_returns(trial: Trial) -> None:
    """Nobody else's calls have noticed; the preferred relay leads again when it is back, and nobody notices that."""
    far = trial.calls.read()["far"]
    trial.within("blackout of the other cluster's calls", far.down.gap_ms, UNNOTICED_MS)
    trial.calls.mark()
    trial.world.start_relay("1a")
    until("the preferred relay leads again", lambda: trial.world.leads("A", "1a"), RETURN_SECONDS)
    trial.calls.wait_until_heard(RETURN_SECONDS)
    reading, up = trial.calls.all()
    trial.note(return_down_ms=reading.down.gap_ms, return_up_ms=up.gap_ms)
    trial.within("blackout towards callers when it returns", reading.down.gap_ms, UNNOTICED_MS)
    trial.within("blackout from callers when it returns", up.gap_ms, UNNOTICED_MS)


def cut_line(trial: Trial) -> None:
    """The line to a region is cut, and joined again."""
    line = trial.world.lines[1]
    line.ask("cut")
    # The length of the cut is the fault itself.
    time.sleep(CUT_SECONDS)
    line.ask("heal")


def others_did_not_notice(trial: Trial) -> None:
    """Calls of the region were silent for as long as the line was cut, and the others never."""
    readings = trial.calls.read()
    far, least = readings["far"], CUT_SECONDS * 1_000 - 500
    for group in ("home", "office"):
        trial.check(f"the line was cut for {group}", readings[group].down.gap_ms >= least)
    trial.within("blackout of the other cluster's calls", far.down.gap_ms, UNNOTICED_MS)
    trial.check("no packet of the other cluster's calls was lost", far.down.lost == 0)


def lossy_lines(trial: Trial) -> None:
    """Lines between regions lose packets, and take longer."""
    for line in trial.world.lines.values():
        line.ask("delay 40ms")
        line.ask(f"loss {LOSS}")


def lost_as_the_lines_did(trial: Trial) -> None:
    """A packet passes one line: what is lost is what that loses, and no more."""
    for which, heard in (("towards", trial.down), ("from", trial.up)):
        share = heard.lost / max(1, heard.packets + heard.lost)
        trial.note(**{f"lost_share_{which}": round(share, 4)})
        as_told = LOSS / 2 < share < LOSS * 2
        trial.check(f"packets {which} callers were lost as the lines lose them ({share:.4f})", as_told)
